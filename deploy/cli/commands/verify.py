"""``dskype verify``: read a topology's topics and compare everything that it published with a brute-force oracle.

:func:`dskype.deploy.verification.verify` says what is compared. Exit code 0: all equal; 1: something differs, or the topology did not
come to rest in time, which a line on standard error says; 2: wrong arguments.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import TYPE_CHECKING, Any

from dskype.deploy.cli.arguments import UsageError, client_options, integer, layers, output, positive, positive_seconds, target
from dskype.deploy.machine import cluster
from dskype.deploy.machine.terminal import Progress, plain, say

if TYPE_CHECKING:
    from dskype.spouts.settings import Settings
    from dskype.topology.runtime.kafka.clients import KafkaSettings

__all__ = ["add_arguments", "run"]

_AGAIN_S = 3.0
_Layers = tuple[dict[str, Any], dict[str, Any] | None, dict[str, Any]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    client_options(parser)
    group = parser.add_argument_group("options of verify")
    group.add_argument("--file", metavar="YAML", dest="topology_file", help="use the config of this topology file; default: the running topology's")
    group.add_argument(
        "--inputs", metavar="NAME", help="the topology reads the messages and subscriptions of NAME.messages and NAME.subscriptions; default: its own"
    )
    group.add_argument(
        "--messages",
        metavar="TOPIC",
        nargs="+",
        help="the topics of messages in the order of the message spout; default: those of the running topology, else its own and those with mappings",
    )
    group.add_argument(
        "--final",
        action="store_true",
        help="the topology is at rest: it must have handled all input, the time of every message must have come, "
        "and its last lists must be those at the newest message",
    )
    group.add_argument("--wait", metavar="SECS", type=positive_seconds, help="wait up to this long for the topology to come to rest, then as --final")
    group.add_argument("--since", metavar="WATERMARK", type=integer("a watermark, 0 or more"), help="compare only results from this watermark on")
    group.add_argument("--sample", metavar="N", type=positive, help="compare only N subscriptions, drawn at random")
    group.add_argument("--seed", metavar="N", type=int, default=0, help="for --sample; default: 0")
    group.add_argument("--show", metavar="N", type=positive, default=1, help="differences to show in full; default: 1")
    output(parser)


def run(args: argparse.Namespace) -> int:
    """Print the report; fail if something differs."""
    from dskype.deploy.client.pubsub import PubSub

    given = layers(args)  # a wrong file is told before brokers are waited for
    try:
        return _run(args, given, PubSub(cluster.reach(target(args)), timeout_s=args.timeout).kafka, args.topology)
    except UsageError as error:
        say(f"usage: dskype verify [options]; see 'dskype help verify'\nerror: {error}")
        return 2


def _run(args: argparse.Namespace, given: _Layers, kafka: KafkaSettings, topology: str) -> int:
    from dskype.deploy.cli.warmup import are_compiled
    from dskype.deploy.client.message_topics import message_topics
    from dskype.deploy.verification import verify
    from dskype.deploy.verification.topics import read_inputs, wait_until_rest
    from dskype.topology.runtime.nimbus.nimbus_topic import load_states

    record = load_states(kafka).get(topology)
    settings = _settings(given, record, topology)
    topics = args.messages or message_topics(record, topology, settings, args.inputs)
    progress = Progress(clear=True)
    final = args.final
    left = ""
    if args.wait is not None:
        left = wait_until_rest(kafka, topology, settings, args.wait, progress, args.inputs, topics)
        final = final or not left
    for attempt in (1, 2):
        inputs = read_inputs(kafka, topology, progress, args.inputs, topics)
        if not any(inputs.counts().values()):
            progress.end()
            raise UsageError(f"topology {topology!r} has no records in its topics ({', '.join(inputs.counts())})")
        if attempt == 1 and not are_compiled():
            progress.end()
            say("note: the kernels are not compiled yet; the comparison compiles those that it needs, which takes a minute or more")
        report = verify(
            inputs,
            settings,
            final=final,
            since=args.since,
            sample=args.sample,
            seed=args.seed,
            writes=args.since is None and args.sample is None,
            progress=progress,
        )
        if report.ok or final or attempt == 2:
            break
        # A sink that failed has written part of a batch, and will write all of it soon.
        progress("something differs; looking again")
        time.sleep(_AGAIN_S)
    progress.end()
    if args.output == "json":
        print(json.dumps({**report.as_json(), "rested": not left, "left": left}, ensure_ascii=False))
    else:
        text = plain(report.as_text(args.show))
        print(text.encode(sys.stdout.encoding or "utf-8", "backslashreplace").decode(sys.stdout.encoding or "utf-8"))
    if left:
        say(f"error: the topology was still at work after {args.wait:g} s: {left}; its last lists were not compared")
    return 0 if report.ok and not left else 1


def _settings(given: _Layers, record: dict[str, Any] | None, topology: str) -> Settings:
    """Return the settings of the file or the running topology, which override ``--config`` and are overridden by ``-c``."""
    from dskype.spouts.settings import Settings
    from dskype.topology.runtime.nimbus.nimbus_topic import conf_of

    below, conf, above = given
    if conf is None:
        conf = None if record is None else conf_of(record)
    if conf is None and not (below or above):
        raise UsageError(f"topology {topology!r} is not running, and its window and its vocabulary are not known; expected --file with its YAML file")
    return Settings.from_conf({**below, **(conf or {}), **above})
