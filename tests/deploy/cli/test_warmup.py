"""Kernels are compiled once, by a small DSkype."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numba
import pytest

from dskype.bolts.aggregation_bolt import AggregationBolt
from dskype.deploy.cli import warmup
from dskype.deploy.cli.commands import doctor as doctor_command
from dskype.deploy.machine.errors import DeployError
from dskype.topology.testing import TestWordSpout

pytestmark = pytest.mark.long  # loads all kernels, and starts processes


def test_the_small_topology_takes_everything_it_is_given():
    warmup._run_small_topology()  # raises where there is a dead letter or a wrong result


def test_what_other_processes_and_the_second_stage_compile_runs():
    warmup._beside_first()
    warmup._distribute()
    warmup._filter()


def test_kernels_are_compiled_when_they_or_their_compiler_changed(tmp_home, monkeypatch):
    runs, said, state = [], [], ["one"]
    monkeypatch.setattr(warmup, "_state", lambda: state[0])
    monkeypatch.setattr(warmup, "_compile_in_a_process", lambda stage, tell: runs.append((stage, tell())))
    assert not warmup.are_compiled()
    assert [warmup.compile_kernels(said.append) for _ in range(2)] == [True, False]
    assert warmup.are_compiled()
    state[0] = "other"
    assert warmup.compile_kernels(said.append)
    state[0] = "one"
    assert not warmup.compile_kernels(said.append), "another installation that shares the folder has not made these old"
    first, rest = ("first", None), ("rest", None)
    assert runs == [first, rest] * 2
    assert said[::2] == ["compiling kernels, once; this takes minutes", "compiling kernels for filters, regions and other distributors, once"] * 2
    assert said[1::2] == [f"compiling kernels, once: 0 of about {count}" for count in warmup._KERNELS.values()] * 2
    state[0] = "a third"
    assert warmup.compile_kernels(said.append, first=True)
    assert not warmup.compile_kernels(said.append, first=True)
    assert not warmup.are_compiled(), "a topology may need the rest"
    assert warmup.compile_kernels(said.append)
    assert runs[4:] == [first, rest]


def test_the_kernels_that_are_new_are_counted_meanwhile(tmp_path):
    (tmp_path / "package").mkdir()
    for name, time_s in (("old.nbi", 10), ("new.nbi", 30), ("other.nbi", 20), ("code.nbc", 30)):
        (tmp_path / "package" / name).touch()
        os.utime(tmp_path / "package" / name, (time_s, time_s))
    assert warmup._written_since(tmp_path, 20) == 2


def test_a_process_that_cannot_compile_says_why_and_the_start_goes_on(tmp_home, monkeypatch):
    said = []
    monkeypatch.setattr(warmup, "_state", lambda: "one")
    monkeypatch.setattr(warmup, "_KERNELS", {"no such stage": 1})
    with pytest.raises(DeployError, match="given: exit code 1, KeyError: 'no such stage'"):
        warmup.compile_kernels(said.append)
    assert not warmup.are_compiled()
    flux = SimpleNamespace(topology=SimpleNamespace(components={"a": SimpleNamespace(obj=object.__new__(AggregationBolt))}))
    warmup.compile_first(flux, None, said.append)
    assert said[-1].startswith("warning: the kernels were expected to be compiled") and said[-1].endswith("while its first messages wait")


def test_the_process_that_compiles_starts_another_one_beside_it(tmp_path):
    """Both are called by the module's name, whatever it is called in the process that starts them."""
    program = f"""
import os, runpy, sys
from dskype.deploy.machine import processes
class Other:
    def wait(self): return 0
def spawn(command, **_):
    print(command[1:], flush=True)
    return Other()
processes.spawn_tied = spawn
os.cpu_count = lambda: 2
import dskype.deploy.verification as verification
verification.verify = lambda *_, **__: type("Report", (), {{"ok": True}})
from dskype.topology.simulated import engine
for name in ("activate", "tick_clock", "run_until_quiet", "rebalance"):
    setattr(engine.SimulatedTopology, name, lambda *_: None)
engine.SimulatedTopology.dead_letters = lambda self: []
sys.argv = ["warmup", "first"]
runpy.run_module({warmup.__name__!r}, run_name="__main__")
"""
    environ = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", program], env=environ, capture_output=True, text=True, check=False, timeout=300)
    assert (done.returncode, done.stdout) == (0, f"['-P', '-m', {warmup.__name__!r}, 'first', 'beside']\n"), done.stderr


@pytest.mark.parametrize("master, obj", [("spark://somewhere:7077", AggregationBolt), (None, TestWordSpout)])
def test_nothing_is_compiled_for_other_hosts_and_for_topologies_without_kernels(monkeypatch, master, obj):
    monkeypatch.setattr(warmup, "are_compiled", lambda: pytest.fail("looked"))
    flux = SimpleNamespace(topology=SimpleNamespace(components={"a": SimpleNamespace(obj=object.__new__(obj))}))
    warmup.compile_first(flux, master, lambda text: pytest.fail(text))


@pytest.mark.parametrize("compiled", [True, False])
def test_the_doctor_warns_before_a_start_that_has_to_compile(monkeypatch, compiled):
    monkeypatch.setattr(warmup, "are_compiled", lambda: compiled)
    [row] = doctor_command._kernels()
    assert (row.status, "not compiled" in row.detail, row.fix) == (("ok", False, "") if compiled else ("warn", True, "python -m dskype.deploy.cli.prepare"))


def test_another_kind_of_processor_needs_other_kernels(monkeypatch):
    here = warmup._state()
    assert warmup._state() == here
    monkeypatch.setattr(numba.config, "CPU_NAME", "another")
    other_name = warmup._state()
    monkeypatch.setattr(numba.config, "CPU_FEATURES", "")
    assert len({here, other_name, warmup._state()}) == 3


def test_the_demo_needs_no_other_kernels(tmp_path):
    """Processes load a kernel once, so it takes one that has run no other test."""
    program = [sys.executable, "-P", str(Path(__file__).with_name("kernels_of_the_demo.py")), str(tmp_path / "vocabulary.tsv")]
    assert subprocess.run(program, capture_output=True, text=True, check=True).stdout.split("\n") == ["", ""]
