"""Seeded regions and places, hard ones above all: corners and places on borders and one float64 beside them, poles, the antimeridian, rings that cross themselves."""

from __future__ import annotations

import random
from fractions import Fraction
from typing import Any

import numpy as np

from dskype.deploy.verification import geometry as naive_regions
from dskype.spouts.regions import parse_region
from dskype.topology.errors import IllegalArgumentException


def any_degrees(rng: random.Random, bound: int) -> float:
    """Return a latitude or longitude, mostly on a lattice or beside it."""
    step, kind = bound / 6, rng.random()
    if kind < 0.4:
        return rng.randrange(-6, 7) * step
    if kind < 0.55:
        return rng.choice([-1.0, 1.0]) * bound
    if kind < 0.7:
        return beside(rng, rng.choice([-4, -3, -2, -1, 1, 2, 3, 4]) * step)
    return rng.uniform(-bound, bound)


def beside(rng: random.Random, degrees: float) -> float:
    """Return one of the next numbers; none is nearer to 0 than what counts as 0."""
    found = float(np.nextafter(degrees, rng.choice([-200.0, 200.0])))
    return 0.0 if abs(found) < 1e-30 else found


def any_ring(rng: random.Random) -> list[list[float]]:
    n, kind = rng.randrange(3, 8), rng.random()
    corners = [[any_degrees(rng, 180), any_degrees(rng, 90)] for _ in range(n)]
    if kind < 0.35:  # about one meridian
        middle, width = rng.choice([180.0, 170.0, 0.0, 100.0]), rng.choice([1.0, 20.0, 90.0])
        for corner in corners:
            lon = middle + rng.randrange(-4, 5) * width / 4
            lon = lon - 360 if lon > 180 else lon
            corner[:] = -lon if abs(lon) == 180 and rng.random() < 0.3 else lon, rng.randrange(-4, 5) * 10.0
    elif kind < 0.6:  # around the globe
        side = rng.choice([-1, 1])
        corners = [[lon, side * (abs(lat) or 15.0)] for lon, lat in sorted(corners)]
    if rng.random() < 0.5:
        corners.reverse()
    return [*corners, corners[0]]


def any_polygon(rng: random.Random) -> list[list[list[float]]]:
    return [any_ring(rng) for _ in range(rng.choice([1, 1, 2]))]


def any_shape(rng: random.Random, kinds: str) -> Any:
    kind = rng.choice(kinds)
    if kind == "c":
        radius_m = rng.choice([1.0, 1e3, 1e5, 1e6, 5e6, 1e7, 2e7]) * rng.uniform(0.5, 1)
        return {"center": {"lat": any_degrees(rng, 90), "lon": any_degrees(rng, 180)}, "radius_m": radius_m}
    if kind == "r":
        south, north = sorted(any_degrees(rng, 90) for _ in range(2))
        return {"bbox": [any_degrees(rng, 180), south, any_degrees(rng, 180), north]}
    if kind == "p":
        return {"type": "Polygon", "coordinates": any_polygon(rng)}
    return {"type": "MultiPolygon", "coordinates": [any_polygon(rng), any_polygon(rng)]}


def any_region(rng: random.Random, kinds: str = "crpm") -> tuple[Any, np.ndarray]:
    """Return a region and its encoded form; ``kinds``: circles, rectangles, polygons, multipolygons."""
    while True:
        region = any_shape(rng, kinds) if rng.random() < 0.8 else [any_shape(rng, kinds), any_shape(rng, kinds)]
        try:
            return region, parse_region(region)
        except IllegalArgumentException as e:
            assert "in one hemisphere" in str(e), (region, e)


def any_place(rng: random.Random, region: Any) -> tuple[float, float]:
    """Return (lat, lon), often on an edge or a corner, or beside it."""
    rings = [ring for kind, shape in naive_regions.shapes_of(region) if kind == "polygon" for ring in shape]
    lat, lon = any_degrees(rng, 90), any_degrees(rng, 180)
    if rings and rng.random() < 0.6:
        corners = naive_regions.unrolled(rng.choice(rings))
        i = rng.randrange(len(corners) - 1)
        (ax, ay), (bx, by) = corners[i : i + 2]
        share = Fraction(rng.choice([0.0, 0.5, 0.25, rng.random()]))
        lon, lat = float(ax + (bx - ax) * share), float(ay + (by - ay) * share)
        lon -= 360 * round(lon / 360)
        lat = min(90.0, max(-90.0, beside(rng, lat) if rng.random() < 0.4 else lat))
        if abs(lon) == 180 and rng.random() < 0.5:
            lon = -lon
    return lat if abs(lat) >= 1e-30 else 0.0, lon if abs(lon) >= 1e-30 else 0.0
