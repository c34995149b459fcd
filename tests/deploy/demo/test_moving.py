"""Vehicles between cities, and geofences for them: everything follows from the seed, and the topology takes all of it."""

from __future__ import annotations

import json
import math
from collections import Counter

import numpy as np
import pytest

from dskype.deploy.demo.moving import ATTRIBUTES, KINDS, Fleet, cities, geofences
from dskype.spouts.records import parse_message, parse_subscription
from dskype.spouts.settings import Settings

SETTINGS = Settings.from_conf({"dskype.objects": True, "dskype.attributes": ATTRIBUTES, "dskype.boolean.wordless": True, "dskype.space": [-180, -90, 180, 90]})


def test_vehicles_drive_the_same_way_however_many_move_at_a_time():
    together, alone, other = Fleet(cities(), 50, 7), Fleet(cities(), 50, 7), Fleet(cities(), 50, 8)
    for _ in range(200):
        together.advance(np.arange(50), 600)
        for row in range(50):
            alone.advance(np.array([row]), 600)
    rows = np.arange(50)
    assert together.records(rows) == alone.records(rows) != other.records(rows)


def test_a_vehicle_goes_from_city_to_city_and_never_jumps():
    where = cities()
    fleet, rows = Fleet(where, 200, 1), np.arange(200)
    visited = [set() for _ in rows]
    lat, lon = fleet.places(rows)
    for _ in range(500):
        fleet.advance(rows, 120)
        then = lat, lon
        lat, lon = fleet.places(rows)
        away_m = 111_195 * np.hypot(lat - then[0], (lon - then[1]) * np.cos(np.radians(lat)))
        assert away_m.max() < 120 * 130 / 3.6 * 1.5  # 130 km/h at most; a bent route is longer than the straight line
        for row, city in enumerate(fleet._end.tolist()):
            visited[row].add(city)
    assert sum(len(cities) > 3 for cities in visited) > 150
    near = where.neighbours
    assert (near[:, 0] >= 0).mean() > 0.95 and not (near == np.arange(len(where))[:, None]).any()


def test_the_topology_takes_every_state_and_every_geofence():
    fleet = Fleet(cities(), 300, 3)
    for _ in range(3):
        fleet.advance(np.arange(300), 1e5)
        for id, record in zip(fleet.ids, fleet.records(np.arange(300)), strict=True):
            message = parse_message(record["value"], objects=True)
            assert message.object == id == record["key"].decode() and message.text.split()[0] in KINDS and 0 <= message.attributes["fuel"] <= 100
    kinds = Counter()
    fences = list(geofences(cities(), 1000, 3))
    assert fences == list(geofences(cities(), 1000, 3)) != list(geofences(cities(), 1000, 4))
    for id, value in fences:
        parsed = parse_subscription(id.encode(), value, tokenizer=SETTINGS.analyzer(), space=SETTINGS.space, limits=SETTINGS.limits, language=SETTINGS.language)
        west, south, east, north = parsed.bbox
        assert (north - south) * 111_195 <= 10_010 and west < east
        record = json.loads(value)
        kinds["circle" if "center" in record["region"] else "polygon"] += 1
        kinds[bool(record.get("expression"))] += 1
    assert 400 < kinds["circle"] < 600 and 240 < kinds[True] < 360


def test_a_city_without_neighbours_has_no_vehicle():
    where = cities()
    lonely = np.flatnonzero((where.neighbours < 0).all(axis=1))
    fleet = Fleet(where, 2000, 5)
    assert len(lonely) and not np.isin(fleet._start, lonely).any() and not np.isin(fleet._end, lonely).any()
    assert math.isclose(float(where.route_m(np.array([0]), np.array([0]))[0]), 1.0)


@pytest.mark.parametrize("n", [0, 1])
def test_few_geofences_are_few(n):
    assert len(list(geofences(cities(), n, 1))) == n
