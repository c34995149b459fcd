"""A server with DSkype's pages over Kafka in memory."""

from __future__ import annotations

import pytest

from dskype.deploy.metrics.ui_server import UiServer, UiSettings
from dskype.deploy.web.extension import make_extension

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
