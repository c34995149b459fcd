"""``dskype down``: stop what ``dskype up`` runs, and keep its data."""

from __future__ import annotations

import argparse
from pathlib import Path

from dskype.deploy.cli.arguments import SERVICE_FOLDER, common, positive_seconds
from dskype.deploy.machine.terminal import say


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    common(parser, kafka=False)
    parser.add_argument("--folder", metavar="DIR", type=Path, help=f"the service's folder; default: {SERVICE_FOLDER}")
    parser.add_argument("--timeout", metavar="SECS", type=positive_seconds, default=90, help="how long it may take; default: 90")


def run(args: argparse.Namespace) -> int:
    """Stop topology, Spark and broker, in this order, and wait for their end."""
    from dskype.deploy.machine import paths, service

    folder = (args.folder or paths.service_dir()).expanduser().absolute()
    try:
        stopped = service.stop(folder, args.timeout, say)
    except KeyboardInterrupt:
        say(f"the service stops all the same; 'dskype status --folder {folder}' says when it has")
        raise
    say(f"{'stopped' if stopped else 'nothing runs'}; the data are in {folder}, and 'dskype up --folder {folder}' continues with them")
    return 0
