"""What the records of a topology's topics say about subscriptions."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any, NamedTuple

from dskype.bolts.results.events import LIMITED_KEY
from dskype.deploy.client.records import Result, json_object
from dskype.spouts.topics import Topics

__all__ = ["Found", "found_in", "id_text"]


class Found(NamedTuple):
    """Something about one subscription in a record: a result, an event of its registration, or why it was refused.

    :ivar name: ``result``, ``registration``, ``limited`` or ``refusal``.
    :ivar identity: the same for all repetitions, and different for everything else.
    """

    subscription: str
    name: str
    data: dict[str, Any]
    identity: str


def found_in(record: Any, topics: Topics, wanted: Collection[str] | None) -> list[Found]:
    """Return what a record of the topics in :data:`~dskype.deploy.web.places.LETTERS` says, in order.

    :param wanted: about these subscriptions; None: all.
    """
    key = (record.key or b"").removeprefix(LIMITED_KEY).decode(errors="replace")
    if record.topic == topics.matches:
        return _results(record, wanted)
    if wanted is not None and key not in wanted:  # all other topics have the subscription's id as key
        return []
    if record.topic == topics.results:
        return _results(record, wanted)
    value = json_object(record.value)
    where = f"{record.topic}/{record.partition}/{record.offset}"
    if record.topic == topics.registrations:
        name = "limited" if value is not None and value.get("event") == "limited" else "registration"
        return [] if value is None else [Found(key, name, {**value, "time_ms": record.timestamp}, where)]
    headers = {name: text.decode(errors="replace") for name, text in record.headers or () if text is not None}
    if headers.get("topic") != topics.subscriptions:
        return []
    refused = {
        "subscription": key,
        "registration": f"{headers.get('partition')}-{headers.get('offset')}",
        "error": headers.get("error", ""),
        "code": headers.get("code", ""),
    }
    return [Found(key, "refusal", {**refused, "time_ms": record.timestamp}, where)]


def id_text(id: Any) -> str:
    """Return the id of a message as text. As a JSON number it may have 64 bits, of which JavaScript keeps 53."""
    return id if isinstance(id, str) else json.dumps(id)


def _results(record: Any, wanted: Collection[str] | None) -> list[Found]:
    return [
        Found(
            r.subscription,
            "result",
            {**r.value, "message_id": id_text(r.message), "time_ms": r.time_ms, "result_id": r.result_id, **({"more": r.more} if r.more else {})},
            json.dumps([r.subscription, r.result_id]),
        )
        for r in Result.all_of(record, wanted)
    ]
