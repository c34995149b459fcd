"""Replacement of ``${...}`` in Flux files before the YAML is parsed, and Java's ``.properties`` files.

Storm replaces only the last ``${}`` of a line, and misreads ``{a: ${v}}``; here all are replaced:

- ``${key}``: the property ``key``.
- ``${key[i]}``: element i, from 0, of a property that is a list such as ``["a", "b"]``.
- ``${ENV-NAME}``: with ``-e``, the environment variable ``NAME``; otherwise the property of that name.

A placeholder without a replacement stays, with a warning.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from dskype.topology.errors import explain
from dskype.topology.flux.errors import FluxException

__all__ = ["parse_properties", "substitute"]

_PLACEHOLDER = re.compile(r"\$\{([^{}\n]+)\}")
_ELEMENT = re.compile(r"(.+)\[(\d+)\]")


def substitute(text: str, properties: Mapping[str, str] | None = None, environ: Mapping[str, str] | None = None) -> tuple[str, list[str]]:
    """Replace the placeholders of a text.

    Placeholders within replacements are not replaced.

    :param properties: property -> value; default none.
    :param environ: environment variables for ``${ENV-NAME}``; None does not replace them.
    :returns: the new text, and one warning per placeholder without a replacement, except in comment lines.
    """
    properties = properties or {}
    warnings: list[str] = []
    lines = []
    for number, line in enumerate(text.split("\n"), 1):
        comment = line.lstrip().startswith("#")

        def replace(match: re.Match[str], number: int = number, comment: bool = comment) -> str:
            found = _lookup(match[1], properties, environ)
            if found is not None:
                return found
            if not comment:
                hint = "use -e to replace environment variables" if match[1].startswith("ENV-") and environ is None else None
                warnings.append(explain(f"Could not find replacement for property: {match[1]} (line {number})", hint=hint))
            return match[0]

        lines.append(_PLACEHOLDER.sub(replace, line))
    return "\n".join(lines), warnings


def _lookup(key: str, properties: Mapping[str, str], environ: Mapping[str, str] | None) -> str | None:
    if environ is not None and key.startswith("ENV-"):
        return environ.get(key[4:])
    if key in properties:
        return properties[key]
    element = _ELEMENT.fullmatch(key)
    if element is None or element[1] not in properties:
        return None
    items = _items(properties[element[1]])
    index = int(element[2])
    if items is None or index >= len(items):
        raise FluxException(
            f"There is no element {key}.",
            given=properties[element[1]],
            legal='a list such as ["a", "b"]' if items is None else f"an index from 0 to {len(items) - 1}",
        )
    return items[index]


def _items(value: str) -> list[str] | None:
    value = value.strip()
    if not (value.startswith("[") and value.endswith("]")):
        return None
    try:
        parsed = json.loads(value)
    except ValueError:  # Storm does not require JSON: it splits at commas, and quotes are optional
        return [part.strip().strip("\"'") for part in value[1:-1].split(",")]
    return [item if isinstance(item, str) else json.dumps(item) for item in parsed]


_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def parse_properties(text: str, source: str = "properties") -> dict[str, str]:
    r"""Parse Java's ``.properties`` format.

    Entries are ``key=value``, ``key: value`` or ``key value``; ``#`` and ``!`` begin comments; a line that ends with an odd
    number of backslashes continues in the next. Escapes are ``\n``, ``\t``, ``\r``, ``\f``, ``\uXXXX``, and ``\x`` for any
    other character x.

    >>> parse_properties("a = 1\nb: two words\n# comment\nc\\ d=e")
    {'a': '1', 'b': 'two words', 'c d': 'e'}

    :raises FluxException: a ``\u`` escape is malformed; the message has the line.
    """
    properties: dict[str, str] = {}
    pending = ""
    for number, raw in enumerate(re.split(r"\r\n|\r|\n", text), 1):
        line = raw.lstrip(" \t\f")
        if not pending and (not line or line[0] in "#!"):
            continue
        line = pending + line
        if (len(line) - len(line.rstrip("\\"))) % 2:
            pending = line[:-1]
            continue
        pending = ""
        key, value = _split(line)
        properties[_unescape(key, source, number)] = _unescape(value, source, number)
    if pending:
        key, value = _split(pending)
        properties[_unescape(key, source, 0)] = _unescape(value, source, 0)
    return properties


def _split(line: str) -> tuple[str, str]:
    i = 0
    while i < len(line) and line[i] not in "=: \t\f":
        i += 2 if line[i] == "\\" else 1
    rest = line[i:].lstrip(" \t\f")
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(" \t\f")
    return line[:i], rest


def _unescape(text: str, source: str, line: int) -> str:
    def one(match: re.Match[str]) -> str:
        char = match[1]
        if char[0] != "u":
            return _ESCAPES.get(char, char)
        if not re.fullmatch(r"u[0-9a-fA-F]{4}", char):
            raise FluxException(f"{source}, line {line}: Malformed \\uxxxx encoding.", given=f"\\{char}")
        return chr(int(char[1:], 16))

    text = re.sub(r"\\(u.{0,4}|.)", one, text, flags=re.DOTALL)
    # Characters beyond the basic plane are written as two escapes.
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
