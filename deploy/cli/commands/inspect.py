"""``dskype inspect``: guess how the records of a file or a topic become messages, and show what comes of it."""

from __future__ import annotations

import argparse
import itertools
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dskype.deploy.cli.arguments import UsageError, check_options, client_options, offline_settings, open_client, output, positive
from dskype.deploy.machine.terminal import clean, clock_text, counted, put, say

_REFUSED = 5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    client_options(parser)
    parser.add_argument("source", metavar="FILE|TOPIC", help="JSON lines, a JSON array, GeoJSON, CSV, TSV or Parquet; .gz and .zst too; or the name of a topic")
    parser.add_argument("--records", metavar="N", type=positive, default=200, help="how many to look at; default: 200")
    parser.add_argument("--show", metavar="N", type=positive, default=5, help="how many messages to show; default: 5")
    parser.add_argument("--as-topology", action="store_true", help="print a whole topology file that reads the topic, for 'dskype up', in place of the mapping")
    check_options(parser)
    output(parser)


def run(args: argparse.Namespace) -> int:
    """Show messages and errors on standard error, and the mapping as YAML on standard output; with a mapping in the options, show what that one does."""
    from dskype.spouts.input_mapping import InputMapping, MessageReader
    from dskype.spouts.record_values import RecordError

    if args.as_topology and os.path.exists(args.source):
        raise UsageError(f"--as-topology is for topics; {args.source} is a file, which 'dskype publish' reads")
    settings = offline_settings(args)
    given = settings.input
    found = _look(args, given)
    if not found.records:
        raise UsageError(f"there is no record in {args.source}")
    if given is not None and given.form() is not None:  # it does not say what is where
        given = None
    mapping = InputMapping(found.usable()) if given is None else given
    reader, own = MessageReader(settings, mapping), MessageReader(settings, None)
    messages: list[dict[str, Any]] = []
    refused: list[dict[str, Any]] = []
    own_forms = 0
    for number, value in found.records:
        try:
            if isinstance(value, RecordError):
                raise value
            message = reader.read(value)
            messages.append({"line": number, **_shown(message)})
            own_forms += _reads(own, value)
        except RecordError as error:
            refused.append({"line": number, "error": str(error)})
    needed = given is None and (own_forms < len(found.records))
    if args.output == "json":
        options = {name: value for name, value in found.options.items() if name != "registry"} if given is None else None
        put(
            json.dumps(
                {"mapping": options, "others": found.others, "messages": messages[: args.show], "refused": refused, "needed": needed}, ensure_ascii=False
            )
        )
    else:
        _report(args, messages, refused)
        if args.as_topology:
            put(_topology(args.source, found.options if given is None else given.options, settings.input))
        elif given is None and not needed:
            say("the records have DSkype's own form: they need no mapping")
        elif given is None:
            put(*_yaml(args.source, found.options, found.others))
    return 0 if messages else 1


def _reads(reader: Any, value: Any) -> bool:
    from dskype.spouts.record_values import RecordError

    try:
        reader.read(value)
    except RecordError:
        return False
    return True


def _look(args: argparse.Namespace, mapping: Any) -> Any:
    from dskype.spouts.mapping_guess import look, look_at_values

    if args.source == "-":
        raise UsageError("expected a file or a topic, which can be read twice; given: standard input")
    if os.path.exists(args.source):
        return look(args.source, args.records, mapping)
    if os.sep in args.source:
        raise UsageError(f"there is no file {args.source}")
    with open_client(args) as client:
        client.require(args.source)
        share = -(-args.records // client.partitions(args.source))
        return look_at_values((record.value for record in itertools.islice(client.scan(args.source, share), args.records)), mapping)


def _shown(message: Any) -> dict[str, Any]:
    """Return what is shown of a message."""
    found = {"id": None if message.id is None else json.loads(message.id), "text": message.text, "lat": message.lat, "lon": message.lon}
    more = {"bbox": message.bbox, "ts": message.ts, "attributes": message.attributes}
    return {**found, **{name: value for name, value in more.items() if value is not None}}


def _report(args: argparse.Namespace, messages: list[dict[str, Any]], refused: list[dict[str, Any]]) -> None:
    say(f"{args.source}: {counted(len(messages) + len(refused), 'record')} looked at, {counted(len(messages), 'message')}, {len(refused):,} refused")
    for message in messages[: args.show]:
        id = "" if message["id"] is None else f"{clean(str(message['id']), 40)}: "
        where = f"{message['lat']:g}, {message['lon']:g}" if "bbox" not in message else "an area around {lat:g}, {lon:g}".format(**message)
        when = f"; {clock_text(message['ts'], True)}" if "ts" in message else ""
        attributes = f"; {json.dumps(message['attributes'], ensure_ascii=False)}" if "attributes" in message else ""
        say(f"  {id}{clean(message['text'], 80)!r} at {where}{when}{clean(attributes, 200)}")
    for error in refused[:_REFUSED]:
        say(f"  refused: line {error['line']}: {error['error']}")
    if len(refused) > _REFUSED:
        say(f"  refused: {len(refused) - _REFUSED:,} more")


def _topology(topic: str, options: Mapping[str, Any], given: Any) -> str:
    """Return the topology file that comes with the product, with a topic whose records have a form of their own."""
    from dskype.deploy.machine.registry import TOPOLOGIES

    text = Path(TOPOLOGIES, "dskype.yaml").read_text(encoding="utf-8")
    form = {} if given is None else {name: given.options[name] for name in ("format", "csv", "registry") if given.options[name]}
    mapping = {**form, **{name: value for name, value in options.items() if value is not None or name not in ("text", "place")}}
    if mapping.get("registry", {}).keys() - {"url"}:
        mapping["registry"] = {"url": mapping["registry"]["url"]}
        say("note: of dskype.input.registry only the url is in the file; the rest may have a password")
    topics = f"  dskype.input.topics: {json.dumps({topic: mapping}, ensure_ascii=False)}"
    for line, more in (
        ("\nconfig:\n", f"\nconfig:\n{topics}\n"),
        ("constructorArgs: [dskype.messages]", f"constructorArgs: [[dskype.messages, {json.dumps(topic)}]]"),
    ):
        assert text.count(line) == 1
        text = text.replace(line, more)
    return text.rstrip("\n")


def _yaml(source: str, options: Mapping[str, Any], others: Mapping[str, str]) -> list[str]:
    """Return a mapping as YAML, with what could not be found as comments."""
    lines = [f"# How the records of {clean(source, 200)} become messages: a guess of 'dskype inspect' (docs/guides/data.md)."]
    for name, value in options.items():
        if name == "registry" and value.keys() != {"url"}:
            lines.append("# dskype.input.registry as before; it is not printed, because it may have a password")
            continue
        missing = {"text": "the text", "place": "the place"}.get(name) if value is None else None
        lines.append(
            f"dskype.input.{name}: {json.dumps(value, ensure_ascii=False)}"
            if missing is None
            else f"# {missing} was not found; dskype.input.{name} says where it is"
        )
    if others:
        lines.append("# These could be attributes: {name: path}, with the names of dskype.attributes.")
        lines += [f"#   {name}: {json.dumps(path, ensure_ascii=False)}" for name, path in others.items()]
    return lines
