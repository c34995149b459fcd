"""``dskype verify``: read a topology's topics and compare everything that was published with a brute-force oracle.

What is compared: :func:`dskype.deploy.verification.verify`. Exit code 0: all equal; 1: something differs, or the topology did not
come to rest in time; 2: the arguments make no sense.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dskype.deploy.cli.arguments import UsageError, output, plain, positive, positive_seconds, say

if TYPE_CHECKING:
    from dskype.deploy.verification import Inputs
    from dskype.spouts.settings import Settings
    from dskype.topology.runtime.kafka import KafkaSettings

__all__ = ["add_arguments", "at_rest", "read_inputs", "run"]

_LOOK_S = 0.5
_REST_S = 3.0
_LINE_S = 5.0
_AGAIN_S = 3.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verb's own options."""
    group = parser.add_argument_group("options of verify")
    group.add_argument("--file", metavar="YAML", dest="topology_file", help="compare by the config of this topology file; default: the running topology's")
    group.add_argument(
        "--inputs", metavar="NAME", help="the topology reads the messages and subscriptions of NAME.messages and NAME.subscriptions; default: its own"
    )
    group.add_argument(
        "--final",
        action="store_true",
        help="the topology is at rest: everything must have been handled, the time of every message must have come, "
        "and the last lists must be those at the newest message",
    )
    group.add_argument("--wait", metavar="SECS", type=positive_seconds, help="wait so long at most for the topology to come to rest, then as --final")
    group.add_argument("--since", metavar="WATERMARK", type=_watermark, help="compare results at this watermark and above only")
    group.add_argument("--sample", metavar="N", type=positive, help="compare so many subscriptions only, drawn at random")
    group.add_argument("--seed", metavar="N", type=int, default=0, help="for --sample; default: 0")
    group.add_argument("--show", metavar="N", type=positive, default=1, help="differences to show in full; default: 1")
    output(parser)


def _watermark(text: str) -> int:
    if not text.strip().isdecimal():
        raise argparse.ArgumentTypeError(f"expected a watermark, 0 or more, given: {text!r}")
    return int(text)


def run(args: argparse.Namespace, kafka: KafkaSettings, topology: str) -> int:
    """Verify a topology.

    :param args: with the options of :func:`add_arguments`, and ``config`` and ``conf`` of the common ones.
    :param kafka: its brokers.
    :param topology: its name.
    :returns: the exit code.
    """
    try:
        return _run(args, kafka, topology)
    except UsageError as error:
        say(f"usage: dskype verify [options]; see 'dskype help verify'\nerror: {error}")
        return 2


def _run(args: argparse.Namespace, kafka: KafkaSettings, topology: str) -> int:
    from dskype.deploy.verification import verify

    settings = _settings(args, kafka, topology)
    progress = _Progress()
    final = args.final
    rested = True
    if args.wait is not None:
        rested = _wait(kafka, topology, settings, args.wait, progress, args.inputs)
        final = final or rested
    for attempt in (1, 2):
        inputs = read_inputs(kafka, topology, progress, args.inputs)
        if not any(inputs.counts().values()):
            progress.end()
            raise UsageError(f"topology {topology!r} has no records in its topics ({', '.join(inputs.counts())})")
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
        # A sink that fails may lose records of a batch and write the batch again: nobody sees that a moment later.
        progress("something differs; looking again")
        time.sleep(_AGAIN_S)
    progress.end()
    if args.output == "json":
        print(json.dumps({**report.as_json(), "rested": rested}, ensure_ascii=False))
    else:
        text = plain(report.as_text(args.show))
        print(text.encode(sys.stdout.encoding or "utf-8", "backslashreplace").decode(sys.stdout.encoding or "utf-8"))
    if not rested:
        say(f"error: the topology was still at work after {args.wait:g} s; its last lists were not compared")
    return 0 if report.ok and rested else 1


def _settings(args: argparse.Namespace, kafka: KafkaSettings, topology: str) -> Settings:
    """Return the settings: of the file or the running topology, ``--config`` below and ``-c`` above."""
    from dskype.deploy.cli.lines import layers
    from dskype.spouts.settings import Settings
    from dskype.topology.runtime.nimbus_topic import conf_of, load_states

    below, conf, above = layers(args)
    if conf is None:
        state = load_states(kafka).get(topology)
        conf = None if state is None else conf_of(state)
    if conf is None and not (below or above):
        raise UsageError(f"topology {topology!r} is not running, and its window and its vocabulary are not known; expected --file with its YAML file")
    return Settings.from_conf({**below, **(conf or {}), **above})


def read_inputs(kafka: KafkaSettings, topology: str, progress: Callable[[str], None] = lambda _: None, source: str | None = None) -> Inputs:
    """Read a topology's topics to their present end.

    :param source: the topology whose messages and subscriptions it reads; None: its own.
    :raises KafkaTimeoutError: the brokers do not answer.
    """
    from dskype.deploy.verification import Inputs
    from dskype.topology.runtime.kafka import read_to_end

    def read(topic: str) -> list[Any]:
        progress(f"reading {topic}")
        return read_to_end(kafka, topic)

    return Inputs.read(topology, read, source)


# --- coming to rest ---------------------------------------------------------------------------------------------------


def _wait(kafka: KafkaSettings, topology: str, settings: Settings, timeout_s: float, progress: Callable[[str], None], source: str | None) -> bool:
    """Wait until the topics stay as they are and every message was handled; return False if that takes longer than ``timeout_s``."""
    from dskype.deploy.verification import INPUT_TOPICS
    from dskype.spouts.topics import Topics

    topics = Topics.of(topology, source)
    names = [getattr(topics, name) for name in INPUT_TOPICS]
    rest_s = max(_REST_S, 2 + 2 * settings.topk_interval_ms / 1000)
    deadline = time.monotonic() + timeout_s
    before, since = None, time.monotonic()
    while True:
        ends, now = _ends(kafka, names), time.monotonic()
        if ends != before:
            before, since = ends, now
        elif now - since >= rest_s:
            if at_rest(
                kafka, topology, {p: end for (t, p), end in ends.items() if t == topics.messages}, source
            ) and time.time_ns() // 1_000_000 - settings.idle_ms - settings.lateness_ms > _last_time_ms(kafka, topics.messages, settings):
                return True
            since = now
        if now >= deadline:
            return False
        progress(f"waiting for {topology} to come to rest: {sum(ends.values()):,} records")
        time.sleep(min(_LOOK_S, max(deadline - now, 0.01)))


def _last_time_ms(kafka: KafkaSettings, topic: str, settings: Settings) -> int:
    """Return the newest time of a message, with time windows: one that is ahead of its arrival waits for it."""
    from dskype.spouts.records import RecordError, parse_message
    from dskype.topology.runtime.kafka import read_to_end

    newest = 0
    for record in read_to_end(kafka, topic) if settings.window_kind == "time" else ():
        try:
            ts = parse_message(record.value, space=settings.space, text_max_bytes=settings.limits.text_max_bytes, words_max=settings.limits.words_max).ts
        except RecordError:
            continue
        if ts is not None and newest < ts <= record.timestamp_ms + settings.ahead_ms:
            newest = ts
    return newest


def _ends(kafka: KafkaSettings, names: list[str]) -> dict[tuple[str, int], int]:
    from kafka import TopicPartition

    consumer = kafka.consumer(allow_auto_create_topics=False)
    try:
        partitions = [TopicPartition(t, p) for t in names for p in sorted(consumer.partitions_for_topic(t) or ())]
        return {(tp.topic, tp.partition): end for tp, end in consumer.end_offsets(partitions).items()} if partitions else {}
    finally:
        consumer.close()


def at_rest(kafka: KafkaSettings, topology: str, ends: dict[int, int], source: str | None = None) -> bool:
    """Tell whether every message was numbered or refused.

    :param ends: partition of the messages -> next offset.
    :param source: the topology whose messages it reads; None: its own.
    """
    from dskype.deploy.verification import Inputs
    from dskype.deploy.verification.replay import handled_until
    from dskype.spouts.topics import Topics
    from dskype.topology.runtime.kafka import read_to_end

    topics = Topics.of(topology)
    inputs = Inputs(topology=topology, source=source, sequence=read_to_end(kafka, topics.sequence), dead_letters=read_to_end(kafka, topics.dead_letters))
    inputs.newest_run()
    handled = handled_until(inputs)
    return all(end == 0 or handled.get(partition, -1) >= end - 1 for partition, end in ends.items())


class _Progress:
    """Says on standard error what is being done: in one line of a terminal, else now and then."""

    def __init__(self) -> None:
        self._live = sys.stderr.isatty()
        self._said = time.monotonic()
        self._width = 0

    def __call__(self, text: str) -> None:
        now = time.monotonic()
        if self._live:
            print(f"\r{text:<{self._width}}", end="", file=sys.stderr, flush=True)
            self._width = len(text)
        elif now - self._said >= _LINE_S:
            self._said = now
            say(text)

    def end(self) -> None:
        """Clear the line."""
        if self._live and self._width:
            print("\r" + " " * self._width + "\r", end="", file=sys.stderr, flush=True)
