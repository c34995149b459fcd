"""What subscriptions ask for, as it travels from the distribution bolt to the subscription bolt."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

__all__ = ["BooleanSubscription", "Subscription", "TopkSubscription", "decode_subscription", "from_map"]


class TopkSubscription(NamedTuple):
    """What a top-k subscription asks for.

    :ivar k: how many messages it wants, >= 1.
    :ivar alpha: weight of the distance, 0..1.
    :ivar lat, lon: degrees.
    :ivar terms: int64[], ids of its keywords, rising.
    :ivar weights: float64[], theirs, of unit norm.
    :ivar meta: JSON text that comes back with every delta; None: it gave none.
    """

    k: int
    alpha: float
    lat: float
    lon: float
    terms: Any
    weights: Any
    meta: str | None

    def encode(self) -> dict[str, Any]:
        """Return the map that travels, and that distributors place by."""
        return {"type": "topk", **self._asdict()}


class BooleanSubscription(NamedTuple):
    """What a boolean subscription asks for.

    :ivar bbox: [west, south, east, north], degrees.
    :ivar expression: a term id, ``["and", e, ...]`` or ``["or", e, ...]``.
    :ivar expires_ms: when it ends, in ms since 1970; None: when it is unregistered.
    :ivar meta: JSON text that comes back with every match; None: it gave none.
    """

    bbox: Any
    expression: Any
    expires_ms: int | None
    meta: str | None

    def encode(self) -> dict[str, Any]:
        """Return the map that travels, and that distributors place by."""
        return {"type": "boolean", **self._asdict()}


Subscription = TopkSubscription | BooleanSubscription

_SUBSCRIPTIONS: dict[str, type[Subscription]] = {"topk": TopkSubscription, "boolean": BooleanSubscription}


def decode_subscription(record: Mapping[str, Any]) -> Subscription:
    """Return the subscription in a map; what else the map says is left out."""
    return from_map(_SUBSCRIPTIONS[record["type"]], record)


def from_map(kind: Any, record: Mapping[str, Any]) -> Any:
    """Return a tuple of a kind whose fields are keys of a map."""
    return kind(*map(record.__getitem__, kind._fields))
