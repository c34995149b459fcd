"""When spouts are held back."""

from dskype.topology import TopologyBuilder
from dskype.topology.core.clock import TopologyClock
from dskype.topology.core.stats import TopologyStats
from dskype.topology.plan import TopologyPlan
from dskype.topology.testing import FixedTupleSpout, IdentityBolt


class Queue:
    """Statistics of a spout and a bolt that takes ``rate`` tuples a second."""

    def __init__(self, conf, rate):
        builder = TopologyBuilder()
        builder.set_spout("spout", FixedTupleSpout([(1,)], "x"))
        builder.set_bolt("sink", IdentityBolt("x")).shuffle_grouping("spout")
        plan = TopologyPlan.build("t", "t-1-0", {"topology.acker.executors": 0, **conf}, builder.create_topology())
        self.rate, self.sent, self.received, self.now_ms, self.stats = rate, 0, 0.0, 0, TopologyStats()
        self.clock = TopologyClock(plan, self.stats, 0)

    def run(self, seconds):
        """Let the spout send all it may; return the longest queue of the last half."""
        longest = 0
        for step in range(int(seconds * 20)):
            self.now_ms += 50
            if not self.clock.throttled:
                self.sent += 500
            self.received = min(self.sent, self.received + self.rate / 20)
            more = {"emitted": {}, "pulse": 1 << 30}
            self.stats.tasks = {1: {"received": {}, "sent": {"2": self.sent}, **more}, 2: {"received": {"1": int(self.received)}, "sent": {}, **more}}
            self.clock.due(self.now_ms, active=True)
            if step > seconds * 10:
                longest = max(longest, self.sent - int(self.received))
        return longest


def test_a_queue_grows_to_what_takes_the_time_that_is_allowed():
    for rate in (1_000, 4_000):
        assert 2 * rate <= Queue({"topology.emulator.backpressure.max.ms": 2000}, rate).run(60) <= 2.3 * rate + 500


def test_a_queue_has_an_end_however_fast_it_moves():
    longest = Queue({"topology.emulator.backpressure.max.tuples": 3_000}, 5_000).run(20)
    assert 3_000 <= longest <= 3_500


def test_a_few_tuples_may_always_wait():
    assert 1_000 <= Queue({"topology.emulator.backpressure.max.ms": 100}, 10).run(30) <= 1_600
