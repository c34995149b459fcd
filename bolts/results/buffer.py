"""A buffer of states that wait for a store, so that an outage of the store loses nothing and stops nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

from dskype.bolts.results.base import Outcome, Removal, ResultStore, State, Stored, StoreUnavailable, supersedes

__all__ = ["StateBuffer"]

_BATCH = 1000
_REST = 15
"""A store that fails is left alone this many times as long as its failure took, up to ``_LONGEST_REST_S``. So a bolt spends a sixteenth
of its time on a server that hangs."""
_LONGEST_REST_S = 60.0


class StateBuffer:
    """Keeps the newest state (or removal) of each subscription until the store has accepted it.

    The buffer holds one state per subscription; a newer one replaces it, as it would in the store. Retries wait ``first_wait_s``, doubling to
    ``last_wait_s``. A store that takes long to fail is left alone for much longer than that, because the bolt has other work to do. The buffer is
    part of the bolt's state: after a crash the waiting states come back with the snapshot, or the replay makes them again.

    Whether a write succeeds does not follow from the inbox, so nothing that a bolt emits may depend on this object.

    :param store: an open store.
    :param run: run of the topology, see :func:`~dskype.bolts.results.base.run_of`.
    :param report: called with a text when the store fails, and when it refuses a subscription.
    :param clock: returns seconds, for the waits.
    :param budget_s: a flush stops after this time; the next one writes the rest.
    """

    def __init__(
        self,
        store: ResultStore,
        run: int,
        report: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
        *,
        first_wait_s: float = 0.2,
        last_wait_s: float = 5.0,
        budget_s: float = 2.0,
    ) -> None:
        self._store, self._run, self._report, self._clock = store, run, report, clock
        self._first_wait_s, self._last_wait_s, self._budget_s = first_wait_s, last_wait_s, budget_s
        self._waiting: dict[str, Stored] = {}
        self._wait_s = self._pause_s = 0.0
        self._not_before: float | None = None
        self.written = self.stale = self.replaced = self.failures = 0
        """Number of states written; dropped because the store had newer ones; replaced here before they were written; failed attempts."""

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def away(self) -> bool:
        """Whether the last attempt failed."""
        return self._not_before is not None

    def enqueue(self, items: Iterable[State | Removal]) -> None:
        """Add states and removals, in the order in which they were made."""
        waiting = self._waiting
        for item in items:
            new = Stored(item.registration, item.watermark, item.value if isinstance(item, State) else None, self._run)
            known = waiting.get(item.subscription)
            if known is not None:
                if not supersedes(new, known):
                    self.stale += 1
                    continue
                self.replaced += 1
            waiting[item.subscription] = new

    def flush(self) -> None:
        """Write the waiting states, unless the store failed a moment ago. Does not raise if the store is away."""
        if not self._waiting:
            return
        # A clock that was set back must not cause a wait of hours.
        if self._not_before is not None and 0 < self._not_before - self._clock() <= 2 * self._pause_s:
            return
        stop_at = self._clock() + self._budget_s
        names = list(self._waiting)
        for start in range(0, len(names), _BATCH):
            if not self._write(names[start : start + _BATCH]) or self._clock() >= stop_at:
                return

    def _write(self, names: list[str]) -> bool:
        states, removals, began = [], [], self._clock()
        for name in names:
            registration, watermark, value, _ = self._waiting[name]
            if value is None:
                removals.append(Removal(name, registration, watermark))
            else:
                states.append(State(name, registration, watermark, value))
        try:
            for call, batch in ((self._store.put, states), (self._store.remove, removals)):
                if batch:
                    self._record_outcome(call(batch), batch)
        except StoreUnavailable as error:
            self.failures += 1
            if not self.away:
                self._report(f"{error} ({len(self._waiting)} states wait and will be written when it is back)")
            self._wait_s = min(self._last_wait_s, 2 * self._wait_s) or self._first_wait_s
            self._pause_s = max(self._wait_s, min(_LONGEST_REST_S, _REST * (self._clock() - began)))
            self._not_before = self._clock() + self._pause_s
            return False
        self._wait_s, self._not_before = 0.0, None
        return True

    def _record_outcome(self, outcome: Outcome, batch: list[Any]) -> None:
        self.written += outcome.written
        self.stale += outcome.stale
        refused = dict(outcome.failed)
        for item in batch:
            if item.subscription not in refused:
                del self._waiting[item.subscription]
        for name, reason in refused.items():
            self.failures += 1
            self._report(f"the state of subscription {name!r} cannot be written: {reason}")

    # -- state ----------------------------------------------------------------------------------------------------------

    def snapshot(self) -> list[Any]:
        """Return the waiting states."""
        return [[name, item.registration, item.watermark, item.value] for name, item in self._waiting.items()]

    def restore(self, state: list[Any]) -> None:
        """Continue with the waiting states of a snapshot."""
        self._waiting = {name: Stored(registration, watermark, value, self._run) for name, registration, watermark, value in state}
