"""``dskype tail``: follow the results, or the whole top-k lists."""

from __future__ import annotations

import argparse
import contextlib
import sys

from dskype.deploy.cli.arguments import client_options, open_client, output, positive
from dskype.deploy.machine.terminal import put, say


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    client_options(parser)
    parser.add_argument("--sub", metavar="ID", action="append", help="only results of this subscription; repeatable")
    parser.add_argument("--from", dest="start", choices=("beginning", "now"), default="now", help="default: now")
    parser.add_argument("--count", metavar="N", type=positive, help="end after N results")
    parser.add_argument("--topk", action="store_true", help="follow the whole top-k lists instead of their changes")
    parser.add_argument("--no-text", dest="texts", action="store_false", help="do not look up the texts of messages")
    output(parser)


def run(args: argparse.Namespace) -> int:
    """Print results as they come, until ``--count`` is reached."""
    from dskype.deploy.cli.result_lines import follow_results, follow_topk

    with open_client(args) as client:
        follow = follow_topk if args.topk else follow_results
        found = follow(client, subscriptions=set(args.sub) if args.sub else None, start=args.start, as_json=args.output == "json", with_texts=args.texts)
        client.require(client.topics.results)
        if client.running() is None:
            say(f"note: no topology {args.topology!r} runs; results come when one does")
        with contextlib.closing(found):
            left = sys.maxsize if args.count is None else args.count
            while left:
                batch = next(found)[:left]
                left -= len(batch)
                put(*batch)
    return 0
