"""What filters cost: the same subscriptions with words and rectangles only, and with a filter more.

All lines have the same conditions in the same index, so that candidates are the same. One message is one match call of the share of its batch. Lines take
turns batch by batch, and the least of several rounds counts, so that others on the machine matter less.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dskype.bolts.boolean import make_index
from dskype.bolts.filters import Filters
from dskype.deploy.demo import places
from dskype.deploy.lab.boolean.measure import insert
from dskype.deploy.lab.boolean.subscriptions import ALL, BooleanSubscriptions, boxes_around, sides_km
from dskype.deploy.lab.comparing import quiet
from dskype.deploy.lab.corpus import add_file_argument, read_rows
from dskype.deploy.machine.terminal import Progress
from dskype.spouts.attributes import Attributes
from dskype.spouts.batch import Details, MessageBatch
from dskype.spouts.filters import compile_filter
from dskype.spouts.message_terms import MessageTerms
from dskype.spouts.region_table import RegionTable
from dskype.spouts.regions import parse_region
from dskype.spouts.settings import Settings
from dskype.spouts.text import Tokenizer
from dskype.spouts.vocabulary import Vocabulary

__all__ = ["Line", "add_arguments", "lines", "run"]

_BATCH = 256
_CORNERS = 30
_ATTRIBUTES = Attributes.from_conf({"price": "number", "category": "string"})
_CATEGORIES = ("cafe", "bar", "shop", "museum", "park", "hotel", "station", "school", "church", "office")
_GOALS = {"NOT": 1.1, "attribute": 1.3, "string": 1.3, "circle": 1.3, "polygon": 2.0, "phrase": 1.5}
_M_PER_DEG = 111_195.0


@dataclass
class Line:
    """Subscriptions of one kind.

    :ivar program: expression of the subscription whose words are given -> its filter; None: none.
    :ivar region: rectangle -> the region in it; None: none.
    """

    name: str
    program: Callable[[list[str], np.random.Generator], Any] | None = None
    region: Callable[[np.ndarray], Any] | None = None


def lines() -> list[Line]:
    """Return the kinds that are compared; the first has no filter."""
    return [
        Line("words and rectangle"),
        Line("NOT", lambda words, rng: ["and", *words, ["not", "zythum"]]),
        Line("attribute", lambda words, rng: ["and", *words, ["attribute", "price", "<", float(rng.integers(1, 200))]]),
        Line("string", lambda words, rng: ["and", *words, ["attribute", "category", "=", str(rng.choice(_CATEGORIES))]]),
        Line("phrase", lambda words, rng: ["phrase", 0, list(range(len(words))), words]),
        Line("circle", region=_circle),
        Line("polygon", region=_polygon),
    ]


def _middle(box: np.ndarray) -> tuple[float, float, float, float]:
    west, south, east, north = box.tolist()
    return (west + east) / 2, (south + north) / 2, (east - west) / 2, (north - south) / 2


def _circle(box: np.ndarray) -> Any:
    lon, lat, _, half_lat = _middle(box)
    return {"center": {"lat": lat, "lon": lon}, "radius_m": max(1.0, half_lat * _M_PER_DEG)}


def _polygon(box: np.ndarray) -> Any:
    lon, lat, half_lon, half_lat = _middle(box)
    angles = np.linspace(0, 2 * np.pi, _CORNERS, endpoint=False)
    radius = np.where(np.arange(_CORNERS) % 2, 1.0, 0.8)
    ring = np.stack((lon + half_lon * radius * np.cos(angles), lat + half_lat * radius * np.sin(angles)), axis=1).tolist()
    return {"type": "Polygon", "coordinates": [[*ring, ring[0]]]}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add_file_argument(parser)
    parser.add_argument("--subscriptions", type=int, default=1_000_000, help="how many subscriptions (default: 1,000,000)")
    parser.add_argument("--batches", type=int, default=40, help=f"how many batches of {_BATCH} messages (default: 40)")
    parser.add_argument("--rounds", type=int, default=5, help="how often each is measured; the least counts (default: 5)")
    parser.add_argument("--seed", type=int, default=0, help="of everything that is drawn (default: 0)")


class _World:
    """Messages with words in reading order and attributes, and subscriptions with two neighbouring words of a message."""

    def __init__(self, texts: list[str], lat: np.ndarray, lon: np.ndarray, subscriptions: int, messages: int, rng: np.random.Generator) -> None:
        tokenizer = Tokenizer()
        self.vocabulary = Vocabulary.build(texts, tokenizer)
        rows = rng.integers(0, len(texts), messages)
        chosen = [texts[row] for row in rows.tolist()]
        words = self.vocabulary.analyze(chosen, tokenizer)
        numbers = np.arange(messages)
        pairs = [_ATTRIBUTES.encode({"price": float(rng.integers(0, 200)), "category": str(rng.choice(_CATEGORIES))}) for _ in range(messages)]
        attributes = np.arange(0, 4 * messages + 1, 4), np.array(pairs, np.int64).ravel()
        none = np.zeros(messages + 1, np.int64)
        self.messages = MessageBatch(numbers, numbers, lat[rows], lon[rows], words.offsets, words.terms, words.weights)
        self.details = Details(words.order_offsets, words.order, *attributes, none, np.zeros(0, np.int64), none, np.zeros(0))
        tokens = [tokenizer.tokens(text) for text in texts]
        long_enough = np.flatnonzero(np.fromiter((len(set(found)) > 1 for found in tokens), np.bool_, len(tokens)))
        self.words: list[list[str]] = []
        origins = []
        while len(self.words) < subscriptions:
            row = int(rng.choice(long_enough))
            at = int(rng.integers(0, len(tokens[row]) - 1))
            if tokens[row][at] != tokens[row][at + 1]:
                self.words.append(tokens[row][at : at + 2])
                origins.append(row)
        sides = sides_km(rng, subscriptions, 1, 50, False)
        boxes = boxes_around(lat[origins], lon[origins], sides, sides)
        ids = np.sort(self.vocabulary.ids([word for pair in self.words for word in pair]).reshape(-1, 2), axis=1)
        self.subscriptions = BooleanSubscriptions(
            boxes, np.arange(0, 2 * subscriptions + 1, 2), ids.ravel().astype(np.int32), np.full(subscriptions, ALL, np.int8)
        )


def run(args: argparse.Namespace) -> None:
    """Measure all lines and print a table."""
    rng = np.random.default_rng([args.seed, 59])
    progress = Progress()
    progress("drawing subscriptions")
    if args.messages:
        texts, lat, lon = read_rows(Path(args.messages))
    else:
        found_places = places.load()
        texts, lat, lon = found_places.texts.to_pylist(), found_places.lat, found_places.lon
    world = _World(texts, lat, lon, args.subscriptions, args.batches * _BATCH, rng)
    progress("inserting them")
    index = make_index("lanes", {})
    insert(index, world.subscriptions, np.arange(world.subscriptions.n))
    made = []
    for line in lines():
        progress(f"filters: {line.name}")
        made.append((line.name, *_tables(line, world, rng)))
    found = {name: [np.inf, 0.0] for name, _, _ in made}
    for number in range(args.rounds):
        progress(f"round {number + 1} of {args.rounds}")
        for name, filters, regions in made:
            us, matches = _measure(index, filters, regions, world)
            found[name] = [min(us, found[name][0]), matches]
    progress.end()
    _print(found, args)


def _tables(line: Line, world: _World, rng: np.random.Generator) -> tuple[Filters, RegionTable]:
    filters, regions = Filters(), RegionTable()
    for slot, words in enumerate(world.words):
        if line.program is not None:
            expression = line.program(words, rng)
            compiled = compile_filter(expression, world.vocabulary.ids_of([*words, "zythum"]))
            assert compiled.program is not None
            filters.set(slot, compiled.program)
        if line.region is not None and world.subscriptions.boxes[slot, 0] < world.subscriptions.boxes[slot, 2]:
            regions.put(slot, parse_region(line.region(world.subscriptions.boxes[slot])))
    return filters, regions


def _measure(index: Any, filters: Filters, regions: RegionTable, world: _World) -> tuple[float, float]:
    """Return (us per message, matches per message)."""
    terms = MessageTerms(Settings())
    spent = matched = 0
    n = world.messages.n
    with quiet():
        for start in range(0, n, _BATCH):
            rows = np.arange(start, start + _BATCH)
            messages, details = world.messages.select(rows), world.details.select(rows)
            began = time.process_time_ns()
            found, slots = index.match(messages)
            if len(regions) and len(slots):
                kept = regions.touches(slots, found, messages.lat, messages.lon)
                found, slots = found[kept], slots[kept]
            if filters and len(slots):
                kept = filters.satisfying(messages, details, terms.of(details), found, slots)
                found, slots = found[kept], slots[kept]
            spent += time.process_time_ns() - began
            matched += len(slots)
    return spent / 1e3 / n, matched / n


def _print(found: dict[str, list[float]], args: argparse.Namespace) -> None:
    base, candidates = found["words and rectangle"]
    print(f"{args.subscriptions:,} subscriptions with two words, {args.batches * _BATCH:,} messages, {candidates:.1f} candidates each")
    print(f"{'':<22}{'us/message':>11}{'ratio':>8}{'goal':>6}{'matches':>9}")
    for name, (us, matches) in found.items():
        goal = f"{_GOALS[name]:.1f}" if name in _GOALS else ""
        print(f"{name:<22}{us:>11.2f}{us / base:>8.2f}{goal:>6}{matches:>9.1f}")
