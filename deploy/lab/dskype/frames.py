"""Frames with messages between the tasks of a routing simulation, encoded and decoded as in a topology."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from dskype.spouts.batch import Details, MessageBatch
from dskype.spouts.columns import csr_to_lists
from dskype.spouts.streams import Matching
from dskype.topology.core.frames import decode_frame, encode_data, encode_segment
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


def message_columns(m: MessageBatch, ids: pa.Array) -> Matching:
    """Return messages as they travel."""
    return Matching(
        seq=m.seq,
        position=m.position,
        id=ids,
        lat=m.lat,
        lon=m.lon,
        terms=csr_to_lists(m.offsets, m.terms),
        weights=csr_to_lists(m.offsets, m.weights),
        arrival_ms=np.zeros(m.n, np.int64),
        **Details.empty(m.n).columns(),
    )


def encode_frames(messages: Matching, routes: RowTasks | None, tasks: int) -> Frames:
    """Encode the frame of each task.

    :param messages: from :func:`message_columns`.
    :param routes: which message goes to which task; None: every message to every task.
    """
    n = len(messages.seq)
    if routes is None:
        for _ in range(tasks):  # encode one frame per task, as the bolt does, but keep only one of these equal frames
            value = encode_data(0, 0, [encode_segment(Matching.name, n, list(messages.values()), None)])
        return Frames([value] * tasks, np.full(tasks, n), np.full(tasks, len(value)))
    order = np.argsort(routes.tasks, kind="stable")
    bounds = np.searchsorted(routes.tasks[order], np.arange(tasks + 1))
    values: list[bytes | None] = []
    for first, last in zip(bounds[:-1].tolist(), bounds[1:].tolist()):
        value = None
        if first < last:
            rows = routes.rows[order[first:last]]
            value = encode_data(0, 0, [encode_segment(Matching.name, last - first, list(messages.take(rows).values()), None)])
        values.append(value)
    return Frames(values, np.diff(bounds), np.array([len(value or b"") for value in values]))


def decoded(frame: bytes | None) -> MessageBatch:
    """Return the messages of a frame, as the subscription bolt reads them."""
    if frame is None:
        return MessageBatch.empty()
    return MessageBatch.of(Matching.make(decode_frame(frame).segments[0].columns))
