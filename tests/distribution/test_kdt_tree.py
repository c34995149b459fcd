"""Hybrid partitioning: loads by plain sums, and the steps of Algorithm 1."""

import itertools
import tracemalloc

import numpy as np
import pytest

from dskype.distribution import distributor_class, make_distributor
from dskype.distribution.agrid.grid import AGrid, CellBox
from dskype.distribution.base import Sample
from dskype.distribution.hybrid import kdt_tree
from dskype.distribution.hybrid.kdt_tree import Limits, Node, assign_items, divide_text, exchange_leaves, hybrid_partitions, merge_nodes
from dskype.distribution.hybrid.leaf_loads import SampleLoads, Shares
from dskype.distribution.hybrid.loads import LoadModel
from tests.distribution import worlds

MODEL = LoadModel(pair_us=0.001, check_us=0.5, message_us=1.0, insert_us=3.0, remove_us=2.0)


def sample_of(rng, n_messages=200, n=80, side_deg=20.0):
    """Return a sample of boolean subscriptions, each with one or two routing terms."""
    found = worlds.sample(rng, n_messages, n, vocabulary=60)
    boxes = np.stack([found.lon - side_deg / 2, found.lat - side_deg / 2, found.lon + side_deg / 2, found.lat + side_deg / 2], axis=1)
    return found._replace(boxes=boxes.clip(-180, 180))


def loads_of(sample, product=False, subscriptions=None, granularity=16):
    return SampleLoads(AGrid(granularity, granularity), sample, MODEL, product, subscriptions or sample.n)


def plain_load(loads, cells, terms=None, product=False):
    """Return the load of a task that has some terms (None: all) of some cells, where the sample is everything that there is."""
    s = loads.sample

    def inside(x, y):
        return cells.x0 <= x < cells.x1 and cells.y0 <= y < cells.y1

    def own(i):
        return {int(t) for t in s.terms[s.offsets[i] : s.offsets[i + 1]] if terms is None or int(t) in terms}

    touching = [i for i in range(s.n) if any(b[0] < cells.x1 and b[2] > cells.x0 and b[1] < cells.y1 and b[3] > cells.y0 for b in loads.boxes[i].tolist())]
    held = [i for i in touching if own(i)]
    needed = set().union(*map(own, held)) if held else set()
    messages = checked = 0
    for j in range(s.messages.n):
        words = set(s.messages.terms[s.messages.offsets[j] : s.messages.offsets[j + 1]].tolist())
        if not inside(int(loads.x[j]), int(loads.y[j])):
            continue
        messages += bool(words & needed)
        for i in held:
            west, south, east, north = s.boxes[i].tolist()
            checked += len(own(i) & words) if west <= s.messages.lon[j] <= east and south <= s.messages.lat[j] <= north else 0
    matching = MODEL.pair_us * messages * len(held) if product else MODEL.check_us * checked
    return matching + MODEL.message_us * messages + 0.1 * (MODEL.insert_us + MODEL.remove_us) * s.messages.n / s.n * len(held)


@pytest.mark.parametrize("product", [False, True])
def test_loads_are_those_of_plain_sums(product):
    rng = np.random.default_rng(61)
    loads = loads_of(sample_of(rng), product)
    for cells in (CellBox(0, 0, 16, 16), CellBox(3, 5, 11, 12)):
        leaf = loads.root().inside(cells)
        assert leaf.load == pytest.approx(plain_load(loads, cells, None, product))
        items, n = leaf.items, len(leaf.items.loads)
        part_of = rng.integers(-1, 3, n)
        found = leaf.part_loads(part_of, 3)
        shares = Shares(leaf, 2)
        for part in range(3):
            own = np.flatnonzero(part_of == part)
            terms = {int(t) for t in loads.known if part_of[items.of(np.array([t]))[0]] == part}
            assert found[part] == pytest.approx(plain_load(loads, cells, terms, product))
            contents = leaf.contents(own)
            before = shares.added(contents)
            assert before[1] == pytest.approx(found[part])
            shares.add(0, contents)
            assert shares.added(contents)[1] == pytest.approx(found[part])
        everything = np.flatnonzero(part_of >= 0)
        joint = leaf.part_loads(np.where(part_of >= 0, 0, -1), 1)[0]
        whole = Shares(leaf, 1)
        for part in range(3):
            whole.add(0, leaf.contents(np.flatnonzero(part_of == part)))
        empty = leaf.contents(everything[:0])
        assert whole.added(empty)[0] == pytest.approx(0)
        alone = Shares(leaf, 1)
        assert alone.added(leaf.contents(everything))[0] == pytest.approx(joint)


def test_a_larger_world_than_the_sample_wants_more_messages():
    rng = np.random.default_rng(62)
    sample = sample_of(rng, 200, 40)
    few, many = (loads_of(sample, subscriptions=n).root() for n in (40, 4000))
    assert few.wanted.sum() < many.wanted.sum() <= 200
    assert many.loads.checked.sum() == pytest.approx(100 * few.loads.checked.sum())


def test_items_cover_all_terms_and_are_named_once():
    rng = np.random.default_rng(63)
    leaf = loads_of(sample_of(rng)).root()
    part_of = assign_items(leaf.items.loads, np.arange(len(leaf.items.loads)), 4)
    assert (part_of >= 0).all()
    named = [leaf.items.described(np.flatnonzero(part_of == part)) for part in range(4)]
    assert sorted(t for terms, _ in named for t in terms) == leaf.items.named.tolist()
    assert sorted(b for _, buckets in named for b in buckets) == list(range(256))
    sums = np.bincount(part_of, leaf.items.loads)
    assert sums.max() - sums.min() <= leaf.items.loads.max()


def test_the_numbers_of_partitions_have_the_least_sum():
    rng = np.random.default_rng(64)
    root = loads_of(sample_of(rng)).root()
    nodes = [
        Node.whole(root.inside(cells), by_text)
        for cells, by_text in ((CellBox(0, 0, 8, 16), False), (CellBox(8, 0, 16, 8), True), (CellBox(8, 8, 16, 16), False))
    ]
    limits, tasks = Limits(0.0, 1.3, 40), 6
    counts = kdt_tree._numbers_of_partitions(nodes, tasks, limits)

    def cost(node, k):
        divided = kdt_tree._partition_node(node, k, limits)
        return sum(one.load for one in divided) if len(divided) == k else np.inf

    best = min(sum(map(cost, nodes, some)) for some in itertools.product(range(1, tasks), repeat=3) if sum(some) == tasks)
    assert sum(counts) == tasks and sum(map(cost, nodes, counts)) == pytest.approx(best)


def test_merging_never_gives_a_task_more_than_it_must():
    rng = np.random.default_rng(65)
    root = loads_of(sample_of(rng, 400, 150)).root()
    nodes = [Node.whole(root.inside(CellBox(x, y, x + 4, y + 4))) for x in range(0, 16, 4) for y in range(0, 16, 4)]
    partitions = merge_nodes(nodes, 3)
    assert sorted(id(node) for partition in partitions for node in partition.nodes) == sorted(map(id, nodes))
    loads = [partition.load for partition in partitions]
    assert loads == pytest.approx([sum(node.load for node in partition.nodes) for partition in partitions], abs=1e-6)
    assert max(loads) - min(loads) <= max(node.load for node in nodes)


@pytest.mark.parametrize("seed", range(5))
def test_exchanged_leaves_leave_fewer_copies_and_no_greater_load(seed):
    rng = np.random.default_rng([67, seed])
    root = loads_of(sample_of(rng, 800, 300)).root()
    leaves = [root.inside(CellBox(x, y, x + 2, y + 2)) for x in range(0, 16, 2) for y in range(0, 16, 2)]
    divided = divide_text(Node.whole(leaves[0]), 2)
    merged = merge_nodes([*divided, *map(Node.whole, leaves[1:])], 6)
    found = exchange_leaves(merged)

    def nodes(partitions):
        return sorted(id(node) for partition in partitions for node in partition.nodes)

    def copies(partitions):
        return sum(len(set().union(*(node.leaf.subscriptions.tolist() for node in partition.nodes if node.items is None))) for partition in partitions)

    before, loads = ([partition.load for partition in each] for each in (merged, found))
    assert nodes(found) == nodes(merged) and copies(found) < copies(merged)
    assert min(before) - 1e-9 <= min(loads) and max(loads) <= max(before) + 1e-9 and sum(loads) == pytest.approx(sum(before))
    moved = [sum(node.load for node in partition.nodes if node.items is None) for partition in found]
    stayed = [partition.load - sum(node.load for node in partition.nodes if node.items is None) for partition in merged]
    assert loads == pytest.approx([sum(pair) for pair in zip(moved, stayed)])  # parts of divided leaves stay where they are
    assert exchange_leaves(found)[0].load == pytest.approx(found[0].load) and copies(exchange_leaves(found)) == copies(found)


@pytest.mark.long
@pytest.mark.parametrize("at_a_time", [7, 300, 16_384])
def test_what_leaves_share_is_counted_in_little_memory(monkeypatch, at_a_time):
    monkeypatch.setattr(kdt_tree, "_AT_A_TIME", at_a_time)
    rng = np.random.default_rng(69)
    leaves = [np.flatnonzero(rng.random(300) < share) for share in (0.0, 0.1, 0.5, 1.0)]
    expected = [[0 if one is other else len(np.intersect1d(one, other)) for other in leaves] for one in leaves]
    tracemalloc.start()
    try:
        assert kdt_tree._shared(leaves, 300).tolist() == expected
        many = [np.arange(100_000) for _ in range(20)]
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        assert kdt_tree._shared(many, 100_000).max() == 100_000
        assert tracemalloc.get_traced_memory()[1] - before < 4_000_000 < 4 * 20 * 100_000
    finally:
        tracemalloc.stop()


def test_there_is_nothing_to_exchange_with_one_task_or_one_leaf():
    root = loads_of(sample_of(np.random.default_rng(68))).root()
    for tasks in (1, 3):
        merged = merge_nodes([Node.whole(root)], tasks)
        assert exchange_leaves(merged) == merged


def regional(rng, wide):
    """Return a sample: subscriptions in the west are small and share the messages' words, those in the east are as wide as ``wide`` and have rare words."""
    n = 2000
    lon = np.where(np.arange(n) % 2 == 0, rng.uniform(-170, -10, n), rng.uniform(10, 170, n))
    base = sample_of(rng, n, n)
    lat = rng.uniform(-60, 60, n)
    order = np.arange(n)
    words = 40 + rng.integers(0, 20, (n, 3))
    rare = np.where(lon[:, None] > 0, rng.integers(0, 40, (n, 1)), words[:, :1])
    terms = np.sort(np.concatenate([words, rare], axis=1), axis=1)
    messages = base.messages._replace(seq=order, position=order, lat=lat, lon=lon, offsets=np.arange(n + 1) * 4, terms=terms.ravel(), weights=np.ones(4 * n))
    half = np.where(lon > 0, wide, 2.0) / 2
    boxes = np.stack([lon - half, lat - half, lon + half, lat + half], axis=1)
    own = np.where(lon > 0, rng.integers(0, 40, n), 40 + rng.integers(0, 20, n))
    return Sample(messages, *base[1:3], lat, lon, np.arange(n + 1), own, np.ones(n), base.thresholds.repeat(25)[:n], np.ones(n), boxes)


@pytest.mark.long
def test_text_divides_where_subscriptions_are_wide_and_space_elsewhere():
    sample = regional(np.random.default_rng(66), 60.0)
    options = {"granularity": 64, "costs": MODEL._asdict()}
    plan = distributor_class("hybrid").learn(8, sample, options)
    found = make_distributor("hybrid", 8, options, plan)
    columns = {zone.divided: [zone.cells for zone in found.gridt.zones if zone.divided is zone.divided] for zone in found.gridt.zones}
    assert set(columns) == {True, False}
    east = sum(zone.cells.cells for zone in found.gridt.zones if zone.divided and zone.cells.x0 >= 28)
    west = sum(zone.cells.cells for zone in found.gridt.zones if zone.divided and zone.cells.x1 <= 36)
    assert east > west
    loads = found.loads()
    assert loads.max() / loads.min() <= 1.4
    space = distributor_class("space-partitioning").learn(8, sample, options)
    text = distributor_class("text-partitioning").learn(8, sample, options)
    assert loads.max() <= min(max(space["loads"]), max(text["loads"])) * 1.01


@pytest.mark.parametrize(("delta", "divided"), [(0.0, False), (2.0, True)])
def test_the_threshold_of_similarity_decides_between_space_and_text(delta, divided):
    root = loads_of(sample_of(np.random.default_rng(67), 400, 200, side_deg=1.0)).root()
    partitions = hybrid_partitions(root, 4, Limits(delta, 1.3, 32, text=False))
    assert any(node.items is not None for partition in partitions for node in partition.nodes) is divided
    assert all(partition.nodes for partition in partitions)
