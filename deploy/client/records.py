"""What a client reads from a topology: subscriptions and their states, results, top-k lists."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from dataclasses import fields as dataclass_fields
from typing import Any, Self, cast

from dskype.spouts.record_values import RecordError, refusal

__all__ = [
    "Registered",
    "Result",
    "TopK",
    "changed_fields",
    "encoded",
    "given_fields",
    "json_object",
    "listed",
    "rest_of_life",
    "score_left",
    "subscription_type",
]

_EXCLUSIVE = (("bbox", "region"), ("text", "keywords"), ("expression", "keywords"))


def subscription_type(fields: Mapping[str, Any]) -> str:
    """Return the type of a subscription, by default ``boolean`` if there is a rectangle, a region or an expression, ``threshold`` if there is a ``min_score``, else ``topk``."""
    likely = "threshold" if "min_score" in fields else "topk"
    return fields.get("type") or ("boolean" if fields.keys() & {"bbox", "region", "expression"} else likely)


def score_left(score: float, at_ms: int, half_life_ms: float | None) -> float:
    """Return what is left of a score at a time; without a half-life all of it.

    :param score: as results have it; with a half-life a time score.
    """
    return score if half_life_ms is None else 2.0 ** min(score - at_ms / half_life_ms, 1000.0)


def listed(values: Any) -> Any:
    """Return a sequence as a list; a text, a map, and what is no sequence, as it is: the check of the record refuses it."""
    return list(values) if isinstance(values, Iterable) and not isinstance(values, (str, Mapping)) else values


def given_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that are not None."""
    return {name: value for name, value in fields.items() if value is not None}


def encoded(fields: Mapping[str, Any], what: str) -> bytes:
    """Return a record as JSON. Halves of surrogate pairs stay in it: the check of the record refuses them, with a reason.

    :param what: it is, for errors.
    :raises RecordError: JSON does not have one of the values.
    """
    try:
        return json.dumps(fields, ensure_ascii=False).encode(errors="surrogatepass")
    except RecursionError:
        raise RecordError(f"Expected {what} with less nesting", "deep-nesting") from None
    except (TypeError, ValueError) as ex:
        raise refusal("invalid-json", f"Expected {what} of values that JSON has", str(ex), "texts, numbers, True, False, None, lists and maps") from None


def rest_of_life(value: Mapping[str, Any], registered_ms: int, now_ms: int) -> dict[str, Any] | None:
    """Return the record of a subscription, as a new one, with what is left of its ``ttl_s``; None if that is over."""
    value = {name: field for name, field in value.items() if name != "update"}
    ttl_s = value.get("ttl_s")
    if not isinstance(ttl_s, (int, float)) or isinstance(ttl_s, bool):
        return value
    left_s = ttl_s - (now_ms - registered_ms) / 1000
    return {**value, "ttl_s": left_s} if left_s > 0 else None


def changed_fields(fields: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the record of an update: the fields of a subscription with changes; None takes a field away, and one of two that exclude each other replaces the other."""
    kept = dict(fields)
    for pair in _EXCLUSIVE:
        if any(changes.get(name) is not None for name in pair):
            kept = {name: value for name, value in kept.items() if name not in pair}
    if "distance" in changes and changes["distance"] != "metres":
        kept.pop("scale_m", None)  # it goes with metres alone
    return given_fields({**kept, **{name: listed(value) for name, value in changes.items()}}) | {"update": True}


@dataclass(frozen=True)
class Registered:
    """A subscription as its topic has it.

    :ivar id: the subscription's id.
    :ivar registration: ``<partition>-<offset>`` of its record.
    :ivar registered_ms: when the record arrived, epoch ms.
    :ivar value: the record's bytes.
    :ivar fields: the record's JSON object; None if it is not one.
    :ivar status: ``active``: the topology matches it; ``pending``: not yet; ``expired``: its ttl is over.
    :ivar since: if active, the watermark after which it is matched; if the topology expired it, its last watermark.
    :ivar limit: the setting whose limit has delayed its lists or left out ``meta``, and of which the author was told last; None: none has.
    :ivar limited_ms: when that was told, epoch ms.
    """

    id: str
    registration: str
    registered_ms: int
    value: bytes
    fields: dict[str, Any] | None
    status: str = "pending"
    since: int | None = None
    limit: str | None = None
    limited_ms: int | None = None

    @property
    def type(self) -> str | None:
        """``topk``, ``boolean``, ``threshold``, or whatever the record says."""
        return None if self.fields is None else self.fields.get("type")

    def with_status(self, state: tuple[str, int] | None, now_ms: int) -> Self:
        """Return it with its status.

        :param state: the newest event of its registration, and its watermark; None if there is none.
        """
        ttl_s = (self.fields or {}).get("ttl_s")
        over = isinstance(ttl_s, (int, float)) and self.registered_ms + ttl_s * 1000 < now_ms
        if over or (state is not None and state[0] == "removed"):
            return replace(self, status="expired", since=state[1] if state is not None and state[0] == "removed" else None)
        return self if state is None or state[0] not in ("active", "updated") else replace(self, status="active", since=state[1])

    def has_list(self, state: TopK | None) -> bool:
        """Tell whether a published list is this subscription's present one. After a move that of the record before stays until the new one is known."""
        return state is not None and (state.registration in (None, self.registration) or bool((self.fields or {}).get("update")))

    def as_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        own = {"id": self.id, "status": self.status, "since": self.since, "registration": self.registration, "registered_ms": self.registered_ms}
        limited = {} if self.limit is None else {"limit": self.limit, "limited_ms": self.limited_ms}
        return {**own, **limited, **{k: v for k, v in (self.fields or {}).items() if k not in (*own, "limit", "limited_ms")}}


@dataclass(frozen=True)
class Result:
    """One delta: a message entered (``add``) or left (``remove``) a top-k list, has another score in one that moved (``score``), or matched a boolean or a threshold subscription (``match``); or what an object did there.

    For a boolean subscription and an object, ``op`` is ``enter``, ``inside`` or ``leave``, and ``message`` the message that was the reason.

    :ivar watermark: of the list after this change (docs/concepts/pubsub.md, topics).
    :ivar message: the message's id, as it was published.
    :ivar score: with ``add`` and ``score``, and with a ``match`` of a threshold subscription, unless matches are grouped.
    :ivar rank: from 1; only with ``add`` and ``score``.
    :ivar meta: of the subscription; None: it has none, or a limit has left it out (then ``value`` has ``meta_omitted``).
    :ivar time_ms: when it was written, epoch ms.
    :ivar result_id: the same for all repetitions of a result.
    :ivar value: the whole record.
    :ivar fields: of the message, if the topology's results carry some (``dskype.results.fields``); None: they do not, it has left the list, or they are too long
        (then ``value`` has ``fields_omitted``).
    :ivar object: the id of the object of which the message is a state; None: of none.
    """

    subscription: str
    op: str
    message: str | int
    watermark: int
    score: float | None
    rank: int | None
    meta: Any
    time_ms: int
    result_id: str
    value: dict[str, Any]
    fields: dict[str, Any] | None = None
    object: str | None = None

    @property
    def event(self) -> str | None:
        """What the object did: ``enter``, ``inside`` or ``leave``; None: it did nothing of these."""
        return self.op if self.op in ("enter", "inside", "leave") else None

    @property
    def initial(self) -> bool:
        """Whether it is a match that was there already when the subscription became active."""
        return self.value.get("initial") is True

    @property
    def more(self) -> dict[str, Any]:
        """What the record has beside that: fields of topologies newer than this client."""
        return {name: found for name, found in self.value.items() if name not in _KNOWN}

    @classmethod
    def all_of(cls, record: Any, subscriptions: Collection[str] | None = None) -> list[Result]:
        """Parse a record of the results or of grouped matches, which has a result for each of its subscriptions; [] if it is neither.

        :param subscriptions: only results of these; None: of all.
        """
        value = json_object(record.value)
        if value is None or "subscription" in value or not {"message", "subscriptions"} <= value.keys():
            found = cls.from_record(record)
            return [found] if found is not None and (subscriptions is None or found.subscription in subscriptions) else []
        ids = value["subscriptions"] if isinstance(value["subscriptions"], list) else []
        message, watermark, identity = value["message"], cast("int", value.get("watermark")), _identity(record, value)
        head, carried = {"v": 1, "watermark": watermark, "op": "match", "message": message}, _carried(value)
        return [
            cls(
                id,
                "match",
                message,
                watermark,
                None,
                None,
                None,
                record.timestamp,
                f"{identity}/{json.dumps(id)}",
                {"subscription": id, **head, **carried},  # the record that it would be alone
                carried.get("fields"),
            )
            for id in ids
            if isinstance(id, str) and (subscriptions is None or id in subscriptions)
        ]

    @classmethod
    def from_record(cls, record: Any) -> Result | None:
        """Parse a record of the results; None if it is not one."""
        value = json_object(record.value)
        if value is None or not {"subscription", "op", "message"} <= value.keys():
            return None
        return cls(
            str(value["subscription"]),
            str(value["op"]),
            value["message"],
            cast("int", value.get("watermark")),
            value.get("score"),
            value.get("rank"),
            value.get("meta"),
            record.timestamp,
            _identity(record, value),
            value,
            _carried(value).get("fields"),
            value.get("object"),
        )


_KNOWN = frozenset(field.name for field in dataclass_fields(Result)) | {"v", "initial", "meta_omitted", "fields_omitted"}


def _identity(record: Any, value: Mapping[str, Any]) -> str:
    """Return the header ``result-id``; without it the content tells duplicates apart."""
    given = next((v for k, v in record.headers or () if k == "result-id" and v is not None), None)
    return json.dumps([value.get(k) for k in ("subscription", "watermark", "op", "message")]) if given is None else given.decode(errors="replace")


def _carried(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a result, or an entry of a list, says of the fields of its message."""
    found = {"fields": value["fields"]} if isinstance(value.get("fields"), dict) else {}
    return {**found, "fields_omitted": True} if value.get("fields_omitted") is True else found


@dataclass(frozen=True)
class TopK:
    """The whole list of a top-k subscription at one watermark.

    :ivar entries: (message id, score), best first.
    :ivar registration: the record of the subscription that the list belongs to.
    :ivar carried: what each entry says of the fields of its message: ``fields`` or ``fields_omitted``, or nothing.
    :ivar objects: the id of the object of which each entry is a state, None where it is of none; () if all are of none.
    """

    subscription: str
    watermark: int
    entries: list[tuple[str | int, float]]
    registration: str | None = None
    time_ms: int | None = None
    carried: tuple[dict[str, Any], ...] = ()
    objects: tuple[str | None, ...] = ()

    @property
    def fields(self) -> list[dict[str, Any] | None]:
        """The fields of each message in the list, best first; None where results carry none, or where they are too long."""
        return [said.get("fields") for said in self.carried or ({},) * len(self.entries)]

    @classmethod
    def from_json(cls, value: bytes | None, time_ms: int | None = None) -> TopK | None:
        """Parse the value of a record in the topic of lists; None if it is not a list."""
        found = json_object(value)
        if found is None:
            return None
        try:
            entries, carried = [(e["message"], e["score"]) for e in found["topk"]], tuple(map(_carried, found["topk"]))
            objects = tuple(e.get("object") for e in found["topk"])
            said = carried if any(carried) else (), objects if any(object is not None for object in objects) else ()
            return cls(str(found["subscription"]), found["watermark"], entries, found.get("registration"), time_ms, *said)
        except (AttributeError, KeyError, TypeError):
            return None

    def as_json(self) -> dict[str, Any]:
        """Return it as plain values, as in its topic."""
        rows = zip(self.entries, self.objects or (None,) * len(self.entries), self.carried or ({},) * len(self.entries))
        topk = [{"message": m, **({} if object is None else {"object": object}), **said, "score": s} for (m, s), object, said in rows]
        return {"subscription": self.subscription, "watermark": self.watermark, "registration": self.registration, "topk": topk}


def json_object(value: bytes | None) -> dict[str, Any] | None:
    """Parse bytes as a JSON object; None if they are not one."""
    try:
        found = json.loads(value) if value is not None else None
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
