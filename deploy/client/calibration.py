"""Measures the constants of the load model on this machine (PS2Stream, definition 1): ``dskype partition calibrate``."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, cast

import numpy as np
import pyarrow as pa

from dskype.bolts.boolean import BooleanIndex, make_index
from dskype.distribution.base import Sample
from dskype.distribution.hybrid.leaf_loads import checked_subscriptions
from dskype.distribution.hybrid.loads import LoadModel
from dskype.spouts.batch import Details, MessageBatch
from dskype.spouts.columns import csr_to_lists
from dskype.spouts.streams import Matching
from dskype.topology.core.frames import decode_frame, encode_data, encode_segment

__all__ = ["SIZES", "Point", "calibrate", "fitted"]

SIZES = (5_000, 20_000, 80_000)
"""Numbers of subscriptions that are measured."""

_MESSAGES, _WORDS, _WORDS_PER_MESSAGE, _SIDE_DEG, _SPACE_DEG, _REPEAT = 4_096, 20_000, 8, 0.25, 4.0, 5


class Point(NamedTuple):
    """One measurement.

    :ivar subscriptions: in the index; ``checked``: of them, those that a message makes the index check, on average.
    :ivar message_us: to decode and match a message; ``insert_us``, ``remove_us``: of a subscription.
    """

    subscriptions: int
    checked: float
    message_us: float
    insert_us: float
    remove_us: float


def calibrate(index: str = "lanes", sizes: tuple[int, ...] = SIZES, seed: int = 0) -> LoadModel:
    """Measure a boolean index with some numbers of subscriptions, and return the constants that fit best.

    Everything is done several times, each time with a new index, and the least time counts. So the first run, which also compiles kernels and touches memory, does not count.
    The garbage collector is off meanwhile, because what the compiler leaves behind makes it slow.

    Messages have words by a power law and lie evenly in a square; subscriptions are smaller squares with one word each.

    :param index: its name.
    """
    rng = np.random.default_rng([seed, 41])
    messages = _messages(rng)
    sent = Matching(
        seq=messages.seq,
        position=messages.position,
        id=pa.array(map(str, messages.seq), pa.string()),
        lat=messages.lat,
        lon=messages.lon,
        terms=csr_to_lists(messages.offsets, messages.terms),
        weights=csr_to_lists(messages.offsets, messages.weights),
        arrival_ms=np.zeros(messages.n, np.int64),
        **Details.empty(messages.n).columns(),
    )
    frame = encode_data(0, 0, [encode_segment(sent.name, messages.n, list(sent.values()), None)])
    collecting = gc.isenabled()
    gc.disable()
    try:
        return fitted([_point(index, messages, frame, n, rng) for n in sizes])
    finally:
        if collecting:
            gc.enable()


def fitted(points: list[Point]) -> LoadModel:
    """Return the constants by least squares; the slopes are at least 0, and a message costs at most what it cost with the fewest subscriptions."""
    us = np.array([point.message_us for point in points])
    least = min(points).message_us

    def line(x: list[float]) -> tuple[float, float]:
        slope, start = np.polyfit(x, us, 1) if len(points) > 1 else (0.0, us[0])
        return max(0.0, float(slope)), float(np.clip(start, 0.0, least))

    pair_us, _ = line([float(point.subscriptions) for point in points])
    check_us, message_us = line([point.checked for point in points])
    insert_us, remove_us = (float(np.mean([getattr(point, name) for point in points])) for name in ("insert_us", "remove_us"))
    return LoadModel(*(float(f"{x:.3g}") for x in (pair_us, check_us, message_us, insert_us, remove_us)))


def _draw_words(rng: np.random.Generator, n: int) -> np.ndarray:
    """Draw words by a power law; a high id is frequent."""
    return _WORDS - 1 - np.minimum(_WORDS - 1, (rng.pareto(1.0, n) * 20).astype(np.int64))


def _messages(rng: np.random.Generator) -> MessageBatch:
    words = [np.unique(some) for some in _draw_words(rng, _MESSAGES * _WORDS_PER_MESSAGE).reshape(_MESSAGES, -1)]
    offsets = np.concatenate([[0], np.cumsum([len(some) for some in words])]).astype(np.int64)
    lat, lon = rng.uniform(0.0, _SPACE_DEG, (2, _MESSAGES))
    number = np.arange(_MESSAGES)
    return MessageBatch(number, number, lat, lon, offsets, np.concatenate(words), np.ones(int(offsets[-1])))


def _match(index: BooleanIndex, frame: bytes) -> None:
    """Do what a subscription task does with a frame of messages."""
    index.match(MessageBatch.of(Matching.make(cast(Any, decode_frame(frame)).segments[0].columns)))


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _point(name: str, messages: MessageBatch, frame: bytes, n: int, rng: np.random.Generator) -> Point:
    """Measure an index with ``n`` subscriptions."""
    lat, lon = rng.uniform(0.0, _SPACE_DEG, (2, n))
    boxes = np.stack([lon - _SIDE_DEG / 2, lat - _SIDE_DEG / 2, lon + _SIDE_DEG / 2, lat + _SIDE_DEG / 2], axis=1)
    terms, slots, some = _draw_words(rng, n), np.arange(n), rng.permutation(n)[: n // 5]
    least = np.full(3, np.inf)
    for _ in range(_REPEAT):
        index = make_index(name)
        insert_s = _seconds(partial(index.insert_many, slots, boxes, terms.tolist()))
        match_s = min(_seconds(partial(_match, index, frame)) for _ in range(_REPEAT))
        least = np.minimum(least, [match_s, insert_s, _seconds(partial(index.remove_many, some))])
    message_us, insert_us, remove_us = (least / [messages.n, n, len(some)] * 1e6).tolist()
    ones = np.ones(n)
    sample = Sample(messages, ones.astype(np.int64), ones, lat, lon, np.arange(n + 1), terms, ones, ones, ones, boxes)
    return Point(n, float(checked_subscriptions(sample).sum()) / messages.n, message_us, insert_us, remove_us)
