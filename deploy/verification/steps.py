"""Objects: what became of them, one update after another, and how long their states counted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dskype.deploy.verification.replay import History
from dskype.spouts.settings import Settings

__all__ = ["Step", "ends_of", "may_be_refused", "steps_of"]

_FAR = 1 << 62


class Step(NamedTuple):
    """A step in the life of an object.

    :ivar at: position; ``arrived_ms``: when the message arrived that caused it, or the time at which the object expired.
    :ivar message: row of the message that results name.
    :ivar old, new: rows of the states before and after it; -1: there is none.
    """

    at: int
    arrived_ms: int
    message: int
    object: str
    old: int
    new: int


def steps_of(history: History, settings: Settings) -> list[Step]:
    """Return the steps of all objects up to the newest message, in no particular order between objects."""
    rows_of: dict[str, list[int]] = {}
    for row, state in history.states.items():
        if history.position[row] <= history.newest:
            rows_of.setdefault(state.object, []).append(row)
    steps: list[Step] = []
    for name, rows in rows_of.items():
        old = -1
        for row in [*sorted(rows), -1]:
            now = history.newest + 1 if row < 0 else int(history.position[row])
            if old >= 0 and settings.objects_ttl_ms is not None and (end := int(history.position[old]) + settings.objects_ttl_ms) < now:
                steps.append(Step(end, end, old, name, old, -1))
                old = -1
            if row < 0:
                break
            state = history.states[row]
            if old >= 0 and state.own_ms < history.states[old].own_ms:
                continue
            new = -1 if state.deleted else row
            if old >= 0 or new >= 0:
                steps.append(Step(now, int(history.arrival_ms[row]), row, name, old, new))
            old = new
    return steps


def may_be_refused(steps: Sequence[Step], settings: Settings) -> bool:
    """Tell whether there were so many objects at a time that a task may have left some out."""
    return bool(steps) and np.cumsum([(step.new >= 0) - (step.old >= 0) for step in sorted(steps, key=lambda one: one.at)]).max() > settings.objects_max


def ends_of(history: History, steps: Sequence[Step]) -> np.ndarray:
    """Return the position from which on each message counts in no list any more, int64[n]; of what became no state, its own."""
    ends = np.full(len(history), _FAR)
    states = np.array(sorted(history.states), np.int64)
    ends[states] = history.position[states]
    began = np.array([step.new for step in steps if step.new >= 0], np.int64)
    ends[began] = _FAR
    ended = [step for step in steps if step.old >= 0]
    ends[np.array([step.old for step in ended], np.int64)] = [step.at for step in ended]
    return ends
