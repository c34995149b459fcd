"""JSON objects of records, and the errors of records that cannot be used."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from datetime import date, datetime, time
from decimal import Decimal
from json.encoder import encode_basestring as _quoted
from typing import Any, NoReturn

from dskype.spouts.tenants import TENANT_LEGAL, is_tenant
from dskype.spouts.text import BORDER, MOST_FOLDED_BYTES, folded_bytes
from dskype.topology.errors import DeadLetter, explain

__all__ = [
    "RecordError",
    "check_folded",
    "check_text",
    "check_time",
    "encode_json",
    "is_update",
    "json_object",
    "longest_bytes",
    "message_id",
    "message_text",
    "object_id",
    "parse_json",
    "plain_value",
    "refusal",
    "scale_of",
    "shown",
    "tenant_of",
    "ttl_s_of",
]


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


def ttl_s_of(record: dict[str, Any]) -> float | None:
    """Return the lifetime of a subscription in seconds; None: the record has none.

    :raises RecordError: it is no number above 0.
    """
    ttl_s: Any = record.get("ttl_s")
    if "ttl_s" in record and not (type(ttl_s) in (int, float) and 0 < ttl_s <= 9007199254740):
        raise refusal("invalid-ttl", "Expected 'ttl_s' in seconds", shown(ttl_s), "a number above 0, up to 9007199254740")
    return None if ttl_s is None else float(ttl_s)


def tenant_of(record: dict[str, Any]) -> str | None:
    """Return the tenant that a subscription names; None: the record names none.

    :raises RecordError: it is no name of a tenant.
    """
    if "tenant" in record and not is_tenant(record["tenant"]):
        raise refusal("invalid-tenant", "Expected 'tenant' as the name of a tenant", shown(record["tenant"]), TENANT_LEGAL)
    return record.get("tenant")


def message_text(record: dict[str, Any], text_fields: Sequence[str]) -> str:
    """Return the text of a message, with text fields as one string. A text that is a string is that of the first field.

    :raises RecordError: it is no text.
    """
    given = record.get("text")
    if not text_fields:
        if type(given) is not str:
            hint = "dskype.text.fields names the fields of a text" if type(given) is dict else None
            raise refusal("invalid-text", "Expected 'text' as a string", shown(given) if "text" in record else "nothing", hint=hint)
        return given
    fields = {text_fields[0]: given} if type(given) is str else given
    if type(fields) is not dict or not any(name in fields for name in text_fields):
        legal = f"a string, or an object with one or more of {', '.join(text_fields)}"
        given = shown(given) if "text" in record else "nothing"
        raise refusal("invalid-text", "Expected 'text' as a string or as the texts of fields", given, legal, "dskype.text.fields names the fields")
    texts = [fields.get(name, "") for name in text_fields]
    for name, text in zip(text_fields, texts):
        if type(text) is not str:
            raise refusal("invalid-text", f"Expected the field '{name}' of 'text' as a string", shown(text))
    return BORDER.join([text.replace(BORDER, " ") for text in texts])


def is_update(record: dict[str, Any]) -> bool:
    """Tell whether a subscription goes on from the registration before it.

    :raises RecordError: ``update`` is no boolean.
    """
    if type(update := record.get("update", False)) is not bool:
        raise refusal("invalid-update", "Expected 'update' as a boolean", shown(update), "true or false")
    return bool(update)


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


def check_text(text: Any, name: str, max_bytes: int) -> str:
    """Return a text, if it is one of whole characters and not too long.

    :param name: of its field.
    :raises RecordError: it is not.
    """
    if type(text) is not str:
        raise refusal("invalid-text", f"Expected '{name}' as a string", shown(text))
    try:
        size = len(text) if text.isascii() or len(text) > max_bytes else len(text.encode())
    except UnicodeEncodeError as e:
        words = f"Expected '{name}' of whole characters, without half a surrogate pair (character {e.start + 1})"
        raise refusal("invalid-text", words, shown(text[e.start : e.start + 1])) from None
    if size > max_bytes:
        given = f"{size} bytes" if text.isascii() else f"more than {max_bytes} bytes"
        raise refusal("long-text", f"Expected a shorter '{name}'", given, f"up to {max_bytes} bytes of UTF-8")
    return text


def check_folded(text: str, name: str, max_bytes: int) -> str:
    """Refuse a text that would become far longer when it is normalised, without normalising it."""
    if len(text) * MOST_FOLDED_BYTES > 2 * max_bytes and not text.isascii() and (size := folded_bytes(text)) > 2 * max_bytes:
        raise refusal(
            "long-text", f"Expected '{name}' shorter when it is normalised", f"{size} bytes", f"up to {2 * max_bytes} bytes of UTF-8 in NFKC, case-folded"
        )
    return text


def message_id(id: Any, max_bytes: int) -> str:
    """Return the id of a message as JSON text.

    :raises RecordError: it is none.
    """
    if type(id) is int and -(1 << 63) <= id < 1 << 63:
        return str(id)
    if type(id) is not str or not id:
        raise refusal("invalid-id", "Expected 'id' as a string or an integer", shown(id), f"1 to {max_bytes} bytes of UTF-8, or a signed integer of 64 bits")
    if not id.isascii() or len(id) > max_bytes:
        check_text(id, "id", max_bytes)
    return _quoted(id)


def object_id(id: Any, max_bytes: int) -> str:
    """Return the id of an object as text: 17 and "17" are the same object."""
    if type(id) is int and -(1 << 63) <= id < 1 << 63:
        return str(id)
    if type(id) is not str or not id:
        legal = f"1 to {max_bytes} bytes of UTF-8, or a signed integer of 64 bits"
        raise refusal("invalid-object", "Expected 'object' as a string or an integer", shown(id), legal)
    return check_text(id, "object", max_bytes)


_SECONDS = range(946684800, 4102444800)
"""The years 2000 to 2099 in seconds since the epoch. As milliseconds they are days of January and February 1970, which nobody means."""


def check_time(ts: Any) -> None:
    """Refuse what is no time of a message in ms, or is meant in seconds."""
    seconds = type(ts) is int and ts in _SECONDS
    if type(ts) is not int or not 0 <= ts < 9007199254740992 or seconds:
        legal = "an integer from 0 to 9007199254740991"
        hint = f"this is a time in seconds: {ts * 1000}" if seconds else None
        raise refusal("invalid-ts", "Expected 'ts' in ms since the epoch", shown(ts), legal, hint)
