"""Look for growth while a topology runs for a long time: sample memory, handles, files, topics and queues into a table."""

from __future__ import annotations

import contextlib
import os
import statistics
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from dskype.deploy.lab.chaos import processes
from dskype.deploy.lab.chaos.report import markdown_table
from dskype.deploy.lab.chaos.system import System
from dskype.deploy.lab.chaos.workloads import WORKLOADS, FaultWorkload
from dskype.topology.planning.plan import metrics_topic
from dskype.topology.runtime.kafka.topic_admin import TopicAdmin

__all__ = ["BOUNDS", "Sample", "as_table", "growth", "sample", "soak"]

_MIB = 1 << 20


@dataclass(frozen=True)
class Bound:
    """How much higher a value may be at the end than in the middle.

    :ivar share: as a share of the value in the middle.
    :ivar plus: in addition, in the value's own unit.
    """

    share: float
    plus: float


BOUNDS = {
    "driver_mib": Bound(0.15, 20),
    "jvm_mib": Bound(0.3, 150),
    "executors_mib": Bound(0.15, 60),
    "workers_mib": Bound(0.3, 100),
    "handles": Bound(0.15, 40),
    "processes": Bound(0.1, 4),
    "files": Bound(0.05, 8),
    "folder_mib": Bound(0.25, 15),
    "topics": Bound(0, 0),
    "inbox_records": Bound(0.5, 2_000),
    "metrics_records": Bound(0.5, 20_000),
    "lag_records": Bound(0.5, 2_000),
}
"""Name of a value -> its bound. Metrics are kept for ten minutes, their segments for twelve. A JVM's heap grows slowly up to its limit, which
Spark's settings say."""


@dataclass(frozen=True)
class Sample:
    """All values at one time, in seconds since the beginning."""

    at_s: float
    values: dict[str, float]


def _handles(pid: int) -> int:
    try:
        return len(os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return 0


def _files(folder: Path) -> tuple[int, int]:
    """Return number and bytes of the files below a folder."""
    number = size = 0
    for path, _, names in os.walk(folder):
        for name in names:
            try:
                size += os.lstat(os.path.join(path, name)).st_size
                number += 1
            except OSError:
                continue
    return number, size


def sample(system: System, load: FaultWorkload, at_s: float) -> Sample:
    """Measure all values now."""
    found = processes.tree(system.pid)
    memory: Counter[str] = Counter()
    for pid, process in found.items():
        kind = "driver" if pid == system.pid else "jvm" if process.name == "java" else "executors" if process.name.startswith("dsk:") else "workers"
        memory[kind] += process.rss
    number, size = _files(system.data)
    with contextlib.closing(TopicAdmin(system.kafka)) as admin:
        topics = admin.names()
        own = [t for t in topics if t.startswith(f"{system.name}.") and t not in load.topics() and t != metrics_topic(system.name)]
        inbox, metrics = (sum(end - begin for topic in of for begin, end in admin.begin_and_end(topic).values()) for of in (own, [metrics_topic(system.name)]))
    return Sample(
        at_s,
        {
            **{f"{kind}_mib": memory[kind] / _MIB for kind in ("driver", "jvm", "executors", "workers")},
            "handles": sum(map(_handles, found)),
            "processes": len(found),
            "files": number,
            "folder_mib": size / _MIB,
            "topics": len(topics),
            "inbox_records": inbox,
            "metrics_records": metrics,
            "lag_records": max(0, load.fed - load.done),
        },
    )


def growth(samples: Sequence[Sample]) -> dict[str, tuple[float, float]]:
    """Return value -> (median of the second third, median of the last third). A value that grows without end is higher in the latter."""
    third = len(samples) // 3
    if not third:
        return {}
    middle, last = samples[third : 2 * third], samples[2 * third :]
    return {name: (statistics.median(s.values[name] for s in middle), statistics.median(s.values[name] for s in last)) for name in samples[0].values}


def too_high(samples: Sequence[Sample]) -> list[str]:
    """Return the names of the values that grew beyond their bounds."""
    return [name for name, (middle, last) in growth(samples).items() if last > middle * (1 + BOUNDS[name].share) + BOUNDS[name].plus]


def as_table(samples: Sequence[Sample]) -> str:
    """Return the growth as a table in Markdown."""
    rows = [("value", "at the beginning", "in the middle", "at the end", "most", "verdict")]
    grown = too_high(samples)
    for name, (middle, last) in growth(samples).items():
        rows.append(
            (
                name,
                f"{samples[0].values[name]:,.0f}",
                f"{middle:,.0f}",
                f"{last:,.0f}",
                f"{max(s.values[name] for s in samples):,.0f}",
                "GREW" if name in grown else "flat",
            )
        )
    return markdown_table(rows, right=True)


def soak(
    workload: str,
    seed: int,
    minutes: float,
    *,
    rate: float,
    folder: Path,
    every_s: float = 10,
    patience_s: float = 150,
    progress: Callable[[str], None] = lambda _: None,
) -> tuple[list[Sample], list[str]]:
    """Run a workload without faults and sample it regularly; return the samples and what was wrong.

    :param every_s: seconds between two samples.
    :param patience_s: longest time until the first output after the start, and until the last after the end of the input.
    """
    load = WORKLOADS[workload](rate, minutes * 60, seed)
    problems: list[str] = []
    samples: list[Sample] = []
    with load.opened(folder), System(folder, workload, load.flux(folder), load.modules) as system:
        load.begin(system)
        try:
            system.start()
            deadline = time.monotonic() + patience_s
            while not (load.done and load.caught_up()):
                if time.monotonic() > deadline:
                    return samples, [f"nothing came out within {patience_s:g} s of the start"]
                time.sleep(0.2)
            began = time.monotonic()
            while (now := time.monotonic() - began) < minutes * 60:
                samples.append(sample(system, load, now))
                progress(f"{load.done:,} through, " + ", ".join(f"{name} {value:,.0f}" for name, value in samples[-1].values.items()))
                time.sleep(max(0.0, every_s - (time.monotonic() - began - now)))
            load.stop_feeding()
            deadline = time.monotonic() + patience_s
            while not load.complete() and time.monotonic() < deadline:
                time.sleep(1)
            problems += load.check(final=True).problems
            problems += [f"{name} grew" for name in too_high(samples)]
            if len(system.starts) > 1:
                problems.append(f"the driver ended {len(system.starts) - 1} times")
            system.finish()
        finally:
            load.close()
    return samples, problems
