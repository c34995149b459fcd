"""What filters cost the index and a subscription task: the same subscriptions with words and rectangles only, and with a filter more.

All lines have the same conditions in the same index, so that candidates are the same. Messages come in batches. In each round one line after another goes through all
of them, and the least time of each batch counts, so that others on the machine matter less.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dskype.bolts.boolean import make_index
from dskype.bolts.filters import Filters
from dskype.deploy.demo import places
from dskype.deploy.lab.boolean.filter_tasks import FilterTask, pairs_of
from dskype.deploy.lab.boolean.filter_world import FilterWorld, Line, lines
from dskype.deploy.lab.boolean.measure import insert
from dskype.deploy.lab.comparing import quiet, show_share
from dskype.deploy.lab.corpus import add_file_argument, read_rows
from dskype.deploy.machine.terminal import Progress
from dskype.spouts.batch import Details, MessageBatch
from dskype.spouts.message_terms import MessageTerms
from dskype.spouts.region_table import RegionTable
from dskype.spouts.settings import Settings
from dskype.topology.core.frames import OutRecords

__all__ = ["add_arguments", "match_batches", "read_world", "run"]

_GOALS = {"NOT": 1.1, "attribute": 1.3, "attribute that holds": 1.3, "string": 1.3, "circle": 1.3, "polygon": 2.0, "phrase": 1.5}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add_file_argument(parser)
    parser.add_argument("--subscriptions", type=int, default=1_000_000, help="how many subscriptions (default: 1,000,000)")
    parser.add_argument("--batches", type=int, default=40, help="how many batches of messages (default: 40)")
    parser.add_argument("--batch", type=int, default=256, help="messages in a batch (default: 256)")
    parser.add_argument("--rounds", type=int, default=7, help="how often each is measured; the least counts (default: 7)")
    parser.add_argument("--only", default="", help="names of filters, with commas between them (default: all)")
    parser.add_argument("--matches", default="each,grouped", help="how tasks publish matches, with a comma between; empty: no tasks (default: each,grouped)")
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
    """Measure all lines and print a table: of the index, and of a subscription task with each form of matches."""
    progress = Progress()
    progress("drawing subscriptions")
    world = read_world(args, args.batches * args.batch)
    first, *others = lines()
    chosen = [first, *(line for line in others if not args.only or line.name in args.only.split(","))]
    batches, n = world.batches(args.batches), world.messages.n
    spent, pairs = _of_index(world, chosen, batches, args)
    base, candidates = spent[first.name], max(1, len(pairs[first.name]))
    print(f"{world.subscriptions.n:,} subscriptions with two words, {n:,} messages in batches of {args.batch}, {candidates / n:.1f} candidates each")
    print(f"{'the index':<20}{_HEAD}{'ns/candidate':>14}{'more':>7}")
    for name, ns in spent.items():
        print(f"{_row(name, ns, base, len(pairs[name]), candidates, n)}{ns / candidates:>14.0f}{(ns - base) / candidates:>7.0f}")
    tasks: dict[str, FilterTask] = {}
    for form in args.matches.split(",") if args.matches else []:
        for line in chosen:  # one after the other, so that not all are there twice
            old, tell = tasks.pop(line.name, None), show_share(f"{form}: {line.name}")
            tasks[line.name] = FilterTask.registered(world, line, args.seed, form, tell) if old is None else old.continued(form)
        spent, written = _of_tasks(tasks, batches, pairs, args.rounds)
        base = spent[first.name]
        print(f"{f'a task, {form}':<20}{_HEAD}{'records':>9}{'bytes':>8}")
        for name, ns in spent.items():
            records, size = written[name]
            print(f"{_row(name, ns, base, len(pairs[name]), candidates, n)}{records / n:>9.1f}{size / n:>8.0f}")


def _of_index(
    world: FilterWorld, chosen: Sequence[Line], batches: Sequence[tuple[MessageBatch, Details]], args: argparse.Namespace
) -> tuple[dict[str, int], dict[str, np.ndarray]]:
    """Return for each line what the index, filters and regions alone take, ns, and the matches, in order: message, subscription, int64[m, 2]."""
    index = make_index("lanes", {})
    insert(index, world.subscriptions, np.arange(world.subscriptions.n), show_share("inserting them"))
    made = {line.name: world.tables(line, args.seed, show_share(f"filters: {line.name}")) for line in chosen}
    pairs = {}

    def measure(name: str) -> np.ndarray:
        spent, found = match_batches(index, *made[name], batches)
        pairs[name] = found
        return spent

    spent = _least(list(made), args.rounds, measure)
    starts = range(0, world.messages.n, args.batch)
    joined = {
        name: np.concatenate([np.stack((rows + start, slots), axis=1) for (rows, slots), start in zip(found, starts)]).astype(np.int64)
        for name, found in pairs.items()
    }
    return spent, {name: found[np.lexsort(found.T[::-1])] for name, found in joined.items()}


def _of_tasks(
    tasks: Mapping[str, FilterTask], batches: Sequence[tuple[MessageBatch, Details]], pairs: Mapping[str, np.ndarray], rounds: int
) -> tuple[dict[str, int], dict[str, tuple[int, int]]]:
    """Return for each line what its subscription task takes, ns, and how many records it writes, and bytes.

    :param pairs: the matches of each line, which must be found in the records.
    """
    written = {}
    for name, task in tasks.items():
        _, records = task.match(batches)
        assert np.array_equal(pairs_of(records), pairs[name]), f"the task finds other matches than the index: {name}"
        written[name] = _size(records)

    def measure(name: str) -> np.ndarray:
        spent, records = tasks[name].match(batches)
        assert _size(records)[0] == written[name][0], f"the task writes other records than before: {name}"
        return spent

    return _least(list(tasks), rounds, measure), written


def _size(records: Sequence[OutRecords]) -> tuple[int, int]:
    return sum(len(one.values) for one in records), sum(column.nbytes for one in records for column in (one.keys, one.values, *(of for _, of in one.headers)))


def _least(names: Sequence[str], rounds: int, measure: Callable[[str], np.ndarray]) -> dict[str, int]:
    """Measure one name after another in each round; return for each the sum of the least times of its batches, ns."""
    least: dict[str, np.ndarray] = {}
    progress = Progress()
    for number in range(rounds):
        progress(f"round {number + 1} of {rounds}")
        for name in names:
            found = measure(name)
            least[name] = np.minimum(least.get(name, found), found)
    progress.end()
    return {name: int(found.sum()) for name, found in least.items()}


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


_HEAD = f"{'us/message':>11}{'ratio':>7}{'goal':>6}{'matches':>9}{'ns/match':>10}{'ratio':>7}"


def _row(name: str, ns: int, base: int, matches: int, candidates: int, n: int) -> str:
    """Return the row of a line under ``_HEAD``; of the words and rectangles alone ``base`` is the time, and ``candidates`` the matches."""
    goal = f"{_GOALS[name]:.1f}" if name in _GOALS else ""
    each = ns / max(1, matches)
    return f"{name:<20}{ns / 1e3 / n:>11.2f}{ns / base:>7.2f}{goal:>6}{matches / n:>9.1f}{each:>10.0f}{each * candidates / base:>7.2f}"
