"""Dead letters: records and tuples that a task could not process or send, with the reason."""

from __future__ import annotations

from typing import Any

from dskype.topology.core.frames import OutRecord
from dskype.topology.core.redaction import redact_text
from dskype.topology.core.values import pack_state
from dskype.topology.errors import DeadLetter, code_of, message_of, repr_of, text_of

__all__ = ["DeadLetters", "packed", "reason_of"]

_KEY_BYTES = _TEXT_BYTES = 4096
"""Most bytes of a key, and of the reason, that a dead letter holds."""


class DeadLetters:
    """Writes a task's dead letters, with keys and values cut to a length that fits in their topic.

    :param topic: the topology's topic of dead letters.
    :param component: the task's component.
    :param task: the task's id.
    :param max_bytes: most bytes of a value.
    """

    def __init__(self, topic: str, component: str, task: int, max_bytes: int) -> None:
        self._topic, self._component, self._task, self._max_bytes = topic, component, task, max_bytes
        self.written: list[OutRecord] = []
        """Written and not taken yet."""

    def add(self, key: bytes | None, value: bytes | None, error: Exception, stage: str, place: tuple[str, int, int], *more: tuple[str, str]) -> None:
        """Write a dead letter.

        :param error: why the record or tuple is unusable.
        :param stage: what the task was doing.
        :param place: topic, partition and offset of what the task was processing.
        :param more: further headers.
        """
        topic, partition, offset = place
        headers = [
            ("error", _short_bytes(redact_text(reason_of(error)))),
            ("code", code_of(error).encode()),
            ("stage", stage.encode()),
            ("topic", topic.encode()),
            ("partition", str(partition).encode()),
            ("offset", str(offset).encode()),
            ("component", self._component.encode()),
            ("task", str(self._task).encode()),
            *((name, _short_bytes(text)) for name, text in more),
        ]
        kept_key, kept = key and key[:_KEY_BYTES], value and value[: self._max_bytes]
        if value is not None:
            headers.append(("size", str(len(value)).encode()))
        if key is not None and len(key) > _KEY_BYTES:
            headers.append(("key-size", str(len(key)).encode()))
        if kept_key != key or kept != value:
            headers.append(("truncated", b"true"))
        self.written.append(OutRecord(self._topic, None, kept_key, kept, headers))

    def take(self) -> list[OutRecord]:
        """Return the dead letters since the last call."""
        written, self.written = self.written, []
        return written


def packed(values: Any) -> bytes:
    """Return the values of a tuple as msgpack, or as text if they cannot be packed."""
    try:
        return pack_state(list(values))
    except (TypeError, ValueError, OverflowError, RecursionError):
        return repr_of(values).encode(errors="backslashreplace")


def reason_of(error: Exception) -> str:
    """Return why a record or tuple is unusable."""
    return message_of(error) if isinstance(error, DeadLetter) else text_of(error)


def _short_bytes(text: str) -> bytes:
    """Return a text as a header's bytes, cut to length; half a surrogate pair, which JSON allows and UTF-8 does not, is escaped."""
    return text[:_TEXT_BYTES].encode(errors="backslashreplace")[:_TEXT_BYTES]
