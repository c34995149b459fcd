"""Moves of partitions on Spark and Kafka (Tornado, and PS2Stream's Figures 12 to 16): throughput and latency before, during and after them, and what load balancing sends.

Three scenes, each with a topology of its own and boolean subscriptions. In the first part of a scene Kafka always has more messages than can be applied, which shows the throughput. In the second part
they come at a steady rate, however fast they are processed, which shows the latency.

1. *By hand.* With ``agrid`` the border of two partitions is shifted back and forth. With ``hybrid`` a hotspot moves, and the plan is adjusted by a sample of what has come lately, as
   ``dskype partition adjust --publish`` does. A move lasts from the moment at which its plan is sent until no distribution task has routes of the plan before it.
2. *By load.* A hotspot moves, with ``dskype.balance: auto`` and without. What balancing sends is the stream ``balance``, and the plans. With ``agrid`` it is compared with centralized balancing, which sends
   12 bytes for each cell with messages once in a period.

All tasks share the cores of this machine. So balanced tasks show in their busy times, and hardly in the throughput.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dskype.deploy.cli.arguments import output, positive, positive_seconds, seconds, share, target
from dskype.deploy.lab.boolean.learning import boolean_sample
from dskype.deploy.lab.dskype.spark import learned_plan
from dskype.deploy.lab.emulator.measure import print_table
from dskype.deploy.lab.experiments import HELD, ratio
from dskype.deploy.lab.ps2stream.simulation import Method
from dskype.deploy.lab.system import throughput, throughput_report
from dskype.deploy.lab.system.moves_scenes import EVALUATORS, ROUTING_UNITS, ByHand, ByLoad, Scene
from dskype.deploy.lab.system.throughput_arguments import add_verify
from dskype.deploy.machine.signals import end_on_sigterm
from dskype.deploy.machine.terminal import say
from dskype.distribution.hybrid.migration import SELECTIONS
from dskype.topology.local import LocalCluster

__all__ = ["add_arguments", "claims", "run"]

_DISTRIBUTORS = ("agrid", "hybrid")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the benchmark's own options, besides those of ``arguments.common``."""
    parser.add_argument(
        "--distributor", choices=_DISTRIBUTORS, default="agrid", help="agrid: partitions of equal size at first; hybrid: learned from a sample; default: agrid"
    )
    parser.add_argument("--selection", choices=sorted(SELECTIONS), default="moves", help="hybrid: what chooses the parts that are moved; default: moves")
    parser.add_argument("--subscriptions", type=positive, metavar="N", default=20_000, help="boolean subscriptions; default: 20000")
    parser.add_argument("--evaluators", type=positive, metavar="N", default=2, help="tasks of the subscription bolt; default: 2")
    parser.add_argument("--routing-units", type=positive, metavar="N", default=2, help="tasks of the distribution bolt; default: 2")
    parser.add_argument("--moves", type=positive, metavar="N", default=4, help="moves by hand, under full load and at a steady rate; default: 4")
    parser.add_argument("--warm-up", type=seconds, metavar="SECS", default=30, help="full load before each scene; default: 30")
    parser.add_argument("--seconds", type=positive_seconds, metavar="SECS", default=10, help="rest before and after a move; default: 10")
    parser.add_argument("--hot-seconds", type=seconds, metavar="SECS", default=30, help="how long each hotspot lasts; 0: no scene by load; default: 30")
    parser.add_argument(
        "--latency-load", type=share, metavar="SHARE", default=0.5, help="the steady rate, as a share of the throughput; 0: no such part; default: 0.5"
    )
    parser.add_argument("--period", type=positive, metavar="MS", default=1000, help="dskype.balance.period.ms; default: 1000")
    add_verify(parser, "at the end of each scene")
    parser.add_argument("--seed", type=int, default=0, help="default: 0")
    output(parser)


def run(args: argparse.Namespace) -> int:
    """Run all scenes; print tables or JSON.

    :returns: 0; 1 if components reported errors, messages were refused or results are wrong, so that the figures cannot be trusted.
    """
    where = target(args)
    end_on_sigterm()
    scenes: list[tuple[str, type[Scene], dict[str, Any]]] = [("by hand", ByHand, {})]
    if args.hot_seconds:
        scenes += [("without balancing", ByLoad, {}), ("with balancing", ByLoad, _balancing(args))]
    found: dict[str, Any] = {
        "machine": throughput_report.machine(),
        "distributor": args.distributor,
        "selection": args.selection,
        "subscriptions": args.subscriptions,
        "scenes": {},
    }
    pace = None
    with tempfile.TemporaryDirectory(prefix="dskype-moves-") as folder:
        asked = _throughput_arguments(args)
        vocabulary = throughput.build_vocabulary(asked, Path(folder))
        distributor = _distributor(args, asked, vocabulary, Path(folder))
        for name, kind, more in scenes:
            say(name)
            conf = throughput.configuration(asked, vocabulary) | distributor | more
            with LocalCluster(bootstrap_servers=where.bootstrap_servers, master=where.master, conf=where.conf, progress=say) as cluster:
                scene = kind(cluster, asked, args.subscriptions, conf)
                scene.options, scene.folder, scene.pace = args, Path(folder), pace
                found["scenes"][name] = scene.measure()
                pace = scene.pace
    found["claims"] = claims(found["scenes"], args.distributor)
    return throughput.finish(args.output, found, _print, found["scenes"])


def _balancing(args: argparse.Namespace) -> dict[str, Any]:
    """Return the configuration of load balancing that runs by itself."""
    found = {"dskype.balance": "auto", "dskype.balance.period.ms": args.period}
    return found if args.distributor == "agrid" else {**found, "dskype.balance.selection": args.selection}


def _distributor(args: argparse.Namespace, asked: argparse.Namespace, vocabulary: Path, folder: Path) -> dict[str, Any]:
    """Return the configuration of the distributor, with a learned plan for hybrid partitioning."""
    found: dict[str, Any] = {"dskype.distributor": args.distributor}
    if args.distributor == "agrid":
        return found
    say("learning a plan")
    plan = learned_plan(Method(args.distributor), args.evaluators, boolean_sample(asked, vocabulary, folder), folder / "plan.json")
    return {**found, "dskype.distributor.options": {"plan": str(plan)}}


def _throughput_arguments(args: argparse.Namespace) -> argparse.Namespace:
    """Return the arguments of the throughput benchmark, whose topology, feeder and warm-up are used."""
    options = ["--boolean", "--subscriptions", args.subscriptions, "--warm-up", args.warm_up, "--seconds", args.seconds, "--latency-seconds", 0]
    options += ["--seed", args.seed, "--tasks", f"{EVALUATORS}={args.evaluators}", "--tasks", f"{ROUTING_UNITS}={args.routing_units}"]
    options += ["--verify", args.verify] if args.verify else []
    return throughput.arguments_for(args, *options)


# --- what was found ---------------------------------------------------------------------------------------------------


def claims(scenes: Mapping[str, Mapping[str, Any]], distributor: str = "agrid") -> list[tuple[str, bool, str]]:
    """Return (claim, whether it held, the figures) for our goals, and of hybrid partitioning for those of PS2Stream."""
    found = []
    moves = [row for row in scenes.get("by hand", {}).get("moves", []) if "during" in row]
    if moves:
        shares = [row["during"] / max(1.0, row["before"]) for row in moves]
        mean = float(np.mean(shares))
        found.append(("throughput during a move >= 70 % of that before", mean >= 0.7, ", ".join(f"{share:.0%}" for share in shares) + f": mean {mean:.0%}"))
    sent = scenes.get("with balancing", {}).get("balancing", {})
    if "centralized_bytes_per_s" in sent:
        own = sent["reports_bytes_per_s"] + sent["plans_bytes_per_s"]
        times = sent["centralized_bytes_per_s"] / max(1.0, own)
        text = f"{own:,.0f} bytes/s against {sent['centralized_bytes_per_s']:,.0f}: 1/{times:.0f}"
        found.append(("balancing sends <= 1/20 of what centralized balancing sends", times >= 20, text))
    return found + _of_ps2stream(scenes) if distributor == "hybrid" else found


def _of_ps2stream(scenes: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, bool, str]]:
    found = []
    late = [row for scene in scenes.values() for row in scene.get("moves", ()) if "below_100_ms" in row]
    if late:
        soon, slow = (float(np.mean([row[name] for row in late])) for name in ("below_100_ms", "above_1_s"))
        text = f"{soon:.1%}, {slow:.1%} above 1 s, mean of {len(late)} adjustments"
        found.append(
            ("while subscriptions move, >= 80 % of the messages wait < 100 ms, and <= 4 % > 1 s (Figures 12c and 15)", soon >= 0.8 and slow <= 0.04, text)
        )
    last = [[row["later_per_s"] for row in scenes.get(name, {}).get("phases", ()) if "steady" not in row["phase"]][-1:] for name in _BY_LOAD]
    if all(last):
        (without,), (own,) = last
        found.append(
            (
                "with adjustment the throughput is 26 % higher in the end (Figure 16)",
                own >= 1.26 * without,
                f"{own:,.0f} : {without:,.0f} = {ratio(own, without):.2f}",
            )
        )
    return found


_BY_LOAD = ("without balancing", "with balancing")
_MOVED = {"partitions": "partitions", "changed": "new or changed", "moved": "subscriptions", "seconds": "seconds"}
_RATES = {"before": "messages/s before", "during": "during", "after": "after"}
_BYTES = {"transfers_bytes": "bytes of transfers", "placements_bytes": "of placements", "shortages_bytes": "of reports", "interest_bytes": "of interest"}
_SHARES = {"below_100_ms": "< 100 ms", "to_1_s": "100 to 1000 ms", "above_1_s": "> 1000 ms"}
_PHASES = {
    "per_s": "messages/s",
    "later_per_s": "in the second half",
    "busy": "busiest / mean",
    "later_busy": "in the second half",
    "decisions": "decisions",
    "transferred": "subscriptions moved",
}
_LOADS = {"full": ("under full load", _RATES), "steady": ("at a steady rate, and how long messages waited meanwhile", _SHARES)}


def _print(found: Mapping[str, Any]) -> None:
    scenes = found["scenes"]
    print(f"{found['distributor']}, {found['subscriptions']:,} boolean subscriptions")
    for name, scene in scenes.items():
        _print_moves(name, scene.get("moves", ()))
        if selected := scene.get("select_ms"):
            print(f"a new plan, selection {found['selection']}: {', '.join(f'{ms:,.0f}' for ms in selected)} ms for each adjustment")
    phases = [(f"{name}, {row['phase']}", row) for name, scene in scenes.items() for row in scene.get("phases", ())]
    for title, columns in (("A hotspot that moves", _PHASES), ("How long messages waited at a steady rate", _SHARES)):
        if some := [(name, row) for name, row in phases if set(columns) <= row.keys()]:
            print_table(title, ["", *columns.values()], [[name, *_cells(row, columns)] for name, row in some])
    if sent := scenes.get("with balancing", {}).get("balancing"):
        print_table("What balancing sends", list(sent), [_cells(sent, sent)])
    for claim, held, text in found["claims"]:
        print(f"{claim}: {HELD[held]}: {text}")
    for name, scene in scenes.items():
        if verified := scene.get("verified"):
            print(f"{name}: {verified['subscriptions']:,} subscriptions verified: {'all equal' if verified['ok'] else 'DIFFERENT'}")


def _print_moves(name: str, moves: Sequence[Mapping[str, Any]]) -> None:
    """Print the moves of a scene, numbered through: those under full load, those at a steady rate, and what all of them sent."""
    numbered = list(enumerate(moves, 1))
    for load, (text, columns) in _LOADS.items():
        if some := [(number, row) for number, row in numbered if row["load"] == load]:
            every = {**_MOVED, **columns}
            print_table(f"Moves {name}, {text}", ["move", *every.values()], [[str(number), *_cells(row, every)] for number, row in some])
    if numbered:
        print_table(f"What moves {name} sent", ["move", *_BYTES.values()], [[str(number), *_cells(row, _BYTES)] for number, row in numbered])


def _cells(row: Mapping[str, float], columns: Iterable[str]) -> list[str]:
    return [_cell(key, row[key]) if key in row else "-" for key in columns]


def _cell(key: str, value: float) -> str:
    if key in _SHARES:
        return f"{value:.1%}"
    return f"{value:,.2f}" if value < 100 and value != int(value) else f"{value:,.0f}"
