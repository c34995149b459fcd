"""Which components get watermarks."""

import pytest

from dskype.topology.builder import TopologyBuilder
from dskype.topology.components import BatchBolt, Spout
from dskype.topology.core.watermarks import takes_watermarks, watermark_sources


class Source(Spout):
    emits_watermarks = True

    def next_tuple(self):
        """Emit nothing."""

    def declare_output_fields(self, declarer):
        declarer.declare(["x"])


class Plain(BatchBolt):
    def execute_batch(self, batch):
        """Do nothing."""

    def declare_output_fields(self, declarer):
        declarer.declare(["x"])


class Watching(Plain):
    def on_watermark(self, watermark):
        """Do nothing."""


def topology(*bolts):
    builder = TopologyBuilder()
    builder.set_spout("source", Source())
    for name, bolt, *sources in bolts:
        declarer = builder.set_bolt(name, bolt)
        for source in sources:
            declarer.shuffle_grouping(source)
    return builder.create_topology()


@pytest.mark.parametrize(
    ("bolts", "takers"),
    [
        ([("a", Plain(), "source")], set()),
        ([("a", Watching(), "source")], {"a"}),
        ([("a", Plain(), "source"), ("b", Plain(), "a"), ("c", Watching(), "b"), ("d", Plain(), "b")], {"a", "b", "c"}),
        ([("a", Watching(), "source", "c"), ("b", Plain(), "a"), ("c", Plain(), "b")], {"a"}),  # streams that only lead back do not count
    ],
)
def test_watermarks_go_where_something_is_done_with_them(bolts, takers):
    built = topology(*bolts)
    assert {name for name, *_ in bolts if takes_watermarks(built, name)} == takers


def test_a_component_does_not_wait_for_its_own_feedback():
    built = topology(("a", Watching(), "source", "c"), ("b", Plain(), "a"), ("c", Plain(), "b"))
    assert watermark_sources(built, "a") == ["source"] and watermark_sources(built, "b") == []
