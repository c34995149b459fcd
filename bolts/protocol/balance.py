"""What load balancing measures and asks for.

``placements`` brings :class:`PartitionMap` and :class:`SizeShift` to the subscription tasks, ``balance`` brings :class:`WorkloadReport`, :class:`ShiftSized` and
:class:`LoadReport` to the distribution task that balances, and ``transfers`` brings :class:`HandedOver` from one subscription task to another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from dskype.distribution.agrid.balancing import Summary

__all__ = ["BalanceMessage", "HandedOver", "LoadReport", "PartitionMap", "ShiftSized", "SizeShift", "WorkloadReport", "decode_balance", "encode_balance"]


class PartitionMap(NamedTuple):
    """The plan by which a task measures its workload from now on.

    :ivar version: of the plan.
    :ivar plan: tells the task its partition; None: it measures all its work together.
    """

    version: int
    plan: Mapping[str, Any] | None


class SizeShift(NamedTuple):
    """Asks the task how much of its partition a shift to another task should move; :class:`ShiftSized` answers.

    :ivar decision: number of the decision.
    :ivar target: index of the other task.
    :ivar side: of the partition of the task that is asked, see :class:`dskype.distribution.agrid.balancing.Shift`.
    :ivar cost: what has to move for both to have the same cost.
    :ivar source_cost: of the task that is asked, by the report that was decided on. Its costs have changed and aged meanwhile, so it scales ``cost``.
    """

    decision: int
    target: int
    side: int
    cost: float
    source_cost: float


class HandedOver(NamedTuple):
    """Costs of cells that a subscription task has given to another one, which counts them as its own (stream ``transfers``).

    :ivar version: of the plan by which the other task has the cells.
    :ivar x: int32[n], columns of the fine grid; ``y``: int32[n], rows.
    :ivar cost: float64[n].
    """

    version: int
    x: Any
    y: Any
    cost: Any
    kind = "costs"

    def encode(self) -> dict[str, Any]:
        """Return the map."""
        return {"type": self.kind, **self._asdict()}

    @classmethod
    def decode(cls, record: Mapping[str, Any]) -> HandedOver:
        """Return the message in a map."""
        return cls(record["version"], *(np.asarray(record[name]) for name in ("x", "y", "cost")))


class WorkloadReport(NamedTuple):
    """The summary of a task's workload. ``version``: of the plan whose partition it is."""

    version: int
    summary: Summary
    kind = "workload"


class ShiftSized(NamedTuple):
    """The answer to :class:`SizeShift`.

    :ivar source: index of the task that answers.
    :ivar size: how many columns or rows should move; None: no size is worth while.
    """

    decision: int
    source: int
    size: int | None
    kind = "sized"


class LoadReport(NamedTuple):
    """How much a task has done, where parts of zones are balanced by the load model. The past counts less with every period.

    :ivar version: of the plan by which it worked.
    :ivar task: its index.
    :ivar messages: messages that came; ``matches``: those of boolean subscriptions; ``inserted``, ``removed``: boolean subscriptions.
    """

    version: int
    task: int
    messages: float
    matches: float
    inserted: float
    removed: float
    kind = "load"


BalanceMessage = WorkloadReport | ShiftSized | LoadReport


def encode_balance(message: BalanceMessage) -> list[Any]:
    """Return the record of a message."""
    return [message.version, message.summary.encode()] if isinstance(message, WorkloadReport) else list(message)


def decode_balance(kind: str, record: Sequence[Any]) -> BalanceMessage:
    """Return the message in a row of the stream ``balance``."""
    if kind == WorkloadReport.kind:
        return WorkloadReport(record[0], Summary.decode(record[1]))
    return (ShiftSized if kind == ShiftSized.kind else LoadReport)(*record)
