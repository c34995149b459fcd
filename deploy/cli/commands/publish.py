"""``dskype publish``: publish messages from a file of JSON lines."""

from __future__ import annotations

import argparse

from dskype.deploy.cli.arguments import check_options, client_options, number, open_client, output
from dskype.deploy.cli.lines import LINE_BYTES, Pace, Sending, lines


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    client_options(parser)
    parser.add_argument("file", metavar="FILE", help='{"text", "lat", "lon", "id"?, "ts"?} a line; -: standard input')
    parser.add_argument("--rate", metavar="N", type=number("messages per second, more than 0"), help="messages per second; default: as many as possible")
    checked = parser.add_mutually_exclusive_group()
    checked.add_argument("--validate", dest="check", action="store_true", default=True, help="check every line before it is sent; the default")
    checked.add_argument("--no-check", dest="check", action="store_false", help="send lines as they are; the topology puts bad ones to the dead letters")
    check_options(parser)
    output(parser)


def run(args: argparse.Namespace) -> int:
    """Send the lines; fail if one is refused."""
    from dskype.topology.errors import TopologyError

    client, pace = open_client(args), Pace(args.rate)
    with Sending(args, client, "message") as sending:
        client.require(client.topics.messages)
        for number, line in lines(args.file):
            if line is None:
                sending.refuse(number, f"longer than {LINE_BYTES:,} bytes")
                continue
            if args.check:
                try:
                    client.parse_message(line)
                except TopologyError as ex:
                    sending.refuse(number, str(ex))
                    continue
            pace.wait()
            sending.send(lambda line=line: client.send_message(line))
    return sending.summary({})
