"""Latency and throughput of spout -> 3 bolts (fields grouping, 2 tasks each), ordinary and batch, with and without acking."""

from __future__ import annotations

import argparse
import time
from itertools import product

from dskype.deploy.lab.emulator.components import BatchPass, BatchSpout, PacedSpout, Pass, quantile_ms
from dskype.deploy.lab.emulator.measure import Measures, add_transports, bench_cluster, cpu_seconds, parser, print_table, wait_for_first
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


def run(cluster, rate: float, *, batch: bool, tracked: bool, warm_up: float, seconds: float, transport: str) -> dict:
    """Run one chain and return its figures."""
    name = f"chain-{'batch' if batch else 'plain'}-{'acked' if tracked else 'unacked'}-{int(rate)}-{transport}-{time.time_ns() // 1_000_000}"
    submitted = time.monotonic()
    conf = conf_of(batch=batch, tracked=tracked, rate=rate) | {"topology.emulator.transport": transport}
    with cluster.submit_topology(name, conf, chain(rate, batch=batch, tracked=tracked)) as handle:
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


def _wanted(options: argparse.Namespace, rate: float, *, batch: bool, tracked: bool) -> bool:
    return (
        (not options.only or (options.only == "latency") == bool(rate))
        and (not options.kind or (options.kind == "batch") == batch)
        and (not options.acking or (options.acking == "yes") == tracked)
    )


def _figures(found: dict) -> list[str]:
    """Return what the table shows of a run."""
    quantiles = [quantile_ms(found[what], q) for what in ("hop", "whole") for q in (0.5, 0.99)]
    parts = " ".join(f"{k} {v:.2f}" for k, v in sorted(found["cpu"].items()))
    return [
        f"{found['rate']:,.0f}",
        *(f"{q:.1f}" if q < 100 else f"{q:.0f}" for q in quantiles),
        f"{found['first_s']:.1f}",
        f"{sum(found['cpu'].values()):.2f}",
        parts,
    ]


def main() -> None:
    """Print the table."""
    options = parser(__doc__)
    options.add_argument("--rate", type=float, default=2000, help="tuples/s of the latency rows (default 2000)")
    options.add_argument("--only", choices=["latency", "throughput"], help="one half of the table")
    options.add_argument("--kind", choices=["ordinary", "batch"], help="one kind of bolt")
    options.add_argument("--acking", choices=["yes", "no"], help="with or without acking only")
    options.add_argument("--rounds", type=int, default=1, help="how often to run each row (default 1)")
    add_transports(options)
    options = options.parse_args()
    rows = []
    with bench_cluster(options) as cluster:
        for rate, batch, tracked, _, transport in product((options.rate, 0), (False, True), (False, True), range(options.rounds), options.transport):
            if not _wanted(options, rate, batch=batch, tracked=tracked):
                continue
            found = run(cluster, rate, batch=batch, tracked=tracked, warm_up=options.warm_up, seconds=options.seconds, transport=transport)
            if found["errors"]:
                print(found["errors"][-1]["error"])
            rows.append(["batch" if batch else "ordinary", transport, "yes" if tracked else "no", f"{rate:.0f}" if rate else "max", *_figures(found)])
            print(*rows[-1], sep="  ", flush=True)
    print_table(
        "spout -> 3 bolts, fields grouping, 2 tasks each",
        [*"bolts transport acking offered/s tuples/s".split(), "hop p50 ms", "hop p99 ms", "3 hops p50", "3 hops p99", "first tuple s", "cores", "by process"],
        rows,
    )


if __name__ == "__main__":
    main()
