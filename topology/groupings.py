"""Stream groupings as a topology declares them; :mod:`~dskype.topology.routing.groupers` applies them at run time.

Unlike Storm's default, shuffle and local-or-shuffle split equally and ignore load, as Storm does with
``topology.disable.loadaware.messaging: true``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from dskype.topology.context import TopologyContext
from dskype.topology.fields import Fields, GlobalStreamId
from dskype.topology.model import Grouping
from dskype.topology.tuples import column_to_list

if TYPE_CHECKING:
    import numpy as np

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
    """All tasks get equal shares: each producer task cycles through its own random permutation of the tasks."""

    kind: ClassVar[str] = "shuffle"


@dataclass(frozen=True)
class FieldsGrouping(Grouping):
    """Equal values of ``fields`` go to the same task. Without fields it is a global grouping, as in Storm's wire model."""

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
    """Shuffle among the tasks in the producer's own worker; if there are none, among all tasks."""

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
    """The user's object chooses the tasks; each producer task works on its own copy."""

    grouping: CustomStreamGrouping
    kind: ClassVar[str] = "custom"

    def __str__(self) -> str:
        return f"custom({type(self.grouping).__name__})"


class RowTasks(NamedTuple):
    """Routes of a batch: row ``rows[i]`` goes to ``tasks[i]``; a row may go to no task, one or several."""

    rows: np.ndarray
    """int64[m], non-decreasing row numbers."""
    tasks: np.ndarray
    """int32[m], task ids."""


class CustomStreamGrouping(ABC):
    """A grouping written by the user.

    It must be deterministic: the same tuples in the same order give the same tasks, because a restarted producer
    repeats its choices. Include counters and the state of random numbers in ``snapshot`` and ``restore``.
    """

    @abstractmethod
    def prepare(self, context: TopologyContext, stream: GlobalStreamId, target_tasks: Sequence[int]) -> None:
        """Initialize the grouping; called once per producer task before the first choice.

        :param context: context of the producer task.
        :param stream: the grouped stream.
        :param target_tasks: task ids of the consumer, sorted.
        """

    @abstractmethod
    def choose_tasks(self, task_id: int, values: Sequence[Any]) -> Sequence[int]:
        """Return the tasks that get a tuple: none, one or several.

        :param task_id: the emitting task.
        :param values: the tuple's values, read-only.
        """

    def choose_tasks_batch(self, task_id: int, columns: Sequence[Any], n: int) -> np.ndarray | RowTasks | None:
        """Return the tasks of ``n`` rows; the choices must equal those of ``choose_tasks`` for each row.

        Default: calls ``choose_tasks`` for each row.

        :param columns: one column per field of the stream.
        :returns: int array[n] of task ids, one per row; or :class:`RowTasks`; or None to send every row to every task.
        """
        import numpy as np  # here, because clients group nothing and need not load it

        lists = [column_to_list(c) for c in columns]
        rows: list[int] = []
        tasks: list[int] = []
        for i in range(n):
            for task in self.choose_tasks(task_id, tuple([c[i] for c in lists])):
                rows.append(i)
                tasks.append(task)
        return RowTasks(np.array(rows, np.int64), np.array(tasks, np.int32))

    def snapshot(self) -> Any:
        """Return the state for :meth:`restore`; default None, for no state."""
        return None

    def restore(self, state: Any) -> None:
        """Restore ``state``; called after ``prepare`` unless the state is None."""
