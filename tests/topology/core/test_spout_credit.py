"""How much a spout may emit until its next pulse."""

from dskype.topology import Fields, Spout, TopologyBuilder
from dskype.topology.core.frames import InRecord, encode_control, encode_pulse
from dskype.topology.core.spout import make_spout_task
from dskype.topology.plan import TopologyPlan, inbox_topic
from dskype.topology.testing import IdentityBolt


class Breaking(Spout):
    """Emits one tuple a call, or breaks at the call after ``good`` of them."""

    def __init__(self, good):
        self._good = good

    def declare_output_fields(self, declarer):
        declarer.declare(Fields("x"))

    def open(self, conf, context, collector):
        self._collector, self._calls = collector, 0

    def next_tuple(self):
        self._calls += 1
        if self._calls > self._good:
            raise ValueError("broken")
        self._collector.emit([self._calls])


def make_task(good):
    builder = TopologyBuilder()
    builder.set_spout("spout", Breaking(good))
    builder.set_bolt("bolt", IdentityBolt("x")).shuffle_grouping("spout")
    plan = TopologyPlan.build("t", "t-1-0", {"topology.acker.executors": 0}, builder.create_topology())
    task = make_spout_task(plan, plan.component_tasks("spout")[0], lambda: 0, None)
    task.start()
    return plan, task


def pulse(plan, task, *values):
    topic = inbox_topic(plan.name, "spout")
    task.process([InRecord(topic, 0, task.version + i, 0, None, value) for i, value in enumerate(values)])
    return sum(out.emitted for out in task.outs.values())


def test_a_spout_emits_what_its_pulse_allows():
    plan, task = make_task(1000)
    assert pulse(plan, task, encode_control("activate", 0), encode_pulse(1, 0, 30)) == 30
    assert task.credit == 0


def test_what_a_spout_emitted_before_it_broke_is_taken_off_its_credit():
    plan, task = make_task(20)
    assert pulse(plan, task, encode_control("activate", 0), encode_pulse(1, 0, 30)) == 20
    assert task.credit == 10
    assert pulse(plan, task, encode_pulse(2, 0, 5)) == 25
    assert task.credit == 0
