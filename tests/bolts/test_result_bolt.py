"""The result bolt in simulated topologies: with faults, and with a store that comes and goes."""

import json
import random
from functools import cache

import numpy as np
import pytest

from dskype.bolts import results
from dskype.bolts.result_bolt import ResultBolt
from dskype.bolts.results.base import Opening, StoreUnavailable
from dskype.bolts.results.events import ADD, MATCH, REMOVE
from dskype.bolts.results.publisher import ResultPublisher
from dskype.bolts.results.redis_store import RedisStore
from dskype.spouts import streams
from dskype.spouts.settings import Settings
from dskype.topology import BatchBolt, Fields, IllegalArgumentException, Spout, TopologyBuilder
from dskype.topology.planning.plan import TopologyPlan
from dskype.topology.simulated.faults import Faults
from dskype.topology.simulated.faulty import simulate
from dskype.topology.simulated.log import MemoryLog

from .results.redis_server import RedisServer
from .results.test_buffer import Shelf

pytestmark = pytest.mark.long

STEPS, SUBSCRIPTIONS, SEEDS = 40, 9, 6


class Watermarks(Spout):
    """Emits 0, 1, 2, ..., one per step of the simulation."""

    def open(self, conf, context, collector):
        self.collector, self.context, self.next, self.last_ms = collector, context, 0, -1

    def next_tuple(self):
        if self.next < STEPS and self.context.clock_ms() > self.last_ms:
            self.collector.emit((self.next,))
            self.next, self.last_ms = self.next + 1, self.context.clock_ms()

    def snapshot(self):
        return [self.next, self.last_ms]

    def restore(self, state):
        self.next, self.last_ms = state

    def declare_output_fields(self, declarer):
        declarer.declare(Fields("watermark"))


class Made(BatchBolt):
    """Makes up results of its share of the subscriptions: what it does at a watermark follows from the watermark."""

    def __init__(self, via_bolt):
        self.via_bolt = via_bolt

    def prepare(self, conf, context, collector):
        self.publisher = ResultPublisher(collector, context.plan.name, Settings.from_conf(conf), via_bolt=self.via_bolt)
        tasks = context.get_component_tasks(context.get_this_component_id())
        self.mine = range(context.get_this_task_index(), SUBSCRIPTIONS, len(tasks))

    def execute_batch(self, batch):
        for (watermark,) in batch.rows():
            self.step(watermark)

    def step(self, watermark):
        life = watermark // 13  # every 13 watermarks all are registered again
        registrations = {number: f"{number % 2}-{10 * life + number}" for number in self.mine}
        if watermark % 13 == 0:
            self.publisher.events(
                [f"s{number}" for number in self.mine], list(registrations.values()), ["active"] * len(self.mine), [watermark] * len(self.mine)
            )
        with_metas, without, states, removed = [], [], [], []
        for number, registration in registrations.items():
            rng, owner = random.Random(f"{watermark} {number}"), (f"s{number}", registration, watermark)
            n = rng.randrange(4)
            ops, scores = [rng.choice([ADD, REMOVE, MATCH]) for _ in range(n)], [rng.random() for _ in range(n)]
            (with_metas if number % 3 else without).extend((*owner, ops[i], scores[i], f'"m{watermark}-{i}"', 1 + i) for i in range(n))
            if rng.random() < 0.5:
                k = rng.randrange(3)
                states.append((*owner, [str(rng.randrange(99)) for _ in range(k)], [rng.random() for _ in range(k)]))
            if watermark % 13 == 12 and rng.random() < 0.7:
                removed.append(owner)
        for rows, metas in ((with_metas, ['{"x":1}'] * len(with_metas)), (without, None)):
            names, places, marks, ops, scores, messages, ranks = map(list, zip(*rows)) if rows else ([] for _ in range(7))
            self.publisher.deltas(
                streams.Results(subscription=names, registration=places, kind=ops, watermark=marks, message=messages, score=scores, rank=ranks, meta=metas)
            )
        if states:
            names, places, marks, lists, scores = map(list, zip(*states))
            self.publisher.states(names, places, marks, np.cumsum([0, *map(len, lists)]), sum(lists, []), sum(scores, []))
        if removed:
            self.publisher.removed(*map(list, zip(*removed)))

    def snapshot(self):
        return None

    def restore(self, state):
        pass

    def declare_output_fields(self, declarer):
        for stream in (streams.Results.name, streams.Lists.name):
            declarer.declare_stream(stream, streams.STREAMS[stream].fields)


def topology(via_bolt=True, tick_secs=2):
    builder = TopologyBuilder()
    builder.set_spout("watermarks", Watermarks())
    builder.set_bolt("subscription-bolt", Made(via_bolt), 2).all_grouping("watermarks")
    if via_bolt:
        builder.set_bolt("result-bolt", ResultBolt(tick_secs), 2).fields_grouping(
            "subscription-bolt", Fields("subscription"), streams.Results.name
        ).fields_grouping("subscription-bolt", Fields("subscription"), streams.Lists.name)
    return builder.create_topology()


class Simulation:
    def __init__(self, conf=None, seed=None, faults=Faults(), via_bolt=True):
        self.time_ms = 1_000_000_000
        conf = {"topology.emulator.snapshot.interval.ms": 300, "topology.emulator.pulse.idle.interval.ms": 100, "topology.acker.executors": 0, **(conf or {})}
        plan = TopologyPlan.build("t", "t-1-1000", conf, topology(via_bolt))
        self.log = MemoryLog(lambda: self.time_ms)
        self.sim = simulate(plan, self.log, lambda: self.time_ms, seed=seed, faults=faults)
        self.sim.activate()

    def advance(self, steps, each=lambda step: None):
        for step in range(steps):
            each(step)
            self.sim.tick_clock()
            self.sim.run_until_quiet()
            self.time_ms += 200
        return self

    def results(self, topic):
        """Return result id -> value of a topic; repetitions must say the same."""
        found = {}
        for record in self.log.records(f"t.{topic}"):
            result_id = dict(record.headers)["result-id"]
            assert found.setdefault(result_id, record.value) == record.value, result_id
        return found

    def states(self):
        """Return what a compacted topic ends with: subscription -> value."""
        return {record.key.decode(): record.value for record in self.log.records("t.topk")}

    def errors(self):
        return [e["error"] for e in self.sim.stats.errors]


@cache
def expected():
    run = Simulation(via_bolt=False).advance(STEPS + 5)
    return run.results("results"), run.results("registrations"), run.states()


def check(run, states=None):
    deltas, events, expected_states = expected()
    assert run.results("results") == deltas
    assert run.results("registrations") == events
    assert (run.states() if states is None else states) == expected_states
    assert not run.sim.dead_letters()


def test_the_plain_run_has_something_to_tell():
    deltas, events, states = expected()
    assert len(deltas) > 400 and len(events) > 40 and len(states) == SUBSCRIPTIONS
    assert {json.loads(v)["op"] for v in deltas.values()} == {"add", "remove", "match"}
    assert {v is None for v in states.values()} == {True, False}


def test_by_way_of_the_result_bolt_the_records_are_the_same():
    check(Simulation().advance(STEPS + 5))


@pytest.mark.parametrize("via_bolt", [False, True])
@pytest.mark.parametrize("seed", range(SEEDS))
def test_faults_change_nothing(seed, via_bolt):
    run = Simulation(seed=seed, faults=Faults.heavy(), via_bolt=via_bolt).advance(STEPS + 20)
    check(run)
    for name, value in run.states().items():
        assert value is None or json.loads(value)["subscription"] == name


# --- a store outside Kafka ----------------------------------------------------------------------------------------------


class Flaky(Shelf):
    """A store outside the topology's processes: shared by all that open it, away as its dice say."""

    name = "flaky"
    rng = random.Random(0)
    likely_away = 0.0
    shared: dict = {}

    def __init__(self, options=None):
        super().__init__()

    def open(self, opening):
        self.kept = Flaky.shared

    def _write(self, items):
        if Flaky.rng.random() < Flaky.likely_away:
            if Flaky.rng.random() < 0.5:  # the answer got lost
                super()._write(items[: Flaky.rng.randrange(len(items) + 1)])
            raise StoreUnavailable("flaky is away")
        return super()._write(items)


@pytest.fixture
def flaky(monkeypatch):
    monkeypatch.setitem(results.STORES, "flaky", Flaky)
    monkeypatch.setattr(Flaky, "shared", {})
    monkeypatch.setattr(Flaky, "likely_away", 0.5)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_with_faults_and_a_flaky_store_the_newest_states_are_there_in_the_end(seed, flaky, monkeypatch):
    monkeypatch.setattr(Flaky, "rng", random.Random(seed))
    run = Simulation({"dskype.store": "flaky"}, seed=seed, faults=Faults.heavy()).advance(STEPS + 20)
    monkeypatch.setattr(Flaky, "likely_away", 0.0)
    run.advance(40)  # longer than the longest wait
    check(run, {name: stored.value for name, stored in Flaky.shared.items()})
    assert run.states() == {}, "the topic is not written"


def test_an_outage_is_reported_and_counted_and_results_go_on(flaky, monkeypatch):
    monkeypatch.setattr(Flaky, "likely_away", 1.0)
    run = Simulation({"dskype.store": "flaky"}).advance(STEPS + 5)
    assert run.results("results") == expected()[0]
    assert Flaky.shared == {} or all(s is not None for s in Flaky.shared.values())
    assert any("flaky is away" in e and "states wait" in e for e in run.errors())
    counters = [b.snapshot()["waiting"] for b in run.sim.components("result-bolt")]
    assert sum(map(len, counters)) == SUBSCRIPTIONS
    monkeypatch.setattr(Flaky, "likely_away", 0.0)
    run.advance(40)
    check(run, {name: stored.value for name, stored in Flaky.shared.items()})
    assert [b.snapshot()["waiting"] for b in run.sim.components("result-bolt")] == [[], []]


def redis_states(url):
    reader = RedisStore({"url": url})
    reader.open(Opening("t"))
    found = {f"s{n}": reader.get(f"s{n}") for n in range(SUBSCRIPTIONS)}
    reader.close()
    return {name: stored and stored.value for name, stored in found.items()}


def conf_of(server, **options):
    return {"dskype.store": "redis", "dskype.store.options": {"url": server.url, "attempts": 1, "timeout.ms": 500, **options}}


def test_states_go_to_redis_and_with_the_option_to_the_topic_too(tmp_path):
    with RedisServer(tmp_path) as server:
        check(run := Simulation(conf_of(server, topic=True)).advance(STEPS + 5))
        assert redis_states(server.url) == run.states()
    with RedisServer(tmp_path) as server:
        run = Simulation(conf_of(server)).advance(STEPS + 5)
        check(run, redis_states(server.url))
        assert run.states() == {}


@pytest.mark.parametrize("seed", [None, 1, 2, 3])
def test_redis_is_down_for_a_while(tmp_path, seed):
    with RedisServer(tmp_path, keep=True) as server:

        def outage(step):
            if step in (3, 12):
                server.stop()
            elif step in (8, 30):
                server.start()

        run = Simulation(conf_of(server), seed, Faults() if seed is None else Faults.heavy()).advance(STEPS + 15, outage)
        run.advance(30)
        check(run, redis_states(server.url))
        assert any("Redis at redis://127.0.0.1" in e for e in run.errors())


def test_redis_may_come_up_after_the_topology(tmp_path):
    server = RedisServer(tmp_path)
    run = Simulation(conf_of(server)).advance(STEPS + 5)
    assert run.results("results") == expected()[0]
    with server:
        run.advance(40)
        check(run, redis_states(server.url))


# --- settings -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("conf", "message"),
    [
        ({"dskype.store": "memcached"}, "store is not known.*given: 'memcached'; legal: kafka, redis"),
        ({"dskype.store": "redis", "dskype.store.options": {"urll": "x"}}, "option of store 'redis' is not known.*given: 'urll'"),
        ({"dskype.store": "redis", "dskype.store.options": {"url": "http://x"}}, "Option url of store 'redis' is not usable"),
        ({"dskype.store.options": {"url": "x"}}, "option of store 'kafka' is not known"),
    ],
)
def test_a_topology_with_a_store_that_cannot_work_is_refused(conf, message):
    with pytest.raises(IllegalArgumentException, match=message):
        ResultBolt().check_topology("result-bolt", conf, None)


def test_ticks_are_for_stores_that_may_be_away():
    assert ResultBolt(3).get_component_configuration() == {"topology.tick.tuple.freq.secs": 3}
    assert ResultBolt(None).get_component_configuration() is None


@pytest.mark.parametrize("wanted", ["deltas", "topk"])
def test_only_what_is_wanted_is_published(wanted):
    run = Simulation({"dskype.results": wanted}).advance(STEPS + 5)
    deltas, events, states = expected()
    matches = {k: v for k, v in deltas.items() if json.loads(v)["op"] == "match"}
    assert run.results("results") == (deltas if wanted == "deltas" else matches)
    assert run.results("registrations") == events
    assert run.states() == (states if wanted == "topk" else {})
