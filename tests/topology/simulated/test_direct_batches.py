"""emit_direct_batch: columns to one task of a direct stream."""

import pyarrow as pa

from dskype.topology import BatchBolt, Bolt, Fields, TopologyBuilder
from dskype.topology.local import LocalCluster
from dskype.topology.testing import FixedTupleSpout

from .storm_helpers import Run


class Sender(BatchBolt):
    def __init__(self, sends):
        self.sends = sends

    def prepare(self, conf, context, collector):
        self.collector, self.errors, self.sent = collector, [], []
        self.targets = context.get_component_tasks("sink")

    def execute_batch(self, batch):
        for target, columns in self.sends:
            try:
                self.sent.append(self.collector.emit_direct_batch(self.targets[target] if target is not None else 1, columns, "d"))
            except Exception as error:
                self.errors.append(str(error))

    def declare_output_fields(self, declarer):
        declarer.declare_stream("d", Fields("n", "list"), direct=True)


class Sink(Bolt):
    def prepare(self, conf, context, collector):
        self.seen = []

    def execute(self, tup):
        self.seen.append(tuple(tup.values))


def sent(*sends):
    builder = TopologyBuilder()
    builder.set_spout("spout", FixedTupleSpout([(1,)], "x"))
    builder.set_bolt("sender", Sender(sends)).shuffle_grouping("spout")
    builder.set_bolt("sink", Sink(), 2).direct_grouping("sender", "d")
    with LocalCluster(simulated=True) as cluster:
        run = Run(cluster, "t", cluster.submit_topology("t", {"topology.acker.executors": 0}, builder.create_topology()))
        run.advance(1)
        sender = run.components("sender")[0]
        return [sink.seen for sink in run.components("sink")], sender.sent, sender.errors


def test_columns_reach_the_one_task_that_is_named():
    lists = pa.array([[1, 2], [], [3]])
    seen, counts, errors = sent((1, [[7, 8, 9], lists]), (0, [[5], pa.array([[4]])]), (1, [[], []]))
    assert seen == [[(5, [4])], [(7, [1, 2]), (8, []), (9, [3])]]
    assert (counts, errors) == ([3, 1, 0], [])


def test_a_task_that_does_not_subscribe_gets_nothing():
    assert sent((None, [[1], [[2]]])) == ([[], []], [0], [])


def test_columns_that_do_not_fit_the_stream_are_refused():
    _, _, errors = sent((0, [[1]]), (0, [[1, 2], [[1]]]))
    assert "Expected 2 fields but got 1 fields" in errors[0]
    assert "different lengths" in errors[1]
