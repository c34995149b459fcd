"""DSkype in a driver of its own, to be killed or ended: ``python -m tests.endtoend.driver_program '<json>'``.

Says ``running`` when the topology is submitted. On ``stop`` it ends and leaves topics and snapshots to be resumed, on
``end`` it ends for good.
"""

from __future__ import annotations

import json
import sys

from dskype.topology.local import LocalCluster

from .harness import topology


def main(arguments: dict) -> None:
    """Run DSkype, resumed if there is something to resume."""
    cluster = LocalCluster(
        bootstrap_servers=arguments["servers"], folder=arguments["folder"], resume=True, master=arguments.get("master"), conf=arguments.get("spark")
    )
    word = "stop"
    try:
        cluster.submit_topology(arguments["name"], arguments["conf"], topology(arguments["tasks"], arguments["name"]))
        print("running", flush=True)
        word = sys.stdin.readline().strip()
    finally:
        cluster.shutdown(remove=word == "end")


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
