"""Fixtures of the tests on Spark and Kafka."""

import pytest

from .feed import Feed


@pytest.fixture
def feed_of():
    """Make feeds that are closed at the end."""
    feeds = []

    def make(kafka, name, tasks=2):
        feeds.append(Feed(kafka, name, tasks))
        return feeds[-1]

    yield make
    for feed in feeds:
        feed.close()
