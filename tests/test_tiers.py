"""Which tier a test is in, which tests stay in one process, and what is told at the end, shown on small suites of their own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections import OrderedDict
from pathlib import Path
from types import SimpleNamespace

import pytest
from xdist.scheduler.loadscope import LoadScopeScheduling

from tests import tiers

pytestmark = pytest.mark.long  # runs pytest

ROOT = Path(__file__).parents[1]

CONFTEST = """
import pytest
from tests import tiers
from tests.conftest import (pytest_addoption, pytest_collection_finish, pytest_collection_modifyitems, pytest_configure, pytest_configure_node,
                            pytest_xdist_make_scheduler)

@pytest.fixture
def broker():
    return "a broker"

@pytest.fixture
def cluster(broker):
    return "a cluster"
"""

MIXED = """
import pytest
from dskype.bolts.topk.engine import INDEXES

def test_plain(): pass
def test_with_a_broker(broker): pass
@pytest.mark.parametrize("broker", ["a name"])
def test_named(broker): pass
@pytest.mark.product
def test_with_a_browser(): pass
@pytest.mark.long
def test_that_takes_long(): pass
@pytest.mark.parametrize("name", ["cones", "taat"])
def test_index(name): pass
@pytest.mark.parametrize("kind", [INDEXES["cones"], INDEXES["ciq"]], ids=["own", "other"])
def test_class(kind): pass
@pytest.mark.parametrize("pair", [("cones", 1), ("igpt", 1)], ids=["ours", "theirs"])
def test_pair(pair): pass
@pytest.mark.parametrize("word", ["taat", "cones"])
@pytest.mark.lab
def test_figures(word): pass
"""


@pytest.fixture
def suite(tmp_path):
    """Return a function that runs pytest on files in a folder of its own, with the hooks of this one, and returns its output."""
    (tmp_path / "conftest.py").write_text(CONFTEST)
    shutil.copy(ROOT / "setup.cfg", tmp_path / "setup.cfg")

    def run(files: dict[str, str], *arguments: str, code: int = 0) -> str:
        for name, text in files.items():
            (tmp_path / name).write_text(text)
        command = [sys.executable, "-m", "pytest", "--rootdir", str(tmp_path), "-p", "no:cacheprovider", *arguments, *files]
        environment = {**_environment(), "PYTHONPATH": f"{tmp_path}:{ROOT}"}
        try:
            done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=300)
        except subprocess.TimeoutExpired as ex:
            pytest.fail(f"it does not end: {(ex.stdout or b'').decode()}{(ex.stderr or b'').decode()}")
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout

    return run


def _environment() -> dict[str, str]:
    return {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}


def chosen(output: str) -> list[str]:
    """Return the names of the tests in a list of pytest, sorted."""
    return sorted(line.partition("::")[2] for line in output.splitlines() if "::" in line)


def test_marks_fixtures_and_baselines_decide_about_the_tier(suite):
    found = {tier: chosen(suite({"test_mixed.py": MIXED}, "--collect-only", "-q", "-m", tier)) for tier in tiers.TIERS}
    assert found == {
        "fast": ["test_class[own]", "test_index[cones]", "test_named[a name]", "test_pair[ours]", "test_plain"],
        "product": ["test_that_takes_long", "test_with_a_broker", "test_with_a_browser"],
        "lab": ["test_class[other]", "test_figures[cones]", "test_figures[taat]", "test_index[taat]", "test_pair[theirs]"],
    }


def test_groups_on_the_machine_come_first_and_then_what_takes_longest(suite):
    long = "import pytest\npytestmark = pytest.mark.long(seconds={})\ndef test_it(): pass\n"
    files = {
        "test_a.py": "def test_it(): pass\n",
        "test_b.py": long.format(40),
        "test_c.py": long.format(400),
        "test_d.py": "import pytest\n@pytest.mark.product(seconds=90)\ndef test_it(): pass\n",
        "test_e.py": "def test_it(broker): pass\ndef test_spark(cluster): pass\n",
    }
    lines = [line for line in suite(files, "--collect-only", "-q").splitlines() if "::" in line]
    assert lines == ["test_e.py::test_spark", "test_d.py::test_it", "test_e.py::test_it", "test_c.py::test_it", "test_b.py::test_it", "test_a.py::test_it"]


WHO = """
import os, pathlib, pytest
{mark}
@pytest.mark.parametrize("number", range(3))
def test_it(number):
    with open(pathlib.Path(__file__).parent / "who", "a") as file:
        file.write("%s %s\\n" % (pathlib.Path(__file__).stem, os.environ["PYTEST_XDIST_WORKER"]))
"""


def test_a_file_stays_in_one_process_and_two_processes_have_the_machine(suite, tmp_path):
    on_machine = {f"test_m{i}.py": WHO.format(mark="pytestmark = pytest.mark.product") for i in range(5)}
    others = {f"test_o{i}.py": WHO.format(mark="") for i in range(5)}
    output = suite(on_machine | others, "-n", "4", "--times")
    rows = [line.split() for line in (tmp_path / "who").read_text().splitlines()]
    workers = {file: {worker for name, worker in rows if name == file} for file, _ in rows}
    assert len(rows) == 30 and all(len(some) == 1 for some in workers.values())
    assert len(set().union(*(some for file, some in workers.items() if file.startswith("test_m")))) <= 2
    table = {line.split()[0]: line.split()[1] for line in output.splitlines() if line.split()[:1] and line.split()[0] in tiers.TIERS}
    assert table == {"fast": "15", "product": "15", "lab": "0"} and "the slowest tests" in output
    _, _, files = output.partition("the files that took most")
    assert sorted(line.split()[-1] for line in files.splitlines() if ".py" in line and line.split()[2] == "3") == sorted(on_machine | others)


def test_nothing_is_left_over_when_a_process_breaks_down(suite, tmp_path):
    crash = 'def test_crash():\n    if not pathlib.Path(__file__).with_name("crashed").exists():\n        pathlib.Path(__file__).with_name("crashed").touch()\n        os._exit(1)\n'
    on_machine = {f"test_m{i}.py": WHO.format(mark="pytestmark = pytest.mark.product") + (crash if i == 0 else "") for i in range(4)}
    others = {f"test_o{i}.py": WHO.format(mark="") for i in range(2)}
    output = suite(on_machine | others, "-v", "-n", "2", code=1)
    assert "19 passed" in output and "1 failed" in output and "worker 'gw" in output


def test_what_a_process_had_finished_before_it_broke_down_is_not_dealt_out_again(monkeypatch):
    """A process that gets a group without a test to run would wait for ever."""
    monkeypatch.setattr(LoadScopeScheduling, "__init__", lambda self, config, log: None)
    groups = tiers.scheduler(SimpleNamespace(option=SimpleNamespace()), None)
    groups.assigned_work = {"broken": {"a": {"a1": True, "a2": True}, "b": {"b1": True, "b2": False}}}
    groups.workqueue = OrderedDict()
    assert groups.remove_node("broken") == "b2" and groups.workqueue == {"b": {"b1": True, "b2": False}} and not groups.assigned_work


def test_a_process_with_a_single_test_gets_another_group_or_the_end(monkeypatch):
    """It begins a test when it knows what follows: with one alone it would wait for ever."""

    class Process:
        def __init__(self):
            self.sent, self.shutting_down = [], False

        def send_runtest_some(self, indexes):
            self.sent.append(indexes)

        def shutdown(self):
            self.shutting_down = True

    monkeypatch.setattr(LoadScopeScheduling, "__init__", lambda self, config, log: None)
    for left, sent, ends in (({"a": {"a1": False}}, [[0]], True), ({"a": {"a1": False}, "b": {"b1": False, "b2": False}}, [[0], [1, 2]], False)):
        groups, process = tiers.scheduler(SimpleNamespace(option=SimpleNamespace()), None), Process()
        groups.assigned_work, groups.workqueue, groups.log = {process: OrderedDict()}, OrderedDict(left), print
        groups.registered_collections = {process: ["a1", "b1", "b2"]}
        groups._assign_work_unit(process)
        assert process.sent == sent and process.shutting_down == ends and not groups.workqueue


def test_tests_of_the_same_kernels_are_where_the_groups_say():
    assert all((ROOT / "tests" / place).exists() for place in tiers._TOGETHER)
