"""The dead letters of a topology: what could not be processed, with the reason and the place where it came from."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Self

from dskype.deploy.client.follower import Follower
from dskype.topology.runtime.kafka.clients import KafkaTimeoutError

if TYPE_CHECKING:
    from dskype.deploy.client.pubsub import PubSub

__all__ = ["DeadLetter", "DeadLetters"]


@dataclass(frozen=True)
class DeadLetter:
    """A record or tuple that could not be processed. Its bytes come from outside: show them as text, never as markup.

    :ivar time_ms: when it was written, epoch ms.
    :ivar error: the reason, one sentence; ``code`` says the same in a word that does not change (docs/guides/metrics.md).
    :ivar stage: where in a task it was refused.
    :ivar topic: with ``partition`` and ``offset`` the place of the record that could not be processed; "" and None if it does not say.
    :ivar component: the component that refused it, and ``task`` its task.
    :ivar key: as the record had it; cut if it is very long, as ``value`` is.
    :ivar size: of the whole value in bytes; None if it does not say.
    """

    time_ms: int
    error: str
    code: str
    stage: str
    topic: str
    partition: int | None
    offset: int | None
    component: str
    task: int | None
    key: bytes | None
    value: bytes | None
    size: int | None
    truncated: bool

    @classmethod
    def from_record(cls, record: Any) -> DeadLetter:
        """Read a record of the topic, whoever wrote it: what is missing or malformed in its headers is empty."""
        headers = {name: value.decode(errors="replace") for name, value in record.headers or () if value is not None}

        def text(name: str) -> str:
            return headers.get(name, "")

        def number(name: str) -> int | None:
            return int(text(name)) if text(name).isdecimal() else None

        place = text("topic"), number("partition"), number("offset")
        return cls(
            record.timestamp,
            text("error") or "without a reason",
            text("code"),
            text("stage"),
            *place,
            text("component"),
            number("task"),
            record.key,
            record.value,
            number("size"),
            text("truncated") == "true",
        )

    def is_about(self, reason: str) -> bool:
        """Tell whether a reason is the code, or part of the error, in small or capital letters."""
        return reason.lower() == self.code.lower() or reason.lower() in self.error.lower()

    def as_json(self) -> dict[str, Any]:
        """Return it as plain values; bytes that are no UTF-8 are escaped."""
        texts = {name: None if data is None else data.decode(errors="backslashreplace") for name, data in (("key", self.key), ("value", self.value))}
        return {**asdict(self), **texts}


class DeadLetters:
    """Reads the dead letters of a topology: first the newest ones that there are, then others as they come.

    :param count: how many :meth:`newest` returns at most.
    :param reason: only those that :meth:`DeadLetter.is_about` this; default: all. All present ones are read then.
    :param timeout_s: how long the brokers may take to answer.
    :raises UnknownTopicError: the topology has never run.
    """

    def __init__(self, pubsub: PubSub, count: int = 10, reason: str | None = None, timeout_s: float = 30) -> None:
        topic = pubsub.topics.dead_letters
        pubsub.require(topic)
        self._topic, self._count, self._reason, self._timeout_s = topic, count, reason, timeout_s
        self._follower = Follower(pubsub.kafka, [topic], count if reason is None else "beginning")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def newest(self) -> list[DeadLetter]:
        """Return the newest ones that there are, oldest first.

        :raises KafkaTimeoutError: nothing comes although there is more.
        """
        found: dict[int, deque[DeadLetter]] = {}
        heard = time.monotonic()
        while not self._follower.at_end():
            records = self._follower.poll()
            if records:
                heard = time.monotonic()
            elif time.monotonic() - heard > self._timeout_s:
                raise KafkaTimeoutError(f"topic {self._topic} could not be read to its end: nothing came for {self._timeout_s:g} s")
            for record in records:
                letter = DeadLetter.from_record(record)
                if self._reason is None or letter.is_about(self._reason):
                    found.setdefault(record.partition, deque(maxlen=self._count)).append(letter)
        return sorted((letter for letters in found.values() for letter in letters), key=lambda letter: letter.time_ms)[-self._count :]

    def poll(self, timeout_s: float = 0.5) -> list[DeadLetter]:
        """Return new ones; [] if none comes within ``timeout_s``."""
        letters = [DeadLetter.from_record(record) for record in self._follower.poll(timeout_s)]
        return [letter for letter in letters if self._reason is None or letter.is_about(self._reason)]

    def close(self) -> None:
        """Close the connection."""
        self._follower.close()
