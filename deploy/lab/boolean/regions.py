"""``dskype bench regions``: how long it takes to decide whether a subscription's region has a message's place.

A table has a region for every slot, all of one kind: rectangles, circles, or polygons of some number of corners, of the same extent. Pairs of a slot and a place are drawn at random, and the
place lies in the region's rectangle, because the index hands over no others. Kinds take turns with their pairs; the fastest of several rounds counts. A rectangle is
decided exactly by the index, so its row is what the table alone costs.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dskype.deploy.cli.arguments import positive
from dskype.deploy.lab.comparing import quiet
from dskype.deploy.lab.emulator.measure import print_table
from dskype.deploy.lab.system.throughput_report import machine
from dskype.spouts.region_table import RegionTable
from dskype.spouts.regions import CIRCLE, POLYGON, RECTANGLE
from dskype.spouts.sphere import EARTH_RADIUS_M

__all__ = ["add_arguments", "measure", "run", "show"]

_CALL = 4096
"""Pairs per call."""

_MOST_CORNERS = 4_000_000
"""Of all polygons of a table; one that would have more is left out."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--subscriptions", type=positive, nargs="+", metavar="N", default=[1_000, 100_000], help="regions of a table; default: 1000 100000")
    parser.add_argument("--corners", type=positive, nargs="+", metavar="N", default=[5, 30, 100, 1_000], help="of polygons; default: 5 30 100 1000")
    parser.add_argument("--radius", type=float, default=1_000.0, metavar="M", help="of circles in metres; default: 1000")
    parser.add_argument("--pairs", type=positive, default=200_000, metavar="N", help="default: 200000")
    parser.add_argument("--rounds", type=positive, default=7, metavar="N", help="default: 7")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", metavar="OUT", help="write what was found there")


def run(args: argparse.Namespace) -> int:
    """Measure, print a table; return the exit code."""
    found = measure(args.subscriptions, args.corners, radius_m=args.radius, pairs=args.pairs, rounds=args.rounds, seed=args.seed)
    show(found)
    if args.json:
        Path(args.json).write_text(json.dumps(found, indent=1))
    return 0


def measure(subscriptions: Sequence[int], corners: Sequence[int], *, radius_m: float, pairs: int, rounds: int, seed: int) -> dict[str, Any]:
    """Return ``machine``, ``radius_m`` and ``rows``: for each table ``subscriptions``, ``kind``, ``inside`` (share of the pairs), ``pair_ns``, ``put_ns`` and ``bytes`` (per region)."""
    rows = []
    for n in subscriptions:
        tables = [_Measured(kind, n, pairs, radius_m, np.random.default_rng([seed, n])) for kind in (0, 1, *corners) if kind * n <= _MOST_CORNERS]
        with quiet():
            for _ in range(rounds):
                for table in tables:
                    table.decide()
        rows += [table.found for table in tables]
    return {"machine": machine(), "radius_m": radius_m, "rows": rows}


def show(found: dict[str, Any]) -> None:
    """Print what :func:`measure` returned."""
    columns = ("regions", "kind", "ns per pair", "times a rectangle", "inside", "ns to put", "bytes")
    rows = []
    for row in found["rows"]:
        rectangle = next(r for r in found["rows"] if r["subscriptions"] == row["subscriptions"] and r["kind"] == "rectangle")
        ratio = row["pair_ns"] / rectangle["pair_ns"]
        rows.append(
            (
                f"{row['subscriptions']:,}",
                row["kind"],
                f"{row['pair_ns']:.1f}",
                f"{ratio:.2f}",
                f"{row['inside']:.0%}",
                f"{row['put_ns']:.0f}",
                f"{row['bytes']:.0f}",
            )
        )
    of = found["machine"]
    print_table(f"Regions of {found['radius_m']:.0f} m around their centres; {of['processor']}, {of['cores']} cores", columns, rows)


class _Measured:
    """A table of regions and the pairs that it decides.

    :param kind: how many corners polygons have; 0: rectangles, 1: circles.
    """

    def __init__(self, kind: int, subscriptions: int, pairs: int, radius_m: float, rng: np.random.Generator) -> None:
        lat, lon = rng.uniform(-60, 60, subscriptions), rng.uniform(-170, 170, subscriptions)
        RegionTable().put(0, _region(kind, 0.0, 0.0, radius_m, rng))  # compiles what follows
        regions = [_region(kind, *place, radius_m, rng) for place in zip(lat.tolist(), lon.tolist())]
        offsets, encoded = np.cumsum([0, *map(len, regions)]), np.concatenate(regions)
        self._table = RegionTable()
        began = time.process_time_ns()
        self._table.put_many(np.arange(subscriptions), offsets, encoded)
        put_ns = (time.process_time_ns() - began) / subscriptions
        self._slots = rng.integers(0, subscriptions, pairs)
        up = math.degrees(radius_m / EARTH_RADIUS_M)
        self._lat = lat[self._slots] + up * rng.uniform(-1, 1, pairs)
        self._lon = lon[self._slots] + up / np.cos(np.radians(lat[self._slots])) * rng.uniform(-1, 1, pairs)
        self._rows = np.arange(pairs)
        inside = self._table.touches(self._slots, self._rows, self._lat, self._lon).mean()
        name = {0: "rectangle", 1: "circle"}.get(kind, f"polygon of {kind:,} corners")
        self.found: dict[str, Any] = {
            "subscriptions": subscriptions,
            "kind": name,
            "inside": float(inside),
            "pair_ns": math.inf,
            "put_ns": put_ns,
            "bytes": self._table.memory_bytes / subscriptions,
        }

    def decide(self) -> None:
        """Decide all pairs, and keep the time if it is the shortest so far."""
        began = time.process_time_ns()
        for first in range(0, len(self._slots), _CALL):
            self._table.touches(self._slots[first : first + _CALL], self._rows[first : first + _CALL], self._lat, self._lon)
        self.found["pair_ns"] = min(self.found["pair_ns"], (time.process_time_ns() - began) / len(self._slots))


def _region(kind: int, lat: float, lon: float, radius_m: float, rng: np.random.Generator) -> np.ndarray:
    """Return an encoded region around a place; the corners of a polygon lie in all directions, at 0.5 to 1 of the radius."""
    if kind == 1:
        return np.array([CIRCLE, lat, lon, radius_m])
    up = math.degrees(radius_m / EARTH_RADIUS_M)
    across = up / math.cos(math.radians(lat))
    if kind == 0:
        return np.array([RECTANGLE, lon - across, lat - up, lon + across, lat + up])
    angles, reach = np.sort(rng.uniform(0, 2 * math.pi, kind)), rng.uniform(0.5, 1, kind)
    corners = np.stack([lon + across * reach * np.cos(angles), lat + up * reach * np.sin(angles)], axis=1)
    return np.concatenate(([POLYGON, 1, kind, 0], corners.ravel()))
