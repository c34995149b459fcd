"""Trying a distributor out on messages and subscriptions, without tasks: where subscriptions would live, what they need, and where messages would go."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dskype.distribution.base import Distributor, Sample
from dskype.distribution.routing.interest import Interest
from dskype.spouts.batch import MessageBatch, select_lists
from dskype.topology.groupings import RowTasks

__all__ = ["Trial", "interest_of", "routes_of", "try_out"]

_AT_ONCE = 100_000


class Trial(NamedTuple):
    """Where a sample would be.

    :ivar offsets: int64[n + 1]; subscription *i* would live on ``tasks[offsets[i]:offsets[i + 1]]``, int32[].
    :ivar routes: which message would go to which task; None: all to all.
    :ivar memory_bytes: what a distribution task would route by.
    """

    offsets: np.ndarray
    tasks: np.ndarray
    routes: RowTasks | None
    memory_bytes: int


def try_out(distributor: Distributor, sample: Sample, summaries: bool) -> Trial:
    """Place the subscriptions of a sample, and route its messages.

    :param summaries: whether messages are routed by what subscriptions need, too.
    """
    offsets, tasks, _ = distributor.place_all(sample, sample.thresholds)
    interest = interest_of(distributor.regions(), sample.offsets, sample.terms, offsets, tasks) if summaries else None
    routes = routes_of(distributor, sample.messages, interest)
    return Trial(offsets, tasks, routes, distributor.memory_bytes + (interest.memory_bytes if interest is not None else 0))


def interest_of(regions: int, term_offsets: np.ndarray, terms: np.ndarray, offsets: np.ndarray, tasks: np.ndarray) -> Interest:
    """Return the interest of subscriptions that count in the tasks on which they live.

    :param term_offsets: int64[n + 1]; the routing terms of subscription *i* are ``terms[term_offsets[i]:term_offsets[i + 1]]``, int64[].
    :param offsets: int64[n + 1], of their ``tasks``, as :meth:`~dskype.distribution.base.Distributor.place_all` returns them.
    """
    found, n = Interest(regions), len(offsets) - 1
    for start in range(0, n, _AT_ONCE):
        end = min(n, start + _AT_ONCE)
        owners = np.repeat(np.arange(start, end), np.diff(offsets[start : end + 1]))
        ends, own = select_lists(term_offsets, owners)
        found.add(np.repeat(tasks[offsets[start] : offsets[end]], np.diff(ends)).astype(np.int32), terms[own])
    return found


def routes_of(distributor: Distributor, messages: MessageBatch, interest: Interest | None) -> RowTasks | None:
    """Return which task gets which message, as a distribution task decides it; None: every task gets all of them.

    :param interest: in which regions are tasks; None: messages go wherever the distributor says.
    """
    if interest is None:
        return distributor.message_tasks(messages)
    wanted = distributor.wanted_tasks(messages, interest)
    if wanted is not None:
        return wanted[0]
    routes = distributor.message_tasks(messages)
    return interest.routes(messages) if routes is None else interest.filter(messages, *distributor.message_regions(messages, routes))
