"""Tiers of tests: what each protects, which tests stay in one process, and what the tests took.

A test is in the tier of its mark, ``product`` or ``lab``, at the head of a file (``pytestmark``) or at a test. Without a mark, a test below ``tests/deploy/lab``, or with a parameter that
names a class of the laboratory, is in ``lab``, and one that takes a broker, Spark or a browser from a fixture in ``product``. All others are ``fast``, unless their mark says that they take ``long``:
then they are in ``product``, too.
"""

from __future__ import annotations

import json
import os
import re
import resource
import tempfile
import time
from collections import defaultdict
from collections.abc import Generator
from functools import cache, cached_property
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from dskype.topology.plugins import Plugins

__all__ = ["TIERS", "Times", "groups_file", "in_order", "is_on_the_machine", "scheduler", "seeds", "tier_of", "write_groups"]

TIERS = {
    "fast": "the code, on simulated topologies: no Spark, no broker",
    "product": "what users run: Spark, Kafka, containers, browsers; and tests of the code that take long",
    "lab": "the laboratory: what papers are compared with, their experiments, other instruction sets",
}
"""Tier -> what it protects."""

_LAB = "tests/deploy/lab/"
"""Tests below this folder are those of the laboratory."""

_NOT_FAST = re.compile(r"^pytestmark = pytest\.mark\.(long|product|lab)\b", re.MULTILINE)

_STARTERS = frozenset({"broker", "bootstrap_servers", "cluster", "window"})
"""Fixtures that start a broker, Spark or a browser."""

_TOGETHER = {
    "bolts/boolean/": "boolean",
    "bolts/topk/": "top-k",
    "bolts/merging/": "top-k",
    "bolts/ownership/": "top-k",
    "bolts/window/": "top-k",
    "bolts/test_skype.py": "top-k",
    "security/test_code.py": "sources",
    "test_architecture.py": "sources",
    "test_docstrings.py": "sources",
    "test_foreign_internals.py": "sources",
    "test_imports.py": "sources",
    "test_structure.py": "sources",
}
"""Tests that call the same kernels, or read all sources: one process compiles or parses them, not two at once."""

_SECONDS = {"top-k": 200, "boolean": 120}
"""How much processor time the tests of the same kernels take, about: no mark says it, because they are of several tiers."""

_MACHINE = "machine: "
_SHARED = f"{_MACHINE}the shared cluster"
_GROUPS = pytest.StashKey[Path]()
_AT_ONCE = 2
"""How many processes run tests with Spark, brokers, browsers or containers at the same time."""

_SLOWEST = 20
_LONGEST_FILES = 40


# --- tiers ------------------------------------------------------------------------------------------------------------


def _of_the_lab(module: str) -> bool:
    return module.startswith("dskype.deploy.lab.")


@cache
def _baselines(module: ModuleType) -> frozenset[str]:
    """Return the names of the laboratory's classes in the registries that a module of tests uses."""
    registries = [value for value in vars(module).values() if isinstance(value, Plugins)]
    return frozenset(name for registry in registries for name in registry if _of_the_lab(registry.module(name)))


def _compares(value: object, baselines: frozenset[str]) -> bool:
    """Tell whether a parameter of a test is, names or has a class of the laboratory."""
    if isinstance(value, type):
        return _of_the_lab(value.__module__)
    return any(_compares(part, baselines) for part in value) if isinstance(value, tuple) else isinstance(value, str) and value in baselines


def _parameters(item: pytest.Item) -> dict[str, object]:
    return item.callspec.params if hasattr(item, "callspec") else {}


def _fixtures(item: pytest.Item) -> set[str]:
    """Return the names of what a test takes from fixtures. pytest counts its parameters among them, and one may be called ``window``."""
    return set(getattr(item, "fixturenames", ())) - _parameters(item).keys()


def tier_of(item: pytest.Item) -> str:
    """Return the tier of a test."""
    parameters = _parameters(item).values()
    if item.get_closest_marker("lab") or item.nodeid.startswith(_LAB) or any(_compares(value, _baselines(item.module)) for value in parameters):
        return "lab"
    return "product" if item.get_closest_marker("product") or item.get_closest_marker("long") or _STARTERS & _fixtures(item) else "fast"


def has_no_fast_test(file: Path) -> bool:
    """Tell from the text of a file of tests whether none of them is ``fast``, so that ``-m fast`` need not import it."""
    return _LAB in file.as_posix() or _NOT_FAST.search(file.read_text(encoding="utf-8")) is not None


def seeds(count: int) -> list[Any]:
    """Return the seeds of a test that takes long with all of them: the first one is for the quick loop."""
    return [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, count))]


def is_on_the_machine(item: pytest.Item) -> bool:
    """Tell whether a test starts or uses Spark, a broker, a browser or containers."""
    return bool(_STARTERS & _fixtures(item)) or (item.get_closest_marker("product") is not None and item.get_closest_marker("long") is None)


# --- processes --------------------------------------------------------------------------------------------------------


def group_of(item: pytest.Item) -> str:
    """Return what tests have in common that stay in one process: the shared cluster, the browser, kernels, or a file; a file's tests may also be spread."""
    file = item.nodeid.partition("::")[0].removeprefix("tests/")
    fixtures = _fixtures(item)
    if "cluster" in fixtures:
        return _SHARED
    if "window" in fixtures:
        return f"{_MACHINE}the browser"
    name = item.nodeid if any(mark.kwargs.get("spread") for mark in item.iter_markers()) else file
    if is_on_the_machine(item):
        return f"{_MACHINE}{name}"
    return next((kernels for place, kernels in _TOGETHER.items() if file.startswith(place)), name)


def in_order(items: list[pytest.Item]) -> list[pytest.Item]:
    """Return tests group by group: first the groups on the machine, and of these as of the others first those that take longest.

    The marks, or ``_SECONDS``, say how long (``seconds``, about): at a file or a test that takes more than half a minute of processor time.
    """
    groups: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        groups[group_of(item)].append(item)

    def seconds(group: str) -> float:
        marked = {id(mark): mark.kwargs.get("seconds", 0) for item in groups[group] for mark in item.iter_markers()}
        return float("inf") if group == _SHARED else _SECONDS.get(group, 0) + sum(marked.values())

    order = sorted(groups, key=lambda group: (not group.startswith(_MACHINE), -seconds(group)))
    return [item for group in order for item in groups[group]]


def groups_file(config: pytest.Config) -> Path:
    """Return the file in which processes say which tests stay together."""
    if hasattr(config, "workerinput"):
        return Path(config.workerinput["groups"])
    if _GROUPS not in config.stash:
        folder = tempfile.TemporaryDirectory(prefix="dskype-tests-")
        config.add_cleanup(folder.cleanup)
        config.stash[_GROUPS] = Path(folder.name) / "groups.json"
    return config.stash[_GROUPS]


def write_groups(items: list[pytest.Item], config: pytest.Config) -> None:
    """Tell the process that distributes tests which of them stay together."""
    if hasattr(config, "workerinput"):
        target = groups_file(config)
        own = target.with_name(f"{target.name}.{os.getpid()}")
        own.write_text(json.dumps({item.nodeid: group_of(item) for item in items}))
        own.replace(target)  # all processes write the same


def scheduler(config: pytest.Config, log: Any) -> Any:
    """Return what distributes tests (``-n 4``): group by group, and those on the machine to two processes, which do the rest afterwards."""
    from xdist.scheduler import LoadScopeScheduling

    class Groups(LoadScopeScheduling):
        _on_machine: tuple[Any, ...] = ()

        @cached_property
        def _groups(self) -> dict[str, str]:
            return json.loads(groups_file(self.config).read_text())

        def _split_scope(self, nodeid: str) -> str:
            return self._groups[nodeid]

        def remove_node(self, node: Any) -> str | None:
            # pytest-xdist would also deal out again what the process had finished: no test, after which the next process waits for ever.
            had = self.assigned_work.get(node, {})
            for group in [group for group, tests in had.items() if all(tests.values())]:
                del had[group]
            found: str | None = super().remove_node(node)
            return found

        def _may_have(self, node: Any, group: str) -> bool:
            if not group.startswith(_MACHINE) or node in self._on_machine:
                return True
            self._on_machine = tuple(other for other in self._on_machine if other in self.assigned_work and not other.shutting_down)
            # A process that has had other tests has a lower priority: it gets one of these only if nothing else is left.
            if len(self._on_machine) >= _AT_ONCE or (self.assigned_work[node] and not all(left.startswith(_MACHINE) for left in self.workqueue)):
                return False
            self._on_machine += (node,)
            return True

        def _assign_work_unit(self, node: Any) -> None:
            group = next((group for group in self.workqueue if self._may_have(node, group)), None)
            if group is None:
                node.shutdown()
                return
            self.workqueue.move_to_end(group, last=False)
            super()._assign_work_unit(node)
            if self._pending_of(self.assigned_work[node]) < 2:
                # A process begins a test when it knows what follows. One that takes the place of another would wait with a single test for ever.
                self._reschedule(node)

    config.option.loadscopereorder = False  # they are in order
    return Groups(config, log)


# --- times ------------------------------------------------------------------------------------------------------------


def _used_s(with_running: bool) -> float:
    """Return the processor seconds of this process and of all that it has started and that have ended.

    :param with_running: add those that run.
    """
    own, ended = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + ended.ru_utime + ended.ru_stime + (_running_s() if with_running else 0.0)


def _running_s() -> float:
    """Return the processor seconds of all processes below this one, as Linux counts them; elsewhere 0."""
    children: dict[int, list[int]] = defaultdict(list)
    ticks: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text(errors="replace").rpartition(")")[2].split()
        except OSError:  # it has just ended
            continue
        pid = int(stat.parent.name)
        children[int(fields[1])].append(pid)
        ticks[pid] = sum(map(int, fields[11:15]))
    found, left = 0, children[os.getpid()]
    while left:
        pid = left.pop()
        found += ticks[pid]
        left += children[pid]
    return found / os.sysconf("SC_CLK_TCK")


class Times:
    """Measures every test, and shows at the end which tests and files took longest, and what each tier took."""

    def __init__(self) -> None:
        self._tests: dict[str, list[float]] = {}  # wall and processor seconds
        self._tiers: dict[str, str] = {}
        self._begun, self._with_running = (0.0, 0.0), False

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, object, object]:
        """Begin to measure."""
        self._with_running = is_on_the_machine(item) or nextitem is None  # the last one ends what others have started
        self._begun = (time.perf_counter(), _used_s(self._with_running))
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Add to a report what its phase took; pytest-xdist passes it on."""
        report = yield
        (wall, used), now = self._begun, (time.perf_counter(), _used_s(self._with_running))
        self._begun = now
        report.took = [tier_of(item), now[0] - wall, max(0.0, now[1] - used)]  # type: ignore[attr-defined]
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add up the phases of a test. The report of a process that crashed was made by pytest-xdist, and has no times."""
        if not hasattr(report, "took"):
            return
        tier, wall, used = report.took
        times = self._tests.setdefault(report.nodeid, [0.0, 0.0])
        times[0] += wall
        times[1] += used
        self._tiers[report.nodeid] = tier

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Show the minutes of each tier, the slowest tests, and the files whose tests took most together."""
        terminalreporter.section("what the tests took")
        terminalreporter.line("tier      tests   minutes   of processors   protects")
        for tier, protects in TIERS.items():
            own = [times for nodeid, times in self._tests.items() if self._tiers[nodeid] == tier]
            wall, used = (sum(times[i] for times in own) / 60 for i in (0, 1))
            terminalreporter.line(f"{tier:8} {len(own):6,}   {wall:7.1f}   {used:13.1f}   {protects}")
        terminalreporter.line("seconds   of processors   the slowest tests")
        for nodeid, (wall, used) in sorted(self._tests.items(), key=lambda kept: -kept[1][1])[:_SLOWEST]:
            terminalreporter.line(f"{wall:7.1f}   {used:13.1f}   {nodeid}")
        files: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0])
        for nodeid, times in self._tests.items():
            kept = files[nodeid.partition("::")[0]]
            for i, more in enumerate((*times, 1)):
                kept[i] += more
        terminalreporter.line("seconds   of processors   tests   the files that took most")
        for file, (wall, used, tests) in sorted(files.items(), key=lambda kept: -kept[1][1])[:_LONGEST_FILES]:
            terminalreporter.line(f"{wall:7.1f}   {used:13.1f}   {tests:5}   {file}")
