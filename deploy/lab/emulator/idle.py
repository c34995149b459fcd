"""What an idle topology of four components costs: processor time of all its processes."""

from __future__ import annotations

import time

from dskype.deploy.cli.arguments import conf_item
from dskype.deploy.lab.emulator.components import IdleSpout, Pass
from dskype.deploy.lab.emulator.measure import add_transports, bench_cluster, cpu_seconds, parser, print_table
from dskype.topology import Fields, TopologyBuilder


def main() -> None:
    """Print the table."""
    options = parser(__doc__)
    add_transports(options)
    options.add_argument("-c", dest="conf", metavar="KEY=JSON", type=conf_item, action="append", default=[], help="a key of the configuration; repeatable")
    options = options.parse_args()
    with bench_cluster(options) as cluster:
        for transport in options.transport:
            builder = TopologyBuilder()
            builder.set_spout("spout", IdleSpout(), 1)
            for name, source in (("bolt1", "spout"), ("bolt2", "bolt1"), ("bolt3", "bolt2")):
                builder.set_bolt(name, Pass(), 2).fields_grouping(source, Fields("key"))
            conf = {"topology.acker.executors": 0, "topology.emulator.transport": transport, **dict(options.conf)}
            with cluster.submit_topology(f"idle-{transport}", conf, builder.create_topology()):
                time.sleep(options.warm_up)
                before = cpu_seconds()
                time.sleep(options.seconds)
                used = cpu_seconds() - before
            rows = [[kind, f"{seconds / options.seconds:.3f}"] for kind, seconds in sorted(used.items())]
            title = ", ".join(["idle topology, 4 components", transport, *(f"{key}: {value}" for key, value in options.conf)])
            print_table(title, ["process", "cores"], [*rows, ["all", f"{sum(used.values()) / options.seconds:.3f}"]])


if __name__ == "__main__":
    main()
