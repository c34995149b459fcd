"""``dskype monitor``: a component's throughput, line by line, as ``storm monitor`` prints it."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

from dskype.deploy.cli.arguments import common, positive, positive_seconds, target
from dskype.deploy.machine import cluster

_FIRST_REPORT_S = 10.0
"""How long to wait for the first report of a component."""
_LOOK_S = 0.2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    common(parser)
    parser.add_argument("name", metavar="NAME")
    parser.add_argument("-i", "--interval", metavar="SECS", type=positive_seconds, default=4, help="default: 4")
    parser.add_argument("-m", "--component", metavar="ID", help="default: only list the components")
    parser.add_argument("-s", "--stream", metavar="ID", default="default", help="default: default")
    parser.add_argument("-w", "--watch", choices=("emitted", "transferred"), default="emitted", help="default: emitted")
    parser.add_argument("--count", metavar="N", type=positive, help="end after N lines")


def run(args: argparse.Namespace) -> int:
    """Print lines until ``--count`` is reached."""
    return monitor(cluster.client(target(args)), args.name, args.component, args.stream, args.watch, args.interval, args.count)


def monitor(
    client: Any,
    name: str,
    component: str | None,
    stream: str = "default",
    watch: str = "emitted",
    interval_s: float = 4,
    count: int | None = None,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> int:
    """Print a line every ``interval_s`` seconds: what was emitted or transferred since the line before.

    :param client: a ``ClusterClient``.
    :param name: the topology.
    :param component: which component to watch; None lists the components.
    :param count: end after this many lines; None: never.
    :returns: the exit code.
    :raises TopologyError: there is no such topology or component.
    """
    from dskype.topology.errors import TopologyError

    components = list(client.state(name).components)
    if component is None:
        print(f"Available components for {name} :\n------------------")
        print("\n".join(sorted(components)))
        print("------------------\nPlease use -m to specify one component")
        return 0
    if component not in components:
        raise TopologyError(f"{component} is no component of {name}.", given=component, legal=", ".join(sorted(components)))
    print(f"topology\tcomponent\tparallelism\tstream\ttime-diff ms\t{watch}\tthroughput (Kt/s)")
    stats, patience = client.stats(name), _FIRST_REPORT_S
    while not _tasks(stats, component) and patience > 0:  # it has only just started
        sleep(_LOOK_S)
        stats, patience = client.stats(name), patience - _LOOK_S
    before, before_at = stats.total(component, watch, stream), clock()
    lines = 0
    while count is None or lines < count:
        sleep(interval_s)
        stats, now = client.stats(name), clock()
        total = stats.total(component, watch, stream)
        elapsed_ms = round((now - before_at) * 1000)
        # A counter falls when a task is restored from a snapshot.
        diff = max(0, total - before)
        parallelism = _tasks(stats, component)
        print(f"{name}\t{component}\t{parallelism}\t{stream}\t{elapsed_ms}\t{diff}\t{diff / elapsed_ms if elapsed_ms else 0.0}", flush=True)
        before, before_at, lines = total, now, lines + 1
    return 0


def _tasks(stats: Any, component: str) -> int:
    """Return how many tasks of the component report."""
    return sum(task["component"] == component for task in stats.tasks.values())
