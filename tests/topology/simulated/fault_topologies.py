"""Small topologies whose final result does not depend on the order of events."""

from __future__ import annotations

import random

from dskype.topology import BasicBolt, Bolt, Fields, Spout, TopologyBuilder

N = 36
OUT = "out"


class NumberSpout(Spout):
    """Emits (i, i % 7) for i = 0 .. N-1 (its own share of them), a few at a time."""

    def __init__(self, tracked=False):
        self.tracked = tracked

    def open(self, conf, context, collector):
        self.collector = collector
        self.next = context.get_this_task_index()
        self.step = len(context.get_component_tasks(context.get_this_component_id()))
        self.acked, self.failed = [], []

    def next_tuple(self):
        if self.next < N:
            self.collector.emit((self.next, self.next % 7), message_id=self.next if self.tracked else None)
            self.next += self.step

    def ack(self, msg_id):
        self.acked.append(msg_id)

    def fail(self, msg_id):
        self.failed.append(msg_id)

    def snapshot(self):
        return [self.next, self.acked, self.failed]

    def restore(self, state):
        self.next, self.acked, self.failed = state[0], list(state[1]), list(state[2])

    def declare_output_fields(self, declarer):
        declarer.declare(Fields("number", "key"))


class DrawingSpout(NumberSpout):
    """Emits its share of the numbers in an unpredictable order, which differs between processes."""

    draws = random.Random()

    def open(self, conf, context, collector):
        super().open(conf, context, collector)
        self.left = list(range(self.next, N, self.step))

    def next_tuple(self):
        if self.left:
            number = self.left.pop(self.draws.randrange(len(self.left)))
            self.collector.emit((number, number % 7))

    def snapshot(self):
        return self.left

    def restore(self, state):
        self.left = list(state)


class KeyedSum(BasicBolt):
    """Sums numbers by key and emits (key, number): a stateful stage."""

    def prepare(self, conf, context):
        self.sums, self.seen = {}, []

    def execute(self, tup, collector):
        number, key = tup["number"], tup["key"]
        self.sums[key] = self.sums.get(key, 0) + number
        self.seen.append(number)
        collector.emit((number, key))

    def snapshot(self):
        return [self.sums, self.seen]

    def restore(self, state):
        self.sums, self.seen = dict(state[0]), list(state[1])

    def declare_output_fields(self, declarer):
        declarer.declare(Fields("number", "key"))


class Recorder(Bolt):
    """The sink: keeps its inputs and writes them to an external topic."""

    def prepare(self, conf, context, collector):
        self.collector, self.seen = collector, []

    def execute(self, tup):
        self.seen.append(list(tup.values))
        self.collector.send_record(OUT, None, repr(tup.values).encode())
        self.collector.ack(tup)

    def snapshot(self):
        return self.seen

    def restore(self, state):
        self.seen = [list(v) for v in state]


class Splitter(Bolt):
    """Emits each number on two streams, anchored: a tree with branches."""

    def prepare(self, conf, context, collector):
        self.collector = collector

    def execute(self, tup):
        self.collector.emit((tup["number"], tup["key"]), stream="even", anchors=tup)
        self.collector.emit((tup["number"], tup["key"]), stream="odd", anchors=[tup])
        if tup["number"] % 11 == 5:
            self.collector.fail(tup)
        else:
            self.collector.ack(tup)

    def snapshot(self):
        return None

    def restore(self, state):
        pass

    def declare_output_fields(self, declarer):
        declarer.declare_stream("even", Fields("number", "key"))
        declarer.declare_stream("odd", Fields("number", "key"))


class Joiner(Bolt):
    """Waits for both halves of a number, emits it anchored to both, and acks them."""

    def prepare(self, conf, context, collector):
        self.collector, self.waiting = collector, {}

    def execute(self, tup):
        other = self.waiting.pop(tup["number"], None)
        if other is None:
            self.waiting[tup["number"]] = tup
            return
        self.collector.emit((tup["number"], tup["key"]), anchors=[other, tup])
        self.collector.ack(other)
        self.collector.ack(tup)

    def snapshot(self):
        from dskype.topology.core.values import pack_tuple

        return {number: pack_tuple(t) for number, t in self.waiting.items()}

    def restore(self, state):
        from dskype.topology.core.values import unpack_tuple

        self.waiting = {number: unpack_tuple(t) for number, t in state.items()}

    def declare_output_fields(self, declarer):
        declarer.declare(Fields("number", "key"))


class Asker(Bolt):
    """One half of a cycle: asks a task of its own choice, and records the answer."""

    def prepare(self, conf, context, collector):
        self.collector = collector
        self.tasks = context.get_component_tasks("answerer")
        self.answers = []

    def execute(self, tup):
        if tup.get_source_stream_id() == "answer":
            self.answers.append(list(tup.values))
            self.collector.send_record(OUT, None, repr(tup.values).encode())
        else:
            target = self.tasks[tup["number"] % len(self.tasks)]
            self.collector.emit_direct(target, (tup["number"],), stream="question")
        self.collector.ack(tup)

    def snapshot(self):
        return self.answers

    def restore(self, state):
        self.answers = [list(a) for a in state]

    def declare_output_fields(self, declarer):
        declarer.declare_stream("question", Fields("number"), direct=True)


class Answerer(Bolt):
    """The other half: answers the task that asked, and asks itself once more for small numbers."""

    def prepare(self, conf, context, collector):
        self.collector, self.count = collector, 0

    def execute(self, tup):
        self.count += 1
        self.collector.emit_direct(tup.get_source_task(), (tup["number"], tup["number"] ** 2), stream="answer")
        self.collector.ack(tup)

    def snapshot(self):
        return self.count

    def restore(self, state):
        self.count = state

    def declare_output_fields(self, declarer):
        declarer.declare_stream("answer", Fields("number", "square"), direct=True)


def chain():
    builder = TopologyBuilder()
    builder.set_spout("numbers", NumberSpout(), 2)
    builder.set_bolt("first", KeyedSum(), 2).set_num_tasks(3).fields_grouping("numbers", Fields("key"))
    builder.set_bolt("second", KeyedSum(), 2).fields_grouping("first", Fields("key"))
    builder.set_bolt("sink", Recorder()).global_grouping("second")
    return builder.create_topology(), {"topology.acker.executors": 0}


def fan():
    builder = TopologyBuilder()
    builder.set_spout("numbers", NumberSpout(), 1)
    builder.set_bolt("left", KeyedSum(), 2).shuffle_grouping("numbers")
    builder.set_bolt("right", KeyedSum(), 1).all_grouping("numbers")
    builder.set_bolt("sink", Recorder(), 2).fields_grouping("left", Fields("key")).fields_grouping("right", Fields("key"))
    return builder.create_topology(), {"topology.acker.executors": 0}


def cycle():
    builder = TopologyBuilder()
    builder.set_spout("numbers", NumberSpout(), 1)
    builder.set_bolt("asker", Asker(), 2).shuffle_grouping("numbers").direct_grouping("answerer", "answer")
    builder.set_bolt("answerer", Answerer(), 2).direct_grouping("asker", "question")
    return builder.create_topology(), {"topology.acker.executors": 0}


def acked():
    builder = TopologyBuilder()
    builder.set_spout("numbers", NumberSpout(tracked=True), 2)
    builder.set_bolt("split", Splitter(), 2).shuffle_grouping("numbers")
    join = builder.set_bolt("join", Joiner(), 2)
    join.fields_grouping("split", Fields("number"), "even").fields_grouping("split", Fields("number"), "odd")
    builder.set_bolt("sink", Recorder(), 2).fields_grouping("join", Fields("key"))
    return builder.create_topology(), {"topology.acker.executors": 2, "topology.max.spout.pending": 7}


def drawn():
    DrawingSpout.draws.seed(1)
    builder = TopologyBuilder()
    builder.set_spout("numbers", DrawingSpout(), 2)
    builder.set_bolt("first", KeyedSum(), 2).fields_grouping("numbers", Fields("key"))
    builder.set_bolt("sink", Recorder()).global_grouping("first")
    return builder.create_topology(), {"topology.acker.executors": 0, "topology.emulator.pulse.max.tuples": 2}


TOPOLOGIES = {"drawn": drawn, "chain": chain, "fan": fan, "cycle": cycle, "acked": acked}
