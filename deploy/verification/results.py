"""Published lists, deltas and matches, as columns.

Arrow's JSON reader parses well-formed records in bulk. The others are parsed one by one, with a text that says what is wrong.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from dskype.deploy.verification.inputs import Inputs, Record, header, number_of_record, raw_header, source_of_record, where
from dskype.deploy.verification.registrations import Registration, Registry, decode
from dskype.deploy.verification.replay import History
from dskype.deploy.verification.report import SHARED_RESULT_ID, Report

__all__ = ["Changes", "Matches", "Moves", "PublishedLists", "cut_chunks", "has_repeated_id", "message_codes", "read_deltas", "read_lists", "read_table"]

_ROWS, _BYTES = 20_000, 32 << 20
SCORED, INITIAL = 6, 7
"""Of a change: a message that was in the list when the subscription was updated has another score. Of a match: it was there when the subscription became active."""
_OPS = {"add": 0, "remove": 1, "match": 2, "enter": 3, "inside": 4, "leave": 5, "score": SCORED}

Progress = Callable[[str], None]


@dataclass
class PublishedLists:
    """Published lists, n of them, in the order of the log.

    :ivar registration: int64[n], its number.
    :ivar watermark: int64[n].
    :ivar offsets: int64[n + 1]: list *i* is rows ``offsets[i]`` to ``offsets[i + 1]`` of code and score.
    :ivar places: n records (partition, offset).
    :ivar last: subscription -> its last record: a list's number, or None for a null value.
    """

    registration: np.ndarray
    watermark: np.ndarray
    offsets: np.ndarray
    code: np.ndarray
    score: np.ndarray
    places: list[tuple[int, int]]
    last: dict[str, int | None]


@dataclass
class Changes:
    """Published changes of lists, each once, by registration, then in the order of their writer.

    :ivar registration, watermark, code, rank: int64[n].
    :ivar op: int8[n], 0 add, 1 remove, or :data:`SCORED`.
    :ivar score: float64[n], of an add or a score.
    :ivar open: bool[n]: further deltas of the same watermark may follow, because no later record of the same writer excludes it.
    """

    registration: np.ndarray
    watermark: np.ndarray
    op: np.ndarray
    code: np.ndarray
    score: np.ndarray
    rank: np.ndarray
    partition: np.ndarray
    offset: np.ndarray
    open: np.ndarray


@dataclass
class Matches:
    """Published matches, each once, in the order of their writers; initial ones are by themselves.

    :ivar registration, watermark, code: int64[n].
    :ivar partition, offset: int64[n], the records.
    :ivar score: float64[n]; NaN: it has none.
    """

    registration: np.ndarray
    watermark: np.ndarray
    code: np.ndarray
    partition: np.ndarray
    offset: np.ndarray
    score: np.ndarray

    def joined(self, other: Matches) -> Matches:
        """Return these and others behind them."""
        return Matches(*(np.concatenate((column, vars(other)[name])) for name, column in vars(self).items()))


@dataclass
class Moves:
    """Published results of objects, each once, in the order of their writers.

    :ivar registration, watermark, code: int64[n], as of matches; ``op``: int8[n], 3 enter, 4 inside, 5 leave.
    :ivar object: n ids.
    :ivar places: n records (partition, offset).
    """

    registration: np.ndarray
    watermark: np.ndarray
    code: np.ndarray
    op: np.ndarray
    object: list[str]
    places: list[tuple[int, int]]


# -- many records at once -------------------------------------------------------------------------


def cut_chunks(rows: Sequence[int], records: Sequence[Record]) -> Iterator[Sequence[int]]:
    """Split rows into chunks of limited number and size."""
    start = size = 0
    for i, row in enumerate(rows):
        size += len(records[row].value or b"")
        if i - start >= _ROWS or size > _BYTES:
            yield rows[start:i]
            start, size = i, len(records[row].value or b"")
    if start < len(rows):
        yield rows[start:]


def read_table(values: Sequence[bytes], schema: pa.Schema) -> pa.Table | None:
    """Parse JSON objects, one per row; return None if that fails for any of them."""
    data = b"\n".join(values)
    if data.count(b"\n") != len(values) - 1 or not all(v.startswith(b"{") and v.endswith(b"}") for v in values):
        return None
    try:
        data.decode()
        table = pa.json.read_json(
            pa.BufferReader(data),
            read_options=pa.json.ReadOptions(use_threads=False, block_size=len(data) + 1),
            parse_options=pa.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
        )
    except (pa.ArrowException, UnicodeDecodeError):
        return None
    return table.combine_chunks() if table.num_rows == len(values) else None


def _numbers(column: pa.ChunkedArray) -> np.ndarray:
    """Return a column of integers; nulls become 0."""
    return column.fill_null(0).to_numpy()


def message_codes(column: pa.Array | pa.ChunkedArray, history: History) -> np.ndarray:
    """Return the codes of message ids; the codes of nulls are arbitrary."""
    column = _whole(column).dictionary_encode()
    known = np.array([history.code_of(name) for name in column.dictionary.to_pylist()] or [0], np.int64)
    return known[column.indices.fill_null(0).to_numpy(zero_copy_only=False)]


def _whole(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return a column as one array."""
    column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    return column if isinstance(column, pa.Array) else pa.concat_arrays(column.chunks)


def _subjects(table: pa.Table, registrations: Sequence[Registration]) -> np.ndarray:
    """Return which rows are of version 1, have a watermark, and name the subscription of their registration."""
    expected = pa.array([r.subscription.id for r in registrations], pa.string())
    good = pc.and_(pc.equal(table["v"], 1), pc.and_(table["watermark"].is_valid(), pc.equal(table["subscription"], expected)))
    return good.fill_null(False).to_numpy()


_HEAD = [("v", pa.int64()), ("subscription", pa.string()), ("watermark", pa.int64())]


# -- lists ----------------------------------------------------------------------------------------


def _list_schema(message: pa.DataType) -> pa.Schema:
    return pa.schema([*_HEAD, ("registration", pa.string()), ("topk", pa.list_(pa.struct([("message", message), ("score", pa.float64())])))])


_LIST_SCHEMAS = {True: _list_schema(pa.string()), False: _list_schema(pa.int64())}


@dataclass
class _List:
    registration: int
    watermark: int
    code: Any
    score: Any


def read_lists(inputs: Inputs, registry: Registry, history: History, report: Report, progress: Progress) -> PublishedLists:
    """Parse the topic of whole lists."""
    records = inputs.topk
    rows: dict[bool, list[int]] = {True: [], False: []}
    for i, record in enumerate(records):
        if record.value is not None and not registry.skips(record):
            rows[b'"message":"' in record.value].append(i)
    found: dict[int, _List] = {}
    done = 0
    for textual, these in rows.items():
        for chunk in cut_chunks(these, records):
            progress(f"decoding lists {done:,} of {len(records):,}")
            done += len(chunk)
            slow = _lists_at_once(chunk, records, _LIST_SCHEMAS[textual], registry, history, found)
            for i in slow:
                _one_list(i, records[i], inputs, registry, history, report, found)
    return _join_lists(records, registry, found)


def _lists_at_once(
    chunk: Sequence[int], records: Sequence[Record], schema: pa.Schema, registry: Registry, history: History, found: dict[int, _List]
) -> Sequence[int]:
    """Parse a chunk; return the rows that must be parsed one by one."""
    table = read_table([records[i].value or b"" for i in chunk], schema)
    if table is None:
        return chunk
    registrations = [registry.by_name.get(name) for name in table["registration"].to_pylist()]
    named = [r is not None and r.is_topk and r.key == records[i].key for i, r in zip(chunk, registrations)]
    some = next((r for r in registrations if r is not None), None)
    if some is None:
        return chunk
    good = _subjects(table, [r or some for r in registrations]) & np.array(named, bool) & table["topk"].is_valid().to_numpy()
    lists = _whole(table["topk"])
    entries = lists.flatten()
    if entries.null_count or entries.field("message").null_count or entries.field("score").null_count:
        return chunk
    lengths = pc.list_value_length(lists).fill_null(0).to_numpy(zero_copy_only=False)
    ends = np.cumsum(lengths)
    codes, scores = message_codes(entries.field("message"), history), entries.field("score").to_numpy()
    watermarks = _numbers(table["watermark"]).tolist()
    for i, r, ok, watermark, start, end in zip(chunk, registrations, good.tolist(), watermarks, (ends - lengths).tolist(), ends.tolist()):
        if ok:
            found[i] = _List(r.number, watermark, codes[start:end], scores[start:end])
    return [i for i, ok in zip(chunk, good.tolist()) if not ok]


def _one_list(i: int, record: Record, inputs: Inputs, registry: Registry, history: History, report: Report, found: dict[int, _List]) -> None:
    topic = inputs.topics.topk
    if (value := decode(record, "state", topic, report)) is None:
        return
    registration = registry.find(value["registration"], value["subscription"], "topk", topic, record)
    if registration is None:
        return
    try:
        entries = [(_message(e["message"]), float(e["score"])) for e in value["topk"]]
    except (TypeError, KeyError, ValueError):
        report.differ("format", f"a list of {topic} cannot be read", where=where(topic, record), details=(f"{record.value!r:.300}",))
        return
    found[i] = _List(
        registration.number, value["watermark"], np.array([history.code_of(m) for m, _ in entries], np.int64), np.array([s for _, s in entries], np.float64)
    )


def _message(id: Any) -> str | int:
    if type(id) not in (str, int):
        raise TypeError
    return id


def _join_lists(records: Sequence[Record], registry: Registry, found: dict[int, _List]) -> PublishedLists:
    order = sorted(found)
    lists = [found[i] for i in order]
    offsets = np.zeros(len(lists) + 1, np.int64)
    np.cumsum([len(entry.code) for entry in lists], out=offsets[1:])
    last: dict[str, int | None] = {}
    at = {i: n for n, i in enumerate(order)}
    for i, record in enumerate(records):
        if i in at:
            last[registry.all[lists[at[i]].registration].subscription.id] = at[i]
        elif record.value is None and not registry.skips(record):
            last[(record.key or b"").decode(errors="replace")] = None

    def join(parts: Sequence[np.ndarray], dtype: Any) -> np.ndarray:
        return np.concatenate([np.zeros(0, dtype), *parts])

    return PublishedLists(
        np.array([e.registration for e in lists], np.int64),
        np.array([e.watermark for e in lists], np.int64),
        offsets,
        join([e.code for e in lists], np.int64),
        join([e.score for e in lists], np.float64),
        [(records[i].partition, records[i].offset) for i in order],
        last,
    )


# -- deltas ---------------------------------------------------------------------------------------


def _delta_schema(message: pa.DataType) -> pa.Schema:
    return pa.schema(
        [*_HEAD, ("op", pa.string()), ("message", message), ("score", pa.float64()), ("rank", pa.int64()), ("object", pa.string()), ("initial", pa.bool_())]
    )


_DELTA_SCHEMAS = {True: _delta_schema(pa.string()), False: _delta_schema(pa.int64())}


class _Deltas:
    """Columns over all records of the topic. Op -1: the record is malformed, or a repetition."""

    def __init__(self, n: int) -> None:
        self.op = np.full(n, -1, np.int8)
        self.registration, self.watermark, self.code, self.rank = (np.zeros(n, np.int64) for _ in range(4))
        self.score = np.zeros(n)
        self.object: dict[int, str] = {}


def read_deltas(
    inputs: Inputs, registry: Registry, history: History, report: Report, progress: Progress, ends: bool = True
) -> tuple[Changes, Matches, Moves, Matches]:
    """Parse the topic of results. Repetitions (``result-id``) count once.

    :param ends: find out which changes are ``open``.
    :returns: the last ones are the initial matches.
    """
    records, topic = inputs.results, inputs.topics.results
    columns = _Deltas(len(records))
    rows: dict[bool, list[int]] = {True: [], False: []}
    owners: dict[int, Registration] = {}
    slow: list[int] = []
    for i, registration in _once(inputs, registry, history, report, progress):
        value = records[i].value
        if registration is None or value is None or registration.key != records[i].key or not _carries(value, registration):
            slow.append(i)
        else:
            owners[i] = registration
            rows[b'"message":"' in value].append(i)
    done = 0
    for textual, these in rows.items():
        for chunk in cut_chunks(these, records):
            progress(f"decoding deltas {done:,} of {len(records):,}")
            done += len(chunk)
            slow += _deltas_at_once(chunk, records, _DELTA_SCHEMAS[textual], owners, history, columns)
    for i in sorted(slow):
        _one_delta(i, records[i], topic, registry, history, report, columns)
    return _changes(records, columns, ends), _matches(records, columns, 2), _moves(records, columns), _matches(records, columns, INITIAL)


def _carries(value: bytes, registration: Registration) -> bool:
    """Tell whether a record certainly has the right ``meta``."""
    tail = registration.meta_tail
    return value.endswith(tail) if tail else b'"meta' not in value


def _once(inputs: Inputs, registry: Registry, history: History, report: Report, progress: Progress) -> Iterator[tuple[int, Registration | None]]:
    """Yield the index of each record that is not a repetition, and the registration that its result-id names."""
    topic, records = inputs.topics.results, inputs.results
    known: dict[bytes, int] = {}
    by_name = {name.encode(): r for name, r in registry.by_name.items()}
    for i, record in enumerate(records):
        if not i % 100_000:
            progress(f"sorting deltas {i:,} of {len(records):,}")
        if registry.selective and registry.skips(record):
            continue
        identity = raw_header(record, "result-id")
        if identity is None:
            report.differ("format", f"a record of {topic} has no header result-id", where=where(topic, record), details=(f"{record.value!r:.300}",))
            continue
        first = known.setdefault(identity, i)
        if first == i:
            yield i, by_name.get(identity.partition(b"/")[0])
            continue
        report.notes["repeated deltas"] += 1
        written_again = header(records[first], "record-id") == header(record, "record-id")
        if not written_again:
            report.notes["deltas that were published twice (result-id), not written again (record-id)"] += 1
        if records[first].value == record.value:
            continue
        if not written_again and has_repeated_id(record, history):
            report.unchecked[SHARED_RESULT_ID] += 1
        else:
            report.differ(
                "format",
                f"two records of {topic} with the result-id {identity.decode(errors='replace')} differ",
                where=where(topic, record),
                expected=f"{records[first].value!r:.300}",
                published=f"{record.value!r:.300}",
            )


def has_repeated_id(delta: Record, history: History) -> bool:
    """Tell whether another message has the id of a delta's message. Deltas of both then have the same ``result-id`` if they are of one watermark."""
    try:
        message = json.loads(delta.value or b"")["message"]
    except (ValueError, KeyError, TypeError):
        return False
    return isinstance(message, (str, int)) and history.is_repeated(message)


def _deltas_at_once(
    chunk: Sequence[int], records: Sequence[Record], schema: pa.Schema, owners: dict[int, Registration], history: History, columns: _Deltas
) -> Sequence[int]:
    """Parse a chunk; return the rows that must be parsed one by one."""
    table = read_table([records[i].value or b"" for i in chunk], schema)
    if table is None:
        return chunk
    registrations = [owners[i] for i in chunk]
    op = pc.index_in(table["op"], pa.array(list(_OPS))).fill_null(-1).to_numpy()
    added = (op == 0) | (op == SCORED)
    good = _subjects(table, registrations) & (op >= 0) & table["message"].is_valid().to_numpy()
    good &= ~added | (table["score"].is_valid().to_numpy() & table["rank"].is_valid().to_numpy())
    good &= ((op < 2) | (op == SCORED)) == np.array([r.is_topk for r in registrations], bool)
    good &= ~((op > 2) & (op < SCORED)) | table["object"].is_valid().to_numpy()
    initial = table["initial"].fill_null(False).to_numpy()
    good &= np.where(initial, (op == 2) & ~table["score"].is_valid().to_numpy(), table["initial"].is_null().to_numpy())
    op = np.where(initial, INITIAL, op)
    to = np.array(chunk)[good]
    columns.op[to] = op[good]
    columns.registration[to] = np.array([r.number for r in registrations])[good]
    columns.watermark[to] = _numbers(table["watermark"])[good]
    columns.code[to] = message_codes(table["message"], history)[good]
    columns.score[to] = np.where(added | (op == 2), table["score"].fill_null(np.nan).to_numpy(), 0.0)[good]
    columns.rank[to] = np.where(added, _numbers(table["rank"]), 0)[good]
    columns.object.update(
        (i, object) for i, object, ok in zip(chunk, table["object"].to_pylist(), good.tolist()) if ok and object is not None and 2 < columns.op[i] < SCORED
    )
    return [i for i, ok in zip(chunk, good.tolist()) if not ok]


def _one_delta(i: int, record: Record, topic: str, registry: Registry, history: History, report: Report, columns: _Deltas) -> None:
    value = decode(record, "delta", topic, report)
    if value is None:
        return
    op = _OPS.get(value["op"]) if isinstance(value["op"], str) else None
    name = (header(record, "result-id") or "").partition("/")[0]
    found = registry.find(name, value["subscription"], "boolean" if op is not None and 2 <= op < SCORED else "topk", topic, record)
    if found is None:
        return
    rank, score = (value.get("rank"), value.get("score")) if op in (0, SCORED) else (0, value.get("score", np.nan) if op == 2 else 0.0)
    omitted = value.get("meta_omitted") is True and "meta" not in value and bool(found.meta_tail)
    if omitted:
        report.notes["results whose meta a limit has left out"] += 1
    wrong_meta = not omitted and ("meta_omitted" in value or value.get("meta") != found.meta)
    wrong_object = op is not None and 2 < op < SCORED and type(value.get("object")) is not str
    wrong_initial = "initial" in value and (op != 2 or value["initial"] is not True or "score" in value)
    wrong = wrong_meta or wrong_object or wrong_initial
    if op is None or type(rank) is not int or type(score) not in (float, int) or type(value["message"]) not in (str, int) or wrong:
        report.differ(
            "format",
            f"a record of {topic} has a wrong field (op, rank, score, message, object, initial or meta)",
            where=where(topic, record),
            details=(f"{record.value!r:.300}",),
        )
        return
    columns.op[i], columns.registration[i], columns.watermark[i] = INITIAL if "initial" in value else op, found.number, value["watermark"]
    columns.code[i], columns.score[i], columns.rank[i] = history.code_of(value["message"]), score, rank
    if 2 < op < SCORED:
        columns.object[i] = value["object"]


def _in_order(records: Sequence[Record], rows: np.ndarray) -> np.ndarray:
    """Return rows in the order of their writers; a failed sink may have written a later record before an earlier one."""
    numbers = np.array([number_of_record(records[i]) for i in rows.tolist()], np.int64)
    return rows[np.argsort(numbers, kind="stable")]


def _places(records: Sequence[Record], rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    chosen = [records[i] for i in rows.tolist()]
    return np.array([r.partition for r in chosen], np.int64), np.array([r.offset for r in chosen], np.int64)


def _changes(records: Sequence[Record], columns: _Deltas, ends: bool) -> Changes:
    rows = _in_order(records, np.flatnonzero((columns.op == 0) | (columns.op == 1) | (columns.op == SCORED)))
    is_open = np.zeros(len(rows), bool)
    registration, watermark = columns.registration[rows], columns.watermark[rows]
    if ends and len(rows):
        writers: dict[tuple[int, str], int] = {}
        writer = np.array([writers.setdefault((records[i].partition, source_of_record(records[i])), len(writers)) for i in rows.tolist()])
        newest, latest = np.full(len(writers), np.iinfo(np.int64).min), np.zeros(len(writers), np.int64)
        np.maximum.at(newest, writer, watermark)
        latest[writer] = np.arange(len(rows))  # the last assignment wins
        # Writers write by watermark, or one registration after the other.
        is_open = (watermark == newest[writer]) | (watermark == watermark[latest[writer]]) & (registration == registration[latest[writer]])
    order = np.argsort(registration, kind="stable")
    rows = rows[order]
    return Changes(
        registration[order],
        watermark[order],
        columns.op[rows],
        columns.code[rows],
        columns.score[rows],
        columns.rank[rows],
        *_places(records, rows),
        is_open[order],
    )


def _matches(records: Sequence[Record], columns: _Deltas, op: int) -> Matches:
    rows = _in_order(records, np.flatnonzero(columns.op == op))
    return Matches(columns.registration[rows], columns.watermark[rows], columns.code[rows], *_places(records, rows), columns.score[rows])


def _moves(records: Sequence[Record], columns: _Deltas) -> Moves:
    rows = _in_order(records, np.flatnonzero((columns.op > 2) & (columns.op < SCORED)))
    places = [(records[i].partition, records[i].offset) for i in rows.tolist()]
    return Moves(columns.registration[rows], columns.watermark[rows], columns.code[rows], columns.op[rows], [columns.object[i] for i in rows.tolist()], places)
