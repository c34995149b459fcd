"""A task with boolean subscriptions: what it finds and what expires, step by step; ``test_another_process.py`` runs this in a process of its own, too."""

from __future__ import annotations

import pickle
import sys
import traceback
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from dskype.bolts.boolean_subscriptions import BooleanSubscriptions
from dskype.bolts.message_queue import Arrived
from dskype.distribution.subscriptions import BooleanSubscription
from dskype.spouts.batch import Details
from dskype.spouts.settings import Settings
from dskype.topology.core.values import unpack_state

from .oracle import messages_of, pairs


class Step(NamedTuple):
    """What a task is given.

    :ivar gone: slots that are emptied first.
    :ivar new: subscriptions that begin then, by name.
    :ivar rows: messages as in :func:`~tests.bolts.boolean.oracle.messages_of`; ``arrival_ms``: when each of them arrives.
    """

    gone: Sequence[int]
    new: dict[str, BooleanSubscription]
    rows: Sequence[Any]
    arrival_ms: Sequence[int]


def empty_task(index: str) -> BooleanSubscriptions:
    """Return a task without subscriptions."""
    return BooleanSubscriptions(Settings(boolean_index=index))


def play(task: BooleanSubscriptions, steps: Sequence[Step]) -> list[tuple[list[tuple[int, int]], list[int]]]:
    """Return for each step the pairs (message, slot), and the slots that expire."""
    found = []
    for step in steps:
        for slot in step.gone:
            task.forget(slot)
        for name, subscription in step.new.items():
            task.open(name, f"registration of {name}", subscription)
        task._index._check()
        arrived = Arrived(messages_of(step.rows), pa.array(map(str, range(len(step.rows)))), np.array(step.arrival_ms), Details.empty(len(step.rows)))
        found.append((pairs(task.match(arrived)[:2]), task.pop_expired(arrived)))
    return found


def continue_from(index: str, state: bytes, steps: Sequence[Step]) -> Any:
    """Return what :func:`play` does after a state was restored, or the text of an error: other indexes go on."""
    try:
        task = empty_task(index)
        task.restore(unpack_state(state))
        return play(task, steps)
    except Exception:
        return traceback.format_exc()


def main() -> None:
    """Continue from the states that are given, by the name of the index."""
    states, steps = pickle.load(sys.stdin.buffer)
    pickle.dump({index: continue_from(index, state, steps) for index, state in states.items()}, sys.stdout.buffer)


if __name__ == "__main__":
    main()
