"""``dskype bench routing``: how long an A-Grid, a plain grid and an R-tree take to route points and rectangles (Tornado, section 5.2, Figure 7).

The partitions are learned from the messages on the coarsest grid, and are the same on all grids. Points are the messages in random order. Rectangles lie around messages: some touch four
partitions, others have sides of a share of the world's. Routers take turns with the same batches; the fastest of several rounds counts. In each round a batch of rectangles is
routed several times, because the router before has filled the processor's caches with its own arrays: a routing unit works all the time, and has them to itself. All routers must find the same.
"""

from __future__ import annotations

import argparse
import json
import math
import time
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dskype.deploy.cli.arguments import UsageError, positive
from dskype.deploy.demo import places
from dskype.deploy.lab.corpus import add_file_argument, read_rows
from dskype.deploy.lab.emulator.measure import print_table
from dskype.deploy.lab.system.throughput_report import machine
from dskype.deploy.lab.tornado.routers import GridRouter, TreeRouter
from dskype.deploy.machine.terminal import say
from dskype.distribution.agrid.grid import WORLD, AGrid, CellBox
from dskype.distribution.agrid.learning import CellCosts, initial_partitions

__all__ = ["ROUTERS", "add_arguments", "compare", "run"]

ROUTERS = {"A-Grid": lambda grid: grid, "plain grid": GridRouter, "R-tree": TreeRouter}
"""Name -> what makes the router of an A-Grid's partitions."""

SHARES = (0.001, 0.01, 0.05)
"""Sides of rectangles as shares of the world's, as in Figure 7 (b)."""

_BATCH = 4096
_RECTANGLES = 4096
_FEW = 64
_IN_A_ROW = 4
"""How often a batch of rectangles is routed in a round."""


class RoutingWorkload(NamedTuple):
    """What is routed.

    :ivar source: where the messages come from.
    :ivar lat: float64[n], degrees, in random order; so is ``lon``.
    :ivar rectangles: name -> float64[m, 4], west, south, east, north.
    """

    source: str
    lat: np.ndarray
    lon: np.ndarray
    rectangles: dict[str, np.ndarray]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    add_file_argument(parser)
    parser.add_argument("--partitions", type=positive, metavar="N", nargs="+", default=[32], help="default: 32")
    parser.add_argument("--cells", type=positive, metavar="N", nargs="+", default=[100, 400, 1000, 2000, 4000], help="columns and rows; multiples of the first")
    parser.add_argument("--rounds", type=positive, default=7, metavar="N", help="default: 7")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", metavar="OUT", help="write what was found there")


def run(args: argparse.Namespace) -> int:
    """Measure, print a table for each number of partitions, and return the exit code: 1 if routers disagree."""
    if any(cells % args.cells[0] for cells in args.cells):
        raise UsageError(f"expected multiples of {args.cells[0]} in --cells, so that partitions may be the same on all grids, given: {args.cells}")
    if args.messages:
        source = Path(args.messages).name
        _, lat, lon = read_rows(Path(args.messages), args.join)
    else:
        source, found = "GeoNames places (cities500)", places.load()
        lat, lon = found.lat, found.lon
    report = {
        "machine": machine(),
        "date": time.strftime("%Y-%m-%d"),
        "found": [compare(source, lat, lon, n, args.cells, args.rounds, args.seed) for n in args.partitions],
    }
    for found in report["found"]:
        show(found)
    if args.json:
        Path(args.json).write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    return 0 if all(found["equal"] for found in report["found"]) else 1


def _around(rng: np.random.Generator, lat: np.ndarray, lon: np.ndarray, width: np.ndarray, height: np.ndarray) -> np.ndarray:
    """Return a rectangle around a message for each width and height in degrees."""
    rows = rng.integers(0, len(lat), len(width))
    x, y = np.clip(lon[rows], WORLD[0] + width / 2, WORLD[2] - width / 2), np.clip(lat[rows], WORLD[1] + height / 2, WORLD[3] - height / 2)
    return np.stack([x - width / 2, y - height / 2, x + width / 2, y + height / 2], axis=1)


def _workload(source: str, lat: np.ndarray, lon: np.ndarray, grid: AGrid, seed: int) -> RoutingWorkload:
    """Draw points and rectangles, seeded."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(lat))
    chosen, some = [np.zeros((0, 4))], 0
    for _ in range(_FEW):
        areas = _around(rng, lat, lon, *np.exp(rng.uniform(np.log(0.05), np.log(60.0), (2, 2 * _RECTANGLES))))
        four = areas[np.bincount(grid.overlaps(areas)[0], minlength=len(areas)) == 4]
        chosen.append(four)
        some += len(four)
        if some >= _RECTANGLES:
            break
    rectangles = {"touching 4": np.concatenate(chosen)[:_RECTANGLES]}
    for share in SHARES:
        rectangles[f"{share:.1%}"] = _around(rng, lat, lon, np.full(_RECTANGLES, 360.0 * share), np.full(_RECTANGLES, 180.0 * share))
    return RoutingWorkload(source, lat[order], lon[order], {name: areas for name, areas in rectangles.items() if len(areas)})


def compare(source: str, lat: np.ndarray, lon: np.ndarray, partitions: int, granularities: Sequence[int], rounds: int, seed: int) -> dict[str, Any]:
    """Measure all routers on grids of all granularities with the same partitions.

    :param lat: float64[n], degrees; ``lon``: likewise.
    :param granularities: columns and rows of the grids, multiples of the first.
    :returns: ``rows``: for each granularity and router the microseconds per point and per rectangle, and the bytes; ``equal``: whether all found the same.
    """
    coarse = AGrid(granularities[0], granularities[0])
    x, y = coarse.cells_of(lat, lon)
    boxes = [part.box for part in initial_partitions(CellCosts(coarse.all_cells, x, y, np.ones(len(x))), partitions)]
    grids = {n: AGrid(n, n, WORLD, {i: CellBox(*(edge * n // granularities[0] for edge in box)) for i, box in enumerate(boxes)}) for n in granularities}
    workload = _workload(source, lat, lon, grids[granularities[0]], seed)
    routers = {(n, name): make(grid) for n, grid in grids.items() for name, make in ROUTERS.items()}
    best: dict[tuple[int, str], dict[str, float]] = {key: {} for key in routers}
    answers: dict[tuple[int, str], set[int]] = {}  # of another grid, places on a line may differ by rounding
    for number in range(rounds + 1):  # the first one compiles, and fills the caches
        for key, router in routers.items():
            for what, (us, answer) in _measure(router, workload).items():
                best[key][what] = min(us, best[key].get(what, math.inf)) if number else math.inf
                answers.setdefault((key[0], what), set()).add(answer)
        say(f"{partitions} partitions, round {number} of {rounds}")
    return {
        "source": source,
        "points": len(lat),
        "partitions": partitions,
        "touched": {name: len(grids[granularities[0]].overlaps(areas)[0]) / len(areas) for name, areas in workload.rectangles.items()},
        "rows": [{"cells": n, "router": name, "us": best[n, name], "bytes": router.memory_bytes} for (n, name), router in routers.items()],
        "equal": all(len(found) == 1 for found in answers.values()),
    }


def _measure(router: Any, workload: RoutingWorkload) -> dict[str, tuple[float, int]]:
    """Return, of points and of each kind of rectangles, the microseconds each, and a digest of the answers."""
    spent, digest = 0.0, 0
    for start in range(0, len(workload.lat), _BATCH):
        lat, lon = workload.lat[start : start + _BATCH], workload.lon[start : start + _BATCH]
        begin = time.perf_counter()
        partitions = router.locate(lat, lon)
        spent += time.perf_counter() - begin
        digest = zlib.crc32(partitions.tobytes(), digest)
    found = {"point": (spent / len(workload.lat) * 1e6, digest)}
    for name, areas in workload.rectangles.items():
        spent = math.inf
        for _ in range(_IN_A_ROW):
            begin = time.perf_counter()
            rows, partitions = router.overlaps(areas)
            spent = min(spent, time.perf_counter() - begin)
        pairs = np.sort(rows * (1 << 20) + partitions)  # each router has an order of its own
        found[name] = spent / len(areas) * 1e6, zlib.crc32(pairs.tobytes())
    return found


def show(found: Mapping[str, Any]) -> None:
    """Print the table of a number of partitions."""
    kinds = list(found["rows"][0]["us"])
    touched = ", ".join(f"{name}: {mean:.1f}" for name, mean in found["touched"].items())
    print_table(
        f"{found['source']}, {found['points']:,} points, {found['partitions']} partitions; microseconds each. Partitions that a rectangle touches: {touched}",
        ["grid", "router", *kinds, "bytes"],
        [
            [f"{row['cells']:,} x {row['cells']:,}", row["router"], *(f"{row['us'][kind]:,.3f}" for kind in kinds), f"{row['bytes']:,}"]
            for row in sorted(found["rows"], key=lambda row: list(ROUTERS).index(row["router"]))
        ],
    )
    print("  all routers find the same" if found["equal"] else "  WRONG: routers find different partitions", flush=True)
