"""Latency and throughput of spout -> 3 bolts (fields grouping, 2 tasks each), ordinary and batch, with and without acking."""

from __future__ import annotations

import time

from dskype.deploy.benchmarks.emulator.components import BatchPass, BatchSpout, PacedSpout, Pass, quantile_ms
from dskype.deploy.benchmarks.emulator.measure import Measures, bench_cluster, cpu_seconds, parser, print_table, wait_for_first
from dskype.topology import Fields, StormTopology, TopologyBuilder

BOLTS = ("bolt1", "bolt2", "bolt3")


def chain(rate: float, *, batch: bool, tracked: bool, tasks: int = 2, executors: int = 2) -> StormTopology:
    """Return the chain.

    :param rate: tuples per second in all; 0: as fast as possible.
    """
    builder = TopologyBuilder()
    spout = (BatchSpout if batch else PacedSpout)(rate, tracked)
    builder.set_spout("spout", spout, 1)
    source = "spout"
    for name in BOLTS:
        declarer = builder.set_bolt(name, BatchPass() if batch else Pass(), executors).set_num_tasks(tasks)
        declarer.fields_grouping(source, Fields("key")).add_configuration("topology.tick.tuple.freq.secs", 1)
        source = name
    return builder.create_topology()


def conf_of(*, batch: bool, tracked: bool, rate: float) -> dict:
    """Return the topology's configuration: large pulses where throughput is measured."""
    conf = {"topology.acker.executors": 1 if tracked else 0}
    if not rate:
        conf |= {
            "topology.emulator.pulse.max.tuples": 200_000 if batch else 20_000,
            "topology.emulator.pulse.max.ms": 100,
            "topology.emulator.backpressure.max.tuples": 1_000_000 if batch else 60_000,
        }
        if tracked:
            conf["topology.max.spout.pending"] = 200_000 if batch else 60_000
    return conf


def run(cluster, rate: float, *, batch: bool, tracked: bool, warm_up: float, seconds: float) -> dict:
    """Run one chain and return its figures."""
    name = f"chain-{'batch' if batch else 'plain'}-{'acked' if tracked else 'unacked'}-{int(rate)}"
    submitted = time.monotonic()
    with cluster.submit_topology(name, conf_of(batch=batch, tracked=tracked, rate=rate), chain(rate, batch=batch, tracked=tracked)) as handle:
        wait_for_first(handle, "bolt3")
        first = time.monotonic() - submitted
        time.sleep(warm_up)
        measures = Measures(cluster)
        before = cpu_seconds()
        found = measures.collect(seconds)
        used = cpu_seconds() - before
        measures.close()
        errors = list(handle.stats.errors)
        acked, failed = handle.stats.total("spout", "acked"), handle.stats.total("spout", "failed")
        complete = handle.stats.mean_latency_ms("spout", "complete")
    hops = sum((found[b]["hop"] for b in BOLTS), start=type(found["bolt1"]["hop"])())
    whole = found["bolt3"]["whole"]
    return {
        "rate": found["bolt3"]["rate"],
        "hop": hops,
        "whole": whole,
        "first_s": first,
        "errors": errors,
        "acked": acked,
        "failed": failed,
        "complete_ms": complete,
        "cpu": {k: v / seconds for k, v in used.items()},
    }


def main() -> None:
    """Print the table."""
    options = parser(__doc__)
    options.add_argument("--rate", type=float, default=2000, help="tuples/s of the latency rows (default 2000)")
    options.add_argument("--only", choices=["latency", "throughput"], help="one half of the table")
    options.add_argument("--kind", choices=["ordinary", "batch"], help="one kind of bolt")
    options.add_argument("--acking", choices=["yes", "no"], help="with or without acking only")
    options = options.parse_args()
    rows = []
    with bench_cluster(options) as cluster:
        for rate in (options.rate, 0):
            if options.only and (options.only == "latency") != bool(rate):
                continue
            for batch in (False, True):
                if options.kind and (options.kind == "batch") != batch:
                    continue
                for tracked in (False, True):
                    if options.acking and (options.acking == "yes") != tracked:
                        continue
                    r = run(cluster, rate, batch=batch, tracked=tracked, warm_up=options.warm_up, seconds=options.seconds)
                    if r["errors"]:
                        print(r["errors"][-1]["error"])
                    rows.append(
                        [
                            "batch" if batch else "ordinary",
                            "yes" if tracked else "no",
                            f"{rate:.0f}" if rate else "max",
                            f"{r['rate']:,.0f}",
                            quantile_ms(r["hop"], 0.5),
                            quantile_ms(r["hop"], 0.99),
                            quantile_ms(r["whole"], 0.5),
                            quantile_ms(r["whole"], 0.99),
                            f"{r['first_s']:.1f}",
                            f"{sum(r['cpu'].values()):.2f}",
                            " ".join(f"{k} {v:.2f}" for k, v in sorted(r["cpu"].items())),
                        ]
                    )
    print_table(
        "spout -> 3 bolts, fields grouping, 2 tasks each",
        ["bolts", "acking", "offered/s", "tuples/s", "hop p50 ms", "hop p99 ms", "3 hops p50", "3 hops p99", "first tuple s", "cores", "cores by process"],
        rows,
    )


if __name__ == "__main__":
    main()
