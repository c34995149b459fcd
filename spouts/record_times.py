"""Times of records in the forms of others, turned into milliseconds since the epoch."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any

__all__ = ["UNITS", "time_ms"]

UNITS = {
    "ms": "milliseconds since 1970",
    "s": "seconds since 1970",
    "us": "microseconds since 1970",
    "iso8601": "a time as in ISO 8601, such as 2013-04-01T12:00:00Z",
    "rfc2822": "a time as in RFC 2822 or in tweets, such as Mon, 01 Apr 2013 12:00:00 +0000",
    "auto": "any of these, with numbers of the years 2000 to 2099",
}
"""How a time may be written -> what that is. A time without a zone is in UTC."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)
_NUMBER = re.compile(r"[+-]?[0-9]+(?:\.[0-9]+)?")
_RFC2822 = re.compile(
    r"[^:(]*\s[0-9]{1,2}:[0-9]{2}(:[0-9]{2})?(\s*([+-][0-9]{4}|UTC?|GMT|Z|[ECMP][SD]T))?(\s+[0-9]{4})?\s*(\(.*\))?", re.IGNORECASE | re.DOTALL
)
"""A time of day, its zone, in tweets the year, and a comment."""
_SECONDS = range(946_684_800, 4_102_444_800)
"""The years 2000 to 2099."""


def time_ms(value: Any, unit: str) -> int | None:
    """Return a time in whole milliseconds since the epoch; fractions of one are cut off. None if the value is no time of this unit.

    :param value: a number or a text.
    :param unit: a key of :data:`UNITS`.

    >>> time_ms("2013-04-01T12:00:00.5+02:00", "iso8601"), time_ms(1364774400, "auto"), time_ms("Mon Apr 01 00:00:00 +0000 2013", "rfc2822")
    (1364810400500, 1364774400000, 1364774400000)
    """
    number = None if unit in ("iso8601", "rfc2822") else _number(value)
    if number is not None:
        if unit == "auto":
            unit = next((name for name, per_ms in (("s", 1), ("ms", 1000), ("us", 1_000_000)) if int(number // per_ms) in _SECONDS), "")
        return _of_number(number, unit)
    if not isinstance(value, str):
        return None
    readers = {"iso8601": (datetime.fromisoformat,), "rfc2822": (_of_rfc2822,), "auto": (datetime.fromisoformat, _of_rfc2822)}
    for read in readers.get(unit, ()):
        try:
            return _of_datetime(read(value.strip()))
        except (ValueError, TypeError, OverflowError):
            continue
    return None


def _of_rfc2822(text: str) -> datetime:
    """Read a time as in RFC 2822 or in tweets. Python would take a zone in another form, such as CET, +02:00 or GMT+2, for UTC.

    :raises ValueError: it is none.
    """
    if not _RFC2822.fullmatch(text):
        raise ValueError(text)
    return parsedate_to_datetime(text)


def _number(value: Any) -> int | float | None:
    if type(value) in (int, float):
        return value if -1e18 < value < 1e18 else None  # so neither NaN nor infinite
    if isinstance(value, str) and len(value) < 40 and _NUMBER.fullmatch(text := value.strip()):
        return _number(float(text) if "." in text else int(text))
    return None


def _of_number(number: int | float, unit: str) -> int | None:
    if unit == "s":
        return number * 1000 if isinstance(number, int) else round(number * 1e6) // 1000
    if unit == "us":
        return int(number // 1000)
    return int(number // 1) if unit == "ms" else None


def _of_datetime(moment: datetime) -> int:
    return ((moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - _EPOCH) // _MS
