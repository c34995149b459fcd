"""``dskype bench cluster``: DSkype on a Spark standalone cluster of one, two and three workers, as if each were a host.

Each worker is a process of this machine with a home, a temp folder and a working folder of its own; state is in Kafka. All share the cores of this machine, so more workers do
not make the topology faster. What shows is what a host more costs, and what stays the same: tuples, bytes and results of a message. The first row
is the same topology in Spark on this machine without a master.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from dskype.deploy.cli.arguments import output, positive, positive_seconds, seconds, target
from dskype.deploy.lab.emulator.measure import print_table
from dskype.deploy.lab.system import throughput, throughput_report
from dskype.deploy.lab.system.standalone import Standalone, standalone
from dskype.deploy.lab.system.usage import SPARK, processes, tree
from dskype.deploy.machine.signals import end_on_sigterm
from dskype.deploy.machine.terminal import say
from dskype.topology.config import TRANSPORTS, Config
from dskype.topology.local import LocalCluster

__all__ = ["add_arguments", "run"]

_ONE_MACHINE = "no master"
_COMPONENTS = ("message-spout", "distribution-bolt", "subscription-bolt", "message-bolt")


def _counts(text: str) -> list[int]:
    return [positive(part) for part in text.split(",")]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the benchmark's own options, besides those of ``arguments.common``."""
    parser.add_argument("--workers", type=_counts, metavar="N,...", default=[1, 2, 3], help="numbers of Spark workers; default: 1,2,3")
    parser.add_argument("--subscriptions", type=positive, metavar="N", default=10_000, help="default: 10000")
    parser.add_argument("--window", type=positive, metavar="N", default=20_000, help="messages in the window; default: 20000")
    parser.add_argument("--tasks", type=positive, metavar="N", default=6, help="tasks of the subscription bolt, in all rows; default: 6")
    parser.add_argument("--slots", type=positive, metavar="N", default=96, help="task slots of all workers together; default: 96")
    parser.add_argument("--warm-up", type=seconds, metavar="SECS", default=40, help="full load before the measurement; default: 40")
    parser.add_argument("--seconds", type=positive_seconds, metavar="SECS", default=20, help="how long to measure the throughput; default: 20")
    parser.add_argument("--latency-rate", type=positive, metavar="N", default=500, help="messages per second while latency is measured; default: 500")
    parser.add_argument(
        "--verify", type=positive, metavar="N", default=50, help="subscriptions whose results are compared with a plain computation; default: 50"
    )
    parser.add_argument("--transport", choices=TRANSPORTS, default="real-time", help="of all components; default: real-time")
    parser.add_argument("--seed", type=int, default=0, help="default: 0")
    output(parser)


def run(args: argparse.Namespace) -> int:
    """Measure without a master and with each number of workers; print tables or JSON.

    :returns: 0; 1 if components reported errors, messages were refused or results are wrong.
    """
    where = target(args)
    end_on_sigterm()
    found: dict[str, Any] = {"machine": throughput_report.machine(), "rows": {}}
    with tempfile.TemporaryDirectory(prefix="dskype-cluster-") as folder:
        asked = _throughput_arguments(args)
        conf = throughput.configuration(asked, throughput.build_vocabulary(asked, Path(folder))) | {Config.TOPOLOGY_EMULATOR_TRANSPORT: args.transport}
        for workers in (0, *args.workers):
            name = f"{workers} worker{'s' if workers > 1 else ''}" if workers else _ONE_MACHINE
            say(name)
            hosts = standalone(Path(folder) / f"hosts-{workers}", workers, -(-args.slots // workers)) if workers else nullcontext()
            with hosts as spark, LocalCluster(bootstrap_servers=where.bootstrap_servers, master=spark and spark.url, conf=where.conf, progress=say) as cluster:
                row = _Run(cluster, asked, args.subscriptions, conf)
                row.spark = spark
                found["rows"][name] = row.measure()
    return throughput.finish(args.output, found, _print, found["rows"])


def _throughput_arguments(args: argparse.Namespace) -> argparse.Namespace:
    """Return the arguments of the throughput benchmark, whose topology, feeder and phases are used."""
    options = ["--subscriptions", args.subscriptions, "--window", args.window, "--results", "deltas", "--tasks", f"subscription-bolt={args.tasks}"]
    options += ["--warm-up", args.warm_up, "--seconds", args.seconds, "--latency-rate", args.latency_rate, "--verify", args.verify, "--seed", args.seed]
    return throughput.arguments_for(args, *options)


class _Run(throughput.Run):
    """The measurement of one cluster.

    :ivar spark: its workers; None: Spark is on this machine alone.
    """

    spark: Standalone | None = None

    def _throughput(self) -> None:
        super()._throughput()
        self.result["executors"], self.result["executors_started"] = self._executors(), len(self.history.pids)

    def _executors(self) -> list[int]:
        """Return how many executors of the topology each worker has."""
        found, pids = processes(), self.history.pids
        return [sum(process.pid in pids for process in tree(found, worker.process.pid)) for worker in (self.spark.workers if self.spark else ())]


# --- tables -----------------------------------------------------------------------------------------------------------


def _print(found: Mapping[str, Any]) -> None:
    rows: Mapping[str, Mapping[str, Any]] = found["rows"]
    print_table("DSkype by the number of Spark workers", ["", *rows], _figures(rows))


def _figures(rows: Mapping[str, Mapping[str, Any]]) -> list[list[str]]:
    """Return the lines of the table: what is measured, and a figure for each cluster."""

    def line(what: str, figures: Sequence[float | None], digits: int = 0) -> list[str]:
        return [what, *("-" if figure is None else f"{figure:,.{digits}f}" for figure in figures)]

    runs = list(rows.values())
    kinds = sorted({kind for r in runs for kind in r["processes"]}, key=lambda kind: -max(_us(r, kind) for r in runs))
    latencies = [r.get("latency", {}) for r in runs]
    base = runs[0]["messages_per_s"]
    return [
        line("messages/s", [r["messages_per_s"] for r in runs]),
        line("against no master", [r["messages_per_s"] / base if base else None for r in runs], 2),
        line("us of processor time per message", [sum(p["cpu_us_per_message"] for p in r["processes"].values()) for r in runs]),
        *(line(f"  {kind}", [_us(r, kind) for r in runs], 1) for kind in kinds),
        line("tuples between components per message", [sum(s["tuples_per_message"] for s in r["streams"]) for r in runs], 2),
        line("bytes between components per message", [sum(s["bytes_per_message"] or 0 for s in r["streams"]) for r in runs]),
        line("frames per message", [sum(r["components"][c]["frames_per_message"] for c in _COMPONENTS) for r in runs], 3),
        line("results per message", [r["components"]["subscription-bolt"]["metrics_per_message"].get("deltas") for r in runs], 1),
        line("first result p50 ms", [x.get("first_p50_ms") for x in latencies]),
        line("first result p99 ms", [x.get("first_p99_ms") for x in latencies]),
        line("all subscriptions active after s", [r["all_active_s"] for r in runs], 1),
        line("JVMs of Spark", [r["processes"].get(SPARK, {}).get("processes") for r in runs]),
        line("memory GiB (PSS)", [sum(p["pss_bytes"] or p["rss_bytes"] for p in r["processes"].values()) / 2**30 for r in runs], 1),
        line("executors ever started", [r["executors_started"] for r in runs]),
        ["executors on each worker", *(", ".join(map(str, r["executors"])) or "-" for r in runs)],
        ["verified", *("equal" if r["verified"]["ok"] else "DIFFERENT" for r in runs)],
    ]


def _us(r: Mapping[str, Any], kind: str) -> float:
    return r["processes"].get(kind, {}).get("cpu_us_per_message", 0.0)
