"""Counts the words of random sentences: ``dskype local docs/examples/starter/word_count.py [NAME]``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from paced_spouts import PacedSpout, SentenceSpout

from dskype import BasicBolt, Config, Fields, StormSubmitter, StormTopology, TopologyBuilder, Tuple
from dskype.topology.mixins import DeclaresFields, RemembersAttribute

__all__ = ["SplitSentence", "WordCount", "main", "topology"]


class SplitSentence(DeclaresFields, BasicBolt):
    """Emits each word of a sentence: field ``word``."""

    _fields = Fields("word")

    def execute(self, tup: Tuple, collector: Any) -> None:
        """Split the first value at blanks."""
        for word in tup.get_string(0).split():
            collector.emit((word,))


class WordCount(DeclaresFields, RemembersAttribute, BasicBolt):
    """Emits each word with the number of times it has come: fields ``word``, ``count``. A crash does not change the counts."""

    _fields, _state = Fields("word", "count"), "_counts"

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def execute(self, tup: Tuple, collector: Any) -> None:
        """Count the word."""
        word = tup["word"]
        count = self._counts[word] = self._counts.get(word, 0) + 1
        collector.emit((word, count))


def topology(sentences: PacedSpout | None = None) -> StormTopology:
    """Return the topology.

    :param sentences: the spout; default: sentences without end.
    """
    builder = TopologyBuilder()
    builder.set_spout("spout", sentences or SentenceSpout(), 2)
    builder.set_bolt("split", SplitSentence(), 2).shuffle_grouping("spout")
    builder.set_bolt("count", WordCount(), 3).fields_grouping("split", Fields("word"))
    return builder.create_topology()


def main(args: Sequence[str]) -> None:
    """Submit it.

    :param args: the topology's name; default ``word-count``.
    """
    StormSubmitter.submit_topology(args[0] if args else "word-count", Config(), topology())
