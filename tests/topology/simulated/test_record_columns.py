"""send_records: many records to an external topic, as columns."""

import pyarrow as pa
import pytest

from dskype.topology import BatchBolt, TopologyBuilder
from dskype.topology.core.frames import OutRecord, OutRecords, expand_records
from dskype.topology.local import LocalCluster
from dskype.topology.planning.plan import TopologyPlan
from dskype.topology.runtime.wire import OUTPUT, decode_batches, encode_batches, out_batches
from dskype.topology.simulated.engine import Faults, SimulatedTopology
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
    sim = SimulatedTopology(plan, log, lambda: time_ms[0], seed=seed, faults=Faults.heavy())
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


def test_rows_for_the_sink_are_the_same_as_one_by_one():
    columns = OutRecords("t", pa.array(["a", "b"]), pa.array([b"1", None], pa.binary()), [("x", pa.array(["p", "q"])), ("y", pa.array([b"r", b"s"]))])
    records = [
        OutRecord("u", 3, None, b"v", None),
        OutRecord("u", 3, b"k", b"v", [("h", b"1"), ("i", b"2")]),
        columns,
        OutRecord("w", None, None, None, []),
        OutRecords("t", None, pa.array(["z"]), []),
    ]
    [batch] = decode_batches(encode_batches(out_batches(records)))
    assert batch.schema == OUTPUT and batch.num_rows == 6
    assert batch.to_pylist() == out_batches(list(expand_records(records)))[0].to_pylist()
    assert batch.to_pylist()[2] == {
        "topic": "t",
        "partition": None,
        "key": b"a",
        "value": b"1",
        "headers": [{"key": "x", "value": b"p"}, {"key": "y", "value": b"r"}],
    }
    assert list(decode_batches(encode_batches(out_batches([])))) == []


@pytest.mark.parametrize("size", [10, 3_000])
def test_many_rows_reach_the_sink_in_pieces(size):
    records = [OutRecord("u", 1, b"%d" % i, b"x" * size, [("n", b"%d" % i)]) for i in range(20_000)]
    pieces = list(decode_batches(encode_batches(out_batches(records))))
    assert len(pieces) > 1 and all(len(piece) <= 16_384 and len(piece) * size <= 4 << 20 for piece in pieces)
    rows = [row for piece in pieces for row in piece.to_pylist()]
    assert [row["key"] for row in rows] == [r.key for r in records] and rows[-1]["headers"] == [{"key": "n", "value": b"19999"}]
