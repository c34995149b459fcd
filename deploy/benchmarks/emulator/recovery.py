"""How long a bolt is away after SIGKILL of its executor or of Spark's Python workers, by the size of its state."""

from __future__ import annotations

import argparse
import os
import signal
import time
from itertools import product

from dskype.deploy.benchmarks.emulator.components import BatchSpout, StatefulBatchPass
from dskype.deploy.benchmarks.emulator.measure import add_transports, bench_cluster, parser, print_table, wait_for_first
from dskype.deploy.benchmarks.usage import processes, tree
from dskype.topology import Fields, TopologyBuilder
from dskype.topology.local import LocalCluster, LocalTopology

_PASSED_S = 0.05
"""The bolt counts as back when it has processed the input of this many seconds after the kill."""
_BACK_S = 120
_STILL_S = 5.0
"""Statistics come at least every few seconds, also of an idle task."""


def _victims(kind: str) -> list[int]:
    """Return the process ids of the bolt's executor, or of all Python workers of Spark.

    :raises RuntimeError: there are none.
    """
    found = list(tree(processes(), os.getpid()))
    if kind == "executor":
        victims = sorted(p.pid for p in found if p.name == "dsk:bolt")[:1]  # its forks, which write snapshots, come later
    else:
        parents = {p.parent for p in found if p.name == "dskype-superv"}
        victims = [p.pid for p in found if p.parent in parents and p.name != "dskype-superv"]
    if not victims:
        raise RuntimeError(f"no process of the kind {kind} was found")
    return victims


def _final_counts(handle: LocalTopology) -> tuple[int, int]:
    """Return how many tuples were emitted and executed, when neither number grows any more; each task reports its own, some time later."""
    counts, since = (-1, -1), time.monotonic()
    while time.monotonic() < since + _STILL_S:
        time.sleep(0.1)
        now = handle.stats.total("spout", "emitted"), handle.stats.total("bolt", "executed")
        if now != counts:
            counts, since = now, time.monotonic()
    return counts


def _run(cluster: LocalCluster, options: argparse.Namespace, mib: int, kind: str, transport: str) -> list[str]:
    """Kill one kind of process once; return the row of the table."""
    builder = TopologyBuilder()
    builder.set_spout("spout", BatchSpout(options.rate), 1)
    builder.set_bolt("bolt", StatefulBatchPass(mib << 20), 1).fields_grouping("spout", Fields("key"))
    conf = {"topology.acker.executors": 0, "topology.emulator.snapshot.interval.ms": 5000, "topology.emulator.transport": transport}
    with cluster.submit_topology(f"recovery-{mib}-{kind}-{transport}", conf, builder.create_topology()) as handle:
        wait_for_first(handle, "bolt")
        time.sleep(options.warm_up)
        victims = _victims(kind)
        before, killed = handle.stats.total("bolt", "executed"), time.monotonic()
        for pid in victims:
            os.kill(pid, signal.SIGKILL)
        while handle.stats.total("bolt", "executed") < before + _PASSED_S * options.rate:
            if time.monotonic() > killed + _BACK_S:
                raise TimeoutError(f"the bolt was not back within {_BACK_S} s")
            time.sleep(0.005)
        back = time.monotonic() - killed
        handle.backend.wait_until(lambda s: s.undelivered_tuples() < options.rate / 2, 60, "an end of the backlog")
        caught_up = time.monotonic() - killed
        handle.backend.deactivate()
        emitted, executed = _final_counts(handle)
    exact = "yes" if emitted == executed else f"NO: {emitted} {executed}"
    return [f"{mib} MiB", kind, transport, f"{back:.2f}", f"{caught_up:.2f}", exact]


def main() -> None:
    """Print the table."""
    options = parser(__doc__)
    options.add_argument("--mib", type=int, nargs="*", default=[1, 16, 128, 512], help="sizes of the state")
    options.add_argument("--rate", type=float, default=20_000, help="tuples/s (default 20000)")
    options.add_argument("--kill", nargs="+", choices=("executor", "workers"), default=["executor"], help="what is killed (default executor)")
    add_transports(options)
    options = options.parse_args()
    with bench_cluster(options) as cluster:
        cases = product(options.mib, options.kill, options.transport)
        rows = [_run(cluster, options, mib, kind, transport) for mib, kind, transport in cases]
    print_table(
        f"SIGKILL at {options.rate:,.0f} tuples/s, a snapshot every 5 s", ["state", "killed", "transport", "away s", "caught up after s", "counts exact"], rows
    )


if __name__ == "__main__":
    main()
