"""Sustained updates of moving objects and their latency: vehicles between cities, and geofences for them.

It is the throughput benchmark with another workload (:mod:`dskype.deploy.demo.moving`): vehicles report in turn where they are, each some seconds after its report before. Boolean
subscriptions with circles and polygons report when one enters or leaves. All vehicles have a state before anything is measured.

The latency of an update is the time from its arrival in Kafka to that of the first ``enter`` or ``leave`` that it caused, both by the broker's clock. Updates that cause none have no
latency.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from dskype.deploy.cli.arguments import conf_item, executor, number, output, positive, positive_seconds, seconds, target
from dskype.deploy.demo.moving import ATTRIBUTES
from dskype.deploy.lab.system import throughput, throughput_report
from dskype.deploy.lab.system.feeder import Feeder
from dskype.deploy.lab.system.throughput_arguments import add_move, add_verify
from dskype.deploy.machine.signals import end_on_sigterm
from dskype.deploy.machine.terminal import say
from dskype.topology.local import LocalCluster

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the benchmark's own options, besides those of ``arguments.common``."""
    parser.add_argument("--vehicles", type=positive, metavar="N", default=100_000, help="objects; default: 100000")
    parser.add_argument("--geofences", type=positive, metavar="N", default=100_000, help="boolean subscriptions; default: 100000")
    parser.add_argument(
        "--step", type=number("seconds above 0"), metavar="SECS", default=10, help="what a vehicle drives between two updates, in its own time; default: 10"
    )
    parser.add_argument("--rate", type=positive, metavar="N", default=10_000, help="updates per second while latency is measured; default: 10000")
    parser.add_argument("--tasks", metavar="COMPONENT=N", type=executor, action="append", default=[], help="tasks and executors of a component; repeatable")
    parser.add_argument("--conf", dest="overrides", metavar="KEY=JSON", type=conf_item, action="append", default=[], help="one configuration key; repeatable")
    parser.add_argument("--warm-up", type=seconds, metavar="SECS", default=40, help="full load before the measurement; default: 40")
    parser.add_argument("--seconds", type=positive_seconds, metavar="SECS", default=20, help="how long to measure the throughput; default: 20")
    parser.add_argument("--latency-seconds", type=seconds, metavar="SECS", default=20, help="how long to measure the latency; 0: not at all; default: 20")
    add_move(parser)
    add_verify(parser, "at the end")
    parser.add_argument("--seed", metavar="N", type=int, default=0, help="default: 0")
    output(parser)


class MovingRun(throughput.Run):
    """The measurement of one fleet, on its own topology.

    :ivar fleet: how many vehicles, and what each drives between two updates.
    """

    stream = "updates"
    fleet: dict[str, float]

    def _feeder(self, topics: tuple[str, str]) -> Feeder:
        return Feeder(self.kafka, topics, seed=self.args.seed, fleet=self.fleet)

    def _register(self) -> dict[str, Any]:
        return self.feeder.geofences(self.n)

    def _prepare(self) -> None:
        super()._prepare()
        self.feeder.messages(int(self.fleet["vehicles"]))
        self._wait_applied(self.feeder.written)
        say(f"  {self.feeder.written:,} vehicles are there")

    def _ops(self) -> tuple[str, ...]:
        return "enter", "leave"


def run(args: argparse.Namespace) -> int:
    """Measure; print tables or JSON.

    :returns: 0; 1 if components reported errors or messages were refused, so that the figures cannot be trusted.
    """
    where = target(args)
    end_on_sigterm()
    asked = _throughput_arguments(args)
    own = {"dskype.objects": True, "dskype.attributes": ATTRIBUTES, "dskype.vocabulary": None}
    conf = throughput.configuration(asked, Path()) | own | dict(args.overrides)
    with LocalCluster(bootstrap_servers=where.bootstrap_servers, master=where.master, conf=where.conf, progress=say) as cluster:
        measured = MovingRun(cluster, asked, args.geofences, conf)
        measured.fleet = {"vehicles": args.vehicles, "step_s": args.step}
        result = measured.measure()
    options = {name: getattr(args, name) for name in ("vehicles", "geofences", "step", "rate", "move", "seed")}
    found = {"machine": throughput_report.machine(), "settings": options | {"conf": dict(args.overrides), "tasks": dict(args.tasks)}, "runs": [result]}
    return throughput.finish(args.output, found, _print, {f"with {args.vehicles:,} vehicles": result})


def _throughput_arguments(args: argparse.Namespace) -> argparse.Namespace:
    """Return the arguments of the throughput benchmark, whose phases are used."""
    options = ["--boolean", "--subscriptions", args.geofences, "--warm-up", args.warm_up, "--seconds", args.seconds, "--seed", args.seed]
    options += ["--latency-seconds", args.latency_seconds, "--latency-rate", args.rate, "--move", args.move]
    options += ["--verify", args.verify] if args.verify else []
    asked = throughput.arguments_for(args, *options)
    asked.tasks, asked.overrides = args.tasks, args.overrides
    return asked


def _print(found: Any) -> None:
    s = found["settings"]
    throughput_report.print_machine(found["machine"])
    print(f"{s['vehicles']:,} vehicles that drive {s['step']:g} s between two updates, {s['geofences']:,} geofences")
    throughput_report.print_runs(found["runs"])
