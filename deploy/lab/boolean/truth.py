"""What messages match, computed in the plainest way: each message is compared with every subscription."""

from __future__ import annotations

from typing import Any

import numpy as np

from dskype.deploy.lab.boolean.subscriptions import BooleanSubscriptions
from dskype.spouts.batch import MessageBatch

__all__ = ["matches"]


def matches(subscriptions: BooleanSubscriptions, messages: MessageBatch, row: int) -> np.ndarray:
    """Return the subscriptions that the message at ``row`` satisfies, in rising order: O(all subscriptions)."""
    west, south, east, north = messages.rectangles()[row].tolist()
    boxes = subscriptions.boxes
    overlap = (boxes[:, 1] <= north) & (boxes[:, 3] >= south)
    across = np.zeros(len(boxes), bool)
    for other_west, other_east in _spans(west, east):
        direct = (boxes[:, 0] <= other_east) & (boxes[:, 2] >= other_west)
        wrapped = (boxes[:, 0] <= other_east) | (boxes[:, 2] >= other_west)
        across |= np.where(boxes[:, 0] <= boxes[:, 2], direct, wrapped)
    rows = np.flatnonzero(overlap & across)
    words = set(messages.terms[messages.offsets[row] : messages.offsets[row + 1]].tolist())
    held = [_holds(expression, words) for expression in subscriptions.expressions(rows)]
    return rows[np.array(held, bool)] if len(rows) else rows


def _spans(west: float, east: float) -> list[tuple[float, float]]:
    return [(west, east)] if west <= east else [(west, 180.0), (-180.0, east)]


def _holds(expression: Any, words: set[int]) -> bool:
    if isinstance(expression, int):
        return expression in words
    return (all if expression[0] == "and" else any)(_holds(part, words) for part in expression[1:])
