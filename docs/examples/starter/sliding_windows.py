"""Sums over sliding windows, and averages of the sums over tumbling ones: ``dskype local docs/examples/starter/sliding_windows.py [NAME]``."""

from __future__ import annotations

from collections.abc import Sequence

from paced_spouts import NumberSpout, PacedSpout

from dskype import Config, Count, Fields, StormSubmitter, StormTopology, TopologyBuilder, TupleWindow, WindowedBolt
from dskype.topology.mixins import DeclaresFields, KeepsCollector, RemembersAttribute

__all__ = ["SlidingSum", "TumblingAverage", "main", "topology"]


class SlidingSum(DeclaresFields, KeepsCollector, RemembersAttribute, WindowedBolt):
    """Emits the sum of ``value`` in each window: field ``sum``. It adds what is new and subtracts what has left."""

    _fields, _state = Fields("sum"), "_sum"

    def __init__(self) -> None:
        self._sum = 0

    def execute(self, window: TupleWindow) -> None:
        """Update the sum, and emit it."""
        self._sum += sum(t["value"] for t in window.get_new()) - sum(t["value"] for t in window.get_expired())
        self._collector.emit((self._sum,))


class TumblingAverage(DeclaresFields, KeepsCollector, WindowedBolt):
    """Emits the average of ``sum`` in each window: field ``avg``."""

    _fields = Fields("avg")

    def execute(self, window: TupleWindow) -> None:
        """Emit the average."""
        self._collector.emit((sum(t["sum"] for t in window) / len(window),))


def topology(numbers: PacedSpout | None = None) -> StormTopology:
    """Return the topology.

    :param numbers: the spout; default: numbers without end.
    """
    builder = TopologyBuilder()
    builder.set_spout("integer", numbers or NumberSpout())
    builder.set_bolt("slidingsum", SlidingSum().with_window(Count(30), Count(10))).shuffle_grouping("integer")
    builder.set_bolt("tumblingavg", TumblingAverage().with_tumbling_window(Count(3))).shuffle_grouping("slidingsum")
    return builder.create_topology()


def main(args: Sequence[str]) -> None:
    """Submit it.

    :param args: the topology's name; default ``sliding-windows``.
    """
    StormSubmitter.submit_topology(args[0] if args else "sliding-windows", Config(), topology())
