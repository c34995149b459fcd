"""What ``dskype tail`` and ``dskype sub show`` print: results as lines, with the text of their messages.

Input from outside is shown without control characters, direction marks and line breaks.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from itertools import repeat
from typing import Any

from kafka import TopicPartition

from dskype.deploy.client.follower import Follower, Once
from dskype.deploy.client.pubsub import PubSub
from dskype.deploy.client.records import Result, TopK, score_left
from dskype.deploy.machine.terminal import clean, clock_text, counted
from dskype.spouts.record_values import RecordError

__all__ = ["Texts", "follow_results", "follow_topk", "of_object", "result_line", "topk_lines"]

_REMEMBERED = 100_000
_BEFORE = 10_000
_FAR = 20_000
_TEXT_WIDTH = 100
_LOOK_UP_S = 0.3
"""Longest time to spend on reading single messages for one batch of results."""


class Texts:
    """Finds the text of a message by its id.

    It remembers the newest 100,000 messages that it has read. A message with a default id, which says where it is, can also be read on its own.

    :param start: where to begin to read; see :class:`~dskype.deploy.client.follower.Follower`. Default: the last 10,000 messages.
        From ``beginning``, messages are read only as far as they are asked for.
    """

    def __init__(self, pubsub: PubSub, start: str | int | None = None) -> None:
        self._kafka, self._topics = pubsub.kafka, pubsub.message_topics
        pubsub.require(*self._topics.names)
        self._texts: OrderedDict[str, str | None] = OrderedDict()
        self._follower = Follower(pubsub.kafka, self._topics.names, _BEFORE if start is None else start)
        self._current = start != "beginning"
        self._single: Any = None

    def catch_up(self) -> None:
        """Remember new messages; do nothing while old ones are still being read."""
        if self._current or self._follower.at_end():
            self._current = True
            while not self._follower.at_end():
                self._remember(self._follower.poll(1))
            while records := self._follower.poll(0):
                self._remember(records)

    def find(self, ids: Iterable[str | int]) -> dict[str, str]:
        """Return id (as JSON) -> text, for the ids that can be found quickly."""
        self.catch_up()
        found: dict[str, str] = {}
        until = time.monotonic() + _LOOK_UP_S
        for id in ids:
            name = json.dumps(id)
            place = self._topics.place_of(id)
            where = None if place is None else (TopicPartition(*place[:2]), place[2])
            if name not in self._texts:
                self._read_on(name, where)
            if name not in self._texts and where is not None and time.monotonic() < until:
                self._look_up(name, *where)
            text = self._texts.get(name)
            if text is not None:
                found[name] = clean(text, _TEXT_WIDTH)
        return found

    def _read_on(self, name: str, where: tuple[TopicPartition, int] | None) -> None:
        """Read old messages up to the wanted one, unless it is far ahead or behind."""
        while name not in self._texts and not self._follower.at_end():
            if where is not None:
                at = self._follower.position(where[0])
                if at < 0 or not at <= where[1] < at + _FAR:
                    return
            self._remember(self._follower.poll(1))

    def close(self) -> None:
        """Close the connections."""
        self._follower.close()
        if self._single is not None:
            self._single.close()

    def _remember(self, records: Iterable[Any]) -> None:
        for record in records:
            try:
                value = self._topics.own_form(record.topic, record.value) if self._topics.is_mapped(record.topic) else json.loads(record.value)
                id, text = value.get("id"), value["text"]
            except (RecordError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
                continue
            default = self._topics.default_id(record.topic, record.partition, record.offset)
            self._keep(json.dumps(default if id is None else id), text)

    def _keep(self, name: str, text: Any) -> None:
        if isinstance(text, dict):  # of fields
            text = "  ".join(part for part in text.values() if isinstance(part, str))
        self._texts[name] = text[: 4 * _TEXT_WIDTH] if isinstance(text, str) else None
        self._texts.move_to_end(name)
        if len(self._texts) > _REMEMBERED:
            self._texts.popitem(last=False)

    def _look_up(self, name: str, where: TopicPartition, offset: int) -> None:
        """Read the record that a default id names."""
        self._keep(name, None)
        if self._single is None:
            self._single = self._kafka.consumer(allow_auto_create_topics=False, max_poll_records=1, max_partition_fetch_bytes=1 << 16, fetch_max_wait_ms=1)
        if where.partition not in (self._single.partitions_for_topic(where.topic) or ()):
            return
        self._single.assign([where])
        self._single.seek(where, offset)
        if offset < self._single.end_offsets([where])[where]:
            self._remember(r for batch in self._single.poll(timeout_ms=200, max_records=1).values() for r in batch if r.offset == offset)


def carried_text(fields: Mapping[str, Any] | None) -> str | None:
    """Return fields as text: the one called ``text`` as it is, others with their names; None if there are none."""
    if not fields:
        return None
    parts = [value if name == "text" and isinstance(value, str) else f"{name}={_shown(value)}" for name, value in fields.items()]
    return clean("  ".join(parts), _TEXT_WIDTH)


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def result_line(result: Result, text: str | None, half_life_ms: float | None = None) -> str:
    """Return a delta as a line: time, operation, rank, score, subscription, object, message, its text or fields, and what else the record has. With a half-life the score is what is left at the watermark."""
    rank = "" if result.rank is None else f"#{result.rank}"
    half_life_ms = None if result.rank is None else half_life_ms  # matches have plain scores
    score = "" if not isinstance(result.score, (int, float)) else f"{score_left(result.score, result.watermark, half_life_ms):.6f}"
    words = "".join(f"  {part}" for part in (carried_text(result.fields) or text, carried_text(result.more)) if part)
    what = f"{clean(result.op, 12):<6} {clean(rank, 8):>4} {score:>9}"
    return f"{clock_text(result.time_ms)}  {what}  {clean(result.subscription, 60)}  {of_object(result.object)}{clean(result.message, 60)}{words}"


def of_object(object: str | None) -> str:
    """Return what a line has before a message that is the state of an object."""
    return "" if object is None else f"{clean(object, 60)}  "


def topk_lines(state: TopK, texts: dict[str, str], half_life_ms: float | None = None) -> list[str]:
    """Return the entries of a top-k list as lines: rank, score, object, message, and its text or fields. With a half-life the score is what is left at the watermark."""
    return [
        f"{rank:>4}  {score_left(score, state.watermark, half_life_ms):.6f}  {of_object(object)}{clean(message, 60)}"
        + (f"  {text}" if (text := carried_text(fields) or texts.get(json.dumps(message))) else "")
        for rank, ((message, score), object, fields) in enumerate(zip(state.entries, state.objects or repeat(None), state.fields), 1)
    ]


def follow_results(pubsub: PubSub, *, subscriptions: set[str] | None, start: str, as_json: bool, with_texts: bool) -> Iterator[list[str]]:
    """Yield lists of lines, one line for each new result, without end."""
    pubsub.require(pubsub.topics.results)
    once = Once()
    with contextlib.ExitStack() as stack:
        follower = stack.enter_context(contextlib.closing(Follower(pubsub.kafka, pubsub.result_topics(), start)))
        texts = stack.enter_context(contextlib.closing(Texts(pubsub, "beginning" if start == "beginning" else None))) if _looks_up(pubsub, with_texts) else None
        while True:
            records = [Result.all_of(record, subscriptions) for record in follower.poll()]
            results = [r for record in records if record and once.first(record[0].result_id) for r in record]
            found = texts.find(dict.fromkeys(r.message for r in results if isinstance(r.message, (str, int)))) if texts is not None else {}
            yield [_result_text(result, found.get(json.dumps(result.message)), as_json, pubsub.settings.half_life_ms) for result in results]


def _looks_up(pubsub: PubSub, with_texts: bool) -> bool:
    """Tell whether texts are wanted, and results do not carry fields in their place."""
    return with_texts and pubsub.settings.result_fields is None


def _result_text(result: Result, text: str | None, as_json: bool, half_life_ms: float | None) -> str:
    if not as_json:
        return result_line(result, text, half_life_ms)
    return json.dumps({**result.value, "time_ms": result.time_ms, "result_id": result.result_id, **({"text": text} if text else {})})


def follow_topk(pubsub: PubSub, *, subscriptions: set[str] | None, start: str, as_json: bool, with_texts: bool) -> Iterator[list[str]]:
    """Yield lists of new top-k lists, without end. As text, a list is one string with several lines."""
    pubsub.require(pubsub.topics.topk)
    with contextlib.ExitStack() as stack:
        follower = stack.enter_context(contextlib.closing(Follower(pubsub.kafka, [pubsub.topics.topk], start)))
        texts = None
        if _looks_up(pubsub, with_texts) and not as_json:
            texts = stack.enter_context(contextlib.closing(Texts(pubsub, "beginning" if start == "beginning" else None)))
        while True:
            records = [(r, (r.key or b"").decode(errors="replace")) for r in follower.poll()]
            states = [(id, r, TopK.from_json(r.value, r.timestamp)) for r, id in records if subscriptions is None or id in subscriptions]
            yield [
                _state_text(id, r.timestamp, state, texts, as_json, pubsub.settings.half_life_ms)
                for id, r, state in states
                if state is not None or r.value is None
            ]


def _state_text(id: str, time_ms: int, state: TopK | None, texts: Texts | None, as_json: bool, half_life_ms: float | None) -> str:
    if as_json:
        return json.dumps({**({"subscription": id, "topk": None} if state is None else state.as_json()), "time_ms": time_ms})
    head = f"{clock_text(time_ms)}  {clean(id, 60)}  "
    if state is None:
        return head + "unregistered"
    found = {} if texts is None else texts.find(m for m, _ in state.entries)
    return "\n".join([f"{head}watermark {state.watermark}, {counted(len(state.entries), 'message')}", *topk_lines(state, found, half_life_ms)])
