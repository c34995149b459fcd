"""How long a bolt is away after SIGKILL of its executor, by the size of its state."""

from __future__ import annotations

import argparse
import os
import signal
import time
from itertools import product

from dskype.deploy.lab.emulator.components import BatchSpout, StatefulBatchPass
from dskype.deploy.lab.emulator.measure import add_transports, bench_cluster, parser, print_table, wait_for_first
from dskype.deploy.lab.system.usage import processes, tree
from dskype.topology import Fields, TopologyBuilder
from dskype.topology.local import LocalCluster, LocalTopology

_PASSED_S = 0.05
"""The bolt counts as back when it has processed the input of this many seconds after the kill."""
_BACK_S = 120
_STILL_S = 5.0
"""Statistics come at least every few seconds, also of an idle task."""


def _victim() -> int:
    """Return the process id of the bolt's executor.

    :raises RuntimeError: there is none.
    """
    found = sorted(p.pid for p in tree(processes(), os.getpid()) if p.name == "dsk:bolt")  # its forks, which write snapshots, come later
    if not found:
        raise RuntimeError("no executor of the bolt was found")
    return found[0]


def _final_counts(handle: LocalTopology) -> tuple[int, int]:
    """Return how many tuples were emitted and executed, when neither number grows any more; each task reports its own, some time later."""
    counts, since = (-1, -1), time.monotonic()
    while time.monotonic() < since + _STILL_S:
        time.sleep(0.1)
        now = handle.stats.total("spout", "emitted"), handle.stats.total("bolt", "executed")
        if now != counts:
            counts, since = now, time.monotonic()
    return counts


def _run(cluster: LocalCluster, options: argparse.Namespace, mib: int, transport: str) -> list[str]:
    """Kill the executor once; return the row of the table."""
    builder = TopologyBuilder()
    builder.set_spout("spout", BatchSpout(options.rate), 1)
    builder.set_bolt("bolt", StatefulBatchPass(mib << 20), 1).fields_grouping("spout", Fields("key"))
    conf = {"topology.acker.executors": 0, "topology.emulator.snapshot.interval.ms": 5000, "topology.emulator.transport": transport}
    with cluster.submit_topology(f"recovery-{mib}-{transport}", conf, builder.create_topology()) as handle:
        wait_for_first(handle, "bolt")
        time.sleep(options.warm_up)
        victim = _victim()
        before, killed = handle.stats.total("bolt", "executed"), time.monotonic()
        os.kill(victim, signal.SIGKILL)
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
    return [f"{mib} MiB", transport, f"{back:.2f}", f"{caught_up:.2f}", exact]


def main() -> None:
    """Print the table."""
    options = parser(__doc__)
    options.add_argument("--mib", type=int, nargs="*", default=[1, 16, 128, 512], help="sizes of the state")
    options.add_argument("--rate", type=float, default=20_000, help="tuples/s (default 20000)")
    add_transports(options)
    options = options.parse_args()
    with bench_cluster(options) as cluster:
        rows = [_run(cluster, options, mib, transport) for mib, transport in product(options.mib, options.transport)]
    print_table(f"SIGKILL at {options.rate:,.0f} tuples/s, a snapshot every 5 s", ["state", "transport", "away s", "caught up after s", "counts exact"], rows)


if __name__ == "__main__":
    main()
