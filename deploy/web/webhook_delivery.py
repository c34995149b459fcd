"""Post results to a receiver: signed as Standard Webhooks (standardwebhooks.com) says, again after failures, with growing pauses."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import http.client
import random
import socket
import ssl
import threading
import time
from collections.abc import Callable
from typing import NamedTuple
from urllib.parse import urlsplit

from dskype.deploy.machine.terminal import clean
from dskype.deploy.web.webhook_settings import Webhook
from dskype.topology.core.redaction import redact_text

__all__ = ["Failure", "Sender", "pause_s", "signature"]

_AGAIN = {408, 409, 425, 429}
"""Refusals that may pass."""
_ANSWER_BYTES = 1 << 16
_REASON_CHARACTERS = 200
"""Of what the receiver has sent, an error quotes no more: it goes into a header of the dead letter."""


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
        self._handle: socket.socket | None = None  # of the same connection: a shutdown of it ends what waits for the other
        self._handle_lock = threading.Lock()
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
        """Send a request once; a connection that the receiver has closed meanwhile is opened again.

        The timeout of a socket begins anew with each byte, so another thread ends a request that takes too long in all.
        """
        ends_at, over = time.monotonic() + self._webhook.timeout_s, threading.Event()
        timer = threading.Timer(self._webhook.timeout_s, self._end, (over,))
        timer.daemon = True
        timer.start()
        try:
            while True:
                kept = self._connection is not None
                try:
                    return self._request(id, body, ends_at)
                except (OSError, http.client.HTTPException) as error:
                    self.close()
                    if over.is_set() or isinstance(error, TimeoutError):
                        return Failure(f"no answer within {self._webhook.timeout_s:g} s", True)
                    if kept and isinstance(error, (BrokenPipeError, ConnectionResetError)):
                        continue
                    reason = clean(redact_text(f"no answer ({error or type(error).__name__})"), _REASON_CHARACTERS)
                    return Failure(reason, not isinstance(error, ssl.SSLCertVerificationError))
        finally:
            timer.cancel()

    def _end(self, over: threading.Event) -> None:
        """End the request that is under way; called by another thread."""
        over.set()
        with self._handle_lock, contextlib.suppress(OSError):
            if self._handle is not None:
                self._handle.shutdown(socket.SHUT_RDWR)

    def _request(self, id: str, body: bytes, ends_at: float) -> Failure | None:
        now_s = int(time.time())
        headers = {
            "Content-Type": "application/json",
            "User-Agent": "dskype-webhooks",
            "webhook-id": id,
            "webhook-timestamp": str(now_s),
            "webhook-signature": signature(self._webhook.keys, id, now_s, body),
        }
        if self._connection is None:
            self._connect(ends_at)
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

    def _connect(self, ends_at: float) -> None:
        """Open the connection.

        :param ends_at: when to give up, on the monotonic clock. The receiver's name may have any number of addresses.
        """
        secure, host = self._parts.scheme == "https", self._parts.hostname or ""
        connection = http.client.HTTPSConnection(host, self._parts.port) if secure else http.client.HTTPConnection(host, self._parts.port)
        found = socket.getaddrinfo(host, connection.port, type=socket.SOCK_STREAM)
        for i, (*_, address) in enumerate(found, 1):
            if (left_s := ends_at - time.monotonic()) <= 0:
                raise TimeoutError
            try:
                connection.sock = socket.create_connection(address[:2], left_s)
                break
            except OSError:
                if i == len(found):
                    raise
        self._connection = connection
        connection.sock.settimeout(self._webhook.timeout_s)
        connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with self._handle_lock:
            self._handle = connection.sock.dup()
        if time.monotonic() >= ends_at:  # too late for the other thread to have seen the connection
            raise TimeoutError
        if secure:
            connection.sock = ssl.create_default_context().wrap_socket(connection.sock, server_hostname=host)

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        with self._handle_lock:
            if self._handle is not None:
                self._handle.close()
                self._handle = None
