"""The clock of a topology: pulses that drive spouts, ticks, and back-pressure.

Time enters a topology as records, so that a task that processes its inbox again sees the same time at the same place.
The driver (or the simulated transport) writes the records that :meth:`TopologyClock.due` returns.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from dskype.topology.config import Config
from dskype.topology.core.frames import encode_control, encode_pulse, encode_tick
from dskype.topology.core.pressure import Pressure
from dskype.topology.core.stats import TopologyStats
from dskype.topology.core.system_emits import DEBUG, METRICS
from dskype.topology.planning.acker_streams import ACKER_COMPONENT_ID
from dskype.topology.planning.plan import TopologyPlan, inbox_topic
from dskype.topology.planning.system import METRICS_STREAM_ID

__all__ = ["ClockRecord", "TopologyClock"]

_PULSES_AHEAD = 8
"""Most pulses that a spout task has not seen yet; more would only queue up."""

_ASK_AGAIN_MS = 1000
"""A spout task that reports no pulse for this long gets another. After a crash, its last tuples may exist only in its journal: they are
released with its next batch, and without a pulse there is no batch."""

_REAL_TIME_PULSE = 4
"""A spout with a real-time query gets a pulse after so many pulse intervals, with the credit of all of them."""

_SHORT_QUEUE_MS, _SHARE_OF_QUEUE = 1000, 0.2
"""If undelivered tuples take longer than the first to process, new tuples have to wait anyway, so a pulse may be delayed by this share of the excess."""


class ClockRecord(NamedTuple):
    """A frame of the clock, and the inbox partition to write it to."""

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
    granted: deque[tuple[int, int]] = field(default_factory=deque)  # unseen pulses: number, credit
    last_emitted: int = 0  # tuples emitted when the last pulse was seen
    idle: bool = False  # it emitted nothing then, although it had credit
    held_back: bool = False  # it used most of its credit

    def update(self, seen: int, emitted: int) -> None:
        """Process a report of the spout: the last pulse it has seen, and how many tuples it has emitted."""
        allowed, new = 0, emitted - self.last_emitted
        while self.granted and self.granted[0][0] <= seen:
            allowed += self.granted.popleft()[1]
        if allowed:
            self.held_back = 2 * new >= allowed
        if new:
            self.last_emitted, self.idle = emitted, False
        elif allowed:
            self.idle = True

    @property
    def expected(self) -> int:
        """How many tuples it may still emit for unseen pulses; 0 if it is idle."""
        return 0 if self.idle else sum(credit for _, credit in self.granted)


@dataclass(slots=True)
class _TickClock:
    topic: str
    partitions: int
    every_ms: int
    rate_secs: int
    next_ms: int
    command: str | None = None  # of a control record; None: it is a tick

    def value(self, now_ms: int) -> bytes:
        """Return the value of its record."""
        return encode_tick(self.rate_secs, now_ms) if self.command is None else encode_control(self.command, now_ms)


class TopologyClock:
    """Decides when spouts get pulses and tasks get ticks.

    A spout that emits gets a pulse every ``topology.emulator.pulse.interval.ms``. If it uses up its credit while many tuples are undelivered,
    its pulses become rarer and their credits larger: fewer and larger micro-batches do the same work in less time. The pulses of a spout that
    has nothing to emit become rarer as well, down to one every ``...pulse.idle.interval.ms``. There are no pulses while more than
    ``...backpressure.max.tuples`` tuples are undelivered, or more than can be processed in ``...backpressure.max.ms``
    (:class:`~dskype.topology.core.pressure.Pressure`); otherwise a slow bolt would get a micro-batch that takes minutes.

    :param plan: the topology plan.
    :param stats: live statistics, fed from the metrics topic.
    :param now_ms: the time at which the clock starts.
    :param real_time: components with real-time queries. Their spouts go on as long as they have credit, so they get rarer pulses.
    """

    def __init__(self, plan: TopologyPlan, stats: TopologyStats, now_ms: int, real_time: Collection[str] = ()) -> None:
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
                longer = _REAL_TIME_PULSE if component in real_time else 1
                for task in tasks:
                    self._spouts[task] = _SpoutClock(
                        component,
                        topic,
                        plan.task_index(task),
                        conf[Config.TOPOLOGY_EMULATOR_PULSE_INTERVAL_MS] * longer,
                        conf[Config.TOPOLOGY_EMULATOR_PULSE_IDLE_INTERVAL_MS],
                        conf[Config.TOPOLOGY_EMULATOR_PULSE_MAX_TUPLES] * longer,
                    )
            if spec.kind == "spout" or component == ACKER_COMPONENT_ID:
                # Without timeouts the acker must keep all trees, because one may be completed at any time.
                if tracking and conf[Config.TOPOLOGY_ENABLE_MESSAGE_TIMEOUTS]:
                    timeout_ms = int(conf[Config.TOPOLOGY_MESSAGE_TIMEOUT_SECS] * 1000)
                    self._ticks.append(_TickClock(topic, len(tasks), timeout_ms, 0, now_ms + timeout_ms))
            elif rate is not None:
                self._ticks.append(_TickClock(topic, len(tasks), int(rate * 1000), rate, now_ms + int(rate * 1000)))
            interval_of = getattr(spec.obj, "clock_interval_ms", None)
            if interval_of is not None and (interval_ms := interval_of(conf)):  # windowed bolts
                self._ticks.append(_TickClock(topic, len(tasks), interval_ms, 0, now_ms + interval_ms))

        secs = plan.conf[Config.TOPOLOGY_BUILTIN_METRICS_BUCKET_SIZE_SECS]
        for component in sorted({source for spec in plan.topology.components.values() for source, stream in spec.inputs if stream == METRICS_STREAM_ID}):
            topic, tasks = inbox_topic(plan.name, component), plan.component_tasks(component)
            self._ticks.append(_TickClock(topic, len(tasks), secs * 1000, 0, now_ms + secs * 1000, f"{METRICS}{secs}"))

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

    def debug(self, percents: Mapping[str, float], now_ms: int) -> list[ClockRecord]:
        """Return the records that tell tasks which percentage of their tuples goes to the event loggers.

        :param percents: component id -> percentage.
        """
        return [
            ClockRecord(inbox_topic(self._plan.name, c), self._plan.task_index(task), encode_control(f"{DEBUG}{percent:g}", now_ms))
            for c, percent in percents.items()
            for task in self._plan.component_tasks(c)
        ]

    def due(self, now_ms: int, *, active: bool) -> list[ClockRecord]:
        """Return the records to write now."""
        records = []
        for tick in self._ticks:
            if now_ms >= tick.next_ms:
                tick.next_ms += tick.every_ms * (1 + (now_ms - tick.next_ms) // tick.every_ms)
                value = tick.value(now_ms)
                records += [ClockRecord(tick.topic, p, value) for p in range(tick.partitions)]
        if active:
            room = self._pressure.room(now_ms)
            for task, spout in self._spouts.items():
                spout.update(*self._reported(task))
            busy = sum(not spout.idle for spout in self._spouts.values())
            for task, spout in self._spouts.items():
                # Each gets an equal share; an idle one may have tuples again.
                if now_ms >= spout.next_ms and (record := self._pulse(task, spout, now_ms, room / (busy + spout.idle))):
                    records.append(record)
        return records

    def next_due_ms(self, *, active: bool) -> int:
        """Return the time at which :meth:`due` will next return something."""
        times = [tick.next_ms for tick in self._ticks]
        if active:
            times += [spout.next_ms for spout in self._spouts.values()]
        return min(times, default=1 << 62)

    def unseen_pulses(self) -> dict[int, int]:
        """Return spout task -> number of pulses that it has not seen yet."""
        return {task: n for task, spout in self._spouts.items() if (n := spout.number - self._reported(task)[0]) > 0}

    def _reported(self, task: int) -> tuple[int, int]:
        """Return the last pulse that a spout task has seen, and how many tuples it has emitted."""
        report = self._stats.tasks.get(task)
        return (report["pulse"], sum(report["emitted"].values())) if report else (0, 0)

    def _pulse(self, task: int, spout: _SpoutClock, now_ms: int, room: float) -> ClockRecord | None:
        """Return a pulse with a credit: how many tuples the spout may emit until the next pulse; None for no pulse.

        :param room: how many tuples may be processed on behalf of tuples that the spout has not emitted yet; 0 pauses it.
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
        # A pulse with credit 0, which pauses the spout, is written once; while earlier pulses use up its share, none is needed.
        if spout.number - seen >= _PULSES_AHEAD or (credit == 0 and (room > 0 or spout.credit == 0)):
            if spout.number <= seen or now_ms - spout.written_ms < _ASK_AGAIN_MS:
                return None
            credit = 0
        spout.credit, spout.written_ms = credit, now_ms
        spout.number += 1
        spout.granted.append((spout.number, credit))
        return ClockRecord(spout.topic, spout.partition, encode_pulse(spout.number, now_ms, credit))
