"""``dskype advise``: watch a running topology, and say what to change; with ``--apply`` do what can be done while it runs."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from dskype.deploy.cli.arguments import common, output, positive_seconds, target
from dskype.deploy.machine import cluster
from dskype.deploy.machine.terminal import put, say

if TYPE_CHECKING:
    from dskype.deploy.capacity.rules import ComponentLoad, Measures, Recommendation

_SECONDS = 15
_ATTEMPTS = 6
"""So often a topology is watched after a rebalance, until its new processes have reported."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    common(parser)
    parser.add_argument("name", metavar="TOPOLOGY", nargs="?", help="default: the only one that runs")
    parser.add_argument("--seconds", metavar="SECS", type=positive_seconds, default=_SECONDS, help=f"how long it is watched; default: {_SECONDS}")
    parser.add_argument("--apply", action="store_true", help="rebalance executors as advised, and watch again")
    output(parser)


def run(args: argparse.Namespace) -> int:
    """Watch, and print what to change; change it if that is asked for, and print what came of it."""
    from dskype.deploy.capacity.rules import recommend
    from dskype.deploy.capacity.watching import watch

    kafka = cluster.reach(target(args))
    say(f"watching for {args.seconds:g} s")
    seen = watch(kafka, args.name, args.seconds)
    found = recommend(seen.measures)
    changes = {component: n for one in found for component, n in one.executors.items()} if args.apply else {}
    told = document(seen.id, seen.measures, found)
    if args.output != "json":
        for line in lines(seen.measures, found):
            put(line)
        if args.apply and not changes:
            say("nothing of this can be done while the topology runs")
    if changes:
        after = _changed(kafka, seen.measures.topology, changes, args.seconds)
        told |= {"applied": changes, "after": _measured(after)}
        if args.output != "json":
            put("")
            for line in table(after):
                put(line)
    if args.output == "json":
        put(json.dumps(told, indent=2))
    return 0


def _changed(kafka: Any, topology: str, executors: dict[str, int], seconds: float) -> Measures:
    """Rebalance a topology, and return what is seen of it then."""
    from dskype.deploy.capacity.watching import NotRunningError, await_executors, watch
    from dskype.topology.runtime.nimbus.nimbus_topic import ClusterClient

    say(f"rebalancing {topology}: {', '.join(f'{component}={n}' for component, n in executors.items())}")
    ClusterClient(kafka).send({"name": topology, "event": "REBALANCE", "wait_secs": 0, "workers": None, "executors": executors})
    await_executors(kafka, topology, executors)
    say(f"watching again for {seconds:g} s")
    for _ in range(_ATTEMPTS - 1):
        with suppress(NotRunningError):  # the new processes have not reported yet
            after = watch(kafka, topology, seconds).measures
            if not executors.keys() & after.silent.keys():  # otherwise the newest reports were of the processes before
                return after
    return watch(kafka, topology, seconds).measures


# -- what is printed -------------------------------------------------------------------------------------------------------


def document(id: str, measures: Measures, found: list[Recommendation]) -> dict[str, Any]:
    """Return what ``-o json`` prints."""
    from dskype.deploy.capacity.rules import why_nothing

    return {
        "v": 1,
        "topology": measures.topology,
        "id": id,
        **_measured(measures),
        "advice": [asdict(one) for one in found],
        "nothing": None if found else why_nothing(measures),
    }


def _measured(measures: Measures) -> dict[str, Any]:
    return {
        "window_s": round(measures.seconds, 1),
        "demand": round(measures.demand, 3),
        "processors": None if measures.processors is None else measures.processors._asdict(),
        "components": [
            {
                "component": c.component,
                "executors": [{"busy": round(sum(executor), 3), "tasks": [round(share, 3) for share in executor]} for executor in c.executors],
                "waiting": c.waiting[2],
                "growth_per_s": round(c.growth(measures.seconds), 1),
                "taken_per_s": round(c.taken_per_s, 1),
                "execute_ms": c.execute_ms,
            }
            for c in measures.components
        ],
        "unknown": measures.silent,
    }


def lines(measures: Measures, found: list[Recommendation]) -> Iterator[str]:
    """Yield the lines of text: what was seen, and what to change."""
    from dskype.deploy.capacity.rules import why_nothing

    yield from table(measures)
    yield ""
    for number, one in enumerate(found, 1):
        yield f"{number}. {one.what}"
        yield f"   Why: {one.why}"
        yield f"   Effect: {one.effect}"
        if one.command is not None:
            yield f"   {'Now' if one.when == 'now' else 'See'}: {one.command}"
        for name, value in one.settings.items():
            yield f"   At the next start: {name}: {value}"
    if not found:
        yield f"Nothing to change. {why_nothing(measures)}"


def table(measures: Measures) -> Iterator[str]:
    """Yield a line for each component."""
    processors = measures.processors
    at_work = "" if processors is None else f"; its {processors.number} processors were at work {processors.busy:.0%} of the time"
    yield f"{measures.topology}, watched for {measures.seconds:.0f} s{at_work}"
    width = max([9, *map(len, [*(c.component for c in measures.components), *measures.silent])])
    yield f"{'component':<{width}} {'tasks':>6} {'executors':>10} {'busiest task':>13} {'busiest executor':>17} {'taken/s':>10} {'waiting':>10}"
    for c in measures.components:
        yield (
            f"{c.component:<{width}} {len(c.tasks):>6} {len(c.executors):>10} {max(c.tasks, default=0):>13.0%} {c.busiest:>17.0%} "
            f"{c.taken_per_s:>10,.0f} {c.waiting[2]:>10,}{_growing(c, measures.seconds)}"
        )
    for component, why in measures.silent.items():
        yield f"{component:<{width}} unknown: {why}"


def _growing(load: ComponentLoad, seconds: float) -> str:
    grown = load.growth(seconds)
    return f" ({grown:+,.0f}/s)" if grown else ""
