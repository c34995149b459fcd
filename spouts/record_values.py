"""JSON objects of records, and the errors of records that cannot be used."""

from __future__ import annotations

import json
import math
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, NoReturn

from dskype.topology.errors import DeadLetter, explain

__all__ = ["RecordError", "encode_json", "json_object", "longest_bytes", "parse_json", "plain_value", "refusal", "scale_of", "shown"]


class RecordError(DeadLetter):
    """A record cannot be used; ``reason`` says what was expected, what was given and what is legal.

    The codes are listed in ``docs/guides/metrics.md``.
    """


def longest_bytes(content_bytes: int) -> int:
    """Return the greatest length of a record's value whose texts have this many bytes together."""
    return 6 * content_bytes + 65536  # a JSON escape takes up to six bytes for one; the rest is for other fields


def _no_number(literal: str) -> NoReturn:
    raise ValueError(f"{literal} is no JSON number")


_decoder: Any = json.JSONDecoder(parse_constant=_no_number)
_decode, _scan = _decoder.decode, _decoder.scan_once
encode_json = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode
"""Writes compact JSON; it refuses NaN and infinities."""


def parse_json(text: str) -> Any:
    """Parse JSON as ``json`` does, but faster where nothing surrounds the value."""
    try:
        parsed, end = _scan(text, 0)
    except StopIteration:
        return _decode(text)
    return parsed if end == len(text) else _decode(text)


def json_object(value: bytes | None, text_max_bytes: int, what: str, more_bytes: int = 0) -> dict[str, Any]:
    """Return the JSON object in a record. A record that is far too long is refused before it is parsed."""
    if value is None:
        raise RecordError(explain(f"Expected {what} as a JSON object", given=None), "invalid-json")
    longest = longest_bytes(text_max_bytes + more_bytes)
    if len(value) > longest:
        raise refusal("long-record", f"Expected {what} in fewer bytes", f"{len(value)} bytes", f"up to {longest} bytes")
    try:
        record = parse_json(value.decode())
    except UnicodeDecodeError as e:
        raise RecordError(explain(f"Expected {what} in UTF-8 (wrong at byte {e.start + 1})", given=value[e.start : e.start + 20]), "invalid-utf8") from None
    except json.JSONDecodeError as e:
        raise refusal("invalid-json", f"Expected {what} as JSON (wrong at character {e.pos + 1}: {e.msg})", _short(repr(e.doc[e.pos : e.pos + 40]))) from None
    except ValueError as e:
        raise refusal("invalid-json", f"Expected {what} as JSON ({str(e).partition(';')[0]})", repr(value[:40])) from None
    except RecursionError:
        raise refusal("deep-nesting", f"Expected {what} with less nesting", repr(value[:40])) from None
    if type(record) is not dict:
        raise refusal("invalid-json", f"Expected {what} as a JSON object", shown(record))
    return record


def plain_value(value: Any) -> Any:
    """Return a value as JSON would have it: times in ISO 8601, decimal numbers as floats, bytes as text or in hexadecimal, NaN and infinities as null."""
    if isinstance(value, dict):
        return {str(name): plain_value(entry) for name, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain_value(entry) for entry in value]
    if isinstance(value, (float, Decimal)):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, (datetime, date, time)):
        return value.isoformat()
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return value.hex()
    return value if value is None or isinstance(value, (str, bool, int)) else str(value)


class _Unquoted(str):
    """A text that :func:`explain` shows without quotes."""

    def __repr__(self) -> str:
        return str(self)


def _short(text: str, limit: int = 80) -> str:
    return text if len(text) <= limit else text[: limit - 3] + "..."


def shown(value: Any) -> str:
    """Return a value as it looks in the record, cut short."""
    if isinstance(value, str):
        return _short(json.dumps(value[:80], ensure_ascii=not value[:80].isprintable()) + ("..." if len(value) > 80 else ""), 120)
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        if len(value) > 4 or any(isinstance(v, (list, dict)) for v in value):
            return f"a list of {len(value)}"
        return ", ".join(map(shown, value)).join("[]")
    return _short(json.dumps(value))


def refusal(code: str, words: str, given: str, legal: str | None = None, hint: str | None = None) -> RecordError:
    """Return an error that shows ``given`` without quotes."""
    return RecordError(explain(words, given=_Unquoted(given), legal=legal, hint=hint), code)


SCALE_MAX_M = 100_000_000
"""The greatest scale of distances in metres."""


def scale_of(record: dict[str, Any]) -> float | None:
    """Return ``scale_m`` of a top-k subscription whose ``distance`` is ``metres``; None: its distances are in degrees."""
    distance: Any = record.get("distance")
    scale_m: Any = record.get("scale_m")
    given = shown(scale_m) if "scale_m" in record else "nothing"
    if distance is not None and not (isinstance(distance, str) and distance in ("degrees", "metres")):
        raise refusal("invalid-distance", "Expected 'distance'", shown(distance), "degrees | metres", "metres need 'scale_m'")
    if distance == "metres":
        if type(scale_m) not in (int, float) or not 1 <= scale_m <= SCALE_MAX_M:
            legal = f"a number of metres from 1 to {SCALE_MAX_M}"
            raise refusal("invalid-scale", "Expected 'scale_m' with 'distance': metres", given, legal, "nearness counts up to this distance")
        return float(scale_m)
    if scale_m is not None:
        raise refusal("invalid-scale", "Expected 'scale_m' only with 'distance': metres", given, "nothing", "add 'distance': 'metres'")
    return None
