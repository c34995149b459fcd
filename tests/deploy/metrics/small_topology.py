"""A topology with DSkype's spout and streams, and nothing inside: it starts fast on Spark."""

from __future__ import annotations

from typing import Any

from dskype.spouts import streams
from dskype.spouts.kafka import MessageSpout
from dskype.spouts.topics import Topics
from dskype.topology import TopologyBuilder
from dskype.topology.components import BatchBolt


class Relay(BatchBolt):
    """Emits on ``matching`` what comes on ``messages``."""

    def prepare(self, conf: Any, context: Any, collector: Any) -> None:
        self._collector = collector
        context.register_counter("subscriptions_registered").inc(5)

    def execute_batch(self, batch: Any) -> None:
        self._collector.emit_batch([batch["seq"]], streams.Matching.name)

    def declare_output_fields(self, declarer: Any) -> None:
        declarer.declare_stream(streams.Matching.name, ["seq"])


class Sink(BatchBolt):
    """Takes all, and watermarks, and does nothing."""

    def prepare(self, conf: Any, context: Any, collector: Any) -> None:
        context.register_gauge("subscriptions", lambda: 4)

    def execute_batch(self, batch: Any) -> None:
        pass

    def on_watermark(self, watermark: int) -> None:
        pass


def small_topology(name: str) -> Any:
    """Build it: spout ``spout``, bolts ``relay`` and, with two tasks that get everything, ``sink``."""
    builder = TopologyBuilder()
    builder.set_spout("spout", MessageSpout(Topics.for_topology(name).messages), 1)
    builder.set_bolt("relay", Relay(), 1).shuffle_grouping("spout", streams.Messages.name)
    builder.set_bolt("sink", Sink(), 2).all_grouping("relay", streams.Matching.name)
    return builder.create_topology()
