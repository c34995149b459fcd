"""Results: their formats, their way to Kafka, and the stores of whole top-k lists."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dskype.bolts.results.base import ResultStore
from dskype.bolts.results.kafka_store import KafkaStore
from dskype.bolts.results.redis_store import RedisStore
from dskype.topology.errors import IllegalArgumentException

__all__ = ["STORES", "make_store"]

STORES: dict[str, type[ResultStore]] = {store.name: store for store in (KafkaStore, RedisStore)}
"""Stores by their names in ``dskype.store``."""


def make_store(name: str, options: Mapping[str, Any] | None = None) -> ResultStore:
    """Return a store, not yet open.

    :raises IllegalArgumentException: an unknown store, or options that it cannot use.
    """
    if name not in STORES:
        raise IllegalArgumentException("A result store is not known.", given=name, legal=", ".join(STORES))
    return STORES[name](options)
