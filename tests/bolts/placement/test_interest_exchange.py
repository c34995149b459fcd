"""Distribution tasks that exchange their interest: in whatever order messages come, no task withholds what a subscription relies on."""

import random
from collections import Counter, deque

import numpy as np
import pytest

from dskype.bolts.placement.interest_exchange import InterestExchange, pairs_of
from dskype.bolts.protocol.interest import decode_interest
from dskype.distribution import Distributor
from dskype.spouts.batch import MessageBatch
from dskype.topology.core.values import pack_state, unpack_state
from dskype.topology.groupings import RowTasks

from .test_replicated import Context

REGIONS, TERMS = 2, 6
EVERY = RowTasks(np.zeros(REGIONS, np.int64), np.arange(REGIONS, dtype=np.int32))


class Plain:
    """A distributor whose regions are tasks."""

    tasks = REGIONS
    message_regions = Distributor.message_regions


class Life:
    """A subscription: it relies on its pairs for positions above ``begin``, up to ``end``."""

    def __init__(self, pairs, number):
        self.pairs, self.number, self.begin, self.end = pairs, number, None, None


class World:
    """Distribution tasks with a channel from each to each. Every message has a term, and waits at the task that will route it."""

    def __init__(self, rng, tasks):
        self.rng, self.tasks = rng, list(range(10, 10 + tasks))
        self.channels = {(a, b): deque() for a in self.tasks for b in self.tasks if a != b}
        self.exchanges = {task: self.made(task) for task in self.tasks}
        self.lives = {task: [] for task in self.tasks}
        self.over = []
        self.waiting = {task: {} for task in self.tasks}  # position -> term
        self.position, self.watermark = -1, dict.fromkeys(self.tasks, -1)
        self.routed = []  # position, term, regions

    def made(self, task):
        channels = self.channels

        class Collector:
            def emit_direct(self, target, row, stream):
                channels[task, target].append(unpack_state(pack_state(row)))

        return InterestExchange(REGIONS, [other for other in self.tasks if other != task], Collector(), Context())

    def step(self):
        task = self.rng.choice(self.tasks)
        acts = [self.receive] * 6 + [self.begin, self.end, self.arrive, self.arrive, self.route, self.advance, self.advance, self.crash]
        self.rng.choice(acts)(task, self.exchanges[task])
        self.finish(task)

    def finish(self, task):
        """Do what a task does after each batch."""
        exchange = self.exchanges[task]
        exchange.announce()
        exchange.settle()
        exchange._check()
        for life in self.lives[task]:
            if life.begin is None and exchange.settled(life.number):
                life.begin = self.watermark[task]

    def receive(self, task, exchange):
        sources = [source for source in self.tasks if source != task and self.channels[source, task]]
        if sources:
            source = self.rng.choice(sources)
            kind, record = self.channels[source, task].popleft()
            exchange.receive(decode_interest(kind, record), source)

    def begin(self, task, exchange):
        pairs = pairs_of(self.rng.sample(range(REGIONS), 1), self.rng.sample(range(TERMS), self.rng.randint(1, 2)))
        self.lives[task].append(Life(pairs, exchange.need(*pairs)))

    def end(self, task, exchange):
        for _ in range(self.rng.choice([1, 1, len(self.lives[task])])):
            if self.lives[task]:
                life = self.lives[task].pop(self.rng.randrange(len(self.lives[task])))
                life.end = self.watermark[task]
                self.over.append(life)
                exchange.release(*life.pairs)

    def arrive(self, task, exchange):
        self.position += 1
        self.waiting[task][self.position] = self.rng.randrange(TERMS)

    def route(self, task, exchange):
        for position in self.rng.sample(sorted(self.waiting[task]), min(2, len(self.waiting[task]))):
            term = self.waiting[task].pop(position)
            message = MessageBatch(np.array([position]), np.array([position]), np.zeros(1), np.zeros(1), np.array([0, 1]), np.array([term]), np.ones(1))
            routes = exchange.filter(Plain(), message, self.rng.choice([None, EVERY]))
            self.routed.append((position, term, set(routes.tasks.tolist())))

    def advance(self, task, exchange):
        """Raise the watermark of a task, up to the oldest message that it has not routed."""
        most = min(self.waiting[task], default=self.position + 1) - 1
        if most > self.watermark[task]:
            self.watermark[task] = self.rng.randint(self.watermark[task] + 1, most)
            exchange.advance(self.watermark[task])

    def crash(self, task, exchange):
        self.exchanges[task] = self.made(task)
        self.exchanges[task].restore(unpack_state(pack_state(exchange.snapshot())))

    def drain(self):
        """Deliver and route everything, until nothing changes."""
        for _ in range(4):
            for task in self.tasks:
                while any(self.channels[source, task] for source in self.tasks if source != task):
                    self.receive(task, self.exchanges[task])
                while self.waiting[task]:
                    self.route(task, self.exchanges[task])
                if self.watermark[task] < self.position:
                    self.watermark[task] = self.position
                    self.exchanges[task].advance(self.position)
                self.finish(task)

    def counts(self, task):
        return {(region, term): count for region, term, count in zip(*(column.tolist() for column in self.exchanges[task]._copy.items()))}


@pytest.mark.long
@pytest.mark.parametrize("tasks", [1, 2, 4])
def test_no_message_is_withheld_that_a_subscription_relies_on(tasks):
    relied, withheld = 0, 0
    for seed in range(60):
        rng = random.Random(1000 * tasks + seed)
        world = World(rng, tasks)
        for _ in range(rng.choice([50, 300])):
            world.step()
        world.drain()
        for life in [*world.over, *(life for lives in world.lives.values() for life in lives)]:
            if life.begin is None:
                assert life.end is not None, f"seed {seed}: a pair was never settled"
                continue
            pairs = set(zip(*(column.tolist() for column in life.pairs)))
            for position, term, regions in world.routed:
                if position > life.begin and (life.end is None or position <= life.end):
                    wanted = {region for region, needed in pairs if needed == term}
                    assert wanted <= regions, f"seed {seed}: {position} with {term} went to {regions}, and {wanted} rely on it"
                    relied += len(wanted)
        withheld += sum(REGIONS - len(regions) for *_, regions in world.routed)
        needing = Counter(pair for lives in world.lives.values() for pair in {p for life in lives for p in zip(*(column.tolist() for column in life.pairs))})
        world.position += 1  # pairs that nobody needs end with the next watermark
        world.drain()
        assert all(world.counts(task) == needing for task in world.tasks), f"seed {seed}"
    assert relied > 100 and withheld > 100


def test_a_pair_that_is_needed_again_before_the_watermark_rises_stays_settled():
    world = World(random.Random(0), 2)
    one, other = (world.exchanges[task] for task in world.tasks)
    pair = pairs_of([1], [7])
    number = one.need(*pair)
    assert not one.settled(number)
    world.drain()
    assert one.settled(number)
    one.release(*pair)
    assert one.settled(one.need(*pair)) and not world.channels[10, 11]
    one.release(*pair)
    one.advance(5)
    other.receive(decode_interest(*world.channels[10, 11].popleft()), 10)
    assert one._copy.count(1, 7) == 0 and other._copy.count(1, 7) == 1  # messages up to 5 may still come to the other task
    assert not one.settled(one.need(*pair))
    other.advance(4)
    assert other._copy.count(1, 7) == 1
    other.advance(5)
    assert other._copy.count(1, 7) == 0


def test_a_pair_is_settled_when_the_watermark_has_reached_what_was_withheld():
    world = World(random.Random(0), 2)
    one, other = (world.exchanges[task] for task in world.tasks)
    message = MessageBatch(np.array([8]), np.array([8]), np.zeros(1), np.zeros(1), np.array([0, 1]), np.array([3]), np.ones(1))
    assert not len(other.filter(Plain(), message, None).rows)
    number = one.need(*pairs_of([1], [3]))
    one.announce()
    other.receive(decode_interest(*world.channels[10, 11].popleft()), 10)
    one.receive(decode_interest(*world.channels[11, 10].popleft()), 11)
    one.advance(7)
    assert not one.settle() and not one.settled(number)
    one.advance(8)
    assert one.settle() and one.settled(number)


class Halves:
    """A distributor with one task and two regions; a message with a sequence number of 2 or more may go there in both."""

    tasks = 1

    def message_regions(self, messages, routes):
        rows = np.array([row for row in routes.rows.tolist() for _ in range(1 + (messages.seq[row] >= 2))])
        return RowTasks(rows, np.zeros(len(rows), np.int32)), np.array([(i > 0 and rows[i - 1] == row) for i, row in enumerate(rows.tolist())], np.int32)


def test_a_message_goes_to_a_task_once_if_one_of_several_regions_wants_it():
    exchange = World(random.Random(0), 1).exchanges[10]
    for region, term in ((0, 5), (1, 5), (1, 6)):
        exchange.need(*pairs_of([region], [term]))
    exchange.announce()
    terms = [5, 6, 5, 6, 7]
    numbers = np.arange(5)
    messages = MessageBatch(numbers, numbers, np.zeros(5), np.zeros(5), np.arange(6), np.array(terms), np.ones(5))
    assert exchange.filter(Halves(), messages, None).rows.tolist() == [0, 2, 3]
