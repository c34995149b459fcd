"""Errors of the topology model.

Storm's class names are kept so that an error text found in Storm's documentation, mailing lists or sources
can be searched here too. Every message starts with Storm's own words where Storm has them, followed by what was
given, what is legal and a hint (see :func:`explain`).
"""

from __future__ import annotations

from typing import Any

__all__ = [
    "AlreadyAliveException",
    "DeadLetter",
    "FATAL_MARK",
    "RETRIABLE_MARK",
    "FailedException",
    "FatalError",
    "IllegalArgumentException",
    "IllegalStateException",
    "InvalidTopologyException",
    "NotAliveException",
    "ReportedFailedException",
    "TopologyError",
    "TransitionException",
    "explain",
    "shorten",
    "text_of",
]

_NOT_GIVEN = object()


def explain(words: str, *, given: Any = _NOT_GIVEN, component: str | None = None, legal: str | None = None, hint: str | None = None) -> str:
    """Join an error's words with the facts a reader needs to correct it.

    :param words: the sentence itself, Storm's wording where Storm has one; it opens the message unchanged.
    :param given: the offending value, shown as ``given: <repr>``.
    :param component: id of the component concerned.
    :param legal: the values that would have been accepted.
    :param hint: what to do next.
    :returns: one line, e.g. ``Parallelism must be positive. given: 0; component: 'split'; legal: an integer >= 1``.
    """
    parts = []
    if given is not _NOT_GIVEN:
        parts.append(f"given: {_short(given)}")
    if component is not None:
        parts.append(f"component: {component!r}")
    if legal is not None:
        parts.append(f"legal: {legal}")
    if hint is not None:
        parts.append(f"hint: {hint}")
    if not parts:
        return words
    return words + (" " if words.endswith((".", "!", "?")) else "; ") + "; ".join(parts)


def _short(value: Any, limit: int = 400) -> str:
    text = repr(value)
    return text if len(text) <= limit else text[: limit - 3] + "..."


def shorten(text: str, limit: int) -> str:
    """Return ``text`` with at most ``limit`` characters: its beginning and its end, and how much is left out between them."""
    if len(text) <= limit:
        return text
    middle = f" ... ({len(text) - limit} characters and more are left out) ... "
    half = max(0, limit - len(middle)) // 2
    return text[:half] + middle + text[len(text) - half :]


def text_of(error: BaseException) -> str:
    """Return ``Type: message``; the message of somebody else's exception may be anything, and its ``__str__`` may raise."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:
        return f"{type(error).__name__}: its text cannot be shown"


class TopologyError(Exception):
    """Base of every error raised by the emulator.

    ``retriable`` tells a caller whether trying the same call again can help.
    """

    retriable = False


FATAL_MARK = "[cannot go on]"
"""Begins the text of a :class:`FatalError` on its way from an executor through Spark to the driver: what travels there is text."""


RETRIABLE_MARK = "[try again]"
"""The same for an error whose class says that trying again helps (``retriable``), such as a disk without room."""


class FatalError(TopologyError):
    """Trying again cannot help: the topology ends, says why, and keeps its state.

    Any other error in an executor restarts the component's query.
    """


class IllegalArgumentException(TopologyError, ValueError):
    """A call got a value that it cannot accept."""


class IllegalStateException(TopologyError, RuntimeError):
    """An object was used in a state that does not allow it."""


class InvalidTopologyException(TopologyError, ValueError):
    """A topology is refused at submission, before anything runs."""


class AlreadyAliveException(TopologyError):
    """A topology of that name is running, or was killed and is not yet removed."""

    @classmethod
    def of(cls, name: str) -> AlreadyAliveException:
        """Build the error for topology ``name``."""
        return cls(f"{name} is already alive")


class NotAliveException(TopologyError):
    """No topology of that name (or id) is running."""

    @classmethod
    def of(cls, name: str) -> NotAliveException:
        """Build the error for topology ``name``."""
        return cls(f"{name} is not alive")


class TransitionException(TopologyError):
    """A topology's state does not allow the command (e.g. activating a killed topology)."""

    def __init__(self, event: str, status: str, storm_id: str) -> None:
        super().__init__(f"No transition for event: {event}, status: {status} storm-id: {storm_id}")
        self.event = event
        self.status = status
        self.storm_id = storm_id

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.event, self.status, self.storm_id)


class FailedException(TopologyError):
    """Raise from a basic bolt to fail the input tuple quietly."""


class ReportedFailedException(FailedException):
    """Raise from a basic bolt to fail the input tuple and report the error (shown as the component's last error)."""


class DeadLetter(TopologyError):
    """Raise from ``KafkaSpout.translate`` to send a record that cannot be used to the dead letters.

    :param reason: one sentence; becomes the ``error`` header of the dead letter.
    """

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
