"""Reads paths into records by the letter of ``docs/guides/data.md``, one character at a time."""

from __future__ import annotations

import json
from typing import Any

__all__ = ["value_at"]


def value_at(path: str, record: Any) -> Any:
    """Return the value at a path; None if there is none."""
    if not path.startswith("$"):
        return record.get(path) if isinstance(record, dict) else None
    return _walk(record, path[1:])


def _walk(value: Any, rest: str) -> Any:
    if not rest:
        return value
    if rest.startswith("."):
        end = 1
        while end < len(rest) and rest[end] not in ".[":
            end += 1
        return _walk(value[rest[1:end]], rest[end:]) if isinstance(value, dict) and rest[1:end] in value else None
    if rest.startswith("[*]"):
        found = [_walk(entry, rest[3:]) for entry in value] if isinstance(value, list) else []
        return [entry for entry in found if entry is not None]
    if rest[1] in "\"'":
        end = 2
        while rest[end] != rest[1]:
            end += 2 if rest[end] == "\\" else 1
        name = json.loads(rest[1 : end + 1]) if rest[1] == '"' else rest[2:end]
        return _walk(value[name], rest[end + 2 :]) if isinstance(value, dict) and name in value else None
    end = rest.index("]")
    index = int(rest[1:end])
    inside = isinstance(value, list) and -len(value) <= index < len(value)
    return _walk(value[index], rest[end + 1 :]) if inside else None
