"""Which subscriptions of a distribution task move to the tasks of another plan, and how many at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from dskype.bolts.placement.registry import Entry, Registry

__all__ = ["Move", "Moves"]

_MOST = 512
"""The most subscriptions that are surveyed or moving at a time."""
_ALWAYS = 32
"""So many may always be surveyed or moving. More begin with the messages that are routed, one for :data:`_MESSAGES_PER_MOVE`."""
_MESSAGES_PER_MOVE = 32
"""A move costs all tasks together as much as ten to twenty messages, so moves take a third of the time under full load."""


class Move(NamedTuple):
    """A subscription that lives on the tasks of two plans.

    :ivar target: indexes of the tasks on which it will live, by the newer plan.
    :ivar guard: guard of these tasks.
    :ivar waits_for: indexes of those that have not reported ready.
    """

    target: list[int]
    guard: float
    waits_for: list[int]


class Moves:
    """The subscriptions of one distribution task during a change of plan.

    ::

                    Survey                it lives elsewhere               all new tasks are ready
        waiting --------------> surveyed -------------------> moving ------------------------------> moved
           ^                       |  |                                                                ^
           +--- it has grown ------+  +--- its tasks stay, or it ends --------------------------------+

    When all have moved, the change is *done* for this distribution task. It is over when it is done for all, and the watermark has reached ``drop_at``.
    """

    def __init__(self) -> None:
        self.waiting: list[str] = []
        self.surveyed: set[str] = set()
        self.moving: dict[str, Move] = {}
        self._earned = 0  # messages that have not been counted for a move yet
        self.done = True
        """Whether all have moved, and the subscription tasks know."""
        self.drop_at: int | None = None
        """When the watermark has got there, the old routes are dropped; None: not all distribution tasks are done."""

    def __len__(self) -> int:
        """Return how many subscriptions have not moved."""
        return len(self.waiting) + len(self.surveyed) + len(self.moving)

    def begin(self, names: list[str]) -> None:
        """Begin a change of plan that may move these subscriptions."""
        self.waiting, self.done, self._earned = names, False, 0

    def earn(self, messages: int) -> None:
        """Count messages that are routed."""
        if self.waiting:
            self._earned = min(self._earned + messages, _MOST * _MESSAGES_PER_MOVE)

    def begin_surveys(self, registry: Registry) -> Iterator[tuple[str, Entry]]:
        """Yield the subscriptions that are to be surveyed now."""
        while self.waiting and self._may_begin():
            name = self.waiting.pop()
            entry = registry.get(name)
            if entry is not None and name not in self.moving:
                self.surveyed.add(name)
                yield name, entry

    def _may_begin(self) -> bool:
        """Tell whether one more subscription may be surveyed now, and count the messages that it is begun for."""
        under_way = len(self.surveyed) + len(self.moving)
        if under_way >= _MOST or (under_way >= _ALWAYS and self._earned < _MESSAGES_PER_MOVE):
            return False
        self._earned = max(0, self._earned - _MESSAGES_PER_MOVE)
        return True

    def survey_again(self, name: str) -> None:
        """Record that a subscription has begun an epoch: if it is surveyed, the answer would belong to an epoch that is over."""
        if name in self.surveyed:
            self.surveyed.discard(name)
            self.waiting.append(name)

    def move(self, name: str, target: list[int], guard: float) -> None:
        """Record that a subscription moves."""
        self.moving[name] = Move(target, guard, target)

    def record_ready(self, name: str, index: int) -> Move | None:
        """Record that a task of a move is ready; return the move after the last one."""
        move = self.moving[name]
        waits_for = [i for i in move.waits_for if i != index]
        if waits_for:
            self.moving[name] = move._replace(waits_for=waits_for)
            return None
        return self.moving.pop(name)

    def end(self, name: str) -> None:
        """Forget a subscription that has ended."""
        self.surveyed.discard(name)
        self.moving.pop(name, None)

    def snapshot(self) -> dict[str, Any]:
        """Return the state as plain values."""
        return {
            "to_survey": self.waiting,
            "surveyed": sorted(self.surveyed),
            "moving": [[name, *move] for name, move in self.moving.items()],
            "earned": self._earned,
            "done": self.done,
            "drop_at": self.drop_at,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a snapshot of the placement."""
        self.waiting, self.surveyed, self.done = list(state["to_survey"]), set(state["surveyed"]), state["done"]
        self.moving = {name: Move(*move) for name, *move in state["moving"]}
        self._earned, self.drop_at = state.get("earned", 0), state.get("drop_at")  # absent from snapshots of earlier versions
