"""Tests on Spark's executors before a topology starts on other hosts.

Without them, a store or brokers that some host cannot reach, another interpreter there, or a master without free cores
would only show as a topology that is ACTIVE and does nothing.
"""

from __future__ import annotations

import contextlib
import logging
import os
import platform
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from kafka.errors import KafkaError

from dskype.topology.core.snapshots import SnapshotStore
from dskype.topology.errors import TopologyError
from dskype.topology.runtime.driver.reports import cause_of
from dskype.topology.runtime.driver.resume import installed_version
from dskype.topology.runtime.kafka.clients import KafkaSettings, brokers_answer, check_codecs
from dskype.topology.runtime.spark.spark_executors import on_all_executors, present_executors
from dskype.topology.runtime.transport.wire import SUPERVISOR_VARIABLE

__all__ = ["PreflightError", "check_executors", "start_python_early"]

log = logging.getLogger(__name__)

_SETTLE_S, _LOOK_S = 3.0, 0.2
"""How long no further Spark executor may have come until all count as there; time between two looks."""
_RARELY_S = 5.0
"""Time between two looks of a standby, which may have no executors for days."""


class PreflightError(TopologyError):
    """Spark's executors cannot run a topology."""


class _Finding(NamedTuple):
    """What one Spark executor has found.

    :ivar brokers: whether the brokers have answered it.
    :ivar document: name of the document that it has written to the store.
    """

    host: str
    python: str
    dskype: str
    brokers: bool
    document: str
    error: str


_DDL = "host string, python string, dskype string, brokers boolean, document string, error string"


def check_executors(spark: Any, store: SnapshotStore, kafka: KafkaSettings, timeout_s: float) -> list[str]:
    """Let each of Spark's executors read and write the topology's store, and reach the brokers; compare versions.

    :param store: the store, which must exist.
    :param timeout_s: how long Spark may take to provide the first slots, and then how long the executors may take to answer.
    :returns: the hosts that took part.
    :raises PreflightError: the test failed; the message says where and why.
    """
    token = uuid.uuid4().hex
    mark = f"probe-{token}"
    store.write_document(mark, token.encode())
    documents = [mark]
    try:
        found = [_Finding(*row) for row in _run(spark, _probe(store, kafka, token), timeout_s)]
        documents += [f.document for f in found]
        _compare_versions(found)
        if cut_off := sorted({f.host for f in found if not f.brokers}):
            raise PreflightError(
                "Spark's executors do not reach the brokers.",
                given=f"no answer of {kafka.bootstrap_servers} on {', '.join(cut_off)}",
                legal="an answer on every host",
                hint="the brokers' advertised listeners must be addresses that every host reaches, and settings such as certificates must be valid there",
            )
        lost = sorted({f.host for f in found if not f.error and store.read_document(f.document) is None})
        wrong = sorted({f"{f.host}: {f.error}" for f in found if f.error} | {f"{host}: what it wrote cannot be read here" for host in lost})
        if wrong:
            raise _store_problem(store, wrong)
        return sorted({f.host for f in found})
    finally:
        for document in documents:
            with contextlib.suppress(TopologyError, OSError):
                store.remove_document(document)


def start_python_early(spark: Any) -> threading.Thread:
    """Start Python on Spark's executors in the background, as soon as there are any, so that a topology that starts later finds it there.

    For a standby, which has the time: Python and all modules take seconds to start on each host.

    :returns: the thread that does it; it ends by itself, at the latest with the session.
    """

    def start() -> None:
        try:
            arrivals = _Arrivals(spark.sparkContext)
            while not arrivals.count:
                time.sleep(_RARELY_S)
                arrivals.look()
            arrivals.settle()
            on_all_executors(spark, _nothing, "id long")
        except Exception as error:  # the session has ended, or the topology's own start will tell
            log.info("Python was not started early on Spark's executors: %s", error)

    thread = threading.Thread(target=start, name="early-python", daemon=True)
    thread.start()
    return thread


def _nothing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Return no rows, after some time: each Spark executor gets a task, while the others are busy."""
    time.sleep(_LOOK_S)
    yield from (batch.slice(0, 0) for batch in batches)


def _store_problem(store: SnapshotStore, wrong: list[str]) -> PreflightError:
    if store.remote:
        return PreflightError(
            "Spark's executors cannot use the topology's store.",
            given="; ".join(wrong),
            hint="every host must reach the store, and be allowed to write there; settings such as certificates must be valid there",
        )
    return PreflightError(
        "The state folder is not one and the same folder on all hosts.",
        given="; ".join(wrong),
        legal=f"{getattr(store, 'folder', '')}, shared by all hosts",
        hint="leave topology.emulator.state.url out, so that the state is in Kafka; or let it name a folder that the driver and every Spark executor "
        "reach by the same path, such as a network file system",
    )


def _compare_versions(found: list[_Finding]) -> None:
    """Refuse executors with another Python or another dskype: code and state are shipped between them and the driver.

    :raises PreflightError: there is such an executor.
    """
    ours = platform.python_version().rpartition(".")[0], installed_version()
    others = sorted({f"{f.host}: Python {f.python}, dskype {f.dskype}" for f in found if (f.python.rpartition(".")[0], f.dskype) != ours})
    if others:
        raise PreflightError(
            "Spark's executors run other versions than the driver.",
            given="; ".join(others),
            legal=f"Python {ours[0]}, dskype {ours[1]}",
            hint="every host needs the same Python and the same dskype at the same path, or PYSPARK_PYTHON to name it",
        )


def _probe(store: SnapshotStore, kafka: KafkaSettings, token: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return a function for ``mapInArrow`` that reads the driver's document and writes another one, once on each Spark executor."""

    def probe(_: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            (Path(os.environ[SUPERVISOR_VARIABLE]).parent / f"probe-{token}").mkdir()  # goes with the supervisor
        except FileExistsError:  # another task on this Spark executor does it
            return
        host, document, error = os.uname().nodename, f"probe-{token}-{uuid.uuid4().hex}", ""
        reached = brokers_answer(kafka)
        try:
            check_codecs()
            if not reached:
                error = "the brokers do not answer"
            elif (data := store.read_document(f"probe-{token}")) is None:
                error = f"No such file or directory: what the driver has written is not visible in {store.location(0)}"
            elif data != token.encode():
                error = "what the driver has written is damaged"
            else:
                store.write_document(document, host.encode())
        except (OSError, TopologyError, KafkaError) as problem:
            error = f"{type(problem).__name__}: {problem}"
        finally:
            store.rest()
        found = _Finding(host, platform.python_version(), installed_version(), reached, document, error)
        yield pa.RecordBatch.from_pydict({name: [value] for name, value in found._asdict().items()})

    return probe


class _Arrivals:
    """Counts Spark's executors, and remembers when the number changed last."""

    def __init__(self, context: Any) -> None:
        self._context, there, now_s = context, present_executors(context), time.time()
        age_s = min((now_s - executor.since_ms / 1000 for executor in there), default=0.0)
        self.count, self.changed_s = len(there), time.monotonic() - max(0.0, age_s)

    def look(self) -> None:
        """Count again."""
        if (count := len(present_executors(self._context))) != self.count:
            self.count, self.changed_s = count, time.monotonic()

    def settle(self) -> None:
        """Wait until no further executor has come for some seconds: they come one after another, and tasks that last stay on those that were there."""
        while time.monotonic() - self.changed_s < _SETTLE_S:
            time.sleep(_LOOK_S)
            self.look()


def _run(spark: Any, probe: Callable[..., Any], timeout_s: float) -> list[tuple[Any, ...]]:
    """Run the probe on all of Spark's executors."""
    arrivals = _Arrivals(spark.sparkContext)
    found, tried = list[tuple[Any, ...]](), -1
    while tried != arrivals.count:  # those that came meanwhile are tried out, too
        tried = arrivals.count
        found += _run_once(spark, probe, timeout_s, arrivals)
        arrivals.settle()
    return found


def _run_once(spark: Any, probe: Callable[..., Any], timeout_s: float, arrivals: _Arrivals) -> list[tuple[Any, ...]]:
    """Run the probe as one job, with one timeout for its first slot and another one for its answers: a job without a slot never ends by itself."""
    context, group, began_s, runs = spark.sparkContext, f"probe-{uuid.uuid4().hex}", time.monotonic(), False

    def run() -> list[Any]:
        context.setJobGroup(group, "test of the executors")  # of this thread
        return on_all_executors(spark, probe, _DDL)

    with ThreadPool(1) as beside:  # of daemon threads: the process ends even if Spark never answers
        job = beside.apply_async(run)
        while not job.ready() and time.monotonic() - began_s < timeout_s:
            job.wait(_LOOK_S)
            arrivals.look()
            if not runs and _has_slot(context, group):
                began_s, runs = time.monotonic(), True
        if not job.ready():
            context.cancelJobGroup(group)
            job.wait(10)
            where = f"{arrivals.count} executors at {context.master}"
            if runs:
                raise PreflightError(
                    f"Spark's executors have not answered within {timeout_s:g} s.",
                    given=f"{where}, which have begun",
                    legal="an answer of each executor",
                    hint="a host may be overloaded, or its folder or store may not answer; topology.emulator.start.timeout.secs allows more time",
                )
            raise PreflightError(
                f"Spark's master has provided no task slot within {timeout_s:g} s.",
                given=where,
                legal="at least one executor with free cores",
                hint="check on the master's page whether workers are registered, and whether another application holds their cores and memory",
            )
        try:
            return [tuple(row) for row in job.get()]
        except Exception as error:
            raise PreflightError(
                "Spark's executors cannot run this topology's Python.",
                given=cause_of(str(error))[:500],
                hint="every host needs the same Python and the same dskype at the same path, or PYSPARK_PYTHON to name it",
            ) from error


def _has_slot(context: Any, group: str) -> bool:
    """Tell whether a task of a group of jobs runs. Spark may show it only with the next heartbeat of the executor, every 10 s."""
    tracker = context.statusTracker()
    jobs = filter(None, map(tracker.getJobInfo, tracker.getJobIdsForGroup(group)))
    stages = (tracker.getStageInfo(stage) for job in jobs for stage in job.stageIds)
    return any(stage is not None and stage.numActiveTasks > 0 for stage in stages)
