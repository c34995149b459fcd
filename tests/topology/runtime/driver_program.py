"""A driver of its own, to be killed: ``python -m tests.topology.runtime.driver_program '<json>'``.

Says ``running`` when the topology is submitted and ``done`` when the sink has had every tuple.
"""

from __future__ import annotations

import json
import sys

from dskype.topology.local import LocalCluster

from .components import sum_chain


def main(arguments: dict) -> None:
    """Run the chain of running sums, resumed if there is something to resume."""
    topology, conf = sum_chain(arguments["out"], arguments["total"], arguments["rate"])
    with LocalCluster(bootstrap_servers=arguments["servers"], folder=arguments["folder"], resume=True) as cluster:
        with cluster.submit_topology(arguments["name"], conf, topology) as handle:
            print("running", flush=True)
            handle.backend.wait_until(lambda stats: stats.total("sink", "executed") >= arguments["total"], 100)
            print("done", flush=True)
            sys.stdin.readline()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
