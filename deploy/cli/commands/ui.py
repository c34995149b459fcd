"""``dskype ui``: serve Storm's UI with its REST API, and DSkype's pages, until Ctrl-C."""

from __future__ import annotations

import argparse
import os
import threading
from dataclasses import replace
from typing import Any

from dskype.deploy.cli.arguments import common, from_environment, serving, target
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
    parser.add_argument(
        "--tenants",
        metavar="FILE",
        help="YAML: tenant: token, for example acme: ${ENV-ACME_TOKEN}; then reading needs a token, too, and a tenant sees and changes only its own subscriptions",
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
    settings = replace(settings, tenants=_tenants(args.tenants))
    kafka = cluster.kafka_settings(target(args))
    source = FollowedCluster(kafka, WatchedReports)
    with serve(source, settings, say, [make_extension(kafka, source, settings.budget, tenants=bool(settings.tenants))]):
        threading.Event().wait()
    return 0


def _tenants(file: str | None) -> dict[str, str]:
    """Return tenant -> token of a file; {} without one. No error quotes a token."""
    from dskype.spouts.tenants import TENANT_LEGAL, is_tenant
    from dskype.topology.errors import IllegalArgumentException
    from dskype.topology.flux.loader import read_yaml

    if file is None:
        return {}
    try:
        found: Any = from_environment(read_yaml(file))
    except argparse.ArgumentTypeError as error:
        raise IllegalArgumentException(f"{file}: {error}") from None
    if not isinstance(found, dict) or not found or not all(isinstance(token, str) for token in found.values()):
        given = type(found).__name__ if not isinstance(found, dict) else f"{len(found)} entries"
        raise IllegalArgumentException(
            f"{file} does not have the tokens of tenants.", given=given, legal="tenant: token, each a text", hint="acme: ${ENV-ACME_TOKEN}"
        )
    if wrong := [tenant for tenant in found if not is_tenant(tenant)]:
        raise IllegalArgumentException(f"{file} names a tenant that can be none.", given=wrong[0], legal=TENANT_LEGAL)
    return found
