"""What the benchmarks of the emulator share: a cluster, the topic of measurements, processor time of the process tree, tables."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from kafka import TopicPartition
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from dskype.deploy.lab.system.usage import processes, tree
from dskype.topology.config import TRANSPORTS
from dskype.topology.local import LocalCluster, LocalTopology
from dskype.topology.runtime.kafka.topic_admin import TopicAdmin

__all__ = ["MEASURES", "Measures", "add_transports", "bench_cluster", "cpu_seconds", "parser", "print_table", "wait_for_first"]

MEASURES = "bench"


def parser(description: str) -> argparse.ArgumentParser:
    """Return an argument parser with the options of every benchmark."""
    result = argparse.ArgumentParser(description=description)
    result.add_argument("--bootstrap-servers", help="default: an embedded broker")
    result.add_argument("--warm-up", type=float, default=20, metavar="S", help="seconds before measuring (default 20)")
    result.add_argument("--seconds", type=float, default=20, metavar="S", help="seconds of measuring (default 20)")
    return result


def add_transports(options: argparse.ArgumentParser) -> None:
    """Add the option that names the transports to compare."""
    options.add_argument(
        "--transport", nargs="+", choices=TRANSPORTS, default=["real-time"], help="how components get records; several alternate in one run (default real-time)"
    )


@contextmanager
def bench_cluster(options: argparse.Namespace) -> Iterator[LocalCluster]:
    """Start a local cluster with the topic of measurements."""
    with LocalCluster(bootstrap_servers=options.bootstrap_servers) as cluster:
        with contextlib.closing(TopicAdmin(kafka_of(cluster))) as admin:
            admin.create({MEASURES: 1}, {})
        yield cluster


def kafka_of(cluster: LocalCluster) -> Any:
    """Return the broker settings of a cluster on Spark."""
    return cluster.environment.kafka


def cpu_seconds() -> Counter[str]:
    """Return processor seconds by kind of process, of this one and all below it."""
    seconds: Counter[str] = Counter()
    for process in tree(processes(), os.getpid()):
        kind = (
            "broker"
            if b"kafka.Kafka" in process.command
            else "spark"
            if process.name == "java"
            else "executors"
            if process.name.startswith("dsk:")
            else "driver"
            if process.pid == os.getpid()
            else "python workers"
        )
        seconds[kind] += process.cpu_s
    return seconds


class Measures:
    """Reads the reports of the benchmarks' bolts."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._consumer = kafka_of(cluster).consumer()
        where = TopicPartition(MEASURES, 0)
        self._consumer.assign([where])
        self._consumer.seek_to_end(where)
        self._consumer.position(where)

    def collect(self, seconds: float) -> dict[str, dict[str, Any]]:
        """Collect reports for some seconds; return component -> {"hop": {bucket: n}, "whole": {bucket: n}, "rate": tuples/s}."""
        result: dict[str, dict[str, Any]] = {}
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            for batch in self._consumer.poll(timeout_ms=200).values():
                for record in batch:
                    line = json.loads(record.value)
                    entry = result.setdefault(line["component"], {"hop": Counter(), "whole": Counter(), "counts": {}})
                    entry["hop"].update(dict(line["hop"]))
                    entry["whole"].update(dict(line["whole"]))
                    entry["counts"].setdefault(line["task"], []).append((line["time_ms"], line["count"]))
        for entry in result.values():
            entry["rate"] = sum((c[-1][1] - c[0][1]) / max(1, c[-1][0] - c[0][0]) * 1000 for c in entry.pop("counts").values() if len(c) > 1)
        return result

    def close(self) -> None:
        """Close the consumer."""
        self._consumer.close()


def wait_for_first(handle: LocalTopology, component: str, timeout_s: float = 90) -> None:
    """Wait until a component has executed something."""
    handle.backend.wait_until(lambda stats: stats.total(component, "executed") > 0, timeout_s, f"a first tuple at {component}")


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print a table that also reads well in a file: heads are wrapped between words, and nothing is cut off, however wide the table is then."""
    table, cells = Table(), [[str(cell) for cell in row] for row in rows]
    widths = [max(map(len, [*column.split(), *(row[i] for row in cells)]), default=1) for i, column in enumerate(columns)]
    for i, (column, width) in enumerate(zip(columns, widths)):
        table.add_column(column, justify="left" if i == 0 else "right", min_width=width)
    for row in cells:
        table.add_row(*row)
    console = Console(width=max(140, sum(widths) + 3 * len(widths) + 1))
    console.print(f"[italic]{escape(title)}[/]", soft_wrap=True)  # a title of the table would be wrapped to its width
    console.print(table)
