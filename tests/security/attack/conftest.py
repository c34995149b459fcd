"""A topology and its servers, which all attacks share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.security.attack.service import Attacked, Topology, running


@pytest.fixture(scope="module")
def topology(bootstrap_servers: str) -> Topology:
    """The topics, empty."""
    return Topology.make(bootstrap_servers)


@pytest.fixture(scope="module")
def ui(topology: Topology) -> Iterator[Attacked]:
    """The web server."""
    with running("ui", "--bootstrap-servers", topology.kafka.bootstrap_servers) as attacked:
        yield attacked
