"""Fixtures that several folders share. They start what they need; nothing is skipped."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dskype.deploy import paths

paths.export_numba_cache()      # before any test imports numba: kernels are then compiled once and not once per run


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


@pytest.fixture
def tmp_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home folder of the product for one test."""
    home = tmp_path / "home"
    monkeypatch.setenv(paths.HOME_VARIABLE, str(home))
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    return home
