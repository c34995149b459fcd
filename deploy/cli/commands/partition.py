"""``dskype partition``: learn distribution plans, show them, change them by hand or by a monitor, and send them to a running topology.

The help of its options names the distributors, so the module imports them, and numpy with them, at the top.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dskype.bolts.boolean import INDEXES
from dskype.deploy.cli import advice_text, partition_map
from dskype.deploy.cli.arguments import (
    Actions,
    UsageError,
    client_options,
    conf_item,
    integer,
    json_value,
    offline_settings,
    open_client,
    output,
    positive,
    positive_seconds,
    share,
    target,
)
from dskype.deploy.client import plan_picture
from dskype.deploy.client.advice import Costs, advise
from dskype.deploy.client.balancing import Band, balance, watch
from dskype.deploy.client.calibration import calibrate
from dskype.deploy.client.plans import SUBSCRIPTION_BOLT, component_tasks, distributor_of, partitioned, read_current, send_plan, with_partitions
from dskype.deploy.machine import cluster, paths
from dskype.deploy.machine.terminal import counted, put, say
from dskype.distribution import DISTRIBUTORS, HasPartitions, distributor_class, make_distributor, read_plan
from dskype.distribution.agrid.distributor import AGridDistributor
from dskype.distribution.base import TAKEOVER
from dskype.distribution.hybrid.distributor import HybridDistributor
from dskype.distribution.hybrid.gridt_distributor import GridtDistributor
from dskype.distribution.hybrid.loads import LoadModel
from dskype.distribution.hybrid.migration import SELECTIONS
from dskype.distribution.learning.sampling import make_sample, read_records, read_sample
from dskype.distribution.methods.partitioned import measure
from dskype.spouts.vocabulary import Vocabulary
from dskype.topology.errors import IllegalArgumentException

_ADVISED = 20_000
"""The most messages and subscriptions that advice is based on, so that it does not take long."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the actions."""
    actions = Actions(parser)
    actions.add("learn", _learn, "learn a plan from a sample", _learn_arguments)
    actions.add("calibrate", _calibrate, "measure what messages and subscriptions cost on this machine, for the distributor hybrid", _calibrate_arguments)
    actions.add("advise", _advise, "recommend a distributor for a sample, with its plan and the reasons", _advise_arguments)
    actions.add("show", _show, "show a plan: the topology's, or that of a file", _show_arguments)
    actions.add("split", _split, "give half of a partition to another task", _split_arguments)
    actions.add("divide", _divide, "divide the words of a zone with another task (hybrid)", _divide_arguments)
    actions.add("merge", _merge, "give a partition to the tasks of another one", _merge_arguments)
    actions.add("adjust", _adjust, "move parts of the most loaded tasks to the least loaded ones, by a recent sample (hybrid)", _adjust_arguments)
    actions.add("shift", _shift, "give some cells of a partition to a neighbour (agrid)", _shift_arguments)
    actions.add("publish", _publish, "change the running topology to a plan", _publish_arguments)
    actions.add("finish", _finish, "move the subscriptions that a takeover has left where they were", client_options)
    actions.add("watch", _watch, "keep the tasks' loads balanced: split and merge partitions of the running topology", _watch_arguments)


# --- arguments --------------------------------------------------------------------------------------------------------


def _learn_arguments(parser: argparse.ArgumentParser) -> None:
    client_options(parser)
    parser.add_argument("--distributor", metavar="NAME", required=True, help=", ".join(sorted(DISTRIBUTORS)))
    parser.add_argument("--tasks", metavar="N", type=positive, required=True, help="tasks of the subscription bolt")
    parser.add_argument("--option", metavar="KEY=JSON", type=conf_item, action="append", default=[], help="an option of the distributor; repeatable")
    _sample_options(parser, required=True)
    _output_options(parser)


def _calibrate_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--index", metavar="NAME", choices=sorted(INDEXES), default="lanes", help="dskype.boolean.index; default: lanes")
    parser.add_argument("--seed", type=int, default=0, help="default: 0")
    output(parser)


def _advise_arguments(parser: argparse.ArgumentParser) -> None:
    client_options(parser)
    parser.add_argument("--tasks", metavar="N", type=positive, required=True, help="tasks of the subscription bolt")
    parser.add_argument("--expected", metavar="N", type=positive, help="how many subscriptions there will be; default: as many as in the file")
    parser.add_argument(
        "--costs", metavar="JSON", type=json_value, default={}, help="what 'partition calibrate -o json' printed; default: what was measured once"
    )
    _sample_options(parser, required=True)
    _output_options(parser)


def _show_arguments(parser: argparse.ArgumentParser) -> None:
    client_options(parser)
    parser.add_argument("plan", metavar="FILE", nargs="?", help="default: the plan of the running topology")
    parser.add_argument("--picture", metavar="SVG", help="draw it: cells on a map, ranges of keywords as bars")
    parser.add_argument("--messages", metavar="FILE", help="messages, as 'publish' takes them: dots on the map")
    parser.add_argument("--map", action="store_true", help="print a map in which each character is the task of a place (agrid)")
    parser.add_argument("--force", action="store_true", help="replace SVG")
    output(parser)


def _split_arguments(parser: argparse.ArgumentParser) -> None:
    _change_arguments(parser, "partition", "task")
    _sample_options(parser, required=False)


def _divide_arguments(parser: argparse.ArgumentParser) -> None:
    _change_arguments(parser, "partition", "task")


def _adjust_arguments(parser: argparse.ArgumentParser) -> None:
    _change_arguments(parser)
    _sample_options(parser, required=True)
    parser.add_argument("--selection", choices=sorted(SELECTIONS), default="moves", help="what chooses the parts that are moved; default: moves")
    parser.add_argument(
        "--option", metavar="KEY=JSON", type=conf_item, action="append", default=[], help="an option of the distributor, e.g. costs; repeatable"
    )


def _merge_arguments(parser: argparse.ArgumentParser) -> None:
    _change_arguments(parser, "one", "other")


def _shift_arguments(parser: argparse.ArgumentParser) -> None:
    _change_arguments(parser, "giver", "taker")
    parser.add_argument("--at", metavar="LINE", type=integer("a number from 0"), help="the column or row where the border will be; default: a corner shift")


def _change_arguments(parser: argparse.ArgumentParser, *numbers: str) -> None:
    client_options(parser)
    for name in numbers:
        text = "a task's index, from 0" if name == "task" else "a partition's number in 'partition show'"
        parser.add_argument(name, metavar=name.upper(), type=integer("a number from 0"), help=text)
    parser.add_argument("--plan", metavar="FILE", help="default: the plan of the running topology")
    _output_options(parser)
    parser.add_argument("--publish", action="store_true", help="change the running topology to the new plan")


def _publish_arguments(parser: argparse.ArgumentParser) -> None:
    client_options(parser)
    parser.add_argument("plan", metavar="FILE")
    parser.add_argument(
        "--takeover",
        metavar="REST",
        type=share,
        help="use the plan for new subscriptions only, until this share of the older ones is left (0 to 1); then move these. Default: move all at once",
    )


def _watch_arguments(parser: argparse.ArgumentParser) -> None:
    client_options(parser)
    parser.add_argument("--interval", metavar="SECS", type=positive_seconds, default=10, help="how often loads are measured; default: 10")
    parser.add_argument("--high", metavar="X", type=float, default=1.5, help="begin when max / mean is above X; default: 1.5")
    parser.add_argument("--low", metavar="X", type=float, default=1.2, help="end when it is below X; default: 1.2")
    parser.add_argument("--patience", metavar="N", type=positive, default=3, help="measurements above --high before a change, and to wait after it; default: 3")
    parser.add_argument(
        "--least", metavar="X", type=float, default=0.1, help="change nothing while no task is busy for more than this share of the time; default: 0.1"
    )
    parser.add_argument("--component", metavar="ID", default=SUBSCRIPTION_BOLT, help=f"default: {SUBSCRIPTION_BOLT}")
    parser.add_argument("--count", metavar="N", type=positive, help="end after N measurements")
    parser.add_argument("--dry-run", action="store_true", help="say what would be done, change nothing")


def _sample_options(parser: argparse.ArgumentParser, required: bool) -> None:
    parser.add_argument("--messages", metavar="FILE", required=required, help="a sample of messages, as 'publish' takes them")
    parser.add_argument("--subscriptions", metavar="FILE", required=required, help="a sample of subscriptions: JSON lines with an id")
    parser.add_argument("--vocabulary", metavar="FILE", help="default: that of the configuration")


def _output_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-o", "--output", metavar="OUT", help="the file of the new plan")
    parser.add_argument("--force", action="store_true", help="replace OUT")


# --- the actions ------------------------------------------------------------------------------------------------------


def _warn(text: str) -> None:
    say(f"warning: {text}")


def _sample(args: argparse.Namespace, settings: Any) -> Any:
    if (args.messages is None) != (args.subscriptions is None):
        raise UsageError("expected --messages and --subscriptions, or neither")
    if args.messages is None:
        return None
    path = args.vocabulary or settings.vocabulary
    return read_sample(args.messages, args.subscriptions, Vocabulary.load(path, settings.analyzer()) if path else Vocabulary.empty(), settings, _warn)


def _check_free(path: str | None, force: bool) -> None:
    """Refuse a file that is there already, before the work that it is for.

    :raises IllegalArgumentException: it is there, and ``force`` is False.
    """
    if path is not None and os.path.exists(path) and not force:
        raise IllegalArgumentException(f"{path} exists already.", given=path, hint="name another file, or --force")


def _write(path: str, text: str, force: bool) -> None:
    _check_free(path, force)
    paths.write_whole(Path(path), text)


def _learn(args: argparse.Namespace) -> int:
    if args.output is None:
        raise UsageError("expected -o OUT")
    kind, options = distributor_class(args.distributor), dict(args.option)
    _check_free(args.output, args.force)
    sample = _sample(args, offline_settings(args))
    plan = kind.learn(args.tasks, sample, options)
    _write(args.output, json.dumps(plan), args.force)
    found = measure(make_distributor(args.distributor, args.tasks, options, plan), sample)
    say(
        f"{args.output}: {args.distributor} on {counted(args.tasks, 'task')}, from {counted(sample.messages.n, 'message')} and "
        f"{counted(sample.n, 'subscription')}: {found.replication:.2f} tasks per subscription, {found.communication:.2f} per message, "
        f"greatest load / mean {found.balance:.2f}"
    )
    return 0


def _calibrate(args: argparse.Namespace) -> int:
    costs = calibrate(args.index, seed=args.seed)._asdict()
    if args.output == "json":
        put(json.dumps(costs))
        return 0
    for name, value in costs.items():
        put(f"{name:<12} {value:>12.6g}")
    put(f"learn a plan with them: dskype partition learn --distributor hybrid --option 'costs={json.dumps(costs)}' ...")
    return 0


def _advise(args: argparse.Namespace) -> int:
    _check_free(args.output, args.force)
    settings = offline_settings(args)
    path = args.vocabulary or settings.vocabulary
    if args.output is not None and not path:
        raise UsageError(
            "expected --vocabulary with -o: a plan names words by their numbers in the topology's vocabulary; 'dskype vocabulary build FILE -o OUT' makes one"
        )
    costs = Costs(LoadModel.checked("hybrid", args.costs))
    messages, subscriptions = read_records(args.messages, args.subscriptions, settings, _ADVISED, _warn)
    vocabulary = Vocabulary.load(path, settings.analyzer()) if path else Vocabulary.build([one.text for one in messages], settings.analyzer())
    sample = make_sample(messages, subscriptions, vocabulary, settings)
    window = settings.extent if settings.window_kind == "count" else sample.messages.n
    say(f"comparing on {counted(sample.messages.n, 'message')} and {counted(sample.n, 'subscription')}")
    found = advise(sample, min(window, sample.messages.n), args.tasks, args.expected or sample.n, costs)
    for line in advice_text.lines(found, args.output):
        put(line)
    if args.output is not None:
        _write(args.output, json.dumps(found.plan), args.force)
    return 0


def _show(args: argparse.Namespace) -> int:
    version = None
    if args.plan is not None:
        plan = read_plan(args.plan)
    else:
        with open_client(args) as client:
            version, plan = read_current(client)
    distributor = distributor_of(plan)
    rows = distributor.partitions() if isinstance(distributor, HasPartitions) else []
    if args.picture:
        if not rows:
            with_partitions(plan)
        _write(args.picture, plan_picture.draw(plan, messages=plan_picture.places_of(args.messages, offline_settings(args))), args.force)
    loads = distributor.loads()
    if args.output == "json":
        put(
            json.dumps(
                {
                    "version": version,
                    "distributor": plan["distributor"],
                    "tasks": plan["tasks"],
                    "loads": loads.tolist(),
                    "balance": balance(loads),
                    "partitions": rows,
                }
            )
        )
        return 0
    put(
        f"{plan['distributor']} on {counted(plan['tasks'], 'task')}"
        + ("" if version is None else f", version {version}")
        + f"; greatest load / mean {balance(loads):.2f}"
    )
    if rows:
        put(f"{'partition':>9}  {'tasks':<10} {'load':>12}  covers")
    for row in rows:
        put(f"{row['number']:>9}  {','.join(map(str, row['tasks'])):<10} {row['load']:>12,.1f}  {_covers(row)}")
    for line in partition_map.draw(plan) if args.map else ():
        put(line)
    return 0


def _covers(row: Mapping[str, Any]) -> str:
    parts = []
    if "box" in row:
        west, south, east, north = row["box"]
        for name, low, high in (("lat", south, north), ("lon", west, east)):
            if low is not None or high is not None:
                parts.append(f"{name} {'' if low is None else f'{low:.3f}'}..{'' if high is None else f'{high:.3f}'}")
    if "terms" in row:
        first, end = row["terms"]
        parts.append(f"words {first:,}.." + ("" if end is None else f"{end - 1:,}"))
    if "named" in row:
        parts.append(f"{row['named']:,} words and {row['share']:.0%} of all others")
    return ", ".join(parts) or "everything"


def _change(args: argparse.Namespace, change: Callable[[HasPartitions, Any], dict[str, Any]]) -> int:
    if args.output is None and not args.publish:
        raise UsageError("expected -o OUT, --publish or both")
    _check_free(args.output, args.force)
    if args.plan is not None and not args.publish:
        plan = change(with_partitions(read_plan(args.plan)), _sample(args, offline_settings(args)) if hasattr(args, "messages") else None)
    else:
        with open_client(args) as client:
            version, plan = read_current(client)
            if args.plan is not None:
                plan = _require_fitting(read_plan(args.plan), plan)
            plan = change(with_partitions(plan), _sample(args, client.settings) if hasattr(args, "messages") else None)
            if args.publish:
                say(f"version {send_plan(client, version, plan)} is sent to {client.name}")
    if args.output is not None:
        _write(args.output, json.dumps(plan), args.force)
    loads = np.array(plan["loads"])
    say(f"{counted(len(with_partitions(plan).partitions()), 'partition')}; greatest load / mean {balance(loads):.2f} as the plan estimates it")
    return 0


def _require_fitting(plan: dict[str, Any], current: Mapping[str, Any]) -> dict[str, Any]:
    """Return a plan that is to take the place of the current one.

    :raises IllegalArgumentException: the topology would refuse it.
    """
    for key in ("distributor", "tasks"):
        if plan[key] != current[key]:
            raise IllegalArgumentException("The plan does not fit the running topology.", given=f"{key} {plan[key]}", legal=current[key])
    return plan


def _split(args: argparse.Namespace) -> int:
    return _change(args, lambda distributor, sample: distributor.split(args.partition, args.task, sample))


def _divide(args: argparse.Namespace) -> int:
    def change(distributor: HasPartitions, _: Any) -> dict[str, Any]:
        if not isinstance(distributor, GridtDistributor):
            legal = ", ".join(sorted(name for name, kind in DISTRIBUTORS.items() if issubclass(kind, GridtDistributor)))
            raise IllegalArgumentException("The words of these partitions cannot be divided.", given=distributor.name, legal=legal)
        return distributor.divide(args.partition, args.task)

    return _change(args, change)


def _adjust(args: argparse.Namespace) -> int:
    def change(distributor: HasPartitions, sample: Any) -> dict[str, Any]:
        if not isinstance(distributor, HybridDistributor):
            raise IllegalArgumentException("The loads of these partitions cannot be adjusted.", given=distributor.name, legal="hybrid")
        adapted = HybridDistributor(distributor.tasks, dict(args.option), distributor.plan())
        plan, found = adapted.adjusted(sample, args.selection)
        say(f"{counted(found.moved, 'subscription')} of the sample moved, in {counted(found.rounds, 'round')}")
        return plan

    return _change(args, change)


def _merge(args: argparse.Namespace) -> int:
    return _change(args, lambda distributor, _: distributor.merge(args.one, args.other))


def _shift(args: argparse.Namespace) -> int:
    def change(distributor: HasPartitions, _: Any) -> dict[str, Any]:
        if not isinstance(distributor, AGridDistributor):
            raise IllegalArgumentException("Only partitions of an A-Grid have borders that can be shifted.", given=distributor.name, legal="agrid")
        return distributor.shift(args.giver, args.taker, args.at)

    return _change(args, change)


def _publish(args: argparse.Namespace) -> int:
    plan = read_plan(args.plan)
    with open_client(args) as client:
        version, current = read_current(client)
        distributor_of(_require_fitting(plan, current))
        sent = send_plan(client, version, plan if args.takeover is None else {**plan, TAKEOVER: args.takeover})
        say(f"version {sent} is sent to {client.name}")
    return 0


def _finish(args: argparse.Namespace) -> int:
    with open_client(args) as client:
        version, plan = read_current(client)
        say(f"version {send_plan(client, version, plan)} is sent to {client.name}: the same plan, which ends the takeover")
    return 0


def _watch(args: argparse.Namespace) -> int:
    band = Band(args.high, args.low, args.patience)
    with open_client(args) as client:
        partitioned(read_current(client)[1])
        tasks, nimbus = component_tasks(client, args.component), cluster.client(target(args))

        def busy() -> dict[int, int]:
            return {task: report["busy_ns"] for task, report in nimbus.stats(client.name).tasks.items() if report["component"] == args.component}

        def in_force() -> int:
            versions = [(report.get("metrics") or {}).get("plan_version") for report in nimbus.stats(client.name).tasks.values()]
            return min((version for version in versions if version is not None), default=0)

        watch(
            busy,
            tasks,
            lambda: read_current(client),
            None if args.dry_run else lambda version, plan: send_plan(client, version, plan),
            band,
            interval_s=args.interval,
            count=args.count,
            least=args.least,
            in_force=in_force,
        )
    return 0
