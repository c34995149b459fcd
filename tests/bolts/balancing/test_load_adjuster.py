"""The two ends of load adjustment: what a subscription task counts, and what the distribution task that balances decides; with restarts."""

import json
import random

import numpy as np
import pyarrow as pa
import pytest

from dskype.bolts.balancing import balancer as balancers
from dskype.bolts.balancing.load_adjuster import LoadAdjuster
from dskype.bolts.balancing.workload_meter import LoadMeter
from dskype.bolts.message_queue import Arrived
from dskype.bolts.placement.epochs import Epochs
from dskype.bolts.placement.plans import Plans, Takeover
from dskype.bolts.placement.registry import Entry, Registry
from dskype.bolts.protocol.balance import LoadReport, PartitionMap, decode_balance, encode_balance
from dskype.bolts.protocol.placements import decode_placement
from dskype.distribution import make_distributor
from dskype.distribution.hybrid.distributor import HybridDistributor
from dskype.distribution.subscriptions import BooleanSubscription
from dskype.spouts.batch import Details, MessageBatch
from dskype.spouts.records import PLAN_VERSION_MAX
from dskype.spouts.settings import Settings
from dskype.topology.background import BackgroundError, run_at_once
from dskype.topology.context import Counter
from dskype.topology.core.values import pack_state, unpack_state

TASKS = 4
OPTIONS = {"granularity": 64, "box": [-10, -10, 10, 10]}


def settings(**more):
    conf = {f"dskype.balance.{key.replace('_', '.')}": value for key, value in more.items()}
    return Settings.from_conf({"dskype.balance": "auto", "dskype.balance.cost.min": 1, "dskype.balance.repartition.ms": 0, **conf}).balance


def stored(state):
    return unpack_state(pack_state(state))


def batch(rng, first, n, corner):
    """Return messages of two words near a corner."""
    lat, lon = (np.array([at * rng.uniform(2, 10) for _ in range(n)]) for at in corner)
    terms = np.array([sorted(rng.sample(range(30), 2)) for _ in range(n)]).ravel()
    numbers = np.arange(first, first + n)
    return MessageBatch(numbers, numbers, lat, lon, np.arange(0, 2 * n + 1, 2), terms, np.ones(2 * n))


# -- the subscription task ------------------------------------------------------------------------


def test_a_task_counts_what_the_load_model_counts():
    sent, meter = [], LoadMeter(2, settings(), None)
    meter._send = sent.append
    messages = batch(random.Random(1), 0, 3, (1, 1))
    arrived = Arrived(messages, pa.array(["1"] * 3, pa.string()), messages.seq, Details.empty(3))
    meter.tick(0)
    meter.open(0, [0, 0, 1, 1])
    meter.adopt(PartitionMap(4, None))  # from now on
    meter.adopt(PartitionMap(3, None))
    meter.open(1, [0, 0, 1, 1])
    meter.forget(1)
    meter.record(arrived)
    meter.record(arrived, np.array([0, 0, 2, 2]))
    meter.tick(100)
    state = stored(meter.snapshot())
    meter = LoadMeter(2, settings(), sent.append)
    meter.restore(state)
    meter.tick(2_099)
    meter.tick(2_100)
    assert sent == [LoadReport(4, 2, 3, 4, 1, 1)] and decode_balance(sent[0].kind, stored(encode_balance(sent[0]))) == sent[0]
    meter.tick(4_100)
    assert sent[1][2:] == pytest.approx((2.1, 2.8, 0.7, 0.7))


# -- the distribution task ------------------------------------------------------------------------


class Collector:
    def __init__(self):
        self.sent, self.errors = [], []

    def emit_direct(self, task, row, stream):
        self.sent.append((task, decode_placement(stored(row[2]))))

    def report_error(self, problem):
        self.errors.append(problem)


class Context:
    def __init__(self):
        self.counters, self.run_in_background = {}, run_at_once

    def register_gauge(self, name, function):
        pass

    def register_counter(self, name):
        return self.counters.setdefault(name, Counter())


class World:
    """A load adjuster that restarts after every round."""

    def __init__(self, options=None, **more):
        self.settings, self.collector, self.context, self.written = settings(**more), Collector(), Context(), []
        self.plans = Plans(make_distributor("hybrid", TASKS, OPTIONS | (options or {})), lambda plan: make_distributor("hybrid", TASKS, OPTIONS, plan))
        self.epochs = Epochs(Registry(), self.plans, range(TASKS), self.collector)
        self.rng, self.messages = random.Random(5), 0
        self.adjuster = self.make()
        for number in range(200):
            self.epochs.registry.set(f"s{number}", Entry(f"0-{number}", False, 1, (0,)))
            west, south = self.rng.uniform(-10, 8), self.rng.uniform(-10, 8)
            self.adjuster.register(f"s{number}", BooleanSubscription([west, south, west + 1, south + 1], self.rng.randrange(30), None, None))
        self.adjuster.advance()

    def make(self):
        return LoadAdjuster(self.settings, self.epochs, self.written.append, self.context, 1)

    def count(self, name):
        return self.context.counters[name].get_count()

    def round(self, costs, corner=(1, 1), n=200):
        """Let messages come, and the tasks report so many messages each; return what has been written."""
        before = len(self.written)
        self.adjuster.record(batch(self.rng, self.messages, n, corner))
        self.messages += n
        for task, cost in enumerate(costs):
            self.adjuster.receive(LoadReport(self.plans.version, task, cost, 0.0, 0.0, 0.0))
            self.adjuster.receive(LoadReport(self.plans.version + 7, task, 9.0, 0.0, 0.0, 0.0))  # of another plan
        state = stored(self.adjuster.snapshot())
        self.adjuster = self.make()
        self.adjuster.restore(state)
        assert pack_state(self.adjuster.snapshot()) == pack_state(state)
        self.adjuster.advance()
        return [json.loads(value) for value in self.written[before:]]

    def follow(self, plan, takeover=None):
        """Change to a plan; the change is over, unless the plan takes over."""
        self.plans.newest = plan["version"]
        self.plans.change(plan["version"], plan["plan"])
        if takeover is None:
            self.plans.old = None
        self.plans.takeover = takeover
        self.collector.sent.clear()
        self.adjuster.advance()


UNEVEN, EVEN = [10.0, 500.0, 10.0, 10.0], [100.0, 101.0, 99.0, 100.0]


def test_an_imbalance_has_to_last_and_a_change_is_followed_by_rest():
    world = World()
    assert [index for index, message in world.collector.sent] == [0, 1, 2, 3] and world.collector.sent[0][1] == PartitionMap(0, None)
    assert not world.round(UNEVEN) and not world.round(UNEVEN), "a rest at the start, and once is not enough"
    assert not world.round(EVEN) and not world.round(UNEVEN)
    (plan,) = world.round(UNEVEN)
    assert plan["version"] == 1 and "takeover" not in plan["plan"] and world.count("balance_decisions") == 1 and world.count("balance_moved") > 0
    assert not world.round(UNEVEN), "nothing is decided before the plan has come"
    before, after = (make_distributor("hybrid", TASKS, OPTIONS, p) for p in (world.plans.present.plan(), plan["plan"]))
    last = batch(world.rng, 0, 400, (1, 1))
    busiest = [np.bincount(one.message_tasks(last).tasks, minlength=TASKS).max() for one in (before, after)]
    assert busiest[1] < 0.75 * busiest[0], "at first one task had all messages"
    world.follow(plan)
    assert not world.round(UNEVEN) and not world.round(UNEVEN), "a rest, and once is not enough"


def test_what_is_within_sigma_and_the_tolerance_is_left_alone():
    world = World({"sigma": 2})
    assert not any(world.round([100.0, 215.0, 100.0, 100.0]) for _ in range(6)) and not world.count("balance_refusals")
    assert not any(world.round([0.1, 0.9, 0.1, 0.1]) for _ in range(6)), "nothing happens, so nothing changes"


@pytest.mark.long
def test_a_change_that_is_not_worth_it_is_asked_for_later_and_later():
    world = World(beta=1e6)
    asked = []
    for number in range(40):
        before = world.count("balance_refusals")
        assert not world.round(UNEVEN)
        asked += [number] * (world.count("balance_refusals") > before)
    assert np.diff(asked).tolist() == [1, 2, 4, 8, 16]


def test_a_plan_from_scratch_takes_over_and_a_long_takeover_is_ended(monkeypatch):
    def repartitioned(self, sample, gain, measured):
        assert gain == 0.3 and measured["subscriptions"] == 200 and sample.messages.n == 1_000
        return self.split(0, 1)

    monkeypatch.setattr(HybridDistributor, "repartitioned", repartitioned)
    world = World(repartition_ms=10_000, repartition_gain=0.3, takeover_rest=0.25)
    assert not any(world.round(EVEN) for _ in range(4))
    (plan,) = world.round(EVEN)
    assert world.adjuster._round == 5 and plan["plan"]["takeover"] == 0.25 and world.count("balance_takeovers") == 1
    plan["plan"].pop("takeover")
    world.follow(plan, Takeover(["s0"], 0))
    for _ in range(4):
        assert not world.round(UNEVEN), "while a plan takes over, nothing is adjusted"
    (end,) = world.round(UNEVEN)
    assert end == {"v": 1, "version": 2, "plan": plan["plan"]}
    world.plans.takeover = None
    assert not any(world.round(UNEVEN) for _ in range(6)), "while a plan changes, nothing is decided"


def test_a_plan_that_no_record_holds_is_not_written(monkeypatch):
    monkeypatch.setattr(balancers, "PLAN_BYTES_MAX", 100)
    world = World()
    assert not any(world.round(UNEVEN) for _ in range(3))
    assert "too large for a record" in world.collector.errors[0] and not world.count("balance_decisions") and world.count("balance_refusals") == 1


def test_a_takeover_that_is_over_is_followed_by_rest():
    world = World(rest_periods=3)
    assert not any(world.round(EVEN) for _ in range(6))
    world.follow({"version": 1, "plan": world.plans.present.split(0, 1)}, Takeover(["s0"], 0))
    assert not any(world.round(UNEVEN) for _ in range(6))
    world.plans.takeover = None  # few are left, and move
    assert not any(world.round(UNEVEN) for _ in range(2))
    world.plans.old = None
    world.adjuster.advance()  # at the end of the batch with which the change ended
    assert [bool(world.round(UNEVEN)) for _ in range(5)] == [False] * 4 + [True]


def test_the_highest_version_has_no_successor():
    world = World()
    world.plans.newest = PLAN_VERSION_MAX
    assert not any(world.round(UNEVEN) for _ in range(6)) and "is the highest" in world.collector.errors[0]


# -- plans that are made in the background --------------------------------------------------------


class Later:
    """Work whose result comes when the test says so."""

    def __init__(self):
        self.begun = []

    def __call__(self, work):
        self.begun.append(work)
        return lambda: self.result()

    def result(self):
        return None


def background(world):
    world.context.run_in_background = later = Later()
    return later


def steady(world, costs=UNEVEN):
    """Let a round pass without a restart; return what has been written."""
    before = len(world.written)
    for task, cost in enumerate(costs):
        world.adjuster.receive(LoadReport(world.plans.version, task, cost, 0.0, 0.0, 0.0))
    world.adjuster.advance()
    return [json.loads(value) for value in world.written[before:]]


def ready_to_adjust():
    world = World()
    world.round(UNEVEN)
    world.round(UNEVEN)
    return world, background(world)


def test_while_a_plan_is_made_nothing_else_is_decided_and_then_it_is_written():
    world, later = ready_to_adjust()
    assert not any(steady(world) for _ in range(8)) and len(later.begun) == 1
    found = later.begun[0]()
    later.result = lambda: found
    (plan,) = steady(world, [])
    assert plan["version"] == 1 and world.count("balance_decisions") == 1 and world.count("balance_moved") > 0
    assert not steady(world) and len(later.begun) == 1, "nothing is decided before the plan has come"


@pytest.mark.parametrize("arrival", ["changing", "taking over", "in force"])
def test_a_plan_that_is_made_when_another_one_has_come_is_dropped(arrival):
    world, later = ready_to_adjust()
    steady(world)
    other = {"version": 1, "plan": world.plans.present.split(0, 1)}
    found = later.begun[0]()
    if arrival == "changing":
        world.plans.newest = 1
        world.plans.change(1, other["plan"])
    else:
        world.follow(other, Takeover(["s0"], 0) if arrival == "taking over" else None)
    later.result = lambda: found
    assert not steady(world, []) and world.adjuster._making is None and not world.count("balance_refusals")


def test_a_plan_whose_making_fails_is_reported_and_asked_for_later():
    world, later = ready_to_adjust()
    steady(world)

    def failed():
        raise BackgroundError("killed")

    later.result = failed
    assert not steady(world, []) and world.count("balance_refusals") == 1 and "killed" in world.collector.errors[0]
    assert not steady(world) and len(later.begun) == 2


def test_a_plan_that_cannot_be_begun_is_reported_and_asked_for_later():
    world, _ = ready_to_adjust()

    def refused(work):
        raise BackgroundError("no room")

    world.context.run_in_background = refused
    assert not steady(world) and world.count("balance_refusals") == 1 and "no room" in world.collector.errors[0]


def test_a_plan_whose_process_stands_still_is_given_up():
    world, later = ready_to_adjust()
    for _ in range(66):
        assert not steady(world) and len(later.begun) == 1
        if world.collector.errors:
            break
    assert "64 rounds" in world.collector.errors[0] and world.count("balance_refusals") == 1
    assert not steady(world) and len(later.begun) == 2


def test_a_restored_task_makes_the_plan_again():
    world, later = ready_to_adjust()
    steady(world)
    state = stored(world.adjuster.snapshot())
    world.adjuster = world.make()
    world.adjuster.restore(state)
    assert not steady(world) and len(later.begun) == 2
