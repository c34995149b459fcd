"""Stream groupings: what a topology declares; :mod:`~dskype.topology.routing.groupers` chooses tasks by them at run time.

Difference from Storm's default: shuffle and local-or-shuffle split equally and ignore load, which is what Storm does
under ``topology.disable.loadaware.messaging: true``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from dskype.topology.context import TopologyContext
from dskype.topology.fields import Fields, GlobalStreamId
from dskype.topology.model import Grouping
from dskype.topology.tuples import column_to_list

__all__ = [
    "AllGrouping",
    "CustomGrouping",
    "CustomStreamGrouping",
    "DirectGrouping",
    "FieldsGrouping",
    "GlobalGrouping",
    "Grouping",
    "LocalOrShuffleGrouping",
    "NoneGrouping",
    "PartialKeyGrouping",
    "RowTasks",
    "ShuffleGrouping",
]


@dataclass(frozen=True)
class ShuffleGrouping(Grouping):
    """Equal shares: each producer task walks its own randomly permuted ring of the tasks."""

    kind: ClassVar[str] = "shuffle"


@dataclass(frozen=True)
class FieldsGrouping(Grouping):
    """Equal values of ``fields`` go to the same task. No fields at all means global, as in Storm's wire model."""

    fields: Fields
    kind: ClassVar[str] = "fields"

    def __str__(self) -> str:
        return f"fields({', '.join(self.fields)})"


@dataclass(frozen=True)
class AllGrouping(Grouping):
    """Every task gets a copy."""

    kind: ClassVar[str] = "all"


@dataclass(frozen=True)
class GlobalGrouping(Grouping):
    """Everything goes to the task with the lowest id."""

    kind: ClassVar[str] = "global"


@dataclass(frozen=True)
class NoneGrouping(Grouping):
    """Each tuple goes to a task drawn at random, uniformly and independently."""

    kind: ClassVar[str] = "none"


@dataclass(frozen=True)
class DirectGrouping(Grouping):
    """The producer names the task with ``emit_direct``."""

    kind: ClassVar[str] = "direct"


@dataclass(frozen=True)
class LocalOrShuffleGrouping(Grouping):
    """Shuffle among the tasks of the producer's own worker if there are any, else among all."""

    kind: ClassVar[str] = "local_or_shuffle"


@dataclass(frozen=True)
class PartialKeyGrouping(Grouping):
    """Each key has two tasks; the producer task sends to the one that it has sent less to so far."""

    fields: Fields
    kind: ClassVar[str] = "partial_key"

    def __str__(self) -> str:
        return f"partial_key({', '.join(self.fields)})"


@dataclass(frozen=True)
class CustomGrouping(Grouping):
    """The tasks are chosen by the user's object; each producer task works on a copy of its own."""

    grouping: CustomStreamGrouping
    kind: ClassVar[str] = "custom"

    def __str__(self) -> str:
        return f"custom({type(self.grouping).__name__})"


class RowTasks(NamedTuple):
    """Copies of rows: row ``rows[i]`` goes to ``tasks[i]``; a row may occur never, once or several times, in order."""

    rows: np.ndarray
    """int64[m], non-decreasing row numbers."""
    tasks: np.ndarray
    """int32[m], task ids."""


class CustomStreamGrouping(ABC):
    """A grouping written by the user.

    Must be deterministic: the same tuples in the same order give the same tasks, for a crashed producer's choices are
    made again. Keep random state and counters in ``snapshot``/``restore``.
    """

    @abstractmethod
    def prepare(self, context: TopologyContext, stream: GlobalStreamId, target_tasks: Sequence[int]) -> None:
        """Get ready; called once per producer task before the first choice.

        :param context: context of the producer task.
        :param stream: the stream that is grouped.
        :param target_tasks: task ids of the consumer, sorted.
        """

    @abstractmethod
    def choose_tasks(self, task_id: int, values: Sequence[Any]) -> Sequence[int]:
        """Return the tasks (several or none) that get a tuple.

        :param task_id: the emitting task.
        :param values: the tuple's values, read-only.
        """

    def choose_tasks_batch(self, task_id: int, columns: Sequence[Any], n: int) -> np.ndarray | RowTasks | None:
        """Return the tasks of ``n`` rows at once; must equal ``choose_tasks`` row by row.

        Default: calls ``choose_tasks`` for each row.

        :param columns: one column per field of the stream.
        :returns: int array[n] of task ids, one per row; or :class:`RowTasks`; or None: every row to every task.
        """
        lists = [column_to_list(c) for c in columns]
        rows: list[int] = []
        tasks: list[int] = []
        for i in range(n):
            for task in self.choose_tasks(task_id, tuple([c[i] for c in lists])):
                rows.append(i)
                tasks.append(task)
        return RowTasks(np.array(rows, np.int64), np.array(tasks, np.int32))

    def snapshot(self) -> Any:
        """Return the state for :meth:`restore`; default None: there is none."""
        return None

    def restore(self, state: Any) -> None:
        """Take over ``state``; called after ``prepare``, only if the state is not None."""
