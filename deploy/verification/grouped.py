"""Grouped matches: records of one message each, as columns of matches."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dskype.deploy.verification import results
from dskype.deploy.verification.inputs import Inputs, Record, header, in_order, number_of_record, source_of_record, where
from dskype.deploy.verification.registrations import Registry
from dskype.deploy.verification.replay import NEVER, History
from dskype.deploy.verification.report import Report

__all__ = ["Known", "read_grouped"]

_FAR = 1 << 62


class Known(NamedTuple):
    """The range of watermarks in which every match must have been published.

    :ivar after: messages up to here may be in records that the log has dropped; ``NEVER``: none has been dropped.
    :ivar until: later matches may still be on their way.
    """

    after: int = NEVER
    until: int = _FAR


class _Columns(NamedTuple):
    """The contents of some records, as columns.

    :ivar records: the records that can be used.
    :ivar watermark: int64[records]; ``code``: int64[records], of the message.
    :ivar counts: int64[records], how many subscriptions each one names.
    :ivar subscriptions: their ids, one list after the other; a pyarrow string array.
    """

    records: list[Record]
    watermark: np.ndarray
    code: np.ndarray
    counts: np.ndarray
    subscriptions: Any


def _schema(message: pa.DataType) -> pa.Schema:
    numbers = [(name, pa.int64()) for name in ("v", "watermark", "task")]
    return pa.schema([*numbers, ("message", message), ("subscriptions", pa.list_(pa.string()))])


_SCHEMAS = {True: _schema(pa.string()), False: _schema(pa.int64())}


def read_grouped(
    inputs: Inputs, registry: Registry, history: History, report: Report, progress: Callable[[str], None], final: bool
) -> tuple[results.Matches, Known]:
    """Decode the topic of grouped matches; a record that was written several times counts once (``result-id``).

    :param final: nothing more will come.
    :returns: the matches, in the order of their writers, and between which watermarks they must be all.
    """
    records = in_order(_once(inputs, report))
    parts = []
    for textual in (True, False):
        these = [record for record in records if (b'"message":"' in (record.value or b"")) is textual]
        for chunk in results.cut_chunks(range(len(these)), these):
            progress(f"decoding grouped matches {sum(len(part.records) for part in parts):,} of {len(records):,}")
            parts += _decoded([these[i] for i in chunk], _SCHEMAS[textual], inputs, history, report)
    found = [_matches(part, inputs, registry, report) for part in parts]
    columns = [np.concatenate([np.zeros(0, np.int64), *column]) for column in zip(*found)] if found else [np.zeros(0, np.int64)] * 6
    order = np.argsort(columns[5], kind="stable")
    return results.Matches(*(column[order] for column in columns[:5]), np.full(len(order), np.nan)), _known(inputs, parts, final)


def _once(inputs: Inputs, report: Report) -> Iterator[Record]:
    """Yield the records that are no repetitions."""
    topic, known = inputs.topics.matches, dict[str, Record]()
    for record in inputs.matches:
        identity = header(record, "result-id")
        if identity is None:
            report.differ("format", f"a record of {topic} has no header result-id", where=where(topic, record), details=(f"{record.value!r:.300}",))
            continue
        first = known.setdefault(identity, record)
        if first is record:
            yield record
            continue
        report.notes["repeated records of grouped matches"] += 1
        if first.value != record.value or first.key != record.key:
            report.differ(
                "format",
                f"two records of {topic} with the result-id {identity} differ",
                where=where(topic, record),
                expected=f"{first.value!r:.300}",
                published=f"{record.value!r:.300}",
            )


def _decoded(records: Sequence[Record], schema: pa.Schema, inputs: Inputs, history: History, report: Report) -> list[_Columns]:
    """Return the contents of records: in one part if all are well formed, otherwise record by record."""
    table = results.read_table([record.value or b"" for record in records], schema)
    if table is not None:
        lists = table["subscriptions"].combine_chunks()
        lists = lists if isinstance(lists, pa.Array) else pa.concat_arrays(lists.chunks)
        ids = lists.flatten()
        if not (ids.null_count or lists.null_count or any(table[name].null_count for name in ("v", "watermark", "task", "message"))):
            good = pc.equal(table["v"], 1).to_numpy() & (pc.list_value_length(lists).to_numpy() > 0)
            good &= np.array([str(m).encode() == r.key for m, r in zip(table["message"].to_pylist(), records)], bool)
            good &= np.array([_writer_is(r, task) for task, r in zip(table["task"].to_pylist(), records)], bool)
            if good.all():
                counts = pc.list_value_length(lists).to_numpy().astype(np.int64)
                return [_Columns(list(records), table["watermark"].to_numpy(), results.message_codes(table["message"], history), counts, ids)]
    return [found for record in records if (found := _one(record, inputs.topics.matches, history, report)) is not None]


def _writer_is(record: Record, task: int) -> bool:
    """Tell whether a task wrote a record; one without a ``record-id`` does not say."""
    writer = source_of_record(record).rpartition("-")[2]
    return writer in ("", str(task))


def _one(record: Record, topic: str, history: History, report: Report) -> _Columns | None:
    try:
        value = json.loads(record.value or b"")
        message, watermark, subscriptions = value["message"], value["watermark"], value["subscriptions"]
        good = (
            value["v"] == 1
            and type(watermark) is int
            and type(message) in (str, int)
            and str(message).encode() == record.key
            and type(value["task"]) is int
            and _writer_is(record, value["task"])
            and isinstance(subscriptions, list)
            and len(subscriptions) > 0
            and all(isinstance(id, str) for id in subscriptions)
        )
    except (ValueError, TypeError, KeyError, RecursionError):
        good = False
    if not good:
        text = f"a record of {topic} cannot be used: a field is missing or not what it must be, or its key is not its message"
        report.differ("format", text, where=where(topic, record), details=(f"{record.value!r:.300}",))
        return None
    code, counts = np.array([history.code_of(message)], np.int64), np.array([len(subscriptions)], np.int64)
    return _Columns([record], np.array([watermark], np.int64), code, counts, pa.array(subscriptions, pa.string()))


def _matches(part: _Columns, inputs: Inputs, registry: Registry, report: Report) -> tuple[np.ndarray, ...]:
    """Return the columns of :class:`~dskype.deploy.verification.results.Matches` and the number that each match's writer gave its record."""
    named = part.subscriptions.dictionary_encode()
    subscription = named.indices.to_numpy()
    of = np.repeat(np.arange(len(part.records)), part.counts)
    watermark = part.watermark[of]
    only = registry.only_boolean(named.dictionary)  # most subscriptions have one registration
    registration = only[subscription]
    others = np.flatnonzero(registration < 0)
    others = others[np.argsort(subscription[others], kind="stable")]
    for rows in np.split(others, np.flatnonzero(np.diff(subscription[others])) + 1) if len(others) else ():
        id = named.dictionary[subscription[rows[0]]].as_py()
        registration[rows] = registry.boolean_at(id, watermark[rows])
        if registration[rows[0]] == -1 and not registry.skips_id(id):
            record = part.records[of[rows[0]]]
            if registry.compacted:
                report.unchecked["matches of subscriptions whose record has been compacted away"] += len(rows)
            else:
                topic = inputs.topics.matches
                report.differ(
                    "format", f"a record of {topic} names {id!r}, which is no boolean or threshold subscription", where=where(topic, record), subscription=id
                )
    kept = registration >= 0
    places = np.array([(r.partition, r.offset) for r in part.records], np.int64).reshape(-1, 2)[of]
    numbers = np.array([number_of_record(r) for r in part.records], np.int64)[of]
    return registration[kept], watermark[kept], part.code[of][kept], places[kept, 0], places[kept, 1], numbers[kept]


def _known(inputs: Inputs, parts: Sequence[_Columns], final: bool) -> Known:
    """Return the range of watermarks in which every match must have been published.

    A writer writes in the order of watermarks and spreads its records over the partitions by message. What it wrote to a partition is therefore
    complete from the first record that the log still has up to the last one.
    """
    first: dict[tuple[str, int], int] = {}
    last: dict[tuple[str, int], int] = {}
    for part in parts:
        for record, watermark in zip(part.records, part.watermark.tolist()):
            at = source_of_record(record), record.partition
            first[at] = min(first.get(at, watermark), watermark)
            last[at] = max(last.get(at, watermark), watermark)
    writers, partitions = {writer for writer, _ in last}, {partition for _, partition in last}
    after, until = NEVER, _FAR
    for partition, begin in inputs.begins["matches"].items():
        if begin > 0:
            for writer in writers:
                newest = max(watermark for (other, _), watermark in last.items() if other == writer)
                after = max(after, first.get((writer, partition), newest))
    if not final:
        until = min((last.get((writer, partition), NEVER) for writer in writers for partition in partitions), default=NEVER)
    return Known(after, until)
