"""``dskype backup``: keep what a topology's subscribers have registered, its plan, and the messages of its window, in a file."""

from __future__ import annotations

import argparse
from pathlib import Path

from dskype.deploy.cli.arguments import client_options, open_client
from dskype.deploy.machine.terminal import counted, say


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    client_options(parser)
    parser.add_argument("file", metavar="FILE", help="for example dskype.backup.gz")
    parser.add_argument("--no-messages", dest="messages", action="store_false", help="leave the messages of the window out")
    parser.add_argument("--force", action="store_true", help="replace FILE")


def run(args: argparse.Namespace) -> int:
    """Write the file."""
    from dskype.deploy.client.backup import write_backup
    from dskype.topology.errors import IllegalArgumentException

    path = Path(args.file)
    if path.exists() and not args.force:
        raise IllegalArgumentException(f"{path} exists already.", given=args.file, hint="name another file, or --force")
    with open_client(args) as client:
        kept = write_backup(client, path, messages=args.messages)
    plan = ", the distribution plan" if kept["plans"] else ""
    say(f"{path}: {counted(kept['subscriptions'], 'subscription')}{plan}, {counted(kept['messages'], 'message')} ({path.stat().st_size:,} bytes)")
    return 0
