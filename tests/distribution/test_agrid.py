"""The A-Grid finds what a plain search over rectangles finds, through long sequences of shifts, splits and merges."""

import itertools

import numpy as np
import pytest

from dskype.deploy.demo import places
from dskype.deploy.lab.tornado.routers import GridRouter, TreeRouter
from dskype.distribution.agrid.grid import WORLD, AGrid, CellBox
from dskype.distribution.agrid.learning import CellCosts, best_cut, equal_partitions, halved_partitions, initial_partitions, message_costs
from dskype.topology.errors import IllegalArgumentException
from tests.distribution import worlds
from tests.naive import overlapping


def plain_cell(degrees, edge, width, cells):
    return min(max(int((degrees - edge) * (cells / width)), 0), cells - 1) if degrees > edge else 0


def plain_partitions(grid, area):
    """Return the partitions that an area touches, by looking at all of them."""
    west, south, east, north = area
    box = grid.box
    rows = [plain_cell(lat, box[1], box[3] - box[1], grid.rows) for lat in (south, north)]
    found = set()
    for begin, end in [(west, east)] if west <= east else [(west, 180.0), (-180.0, east)]:
        columns = [plain_cell(lon, box[0], box[2] - box[0], grid.columns) for lon in (begin, end)]
        found |= {number for number, b in grid.partitions().items() if b.x0 <= columns[1] and columns[0] < b.x1 and b.y0 <= rows[1] and rows[0] < b.y1}
    return found


def random_changes(rng, grid, steps):
    """Change a grid; return what was done how often. What cannot be done is tried as well."""
    done = {"split": 0, "merge": 0, "shift": 0, "corner": 0, "refused": 0}
    for _ in range(steps):
        one = int(rng.choice(list(grid.partitions())))
        cells, near = grid.cells(one), grid.neighbours(one)
        other = int(rng.choice(near)) if near else one
        before = grid.partitions()
        kind = str(rng.choice(["split", "merge", "shift", "corner"], p=[0.15, 0.15, 0.45, 0.25]))
        try:
            if kind == "split":
                axis = str(rng.choice(["lon", "lat"]))
                low, high = (cells.x0, cells.x1) if axis == "lon" else (cells.y0, cells.y1)
                grid.split(one, axis, int(rng.integers(low, high + 1)))
            elif kind == "merge":
                grid.merge(one, other)
            elif kind == "shift":
                beside = cells.x0 == grid.cells(other).x1 or cells.x1 == grid.cells(other).x0
                grid.shift(one, other, int(rng.integers(cells.x0, cells.x1 + 1) if beside else rng.integers(cells.y0, cells.y1 + 1)))
            else:
                grid.shift(one, other)
        except IllegalArgumentException:
            kind = "refused"
            assert grid.partitions() == before
        done[kind] += 1
    return done


def random_areas(rng, grid, n):
    """Return areas of all sizes, many of them with borders on the lines between cells, some across the antimeridian or at a pole."""
    west, south, east, north = grid.box
    lon, lat = np.sort(rng.uniform(west, east, (n, 2))), np.sort(rng.uniform(south, north, (n, 2)))
    small = rng.random(n) < 0.5
    lon[small, 1], lat[small, 1] = lon[small, 0] + rng.exponential(2.0, small.sum()), lat[small, 0] + rng.exponential(1.0, small.sum())
    on_lines = rng.random((n, 4)) < 0.3
    areas = np.stack([lon[:, 0], lat[:, 0], lon[:, 1], lat[:, 1]], axis=1)
    step = np.array([(east - west) / grid.columns, (north - south) / grid.rows] * 2)
    lines = np.round((areas - [west, south] * 2) / step) * step + [west, south] * 2
    areas = np.clip(np.where(on_lines, lines, areas), [-180, -90] * 2, [180, 90] * 2)
    areas[:, 1::2] = np.sort(areas[:, 1::2])
    crossing = rng.random(n) < 0.15
    areas[crossing] = areas[crossing][:, [2, 1, 0, 3]]
    areas[:4] = [[-180, -90, 180, 90], [180, 90, 180, 90], [-180, -90, -180, -90], [180, -5, -180, 5]]
    return areas


def assert_finds(grid, rng, n=60):
    """Compare points and rectangles with a plain search."""
    areas = random_areas(rng, grid, n)
    places = np.concatenate([areas[:, :2], areas[:, 2:]])
    for (lon, lat), found in zip(places.tolist(), grid.locate(places[:, 1], places[:, 0]).tolist()):
        assert {found} == plain_partitions(grid, [lon, lat, lon, lat])
    expected = [sorted(plain_partitions(grid, area.tolist())) for area in areas]
    for router in (grid, GridRouter(grid), TreeRouter(grid)):
        assert (router.locate(places[:, 1], places[:, 0]) == grid.locate(places[:, 1], places[:, 0])).all()
        rows, partitions = router.overlaps(areas)
        assert (np.diff(rows) >= 0).all() and rows.dtype == np.int64 and partitions.dtype == np.int32
        assert [sorted(partitions[rows == i].tolist()) for i in range(n)] == expected
    assert [grid.touching(area) for area in areas[:9]] == expected[:9]


SIZES = [
    (1, 1, WORLD),
    (7, 5, WORLD),
    (100, 40, (-10.0, 35.0, 30.0, 60.0)),
    (300, 1000, WORLD),
    (1000, 1000, (5.0, 45.0, 15.5, 55.25)),
    (4000, 700, WORLD),
    (8192, 300, (-10.0, 35.0, 30.0, 60.0)),
]


@pytest.mark.long
@pytest.mark.parametrize(("columns", "rows", "box"), SIZES, ids=[f"{c}x{r}" for c, r, _ in SIZES])
def test_places_and_rectangles_are_found_after_many_changes(columns, rows, box):
    rng = np.random.default_rng(columns)
    grid = AGrid(columns, rows, box)
    assert_finds(grid, rng)
    total = {}
    for _ in range(6):
        for kind, count in random_changes(rng, grid, 60).items():
            total[kind] = total.get(kind, 0) + count
        grid._check()
        assert_finds(grid, rng)
    assert columns < 100 or all(count > 3 for count in total.values()), total


@pytest.mark.long
def test_a_grid_with_more_tiles_than_a_cache_finds_the_same():
    cuts = [0, 1, 4095, 4100, 9001, 16_383, 16_384]
    boxes = {i: CellBox(x0, 0, x1, 4097) for i, (x0, x1) in enumerate(itertools.pairwise(cuts))}
    boxes |= {len(boxes) + i: CellBox(x0, 4097, x1, 5000) for i, (x0, x1) in enumerate(itertools.pairwise(cuts[::2]))}
    grid = AGrid(16_384, 5000, (-10.0, 35.0, 30.0, 60.0), boxes)
    assert grid.arrays.shift == 4 and grid.arrays.tiles.shape == (313, 1024)
    rng = np.random.default_rng(5)
    assert_finds(grid, rng)
    random_changes(rng, grid, 40)
    grid._check()
    assert_finds(grid, rng)


@pytest.mark.long
def test_the_places_of_the_world_are_found_after_many_changes():
    found, rng = places.load(), np.random.default_rng(3)
    grid = AGrid(1000, 1000)
    x, y = grid.cells_of(found.lat, found.lon)
    parts = initial_partitions(CellCosts(grid.all_cells, x, y, np.ones(len(x))), 40)
    grid = AGrid(1000, 1000, WORLD, {number: part.box for number, part in enumerate(parts)})
    for _ in range(3):
        random_changes(rng, grid, 50)
        grid._check()
        located = grid.locate(found.lat, found.lon)
        for number, cells in grid.partitions().items():
            assert ((located == number) == ((x >= cells.x0) & (x < cells.x1) & (y >= cells.y0) & (y < cells.y1))).all()
        areas = np.stack([found.lon, found.lat, found.lon + 3.0, found.lat + 1.5], axis=1)[rng.integers(0, len(x), 200)]
        rows, partitions = grid.overlaps(areas)
        for i, area in enumerate(areas.tolist()):
            assert set(partitions[rows == i].tolist()) == plain_partitions(grid, area)


# -- moves ------------------------------------------------------------------------------------------


def three():
    """Return 0: the west; 1: the north of the east; 2: its south."""
    return AGrid(10, 10, WORLD, {0: (0, 0, 6, 10), 1: (6, 4, 10, 10), 2: (6, 0, 10, 4)})


def test_shifts_are_those_of_the_paper():
    grid = three()
    assert grid.shift(1, 2, 7) == (6, 4, 10, 7) and grid.cells(1) == (6, 7, 10, 10) and grid.cells(2) == (6, 0, 10, 7)  # the border moves north
    assert grid.shift(2, 1, 4) == (6, 4, 10, 7) and grid.partitions() == three().partitions()
    assert grid.shift(0, 1) == (0, 4, 6, 10)  # a corner shift: its line is given by the side of the taker
    assert grid.partitions() == {0: (0, 0, 6, 4), 1: (0, 4, 10, 10), 2: (6, 0, 10, 4)}
    assert grid.shift(0, 2, 2) == (2, 0, 6, 4) and grid.cells(2) == (2, 0, 10, 4)  # now they share a whole side
    grid._check()


def test_splits_and_merges_give_numbers_that_stay():
    grid = three()
    assert grid.split(0, "lat", 5) == 3 and grid.cells(0) == (0, 0, 6, 5) and grid.cells(3) == (0, 5, 6, 10)
    grid.merge(1, 2)
    assert grid.partitions() == {0: (0, 0, 6, 5), 1: (6, 0, 10, 10), 3: (0, 5, 6, 10)} and grid.free_number() == 2
    assert grid.split(1, "lon", 8) == 2 and grid.split(3, "lon", 1, taker=9) == 9 and set(grid.partitions()) == {0, 1, 2, 3, 9}
    grid._check()


def test_what_is_no_division_into_rectangles_is_refused_and_changes_nothing():
    grid = three()
    for change, text in (
        (lambda: grid.merge(0, 1), "stay rectangles"),
        (lambda: grid.merge(0, 0), "stay rectangles"),
        (lambda: grid.merge(7, 0), "no such partition.*given: 7"),
        (lambda: grid.merge(0, 7), "no such partition.*given: 7.*0, 1, 2"),
        (lambda: grid.move(CellBox(0, 0, 1, 1), 0, 5), "stay rectangles"),
        (lambda: grid.move(CellBox(6, 0, 7, 4), 1, 0), "stay rectangles"),
        (lambda: grid.split(0, "lon", 0), "cannot be cut there"),
        (lambda: grid.split(0, "lat", 10), "cannot be cut there"),
        (lambda: grid.split(0, "lon", 3, taker=1), "has this number"),
        (lambda: grid.shift(1, 2, 10), "No cells can be shifted"),
        (lambda: grid.shift(1, 0), "that way"),
        (lambda: grid.shift(0, 1, 3), "to this border"),
        (lambda: grid.shift(1, 2), "that way"),
    ):
        with pytest.raises(IllegalArgumentException, match=text):
            change()
        assert grid.partitions() == three().partitions()
    for columns, rows, box, partitions, text in (
        (0, 5, WORLD, None, "too many columns or rows"),
        (5, 16_385, WORLD, None, "too many columns or rows"),
        (5, 5, (10, 0, 10, 5), None, "has no cells"),
        (5, 5, (10, 0, float("nan"), 5), None, "has no cells"),
        (5, 5, WORLD, {0: (0, 0, 5, 4)}, "leave cells out"),
        (5, 5, WORLD, {0: (0, 0, 5, 4), 1: (0, 3, 5, 5)}, "overlap"),
        (5, 5, WORLD, {0: (0, 0, 5, 5), 1: (0, 3, 5, 5)}, "overlap"),
        (5, 5, WORLD, {0: (0, 0, 5, 6)}, "no cells of the grid"),
        (5, 5, WORLD, {0: (0, 0, 5, 5), 1: (2, 2, 2, 3)}, "no cells of the grid"),
        (5, 5, WORLD, {}, "leave cells out"),
    ):
        with pytest.raises(IllegalArgumentException, match=text):
            AGrid(columns, rows, box, partitions)


def test_a_copy_changes_by_itself():
    grid = AGrid(1000, 900)
    grid.split(0, "lon", 333)
    other = grid.copy()
    random_changes(np.random.default_rng(1), other, 60)
    assert grid.partitions() == {0: (0, 0, 333, 900), 1: (333, 0, 1000, 900)} != other.partitions()
    grid._check()
    other._check()


def test_neighbours_share_a_piece_of_border():
    grid, rng = AGrid(50, 50), np.random.default_rng(2)
    random_changes(rng, grid, 80)
    boxes = grid.partitions()
    for number, a in boxes.items():
        beside = {n for n, b in boxes.items() if (a.x0 == b.x1 or a.x1 == b.x0) and a.y0 < b.y1 and b.y0 < a.y1}
        above = {n for n, b in boxes.items() if (a.y0 == b.y1 or a.y1 == b.y0) and a.x0 < b.x1 and b.x0 < a.x1}
        assert grid.neighbours(number) == sorted(beside | above)


# -- initial partitions -----------------------------------------------------------------------------


def test_the_best_cut_is_the_best_of_all():
    rng = np.random.default_rng(4)
    for _ in range(200):
        cells = rng.integers(0, 4, (int(rng.integers(1, 6)), int(rng.integers(1, 6)))).astype(float)
        rows, columns = cells.sum(axis=1), cells.sum(axis=0)
        every = [("lon", at, max(columns[:at].sum(), columns[at:].sum())) for at in range(1, len(columns))]
        every += [("lat", at, max(rows[:at].sum(), rows[at:].sum())) for at in range(1, len(rows))]
        found = best_cut(columns, rows)
        assert (found is None) == (not every)
        assert found is None or (found in every and found.greatest == min(greatest for *_, greatest in every))


@pytest.mark.long
@pytest.mark.parametrize("n", [3, 5, 12, 20, 31, 48, 100])
def test_partitions_are_level_whatever_their_number(n):
    rng = np.random.default_rng(n)
    costs = CellCosts(CellBox(0, 0, 400, 300), rng.integers(0, 400, 20_000), rng.integers(0, 300, 20_000), rng.random(20_000))
    parts = initial_partitions(costs, n)
    AGrid(400, 300, WORLD, dict(enumerate(part.box for part in parts)))._check()
    assert max(part.total for part in parts) <= 1.1 * costs.total / n
    assert n == 31 or max(part.total for part in halved_partitions(costs, n)) >= 1.2 * costs.total / n, "halves alone leave some twice as large as others"


def test_the_costliest_partition_is_cut_first():
    rng = np.random.default_rng(5)
    for n in (1, 2, 7, 32, 100):
        box = CellBox(0, 0, 60, 50)
        costs = CellCosts(box, rng.zipf(1.3, 900) % 60, rng.zipf(1.3, 900) % 50, rng.random(900))
        parts = initial_partitions(costs, n)
        AGrid(60, 50, WORLD, dict(enumerate(part.box for part in parts)))._check()
        assert len(parts) == n and sum(part.total for part in parts) == pytest.approx(costs.total)
        equal = [costs.inside(part).total for part in equal_partitions(box, n)]
        assert max(part.total for part in parts) <= max(equal) + 1e-9
        most = max(parts, key=lambda part: part.total)
        assert n == 1 or most.cut() is None or most.total <= 3 * costs.total / n + costs.cost.max() * 20


def test_one_busy_cell_does_not_use_up_the_partitions():
    x, y = np.array([5, *range(40)]), np.array([5, *range(40)])
    parts = initial_partitions(CellCosts(CellBox(0, 0, 40, 40), x, y, np.array([1000.0, *[1.0] * 40])), 8)
    assert sorted(part.total for part in parts)[0] > 3
    empty = np.zeros(0, np.int64)
    assert len(initial_partitions(CellCosts(CellBox(0, 0, 4, 2), empty, empty, np.zeros(0)), 8)) == 8


@pytest.mark.parametrize(("columns", "rows"), [(1000, 1000), (3, 3), (1, 12), (7, 2)])
def test_equal_partitions_cover_the_grid(columns, rows):
    for n in range(1, min(40, columns * rows) + 1):
        boxes = equal_partitions(CellBox(0, 0, columns, rows), n)
        AGrid(columns, rows, WORLD, dict(enumerate(boxes)))
        assert len(boxes) == n and (columns < 1000 or max(b.cells for b in boxes) < 1.03 * min(b.cells for b in boxes))


def with_boxes(rng, sample, share=0.5):
    """Return a sample in which some subscriptions are boolean."""
    boxes = np.array([worlds.boolean(rng, 300).bbox for _ in range(sample.n)])
    boxes[rng.random(sample.n) > share] = np.nan
    return sample._replace(boxes=boxes)


def test_a_message_costs_the_subscriptions_that_it_concerns():
    rng = np.random.default_rng(6)
    sample = with_boxes(rng, worlds.sample(rng, 120, 90))
    for part in (sample, sample._replace(messages=sample.messages.slice(30, 80)), sample._replace(boxes=None)):
        found, boxes, m = message_costs(part), part.rectangles(), part.messages
        for j in range(m.n):
            own, cost = set(m.terms[m.offsets[j] : m.offsets[j + 1]].tolist()), 1
            for i in range(part.n):
                common = len(own & set(part.terms[part.offsets[i] : part.offsets[i + 1]].tolist()))
                if np.isnan(boxes[i, 0]):
                    cost += common
                else:
                    cost += common > 0 and overlapping(boxes[i].tolist(), [m.lon[j], m.lat[j]] * 2)
            assert found[j] == cost


def test_the_boxes_of_areas_are_the_cells_that_they_touch():
    grid = AGrid(10, 5, (-10, -10, 10, 10))
    rows, boxes = grid.boxes_of(np.array([[-10, -10, -9.9, -9.9], [9, 9, 50, 50], [8, 0, -8, 0.1]]))
    assert rows.tolist() == [0, 1, 2, 2]
    assert boxes.tolist() == [[0, 0, 1, 1], [9, 4, 10, 5], [9, 2, 10, 3], [0, 2, 2, 3]]
