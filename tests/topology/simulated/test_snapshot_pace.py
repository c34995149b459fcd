"""How often snapshots are taken."""

from dskype.topology import TopologyBuilder
from dskype.topology.core.executor import Executor, Owner
from dskype.topology.core.snapshots import MemorySnapshotStore
from dskype.topology.local import LocalCluster
from dskype.topology.testing import FixedTupleSpout, IdentityBolt

from .storm_helpers import Run


def test_snapshots_that_take_long_are_taken_less_often():
    builder = TopologyBuilder()
    builder.set_spout("spout", FixedTupleSpout([(1,)], "x"))
    builder.set_bolt("sink", IdentityBolt("x")).shuffle_grouping("spout")
    with LocalCluster(simulated=True) as cluster:
        run = Run(cluster, "t", cluster.submit_topology("t", {"topology.acker.executors": 0}, builder.create_topology()))
        run.advance(1)
        now_ms = 0
        executor = Executor(run.sim.plan, "sink", 0, MemorySnapshotStore(3), run.sim.log, lambda: now_ms, owner=Owner("test", 0))
        executor.handle(0, run.sim.log.records("t.sink"))
        assert not executor.snapshot_due(1)
        now_ms = 10_000
        assert executor.snapshot_due(1)
        executor.delay_snapshots(4_000)
        now_ms = 89_999
        assert not executor.snapshot_due(1)
        now_ms = 90_000
        assert executor.snapshot_due(1)
        assert len(executor.pending_snapshots(1)) == 1
