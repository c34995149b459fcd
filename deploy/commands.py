"""The verbs of publish/subscribe: ``sub``, ``publish``, ``tail``, ``vocabulary``, ``verify``, ``bench``."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from dskype.deploy.arguments import UsageError, common, file_conf, output, positive, positive_seconds, say, split, target

__all__ = ["LINE_BYTES", "Pace", "add_verbs", "join_negative", "lines"]

LINE_BYTES = 4 << 20
"""Longest line that is read: nothing longer fits into a record."""

_SHOWN_ERRORS = 20
_VOCABULARY = "vocabulary.tsv"
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
    parser.add_argument("--file", metavar="YAML", dest="topology_file", help="check by the config of this topology file; default: the running topology's, else the defaults")


def add_verbs(verb: Verb, requested: Sequence[str] = ()) -> None:
    """Add the verbs to the command line.

    :param verb: makes a verb: ``verb(name, run, text, parents=[...])``.
    :param requested: the command line: arguments of verbs with engines of their own are only loaded when they are called.
    """
    options = [_client_options()]

    def actions(name: str, text: str) -> Callable[..., argparse.ArgumentParser]:
        parser = verb(name, None, text, parents=[])
        of = parser.add_subparsers(dest="action", metavar="ACTION", title="actions")
        parser.set_defaults(run=lambda args: _no_action(parser))

        def action(name: str, run: Any, text: str, parents: Sequence[argparse.ArgumentParser] = options, **more: Any) -> argparse.ArgumentParser:
            sub = of.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".", parents=list(parents), allow_abbrev=False, **more)
            sub.set_defaults(run=run)
            return sub

        return action

    sub = actions("sub", "add, list, show or remove subscriptions")
    _add_options(sub("add", _sub_add, "register subscriptions: JSON lines of a file, or one by options"))
    listing = sub("list", _sub_list, "list the subscriptions and their states")
    listing.add_argument("--type", choices=("topk", "boolean"), help="only these")
    output(listing)
    show = sub("show", _sub_show, "show a subscription, its state and its current top-k")
    show.add_argument("id", metavar="ID")
    _check_options(show)
    output(show)
    remove = sub("rm", _sub_rm, "remove subscriptions")
    remove.add_argument("id", metavar="ID", nargs="+")
    remove.add_argument("--ignore-missing", action="store_true", help="an unknown ID is no error")

    publish = verb("publish", _publish, "publish messages: JSON lines of a file", parents=options)
    publish.add_argument("file", metavar="FILE", help='{"text", "lat", "lon", "id"?, "ts"?} a line; -: standard input')
    publish.add_argument("--rate", metavar="N", type=_rate, help="messages per second; default: as fast as it goes")
    checked = publish.add_mutually_exclusive_group()
    checked.add_argument("--validate", dest="check", action="store_true", default=True, help="check every line before it is sent; the default")
    checked.add_argument("--no-check", dest="check", action="store_false", help="send lines as they are; the topology puts bad ones to the dead letters")
    _check_options(publish)
    output(publish)

    tail = verb("tail", _tail, "follow the results", parents=options)
    tail.add_argument("--sub", metavar="ID", action="append", help="only of this subscription; repeatable")
    tail.add_argument("--from", dest="start", choices=("beginning", "now"), default="now", help="default: now")
    tail.add_argument("--count", metavar="N", type=positive, help="end after so many")
    tail.add_argument("--topk", action="store_true", help="follow the whole top-k lists and not their changes")
    tail.add_argument("--no-text", dest="texts", action="store_false", help="do not look for the texts of messages")
    output(tail)

    vocabulary = actions("vocabulary", "build a vocabulary from a sample of messages, or look into one")
    _vocabulary_options(vocabulary("build", _vocabulary_build, "count in how many messages each word occurs"))
    look = vocabulary("show", _vocabulary_show, "show a vocabulary's size and words", [common(kafka=False)])
    look.add_argument("file", metavar="FILE")
    look.add_argument("--top", metavar="N", type=positive, default=20, help="the most frequent words; default: 20")
    look.add_argument("--term", metavar="T", action="append", default=[], help="this word; repeatable")
    output(look)

    verify = verb("verify", _verify, "compare what a topology published with what a plain program finds", parents=options, conflict_handler="resolve")
    bench = actions("bench", "measure")
    throughput = bench("throughput", _bench, "messages per second by distributor", [common()], conflict_handler="resolve")
    throughput.set_defaults(engine="dskype.deploy.benchmarks.throughput")
    if "verify" in requested[:3]:
        _engine("verify").add_arguments(verify)
    if "throughput" in requested[:3]:
        _engine("dskype.deploy.benchmarks.throughput").add_arguments(throughput)


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


def _vocabulary_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", nargs="?", metavar="FILE", help="messages as JSON lines; -: standard input")
    parser.add_argument("-o", "--output", metavar="OUT", default=_VOCABULARY, help=f"default: {_VOCABULARY}")
    parser.add_argument("--force", action="store_true", help="replace OUT")
    parser.add_argument("--field", metavar="NAME", default="text", help="the field of a line that holds the text; default: text")
    parser.add_argument("--plain", action="store_true", help="a line is a text")
    parser.add_argument("--topic", metavar="NAME", nargs="?", const="messages", help="read a topic and no file: messages (the topology's), or a whole name")
    parser.add_argument("--sample", metavar="N", type=positive, help="so many texts: the newest of a topic (default: 100000), a random sample of a file (default: all)")
    _check_options(parser)


def _no_action(parser: argparse.ArgumentParser) -> int:
    parser.print_help(sys.stderr)
    return 2


# --- helpers ----------------------------------------------------------------------------------------------------------


def _conf(args: argparse.Namespace) -> dict[str, Any] | None:
    """Return the configuration of ``--file`` and what lies below and above it; None when only the running topology's counts."""
    above = {**split(dict(args.conf))[0]}
    file = getattr(args, "topology_file", None)
    if file is None:
        return None
    from dskype.topology.flux import FluxException
    from dskype.topology.flux.loader import read_yaml

    data = read_yaml(file)
    conf = data.get("config") if isinstance(data, dict) else data
    if not isinstance(data, dict) or not (conf is None or isinstance(conf, dict)):
        raise FluxException(f"{file} must be a topology file with a map 'config'. given: a {type(conf).__name__}")
    return {**split(file_conf(args))[0], **split(conf or {})[0], **above}


def _client(args: argparse.Namespace, offline: bool = False) -> Any:
    """Return the client that the options ask for.

    :param offline: without a named cluster, one that can only check.
    """
    from dskype.deploy import cluster, connection
    from dskype.deploy.pubsub import PubSub
    from dskype.topology.runtime.kafka import KafkaSettings

    conf = _conf(args)
    where = target(args)
    if offline and connection.resolve_bootstrap(where.bootstrap_servers).embedded:
        return PubSub(KafkaSettings(""), args.topology, conf=conf or {**file_conf(args), **dict(args.conf)})
    client = PubSub(cluster._settings(where), args.topology, conf=conf, timeout_s=args.timeout)
    overlay = split(dict(args.conf))[0]
    if conf is None and (overlay or args.config):
        client = PubSub(client.kafka, args.topology, conf={**split(file_conf(args))[0], **(client.running_conf() or {}), **overlay}, timeout_s=args.timeout)
    return client


def lines(file: str) -> Iterator[tuple[int, bytes | None]]:
    """Yield (number from 1, line without its end) of a file or, for ``-``, of standard input; blank lines are left out.

    A line of more than 4 MiB is None.
    """
    with contextlib.ExitStack() as stack:
        source = sys.stdin.buffer if file == "-" else stack.enter_context(open(file, "rb"))
        number = 0
        while line := source.readline(LINE_BYTES + 1):
            number += 1
            if len(line) > LINE_BYTES and not line.endswith(b"\n"):
                while rest := source.readline(LINE_BYTES):
                    if rest.endswith(b"\n"):
                        break
                yield number, None
                continue
            if number == 1:
                line = line.removeprefix(b"\xef\xbb\xbf")
            if line := line.strip():
                yield number, line


class Pace:
    """Keeps to a rate: :meth:`wait` returns when the next one is due.

    :param rate: per second; None: no wait.
    """

    def __init__(self, rate: float | None, clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep) -> None:
        self._rate, self._clock, self._sleep = rate, clock, sleep
        self._began, self._done = clock(), 0

    def wait(self) -> None:
        """Wait for the next turn; what was late is caught up with."""
        if self._rate is not None:
            early = self._began + self._done / self._rate - self._clock()
            if early > 0:
                self._sleep(early)
            self._done += 1


class _Progress:
    """One line on standard error while many lines are worked on."""

    def __init__(self) -> None:
        from dskype.deploy.prepare import LinePrinter

        self._printer = LinePrinter()
        self._began = self._last = time.monotonic()

    def __call__(self, text: str) -> None:
        if time.monotonic() - self._last > 0.5:
            self._last = time.monotonic()
            self._printer(text)

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self._began

    def end(self) -> None:
        self._printer.end()


class _Refused:
    """Collects what is wrong with lines, and says the first of it."""

    def __init__(self) -> None:
        self.count = 0
        self.shown: list[dict[str, Any]] = []

    def add(self, line: int | None, error: str) -> None:
        self.count += 1
        if self.count <= _SHOWN_ERRORS:
            self.shown.append({"line": line, "error": error})
            say(f"error: {error}" if line is None else f"error: line {line}: {error}")
        elif self.count == _SHOWN_ERRORS + 1:
            say("further errors are counted and not shown")


def _counted(n: int, what: str) -> str:
    return f"{n:,} {what}" + ("" if n == 1 else "s")


# --- subscriptions ----------------------------------------------------------------------------------------------------


def _by_options(args: argparse.Namespace) -> dict[str, Any] | None:
    """Return the subscription that the options describe; None when there are none."""
    fields = {"id": args.id, "text": args.text, "keywords": args.keywords, "expression": args.expression, "bbox": args.bbox, "ttl_s": args.ttl,
              "k": args.k, "alpha": args.alpha, "meta": args.meta}
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
    refused, generated, sent, progress = _Refused(), [], 0, _Progress()
    client = _client(args, offline=args.dry_run)
    with _sending(client, refused):
        if not args.dry_run:
            client.require(client.topics.subscriptions)
        for number, line in source:
            try:
                if line is None:
                    raise ValueError(f"longer than {LINE_BYTES:,} bytes")
                key, value, is_new = _subscription(line)
                client.parse_subscription(key, value)
            except (ValueError, TopologyError) as ex:
                refused.add(number, str(ex))
                continue
            if not args.dry_run:
                client.send_subscription(key, value)
            sent += 1
            if is_new:
                generated.append(key.decode())
                if args.output == "text":
                    print(key.decode())
            progress(f"{_counted(sent, 'subscription')}, {refused.count:,} refused")
    progress.end()
    return _sent(args, "subscription", sent - client.failed, refused, client.failed, {"generated": generated})


@contextlib.contextmanager
def _sending(client: Any, refused: _Refused) -> Iterator[None]:
    """Close the client at the end, also after Ctrl-C; what did not reach Kafka is told."""
    from dskype.deploy.pubsub import SendError

    try:
        yield
        client.flush()
    except SendError as ex:
        say(f"error: {ex}")
        client.failed = max(client.failed, 1)
    finally:
        client.close(check=False)


def _sent(args: argparse.Namespace, what: str, sent: int, refused: _Refused, failed: int, more: dict[str, Any]) -> int:
    done = "would be sent" if getattr(args, "dry_run", False) else "sent"
    say(f"{_counted(sent, what)} {done}, {refused.count:,} refused" + (f", {failed:,} not taken by Kafka" if failed else ""))
    if args.output == "json":
        print(json.dumps({done.replace("would be sent", "valid"): sent, "refused": refused.count, "failed": failed, "errors": refused.shown, **more}))
    return 1 if refused.count or failed else 0


def _sub_list(args: argparse.Namespace) -> int:
    from dskype.deploy.tail import clean, clock_text, put

    with _client(args) as client:
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
            put(f"{clean(r.id, 40):<{width}}  {clean(r.type, 8):<8} {r.status:<8} {since:>12}  {clock_text(r.registered_ms, True):<19}  {clean(_what(r.fields), 80)}")
        if not _runs(client):
            say(f"note: no topology {args.topology!r} runs; states are those of its last run")
    return 0


def _runs(client: Any) -> bool:
    from dskype.topology.runtime.nimbus_topic import load_states, is_alive

    record = load_states(client.kafka).get(client.name) if client.running_conf() is not None else None
    return record is not None and is_alive(record)


def _what(fields: dict[str, Any] | None) -> str:
    """Say what a subscription looks for, in the words of its options."""
    if fields is None:
        return "(no JSON object)"
    words = fields.get("text") or fields.get("expression") or " ".join(map(str, fields.get("keywords") or ()))
    if subscription_is_boolean(fields):
        ttl = f", ttl {fields['ttl_s']} s" if "ttl_s" in fields else ""
        return f"{words} in {fields.get('bbox')}{ttl}"
    return f"{words} near {fields.get('lat')},{fields.get('lon')}, k {fields.get('k')}, alpha {fields.get('alpha')}"


def subscription_is_boolean(fields: dict[str, Any]) -> bool:
    """Tell the type of a registered subscription."""
    from dskype.deploy.pubsub import subscription_type

    return subscription_type(fields) == "boolean"


def _sub_show(args: argparse.Namespace) -> int:
    from dskype.deploy.tail import Texts, clean, clock_text, put, topk_lines

    with _client(args) as client:
        found = client.subscription(args.id)
        if found is None:
            return _unknown(client, [args.id])
        state = _state(client, found)
        refusal = client.refusal(found.registration) if found.status == "pending" else None
        if args.output == "json":
            more = {} if found.type != "topk" else {"watermark": state.watermark if state else None, "topk": state.as_json()["topk"] if state else None}
            put(json.dumps({**found.as_json(), **({"refused": refusal} if refusal else {}), **more}, indent=2))
            return 0
        since = {"active": f" since watermark {found.since}", "expired": "" if found.since is None else f" at watermark {found.since}"}.get(found.status, "")
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
                texts.catch_up()
                put(f"top-k at watermark {state.watermark}, {_counted(len(state.entries), 'message')}:")
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
        say(f"error: there is no subscription {id!r} in topology {client.name!r}; hint: " + (f"did you mean {near[0]!r}?" if near else "'dskype sub list' lists them"))
    return 1


def _sub_rm(args: argparse.Namespace) -> int:
    with _client(args) as client:
        ids = list(dict.fromkeys(args.id))
        known = set(ids) if args.ignore_missing else {r.id for r in client.subscriptions(ids=ids)}
        for id in ids:
            if id in known:
                client.unsubscribe(id)
        client.flush()
        say(f"{_counted(len(known), 'subscription')} removed")
        missing = [id for id in ids if id not in known]
        return _unknown(client, missing) if missing else 0


# --- messages and results ---------------------------------------------------------------------------------------------


def _publish(args: argparse.Namespace) -> int:
    from dskype.topology.errors import TopologyError

    client, refused, progress, pace = _client(args), _Refused(), _Progress(), Pace(args.rate)
    try:
        with _sending(client, refused):
            client.require(client.topics.messages)
            for number, line in lines(args.file):
                if line is None:
                    refused.add(number, f"longer than {LINE_BYTES:,} bytes")
                    continue
                if args.check:
                    try:
                        client.parse_message(line)
                    except TopologyError as ex:
                        refused.add(number, str(ex))
                        continue
                pace.wait()
                client.send_message(line)
                progress(f"{_counted(client.sent, 'message')}, {refused.count:,} refused, {client.sent / progress.elapsed_s:,.0f}/s")
    finally:
        progress.end()
        code = _sent(args, "message", client.sent - client.failed, refused, client.failed, {})
    return code


def _tail(args: argparse.Namespace) -> int:
    from dskype.deploy.tail import follow_results, follow_topk, put

    with _client(args) as client:
        follow = follow_topk if args.topk else follow_results
        found = follow(client, subscriptions=set(args.sub) if args.sub else None, start=args.start, as_json=args.output == "json", with_texts=args.texts)
        with contextlib.closing(found):
            for number, line in enumerate(found, 1):
                put(line)
                if number == args.count:
                    break
    return 0


# --- vocabulary -------------------------------------------------------------------------------------------------------


def _vocabulary_build(args: argparse.Namespace) -> int:
    if (args.file is None) == (args.topic is None):
        raise UsageError("expected a FILE (- is standard input), or --topic; given: " + ("neither" if args.file is None else "both"))
    if os.path.exists(args.output) and not args.force:
        from dskype.topology.errors import IllegalArgumentException, explain

        raise IllegalArgumentException(explain(f"{args.output} is there already; a running topology may use it.", given=args.output, hint="name another file with -o, or --force"))
    from dskype.spouts.text import Tokenizer
    from dskype.spouts.vocabulary import Vocabulary

    refused, progress = _Refused(), _Progress()
    if args.topic is not None:
        client = _client(args)
        stop_words: Sequence[str] = client.settings.stop_words
        texts = _texts_of_topic(client, args, refused, progress)
    else:
        from dskype.spouts.settings import Settings

        conf = _conf(args)
        stop_words = Settings.from_conf({**file_conf(args), **dict(args.conf)} if conf is None else conf).stop_words
        texts = _texts_of_file(args, refused, progress)
    built = Vocabulary.build(texts, Tokenizer(stop_words))
    progress.end()
    if not built.documents:
        say("error: there is no text to count")
        return 1
    _write(built, Path(args.output))
    say(f"{args.output}: {_counted(built.documents, 'document')}, {_counted(len(built), 'word')}" + (f"; {_counted(refused.count, 'line')} refused" if refused.count else ""))
    return 1 if refused.count else 0


def _write(vocabulary: Any, path: Path) -> None:
    """Write a vocabulary so that nobody sees half of it."""
    half = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        vocabulary.save(half)
        half.replace(path)
    finally:
        half.unlink(missing_ok=True)


def _text_of(line: bytes, field: str) -> str:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as ex:
        raise ValueError(f"not JSON: {ex}") from None
    text = value.get(field) if isinstance(value, dict) else None
    if not isinstance(text, str):
        raise ValueError(f"expected a JSON object with a text {field!r}")
    return text


def _texts_of_file(args: argparse.Namespace, refused: _Refused, progress: _Progress) -> Iterator[str]:
    def read() -> Iterator[str]:
        count = 0
        for number, line in lines(args.file):
            try:
                if line is None:
                    raise ValueError(f"longer than {LINE_BYTES:,} bytes")
                text = line.decode(errors="replace") if args.plain else _text_of(line, args.field)
            except ValueError as ex:
                refused.add(number, str(ex))
                continue
            count += 1
            progress(_counted(count, "text"))
            yield text

    return iter(_reservoir(read(), args.sample)) if args.sample else read()


def _reservoir(items: Iterable[str], size: int) -> list[str]:
    """Return a random sample, the same for the same items (algorithm R)."""
    import random

    chosen: list[str] = []
    draw = random.Random(0)
    for seen, item in enumerate(items):
        if seen < size:
            chosen.append(item)
        elif (place := draw.randrange(seen + 1)) < size:
            chosen[place] = item
    return chosen


def _texts_of_topic(client: Any, args: argparse.Namespace, refused: _Refused, progress: _Progress) -> Iterator[str]:
    topic = client.topics.messages if args.topic == "messages" else args.topic
    size = args.sample or 100_000
    partitions = client.partitions(topic)
    share = -(-size // partitions)
    count = 0
    for record in client.scan(topic, share):
        if count == size:
            return
        try:
            text = record.value.decode(errors="replace") if args.plain else _text_of(record.value or b"null", args.field)
        except (ValueError, AttributeError):
            continue  # what is no message is in the dead letters
        count += 1
        progress(_counted(count, "text"))
        yield text


def _vocabulary_show(args: argparse.Namespace) -> int:
    import math

    from dskype.deploy.tail import clean, put
    from dskype.spouts.text import Tokenizer
    from dskype.spouts.vocabulary import Vocabulary

    vocabulary = Vocabulary.load(args.file)
    n = vocabulary.documents

    def row(term: str, id: int, df: int) -> dict[str, Any]:
        return {"term": term, "id": id, "df": df, "idf": round(math.log(1 + n / df), 6)}

    if args.term:
        tokens = [token for term in args.term for token in Tokenizer().tokens(term)]
        ids = vocabulary.ids(tokens)
        rows = [row(*found) for found in zip(tokens, ids.tolist(), vocabulary.df(ids).tolist())]
    else:
        import numpy as np

        ids = np.arange(len(vocabulary) - 1, max(-1, len(vocabulary) - 1 - args.top), -1)
        rows = [row(vocabulary.term(id), id, df) for id, df in zip(ids.tolist(), vocabulary.df(ids).tolist())]
    if args.output == "json":
        put(json.dumps({"documents": n, "words": len(vocabulary), "terms": rows}, ensure_ascii=False))
        return 0
    put(f"{_counted(n, 'document')}, {_counted(len(vocabulary), 'word')}")
    for r in rows:
        unknown = "  (not in the vocabulary)" if r["id"] < 0 else ""
        put(f"{r['df']:>10,}  {r['idf']:>9.6f}  {clean(r['term'], 60)}{unknown}")
    return 0


# --- engines ----------------------------------------------------------------------------------------------------------


def _engine(module: str) -> Any:
    return importlib.import_module("dskype.deploy.verify" if module == "verify" else module)


def _verify(args: argparse.Namespace) -> int:
    from dskype.deploy import cluster

    return _engine("verify").run(args, cluster._settings(target(args)), args.topology) or 0


def _bench(args: argparse.Namespace) -> int:
    return _engine(args.engine).run(args) or 0
