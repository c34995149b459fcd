"""Reviews find out, from time to time, whether fewer tasks would be enough for a subscription."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from dskype.bolts.placement.registry import Entry, Registry

__all__ = ["Reviews"]

_MOST = 512
"""The most subscriptions that are asked at a time."""
_LOOKED_AT = 16 * _MOST
"""The most subscriptions that one call examines for whether a review is worth while."""
_RAREST = 64
"""The greatest distance of reviews, in windows; they become rarer until it is reached."""


class _Review(NamedTuple):
    """A subscription whose tasks are asked for their floors.

    :ivar waits_for: indexes of the tasks that have not answered.
    :ivar best: the highest floor in the answers so far.
    """

    waits_for: list[int]
    best: float


class Reviews:
    """The reviews of one distribution task.

    ::

             time is up              Survey to all tasks           all have answered
        (all) --------> waiting -------------------------> asked -------------------> reviewed: the best floor is known
                           |                                 |
                           +-- a change of plan ------+      +-- another epoch, its end, a change of plan --> (as before)

    :param registry: of the distribution task.
    :param window: extent of the window, in positions.
    """

    def __init__(self, registry: Registry, window: int) -> None:
        self._registry, self._window = registry, window
        self._apart = 1  # the next review is this many windows after the one before
        self._at: int | None = None  # watermark of the next one
        self.waiting: list[str] = []
        self.asked: dict[str, _Review] = {}

    def advance(self, watermark: int, *, settled: bool) -> None:
        """Let all subscriptions wait for their review if it is time for that, and no plan changes."""
        if self._at is None:
            self._at = watermark + self._window
        elif watermark >= self._at and settled and not self.waiting:
            self._apart = min(2 * self._apart, _RAREST)
            self._at = watermark + self._apart * self._window
            self.waiting = self._registry.names()

    def begin(self) -> Iterator[tuple[str, Entry]]:
        """Yield the subscriptions whose tasks are to be asked now."""
        for _ in range(min(_LOOKED_AT, len(self.waiting))):
            if len(self.asked) >= _MOST:
                break
            name = self.waiting.pop()
            if self._registry.may_shrink(name) and (entry := self._registry.get(name)) is not None:
                self.asked[name] = _Review(list(entry.tasks), -np.inf)
                yield name, entry

    def collect(self, name: str, index: int, floor: float | None) -> float | None:
        """Record the answer of one task; return the best floor after the last one. None: there is none yet, or none at all."""
        review = self.asked[name]
        waits_for = [i for i in review.waits_for if i != index]
        best = review.best if floor is None else max(review.best, floor)
        if waits_for:
            self.asked[name] = _Review(waits_for, best)
            return None
        del self.asked[name]
        return None if best == -np.inf else best

    def end(self, name: str) -> None:
        """End the review of a subscription: the answers would belong to an epoch that is over."""
        self.asked.pop(name, None)

    def end_all(self) -> None:
        """End all reviews, because all subscriptions are placed again."""
        self.waiting, self.asked = [], {}

    def snapshot(self) -> dict[str, Any]:
        """Return the state as plain values."""
        return {"apart": self._apart, "review_at": self._at, "to_review": self.waiting, "reviewed": [[name, *review] for name, review in self.asked.items()]}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a snapshot of the placement; those of earlier versions have no reviews."""
        self._apart, self._at, self.waiting = state.get("apart", 1), state.get("review_at"), list(state.get("to_review", ()))
        self.asked = {name: _Review(*review) for name, *review in state.get("reviewed", ())}
