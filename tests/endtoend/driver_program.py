"""DSkype in a driver of its own, to be killed or ended: ``python -m tests.endtoend.driver_program '<json>'``.

Says ``running`` when the topology is submitted, and as a standby before that ``standing by``. On ``stop`` it ends and leaves topics and snapshots to be resumed, on
``end`` it ends for good.
"""

from __future__ import annotations

import json
import sys

from dskype.topology.local import LocalCluster
from dskype.topology.runtime.nimbus import liveness

from .harness import topology


def main(arguments: dict) -> None:
    """Run DSkype, resumed if there is something to resume."""
    if host := arguments.get("host"):  # the driver counts as one on a host of its own, whose life is known by its heartbeat alone
        liveness.machine_id = lambda: host
    cluster = LocalCluster(
        bootstrap_servers=arguments["servers"],
        folder=arguments["folder"],
        resume=True,
        master=arguments.get("master"),
        conf=arguments.get("spark"),
        standby=arguments["name"] if arguments.get("standby") else None,
        progress=lambda text: print("standing by", flush=True) if text.startswith("standing by") else None,
    )
    word = "stop"
    try:
        dskype = topology(arguments["tasks"], arguments["name"])
        for component, transport in arguments.get("transports", {}).items():
            dskype.components[component].conf["topology.emulator.transport"] = transport
        cluster.submit_topology(arguments["name"], arguments["conf"], dskype)
        print("running", flush=True)
        word = sys.stdin.readline().strip()
    finally:
        cluster.shutdown(remove=word == "end")


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
