"""Result records as JSON: deltas, whole top-k lists, and registration events (which :mod:`~dskype.bolts.results.events` writes).

Topics and formats (``score`` of a match: of a threshold subscription; UTF-8; the id of a message is JSON text already and is inserted unchanged)::

    <topology>.results        {"v":1,"subscription":id,"watermark":w,"op":"add" | "score","message":m,"score":s,"rank":r,"meta":...}
                              {"v":1,"subscription":id,"watermark":w,"op":"remove" | "match","message":m,"score"?:s,"initial"?:true,"meta":... | "meta_omitted":true}
                              {"v":1,"subscription":id,"watermark":w,"op":"enter" | "inside" | "leave","message":m,"object":o,"meta":...}
    <topology>.matches        {"v":1,"message":m,"watermark":w,"task":t,"subscriptions":[id,...]}
    <topology>.topk           {"v":1,"subscription":id,"registration":"p-o","watermark":w,"topk":[{"message":m,"score":s},...]}
    <topology>.registrations  {"v":1,"subscription":id,"registration":"p-o","event":"active" | "updated" | "removed","watermark":w}
                              {"v":1,"subscription":id,"registration":"p-o","event":"limited","watermark":w,"limit":setting}

The key of every record is the subscription's id, so the records of a subscription stay in order; that of the event ``limited`` has
:data:`~dskype.bolts.results.events.LIMITED_KEY` before it, so that compaction keeps the subscription's last other event. ``meta`` is that of the
subscription, left out if it has none. Deltas and events carry the header ``result-id``: subscription, registration, watermark,
op and message as text, equal whenever the same result is written again.

With ``dskype.results.matches: grouped`` each task that finds matches of a message writes one record of ``<topology>.matches`` for
them (an update of an object, and a match that was there before the subscription, is a record for each subscription all the same): its key is the message's id, ``t`` the task that writes. Matches that would make the record too long are split over several.
Their ``result-id`` is message, sequence number, task and number of the record.

With ``dskype.results.fields`` the ids of messages that are given here have fields behind them (:mod:`dskype.spouts.result_fields`), which go into the records with them: each
``"message":m`` is followed by ``,"fields":{...}`` or ``,"fields_omitted":true``, but not in an op ``remove``, a key or a header.

JSON is joined from columns of text; a float is written as the shortest text that reads back as the same float64.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from json.encoder import encode_basestring_ascii
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dskype.bolts.results import match_kernels
from dskype.bolts.results.deltas import length_of
from dskype.bolts.results.events import (
    ADD,
    INITIAL,
    MATCHES,
    OMITTED,
    OPS,
    REGISTERED,
    REMOVE,
    SCORE,
    SCORED_MATCH,
    SUBSCRIPTION,
    WATERMARK,
    parse_registration,
)
from dskype.bolts.results.match_kernels import Names
from dskype.spouts.columns import read_only, to_numbers, to_strings
from dskype.spouts.result_fields import BEHIND_ID
from dskype.spouts.streams import Results
from dskype.topology.errors import IllegalArgumentException

__all__ = ["Heads", "MessageKeys", "Records", "delta_records", "heads", "json_names", "match_records", "names_of", "score_texts", "state_values"]


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


def heads(subscriptions: Any, registrations: Any, metas: Any = None) -> Heads:
    """Return the parts that records of registrations share; columns are lists, numpy or pyarrow arrays.

    :param subscriptions: ids.
    :param registrations: ``<partition>-<offset>`` of the records of the subscriptions topic.
    :param metas: JSON texts, :data:`~dskype.bolts.results.events.OMITTED` or None; None in place of the column: no subscription has one.
    :raises IllegalArgumentException: a malformed registration.
    """
    ids = to_strings(subscriptions)
    try:
        places = to_strings(registrations)
    except pa.ArrowTypeError:
        list(map(parse_registration, registrations))
        raise
    well_formed = pc.match_substring_regex(places, r"\A[0-9]+-[0-9]+\z")
    if places.null_count or pc.all(well_formed).as_py() is False:
        parse_registration(next(place for place, good in zip(places.to_pylist(), well_formed.to_pylist()) if not good))
    names = json_names(ids)
    tails: Any = "}"
    if metas is not None and (meta_texts := to_strings(metas)).null_count < len(meta_texts):
        tails = pc.coalesce(_joined(',"meta":', meta_texts, "}"), "}")
        if pc.any(omitted := pc.fill_null(pc.equal(meta_texts, OMITTED), False)).as_py():
            tails = pc.if_else(omitted, ',"meta_omitted":true}', tails)
    return Heads(ids.cast(pa.binary()), names, places, tails)


def json_names(ids: Any) -> Any:
    """Return ids of subscriptions as JSON texts in ASCII, a pyarrow string array."""
    ids = to_strings(ids)
    if pc.any(pc.match_substring_regex(ids, r"[^ !#-\[\]-~]")).as_py():  # not ASCII, or in need of escapes
        return pa.array([encode_basestring_ascii(name) for name in ids.to_pylist()], pa.string())
    return _joined('"', ids, '"')


_LEGAL = (ADD, REMOVE, SCORE, *MATCHES)


class Records(NamedTuple):
    """Records as columns (pyarrow arrays).

    :ivar keys: binary.
    :ivar values: string.
    :ivar result_ids: string.
    """

    keys: Any
    values: Any
    result_ids: Any


def delta_records(batch: Results, fields: bool = False) -> Records:
    """Return the records of deltas, in the order of the batch.

    :param fields: whether ids of messages have fields behind them.
    :raises IllegalArgumentException: an unknown op, ``ADD`` or ``SCORE`` without scores and ranks, ``SCORED_MATCH`` without scores, columns of different lengths, or a malformed registration.
    """
    shared = heads(batch.subscription, batch.registration, batch.meta)
    n, ops, scores, ranks = length_of(batch), np.asarray(batch.kind, np.int8), batch.score, batch.rank
    adds, ranked = np.isin(ops, (ADD, SCORE)), scores is not None and ranks is not None
    scored = adds | (ops == SCORED_MATCH)
    if n and (not np.isin(ops, _LEGAL).all() or (not ranked and adds.any()) or (scores is None and scored.any())):
        raise IllegalArgumentException(
            "A delta cannot be written.",
            given={"ops": np.unique(ops).tolist(), "scores": ranked},
            legal=", ".join(
                f"{op} ({OPS[op]}{', with scores and ranks' if op in (ADD, SCORE) else ', with scores' if op == SCORED_MATCH else ''})" for op in _LEGAL
            ),
        )
    messages = ids = to_strings(batch.message)
    if fields:
        ids = _without_fields(messages)
        messages = pc.if_else(pa.array(ops == REMOVE), ids, messages) if (ops == REMOVE).any() else messages
    marks = pa.array(np.asarray(batch.watermark, np.int64)).cast(pa.string())
    names = pa.array(OPS).take(pa.array(ops))
    ranking = ""
    if scored.any():
        ranking = _joined(',"score":', score_texts(to_numbers(scores, np.float64)))
        if adds.any():
            ranks = _joined(',"rank":', pa.array(to_numbers(ranks, np.int64)).cast(pa.string()))
            ranking = _joined(ranking, ranks if adds.all() else pc.if_else(pa.array(adds), ranks, ""))
        if not scored.all():
            ranking = pc.if_else(pa.array(scored), ranking, "")
    if (initial := ops == INITIAL).any():
        ranking = pc.if_else(pa.array(initial), ',"initial":true', ranking)
    values = _joined(SUBSCRIPTION, shared.names, WATERMARK, marks, ',"op":"', names, '","message":', messages, ranking, shared.tails)
    return Records(shared.keys, values, _joined(shared.registrations, "/", shared.names, "/", marks, "/", names, "/", ids))


_AT_ONCE_BYTES = 1 << 28
_IN_MESSAGE, _BY_TASK, _MATCHED = '{"v":1,"message":', ',"task":', ',"subscriptions":['


class MessageKeys(NamedTuple):
    """What identifies messages in records: n of them.

    :ivar ids: as JSON text, a pyarrow string array.
    :ivar watermarks: int64[n], their positions.
    :ivar seqs: int64[n], their sequence numbers.
    """

    ids: Any
    watermarks: np.ndarray
    seqs: np.ndarray


def match_records(
    messages: MessageKeys, rows: np.ndarray, subscriptions: np.ndarray, names: Names, task: int, most_bytes: int, fields: bool = False
) -> Iterator[Records]:
    """Yield the records of grouped matches, many at once, in the order of the messages.

    :param messages: n of them.
    :param rows: int32[m], not falling: which message matches ...
    :param subscriptions: int32[m]: ... the subscription with this number.
    :param names: JSON texts of subscriptions' ids by number.
    :param task: that writes.
    :param most_bytes: no record with several subscriptions has more.
    :param fields: whether ids of messages have fields behind them.
    """
    if not len(rows):
        return
    first = np.concatenate(([True], rows[1:] != rows[:-1]))
    used, of = rows[first], np.cumsum(first, dtype=np.int32) - np.int32(1)
    ids, marks = messages.ids.take(pa.array(used)), pa.array(messages.watermarks[used]).cast(pa.string())
    heads = names_of(_joined(_IN_MESSAGE, ids, WATERMARK, marks, _BY_TASK, str(task), _MATCHED))
    ids = _without_fields(ids) if fields else ids
    keys, numbers = _bare(ids), pa.array(messages.seqs[used]).cast(pa.string())
    names, heads = (Names(*map(read_only, texts)) for texts in (names, heads))
    firsts, offsets = match_kernels.cut(of, subscriptions, names.spans, heads.spans, most_bytes)
    begin = 0
    while begin < len(firsts) - 1:
        end = max(begin + 1, int(np.searchsorted(offsets, offsets[begin] + _AT_ONCE_BYTES, side="right")) - 1)
        whose = of[firsts[begin:end]]
        values = np.empty(offsets[end] - offsets[begin], np.uint8)
        match_kernels.fill(firsts[begin : end + 1], of, subscriptions, names, heads, values)
        bounds = (offsets[begin : end + 1] - offsets[begin]).astype(np.int32)
        parts = np.arange(begin, end) - np.searchsorted(of[firsts[:-1]], whose)
        taken = pa.array(whose)
        result_ids = _joined(ids.take(taken), "/", numbers.take(taken), "/", str(task), "/", pa.array(parts).cast(pa.string()))
        yield Records(keys.take(taken), pa.StringArray.from_buffers(end - begin, pa.py_buffer(bounds), pa.py_buffer(values)), result_ids)
        begin = end


def names_of(texts: Any) -> Names:
    """Return a pyarrow string array without nulls as read-only arrays, without copying its bytes."""
    _, offsets, data = texts.buffers()
    bounds = np.frombuffer(offsets, np.int32, len(texts) + 1, 4 * texts.offset)
    spans = np.stack((bounds[:-1], bounds[1:]), axis=1).astype(np.int64)
    return Names(spans, np.frombuffer(b"" if data is None else data, np.uint8))


def _without_fields(labels: Any) -> Any:
    """Return the ids in labels of messages (:mod:`dskype.spouts.result_fields`); 0.3 µs each."""
    return pc.list_element(pc.split_pattern(labels, BEHIND_ID, max_splits=1), 0)


def _bare(ids: Any) -> Any:
    """Return ids, given as JSON, as the keys of records: a text without its quotes, a number in digits."""
    if pc.any(pc.match_substring(ids, "\\")).as_py():
        return pa.array([str(json.loads(id)).encode() for id in ids.to_pylist()], pa.binary())
    return pc.utf8_trim(ids, '"').cast(pa.binary())


def _joined(*parts: Any) -> Any:
    return pc.binary_join_element_wise(*parts, "")


def score_texts(scores: Any) -> Any:
    """Return floats as JSON (a pyarrow string array): the shortest texts that read back as the same bits."""
    numbers = np.asarray(scores, np.float64)
    texts = pa.array(numbers).cast(pa.string())
    whole = (np.abs(numbers) < 1e10) & (numbers == np.trunc(numbers))  # some readers take "1" for an integer; larger ones have an exponent
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
    bounds = np.asarray(offsets, np.int32)
    # The JSON between messages and scores, and between entries, serves as separator: half the work of joining five columns.
    entries = pc.binary_join_element_wise(to_strings(messages), score_texts(scores), ',"score":')
    lists = pc.binary_join(pa.ListArray.from_arrays(pa.array(bounds), entries), '},{"message":')
    marks = pa.array(np.asarray(watermarks, np.int64)).cast(pa.string())
    before, after = '[{"message":', "}]}"
    if (empty := bounds[1:] == bounds[:-1]).any():
        none = pa.array(empty)
        before, after = pc.if_else(none, "[", before), pc.if_else(none, "]}", after)
    return _joined(SUBSCRIPTION, heads.names, REGISTERED, heads.registrations, '"', WATERMARK, marks, ',"topk":', before, lists, after)
