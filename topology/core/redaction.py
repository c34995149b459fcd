"""The single rule of what is secret, applied wherever a configuration or a text leaves the process.

In a configuration, the values of keys are secret that name a password, a secret, a token, credentials, a JAAS line or key
material. In a text, the password of ``user:password@`` in a URL, a private key in PEM, and values assigned to such names
(``password="..."``) are secret. A key that says where a secret is (``password.env``, ``secret.file``,
``keystore.location``) is not secret itself.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from typing import Any

from dskype.topology.core.plain_text import plain
from dskype.topology.errors import TopologyError, explain

__all__ = ["HIDDEN", "SPARK_KEYS", "RedactingFormatter", "hidden_paths", "is_secret", "redact", "redact_text", "restore_secrets"]

HIDDEN = "******"

_NAMES = r"passw|passphrase|secret|jaas|token(?!i[sz])|credential|private|bearer|authorization"
_KEYS = r"(?:access|account|api|auth|encryption|keystore|shared|signing|ssl|tls)[._-]?key"
_BEGINNINGS = "[pP][aArR]|[sS][eEhHiIsS]|[tT][oOlL]|[jJ][aA]|[cC][rR]|[bB][eE]|[aA][uUcCpP]|[eE][nN]|[kK][eE]"
SPARK_KEYS = f"(?={_BEGINNINGS})(?i:{_NAMES}|{_KEYS})"
"""The rule for keys as a Java regular expression, for Spark's plans and logs.

Spark applies it several times to every option of every query in every micro-batch. Java tries all alternatives at every character, so the
expression first checks the two letters with which an alternative may begin; that halves the time.
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
    """Tell whether the value of a key is secret."""
    return isinstance(key, str) and _SECRET.search(key) is not None and not _WHERE.search(key)


def redact(value: Any) -> Any:
    """Return a copy of a configuration, or of a part of one, with ``******`` in place of secrets.

    It descends into maps and lists; empty values and booleans stay.
    """
    if isinstance(value, Mapping):
        return {k: HIDDEN if is_secret(k) and not isinstance(v, bool) and v not in (None, "") else redact(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [redact(item) for item in value]
    return redact_text(value) if isinstance(value, str) else value


def redact_text(text: str) -> str:
    """Return a text with ``******`` in place of secrets.

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


def restore_secrets(stored: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration that was stored redacted, with the secrets of the configuration given now.

    :raises TopologyError: a secret is missing, or not where it was.
    """
    missing: list[str] = []
    result = {k: _restore(v, given.get(k), k, missing) for k, v in stored.items()}
    if missing:
        raise TopologyError(
            explain(
                "Secrets of a configuration are not stored: to resume a topology, give them again.",
                given=f"a configuration without {', '.join(sorted(missing))}",
                hint="submit it with the configuration it was first submitted with",
            )
        )
    return result


def hidden_paths(value: Any, path: str = "") -> list[str]:
    """Return the places in a redacted configuration where a secret was replaced."""
    if isinstance(value, Mapping):
        return [found for k, v in value.items() for found in hidden_paths(v, f"{path}: {k}" if path else str(k))]
    if isinstance(value, (list, tuple)):
        return [found for i, v in enumerate(value) for found in hidden_paths(v, f"{path}[{i}]")]
    return [path] if isinstance(value, str) and HIDDEN in value else []


def _restore(stored: Any, given: Any, path: str, missing: list[str]) -> Any:
    if isinstance(stored, Mapping):
        known = given if isinstance(given, Mapping) else {}
        return {k: _restore(v, known.get(k), f"{path}: {k}", missing) for k, v in stored.items()}
    if isinstance(stored, list):
        known_items = given if isinstance(given, (list, tuple)) and len(given) == len(stored) else [None] * len(stored)
        return [_restore(v, g, f"{path}[{i}]", missing) for i, (v, g) in enumerate(zip(stored, known_items))]
    if not isinstance(stored, str) or HIDDEN not in stored:
        return stored
    if given in (None, "") or (stored != HIDDEN and redact(given) != stored):
        missing.append(path)
        return stored
    return given


class RedactingFormatter(logging.Formatter):
    """Formats log records, tracebacks included, with secrets redacted, and so that they cannot control a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the redacted text of a record."""
        return plain(redact_text(super().format(record)))
