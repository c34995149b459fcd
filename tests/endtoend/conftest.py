"""Fixtures of the tests on Spark and Kafka."""

import pytest

from .feed import Feed


@pytest.fixture
def feed_of():
    """Make feeds that are closed at the end."""
    feeds = []

    def make(kafka, name, *more, **options):
        feeds.append(Feed(kafka, name, *more, **options))
        return feeds[-1]

    yield make
    for feed in feeds:
        feed.close()
