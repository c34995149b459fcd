"""Subscriptions as their records say them, checked: what parsers return, and what spouts pass on as maps."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dskype.spouts import expression as expressions

__all__ = ["BooleanSubscription", "Subscription", "ThresholdSubscription", "TopkSubscription", "subscription_from_record"]


@dataclass(frozen=True, slots=True)
class TopkSubscription:
    """The best ``k`` messages of the window for a place and a set of keywords.

    :ivar id: the key of its record.
    :ivar keywords: tokens, at least one, in order; one that occurs several times counts as often.
    :ivar k: how many messages, from 1.
    :ivar alpha: the weight of the place against the text, 0..1.
    :ivar lat, lon: degrees, inside the data space.
    :ivar meta: JSON text that comes back with each result, or None.
    :ivar where: an expression (:mod:`dskype.spouts.expression`); only messages that satisfy it count. None: all do.
    :ivar scale_m: distances are in metres, and nearness counts up to here; None: they are in degrees, over the diagonal of the data space.
    :ivar ttl_s: its lifetime in seconds; None: until it is unregistered.
    :ivar update: whether its list goes on from that of the registration before it.
    """

    id: str
    keywords: list[str]
    k: int
    alpha: float
    lat: float
    lon: float
    meta: str | None = None
    where: expressions.Expression | None = None
    scale_m: float | None = None
    ttl_s: float | None = None
    update: bool = False

    def to_record(self) -> dict[str, Any]:
        """Return the subscription as a dict of plain values, for :func:`subscription_from_record`."""
        record = {
            "type": "topk",
            "id": self.id,
            "keywords": list(self.keywords),
            "k": self.k,
            "alpha": self.alpha,
            "lat": self.lat,
            "lon": self.lon,
            "meta": self.meta,
            "where": self.where,
        }
        record |= {name: value for name in ("scale_m", "ttl_s") if (value := getattr(self, name)) is not None}
        return record | {"update": True} if self.update else record

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> TopkSubscription:
        """Return the subscription of a dict that :meth:`to_record` made."""
        return cls(**_scoring_fields(cls, record))


@dataclass(frozen=True, slots=True)
class BooleanSubscription:
    """All messages in a rectangle whose keywords satisfy an expression.

    :ivar id: the key of its record.
    :ivar bbox: (west, south, east, north) in degrees, borders included; west > east crosses the antimeridian.
    :ivar expression: over tokens, see :mod:`dskype.spouts.expression`.
    :ivar ttl_s: its lifetime in seconds; None: until it is unregistered.
    :ivar meta: JSON text that comes back with each result, or None.
    :ivar region: an encoded region (:mod:`dskype.spouts.regions`) in ``bbox``; None: the rectangle.
    :ivar inside: whether updates of objects that stay in are reported, too.
    :ivar update: whether it goes on from the registration before it.
    """

    id: str
    bbox: tuple[float, float, float, float]
    expression: expressions.Expression
    ttl_s: float | None = None
    meta: str | None = None
    region: list[float] | None = None
    inside: bool = False
    update: bool = False

    def to_record(self) -> dict[str, Any]:
        """Return the subscription as a dict of plain values, for :func:`subscription_from_record`."""
        record = {"type": "boolean", "id": self.id, "bbox": list(self.bbox), "expression": self.expression, "ttl_s": self.ttl_s, "meta": self.meta}
        record |= {} if self.region is None else {"region": self.region}
        return record | {name: True for name in ("inside", "update") if getattr(self, name)}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> BooleanSubscription:
        """Return the subscription of a dict that :meth:`to_record` made (lists may have become tuples on the way)."""
        later = record.get("region"), record.get("inside", False), record.get("update", False)
        return cls(record["id"], tuple(record["bbox"]), expressions.as_lists(record["expression"]), record["ttl_s"], record["meta"], *later)


@dataclass(frozen=True, slots=True)
class ThresholdSubscription:
    """All messages that reach a score for a place and a set of keywords.

    :ivar id: the key of its record.
    :ivar keywords: as in :class:`TopkSubscription`; also ``alpha``, ``lat``, ``lon``, ``meta``, ``where``, ``scale_m`` and ``ttl_s``.
    :ivar min_score: the score that a message has to reach, 0..1.
    :ivar update: whether it goes on from the registration before it.
    """

    id: str
    keywords: list[str]
    min_score: float
    alpha: float
    lat: float
    lon: float
    meta: str | None = None
    where: expressions.Expression | None = None
    scale_m: float | None = None
    ttl_s: float | None = None
    update: bool = False

    def to_record(self) -> dict[str, Any]:
        """Return the subscription as a dict of plain values, for :func:`subscription_from_record`."""
        given = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {"type": "threshold", **{name: value for name, value in given.items() if value is not None and value is not False}}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> ThresholdSubscription:
        """Return the subscription of a dict that :meth:`to_record` made."""
        return cls(**_scoring_fields(cls, record))


def _scoring_fields(kind: Any, record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that a dict has for a class; those with a default may be absent, as earlier versions did not have all of them."""
    given = {field.name: record[field.name] for field in dataclasses.fields(kind) if field.name in record}
    return given | {"keywords": list(record["keywords"]), "where": expressions.as_lists(record.get("where"))}


Subscription = TopkSubscription | BooleanSubscription | ThresholdSubscription

_CLASSES: dict[str, type[Subscription]] = {"topk": TopkSubscription, "boolean": BooleanSubscription, "threshold": ThresholdSubscription}


def subscription_from_record(record: Mapping[str, Any]) -> Subscription:
    """Return the subscription of a dict that its ``to_record`` made."""
    return _CLASSES[record["type"]].from_record(record)
