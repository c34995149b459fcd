"""The one rule of what is secret, applied wherever a configuration or a text leaves the process.

Secret are the values of keys that name a password, a secret, a token, credentials, a JAAS line or key material; in any text the
password of ``user:password@`` in a URL, a private key in PEM, and what is assigned to such a name (``password="..."``).
A key that says where a secret is (``password.env``, ``secret.file``, ``keystore.location``) is no secret itself.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from typing import Any

from dskype.topology.errors import TopologyError, explain

__all__ = ["HIDDEN", "SPARK_KEYS", "RedactingFormatter", "filled", "hidden_in", "is_secret", "redact", "redact_text"]

HIDDEN = "******"

_NAMES = r"passw|passphrase|secret|jaas|token(?!i[sz])|credential|private|bearer|authorization"
_KEYS = r"(?:access|account|api|auth|encryption|keystore|shared|signing|ssl|tls)[._-]?key"
_BEGINNINGS = "[pP][aArR]|[sS][eEhHiIsS]|[tT][oOlL]|[jJ][aA]|[cC][rR]|[bB][eE]|[aA][uUcCpP]|[eE][nN]|[kK][eE]"
SPARK_KEYS = f"(?={_BEGINNINGS})(?i:{_NAMES}|{_KEYS})"
"""The rule for keys as Java's regular expressions write it: Spark's plans and logs follow it, too.

Spark applies it to every option of every query in every micro-batch, several times. Java tries all alternatives at every character, so the
two letters with which one may begin are looked at first: that halves the time.
"""

_SECRET = re.compile(rf"{_NAMES}|(?:^|[._-])auth$|{_KEYS}(?!store)", re.I)
_WHERE = re.compile(r"[._-](?:env|file|path|location|class|type|algorithm)$", re.I)
_IN_URL = re.compile(r"(\b[A-Za-z][A-Za-z0-9+.-]{0,30}://[^\s/@:\"']{0,256}:)[^\s\"']{0,256}?(?=@[^\s@/\"']*(?:[/\s\"'?#,]|$))")
_PEM = re.compile(r"(-----BEGIN [A-Z ]*PRIVATE KEY-----).*?(-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.S)
_ASSIGNED = re.compile(
    r"""((?:passw(?:or)?d|passphrase|secret|token|credentials?|(?:access|api)[._-]?key)["']?\s*[=:]\s*)"""
    r"""("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[^\s,;&"'(){}\[\]]+)""",
    re.I,
)


def is_secret(key: object) -> bool:
    """Tell whether the value of a key must not be seen."""
    return isinstance(key, str) and _SECRET.search(key) is not None and not _WHERE.search(key)


def redact(value: Any) -> Any:
    """Return a copy of a configuration, or of a part of one, that may be seen: secrets are ``******``.

    Maps and lists are gone through; empty values and booleans stay.
    """
    if isinstance(value, Mapping):
        return {k: HIDDEN if is_secret(k) and not isinstance(v, bool) and v not in (None, "") else redact(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [redact(item) for item in value]
    return redact_text(value) if isinstance(value, str) else value


def redact_text(text: str) -> str:
    """Return a text that may be seen: the secrets in it are ``******``.

    >>> redact_text("no answer from redis://ann:open-sesame@host:1/0")
    'no answer from redis://ann:******@host:1/0'
    """
    if "://" in text:
        text = _IN_URL.sub(rf"\g<1>{HIDDEN}", text)
    if "PRIVATE KEY" in text:
        text = _PEM.sub(rf"\g<1>{HIDDEN}\g<2>", text)
    return _ASSIGNED.sub(_hide_assigned, text)


def _hide_assigned(match: re.Match[str]) -> str:
    quote = match[2][0] if match[2][0] in "\"'" else ""
    return f"{match[1]}{quote}{HIDDEN}{quote}"


def filled(stored: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration that was stored redacted, with its secrets taken from the one that is given now.

    :raises TopologyError: a secret is not given, or not where it was.
    """
    missing: list[str] = []
    result = {k: _filled(v, given.get(k), k, missing) for k, v in stored.items()}
    if missing:
        raise TopologyError(
            explain(
                "Secrets of a configuration are not stored: a topology that is taken up again needs them again.",
                given=f"a configuration without {', '.join(sorted(missing))}",
                hint="submit it with the configuration it was first submitted with",
            )
        )
    return result


def hidden_in(value: Any, path: str = "") -> list[str]:
    """Return where a redacted configuration lacks a secret."""
    if isinstance(value, Mapping):
        return [found for k, v in value.items() for found in hidden_in(v, f"{path}: {k}" if path else str(k))]
    if isinstance(value, (list, tuple)):
        return [found for i, v in enumerate(value) for found in hidden_in(v, f"{path}[{i}]")]
    return [path] if isinstance(value, str) and HIDDEN in value else []


def _filled(stored: Any, given: Any, path: str, missing: list[str]) -> Any:
    if isinstance(stored, Mapping):
        known = given if isinstance(given, Mapping) else {}
        return {k: _filled(v, known.get(k), f"{path}: {k}", missing) for k, v in stored.items()}
    if isinstance(stored, list):
        known_items = given if isinstance(given, (list, tuple)) and len(given) == len(stored) else [None] * len(stored)
        return [_filled(v, g, f"{path}[{i}]", missing) for i, (v, g) in enumerate(zip(stored, known_items))]
    if not isinstance(stored, str) or HIDDEN not in stored:
        return stored
    if given in (None, "") or (stored != HIDDEN and redact(given) != stored):
        missing.append(path)
        return stored
    return given


class RedactingFormatter(logging.Formatter):
    """Formats log records, tracebacks included, without the secrets in them."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        return redact_text(super().format(record))
