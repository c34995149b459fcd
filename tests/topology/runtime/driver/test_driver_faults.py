"""The driver is killed with SIGKILL: no process of it survives, and a resumed topology has the exact result."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from dskype.deploy.machine.folders import FolderInUseError
from dskype.topology.config import Config
from dskype.topology.runtime.kafka.clients import KafkaSettings
from dskype.topology.runtime.spark.session import scratch_of
from dskype.topology.runtime.stores.object_store import ObjectSnapshotStore

from ..components import sums_expected
from ..helpers import (
    alive,
    await_output,
    count_records,
    descendants,
    executors,
    existing_topics,
    freeze,
    kill,
    longest_gap_s,
    make_topic,
    output,
    supervisors,
    wait_for,
)
from ..stores.object_server import object_server

TOTAL, RATE = 24_000, 2_500
REPOSITORY = Path(__file__).parents[4]


class Driver:
    """A driver in a process of its own, with a temp folder and a working folder of its own."""

    def __init__(self, **arguments) -> None:
        self.temp, self.work = Path(arguments["temp"]), Path(arguments["temp"], "work")
        self.scratch = scratch_of(Path(arguments["folder"]) / "logs" / "spark.log")
        self.work.mkdir(exist_ok=True)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.topology.runtime.driver.driver_program", json.dumps(arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=self.work,
            env={**os.environ, "TMPDIR": str(self.temp), "PYTHONPATH": os.pathsep.join([str(REPOSITORY), os.environ.get("PYTHONPATH", "")])},
        )

    def jvm(self) -> int:
        """Return the process id of Spark's JVM."""
        return next(p.pid for p in descendants(self.process.pid).values() if p.name == "java")

    def expect(self, line: str) -> None:
        """Wait until the driver prints ``line``; the driver has a time limit of its own."""
        assert self.process.stdout.readline().strip() == line

    def tree(self) -> set[int]:
        """Return the process ids of the driver and everything below it."""
        return {self.process.pid, *descendants(self.process.pid)}

    def kill(self) -> set[int]:
        """Kill only the driver; return its former process tree."""
        tree = self.tree()
        self.process.kill()
        self.process.wait()
        return tree

    def end(self) -> None:
        """Let the driver end properly."""
        self.process.communicate("\n", timeout=60)
        assert self.process.returncode == 0


@contextlib.contextmanager
def driver(**arguments) -> Iterator[Driver]:
    started = Driver(**arguments)
    try:
        yield started
    finally:
        started.process.kill()
        started.process.wait()
        started.process.stdout.close()
        with contextlib.suppress(OSError):
            started.process.stdin.close()


def socket_folders(pids: set[int], temp: Path) -> list[Path]:
    return [f for f in (temp / f"dskype-{os.getuid()}" / "run").glob("supervisor-*") if int(f.name.split("-")[1]) in pids]


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


@pytest.fixture
def setting(bootstrap_servers, tmp_path, name):
    kafka = KafkaSettings(bootstrap_servers)
    with tempfile.TemporaryDirectory() as temp:  # its name is short: there are sockets below it
        yield {
            "servers": bootstrap_servers,
            "folder": str(tmp_path / "folder"),
            "name": name,
            "out": make_topic(kafka, f"{name}-out"),
            "total": TOTAL,
            "rate": RATE,
            "temp": temp,
        }


def count(setting) -> int:
    return count_records(KafkaSettings(setting["servers"]), setting["out"])


def wait_for_output(setting, before: int) -> None:
    """Wait until a driver has written a part of the output."""
    wait_for(lambda: count(setting) > before + TOTAL * 0.12, 60, "output")


def is_unfinished(setting) -> bool:
    return len(output(KafkaSettings(setting["servers"]), setting["out"])) < TOTAL


def check(setting) -> None:
    kafka = KafkaSettings(setting["servers"])
    records = await_output(kafka, setting["out"], TOTAL, 60, "the last record")
    print(f"longest gap in the output: {longest_gap_s(records, 0):.1f} s; records written: {count(setting)} for {TOTAL}", flush=True)
    assert Counter(r.value for r in records.values()) == sums_expected(TOTAL)


@pytest.mark.product(seconds=50)
def test_after_the_death_of_its_driver_or_its_jvm_nothing_stays_and_a_topology_goes_on(setting):
    with driver(**setting) as killed:
        killed.expect("running")
        wait_for_output(setting, 0)
        time.sleep(random.random())
        wait_for(lambda: executors(root=killed.process.pid) and supervisors(killed.process.pid), 60, "its processes")
        tree = killed.kill()
        began = time.monotonic()
        wait_for(lambda: not alive(tree), 60, "the end of all processes of the driver")
        print(f"the process tree was gone after {time.monotonic() - began:.1f} s", flush=True)
    before = count(setting)
    with driver(**setting) as second:
        second.expect("running")
        wait_for(lambda: count(setting) > before, 60, "output")
        print(f"the next record came {time.monotonic() - began:.1f} s after the death of the driver", flush=True)
        assert not socket_folders(tree, second.temp)
        wait_for_output(setting, before)
        tree = second.tree()
        os.kill(second.jvm(), signal.SIGKILL)
        said = second.process.stdout.read()  # it ends, and says why
        assert second.process.wait(120) == 3 and "Spark's JVM has ended (exit code -9)" in said, said
        assert is_unfinished(setting), "it was killed too late to tell anything"
        left = names(second.scratch / "local")
        assert left, "(Spark needs files that a killed JVM cannot remove)"
        assert names(second.work) == set(), "it left them in its folder alone"
        assert not {name for name in names(second.temp) if name.startswith(("blockmgr", "spark", "liblz4", "artifacts", "hsperf"))}, names(second.temp)
    before = count(setting)
    with driver(**setting) as third:  # at once: processes that the earlier drivers have left must not disturb it
        third.expect("running")
        assert not alive(tree)
        assert left.isdisjoint(names(third.scratch / "local")), "the next start removes them"
        wait_for_output(setting, before)
        # Records that its producers have sent are in Kafka, but a stopped JVM commits nothing, and cannot see that its driver is dead.
        jvm = third.jvm()
        freeze(jvm)
        tree = third.kill()
        assert jvm in alive(tree)
        assert is_unfinished(setting), "it was killed too late to tell anything"
    with driver(**setting) as last:  # ends processes that the killed one has left
        last.expect("running")
        assert not alive(tree)
        last.expect("done")
        check(setting)
        last.end()
    kafka = KafkaSettings(setting["servers"])
    assert existing_topics(kafka, setting["name"]) == {setting["out"], f"{setting['name']}.dead-letters"}


def test_state_in_an_object_store_is_enough_to_go_on_elsewhere(setting, tmp_path, monkeypatch):
    with object_server(tmp_path / "objects") as environment:
        for variable, value in environment.items():
            monkeypatch.setenv(variable, value)  # for drivers, and all executors below them
        url = f"s3://states/{setting['name']}"
        setting["conf"] = {Config.TOPOLOGY_EMULATOR_STATE_URL: url, Config.TOPOLOGY_EMULATOR_TRANSPORT: "micro-batch"}  # as on a cluster
        with driver(**setting) as first:
            first.expect("running")
            wait_for_output(setting, 0)
            kill(lambda: executors("first", first.process.pid)[:1])
            before = count(setting)
            wait_for_output(setting, before)
            first.kill()
            assert is_unfinished(setting), "it was killed too late to tell anything"
        with driver(**setting | {"folder": str(tmp_path / "another host")}) as second:
            second.expect("running")
            second.expect("done")
            check(setting)
            second.end()
        assert not ObjectSnapshotStore(url).holds_state(), "a topology that was killed leaves nothing"


def test_a_folder_has_one_driver(cluster, bootstrap_servers):
    in_use = Path(cluster.environment.folder)
    code = "import sys; from dskype.topology.local import LocalCluster; LocalCluster(bootstrap_servers=sys.argv[1], folder=sys.argv[2], resume=True)"
    done = subprocess.run([sys.executable, "-c", code, bootstrap_servers, str(in_use)], capture_output=True, text=True, timeout=60)
    assert done.returncode != 0
    assert FolderInUseError.__name__ in done.stderr and str(in_use) in done.stderr
