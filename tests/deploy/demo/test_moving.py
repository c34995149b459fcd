"""Vehicles between cities, and geofences for them: everything follows from the seed, and the topology takes all of it."""

from __future__ import annotations

import io
import json
import math
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest
from rich.console import Console

from dskype.deploy.cli import main as cli
from dskype.deploy.demo import moving_run
from dskype.deploy.demo.moving import ATTRIBUTES, KINDS, Fleet, MovingPlan, cities, geofences
from dskype.deploy.demo.moving_run import Trip, fences
from dskype.deploy.demo.screen import Quantiles, Word
from dskype.spouts.records import parse_message, parse_subscription
from dskype.spouts.settings import Settings
from dskype.topology.errors import TopologyError

SETTINGS = Settings.from_conf({"dskype.objects": True, "dskype.attributes": ATTRIBUTES, "dskype.boolean.wordless": True, "dskype.space": [-180, -90, 180, 90]})


@pytest.mark.long
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


@pytest.mark.long
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


# --- dskype demo --moving ---------------------------------------------------------------------------------------------


def test_a_trip_is_the_same_in_parts():
    where = cities().within(-11, 35, 32, 60)
    whole, parts = Trip(Fleet(where, 20, 1), 100), Trip(Fleet(where, 20, 1), 100)
    assert len(whole) == 100 and whole.records(0, 200) == parts.records(0, 7) + parts.records(7, 93) + parts.records(93, 100)


def test_geofences_of_the_demo_are_what_the_topology_takes_and_vehicles_cross_them():
    where = cities().within(-11, 35, 32, 60)
    found = dict(fences(where))
    assert "Paris" in found and sum("expression" in record for record in found.values()) == 12
    parsed = {}
    for id, record in found.items():
        parsed[id] = parse_subscription(
            id.encode(), json.dumps(record).encode(), tokenizer=SETTINGS.analyzer(), space=SETTINGS.space, limits=SETTINGS.limits, language=SETTINGS.language
        )
    fleet, rows, inside = Fleet(where, 300, 1), np.arange(300), []
    for _ in range(90):
        fleet.advance(rows, 60)
        lat, lon = fleet.places(rows)
        inside.append(sum(((lon >= w) & (lon <= e) & (lat >= s) & (lat <= n)).astype(int) for w, s, e, n in (one.bbox for one in parsed.values())))
    assert np.count_nonzero(np.diff(np.array(inside), axis=0)) > 100


def test_who_enters_and_leaves_is_shown_as_text(monkeypatch):
    console = Console(file=io.StringIO(), width=200)
    plan = SimpleNamespace(component_ids=["subscription-bolt"], component_tasks=lambda name: [7])
    stats = SimpleNamespace(tasks={7: {"watermark": 9}}, errors=[])
    words = [Word(0, "[red]Paris", op, "m", None, None, "bus-7\x1b[31m") for op in ("enter", "leave", "enter")]
    watcher = SimpleNamespace(failure=None, heard=-1e9, words=lambda since: (3, words[since:]), latency=lambda: (Quantiles(12.0, 40.0), Quantiles(12.0, 40.0)))
    feeder = SimpleNamespace(failure=None, published=10, go=lambda: None)
    handle = SimpleNamespace(backend=SimpleNamespace(plan=plan, failure=None), stats=stats)
    live = moving_run._Live(handle, feeder, watcher, MovingPlan(messages=10), console)
    said = []
    live.until_ready(said.append, 0.0)
    live.until_done()
    shown = console.file.getvalue()
    assert "[red]Paris" in shown and "\x1b" not in shown and shown.count("enter ") == 2
    assert "10 of 10 states; 2 entered, 1 left; latency p50 12 ms, p99 40 ms" in shown and "300 vehicles drive" in said[0]
    stats.tasks[7]["watermark"] = 5
    monkeypatch.setattr(moving_run, "_STUCK_S", -1.0)
    with pytest.raises(TopologyError, match="6 of 10 states applied"):
        live.until_done()
    feeder.failure = ValueError("the broker is gone")
    with pytest.raises(ValueError, match="gone"):
        live.until_done()


def test_a_moving_demo_takes_options_that_make_sense(monkeypatch, capsys):
    plans = []
    monkeypatch.setattr(moving_run, "run", lambda plan, **more: plans.append((plan, more)) or 0)
    assert cli.main(["demo", "--moving", "--vehicles", "50", "--messages", "100", "--rate", "10", "--seed", "3", "--port", "0", "--no-verify"]) == 0
    assert plans == [(MovingPlan(100, 50, 10.0, 3, 0), {"verify": False, "transport": None})]
    assert cli.main(["demo", "--moving", "--folder", "x", "--window", "5"]) == 2 and "expected no --window, --folder with --moving" in capsys.readouterr().err
    assert cli.main(["demo", "--vehicles", "50"]) == 2 and "need --moving" in capsys.readouterr().err
