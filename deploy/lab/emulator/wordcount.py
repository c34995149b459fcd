"""Word count: words per second over the names of the world's places, with batch and with ordinary bolts."""

from __future__ import annotations

import time

from dskype.deploy.demo.wordcount import CountBolt, SplitBolt
from dskype.deploy.lab.emulator.components import CountWords, SplitWords, TextSpout
from dskype.deploy.lab.emulator.measure import bench_cluster, cpu_seconds, parser, print_table, wait_for_first
from dskype.topology import Fields, StormTopology, TopologyBuilder


def wordcount(*, batch: bool) -> StormTopology:
    """Return spout -> split (2 tasks) -> count (2 tasks)."""
    builder = TopologyBuilder()
    builder.set_spout("spout", TextSpout(batch), 1)
    builder.set_bolt("split", SplitBolt() if batch else SplitWords(), 2).shuffle_grouping("spout")
    builder.set_bolt("count", CountBolt() if batch else CountWords(), 2).fields_grouping("split", Fields("word"))
    return builder.create_topology()


def main() -> None:
    """Print the table."""
    options = parser(__doc__).parse_args()
    rows = []
    with bench_cluster(options) as cluster:
        for batch in (True, False):
            conf = {
                "topology.acker.executors": 0,
                "topology.emulator.pulse.max.tuples": 8000 if batch else 2000,
                "topology.emulator.pulse.max.ms": 100,
                "topology.emulator.backpressure.max.tuples": 400_000 if batch else 100_000,
            }
            with cluster.submit_topology("wordcount-" + ("batch" if batch else "ordinary"), conf, wordcount(batch=batch)) as handle:
                wait_for_first(handle, "count")
                time.sleep(options.warm_up)
                cpu, words, started = cpu_seconds(), handle.stats.total("count", "executed"), time.monotonic()
                time.sleep(options.seconds)
                seconds = time.monotonic() - started
                rate = (handle.stats.total("count", "executed") - words) / seconds
                used = cpu_seconds() - cpu
                for error in list(handle.stats.errors)[-1:]:
                    print(error["error"])
            rows.append(
                [
                    "batch" if batch else "ordinary",
                    f"{rate:,.0f}",
                    f"{sum(used.values()) / seconds:.2f}",
                    " ".join(f"{k} {v / seconds:.2f}" for k, v in sorted(used.items())),
                ]
            )
    print_table("word count, 1 spout, 2 split, 2 count tasks", ["bolts", "words/s", "cores", "cores by process"], rows)


if __name__ == "__main__":
    main()
