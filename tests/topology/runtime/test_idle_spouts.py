"""On Spark, an idle spout is asked again and again between its pulses, as by Storm."""

from __future__ import annotations

from dskype.topology import Bolt, Fields, Spout, TopologyBuilder

EVERY, N = 100, 3


class Asked(Spout):
    """Emits a tuple each time it is asked for the hundredth time."""

    def declare_output_fields(self, declarer):
        declarer.declare(Fields("times"))

    def open(self, conf, context, collector):
        self._collector, self._times = collector, 0

    def next_tuple(self):
        self._times += 1
        if self._times % EVERY == 0 and self._times <= N * EVERY:
            self._collector.emit((self._times,), message_id=self._times)


class Ignore(Bolt):
    def prepare(self, conf, context, collector):
        self._collector = collector

    def execute(self, tup):
        self._collector.ack(tup)


def test_an_idle_spout_is_asked_between_its_pulses(cluster, name):
    builder = TopologyBuilder()
    builder.set_spout("asked", Asked())
    builder.set_bolt("ignore", Ignore()).shuffle_grouping("asked")
    rare = {"topology.emulator.pulse.interval.ms": 600_000, "topology.emulator.pulse.idle.interval.ms": 600_000}
    with cluster.submit_topology(name, rare, builder.create_topology()) as topology:
        topology.backend.wait_until(lambda stats: stats.total("asked", "acked") == N, 120)
        pulses = topology.stats.tasks[topology.backend.plan.component_tasks("asked")[0]]["pulse"]
    assert pulses <= 2, "it was asked three hundred times meanwhile"
