"""Interest: counts, and routing by them, compared with plain sets."""

import random
from collections import Counter

import numpy as np
import pytest

from dskype.distribution.routing.interest import CountedPairs, Interest
from dskype.distribution.routing.triggers import routing_terms
from dskype.distribution.subscriptions import BooleanSubscription, TopkSubscription
from dskype.spouts.batch import MessageBatch
from dskype.topology.core.values import pack_state, unpack_state
from dskype.topology.groupings import RowTasks

REGIONS = [1, 3, 64, 65, 200]


def columns(pairs):
    return np.array([region for region, _ in pairs], np.int32), np.array([term for _, term in pairs], np.int64)


def messages(rng, n, terms, first=0):
    """Return messages with up to five of some terms."""
    chosen = [sorted(rng.sample(terms, rng.randint(0, min(5, len(terms))))) for _ in range(n)]
    offsets = np.cumsum([0, *map(len, chosen)]).astype(np.int64)
    flat = np.array([term for own in chosen for term in own], np.int64)
    numbers = np.arange(first, first + n)
    return MessageBatch(numbers, numbers, np.zeros(n), np.zeros(n), offsets, flat, np.ones(len(flat)))


class Checked:
    """An interest beside a plain one."""

    def __init__(self, regions):
        self.interest, self.plain, self.withheld = Interest(regions), Counter(), [-1] * regions

    def add(self, pairs):
        fresh = []
        for pair in pairs:
            fresh.append(not self.plain[pair])
            self.plain[pair] += 1
        assert self.interest.add(*columns(pairs)).tolist() == fresh

    def remove(self, pairs):
        gone = []
        for pair in pairs:
            self.plain[pair] -= 1
            gone.append(not self.plain[pair])
        assert self.interest.remove(*columns(pairs)).tolist() == gone

    def wants(self, batch, row, region):
        own = batch.terms[batch.offsets[row] : batch.offsets[row + 1]].tolist()
        wanted = any(self.plain[region, term] for term in own)
        if own and not wanted:
            self.withheld[region] = max(self.withheld[region], int(batch.position[row]))
        return wanted

    def check(self, rng, batch):
        """Compare routes from scratch and filtered routes, and what the interest remembers of them; replace the interest by its restored self."""
        regions = len(self.withheld)
        found = self.interest.routes(batch)
        assert list(zip(found.rows.tolist(), found.tasks.tolist())) == [(i, r) for i in range(batch.n) for r in range(regions) if self.wants(batch, i, r)]
        rows = np.sort(np.array(rng.choices(range(batch.n), k=3 * batch.n), np.int64)) if batch.n else np.zeros(0, np.int64)
        at = np.array([rng.randrange(regions) for _ in rows], np.int32)
        tasks = np.arange(len(rows), dtype=np.int32)
        kept = self.interest.filter(batch, RowTasks(rows, tasks), at)
        assert kept.tasks.tolist() == [i for i, (row, region) in enumerate(zip(rows.tolist(), at.tolist())) if self.wants(batch, row, region)]
        assert kept.rows.tolist() == rows[kept.tasks].tolist()
        assert self.interest.withheld.tolist() == self.withheld
        self.interest._check()
        assert len(self.interest) == sum(count > 0 for count in self.plain.values())
        restored = Interest(regions)
        restored.restore(unpack_state(pack_state(self.interest.snapshot())))
        restored._check()
        assert pack_state(restored.snapshot()) == pack_state(self.interest.snapshot())
        self.interest = restored


def play(regions, steps):
    """Add, remove and route; compare everything with plain sets."""
    rng, checked, live = random.Random(regions), Checked(regions), []
    terms = [*range(12), *(-1 - i * 2654435761 * 997 for i in range(12)), (1 << 62) + 1, -(1 << 62)]
    for step in range(steps):
        added = [(rng.randrange(regions), rng.choice(terms)) for _ in range(rng.choice([0, 1, 5, 60]))]
        checked.add(added)
        live += added
        rng.shuffle(live)
        removed = live if step % 10 == 9 else live[: len(live) // 2]
        checked.remove(removed)
        live = live[len(removed) :]
        checked.check(rng, messages(rng, rng.choice([0, 1, 9]), terms, 10 * step))
    assert not live or len(checked.interest)


@pytest.mark.parametrize("regions", REGIONS)
def test_it_counts_and_routes_as_plain_sets_do(regions):
    play(regions, 40)


def test_what_is_not_there_cannot_be_removed():
    pairs = CountedPairs()
    pairs.add(*columns([(1, 7), (1, 7)]))
    with pytest.raises(ValueError, match="region 1, term 8"):
        pairs.remove(*columns([(1, 7), (1, 8)]))


def test_its_size_follows_from_the_distinct_pairs():
    pairs = CountedPairs()
    many = np.repeat(np.arange(100), 100), np.tile(np.arange(100), 100)
    for _ in range(50):
        pairs.add(many[0].astype(np.int32), many[1].astype(np.int64))
    assert len(pairs) == 10_000 and pairs.count(99, 99) == 50 and len(pairs._table.terms) <= 8 * 10_000
    for _ in range(50):
        pairs.remove(many[0].astype(np.int32), many[1].astype(np.int64))
    pairs._check()
    assert len(pairs) == 0 and len(pairs._table.terms) == 64


def test_a_part_of_a_batch_is_routed_as_the_whole_is():
    rng, interest = random.Random(3), Interest(4)
    interest.add(*columns([(0, 1), (2, 5), (3, 9)]))
    batch = messages(rng, 20, list(range(12)))
    whole = [(row, task) for row, task in zip(*(column.tolist() for column in interest.routes(batch))) if 5 <= row < 15]
    part = interest.routes(batch.slice(5, 15))
    assert list(zip((part.rows + 5).tolist(), part.tasks.tolist())) == whole


def test_routing_terms_are_one_per_conjunct_and_all_keywords_of_a_topk_subscription():
    assert routing_terms(BooleanSubscription([0, 0, 1, 1], ["or", ["and", 9, 4, 30], ["and", 8, -2], 4], None, None)).tolist() == [-2, 4]
    assert routing_terms(TopkSubscription(3, 0.5, 0.0, 0.0, [7, -1, 7], [1.0, 1.0, 1.0], None)).tolist() == [-1, 7]
