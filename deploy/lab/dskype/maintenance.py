"""Maintenance in the simulation (journal paper, section 7.4): splits and merges, by the loads of tasks alone, or with a new sample."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from dskype.deploy.client.balancing import balance, decide
from dskype.deploy.lab.dskype.workload import View, sample_of
from dskype.distribution.base import Distributor
from dskype.distribution.methods.partitioned import Partitioned, measure

__all__ = ["MONITOR", "SAMPLE", "maintain"]

MONITOR, SAMPLE = "monitor", "sample"
"""Kinds of maintenance: that of ``dskype partition watch``, which only sees the loads of tasks; and one with a new sample, which shows what
partitions cost now and where to cut them."""

_WANTED = 1.2
"""max / mean of loads at which maintenance ends."""

_FUTILE = 8
"""After this many changes without improvement, maintenance ends, as in ``dskype partition watch``."""

_MOST = 100
_MESSAGES = 20_000


def maintain(make: Callable[[Mapping[str, Any]], Distributor], plan: dict[str, Any], view: View, way: str) -> tuple[dict[str, Any], int]:
    """Return the best plan that maintenance reaches, and how many changes it took.

    Loads are subscriptions x messages of the view.

    :param make: returns the distributor of a plan.
    :param way: :data:`MONITOR` or :data:`SAMPLE`.
    """
    window = view.workload.window_messages()
    now = sample_of(window.slice(max(0, window.n - _MESSAGES), window.n), view.subscriptions, view.floors, view.filled)
    best, least, after, changes = plan, np.inf, 0, 0
    while changes <= _MOST:
        distributor = make(plan)
        if not isinstance(distributor, Partitioned):
            break
        found = measure(distributor, now)
        loads = found.subscriptions * found.messages.astype(np.float64)
        uneven = balance(loads)
        if uneven < least:
            best, least, after = plan, uneven, changes
        if uneven <= _WANTED or changes - after > _FUTILE:
            break
        updated: Any = make(distributor.with_loads(loads, now if way == SAMPLE else None))
        change = decide(loads, updated.partitions())
        if change is None:
            break
        plan, changes = updated.rearranged(change.moved, change.halved, now if way == SAMPLE else None), changes + 1
    return best, after
