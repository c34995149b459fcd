"""Frames with messages between the tasks of a routing simulation, encoded and decoded as in a topology."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from dskype.spouts import streams
from dskype.spouts.batch import MessageBatch
from dskype.spouts.columns import csr_to_lists, lists_to_csr
from dskype.topology.core.frames import decode_frame, encode_data, encode_segment
from dskype.topology.core.values import take_column
from dskype.topology.groupings import RowTasks

__all__ = ["Frames", "decoded", "encode_frames", "ids_of", "message_columns"]


class Frames(NamedTuple):
    """What a distribution task sends for some messages.

    :ivar values: by task; None: nothing.
    :ivar received: int64[tasks], messages; ``bytes``: int64[tasks].
    """

    values: list[bytes | None]
    received: np.ndarray
    bytes: np.ndarray


def ids_of(m: MessageBatch) -> pa.Array:
    """Return ids of messages: their sequence numbers as text."""
    return pa.array(list(map(str, m.seq.tolist())), pa.string())


def message_columns(m: MessageBatch, ids: pa.Array) -> list[Any]:
    """Return the columns of the stream ``matching``."""
    return [m.seq, m.position, ids, m.lat, m.lon, csr_to_lists(m.offsets, m.terms), csr_to_lists(m.offsets, m.weights), np.zeros(m.n, np.int64)]


def encode_frames(columns: list[Any], routes: RowTasks | None, tasks: int) -> Frames:
    """Encode the frame of each task.

    :param columns: from :func:`message_columns`.
    :param routes: which message goes to which task; None: every message to every task.
    """
    n = len(columns[0])
    if routes is None:
        for _ in range(tasks):  # encode one frame per task, as the bolt does, but keep only one of these equal frames
            value = encode_data(0, 0, [encode_segment(streams.MATCHING, n, columns, None)])
        return Frames([value] * tasks, np.full(tasks, n), np.full(tasks, len(value)))
    order = np.argsort(routes.tasks, kind="stable")
    bounds = np.searchsorted(routes.tasks[order], np.arange(tasks + 1))
    values: list[bytes | None] = []
    for first, last in zip(bounds[:-1].tolist(), bounds[1:].tolist()):
        value = None
        if first < last:
            rows = routes.rows[order[first:last]]
            part = [take_column(column, rows) for column in columns]
            value = encode_data(0, 0, [encode_segment(streams.MATCHING, last - first, part, None)])
        values.append(value)
    return Frames(values, np.diff(bounds), np.array([len(value or b"") for value in values]))


def decoded(frame: bytes | None) -> MessageBatch:
    """Return the messages of a frame, as the subscription bolt reads them."""
    if frame is None:
        return MessageBatch.empty()
    seq, position, _, lat, lon, terms, weights, _ = decode_frame(frame).segments[0].columns
    offsets, flat_terms = lists_to_csr(terms, np.int64)
    return MessageBatch(*(np.array(array) for array in (seq, position, lat, lon, offsets, flat_terms, lists_to_csr(weights, np.float64)[1])))
