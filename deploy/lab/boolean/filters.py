"""What filters cost: the same subscriptions with words and rectangles only, and with a filter more.

All lines have the same conditions in the same index, so that candidates are the same. Messages come in batches. In each round one line after another goes through all
of them, and the least time of each batch counts, so that others on the machine matter less.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dskype.bolts.boolean import make_index
from dskype.bolts.filters import Filters
from dskype.deploy.demo import places
from dskype.deploy.lab.boolean.filter_world import FilterWorld, lines
from dskype.deploy.lab.boolean.measure import insert
from dskype.deploy.lab.comparing import quiet, show_share
from dskype.deploy.lab.corpus import add_file_argument, read_rows
from dskype.deploy.machine.terminal import Progress
from dskype.spouts.batch import Details, MessageBatch
from dskype.spouts.message_terms import MessageTerms
from dskype.spouts.region_table import RegionTable
from dskype.spouts.settings import Settings

__all__ = ["add_arguments", "match_batches", "read_world", "run"]

_BATCH = 256
_GOALS = {"NOT": 1.1, "attribute": 1.3, "string": 1.3, "circle": 1.3, "polygon": 2.0, "phrase": 1.5}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add_file_argument(parser)
    parser.add_argument("--subscriptions", type=int, default=1_000_000, help="how many subscriptions (default: 1,000,000)")
    parser.add_argument("--batches", type=int, default=40, help=f"how many batches of {_BATCH} messages (default: 40)")
    parser.add_argument("--rounds", type=int, default=7, help="how often each is measured; the least counts (default: 7)")
    parser.add_argument("--only", default="", help="names of filters, with commas between them (default: all)")
    parser.add_argument("--seed", type=int, default=0, help="of everything that is drawn (default: 0)")


def read_world(args: argparse.Namespace, messages: int) -> FilterWorld:
    """Draw subscriptions and messages from a file of messages, or from the places of the demonstration."""
    if args.messages:
        texts, lat, lon = read_rows(Path(args.messages), args.join)
    else:
        found = places.load()
        texts, lat, lon = found.texts.to_pylist(), found.lat, found.lon
    return FilterWorld(texts, lat, lon, args.subscriptions, messages, np.random.default_rng([args.seed, 59]))


def run(args: argparse.Namespace) -> None:
    """Measure all lines and print a table."""
    progress = Progress()
    progress("drawing subscriptions")
    world = read_world(args, args.batches * _BATCH)
    index = make_index("lanes", {})
    insert(index, world.subscriptions, np.arange(world.subscriptions.n), show_share("inserting them"))
    first, *others = lines()
    chosen = [first, *(line for line in others if not args.only or line.name in args.only.split(","))]
    made = [(line.name, *world.tables(line, args.seed, show_share(f"filters: {line.name}"))) for line in chosen]
    batches = world.batches(args.batches)
    spent = {name: np.full(len(batches), np.iinfo(np.int64).max) for name, _, _ in made}
    matched = {}
    for number in range(args.rounds):
        progress(f"round {number + 1} of {args.rounds}")
        for name, filters, regions in made:
            found, pairs = match_batches(index, filters, regions, batches)
            np.minimum(spent[name], found, out=spent[name])
            matched[name] = sum(len(slots) for _, slots in pairs)
    progress.end()
    _print({name: (int(of.sum()), matched[name]) for name, of in spent.items()}, world)


def match_batches(
    index: Any, filters: Filters, regions: RegionTable, batches: Sequence[tuple[MessageBatch, Details]]
) -> tuple[np.ndarray, list[tuple[np.ndarray, np.ndarray]]]:
    """Return the CPU time of each batch, ns (int64[batches]), and what was found: rows of messages, and slots."""
    terms = MessageTerms(Settings())
    spent, pairs = np.zeros(len(batches), np.int64), []
    with quiet():
        for number, (messages, details) in enumerate(batches):
            began = time.process_time_ns()
            found, slots = index.match(messages)
            if len(regions) and len(slots):
                kept = regions.touches(slots, found, messages.lat, messages.lon)
                found, slots = found[kept], slots[kept]
            if filters and len(slots):
                found, slots = filters.keep(messages, details, terms.of(details), found, slots)
            spent[number] = time.process_time_ns() - began
            pairs.append((found, slots))
    return spent, pairs


def _print(found: dict[str, tuple[int, int]], world: FilterWorld) -> None:
    (base, candidates), *_ = found.values()
    each_of = max(1, candidates)
    n = world.messages.n
    print(f"{world.subscriptions.n:,} subscriptions with two words, {n:,} messages, {candidates / n:.1f} candidates each")
    print(f"{'':<20}{'us/message':>11}{'ratio':>7}{'goal':>6}{'matches':>9}{'ns/candidate':>14}{'more':>7}{'ns/match':>10}{'ratio':>7}")
    for name, (ns, matches) in found.items():
        goal = f"{_GOALS[name]:.1f}" if name in _GOALS else ""
        each_match = ns / max(1, matches)
        each = f"{ns / each_of:>14.0f}{(ns - base) / each_of:>7.0f}{each_match:>10.0f}{each_match * each_of / base:>7.2f}"
        print(f"{name:<20}{ns / 1e3 / n:>11.2f}{ns / base:>7.2f}{goal:>6}{matches / n:>9.1f}{each}")
