"""The regions of verification against those of the product: which records are regions, and which rectangles are around them."""

import random

import pytest

from dskype.deploy.verification import geometry
from dskype.spouts.areas import centre_of
from dskype.spouts.regions import bounding_box, is_rectangle, parse_region
from dskype.topology.errors import IllegalArgumentException
from tests.spouts.region_worlds import any_shape


def read(fn, value, error):
    try:
        return fn(value)
    except error:
        return None


def test_both_read_the_same_regions_and_find_the_same_rectangles():
    rng = random.Random(11)
    compared = refused = 0
    for _ in range(600):
        value = any_shape(rng, "crpm")
        encoded = read(parse_region, value, IllegalArgumentException)
        own = read(geometry.read_region, value, ValueError)
        assert (encoded is None) == (own is None), value
        if own is None:
            refused += 1
            continue
        (lat, lon), (own_lat, own_lon) = centre_of(*bounding_box(encoded)), centre_of(*geometry.box_of(own))
        assert lat == pytest.approx(own_lat, abs=1e-7) and (lon - own_lon + 180) % 360 - 180 == pytest.approx(0, abs=1e-7), value
        assert is_rectangle(encoded) == geometry.is_box(own)
        compared += 1
    assert compared > 300 and refused > 5


BAD = [
    *([], None, 5, "circle", {}, [{}], {"center": {"lat": 1, "lon": 2}}, {"radius_m": 5}, {"center": {"lat": 91, "lon": 2}, "radius_m": 5}),
    {"center": {"lat": 1, "lon": 2}, "radius_m": 0},
    {"center": {"lat": True, "lon": 2}, "radius_m": 5},
    {"center": {"lat": 1, "lon": 2}, "radius_m": 3e7},
    {"bbox": [1, 2, 3]},
    {"bbox": [1, 5, 3, 4]},
    {"bbox": [1, 2, 3, 4], "center": {"lat": 1, "lon": 2}, "radius_m": 5},
    {"type": "Point", "coordinates": [1, 2]},
    {"type": "Polygon", "coordinates": []},
    {"type": "Polygon", "coordinates": [[[0, 0], [1, 0], [1, 1]]]},
    {"type": "Polygon", "coordinates": [[[0, 0], [1, 0], [1, 1], [0, 1]]]},
    {"type": "Polygon", "coordinates": [[[0, 0], [1, 0], [1, 91], [0, 0]]]},
    {"type": "Polygon", "coordinates": [[[-120, -10], [0, 10], [120, -10], [-120, -10]]]},
    {"type": "MultiPolygon", "coordinates": [[]]},
    [{"bbox": [1, 2, 3, 4]}] * 257,
]


@pytest.mark.parametrize("value", BAD, ids=lambda value: str(value)[:60])
def test_both_refuse_what_is_no_region(value):
    assert read(parse_region, value, IllegalArgumentException) is None
    assert read(geometry.read_region, value, ValueError) is None
