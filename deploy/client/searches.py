"""Search the window of a topology: send a question, and put the parts of its answer together.

Each task of the message bolt writes the part of the answer that its part of the window has, all as of the same watermark. So the best of the parts are the
best of the whole window, and a task that is away is known by name.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dskype.deploy.client.follower import Follower
from dskype.deploy.client.records import encoded, given_fields, json_object, subscription_type
from dskype.deploy.client.topic_reader import UnknownTopicError
from dskype.spouts.record_values import RecordError, refusal
from dskype.spouts.searches import DEFAULT_TIMEOUT_MS, MOST_TIMEOUT_MS, parse_search
from dskype.topology.errors import IllegalArgumentException, TopologyError, explain

__all__ = ["Answer", "AnswerParts", "Match", "SearchError", "search_window"]

_POLL_S = 0.2


class SearchError(TopologyError):
    """A search has no answer: the topology has refused it now, or a task has not answered in time."""

    retriable = True


@dataclass(frozen=True)
class Match:
    """A message that a search has found.

    :ivar score: of a top-k search; None: of a boolean one.
    :ivar lat, lon: degrees, of an area those of its centre; None: not known.
    :ivar carried: what results say of the fields of the message: ``fields`` or ``fields_omitted``, or nothing.
    :ivar object: the id of the object of which the message is a state; None: of none.
    """

    message: str | int
    score: float | None = None
    lat: float | None = None
    lon: float | None = None
    carried: Mapping[str, Any] = field(default_factory=dict)
    object: str | None = None

    def as_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        first, last = {"object": self.object}, {"score": self.score, "lat": self.lat, "lon": self.lon}
        return {"message": self.message, **given_fields(first), **self.carried, **given_fields(last)}


@dataclass(frozen=True)
class Answer:
    """The exact answer to a search, over the window that ends at its watermark.

    :ivar watermark: number of the newest message in the window (count windows), or its time in ms (time windows); -1: there were no messages yet.
    :ivar matches: best first; those of a boolean search newest first.
    :ivar total: how many messages match in all; None: of a top-k search.
    """

    watermark: int
    matches: list[Match]
    total: int | None = None

    def as_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        found = {"watermark": self.watermark, **({} if self.total is None else {"total": self.total})}
        return {**found, "matches": [match.as_json() for match in self.matches]}


class AnswerParts:
    """The parts of the answer to one search as they come, in any order and perhaps repeatedly.

    :param k: the most matches.
    """

    def __init__(self, k: int) -> None:
        self._k = k
        self._parts: dict[int, dict[str, Any]] = {}  # by task

    def add(self, value: Mapping[str, Any]) -> Answer | None:
        """Add a record of the topic of answers; return the answer if it is complete.

        :raises SearchError: it says that the topology has refused the search for now; a :class:`RecordError`: for good.
        """
        if "error" in value:
            if value.get("code") in ("too-many", "gone"):
                raise SearchError(str(value["error"]))
            raise RecordError(f"The topology has refused the search: {value['error']}", "refused")
        self._parts.setdefault(value["task"], dict(value))
        return None if self.missing() else self._merged()

    def missing(self) -> list[int]:
        """Return the tasks whose parts are missing; [] before the first one has come, too."""
        return sorted(set().union(*(part["tasks"] for part in self._parts.values())) - self._parts.keys())

    def __len__(self) -> int:
        return len(self._parts)

    def _merged(self) -> Answer:
        parts = list(self._parts.values())
        entries = [entry for part in parts for entry in part["results"]]
        entries.sort(key=lambda entry: (entry.get("score", 0.0), entry["position"], entry["seq"]), reverse=True)
        total = sum(part["count"] for part in parts) if all("count" in part for part in parts) else None
        return Answer(parts[0]["watermark"], [_match(entry) for entry in entries[: self._k]], total)


def _match(entry: Mapping[str, Any]) -> Match:
    carried = {name: entry[name] for name in ("fields", "fields_omitted") if name in entry}
    return Match(entry["message"], entry.get("score"), entry.get("lat"), entry.get("lon"), carried, entry.get("object"))


def _record(client: Any, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the record of a search with these fields. Words without a place are searched everywhere: nearness does not count then."""
    record = {name: value for name, value in fields.items() if value is not None}
    record = {"type": subscription_type(record), **record}
    if record["type"] == "topk" and "lat" not in record and "lon" not in record:
        if given := sorted(record.keys() & {"alpha", "distance", "scale_m"}):
            legal = "'lat' and 'lon' with these fields, or none of them"
            raise refusal("invalid-place", "Expected a place where nearness counts", ", ".join(given), legal, "without a place the words alone count")
        space = client.settings.space
        record |= {"lat": (space.south + space.north) / 2, "lon": (space.west + space.east) / 2, "alpha": 0}
    return record


def search_window(
    client: Any,
    text: str | None = None,
    *,
    lat: float | None = None,
    lon: float | None = None,
    k: int | None = None,
    alpha: float | None = None,
    keywords: Sequence[str] | None = None,
    distance: str | None = None,
    scale_m: float | None = None,
    where: str | None = None,
    expression: str | None = None,
    bbox: Sequence[float] | None = None,
    region: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
    timeout_s: float = DEFAULT_TIMEOUT_MS / 1000,
) -> Answer:
    """Return what a subscription with these fields would have found in the window, once and exactly.

    With ``expression``, ``bbox`` or ``region`` these are the newest messages that match, and how many there are; else those with the best scores. Without a
    place, scores are those of the words alone. An area lies at its centre.

    :param k: the most messages that the answer names. Default 10.
    :param timeout_s: how long to wait for the answer.
    :raises RecordError: the search cannot be used; the text says why.
    :raises SearchError: not all tasks have answered in time, or there are too many searches.
    :raises UnknownTopicError: the topology is not there, or takes no searches.
    """
    if not 0 < timeout_s <= MOST_TIMEOUT_MS / 1000:
        raise IllegalArgumentException(explain("A search cannot wait for this long.", given=timeout_s, legal=f"up to {MOST_TIMEOUT_MS / 1000:g} s"))
    fields = {"text": text, "keywords": keywords, "lat": lat, "lon": lon, "alpha": alpha, "distance": distance, "scale_m": scale_m, "where": where}
    record = _record(client, {**fields, "expression": expression, "bbox": bbox, "region": region, "k": k})
    record["timeout_ms"] = max(1, round(timeout_s * 1000))
    key, value = uuid.uuid4().hex.encode(), encoded(record, "a search")
    wanted = parse_search(key, value, client.settings, client.analyzer).k
    _require(client)
    deadline, parts = time.monotonic() + timeout_s, AnswerParts(wanted)
    with client.reader() as consumer:
        follower = Follower(client.kafka, [client.topics.answers], "now", consumer)
        sent = client._send(client.topics.searches, key, value)
        while (left_s := deadline - time.monotonic()) > 0:
            if sent.done() and (error := sent.exception()) is not None:
                raise SearchError(explain("Kafka has not taken the search.", given=str(error))) from error
            for found in follower.poll(min(left_s, _POLL_S)):
                if found.key == key and (part := json_object(found.value)) is not None and (answer := parts.add(part)) is not None:
                    return answer
    raise _unanswered(client, parts, timeout_s)


def _require(client: Any) -> None:
    topics = client.topics.searches, client.topics.answers
    try:
        client.require(*topics)
    except UnknownTopicError as error:
        if client.running() is None:
            raise
        hint = "its file must give the subscription spout a topic of searches, as deploy/topologies/dskype.yaml does"
        raise UnknownTopicError(explain(f"Topology {client.name!r} takes no searches: a topic is missing.", given=", ".join(topics), hint=hint)) from error


def _unanswered(client: Any, parts: AnswerParts, timeout_s: float) -> SearchError:
    """Return what to say when the time is over."""
    if client.running() is None:
        return SearchError(
            explain(f"No topology {client.name!r} runs, so nobody answers the search.", given=f"waited for {timeout_s:g} s", hint="'dskype list'")
        )
    given = f"the parts of {len(parts)} of {len(parts) + len(parts.missing())} tasks" if len(parts) else "no part"
    away = f"Tasks {', '.join(map(str, parts.missing()))} of the message bolt have" if parts.missing() else "No task of the message bolt has"
    hint = "'dskype stats' says which tasks stand still or are behind; --wait, or timeout_s, waits for longer"
    return SearchError(explain(f"{away} not answered the search within {timeout_s:g} s.", given=given, hint=hint))
