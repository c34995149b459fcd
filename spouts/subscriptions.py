"""Subscriptions as their records say them, checked: what parsers return, and what spouts pass on as maps."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from dskype.spouts import expression as expressions

__all__ = ["BooleanSubscription", "Subscription", "ThresholdSubscription", "TopkSubscription", "subscription_from_record"]


class _Recorded:
    """A dataclass that travels as a dict of plain values."""

    __slots__ = ()

    TYPE: ClassVar[str]
    """The type in its record."""

    def to_record(self: Any) -> dict[str, Any]:
        """Return the subscription as a dict of plain values, for :func:`subscription_from_record`."""
        given = {one.name: getattr(self, one.name) for one in dataclasses.fields(self)}
        return {"type": self.TYPE, **{name: value for name, value in given.items() if value is not None and value is not False}}

    @classmethod
    def from_record(cls: Any, record: Mapping[str, Any]) -> Any:
        """Return the subscription of a dict that :meth:`to_record` made. Lists may have become tuples on the way, and fields may be absent that earlier versions did not have."""
        given = {one.name: record[one.name] for one in dataclasses.fields(cls) if one.name in record}
        return cls(**given | {name: read(given[name]) for name, read in _READ.items() if name in given})


_READ: dict[str, Callable[[Any], Any]] = {"keywords": list, "bbox": tuple, "where": expressions.as_lists, "expression": expressions.as_lists}
"""Field -> what makes it of the value in a record."""


@dataclass(frozen=True, slots=True)
class _Scoring(_Recorded):
    """Words near a place: what gives messages a score.

    :ivar id: the key of its record.
    :ivar keywords: tokens, at least one, in order; one that occurs several times counts as often.
    :ivar alpha: the weight of the place against the text, 0..1.
    :ivar lat, lon: degrees, inside the data space.
    :ivar meta: JSON text that comes back with each result, or None.
    :ivar where: an expression (:mod:`dskype.spouts.expression`); only messages that satisfy it count. None: all do.
    :ivar scale_m: distances are in metres, and nearness counts up to here; None: they are in degrees, over the diagonal of the data space.
    :ivar ttl_s: its lifetime in seconds; None: until it is unregistered.
    :ivar update: whether it goes on from the registration before it.
    :ivar tenant: whose it is; None: it names nobody.
    """

    id: str
    keywords: list[str]
    alpha: float
    lat: float
    lon: float
    meta: str | None = None
    where: expressions.Expression | None = None
    scale_m: float | None = None
    ttl_s: float | None = None
    update: bool = False
    tenant: str | None = None


@dataclass(frozen=True, slots=True)
class TopkSubscription(_Scoring):
    """The best ``k`` messages of the window for a place and a set of keywords.

    :ivar k: how many messages, from 1.
    """

    TYPE = "topk"
    k: int = field(kw_only=True)


@dataclass(frozen=True, slots=True)
class ThresholdSubscription(_Scoring):
    """All messages that reach a score for a place and a set of keywords.

    :ivar min_score: the score that a message has to reach, 0..1.
    """

    TYPE = "threshold"
    min_score: float = field(kw_only=True)


@dataclass(frozen=True, slots=True)
class BooleanSubscription(_Recorded):
    """All messages in a rectangle whose keywords satisfy an expression.

    :ivar id: the key of its record.
    :ivar bbox: (west, south, east, north) in degrees, borders included; west > east crosses the antimeridian.
    :ivar expression: over tokens, see :mod:`dskype.spouts.expression`.
    :ivar ttl_s: its lifetime in seconds; None: until it is unregistered.
    :ivar meta: JSON text that comes back with each result, or None.
    :ivar region: an encoded region (:mod:`dskype.spouts.regions`) in ``bbox``; None: the rectangle.
    :ivar inside: whether updates of objects that stay in are reported, too.
    :ivar update: whether it goes on from the registration before it.
    :ivar initial: the most messages that it wants of those that match already; None: none.
    :ivar tenant: whose it is; None: it names nobody.
    """

    TYPE = "boolean"

    id: str
    bbox: tuple[float, float, float, float]
    expression: expressions.Expression
    ttl_s: float | None = None
    meta: str | None = None
    region: list[float] | None = None
    inside: bool = False
    update: bool = False
    initial: int | None = None
    tenant: str | None = None


Subscription = TopkSubscription | BooleanSubscription | ThresholdSubscription

_CLASSES: dict[str, type[Subscription]] = {kind.TYPE: kind for kind in (TopkSubscription, BooleanSubscription, ThresholdSubscription)}


def subscription_from_record(record: Mapping[str, Any]) -> Subscription:
    """Return the subscription of a dict that its ``to_record`` made."""
    return _CLASSES[record["type"]].from_record(record)
