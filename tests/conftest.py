"""Fixtures that several folders share. They start what they need; nothing is skipped, except where the machine cannot have it, and nothing at all in CI (``tests/needs.py``)."""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import signal
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from dskype.deploy.machine import paths
from tests import tiers

if TYPE_CHECKING:
    from dskype.deploy.machine.broker import EmbeddedBroker
    from dskype.topology.local import LocalCluster
    from tests.topology.ui.browser import Browser

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # started in the background: what tests start would ignore Ctrl-C, too

os.environ.pop("PYTHONUNBUFFERED", None)  # programs print as on a machine where nobody has set it

# Spark's JVM compiles with C1 alone. Most live for seconds, and the one of the shared cluster gets new code with each topology: C2 takes more time than it saves.
_SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
os.environ.setdefault("SPARK_SUBMIT_OPTS", _SHORT_LIVED)
os.environ.setdefault("SPARK_LAUNCHER_OPTS", _SHORT_LIVED)  # the JVM that prints the command of another one

paths.export_numba_cache()  # before any test imports numba: kernels are then compiled once and not once per run


_GIVE_WAY = 10
"""What a process without Spark adds to its niceness."""


_GIVES_WAY = pytest.StashKey[bool]()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Leave the cores to the process that has the tests with Spark; which one that is shows at its first test."""
    if "PYTEST_XDIST_WORKER" in os.environ and _GIVES_WAY not in item.config.stash and not tiers.is_on_the_machine(item):
        item.config.stash[_GIVES_WAY] = True
        os.nice(_GIVE_WAY)


@pytest.hookimpl(tryfirst=True)  # before pytest chooses by marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark each test with its tier, and order the groups that stay in one process."""
    for item in items:
        if item.get_closest_marker(tier := tiers.tier_of(item)) is None:
            item.add_marker(tier)
    items[:] = tiers.in_order(items)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out files without fast tests where only these are wanted: to import all takes a third of the quick loop's time."""
    return True if config.option.markexpr == "fast" and collection_path.match("test_*.py") and tiers.has_no_fast_test(collection_path) else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Import a share of all test files before the rest of them: pytest rewrites the assertions of a file and stores the result, so that no two processes rewrite the same files."""
    gc.set_threshold(100_000, 20, 20)  # trees of syntax are many objects, and the collector would look at all of them again and again
    processes = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    if processes == 1 or [Path(arg).name for arg in session.config.args] != ["tests"]:
        return
    root, own = Path(__file__).parent, int(os.environ["PYTEST_XDIST_WORKER"].removeprefix("gw"))
    files = [file for file in sorted(root.rglob("test_*.py")) if session.config.option.markexpr != "fast" or not tiers.has_no_fast_test(file)]
    for file in files[own::processes]:
        with contextlib.suppress(Exception, pytest.skip.Exception):  # the collection tells of it
            importlib.import_module(".".join(("tests", *file.relative_to(root).with_suffix("").parts)))


@pytest.hookimpl(tryfirst=True)  # pytest-xdist's own tells that this process is ready, and the groups must be written then
def pytest_collection_finish(session: pytest.Session) -> None:
    """Let the garbage collector run seldom, and spare it what lives to the end: it took a third of the time of simulated topologies."""
    tiers.write_groups(session.items, session.config)
    gc.set_threshold(20_000, 20, 20)
    gc.collect()
    gc.freeze()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option of ``make test``."""
    parser.addoption("--times", action="store_true", help="show at the end which tests were the slowest, and what each tier took")


def pytest_configure(config: pytest.Config) -> None:
    """Measure the tests, if wanted, and hide the Makefile's ``HUGE_PAGES`` from what tests start: it runs as users run it."""
    if hasattr(config, "workerinput") or not config.getoption("numprocesses", None):  # pytest-xdist passes the settings on to the processes that run tests
        for setting in ("PYTHONMALLOC", "GLIBC_TUNABLES"):
            os.environ.pop(setting, None)
    if config.getoption("times"):
        config.pluginmanager.register(tiers.Times())


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a process where it says which tests stay together."""
    node.workerinput["groups"] = str(tiers.groups_file(node.config))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """Keep groups together (``-n 4``); marks of pytest-xdist cannot say so with pytest 9."""
    return tiers.scheduler(config, log)


@pytest.fixture(scope="session")
def broker() -> Iterator[EmbeddedBroker]:
    """One embedded broker for the whole session; tests use topic names of their own."""
    from dskype.deploy.machine.broker import EmbeddedBroker

    with EmbeddedBroker() as running:
        yield running


@pytest.fixture(scope="session")
def bootstrap_servers(broker: EmbeddedBroker) -> str:
    """Address of the session's broker."""
    return broker.bootstrap_servers


@pytest.fixture(scope="session")
def cluster(bootstrap_servers: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """A local cluster on the session's broker; Spark runs once in this process."""
    from dskype.topology.local import LocalCluster

    with LocalCluster(bootstrap_servers=bootstrap_servers, folder=tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture(scope="session")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A window of a real browser for the whole session."""
    from tests.topology.ui.browser import Browser

    opened = Browser(tmp_path_factory.mktemp("browser"))
    yield opened
    opened.close()


@pytest.fixture
def browser(request: pytest.FixtureRequest, window: Browser) -> Iterator[Browser]:
    """The window. Before a test's server (fixture ``served``) ends, it leaves the page: it would ask on, and the next test would find its complaints."""
    if "served" in request.fixturenames:
        request.getfixturevalue("served")
    yield window
    window.leave()


@pytest.fixture
def name() -> str:
    """A topology name that no other test uses."""
    return f"t{uuid.uuid4().hex[:8]}"


@pytest.fixture
def tmp_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home folder of the product for one test."""
    home = tmp_path / "home"
    monkeypatch.setenv(paths.HOME_VARIABLE, str(home))
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    return home
