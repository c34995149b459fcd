"""The single rule of what is secret, applied wherever a configuration or a text leaves the process, and where a log is written.

:func:`is_secret` decides by the name of a value, for keys of configurations and for assignments in texts alike: names of passwords, secrets, tokens, credentials,
JAAS lines and key material. A name that says where a secret is (``password.env``, ``secret.file``, ``keystore.location``) is not secret itself.
Further secrets of texts need no name: what stands before ``@`` in a URL (after ``user:``, if there is one), private keys in PEM, ``Bearer`` and ``Basic`` followed by
what is sent, and tokens with a well-known beginning.
"""

from __future__ import annotations

import contextlib
import faulthandler
import fcntl
import logging
import os
import re
import select
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from dskype.topology.core.plain_text import plain
from dskype.topology.errors import TopologyError

__all__ = [
    "HIDDEN",
    "SPARK_KEYS",
    "TABLE",
    "LineRedactor",
    "RedactingFormatter",
    "hidden_paths",
    "is_secret",
    "redact",
    "redact_lines",
    "redact_text",
    "redacted_output",
    "restore_secrets",
]

HIDDEN = "******"

_PIECE_BYTES = 1 << 16
_LINE_BYTES = 1 << 20
"""A longer line is cut: its next piece would be redacted without the name that its beginning has."""
_END_S = 2.0

_NAMES = r"passw|passphrase|secret|jaas|token(?!i[sz])|credential|private|bearer|authorization|auth[._-]?user[._-]?info"
_KEYS = r"(?:access|account|api|auth|encryption|keystore|shared|signing|ssl|tls)[ ._-]?key"
_BEGINNINGS = "[pP][aArR]|[sS][eEhHiIsS]|[tT][oOlL]|[jJ][aA]|[cC][rR]|[bB][eE]|[aA][uUcCpP]|[eE][nN]|[kK][eE]"
SPARK_KEYS = f"(?={_BEGINNINGS})(?i:{_NAMES}|{_KEYS})"
"""The rule for keys as a Java regular expression, for Spark's plans and logs.

Spark applies it several times to every option of every query in every micro-batch. Java tries all alternatives at every character, so the
expression first checks the two letters with which an alternative may begin; that halves the time.
"""

_WHOLE = r"(?:^|[?&._-])(?:auth|cookie|masterauth|pass|dbpass|keypass|requirepass|storepass|userpass|passcode|pw|pwd|psk|hmac[._-]?key|jwt[._-]?key|master[._-]?key|passkey|ssh[._-]?key)$"
_QUERY = r"[?&](?:[\w.-]*[.-])?(?:sig|signature|key|delegation)$"
TABLE = {"anywhere": _NAMES, "anywhere, of keys": _KEYS, "as the last part": _WHOLE, "in the query of a URL": _QUERY}
"""The table of names, as regular expressions by where in a name they count. Spark's rule has the first two."""

_SECRET = re.compile(rf"{_NAMES}|{_WHOLE}|{_KEYS}(?!store)|{_QUERY}", re.I)
_WHERE = re.compile(r"(?:[._-](?:env|file|path|location|class|type|algorithm|ms|seconds)|(?-i:Error|Exception|Warning|Manager))$", re.I)
"""Ends of names that say where a secret is, that are times, or that are classes: ``NoCredentialsError: ...`` is a reason, not a secret."""

_BEARER = re.compile(r"\b((?:bearer|basic)\s+)(?!(?-i:[a-z]{1,15})(?![\w.~+/=-])|\w+=[\"\w])[\w.~+/=-]{6,}", re.I)
_RECOGNISED = re.compile(
    r"(?<![\w-])(?:whsec_[\w+/=-]+|gh[pousr]_\w{20,}|github_pat_\w{10,}|gl(?:pat|dt|rt|ptt)-[\w-]{10,}|xox[a-z]-[\w-]{10,}|xapp-[\w-]{10,}|[sr]k_(?:live|test)_\w{10,}"
    r"|sk-[\w-]{20,}|npm_\w{20,}|pypi-[\w-]{20,}|dckr_pat_[\w-]{10,}|hf_[A-Za-z]{20,}|AIza[\w-]{30,}|hvs\.[\w-]{20,}|(?<=hooks\.slack\.com/)services/[\w/]{20,}|eyJ[\w-]{5,}+\.[\w-]{5,}+\.[\w-]*)"
)
_HINTS = (
    *("pass", "pwd", "psk", "secret", "jaas", "token", "credential", "private", "bearer", "basic", "auth", "key", "sig=", "signature=", "://"),
    *("whsec_", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "_pat_", "glpat-", "gldt-", "glrt-", "glptt-", "xox", "xapp-"),
    *("k_live_", "k_test_", "sk-", "npm_", "pypi-", "hf_", "aiza", "eyj", "hvs.", "hooks.slack", ":\\/", "curl"),
    *("redis-cli", "cookie", "pw", "delegation", "identified by"),
)
"""Without one of these a text has no secret: most lines of a log are looked at no further, which is fifty times as fast as the rule."""

_SCHEME = re.compile(r"\b[A-Za-z][A-Za-z0-9+.-]{0,30}:(?://|\\+/\\+/)")
_URL_END = re.compile(r"[\s\"'<>`]|:(?://|\\+/\\+/)")
_PEM_BEGIN = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY(?: BLOCK)?-----")
_PEM_END = re.compile(r"-----END [A-Z ]*PRIVATE KEY(?: BLOCK)?-----")
_PEM = re.compile(rf"({_PEM_BEGIN.pattern}).*?({_PEM_END.pattern}|\Z)", re.S)
_PEM_LINE = re.compile(r"[ \t]*(?:[A-Za-z0-9+/=]*|[A-Za-z-]+: [^\n]*)\s*")

# Before 3.11.5, Python consumes too much if the last attempt at a possessive group fails midway. An empty last alternative in each group prevents that.
_BLANKS = r"(?:[^\S\n]*+(?:\x1b\[[\d;]{0,16}m[^\S\n]*+|){0,4}+)"
"""Blanks within a line, and changes of colour."""
_CDATA = r"(?:<!\[CDATA\[|(?=[^<]))"
_FORMS = (
    # key = value, "key": value, conf['key']['part'] = value, key[0] = value, key -> value, a tab, and keys with a space: "api key: value"
    re.compile(
        r"(?:\x1b\[[\d;]*+m|\\u0022|(?=[?&])|(?<![\w.-]))([?&]?[\w.-]++(?:[ ]key\b|)?+)(?:\\*[\"'`]|\\+u0022|&quot;|&\#34;|)?+\]?+(?:\[[^\]\n]{0,64}\]|){0,4}+"
        rf"(?:{_BLANKS}(?::=|={{1,2}}>?|->|(?<=-)>|::?(?!//)|%3[ad])|[ ]*+\t){_BLANKS}",
        re.I,
    ),
    # --key value, '--key', 'value', and -key value
    re.compile(rf"(?<![\w.-])(--?+[\w.-]++)(?:\\*[\"'],|)?+(?=\s|\x1b){_BLANKS}"),
    # ('key', value), and ["key", value] of two
    re.compile(rf"\(\s*+b?\\*[\"']([\w.-]++)\\*[\"']{_BLANKS},{_BLANKS}"),
    re.compile(rf"\[\s*+b?\\*[\"']([\w.-]++)\\*[\"']{_BLANKS},{_BLANKS}(?=b?\\*[\"']?[^\"',\[\]\n]{{1,256}}[\"']?\s*\])"),
    # (a.key,value) of Scala
    re.compile(r"(?<!\w)\(([\w-]++\.[\w.-]++),(?=[^\s,()\"'])"),
    # setKey('value')
    re.compile(rf"(?<![\w.-])([\w.-]++)\({_BLANKS}(?=[bru]{{0,2}}\\*[\"'])", re.I),
    # <key>value</key>, <entry name="key">value</entry>, and <name>key</name><value>value</value>
    re.compile(rf"<([\w.:-]++)[^<>\n]{{0,256}}>{_CDATA}"),
    re.compile(rf"<[\w.:-]{{1,64}}\s[^<>\n]{{0,128}}?\b(?:name|key|id)=\\*[\"']([\w.-]++)\\*[\"'][^<>\n]{{0,128}}>{_CDATA}", re.I),
    re.compile(rf"<(?:name|key)>\s*+([\w.-]++)\s*+</(?:name|key)>\s*+<[\w.:-]{{1,64}}>{_CDATA}", re.I),
    # name="key" value="value", and "name": "key", "value": "value"
    re.compile(
        rf"(?<![\w-])(?:name|key|id)\\*[\"']?{_BLANKS}[=:]{_BLANKS}\\*[\"']?([\w.-]++)\\*[\"']?[^<>{{}}\n]{{0,64}}?\bvalue\\*[\"']?{_BLANKS}[=:]{_BLANKS}", re.I
    ),
)
_COMMANDS = re.compile(
    r"((?<![\w-])(?:-u|-U|--user|--proxy-user)(?:\\*[\"'],[ ]|[ =])?\\*(?P<quote>[\"'])?(?!\d{1,9}:\d)[^\s:\"'/]{1,64}:)(?(quote)[^\"'\n]++|[^\s\"']++)"
    r"|(\b(?:sshpass\b[\"', ]{1,8}-p|redis-cli\b[^\n]{0,128}?[ \"']-a)[\"', ]{0,8})[^\s\"']++"
)
"""Programs whose options for secrets have no names: the last part of a match is secret. The first needs ``curl`` somewhere."""
_SQL = re.compile(r"(\b(?:identified[ ]by|(?:encrypted|with|(?:role|user)[ ][^\s;]{1,64})[ ]password)[ ]{1,8}')(?:[^'\n]|'')(?:[^'\n]|''|)*+", re.I)
_NOTHING = re.compile(r"(?:true|false|none|null)(?=[\s,;:.)}\]]|$)", re.I)
"""Values that are no secret: none at all, and truth values."""
_PORT = re.compile(r"https?://[^\s/?#@:]*:\d{1,5}[/?#]", re.I)
_PASSWORD_BEGINS = re.compile(r"[^\s/?#@:]*+:(?!\d{1,5}\Z)\S++")
_QUOTED_PASSWORD = re.compile(r"[^\s/?#@:\"'<>`]{0,64}+:(?!\d{1,5}[\"'<>`/])[^\s\"'<>`@]{0,128}+[\"'<>`][^\s\"'<>`@,;)\]}]{1,64}+[\"'<>`]?+@(?=[\w.\[])")
_SPACED = 64
"""So many characters after the first blank of a password in a URL its ``@`` is looked for."""
_INDENT = 64
_CREDENTIALS = re.compile(r"(?:digest|oauth|hawk|signature|aws4-hmac-sha256)[ \t][^\n]*+|[^\n\"'}\])]++", re.I)
_QUOTE = re.compile(r"[bru]{0,2}(?=\\*[\"'])", re.I)
_OPENING = re.compile(r"\\*(?:\"\"\"|'''|\"|')")
_PLAIN_QUOTED = {quote: re.compile(rf"(?:[^{quote}\\\n]|\\.|)*+{quote}") for quote in "\"'"}
_GOES_ON = re.compile(rf"{_BLANKS}\+?{_BLANKS}[bru]{{0,2}}(\"|')(?!-)", re.I)
_BRACKETS = re.compile(r"[\[\](){}]|\"(?:[^\"\\\n]|\\.|)*+\"|'(?:[^'\\\n]|\\.|)*+'")
_SIGN = r"[^\s\"',;&|.)\]}>]|[\"'.)\]}>](?![\"'`,;:.)\]}>]{0,8}+(?:\s|$)|[\"',;)\]}&])|[,;&|](?![\s\"']|$|[\w.-]{1,64}[=:])"
"""A character within a value without quotes, and not at its end."""
_UNQUOTED = re.compile(rf"(?:(?:bearer|basic|digest|negotiate|token)[ \t]++)?(?:{_SIGN})(?:{_SIGN}|)*+", re.I)


def is_secret(key: object) -> bool:
    """Tell whether the value of a key is secret."""
    return isinstance(key, str) and _SECRET.search(key) is not None and not _WHERE.search(key)


def redact(value: Any) -> Any:
    """Return a copy of a configuration, or of a part of one, with ``******`` in place of secrets.

    It descends into maps and lists; empty values and booleans stay. Lists of pairs, maps with a name and a value, and lists of arguments have names, too.
    """
    if isinstance(value, Mapping):
        named = any(is_secret(value.get(key)) for key in ("name", "key", "id"))
        return {k: _redact_named(v, is_secret(k) or (named and k == "value")) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        if value and all(isinstance(item, (list, tuple)) and len(item) == 2 for item in value):
            return [[redact(name), _redact_named(v, is_secret(name))] for name, v in value]
        names = [None, *value]
        return [
            _redact_named(item, isinstance(name, str) and name.startswith("--") and "=" not in name and is_secret(name)) for name, item in zip(names, value)
        ]
    return redact_text(value) if isinstance(value, str) else value


def _redact_named(value: Any, secret: bool) -> Any:
    return HIDDEN if secret and not isinstance(value, bool) and value not in (None, "") else redact(value)


def redact_text(text: str) -> str:
    """Return a text with ``******`` in place of secrets; the time is linear in its length.

    >>> redact_text("no answer from redis://ann:open-sesame@host:1/0")
    'no answer from redis://ann:******@host:1/0'
    >>> redact_text('{"db_password_main": ["open-sesame"], "port": 1}')
    '{"db_password_main": ******, "port": 1}'
    """
    if not _is_suspect(text):
        return text
    if "://" in text or ":\\" in text:
        text = _hide_in_urls(text)
    if "PRIVATE KEY" in text:
        text = _PEM.sub(rf"\g<1>{HIDDEN}\g<2>", text)
    for form in _FORMS:
        text = _hide_values(form, text)
    if "curl" in text or "sshpass" in text or "redis-cli" in text:
        text = _COMMANDS.sub(lambda found: f"{found[1] or found[3]}{HIDDEN}", text)
    if " '" in text:
        text = _SQL.sub(rf"\g<1>{HIDDEN}", text)
    return _RECOGNISED.sub(HIDDEN, _BEARER.sub(rf"\g<1>{HIDDEN}", text))


def _is_suspect(text: str) -> bool:
    lower = text.lower()
    return any(hint in lower for hint in _HINTS)


def _hide_in_urls(text: str) -> str:
    """Hide what authenticates before ``@``. The last ``@`` counts, because passwords have others, and slashes."""
    parts, done = [], 0
    for scheme in _SCHEME.finditer(text):
        begin = scheme.end()
        if begin < done:
            continue
        found = _URL_END.search(text, begin)
        end = found.start() if found else len(text)
        at = text.rfind("@", begin, end)
        if at < 0 and found is not None and found[0] in "\"'<>`" and (quoted := _QUOTED_PASSWORD.match(text, begin)) is not None:
            at = quoted.end() - 1
        elif at < 0 and found is not None and found[0] == " " and _PASSWORD_BEGINS.fullmatch(text, begin, end):  # a password with spaces
            at = text.find("@", end, min(end + _SPACED, _index(text, "\n", end)))
            at = -1 if "://" in text[end:at] else at
        colon, slash = text.find(":", begin, max(at, begin)), min((i for c in "/?#" if (i := text.find(c, begin, max(at, begin))) >= 0), default=at)
        if at < 0 or not begin < at or (slash < at and not 0 <= colon < slash):
            continue
        if _PORT.match(text, scheme.start()) is not None:  # the @ is in the path
            continue
        parts += [text[done : colon + 1 if colon >= 0 else begin], HIDDEN]
        done = at
    return "".join([*parts, text[done:]])


def _hide_values(form: re.Pattern[str], text: str) -> str:
    """Hide the values of secret names that are assigned in one form."""
    parts, done, position, nested = [], 0, 0, True
    while (found := form.search(text, position)) is not None:
        position = found.end(1)
        if not is_secret(found[1]):
            continue
        begin, end, nested = _value(text, found, nested)
        if begin < end:
            parts += [text[done:begin], HIDDEN]
            done = position = end
    return "".join([*parts, text[done:]])


def _value(text: str, found: re.Match[str], nested: bool) -> tuple[int, int, bool]:
    """Return where the value that is assigned begins and ends; without its quotes, with its brackets.

    :param found: the name and what stands between it and the value.
    :param nested: whether brackets may be followed into further lines. One that is never closed is looked for once, so that the time stays linear.
    :returns: begin, end, and ``nested`` for the next value.
    """
    begin = found.end()
    if found[0].startswith("<"):
        return begin, _index(text, "]]>" if found[0].endswith("[") else "<", begin), nested
    if (prefix := _QUOTE.match(text, begin)) is not None:
        opening = _OPENING.match(text, prefix.end())
        assert opening is not None, "the prefix ends before a quote"
        begin = opening.end()
        closing = _PLAIN_QUOTED.get(opening[0]) or re.compile(rf"(?:(?!(?<!\\){re.escape(opening[0])}).|)*+{re.escape(opening[0])}")
        if (whole := closing.match(text, begin)) is not None:
            while text[whole.end() - 2] == "\\" and text[whole.end() : whole.end() + 1].isalnum() and (more := closing.match(text, whole.end())) is not None:
                whole = more  # JSON within a repr doubles the backslash of a quote
            end = whole.end() - len(opening[0])
            while (more := _GOES_ON.match(text, whole.end())) is not None and (whole := _PLAIN_QUOTED[more[1]].match(text, more.end())) is not None:
                begin, end = found.end(), whole.end()  # a value in pieces loses its quotes, too
            return begin, end, nested
        return begin, _index(text, "\n", begin), nested
    if text[begin : begin + 1] in ("[", "{", "("):
        depth, limit = 0, len(text) if nested else _index(text, "\n", begin)
        for bracket in _BRACKETS.finditer(text, begin, limit):
            depth += 1 if bracket[0] in "[{(" else -1 if bracket[0] in ")}]" else 0
            if not depth:
                return begin, bracket.end(), nested
        return begin, _index(text, "\n", begin), False
    if _NOTHING.match(text, begin) is not None:
        return begin, begin, nested
    before = text[max(0, found.start() - _INDENT) : found.start()].rstrip(" \t-")
    if (not before and found.start() <= _INDENT) or before.endswith(("\n", "Error:", "Exception:")):  # a line of YAML, of properties or of HTTP's headers
        return begin, _index(text, "\n", begin), nested
    quote, name = text[max(0, found.start(1) - 1) : found.start(1)], found[0]
    if quote in _PLAIN_QUOTED and name.endswith("=") and quote not in name:  # an argument: '--key=value'
        if text[found.start(1) - 2 : found.start(1) - 1] == "\\":
            whole = re.compile(rf"[^{quote}\n]*+(?<=\\){quote}").match(text, begin)
        else:
            whole = _PLAIN_QUOTED[quote].match(text, begin)
        if whole is not None:
            return begin, begin + len(whole[0][:-1].rstrip("\\")), nested
    if "authorization" in found[1].lower() or "cookie" in found[1].lower():
        whole = _CREDENTIALS.match(text, begin)
    else:
        whole = _UNQUOTED.match(text, begin)
    return begin, begin if whole is None else whole.end(), nested


def _index(text: str, end: str, begin: int) -> int:
    found = text.find(end, begin)
    return found if found >= 0 else len(text)


class LineRedactor:
    """Redacts a text that comes line by line: a private key has several."""

    def __init__(self) -> None:
        self._in_key = False

    def line(self, text: str) -> str:
        """Return the next line with ``******`` in place of secrets; nothing is left of a line within a key."""
        if self._in_key:
            end = _PEM_END.search(text)
            if end is None and _PEM_LINE.fullmatch(text):
                return ""
            self._in_key = False
            if end is not None:
                text = text[end.start() :]
        begins = [*_PEM_BEGIN.finditer(text)]
        self._in_key = bool(begins) and _PEM_END.search(text, begins[-1].end()) is None
        return redact_text(text)


def restore_secrets(stored: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration that was stored redacted, with the secrets of the configuration given now.

    :raises TopologyError: a secret is missing, or not where it was.
    """
    missing: list[str] = []
    result = {k: _restore(v, given.get(k), k, missing) for k, v in stored.items()}
    if missing:
        raise TopologyError(
            "Secrets of a configuration are not stored: to resume a topology, give them again.",
            given=f"a configuration without {', '.join(sorted(missing))}",
            hint="submit it with the configuration it was first submitted with",
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
    # An earlier version may have hidden other parts of the text.
    if given in (None, "") or (stored != HIDDEN and not re.fullmatch(".*".join(map(re.escape, stored.split(HIDDEN))), str(given), re.S)):
        missing.append(path)
        return stored
    return given


def redact_lines(handle: int, write: Callable[[bytes], object]) -> None:
    """Read lines from a pipe until its end, and pass them on without secrets.

    :param write: gets a line with its end; the last line may have none.
    """
    redactor, rest, cut = LineRedactor(), b"", False
    while data := os.read(handle, _PIECE_BYTES):
        lines = (rest + data).split(b"\n")
        rest = lines.pop()
        if cut:
            lines, rest, cut = lines[1:], rest if lines else b"", not lines
        if len(rest) > _LINE_BYTES:
            lines, rest, cut = [*lines, rest + b" ... (the rest of this line is not kept)"], b"", True
        for line in lines:
            write(redactor.line(line.decode(errors="backslashreplace")).encode() + b"\n")
    if rest:
        write(redactor.line(rest.decode(errors="backslashreplace")).encode())


@contextlib.contextmanager
def redacted_output() -> Iterator[None]:
    """Let what this process and the programs that it starts print be written without secrets, unless a terminal shows it: it is kept in a log, in a journal, or with a container."""
    kept = {handle: fcntl.fcntl(handle, fcntl.F_DUPFD_CLOEXEC, 3) for handle in (1, 2) if _is_open(handle) and not os.isatty(handle)}
    together = len(kept) == 2 and os.path.sameopenfile(1, 2)  # one pipe keeps the order of its lines
    _flush()
    if 2 in kept:
        faulthandler.enable(kept[2], all_threads=True)  # what a process that crashes says last, nobody could pass on
    threads = []
    for handles in [[1, 2]] if together else [[handle] for handle in kept]:
        read, write = os.pipe()
        _reading.add(read)
        for handle in handles:
            os.dup2(write, handle)
        os.close(write)
        threads.append(threading.Thread(target=_pass_on, args=(read, kept[handles[0]]), name="redacted output", daemon=True))
        threads[-1].start()
    try:
        yield
    finally:
        _flush()
        for handle, target in kept.items():
            os.dup2(target, handle)
        for thread in threads:
            thread.join(timeout=_END_S)
        if 2 in kept:
            faulthandler.disable()
        if not any(thread.is_alive() for thread in threads):  # else a program that was started writes on
            for target in kept.values():
                os.close(target)


_reading: set[int] = set()


def _is_open(handle: int) -> bool:
    try:
        os.fstat(handle)
    except OSError:
        return False
    return True


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            with contextlib.suppress(OSError):  # nobody reads it any more
                stream.flush()


def _pass_on(read: int, target: int) -> None:
    def write(data: bytes) -> None:
        try:
            while data:
                try:
                    data = data[os.write(target, data) :]
                except BlockingIOError:  # whoever shares the pipe may have said that it must not wait
                    select.select([], [target], [])
        except BrokenPipeError:
            raise
        except OSError:  # a full disk: the line is lost, for the process must not wait
            pass

    try:
        with contextlib.suppress(BrokenPipeError):  # nobody reads it any more: what is printed next fails as it would without us
            redact_lines(read, write)
    finally:
        _reading.discard(read)
        os.close(read)


def _after_fork() -> None:
    """Leave reading to the process that has the thread for it, so that whoever writes is told when that process has gone."""
    for read in _reading:
        os.close(read)
    _reading.clear()


os.register_at_fork(after_in_child=_after_fork)


class RedactingFormatter(logging.Formatter):
    """Formats log records, tracebacks included, with secrets redacted, and so that they cannot control a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the redacted text of a record."""
        return plain(redact_text(super().format(record)))
