"""The single rule of what is secret, applied wherever a configuration or a text leaves the process.

In a configuration, the values of keys are secret that name a password, a secret, a token, credentials, a JAAS line or key
material. In a text, what is assigned to such a key is secret (``password="..."``, ``{"token": ["..."]}``, ``db_password -> ...``, ``Authorization: Bearer ...``,
``--password ...``), and so are user information and signatures in URLs, secrets of webhooks, and a private key in PEM. Both rules ask :func:`is_secret`.
A key that says where a secret is (``password.env``, ``secret.file``, ``keystore.location``) is not secret itself.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from typing import Any

from dskype.topology.core.plain_text import plain
from dskype.topology.errors import TopologyError, explain

__all__ = ["HIDDEN", "SPARK_KEYS", "LineRedactor", "RedactingFormatter", "hidden_paths", "is_secret", "redact", "redact_text", "restore_secrets"]

HIDDEN = "******"

_NAMES = r"passw|passphrase|secret|jaas|token(?!i[sz])|credential|private|bearer|authorization"
_KEYS = r"(?:access|account|api|auth|encryption|keystore|shared|signing|ssl|tls)[._-]?key"
_BEGINNINGS = "[pP][aArR]|[sS][eEhHiIsS]|[tT][oOlL]|[jJ][aA]|[cC][rR]|[bB][eE]|[aA][uUcCpP]|[eE][nN]|[kK][eE]"
SPARK_KEYS = f"(?={_BEGINNINGS})(?i:{_NAMES}|{_KEYS})"
"""The rule for keys as a Java regular expression, for Spark's plans and logs.

Spark applies it several times to every option of every query in every micro-batch. Java tries all alternatives at every character, so the
expression first checks the two letters with which an alternative may begin; that halves the time.
"""

_SECRET = re.compile(rf"{_NAMES}|(?:^|[._-])(?:auth|pwd)$|{_KEYS}(?!store)", re.I)
_WHERE = re.compile(r"[._-](?:env|file|path|location|class|type|algorithm)$", re.I)
_SUSPECT = (*(re.sub(r"\(.*\)", "", name) for name in _NAMES.split("|")), "key", "auth", "pwd", "sig", "whsec_", "basic ")
"""A text without any of these, in small letters, and without a URL, has no secret: most lines of a log."""
_BEGIN_KEY = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----")
_END_KEY = re.compile(r"-----END [A-Z ]*PRIVATE KEY-----")
_KEY_LINE = re.compile(r"[\w+/=]{0,100}\s*|(?:Proc-Type|DEK-Info): .*")
_PEM = re.compile(r"(-----BEGIN [A-Z ]*PRIVATE KEY-----).*?(-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.S)
_KEY = re.compile(r"""(?<![\w.-])(?:--([\w.-]++)(?:(?:\\*["'])?[ \t]{0,8}(?:=>|->|[=:])|[ \t])|([\w.-]++)(?:\\*["'])?[ \t]{0,8}(?:=>|->|[=:]))[ \t]{0,8}""")
"""A key and what follows before its value. No part of it is tried twice, so that the time is proportional to the text."""
_VALUE = re.compile(
    r"""(?P<opening>[bru]{0,2}["'])(?:(?<=")(?:[^"\\]|\\.)*+|(?<=')(?:[^'\\]|\\.)*+)"""
    r"""|(?P<escaped>\\+["'])(?:[^"'\\]|\\+[^"'\\])*+"""
    r"""|\[[^\]]*+\]?|\{[^}]*+\}?|\([^)]*+\)?"""
    r"""|(?P<plain>(?:(?:bearer|basic|digest|negotiate|token)[ \t]{1,8})?[^\s"'&]++)""",
    re.I | re.S,
)
_WORDS = re.compile(r"(?:true|false|none|null)?[,;:.)}\]]*", re.I)
"""Values that are no secret: none at all, and truth values."""
_SIGNED = re.compile(r"([?&;](?:[\w.-]{0,64}[._-])?sig(?:nature)?=)[^\s&\"'#]+", re.I)
_UNNAMED = re.compile(r"\b(whsec_|Bearer[ \t]+|Basic[ \t]+(?=[\w+/]*[0-9=]))[\w.~+/=-]{6,}")
_RUN = re.compile(r"[^\s\"'<>]*")


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
        text = _hide_in_urls(text)
    small = text.lower()
    if not any(word in small for word in _SUSPECT):
        return text
    if "PRIVATE KEY" in text:
        text = _PEM.sub(rf"\g<1>{HIDDEN}\g<2>", text)
    return _hide_assigned(_UNNAMED.sub(rf"\g<1>{HIDDEN}", _SIGNED.sub(rf"\g<1>{HIDDEN}", text)))


def _hide_in_urls(text: str) -> str:
    """Hide the password in each ``scheme://user:password@host``, and user information without a colon, which may be a token."""
    parts = text.split("://")
    for i in range(1, len(parts)):
        found = _RUN.match(parts[i])
        user, at, _ = (found[0] if found is not None else "").rpartition("@")
        if not at:
            continue
        name, colon, password = user.partition(":")
        if re.search(r"[/?#]", name):
            continue  # the @ is in the path
        if colon and parts[i - 1].lower().endswith(("http", "https")) and re.match(r"\d+[/?#]", password):
            continue  # a port, and then a path
        parts[i] = (f"{name}:" if colon else "") + HIDDEN + parts[i][len(user) :]
    return "://".join(parts)


def _hide_assigned(text: str) -> str:
    """Hide what is assigned to keys whose values are secret."""
    pieces, done, at = [], 0, 0
    while (key := _KEY.search(text, at)) is not None:
        at = key.end()
        if not is_secret(key[1] or key[2]):
            continue
        value = _VALUE.match(text, at)
        if value is None:
            continue
        at, opening = value.end(), value["opening"] or value["escaped"] or ""
        if value["plain"] is not None:
            at -= len(value[0]) - len(value[0].rstrip(",;)}]"))
            if _WORDS.fullmatch(value[0]):
                continue
        pieces += [text[done : key.end()], opening, HIDDEN]
        done = at
    return "".join([*pieces, text[done:]])


class LineRedactor:
    """Hides secrets in a text that comes line by line: private keys have several."""

    def __init__(self) -> None:
        self._in_key = False

    def line(self, text: str) -> str:
        """Return the next line without secrets."""
        if self._in_key:
            if (end := _END_KEY.search(text)) is not None:
                self._in_key = False
                return end[0] + redact_text(text[end.end() :])
            if _KEY_LINE.fullmatch(text):
                return ""
            self._in_key = False
        begins = [*_BEGIN_KEY.finditer(text)]
        self._in_key = bool(begins) and _END_KEY.search(text, begins[-1].end()) is None
        return redact_text(text)


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
