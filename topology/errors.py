"""Errors of the topology model, and the base of all errors of this project.

Storm's class names are kept so that an error text found in Storm's documentation, mailing lists or sources
can be searched here too. Every message starts with Storm's own words where Storm has them, followed by what was
given, what is legal and a hint (see :func:`explain`).
"""

from __future__ import annotations

from typing import Any

__all__ = [
    "FATAL_MARK",
    "RETRIABLE_MARK",
    "AlreadyAliveException",
    "DeadLetter",
    "DskypeError",
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
    "mark_of",
    "shorten",
    "text_after",
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
    """Return ``Type: message``; the message of a user's exception may be anything, and its ``__str__`` may raise."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:
        return f"{type(error).__name__}: its text cannot be shown"


class DskypeError(Exception):
    """Base of every error that this project raises on purpose: its text is for the user, who needs no traceback.

    :cvar retriable: trying again can help, such as with a disk without room. When a component raises such an error in an executor, its query
        starts again for as long as it takes (see :func:`mark_of`); other errors may come ``topology.emulator.restarts.max`` times in a row.
    """

    retriable = False


class TopologyError(DskypeError):
    """Base of every error raised by the emulator."""


class FatalError(TopologyError):
    """Trying again cannot help: the topology ends, says why, and keeps its state.

    Any other error in an executor restarts the component's query.
    """


FATAL_MARK, RETRIABLE_MARK = "[cannot go on]", "[try again]"


def mark_of(error: BaseException) -> str:
    """Return what begins the text of an error on its way from an executor through Spark to the driver; empty for most.

    What travels there is text alone: :func:`text_after` reads it at the other end.
    """
    if isinstance(error, FatalError):
        return FATAL_MARK
    return RETRIABLE_MARK if getattr(error, "retriable", False) else ""


def text_after(mark: str, text: str) -> str | None:
    """Return what an error of an executor says, from the text that Spark made of it; None without the mark."""
    _, found, rest = text.partition(mark)
    return rest.strip().split("\n")[0].strip() if found else None


class IllegalArgumentException(TopologyError, ValueError):
    """A call got a value that it cannot accept."""


class IllegalStateException(TopologyError, RuntimeError):
    """An object was used in a state that does not allow it."""


class InvalidTopologyException(TopologyError, ValueError):
    """A topology is refused at submission, before anything runs."""


class AlreadyAliveException(TopologyError):
    """A topology of that name is running, or was killed and is not yet removed."""

    @classmethod
    def for_topology(cls, name: str) -> AlreadyAliveException:
        """Build the error for topology ``name``."""
        return cls(f"{name} is already alive")


class NotAliveException(TopologyError):
    """No topology of that name (or id) is running."""

    @classmethod
    def for_topology(cls, name: str) -> NotAliveException:
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
