"""Subscriptions with term ids: what distributors place, and what travels from the distribution bolt to the subscription bolt."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

__all__ = ["BooleanSubscription", "Scorer", "Subscription", "TopkSubscription", "decode_subscription", "from_map"]


class TopkSubscription(NamedTuple):
    """A top-k subscription.

    :ivar k: number of messages, >= 1.
    :ivar alpha: weight of the distance, 0..1.
    :ivar lat, lon: degrees.
    :ivar terms: int64[], ids of its keywords, rising.
    :ivar weights: float64[], weights of the keywords, of unit norm.
    :ivar meta: JSON text that comes back with every delta, or None.
    :ivar program: decides whether a message counts (:mod:`dskype.spouts.filters`); None: all do.
    :ivar scale_m: distances are in metres, and the spatial similarity is 0 from here on; None: they are in degrees.
    :ivar expires_ms: time of expiry, in ms since 1970; None: it lives until it is unregistered.
    :ivar update: True, on the way to the task that places it: it goes on from the registration before it.
    """

    k: int
    alpha: float
    lat: float
    lon: float
    terms: Any
    weights: Any
    meta: str | None
    program: Any = None
    scale_m: float | None = None
    expires_ms: int | None = None
    update: bool | None = None

    def encode(self) -> dict[str, Any]:
        """Return the map that travels."""
        return {"type": "topk", **_given(self)}

    def placed(self, updated: bool) -> TopkSubscription:
        """Return it as the task that places it passes it on; see :meth:`BooleanSubscription.placed`."""
        return self._replace(update=None)


class Scorer(NamedTuple):
    """What gives messages a score for a threshold subscription, and the score that they have to reach.

    :ivar min_score: 0..1.
    :ivar alpha: weight of the distance, 0..1.
    :ivar lat, lon: degrees.
    :ivar scale_m: as in :class:`TopkSubscription`, but 0: distances are in degrees.
    :ivar terms: int64[], ids of its keywords, rising.
    :ivar weights: float64[], weights of the keywords, of unit norm.
    """

    min_score: float
    alpha: float
    lat: float
    lon: float
    scale_m: float
    terms: Any
    weights: Any


class BooleanSubscription(NamedTuple):
    """A boolean subscription, or, with a scorer, a threshold subscription.

    :ivar bbox: [west, south, east, north], degrees.
    :ivar expression: a condition for indexes and distributors: a term id, ``["and", e, ...]`` or ``["or", e, ...]``.
    :ivar expires_ms: time of expiry, in ms since 1970; None: it lives until it is unregistered.
    :ivar meta: JSON text that comes back with every match, or None.
    :ivar program: decides whether a message that meets the condition matches (:mod:`dskype.spouts.filters`); None: it does.
    :ivar region: an encoded region (:mod:`dskype.spouts.regions`) that decides too, in the rectangle; None: the rectangle does.
    :ivar inside: True: updates of objects that stay in are reported, too.
    :ivar begun: the watermark at which it became active, with objects and where it may move; None: it is that of the task when it begins there.
    :ivar update: as in :class:`TopkSubscription`.
    :ivar scorer: the fields of a :class:`Scorer`, which decides too: the rectangle and the condition have all messages that may reach its score
        (:mod:`dskype.spouts.reach`). None: they match without a score.
    :ivar initial: a :class:`dskype.bolts.searches.Filter` as a map, on the way to the task that asks for what matches already; None: nobody asks.
    """

    bbox: Any
    expression: Any
    expires_ms: int | None
    meta: str | None
    program: Any = None
    region: Any = None
    inside: bool | None = None
    begun: int | None = None
    update: bool | None = None
    scorer: Any = None
    initial: Any = None

    def encode(self) -> dict[str, Any]:
        """Return the map that travels."""
        return {"type": "boolean", **_given(self)}

    def placed(self, updated: bool) -> BooleanSubscription:
        """Return it as the task that places it passes it on: it has decided whether it goes on from another registration, and if it does (``updated``), it asks for nothing."""
        return self._replace(update=None, initial=None if updated else self.initial)


def _given(subscription: Any) -> dict[str, Any]:
    """Return the fields of a named tuple as a map; those that earlier versions did not have are left out if they are None."""
    return {name: value for name, value in subscription._asdict().items() if value is not None or name not in subscription._field_defaults}


Subscription = TopkSubscription | BooleanSubscription

_SUBSCRIPTIONS: dict[str, type[Subscription]] = {"topk": TopkSubscription, "boolean": BooleanSubscription}


def decode_subscription(record: Mapping[str, Any]) -> Subscription:
    """Return the subscription in a map; other keys of the map are ignored."""
    return from_map(_SUBSCRIPTIONS[record["type"]], record)


def from_map(kind: Any, record: Mapping[str, Any]) -> Any:
    """Return a named tuple of class ``kind`` with the values that a map has for its fields; fields with a default may be absent."""
    try:
        return kind(*map(record.__getitem__, kind._fields))
    except KeyError:
        return kind(**{name: record[name] for name in kind._fields if name in record or name not in kind._field_defaults})
