"""When back-pressure holds spouts back."""

from dskype.topology import TopologyBuilder
from dskype.topology.core.clock import TopologyClock
from dskype.topology.core.frames import decode_frame
from dskype.topology.core.stats import TopologyStats
from dskype.topology.planning.plan import TopologyPlan
from dskype.topology.testing import FixedTupleSpout, IdentityBolt


class Queue:
    """Statistics of a spout, a bolt that processes ``rate`` tuples a second and emits ``made`` for each, and a sink that processes ``sink_rate`` of these."""

    def __init__(self, conf, rate, made=0, sink_rate=0, every=1, most=1 << 30):
        builder = TopologyBuilder()
        builder.set_spout("spout", FixedTupleSpout([(1,)], "x"))
        builder.set_bolt("bolt", IdentityBolt("x")).shuffle_grouping("spout")
        builder.set_bolt("sink", IdentityBolt("x")).shuffle_grouping("bolt")
        conf = {"topology.acker.executors": 0, "topology.emulator.pulse.max.tuples": 500, **conf}
        plan = TopologyPlan.build("t", "t-1-0", conf, builder.create_topology())
        self.tasks = [plan.component_tasks(name)[0] for name in ("spout", "bolt", "sink")]
        self.rate, self.made, self.sink_rate, self.every, self.most = (
            rate,
            made,
            sink_rate,
            every,
            most,
        )  # most: the most tuples that the spout emits for a pulse
        self.sent, self.received, self.taken, self.now_ms, self.stats = 0, 0.0, 0.0, 0, TopologyStats()
        self.clock, self.pulses = TopologyClock(plan, self.stats, 0), 0

    def run(self, seconds):
        """Let the spout use all of its credit; return the longest queues of the last half, before the bolt and before the sink."""
        longest, pulses, seen = [0, 0], [], 0
        spout, bolt, sink = self.tasks
        for step in range(int(seconds * 20)):
            self.now_ms += 50
            if step % self.every == 0:  # a micro-batch of the spout
                for pulse in pulses:
                    self.sent, seen = self.sent + min(self.most, pulse.credit), pulse.number
                pulses = []
            self.received = min(self.sent, self.received + self.rate / 20)
            made = int(self.received) * self.made
            self.taken = min(made, self.taken + self.sink_rate / 20)
            more = {"emitted": {"default": self.sent}, "pulse": seen}
            self.stats.tasks = {
                spout: {"received": {}, "sent": {f"{bolt}": self.sent}, **more},
                bolt: {"received": {f"{spout}": int(self.received)}, "sent": {f"{sink}": made} if made else {}, **more},
                sink: {"received": {f"{bolt}": int(self.taken)} if made else {}, "sent": {}, **more},
            }
            due = [decode_frame(record.value) for record in self.clock.due(self.now_ms, active=True)]
            pulses += due
            self.pulses += len(due)
            if step > seconds * 10:
                longest = [max(longest[0], self.sent - int(self.received)), max(longest[1], made - int(self.taken))]
        return longest


def test_a_queue_grows_to_what_takes_the_time_that_is_allowed():
    for rate in (1_000, 4_000):
        assert 1.9 * rate <= Queue({"topology.emulator.backpressure.max.ms": 2000}, rate).run(60)[0] <= 2.1 * rate


def test_a_queue_has_an_end_however_fast_it_moves():
    longest, _ = Queue({"topology.emulator.backpressure.max.tuples": 3_000}, 5_000).run(20)
    assert 3_000 <= longest <= 3_500


def test_a_few_tuples_may_always_wait():
    assert 1_000 <= Queue({"topology.emulator.backpressure.max.ms": 100}, 10).run(30)[0] <= 1_600


def test_a_tuple_that_becomes_many_counts_as_many():
    queue = Queue({"topology.emulator.backpressure.max.ms": 2000}, 5_000, made=20, sink_rate=20_000)
    before_bolt, before_sink = queue.run(60)
    # What the sink can process in two seconds: tuples that wait for it, and those that the bolt will emit.
    assert 20 * before_bolt <= 2.3 * 21_000 and before_sink <= 2.3 * 21_000
    assert queue.taken >= 0.95 * 60 * 20_000


def test_pulses_that_were_not_seen_yet_have_their_share():
    conf = {"topology.emulator.backpressure.max.ms": 2000, "topology.emulator.pulse.max.tuples": 20_000}
    for every in (1, 8):  # steps of 50 ms from one micro-batch of the spout to the next
        assert 1_900 <= Queue(conf, 1_000, every=every).run(60)[0] <= 2_100


def test_pulses_are_few_while_much_is_on_its_way():
    conf = {"topology.emulator.backpressure.max.ms": 5000}
    short, long = (Queue(conf, rate) for rate in (20_000, 2_000))  # for the slow one, ten pulses of 500 tuples a second would suffice
    assert short.run(60)[0] <= 1_000 and short.pulses >= 19 * 60
    assert 9_500 <= long.run(60)[0] <= 10_500
    assert long.pulses <= 4 * 60 and long.received >= 0.99 * 60 * 2_000


def test_a_slow_spout_is_asked_as_often_though_others_fill_the_queue():
    queue = Queue({"topology.emulator.backpressure.max.ms": 5000}, 1_000, most=2)
    queue.sent = 5_000  # sent by other tasks
    queue.run(4)
    assert queue.pulses >= 15 * 4


def test_a_spout_whose_last_pulse_seems_lost_is_asked_again_without_a_credit():
    queue = Queue({"topology.emulator.backpressure.max.ms": 1000}, 1_000)
    queue.stats.tasks = {queue.tasks[0]: {"received": {}, "sent": {}, "emitted": {"default": 0}, "pulse": 0}}  # it reports nothing else
    due = [(at, decode_frame(record.value)) for at in range(0, 4000, 50) for record in queue.clock.due(at, active=True)]
    granted = [at for at, pulse in due if pulse.credit]
    assert max(granted) < 500
    assert [at - max(granted) for at, pulse in due if not pulse.credit] == [1000, 2000, 3000]
