"""The resident executor's process and the forks that write its snapshots, without Spark and Kafka."""

from __future__ import annotations

import os
import pickle
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from dskype.topology.builder import TopologyBuilder
from dskype.topology.core.executor import PendingSnapshot
from dskype.topology.core.file_store import FileSnapshotStore
from dskype.topology.core.snapshots import LostStateError, WriteError, encode_snapshot
from dskype.topology.core.stats import TopologyStats
from dskype.topology.planning.plan import TopologyPlan, metrics_topic
from dskype.topology.runtime.kafka.clients import KafkaSettings
from dskype.topology.runtime.kafka.reading import read_to_end
from dskype.topology.runtime.processes import resident as resident_module
from dskype.topology.runtime.processes.executor_log import _Log, redirect_output
from dskype.topology.runtime.processes.host import Stop, StopSignal
from dskype.topology.runtime.processes.payload import Payload
from dskype.topology.runtime.processes.resident import _Resident
from dskype.topology.runtime.transport.leases import SupersededError
from dskype.topology.testing import TestWordSpout
from tests.topology.simulated.fault_topologies import TOPOLOGIES
from tests.waiting import wait_for

from ..components import Recorder
from ..helpers import alive, make_topic


class Stand:
    """Stands in for the executor: always has a snapshot to write."""

    def __init__(self, save) -> None:
        self.save_snapshots, self.failures = save, []

    def snapshot_due(self, batch_id):
        return True

    def pending_snapshots(self, batch_id):
        return [PendingSnapshot(3, 7, lambda: b"")]

    def delay_snapshots(self, cpu_ms):
        pass

    def snapshots_failed(self, failed, reason):
        self.failures.append(([(s.task, s.version) for s in failed], reason))


@pytest.fixture
def resident(tmp_path):
    topology, conf = TOPOLOGIES["chain"]()
    plan = TopologyPlan.build("t", "t-1-0", conf, topology)
    folder = tmp_path / "x"
    folder.mkdir()
    listener = socket.socket(socket.AF_UNIX)
    os.chdir(folder)  # (a path within pytest's folders may be too long for a socket)
    listener.bind("s")
    listener.listen()
    yield _Resident(
        listener, Payload(plan, KafkaSettings("127.0.0.1:1"), FileSnapshotStore(tmp_path / "snapshots"), tmp_path / "logs", [], 0, 0, None), "first", 0
    )
    listener.close()


@pytest.fixture(autouse=True)
def same_folder():
    before = Path.cwd()
    yield
    os.chdir(before)


@pytest.mark.long
def test_the_zygote_imports_the_components_of_this_product_and_no_others(monkeypatch, tmp_path):
    builder = TopologyBuilder()
    builder.set_spout("words", TestWordSpout())
    builder.set_bolt("mine", Recorder("out")).shuffle_grouping("words")
    plan = TopologyPlan.build("t", "t-1-0", {}, builder.create_topology())
    data = Payload(plan, KafkaSettings("127.0.0.1:1"), FileSnapshotStore(tmp_path / "snapshots"), tmp_path / "logs", [], 0, 0, None).dumps()
    product, mine = TestWordSpout.__module__, Recorder.__module__
    monkeypatch.delitem(sys.modules, product)
    monkeypatch.delitem(sys.modules, mine)
    resident_module.import_components(data)
    assert product in sys.modules and mine not in sys.modules
    resident_module.import_components(pickle.dumps(([], ["dskype.not_there"], b"")))  # an executor will say so


def test_the_death_of_an_executor_is_seen_at_once_and_its_snapshot_ends_with_it(resident, tmp_path):
    def save(due, confirm):
        (tmp_path / "child").write_text(str(os.getpid()))
        time.sleep(60)

    resident._executor = Stand(save)
    task = socket.socket(socket.AF_UNIX)
    task.settimeout(20)
    pid = os.fork()
    if not pid:
        try:
            accepted, _ = resident._listener.accept()
            resident._selector.register(resident._listener, select.EPOLLIN)
            resident._selector.register(accepted, select.EPOLLIN)
            resident._maybe_snapshot(1)
            accepted.sendall(b"ready")
            time.sleep(60)
        finally:
            os._exit(0)
    resident._listener.close()
    task.connect("s")
    assert task.recv(5) == b"ready"
    child = int(wait_for(lambda: (tmp_path / "child").exists() and (tmp_path / "child").read_text(), 60, "the fork that writes"))
    os.kill(pid, signal.SIGKILL)
    readable, _, _ = select.select([task], [], [], 20)
    assert readable and task.recv(1) == b"", "the connection outlived the executor"
    os.waitpid(pid, 0)
    with pytest.raises(ConnectionRefusedError), socket.socket(socket.AF_UNIX) as another:
        another.connect("s")
    wait_for(lambda: not alive({child}), 20, "the end of the fork")
    task.close()


def test_the_reason_of_a_snapshot_that_failed_reaches_the_executor(resident):
    def fail(due, confirm):
        raise WriteError("3/snapshot-7 cannot be written: No space left on device. given: 12 bytes free in /some/where")

    resident._executor = executor = Stand(fail)
    resident._maybe_snapshot(1)
    executor.save_snapshots = lambda due, confirm: None  # there is room again

    def next_batch():
        resident._maybe_snapshot(2)
        return executor.failures

    [(which, reason)] = wait_for(next_batch, 20, "the failure")
    assert which == [(3, 7)] and reason.startswith("WriteError: 3/snapshot-7 cannot be written: No space left") and "/some/where" in reason
    assert wait_for(lambda: resident._saving() is not None, 20, "the end of the fork that has room")


def test_what_an_executor_compiles_is_told_to_all_who_read_the_metrics_topic(resident, bootstrap_servers, name):
    kafka = KafkaSettings(bootstrap_servers)
    make_topic(kafka, metrics_topic(name))
    resident._payload = replace(resident._payload, kafka=kafka, plan=TopologyPlan.build(name, "t-1-0", {}, TOPOLOGIES["chain"]()[0]))
    resident.tell_what_is_compiled("bolts.x_kernels.f")
    resident._teller.close()
    stats = TopologyStats()
    assert [stats.feed(r.value, {1: "first"}) for r in read_to_end(kafka, metrics_topic(name))] == ["first"]
    assert stats.compiling["first", 0][0] == "bolts.x_kernels.f"


def test_an_executor_removes_what_killed_ones_left_and_makes_no_folder(resident, tmp_path):
    store = FileSnapshotStore(tmp_path / "snapshots")
    store.create()
    task = resident._payload.plan.executor_tasks("first", 0)[0]
    store.save(task, 1, encode_snapshot({}))
    left = tmp_path / "snapshots" / str(task) / ".snapshot-00000000000000000002.1-a.partial"
    left.write_bytes(b"half")
    os.utime(left, (time.time() - 1000, time.time() - 1000))
    store._remove(store._name(task, "snapshot", 1))
    executor = resident._make_executor()
    assert not left.exists()
    shutil.rmtree(tmp_path / "snapshots")
    with pytest.raises(LostStateError, match="is gone"):
        executor._store.save(task, 2, b"")
    assert not (tmp_path / "snapshots").exists()


def test_the_log_of_an_executor_has_an_end(tmp_path):
    pid = os.fork()
    if not pid:
        try:
            redirect_output(tmp_path / "a.log", 1000)
            for i in range(100):
                os.write(i % 2 + 1, b"%03d %s\n" % (i, b"x" * 95))
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    texts: list[str] = []

    def written() -> bool:
        texts.clear()
        with suppress(FileNotFoundError):  # it is renamed in this moment
            texts.extend((tmp_path / name).read_text() for name in ("a.log.1", "a.log"))
        return len(texts) == 2 and "099" in "".join(texts)

    wait_for(written, 30, "the last line")
    assert {path.name for path in tmp_path.iterdir() if path.is_file()} <= {"a.log", "a.log.1"} and sum(map(len, texts)) <= 2200
    assert "".join(texts).splitlines()[-1].startswith("099")


def test_an_executor_whose_log_nobody_writes_any_more_ends_at_once_and_not_with_an_error_of_its_tuples(tmp_path):
    pid = os.fork()
    if not pid:
        try:
            os.kill(redirect_output(tmp_path / "a.log"), signal.SIGKILL)
            for _ in range(1000):  # more than the pipe holds
                os.write(1, b"x" * 1000)
        except OSError:
            os._exit(7)
        finally:
            os._exit(8)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 1


def test_a_line_without_an_end_is_cut_and_hides_what_follows_a_name(tmp_path):
    pid = os.fork()
    if not pid:
        try:
            redirect_output(tmp_path / "a.log")
            for piece in (b"x" * ((1 << 20) - 9) + b" password=", *[b"Canary" * 10_000] * 30, b"Canary\nnext line\nlast"):
                while piece:
                    piece = piece[os.write(1, piece) :]
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    log = tmp_path / "a.log"
    wait_for(lambda: log.exists() and log.read_text().endswith("last"), 60, "the last line")
    assert log.read_text().endswith("(the rest of this line is not kept)\nnext line\nlast") and "Canary" not in log.read_text()
    assert log.stat().st_size < (1 << 20) + 100_000


def test_a_log_says_how_many_lines_could_not_be_written(tmp_path):
    log = _Log(tmp_path / "logs" / "a.log", 1000)
    for line in (b"one\n", b"two\n"):
        log.write(line)
    (tmp_path / "logs").mkdir()
    for line in (b"three\n", b"four\n"):
        log.write(line)
    assert (tmp_path / "logs" / "a.log").read_text() == "(2 lines before this one could not be written)\nthree\nfour\n"


def test_what_libraries_and_programs_write_has_no_secrets_in_the_log_and_last_words_are_kept(tmp_path):
    pid = os.fork()
    if not pid:
        try:
            redirect_output(tmp_path / "a.log")
            os.write(1, b"print password=Canary-1\n")
            os.write(2, b"a library in C: token=Canary-2, \xff\n-----BEGIN PRIVATE KEY-----\nCanary3\n")
            os.write(1, b"Canary4=\n-----END PRIVATE KEY-----\nafter\n")
            subprocess.run(["sh", "-c", "echo a program: secret: Canary-5 >&2"], check=True)
            os.write(2, b"last words")
        finally:
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)
    log = tmp_path / "a.log"
    wait_for(lambda: log.exists() and log.read_text().endswith("last words"), 30, "the last words")
    assert "Canary" not in log.read_text()
    assert log.read_text() == (
        "print password=******\na library in C: token=******, \\xff\n-----BEGIN PRIVATE KEY-----******\n\n\n-----END PRIVATE KEY-----\nafter\n"
        "a program: secret: ******\nlast words"
    )
    assert log.stat().st_mode & 0o777 == 0o600


class Loop:
    """Stands in for the loop of an executor: batches of code that takes every error for one of its input, or that never ends."""

    def __init__(self, folder: Path, what: str) -> None:
        self._folder, self._what, self.input = folder, what, ["a partition"]

    def step(self) -> None:
        (self._folder / "begun").touch()
        try:
            end = time.monotonic() + (0.5 if self._what == "batch" else 60)
            while time.monotonic() < end:
                time.sleep(0.01)
            (self._folder / "finished").touch()
        except Exception as error:
            (self._folder / "poison").write_text(repr(error))


@pytest.mark.parametrize("what", ["idle", "batch", "stuck"])
def test_a_stop_waits_for_the_batch_unless_it_is_stuck_and_closes_the_components(resident, tmp_path, what):
    resident._executor = SimpleNamespace(close=(tmp_path / "closed").touch)
    if what == "idle":  # Spark has not called it yet
        (tmp_path / "begun").touch()
    else:
        resident._loop = Loop(tmp_path, what)
    pid = os.fork()
    if not pid:
        try:
            stop = StopSignal(patience_s=5.0 if what == "batch" else 0.2)
            stop.install()
            (tmp_path / "installed").touch()
            resident.run(stop)
        except Stop:
            stop.ignore()
            resident.close()
        finally:
            os._exit(0)
    wait_for(lambda: (tmp_path / "installed").exists() and (tmp_path / "begun").exists(), 60, "the batch")
    os.kill(pid, signal.SIGTERM)
    wait_for(lambda: os.waitpid(pid, os.WNOHANG)[0], 30, "the end of the process")
    left = {path.name for path in tmp_path.iterdir()} & {"finished", "poison", "closed"}
    assert left == {"idle": {"closed"}, "batch": {"finished", "closed"}, "stuck": {"closed"}}[what]


def test_on_a_cluster_an_executor_whose_query_was_started_again_elsewhere_ends(resident, tmp_path, monkeypatch):
    """Spark has no connection to it any more. That alone is no reason to end: in micro-batches it has none while there are no records."""
    monkeypatch.setattr(resident_module, "_ALONE_S", 0.1)
    checks, steps = [], []

    def check():
        checks.append(len(steps))
        if len(checks) == 3:
            raise SupersededError("another one has the task")

    resident._executor = SimpleNamespace(close=(tmp_path / "closed").touch)
    resident._loop = SimpleNamespace(step=lambda: steps.append(time.sleep(0.01)), input=[])
    resident._leases = SimpleNamespace(check=check, release=(tmp_path / "released").touch)
    with pytest.raises(Stop):
        resident.run(StopSignal())
    resident.close()
    assert len(checks) == 3 and 0 < checks[0] < checks[1] < checks[2] and (tmp_path / "closed").exists() and (tmp_path / "released").exists()
