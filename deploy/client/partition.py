"""The verbs ``dskype partition ...``: plans of distributors are learned, shown, changed by hand or by a monitor, and sent to a running topology."""

from __future__ import annotations

import argparse
import json
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dskype.deploy.cli.arguments import UsageError, conf_item, counted, output, positive, positive_seconds, say, target
from dskype.deploy.cli.lines import layers, open_client
from dskype.distribution import DISTRIBUTORS, Partitioned, distributor_class, make_distributor, read_plan, start_distributor
from dskype.topology.errors import IllegalArgumentException, TopologyError, explain

__all__ = ["Band", "Change", "add_arguments", "balance", "decide", "read_current", "watch"]

_SUBSCRIPTION_BOLT = "subscription-bolt"

_RECORD_BYTES = 1_000_000
"""Brokers take records of up to 1 MiB by default, with their headers."""


# --- arguments --------------------------------------------------------------------------------------------------------


def add_arguments(action: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the actions of ``partition``.

    :param action: makes one: ``action(name, run, text, parents=[...])``.
    """
    learn = action("learn", _learn, "learn a plan from a sample")
    learn.add_argument("--distributor", metavar="NAME", required=True, help=", ".join(sorted(DISTRIBUTORS)))
    learn.add_argument("--tasks", metavar="N", type=positive, required=True, help="tasks of the subscription bolt")
    learn.add_argument("--option", metavar="KEY=JSON", type=conf_item, action="append", default=[], help="an option of the distributor; repeatable")
    _sample_options(learn, required=True)
    _output_options(learn)
    show = action("show", _show, "show a plan: the topology's, or that of a file")
    show.add_argument("plan", metavar="FILE", nargs="?", help="default: the plan of the running topology")
    show.add_argument("--picture", metavar="SVG", help="draw it: cells on a map, ranges of keywords as bars")
    show.add_argument("--messages", metavar="FILE", help="JSON lines: dots on the map")
    show.add_argument("--force", action="store_true", help="replace SVG")
    output(show)
    for name, run_, text, given in (
        ("split", _split, "give half of a partition to another task", ("partition", "task")),
        ("merge", _merge, "give a partition to the tasks of another one", ("one", "other")),
    ):
        parser = action(name, run_, text)
        for number in given:
            parser.add_argument(
                number, metavar=number.upper(), type=_number, help="a task's index, from 0" if number == "task" else "a number of 'partition show'"
            )
        parser.add_argument("--plan", metavar="FILE", help="default: the plan of the running topology")
        if name == "split":
            _sample_options(parser, required=False)
        _output_options(parser)
        parser.add_argument("--publish", action="store_true", help="let the running topology change to it")
    publish = action("publish", _publish, "let the running topology change to a plan")
    publish.add_argument("plan", metavar="FILE")
    watching = action("watch", _watch, "keep the tasks' loads balanced: split and merge partitions of the running topology")
    watching.add_argument("--interval", metavar="SECS", type=positive_seconds, default=10, help="how often loads are measured; default: 10")
    watching.add_argument("--high", metavar="X", type=float, default=1.5, help="begin when max / mean is above; default: 1.5")
    watching.add_argument("--low", metavar="X", type=float, default=1.2, help="end when it is below; default: 1.2")
    watching.add_argument("--patience", metavar="N", type=positive, default=3, help="so many measurements in a row, and so many after each change; default: 3")
    watching.add_argument(
        "--least", metavar="X", type=float, default=0.1, help="change nothing while no task is busy for more than this share of the time; default: 0.1"
    )
    watching.add_argument("--component", metavar="ID", default=_SUBSCRIPTION_BOLT, help=f"default: {_SUBSCRIPTION_BOLT}")
    watching.add_argument("--count", metavar="N", type=positive, help="end after so many measurements")
    watching.add_argument("--dry-run", action="store_true", help="say what would be done, change nothing")


def _sample_options(parser: argparse.ArgumentParser, required: bool) -> None:
    parser.add_argument("--messages", metavar="FILE", required=required, help="a sample of messages: JSON lines")
    parser.add_argument("--subscriptions", metavar="FILE", required=required, help="a sample of subscriptions: JSON lines with an id")
    parser.add_argument("--vocabulary", metavar="FILE", help="default: that of the configuration")


def _output_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-o", "--output", metavar="OUT", help="the file of the new plan")
    parser.add_argument("--force", action="store_true", help="replace OUT")


def _number(text: str) -> int:
    if not text.strip().isdecimal():
        raise argparse.ArgumentTypeError(f"expected a number from 0, given: {text!r}")
    return int(text)


# --- plans ------------------------------------------------------------------------------------------------------------


def balance(loads: np.ndarray) -> float:
    """Return the greatest load through the mean; 1 without any load."""
    return float(loads.max() / loads.mean()) if loads.any() else 1.0


def _settings(args: argparse.Namespace, client: Any = None) -> Any:
    from dskype.spouts.settings import Settings

    if client is not None:
        return client.settings
    below, conf, above = layers(args)
    return Settings.from_conf({**below, **(conf or {}), **above})


def _sample(args: argparse.Namespace, settings: Any) -> Any:
    from dskype.distribution.sampling import read_sample
    from dskype.spouts.vocabulary import Vocabulary

    if (args.messages is None) != (args.subscriptions is None):
        raise UsageError("expected --messages and --subscriptions, or neither")
    if args.messages is None:
        return None
    path = args.vocabulary or settings.vocabulary
    return read_sample(args.messages, args.subscriptions, Vocabulary.load(path) if path else Vocabulary.empty(), settings)


def _write(path: str, text: str, force: bool) -> None:
    if os.path.exists(path) and not force:
        raise IllegalArgumentException(explain(f"{path} is there already.", given=path, hint="name another file, or --force"))
    partial = Path(f"{path}.partial")
    partial.write_text(text, encoding="utf-8")
    os.replace(partial, path)


def _distributor(plan: Mapping[str, Any]) -> Any:
    """Return the distributor of a plan."""
    return make_distributor(plan["distributor"], plan["tasks"], plan=plan)


def _partitioned(plan: Mapping[str, Any]) -> Partitioned:
    found = _distributor(plan)
    if not isinstance(found, Partitioned):
        raise IllegalArgumentException(
            explain(
                "This distributor has no partitions.",
                given=plan["distributor"],
                legal=", ".join(sorted(name for name, kind in DISTRIBUTORS.items() if issubclass(kind, Partitioned))),
            )
        )
    return found


def _learn(args: argparse.Namespace) -> int:
    if args.output is None:
        raise UsageError("expected -o OUT")
    kind, options = distributor_class(args.distributor), dict(args.option)
    if os.path.exists(args.output) and not args.force:
        _write(args.output, "", False)
    sample = _sample(args, _settings(args))
    plan = kind.learn(args.tasks, sample, options)
    _write(args.output, json.dumps(plan), args.force)
    from dskype.distribution.partitioned import measure

    found = measure(make_distributor(args.distributor, args.tasks, options, plan), sample)
    say(
        f"{args.output}: {args.distributor} on {counted(args.tasks, 'task')}, from {counted(sample.messages.n, 'message')} and "
        f"{counted(sample.n, 'subscription')}: {found.replication:.2f} tasks per subscription, {found.communication:.2f} per message, "
        f"greatest load / mean {found.balance:.2f}"
    )
    return 0


def read_current(client: Any) -> tuple[int, dict[str, Any]]:
    """Return the version and the plan that are in force in the running topology; version 0 is the one that it began with.

    :param client: a ``PubSub``.
    :raises TopologyError: no such topology runs.
    """
    conf = client.running_conf()
    if conf is None:
        raise TopologyError(explain("There is no such topology.", given=client.name, hint="'dskype list' lists those that run"))
    version, plan = 0, None
    for record in client.scan(client.topics.plans):
        try:
            found = json.loads(record.value or b"null")
            if isinstance(found, dict) and found.get("v") == 1 and int(found["version"]) > version:
                version, plan = int(found["version"]), found["plan"]
        except (ValueError, KeyError, TypeError):
            continue
    if plan is None:
        from dskype.spouts.vocabulary import Vocabulary

        settings = client.settings
        tasks = len(_tasks(client))
        plan = start_distributor(settings, tasks, Vocabulary.load(settings.vocabulary) if settings.vocabulary else Vocabulary.empty()).plan()
    return version, plan


def _tasks(client: Any, component: str = _SUBSCRIPTION_BOLT) -> list[int]:
    """Return the ids of a component's tasks, in the order of their indexes."""
    from dskype.topology.runtime.nimbus_topic import ClusterClient

    reports = ClusterClient(client.kafka).stats(client.name).tasks
    tasks = sorted(task for task, report in reports.items() if report["component"] == component)
    if not tasks:
        raise TopologyError(
            explain(
                "The topology has no such component, or its tasks have not reported yet.",
                given=component,
                legal=", ".join(sorted({r["component"] for r in reports.values() if not r["component"].startswith("__")})) or None,
            )
        )
    return tasks


def _send(client: Any, version: int, plan: Mapping[str, Any]) -> None:
    value = json.dumps({"v": 1, "version": version, "plan": plan}, separators=(",", ":")).encode()
    if len(value) > _RECORD_BYTES:
        raise TopologyError(
            explain(
                "The plan is too large for a record of Kafka.",
                given=f"{len(value):,} bytes, {len(_partitioned(plan).partitions()):,} partitions",
                legal=f"up to {_RECORD_BYTES:,} bytes",
                hint="learn one with fewer partitions: --option method=balanced",
            )
        )
    client.send_plan(value)
    client.flush()


def _show(args: argparse.Namespace) -> int:
    from dskype.deploy.cli.tail import put

    version = None
    if args.plan is not None:
        plan = read_plan(args.plan)
    else:
        with open_client(args) as client:
            version, plan = read_current(client)
    distributor = _distributor(plan)
    rows = distributor.partitions() if isinstance(distributor, Partitioned) else []
    if args.picture:
        from dskype.deploy.cli import plan_picture

        if not rows:
            _partitioned(plan)
        _write(args.picture, plan_picture.draw(plan, messages=plan_picture.places_of(args.messages)), args.force)
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
    return ", ".join(parts) or "everything"


def _change(args: argparse.Namespace, change: Callable[[Partitioned, Any], dict[str, Any]]) -> int:
    if args.output is None and not args.publish:
        raise UsageError("expected -o OUT, --publish or both")
    if args.plan is not None and not args.publish:
        plan = change(_partitioned(read_plan(args.plan)), _sample(args, _settings(args)) if hasattr(args, "messages") else None)
    else:
        with open_client(args) as client:
            version, plan = read_current(client)
            if args.plan is not None:
                plan = read_plan(args.plan)
            plan = change(_partitioned(plan), _sample(args, client.settings) if hasattr(args, "messages") else None)
            if args.publish:
                _send(client, version + 1, plan)
                say(f"version {version + 1} is sent to {client.name}")
    if args.output is not None:
        _write(args.output, json.dumps(plan), args.force)
    loads = np.array(plan["loads"])
    say(f"{counted(len(_partitioned(plan).partitions()), 'partition')}; greatest load / mean {balance(loads):.2f} as the plan estimates it")
    return 0


def _split(args: argparse.Namespace) -> int:
    return _change(args, lambda distributor, sample: distributor.split(args.partition, args.task, sample))


def _merge(args: argparse.Namespace) -> int:
    return _change(args, lambda distributor, _: distributor.merge(args.one, args.other))


def _publish(args: argparse.Namespace) -> int:
    plan = read_plan(args.plan)
    with open_client(args) as client:
        version, current = read_current(client)
        for key in ("distributor", "tasks"):
            if plan[key] != current[key]:
                raise IllegalArgumentException(explain("The plan does not fit the running topology.", given=f"{key} {plan[key]}", legal=current[key]))
        _distributor(plan)
        _send(client, version + 1, plan)
        say(f"version {version + 1} is sent to {client.name}")
    return 0


# --- the monitor (journal paper, section 7.4) --------------------------------------------------------------------------


@dataclass(frozen=True)
class Change:
    """A change of a plan: several moves at once. Partitions are named by their numbers.

    :ivar given: partition -> the tasks that it is with from now on.
    :ivar halved: partition -> the task that gets half of it.
    """

    given: Mapping[int, Sequence[int]]
    halved: Mapping[int, int]

    def __str__(self) -> str:
        parts = [counted(len(self.given), "partition") + " to other tasks"] if self.given else []
        return ", ".join(parts + [f"half of {partition} to task {task}" for partition, task in self.halved.items()])


class Band:
    """Decides when there is something to change: hysteresis between two limits of max / mean.

    Changes begin when the balance was above ``high`` for ``patience`` measurements in a row, and end when it is below ``low``, or when the last
    ``futile`` ones made it no better than it had been: then they begin again when it is by a tenth worse than it was at its best. After each change
    ``patience`` measurements are passed over: it has to have an effect first.

    >>> band = Band(high=1.5, low=1.2, patience=2)
    >>> [band.due(x) for x in (1.6, 1.6, 9.9, 9.9, 1.3, 1.1, 1.3)]
    [False, True, False, False, True, False, False]
    """

    def __init__(self, high: float = 1.5, low: float = 1.2, patience: int = 3, futile: int = 8) -> None:
        if not 1 <= low <= high:
            raise IllegalArgumentException(explain("The band of the balance makes no sense.", given=f"low {low:g}, high {high:g}", legal="1 <= low <= high"))
        self.high, self.low, self.patience, self.futile = high, low, patience, futile
        self._above = self._rest = self._in_vain = 0
        self._changing, self._best, self._given_up = False, math.inf, 0.0

    def due(self, measured: float) -> bool:
        """Take in a measurement, and return whether to change something now."""
        if self._rest:
            self._rest -= 1
            return False
        self._above = self._above + 1 if measured > max(self.high, 1.1 * self._given_up) else 0
        if not self._changing:
            self._changing, self._best, self._in_vain = self._above >= self.patience, math.inf, 0
        if self._changing:
            self._in_vain = 0 if measured < 0.99 * self._best else self._in_vain + 1
            self._best = min(self._best, measured)
            self._given_up = self._best if self._in_vain > self.futile else 0.0
            self._changing = measured >= self.low and not self._given_up
        if self._changing:
            self._rest, self._above = self.patience, 0
        return self._changing


_NEAR = 1.1
"""A task whose load is not above this times the mean gives nothing."""


def decide(loads: np.ndarray, partitions: Sequence[Mapping[str, Any]]) -> Change | None:
    """Return what helps: partitions of the busiest task go to the idlest one, as many as both are away from the mean at most; and so on with the next ones.

    If whole partitions are no half of what should go, or there are none that small, half of the largest one goes, and no more from there. Each is changed once. Pure. A task's load counts
    for its partitions in proportion to what the plan says of them.

    :param loads: float64[tasks], measured.
    :param partitions: of :meth:`Partitioned.partitions`.
    :returns: None: nothing is above the mean, or busy tasks share all they have with every other.
    """
    loads, mean = np.array(loads, np.float64), float(np.mean(loads))
    left: dict[int, dict[int, float]] = {}  # of each task: partition -> its load there; unchanged ones
    tasks = {int(p["number"]): list(p["tasks"]) for p in partitions}
    planned = np.zeros(len(loads))
    for p in partitions:
        planned[p["tasks"]] += p["load"] / len(p["tasks"])
    holders = np.bincount([task for own in tasks.values() for task in own], minlength=len(loads))
    for p in partitions:
        for task in p["tasks"]:
            share = p["load"] / len(p["tasks"]) / planned[task] if planned[task] else 1 / holders[task]
            left.setdefault(task, {})[int(p["number"])] = float(loads[task]) * share
    given: dict[int, list[int]] = {}
    halved: dict[int, int] = {}
    for _ in range(len(loads)):
        hot = int(loads.argmax())
        if loads[hot] <= _NEAR * mean:
            break
        for cold in np.argsort(loads, kind="stable").tolist():
            surplus = min(loads[hot] - mean, mean - loads[cold])
            own = {number: load for number, load in left.get(hot, {}).items() if cold not in tasks[number]}
            if surplus <= 0 or own:
                break
        if surplus <= 0 or not own:
            break
        moved, chosen = 0.0, []
        for number in sorted(own, key=lambda number: (-own[number], number)):
            if 0 < own[number] <= 1.1 * surplus - moved and len(chosen) < len(left[hot]) - 1:
                chosen.append(number)
                moved += own[number]
        if moved >= 0.5 * surplus:
            given.update((number, [cold if task == hot else task for task in tasks[number]]) for number in chosen)
        else:
            chosen = [max(own, key=lambda number: (own[number], -number))]
            moved = own[chosen[0]] / 2
            if loads[cold] + moved >= loads[hot]:
                break
            halved[chosen[0]] = cold
            left[hot].clear()  # what the halves are will be seen
        loads[hot] -= moved
        loads[cold] += moved
        for number in chosen:
            for task in tasks[number]:
                left[task].pop(number, None)
    return Change(given, halved) if given or halved else None


def watch(
    measure: Callable[[], Mapping[int, int]],
    tasks: Sequence[int],
    current: Callable[[], tuple[int, Mapping[str, Any]]],
    send: Callable[[int, Mapping[str, Any]], None] | None,
    band: Band,
    *,
    interval_s: float,
    count: int | None = None,
    least: float = 0.0,
    in_force: Callable[[], int] | None = None,
    sleep: Callable[[float], None] = time.sleep,
    tell: Callable[[str], None] = say,
) -> int:
    """Measure, decide and change, again and again.

    :param measure: returns how long each task (by id) has been busy since it began, in ns.
    :param tasks: ids of the subscription bolt's tasks, in the order of their indexes.
    :param current: returns the version and the plan in force.
    :param send: sends a version and a plan; None: only tell.
    :param count: end after so many measurements; None: never.
    :param least: idle tasks count as balanced: those of which none was busy for more than this share of the time.
    :param in_force: returns the version that all distribution tasks have changed to; nothing is changed before they have.
    :returns: how many changes there were.
    """
    before, changes, measured = measure(), 0, 0
    while count is None or measured < count:
        sleep(interval_s)
        now = measure()
        loads = np.array([max(0, now.get(task, 0) - before.get(task, 0)) for task in tasks], np.float64)
        before, measured = now, measured + 1
        found = balance(loads)
        due = band.due(found if loads.max() > least * interval_s * 1e9 else 1.0)
        tell(f"busy {loads.sum() / 1e9 / interval_s:.2f} cores, greatest load / mean {found:.2f}")
        if not due:
            continue
        version, plan = current()
        if in_force is not None and in_force() < version:
            tell(f"version {version} is not in force yet")
            continue
        distributor = _partitioned(_partitioned(plan).with_loads(loads))
        change = decide(loads, distributor.partitions())
        if change is None:
            tell("there is nothing to give away")
            continue
        tell(f"{change}: version {version + 1}" + ("" if send else " (not sent)"))
        changes += 1
        if send is not None:
            send(version + 1, distributor.rearranged(change.given, change.halved))
    return changes


def _watch(args: argparse.Namespace) -> int:
    from dskype.deploy.machine import cluster

    band = Band(args.high, args.low, args.patience)
    with open_client(args) as client:
        _partitioned(read_current(client)[1])
        tasks, nimbus = _tasks(client, args.component), cluster.client(target(args))

        def busy() -> dict[int, int]:
            return {task: report["busy_ns"] for task, report in nimbus.stats(client.name).tasks.items() if report["component"] == args.component}

        def in_force() -> int:
            versions = [(report.get("metrics") or {}).get("plan_version") for report in nimbus.stats(client.name).tasks.values()]
            return min((version for version in versions if version is not None), default=0)

        watch(
            busy,
            tasks,
            lambda: read_current(client),
            None if args.dry_run else lambda version, plan: _send(client, version, plan),
            band,
            interval_s=args.interval,
            count=args.count,
            least=args.least,
            in_force=in_force,
        )
    return 0
