"""``dskype vocabulary``: build a vocabulary from a sample of messages, or look into one."""

from __future__ import annotations

import argparse
import itertools
import json
import os
from collections.abc import Iterable, Iterator
from typing import Any

from dskype.deploy.cli.arguments import Actions, UsageError, check_options, client_options, common, offline_settings, open_client, output, positive
from dskype.deploy.cli.lines import Refused
from dskype.deploy.machine.terminal import Progress, clean, counted, put, say

_VOCABULARY = "vocabulary.tsv"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the actions."""
    actions = Actions(parser)
    actions.add("build", _build, "count in how many messages each word occurs", _build_arguments)
    actions.add("show", _show, "show a vocabulary's size and words", _show_arguments)


def _build_arguments(parser: argparse.ArgumentParser) -> None:
    client_options(parser)
    parser.add_argument("file", nargs="?", metavar="FILE", help="messages, as 'publish' takes them; -: standard input")
    parser.add_argument("-o", "--output", metavar="OUT", default=_VOCABULARY, help=f"default: {_VOCABULARY}")
    parser.add_argument("--force", action="store_true", help="replace OUT")
    parser.add_argument("--field", metavar="NAME", help="the path of the text in a record; default: dskype.input.text")
    parser.add_argument("--plain", action="store_true", help="each line is a text, not JSON")
    parser.add_argument("--topic", metavar="NAME", nargs="?", const="messages", help="read a topic instead: messages (the topology's), or a full name")
    parser.add_argument(
        "--sample", metavar="N", type=positive, help="N texts: the newest of a topic (default: 100000), or a random sample of a file (default: all)"
    )
    check_options(parser)


def _show_arguments(parser: argparse.ArgumentParser) -> None:
    common(parser, kafka=False)
    check_options(parser)
    parser.add_argument("file", metavar="FILE")
    parser.add_argument("--top", metavar="N", type=positive, default=20, help="how many of the most frequent words; default: 20")
    parser.add_argument("--term", metavar="T", action="append", default=[], help="show this word instead; repeatable")
    output(parser)


def _build(args: argparse.Namespace) -> int:
    """Build a vocabulary and write it."""
    if (args.file is None) == (args.topic is None):
        raise UsageError("expected a FILE (- is standard input), or --topic; given: " + ("neither" if args.file is None else "both"))
    if os.path.exists(args.output) and not args.force:
        from dskype.topology.errors import IllegalArgumentException

        raise IllegalArgumentException(
            f"{args.output} exists already, and a running topology may use it.", given=args.output, hint="name another file with -o, or --force"
        )
    from dskype.spouts.vocabulary import Vocabulary

    if args.field is not None:
        args.conf = [*args.conf, ("dskype.input.text", args.field)]
    progress = Progress(on_terminal_s=0.2)
    refused = Refused(progress)
    if args.topic is not None:
        source = open_client(args)
        settings = source.settings
        texts: Iterator[str] = _texts_of_topic(source, args, progress)
    else:
        settings = offline_settings(args)
        texts = _texts_of_file(args, settings, refused, progress)
    first = next(texts, None)
    built = None if first is None else Vocabulary.build(itertools.chain([first], texts), settings.analyzer())
    progress.end()
    if built is None:
        say("error: there is no text to count")
        return 1
    built.save(args.output)
    left_out = f"; {counted(refused.count, 'line')} refused" if refused.count else ""
    say(f"{args.output}: {counted(built.documents, 'document')}, {counted(len(built), 'word')}{left_out}")
    return 1 if refused.count else 0


def _texts_of_file(args: argparse.Namespace, settings: Any, refused: Refused, progress: Progress) -> Iterator[str]:
    from dskype.spouts.input_mapping import MessageReader
    from dskype.spouts.readers import RecordFile, plain_lines
    from dskype.spouts.record_values import RecordError

    def read() -> Iterator[str]:
        count = 0
        for number, value in plain_lines(args.file) if args.plain else file:
            try:
                if isinstance(value, RecordError):
                    raise value
                text = value.decode(errors="replace") if args.plain else reader.text(value)
            except RecordError as ex:
                refused.add(number, str(ex))
                continue
            count += 1
            progress(lambda count=count: counted(count, "text"))
            yield text

    file = RecordFile(args.file, settings.input)
    reader = MessageReader(settings, file.mapping)
    return iter(_reservoir(read(), args.sample)) if args.sample else read()


def _reservoir(items: Iterable[str], size: int) -> list[str]:
    """Return a uniform random sample (algorithm R). The same items give the same sample."""
    import random

    chosen: list[str] = []
    draw = random.Random(0)
    for seen, item in enumerate(items):
        if seen < size:
            chosen.append(item)
        elif (place := draw.randrange(seen + 1)) < size:
            chosen[place] = item
    return chosen


def _texts_of_topic(source: Any, args: argparse.Namespace, progress: Progress) -> Iterator[str]:
    from dskype.spouts.input_mapping import MessageReader
    from dskype.spouts.record_values import RecordError

    own, settings = source.topics.messages, source.settings
    topic = own if args.topic == "messages" else args.topic
    reader = MessageReader(settings, settings.input if args.field is not None else settings.mapping_of(topic, own))
    size = args.sample or 100_000
    partitions = source.partitions(topic)
    share = -(-size // partitions)
    count = 0
    for record in source.scan(topic, share):
        if count == size:
            return
        try:
            text = (record.value or b"").decode(errors="replace") if args.plain else reader.text(record.value)
        except RecordError:
            continue  # not a message: the topology has put it into the dead letters
        count += 1
        progress(lambda count=count: counted(count, "text"))
        yield text


def _show(args: argparse.Namespace) -> int:
    """Print a vocabulary's size and words."""
    import math

    from dskype.spouts.text import PLAIN
    from dskype.spouts.vocabulary import Vocabulary

    analyzer = offline_settings(args).analyzer()
    vocabulary = Vocabulary.load(args.file, None if analyzer.plain else analyzer)  # without settings, show what is in the file
    n = vocabulary.documents

    def row(term: str, id: int, df: int) -> dict[str, Any]:
        return {"term": term, "id": id, "df": df, "idf": round(math.log(1 + n / df), 6)}

    if args.term:
        tokens = [token for term in args.term for token in analyzer.keywords(term)]
        ids = vocabulary.ids(tokens)
        rows = [row(*found) for found in zip(tokens, ids.tolist(), vocabulary.df(ids).tolist())]
    else:
        import numpy as np

        ids = np.arange(len(vocabulary) - 1, max(-1, len(vocabulary) - 1 - args.top), -1)
        rows = [row(vocabulary.term(id), id, df) for id, df in zip(ids.tolist(), vocabulary.df(ids).tolist())]
    about = {} if vocabulary.analyzer == PLAIN else {"analyzer": vocabulary.analyzer}
    if args.output == "json":
        put(json.dumps({"documents": n, "words": len(vocabulary), **about, "terms": rows}, ensure_ascii=False))
        return 0
    put(f"{counted(n, 'document')}, {counted(len(vocabulary), 'word')}{f', analyzer {vocabulary.analyzer}' if about else ''}")
    for r in rows:
        unknown = "  (not in the vocabulary)" if r["id"] < 0 else ""
        put(f"{r['df']:>10,}  {r['idf']:>9.6f}  {clean(r['term'], 60)}{unknown}")
    return 0
