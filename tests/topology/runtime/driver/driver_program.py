"""A driver in a process of its own, which tests kill: ``python -m tests.topology.runtime.driver.driver_program '<json>'``.

Says ``running`` when the topology is submitted and ``done`` when the sink has had every tuple. ``conf`` is configuration of the topology.
"""

from __future__ import annotations

import json
import sys

from dskype.topology.errors import TopologyError
from dskype.topology.local import LocalCluster

from ..components import sum_chain


def main(arguments: dict) -> None:
    """Run the chain of running sums, resumed if there is something to resume."""
    topology, conf = sum_chain(arguments["out"], arguments["total"], arguments["rate"])
    try:
        run(arguments, topology, {**conf, **arguments.get("conf", {})})
    except TopologyError as error:
        print(f"failed: {error}", flush=True)
        sys.exit(3)


def run(arguments: dict, topology, conf: dict) -> None:
    """Run the topology to its end."""
    with LocalCluster(bootstrap_servers=arguments["servers"], folder=arguments["folder"], resume=True) as cluster:
        handle = cluster.submit_topology(arguments["name"], conf, topology)
        print("running", flush=True)
        try:
            handle.backend.wait_until(lambda stats: stats.total("sink", "executed") >= arguments["total"], 300)
        except TopologyError:
            cluster.shutdown(remove=False)  # like 'dskype submit', which resumes what an earlier driver has left
            raise
        print("done", flush=True)
        sys.stdin.readline()
        cluster.kill_topology(arguments["name"], wait_secs=0)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
