"""``dskype publish``: publish messages from a file, or one by options."""

from __future__ import annotations

import argparse
import json
from typing import Any

from dskype.deploy.cli.arguments import UsageError, check_options, client_options, conf_item, degrees, number, open_client, output
from dskype.deploy.cli.lines import Pace, Sending


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    client_options(parser)
    parser.add_argument("file", nargs="?", metavar="FILE", help="messages: JSON lines, a JSON array, CSV, TSV or Parquet; .gz and .zst too; -: standard input")
    parser.add_argument("--rate", metavar="N", type=number("messages per second, more than 0"), help="messages per second; default: as many as possible")
    checked = parser.add_mutually_exclusive_group()
    checked.add_argument("--validate", dest="check", action="store_true", default=True, help="check every line before it is sent; the default")
    checked.add_argument("--no-check", dest="check", action="store_false", help="send lines as they are; the topology puts bad ones to the dead letters")
    check_options(parser)
    output(parser)
    one = parser.add_argument_group("one message by options")
    one.add_argument("--text", help="what it says")
    one.add_argument("--at", metavar="LAT,LON", type=degrees("LAT,LON"), help="a point")
    one.add_argument("--bbox", metavar="W,S,E,N", type=degrees("WEST,SOUTH,EAST,NORTH"), help="an area; west > east crosses the antimeridian")
    one.add_argument("--attribute", metavar="NAME=JSON", type=conf_item, action="append", dest="attributes", help="e.g. price=12.5; repeatable")
    one.add_argument("--id", metavar="ID", help="what results call it; default: its place in the topic")
    one.add_argument("--object", metavar="ID", help="the object whose newest state it is")
    one.add_argument("--delete", action="store_true", help="the object of --object ends; without text and place")
    one.add_argument("--ts", metavar="MS", type=int, help="its time since the epoch; default: its arrival")


def _by_options(args: argparse.Namespace) -> dict[str, Any] | None:
    """Return the message that the options describe; None when there are none."""
    fields = {"id": args.id, "text": args.text, "bbox": args.bbox, "attributes": args.attributes and dict(args.attributes), "ts": args.ts}
    fields |= {"object": args.object, "deleted": args.delete or None}
    if args.at is not None:
        fields["lat"], fields["lon"] = args.at
    return {name: value for name, value in fields.items() if value is not None} or None


def _one(args: argparse.Namespace) -> bytes | None:
    """Return the message that the options describe; None when there is a file."""
    fields = _by_options(args)
    if (args.file is None) == (fields is None):
        raise UsageError("expected a FILE (- is standard input), or one message by options; given: " + ("neither" if fields is None else "both"))
    if fields is None:
        return None
    if args.delete and args.object is None:
        raise UsageError("expected --object with --delete; given: none")
    if args.check and not args.delete and (args.text is None or args.at is args.bbox is None):
        given = " ".join(f"--{name}" for name in ("text", "at", "bbox") if getattr(args, name) is not None) or "none of them"
        raise UsageError(f"expected --text, and its place by --at LAT,LON or --bbox W,S,E,N; given: {given}")
    return json.dumps(fields, ensure_ascii=False).encode(errors="surrogatepass")


def run(args: argparse.Namespace) -> int:
    """Send the messages, in DSkype's own form; fail if one is refused."""
    from dskype.spouts.input_mapping import MessageReader
    from dskype.spouts.readers import RecordFile
    from dskype.spouts.record_values import RecordError, encode_json

    one = _one(args)
    file = None if one is not None else RecordFile(args.file)  # before brokers are waited for
    client, pace = open_client(args, patient=True), Pace(args.rate)
    with Sending(args, client, "message") as sending:
        client.require(client.topics.messages)
        if file is not None:
            file.use(client.settings.input)
        reader = MessageReader(client.settings, None if file is None else file.mapping)
        for number, value in [(None, one)] if file is None else file:
            try:
                if isinstance(value, RecordError):
                    raise value
                message = reader.own_form(value)
                object = reader.check(message).object if args.check else None
                if isinstance(message, dict):
                    message = encode_json(message).encode()
            except (RecordError, ValueError) as ex:
                sending.refuse(number, str(ex))
                continue
            pace.wait()
            sending.send(number, lambda message=message, object=object: client.send_message(message, object=object))
    return sending.summary({})
