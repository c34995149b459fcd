"""``dskype restore``: give a topology that has nothing yet what a backup has kept."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from dskype.deploy.cli.arguments import client_options, open_client, output, positive_seconds
from dskype.deploy.cli.lines import Sending
from dskype.deploy.machine.terminal import Progress, counted, say


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    client_options(parser)
    parser.add_argument("file", metavar="FILE", help="what 'dskype backup' wrote")
    parser.add_argument("--no-messages", dest="messages", action="store_false", help="leave the messages out: lists begin empty")
    parser.add_argument("--force", action="store_true", help="although the topology has subscriptions, or other settings")
    parser.add_argument(
        "--wait", metavar="SECS", type=positive_seconds, default=600, help="how long the topology may take to process the messages; default: 600"
    )
    output(parser)


def run(args: argparse.Namespace) -> int:
    """Send the messages, wait until they are processed, and send the plan and the subscriptions."""
    from dskype.deploy.client.backup import differences, read_backup
    from dskype.deploy.client.plans import fitting
    from dskype.deploy.client.records import rest_of_life
    from dskype.topology.errors import IllegalArgumentException, TopologyError

    lines = read_backup(Path(args.file))
    head = next(lines)
    client = open_client(args, patient=True)
    conf = client.running_conf()
    if conf is None:
        raise TopologyError("There is no such topology.", given=args.topology, hint="start it with its topology file; 'dskype list' lists those that run")
    told = differences(head, conf)
    if client.subscriptions():
        told.append(f"{client.name} has subscriptions already")
    if told and not args.force:
        raise IllegalArgumentException("The backup does not fit this topology.", given="; ".join(told), hint="--force restores it all the same")
    for text in told:
        say(f"warning: {text}")
    now_ms, over = time.time_ns() // 1_000_000, 0
    with Sending(args, client, "record") as sending:
        rest: list[Mapping[str, Any]] = []
        sent = _send_messages(sending, client, lines, rest, args.messages)
        if sent:
            client.flush()
            _await_processed(client, args.wait)
        for line in rest:
            if "plan" in line and not fitting(client)(line["plan"]):
                say("warning: the topology cannot use the plan of the backup, which is left out: it is for another distributor or another number of tasks")
                continue
            if "plan" in line:
                value = json.dumps({"v": 1, "version": line["version"], "plan": line["plan"]}, separators=(",", ":")).encode()
                sending.send(None, partial(client.send_plan, value))
                continue
            record = rest_of_life(line["value"], line["registered_ms"], now_ms)
            if record is None:
                over += 1
                continue
            key, value = line["subscription"].encode(errors="surrogatepass"), json.dumps(record, ensure_ascii=False).encode(errors="surrogatepass")
            sending.send(None, partial(client.send_subscription, key, value))
    if over:
        say(f"{counted(over, 'subscription')} had expired meanwhile")
    return sending.summary({"expired": over})


def _send_messages(sending: Sending, client: Any, lines: Iterable[Mapping[str, Any]], rest: list[Mapping[str, Any]], wanted: bool) -> int:
    """Send the messages, all to one partition, so that they keep their order; put the other lines into ``rest``."""
    sent = 0
    for line in lines:
        if "message" not in line:
            rest.append(line)
        elif wanted:
            value = json.dumps(line["message"], ensure_ascii=False).encode(errors="surrogatepass")
            sending.send(None, partial(client.send_message, value, partition=0))
            sent += 1
    return sent


def _await_processed(client: Any, timeout_s: float) -> None:
    """Wait until the topology has processed the messages: a boolean subscription that overtook some would match them again.

    :raises TopologyError: it has not within ``timeout_s``.
    """
    from dskype.deploy.metrics.meter import Meter, measure
    from dskype.deploy.metrics.reader import MetricsReader, find
    from dskype.topology.errors import TopologyError

    source, progress, deadline = MetricsReader(client.kafka, client.name, Meter(60)), Progress(), time.monotonic() + timeout_s
    try:
        quiet = 0
        while quiet < 3:  # three looks, because reports of tasks come one after another
            source.poll(500)
            found = measure(source.sink, find(client.kafka, client.name), ends=source.ends(source.sink.positions()))
            waiting = sum(found["lag"]["records"].values()) + sum(found["lag"]["in_flight"].values())
            quiet = quiet + 1 if not waiting and found["lag"]["records"] else 0
            progress(partial("{:,} records and tuples wait".format, waiting))
            if time.monotonic() > deadline:
                raise TopologyError("The topology has not processed the messages in time.", given=f"{timeout_s:g} s, {waiting:,} wait", hint="--wait SECS")
    finally:
        progress.end()
        source.close()
