"""``dskype dead-letters``: what a topology could not process, and why."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from dskype.deploy.cli.arguments import client_options, open_client, output, positive
from dskype.deploy.machine.terminal import clean, clock_text, put, say

if TYPE_CHECKING:
    from dskype.deploy.client.dead_letters import DeadLetter

_VALUE_WIDTH = 160


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    client_options(parser)
    parser.add_argument("--count", metavar="N", type=positive, default=10, help="how many, the newest ones; default: 10")
    parser.add_argument("--reason", metavar="X", help="only those with this code (docs/guides/metrics.md), or with these words in the reason")
    parser.add_argument("--follow", action="store_true", help="then print others as they come, until Ctrl-C")
    output(parser)


def run(args: argparse.Namespace) -> int:
    """Print the newest dead letters, and with ``--follow`` those that come."""
    from dskype.deploy.client.dead_letters import DeadLetters

    as_text = _json if args.output == "json" else _lines
    with open_client(args) as client, DeadLetters(client, args.count, args.reason, args.timeout) as letters:
        found = letters.newest()
        put(*map(as_text, found))
        if not found:
            about = "" if args.reason is None else f" about {args.reason!r}"
            say(f"topology {args.topology} has no dead letters{about}" + ("; waiting for others" if args.follow else ""))
        while args.follow:
            put(*map(as_text, letters.poll()))
    return 0


def _lines(letter: DeadLetter) -> str:
    """Return two lines: time, code, the record's place and the reason; below it the record itself, shortened."""
    place = f"{clean(letter.topic, 80)} {letter.partition}-{letter.offset}" if letter.topic else "-"
    head = f"{clock_text(letter.time_ms, True)}  {clean(letter.code or '-', 40)}  {place}  {clean(letter.error, 400)}"
    value = "(no value)" if letter.value is None else clean(letter.value[: 8 * _VALUE_WIDTH].decode(errors="backslashreplace"), _VALUE_WIDTH)
    return f"{head}\n    {value}"


def _json(letter: DeadLetter) -> str:
    return json.dumps(letter.as_json())
