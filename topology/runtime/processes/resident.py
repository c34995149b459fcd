"""The resident executor: the process that hosts the tasks of one Storm executor."""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import logging
import os
import secrets
import selectors
import socket
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn, cast

import numpy as np
import pyarrow as pa
from kafka.errors import KafkaError

from dskype.topology import kernel_cache
from dskype.topology.background import BackgroundError
from dskype.topology.components import KafkaSpout
from dskype.topology.config import Config
from dskype.topology.core.executor import Executor, Owner, PendingSnapshot
from dskype.topology.core.redaction import RedactingFormatter, redact_text
from dskype.topology.core.snapshots import FencedError, SnapshotStore
from dskype.topology.core.steady_clock import now_ms
from dskype.topology.errors import TopologyError, mark_of
from dskype.topology.planning import acker
from dskype.topology.planning.plan import inbox_topic, metrics_topic
from dskype.topology.routing import java_hash
from dskype.topology.runtime.kafka.reading import KafkaInboxReader
from dskype.topology.runtime.kafka.record_producer import RecordProducer
from dskype.topology.runtime.processes.background import ForkedWork
from dskype.topology.runtime.processes.executor_log import redirect_output
from dskype.topology.runtime.processes.host import Stop, StopSignal, set_name
from dskype.topology.runtime.processes.payload import Payload
from dskype.topology.runtime.stores.choice import fetch_files
from dskype.topology.runtime.transport.inbox_loop import InboxLoop, KeptPositions
from dskype.topology.runtime.transport.leases import Leases, SupersededError
from dskype.topology.runtime.transport.record_writer import make_writer
from dskype.topology.runtime.transport.spark_input import SparkInput
from dskype.topology.runtime.transport.wire import SUPERVISOR_VARIABLE, receive, send

__all__ = ["import_components", "main", "warm_up"]

log = logging.getLogger(__name__)
_SYNC_S = 2.0
"""Time between two syncs of journals: a power cut may destroy so much work, unless it is in Kafka."""

_ALONE_S = 10.0
"""On a cluster, an executor to which Spark has no connection asks so often whether its query was started again elsewhere."""
_TOLD_S = 10.0
"""How long word of a kernel that is compiled waits for the brokers; it may be lost."""
_FRESH_S = 1.0
"""Reports come ten times a second; the kernel counts in hundredths, and takes a millisecond where there are a hundred processors."""


def warm_up() -> None:
    """Import and compile in the zygote what every executor needs."""
    texts = (pa.array(["a", "é"]), pa.array(["a"], pa.large_string()), pa.array([b"a"]), pa.array([b"a"], pa.large_binary()))
    for column in (np.arange(4), np.arange(4.0), np.array([True, False]), *texts):
        java_hash.hash_column(column)
    acker.warm_up()
    gc.collect()
    gc.freeze()


def import_components(payload: bytes) -> None:
    """Import in the zygote those components of a topology that belong to this product: its executors then have them, and each need not import them again.

    Other components are left to the executors: two topologies may have modules of the same name, and what a module starts may not survive a fork.
    """
    if not (new := [name for name in Payload.modules(payload) if name not in sys.modules]):
        return
    with contextlib.suppress(Exception):  # an executor fails in the same way, and tells Spark
        for name in new:
            importlib.import_module(name)
    gc.collect()
    gc.freeze()


def main(listener: socket.socket, key: tuple[str, str, int], payload: bytes) -> None:
    """Process what Spark passes on until SIGTERM; called in a fresh fork of the supervisor."""
    topology, component, index = key
    set_name(f"dsk:{component}")
    content = Payload.loads(payload)
    logs = content.logs or Path("dskype-logs").absolute()
    logs.mkdir(parents=True, exist_ok=True)
    redirect_output(logs / f"{inbox_topic('x', component)[2:]}-{index}.log")
    handler = logging.StreamHandler()
    handler.setFormatter(RedactingFormatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    # A client says ten things when it connects, and complains when the machine is busy; a fork that writes a snapshot has clients of its own.
    logging.getLogger("kafka").setLevel(logging.WARNING)
    logging.getLogger("kafka.net.selector").setLevel(logging.ERROR)
    stop = StopSignal()
    stop.install()
    resident = _Resident(listener, content, component, index)
    kernel_cache.told.append(resident.tell_what_is_compiled)
    try:
        resident.run(stop)
    except Stop:
        stop.ignore()
        resident.close()


def _sync_journals(store: SnapshotStore, tasks: Sequence[int]) -> None:
    """Sync journals to the disk periodically, in a thread of its own."""
    while True:
        time.sleep(_SYNC_S)
        for task in tasks:
            try:
                store.sync_journal(task)
            except OSError:  # for example, a full disk, because of which batches fail as well
                log.exception("the journal of task %s could not be synced", task)


class _HostLoad:
    """What the reports of an executor say of its host: who reads them need not be on that host."""

    def __init__(self) -> None:
        self._name, self._processors = socket.gethostname(), os.cpu_count() or 1
        self._told: dict[str, Any] = {}
        self._read_s = float("-inf")

    def report(self) -> dict[str, Any]:
        """Return ``host``: its ``name``, the number of its ``processors``, and the time that these have ``used`` and ``had`` since its start; {} if the host does not say.

        Time that a hypervisor has taken away counts as used: it is not free.
        """
        now_s = time.monotonic()
        if now_s - self._read_s >= _FRESH_S:
            self._read_s, self._told = now_s, {}
            with contextlib.suppress(OSError, ValueError), open("/proc/stat", encoding="ascii") as file:
                user, nice, system, idle, iowait, irq, softirq, steal = map(float, file.readline().split()[1:9])  # see proc(5)
                used = user + nice + system + irq + softirq + steal
                self._told = {"host": {"name": self._name, "processors": self._processors, "used": used, "had": used + idle + iowait}}
        return self._told


class _Resident:
    def __init__(self, listener: socket.socket, payload: Payload, component: str, index: int) -> None:
        self._listener, self._payload = listener, payload
        self._component, self._index = component, index
        self._executor: Executor | None = None
        self._store = payload.store
        self._selector = selectors.DefaultSelector()
        self._snapshot: list[PendingSnapshot] = []
        self._saving: ForkedWork | None = None
        self._loop: InboxLoop | None = None
        self._leases: Leases | None = None
        self._called_s = time.monotonic()  # when Spark had a connection to this process last
        spout = payload.plan.spec(component).obj
        self._is_kafka_spout = isinstance(spout, KafkaSpout)
        self._isolation = spout.isolation_level if isinstance(spout, KafkaSpout) else "read_uncommitted"
        self._owner = f"{socket.gethostname()}/{os.getpid()}/{secrets.token_hex(4)}"
        self._teller: RecordProducer | None = None

    def _make_executor(self) -> Executor:
        plan, store = self._payload.plan, self._store
        store.kept = plan.component_conf(self._component)[Config.TOPOLOGY_EMULATOR_SNAPSHOTS_KEPT]
        if store.remote:
            plan = fetch_files(plan, store, Path(os.environ[SUPERVISOR_VARIABLE]).parent / "files")  # this folder goes with the supervisor
        tasks = plan.executor_tasks(self._component, self._index)
        if plan.spec(self._component).is_spout and not store.remote:  # its process never forks, so it may have another thread
            threading.Thread(target=_sync_journals, args=(store, tasks), name="journals", daemon=True).start()
        for task in tasks:
            store.sweep(task)
        # What a Kafka spout has to read again, it reads as its query does.
        reader = KafkaInboxReader(self._payload.kafka, self._isolation, keep=self._is_kafka_spout, starts=self._payload.starts)
        executor = Executor(plan, self._component, self._index, store, reader, now_ms, owner=Owner(self._owner, self._payload.term, self._payload.epoch))
        executor.about_host = _HostLoad().report
        executor.run_in_background = lambda work: ForkedWork(work, self._become_fork)
        return executor

    def run(self, stop: StopSignal) -> None:
        """Process what Spark passes on until SIGTERM, which ends a batch only if it takes too long.

        :raises Stop: always, in the end.
        """
        selector = self._selector
        selector.register(self._listener, selectors.EVENT_READ)
        while True:
            with stop.waiting():
                ready = selector.select(None if self._loop is None else 0.0)
            for key, _ in ready:
                connection = cast("socket.socket", key.fileobj)
                if connection is self._listener:
                    accepted, _ = self._listener.accept()
                    selector.register(accepted, selectors.EVENT_READ)
                    continue
                try:
                    self._serve(connection)
                except ConnectionError:
                    selector.unregister(connection)
                    connection.close()
            if self._loop is not None:
                self._step(self._loop)

    def tell_what_is_compiled(self, kernel: str) -> None:
        """Tell the driver, and everybody who reads the metrics topic, which kernel this process compiles: until that is done, it does nothing else."""
        report = {"v": 1, "kind": "compiling", "component": self._component, "executor": self._index, "kernel": kernel, "time_ms": now_ms()}
        with contextlib.suppress(KafkaError):  # the log says it, too
            if self._teller is None:
                self._teller = self._payload.kafka.producer(delivery_timeout_s=_TOLD_S)
            self._teller.send(metrics_topic(self._payload.plan.name), json.dumps(report).encode(), partition=0)

    def _serve(self, connection: socket.socket) -> None:
        """Read a partition through this connection."""
        hello = receive(connection)
        try:
            if self._loop is None:  # made here, so that an error of open or prepare reaches Spark
                if self._payload.given_up_s is not None:
                    self._leases = self._take_leases()
                self._executor = self._make_executor()
                self._loop = self._make_loop(self._executor)
            self._selector.unregister(connection)
            self._loop.input.add(connection, hello)
        except Exception as error:
            self._fail(connection, error)

    def _take_leases(self) -> Leases:
        """Take the leases of the tasks; return when no executor on another host can write for them any more."""
        payload = self._payload
        leases = Leases(
            self._store,
            payload.plan.executor_tasks(self._component, self._index),
            owner=self._owner,
            home=f"{socket.gethostname()}{os.environ[SUPERVISOR_VARIABLE]}",
            epoch=payload.epoch,
        )
        leases.take()
        return leases

    def _make_loop(self, executor: Executor) -> InboxLoop:
        """Return the loop of this executor."""
        # Only an earlier executor of the same query can have kept positions.
        name = f"positions-{self._payload.plan.topology_id}-{inbox_topic('x', self._component)[2:]}-{self._index}-{self._payload.epoch}"
        path = Path(os.environ[SUPERVISOR_VARIABLE]).parent / name  # this folder goes with the supervisor
        starts = self._payload.starts
        positions = starts | {where: offset for where, offset in executor.positions_since_start().items() if where in starts}
        return InboxLoop(
            executor,
            make_writer(self._payload.kafka, self._payload.given_up_s),
            KeptPositions(path, [task.id for task in executor.tasks]),
            positions,
            self._maybe_snapshot,
            # Its own client: what lies before is read bit by bit, and in between the spout reads failed records again.
            lambda where: SparkInput(KafkaInboxReader(self._payload.kafka, self._isolation), where, self._selector, single=self._is_kafka_spout),
            permit=self._leases.check if self._leases is not None else lambda: None,
            interval_s=self._payload.interval_s,
        )

    def _step(self, loop: InboxLoop) -> None:
        try:
            if loop.input:
                self._called_s = time.monotonic()
            elif self._leases is not None and time.monotonic() - self._called_s > _ALONE_S:
                self._check_leases(self._leases)
            loop.step()
        except Exception as error:
            self._fail(None, error)

    def _check_leases(self, leases: Leases) -> None:
        """Return if this executor still has its tasks, although Spark has had no connection to it for a while.

        :raises Stop: its query was started again elsewhere.
        """
        try:
            leases.check()
        except (SupersededError, FencedError) as error:
            log.info("the tasks of this executor are elsewhere: %s", error)
            raise Stop from error
        self._called_s = time.monotonic()

    def _fail(self, connection: socket.socket | None, error: Exception) -> NoReturn:
        """End this process, because the state in memory may be inconsistent; the next one starts from the snapshots.

        The task of Spark fails, and after its retries the query.
        """
        log.error("a batch of component %s failed", self._component, exc_info=error)
        mark = mark_of(error)
        text = f"{mark} {error}\n" if mark else ""
        words = b"\x01" + (redact_text(text) + redact_text("".join(traceback.format_exception(error)))[-8000:]).encode(errors="replace")
        if self._loop is not None:
            self._loop.input.fail(words)
        if connection is not None:
            with contextlib.suppress(ConnectionError):
                send(connection, words)
        os._exit(1)

    def _maybe_snapshot(self, batch_id: int) -> None:
        """Take the snapshots that are due in a forked copy of this process, unless an earlier copy still runs.

        :raises FatalError: the copy may not write any more, and so this process may not either.
        """
        if self._saving is not None:
            try:
                if (said := self._saving()) is None:
                    return
                self._store.take_over(said)
            except BackgroundError:
                log.error("snapshots %s failed: %s", [(s.task, s.version) for s in self._snapshot], self._saving.reason)
                self._executor.snapshots_failed(self._snapshot, self._saving.reason)
            self._executor.delay_snapshots(self._saving.cpu_ms)
            self._saving = None
        if self._executor.snapshot_due(batch_id):
            self._snapshot = self._executor.pending_snapshots(batch_id)
            self._store.rest()  # a process that forks should have one thread
            self._saving = ForkedWork(self._save_snapshots, self._become_fork, f"dsk:{self._component}", nice=5)

    def _save_snapshots(self) -> bytes:
        self._executor.save_snapshots(self._snapshot, self._leases.confirm if self._leases is not None else lambda: None)
        return self._store.handover()

    def _become_fork(self) -> None:
        """Let go of what belongs to the process that this one is a fork of."""
        # An inherited socket stays open: if the executor were killed, Spark's tasks would wait for this process.
        for key in list(self._selector.get_map().values()):
            cast("socket.socket", key.fileobj).close()
        self._selector.close()
        if self._loop is not None:
            self._loop.input.forget()
        kernel_cache.told.clear()  # who is told has a client of the brokers

    def close(self) -> None:
        """Close the components, within the supervisor's grace period."""
        if self._executor is not None:
            self._executor.close()
        if self._leases is not None:
            with contextlib.suppress(TopologyError, KafkaError, OSError):
                self._leases.release()
