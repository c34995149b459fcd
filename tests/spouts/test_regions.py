"""Regions as JSON, their rectangles, and the table that decides who touches whom, against plain oracles."""

from __future__ import annotations

import itertools
import math
import random

import numpy as np
import pytest

from dskype.deploy.verification import geometry as naive_regions
from dskype.spouts import region_kernels, regions, sphere, sphere_kernels
from dskype.spouts.region_table import RegionTable
from dskype.spouts.regions import RADIUS_M_MAX, Circle, Polygon, Rectangle, RegionLimits, bounding_box, decode_region, is_rectangle, parse_region
from dskype.topology.errors import IllegalArgumentException
from tests.naive import overlapping
from tests.spouts.region_worlds import any_place, any_region

NOWHERE = np.zeros(1)


def polygon(*rings):
    return {"type": "Polygon", "coordinates": [[list(corner) for corner in ring] for ring in rings]}


def circle(lat, lon, radius_m):
    return {"center": {"lat": lat, "lon": lon}, "radius_m": radius_m}


def square(west, south, east, north):
    return [(west, south), (east, south), (east, north), (west, north), (west, south)]


def box(region):
    return bounding_box(parse_region(region))


def has(region, *places):
    """Tell for each place (lat, lon) whether a region has it."""
    table = RegionTable()
    table.put(0, parse_region(region))
    lat, lon = np.array(places, np.float64).reshape(-1, 2).T
    return table.touches(np.zeros(len(lat), int), np.arange(len(lat)), lat, lon).tolist()


def touch(region, other):
    """Tell whether two regions share a place; it is the same the other way round."""
    found = []
    for own, message in ((region, other), (other, region)):
        table, shapes = RegionTable(), parse_region(message)
        table.put(0, parse_region(own))
        found += table.touches([0], [0], NOWHERE, NOWHERE, shape_offsets=[0, len(shapes)], shapes=shapes).tolist()
    assert found[0] == found[1], (region, other)
    return found[0]


# -- JSON -----------------------------------------------------------------------------------------


def test_all_kinds_are_read_and_decoded():
    region = [
        circle(48.1, 11.6, 500),
        {"bbox": [170, -1, -170, 1]},
        {"type": "MultiPolygon", "coordinates": [[square(0, 0, 4, 4), square(1, 1, 2, 2)], [square(8, 0, 9, 1)]]},
    ]
    region[2]["coordinates"] = [[[list(corner) for corner in ring] for ring in rings] for rings in region[2]["coordinates"]]
    a_circle, rectangle, first, second = decode_region(parse_region(region))
    assert (a_circle, rectangle) == (Circle(48.1, 11.6, 500.0), Rectangle(170.0, -1.0, -170.0, 1.0))
    assert isinstance(first, Polygon) and isinstance(second, Polygon)
    assert [(flags, corners.tolist()) for flags, corners in first.rings] == [(0, [[0, 0], [4, 0], [4, 4], [0, 4]]), (0, [[1, 1], [2, 1], [2, 2], [1, 2]])]
    assert [len(corners) for _, corners in second.rings] == [4]


def test_a_third_coordinate_repeated_corners_and_other_members_are_ignored():
    plain = polygon([(0, 0), (4, 0), (4, 3), (0, 0)])
    other = {"type": "Polygon", "coordinates": [[[0, 0, 7], [0, 0], [4, 0], [4, 0, 1], [4, 3], [0, 0, 7]]], "bbox": [0, 0, 1, 1], "name": "x"}
    assert parse_region(plain).tolist() == parse_region(other).tolist()


@pytest.mark.parametrize(
    ("region", "words"),
    [
        (7, "Expected 'region' as a region; given: 7; legal: {\"center\""),
        ([], "Expected 'region' with at least one shape; given: []"),
        ([{"bbox": [0, 0, 1, 1]}, None], "Expected 'region[1]' as a region; given: None"),
        ({"name": 1}, "Expected 'region' as one kind of region; given: ['name']"),
        ({"radius_m": 1, "bbox": [0, 0, 1, 1]}, "as one kind of region; given: ['radius_m', 'bbox']"),
        ({"radius_m": 1}, "Expected 'region.center' in degrees; given: None"),
        (circle(95, 20, 5), "Expected 'region.center' in degrees; given: {'lat': 95, 'lon': 20}; legal: {\"lat\": -90 to 90, \"lon\": -180 to 180}; hint: it would be legal with"),
        (circle(True, 20, 5), "Expected 'region.center' in degrees"),
        (circle(math.nan, 20, 5), "Expected 'region.center' in degrees"),
        (circle(5, 20, 0), "Expected 'region.radius_m' in metres; given: 0; legal: a number above 0, up to 20015114"),
        (circle(5, 20, 20015115), "Expected 'region.radius_m' in metres"),
        (circle(5, 20, 10**400), "Expected 'region.radius_m' in metres"),
        (circle(5, 20, "5"), "Expected 'region.radius_m' in metres; given: '5'"),
        ({"bbox": [1, 2, 3]}, "Expected 'region.bbox' as four numbers; given: [1, 2, 3]"),
        ({"bbox": [1, 5, 3, 2]}, "Expected 'region.bbox' on the globe; given: [1, 5, 3, 2]"),
        ({"bbox": [1, 2, 3, "4"]}, "Expected 'region.bbox' on the globe"),
        ({"type": "Feature", "geometry": {}}, "Expected 'region.type' of an area; given: 'Feature'; legal: \"Polygon\" or \"MultiPolygon\"; hint: give its geometry"),
        ({"type": ["Polygon"]}, "Expected 'region.type' of an area; given: ['Polygon']"),
        ({"type": "Polygon"}, "Expected 'region.coordinates' as a list of rings; given: None"),
        ({"type": "Polygon", "coordinates": []}, "Expected 'region.coordinates' as a list of rings; given: []"),
        ({"type": "MultiPolygon", "coordinates": [[]]}, "Expected 'region.coordinates[0]' as a list of rings; given: []"),
        (polygon([(0, 0), (1, 1), (0, 0)]), "Expected 'region.coordinates[0]' as a closed ring; given: '3 positions'; legal: at least 4 positions"),
        (polygon([(0, 0), (1, 0), (1, 1), (0, 1)]), "Expected 'region.coordinates[0]' as a closed ring; given: [[0, 0], [0, 1]]; legal: the last position equal to the first; hint: a ring ends"),
        (polygon(square(0, 0, 1, 1), [(0, 0), (95, 0), (1, 93), (0, 0)]), "Expected 'region.coordinates[1][2]' as [lon, lat] in degrees; given: [1, 93]; legal: lon from -180 to 180, lat from -90 to 90; hint: it would be legal as [lat, lon]"),
        (polygon([(0, 0), (200, 0), (1, 3), (0, 0)]), "Expected 'region.coordinates[0][1]' as [lon, lat] in degrees; given: [200, 0]"),
        (polygon([(0, 0), (1, math.inf), (1, 3), (0, 0)]), "Expected 'region.coordinates[0][1]' as [lon, lat] in degrees"),
        (polygon([(0, 80), (90, -80), (180, 80), (-90, 80), (0, 80)]), "Expected 'region.coordinates[0]', which goes around the globe, in one hemisphere"),
    ],
)  # fmt: skip
def test_what_is_no_region_is_refused(region, words):
    with pytest.raises(IllegalArgumentException) as error:
        parse_region(region)
    assert words in str(error.value)


def test_limits():
    rings = polygon(square(0, 0, 1, 1), square(2, 2, 3, 3))
    with pytest.raises(IllegalArgumentException, match="Expected 'message.region' with fewer corners; given: 'more than 9'; legal: up to 9 positions"):
        parse_region(rings, limits=RegionLimits(corners_max=9), name="message.region")
    with pytest.raises(IllegalArgumentException, match="Expected 'region' with fewer shapes; given: 'more than 2'"):
        parse_region([circle(1, 2, 3)] * 3, limits=RegionLimits(shapes_max=2))
    assert len(parse_region(rings, limits=RegionLimits(corners_max=10))) == 22


def test_constants_of_kernels_are_those_of_the_modules():
    assert sphere.EARTH_RADIUS_M == sphere_kernels.EARTH_RADIUS_M == naive_regions.EARTH_RADIUS_M
    for name in ("CIRCLE", "RECTANGLE", "POLYGON", "NORTH", "SOUTH", "AROUND"):
        assert getattr(regions, name) == getattr(region_kernels, name)


# -- rectangles around regions --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("region", "expected"),
    [
        (polygon([(178, -19), (-179, -19), (-179, -16), (178, -19)]), (178, -19, -179, -16)),
        (polygon(square(170, 0, 180, 1)), (170, 0, -180, 1)),
        (polygon(square(-180, 0, -170, 1)), (180, 0, -170, 1)),
        (polygon(square(-180, -10, 180, 10)), (-180, -10, 180, 10)),
        (polygon([(0, 80), (90, 80), (180, 80), (-90, 80), (0, 80)]), (-180, 80, 180, 90)),
        (polygon([(0, -80), (-90, -70), (180, -80), (90, -80), (0, -80)]), (-180, -90, 180, -70)),
        (polygon([(-180, 80), (0, 80), (180, 80), (180, 90), (-180, 90), (-180, 80)]), (-180, 80, 180, 90)),
        (polygon([(0, 60), (30, 60), (15, 90), (0, 60)]), (-180, 60, 180, 90)),
        ([{"bbox": [170, 0, 180, 1]}, {"bbox": [-180, 5, -170, 6]}], (170, 0, -170, 6)),
        ([{"bbox": [-100, 0, -90, 1]}, {"bbox": [100, 5, 110, 6]}], (100, 0, -90, 6)),
        ([{"bbox": [-80, 0, -70, 1]}, {"bbox": [80, 5, 90, 6]}, {"bbox": [0, 0, 1, 1]}], (-80, 0, 90, 6)),
        ({"bbox": [170, 0, 180, 1]}, (170, 0, 180, 1)),
        ({"bbox": [170, 0, -170, 1]}, (170, 0, -170, 1)),
        (circle(0, 0, RADIUS_M_MAX), (-180, -90, 180, 90)),
        (circle(89.9, 5, 12_000), (-180, pytest.approx(89.79208, abs=1e-5), 180, 90)),
    ],
)
def test_bounding_boxes(region, expected):
    assert box(region) == expected


def test_the_bounding_box_of_a_circle_touches_its_extremes():
    for lat, lon, radius_m in ((48.1, 11.6, 1e3), (0.0, 179.9, 5e4), (-80.0, -179.0, 1e6), (60.0, 0.0, 1.0), (75.0, 20.0, 1.6e6)):
        west, south, east, north = box(circle(lat, lon, radius_m))
        assert naive_regions.distance_m((lat, lon), (south, lon)) - radius_m == pytest.approx(2e-6, abs=2e-6)
        assert naive_regions.distance_m((lat, lon), (north, lon)) - radius_m == pytest.approx(2e-6, abs=2e-6)
        # The place that is farthest east has a right angle between the ways to the centre and to the pole.
        top = math.degrees(math.asin(math.sin(math.radians(lat)) / math.cos(radius_m / sphere.EARTH_RADIUS_M)))
        for border in (west, east):
            assert naive_regions.distance_m((lat, lon), (top, border)) - radius_m == pytest.approx(2e-6, abs=4e-6)


def test_is_rectangle():
    assert is_rectangle(parse_region({"bbox": [0, 0, 1, 1]}))
    assert not is_rectangle(parse_region([{"bbox": [0, 0, 1, 1]}] * 2)) and not is_rectangle(parse_region(circle(1, 2, 3)))


# -- distances ------------------------------------------------------------------------------------


def test_distances_are_right_everywhere_and_have_the_same_bits_with_and_without_numba():
    rng = random.Random(3)
    for _ in range(2000):
        lat, lon = rng.uniform(-90, 90), rng.uniform(-180, 180)
        other = rng.choice(
            [
                (rng.uniform(-90, 90), rng.uniform(-180, 180)),
                (min(90.0, lat + rng.uniform(0, 1e-5)), max(-180.0, lon - rng.uniform(0, 1e-5))),
                (-lat + rng.uniform(-1e-4, 1e-4), lon - 180 if lon > 0 else lon + 180),
                (lat, -lon),
            ]
        )
        other = min(90.0, max(-90.0, other[0])), other[1]
        plain = sphere.great_circle_m(lat, lon, *other)
        assert plain == sphere_kernels.great_circle_m(lat, lon, *other) == sphere.great_circle_m(*other, lat, lon)
        assert plain == pytest.approx(naive_regions.distance_m((lat, lon), other), rel=1e-13, abs=2e-8)
        assert plain == sphere_kernels.great_circles_m(lat, lon, np.array([other[0]]), np.array([other[1]]))[0]


# -- places ---------------------------------------------------------------------------------------


def test_holes_borders_and_corners():
    region = polygon(square(0, 0, 10, 10), square(2, 2, 4, 4))
    assert has(region, (1, 1), (0, 0), (5, 0), (10, 10)) == [True] * 4
    assert has(region, (3, 3), (3.999, 2.001), (-1e-12, 5), (5, 10.000000000000002)) == [False] * 4
    assert has(region, (2, 3), (4, 4), (3, 4)) == [True] * 3  # the border of a hole


def test_a_ring_that_crosses_itself_follows_the_even_odd_rule():
    star = polygon([(0, 3), (2, -3), (-3, 1), (3, 1), (-2, -3), (0, 3)])
    assert has(star, (2.5, 0), (0, 0), (1, 0), (-2.9, 0)) == [True, False, True, False]


def test_polygons_of_a_multipolygon_are_united():
    region = {"type": "MultiPolygon", "coordinates": [polygon(square(0, 0, 4, 4))["coordinates"], polygon(square(2, 2, 6, 6))["coordinates"]]}
    assert has(region, (3, 3), (1, 1), (5, 5), (1, 5)) == [True, True, True, False]


@pytest.mark.parametrize(
    "region",
    [
        polygon([(170, 0), (-170, 0), (-170, 10), (170, 10), (170, 0)]),
        polygon([(170, 0), (180, 0), (-180, 0), (-170, 0), (-170, 10), (-180, 10), (180, 10), (170, 10), (170, 0)]),
        {"type": "MultiPolygon", "coordinates": [polygon(square(170, 0, 180, 10))["coordinates"], polygon(square(-180, 0, -170, 10))["coordinates"]]},
    ],
)
def test_the_antimeridian_may_be_crossed_or_cut(region):
    assert has(region, (5, 175), (5, -175), (5, 180), (5, -180), (0, 180), (10, -170)) == [True] * 6
    assert has(region, (5, 169), (5, -169), (5, 0), (11, 180), (-1, -180)) == [False] * 5


@pytest.mark.parametrize(
    "region",
    [
        polygon([(0, 80), (90, 80), (180, 80), (-90, 80), (0, 80)]),
        polygon([(0, 80), (-90, 80), (180, 80), (90, 80), (0, 80)]),
        polygon([(-180, 80), (0, 80), (180, 80), (180, 90), (-180, 90), (-180, 80)]),
    ],
)
def test_a_ring_around_a_pole_may_be_cut(region):
    assert has(region, (90, 0), (90, 77), (85, 180), (85, -180), (80, -1), (89, 91)) == [True] * 6
    assert has(region, (79.999, 0), (-85, 5), (-90, 0)) == [False] * 3


def test_a_band_around_a_pole_and_one_around_the_globe():
    ring = polygon([(0, 60), (120, 60), (-120, 60), (0, 60)], [(0, 80), (120, 80), (-120, 80), (0, 80)])
    assert has(ring, (70, 5), (60, 180), (80, -120), (81, 7), (90, 0), (59, 7)) == [True, True, True, False, False, False]
    band = polygon(square(-180, -10, 180, 10))
    assert has(band, (0, 0), (10, 180), (-10, -180), (11, 0), (-11, 180)) == [True, True, True, False, False]


def test_a_pole_is_one_place():
    assert has(polygon([(0, 60), (30, 60), (15, 90), (0, 60)]), (90, -120), (89, -120), (89, 15)) == [True, False, True]
    assert has(circle(89, 0, 112_000), (90, 77), (90, -180)) == [True, True]


def test_slivers():
    third = 1 / 3
    thin = polygon([(0, 0), (90, 30), (third, float(np.nextafter(third / 3, 1))), (0, 0)])
    assert naive_regions.gap_m(thin, 10.0, 30.0) == 0 and has(thin, (10.0, 30.0)) == [True]  # on the lower edge
    assert has(thin, (float(np.nextafter(10.0, 0)), 30.0)) == [False]
    needle = polygon([(5, 5), (6, 6), (5, 5), (5, 5)])
    assert has(needle, (5.5, 5.5), (5.25, 5.25), (5.5, 5.500000000000001), (5, 5)) == [True, True, False, True]
    point = polygon([(5, 5)] * 4)
    assert has(point, (5, 5), (5, 5.000000000000001)) == [True, False]


@pytest.mark.long
@pytest.mark.parametrize("seed", range(8))
def test_places_against_the_oracle(seed):
    rng = random.Random(seed)
    counts = [0, 0]
    for _ in range(100):
        region, encoded = any_region(rng)
        places = [any_place(rng, region) for _ in range(12)]
        around = bounding_box(encoded)
        for (lat, lon), found in zip(places, has(region, *places)):
            gap = naive_regions.gap_m(region, lat, lon)
            if 0 < abs(gap) < 1e-6:
                continue  # rounding of sines may decide
            assert found == (gap <= 0), (region, lat, lon)
            assert not found or overlapping(around, (lon, lat, lon, lat)), (region, lat, lon)
            counts[found] += 1
    assert min(counts) > 200


def any_star(rng, corners, middle, reach):
    """Return a polygon of many corners, some of whose edges cross."""
    angles = sorted(rng.uniform(0, 2 * math.pi) for _ in range(corners))
    lats_lons = [(reach * rng.uniform(0.3, 1) * math.sin(a), reach * rng.uniform(0.3, 1) * math.cos(a)) for a in angles]
    ring = [((middle + lon + 540) % 360 - 180, lat) for lat, lon in lats_lons]
    return polygon([*ring, ring[0]])


@pytest.mark.long
@pytest.mark.parametrize(("corners", "middle"), [(48, 0), (49, 0), (400, 0), (400, 175), (49, -179)])
def test_polygons_of_many_corners_against_the_oracle(corners, middle):
    rng = random.Random(corners + middle)
    region = any_star(rng, corners, middle, 20)
    places = [any_place(rng, region) for _ in range(20)] + [(rng.uniform(-15, 15), (middle + rng.uniform(-15, 15) + 540) % 360 - 180) for _ in range(20)]
    found = has(region, *places)
    assert found == [naive_regions.gap_m(region, *place) == 0 for place in places] and len(set(found)) == 2


@pytest.mark.long
@pytest.mark.parametrize("reach", [40.0, 0.05, 1e-8])
def test_the_picture_of_a_polygon_agrees_with_its_edges(reach):
    """Places lie on the borders of cells, beside them, on edges and anywhere; a few are decided by the oracle too, which computes with fractions."""
    rng, shown = random.Random(int(1 / reach)), [0, 0, 0]
    for number in range(60):
        lon, lat = rng.choice([0.0, 7.25, -120.0]), rng.choice([0.0, 40.5, -33.0])
        rings = [_ring(rng, lon, lat, reach, rng.choice([3, 4, 12, 70])) for _ in range(rng.choice([1, 1, 2]))]
        encoded = parse_region(polygon(*rings))
        table = RegionTable()
        table.put(0, encoded)
        numbers, (west, south, east, north) = table._numbers, table._numbers[2:6].tolist()
        for _ in range(150):
            x = _beside(rng, west + (east - west) * rng.choice([rng.randrange(17) / 16, rng.uniform(-0.1, 1.1)]))
            y = _beside(rng, south + (north - south) * rng.choice([rng.randrange(17) / 16, rng.uniform(-0.1, 1.1)]))
            if rng.random() < 0.3:
                ring, share = rng.choice(rings), rng.random()
                (ax, ay), (bx, by) = rng.choice(list(itertools.pairwise(ring)))
                x, y = _beside(rng, ax + share * (bx - ax)), _beside(rng, ay + share * (by - ay))
            kind = region_kernels.pictured(numbers, 0, y, x)
            inside = region_kernels.in_polygon(numbers, 0, y, x)
            assert kind in (0, region_kernels.INSIDE if inside else region_kernels.OUTSIDE), (rings, x, y)
            shown[kind] += 1
            if number % 10 == 0:
                assert has(polygon(*rings), (y, x)) == [naive_regions.gap_m(polygon(*rings), y, x) == 0] == [inside]
    assert min(shown) > 500


def _ring(rng, lon, lat, reach, corners):
    """Return a ring around a place: one that does not cross itself, or any."""
    angles = [rng.uniform(0, 2 * math.pi) for _ in range(corners)]
    angles = sorted(angles) if rng.random() < 0.7 else angles
    found = [(lon + reach * rng.uniform(0.2, 1) * math.cos(a), lat + reach * rng.uniform(0.2, 1) * math.sin(a)) for a in angles]
    return [*found, found[0]]


def _beside(rng, degrees):
    found = float(np.nextafter(degrees, rng.choice([-200.0, 200.0]))) if rng.random() < 0.4 else degrees
    return 0.0 if abs(found) < 1e-30 else found


def test_neither_direction_nor_start_of_a_ring_matters():
    rng = random.Random(5)
    for _ in range(60):
        region, _ = any_region(rng, "p")
        region = region[0] if isinstance(region, list) else region
        turned = {"type": "Polygon", "coordinates": []}
        for ring in region["coordinates"]:
            start = rng.randrange(len(ring) - 1)
            corners = (ring[start:-1] + ring[:start])[:: rng.choice([1, -1])]
            turned["coordinates"].append([*corners, corners[0]])
        assert box(turned) == box(region)
        places = [any_place(rng, region) for _ in range(10)]
        assert has(turned, *places) == has(region, *places), region


def test_circles_against_distances_near_their_borders():
    rng = random.Random(7)
    decided = 0
    for _ in range(400):
        lat, lon, radius_m = rng.uniform(-90, 90), rng.uniform(-180, 180), 10 ** rng.uniform(-1, 7.3)
        angle, bearing = radius_m / sphere.EARTH_RADIUS_M * (1 + rng.choice([-1, 1]) * 10 ** rng.uniform(-12, -1)), rng.uniform(0, 2 * math.pi)
        a = math.radians(lat)
        b = math.asin(min(1, max(-1, math.sin(a) * math.cos(angle) + math.cos(a) * math.sin(angle) * math.cos(bearing))))
        turn = math.atan2(math.sin(bearing) * math.sin(angle) * math.cos(a), math.cos(angle) - math.sin(a) * math.sin(b))
        place = (math.degrees(b), (lon + math.degrees(turn) + 540) % 360 - 180)
        gap = naive_regions.distance_m((lat, lon), place) - radius_m
        if abs(gap) > 1e-8 + 1e-13 * radius_m:
            assert has(circle(lat, lon, radius_m), place) == [gap <= 0], (lat, lon, radius_m, place)
            decided += 1
        assert has(circle(lat, lon, radius_m), place) == [sphere.great_circle_m(lat, lon, *place) <= radius_m]
    assert decided > 200


# -- regions --------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("kinds", ["c", "r", "p", "cr", "cp", "rp", "crpm"])
def test_regions_against_the_oracle(kinds):
    rng = random.Random(kinds)
    counts = [0, 0]
    for _ in range(40 if kinds == "crpm" else 60):
        (region, encoded), (other, other_encoded) = any_region(rng, kinds), any_region(rng, kinds)
        found, gap = touch(region, other), naive_regions.regions_gap_m(region, other)
        if 0 < abs(gap) < 1:
            continue  # the oracle's search for the nearest point is not finer
        assert found == (gap <= 0), (region, other)
        assert not found or overlapping(bounding_box(encoded), bounding_box(other_encoded)), (region, other)
        counts[found] += 1
    assert min(counts) >= 5


def test_what_touches_shares_a_place():
    four = polygon(square(0, 0, 4, 4))
    assert touch(four, polygon(square(4, 4, 8, 8))) and touch(four, polygon(square(1, 1, 2, 2))) and touch(four, {"bbox": [4, 1, 9, 2]})
    assert touch(four, polygon([(2, 9), (9, 2), (9, 9), (2, 9)])) is False  # rectangles overlap, edges do not
    holed = polygon(square(0, 0, 9, 9), square(2, 2, 7, 7))
    assert not touch(holed, polygon(square(3, 3, 6, 6))) and touch(holed, polygon(square(3, 3, 7, 6))) and not touch(holed, {"bbox": [3, 3, 6, 6]})
    assert not touch(holed, circle(4.5, 4.5, 250_000)) and touch(holed, circle(4.5, 4.5, 290_000))
    assert touch(polygon(square(170, 0, 180, 4)), polygon(square(-180, 4, -170, 8)))  # across the antimeridian
    assert touch(polygon([(0, 60), (30, 60), (15, 90), (0, 60)]), polygon([(-90, 60), (-60, 60), (-75, 90), (-90, 60)]))  # at the pole


def test_an_edge_along_a_parallel_is_no_great_circle():
    # Between these corners the great circle reaches 68.2 degrees.
    region = polygon([(-45, 60), (45, 60), (0, 0), (-45, 60)])
    gap_m = naive_regions.distance_m((67.0, 0.0), (60.0, 0.0))
    assert not touch(region, circle(67, 0, gap_m - 0.001)) and touch(region, circle(67, 0, gap_m + 0.001))


# -- the table ------------------------------------------------------------------------------------


def test_messages_may_be_points_rectangles_and_regions_at_once():
    table = RegionTable()
    table.put(4, parse_region(circle(10, 10, 150_000)))
    shapes = parse_region(polygon(square(11, 10, 12, 11)))
    areas = np.array([[10, 10, 10, 10], [11, 9, 30, 11], [12, 12, 13, 13], [0, 0, 0, 0]], float)
    offsets = [0, 0, 0, 0, len(shapes)]
    found = table.touches([4] * 4, range(4), areas[:, 1], areas[:, 0], areas=areas, shape_offsets=offsets, shapes=shapes)
    assert found.tolist() == [True, True, False, True]
    assert table.touches([4] * 4, range(4), areas[:, 1], areas[:, 0]).tolist() == [True, False, False, False]


def test_a_slot_without_a_region_is_everywhere_or_in_its_rectangle():
    table = RegionTable()
    table.put(1, parse_region(circle(0, 0, 1000)))
    assert table.touches([0, 7, 1], [0, 0, 0], [50.0], [50.0]).tolist() == [True, True, False]
    boxes = np.array([[0, 0, 60, 60], [0, 0, 49, 60], [0, 0, 60, 60]], float)
    assert table.touches([0, 7, 1], [0, 0, 0], [50.0], [50.0], boxes=boxes).tolist() == [True, False, False]
    shapes = parse_region(polygon([(49, 40), (61, 70), (70, 61), (49, 40)]))
    assert table.touches([0, 7], [0, 0], NOWHERE, NOWHERE, shape_offsets=[0, len(shapes)], shapes=shapes, boxes=boxes[:2]).tolist() == [True, True]
    assert table.touches([0, 7], [0, 0], NOWHERE, NOWHERE, areas=np.array([[60.0, 0, 70, 1]]), boxes=boxes[:2]).tolist() == [True, False]


@pytest.mark.long
def test_regions_come_and_go():
    rng = random.Random(11)
    table, live = RegionTable(), {}
    for step in range(100):
        slots = rng.sample(range(300), 12)
        chosen = [parse_region(any_star(rng, rng.choice([5, 60]), 0, 9)) if rng.random() < 0.3 else any_region(rng)[1] for _ in slots]
        chosen = [found if rng.random() < 0.9 else found[:0] for found in chosen]
        table.put_many(slots, np.cumsum([0, *map(len, chosen)]), np.concatenate(chosen))
        live.update(zip(slots, chosen))
        gone = rng.sample(range(300), 6 if step < 70 else 20)
        table.remove_many(gone)
        live = {slot: found for slot, found in live.items() if len(found) and slot not in gone}
        table._check()
        assert len(table) == len(live) and table.has(np.arange(-1, 301)).tolist() == [slot in live for slot in range(-1, 301)]
        if step % 25 == 24:
            state = table.snapshot()
            assert state["slots"].tolist() == sorted(live)
            assert state["regions"].tolist() == np.concatenate([live[slot] for slot in sorted(live)]).tolist()
            for array in state.values():
                array.flags.writeable = False
            table = RegionTable()
            table.put(5, parse_region(circle(1, 2, 3)))
            table.restore(state)
            table._check()
    assert table.memory_bytes > 0
    table.remove(10**6)
    with pytest.raises(IllegalArgumentException, match="A slot must not be negative"):
        table.put(-1, parse_region(circle(1, 2, 3)))


def test_room_is_used_again():
    table = RegionTable()
    region = parse_region(any_star(random.Random(1), 40, 0, 9))
    for slot in range(1000):
        table.put(slot % 10, region)
    assert table.memory_bytes < 60 * 8 * len(region)
