"""Adds exclamation marks to words, twice three: ``dskype local docs/examples/starter/exclamation.py [NAME]``."""

from __future__ import annotations

from collections.abc import Sequence

from dskype import Bolt, Config, Fields, Spout, StormSubmitter, StormTopology, TopologyBuilder, Tuple
from dskype.topology.mixins import DeclaresFields, KeepsCollector
from dskype.topology.testing import TestWordSpout

__all__ = ["Exclamation", "main", "topology"]


class Exclamation(DeclaresFields, KeepsCollector, Bolt):
    """Emits its input with ``!!!``, anchored, and acks it."""

    _fields = Fields("word")

    def execute(self, tup: Tuple) -> None:
        """Exclaim."""
        self._collector.emit((f"{tup.get_string(0)}!!!",), anchors=tup)
        self._collector.ack(tup)


def topology(words: Spout | None = None) -> StormTopology:
    """Return the topology.

    :param words: the spout; default: five names.
    """
    builder = TopologyBuilder()
    builder.set_spout("word", words or TestWordSpout(), 2)
    builder.set_bolt("exclaim1", Exclamation(), 3).shuffle_grouping("word")
    builder.set_bolt("exclaim2", Exclamation(), 2).shuffle_grouping("exclaim1")
    return builder.create_topology()


def main(args: Sequence[str]) -> None:
    """Submit it.

    :param args: the topology's name; default ``exclamation``.
    """
    StormSubmitter.submit_topology(args[0] if args else "exclamation", Config(), topology())
