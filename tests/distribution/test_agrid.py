"""The A-Grid finds what a plain search over rectangles finds, through long sequences of shifts, splits and merges."""

import numpy as np
import pytest

from dskype.distribution.agrid import WORLD, AGrid
from dskype.distribution.baselines.routers import GridRouter, TreeRouter
from dskype.topology.errors import IllegalArgumentException


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


SIZES = [(1, 1, WORLD), (7, 5, WORLD), (100, 40, (-10.0, 35.0, 30.0, 60.0)), (300, 1000, WORLD), (1000, 1000, (5.0, 45.0, 15.5, 55.25)), (4000, 700, WORLD)]


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
