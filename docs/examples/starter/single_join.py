"""Joins tuples of two spouts by their ids, one to one: ``dskype local docs/examples/starter/single_join.py [NAME]``.

The bolt keeps a tuple until its partner comes, and fails it when that takes longer than the message timeout, so that its spout may emit it again.
A join within windows is :class:`~dskype.topology.joins.JoinBolt`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from paced_spouts import PacedSpout

from dskype import Bolt, Config, Fields, Spout, StormSubmitter, StormTopology, TopologyBuilder, Tuple, is_tick
from dskype.topology.fields import as_fields
from dskype.topology.mixins import DeclaresFields

__all__ = ["Ages", "Genders", "SingleJoin", "main", "topology"]


class Genders(PacedSpout):
    """Emits ``id`` and ``gender``."""

    _fields = Fields("id", "gender")

    def values(self, number: int) -> tuple[Any, ...]:
        """Return a person's gender."""
        return number, "female" if number % 2 else "male"


class Ages(PacedSpout):
    """Emits ``id`` and ``age``."""

    _fields = Fields("id", "age")

    def values(self, number: int) -> tuple[Any, ...]:
        """Return a person's age."""
        return number, 20 + number % 50


class SingleJoin(DeclaresFields, Bolt):
    """Emits one tuple for each id of which every input has sent a tuple, anchored to all of them.

    :param outputs: fields of the result; each is a field of an input.
    """

    def __init__(self, outputs: Fields | Iterable[str]) -> None:
        self._fields = as_fields(outputs)

    def get_component_configuration(self) -> dict[str, Any]:
        """Return an interval of ticks, with which what is too old is found."""
        return {Config.TOPOLOGY_TICK_TUPLE_FREQ_SECS: 1}

    def prepare(self, conf: Mapping[str, Any], context: Any, collector: Any) -> None:
        """Learn how many inputs there are."""
        self._collector, self._context = collector, context
        self._sources = len(context.get_this_sources())
        self._timeout_ms = conf[Config.TOPOLOGY_MESSAGE_TIMEOUT_SECS] * 1000
        self._waiting: dict[Any, tuple[int, dict[str, Tuple]]] = {}

    def execute(self, tup: Tuple) -> None:
        """Join a tuple with those of its id, or fail what has waited too long."""
        now_ms = self._context.clock_ms()
        if is_tick(tup):
            for key in [key for key, (since_ms, _) in self._waiting.items() if now_ms - since_ms >= self._timeout_ms]:
                for waiting in self._waiting.pop(key)[1].values():
                    self._collector.fail(waiting)
            return
        _, parts = self._waiting.setdefault(tup["id"], (now_ms, {}))
        source = tup.get_source_component()
        if source in parts:
            self._collector.fail(parts[source])
        parts[source] = tup
        if len(parts) < self._sources:
            return
        del self._waiting[tup["id"]]
        values = [next(part[field] for part in parts.values() if part.contains(field)) for field in self._fields]
        self._collector.emit(values, anchors=list(parts.values()))
        for part in parts.values():
            self._collector.ack(part)


def topology(genders: Spout | None = None, ages: Spout | None = None) -> StormTopology:
    """Return the topology.

    :param genders: a spout of ``id`` and ``gender``; default: without end.
    :param ages: a spout of ``id`` and ``age``; default: without end.
    """
    builder = TopologyBuilder()
    builder.set_spout("gender", genders or Genders())
    builder.set_spout("age", ages or Ages())
    joiner = SingleJoin(("id", "gender", "age"))
    builder.set_bolt("join", joiner, 2).fields_grouping("gender", Fields("id")).fields_grouping("age", Fields("id"))
    return builder.create_topology()


def main(args: Sequence[str]) -> None:
    """Submit it.

    :param args: the topology's name; default ``single-join``.
    """
    StormSubmitter.submit_topology(args[0] if args else "single-join", Config(), topology())
