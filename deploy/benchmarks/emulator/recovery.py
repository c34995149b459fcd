"""How long a bolt is away after SIGKILL of its executor, by the size of its state."""

from __future__ import annotations

import os
import signal
import time

from dskype.deploy.benchmarks.emulator.components import BatchSpout, StatefulBatchPass
from dskype.deploy.benchmarks.emulator.measure import bench_cluster, parser, print_table, wait_for_first
from dskype.deploy.benchmarks.usage import processes, tree
from dskype.topology import Fields, TopologyBuilder


def main() -> None:
    """Print the table."""
    options = parser(__doc__)
    options.add_argument("--mib", type=int, nargs="*", default=[1, 16, 128, 512], help="sizes of the state")
    options.add_argument("--rate", type=float, default=20_000, help="tuples/s (default 20000)")
    options = options.parse_args()
    rows = []
    with bench_cluster(options) as cluster:
        for mib in options.mib:
            builder = TopologyBuilder()
            builder.set_spout("spout", BatchSpout(options.rate), 1)
            builder.set_bolt("bolt", StatefulBatchPass(mib << 20), 1).fields_grouping("spout", Fields("key"))
            conf = {"topology.acker.executors": 0, "topology.emulator.snapshot.interval.ms": 5000}
            with cluster.submit_topology(f"recovery-{mib}", conf, builder.create_topology()) as handle:
                wait_for_first(handle, "bolt")
                time.sleep(options.warm_up)
                pid = min(p.pid for p in tree(processes(), os.getpid()) if p.name == "dsk:bolt")  # its forks, which write snapshots, come later
                killed = time.monotonic()
                os.kill(pid, signal.SIGKILL)
                while any(t["pid"] == pid for t in list(handle.stats.tasks.values())):
                    time.sleep(0.005)
                back = time.monotonic() - killed
                handle.backend.wait_until(lambda s: s.undelivered_tuples() < options.rate / 2, 60, "an end of the backlog")
                caught_up = time.monotonic() - killed
                handle.backend.deactivate()
                handle.backend.wait_until(lambda s: s.undelivered_tuples() == 0, 60, "an end of all deliveries")
                emitted, executed = handle.stats.total("spout", "emitted"), handle.stats.total("bolt", "executed")
            rows.append([f"{mib} MiB", f"{back:.2f}", f"{caught_up:.2f}", "yes" if emitted == executed else f"NO: {emitted} {executed}"])
    print_table(
        f"SIGKILL of a bolt's executor at {options.rate:,.0f} tuples/s, a snapshot every 5 s", ["state", "away s", "caught up after s", "counts exact"], rows
    )


if __name__ == "__main__":
    main()
