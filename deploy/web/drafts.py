"""Drafts: subscriptions that have not been registered. They are checked, and tried on the newest messages."""

from __future__ import annotations

import json
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

from dskype.deploy.client.content import Content
from dskype.deploy.client.place import Place
from dskype.deploy.client.pubsub import PubSub
from dskype.deploy.client.records import subscription_type
from dskype.deploy.web.findings import id_text
from dskype.spouts.expression import to_text
from dskype.spouts.expression_parser import ExpressionError
from dskype.spouts.records import Message, RecordError, parse_subscription
from dskype.spouts.subscriptions import BooleanSubscription, Subscription
from dskype.spouts.text import BORDER
from dskype.topology.errors import TopologyError
from dskype.topology.ui.budget import check_wanted

__all__ = ["Newest", "checked", "language_of", "placed_only", "tried"]

_KEPT, _KEPT_BYTES = 2000, 2 << 20
_EXAMPLES, _TEXT = 3, 300

_COMPARISONS = {
    "number": ("<", "<=", "=", "!=", ">=", ">", "IN"),
    "time": ("<", "<=", "=", "!=", ">=", ">", "IN"),
    "string": ("=", "!=", "IN"),
    "boolean": ("=", "!="),
    "strings": ("HAS", "IN"),
}


class _Recent:
    """A record of the messages' topic; what it says is found out when it is first asked for."""

    def __init__(self, record: Any) -> None:
        self.value, self.time_ms, self.where = record.value or b"", record.timestamp, (record.topic, record.partition, record.offset)
        self._read: tuple[Message, Content] | None = None
        self._is_read = False

    def read(self, client: PubSub) -> tuple[Message, Content] | None:
        """Return the message and its content; None if the topology refuses it."""
        if not self._is_read:
            try:
                message = client.message_topics.read(self.where[0], self.value)
                self._read = message, Content(message, client.analyzer, client.settings.language)
            except RecordError:
                self._read = None
            self._is_read = True
        return self._read


class Newest:
    """The newest records of the messages' topic that were read, a bounded number of them and of their bytes."""

    def __init__(self) -> None:
        self._records: OrderedDict[tuple[str, int, int], _Recent] = OrderedDict()  # (topic, partition, offset) -> record: they may be read again
        self._bytes = 0
        self._lock = threading.Lock()

    def add(self, records: Sequence[Any]) -> None:
        """Add further records."""
        with self._lock:
            for record in records[-_KEPT:]:
                if (place := (record.topic, record.partition, record.offset)) not in self._records:
                    self._records[place] = found = _Recent(record)
                    self._bytes += len(found.value)
            while len(self._records) > _KEPT or self._bytes > _KEPT_BYTES:
                self._bytes -= len(self._records.popitem(last=False)[1].value)

    def records(self) -> list[_Recent]:
        """Return the records, the newest first."""
        with self._lock:
            return list(reversed(self._records.values()))


def language_of(client: PubSub) -> dict[str, Any]:
    """Return what expressions may speak of in a topology: ``attributes`` (maps ``name``, ``type``, ``required``, ``comparisons``), ``fields``, ``prefixes``, ``wordless``, and whether there are ``objects``;
    and ``half_life_ms``, by which a time score is read (:func:`dskype.deploy.client.records.score_left`); None: scores are plain.
    """
    language = client.settings.language
    attributes = [
        {"name": one.name, "type": one.type, "required": one.required, "comparisons": [*_COMPARISONS[one.type], "exists"]}
        for one in language.attributes.values()
    ]
    return {
        "attributes": attributes,
        "fields": list(language.fields),
        "prefixes": language.prefixes,
        "wordless": language.wordless,
        "objects": client.settings.objects,
        "half_life_ms": client.settings.half_life_ms,
    }


def checked(client: PubSub, fields: Mapping[str, Any]) -> Subscription | dict[str, Any]:
    """Return the subscription of the fields of a record, or why the topology would refuse it: ``error``, and ``position``: where in the expression, in
    characters from 1; None: it is not about the expression.
    """
    record = {**fields, "type": subscription_type(fields)}
    record.pop("id", None)
    try:
        return client.parse_subscription(b"draft", json.dumps(record).encode())
    except TopologyError as error:
        reason = error.__cause__
        return {"error": str(error), "position": reason.position if isinstance(reason, ExpressionError) else None}


def placed_only(client: PubSub, fields: Mapping[str, Any]) -> BooleanSubscription | None:
    """Return a boolean subscription that has a place and no words yet, although the topology would refuse it; None if the fields are something else."""
    if fields.get("type") != "boolean" or not fields.keys() & {"bbox", "region"} or fields.keys() & {"expression", "keywords", "text"}:
        return None
    settings = client.settings
    try:
        found = parse_subscription(
            b"draft",
            json.dumps({name: value for name, value in fields.items() if name != "id"}).encode(),
            tokenizer=client.analyzer,
            **settings.reading | {"language": settings.language._replace(wordless=True)},
        )
    except RecordError:
        return None
    return found if isinstance(found, BooleanSubscription) else None


def tried(client: PubSub, subscription: Subscription, records: Sequence[_Recent], most_ms: int) -> dict[str, Any]:
    """Return which of the newest messages a subscription would have matched: ``matched`` of ``looked`` messages, ``since_ms``: when the oldest of these came
    (None: there was none), ``examples``: some of the matched ones, the newest first, and ``text``: the expression as it is read, or None; of a boolean
    subscription also ``inside``: how many messages share a place with it.

    A top-k subscription matches messages that have one of its words and satisfy its ``where``: these may enter its list.

    :param records: the newest first.
    :param most_ms: for how long they are looked at; those that are left then are not counted as looked at.
    """
    place = Place(subscription) if isinstance(subscription, BooleanSubscription) else None
    topics = client.message_topics
    matched, inside, looked, since_ms, examples = 0, 0, 0, None, list[dict[str, Any]]()
    if place is not None:
        place.prepare()
    until_s = time.monotonic() + most_ms / 1000
    for record in records:
        if time.monotonic() > until_s:
            break
        check_wanted()
        if (read := record.read(client)) is None or read[0].deleted:  # the end of an object is nowhere, and says nothing
            continue
        looked, since_ms = looked + 1, record.time_ms
        if place is not None:
            if not place.has(read[0]):
                continue
            inside += 1
        if _matches(subscription, read[1]):
            matched += 1
            if len(examples) < _EXAMPLES:
                id = read[0].id
                examples.append(
                    {
                        "message_id": topics.default_id(*record.where) if id is None else id_text(json.loads(id)),
                        "text": read[0].text.replace(BORDER, "  ")[:_TEXT],
                    }
                )
    expression = subscription.expression if isinstance(subscription, BooleanSubscription) else subscription.where
    text = None if expression is None else to_text(expression)
    found = {"matched": matched, "looked": looked, "since_ms": since_ms, "examples": examples, "text": text}
    return found if place is None else {**found, "inside": inside}


def _matches(subscription: Subscription, content: Content) -> bool:
    """Tell whether a message whose place is right matches."""
    if isinstance(subscription, BooleanSubscription):
        return content.satisfies(subscription.expression)
    shared = any(word in places for places in content.places for word in subscription.keywords)
    return shared and (subscription.where is None or content.satisfies(subscription.where))
