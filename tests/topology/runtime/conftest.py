"""Fixtures for all tests on Spark and Kafka."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.waiting import wait_for

from .helpers import executors


@pytest.fixture(autouse=True)
def no_executor_stays() -> Iterator[None]:
    """Check after every test that the executors of its topologies are gone, and stay gone."""
    yield
    wait_for(lambda: not executors(), 60, "the end of all executors")
