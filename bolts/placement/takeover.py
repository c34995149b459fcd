"""A plan that takes over step by step: two strategies live at once (PS2Stream, section V-B).

A plan with the key ``takeover`` moves nobody at first. Messages follow both plans. The subscriptions that were there before stay where they are, and new ones are placed by the new plan alone.
When few of the old ones are left, they move as with any other plan, and the routes of the old plan are dropped. Another plan ends a takeover at once.

A new subscription may be placed by the new plan alone as soon as that plan is *in force*: all distribution tasks send by it, and the watermark has passed the messages that they sent before. Until then a
new boolean subscription begins on the tasks of both plans, and reports when it receives everything on the new ones. The first such report says that the plan is in force.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

__all__ = ["Takeover"]


class Takeover:
    """The subscriptions of one distribution task that the older plan places.

    :param names: of these subscriptions.
    :param rest: the share of them that is few enough to be moved, 0 to 1.
    """

    def __init__(self, names: Iterable[str], rest: float) -> None:
        self._left = dict.fromkeys(names)  # a dict keeps their order, so that a restored task does the same
        self._few = int(rest * len(self._left))
        self.in_force = False
        """Whether new subscriptions may be placed by the new plan alone."""

    def __len__(self) -> int:
        """Return how many subscriptions are left."""
        return len(self._left)

    @property
    def over(self) -> bool:
        """Whether so few are left that they should move."""
        return len(self._left) <= self._few

    def names(self) -> list[str]:
        """Return the subscriptions that are left, the oldest first."""
        return list(self._left)

    def add(self, name: str) -> None:
        """Record a subscription that both plans place."""
        self._left[name] = None

    def end(self, name: str) -> None:
        """Record that a subscription has ended."""
        self._left.pop(name, None)

    def snapshot(self) -> Any:
        """Return the state as plain values."""
        return [self.names(), self._few, self.in_force]

    @classmethod
    def restored(cls, state: Any) -> Takeover:
        """Return the takeover of a snapshot."""
        names, few, in_force = state
        found = cls(names, 0)
        found._few, found.in_force = few, in_force
        return found
