"""Problems of a standalone cluster are reported before a topology starts on it."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest

from dskype.topology.core.file_store import FileSnapshotStore
from dskype.topology.runtime.driver import preflight
from dskype.topology.runtime.driver.preflight import PreflightError, check_executors
from dskype.topology.runtime.driver.reports import cause_of
from dskype.topology.runtime.driver.resume import installed_version
from dskype.topology.runtime.kafka.clients import KafkaSettings
from dskype.topology.runtime.spark import spark_executors
from dskype.topology.runtime.spark.spark_executors import SparkExecutor
from dskype.topology.runtime.transport.wire import SUPERVISOR_VARIABLE
from tests.waiting import crowding

from ..standalone import hiding, standalone

PYTHON, DSKYPE = platform.python_version(), installed_version()
MINOR = PYTHON.rpartition(".")[0]


def found(host: str = "host-1", python: str = PYTHON, dskype: str = DSKYPE) -> preflight._Finding:
    """Return what an executor tells that has no problem of its own."""
    return preflight._Finding(host, python, dskype, brokers=True, document="probe", error="")


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (
            'An exception was thrown from the Python worker.\nTraceback (most recent call last):\n  File "worker.py", line 1, in main\n    raise ValueError(\n'
            "ModuleNotFoundError: No module named 'dskype'\n",
            "ModuleNotFoundError: No module named 'dskype'",
        ),
        (
            "Job aborted due to stage failure: Lost task 0.3\norg.apache.spark.SparkException: [X] Python worker exited\n\tat org.apache.spark.X.y(X.scala:1)\n"
            "Caused by: java.io.EOFException\n\t... 22 more\n",
            "Caused by: java.io.EOFException",
        ),
        ('x\nCaused by: java.io.IOException: Cannot run program "python9": error=2\nCaused by: java.io.IOException: error=2', None),
        ("the session has ended", "the session has ended"),
        ("", ""),
    ],
)
def test_an_error_of_spark_is_told_by_its_cause(text, cause):
    assert cause_of(text) == cause or (cause is None and 'Cannot run program "python9"' in cause_of(text))


def test_executors_with_the_drivers_versions_are_accepted_whatever_the_patch_level_of_python():
    preflight._compare_versions([])
    preflight._compare_versions([found(), found("host-2"), found("host-3", f"{MINOR}.99")])


@pytest.mark.parametrize(
    ("python", "dskype"), [("3.10.14", DSKYPE), (f"{MINOR}1.1", DSKYPE), (f"4.{MINOR.partition('.')[2]}.1", DSKYPE), (PYTHON, f"{DSKYPE}.1"), (PYTHON, "0.0.9")]
)
def test_an_executor_with_another_python_or_another_dskype_is_named_with_its_host(python, dskype):
    with pytest.raises(PreflightError) as error:
        preflight._compare_versions([found(), found("host-2", python, dskype), found("host-2", python, dskype)])
    assert str(error.value) == (
        f"Spark's executors run other versions than the driver. given: 'host-2: Python {python}, dskype {dskype}'; legal: Python {MINOR}, dskype {DSKYPE}; "
        "hint: every host needs the same Python and the same dskype at the same path, or PYSPARK_PYTHON to name it"
    )


def test_all_hosts_with_other_versions_are_named_once_each():
    others = [found("host-3", dskype="0"), found("host-2", "2.7.18"), found("host-3", dskype="0"), found()]
    with pytest.raises(PreflightError, match=rf"given: 'host-2: Python 2.7.18, dskype {DSKYPE}; host-3: Python {PYTHON}, dskype 0';"):
        preflight._compare_versions(others)


class Session:
    """A session of Spark whose executors come one after another."""

    def __init__(self, executors):
        self.sparkContext, self.executors, self.ran = self, executors, []
        self.master = "spark://host:7077"

    def range(self, start, stop, step, partitions):
        self.ran.append(partitions)
        return self

    def mapInArrow(self, function, schema):
        self.ran += [batch.num_rows for batch in function(iter([pa.RecordBatch.from_pydict({"id": [1]})]))]
        return self

    def collect(self):
        self.ran.append("collected")


def came(n, seconds_ago=0.0):
    """Return n executors, the newest of which came so many seconds ago, and the others long before."""
    return [SparkExecutor(str(i), "host", int((time.time() - seconds_ago - 100 * i) * 1000)) for i in range(n)]


def test_a_standby_starts_python_when_all_of_its_executors_have_come(monkeypatch):
    session = Session([0, 0, 1, 2])
    for module in (preflight, spark_executors):
        monkeypatch.setattr(module, "present_executors", lambda context: came(context.executors.pop(0) if len(context.executors) > 1 else context.executors[0]))
    for name, seconds in (("_SETTLE_S", 0.3), ("_LOOK_S", 0.01), ("_RARELY_S", 0.01)):
        monkeypatch.setattr(preflight, name, seconds)
    preflight.start_python_early(session).join(10)
    assert session.executors == [2] and session.ran == [32, 0, "collected"]


def test_executors_that_have_been_there_for_a_while_are_not_waited_for(monkeypatch):
    seconds_ago = preflight._SETTLE_S
    monkeypatch.setattr(preflight, "present_executors", lambda context: came(2, seconds_ago))
    monkeypatch.setattr(preflight.time, "sleep", lambda seconds: pytest.fail("others are waited for"))
    preflight._Arrivals(None).settle()
    seconds_ago = 0.0
    with pytest.raises(pytest.fail.Exception, match="others are waited for"):
        preflight._Arrivals(None).settle()


def test_a_standby_whose_session_ends_starts_no_python(monkeypatch):
    def ended(context):
        raise RuntimeError("the session has ended")

    monkeypatch.setattr(preflight, "present_executors", ended)
    session = Session([])
    preflight.start_python_early(session).join(10)
    assert session.ran == []


def run_here(spark, probe, timeout_s):
    """Run the test of an executor in this process."""
    return [tuple(row.values()) for batch in probe(iter(())) for row in batch.to_pylist()]


@pytest.mark.parametrize("remote", [False, True])
def test_an_executor_that_does_not_reach_the_brokers_is_named_whatever_the_store(tmp_path, monkeypatch, remote):
    folder = tmp_path / "snapshots"
    folder.mkdir()
    monkeypatch.setenv(SUPERVISOR_VARIABLE, str(tmp_path / "supervisor"))
    monkeypatch.setattr(preflight, "_run", run_here)
    monkeypatch.setattr(FileSnapshotStore, "remote", remote)
    nobody = KafkaSettings("127.0.0.1:1", {}, {"bootstrap_timeout_ms": 300})
    with pytest.raises(PreflightError) as error:
        check_executors(None, FileSnapshotStore(folder), nobody, 3)
    assert str(error.value) == (
        f"Spark's executors do not reach the brokers. given: 'no answer of 127.0.0.1:1 on {os.uname().nodename}'; legal: an answer on every host; "
        "hint: the brokers' advertised listeners must be addresses that every host reaches, and settings such as certificates must be valid there"
    )
    assert not list(folder.iterdir()), "the probes are removed"
    monkeypatch.setattr(preflight, "brokers_answer", lambda kafka: True)
    assert check_executors(None, FileSnapshotStore(folder), nobody, 3) == [os.uname().nodename]


@pytest.mark.product(seconds=40)
def test_missing_workers_a_folder_that_is_not_shared_and_another_interpreter_are_found_before_a_topology_starts(bootstrap_servers, tmp_path, name):
    folder = tmp_path / name / "snapshots"
    folder.mkdir(parents=True)
    with (
        standalone(tmp_path / "spark", workers=0, cores=2) as cluster,
        subprocess.Popen(
            [sys.executable, "-m", "tests.topology.runtime.driver.preflight_program", cluster.url, str(folder), bootstrap_servers],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[4],
        ) as program,
    ):

        def ask(argument: int | str, kind: str = "folder") -> str:
            if isinstance(argument, int):  # seconds of a machine that nobody else uses
                argument = round(argument * crowding())
            program.stdin.write(f"{kind} {argument}\n")
            program.stdin.flush()
            return program.stdout.readline().strip()

        assert program.stdout.readline().strip() == "ready"
        answer = ask(3)
        assert "no task slot within" in answer and "given: '0 executors at spark://" in answer and "whether workers are registered" in answer, answer
        without = cluster.add_worker(hiding(folder))  # a host on which there is an empty folder of that name
        answer = ask(90)
        assert "not one and the same folder on all hosts" in answer and "No such file" in answer and "topology.emulator.state.url" in answer, answer
        answer = ask(90, "kafka")
        assert answer.startswith("hosts: ["), answer
        without.close()
        cluster.add_worker()
        answer = ask(90)
        assert answer.startswith("hosts: ["), answer
        assert not list(folder.iterdir()), "the probes are removed"
        answer = ask(3, "taken")
        assert "no task slot within" in answer and "given: '1 executors at spark://" in answer, answer
        assert answer.endswith("; the other job: [0, 1]"), "what another topology runs in this session goes on"
        answer = ask(15, "hanging")  # Spark may show a running task only with a heartbeat of its executor, after 10 s
        assert "have not answered within" in answer and "which have begun" in answer and "start.timeout.secs" in answer, answer
        assert ask(90).startswith("hosts: ["), "what hung has left its slots"
        good = json.loads(ask(sys.executable, "doctor"))
        others = {check for check in good["failed"] if check.startswith("topology ")}  # a test that failed may have left one on this broker
        assert good["status"] == "ok" and set(good["failed"]) == others and good["code"] == bool(others), good
        assert good["detail"] == f"{cluster.url}: 2 slots on {platform.node()}; brokers and state are reached from there, versions are equal", good
        bad = json.loads(ask("/nowhere/python", "doctor"))
        assert (
            (bad["status"], bad["code"]) == ("fail", 1)
            and set(bad["failed"]) == {"cluster", *others}
            and bad["detail"].startswith("Spark's executors cannot run this topology's Python.")
        ), bad
        assert "/nowhere/python" in bad["detail"] and "every host needs the same Python" in bad["fix"], bad
        program.stdin.close()
        assert program.wait(60) == 0
