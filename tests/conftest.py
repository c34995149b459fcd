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
from typing import TYPE_CHECKING

import pytest

from dskype.deploy.machine import paths

if TYPE_CHECKING:
    from dskype.deploy.machine.broker import EmbeddedBroker
    from dskype.topology.local import LocalCluster

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # started in the background: what tests start would ignore Ctrl-C, too

# Spark's JVM compiles with C1 alone. Most live for seconds, and the one of the shared cluster gets new code with each topology: C2 takes more time than it saves.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1")

paths.export_numba_cache()  # before any test imports numba: kernels are then compiled once and not once per run


_MACHINE = (
    "topology/runtime/",
    "topology/ui/test_pages.py",
    "topology/ui/test_ui_on_spark.py",
    "security/",
    "endtoend/test_on_spark.py",
    "endtoend/test_on_cluster.py",
    "endtoend/test_explain_on_spark.py",
    "endtoend/test_pages_on_spark.py",
    "endtoend/test_compose.py",
    "endtoend/test_moves_on_spark.py",
    "bolts/results/test_stores.py",
    *(
        f"deploy/{name}.py"
        for name in (
            "chaos/test_chaos_on_spark",
            "cli/test_cli_on_spark",
            "cli/test_pubsub_cli",
            "cli/test_service_on_spark",
            "client/test_pubsub",
            "machine/test_broker",
            "machine/test_doctor",
            "metrics/test_stats",
            "test_kubernetes",
            "web/test_web_pages",
            "web/test_silence_on_kafka",
            "web/test_web_on_kafka",
        )
    ),
)
"""Files whose tests need Spark, a broker, a browser or containers."""

_OWN_SPARK = (
    "bolts/results/test_stores.py",
    "deploy/chaos/",
    "deploy/cli/",
    "deploy/client/",
    "deploy/machine/",
    "deploy/web/",
    "endtoend/test_compose.py",
    "endtoend/test_on_cluster.py",
    "security/",
    "topology/runtime/test_preflight.py",
    "topology/ui/test_pages.py",
)
"""Of these, the ones that start Spark in processes of their own, or need none: another process runs them, so that neither is the last for minutes."""

_THOROUGH = (
    "bolts/boolean/",
    "bolts/replication/test_replicas.py",
    "bolts/test_result_bolt.py",
    "bolts/test_skype.py",
    "bolts/topk/",
    "bolts/window/test_windows.py",
    "deploy/benchmarks/",
    "deploy/chaos/",
    "deploy/verification/",
    "distribution/test_agrid_distributor.py",
    "distribution/test_balancing.py",
    "distribution/test_distributors.py",
    "endtoend/",
    "golden/",
    "test_without_jit.py",
    "topology/core/test_frame_fuzz.py",
    "topology/test_kernel_cache.py",
    "topology/simulated/test_faults.py",
    "topology/simulated/test_poison_tuples.py",
    "topology/simulated/test_windowed_topologies.py",
)
"""Files whose tests play many seeded schedules, compare with oracles step by step, or measure: ``make check`` leaves them to ``make test``."""

_SPREAD = ("endtoend/test_exactness.py",)
"""Files whose tests need nothing of each other, and much time."""

_SAME_KERNELS = (("bolts/boolean/",), ("bolts/topk/", "bolts/replication/", "bolts/window/", "bolts/test_skype.py"))
"""Folders and files whose tests call the same kernels: one process compiles them, not two at once."""

_ORDER = {"machine": 0, "machine, own Spark": 1}
"""Groups that begin first, as they take longest."""

_GIVE_WAY = 10
"""What a process without Spark adds to its niceness."""


def _group(nodeid: str) -> str:
    """Return what tests have in common that stay together when several processes share them: the machine, kernels, or a file."""
    file = nodeid.partition("::")[0].removeprefix("tests/")
    if file.startswith(_MACHINE):
        return "machine, own Spark" if file.startswith(_OWN_SPARK) else "machine"
    return nodeid if file in _SPREAD else next((places[0] for places in _SAME_KERNELS if file.startswith(places)), file)


_GIVES_WAY = pytest.StashKey[bool]()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Leave the cores to the process that has the tests with Spark; which one that is shows at its first test."""
    if "PYTEST_XDIST_WORKER" in os.environ and _GIVES_WAY not in item.config.stash and item.get_closest_marker("machine") is None:
        item.config.stash[_GIVES_WAY] = True
        os.nice(_GIVE_WAY)


@pytest.hookimpl(tryfirst=True)  # before pytest chooses by marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests, and begin with those that need Spark or a broker: two processes run them, and two others all the rest."""
    for item in items:
        if _group(item.nodeid).startswith("machine") or not {"broker", "bootstrap_servers", "cluster"}.isdisjoint(getattr(item, "fixturenames", ())):
            item.add_marker("machine")
        elif item.nodeid.removeprefix("tests/").startswith(_THOROUGH):
            item.add_marker("thorough")
    items.sort(key=lambda item: _ORDER.get(_group(item.nodeid), len(_ORDER)))


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Import a share of all test files before the rest of them: pytest rewrites the assertions of a file and stores the result, so that no two processes rewrite the same files."""
    gc.set_threshold(100_000, 20, 20)  # trees of syntax are many objects, and the collector would look at all of them again and again
    processes = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    if processes == 1 or [Path(arg).name for arg in session.config.args] != ["tests"]:
        return
    root, own = Path(__file__).parent, int(os.environ["PYTEST_XDIST_WORKER"].removeprefix("gw"))
    for file in sorted(root.rglob("test_*.py"))[own::processes]:
        with contextlib.suppress(Exception, pytest.skip.Exception):  # the collection tells of it
            importlib.import_module(".".join(("tests", *file.relative_to(root).with_suffix("").parts)))


def pytest_collection_finish() -> None:
    """Let the garbage collector run seldom, and spare it what lives to the end: it took a third of the time of simulated topologies."""
    gc.set_threshold(20_000, 20, 20)
    gc.collect()
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """Keep groups together (``-n 4``); marks of pytest-xdist cannot say so with pytest 9."""
    from xdist.scheduler import LoadScopeScheduling

    class Groups(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return _group(nodeid)

    return Groups(config, log)


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
