"""Windowed bolts: sliding and tumbling windows by count or duration, in processing time or event time.

The rules are those of Storm's window manager (Storm's docs/Windowing.md and the classes of
``org.apache.storm.windowing``). Storm reads two clocks, the machine's and that of its timers. Here both enter through
the task's inbox. So the contents of windows follow from the inbox alone, and a task that processes its inbox again
makes the same windows:

- *now* is the latest record timestamp that the task has seen (``context.clock_ms()``);
- a timer is a tick frame with rate 0. The topology's clock writes it every
  :meth:`WindowedBoltExecutor.clock_interval_ms`: the sliding interval of a duration window, or the watermark interval
  of a window in event time.

A window that a timer closes at *t* holds the tuples that arrived in ``[t - length, t)``. A window in event time that
ends at *t* holds those with timestamps in ``(t - length, t]``.
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self, cast

from dskype.topology.components import BaseBolt, WrappingBolt
from dskype.topology.config import Config
from dskype.topology.context import TopologyContext
from dskype.topology.core.values import pack_tuple, unpack_tuple
from dskype.topology.core.window_policies import Event, WindowManager, eviction_policy, trigger_policy
from dskype.topology.errors import IllegalArgumentException
from dskype.topology.fields import Fields
from dskype.topology.model import OutputFieldsDeclarer, stateful
from dskype.topology.tuples import Tuple

__all__ = ["LATE_TUPLE_FIELD", "Count", "Duration", "TupleWindow", "WindowedBolt", "WindowedBoltExecutor", "WindowedOutputCollector"]

_log = logging.getLogger(__name__)

LATE_TUPLE_FIELD = "late_tuple"
"""The only field of the stream of late tuples; its value is the tuple itself, without anchors."""

DEFAULT_WATERMARK_INTERVAL_MS = 1000
_MAX_INT = 2**31 - 1
_UNBOUNDED = 1 << 62


@dataclass(frozen=True)
class Count:
    """A number of tuples: the length of a window, or the interval after which it slides."""

    value: int

    def __post_init__(self) -> None:
        if isinstance(self.value, bool) or not isinstance(self.value, int):
            raise IllegalArgumentException("A count must be an integer.", given=self.value)

    @classmethod
    def of(cls, value: int) -> Self:
        """Return a count of ``value`` tuples."""
        return cls(value)

    def __str__(self) -> str:
        return f"Count{{value={self.value}}}"


@dataclass(frozen=True)
class Duration:
    """A time in milliseconds: the length of a window, the interval after which it slides, or a lag.

    :raises IllegalArgumentException: negative, above 2**31 - 1 ms, or not a whole number of milliseconds.
    """

    value: int

    def __post_init__(self) -> None:
        value: Any = self.value
        if isinstance(value, float) and value.is_integer():
            object.__setattr__(self, "value", value := int(value))
        if isinstance(value, bool) or not isinstance(value, int):
            raise IllegalArgumentException("A duration must be a whole number of milliseconds.", given=value)
        if value < 0:
            raise IllegalArgumentException("Duration cannot be negative", given=value)
        if value > _MAX_INT:
            raise IllegalArgumentException("Duration is too long", given=value, legal=f"0..{_MAX_INT} ms")

    @classmethod
    def of_millis(cls, value: int) -> Self:
        """Return a duration of ``value`` milliseconds."""
        return cls(value)

    @classmethod
    def of_seconds(cls, value: float) -> Self:
        """Return a duration of ``value`` seconds."""
        return cls(cast("int", value * 1000))

    @classmethod
    def of_minutes(cls, value: float) -> Self:
        """Return a duration of ``value`` minutes."""
        return cls(cast("int", value * 60_000))

    @classmethod
    def of_hours(cls, value: float) -> Self:
        """Return a duration of ``value`` hours."""
        return cls(cast("int", value * 3_600_000))

    @classmethod
    def of_days(cls, value: float) -> Self:
        """Return a duration of ``value`` days."""
        return cls(cast("int", value * 86_400_000))

    of, seconds, minutes, hours, days = of_millis, of_seconds, of_minutes, of_hours, of_days
    """Storm's own names."""

    def __str__(self) -> str:
        return f"Duration{{value={self.value}}}"


TimestampExtractor = Callable[[Tuple], int]


class TupleWindow:
    """The input of a windowed bolt when its window slides.

    :param tuples: the tuples of the window, in order of arrival.
    :param new: those that were not in the previous window.
    :param expired: those that have left since the previous window; they are already acked.
    :param start_ms: start of the window; None if its length is a count.
    :param end_ms: end of the window: event time, or the time of the task.
    """

    __slots__ = ("_end_ms", "_expired", "_new", "_start_ms", "_tuples")

    def __init__(self, tuples: list[Tuple], new: list[Tuple], expired: list[Tuple], start_ms: int | None, end_ms: int | None) -> None:
        self._tuples, self._new, self._expired = tuples, new, expired
        self._start_ms, self._end_ms = start_ms, end_ms

    def get(self) -> list[Tuple]:
        """Return the tuples of the window."""
        return self._tuples

    def get_new(self) -> list[Tuple]:
        """Return the tuples that were not in the previous window."""
        return self._new

    def get_expired(self) -> list[Tuple]:
        """Return the tuples that have left since the previous window."""
        return self._expired

    def get_start_timestamp(self) -> int | None:
        """Return the start of the window in ms; None if its length is a count."""
        return self._start_ms

    def get_end_timestamp(self) -> int | None:
        """Return the end of the window in ms."""
        return self._end_ms

    def __len__(self) -> int:
        return len(self._tuples)

    def __iter__(self) -> Iterator[Tuple]:
        return iter(self._tuples)

    def __repr__(self) -> str:
        return f"TupleWindow({len(self._tuples)} tuples, {len(self._new)} new, {len(self._expired)} expired, end {self._end_ms})"


class WindowedBolt(BaseBolt):
    """A bolt that is called once per window; configure the window before passing the bolt to ``set_bolt``.

    Emits of ``execute`` are anchored to all tuples of the window unless ``anchors`` says otherwise. Tuples are acked
    automatically when they leave the window for good. If ``execute`` raises, the tracked tuples of that window are
    dropped without an ack, as a dying worker of Storm loses them: they time out and their spout may replay them.

    >>> class Sum(WindowedBolt):
    ...     def prepare(self, conf, context, collector):
    ...         self.collector = collector
    ...     def execute(self, window):
    ...         self.collector.emit([sum(t["value"] for t in window)])
    >>> Sum().with_window(Duration.of_seconds(10), Duration.of_seconds(5)).get_component_configuration()
    {'topology.bolts.window.length.duration.ms': 10000, 'topology.bolts.window.sliding.interval.duration.ms': 5000}
    """

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext, collector: WindowedOutputCollector) -> None:
        """Initialize the bolt; called once before the first window. Keep ``collector``: all emits go through it."""

    @abstractmethod
    def execute(self, window: TupleWindow) -> None:
        """Process one window; never called for empty windows."""

    # -- the window --------------------------------------------------------------------------------

    @property
    def window_configuration(self) -> dict[str, Any]:
        """The settings made by the ``with_...`` methods, as Storm's configuration keys."""
        return self.__dict__.setdefault("_window_configuration", {})  # subclasses need not call our constructor

    @property
    def timestamp_extractor(self) -> TimestampExtractor | None:
        """Function that returns a tuple's event time; None for windows in processing time."""
        return self.__dict__.get("_timestamp_extractor")

    def with_window(self, length: Count | Duration, sliding_interval: Count | Duration = Count(1)) -> Self:
        """Slide a window of ``length`` by ``sliding_interval``; default: by one tuple.

        :raises IllegalArgumentException: not positive, or neither Count nor Duration.
        """
        for name, value, by_count, by_ms in (
            ("Window length", length, Config.TOPOLOGY_BOLTS_WINDOW_LENGTH_COUNT, Config.TOPOLOGY_BOLTS_WINDOW_LENGTH_DURATION_MS),
            ("Sliding interval", sliding_interval, Config.TOPOLOGY_BOLTS_SLIDING_INTERVAL_COUNT, Config.TOPOLOGY_BOLTS_SLIDING_INTERVAL_DURATION_MS),
        ):
            if not isinstance(value, (Count, Duration)):
                raise IllegalArgumentException(f"{name} must be a Count or a Duration.", given=value, hint="Count(10), Duration.of_seconds(5)")
            if value.value <= 0:
                raise IllegalArgumentException(f"{name} must be positive [{value}]")
            self.window_configuration.pop(by_ms if isinstance(value, Count) else by_count, None)
            self.window_configuration[by_count if isinstance(value, Count) else by_ms] = value.value
        return self

    def with_tumbling_window(self, length: Count | Duration) -> Self:
        """Cut the stream into windows of ``length`` that do not overlap."""
        return self.with_window(length, length)

    def with_timestamp_field(self, field: str) -> Self:
        """Use the event time in ``field`` (ms, an integer) instead of the time of arrival."""
        return self.with_timestamp_extractor(_FieldTimestamp(field))

    def with_timestamp_extractor(self, extractor: TimestampExtractor) -> Self:
        """Use the event time that ``extractor(tuple)`` returns (ms, an integer)."""
        if not callable(extractor):
            raise IllegalArgumentException("Timestamp extractor must be callable.", given=extractor)
        if self.timestamp_extractor is not None:
            raise IllegalArgumentException(f"Window is already configured with a timestamp extractor: {self.timestamp_extractor}")
        self._timestamp_extractor = extractor
        return self

    def with_lag(self, lag: Duration) -> Self:
        """Wait for tuples that are out of order by up to ``lag``; default 0. Event time only."""
        return self._with_duration(Config.TOPOLOGY_BOLTS_TUPLE_TIMESTAMP_MAX_LAG_MS, lag)

    def with_watermark_interval(self, interval: Duration) -> Self:
        """Check every ``interval`` which windows are complete; default 1 s. Event time only."""
        return self._with_duration(Config.TOPOLOGY_BOLTS_WATERMARK_EVENT_INTERVAL_MS, interval)

    def with_late_tuple_stream(self, stream_id: str) -> Self:
        """Emit late tuples on ``stream_id`` (field ``late_tuple``) instead of only logging and counting them."""
        if not isinstance(stream_id, str):
            raise IllegalArgumentException("Cannot set late tuple stream id to null", given=stream_id, legal="a string")
        self.window_configuration[Config.TOPOLOGY_BOLTS_LATE_TUPLE_STREAM] = stream_id
        return self

    def _with_duration(self, key: str, value: Duration) -> Self:
        if not isinstance(value, Duration):
            raise IllegalArgumentException(f"{key} must be a Duration.", given=value, hint="Duration.of_seconds(5)")
        self.window_configuration[key] = value.value
        return self

    def get_component_configuration(self) -> dict[str, Any]:
        """Return the window's configuration; a subclass adds its own to it."""
        return dict(self.window_configuration)

    def as_executor(self) -> WindowedBoltExecutor:
        """Return the bolt that executes this one; called by ``set_bolt``."""
        return WindowedBoltExecutor(self)


@dataclass(frozen=True)
class _FieldTimestamp:
    field: str

    def __call__(self, tup: Tuple) -> int:
        value = tup.get_long_by_field(self.field)
        if value is None:
            raise IllegalArgumentException(f"The timestamp field {self.field!r} is empty.", given=tup.values, component=tup.meta.component)
        return value


class WindowedOutputCollector:
    """The collector of windowed bolts: emits are anchored to all tuples of the window.

    :param collector: the task's collector.
    """

    def __init__(self, collector: Any) -> None:
        self._collector = collector
        self.window: Sequence[Tuple] = ()
        self.ack: Callable[[Tuple], None]
        for name in ("ack", "fail", "reset_timeout", "report_error", "send_record", "emit_watermark"):
            setattr(self, name, getattr(collector, name))

    def emit(self, values: Sequence[Any], stream: str = "default", anchors: Tuple | Iterable[Tuple] | None = None) -> list[int]:
        """Emit a tuple, anchored to the window's tuples by default; an empty list of anchors leaves it untracked."""
        return self._collector.emit(values, stream, self.window if anchors is None else anchors)

    def emit_direct(self, task: int, values: Sequence[Any], stream: str = "default", anchors: Tuple | Iterable[Tuple] | None = None) -> list[int]:
        """Emit a tuple to one task; see :meth:`emit`."""
        return self._collector.emit_direct(task, values, stream, self.window if anchors is None else anchors)

    def emit_batch(self, columns: Mapping[str, Any] | Sequence[Any], stream: str = "default") -> int:
        """Emit many tuples as columns. They are not anchored, so this is for topologies without ackers."""
        return self._collector.emit_batch(columns, stream)


# --- the bolt that runs a windowed bolt -------------------------------------------------------------------------------


class WindowedBoltExecutor(WrappingBolt):
    """Runs a :class:`WindowedBolt` as an ordinary bolt that holds tuples back; made by ``set_bolt``.

    The queue and the progress of windows survive crashes even if the user's bolt keeps no state.
    """

    bolt: WindowedBolt

    def declare_output_fields(self, declarer: OutputFieldsDeclarer) -> None:
        """Declare the user's streams and, if configured, that of late tuples."""
        late = self.get_component_configuration().get(Config.TOPOLOGY_BOLTS_LATE_TUPLE_STREAM)
        if late is not None:
            declarer.declare_stream(late, Fields(LATE_TUPLE_FIELD))
        super().declare_output_fields(declarer)

    def get_component_configuration(self) -> dict[str, Any]:
        """Return the window's configuration, overridden by the user's bolt."""
        return {**self.bolt.window_configuration, **(self.bolt.get_component_configuration() or {})}

    def _extractor(self, conf: Mapping[str, Any]) -> TimestampExtractor | None:
        field = conf.get(Config.TOPOLOGY_BOLTS_TUPLE_TIMESTAMP_FIELD_NAME)
        return self.bolt.timestamp_extractor or (None if field is None else _FieldTimestamp(field))

    def clock_interval_ms(self, conf: Mapping[str, Any]) -> int | None:
        """Return the interval at which the topology's clock calls :meth:`on_clock`; None if it does not.

        :param conf: the component's configuration.
        """
        if self._extractor(conf) is not None:
            return conf.get(Config.TOPOLOGY_BOLTS_WATERMARK_EVENT_INTERVAL_MS) or DEFAULT_WATERMARK_INTERVAL_MS
        if conf.get(Config.TOPOLOGY_BOLTS_SLIDING_INTERVAL_COUNT) is not None:
            return None
        return conf.get(Config.TOPOLOGY_BOLTS_SLIDING_INTERVAL_DURATION_MS)

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext, collector: Any) -> None:
        """Prepare the user's bolt and check the window.

        :raises IllegalArgumentException: no window, one that is longer than the message timeout or
            ``topology.max.spout.pending``, or a late stream without event time.
        """
        self._collector = WindowedOutputCollector(collector)
        self._clock_ms = context.clock_ms
        self.bolt.prepare(conf, context, self._collector)
        component = context.get_this_component_id()
        self._extract = self._extractor(conf)
        self._late_stream = conf.get(Config.TOPOLOGY_BOLTS_LATE_TUPLE_STREAM)
        if self._late_stream is not None:
            if self._extract is None:
                raise IllegalArgumentException(
                    "Late tuple stream can be defined only when specifying a timestamp field", given=self._late_stream, component=component
                )
            if self._late_stream not in context.get_this_streams():
                raise IllegalArgumentException(
                    "Stream for late tuples must be defined with the builder method withLateTupleStream",
                    given=self._late_stream,
                    component=component,
                    hint="with_late_tuple_stream",
                )
        self._lag_ms = conf.get(Config.TOPOLOGY_BOLTS_TUPLE_TIMESTAMP_MAX_LAG_MS) or 0
        self._sources = len(context.get_this_sources())
        self._stream_ts: dict[tuple[str, str], int] = {}
        self._watermark = 0
        self._late = context.register_counter("late-tuples")
        self._set_window(conf, component)

    def _set_window(self, conf: Mapping[str, Any], component: str) -> None:
        length, length_ms = conf.get(Config.TOPOLOGY_BOLTS_WINDOW_LENGTH_COUNT), conf.get(Config.TOPOLOGY_BOLTS_WINDOW_LENGTH_DURATION_MS)
        interval, interval_ms = conf.get(Config.TOPOLOGY_BOLTS_SLIDING_INTERVAL_COUNT), conf.get(Config.TOPOLOGY_BOLTS_SLIDING_INTERVAL_DURATION_MS)
        if length is not None:  # a count takes precedence over a duration, as in Storm
            length_ms = None
        if interval is None and interval_ms is None:
            interval = 1
        elif interval is not None:
            interval_ms = None
        if length is None and length_ms is None:
            raise IllegalArgumentException("Window length is not specified", component=component, hint="with_window or with_tumbling_window")
        _check_bounds(conf, component, length or 0, interval or 0, length_ms or 0, interval_ms or 0)
        self._length_ms = length_ms
        event_time = self._extract is not None
        eviction = eviction_policy(length, length_ms, event_time=event_time)
        self._manager = WindowManager(eviction, self._clock_ms, self._expire, self._activate)
        self._trigger = trigger_policy(interval, interval_ms, self._manager, event_time=event_time)

    # -- running -----------------------------------------------------------------------------------

    @property
    def late_tuples(self) -> int:
        """Number of tuples of this task that came too late."""
        return self._late.get_count()

    def execute(self, tup: Tuple) -> None:
        """Add a tuple to the queue, which may complete a window."""
        now = self._clock_ms()
        if self._extract is None:
            self._manager.enqueue(tup, now)
            self._trigger.on_tuple(now)
            self._manager.compact()
            return
        ts = self._extract(tup)
        stream = (tup.meta.component, tup.meta.stream)
        self._stream_ts[stream] = max(ts, self._stream_ts.get(stream, ts))
        if ts >= self._watermark:
            self._manager.enqueue(tup, ts)
            self._manager.compact()
            return
        self._late.inc()
        if self._late_stream is not None:
            self._collector.emit((tup,), self._late_stream, anchors=tup)
        else:
            _log.info("Received a late tuple %r with ts %d. This will not be processed.", tup, ts)
        self._collector.ack(tup)

    def on_clock(self) -> None:
        """Handle a timer: slide a duration window, or advance the watermark."""
        if self._extract is None:
            self._trigger.on_timer(self._clock_ms())
            return
        if len(self._stream_ts) < self._sources:  # some stream has sent nothing yet
            return
        watermark = min(self._stream_ts.values()) - self._lag_ms
        if watermark > self._watermark:
            self._trigger.on_watermark(watermark)
            self._manager.compact()
            self._watermark = watermark

    def on_watermark(self, watermark: int) -> None:
        """Pass the task's watermark on to the user's bolt."""
        self.bolt.on_watermark(watermark)

    def _expire(self, tuples: list[Tuple]) -> None:
        for tup in tuples:
            self._collector.ack(tup)

    def _activate(self, tuples: list[Tuple], new: list[Tuple], expired: list[Tuple], end_ms: int) -> None:
        start_ms = None if self._length_ms is None else end_ms - self._length_ms
        self._collector.window = tuples
        try:
            self.bolt.execute(TupleWindow(tuples, new, expired, start_ms, end_ms))
        except Exception:
            self._manager.drop([t for t in tuples if t.message_id])
            raise
        finally:
            self._collector.window = ()

    # -- state -------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """Return the queue, the progress of windows and the state of the user's bolt."""
        manager = self._manager
        return {
            "queue": [[e.seq, e.ts, pack_tuple(e.tup)] for e in manager.queue],
            "seq": manager.seq,
            "expired": [pack_tuple(t) for t in manager.expired],
            "previous": sorted(manager.previous),
            "since_scan": manager.since_scan,
            "eviction": [getattr(manager.eviction, name) for name in manager.eviction.STATE],
            "trigger": [getattr(self._trigger, name) for name in self._trigger.STATE],
            "streams": [[*stream, ts] for stream, ts in self._stream_ts.items()],
            "watermark": self._watermark,
            "late": self._late.get_count(),
            "user": self._user_state(),
        }

    def _user_state(self) -> Any:
        return self.bolt.snapshot() if stateful(self.bolt) else None

    def _restore_user(self, state: Any) -> None:
        if stateful(self.bolt) and state is not None:
            self.bolt.restore(state)

    def restore(self, state: dict[str, Any]) -> None:
        """Restore what :meth:`snapshot` returned."""
        manager = self._manager
        manager.queue = deque(Event(seq, ts, unpack_tuple(tup)) for seq, ts, tup in state["queue"])
        manager.seq, manager.since_scan = state["seq"], state["since_scan"]
        manager.expired = [unpack_tuple(t) for t in state["expired"]]
        manager.previous = set(state["previous"])
        for target, values in ((manager.eviction, state["eviction"]), (self._trigger, state["trigger"])):
            for name, value in zip(target.STATE, values, strict=True):
                setattr(target, name, value)
        self._stream_ts = {(component, stream): ts for component, stream, ts in state["streams"]}
        self._watermark = state["watermark"]
        self._late.inc(state["late"] - self._late.get_count())
        self._restore_user(state["user"])


def _check_bounds(conf: Mapping[str, Any], component: str, length: int, interval: int, length_ms: int, interval_ms: int) -> None:
    """Refuse windows that hold more tuples, or for a longer time, than may be pending.

    :raises IllegalArgumentException: with Storm's wording.
    """
    timeout = conf.get(Config.TOPOLOGY_MESSAGE_TIMEOUT_SECS)
    timeout_ms = _UNBOUNDED if conf.get(Config.TOPOLOGY_ENABLE_MESSAGE_TIMEOUTS) is False else (timeout or 0) * 1000
    if length_ms + interval_ms > timeout_ms:
        raise IllegalArgumentException(
            f"Window duration (length + sliding interval) value {length_ms + interval_ms} is more than "
            f"{Config.TOPOLOGY_MESSAGE_TIMEOUT_SECS} value {timeout_ms}",
            component=component,
            hint=f"raise {Config.TOPOLOGY_MESSAGE_TIMEOUT_SECS}, or tuples time out before their window is over",
        )
    pending = conf.get(Config.TOPOLOGY_MAX_SPOUT_PENDING)
    if pending is not None and length + interval > pending:
        raise IllegalArgumentException(
            f"Window count (length + sliding interval) value {length + interval} is more than {Config.TOPOLOGY_MAX_SPOUT_PENDING} value {pending}",
            component=component,
            hint=f"raise {Config.TOPOLOGY_MAX_SPOUT_PENDING}, or the window waits for tuples that are held back",
        )
