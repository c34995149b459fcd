"""Text that cannot control a terminal, whoever wrote it."""

from __future__ import annotations

import re

__all__ = ["plain"]

_STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufeff]")


def plain(text: str) -> str:
    r"""Escape control characters and direction marks, for example as ``\u001b``.

    Ids, words and errors may contain anything. Line feeds and tabs stay; JSON stays the same JSON.
    """
    return _STEERING.sub(lambda m: f"\\u{ord(m[0]):04x}", text)
