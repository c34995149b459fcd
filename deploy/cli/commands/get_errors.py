"""``dskype get-errors``: print the newest error of each component as JSON."""

from __future__ import annotations

import argparse
import json

from dskype.deploy.cli.arguments import common, target
from dskype.deploy.machine import cluster
from dskype.deploy.machine.terminal import plain


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    common(parser)
    parser.add_argument("name", metavar="NAME")


def run(args: argparse.Namespace) -> int:
    """Print the errors, as Storm prints them."""
    from dskype.topology.errors import NotAliveException

    try:
        found = cluster.client(target(args)).errors(args.name)
    except NotAliveException:
        print(json.dumps({"Failure": f"No topologies running with name {args.name}"}))
        return 1
    newest = {component: errors[-1]["error"] for component, errors in found.items() if errors}
    print(plain(json.dumps({"Topology Name": args.name, "Comp-Errors": newest}, ensure_ascii=False)))
    return 0
