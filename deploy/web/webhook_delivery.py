"""Post results to a receiver: signed as Standard Webhooks (standardwebhooks.com) says, again after failures, with growing pauses."""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
import io
import random
import ssl
import time
from collections.abc import Callable
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from dskype.deploy.machine.terminal import clean
from dskype.deploy.web.webhook_settings import Webhook
from dskype.topology.core.redaction import redact_text

__all__ = ["Failure", "Sender", "pause_s", "signature"]

_AGAIN = {408, 409, 425, 429}
"""Refusals that may pass."""
_ANSWER_BYTES = 1 << 16
_REASON_CHARS = 200


def signature(keys: tuple[bytes, ...], id: str, time_s: int, body: bytes) -> str:
    """Return the header ``webhook-signature``: HMAC-SHA256 over id, time and body, once for each key.

    >>> signature((b"0123456789abcdef",), "msg_1", 1700000000, b"{}")
    'v1,3uojc/2kvL+KpJkw4ZNrA/5YjEs9cdfKdc3lXIvRjkk='
    """
    signed = f"{id}.{time_s}.".encode() + body
    return " ".join("v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode() for key in keys)


class Failure(NamedTuple):
    """Why a request did not arrive.

    :ivar again: whether another attempt may help.
    :ivar status: what the receiver answered; None: nothing.
    :ivar after_s: how long it has asked to be left alone.
    """

    reason: str
    again: bool
    status: int | None = None
    after_s: float | None = None


def pause_s(webhook: Webhook, failures: int, asked_s: float | None, chance: float) -> float:
    """Return the pause after so many failures: it doubles up to the longest one, less up to a half by chance, and is as long as the receiver asks.

    :param asked_s: what the receiver asks for; the longest pause counts if that is shorter.
    :param chance: from 0 to 1.
    """
    grown = min(webhook.backoff_max_s, webhook.backoff_s * 2 ** min(failures - 1, 60))
    return max(grown * (1 - chance / 2), min(asked_s or 0.0, webhook.backoff_max_s))


class _TimedSocket:
    """A socket whose reads and writes end at one time in all. A timeout of the socket's own counts anew for each byte that a receiver sends.

    :ivar deadline_s: that time, by the monotonic clock.
    """

    def __init__(self, sock: Any) -> None:
        self._socket, self.deadline_s = sock, 0.0

    def limit(self) -> None:
        """Let the next operation end in time.

        :raises TimeoutError: the time has passed.
        """
        left_s = self.deadline_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("timed out")
        self._socket.settimeout(left_s)

    def sendall(self, data: Any) -> None:
        """Write as a socket does."""
        self.limit()
        self._socket.sendall(data)

    def makefile(self, mode: str) -> io.BufferedReader:
        """Return a file to read from; it works as long as it is open, as that of a socket does."""
        return io.BufferedReader(_TimedFile(self, self._socket.makefile(mode, buffering=0)))

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()


class _TimedFile(io.RawIOBase):
    def __init__(self, timed: _TimedSocket, raw: Any) -> None:
        self._timed, self._raw = timed, raw

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> Any:
        self._timed.limit()
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


class Sender:
    """Sends requests to one receiver, over one connection as long as it lasts.

    :param webhook: the receiver.
    :param pause: waits for some seconds, and returns whether to stop.
    :param say: is told when the receiver fails and when it is back.
    :ivar retries: further attempts so far.
    """

    def __init__(self, webhook: Webhook, pause: Callable[[float], bool], say: Callable[[str], None]) -> None:
        self._webhook, self._pause, self._say = webhook, pause, say
        self._parts = urlsplit(webhook.url)
        self._path = (self._parts.path or "/") + (f"?{self._parts.query}" if self._parts.query else "")
        self._connection: http.client.HTTPConnection | None = None
        self._random = random.Random()
        self.retries = 0

    def send(self, id: str, body: bytes) -> Failure | None:
        """Send a request as often as it may be tried; return None when it has arrived, otherwise why it has not.

        A failure that ``again`` may pass is returned when attempts are used up, or when it is time to stop.
        """
        for attempt in range(1, self._webhook.attempts + 1):
            failure = self._attempt(id, body)
            if failure is None:
                if attempt > 1:
                    self._say(f"{self._webhook.name}: answers again")
                return None
            if not failure.again or attempt == self._webhook.attempts:
                return failure
            wait_s = pause_s(self._webhook, attempt, failure.after_s, self._random.random())
            self._say(f"{self._webhook.name}: {failure.reason}; attempt {attempt} of {self._webhook.attempts}, again in {wait_s:.1f} s")
            self.retries += 1
            if self._pause(wait_s):
                return failure
        return failure

    def _attempt(self, id: str, body: bytes) -> Failure | None:
        """Send a request once; a connection that the receiver has closed meanwhile is opened again."""
        kept = self._connection is not None
        try:
            return self._request(id, body)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            if kept and isinstance(error, (BrokenPipeError, ConnectionResetError)):
                return self._attempt(id, body)
            return Failure(
                f"no answer ({clean(redact_text(str(error)), _REASON_CHARS) or type(error).__name__})", not isinstance(error, ssl.SSLCertVerificationError)
            )

    def _request(self, id: str, body: bytes) -> Failure | None:
        now_s = int(time.time())
        headers = {
            "Content-Type": "application/json",
            "User-Agent": "dskype-webhooks",
            "webhook-id": id,
            "webhook-timestamp": str(now_s),
            "webhook-signature": signature(self._webhook.keys, id, now_s, body),
        }
        deadline_s = time.monotonic() + self._webhook.timeout_s
        if self._connection is None:
            self._connection = self._connect()
            self._connection.connect()
            self._connection.sock = _TimedSocket(self._connection.sock)
        self._connection.sock.deadline_s = deadline_s
        self._connection.request("POST", self._path, body, headers)
        answer = self._connection.getresponse()
        if len(answer.read(_ANSWER_BYTES)) == _ANSWER_BYTES or answer.will_close:
            self.close()
        if 200 <= answer.status < 300:
            return None
        after = answer.getheader("Retry-After", "")
        return Failure(
            f"answers {answer.status}",
            answer.status >= 500 or answer.status in _AGAIN,
            answer.status,
            float(after) if after.isdecimal() and len(after) < 9 else None,
        )

    def _connect(self) -> http.client.HTTPConnection:
        host, timeout_s = self._parts.hostname or "", self._webhook.timeout_s
        if self._parts.scheme == "https":
            return http.client.HTTPSConnection(host, self._parts.port, timeout=timeout_s, context=ssl.create_default_context())
        return http.client.HTTPConnection(host, self._parts.port, timeout=timeout_s)

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
