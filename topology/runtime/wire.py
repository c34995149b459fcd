"""The protocol between shim, supervisor and resident executors, over Unix sockets of one machine.

Every message is a length (u64 little endian) and a body. Requests to the supervisor and its answers are msgpack. A
request to an executor is a header (see ``resident.BATCH``) and one serialized Arrow record batch of input rows. Its
answer is the byte 0 and an Arrow stream of output rows, or the byte 1 and the text of an error.
"""

from __future__ import annotations

import itertools
import socket
import struct
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from dskype.topology.core.frames import OutRecord, OutRecords
from dskype.topology.tuples import InRecord

__all__ = [
    "EXTERNAL_INPUT",
    "INBOX_INPUT",
    "KERNELS_VARIABLE",
    "OUTPUT",
    "OUTPUT_DDL",
    "SAFE_PATH_OF_WORKERS",
    "SAFE_PATH_VARIABLE",
    "SUPERVISOR_VARIABLE",
    "decode_batches",
    "encode_batches",
    "in_records",
    "out_batches",
    "receive",
    "send",
]

KERNELS_VARIABLE = "DSKYPE_KERNELS"
"""Names, on other hosts, the folder of the driver's compiled kernels; most likely they are in the same place there."""

SAFE_PATH_VARIABLE = "PYTHONSAFEPATH"
"""If it is set, Python does not import modules from the working folder."""
SAFE_PATH_OF_WORKERS = "workers"
"""Its value for Spark's Python workers. The daemon removes this value, because a program that a component starts may import modules from its own folder."""

SUPERVISOR_VARIABLE = "DSKYPE_SUPERVISOR"
"""Environment variable with the path of the supervisor's socket; the daemon sets it, and its workers inherit it."""

_LENGTH = struct.Struct("<Q")

_SLICE_ROWS, _SLICE_BYTES = 16_384, 4 << 20
"""Limits of the pieces in which output rows are passed to Spark, whose JVM holds one piece at a time."""

INBOX_INPUT = pa.schema([("partition", pa.int32()), ("offset", pa.int64()), ("timestamp", pa.int64()), ("value", pa.binary())])
EXTERNAL_INPUT = pa.schema(
    [("topic", pa.string()), *INBOX_INPUT, ("key", pa.binary()), ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])))]
)
OUTPUT = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)
OUTPUT_DDL = "topic string, partition int, key binary, value binary, headers array<struct<key:string,value:binary>>"


def send(connection: socket.socket, *parts: bytes | memoryview | pa.Buffer) -> None:
    """Send one message."""
    views = [memoryview(p) for p in parts]
    connection.sendall(_LENGTH.pack(sum(v.nbytes for v in views)))
    for view in views:
        connection.sendall(view)


def receive(connection: socket.socket) -> bytearray:
    """Return the body of one message.

    :raises ConnectionError: the other process has closed the connection.
    """
    (length,) = _LENGTH.unpack(_exactly(connection, _LENGTH.size))
    return _exactly(connection, length)


def _exactly(connection: socket.socket, n: int) -> bytearray:
    body = bytearray(n)
    view = memoryview(body)
    while n:
        got = connection.recv_into(view, n)
        if not got:
            msg = "the other side has closed the connection"
            raise ConnectionError(msg)
        view, n = view[got:], n - got
    return body


def in_records(batch: pa.RecordBatch, inbox: str) -> list[InRecord]:
    """Return input rows, whose timestamps are in microseconds, as records."""
    columns = dict(zip(batch.schema.names, (c.to_pylist() for c in batch.columns)))
    n = batch.num_rows
    topics = columns.get("topic") or [inbox] * n
    keys = columns.get("key") or [None] * n
    headers = columns.get("headers") or [None] * n
    return [
        InRecord(t, p, o, ts // 1000, k, v, None if h is None else [(x["key"], x["value"]) for x in h])
        for t, p, o, ts, k, v, h in zip(topics, columns["partition"], columns["offset"], columns["timestamp"], keys, columns["value"], headers)
    ]


def out_batches(records: Sequence[OutRecord | OutRecords]) -> list[pa.RecordBatch]:
    """Return output records as rows for Spark's Kafka sink, in the same order."""
    batches: list[pa.RecordBatch] = []
    for are_columns, group in itertools.groupby(records, lambda record: isinstance(record, OutRecords)):
        same_kind: list[Any] = list(group)
        batches += map(_batch_of_columns, same_kind) if are_columns else [_batch_of_records(same_kind)]
    # Combined as far as possible: a column of one batch has at most 2 GiB.
    return batches if len(batches) < 2 else pa.Table.from_batches(batches, OUTPUT).combine_chunks().to_batches()


def encode_batches(batches: Sequence[pa.RecordBatch]) -> pa.Buffer:
    """Return output rows as an Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, OUTPUT) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return sink.getvalue()


def decode_batches(body: Any) -> Iterator[pa.RecordBatch]:
    """Yield the rows of an Arrow stream in pieces of limited size, without copying them."""
    for batch in pa.ipc.open_stream(pa.py_buffer(body)):
        if batch.num_rows:
            rows = max(1, min(_SLICE_ROWS, _SLICE_BYTES * batch.num_rows // max(1, batch.nbytes)))
            yield from (batch.slice(start, rows) for start in range(0, batch.num_rows, rows))


def _batch_of_records(records: list[OutRecord]) -> pa.RecordBatch:
    topics, partitions, keys, values, headers = zip(*records) if records else ((),) * 5
    names, texts = zip(*flat) if (flat := [pair for pairs in headers for pair in pairs or ()]) else ((), ())
    offsets = np.zeros(len(records) + 1, np.int32)
    np.cumsum([len(pairs or ()) for pairs in headers], out=offsets[1:])
    arrays = [pa.array(column, field.type) for column, field in zip((topics, partitions, keys, values), OUTPUT)]
    return pa.RecordBatch.from_arrays([*arrays, _headers(offsets, pa.array(names, pa.string()), pa.array(texts, pa.binary()))], schema=OUTPUT)


def _batch_of_columns(records: OutRecords) -> pa.RecordBatch:
    n, m = len(records.values), len(records.headers)
    # Header j of record i is entry i * m + j; the columns lie one behind the other.
    order = np.arange(n * m).reshape(m, n).T.reshape(-1)
    texts = pa.concat_arrays([column.cast(pa.binary()) for _, column in records.headers]).take(pa.array(order)) if m else pa.array([], pa.binary())
    names = pa.array([name for name, _ in records.headers], pa.string()).take(pa.array(np.tile(np.arange(m), n)))
    keys = pa.nulls(n, pa.binary()) if records.keys is None else records.keys.cast(pa.binary())
    return pa.RecordBatch.from_arrays(
        [
            pa.repeat(records.topic, n),
            pa.nulls(n, pa.int32()),
            keys,
            records.values.cast(pa.binary()),
            _headers(np.arange(n + 1, dtype=np.int32) * m, names, texts),
        ],
        schema=OUTPUT,
    )


def _headers(offsets: np.ndarray, names: pa.StringArray, texts: pa.BinaryArray) -> pa.ListArray:
    kind = OUTPUT.field("headers").type
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.StructArray.from_arrays([names, texts], fields=list(kind.value_type)), type=kind)
