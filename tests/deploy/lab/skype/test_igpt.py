"""The indexes of Skype with tiny cells and few groups: everything that a large one does, often."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from dskype.bolts.topk.base import SubscriptionIndex
from dskype.bolts.topk.engine import TopkEngine
from dskype.deploy.lab.skype import igpt_kernels as kernels
from dskype.deploy.lab.skype.igpt import IgptIndex, IptIndex
from dskype.topology.errors import IllegalArgumentException
from tests.bolts.topk.test_indexes import expected, found, insert
from tests.bolts.topk.world import DIAGONAL_DEG, World, batch, exact_score

KINDS = {
    "ipt": lambda: IptIndex(DIAGONAL_DEG, cell_capacity=2),
    "ipt, one a cell": lambda: IptIndex(DIAGONAL_DEG, cell_capacity=1),
    "igpt": lambda: IgptIndex(DIAGONAL_DEG, cell_capacity=2, groups=3),
    "one group": lambda: IgptIndex(DIAGONAL_DEG, cell_capacity=5, groups=1),
    "one cell": lambda: IgptIndex(DIAGONAL_DEG, cell_capacity=1000, groups=2),
}


class Play:
    """Changes an index at random and compares it with brute force after every step."""

    def __init__(self, index: SubscriptionIndex, seed: int, places: int = 12) -> None:
        self.rng, self.world, self.index = random.Random(seed), World(seed, terms=10, places=places), index
        self.subscriptions: dict[int, dict] = {}
        self.thresholds: dict[int, float] = {}

    def insert(self, subscriptions: list[dict]) -> None:
        free = [slot for slot in range(500) if slot not in self.subscriptions]
        slots = sorted(self.rng.sample(free[: len(subscriptions) + 10], len(subscriptions)))
        insert(self.index, slots, subscriptions)
        self.subscriptions.update(zip(slots, subscriptions))
        self.thresholds.update(dict.fromkeys(slots, -np.inf))
        self.index._check()

    def remove(self, slots: list[int]) -> None:
        self.index.remove(np.array(sorted(slots), np.int32))
        for slot in slots:
            del self.subscriptions[slot], self.thresholds[slot]
        self.index._check()

    def set(self, thresholds: dict[int, float]) -> None:
        self.index.set_thresholds(np.array(list(thresholds), np.int32), np.array(list(thresholds.values()), float))
        self.thresholds.update(thresholds)
        self.index._check()

    def some(self, most: int) -> list[int]:
        return self.rng.sample(sorted(self.subscriptions), min(len(self.subscriptions), self.rng.randint(1, most)))

    def compare(self, messages: list[dict]) -> int:
        pairs = expected(messages, self.subscriptions, self.thresholds)
        assert found(self.index, batch(messages)) == pairs
        return len(pairs)

    def tuned(self, slot: int, messages: list[dict]) -> float:
        """A threshold of any kind: most often at, or a hair above or below, the score of a message."""
        scores = [s for s in (exact_score(self.subscriptions[slot], m) for m in messages) if s is not None]
        if not scores or self.rng.random() < 0.2:
            return self.rng.choice((-np.inf, np.inf, 0.0, self.rng.random(), -5.0))
        score = self.rng.choice(scores)
        return self.rng.choice((score, score, np.nextafter(score, np.inf), np.nextafter(score, -np.inf), score + 0.003, score - 0.003))


def anywhere(play: Play) -> None:
    """Places at borders of cells, close to them, far out of the root, and many at one."""
    coordinates = [0.0, 8.0, 4.0, 2.0, 6.0, 4.0, math.nextafter(4.0, 5.0), 5e-324, -8.0, 1e6, -3e200, 1.7e308, -1.7e308]
    for reach in range(2, len(coordinates) + 1):

        def moved(item: dict) -> dict:
            return {**item, "lat": play.rng.choice(coordinates[:reach]), "lon": play.rng.choice(coordinates[:reach])}

        play.insert([moved(play.world.subscription()) for _ in range(6)])
        messages = [moved(message) for message in play.world.messages(12)]
        play.compare(messages)
        play.set({slot: play.tuned(slot, messages) for slot in play.some(40)})
        play.compare(messages)
    same = play.world.subscription()
    play.insert([{**play.world.subscription(), "lat": same["lat"], "lon": same["lon"]} for _ in range(40)])
    play.compare(play.world.messages(10))
    play.remove(play.some(90))
    play.compare(messages)


def random_steps(play: Play, steps: int) -> int:
    """Insert, tune, compare and remove at random, and in the end remove everything; return how many pairs were compared."""
    pairs = 0
    for step in range(steps):
        play.insert([play.world.subscription() for _ in range(play.rng.choice((0, 1, 3, 12)))])
        messages = play.world.messages(play.rng.choice((1, 8)))
        for most in (2, 60):
            if play.subscriptions:
                play.set({slot: play.tuned(slot, messages) for slot in play.some(most)})
                pairs += play.compare(messages)
        if play.subscriptions:
            play.remove(play.some(60 if step % 9 == 8 else 4))
        pairs += play.compare(messages)
    play.remove(list(play.subscriptions))
    assert play.compare(play.world.messages(3)) == 0
    return pairs


def of_any_size(play: Play) -> None:
    """Weights of messages and subscriptions from nothing to beyond float32."""
    for scale in (1e-30, 1e-3, 3.0, 1e6, 1e30, 1e39):

        def scaled(item: dict) -> dict:
            return {**item, "weights": {term: weight * play.rng.choice((scale, 1.0, 0.0)) for term, weight in item["weights"].items()}}

        play.insert([scaled(play.world.subscription()) for _ in range(10)])
        messages = [scaled(message) for message in play.world.messages(10)]
        for _ in range(3):
            play.compare(messages)
            play.set({slot: play.tuned(slot, messages) for slot in play.some(60)})
        play.compare(messages)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", [1, 2])
def test_tiny_cells_find_exactly_what_reaches_its_threshold(kind, seed):
    assert random_steps(Play(KINDS[kind](), seed), 22) > 200


@pytest.mark.parametrize("kind", KINDS)
def test_places_may_coincide_lie_on_borders_or_anywhere(kind):
    anywhere(Play(KINDS[kind](), 5))


@pytest.mark.parametrize("kind", KINDS)
def test_weights_may_have_any_size(kind):
    of_any_size(Play(KINDS[kind](), 7))


def test_subscriptions_without_keywords_match_nothing():
    play = Play(IgptIndex(DIAGONAL_DEG, cell_capacity=2, groups=2), 9)
    play.insert([{**play.world.subscription(), "weights": {}} for _ in range(5)])
    assert play.compare(play.world.messages(5)) == 0
    play.insert([play.world.subscription() for _ in range(5)])
    play.compare(play.world.messages(5))
    play.remove(list(play.subscriptions))


def test_bounds_prune():
    """Most pairs with a common keyword do not become candidates when thresholds are high."""
    counts = {}
    for kind in ("ipt", "igpt"):
        play = Play(KINDS[kind](), 3, places=100)
        play.insert([{**play.world.subscription(), "alpha": 0.5} for _ in range(200)])
        messages = play.world.messages(50)
        common = play.compare(messages)
        play.set(dict.fromkeys(play.subscriptions, 0.97))
        candidates = []
        original = kernels.find_candidates
        try:
            kernels.find_candidates = lambda *a: candidates.append(original(*a)) or candidates[-1]
            play.compare(messages)
        finally:
            kernels.find_candidates = original
        counts[kind] = len(candidates[0][0])
        assert counts[kind] < common / 5
    assert counts["igpt"] <= counts["ipt"]


def test_equal_calls_lead_to_equal_structures():
    def played() -> list[bytes]:
        play = Play(IgptIndex(DIAGONAL_DEG, cell_capacity=3, groups=2), 11)
        for _ in range(10):
            play.insert([play.world.subscription() for _ in range(6)])
            play.set({slot: play.rng.random() for slot in play.some(9)})
            play.remove(play.some(3))
        postings = play.index._postings
        used = np.flatnonzero(postings.block[:, 1])
        return [used.tobytes(), *(a.tobytes() for a in postings.gather(*postings.block[used, :2].T, *postings.fields))]

    assert played() == played()


@pytest.mark.parametrize("name, options", [("ipt", {"cell_capacity": 0}), ("igpt", {"groups": 0}), ("igpt", {"groups": 200}), ("ipt", {"groups": 2})])
def test_options_that_cannot_be_are_refused(name, options):
    with pytest.raises(IllegalArgumentException, match=next(iter(options))):
        TopkEngine(10, DIAGONAL_DEG, index=name, index_options=options)
