"""``dskype sub``: add, list, show or remove subscriptions."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Sequence
from typing import Any

from dskype.deploy.cli.arguments import Actions, UsageError, check_options, client_options, json_value, open_client, output, positive, positive_seconds
from dskype.deploy.cli.lines import Sending, lines
from dskype.deploy.cli.questions import boolean_options, question_fields, topk_options
from dskype.deploy.machine.terminal import clean, clock_text, counted, pointed, put, say
from dskype.spouts.record_values import RecordError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the actions."""
    actions = Actions(parser)
    actions.add("add", _add, "register subscriptions: JSON lines of a file, or one by options", _add_arguments)
    actions.add("list", _list, "list the subscriptions and their states", _list_arguments)
    actions.add("show", _show, "show a subscription, its state and its current top-k", _show_arguments)
    actions.add("move", _move, "change a subscription, so that its results go on", _move_arguments)
    actions.add("rm", _rm, "remove subscriptions", _rm_arguments)


# --- arguments --------------------------------------------------------------------------------------------------------


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    client_options(parser)
    parser.add_argument("file", nargs="?", metavar="FILE", help='{"id"?, "type": "topk"|"boolean"|"threshold", ...} a line; -: standard input')
    parser.add_argument("--dry-run", action="store_true", help="check, send nothing")
    check_options(parser)
    output(parser)
    one = _field_arguments(parser)
    one.add_argument("--id", metavar="ID", help="default: a generated one, printed")
    words = "of a boolean subscription: also what matches already, the newest N messages, or as many as dskype.k.max allows"
    one.add_argument("--initial", metavar="N", nargs="?", const=True, type=positive, help=words)


def _field_arguments(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    """Add options for the fields of a subscription; return the group of those that all types have."""
    one = parser.add_argument_group("a single subscription, by options")
    one.add_argument("--keyword", metavar="WORD", action="append", dest="keywords", help="repeatable")
    one.add_argument("--meta", metavar="JSON", type=json_value, help="comes back with every result")
    one.add_argument("--tenant", metavar="NAME", help="whom it belongs to, and whose quotas hold for it")
    one.add_argument("--ttl", metavar="SECS", type=positive_seconds, help="the subscription expires after SECS")
    topk = parser.add_argument_group("top-k of the window, or with --min-score every message that reaches a score")
    topk.add_argument("--text", help="the words to look for")
    topk.add_argument("--min-score", metavar="S", type=float, help="every message that scores at least S, 0 to 1, in place of the best K")
    topk_options(topk)
    boolean = parser.add_argument_group("every message that matches")
    boolean_options(boolean)
    boolean.add_argument("--inside", action="store_true", default=None, help="report updates of objects that stay in, too, not only enter and leave")
    return one


def _list_arguments(parser: argparse.ArgumentParser) -> None:
    client_options(parser)
    parser.add_argument("--type", choices=("topk", "boolean", "threshold"), help="only these")
    parser.add_argument("--tenant", metavar="NAME", help="only those that name this tenant")
    output(parser)


def _show_arguments(parser: argparse.ArgumentParser) -> None:
    client_options(parser)
    parser.add_argument("id", metavar="ID")
    check_options(parser)
    output(parser)


def _move_arguments(parser: argparse.ArgumentParser) -> None:
    client_options(parser)
    parser.add_argument("id", metavar="ID")
    _field_arguments(parser)


def _rm_arguments(parser: argparse.ArgumentParser) -> None:
    client_options(parser)
    parser.add_argument("id", metavar="ID", nargs="+")
    parser.add_argument("--ignore-missing", action="store_true", help="an unknown ID is not an error")


# --- the actions ------------------------------------------------------------------------------------------------------


def _given_fields(args: argparse.Namespace) -> dict[str, Any]:
    """Return the fields of a subscription that the options give."""
    names = ("id", "text", "keywords", "min_score", "inside", "initial", "tenant", "meta")
    fields = {name: value for name in names if (value := getattr(args, name, None)) is not None} | question_fields(args)
    return fields if args.ttl is None else fields | {"ttl_s": args.ttl}


def _by_options(args: argparse.Namespace) -> dict[str, Any] | None:
    """Return the subscription that the options describe; None if none of them is given."""
    fields = _given_fields(args)
    if not fields:
        return None
    boolean = {"expression", "bbox", "region", "inside", "initial"} & fields.keys()
    topk = {"text", "lat", "k", "min_score", "alpha", "distance", "scale_m", "where"} & fields.keys()
    if boolean and topk:
        words = (
            "--text, --near, -k, --min-score, --alpha, --distance, --scale-m and --where are for top-k and threshold, "
            "--expression, --bbox, --circle, --region, --inside and --initial for boolean subscriptions; given: both"
        )
        raise UsageError(words)
    if boolean:
        return {"type": "boolean", **fields}
    return {"type": "threshold", "alpha": 0.5, **fields} if "min_score" in fields else {"type": "topk", "k": 10, "alpha": 0.5, **fields}


def _subscription(line: bytes) -> tuple[bytes, bytes, bool]:
    """Return key and value of the record for a line, and whether the id is a generated one.

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


def _add(args: argparse.Namespace) -> int:
    from dskype.topology.errors import TopologyError

    one = _by_options(args)
    if (one is None) == (args.file is None):
        raise UsageError("expected a FILE (- is standard input), or one subscription by options; given: " + ("neither" if one is None else "both"))
    if one is not None and one["type"] != "boolean" and args.near is None:
        raise UsageError(
            "expected --near LAT,LON for a top-k or threshold subscription, or --expression, --bbox, --circle or --region for a boolean one; given: none of them"
        )
    source: Iterable[tuple[int | None, bytes | RecordError]] = lines(args.file) if one is None else [(None, json.dumps(one).encode(errors="surrogatepass"))]
    client = open_client(args, offline=args.dry_run, patient=True)
    generated: list[str] = []
    with Sending(args, client, "subscription") as sending:
        if not args.dry_run:
            client.require(client.topics.subscriptions)
        for number, line in source:
            try:
                if isinstance(line, RecordError):
                    raise line
                key, value, is_new = _subscription(line)
                client.parse_subscription(key, value)
            except (ValueError, TopologyError) as ex:
                sending.refuse(number, str(ex), _place_of(ex, line))
                continue
            sending.send(number, lambda key=key, value=value: client.send_subscription(key, value))
            if is_new:
                generated.append(key.decode())
                if args.output == "text":
                    print(key.decode())
    return sending.summary({"generated": generated})


def _place_of(error: Exception, line: bytes | RecordError) -> list[str]:
    """Return the expression of a line with a caret where it goes wrong; [] if the error is about something else."""
    from dskype.spouts.expression_parser import ExpressionError

    reason = error.__cause__
    if not isinstance(reason, ExpressionError) or not isinstance(line, bytes):
        return []
    fields = json.loads(line)
    return pointed(fields.get("expression", fields.get("where")), reason.position)


def _list(args: argparse.Namespace) -> int:
    with open_client(args) as client:
        found = [r for r in client.subscriptions(args.type) if args.tenant in (None, (r.fields or {}).get("tenant"))]
        if args.output == "json":
            put(json.dumps([r.as_json() for r in found], indent=2))
            return 0
        if not found:
            put("No subscriptions.")
            return 0
        width = min(40, max(4, *(len(clean(r.id, 40)) for r in found)))
        owners = [clean((r.fields or {}).get("tenant") or "-", 20) for r in found]
        wide = max(map(len, [*owners, "TENANT"])) + 2 if any(owner != "-" for owner in owners) else 0  # no column where nobody is named
        put(f"{'ID':<{width}}  {'TYPE':<9} {'STATUS':<8} {'SINCE':>12}  {'REGISTERED':<19}  {'TENANT':<{wide}.{wide}}WHAT")
        for r, owner in zip(found, owners):
            since = "-" if r.since is None else r.since
            state = f"{clean(r.type, 9):<9} {r.status:<8} {since:>12}  {clock_text(r.registered_ms, True):<19}  {owner:<{wide}.{wide}}"
            put(f"{clean(r.id, 40):<{width}}  {state}{clean(_what(client, r), 80)}")
        pending = sum(r.status == "pending" for r in found)
        if not _runs(client):
            say(f"note: no topology {args.topology!r} runs; states are those of its last run")
        elif pending:
            say(f"note: {counted(pending, 'subscription')} pending: the topology has yet to read and place them; 'dskype list' says if it waits for something")
    return 0


def _runs(client: Any) -> bool:
    from dskype.topology.runtime.nimbus.nimbus_topic import watch_drivers

    record = client.running()
    return record is not None and watch_drivers(client.kafka, {client.name: record})[client.name]


def _what(client: Any, found: Any) -> str:
    """Say what a subscription looks for, in the words of its options."""
    from dskype.deploy.client.records import subscription_type

    fields = found.fields
    if fields is None:
        return "(no JSON object)"
    words = _expression(client, found) or fields.get("text") or " ".join(map(str, fields.get("keywords") or ())) or "everything"
    ttl = f", ttl {fields['ttl_s']} s" if "ttl_s" in fields else ""
    if subscription_type(fields) == "boolean":
        where = f"in {fields['bbox']}" if "bbox" in fields else f"in {json.dumps(fields['region'])}" if "region" in fields else "everywhere"
        return f"{words} {where}{ttl}"
    where = f", where {fields['where']}" if fields.get("where") else ""
    scale = f", scale {fields['scale_m']} m" if fields.get("distance") == "metres" else ""
    limit = f"score >= {fields['min_score']}" if "min_score" in fields else f"k {fields.get('k')}"
    return f"{words} near {fields.get('lat')},{fields.get('lon')}, {limit}, alpha {fields.get('alpha')}{scale}{where}{ttl}"


def _expression(client: Any, found: Any) -> Any:
    """Return the expression of a subscription as the topology reads it; as it was given if the topology cannot read it; None: it has none."""
    from dskype.spouts.expression import to_text
    from dskype.topology.errors import TopologyError

    given = (found.fields or {}).get("expression")
    if given is None or found.type != "boolean":
        return given
    try:
        return to_text(client.parse_subscription(found.id.encode(), found.value).expression)
    except TopologyError:
        return given


def _show(args: argparse.Namespace) -> int:
    from dskype.deploy.cli.result_lines import Texts, topk_lines

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
        if found.limit is not None:
            put(f"limited by {clean(found.limit, 80)} (told {clock_text(found.limited_ms or 0, True)}): its lists come later, or results lack its meta")
        for name, value in sorted((found.fields or {}).items()):
            if name not in ("id", "type"):
                put(f"  {clean(name, 30):<12} {clean(_expression(client, found) if name == 'expression' else value)}")
        if refusal is not None:
            put(f"refused by the topology: {clean(refusal)}")
        elif found.status == "pending" and not _runs(client):
            say(f"note: no topology {args.topology!r} runs; pending subscriptions wait for it")
        if state is not None:
            texts = Texts(client)
            try:
                put(f"top-k at watermark {state.watermark}, {counted(len(state.entries), 'message')}:")
                for line in topk_lines(state, texts.find(m for m, _ in state.entries), client.settings.half_life_ms):
                    put(line)
            finally:
                texts.close()
    return 0


def _state(client: Any, found: Any) -> Any:
    """Return the top-k of the current registration of a subscription, or None."""
    from dskype.topology.errors import TopologyError

    if found.type != "topk":
        return None
    try:
        state = client.topk(found.id)
    except TopologyError as ex:
        say(f"note: {ex}")
        return None
    return state if found.has_list(state) else None


def _unknown(client: Any, ids: Sequence[str]) -> int:
    """Print an error for each unknown subscription, with the most similar id."""
    import difflib

    known = [r.id for r in client.subscriptions()]
    for id in ids:
        near = difflib.get_close_matches(id, known[:100_000], 1)
        hint = f"did you mean {near[0]!r}?" if near else "'dskype sub list' lists them"
        say(f"error: there is no subscription {id!r} in topology {client.name!r}; hint: {hint}")
    return 1


def _move(args: argparse.Namespace) -> int:
    changes = {name: value for name, value in _given_fields(args).items() if name != "id"}
    if not changes:
        raise UsageError("expected what changes, for example --near LAT,LON or --bbox W,S,E,N; given: nothing")
    with open_client(args) as client:
        if client.subscription(args.id) is None:
            return _unknown(client, [args.id])
        client.move(args.id, wait=True, **changes)
        say(f"subscription {clean(args.id, 60)} changes")
    return 0


def _rm(args: argparse.Namespace) -> int:
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
