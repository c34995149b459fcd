"""``dskype advise``: watch a running topology, and say what to change; with ``--apply`` do what can be done while it runs."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator, Sequence, Set
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dskype.deploy.cli.arguments import common, output, positive_seconds, target
from dskype.deploy.machine import cluster, paths
from dskype.deploy.machine.terminal import put, say

if TYPE_CHECKING:
    from dskype.deploy.capacity.replanning import Plans
    from dskype.deploy.capacity.rules import ComponentLoad, Measures, Recommendation
    from dskype.deploy.client.advice import Candidate
    from dskype.deploy.client.pubsub import PubSub

_SECONDS = 15
_ATTEMPTS = 6
"""So often a topology is watched after a rebalance, until its new processes have reported."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    common(parser)
    parser.add_argument("name", metavar="TOPOLOGY", nargs="?", help="default: the only one that runs")
    parser.add_argument("--seconds", metavar="SECS", type=positive_seconds, default=_SECONDS, help=f"how long it is watched; default: {_SECONDS}")
    parser.add_argument("--apply", action="store_true", help="rebalance executors and change the plan as advised, and watch again")
    parser.add_argument("--plan", metavar="FILE", help="write the plan that is advised, of another distributor too")
    output(parser)


def run(args: argparse.Namespace) -> int:
    """Watch, and print what to change; change it if that is asked for, and print what came of it."""
    from dskype.deploy.capacity.rules import recommend
    from dskype.deploy.capacity.watching import watch
    from dskype.deploy.client.pubsub import PubSub
    from dskype.topology.errors import IllegalArgumentException

    if args.plan is not None and os.path.exists(args.plan):
        raise IllegalArgumentException(f"{args.plan} exists already.", given=args.plan, hint="name another file")
    kafka = cluster.reach(target(args))
    say(f"watching for {args.seconds:g} s")
    seen = watch(kafka, args.name, args.seconds)
    measures = seen.measures
    with PubSub(kafka, measures.topology) as client:
        plans = _plans(client, measures)
        found = recommend(measures, plans)
        told = document(seen.id, measures, found, plans)
        if args.output != "json":
            for line in lines(measures, found, plans):
                put(line)
        if args.plan is not None:
            _write_plan(args.plan, found, plans)
        if args.apply:
            told |= _apply(client, measures, found, plans, args)
    if args.output == "json":
        put(json.dumps(told, indent=2))
    return 0


def _plans(client: PubSub, measures: Measures) -> Plans | None:
    """Return what other plans would make the tasks do; None if they are even and none is full, or nothing is known of them."""
    if not measures.asks_for_plans:
        return None
    from kafka.errors import KafkaError

    from dskype.deploy.capacity.replanning import compare_plans
    from dskype.topology.errors import TopologyError

    say("comparing plans by the newest messages and subscriptions")
    try:
        return compare_plans(client)
    except (TopologyError, KafkaError, OSError) as error:
        say(f"plans are not compared: {error}")
        return None


def _write_plan(path: str, found: list[Recommendation], plans: Plans | None) -> None:
    kinds = {one.kind for one in found} if plans is not None else set()
    plan = plans.plan if plans is not None and "plan" in kinds else plans.others.plan if plans is not None and "distributor" in kinds else None
    if plan is None:
        say(f"{path} is not written: no plan is advised")
        return
    paths.write_whole(Path(path), json.dumps(plan))
    say(f"{path}: a plan of {plan['distributor']} for {plan['tasks']} tasks")


def _apply(client: PubSub, measures: Measures, found: list[Recommendation], plans: Plans | None, args: argparse.Namespace) -> dict[str, Any]:
    """Change what can be changed while the topology runs, watch again, and print what came of it; return what ``-o json`` prints of it."""
    executors = {component: n for one in found for component, n in one.executors.items()}
    planned = plans is not None and any(one.kind == "plan" for one in found)
    spread = any(one.kind == "hosts" and one.when == "now" for one in found)
    if not executors and not planned and not spread:
        say("nothing of this can be done while the topology runs")
        return {}
    from dskype.deploy.capacity.watching import NotRunningError

    topology, told = measures.topology, dict[str, Any]()
    if executors or spread:
        _rebalance(client.kafka, topology, executors)
        told["applied"] = executors
    if plans is not None and planned:
        from dskype.deploy.capacity import replanning

        version = replanning.send(client, plans)
        say(f"version {version} of the plan is sent to {topology}")
        replanning.await_plan(client.kafka, topology, version)
        say(f"version {version} is in force")
        told["applied_plan"] = version
    try:
        after = _watched_again(client.kafka, topology, {c.component for c in measures.components} if spread else executors.keys(), args.seconds)
    except NotRunningError as error:  # what was done has to be told all the same
        say(f"what came of it is not known: {error}")
        return told | {"after": None}
    if args.output != "json":
        put("")
        changed = [c.component for c in measures.components if spread or c.component in executors or (planned and c.component == measures.subscription_bolt)]
        for line in (*table(after), *compared(measures, after, changed)):
            put(line)
    return told | {"after": _measured(after)}


def _rebalance(kafka: Any, topology: str, executors: dict[str, int]) -> None:
    from dskype.deploy.capacity.watching import await_executors
    from dskype.topology.runtime.nimbus.nimbus_topic import ClusterClient

    say(f"rebalancing {topology}" + (f": {', '.join(f'{component}={n}' for component, n in executors.items())}" if executors else ""))
    ClusterClient(kafka).send({"name": topology, "event": "REBALANCE", "wait_secs": 0, "workers": None, "executors": executors})
    await_executors(kafka, topology, executors)


def _watched_again(kafka: Any, topology: str, renewed: Set[str], seconds: float) -> Measures:
    """Return what is seen of a topology that was changed.

    :param renewed: the components that have new processes.
    """
    from dskype.deploy.capacity.watching import NotRunningError, watch

    say(f"watching again for {seconds:g} s")
    for _ in range(_ATTEMPTS - 1):
        with suppress(NotRunningError):  # the new processes have not reported yet
            after = watch(kafka, topology, seconds).measures
            if not renewed & after.silent.keys():  # otherwise the newest reports were of the processes before
                return after
    return watch(kafka, topology, seconds).measures


# -- what is printed -------------------------------------------------------------------------------------------------------


def document(id: str, measures: Measures, found: list[Recommendation], plans: Plans | None = None) -> dict[str, Any]:
    """Return what ``-o json`` prints."""
    from dskype.deploy.capacity.rules import why_no_plan, why_nothing

    return {
        "v": 1,
        "topology": measures.topology,
        "id": id,
        **_measured(measures),
        "advice": [asdict(one) for one in found],
        "nothing": None if found else why_nothing(measures),
        "plans": None
        if plans is None
        else {
            "version": plans.version,
            "sample": {"messages": plans.messages, "subscriptions": plans.subscriptions, "registered": plans.registered},
            "candidates": [
                {
                    "plan": which,
                    "distributor": one.distributor,
                    "slowest_us": round(one.slowest_us, 4),
                    "balance": round(one.balance, 3),
                    "copies": round(one.communication, 3),
                    "replication": round(one.replication, 3),
                    "tasks_us": [round(us, 4) for us in one.tasks_us],
                }
                for which, one in _candidates(plans)
            ],
            "moved": round(plans.moved, 3),
            "why_not": why_no_plan(measures, plans),
        },
    }


def _candidates(plans: Plans) -> Iterator[tuple[str, Candidate]]:
    yield "in force", plans.present
    if plans.new is not None:
        yield "new", plans.new
    if plans.best.distributor != plans.present.distributor:
        yield "other", plans.best


def _measured(measures: Measures) -> dict[str, Any]:
    return {
        "window_s": round(measures.seconds, 1),
        "demand": round(measures.demand, 3),
        "hosts": {name: found._asdict() for name, found in measures.hosts.items()},
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


def lines(measures: Measures, found: list[Recommendation], plans: Plans | None = None) -> Iterator[str]:
    """Yield the lines of text: what was seen, what other plans would make of it, and what to change."""
    from dskype.deploy.capacity.rules import why_no_plan, why_nothing

    yield from table(measures)
    yield ""
    if plans is not None:
        yield from _plan_lines(plans)
        yield ""
    for number, one in enumerate(found, 1):
        yield f"{number}. {one.what}"
        yield f"   Why: {one.why}"
        yield f"   Effect: {one.effect}"
        if one.command is not None:
            yield f"   {'Now' if one.when == 'now' else 'See'}: {one.command}"
        for name, value in one.settings.items():
            yield f"   At the next start: {name}: {value}"
    if plans is not None and (reason := why_no_plan(measures, plans)) is not None:
        yield f"No new plan. {reason}"
    if not found:
        yield f"Nothing to change. {why_nothing(measures)}"


def _plan_lines(plans: Plans) -> Iterator[str]:
    """Yield a line for each plan that was compared."""
    yield (
        f"By the load model, for the newest {plans.messages:,} messages and {plans.subscriptions:,} of about {plans.registered:,} subscriptions; "
        "work of the busiest task for a message:"
    )
    yield f"{'plan':<10} {'distributor':<14} {'work us':>9} {'busiest / mean':>15} {'copies':>8} {'replication':>12}"
    for which, one in _candidates(plans):
        yield f"{which:<10} {one.distributor:<14} {one.slowest_us:>9.3f} {one.balance:>15.2f} {one.communication:>8.2f} {one.replication:>12.2f}"


def compared(before: Measures, after: Measures, components: Sequence[str | None]) -> Iterator[str]:
    """Yield a line for each component that was changed: what was measured before and after."""
    then = {c.component: c for c in after.components}
    for c in before.components:
        if c.component in components and (now := then.get(c.component)) is not None:
            yield (
                f"{c.component}: busiest executor {c.busiest:.0%} before, {now.busiest:.0%} after; busiest task {max(c.tasks):.0%} before, {max(now.tasks):.0%} after; "
                f"busiest task / mean {_balance(c):.2f} before, {_balance(now):.2f} after; {c.taken_per_s:,.0f}/s before, {now.taken_per_s:,.0f}/s after"
            )


def _balance(load: ComponentLoad) -> float:
    return max(load.tasks) * len(load.tasks) / sum(load.tasks) if sum(load.tasks) else 1.0


def table(measures: Measures) -> Iterator[str]:
    """Yield a line for each component."""
    hosts = [f"the {found.number} processors of {name} were at work {found.busy:.0%} of the time" for name, found in measures.hosts.items()]
    yield "; ".join([f"{measures.topology}, watched for {measures.seconds:.0f} s", *hosts])
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
