"""Fixtures that several folders share. They start what they need; nothing is skipped."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from dskype.deploy import paths

if TYPE_CHECKING:
    from dskype.topology.local import LocalCluster

paths.export_numba_cache()      # before any test imports numba: kernels are then compiled once and not once per run


_MACHINE_FIXTURES = {"broker", "bootstrap_servers", "cluster"}
_MACHINE_FILES = ("topology/runtime/", "deploy/test_broker.py", "deploy/test_cli_on_spark.py", "endtoend/test_on_spark.py")
_SPREAD_FILES = ("endtoend/test_exactness.py",)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Say which tests stay together when two processes share them (``-n 2 --dist loadgroup``).

    Those that need Spark or a broker come first and run one after the other, beside all others; files stay whole.
    """
    def group(item: pytest.Item) -> str | None:
        file = item.path.relative_to(Path(__file__).parent).as_posix()
        if file.startswith(_MACHINE_FILES) or _MACHINE_FIXTURES.intersection(getattr(item, "fixturenames", ())):
            return "machine"
        return None if file in _SPREAD_FILES else file

    for item in items:
        if name := group(item):
            item.add_marker(pytest.mark.xdist_group(name))
    items.sort(key=lambda item: group(item) != "machine")


@pytest.fixture(scope="session")
def broker() -> Iterator[object]:
    """One embedded broker for the whole session; tests use topic names of their own."""
    from dskype.deploy.broker import EmbeddedBroker

    with EmbeddedBroker() as running:
        yield running


@pytest.fixture(scope="session")
def bootstrap_servers(broker: object) -> str:
    """Address of the session's broker."""
    return broker.bootstrap_servers     # type: ignore[attr-defined,no-any-return]


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
