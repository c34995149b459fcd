"""A server with DSkype's pages over Kafka in memory."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from dskype.deploy.metrics.ui_server import UiServer, UiSettings
from dskype.deploy.web.extension import make_extension
from tests.needs import unavailable

from .memory_kafka import MemoryKafka
from .server import TOKEN, OneTopology


@pytest.fixture
def kafka():
    return MemoryKafka()


@pytest.fixture
def source():
    return OneTopology()


@pytest.fixture
def served(kafka, source):
    """A server whose one topology is named ``dskype``."""
    kafka.topology()
    with UiServer(source, UiSettings(port=0, token=TOKEN), [make_extension(kafka, source)]) as server:
        yield server


@pytest.fixture(scope="session")
def axe():
    """The script of axe-core, of the package axe-core-python."""
    found = importlib.util.find_spec("axe_core_python")
    if found is None:
        unavailable("axe-core-python is not installed")
    return (Path(found.submodule_search_locations[0]) / "axe.min.js").read_text(encoding="utf-8")
