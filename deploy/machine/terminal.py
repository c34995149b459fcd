"""Text for people: it cannot control a terminal; results go to standard output, everything else to standard error."""

from __future__ import annotations

import json
import sys
import time
import unicodedata
from collections.abc import Callable
from datetime import datetime
from typing import Any

__all__ = ["Progress", "clean", "clock_text", "counted", "plain", "pointed", "put", "say"]


def plain(text: str) -> str:
    """Escape what could control a terminal: :func:`dskype.topology.core.plain_text.plain`, imported late, since ``--help`` waits for nothing heavy."""
    from dskype.topology.core import plain_text

    return plain_text.plain(text)


class _Shown(dict):
    """A table for ``str.translate``: control characters and surrogates become blanks, direction marks are dropped."""

    def __missing__(self, code: int) -> int | None:
        category = unicodedata.category(chr(code))
        hidden = 0x202A <= code <= 0x202E or 0x2066 <= code <= 0x2069 or code in (0x200E, 0x200F, 0x061C, 0xFEFF)
        self[code] = None if hidden else 32 if category in ("Cc", "Cs", "Zl", "Zp") else code
        return self[code]


_SHOWN = _Shown()


def clean(value: Any, width: int | None = None) -> str:
    """Return a value as one line of plain text, cut to ``width`` characters."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    if width is not None and len(text) > 4 * width:
        text = text[: 4 * width]
    text = " ".join(text.translate(_SHOWN).split())
    return text if width is None or len(text) <= width else text[: width - 1] + "…"


def pointed(text: str, position: int, width: int = 76) -> list[str]:
    """Return a text as a line, and below it a caret under one of its characters.

    :param position: of the character, from 1; one behind the last points behind the text.
    :param width: the most columns of the lines: of a longer text, they show what is around the character.
    """
    shown = [c.translate(_SHOWN) for c in text] + [" "]
    shown = [" " if c.isspace() else c for c in shown]
    columns = [0 if not c or unicodedata.category(c) in ("Mn", "Me") else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in shown]
    at = min(position - 1, len(text))
    first, end, room = at, at + 1, width - 8
    while room > 0 and (first > 0 or end < len(shown)):
        if first > 0:
            first -= 1
            room -= columns[first]
        if end < len(shown):
            room -= columns[end]
            end += 1
    before, after = "..." if first > 0 else "", "..." if end < len(shown) else ""
    line = before + "".join(shown[first:end]).rstrip() + after
    return [line, " " * (len(before) + sum(columns[first:at])) + "^"]


def counted(n: int, what: str) -> str:
    """Return a number with its noun: ``1 message``, ``2,000 messages``."""
    return f"{n:,} {what}" + ("" if n == 1 else "s")


def clock_text(time_ms: int | None, date: bool = False) -> str:
    """Return a time in the local zone: ``12:03:04.123``, with ``date`` ``2025-01-31 12:03:04``."""
    if time_ms is None or time_ms < 0:
        return "-"
    moment = datetime.fromtimestamp(time_ms / 1000).astimezone()
    return moment.strftime("%Y-%m-%d %H:%M:%S") if date else f"{moment:%H:%M:%S}.{time_ms % 1000:03d}"


def say(text: str) -> None:
    """Print a line to standard error."""
    print(plain(text), file=sys.stderr, flush=True)


def put(*lines: str) -> None:
    """Print lines of results to standard output; escape characters that it cannot encode."""
    encoding = sys.stdout.encoding or "utf-8"
    for line in lines:
        print(line.encode(encoding, "backslashreplace").decode(encoding))
    sys.stdout.flush()


class Progress:
    """Progress on standard error: on a terminal one line that overwrites itself, elsewhere a new line every few seconds.

    A text that ends with ``ready`` is always shown.

    :param every_s: seconds between two lines if there is no terminal. Default 5.
    :param on_terminal_s: seconds between two texts on a terminal. Default 0: every text is shown.
    :param at_once: show the first text without waiting.
    :param clear: :meth:`end` removes the last text from a terminal, so that results can take its place.
    """

    def __init__(self, every_s: float = 5.0, *, on_terminal_s: float = 0.0, at_once: bool = False, clear: bool = False) -> None:
        self._tty = sys.stderr.isatty()
        self._every_s = on_terminal_s if self._tty else every_s
        self._clear = clear
        self._width = 0
        self._began = time.monotonic()
        self._last = float("-inf") if at_once else self._began

    def __call__(self, text: str | Callable[[], str]) -> None:
        """Show a text, or what a function returns, if it is time."""
        now = time.monotonic()
        if now - self._last < self._every_s and not (isinstance(text, str) and text.endswith("ready")):
            return
        self._last = now
        shown = plain(text if isinstance(text, str) else text())
        print(f"\r{shown:<{self._width}}" if self._tty else shown, end="" if self._tty else "\n", file=sys.stderr, flush=True)
        self._width = len(shown)

    @property
    def elapsed_s(self) -> float:
        """Seconds since the beginning."""
        return time.monotonic() - self._began

    def end(self) -> None:
        """End the line, so that another text can follow."""
        if self._tty and self._width:
            print("\r" + " " * self._width + "\r" if self._clear else "\n", end="", file=sys.stderr, flush=True)
        self._width = 0
