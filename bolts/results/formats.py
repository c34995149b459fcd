"""Result records as JSON: deltas, whole top-k states, and registration events.

Topics and formats (UTF-8; a message's id is JSON text already and is put in as it is)::

    <topology>.results        {"v":1,"subscription":id,"watermark":w,"op":"add","message":m,"score":s,"rank":r,"meta":...}
                              {"v":1,"subscription":id,"watermark":w,"op":"remove" | "match","message":m,"meta":...}
    <topology>.topk           {"v":1,"subscription":id,"registration":"p-o","watermark":w,"topk":[{"message":m,"score":s},...]}
    <topology>.registrations  {"v":1,"subscription":id,"registration":"p-o","event":"active" | "removed","watermark":w}

The key of every record is the subscription's id, so each subscription's records stay in order. ``meta`` is what the
subscription gave, left out if it gave nothing. Deltas and events carry the header ``result-id``: subscription,
registration, watermark, op and message as text, the same whenever the same result is written again.

JSON is put together from text: what all records of a registration share is made once (:class:`Head`), floats are
written by ``repr`` (the shortest text that reads back as the same float64).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import repeat
from json.encoder import encode_basestring_ascii
from typing import Any, NamedTuple

import numpy as np

from dskype.topology.core.frames import column_rows
from dskype.topology.errors import IllegalArgumentException, explain

__all__ = ["ADD", "EVENTS", "Head", "MATCH", "OPS", "REMOVE", "delta_records", "event_record", "head", "parse_registration", "state_values"]

ADD, REMOVE, MATCH = 0, 1, 2
OPS = ("add", "remove", "match")
"""Names of the op codes."""
EVENTS = ("active", "removed")

_REGISTRATION = re.compile("[0-9]+-[0-9]+").fullmatch

DeltaRecord = tuple[bytes, bytes, bytes]


class Head(NamedTuple):
    """What all records of one registration share.

    :ivar key: the subscription's id in UTF-8, the key of its records.
    :ivar delta: JSON of a delta up to the watermark.
    :ivar result_id: the result id up to the watermark.
    :ivar state: JSON of a state up to the watermark.
    :ivar tail: the end of a delta: ``}``, or ``,"meta":...}``.
    """

    key: bytes
    delta: str
    result_id: str
    state: str
    tail: str


def parse_registration(registration: str) -> tuple[int, int]:
    """Return (partition, offset) of a registration ``"p-o"``.

    :raises IllegalArgumentException: it is not of that form.
    """
    if not isinstance(registration, str) or _REGISTRATION(registration) is None:
        raise IllegalArgumentException(explain("A registration is the place of a record in the topic of subscriptions.", given=registration,
                                               legal='"<partition>-<offset>", for example "0-17"'))
    partition, _, offset = registration.partition("-")
    return int(partition), int(offset)


def head(subscription: str, registration: str, meta: str | None = None) -> Head:
    """Return what all records of a registration share.

    :param subscription: its id.
    :param registration: ``<partition>-<offset>`` of the record of the subscriptions topic.
    :param meta: JSON text, or None.
    :raises IllegalArgumentException: a malformed registration.
    """
    parse_registration(registration)
    name = encode_basestring_ascii(subscription)
    start = f'{{"v":1,"subscription":{name}'
    return Head(subscription.encode(), f'{start},"watermark":', f"{registration}/{name}/", f'{start},"registration":"{registration}","watermark":',
                "}" if meta is None else f',"meta":{meta}}}')


def delta_records(heads: Iterable[Head], ops: Any, messages: Any, watermarks: Any, scores: Any = None, ranks: Any = None) -> list[DeltaRecord]:
    """Return the records of deltas, in the given order; all columns have the same length n.

    :param heads: one per delta.
    :param ops: int8[n]: ``ADD``, ``REMOVE`` or ``MATCH``.
    :param messages: the messages' ids as JSON text.
    :param watermarks: int64[n].
    :param scores: float64[n], read where op is ``ADD``; None if there is none.
    :param ranks: int32[n], 1-based, read where op is ``ADD``; None if there is none.
    :returns: (key, value, result id) per delta.
    :raises IllegalArgumentException: an unknown op, or ``ADD`` without scores and ranks.
    :raises ValueError: columns of different lengths.
    """
    records: list[DeltaRecord] = []
    put = records.append
    ranked = scores is not None and ranks is not None
    ranking = (_floats(scores), column_rows(ranks)) if ranked else (repeat(None, len(ops)), repeat(None, len(ops)))
    rows = zip(heads, column_rows(ops), column_rows(messages), column_rows(watermarks), *ranking, strict=True)
    for shared, op, message, watermark, score, rank in rows:
        key, start, result_id, _, tail = shared
        if op == 0 and ranked:
            put((key, f'{start}{watermark},"op":"add","message":{message},"score":{score!r},"rank":{rank}{tail}'.encode(),
                 f"{result_id}{watermark}/add/{message}".encode()))
        elif op == 1:
            put((key, f'{start}{watermark},"op":"remove","message":{message}{tail}'.encode(), f"{result_id}{watermark}/remove/{message}".encode()))
        elif op == 2:
            put((key, f'{start}{watermark},"op":"match","message":{message}{tail}'.encode(), f"{result_id}{watermark}/match/{message}".encode()))
        else:
            raise IllegalArgumentException(explain("A delta cannot be written.", given={"op": op, "scores": ranked},
                                                   legal="0 (add, with scores and ranks), 1 (remove), 2 (match)"))
    return records


def _floats(column: Any) -> list[float]:
    """Return a column as Python floats: ``repr`` of a numpy scalar is no JSON."""
    return np.asarray(column, np.float64).tolist()


def state_values(heads: Iterable[Head], watermarks: Any, offsets: np.ndarray, messages: Any, scores: Any) -> list[bytes]:
    """Return the values of top-k states.

    :param heads: one per state (n).
    :param watermarks: int64[n].
    :param offsets: int64[n + 1]: the list of state *i* is rows ``offsets[i]`` to ``offsets[i + 1]``.
    :param messages: message ids as JSON text, in rank order within a state.
    :param scores: float64, theirs.
    """
    entries = [f'{{"message":{message},"score":{score!r}}}' for message, score in zip(column_rows(messages), _floats(scores), strict=True)]
    bounds = column_rows(offsets)
    return [f'{shared.state}{watermark},"topk":[{",".join(entries[start:stop])}]}}'.encode()
            for shared, watermark, start, stop in zip(heads, column_rows(watermarks), bounds[:-1], bounds[1:], strict=True)]


def event_record(shared: Head, event: str, watermark: int) -> DeltaRecord:
    """Return the record of a registration event: (key, value, result id).

    :param event: ``active`` (results cover what is after the watermark) or ``removed`` (up to the watermark).
    :raises IllegalArgumentException: another event.
    """
    if event not in EVENTS:
        raise IllegalArgumentException(explain("A registration event is not known.", given=event, legal=" | ".join(EVENTS)))
    start = shared.state.removesuffix('"watermark":')
    return shared.key, f'{start}"event":"{event}","watermark":{watermark}}}'.encode(), f"{shared.result_id}{watermark}/{event}".encode()
