"""The fields of messages that results carry (``dskype.results.fields``): what they must be, and the comparison with every published record.

Reads messages without the code that the topology reads them with, as :mod:`~dskype.deploy.verification.reading` does.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from dskype.deploy.verification.inputs import Inputs, Record, where
from dskype.deploy.verification.reading_paths import value_at
from dskype.deploy.verification.report import Report
from dskype.spouts.settings import Settings

if TYPE_CHECKING:
    from dskype.deploy.verification.registrations import Registry
    from dskype.deploy.verification.replay import History

__all__ = ["check_carried", "expected_fields"]

_NAMES = ("fields", "fields_omitted")


def expected_fields(own: Mapping[str, Any], original: Mapping[str, Any], arrival_ms: int, settings: Settings) -> dict[str, Any]:
    """Return what results say of a message's fields.

    :param own: the message's record in DSkype's own form; ``original``: as it came.
    """
    carried = settings.result_fields
    assert carried is not None
    text = own["text"]
    texts = {settings.text_fields[0]: text} if settings.text_fields and isinstance(text, str) else text
    found: dict[str, Any] = {}
    for name, source in carried.sources:
        if source.startswith("$"):
            value = value_at(source, original)
        elif source == "text":
            value = {field: texts[field] for field in settings.text_fields if field in texts} if settings.text_fields else text
        elif source == "place":
            value = {part: own[part] for part in ("lat", "lon", "bbox", "region") if part in own}
        elif source == "time":
            value = own.get("ts", arrival_ms)
        elif source in settings.text_fields:
            value = texts.get(source)
        else:
            value = (own.get("attributes") or {}).get(source)
        if value is not None:
            found[name] = _finite(value)
    try:
        size = len(json.dumps(found, separators=(",", ":"), ensure_ascii=False).encode())
    except UnicodeEncodeError:
        size = len(json.dumps(found, separators=(",", ":")))
    except RecursionError:
        return {"fields_omitted": True}
    return {"fields_omitted": True} if size > carried.max_bytes else {"fields": found}


def _finite(value: Any) -> Any:
    """Return a value with null in place of infinities."""
    if isinstance(value, dict):
        return {name: _finite(entry) for name, entry in value.items()}
    if isinstance(value, list):
        return [_finite(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def check_carried(inputs: Inputs, registry: Registry, history: History, report: Report, progress: Callable[[str], None]) -> None:
    """Compare the fields in each published record with those of its message, and the object with that of which it is a state; without ``dskype.results.fields`` and ``dskype.objects`` there are none."""
    for name in ("results", "matches", "topk"):
        topic = getattr(inputs.topics, name)
        for i, record in enumerate(getattr(inputs, name)):
            if not i % 100_000:
                progress(f"comparing fields of {topic} {i:,}")
            if record.value is None or (history.carried is None and not history.states and b'"fields' not in record.value and b'"object"' not in record.value):
                continue
            if name != "matches" and registry.selective and registry.skips(record):
                continue
            for said in _said(record):
                _compare(said, topic, record, history, report)


def _said(record: Record) -> Iterator[dict[str, Any]]:
    """Yield the objects of a record that speak of a message; a malformed record is reported elsewhere."""
    try:
        value = json.loads(record.value or b"")
        yield from value["topk"] if "topk" in value else [value]
    except (ValueError, TypeError, KeyError, RecursionError):
        return


def _compare(said: Any, topic: str, record: Record, history: History, report: Report) -> None:
    if not isinstance(said, dict) or type(message := said.get("message")) not in (str, int):
        return
    published = {name: said[name] for name in _NAMES if name in said}
    rows = history.rows_of(message)
    objects = {history.states[row].object if row in history.states else None for row in rows}
    if (rows or "object" in said) and said.get("object") not in objects:
        report.differ(
            "format",
            f"a record of {topic} has another object than message {message!r}",
            where=where(topic, record),
            expected=f"{sorted(map(str, objects))!r:.300}",
            published=f"{said.get('object')!r:.300}",
        )
    if said.get("op") == "remove" or history.carried is None:
        wanted: list[dict[str, Any]] = [{}]
    elif not rows:
        report.unchecked["fields of messages that the log has dropped, or that are not numbered yet"] += 1
        return
    else:
        wanted = [history.carried[row] for row in rows]
    report.compared["fields"] += history.carried is not None
    if not any(_same(published, expected) for expected in wanted):
        report.differ(
            "format",
            f"a record of {topic} has other fields of message {message!r} than its record",
            where=where(topic, record),
            expected=f"{wanted[0]!r:.300}",
            published=f"{published!r:.300}",
        )


def _same(found: Any, expected: Any) -> bool:
    """Tell whether two values are the same JSON: true is not 1."""
    return bool(found == expected) and json.dumps(found, sort_keys=True) == json.dumps(expected, sort_keys=True)
