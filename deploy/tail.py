"""What ``dskype tail`` and ``dskype sub show`` print: results as lines, with the text of their messages.

What comes from outside is shown as text and nothing else: no control characters, no direction marks, no line breaks.
"""

from __future__ import annotations

import json
import re
import sys
import time
import unicodedata
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

from kafka import TopicPartition

from dskype.deploy.arguments import counted
from dskype.deploy.pubsub import Follower, Once, PubSub, Result, TopK

__all__ = ["Texts", "clean", "clock_text", "follow_results", "follow_topk", "put", "result_line", "topk_lines"]

_DEFAULT_ID = re.compile(r"(\d{1,9})-(\d{1,18})")
_REMEMBERED = 100_000
_BEFORE = 10_000
_TEXT_WIDTH = 100
_LOOK_UP_S = 0.3
"""Reading single messages may take so much of the time between two looks at the results."""


class _Shown(dict):
    """A table for ``str.translate``: what steers a terminal, or cannot be encoded, becomes a blank; directions are dropped."""

    def __missing__(self, code: int) -> int | None:
        category = unicodedata.category(chr(code))
        hidden = 0x202A <= code <= 0x202E or 0x2066 <= code <= 0x2069 or code in (0x200E, 0x200F, 0x061C, 0xFEFF)
        self[code] = None if hidden else 32 if category in ("Cc", "Cs", "Zl", "Zp") else code
        return self[code]


_SHOWN = _Shown()


def clean(value: Any, width: int | None = None) -> str:
    """Return a value as one line of plain text, cut to ``width`` characters."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    if width is not None and len(text) > 4 * width:
        text = text[: 4 * width]
    text = " ".join(text.translate(_SHOWN).split())
    return text if width is None or len(text) <= width else text[: width - 1] + "…"


def put(line: str) -> None:
    """Print a line of results at once; what standard output cannot encode is escaped."""
    encoding = sys.stdout.encoding or "utf-8"
    print(line.encode(encoding, "backslashreplace").decode(encoding), flush=True)


def clock_text(time_ms: int | None, date: bool = False) -> str:
    """Return a time in the local zone: ``12:03:04.123``, with ``date`` ``2025-01-31 12:03:04``."""
    if time_ms is None or time_ms < 0:
        return "-"
    moment = datetime.fromtimestamp(time_ms / 1000).astimezone()
    return moment.strftime("%Y-%m-%d %H:%M:%S") if date else f"{moment:%H:%M:%S}.{time_ms % 1000:03d}"


class Texts:
    """Finds the text of a message by its id.

    Messages are remembered as they come, the newest 100,000. A default id, ``<partition>-<offset>``, also says where to read.

    :param start: where to begin to remember; see :class:`~dskype.deploy.pubsub.Follower`. Default: the last 10,000 messages.
    """

    def __init__(self, pubsub: PubSub, start: str | int = _BEFORE) -> None:
        self._kafka, self._topic = pubsub.kafka, pubsub.topics.messages
        self._texts: OrderedDict[str, str | None] = OrderedDict()
        self._follower = Follower(pubsub.kafka, [self._topic], start)
        self._single: Any = None

    def catch_up(self) -> None:
        """Remember everything that has come; the first time that is all from ``start`` on."""
        while not self._follower.at_end():
            self._remember(self._follower.poll(1))
        while records := self._follower.poll(0):
            self._remember(records)

    def find(self, ids: Iterable[str | int]) -> dict[str, str]:
        """Return id (as JSON) -> text, for those that can be found in a moment."""
        found: dict[str, str] = {}
        until = time.monotonic() + _LOOK_UP_S
        for id in ids:
            name = json.dumps(id)
            if name not in self._texts and isinstance(id, str) and time.monotonic() < until:
                self._look_up(id)
            text = self._texts.get(name)
            if text is not None:
                found[name] = text
        return found

    def close(self) -> None:
        """Close the connections."""
        self._follower.close()
        if self._single is not None:
            self._single.close()

    def _remember(self, records: Iterable[Any]) -> None:
        for record in records:
            try:
                value = json.loads(record.value)
                id, text = value.get("id"), value["text"]
            except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
                continue
            self._keep(json.dumps(f"{record.partition}-{record.offset}" if id is None else id), text)

    def _keep(self, name: str, text: Any) -> None:
        self._texts[name] = clean(text, _TEXT_WIDTH) if isinstance(text, str) else None
        self._texts.move_to_end(name)
        if len(self._texts) > _REMEMBERED:
            self._texts.popitem(last=False)

    def _look_up(self, id: str) -> None:
        """Read the record that a default id names; a message with an id of its own has no such name."""
        place = _DEFAULT_ID.fullmatch(id)
        if place is None:
            return
        self._keep(json.dumps(id), None)
        if self._single is None:
            self._single = self._kafka.consumer(allow_auto_create_topics=False, max_poll_records=1, max_partition_fetch_bytes=1 << 16, fetch_max_wait_ms=1)
        where, offset = TopicPartition(self._topic, int(place[1])), int(place[2])
        if where.partition not in self._single.partitions_for_topic(self._topic):
            return
        self._single.assign([where])
        self._single.seek(where, offset)
        if offset < self._single.end_offsets([where])[where]:
            self._remember(r for batch in self._single.poll(timeout_ms=200, max_records=1).values() for r in batch if r.offset == offset)


def result_line(result: Result, text: str | None) -> str:
    """Return a delta as a line: time, what, rank, score, subscription, message, text."""
    rank = "" if result.rank is None else f"#{result.rank}"
    score = "" if not isinstance(result.score, (int, float)) else f"{result.score:.6f}"
    words = f"  {text}" if text else ""
    return f"{clock_text(result.time_ms)}  {clean(result.op, 12):<6} {clean(rank, 8):>4} {score:>9}  {clean(result.subscription, 60)}  {clean(result.message, 60)}{words}"


def topk_lines(state: TopK, texts: dict[str, str]) -> list[str]:
    """Return the entries of a top-k list as lines: rank, score, message, text."""
    return [f"{rank:>4}  {score:.6f}  {clean(message, 60)}" + (f"  {text}" if (text := texts.get(json.dumps(message))) else "")
            for rank, (message, score) in enumerate(state.entries, 1)]


def follow_results(pubsub: PubSub, *, subscriptions: set[str] | None, start: str, as_json: bool, with_texts: bool) -> Iterator[str]:
    """Yield a line for each result, without end."""
    pubsub.require(pubsub.topics.results, pubsub.topics.messages)
    follower = Follower(pubsub.kafka, [pubsub.topics.results], start)
    texts = Texts(pubsub, "beginning" if start == "beginning" else _BEFORE) if with_texts else None
    once = Once()
    try:
        while True:
            results = [r for r in map(Result.of, follower.poll()) if r is not None and (subscriptions is None or r.subscription in subscriptions)]
            results = [r for r in results if once.first(r.result_id)]
            if not results:
                continue
            found: dict[str, str] = {}
            if texts is not None:
                texts.catch_up()
                found = texts.find(dict.fromkeys(r.message for r in results if isinstance(r.message, (str, int))))
            for result in results:
                text = found.get(json.dumps(result.message))
                if as_json:
                    yield json.dumps({**result.value, "time_ms": result.time_ms, "result_id": result.result_id, **({"text": text} if text else {})})
                else:
                    yield result_line(result, text)
    finally:
        follower.close()
        if texts is not None:
            texts.close()


def follow_topk(pubsub: PubSub, *, subscriptions: set[str] | None, start: str, as_json: bool, with_texts: bool) -> Iterator[str]:
    """Yield lines for each state of a top-k list, without end; as text all lines of a state at once."""
    pubsub.require(pubsub.topics.topk, pubsub.topics.messages)
    follower = Follower(pubsub.kafka, [pubsub.topics.topk], start)
    texts = Texts(pubsub, "beginning" if start == "beginning" else _BEFORE) if with_texts else None
    try:
        while True:
            for record in follower.poll():
                id = (record.key or b"").decode(errors="replace")
                if subscriptions is not None and id not in subscriptions:
                    continue
                state = TopK.of(record.value, record.timestamp)
                if state is None:
                    if record.value is None:
                        gone = {"subscription": id, "topk": None, "time_ms": record.timestamp}
                        yield json.dumps(gone) if as_json else f"{clock_text(record.timestamp)}  {clean(id, 60)}  unregistered"
                    continue
                found: dict[str, str] = {}
                if texts is not None:
                    texts.catch_up()
                    found = texts.find(m for m, _ in state.entries)
                if as_json:
                    yield json.dumps({**state.as_json(), "time_ms": record.timestamp})
                else:
                    head = f"{clock_text(record.timestamp)}  {clean(id, 60)}  watermark {state.watermark}, {counted(len(state.entries), 'message')}"
                    yield "\n".join([head, *topk_lines(state, found)])
    finally:
        follower.close()
        if texts is not None:
            texts.close()
