"""Tasks of spouts: pulses, tracked tuples and timeouts. Those of Kafka spouts are in ``kafka_spout.py``.

A spout may be unpredictable (clocks, sockets, randomness). So its state and everything that it emitted in a batch are
journaled before the batch is released. After a crash, the records of the journal are released again with the same
numbers, and the spout continues behind them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from math import inf
from time import perf_counter, perf_counter_ns
from typing import Any

import numpy as np

from dskype.topology.config import Config
from dskype.topology.core import steady_clock
from dskype.topology.core._kernels import root_key, stream_ids
from dskype.topology.core.collectors import SpoutOutputCollector
from dskype.topology.core.frames import WAKE, Control, DataFrame, Pulse, Segment, Tick
from dskype.topology.core.observed import ObservedSpoutOutputCollector
from dskype.topology.core.pending_trees import PendingTrees, Tree
from dskype.topology.core.task import Task
from dskype.topology.core.values import FrameError
from dskype.topology.errors import FatalError, TopologyError
from dskype.topology.hooks import SpoutAckInfo, SpoutFailInfo
from dskype.topology.planning.acker_streams import ACKER_ACK_STREAM_ID, ACKER_INIT_STREAM_ID, ACKER_RESET_TIMEOUT_STREAM_ID
from dskype.topology.planning.plan import TopologyPlan
from dskype.topology.tuples import InRecord, column_to_list

__all__ = ["ServiceAwayError", "SpoutTask"]

_ROOT_BLOCK = 1024


class ServiceAwayError(TopologyError):
    """A service that the component needs for its records is away: the query is restarted, and they are read again."""

    retriable = True


class SpoutTask(Task):
    """A task of a spout."""

    def __init__(self, plan: TopologyPlan, task: int, now_ms: Callable[[], int]) -> None:
        super().__init__(plan, task, now_ms)
        self.active = False
        self.credit = 1
        self.idle = False  # whether the component had nothing to emit when it was asked last
        self.unfinished = False  # whether its last turn ended by time, so that it may have more to emit
        self.pulse = 0
        self._roots_made = 0
        self._root_block: list[int] = []
        self._trees = PendingTrees(self._report_unpackable)
        self._settle: deque[tuple[bool, Any]] = deque()
        self.limited = False
        self.pending_room: Callable[[], float] = lambda: inf
        """How many tracked tuples ``topology.max.spout.pending`` lets the spouts of this executor emit now."""
        self._max_secs = self.conf[Config.TOPOLOGY_EMULATOR_PULSE_MAX_MS] / 1000
        # Asked for each tuple, so it is the cheaper clock; but a simulation has its own, or a run would depend on how busy the machine is.
        self._clock_s: Callable[[], float] = perf_counter if now_ms is steady_clock.now_ms else lambda: now_ms() / 1000
        self.unpackable_ids = False

    def _open(self) -> None:
        self.collector = ObservedSpoutOutputCollector(self) if self.observed else SpoutOutputCollector(self)
        self.context.on_hook = self._call_hooks
        if self.context.get_hooks():
            self._call_hooks()
        self.component.open(self.conf, self.context, self.collector)
        if self.active:  # a restart after an exception
            self.component.activate()

    def _call_hooks(self) -> None:
        self.collector.__class__ = ObservedSpoutOutputCollector

    @property
    def pending(self) -> int:
        """Tracked tuples whose trees are neither complete nor failed."""
        return len(self._trees)

    def pending_limit(self) -> bool:
        """Tell whether ``topology.max.spout.pending`` lets no tuple be emitted now."""
        return self.pending_room() <= 0

    # -- pulses and control -----------------------------------------------------------------------

    def _run_control(self, frame: Pulse | Control) -> None:
        if isinstance(frame, Pulse):
            self.credit, self.pulse = frame.credit, frame.number
            if self.active and self.credit:
                self._emit()
        elif frame.command == WAKE:
            if self.active and self.credit:
                self._emit()
        elif frame.command == "activate" and not self.active:
            self.active = True
            self._guard(self.component.activate)
        elif frame.command == "deactivate" and self.active:
            self.active = False
            self._guard(self.component.deactivate)
        else:
            self.system.control(frame.command)

    def process(self, records: Iterable[InRecord]) -> None:
        settled = self.stats.acked, self.stats.failed
        before = [sum(counter.values()) for counter in settled]
        super().process(records)
        # A spout limited by topology.max.spout.pending continues as soon as trees are settled, without waiting for the next pulse.
        if self.limited and self.active and self.credit and before != [sum(counter.values()) for counter in settled]:
            self._emit()

    def _guard(self, call: Callable[..., None], *args: Any) -> None:
        try:
            call(*args)
        except (FatalError, ServiceAwayError):  # restarting the spout would not help
            raise
        except Exception as error:  # the user's code: restart the component, as a worker of Storm would
            self._restart(error)
        while self._settle:
            completed, message_id = self._settle.popleft()
            self._settled(completed, message_id)

    def _emit(self) -> None:
        started, collector = perf_counter_ns(), self.collector  # a restart replaces self.collector
        first = collector.emits
        self._guard(self._emit_loop)
        self.credit = max(0, self.credit - (collector.emits - first))
        self.stats.busy_ns += perf_counter_ns() - started

    @property
    def askable(self) -> bool:
        """Whether it is idle, and may be asked for tuples."""
        return self.idle and self.active and self.credit > 0

    def emit(self) -> bool:
        """Ask the component for tuples; return whether there is something to release."""
        before = self.collector.emits, len(self.errors.lines)
        self._emit()
        return (self.collector.emits, len(self.errors.lines)) != before

    def _emit_loop(self) -> None:
        collector = self.collector
        first = collector.emits
        deadline = self._clock_s() + self._max_secs
        self.idle = self.unfinished = False
        full = self._roots_made + self.pending_room()  # nothing but emitting changes the number of pending trees here
        while self._roots_made < full:
            before = collector.emits
            self.component.next_tuple()
            if collector.emits == before:  # nothing to emit
                self.idle = True
                return
            if collector.emits - first >= self.credit:
                return
            if self._clock_s() > deadline:
                self.unfinished = True
                return

    # -- tracking ---------------------------------------------------------------------------------

    def new_root(self) -> int:
        """Return the id of the next tuple tree."""
        if not self._root_block:
            self._root_block = stream_ids(root_key(self.id), self._roots_made, _ROOT_BLOCK).tolist()[::-1]
        self._roots_made += 1
        return self._root_block.pop()

    def track(self, root: int, edges: int, message_id: Any, stream: str) -> None:
        """Remember a tracked tuple and notify its acker."""
        trees = self._trees
        trees.newer[root] = tree = (root, message_id, stream, self._wall_ms())
        trees.added.append(tree)
        self.ackers.send(ACKER_INIT_STREAM_ID, root, (root, edges, self.id))

    def ack_at_once(self, message_id: Any, stream: str) -> None:
        """Ack a tuple with a message id in a topology without ackers."""
        self.stats.acked[stream] += 1
        self._settle.append((True, message_id))

    def _settled(self, completed: bool, message_id: Any, latency_ms: int | None = None) -> None:
        """Call the component's ``ack`` or ``fail``, and the hooks.

        :param latency_ms: time since the emit; None in a topology without ackers.
        """
        try:
            (self.component.ack if completed else self.component.fail)(message_id)
            for hook in self.context.get_hooks():
                if completed:
                    hook.spout_ack(SpoutAckInfo(message_id, self.id, latency_ms))
                else:
                    hook.spout_fail(SpoutFailInfo(message_id, self.id, latency_ms))
        except Exception as error:  # the user's code
            self._restart(error)

    def _end_trees(self, trees: Iterable[Tree], completed: bool) -> None:
        """Count trees that are complete, have failed or have timed out, and tell the component."""
        stats, wall_ms, settled = self.stats, self._wall_ms, self._settled
        counter, latency = stats.acked if completed else stats.failed, stats.complete
        for _, message_id, stream, emitted_ms in trees:
            latency_ms = max(0, wall_ms() - emitted_ms)
            counter[stream] += 1
            if completed:
                latency.count += 1
                latency.total_ns += latency_ms * 1_000_000
            try:
                settled(completed, message_id, latency_ms)
            except Exception as error:  # the component could not be restarted
                self._restart(error)

    def _check(self, frame: DataFrame) -> None:
        super()._check(frame)
        for segment in frame.segments:
            if not segment.columns:
                continue
            roots = segment.columns[0]
            if not (roots.ndim == 1 and roots.dtype.kind in "iu" if isinstance(roots, np.ndarray) else type(roots) is list and set(map(type, roots)) <= {int}):
                msg = f"a frame of stream {segment.stream!r:.80} has roots that are not integers; given: {roots!r:.80}"
                raise FrameError(msg)

    def _run_segment(self, source: int, first_seq: int, segment: Segment) -> None:
        roots = column_to_list(segment.columns[0]) if segment.columns else []
        if segment.stream == ACKER_RESET_TIMEOUT_STREAM_ID:
            self._trees.renew(roots)
        else:
            self._end_trees(self._trees.take(roots), segment.stream == ACKER_ACK_STREAM_ID)

    def _run_tick(self, tick: Tick) -> None:
        """Rotate the generations: trees in the older one have waited for one to two timeouts, and fail."""
        if tick.rate_secs == 0 and self.conf[Config.TOPOLOGY_ENABLE_MESSAGE_TIMEOUTS]:
            self._end_trees(self._trees.rotate(), False)

    # -- state ------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        return super().snapshot() | {
            "pulse": self.pulse,
            "active": self.active,
            "credit": self.credit,
            "roots_made": self._roots_made,
            "trees": self._trees.snapshot(),
        }

    def _report_unpackable(self) -> None:
        if not self.unpackable_ids:
            self.unpackable_ids = True
            self.report_error(
                "message ids that are not plain values (str, int, bytes, tuple, ...) do not survive a "
                "crash of the spout: their trees are neither acked nor failed then"
            )

    def restore(self, state: dict[str, Any]) -> None:
        super().restore(state)
        self._root_block.clear()
        self._settle.clear()
        self.credit, self.pulse, self._roots_made = state["credit"], state["pulse"], state["roots_made"]
        if "trees" in state:
            self._trees.restore(state["trees"])
        else:  # a journal of an earlier version
            self._trees.restore_rows(*state["pending"])
        if state["active"] and not self.active:
            self.active = True
            self._guard(self.component.activate)

    def report(self) -> dict[str, Any]:
        return super().report() | {"pulse": self.pulse, "pending": self.pending, "active": self.active}

    def positions(self) -> dict[tuple[str, int], int]:
        """Return (topic, partition) -> next offset, for everything that this task reads."""
        return {(self.inbox, self.index): self.version}

    def process_external(self, records: Iterable[InRecord]) -> None:
        """Process records of external topics; only a Kafka spout gets any."""
