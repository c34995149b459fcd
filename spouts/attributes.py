"""Attributes of messages beside text and place: numbers, strings, booleans, sets of strings, and times, as ``dskype.attributes`` declares them.

Between tasks an attribute is one or more pairs of int64: the key of its name, and a value. Numbers, booleans and times are the bits of a
float64. Strings are hashes of 62 bits, as words that the vocabulary does not know are: of ``name=value``, which no word can be, so that a
message can be routed by a value as by a word.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from hashlib import blake2b
from typing import Any, ClassVar

from dskype.topology.errors import IllegalArgumentException

__all__ = ["Attribute", "Attributes", "number_bits", "parse_time", "term_hash", "value_hash"]

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")
_RESERVED = frozenset({"and", "or", "not", "in", "has", "of", "exists", "atleast"})
_TYPES = ("number", "string", "boolean", "strings", "time")

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_VALUES_MAX = 256
_VALUE_MAX_BYTES = 1024


@lru_cache(1 << 16)
def term_hash(term: str) -> int:
    """Return the id of a term that no vocabulary has: -(1 + the first 62 bits of BLAKE2b, digest of 8 bytes).

    The id is negative, and the same in every process and for every vocabulary.

    >>> term_hash("zythum")
    -4365377727431255531
    """
    return -1 - (int.from_bytes(blake2b(term.encode(), digest_size=8).digest(), "big") >> 2)


def value_hash(name: str, value: str) -> int:
    """Return the value of a string attribute as it travels, which is also the term that messages with this value have."""
    return term_hash(f"{name}={value}")


def number_bits(value: float) -> int:
    """Return the bits of a float64 as an int64; -0.0 counts as 0.0.

    >>> number_bits(0.0), number_bits(1.0)
    (0, 4607182418800017408)
    """
    return int(struct.unpack("<q", struct.pack("<d", value + 0.0))[0])


def parse_time(value: Any) -> float | None:
    """Return a time in ms since 1970: given as such, or in ISO 8601 (without an offset: UTC); None: it is neither.

    >>> parse_time("2026-01-01"), parse_time("2026-01-01T01:00:00+01:00"), parse_time(5), parse_time("soon")
    (1767225600000.0, 1767225600000.0, 5.0, None)
    """
    if type(value) in (int, float):
        return float(value) if -(2**53) <= value <= 2**53 else None
    try:
        moment = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        return None
    # timestamp() in seconds would round: 1769860800.123 * 1000 is not 1769860800123.
    return ((moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - _EPOCH) / timedelta(milliseconds=1)


@dataclass(frozen=True)
class Attribute:
    """An attribute that messages may have.

    :ivar type: ``number`` (a float64), ``string``, ``boolean``, ``strings`` (a set of strings) or ``time`` (ms since 1970).
    :ivar required: whether a message without it is refused.
    """

    name: str
    type: str
    required: bool = False

    LEGAL: ClassVar[Mapping[str, str]] = {
        "number": "a number",
        "string": f"a string of up to {_VALUE_MAX_BYTES} bytes of UTF-8",
        "boolean": "true or false",
        "strings": f"a list of up to {_VALUES_MAX} strings, each of up to {_VALUE_MAX_BYTES} bytes of UTF-8",
        "time": 'ms since 1970, or ISO 8601 such as "2026-01-31T12:00:00Z"',
    }

    def is_textual(self) -> bool:
        """Tell whether its values are strings."""
        return self.type in ("string", "strings")

    def number(self, value: Any) -> float | None:
        """Return a value of a ``number``, ``boolean`` or ``time`` as a float64; None: it is no such value."""
        if self.type == "boolean":
            return float(value) if type(value) is bool else None
        if self.type == "time":
            return parse_time(value)
        try:
            found = float(value) if type(value) in (int, float) else math.nan
        except OverflowError:
            return None
        return found if math.isfinite(found) else None

    def encode(self, value: Any) -> list[int] | None:
        """Return the values as they travel, rising; None: they are not legal."""
        if not self.is_textual():
            number = self.number(value)
            return None if number is None else [number_bits(number)]
        texts = value if self.type == "strings" else [value]
        if type(texts) is not list or len(texts) > _VALUES_MAX or not all(map(_is_text, texts)):
            return None
        return sorted({value_hash(self.name, text) for text in texts})


def _is_text(value: Any) -> bool:
    try:
        return type(value) is str and len(value.encode()) <= _VALUE_MAX_BYTES
    except UnicodeEncodeError:
        return False


class Attributes(dict[str, Attribute]):
    """The attributes that a topology declares, by name.

    >>> declared = Attributes.from_conf({"price": "number", "tags": {"type": "strings", "required": True}})
    >>> declared.encode({"price": 3, "tags": [], "colour": "red"})[1::2]
    [4613937818241073152]
    """

    @classmethod
    def from_conf(cls, value: Any) -> Attributes:
        """Read the setting ``dskype.attributes``.

        :raises IllegalArgumentException: it is no map of names to types.
        """
        legal = f"a map of names to {' | '.join(_TYPES)}, or to {{type: TYPE, required: true|false}}"
        found = cls()
        if not isinstance(value, Mapping):
            raise IllegalArgumentException("The configuration key dskype.attributes is not usable.", given=value, legal=legal)
        for name, form in value.items():
            spec = form if isinstance(form, Mapping) else {"type": form}
            if type(name) is not str or not _NAME.fullmatch(name) or name.lower() in _RESERVED:
                names = f"letters of ASCII, digits, '_' and '.', first a letter or '_', and not {', '.join(sorted(_RESERVED))}"
                raise IllegalArgumentException("dskype.attributes: an attribute cannot have this name.", given=name, legal=names)
            if not set(spec) <= {"type", "required"} or spec.get("type") not in _TYPES or type(spec.get("required", False)) is not bool:
                raise IllegalArgumentException(f"dskype.attributes: attribute {name!r} is not usable.", given=form, legal=legal)
            found[name] = Attribute(name, spec["type"], spec.get("required", False))
        return found

    def encode(self, values: Mapping[str, Any] | None) -> list[int]:
        """Return the attributes of a message as they travel: pairs (key of the name, value), rising. Others than the declared ones are ignored.

        An attribute that is null, or a set without strings, counts as absent.

        :raises IllegalArgumentException: one is missing or has another type.
        """
        pairs: list[tuple[int, int]] = []
        given = values or {}
        for name, attribute in self.items():
            value = given.get(name)
            if value is None:
                if attribute.required:
                    legal = attribute.LEGAL[attribute.type]
                    raise IllegalArgumentException(f"Expected the attribute {name!r}, which dskype.attributes requires", given=None, legal=legal)
                continue
            if (encoded := attribute.encode(value)) is None:
                raise IllegalArgumentException(f"Expected the attribute {name!r} as {attribute.type}", given=value, legal=attribute.LEGAL[attribute.type])
            key = term_hash(f"{name}=")
            pairs += [(key, one) for one in encoded]
        return [part for pair in sorted(pairs) for part in pair]
