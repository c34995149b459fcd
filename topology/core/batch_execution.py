"""How a task lets a batch bolt process a segment, and acks its tuples as a whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dskype.topology.core._kernels import edge_key, stream_ids
from dskype.topology.core.acking import message_ids
from dskype.topology.core.frames import Segment
from dskype.topology.errors import FailedException, ReportedFailedException
from dskype.topology.planning.acker_streams import ACKER_ACK_STREAM_ID, ACKER_FAIL_STREAM_ID
from dskype.topology.tuples import StreamMeta, TupleBatch

__all__ = ["BatchExecution"]


class BatchExecution:
    """Executes the segments of a batch bolt; part of the task.

    :param task: the task of the bolt.
    """

    def __init__(self, task: Any) -> None:
        self._task = task
        self._batch: TupleBatch | None = None  # the one that is being executed, if it is tracked
        self._acks: Any = None  # of each of its tuples, the XOR of its children's edge ids

    def execute(self, meta: StreamMeta, first_seq: int, segment: Segment) -> None:
        """Let the bolt process a segment, and ack its tuples, or fail them if the bolt says so.

        :raises Exception: whatever else the bolt raises.
        """
        task, n = self._task, segment.n
        batch = TupleBatch(segment.columns or (), meta, n)
        tracked = task.tracking and segment.anchors is not None
        if tracked:
            batch.roots = segment.anchors
            if isinstance(segment.anchors, np.ndarray):
                batch.ids = stream_ids(edge_key(meta.task, task.id), first_seq, n)
            else:
                batch.ids = list(message_ids(meta.task, task.id, first_seq, n, segment.anchors))
            self._batch, self._acks = batch, np.zeros(n, dtype=np.int64)
        failed = False
        try:
            task.component.execute_batch(batch)
        except FailedException as error:
            failed = True
            if isinstance(error, ReportedFailedException):
                task.report_error(error)
        finally:
            acks, self._batch, self._acks = self._acks, None, None
        if tracked:
            self._settle(batch, acks, meta, failed=failed)

    def tracker(self, parents: np.ndarray) -> Callable[[Any, np.ndarray | None, int], Any] | None:
        """Return a function that gives the anchors of rows emitted as children of the present batch's rows; None if it is not tracked.

        :param parents: of each emitted row, the index of its parent.
        """
        batch, acks = self._batch, self._acks
        if batch is None:
            return None
        parents = np.asarray(parents, dtype=np.int64)

        def anchors_of(channel: Any, rows: np.ndarray | None, n: int) -> Any:
            chosen = parents if rows is None else parents[rows]
            if len(chosen) != n:
                msg = f"expected one parent row per emitted row (component {self._task.component_id!r}); given: {len(chosen)} parents for {n} rows"
                raise ValueError(msg)
            edges = stream_ids(channel.edge_key, channel.seq, n)
            np.bitwise_xor.at(acks, chosen, edges)
            if isinstance(batch.roots, np.ndarray):
                return batch.roots[chosen]
            return [_with_edge(batch.ids[p], e) for p, e in zip(chosen.tolist(), edges.tolist())]

        return anchors_of

    def _settle(self, batch: TupleBatch, acks: np.ndarray, meta: StreamMeta, *, failed: bool) -> None:
        task = self._task
        counter = task.stats.failed if failed else task.stats.acked
        counter[meta.counter] += batch.n
        if isinstance(batch.roots, np.ndarray):
            rows = np.flatnonzero(batch.roots)
            roots, values = batch.roots[rows], (batch.ids ^ acks)[rows]
        else:
            pairs = [(r, i ^ a) for ids, a in zip(batch.ids, acks.tolist()) if ids for r, i in zip(ids[::2], ids[1::2])]
            roots = np.array([r for r, _ in pairs], dtype=np.int64)
            values = np.array([v for _, v in pairs], dtype=np.int64)
        if failed:
            task.ackers.send_columns(ACKER_FAIL_STREAM_ID, [roots])
        else:
            task.ackers.send_columns(ACKER_ACK_STREAM_ID, [roots, values])


def _with_edge(ids: tuple | None, edge: int) -> Any:
    """Return the anchor of a child whose parent has several roots: each root with the child's edge."""
    if ids is None:
        return 0
    return [x for root in ids[::2] for x in (root, edge)]
