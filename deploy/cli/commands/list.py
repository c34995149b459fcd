"""``dskype list``: list the topologies."""

from __future__ import annotations

import argparse
import json

from dskype.deploy.cli.arguments import common, output, target
from dskype.deploy.machine import cluster
from dskype.deploy.machine.terminal import clean, say


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    common(parser)
    output(parser)


def run(args: argparse.Namespace) -> int:
    """Print the topologies, what is wrong with them, and who stands by."""
    from dskype.topology.nimbus.observing import GONE

    client = cluster.client(target(args))
    topologies = client.topologies()
    standbys = client.standbys()
    for t in topologies:
        t["standbys"] = standbys.get(t["name"], [])
    if args.output == "json":
        print(json.dumps(topologies, indent=2))
        return 0
    if not topologies:
        print("No topologies running.")
        return 0
    row = "%-20s %-10s %-10s %-12s %-12s %-20s %-20s"
    print(row % ("Topology_name", "Status", "Num_tasks", "Num_workers", "Uptime_secs", "Topology_Id", "Owner"))
    print("-" * 88)
    for t in topologies:
        print(row % (t["name"], t["status"], t["num_tasks"], t["num_workers"], t["uptime_secs"], t["id"], t["owner"]))
    for t in topologies:
        if not t.get("driver_alive", True):
            hint = "a standby takes over" if t["standbys"] else "submit it again to resume it, or kill it"
            say(f"note: the process that ran {t['name']} is gone; {hint}")
        for standby in t["standbys"]:
            say(f"note: process {standby['pid']} on {clean(standby['host'], 60)} stands by for {t['name']}")
        health = t.get("health") or {}
        why = [line for line in health.get("why", ()) if line != GONE]
        if why and health.get("state", "running") not in ("running", "starting"):
            say(f"note: {t['name']} is {health['state']}:" + "".join(f"\n  {line}" for line in why))
    return 0
