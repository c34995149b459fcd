"""Joins of streams: results equal those of nested loops, also while everything fails."""

import random
from collections import Counter

import pytest

from dskype.topology import Fields, IllegalArgumentException, InvalidTopologyException, Spout, TopologyBuilder
from dskype.topology.flux import load
from dskype.topology.joins import JoinBolt, Selector
from dskype.topology.planning.plan import TopologyPlan
from dskype.topology.simulated.faults import Faults
from dskype.topology.simulated.faulty import simulate
from dskype.topology.simulated.log import MemoryLog
from dskype.topology.windows import Count, Duration

from .storm_helpers import Keep, Remember, fed, running

USERS = [(1, "ann", {"city": {"zip": "a"}}), (2, "bob", {"city": {"zip": "b"}}), (3, "eve", {"city": None}), (None, "none", {})]
ORDERS = [(10, 1, 5), (11, 1, 7), (12, 2, 1), (13, 4, 2), (14, None, 9), (15, 1.0, 3)]
CITIES = [("a", "Aachen"), ("z", "Zug"), ("a", "Ahlen")]


def joined(bolt, inputs):
    """Join rows of spouts ``{name: (fields, rows)}`` in one window, and return the results and the tracker of acks of each spout."""
    builder, feeders = TopologyBuilder(), {}
    declarer = builder.set_bolt("join", bolt.with_tumbling_window(Duration.of_seconds(2)))
    for name, (fields, _) in inputs.items():
        feeders[name] = fed(*fields)
        builder.set_spout(name, feeders[name][0])
        declarer.global_grouping(name)
    builder.set_bolt("keep", Keep()).shuffle_grouping("join")
    with running(builder) as run:
        for name, (_, rows) in inputs.items():
            for i, row in enumerate(rows):
                feeders[name][0].feed(list(row), i)
        run.advance(5)
        assert run.dead_letters() == [] and run.errors("join") == []
        return run.components("keep")[0].seen, {name: [tracker.is_acked(i) for i in range(len(inputs[name][1]))] for name, (_, tracker) in feeders.items()}


SHOP = {"users": (("id", "name", "home"), USERS), "orders": (("order", "user", "price"), ORDERS), "cities": (("zip", "city"), CITIES)}


def only(*names):
    return {name: SHOP[name] for name in names}


def test_an_inner_join_gives_the_rows_that_have_partners_and_acks_all_tuples():
    bolt = JoinBolt("users", "id").join("orders", "user", "users").select("users:name, order,price")
    rows, acked = joined(bolt, only("users", "orders"))
    assert Counter(rows) == Counter([("ann", 10, 5), ("ann", 11, 7), ("bob", 12, 1)])
    assert all(acked["users"]) and all(acked["orders"])


def test_a_left_join_keeps_rows_without_partners_except_those_without_the_field():
    bolt = JoinBolt("users", "id").left_join("orders", "user", "users").select("name,order")
    rows, _ = joined(bolt, only("users", "orders"))
    assert Counter(rows) == Counter([("ann", 10), ("ann", 11), ("bob", 12), ("eve", None)])


def test_three_sources_are_joined_by_values_in_nested_maps():
    bolt = JoinBolt("cities", "zip").join("users", "home.city.zip", "cities").left_join("orders", "user", "cities").select("city, users:home.city.zip")
    assert Counter(joined(bolt, SHOP)[0]) == Counter([("Aachen", "a"), ("Ahlen", "a")])
    bolt = JoinBolt("users", "home.city.zip").join("cities", "zip", "users").select("users:name,city,users:home.city.zip")
    assert Counter(joined(bolt, only("users", "cities"))[0]) == Counter([("ann", "Aachen", "a"), ("ann", "Ahlen", "a")])


def test_keys_are_equal_where_java_says_so():
    """Of numbers, as ``Double.equals`` and ``Long.equals``: every NaN is equal to every other one, 0.0 is not -0.0, and 1 is neither 1.0 nor true."""
    nan = float("nan")
    keys = {
        "nan": nan,
        "0": 0.0,
        "-0": -0.0,
        "long 0": 0,
        "false": False,
        "one": 1,
        "list": [0.0, nan],
        "list of -0": [-0.0, nan],
        "map": {"a": -nan},
        "big": 2**70,
    }
    rows = [(key, name) for name, key in keys.items()]
    sources = {"left": (("key", "l"), rows), "right": (("key", "r"), [(-key if name == "nan" else key, name) for key, name in rows])}
    found, _ = joined(JoinBolt("left", "key").join("right", "key", "left").select("l,r"), sources)
    assert Counter(found) == Counter((name, name) for name in keys)


def test_one_source_alone_is_projected():
    rows, _ = joined(JoinBolt("cities", "zip").select("city,nothing"), only("cities"))
    assert rows == [("Aachen", None), ("Zug", None), ("Ahlen", None)]


class Both(Spout):
    """Emits on two streams."""

    def open(self, conf, context, collector):
        self.rows = [("left", 1, "a"), ("right", 1, "b"), ("right", 2, "c")]
        self.collector = collector

    def next_tuple(self):
        if self.rows:
            stream, *values = self.rows.pop(0)
            self.collector.emit(values, stream)

    def declare_output_fields(self, declarer):
        declarer.declare_stream("left", "id,x".split(","))
        declarer.declare_stream("right", "id,y".split(","))


def test_streams_of_one_component_are_joined_and_the_result_may_have_a_stream_of_its_own():
    builder = TopologyBuilder()
    builder.set_spout("both", Both())
    bolt = (
        JoinBolt("left", "id", Selector.STREAM).join("right", "id", "left").select("left:x,right:y").with_output_stream("pairs").with_tumbling_window(Count(3))
    )
    builder.set_bolt("join", bolt).global_grouping("both", "left").global_grouping("both", "right")
    builder.set_bolt("keep", Keep()).shuffle_grouping("join", "pairs")
    with running(builder, secs=2) as run:
        assert run.components("keep")[0].seen == [("a", "b")]
        assert run.sim.plan.spec("join").outputs["pairs"].fields == Fields("left:x", "right:y")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: JoinBolt("a", "x").join("b", "x", "c"), "Stream 'c' was not previously declared"),
        (lambda: JoinBolt("a", "x").join("b", "x", "a").left_join("b", "y", "a"), "'b' is already part of join"),
        (lambda: JoinBolt("a", "x").join("a", "x", "a"), "'a' is already part of join"),
        (lambda: JoinBolt("a", "b:x"), "Not expecting stream qualifier"),
        (lambda: JoinBolt("a", "x").select("a:x,,"), "empty name"),
        (lambda: JoinBolt("a", "x", "SOURCE"), "Not a selector"),
    ],
)
def test_joins_that_cannot_be_meant_are_refused(make, words):
    with pytest.raises(IllegalArgumentException, match=words):
        make()


def test_a_join_of_other_sources_than_its_inputs_is_refused_at_submission():
    builder = TopologyBuilder()
    builder.set_spout("a", fed("x")[0])
    builder.set_bolt("join", JoinBolt("a", "x").join("b", "x", "a").select("x").with_tumbling_window(Count(1))).shuffle_grouping("a")
    with pytest.raises(InvalidTopologyException, match="joins other sources than it subscribes to"), running(builder):
        pass
    builder = TopologyBuilder()
    builder.set_bolt("join", JoinBolt("a", "x").with_tumbling_window(Count(1))).shuffle_grouping("a")
    with pytest.raises(IllegalArgumentException, match=r"Must specify output fields via .select\(\) method"):
        builder.create_topology()


class Rows(Spout):
    """Emits the rows of a seed, some per pulse, tracked."""

    def __init__(self, rows):
        self.rows = rows

    def open(self, conf, context, collector):
        self.collector, self.next, self.done = collector, 0, []

    def next_tuple(self):
        if self.next < len(self.rows):
            self.collector.emit(self.rows[self.next], message_id=self.next)
            self.next += 1

    def ack(self, msg_id):
        self.done.append(msg_id)

    def snapshot(self):
        return [self.next, self.done]

    def restore(self, state):
        self.next, self.done = state[0], list(state[1])

    def declare_output_fields(self, declarer):
        declarer.declare(["key", "value"])


@pytest.mark.long
@pytest.mark.parametrize("seed", range(6))
def test_windows_of_a_join_are_those_of_nested_loops_whatever_fails(seed):
    draw = random.Random(seed)
    a, b, c = ([(draw.randrange(6), f"{name}{i}") for i in range(30)] for name in "abc")
    builder = TopologyBuilder()
    bolt = JoinBolt("a", "key").join("b", "key", "a").left_join("c", "key", "b").select("a:value,b:value,c:value")
    declarer = builder.set_bolt("join", bolt.with_tumbling_window(Count(90)))
    for name, rows in zip("abc", (a, b, c)):
        builder.set_spout(name, Rows(rows))
        declarer.global_grouping(name)
    builder.set_bolt("keep", Remember()).shuffle_grouping("join")
    now = [1_000_000]
    plan = TopologyPlan.build("t", "t-1-0", {"topology.emulator.snapshot.interval.ms": 200}, builder.create_topology())
    sim = simulate(plan, MemoryLog(lambda: now[0]), lambda: now[0], seed=seed, faults=Faults.heavy())
    sim.activate()
    for _ in range(30):
        sim.tick_clock()
        sim.run_until_quiet()
        now[0] += 100
    expected = Counter()
    for key, x in a:
        for other, y in b:
            if other == key:
                expected.update((x, y, z) for z in [z for third, z in c if third == key] or [None])
    assert Counter(sim.components("keep")[0].seen) == expected


FLUX = """
name: joins
components:
  - id: length
    className: org.apache.storm.topology.base.BaseWindowedBolt$Duration
    constructorArgs: [3, SECONDS]
spouts:
  - {id: a, className: dskype.FeederSpout, constructorArgs: [[x]]}
  - {id: b, className: dskype.FeederSpout, constructorArgs: [[x]]}
bolts:
  - id: join
    className: org.apache.storm.bolt.JoinBolt
    constructorArgs: [SOURCE, a, x]
    configMethods:
      - {name: leftJoin, args: [b, x, a]}
      - {name: select, args: ["a:x,b:x"]}
      - {name: withTumblingWindow, args: [ref: length]}
streams:
  - {from: a, to: join, grouping: {type: FIELDS, args: [x]}}
  - {from: b, to: join, grouping: {type: FIELDS, args: [x]}}
"""


def test_a_flux_file_joins_with_the_names_of_storm(tmp_path):
    (tmp_path / "joins.yaml").write_text(FLUX)
    bolt = load(tmp_path / "joins.yaml").topology.components["join"].obj
    assert bolt.bolt.window_configuration == {"topology.bolts.window.length.duration.ms": 3000, "topology.bolts.window.sliding.interval.duration.ms": 3000}
    assert list(bolt.bolt._joins) == ["a", "b"] and bolt.bolt._joins["b"].left
