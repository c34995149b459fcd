"""The most frequent words of the last nine seconds: ``dskype local docs/examples/starter/rolling_top_words.py [NAME]``.

The window slides every three seconds, and the ranking is emitted every two. Words are counted in a ring of slots, one for each interval of ticks. The tasks of ``intermediate`` rank the words that they
get, and one task merges the rankings::

    words --FIELDS(word)--> counter --FIELDS(obj)--> intermediate --GLOBAL--> total
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from dskype import BasicBolt, Bolt, Config, Fields, Spout, StormSubmitter, StormTopology, TopologyBuilder, Tuple, is_tick
from dskype.topology.mixins import DeclaresFields, KeepsCollector, RemembersAttribute
from dskype.topology.testing import TestWordSpout

__all__ = ["Rankings", "RollingCount", "TotalRankings", "main", "topology"]


class RollingCount(DeclaresFields, KeepsCollector, RemembersAttribute, Bolt):
    """Counts objects over a window that slides with the ticks; emits ``obj`` and its ``count``, 0 for one that has left the window.

    :param window_secs: length of the window.
    :param emit_secs: how far it slides; a divisor of the length.
    """

    _fields, _state = Fields("obj", "count"), "_slots"

    def __init__(self, window_secs: int, emit_secs: int) -> None:
        self._emit_secs = emit_secs
        # The window's slots, the last one for what comes now; and before them the one that has left it with the last tick.
        self._slots: list[dict[Any, int]] = [{} for _ in range(window_secs // emit_secs + 1)]

    def get_component_configuration(self) -> dict[str, Any]:
        """Return the interval of ticks."""
        return {Config.TOPOLOGY_TICK_TUPLE_FREQ_SECS: self._emit_secs}

    def execute(self, tup: Tuple) -> None:
        """Count an object, or slide the window."""
        if not is_tick(tup):
            slot, obj = self._slots[-1], tup[0]
            slot[obj] = slot.get(obj, 0) + 1
            self._collector.ack(tup)
            return
        totals: Counter[Any] = Counter(dict.fromkeys(self._slots[0], 0))
        for slot in self._slots[1:]:
            totals.update(slot)
        for obj, count in totals.items():
            self._collector.emit((obj, count))
        self._slots = [*self._slots[1:], {}]


class Rankings(DeclaresFields, RemembersAttribute, BasicBolt):
    """Keeps the objects with the highest counts, and emits them at each tick: ``rankings``, a list of [object, count].

    :param top_n: how many.
    :param emit_secs: interval of ticks.
    """

    _fields, _state = Fields("rankings"), "_counts"

    def __init__(self, top_n: int = 5, emit_secs: int = 2) -> None:
        self._top_n, self._emit_secs = top_n, emit_secs
        self._counts: dict[Any, int] = {}

    def get_component_configuration(self) -> dict[str, Any]:
        """Return the interval of ticks."""
        return {Config.TOPOLOGY_TICK_TUPLE_FREQ_SECS: self._emit_secs}

    def execute(self, tup: Tuple, collector: Any) -> None:
        """Take a new count, or emit the ranking."""
        if is_tick(tup):
            collector.emit((self._best(),))
            return
        self._counts[tup["obj"]] = tup["count"]
        if not tup["count"]:
            del self._counts[tup["obj"]]

    def _best(self) -> list[list[Any]]:
        return [[obj, count] for obj, count in sorted(self._counts.items(), key=lambda pair: (-pair[1], repr(pair[0])))[: self._top_n]]


class TotalRankings(Rankings):
    """Merges rankings: those of each task replace its former ones."""

    _state = "_rankings"

    def __init__(self, top_n: int = 5, emit_secs: int = 2) -> None:
        super().__init__(top_n, emit_secs)
        self._rankings: dict[int, list[list[Any]]] = {}

    def execute(self, tup: Tuple, collector: Any) -> None:
        """Take the ranking of a task, or emit that of all."""
        if not is_tick(tup):
            self._rankings[tup.get_source_task()] = tup["rankings"]
            return
        self._counts = {obj: count for ranking in self._rankings.values() for obj, count in ranking}
        collector.emit((self._best(),))


def topology(words: Spout | None = None, *, top_n: int = 5, window_secs: int = 9, emit_secs: int = 3) -> StormTopology:
    """Return the topology.

    :param words: the spout; default: five names.
    :param top_n: length of the ranking.
    :param window_secs: what counts as recent.
    :param emit_secs: how far the window slides.
    """
    builder = TopologyBuilder()
    builder.set_spout("words", words or TestWordSpout(), 2)
    builder.set_bolt("counter", RollingCount(window_secs, emit_secs), 2).fields_grouping("words", Fields("word"))
    builder.set_bolt("intermediate", Rankings(top_n), 2).fields_grouping("counter", Fields("obj"))
    builder.set_bolt("total", TotalRankings(top_n)).global_grouping("intermediate")
    return builder.create_topology()


def main(args: Sequence[str]) -> None:
    """Submit it.

    :param args: the topology's name; default ``rolling-top-words``.
    """
    StormSubmitter.submit_topology(args[0] if args else "rolling-top-words", Config(), topology())
