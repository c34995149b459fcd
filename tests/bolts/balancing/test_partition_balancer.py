"""The two ends of load balancing: what a subscription task measures, and what the distribution task that balances decides; with restarts."""

import json
import random

import numpy as np
import pyarrow as pa
import pytest

from dskype.bolts.balancing.evaluator import Evaluator
from dskype.bolts.balancing.partition_balancer import PartitionBalancer
from dskype.bolts.message_queue import Arrived
from dskype.bolts.placement.epochs import Epochs
from dskype.bolts.placement.plans import Plans
from dskype.bolts.placement.registry import Registry
from dskype.bolts.protocol.balance import HandedOver, PartitionMap, ShiftSized, SizeShift, WorkloadReport, decode_balance, encode_balance
from dskype.bolts.protocol.placements import decode_placement
from dskype.distribution import make_distributor
from dskype.spouts.batch import Details, MessageBatch
from dskype.spouts.settings import Settings
from dskype.topology.context import Counter
from dskype.topology.core.values import pack_state, unpack_state

OPTIONS = {"granularity": 64, "box": [-10, -10, 10, 10]}
SETTINGS = Settings.from_conf({"dskype.balance": "auto", "dskype.balance.cost.min": 1, "dskype.balance.rest.periods": 1}).balance


def agrid(tasks, plan=None):
    return make_distributor("agrid", tasks, OPTIONS if plan is None else None, plan)


def stored(state):
    return unpack_state(pack_state(state))


def arrived(lat, lon, areas=None):
    n = len(lat)
    numbers = np.arange(n)
    messages = MessageBatch(numbers, numbers, np.array(lat, float), np.array(lon, float), np.arange(n + 1), np.zeros(n, np.int64), np.ones(n), areas)
    return Arrived(messages, pa.array(["1"] * n, pa.string()), numbers, Details.empty(n))


# -- the subscription task ------------------------------------------------------------------------


class Task:
    """A subscription task of several, which is restarted now and then."""

    def __init__(self, index=0, tasks=2):
        self.index, self.tasks, self.sent, self.given = index, tasks, [], []
        self.evaluator = self.make()

    def make(self):
        give = lambda index, costs: self.given.append((index, HandedOver.decode(stored(costs.encode()))))  # noqa: E731
        return Evaluator(self.index, SETTINGS, lambda plan: agrid(self.tasks, plan), self.sent.append, give)

    def restart(self):
        state = stored(self.evaluator.snapshot())
        self.evaluator = self.make()
        self.evaluator.restore(state)
        assert pack_state(self.evaluator.snapshot()) == pack_state(state)
        self.evaluator._check()


def test_a_task_measures_its_partition_from_the_map_on():
    task = Task()
    evaluator = task.evaluator
    evaluator.record(arrived([0], [-5]))  # before the map nothing counts
    evaluator.tick(0)
    evaluator.adopt(PartitionMap(0, agrid(2).plan()))
    evaluator.open(0, [-9, -9, -8, -8])
    evaluator.open(1, [5, 5, 6, 6])  # in the partition of the other task
    messages = arrived([0, 0, 0], [-5, -5, 5])
    evaluator.record(messages)
    evaluator.record(messages, np.array([1, 1]))  # two matches of the second message
    evaluator.tick(1_000)
    task.restart()
    task.evaluator.tick(1_000 + SETTINGS.period_ms)
    (report,) = task.sent
    assert report.version == 0 and report.summary.cost == pytest.approx(4) and report.summary.queries == 1
    task.evaluator.tick(1_000 + 2 * SETTINGS.period_ms)
    assert task.sent[1].summary.cost == pytest.approx(4 * SETTINGS.aging)


def test_an_area_counts_at_its_centre_or_near_it():
    task = Task()
    task.evaluator.adopt(PartitionMap(0, agrid(2).plan()))
    areas = np.array([[-6.0, 0, 8, 1], [2, 2, 2, 2]])
    task.evaluator.record(arrived([0.5, 2], [1, 2], areas))
    task.evaluator._check()
    assert task.evaluator._workload.cost == 1, "the centre of the area is outside, and so is the point"


def test_an_older_map_is_ignored_and_a_task_with_several_partitions_takes_no_part():
    task, plan = Task(), agrid(2)
    task.evaluator.open(0, [-1, -1, 1, 1])
    task.evaluator.adopt(PartitionMap(3, plan.plan()))
    task.evaluator.record(arrived([0], [-5]))
    task.evaluator.adopt(PartitionMap(2, plan.merge(0, 1)))
    assert task.evaluator._workload.box.x1 == 32
    task.evaluator.adopt(PartitionMap(4, plan.merge(0, 1)))
    assert task.evaluator._workload.cost == 1 and task.evaluator._workload.queries == 1 and not task.given
    task.evaluator._check()
    shared = {**plan.plan(), "partitions": [part | {"task": 0} for part in plan.plan()["partitions"]]}
    task.evaluator.adopt(PartitionMap(5, shared))
    task.evaluator.record(arrived([0], [-5]))
    task.restart()
    assert task.evaluator._workload is None, "a task with two partitions takes no part"
    task.evaluator.size(SizeShift(7, 1, 2, 1.0, 2.0))
    assert task.sent == [ShiftSized(7, 0, None)]


@pytest.mark.parametrize("early", [False, True])
def test_costs_go_where_their_cells_go(early):
    """Whether the costs or the new partition come first."""
    tasks, plan = [Task(0), Task(1)], agrid(2)
    for task in tasks:
        task.evaluator.adopt(PartitionMap(0, plan.plan()))
        task.evaluator.record(arrived([0, 0, 1, 2], [-5, -2, -2, 5]))
    other = plan.shift(0, 1, 20)  # columns 20 to 31 go to the second task, and the messages at longitude -2 with them
    tasks[0].evaluator.adopt(PartitionMap(1, other))
    [(index, costs)] = tasks[0].given
    assert index == 1 and costs.version == 1 and tasks[0].evaluator._workload.cost == 1
    if early:
        tasks[1].evaluator.take(costs)
        tasks[1].restart()
        assert tasks[1].evaluator._workload.cost == 1
    tasks[1].evaluator.adopt(PartitionMap(1, other))
    if not early:
        tasks[1].evaluator.take(costs)
    for task in tasks:
        task.restart()
    assert tasks[1].evaluator._workload.cost == 3 and not tasks[1].given
    tasks[1].evaluator.take(costs._replace(version=0))
    assert tasks[1].evaluator._workload.cost == 3, "costs by an older plan are not those of its cells"
    anew = make_distributor("agrid", 2, OPTIONS | {"granularity": 32}).plan()
    tasks[0].evaluator.adopt(PartitionMap(2, anew))
    assert tasks[0].evaluator._workload.cost == 0 and len(tasks[0].given) == 1, "the cells of another grid are others"


def test_subscriptions_that_come_and_go_are_counted():
    rng, task = random.Random(1), Task(tasks=3)
    alive = set()
    for step in range(300):
        if rng.random() < 0.05:
            plan = agrid(3)
            task.evaluator.adopt(PartitionMap(step, rng.choice([plan.plan(), plan.merge(0, 1), plan.shift(0, 1, 20)])))
        if alive and rng.random() < 0.4:
            task.evaluator.forget(alive.pop())
        else:
            slot = rng.choice([slot for slot in range(400) if slot not in alive])
            alive.add(slot)
            west = rng.uniform(-190, 180)
            task.evaluator.open(slot, [west, rng.uniform(-12, 0), rng.choice([west + 3, -179.0, 180.0]), rng.uniform(0, 12)])
        task.evaluator._check()
        if step % 50 == 0:
            task.restart()


# -- the distribution task ------------------------------------------------------------------------


class Collector:
    def __init__(self):
        self.sent = []

    def emit_direct(self, task, row, stream):
        self.sent.append((task, decode_placement(stored(row[2]))))


class Context:
    def __init__(self):
        self.gauges, self.counters = {}, {}

    def register_gauge(self, name, function):
        self.gauges[name] = function

    def register_counter(self, name):
        return self.counters.setdefault(name, Counter())


class World:
    """A balancer with evaluators, without a topology; the balancer and the evaluators restart after every message."""

    def __init__(self, tasks=4):
        self.collector, self.context, self.written = Collector(), Context(), []
        self.plans = Plans(agrid(tasks), lambda plan: agrid(tasks, plan))
        self.tasks = [Task(index, tasks) for index in range(tasks)]
        self.balancer, self.now_ms = self.make(), 0

    def make(self):
        return PartitionBalancer(SETTINGS, Epochs(Registry(), self.plans, range(len(self.tasks)), self.collector), self.written.append, self.context)

    def deliver(self):
        self.balancer.advance()
        while self.collector.sent or any(task.sent or task.given for task in self.tasks):
            sent, self.collector.sent = self.collector.sent, []
            for index, message in sent:
                handle = self.tasks[index].evaluator.adopt if isinstance(message, PartitionMap) else self.tasks[index].evaluator.size
                handle(message)
                self.tasks[index].restart()
            for task in self.tasks:
                while task.given:
                    index, costs = task.given.pop()
                    self.tasks[index].evaluator.take(costs)
                    self.tasks[index].restart()
                reports = task.sent[:]
                task.sent.clear()
                for report in reports:
                    self.receive(report)

    def receive(self, report):
        assert decode_balance(report.kind, stored(encode_balance(report))) == report
        self.balancer.receive(report)
        self.balancer.advance()
        state = stored(self.balancer.snapshot())
        self.balancer = self.make()
        self.balancer.restore(state)
        assert pack_state(self.balancer.snapshot()) == pack_state(state)

    def period(self, lat, lon):
        """Let messages come, and the tasks report."""
        for task in self.tasks:
            task.evaluator.record(arrived(lat, lon))
            task.evaluator.tick(self.now_ms)
        self.now_ms += SETTINGS.period_ms
        self.deliver()

    def adopt(self, version, plan):
        self.plans.newest = version
        self.plans.change(version, plan)
        self.plans.old = None  # the change is over

    def follow(self):
        """Change to the last plan that was written."""
        plan = json.loads(self.written[-1])
        self.adopt(plan["version"], plan["plan"])
        self.deliver()


def hot(rng, n=400):
    return [rng.uniform(-10, -4) for _ in range(n)], [rng.uniform(-10, -4) for _ in range(n)]


def test_a_hotspot_becomes_plans_until_it_is_divided():
    world, rng = World(), random.Random(2)
    world.deliver()
    for _ in range(45):
        before = len(world.written)
        world.period(*hot(rng))
        if len(world.written) > before:
            world.period(*hot(rng))
            assert len(world.written) == before + 1, "nothing is decided before the plan has come"
            world.follow()
    assert [json.loads(plan)["version"] for plan in world.written] == list(range(1, len(world.written) + 1))
    assert len(world.written) > 1 and world.context.counters["balance_decisions"].get_count() == len(world.written)
    lat, lon = map(np.array, hot(rng, 2_000))
    loads = np.bincount(world.plans.present.task_of[world.plans.present.grid.locate(lat, lon)], minlength=len(world.tasks))
    assert loads.max() <= loads.sum() / 2, "at first one task had it all"


def test_reports_of_other_partitions_and_answers_to_other_decisions_do_not_count():
    world, rng = World(), random.Random(3)
    world.deliver()
    world.period(*hot(rng))
    late = WorkloadReport(7, _summary(world))
    before = stored(world.balancer.snapshot())
    world.receive(late)
    world.receive(ShiftSized(99, 0, 1))
    assert pack_state(world.balancer.snapshot()) == pack_state(before)
    world.plans.coming.append((1, {}))
    world.receive(late._replace(version=0))
    assert pack_state(world.balancer.snapshot()) == pack_state(before), "while the plan changes nothing counts"


def _summary(world):
    world.tasks[0].evaluator.tick(10**9)
    return world.tasks[0].sent.pop().summary


def test_a_plan_that_somebody_else_publishes_ends_a_decision():
    world, rng = World(), random.Random(4)
    world.deliver()
    while not world.balancer.snapshot()["waits_for"]:
        for task in world.tasks:
            task.evaluator.record(arrived(*hot(rng)))
            task.evaluator.tick(world.now_ms)
        world.now_ms += SETTINGS.period_ms
        for task in world.tasks:
            while task.sent:
                world.receive(task.sent.pop())
        assert not world.written, "another seed: the first decision has no shift"
    world.adopt(1, world.plans.present.plan())
    world.deliver()
    assert not world.written and not world.balancer.snapshot()["operations"]
