"""Result records as JSON: deltas, whole top-k lists, and registration events.

Topics and formats (UTF-8; the id of a message is JSON text already and is inserted unchanged)::

    <topology>.results        {"v":1,"subscription":id,"watermark":w,"op":"add","message":m,"score":s,"rank":r,"meta":...}
                              {"v":1,"subscription":id,"watermark":w,"op":"remove" | "match","message":m,"meta":...}
    <topology>.topk           {"v":1,"subscription":id,"registration":"p-o","watermark":w,"topk":[{"message":m,"score":s},...]}
    <topology>.registrations  {"v":1,"subscription":id,"registration":"p-o","event":"active" | "removed","watermark":w}

The key of every record is the subscription's id, so the records of a subscription stay in order. ``meta`` is that of the
subscription, left out if it has none. Deltas and events carry the header ``result-id``: subscription, registration, watermark,
op and message as text, equal whenever the same result is written again.

JSON is joined from columns of text; a float is written as the shortest text that reads back as the same float64.
"""

from __future__ import annotations

import re
from json.encoder import encode_basestring_ascii
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from dskype.bolts.results.deltas import DeltaBatch, check_lengths, numbers_of
from dskype.spouts.columns import to_strings
from dskype.topology.errors import IllegalArgumentException, explain

__all__ = [
    "ADD",
    "EVENTS",
    "MATCH",
    "OPS",
    "REMOVE",
    "Heads",
    "Records",
    "delta_records",
    "event_record",
    "heads",
    "parse_registration",
    "score_texts",
    "state_values",
]

ADD, REMOVE, MATCH = 0, 1, 2
OPS = ("add", "remove", "match")
"""Names of the op codes."""
EVENTS = ("active", "removed")

# pyarrow.compute is imported where it is needed: clients import this module, and it would double their start-up time.

_SUBSCRIPTION, _REGISTERED, _WATERMARK = '{"v":1,"subscription":', ',"registration":"', ',"watermark":'
_REGISTRATION = re.compile("[0-9]+-[0-9]+").fullmatch


class Heads(NamedTuple):
    """The parts that records of a registration share, as pyarrow arrays with one entry per record.

    :ivar keys: the subscriptions' ids in UTF-8, the keys of their records.
    :ivar names: the ids as JSON.
    :ivar registrations: ``<partition>-<offset>``.
    :ivar tails: the end of a delta: ``}``, or ``,"meta":...}``; one string where no subscription has a meta.
    """

    keys: Any
    names: Any
    registrations: Any
    tails: Any


def parse_registration(registration: str) -> tuple[int, int]:
    """Return (partition, offset) of a registration ``"p-o"``.

    :raises IllegalArgumentException: it does not have that form.
    """
    if not isinstance(registration, str) or _REGISTRATION(registration) is None:
        raise IllegalArgumentException(
            explain(
                "A registration is the place of a record in the topic of subscriptions.", given=registration, legal='"<partition>-<offset>", for example "0-17"'
            )
        )
    partition, _, offset = registration.partition("-")
    return int(partition), int(offset)


def heads(subscriptions: Any, registrations: Any, metas: Any = None) -> Heads:
    """Return the parts that records of registrations share; columns are lists, numpy or pyarrow arrays.

    :param subscriptions: ids.
    :param registrations: ``<partition>-<offset>`` of the records of the subscriptions topic.
    :param metas: JSON texts or None; None in place of the column: no subscription has one.
    :raises IllegalArgumentException: a malformed registration.
    """
    import pyarrow.compute as pc

    ids = to_strings(subscriptions)
    try:
        places = to_strings(registrations)
    except pa.ArrowTypeError:
        list(map(parse_registration, registrations))
        raise
    well_formed = pc.match_substring_regex(places, r"\A[0-9]+-[0-9]+\z")
    if places.null_count or pc.all(well_formed).as_py() is False:
        parse_registration(next(place for place, good in zip(places.to_pylist(), well_formed.to_pylist()) if not good))
    if pc.any(pc.match_substring_regex(ids, r"[^ !#-\[\]-~]")).as_py():  # not ASCII, or in need of escapes
        names = pa.array([encode_basestring_ascii(name) for name in ids.to_pylist()], pa.string())
    else:
        names = _joined('"', ids, '"')
    tails: Any = "}"
    if metas is not None and (meta_texts := to_strings(metas)).null_count < len(meta_texts):
        tails = pc.coalesce(_joined(',"meta":', meta_texts, "}"), "}")
    return Heads(ids.cast(pa.binary()), names, places, tails)


class Records(NamedTuple):
    """Records as columns (pyarrow arrays).

    :ivar keys: binary.
    :ivar values: string.
    :ivar result_ids: string.
    """

    keys: Any
    values: Any
    result_ids: Any


def delta_records(batch: DeltaBatch) -> Records:
    """Return the records of deltas, in the order of the batch.

    :raises IllegalArgumentException: an unknown op, ``ADD`` without scores and ranks, columns of different lengths, or a malformed registration.
    """
    import pyarrow.compute as pc

    shared = heads(batch.subscriptions, batch.registrations, batch.metas)
    ops, scores, ranks = np.asarray(batch.ops, np.int8), batch.scores, batch.ranks
    n = len(ops)
    check_lengths(column for column in (shared.keys, ops, batch.messages, batch.watermarks, scores, ranks) if column is not None)
    adds, ranked = ops == ADD, scores is not None and ranks is not None
    if n and (ops.min() < 0 or ops.max() > MATCH or (not ranked and adds.any())):
        raise IllegalArgumentException(
            explain(
                "A delta cannot be written.",
                given={"ops": np.unique(ops).tolist(), "scores": ranked},
                legal="0 (add, with scores and ranks), 1 (remove), 2 (match)",
            )
        )
    messages = to_strings(batch.messages)
    marks = pa.array(np.asarray(batch.watermarks, np.int64)).cast(pa.string())
    names = pa.array(OPS).take(pa.array(ops))
    ranking = ""
    if adds.any():
        ranking = _joined(',"score":', score_texts(numbers_of(scores)), ',"rank":', pa.array(np.asarray(numbers_of(ranks), np.int64)).cast(pa.string()))
        if not adds.all():
            ranking = pc.if_else(pa.array(adds), ranking, "")
    values = _joined(_SUBSCRIPTION, shared.names, _WATERMARK, marks, ',"op":"', names, '","message":', messages, ranking, shared.tails)
    return Records(shared.keys, values, _joined(shared.registrations, "/", shared.names, "/", marks, "/", names, "/", messages))


def _joined(*parts: Any) -> Any:
    import pyarrow.compute as pc

    return pc.binary_join_element_wise(*parts, "")


def score_texts(scores: Any) -> Any:
    """Return floats as JSON (a pyarrow string array): the shortest texts that read back as the same bits."""
    import pyarrow.compute as pc

    numbers = np.asarray(scores, np.float64)
    texts = pa.array(numbers).cast(pa.string())
    whole = (np.abs(numbers) < 1e16) & (numbers == np.trunc(numbers))  # some readers take "1" for an integer
    if whole.any():
        mask = pa.array(whole)
        texts = pc.replace_with_mask(texts, mask, _joined(texts.filter(mask), ".0"))
    return texts


def state_values(heads: Heads, watermarks: Any, offsets: Any, messages: Any, scores: Any) -> Any:
    """Return the values of top-k states, a pyarrow string array.

    :param heads: the shared parts of n states.
    :param watermarks: int64[n].
    :param offsets: int64[n + 1]; the list of state *i* is rows ``offsets[i]`` to ``offsets[i + 1]``.
    :param messages: message ids as JSON text, in rank order within a state; list or pyarrow string array.
    :param scores: float64, scores of the messages.
    """
    import pyarrow.compute as pc

    bounds = np.asarray(offsets, np.int32)
    # The JSON between messages and scores, and between entries, serves as separator: half the work of joining five columns.
    entries = pc.binary_join_element_wise(to_strings(messages), score_texts(scores), ',"score":')
    lists = pc.binary_join(pa.ListArray.from_arrays(pa.array(bounds), entries), '},{"message":')
    marks = pa.array(np.asarray(watermarks, np.int64)).cast(pa.string())
    before, after = '[{"message":', "}]}"
    if (empty := bounds[1:] == bounds[:-1]).any():
        none = pa.array(empty)
        before, after = pc.if_else(none, "[", before), pc.if_else(none, "]}", after)
    return _joined(_SUBSCRIPTION, heads.names, _REGISTERED, heads.registrations, '"', _WATERMARK, marks, ',"topk":', before, lists, after)


def event_record(subscription: str, registration: str, event: str, watermark: int) -> tuple[bytes, bytes, bytes]:
    """Return the record of a registration event: (key, value, result id).

    :param event: ``active`` (results cover messages after the watermark) or ``removed`` (results cover messages up to it).
    :raises IllegalArgumentException: an unknown event, or a malformed registration.
    """
    parse_registration(registration)
    if event not in EVENTS:
        raise IllegalArgumentException(explain("A registration event is not known.", given=event, legal=" | ".join(EVENTS)))
    name = encode_basestring_ascii(subscription)
    value = f'{_SUBSCRIPTION}{name}{_REGISTERED}{registration}","event":"{event}"{_WATERMARK}{watermark}}}'
    return subscription.encode(), value.encode(), f"{registration}/{name}/{watermark}/{event}".encode()
