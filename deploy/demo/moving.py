"""Vehicles on their way between the cities of the world, and geofences for them: the workload of ``dskype demo --moving`` and ``dskype bench moving``.

The cities are those that the web pages know, so nothing has to be installed or fetched. A vehicle drives from a city to one of those nearest to it, and from
there to the next, on routes that bend a little. Everything follows from the seed, however many vehicles move at a time.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from dskype.deploy import web

__all__ = ["ATTRIBUTES", "KINDS", "Cities", "Fleet", "MovingPlan", "cities", "geofences"]

ATTRIBUTES = {"fuel": "number"}
"""What ``dskype.attributes`` has to be: the tank of a vehicle, in percent."""
KINDS = ("truck", "bus", "taxi", "van")
"""Kinds of vehicles: the first word of the text of a message."""
_SPEEDS_KMH = (80.0, 70.0, 50.0, 100.0)
_M_PER_DEG = 111_195.0
_NEXT, _FARTHEST_M = 6, 600_000.0
"""Routes lead to so many cities, the nearest ones, and not further than that."""
_BEND = 0.08
"""How far a route leaves the straight line, at most, as a share of its length."""
_TANK_M = 600_000.0
_LARGEST_LAT_DEG = 75.0
_RADII_M = (200.0, 5_000.0)
_SUBURBS_M = 15_000.0


@dataclass(frozen=True)
class MovingPlan:
    """What a run of ``dskype demo --moving`` publishes.

    :ivar messages: how many states of vehicles.
    :ivar rate: states per second.
    :ivar seed: of everything random.
    :ivar port: of the map; 0: a free one.
    """

    messages: int = 27_000
    vehicles: int = 300
    rate: float = 150.0
    seed: int = 1
    port: int = 0


@dataclass(frozen=True)
class Cities:
    """Cities, the largest first.

    :ivar names: their names.
    :ivar lat: float64[n], degrees; so is ``lon``.
    """

    names: list[str]
    lat: np.ndarray
    lon: np.ndarray

    def __len__(self) -> int:
        return len(self.lat)

    def within(self, west: float, south: float, east: float, north: float) -> Cities:
        """Return those in a rectangle, degrees."""
        rows = np.flatnonzero((self.lon >= west) & (self.lon <= east) & (self.lat >= south) & (self.lat <= north))
        return Cities([self.names[row] for row in rows.tolist()], self.lat[rows], self.lon[rows])

    @cached_property
    def neighbours(self) -> np.ndarray:
        """The cities next to each, the nearest first (int64[n, 6]); -1 where there are no more within 600 km. Takes O(n²), half a second for 5,000."""
        found = np.full((len(self), _NEXT), -1)
        n = min(_NEXT, len(self) - 1)
        for start in range(0, len(self) if n > 0 else 0, 256):
            rows = np.arange(start, min(len(self), start + 256))
            dlat, dlon = self.lat[rows, None] - self.lat, self.lon[rows, None] - self.lon
            # Routes do not cross the antimeridian: there no city is near another one.
            away_m = _M_PER_DEG * np.hypot(dlat, dlon * np.cos(np.radians(self.lat[rows, None])))
            away_m[np.arange(len(rows)), rows] = np.inf
            nearest = np.argpartition(away_m, n - 1, axis=1)[:, :n]
            away_m = np.take_along_axis(away_m, nearest, axis=1)
            order = np.argsort(away_m, axis=1, kind="stable")
            nearest, away_m = (np.take_along_axis(column, order, axis=1) for column in (nearest, away_m))
            found[rows[:, None], np.arange(n)] = np.where(away_m <= _FARTHEST_M, nearest, -1)
        return found

    def route_m(self, start: np.ndarray, end: np.ndarray) -> np.ndarray:
        """Return the lengths of routes between cities (float64[n])."""
        dlat, dlon = self.lat[end] - self.lat[start], self.lon[end] - self.lon[start]
        return np.maximum(1.0, _M_PER_DEG * np.hypot(dlat, dlon * np.cos(np.radians((self.lat[start] + self.lat[end]) / 2))))

    def on_route(self, start: np.ndarray, end: np.ndarray, share: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return places on routes (latitude and longitude, float64[n] in degrees), a share of the way from ``start`` to ``end``."""
        lat, lon = self.lat[start], self.lon[start]
        dlat, dlon = self.lat[end] - lat, self.lon[end] - lon
        middle = np.cos(np.radians(lat + dlat / 2))
        bend = _BEND * ((np.minimum(start, end) * 31 + np.maximum(start, end) * 17) % 21 / 10 - 1) * np.where(start < end, 1, -1) * np.sin(np.pi * share)
        found = lat + share * dlat + bend * dlon * middle, lon + share * dlon - bend * dlat / np.maximum(middle, 0.1)
        return np.clip(found[0], -90, 90), np.clip(found[1], -180, 180)


@lru_cache(2)
def cities(most: int = 1_000) -> Cities:
    """Return the largest cities that the web pages know.

    :param most: how many, at most.
    """
    found = json.loads((Path(web.__file__).parent / "static" / "vendor" / "world" / "cities.json").read_bytes())
    lat, lon = np.array(found["lat"]) / 100, np.array(found["lon"]) / 100
    rows = np.flatnonzero(np.abs(lat) <= _LARGEST_LAT_DEG)[:most]
    return Cities([found["names"][row] for row in rows.tolist()], lat[rows], lon[rows])


class Fleet:
    """Vehicles that drive from city to city.

    :param where: the cities.
    :param n: how many vehicles.
    :param seed: what each is, where it begins, and where it goes.
    """

    def __init__(self, where: Cities, n: int, seed: int = 0) -> None:
        rng = np.random.default_rng([seed, 11])
        self.cities, self._seed = where, seed % 2**64
        self._roads = (where.neighbours >= 0).sum(axis=1)
        self.kinds = rng.choice(len(KINDS), n, p=(0.4, 0.2, 0.2, 0.2))
        self._speed_m_s = np.array(_SPEEDS_KMH)[self.kinds] / 3.6 * rng.uniform(0.7, 1.3, n)
        self._start = rng.choice(np.flatnonzero(self._roads), n)
        self._legs = np.zeros(n, np.int64)
        self._end = self._choose(np.arange(n))
        self._length_m = where.route_m(self._start, self._end)
        self._done_m = rng.random(n) * self._length_m
        self._driven_m = rng.random(n) * _TANK_M
        self._heads = [f'{{"object":"{KINDS[kind]}-{i}","text":"{KINDS[kind]} to ' for i, kind in enumerate(self.kinds.tolist())]
        self._names = [json.dumps(name, ensure_ascii=False)[1:] for name in where.names]  # with the quote at the end
        self.ids = [f"{KINDS[kind]}-{i}" for i, kind in enumerate(self.kinds.tolist())]
        """Ids of the objects."""

    def __len__(self) -> int:
        return len(self.kinds)

    def _choose(self, rows: np.ndarray) -> np.ndarray:
        """Return where vehicles go next: the same whenever they are asked on the same leg."""
        mixed = (rows.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)) ^ (self._legs[rows].astype(np.uint64) * np.uint64(0xC2B2AE3D27D4EB4F))
        mixed = ((mixed ^ np.uint64(self._seed)) * np.uint64(0xFF51AFD7ED558CCD)) >> np.uint64(33)
        return self.cities.neighbours[self._start[rows], (mixed % self._roads[self._start[rows]].astype(np.uint64)).astype(np.int64)]

    def advance(self, rows: np.ndarray, seconds: float) -> None:
        """Let vehicles drive on.

        :param rows: which ones, each once.
        """
        self._done_m[rows] += self._speed_m_s[rows] * seconds
        self._driven_m[rows] += self._speed_m_s[rows] * seconds
        while len(rows := rows[self._done_m[rows] >= self._length_m[rows]]):
            self._done_m[rows] -= self._length_m[rows]
            self._start[rows] = self._end[rows]
            self._legs[rows] += 1
            self._end[rows] = self._choose(rows)
            self._length_m[rows] = self.cities.route_m(self._start[rows], self._end[rows])

    def places(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return where vehicles are (latitude and longitude, float64[n] in degrees)."""
        return self.cities.on_route(self._start[rows], self._end[rows], self._done_m[rows] / self._length_m[rows])

    def records(self, rows: np.ndarray) -> list[dict[str, bytes]]:
        """Return the messages of vehicles as records for Kafka: ``key`` and ``value``."""
        lat, lon = self.places(rows)
        fuel = (100 - self._driven_m[rows] % _TANK_M * 100 / _TANK_M).astype(int).tolist()
        columns = zip(rows.tolist(), self._end[rows].tolist(), np.round(lat, 5).tolist(), np.round(lon, 5).tolist(), fuel)
        heads, names, ids = self._heads, self._names, self.ids
        return [
            {"key": ids[row].encode(), "value": f'{heads[row]}{names[end]},"lat":{y},"lon":{x},"attributes":{{"fuel":{tank}}}}}'.encode()}
            for row, end, y, x, tank in columns
        ]


def geofences(where: Cities, n: int, seed: int = 0, *, prefix: str = "g") -> Iterator[tuple[str, bytes]]:
    """Yield (id, JSON value) of boolean subscriptions: circles and polygons with radii of 0.2 to 5 km, in suburbs of cities and along routes.

    Half of them are circles. A fifth asks for a kind of vehicle, and a tenth for a kind with less fuel than given.

    :param where: the cities.
    :param prefix: of the ids ``g0``, ``g1``, ...
    """
    rng = np.random.default_rng([seed, 12])
    roads = (where.neighbours >= 0).sum(axis=1)
    start = rng.choice(np.flatnonzero(roads), n)
    end = where.neighbours[start, (rng.random(n) * roads[start]).astype(int)]
    lat, lon = where.on_route(start, end, np.where(rng.random(n) < 0.5, 0.0, rng.random(n)))
    away_m, towards = rng.random(n) * np.where(lat == where.lat[start], _SUBURBS_M, 1_000), rng.random(n) * 2 * np.pi
    scale = _M_PER_DEG * np.cos(np.radians(lat))
    lat, lon = lat + away_m * np.sin(towards) / _M_PER_DEG, np.clip(lon + away_m * np.cos(towards) / scale, -179.9, 179.9)
    radii_m = np.exp(rng.uniform(math.log(_RADII_M[0]), math.log(_RADII_M[1]), n))
    for i in range(n):
        region: dict[str, Any]
        y, x, radius_m = round(float(lat[i]), 5), round(float(lon[i]), 5), round(float(radii_m[i]), 1)
        if rng.random() < 0.5:
            region = {"center": {"lat": y, "lon": x}, "radius_m": radius_m}
        else:
            corners = int(rng.integers(5, 13))
            angles = np.arange(corners) * 2 * np.pi / corners
            reach_m = radius_m * rng.uniform(0.6, 1.0, corners)
            ring = np.stack((x + reach_m * np.cos(angles) / scale[i], y + reach_m * np.sin(angles) / _M_PER_DEG), axis=1).round(6).tolist()
            region = {"type": "Polygon", "coordinates": [[*ring, ring[0]]]}
        record: dict[str, Any] = {"type": "boolean", "region": region}
        if (asks := rng.random()) < 0.3:
            kind = KINDS[int(rng.integers(len(KINDS)))]
            record["expression"] = kind if asks < 0.2 else f"{kind} AND fuel < {int(rng.integers(10, 90))}"
        yield f"{prefix}{i}", json.dumps(record, separators=(",", ":")).encode()
