"""What the benchmarks share: a cluster, the measuring topic, processor time of the whole process tree, tables."""

from __future__ import annotations

import argparse
import json
import os
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from kafka import TopicPartition
from rich.console import Console
from rich.table import Table

from dskype.topology.local import LocalCluster, LocalTopology
from dskype.topology.runtime.kafka import TopicAdmin

__all__ = ["MEASURES", "Measures", "bench_cluster", "cpu_seconds", "descendants", "parser", "print_table", "wait_for_first"]

MEASURES = "bench"
_TICKS = os.sysconf("SC_CLK_TCK")


def parser(description: str) -> argparse.ArgumentParser:
    """Return an argument parser with the options of every benchmark."""
    result = argparse.ArgumentParser(description=description)
    result.add_argument("--bootstrap-servers", help="default: an embedded broker")
    result.add_argument("--warm-up", type=float, default=20, metavar="S", help="seconds before measuring (default 20)")
    result.add_argument("--seconds", type=float, default=20, metavar="S", help="seconds of measuring (default 20)")
    return result


@contextmanager
def bench_cluster(options: argparse.Namespace) -> Iterator[LocalCluster]:
    """Bring up a local cluster with the measuring topic."""
    with LocalCluster(bootstrap_servers=options.bootstrap_servers) as cluster:
        admin = TopicAdmin(kafka_of(cluster))
        admin.create({MEASURES: 1}, {})
        admin.close()
        yield cluster


def kafka_of(cluster: LocalCluster) -> Any:
    """Return the broker settings of a cluster on Spark."""
    return cluster.environment.kafka


def _children() -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat") as file:
                    found.setdefault(int(file.read().rsplit(")", 1)[1].split()[1]), []).append(int(entry))
            except OSError:
                continue
    return found


def descendants(pid: int) -> dict[int, str]:
    """Return process id -> name of all processes below ``pid``."""
    children, found, stack = _children(), {}, [pid]
    while stack:
        for child in children.get(stack.pop(), []):
            try:
                with open(f"/proc/{child}/comm") as file:
                    found[child] = file.read().strip()
            except OSError:
                continue
            stack.append(child)
    return found


def cpu_seconds() -> Counter[str]:
    """Return processor seconds by kind of process: of this one, its children, and theirs."""
    children, seconds = _children(), Counter()
    stack = [os.getpid()]
    while stack:
        pid = stack.pop()
        stack += children.get(pid, [])
        try:
            with open(f"/proc/{pid}/stat") as file:
                name, _, rest = file.read().partition("(")[2].rpartition(")")
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                command = file.read()
        except OSError:
            continue
        fields = rest.split()
        kind = (
            "broker"
            if b"kafka.Kafka" in command
            else "spark"
            if name == "java"
            else "executors"
            if name.startswith("dsk:")
            else "driver"
            if pid == os.getpid()
            else "python workers"
        )
        seconds[kind] += (int(fields[11]) + int(fields[12])) / _TICKS
    return seconds


class Measures:
    """Reads what the benchmarks' bolts report."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._consumer = kafka_of(cluster).consumer()
        where = TopicPartition(MEASURES, 0)
        self._consumer.assign([where])
        self._consumer.seek_to_end(where)
        self._consumer.position(where)

    def collect(self, seconds: float) -> dict[str, dict[str, Any]]:
        """Gather for some seconds; returns component -> {"hop": {ms: n}, "whole": {ms: n}, "rate": tuples/s}."""
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
    """Print a table that also reads well in a file."""
    table = Table(title=title, title_justify="left")
    for i, column in enumerate(columns):
        table.add_column(column, justify="left" if i == 0 else "right")
    for row in rows:
        table.add_row(*map(str, row))
    Console(width=140).print(table)
