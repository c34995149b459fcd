"""The queue of tuples of a windowed bolt, and the policies that cut windows out of it.

There is a class for each of Storm's eviction and trigger policies (package ``org.apache.storm.windowing``), which makes
the same decisions in the same order. Policies read no clock; time is passed to them. ``STATE`` names the attributes that
belong to a policy's snapshot.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from dskype.topology.tuples import Tuple

__all__ = ["Event", "WindowManager", "eviction_policy", "trigger_policy"]

EXPIRE_EVENTS_THRESHOLD = 100
"""Number of tuples after which those that will be in no further window are removed, so that they are acked early."""

_ALL = 2**31 - 1
_EXPIRE, _PROCESS, _KEEP, _STOP = range(4)


class Event:
    """A tuple in the queue.

    :ivar seq: its number within the task.
    :ivar ts: its event time, or its time of arrival.
    """

    __slots__ = ("seq", "ts", "tup")

    def __init__(self, seq: int, ts: int, tup: Tuple) -> None:
        self.seq, self.ts, self.tup = seq, ts, tup


class _CountEviction:
    """Removes the oldest tuples while there are more than ``threshold``."""

    STATE: tuple[str, ...] = ("reference", "count")

    def __init__(self, threshold: int) -> None:
        self.threshold, self.count = threshold, 0
        self.reference: int | None = None

    def track(self) -> None:
        self.count += 1

    def forget(self, n: int) -> None:
        """Subtract ``n`` tuples of the last window that were dropped."""
        self.count -= n

    def evict(self, event: Event, now: int) -> int:
        if self.count > self.threshold:
            self.count -= 1
            return _EXPIRE
        return _PROCESS

    def set_context(self, reference: int, count: int | None = None, sliding: int | None = None, interval_ms: int | None = None) -> None:
        self.reference = reference


class _EventTimeCountEviction(_CountEviction):
    """Counts only tuples up to the reference time."""

    STATE = ("reference", "count", "processed")

    def __init__(self, threshold: int) -> None:
        super().__init__(threshold)
        self.processed = 0

    def track(self) -> None:
        pass

    def forget(self, n: int) -> None:
        self.processed -= n

    def evict(self, event: Event, now: int) -> int:
        if self.reference is None:
            return _STOP
        if event.ts > self.reference or self.processed >= self.count:
            return _KEEP
        action = super().evict(event, now)
        self.processed += action == _PROCESS
        return action

    def set_context(self, reference: int, count: int | None = None, sliding: int | None = None, interval_ms: int | None = None) -> None:
        self.reference = reference
        self.count = count if count is not None else self.processed + (sliding or 0)
        self.processed = 0


class _TimeEviction:
    """Removes tuples that are at least ``length_ms`` older than the reference time.

    ``delta`` compensates for timers that are early or late, so that consecutive windows leave no gap; the first window
    takes everything in the queue.
    """

    STATE = ("reference", "delta")

    def __init__(self, length_ms: int) -> None:
        self.length_ms, self.delta = length_ms, 0
        self.reference: int | None = None

    def track(self) -> None:
        pass

    def forget(self, n: int) -> None:
        pass

    def evict(self, event: Event, now: int) -> int:
        age = (now if self.reference is None else self.reference) - event.ts
        if age >= self.length_ms + self.delta:
            return _EXPIRE
        return _KEEP if age < 0 else _PROCESS

    def set_context(self, reference: int, count: int | None = None, sliding: int | None = None, interval_ms: int | None = None) -> None:
        if interval_ms is not None:
            self.delta = _ALL if self.reference is None else reference - self.reference - interval_ms
        self.reference = reference


class _EventTimeEviction(_TimeEviction):
    """Removes tuples that are too old in event time.

    Storm ends its scan at the first tuple that is further ahead than the lag, and so loses the tuples behind it, for
    example those of a slower stream. Here the whole queue is scanned.
    """

    def evict(self, event: Event, now: int) -> int:
        return _STOP if self.reference is None else super().evict(event, now)


class WindowManager:
    """Keeps the queue of tuples, and cuts windows out of it.

    :param eviction: decides which tuples of the queue belong to a window.
    :param clock_ms: returns the time of the task.
    :param on_expiry: called with tuples that will be in no further window.
    :param on_window: called with (tuples, new, expired, reference time).
    """

    def __init__(
        self,
        eviction: Any,
        clock_ms: Callable[[], int],
        on_expiry: Callable[[list[Tuple]], None],
        on_window: Callable[[list[Tuple], list[Tuple], list[Tuple], int], None],
    ) -> None:
        self.eviction, self._clock_ms, self._on_expiry, self._on_window = eviction, clock_ms, on_expiry, on_window
        self.queue: deque[Event] = deque()
        self.seq = 0
        self.expired: list[Tuple] = []
        self.previous: set[int] = set()
        self.since_scan = 0

    def enqueue(self, tup: Tuple, ts: int) -> None:
        """Append a tuple to the queue."""
        self.queue.append(Event(self.seq, ts, tup))
        self.seq += 1
        self.eviction.track()

    def compact(self) -> None:
        """Remove expired tuples, once every :data:`EXPIRE_EVENTS_THRESHOLD` calls."""
        self.since_scan += 1
        if self.since_scan >= EXPIRE_EVENTS_THRESHOLD:
            self._scan(full=False)

    def slide(self) -> bool:
        """Pass the next window to ``on_window``; return False, without a call, if it would be empty."""
        events = self._scan(full=True)
        expired, self.expired = self.expired, []
        previous, self.previous = self.previous, {e.seq for e in events}
        if not events:
            return False
        new = [e.tup for e in events if e.seq not in previous]
        self._on_window([e.tup for e in events], new, expired, self.eviction.reference)
        return True

    def drop(self, tuples: Iterable[Tuple]) -> None:
        """Remove tuples from the queue without an ack."""
        dropped = set(map(id, tuples))
        before = len(self.queue)
        self.queue = deque(e for e in self.queue if id(e.tup) not in dropped)
        self.eviction.forget(before - len(self.queue))

    def _scan(self, *, full: bool) -> list[Event]:
        queue, evict, now = self.queue, self.eviction.evict, self._clock_ms()
        process: list[Event] = []
        kept: list[Event] = []
        expired: list[Tuple] = []
        while queue:
            event = queue.popleft()
            action = evict(event, now)
            if action == _EXPIRE:
                expired.append(event.tup)
                continue
            kept.append(event)
            if not full or action == _STOP:
                break
            if action == _PROCESS:
                process.append(event)
        queue.extendleft(reversed(kept))
        self.expired += expired
        self.since_scan = 0
        if expired:
            self._on_expiry(expired)
        return process


class _CountTrigger:
    """Slides after ``interval`` tuples."""

    STATE = ("count",)

    def __init__(self, interval: int, manager: WindowManager) -> None:
        self.interval, self._manager, self.count = interval, manager, 0

    def on_tuple(self, now: int) -> None:
        self.count += 1
        if self.count >= self.interval:
            self.count = 0
            self._manager.eviction.set_context(now)
            self._manager.slide()


class _TimeTrigger:
    """Slides with every timer."""

    STATE = ()

    def __init__(self, interval_ms: int, manager: WindowManager) -> None:
        self.interval_ms, self._manager = interval_ms, manager

    def on_tuple(self, now: int) -> None:
        pass

    def on_timer(self, now: int) -> None:
        # Further tuples may arrive in this millisecond, so it belongs to the next window.
        self._manager.eviction.set_context(now - 1, interval_ms=self.interval_ms)
        self._manager.slide()


class _EventTimeCountTrigger:
    """Slides after ``interval`` tuples in the order of event time, up to the watermark."""

    STATE = ("done",)

    def __init__(self, interval: int, manager: WindowManager) -> None:
        self.interval, self._manager, self.done = interval, manager, 0

    def on_tuple(self, now: int) -> None:
        pass

    def on_watermark(self, watermark: int) -> None:
        for ts in self._ends(watermark):
            self._manager.eviction.set_context(ts, sliding=self.interval)
            self.done = ts
            self._manager.slide()

    def _ends(self, watermark: int) -> list[int]:
        ends: list[int] = []
        count, latest = 0, 0
        for event in self._manager.queue:
            if self.done < event.ts <= watermark:
                latest = max(latest, event.ts)
                count += 1
                if count % self.interval == 0:
                    ends.append(latest)
        return ends


class _EventTimeTrigger:
    """Slides at multiples of ``interval_ms`` in event time, up to the watermark; skips empty windows."""

    STATE = ("next_end",)

    def __init__(self, interval_ms: int, manager: WindowManager) -> None:
        self.interval_ms, self._manager, self.next_end = interval_ms, manager, 0

    def on_tuple(self, now: int) -> None:
        pass

    def on_watermark(self, watermark: int) -> None:
        queue = self._manager
        while self.next_end <= watermark:
            end = self.next_end
            queue.eviction.set_context(end, count=sum(e.ts <= end for e in queue.queue))
            self.next_end = end + self.interval_ms  # before slide(): a window whose bolt raises must not be repeated
            if not queue.slide():
                earliest = min((e.ts for e in queue.queue if end < e.ts <= watermark), default=None)
                if earliest is None:
                    self.next_end = end
                    return
                self.next_end = earliest + -earliest % self.interval_ms


def eviction_policy(length: int | None, length_ms: int | None, *, event_time: bool) -> Any:
    """Return the eviction policy for a window of ``length`` tuples, or of ``length_ms``."""
    if length is not None:
        return _EventTimeCountEviction(length) if event_time else _CountEviction(length)
    assert length_ms is not None
    return _EventTimeEviction(length_ms) if event_time else _TimeEviction(length_ms)


def trigger_policy(interval: int | None, interval_ms: int | None, manager: WindowManager, *, event_time: bool) -> Any:
    """Return the trigger policy that slides a window after ``interval`` tuples, or every ``interval_ms``."""
    if interval is not None:
        return (_EventTimeCountTrigger if event_time else _CountTrigger)(interval, manager)
    assert interval_ms is not None
    return (_EventTimeTrigger if event_time else _TimeTrigger)(interval_ms, manager)
