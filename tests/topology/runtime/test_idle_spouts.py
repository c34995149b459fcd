"""On Spark, an idle spout is asked again and again between its pulses, as by Storm."""

from __future__ import annotations

import time

from dskype.topology import Fields, Spout, TopologyBuilder
from dskype.topology.core.shared_log import SharedLog
from dskype.topology.testing import TupleCaptureBolt


class Asked(Spout):
    """Emits how often it was asked, whenever it is told to."""

    def __init__(self):
        self.told = SharedLog()

    def declare_output_fields(self, declarer):
        declarer.declare(Fields("times"))

    def open(self, conf, context, collector):
        self._collector, self._position, self._times = collector, 0, 0

    def next_tuple(self):
        self._times += 1
        for position, _ in self.told.read(self._position):
            self._position = position
            self._collector.emit((self._times,), message_id=self._times)
            return


def test_an_idle_spout_is_asked_between_its_pulses(cluster, name):
    spout, capture = Asked(), TupleCaptureBolt()
    builder = TopologyBuilder()
    builder.set_spout("asked", spout)
    builder.set_bolt("capture", capture).shuffle_grouping("asked")
    with cluster.submit_topology(name, {"topology.spout.wait.progressive.level3.sleep.millis": 1}, builder.create_topology()) as topology:
        for n in (1, 2):
            spout.told.append("now")
            topology.backend.wait_until(lambda stats, n=n: stats.total("asked", "acked") == n, 60)
            time.sleep(2)
        pulses = topology.stats.tasks[topology.backend.plan.component_tasks("asked")[0]]["pulse"]
    first, second = (tup.values[0] for tup in capture.get_results()["asked"])
    # Two seconds of asking every millisecond; pulses alone would be some twenty.
    assert second - first > 10 * pulses, (first, second, pulses)
