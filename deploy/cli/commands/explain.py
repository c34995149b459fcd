"""``dskype explain``: why a message does or does not match a boolean subscription, or what it scores for a top-k or threshold subscription.

Message and subscription are JSON, files of JSON or ids. Ids are looked up in the topics of a topology; JSON for both needs no broker.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from dskype.deploy.cli.arguments import UsageError, check_options, client_options, open_client, output
from dskype.deploy.machine.terminal import Progress, clean, clock_text, put

if TYPE_CHECKING:
    from dskype.spouts.records import Message
    from dskype.spouts.text import Tokenizer

__all__ = ["add_arguments", "run"]


class _Message(NamedTuple):
    """A message, and where it is from.

    :ivar id: what results call it; None: it has not been published.
    :ivar arrived_ms: when it came, epoch ms; None: it has not been published.
    :ivar place: (topic, partition, offset) of its record.
    """

    value: bytes
    id: str | int | None = None
    arrived_ms: int | None = None
    place: tuple[str, int, int] | None = None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    client_options(parser)
    check_options(parser)
    output(parser)
    parser.add_argument("--json", action="store_const", const="json", dest="output", help="the same as -o json")
    parser.add_argument("--vocabulary", metavar="FILE", help="weigh words by this vocabulary; default: the topology's, else all words weigh the same")
    parser.add_argument(
        "message",
        metavar="MESSAGE",
        help='{"text", "lat", "lon", "attributes"?} or {"text", "bbox" | "region"} as JSON, @FILE with that, or the id of a message in the topic',
    )
    parser.add_argument(
        "subscription",
        metavar="SUBSCRIPTION",
        help='{"text", "lat", "lon", "k" | "min_score", "alpha", "where"?} or {"expression", "bbox" | "region"} as JSON, @FILE with that, or the id of a subscription',
    )


def run(args: argparse.Namespace) -> int:
    """Explain, as text or as JSON."""
    from dskype.deploy.client.content import Content
    from dskype.deploy.client.explanation import add_time_score, as_lines, explain_boolean, explain_scores
    from dskype.spouts.subscriptions import BooleanSubscription
    from dskype.spouts.vocabulary import Vocabulary

    given_message, given_subscription = _json_of(args.message), _json_of(args.subscription)
    if args.vocabulary:
        args.conf = [*args.conf, ("dskype.vocabulary", args.vocabulary)]
    with open_client(args, offline=given_message is not None and given_subscription is not None) as client:
        registered = None if given_subscription is not None else _registered(client, args.subscription)
        name, value = (args.subscription, registered.value) if registered is not None else _subscription(given_subscription or b"")
        subscription = client.parse_subscription(name.encode(errors="surrogatepass") or b"-", value)
        message = _Message(given_message) if given_message is not None else _find(client, args.message)
        parsed = client.parse_message(message.value) if message.place is None else client.message_topics.read(message.place[0], message.value)
        settings = client.settings
        analyzer = client.analyzer
        tokens = analyzer.tokens(parsed.text)
        content = Content(parsed, analyzer, settings.language)
        explained: dict[str, Any]
        if isinstance(subscription, BooleanSubscription):
            explained = explain_boolean(subscription, parsed, content)
        else:
            vocabulary = Vocabulary.load(settings.vocabulary, analyzer) if settings.vocabulary else Vocabulary.empty()
            explained = explain_scores(subscription, parsed, tokens, vocabulary, settings.space.diagonal_deg, content)
            time_ms = message.arrived_ms if parsed.ts is None else parsed.ts
            if settings.half_life_ms is not None and time_ms is not None:
                add_time_score(explained, time_ms, settings.half_life_ms)
        if registered is not None and explained["type"] == "topk":
            _add_list(explained, client, registered, message)
        elif registered is not None and message.place is not None:
            _add_times(explained, subscription.ttl_s, message, registered, _position(client, message))
        explained["notes"] = _notes(client, settings, registered, explained) + _of_object(parsed) + _analysis(analyzer, parsed.text)
    id = message.id if message.id is not None else _id_of(message.value)
    if args.output == "json":
        put(json.dumps({"message": id, "subscription": name or None, "tokens": tokens, **explained}, ensure_ascii=False))
    else:
        put(*as_lines(explained, clean(name, 60) if name else "this subscription", "this message" if id is None else f"message {clean(id, 60)}"))
    return 0


# --- what is meant ----------------------------------------------------------------------------------------------------


def _json_of(text: str) -> bytes | None:
    """Return the JSON of an argument: the text itself, or the content of the file after ``@``. Return None if it is an id."""
    if text.startswith("@"):
        try:
            return Path(text[1:]).read_bytes().strip()
        except OSError as ex:
            raise UsageError(f"{text[1:]} cannot be read: {ex}") from ex
    return text.encode(errors="surrogatepass") if text.lstrip().startswith("{") else None


def _subscription(value: bytes) -> tuple[str, bytes]:
    """Return (id, record) of a subscription as JSON; its type is seen from its fields, and it needs no id."""
    from dskype.deploy.client.records import json_object, subscription_type

    fields = json_object(value)
    if fields is None:
        raise UsageError(f"expected a subscription as a JSON object, given: {value[:60].decode(errors='replace')!r}")
    id, type = str(fields.pop("id", "")), subscription_type(fields)
    defaults = {"topk": {"k": 10, "alpha": 0.5}, "threshold": {"alpha": 0.5}}.get(type, {})
    return id, json.dumps({**defaults, **fields, "type": type}, ensure_ascii=False).encode(errors="surrogatepass")


def _registered(client: Any, id: str) -> Any:
    from dskype.topology.errors import IllegalArgumentException

    found = client.subscription(id)
    if found is None:
        raise IllegalArgumentException(f"There is no such subscription in topology {client.name!r}.", given=id, hint="'dskype sub list' lists them")
    return found


def _find(client: Any, id: str) -> _Message:
    """Return the newest message of an id that the topics of messages still have."""
    from dskype.topology.errors import IllegalArgumentException

    topics = client.message_topics
    place = topics.place_of(id)
    progress = Progress(clear=True)
    found = None
    for topic in topics.names if place is None else dict.fromkeys((place[0], *topics.names)):
        for record in client.scan(
            topic, progress=lambda read, size, topic=topic: progress(f"looking for message {clean(id, 60)} in {topic}: {read:,} of {size:,} read")
        ):
            where = topic, record.partition, record.offset
            if where == place and _id_in(topics, topic, record.value) is None:
                progress.end()
                return _Message(record.value, id, record.timestamp, where)
            likely = topics.is_mapped(topic) or id.encode() in (record.value or b"")
            if likely and (own := _id_in(topics, topic, record.value)) is not None and str(own) == id:
                if found is None or record.timestamp >= (found.arrived_ms or 0):
                    found = _Message(record.value, own, record.timestamp, where)
    progress.end()
    if found is None:
        where_to = ", ".join(topics.names)
        raise IllegalArgumentException(f"There is no such message in {where_to}.", given=id, hint="it may have left the topic; give its JSON instead of its id")
    return found


def _id_in(topics: Any, topic: str, value: bytes | None) -> Any:
    """Return the id that a record of a topic gives its message; None if it gives none, or is no message."""
    from dskype.spouts.record_values import RecordError

    try:
        own = topics.own_form(topic, value)
    except RecordError:
        return None
    return own.get("id") if isinstance(own, dict) else _id_of(own)


def _id_of(value: bytes | None) -> Any:
    from dskype.deploy.client.records import json_object

    fields = json_object(value)
    return None if fields is None else fields.get("id")


# --- what a topology knows --------------------------------------------------------------------------------------------


def _position(client: Any, message: _Message) -> int | None:
    """Return where a message stands for the window; None where that is its time, or the topology has not read it yet."""
    from dskype.deploy.client.records import json_object
    from dskype.deploy.client.sequence import sequence_numbers

    if message.place is None or client.settings.window_kind != "count":
        return None
    runs = (json_object(record.value) for record in client.scan(client.topics.sequence))
    topic, partition, offset = message.place
    first = topic == client.message_topics.names[0]
    return sequence_numbers([run for run in runs if run is not None], partition, None if first else topic)(offset)


def _add_times(explained: dict[str, Any], ttl_s: float | None, message: _Message, registered: Any, position: int | None) -> None:
    """Say whether the subscription lived when the message came."""
    arrived_ms = message.arrived_ms or 0
    arrived, began = clock_text(arrived_ms, True), clock_text(registered.registered_ms, True)
    also = ", and the newest that the window has then" if (registered.fields or {}).get("initial") else ""
    text = f"the message came at {arrived}, the subscription at {began}; only messages that come after it match{also}"
    times = [{"held": arrived_ms >= registered.registered_ms, "text": text}]
    if position is not None and registered.status == "active" and registered.since is not None:
        times.append({"held": position > registered.since, "text": f"this is message {position}; the subscription is active behind message {registered.since}"})
    if ttl_s is not None:
        ends_ms = registered.registered_ms + round(ttl_s * 1000)
        times.append({"held": arrived_ms < ends_ms, "text": f"the subscription lives until {clock_text(ends_ms, True)}"})
    explained["times"] = times
    explained["matches"] = explained["matches"] and all(time["held"] for time in times)


def _add_list(explained: dict[str, Any], client: Any, registered: Any, message: _Message) -> None:
    """Say where the message stands in the newest published list."""
    from dskype.deploy.client.explanation import explain_list

    state = client.topk(registered.id)
    if state is not None and state.registration in (None, registered.registration):
        position = _position(client, message)
        explained["list"] = explain_list(explained, message.id, state.entries, state.watermark, position, client.settings.extent)


def _notes(client: Any, settings: Any, registered: Any, explained: dict[str, Any]) -> list[str]:
    notes = []
    if registered is not None and registered.status != "active":
        notes.append(f"the subscription is {registered.status}, not active")
        if registered.status == "pending" and (refusal := client.refusal(registered.registration)):
            notes.append(f"the topology refused it: {refusal}")
    if explained["type"] != "boolean" and settings.vocabulary is None:
        notes.append("there is no vocabulary: all words weigh the same (--vocabulary names one)")
    if explained["type"] == "topk" and registered is not None and "list" not in explained:
        notes.append("no list has been published for this subscription yet")
    return notes


def _of_object(message: Message) -> list[str]:
    """Return a note about a message that is a state of an object, or its end."""
    if message.object is None:
        return []
    what = (
        "the end of it, and has neither words nor a place" if message.deleted else "a state of it, and counts only until the next one, or until the object ends"
    )
    return [f"the message is of object {clean(message.object, 60)}: {what}"]


_SHOWN = 8
"""Words of a message whose forms are shown."""


def _analysis(analyzer: Tokenizer, text: str) -> list[str]:
    """Return a note about what an analyzer that is not the plain one makes of the words of a message."""
    if analyzer.plain:
        return []
    from dskype.spouts.text import cut

    made = {word: analyzer.keywords(word) for word in dict.fromkeys(cut(text))}
    changed = [f"{clean(word, 40)} is {clean(' '.join(forms), 40) or 'left out'}" for word, forms in made.items() if forms != [word]]
    more = f", and {len(changed) - _SHOWN} more" if len(changed) > _SHOWN else ""
    return [f"words are analyzed by {analyzer.identity}" + (f": {', '.join(changed[:_SHOWN])}{more}" if changed else "")]
