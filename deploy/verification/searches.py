"""Answers of searches: each is the best, or the newest, of the window at its watermark."""

from __future__ import annotations

import dataclasses
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from dskype.deploy.client.records import json_object
from dskype.deploy.verification.inputs import Inputs, Record
from dskype.deploy.verification.oracle import Oracle, same_list
from dskype.deploy.verification.reading import UnusableRecord, object_of, read_subscription
from dskype.deploy.verification.registrations import Registration
from dskype.deploy.verification.report import Report
from dskype.deploy.verification.steps import may_be_refused
from dskype.spouts.settings import Settings
from dskype.spouts.subscriptions import BooleanSubscription, Subscription, TopkSubscription

__all__ = ["check_searches"]

_BUSY = ("too-many", "gone")
"""Codes of refusals that say nothing about the search itself."""
_MOST = 500
"""How many answers are compared, the newest ones: each takes a look at the whole window."""
_NOT_HERE = ("meta", "ttl_s", "inside", "initial", "timeout_ms")
_PLACE_DEG = 1e-9
"""Two computations of the centre of an area may differ by so much."""


def check_searches(inputs: Inputs, settings: Settings, oracle: Oracle, report: Report, least: int) -> None:
    """Compare the answers of searches with the messages of the window at their watermarks.

    :param least: the lowest watermark that is compared.
    """
    asked = {record.key: record for record in inputs.searches}
    answers = _answers(inputs, report)
    if settings.objects and may_be_refused(oracle.steps, settings):
        report.unchecked["searches, because some objects may have been refused (dskype.objects.max)"] += len(answers)
        return
    if early := list(answers)[:-_MOST]:
        report.unchecked[f"searches before the newest {_MOST}"] += len(early)
    for id in list(answers)[-_MOST:]:
        if (record := asked.get(id.encode())) is None:
            report.unchecked["searches whose question the log does not have any more"] += 1
            continue
        _check(id, record, answers[id], settings, oracle, report, least)


def _answers(inputs: Inputs, report: Report) -> dict[str, list[dict[str, Any]]]:
    """Return search -> what was answered; the parts of one task once."""
    found: dict[str, dict[Any, dict[str, Any]]] = defaultdict(dict)
    for record in inputs.answers:
        value = json_object(record.value)
        if value is None or not isinstance(value.get("search"), str) or not ("error" in value or _is_part(value)):
            report.differ("format", "a record of the topic of answers is none", where=f"{inputs.topics.answers}/{record.partition} offset {record.offset}")
        elif found[value["search"]].setdefault(value.get("task", value.get("code")), value) != value:
            report.differ("search", f"task {value.get('task')} has answered search {value['search']!r} twice, and differently")
    return {id: list(parts.values()) for id, parts in found.items()}


def _is_part(value: Mapping[str, Any]) -> bool:
    listed = isinstance(value.get("results"), list) and all(isinstance(entry, dict) and "message" in entry for entry in value["results"])
    return listed and isinstance(value.get("tasks"), list) and type(value.get("watermark")) is int and type(value.get("task")) is int


def _read(record: Record, settings: Settings) -> tuple[Subscription, int]:
    """Return what a search asks for, as a subscription, and how many messages it wants.

    :raises UnusableRecord: it has to be refused.
    """
    fields = object_of(record.value, settings.limits.text_max_bytes)
    given = {"k": min(10, settings.limits.k_max), "alpha": 0.5, **fields}
    k, timeout_ms = given["k"], fields.get("timeout_ms", 1)
    if type(k) is not int or not 1 <= k <= settings.limits.k_max or type(timeout_ms) is not int or not 1 <= timeout_ms <= 300_000:
        raise UnusableRecord("a k or a timeout_ms that is none")
    if fields.get("type") not in ("topk", "boolean"):
        raise UnusableRecord("an unknown type of search")
    left_out = (*_NOT_HERE, "k") if fields["type"] == "boolean" else _NOT_HERE
    if fields["type"] == "boolean" and "alpha" not in fields:
        del given["alpha"]
    value = json.dumps({name: field for name, field in given.items() if name not in left_out}).encode()
    return read_subscription(record.key, value, dataclasses.replace(settings, wordless=True, objects=False)), k


def _check(id: str, record: Record, parts: Sequence[dict[str, Any]], settings: Settings, oracle: Oracle, report: Report, least: int) -> None:
    refused = [part for part in parts if "error" in part]
    try:
        subscription, k = _read(record, settings)
    except UnusableRecord as reason:
        if not refused:
            report.differ("search", f"search {id!r} was answered, but it has to be refused: {reason}")
        report.compared["refused searches"] += 1
        return
    if refused:
        if all(part.get("code") not in _BUSY for part in refused):
            report.differ("search", f"search {id!r} was refused, but there is nothing wrong with it: {refused[0]['error']}")
        report.compared["refused searches"] += 1
        return
    if missing := set().union(*(part["tasks"] for part in parts)) - {part["task"] for part in parts}:
        report.unchecked[f"searches that {'a task has' if len(missing) == 1 else 'tasks have'} not answered"] += 1
        return
    at = parts[0]["watermark"]
    if any(part["watermark"] != at for part in parts):
        report.differ("search", f"the parts of the answer to search {id!r} are of several watermarks", watermark=at)
    elif not least <= at <= oracle.history.newest:
        report.unchecked["searches over messages that are not looked at, or that the log does not have"] += 1
    else:
        report.compared["searches"] += 1
        entries = [entry for part in parts for entry in part["results"]]
        entries.sort(key=lambda entry: (entry.get("score", 0.0), entry["position"], entry["seq"]), reverse=True)
        asked = Registration(-1, id, (record.partition, record.offset), subscription, record.timestamp_ms)
        _compare(asked, k, at, entries[:k], sum(part.get("count", 0) for part in parts), oracle, report)


def _compare(asked: Registration, k: int, at: int, entries: Sequence[Mapping[str, Any]], count: int, oracle: Oracle, report: Report) -> None:
    history = oracle.history
    codes = [history.codes.get(entry["message"], -1) for entry in entries]
    if isinstance(asked.subscription, TopkSubscription):
        scores = oracle.scores(asked, at)
        right = same_list([(code, entry.get("score", -1.0)) for code, entry in zip(codes, entries)], scores, k, history.code, oracle.tolerance)
        expected = [row for _, row in scores[:k]]
    else:
        assert isinstance(asked.subscription, BooleanSubscription)
        matching = oracle.newest(asked, at, len(history) or 1).tolist()
        expected = matching[::-1][:k]
        right = codes == history.code[expected].tolist() and count == len(matching)
    if right and all(_is_at(entry, history.rows_of(entry["message"]), oracle) for entry in entries):
        return
    names = list(history.codes)
    report.differ(
        "search",
        f"the answer to search {asked.name!r} at watermark {at} differs",
        watermark=at,
        expected=[names[code] for code in history.code[expected].tolist()],
        published=[dict(entry) for entry in entries],
    )


def _is_at(entry: Mapping[str, Any], rows: Sequence[int], oracle: Oracle) -> bool:
    """Tell whether a result has the place of one of the messages with its id."""
    lat, lon, history = entry.get("lat"), entry.get("lon"), oracle.history
    if not isinstance(lat, (int, float)) or not isinstance(lon, (int, float)):
        return False
    return any(abs(lat - history.lat[row]) < _PLACE_DEG and abs((lon - history.lon[row] + 180) % 360 - 180) < _PLACE_DEG for row in rows)
