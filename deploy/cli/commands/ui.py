"""``dskype ui``: serve Storm's UI with its REST API, and DSkype's pages, until Ctrl-C."""

from __future__ import annotations

import argparse
import os
import threading

from dskype.deploy.cli.arguments import common, serving, target
from dskype.deploy.machine import cluster
from dskype.deploy.machine.terminal import say

_TOKEN = "DSKYPE_UI_TOKEN"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    common(parser)
    serving(parser, 8080, "reading needs no password")
    parser.add_argument("--allow-origin", metavar="ORIGIN", help="let the pages of another site read the answers; '*': of all sites, with JSONP, too")
    parser.add_argument(
        "--proxy",
        metavar="ADDRESS",
        action="append",
        default=[],
        help="the address of a proxy in front of it, which names the clients (X-Forwarded-For); repeatable",
    )
    parser.epilog = (
        f"Changes (activate, kill, ...) need a token. A new one is made and printed at every start, unless ${_TOKEN} has one of at least 16 characters."
    )


def run(args: argparse.Namespace) -> int:
    """Serve until Ctrl-C."""
    from dskype.deploy.metrics.ui_server import FollowedCluster, UiSettings, require_web_server, serve

    require_web_server()  # before what imports it
    from dskype.deploy.web.extension import make_extension
    from dskype.deploy.web.trend import WatchedReports
    from dskype.topology.runtime.processes.host import share_memory
    from dskype.topology.ui.budget import Budget

    share_memory()
    settings = UiSettings(
        args.host,
        args.port,
        os.environ.get(_TOKEN) or None,
        tuple(args.allow_host),
        args.allow_origin,
        args.allow_remote,
        tuple(args.proxy),
        Budget.given(args.limit),
    )
    kafka = cluster.kafka_settings(target(args))
    source = FollowedCluster(kafka, WatchedReports)
    with serve(source, settings, say, [make_extension(kafka, source, settings.budget)]):
        threading.Event().wait()
    return 0
