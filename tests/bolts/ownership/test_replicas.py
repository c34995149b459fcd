"""Why replicas are exact: property tests of the argument, with engines, and of what tells a task that it may ask."""

import math
import random

import numpy as np
import pytest

from dskype.bolts.ownership.coverage import Coverage
from dskype.bolts.topk.engine import BUFFERS, TopkEngine
from dskype.spouts.batch import MessageBatch
from dskype.topology.core.values import pack_state, unpack_state

from ..topk.world import DIAGONAL_DEG, World, exact_topk

pytestmark = pytest.mark.long


def batch(messages):
    offsets = np.cumsum([0, *(len(m["weights"]) for m in messages)])
    return MessageBatch(
        *(np.array([m[key] for m in messages], np.int64) for key in ("seq", "position")),
        *(np.array([m[key] for m in messages], np.float64) for key in ("lat", "lon")),
        offsets.astype(np.int64),
        np.array([t for m in messages for t in m["weights"]], np.int64),
        np.array([w for m in messages for w in m["weights"].values()], np.float64),
    )


class Task:
    """One task: the replicas of some subscriptions, and the messages that share a keyword with its share of the vocabulary."""

    def __init__(self, extent, buffer):
        self.engine, self.slots, self.waiting = TopkEngine(extent, DIAGONAL_DEG, "taat", buffer), {}, []

    def insert(self, number, s, complete=False):
        terms = sorted(s["weights"])
        (slot,) = self.engine.insert(
            np.array([s["k"]]),
            *(np.array([s[key]]) for key in ("alpha", "lat", "lon")),
            np.array([0, len(terms)]),
            np.array(terms),
            np.array([s["weights"][t] for t in terms]),
            complete,
        ).tolist()
        self.slots[number] = slot
        if not complete:
            self.waiting.append((number, self.engine.watermark))

    def advance(self, messages, watermark):
        numbers = {slot: number for number, slot in self.slots.items()}
        self.waiting += [(numbers[slot], watermark) for slot in self.engine.advance(batch(messages), watermark).due.tolist()]

    def answer(self, subscriptions, window, extent, rng):
        """Take the answer to one evaluation, as of the watermark at which it was asked for."""
        if not self.waiting:
            return
        number, asked = self.waiting.pop(rng.randrange(len(self.waiting)))
        slot = np.array([self.slots[number]], np.int32)
        best = exact_topk(subscriptions[number], window, asked, extent, int(self.engine.wanted(slot)[0]))
        scores, positions, seqs = zip(*best) if best else ((), (), ())
        due = self.engine.resolve(slot, np.array([0, len(best)]), np.array(seqs, np.int64), np.array(positions, np.int64), np.array(scores)).due
        self.waiting += [(number, self.engine.watermark)] * len(due)

    def floor(self, number):
        """Return the floor of a replica; None: it is pending."""
        slot = np.array([self.slots[number]], np.int32)
        return None if self.engine.pending(slot)[0] else float(self.engine.buffers.thresholds(slot)[0])

    def list(self, number):
        _, seqs, positions, scores = self.engine.topk(np.array([self.slots[number]], np.int32))
        return list(zip(scores.tolist(), positions.tolist(), seqs.tolist()))


def guard_of(subscription, tasks, task_of):
    """Return a bound of the score of messages that go to none of the tasks: at no distance, with all the rest in their text."""
    rest = [w for term, w in subscription["weights"].items() if task_of[term] not in tasks]
    alpha = subscription["alpha"]
    return alpha + (1 - alpha) * math.sqrt(sum(w * w for w in rest)) + 1e-9 if rest else -math.inf


@pytest.mark.parametrize("buffer", sorted(BUFFERS))
@pytest.mark.parametrize("seed", range(5))
def test_while_all_replicas_are_above_the_guard_their_lists_together_are_the_topk(seed, buffer):
    rng, world = random.Random(seed), World(seed)
    count, extent = rng.choice((2, 3, 5)), rng.choice((40, 150))
    task_of = {term: rng.randrange(count) for term in world.terms}
    tasks = [Task(extent, buffer) for _ in range(count)]
    subscriptions = [world.subscription(rng.choice((1, 2, 3, 5))) for _ in range(25)]
    placed = []
    for number, s in enumerate(subscriptions):
        own = sorted({task_of[term] for term in s["weights"]})
        chosen = rng.sample(own, rng.randint(1, len(own)))
        if number % 2:  # one keyword that says nearly all
            first, *rest = sorted(s["weights"])
            s["alpha"], s["weights"] = rng.choice((0.0, 0.1)), {first: 0.99, **{term: math.sqrt((1 - 0.99**2) / len(rest)) for term in rest}}
            chosen = [task_of[first]]
        placed.append((chosen, guard_of(s, chosen, task_of)))
        for task in chosen:
            tasks[task].insert(number, s, complete=True)
    window, bounded, merged = [], 0, 0
    for _ in range(60):
        new = world.messages(rng.randint(0, 12))
        window += new
        watermark = world.position
        for index, task in enumerate(tasks):
            task.advance([m for m in new if any(task_of[t] == index for t in m["weights"])], watermark)
        for task in tasks:
            for _ in range(rng.choice((0, 1, 5, 30))):
                task.answer(subscriptions, window, extent, rng)
        for number, (chosen, guard) in enumerate(placed):
            if rng.random() < 0.05 and guard > -math.inf:  # a new epoch: one task more, which has asked from now on
                (more, *_) = [t for t in sorted({task_of[term] for term in subscriptions[number]["weights"]}) if t not in chosen] or [None]
                if more is not None:
                    tasks[more].insert(number, subscriptions[number])
                    placed[number] = chosen, guard = [*chosen, more], guard_of(subscriptions[number], [*chosen, more], task_of)
            floors = [tasks[task].floor(number) for task in chosen]
            if all(floor is not None and (guard == -math.inf or floor > guard) for floor in floors):
                k = subscriptions[number]["k"]
                union = sorted({entry for task in chosen for entry in tasks[task].list(number)}, reverse=True)[:k]
                assert union == exact_topk(subscriptions[number], window, watermark, extent, k)
                bounded += guard > -math.inf
                merged += len(chosen) > 1
    assert merged > 50 and bounded > 0


def test_a_plan_is_covered_from_the_newest_message_before_the_last_marker():
    coverage = Coverage(2)
    assert coverage.since(0) == -1
    coverage.record_marker(3, 10, 70)
    assert coverage.since(3) > 1 << 60
    coverage.restore(unpack_state(pack_state(coverage.snapshot())))
    coverage.record_marker(3, 11, 50)
    assert coverage.since(3) == 70
    assert coverage.record_finished(3, 11, 80) is None
    coverage.restore(unpack_state(pack_state(coverage.snapshot())))
    assert coverage.record_finished(3, 11, 80) is None and coverage.record_finished(3, 10, 75) == 80
    assert coverage.since(3) == 70 and coverage.since(4) > 1 << 60


def test_routes_of_an_older_plan_stay_until_what_they_alone_have_sent_is_matched():
    coverage = Coverage(2)
    coverage.record_marker(4, 10, 90)
    coverage.record_marker(4, 11, 60)
    assert coverage.record_finished(4, 10, 50) is None
    # A subscription that registers at watermark 50 matches the message at 90, which the older plan has sent.
    assert coverage.record_finished(4, 11, 50) == 90
