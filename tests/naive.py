"""Oracles: the same results computed in the plainest way, for tests to compare with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def count_windows(items: Sequence[Any], length: int, slide: int) -> list[list[Any]]:
    """Return the last ``length`` items after every ``slide`` items."""
    return [list(items[max(0, end - length):end]) for end in range(slide, len(items) + 1, slide)]


def time_windows(arrivals: Sequence[tuple[int, Any]], length_ms: int, slide_ms: int, until_ms: int) -> list[list[Any]]:
    """Return what arrived in ``[t - length, t)`` for every multiple ``t`` of the slide up to ``until_ms``.

    The first window takes everything before its end; empty windows are left out.

    :param arrivals: (ms since the start, item), in order.
    """
    windows = []
    for end in range(slide_ms, until_ms + 1, slide_ms):
        start = 0 if end == slide_ms else end - length_ms
        windows.append([item for ms, item in arrivals if start <= ms < end])
    return [w for w in windows if w]


def event_time_windows(
    steps: Sequence[Sequence[tuple[int, Any]]], length_ms: int, slide_ms: int, lag_ms: int
) -> tuple[list[tuple[int, list[Any]]], list[Any]]:
    """Return the windows ``(end, items)`` in event time, and the late items.

    :param steps: what arrives between two looks at the watermark: (timestamp in ms, item).
    """
    accepted: list[tuple[int, Any]] = []
    late: list[Any] = []
    windows: list[tuple[int, list[Any]]] = []
    watermark = newest = next_end = 0
    for step in steps:
        for ts, item in step:
            newest = max(newest, ts)
            if ts < watermark:
                late.append(item)
            else:
                accepted.append((ts, item))
        watermark = max(watermark, newest - lag_ms)
        while next_end <= watermark:
            inside = [item for ts, item in accepted if next_end - length_ms < ts <= next_end]
            if inside:
                windows.append((next_end, inside))
            elif next_end == watermark:
                break  # something with just this timestamp may still come
            next_end += slide_ms
    return windows, late


def event_count_windows(timestamps: Sequence[int], length: int, slide: int, watermark: int) -> list[list[int]]:
    """Return count windows over timestamps that are in order and distinct, as far as the watermark has come."""
    return count_windows([ts for ts in timestamps if ts <= watermark], length, slide)
