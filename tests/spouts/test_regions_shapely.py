"""Polygons against those of shapely: valid ones, whose corners and places lie on a fine lattice, so that they often touch, also across the antimeridian."""

from __future__ import annotations

import random

import numpy as np
import pytest
import shapely
from shapely import affinity

from dskype.spouts.region_table import RegionTable
from dskype.spouts.regions import bounding_box, parse_region
from tests.naive import overlapping


def on_lattice(rng):
    return rng.randrange(-24, 25) / 2


def any_polygon(rng, middle, across=0, up=0):
    """Return a valid polygon around a place near (0, 0), or several, whose longitudes are not rounded if ``middle`` is added: on the lattice, slivers among them, and with holes."""
    while True:
        kind = rng.random()
        if kind < 0.3:
            found = shapely.Polygon([(on_lattice(rng), on_lattice(rng)) for _ in range(3)])
        elif kind < 0.5:
            found = shapely.MultiPoint([(on_lattice(rng), on_lattice(rng)) for _ in range(12)]).convex_hull
        elif kind < 0.6:  # a sliver
            found = shapely.Polygon([(-11, -10), (on_lattice(rng), on_lattice(rng)), (11, 10), (0.5, float(np.nextafter(0.5, 1)))])
        else:
            west, south = rng.randrange(-12, 4), rng.randrange(-12, 4)
            outer = shapely.box(west, south, west + rng.randrange(2, 9), south + rng.randrange(2, 9))
            found = outer.difference(shapely.Polygon([(on_lattice(rng), on_lattice(rng)) for _ in range(3)]).buffer(0))
        found = affinity.translate(found, across, up)
        lons = shapely.get_coordinates(found)[:, 0]
        if isinstance(found, (shapely.Polygon, shapely.MultiPolygon)) and found.is_valid and found.area > 0 and (lons + middle - middle == lons).all():
            return found


def as_region(polygon, middle):
    """Return it around the meridian ``middle``, with longitudes from -180 to 180."""
    wrapped = shapely.transform(polygon, lambda corners: corners + np.array([middle, 0]))
    return shapely.geometry.mapping(shapely.transform(wrapped, lambda corners: np.where(corners > 180, corners - np.array([360, 0]), corners)))


def as_lists(geometry):
    """Return a geometry as JSON has it."""
    if isinstance(geometry, dict):
        return {"type": geometry["type"], "coordinates": as_lists(geometry["coordinates"])}
    return [as_lists(part) for part in geometry] if isinstance(geometry, (tuple, list)) else float(geometry)


def encoded(polygon, middle):
    return parse_region(as_lists(as_region(polygon, middle)))


def wrapped(lon):
    return lon - 360 if lon > 180 else lon


@pytest.mark.long
@pytest.mark.parametrize("middle", [0, 100, 180])
def test_places(middle):
    rng = random.Random(middle)
    counts = [0, 0]
    for _ in range(250):
        polygon, table = any_polygon(rng, middle), RegionTable()
        table.put(0, encoded(polygon, middle))
        places = [(on_lattice(rng), on_lattice(rng)) for _ in range(20)] + [tuple(corner) for corner in shapely.get_coordinates(polygon)[:5]]
        lon, lat = np.array([wrapped(x + middle) for x, _ in places]), np.array([y for _, y in places])
        found = table.touches(np.zeros(len(places), int), np.arange(len(places)), lat, lon)
        expected = np.array([polygon.intersects(shapely.Point(place)) for place in places])
        assert (found == expected).all(), (polygon.wkt, middle)
        around = bounding_box(encoded(polygon, middle))
        assert all(overlapping(around, (x, y, x, y)) for x, y in zip(lon[found], lat[found]))
        counts[0] += int((~found).sum())
        counts[1] += int(found.sum())
    assert min(counts) > 500


@pytest.mark.long
@pytest.mark.parametrize("middle", [0, 100, 180])
def test_pairs_of_polygons(middle):
    rng = random.Random(middle)
    counts = [0, 0]
    for _ in range(400):
        one, other = (any_polygon(rng, middle, rng.randrange(-12, 13), rng.randrange(-12, 13)) for _ in range(2))
        table, shapes = RegionTable(), encoded(other, middle)
        table.put(0, encoded(one, middle))
        found = table.touches([0], [0], np.zeros(1), np.zeros(1), shape_offsets=[0, len(shapes)], shapes=shapes)[0]
        assert found == one.intersects(other), (one.wkt, other.wkt, middle)
        counts[int(found)] += 1
    assert min(counts) > 50
