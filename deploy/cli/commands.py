"""The verbs of publish/subscribe: ``sub``, ``publish``, ``tail``, ``vocabulary``, ``partition``, ``verify``, ``bench``."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from dskype.deploy.cli import vocabulary
from dskype.deploy.cli.arguments import UsageError, common, counted, output, positive, positive_seconds, say, target
from dskype.deploy.cli.lines import LINE_BYTES, Pace, Progress, Refused, lines, open_client

__all__ = ["add_verbs", "join_negative"]

_PARTITION = "learn, show and change how subscriptions are distributed"
_NEGATIVE = re.compile(r"-[\d.]")

Verb = Callable[..., argparse.ArgumentParser]


# --- arguments --------------------------------------------------------------------------------------------------------


def join_negative(arguments: Sequence[str]) -> list[str]:
    """Let the values of ``--near`` and ``--bbox`` begin with a minus, as half of the world's do."""
    joined: list[str] = []
    for argument in arguments:
        if joined and joined[-1] in ("--near", "--bbox") and _NEGATIVE.match(argument):
            joined[-1] += f"={argument}"
        else:
            joined.append(argument)
    return joined


def _numbers(what: str, count: int) -> Callable[[str], list[float]]:
    def read(text: str) -> list[float]:
        try:
            values = [float(part) for part in text.split(",")]
        except ValueError:
            values = []
        if len(values) != count:
            raise argparse.ArgumentTypeError(f"expected {what} in degrees, given: {text!r}")
        return values

    return read


def _json_value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected JSON, given: {text!r}") from None


def _rate(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"expected messages per second, more than 0, given: {text!r}")
    return value


def _client_options() -> argparse.ArgumentParser:
    parent = argparse.ArgumentParser(add_help=False, parents=[common()])
    group = parent.add_argument_group("options of publish/subscribe")
    group.add_argument("-t", "--topology", metavar="NAME", default="dskype", help="the topology, whose topics are called NAME....; default: dskype")
    group.add_argument("--timeout", metavar="SECS", type=positive_seconds, default=30, help="how long the brokers may take; default: 30")
    return parent


def _check_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--file", metavar="YAML", dest="topology_file", help="check by the config of this topology file; default: the running topology's, else the defaults"
    )


def add_verbs(verb: Verb, requested: Sequence[str] = ()) -> None:
    """Add the verbs to the command line.

    :param verb: makes a verb: ``verb(name, run, text, parents=[...])``.
    :param requested: the command line: arguments of verbs with engines of their own are only loaded when they are called.
    """
    options = [_client_options()]

    def actions(name: str, text: str) -> Verb:
        parser = verb(name, None, text, parents=[])
        of = parser.add_subparsers(dest="action", metavar="ACTION", title="actions")
        parser.set_defaults(run=lambda args: _no_action(parser))

        def action(name: str, run: Any, text: str, parents: Sequence[argparse.ArgumentParser] = options, **more: Any) -> argparse.ArgumentParser:
            sub = of.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".", parents=list(parents), allow_abbrev=False, **more)
            sub.set_defaults(run=run)
            return sub

        return action

    _add_sub(actions("sub", "add, list, show or remove subscriptions"))
    _add_publish(verb("publish", _publish, "publish messages: JSON lines of a file", parents=options))
    _add_tail(verb("tail", _tail, "follow the results", parents=options))
    _add_vocabulary(actions("vocabulary", "build a vocabulary from a sample of messages, or look into one"))
    if "partition" in requested:
        from dskype.deploy.client import partition

        partition.add_arguments(actions("partition", _PARTITION))
    else:  # its actions need numpy, and help must not wait for that
        actions("partition", _PARTITION)
    bench = actions("bench", "measure")
    engines = {
        "verify": verb("verify", _verify, "compare what a topology published with what a plain program finds", parents=options),
        "throughput": bench("throughput", _bench, "measure throughput and latency by the number of subscriptions", [common()]),
        "skype": bench("skype", _bench_skype, "repeat the experiments of the Skype paper on one core", []),
        "distribution": bench("distribution", _bench_distribution, "repeat the evaluation of the distribution mechanisms", [common()]),
        "demo": verb("demo", _demo, "publish and subscribe on the world's places, live", parents=[]),
    }
    for name in ("demo", "skype"):
        engines[name].add_argument("--verbose", action="store_true", help="show tracebacks and log lines")
    for name in engines.keys() & set(requested):
        # Only now: engines import numpy and more, and help must not wait for that.
        module, options_of, _ = _ENGINES[name]
        getattr(importlib.import_module(module), options_of)(engines[name])


def _add_sub(action: Verb) -> None:
    _add_options(action("add", _sub_add, "register subscriptions: JSON lines of a file, or one by options"))
    listing = action("list", _sub_list, "list the subscriptions and their states")
    listing.add_argument("--type", choices=("topk", "boolean"), help="only these")
    output(listing)
    show = action("show", _sub_show, "show a subscription, its state and its current top-k")
    show.add_argument("id", metavar="ID")
    _check_options(show)
    output(show)
    remove = action("rm", _sub_rm, "remove subscriptions")
    remove.add_argument("id", metavar="ID", nargs="+")
    remove.add_argument("--ignore-missing", action="store_true", help="an unknown ID is no error")


def _add_publish(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help='{"text", "lat", "lon", "id"?, "ts"?} a line; -: standard input')
    parser.add_argument("--rate", metavar="N", type=_rate, help="messages per second; default: as fast as it goes")
    checked = parser.add_mutually_exclusive_group()
    checked.add_argument("--validate", dest="check", action="store_true", default=True, help="check every line before it is sent; the default")
    checked.add_argument("--no-check", dest="check", action="store_false", help="send lines as they are; the topology puts bad ones to the dead letters")
    _check_options(parser)
    output(parser)


def _add_tail(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--sub", metavar="ID", action="append", help="only of this subscription; repeatable")
    parser.add_argument("--from", dest="start", choices=("beginning", "now"), default="now", help="default: now")
    parser.add_argument("--count", metavar="N", type=positive, help="end after so many")
    parser.add_argument("--topk", action="store_true", help="follow the whole top-k lists and not their changes")
    parser.add_argument("--no-text", dest="texts", action="store_false", help="do not look for the texts of messages")
    output(parser)


def _add_vocabulary(action: Verb) -> None:
    build = action("build", vocabulary.build, "count in how many messages each word occurs")
    vocabulary.build_options(build)
    _check_options(build)
    show = action("show", vocabulary.show, "show a vocabulary's size and words", [common(kafka=False)])
    show.add_argument("file", metavar="FILE")
    show.add_argument("--top", metavar="N", type=positive, default=20, help="the most frequent words; default: 20")
    show.add_argument("--term", metavar="T", action="append", default=[], help="this word; repeatable")
    output(show)


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", nargs="?", metavar="FILE", help='{"id"?, "type": "topk"|"boolean", ...} a line; -: standard input')
    parser.add_argument("--dry-run", action="store_true", help="check, send nothing")
    _check_options(parser)
    output(parser)
    one = parser.add_argument_group("one subscription by options")
    one.add_argument("--id", metavar="ID", help="default: a generated one, printed")
    one.add_argument("--keyword", metavar="WORD", action="append", dest="keywords", help="repeatable")
    one.add_argument("--meta", metavar="JSON", type=_json_value, help="comes back with every result")
    topk = parser.add_argument_group("top-k of the window")
    topk.add_argument("--text", help="the words looked for")
    topk.add_argument("--near", metavar="LAT,LON", type=_numbers("LAT,LON", 2))
    topk.add_argument("-k", metavar="K", type=positive, help="how many; default: 10")
    topk.add_argument("--alpha", metavar="A", type=float, help="weight of nearness against words, 0 to 1; default: 0.5")
    boolean = parser.add_argument_group("every message that fits")
    boolean.add_argument("--bbox", metavar="W,S,E,N", type=_numbers("WEST,SOUTH,EAST,NORTH", 4))
    boolean.add_argument("--expression", metavar="E", help="""e.g. 'coffee AND (wifi OR "late night")'""")
    boolean.add_argument("--ttl", metavar="SECS", type=positive_seconds, help="forget it after so long")


def _no_action(parser: argparse.ArgumentParser) -> int:
    parser.print_help(sys.stderr)
    return 2


# --- subscriptions ----------------------------------------------------------------------------------------------------


def _by_options(args: argparse.Namespace) -> dict[str, Any] | None:
    """Return the subscription that the options describe; None when there are none."""
    fields = {
        "id": args.id,
        "text": args.text,
        "keywords": args.keywords,
        "expression": args.expression,
        "bbox": args.bbox,
        "ttl_s": args.ttl,
        "k": args.k,
        "alpha": args.alpha,
        "meta": args.meta,
    }
    fields = {name: value for name, value in fields.items() if value is not None}
    if args.near is not None:
        fields["lat"], fields["lon"] = args.near
    if not fields:
        return None
    boolean, topk = {"expression", "bbox", "ttl_s"} & fields.keys(), {"text", "lat", "k", "alpha"} & fields.keys()
    if boolean and topk:
        raise UsageError("--text, --near, -k and --alpha are for top-k, --bbox, --expression and --ttl for boolean subscriptions; given: both")
    return {"type": "boolean", **fields} if boolean else {"type": "topk", "k": 10, "alpha": 0.5, **fields}


def _subscription(line: bytes) -> tuple[bytes, bytes, bool]:
    """Split a line into key and value; tells whether the id was generated.

    :raises ValueError: not a JSON object with a usable id.
    """
    import uuid

    try:
        fields = json.loads(line)
    except (ValueError, RecursionError) as ex:
        raise ValueError(f"not JSON: {ex}") from None
    if not isinstance(fields, dict):
        raise ValueError(f"a subscription is a JSON object; given: {type(fields).__name__}")
    id = fields.pop("id", None)
    if id is not None and (isinstance(id, bool) or not isinstance(id, (str, int))):
        raise ValueError(f"an id is a string or an integer; given: {json.dumps(id)[:100]}")
    key = (uuid.uuid4().hex if id is None else str(id)).encode(errors="surrogatepass")
    return key, json.dumps(fields, ensure_ascii=False).encode(errors="surrogatepass"), id is None


def _sub_add(args: argparse.Namespace) -> int:
    from dskype.topology.errors import TopologyError

    one = _by_options(args)
    if (one is None) == (args.file is None):
        raise UsageError("expected a FILE (- is standard input), or one subscription by options; given: " + ("neither" if one is None else "both"))
    source: Iterable[tuple[int | None, bytes | None]] = lines(args.file) if one is None else [(None, json.dumps(one).encode(errors="surrogatepass"))]
    client = open_client(args, offline=args.dry_run)
    generated: list[str] = []
    with _Sending(args, client, "subscription") as sending:
        if not args.dry_run:
            client.require(client.topics.subscriptions)
        for number, line in source:
            try:
                if line is None:
                    raise ValueError(f"longer than {LINE_BYTES:,} bytes")
                key, value, is_new = _subscription(line)
                client.parse_subscription(key, value)
            except (ValueError, TopologyError) as ex:
                sending.refuse(number, str(ex))
                continue
            sending.one(lambda: client.send_subscription(key, value))
            if is_new:
                generated.append(key.decode())
                if args.output == "text":
                    print(key.decode())
    return sending.summary({"generated": generated})


class _Sending:
    """Sends many records: shows progress, counts, and closes the client at the end, also after Ctrl-C."""

    def __init__(self, args: argparse.Namespace, client: Any, what: str) -> None:
        self._args, self._client, self._what = args, client, what
        self._dry = getattr(args, "dry_run", False)
        self._progress = Progress()
        self._refused = Refused(self._progress)
        self._checked = 0

    def __enter__(self) -> _Sending:
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        from dskype.deploy.client.pubsub import SendError

        try:
            self._client.flush()
        except SendError as ex:
            self._progress.end()
            say(f"error: {ex}")
        finally:
            self._progress.end()
            self._client.close(check=False)
        if kind is not None and self._checked:
            self.summary({})

    def refuse(self, line: int | None, error: str) -> None:
        """Count a line that is not sent."""
        self._refused.add(line, error)

    def one(self, send: Callable[[], Any]) -> None:
        """Send one, unless this is a dry run."""
        if not self._dry:
            send()
        self._checked += 1
        self._progress(self._so_far)

    def _so_far(self) -> str:
        return f"{counted(self._checked, self._what)}, {self._refused.count:,} refused, {self._checked / self._progress.elapsed_s:,.0f}/s"

    def summary(self, more: dict[str, Any]) -> int:
        """Print the counts; returns the exit code."""
        done = self._checked if self._dry else self._client.stored
        failed = self._checked - done
        lost = f", {failed:,} not taken by Kafka" if failed else ""
        say(f"{counted(done, self._what)} {'would be sent' if self._dry else 'sent'}, {self._refused.count:,} refused{lost}")
        if self._args.output == "json":
            counts = {"valid" if self._dry else "sent": done, "refused": self._refused.count, "failed": failed}
            print(json.dumps({**counts, "errors": self._refused.shown, **more}))
        return 1 if self._refused.count or failed else 0


def _sub_list(args: argparse.Namespace) -> int:
    from dskype.deploy.cli.tail import clean, clock_text, put

    with open_client(args) as client:
        found = client.subscriptions(args.type)
        if args.output == "json":
            put(json.dumps([r.as_json() for r in found], indent=2))
            return 0
        if not found:
            put("No subscriptions.")
            return 0
        width = min(40, max(4, *(len(clean(r.id, 40)) for r in found)))
        put(f"{'ID':<{width}}  {'TYPE':<8} {'STATUS':<8} {'SINCE':>12}  {'REGISTERED':<19}  WHAT")
        for r in found:
            since = "-" if r.since is None else r.since
            state = f"{clean(r.type, 8):<8} {r.status:<8} {since:>12}  {clock_text(r.registered_ms, True):<19}"
            put(f"{clean(r.id, 40):<{width}}  {state}  {clean(_what(r.fields), 80)}")
        if not _runs(client):
            say(f"note: no topology {args.topology!r} runs; states are those of its last run")
    return 0


def _runs(client: Any) -> bool:
    from dskype.topology.runtime.nimbus_topic import watch_drivers

    record = client.running()
    return record is not None and watch_drivers(client.kafka, {client.name: record})[client.name]


def _what(fields: dict[str, Any] | None) -> str:
    """Say what a subscription looks for, in the words of its options."""
    if fields is None:
        return "(no JSON object)"
    words = fields.get("text") or fields.get("expression") or " ".join(map(str, fields.get("keywords") or ()))
    from dskype.deploy.client.records import subscription_type

    if subscription_type(fields) == "boolean":
        ttl = f", ttl {fields['ttl_s']} s" if "ttl_s" in fields else ""
        return f"{words} in {fields.get('bbox')}{ttl}"
    return f"{words} near {fields.get('lat')},{fields.get('lon')}, k {fields.get('k')}, alpha {fields.get('alpha')}"


def _sub_show(args: argparse.Namespace) -> int:
    from dskype.deploy.cli.tail import Texts, clean, clock_text, put, topk_lines

    with open_client(args) as client:
        found = client.subscription(args.id)
        if found is None:
            return _unknown(client, [args.id])
        state = _state(client, found)
        refusal = client.refusal(found.registration) if found.status == "pending" else None
        if args.output == "json":
            more: dict[str, Any] = {}
            if found.type == "topk":
                more = {"watermark": None, "topk": None} if state is None else {"watermark": state.watermark, "topk": state.as_json()["topk"]}
            put(json.dumps({**found.as_json(), **({"refused": refusal} if refusal else {}), **more}, indent=2))
            return 0
        since = "" if found.since is None else f" {'since' if found.status == 'active' else 'at'} watermark {found.since}"
        put(f"{clean(found.id, 60)}: {clean(found.type or 'no JSON object')}, {found.status}{since}")
        put(f"registered {clock_text(found.registered_ms, True)}, record {found.registration}")
        for name, value in sorted((found.fields or {}).items()):
            if name not in ("id", "type"):
                put(f"  {clean(name, 30):<12} {clean(value)}")
        if refusal is not None:
            put(f"refused by the topology: {clean(refusal)}")
        elif found.status == "pending" and not _runs(client):
            say(f"note: no topology {args.topology!r} runs; pending subscriptions wait for it")
        if state is not None:
            texts = Texts(client)
            try:
                put(f"top-k at watermark {state.watermark}, {counted(len(state.entries), 'message')}:")
                for line in topk_lines(state, texts.find(m for m, _ in state.entries)):
                    put(line)
            finally:
                texts.close()
    return 0


def _state(client: Any, found: Any) -> Any:
    """Return the top-k of a subscription as it is registered now, or None."""
    from dskype.topology.errors import TopologyError

    if found.type != "topk":
        return None
    try:
        state = client.topk(found.id)
    except TopologyError as ex:
        say(f"note: {ex}")
        return None
    return state if state is not None and state.registration in (None, found.registration) else None


def _unknown(client: Any, ids: Sequence[str]) -> int:
    """Say that subscriptions are not there, with near ones."""
    import difflib

    known = [r.id for r in client.subscriptions()]
    for id in ids:
        near = difflib.get_close_matches(id, known[:100_000], 1)
        hint = f"did you mean {near[0]!r}?" if near else "'dskype sub list' lists them"
        say(f"error: there is no subscription {id!r} in topology {client.name!r}; hint: {hint}")
    return 1


def _sub_rm(args: argparse.Namespace) -> int:
    with open_client(args) as client:
        ids = list(dict.fromkeys(args.id))
        known = set(ids) if args.ignore_missing else {r.id for r in client.subscriptions(ids=ids)}
        for id in ids:
            if id in known:
                client.unsubscribe(id)
        client.flush()
        say(f"{counted(len(known), 'subscription')} removed")
        missing = [id for id in ids if id not in known]
        return _unknown(client, missing) if missing else 0


# --- messages and results ---------------------------------------------------------------------------------------------


def _publish(args: argparse.Namespace) -> int:
    from dskype.topology.errors import TopologyError

    client, pace = open_client(args), Pace(args.rate)
    with _Sending(args, client, "message") as sending:
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
            sending.one(lambda: client.send_message(line))
    return sending.summary({})


def _tail(args: argparse.Namespace) -> int:
    from dskype.deploy.cli.tail import follow_results, follow_topk, put

    with open_client(args) as client:
        follow = follow_topk if args.topk else follow_results
        found = follow(client, subscriptions=set(args.sub) if args.sub else None, start=args.start, as_json=args.output == "json", with_texts=args.texts)
        with contextlib.closing(found):
            left = sys.maxsize if args.count is None else args.count
            while left:
                batch = next(found)[:left]
                left -= len(batch)
                put(*batch)
    return 0


# --- engines ----------------------------------------------------------------------------------------------------------


_ENGINES = {
    "verify": ("dskype.deploy.cli.verify", "add_arguments", "run"),
    "throughput": ("dskype.deploy.benchmarks.throughput", "add_arguments", "run"),
    "skype": ("dskype.deploy.benchmarks.papers.skype", "add_arguments", "run"),
    "distribution": ("dskype.deploy.benchmarks.papers.distribution", "add_arguments", "run"),
    "demo": ("dskype.deploy.demo.run", "add_options", "run_arguments"),
}
"""Verb -> module, its function that adds arguments, its function that runs."""


def _run(name: str, *arguments: Any) -> int:
    module, _, run = _ENGINES[name]
    return getattr(importlib.import_module(module), run)(*arguments) or 0


def _verify(args: argparse.Namespace) -> int:
    from dskype.deploy.client.pubsub import PubSub
    from dskype.deploy.machine import cluster

    return _run("verify", args, PubSub(cluster.kafka_settings(target(args)), timeout_s=args.timeout).kafka, args.topology)


def _bench(args: argparse.Namespace) -> int:
    return _run("throughput", args)


def _bench_skype(args: argparse.Namespace) -> int:
    return _run("skype", args)


def _bench_distribution(args: argparse.Namespace) -> int:
    return _run("distribution", args)


def _demo(args: argparse.Namespace) -> int:
    return _run("demo", args)
