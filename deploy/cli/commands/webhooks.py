"""``dskype webhooks``: deliver results to programs that wait for them at a URL, until Ctrl-C."""

from __future__ import annotations

import argparse
import contextlib
import threading
from pathlib import Path

from dskype.deploy.cli.arguments import common, from_environment, port, target
from dskype.deploy.machine import cluster, paths
from dskype.deploy.machine.signals import end_on_sigterm
from dskype.deploy.machine.terminal import counted, say


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    common(parser)
    parser.add_argument("file", metavar="FILE", help="YAML: topology and webhooks; see docs/guides/web.md")
    parser.add_argument(
        "--state",
        metavar="FOLDER",
        help="where to keep what receivers with a pace are told later (default: ~/.local/share/dskype/webhooks); keep it as long as they exist",
    )
    parser.add_argument(
        "--metrics-port", metavar="N", type=port, help="serve to Prometheus meanwhile how many results went to tenants; 0: a free port, printed"
    )
    parser.add_argument("--metrics-host", metavar="ADDRESS", default="127.0.0.1", help="default: 127.0.0.1; any other needs a token in $DSKYPE_METRICS_TOKEN")
    parser.add_argument("--dry-run", action="store_true", help="check the file, send nothing")


def run(args: argparse.Namespace) -> int:
    """Deliver until Ctrl-C or SIGTERM."""
    from dskype.deploy.web.webhook_settings import parse_webhooks
    from dskype.topology.errors import IllegalArgumentException
    from dskype.topology.flux.loader import read_yaml

    try:
        topology, webhooks = parse_webhooks(from_environment(read_yaml(args.file)))
    except argparse.ArgumentTypeError as error:
        raise IllegalArgumentException(f"{args.file}: {error}") from None
    if args.dry_run:
        say(f"{args.file}: {counted(len(webhooks), 'webhook')} of {topology}")
        return 0
    from dskype.deploy.metrics.scrape_server import serve_collectors
    from dskype.deploy.web.webhooks import Webhooks

    end_on_sigterm()
    with contextlib.ExitStack() as parts:
        running = Webhooks(cluster.kafka_settings(target(args)), topology, webhooks, say, Path(args.state) if args.state else paths.webhooks_dir())
        if args.metrics_port is not None:
            parts.callback(serve_collectors([running.sent], args.metrics_host, args.metrics_port, say).close)
        parts.enter_context(running)
        say(f"results of {topology} go to {', '.join(webhook.name for webhook in webhooks)}")
        threading.Event().wait()
    return 0
