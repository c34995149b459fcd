"""How Storm's UI writes times, latencies and names."""

from __future__ import annotations

import re
from urllib.parse import quote_plus

__all__ = ["decimal", "encoded", "lapsed", "sanitized_stream"]


def lapsed(secs: int) -> str:
    """Return a duration as Storm writes it, from its largest unit on; "" for none.

    >>> lapsed(10_800), lapsed(59), lapsed(0)
    ('3h 0m 0s', '59s', '')
    """
    if secs <= 0:
        return ""
    minutes, s = divmod(int(secs), 60)
    hours, m = divmod(minutes, 60)
    days, h = divmod(hours, 24)
    parts = [(days, "d"), (h, "h"), (m, "m"), (s, "s")]
    while not parts[0][0]:
        del parts[0]
    return " ".join(f"{n}{unit}" for n, unit in parts)


def decimal(value: float) -> str:
    """Return a latency or a capacity with three decimals."""
    return f"{value:.3f}"


def encoded(text: str) -> str:
    """Return a text as Java's ``URLEncoder`` writes it."""
    return quote_plus(text, safe="*")


def sanitized_stream(name: str) -> str:
    """Return a stream's name as part of an id in a page.

    >>> sanitized_stream("default"), sanitized_stream("1 a")
    ('default', '_s__a')
    """
    cleaned = re.sub(r"[^A-Za-z_\-.]", "_", name)
    return cleaned if re.match(r"[A-Za-z]", cleaned) else f"_s{cleaned}"
