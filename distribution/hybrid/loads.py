"""The load of a task: ``L = c1 |O| |Q| + c2 |O| + c3 |Q inserted| + c4 |Q removed|`` (PS2Stream, definition 1)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from dskype.topology.errors import IllegalArgumentException

__all__ = ["UPDATES_PER_MESSAGE", "LoadModel"]

UPDATES_PER_MESSAGE = 0.2
"""Insertions and removals together; half of them are insertions (section VI-A: messages : updates = 5 : 1)."""


class LoadModel(NamedTuple):
    """What a task does, in microseconds; ``dskype partition calibrate`` measures it on a machine. The defaults were measured so with the index ``lanes`` on 2026-11-23, on one of two shared cores.

    :ivar pair_us: c1: the time of a message grows by this with each subscription of its task, on average.
    :ivar check_us: c1 of the subscriptions that an index really checks: those whose routing term the message has, and whose rectangle it is in.
    :ivar message_us: c2, a message.
    :ivar insert_us: c3, an insertion; ``remove_us``: c4, a removal.
    """

    pair_us: float = 5.32e-06
    check_us: float = 0.0116
    message_us: float = 0.413
    insert_us: float = 1.19
    remove_us: float = 0.0975

    @property
    def update_us(self) -> float:
        """The time of the updates that come with a message, if they concern all tasks equally."""
        return UPDATES_PER_MESSAGE / 2 * (self.insert_us + self.remove_us)

    @classmethod
    def checked(cls, distributor: str, costs: Any) -> LoadModel:
        """Return the model in the option ``costs`` of a distributor.

        :raises IllegalArgumentException: it is no map of these constants, or one is negative.
        """
        usable = isinstance(costs, Mapping) and set(costs) <= set(cls._fields) and all(type(x) in (int, float) and 0 <= x < 1e9 for x in costs.values())
        if not usable:
            raise IllegalArgumentException(
                f"The option costs of the {distributor} distributor is not usable.",
                given=costs,
                legal=f"a map with some of {', '.join(cls._fields)}, in microseconds",
                hint="'dskype partition calibrate' measures them",
            )
        return cls(**costs)
