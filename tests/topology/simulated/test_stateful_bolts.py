"""Bolts with a state: whatever fails, each tuple and each window changes the state once."""

from collections import Counter

import pytest

from dskype.topology import IllegalArgumentException, InvalidTopologyException, Spout, TopologyBuilder
from dskype.topology.planning.plan import TopologyPlan
from dskype.topology.simulated.faults import Faults
from dskype.topology.simulated.faulty import simulate
from dskype.topology.simulated.log import MemoryLog
from dskype.topology.states import KeyValueState, StatefulBolt, StatefulWindowedBolt
from dskype.topology.windows import Count, Duration
from tests.tiers import seeds

from .storm_helpers import Remember, fed, running

LAST = 90


class Numbers(Spout):
    """Emits 0..89 in order, three for each 100 ms of its task's time, tracked."""

    def open(self, conf, context, collector):
        self.collector, self.context, self.next, self.begin, self.done = collector, context, 0, None, []

    def next_tuple(self):
        now = self.context.clock_ms()
        self.begin = now if self.begin is None else self.begin
        while self.next < min(LAST, (now - self.begin) * 3 // 100):
            self.collector.emit((self.next, self.next % 4), message_id=self.next)
            self.next += 1

    def ack(self, msg_id):
        self.done.append(msg_id)

    def snapshot(self):
        return [self.next, self.begin, self.done]

    def restore(self, state):
        self.next, self.begin, self.done = state[0], state[1], list(state[2])

    def declare_output_fields(self, declarer):
        declarer.declare(["number", "key"])


class Totals(StatefulBolt):
    """Adds numbers by key, and emits each new total."""

    def prepare(self, conf, context, collector):
        self.collector, self.cache, self.calls = collector, {}, []

    def init_state(self, state):
        self.calls.append("init_state")
        self.state = state

    def pre_prepare(self, txid):
        assert txid > 0
        self.state.put("cache", dict(self.cache))

    def execute(self, tup):
        self.calls.append("execute")
        total = self.state.get(tup["key"], 0) + tup["number"]
        self.state.put(tup["key"], total)
        self.cache[tup["key"]] = total
        self.collector.emit((tup["key"], total), anchors=tup)
        self.collector.ack(tup)

    def declare_output_fields(self, declarer):
        declarer.declare(["key", "total"])


class Sums(StatefulWindowedBolt):
    """Numbers its windows in the state, and emits number, sum and total of all sums so far."""

    def prepare(self, conf, context, collector):
        self.collector = collector

    def init_state(self, state):
        self.state = state

    def execute(self, window):
        number, total = self.state.get("windows", 0) + 1, self.state.get("total", 0) + sum(t["number"] for t in window)
        self.state.put("windows", number)
        self.state.put("total", total)
        self.collector.emit((number, [t["number"] for t in window], total))

    def declare_output_fields(self, declarer):
        declarer.declare(["window", "numbers", "total"])


def played(bolt, seed):
    """Run the numbers through a bolt, with faults that are drawn from a seed; return the simulation."""
    builder = TopologyBuilder()
    builder.set_spout("in", Numbers())
    builder.set_bolt("bolt", bolt).global_grouping("in")
    builder.set_bolt("sink", Remember()).global_grouping("bolt")
    now = [1_000_000]
    plan = TopologyPlan.build("t", "t-1-0", {"topology.emulator.snapshot.interval.ms": 200}, builder.create_topology())
    sim = simulate(plan, MemoryLog(lambda: now[0]), lambda: now[0], seed=seed, faults=Faults() if seed is None else Faults.heavy())
    sim.activate()
    for _ in range(60):
        sim.tick_clock()
        sim.run_until_quiet()
        now[0] += 100
    return sim


@pytest.mark.long
@pytest.mark.parametrize("seed", [None, *seeds(5)])
def test_each_tuple_changes_the_state_once_whatever_fails(seed):
    sim = played(Totals(), seed)
    expected, totals = [], Counter()
    for number in range(LAST):
        totals[number % 4] += number
        expected.append((number % 4, totals[number % 4]))
    assert sim.components("sink")[0].seen == expected
    (bolt,) = (executor.bolt for executor in sim.components("bolt"))
    assert {key: value for key, value in bolt.state if key != "cache"} == dict(totals)
    assert bolt.calls[0] == "init_state" and bolt.calls.count("init_state") == 1
    assert set(sim.components("in")[0].done) == set(range(LAST))


FORMS = {
    "tumbling count": lambda: Sums().with_tumbling_window(Count(7)).with_message_id_field("number"),
    "sliding count": lambda: Sums().with_window(Count(10), Count(3)).with_persistence(),
}


@pytest.mark.long
@pytest.mark.parametrize("seed", [None, *seeds(4)])
@pytest.mark.parametrize("form", sorted(FORMS))
def test_window_and_state_are_those_of_a_run_without_faults_whatever_fails(form, seed):
    sim = played(FORMS[form](), seed)
    length, step = (7, 7) if form == "tumbling count" else (10, 3)
    total, expected = 0, []
    for number, stop in enumerate(range(step, LAST + 1, step), 1):
        window = list(range(max(0, stop - length), stop))
        total += sum(window)
        expected.append((number, window, total))
    assert [tuple(row) for row in sim.components("sink")[0].seen] == expected
    assert sim.components("bolt")[0].bolt.state.to_dict() == {"windows": len(expected), "total": total}


def test_a_bolt_that_raises_continues_with_its_state():
    class Picky(Totals):
        def execute(self, tup):
            if tup["number"] == 13:
                raise ValueError("13")
            super().execute(tup)

    feeder, _ = fed("number", "key")
    builder = TopologyBuilder()
    builder.set_spout("in", feeder)
    builder.set_bolt("bolt", Picky()).global_grouping("in")
    with running(builder) as run:
        for number in (1, 13, 2):
            feeder.feed([number, "k"])
        run.advance(1)
        assert run.components("bolt")[0].bolt.state.get("k") == 3
        assert len(run.dead_letters()) == 1


def test_a_state_is_a_map():
    state = KeyValueState({"a": 1})
    state.put("b", 2)
    assert (state.get("a"), state.get("c"), state.get("c", 0), "b" in state, len(state)) == (1, None, 0, True, 2)
    assert state.delete("a") == 1 and state.delete("a") is None
    assert list(state) == [("b", 2)]


class Commits(Totals):
    def pre_commit(self, txid):
        pass


class KeepsTwice(Totals):
    def snapshot(self):
        return None

    def restore(self, state):
        pass


@pytest.mark.parametrize(("bolt", "words"), [(Commits(), "overrides pre_commit, which is not called"), (KeepsTwice(), "snapshot and restore of its own")])
def test_what_would_not_be_called_is_refused(bolt, words):
    builder = TopologyBuilder()
    builder.set_spout("in", fed("number", "key")[0])
    builder.set_bolt("bolt", bolt).global_grouping("in")
    with pytest.raises(InvalidTopologyException, match=words), running(builder):
        pass


def test_a_limit_of_the_window_in_memory_is_refused():
    with pytest.raises(IllegalArgumentException, match="stay in memory"):
        Sums().with_tumbling_window(Duration.of_seconds(1)).with_max_events_in_memory(10)


def declares(kind):
    """Return a bolt of a kind that declares all that a component may declare."""

    class Declares(kind):
        changeable_settings, default_settings = frozenset({"words.weight"}), {"words.weight": 1}

        def external_topics(self, topology, conf):
            return {f"{topology}-out": {"cleanup.policy": conf["words.policy"]}}

        def files(self, conf):
            return {("words.file",): conf["words.file"]}

    return Declares()


@pytest.mark.parametrize("bolt", [declares(Totals), declares(Sums).with_tumbling_window(Count(1))], ids=["stateful", "stateful windowed"])
def test_what_a_bolt_declares_counts_for_the_bolt_that_runs_it(bolt):
    builder = TopologyBuilder()
    builder.set_spout("in", fed("number", "key")[0])
    builder.set_bolt("bolt", bolt).global_grouping("in")
    made = builder.create_topology().components["bolt"].obj
    assert made is not bolt
    assert made.external_topics("t", {"words.policy": "compact"}) == {"t-out": {"cleanup.policy": "compact"}}
    assert made.files({"words.file": "words.tsv"}) == {("words.file",): "words.tsv"}
    assert (made.changeable_settings, made.default_settings) == ({"words.weight"}, {"words.weight": 1})
