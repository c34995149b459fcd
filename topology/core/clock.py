"""The clock of a topology: pulses that drive spouts, ticks, and back-pressure.

Time enters a topology as records, so that a task which runs its inbox again sees the same time at
the same place. The driver (or the simulated transport) asks :meth:`TopologyClock.due` what to write.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from dskype.topology.config import Config
from dskype.topology.core.frames import encode_control, encode_pulse, encode_tick
from dskype.topology.core.pressure import Pressure
from dskype.topology.core.stats import TopologyStats
from dskype.topology.planning.acker import ACKER_COMPONENT_ID
from dskype.topology.planning.plan import TopologyPlan, inbox_topic

__all__ = ["ClockRecord", "TopologyClock"]

_PULSES_AHEAD = 8
"""Pulses written and not yet seen by a spout task; more would only queue up."""

_ASK_AGAIN_MS = 1000
"""A spout task that has not said for so long that it saw a pulse is asked again. After a crash what it emitted last may be in its journal alone:
that is released with its next batch, and without a pulse there is none."""

_SHORT_QUEUE_MS, _SHARE_OF_QUEUE = 1000, 0.2
"""What is on its way and takes longer than that: what is emitted now has to wait so long, so a pulse may come a fifth of the rest later."""


class ClockRecord(NamedTuple):
    """A frame of the clock and the inbox partition it is for."""

    topic: str
    partition: int
    value: bytes


@dataclass(slots=True)
class _SpoutClock:
    component: str
    topic: str
    partition: int
    interval_ms: int
    idle_interval_ms: int
    max_tuples: int
    next_ms: int = 0
    written_ms: int = 0
    wait_ms: int = 0
    number: int = 0
    credit: int = 1
    emitted: int = 0
    granted: deque[tuple[int, int]] = field(default_factory=deque)  # pulses that it has not seen, and their credits
    had: int = 0  # emitted when it saw the last one
    idle: bool = False  # it had nothing to emit then, though it might have
    held_back: bool = False  # it emitted most of what it might

    def note(self, seen: int, emitted: int) -> None:
        """Take in what the spout reports."""
        allowed, made = 0, emitted - self.had
        while self.granted and self.granted[0][0] <= seen:
            allowed += self.granted.popleft()[1]
        if allowed:
            self.held_back = 2 * made >= allowed
        if made:
            self.had, self.idle = emitted, False
        elif allowed:
            self.idle = True

    @property
    def expected(self) -> int:
        """How much it may still emit because of pulses that it has not seen; nothing if there seems to be nothing."""
        return 0 if self.idle else sum(credit for _, credit in self.granted)


@dataclass(slots=True)
class _TickClock:
    topic: str
    partitions: int
    every_ms: int
    rate_secs: int
    next_ms: int


class TopologyClock:
    """Decides when spouts are pulsed and who gets a tick.

    A spout that emits is pulsed every ``topology.emulator.pulse.interval.ms``; less often, with more at a time, while it would emit more than
    it may and so much is on its way that nothing is gained by haste: fewer and larger micro-batches do the same work in less time. One that had nothing
    to emit is asked less and less often, down to ``...pulse.idle.interval.ms``. Nobody is pulsed while more than
    ``...backpressure.max.tuples`` tuples are on their way, or more than are dealt with in ``...backpressure.max.ms``
    (:class:`~dskype.topology.core.pressure.Pressure`): what bolts find hard must not become a micro-batch that takes minutes.

    :param plan: the physical plan.
    :param stats: live statistics, fed from the metrics topic.
    :param now_ms: the time at which the clock starts.
    """

    def __init__(self, plan: TopologyPlan, stats: TopologyStats, now_ms: int) -> None:
        self._plan, self._stats = plan, stats
        self._pressure = Pressure(
            plan, stats, now_ms, tuples=plan.conf[Config.TOPOLOGY_EMULATOR_BACKPRESSURE_MAX_TUPLES], ms=plan.conf[Config.TOPOLOGY_EMULATOR_BACKPRESSURE_MAX_MS]
        )
        self._spouts: dict[int, _SpoutClock] = {}
        self._ticks: list[_TickClock] = []
        tracking = ACKER_COMPONENT_ID in plan.topology.components
        for component, spec in plan.topology.components.items():
            conf = plan.component_conf(component)
            topic, tasks = inbox_topic(plan.name, component), plan.component_tasks(component)
            rate = conf[Config.TOPOLOGY_TICK_TUPLE_FREQ_SECS]
            if spec.kind == "spout":
                for task in tasks:
                    self._spouts[task] = _SpoutClock(
                        component,
                        topic,
                        plan.task_index(task),
                        conf[Config.TOPOLOGY_EMULATOR_PULSE_INTERVAL_MS],
                        conf[Config.TOPOLOGY_EMULATOR_PULSE_IDLE_INTERVAL_MS],
                        conf[Config.TOPOLOGY_EMULATOR_PULSE_MAX_TUPLES],
                    )
            if spec.kind == "spout" or component == ACKER_COMPONENT_ID:
                # Without timeouts the acker forgets nothing either: a tree may be completed at any time.
                if tracking and conf[Config.TOPOLOGY_ENABLE_MESSAGE_TIMEOUTS]:
                    timeout_ms = int(conf[Config.TOPOLOGY_MESSAGE_TIMEOUT_SECS] * 1000)
                    self._ticks.append(_TickClock(topic, len(tasks), timeout_ms, 0, now_ms + timeout_ms))
            elif rate is not None:
                self._ticks.append(_TickClock(topic, len(tasks), int(rate * 1000), rate, now_ms + int(rate * 1000)))
            interval_of = getattr(spec.obj, "clock_interval_ms", None)
            if interval_of is not None and (interval_ms := interval_of(conf)):  # windowed bolts
                self._ticks.append(_TickClock(topic, len(tasks), interval_ms, 0, now_ms + interval_ms))

    def control(self, command: str, now_ms: int) -> list[ClockRecord]:
        """Return the records that tell every spout task to activate or deactivate."""
        value = encode_control(command, now_ms)
        return [ClockRecord(s.topic, s.partition, value) for s in self._spouts.values()]

    def snapshot_requests(self, now_ms: int) -> list[ClockRecord]:
        """Return the records that ask every bolt task for a snapshot when its next batch begins."""
        value = encode_control("snapshot", now_ms)
        return [
            ClockRecord(inbox_topic(self._plan.name, c), self._plan.task_index(task), value)
            for c, spec in self._plan.topology.components.items()
            if not spec.is_spout
            for task in self._plan.component_tasks(c)
        ]

    def due(self, now_ms: int, *, active: bool) -> list[ClockRecord]:
        """Return what has to be written by now."""
        records = []
        for tick in self._ticks:
            if now_ms >= tick.next_ms:
                tick.next_ms += tick.every_ms * (1 + (now_ms - tick.next_ms) // tick.every_ms)
                value = encode_tick(tick.rate_secs, now_ms)
                records += [ClockRecord(tick.topic, p, value) for p in range(tick.partitions)]
        if active:
            room = self._pressure.room(now_ms)
            for task, spout in self._spouts.items():
                spout.note(*self._reported(task))
            busy = sum(not spout.idle for spout in self._spouts.values())
            for task, spout in self._spouts.items():
                # An equal share for each, also for one that seems to have nothing.
                if now_ms >= spout.next_ms and (record := self._pulse(task, spout, now_ms, room / (busy + spout.idle))):
                    records.append(record)
        return records

    def next_due_ms(self, *, active: bool) -> int:
        """Return the time at which :meth:`due` will next have something to say."""
        times = [tick.next_ms for tick in self._ticks]
        if active:
            times += [spout.next_ms for spout in self._spouts.values()]
        return min(times, default=1 << 62)

    def unseen_pulses(self) -> dict[int, int]:
        """Return spout task -> pulses that were written and that it has not seen."""
        return {task: n for task, spout in self._spouts.items() if (n := spout.number - self._reported(task)[0]) > 0}

    def _reported(self, task: int) -> tuple[int, int]:
        """Return the last pulse that a spout's task has seen, and how much it has emitted."""
        report = self._stats.tasks.get(task)
        return (report["pulse"], sum(report["emitted"].values())) if report else (0, 0)

    def _pulse(self, task: int, spout: _SpoutClock, now_ms: int, room: float) -> ClockRecord | None:
        """Return a pulse with a credit: how many tuples the spout may emit until the next one.

        :param room: how many tuples may be dealt with for what it has not emitted yet; 0: it has to wait.
        """
        seen, emitted = self._reported(task)
        if emitted != spout.emitted or not spout.wait_ms:
            spout.wait_ms = spout.interval_ms
        elif seen >= spout.number - 1:
            spout.wait_ms = min(spout.idle_interval_ms, max(1, spout.wait_ms * 3 // 2))
        spout.emitted = emitted
        patience_ms = min(spout.idle_interval_ms, int((self._pressure.queue_ms - _SHORT_QUEUE_MS) * _SHARE_OF_QUEUE)) if spout.held_back else 0
        spout.next_ms = now_ms + max(spout.wait_ms, patience_ms)
        most = spout.max_tuples * max(1, patience_ms // spout.interval_ms)
        credit = max(0, min(most, int(room / self._pressure.weight(spout.component)) - spout.expected))
        # Where it has to wait, it is told so once; where what is under way uses up its share, it may go on with that.
        if spout.number - seen >= _PULSES_AHEAD or (credit == 0 and (room > 0 or spout.credit == 0)):
            if spout.number <= seen or now_ms - spout.written_ms < _ASK_AGAIN_MS:
                return None
            credit = 0
        spout.credit, spout.written_ms = credit, now_ms
        spout.number += 1
        spout.granted.append((spout.number, credit))
        return ClockRecord(spout.topic, spout.partition, encode_pulse(spout.number, now_ms, credit))
