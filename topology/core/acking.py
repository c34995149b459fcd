"""Tuple trees, seen from a task: the message ids of what it receives, and what it tells the ackers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from dskype.topology.core._kernels import edge_key, stream_ids
from dskype.topology.core.channels import Outbox, OutStream
from dskype.topology.planning.acker_streams import ACKER_COMPONENT_ID
from dskype.topology.planning.plan import TopologyPlan

__all__ = ["AckerChannels", "message_ids"]


class AckerChannels:
    """Sends rows to the ackers.

    :param plan: the topology plan; one without ackers gets no rows.
    :param outs: the task's streams.
    :param outbox: its channels.
    """

    def __init__(self, plan: TopologyPlan, outs: Mapping[str, OutStream], outbox: Outbox) -> None:
        self._outs, self._outbox = outs, outbox
        self._tasks = plan.component_tasks(ACKER_COMPONENT_ID) if ACKER_COMPONENT_ID in plan.topology.components else []

    def send(self, stream: str, root: int, row: tuple) -> None:
        """Send a row to the acker task of a root."""
        out, ackers = self._outs[stream], self._tasks
        task = ackers[root % len(ackers)] if len(ackers) > 1 else ackers[0]
        channel = self._outbox.channels.get(task) or self._outbox.channel(task)
        if channel.out is not out:
            channel.open(out)
        channel.rows.append(row)
        out.emitted += 1
        out.transferred += 1

    def send_columns(self, stream: str, columns: list[np.ndarray]) -> None:
        """Send rows to the acker tasks of their roots.

        :param columns: int64 arrays of equal length; the first one has the roots.
        """
        out, ackers, roots = self._outs[stream], self._tasks, columns[0]
        out.emitted += len(roots)
        out.transferred += len(roots)
        which = roots % len(ackers)
        for index, task in enumerate(ackers):
            part = which == index if len(ackers) > 1 else slice(None)
            if n := len(roots[part]):
                channel = self._outbox.channel(task)
                channel.close_rows()
                channel.add_columns(out, n, [column[part] for column in columns], None)


def message_ids(source: int, target: int, first_seq: int, n: int, anchors: Any) -> Iterator[tuple | None]:
    """Return the message ids of ``n`` tuples on a channel: (root, edge, ...), or None for an untracked tuple.

    :param source: the task that has sent them.
    :param target: the task that has received them.
    :param first_seq: number of the first one.
    :param anchors: their anchors, as a segment has them.
    """
    edges = stream_ids(edge_key(source, target), first_seq, n).tolist()
    if isinstance(anchors, np.ndarray) and anchors.all():
        return zip(anchors.tolist(), edges)
    return _mixed_ids(anchors.tolist() if isinstance(anchors, np.ndarray) else anchors, edges)


def _mixed_ids(anchors: list[Any], edges: list[int]) -> Iterator[tuple | None]:
    """Yield the ids of tuples of which some are untracked, or have several roots."""
    for root, edge in zip(anchors, edges):
        if not root:
            yield None
        elif type(root) is int:
            yield (root, edge)
        else:
            yield tuple(root)
