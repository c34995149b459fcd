"""send_records: many records to an external topic, as columns."""

import pyarrow as pa
import pytest

from dskype.topology import BatchBolt, TopologyBuilder
from dskype.topology.local import LocalCluster
from dskype.topology.planning.plan import TopologyPlan
from dskype.topology.simulated.faults import Faults
from dskype.topology.simulated.faulty import simulate
from dskype.topology.simulated.log import MemoryLog
from dskype.topology.testing import FixedTupleSpout

from .storm_helpers import Run


class Writer(BatchBolt):
    """Writes every number twice: as single records, and as columns."""

    def prepare(self, conf, context, collector):
        self.collector, self.counts = collector, []

    def execute_batch(self, batch):
        numbers = [str(n) for (n,) in batch.rows()]
        for number in numbers:
            self.collector.send_record("out", None, f"one {number}".encode())
        self.counts.append(self.collector.send_records("out", pa.array(numbers), pa.array([f"many {n}" for n in numbers]), [("n", pa.array(numbers))]))
        self.collector.send_records("out", None, pa.array([], pa.string()))

    def snapshot(self):
        return None

    def restore(self, state):
        pass


def topology():
    builder = TopologyBuilder()
    builder.set_spout("spout", FixedTupleSpout([(i,) for i in range(20)], "n"))
    builder.set_bolt("writer", Writer()).shuffle_grouping("spout")
    return builder.create_topology()


def test_columns_are_written_with_keys_headers_and_numbers_of_their_own():
    with LocalCluster(simulated=True) as cluster:
        run = Run(cluster, "t", cluster.submit_topology("t", {"topology.acker.executors": 0}, topology()))
        run.advance(1)
        records = cluster.log.records("out")
        assert sum(run.components("writer")[0].counts) == 20 and len(records) == 40
        assert len({dict(r.headers)["record-id"] for r in records}) == 40
        many = [r for r in records if r.value.startswith(b"many")]
        assert [(r.key, dict(r.headers)["n"]) for r in many] == [(str(i).encode(), str(i).encode()) for i in range(20)]


@pytest.mark.parametrize("seed", range(20))
def test_repetitions_have_the_same_number(seed):
    time_ms = [0]
    log = MemoryLog(lambda: time_ms[0])
    plan = TopologyPlan.build("t", "t-1-0", {"topology.acker.executors": 0}, topology())
    sim = simulate(plan, log, lambda: time_ms[0], seed=seed, faults=Faults.heavy())
    sim.activate()
    for _ in range(10):
        time_ms[0] += 200
        sim.tick_clock()
        sim.run_until_quiet()
    unique = {}
    for record in log.records("out"):
        assert unique.setdefault(dict(record.headers)["record-id"], record.value) == record.value
    assert sorted(unique.values()) == sorted(f"{kind} {i}".encode() for kind in ("one", "many") for i in range(20))


def test_columns_of_different_lengths_are_refused():
    with LocalCluster(simulated=True) as cluster:
        run = Run(cluster, "t", cluster.submit_topology("t", {"topology.acker.executors": 0}, topology()))
        run.advance(1)
        with pytest.raises(ValueError, match="differ in length.*'writer'.*'out'.*given: \\[1, 2\\]"):
            run.components("writer")[0].collector.send_records("out", pa.array(["a"]), pa.array(["a", "b"]))
