"""One Spark session and one broker for all tests of the folder."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from dskype.topology.local import LocalCluster

from .helpers import executors, wait_for


@pytest.fixture(scope="session")
def cluster(bootstrap_servers: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """A local cluster on the session's broker; Spark runs once in this process."""
    with LocalCluster(bootstrap_servers=bootstrap_servers, folder=tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture
def name() -> str:
    """A topology name that no other test uses."""
    return f"t{uuid.uuid4().hex[:8]}"


@pytest.fixture(autouse=True)
def no_executor_stays() -> Iterator[None]:
    """Check after every test that the executors of its topologies are gone, and stay gone."""
    yield
    wait_for(lambda: not executors(), 10, "the end of all executors")
