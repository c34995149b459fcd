"""Errors of the topology model, and the base of all errors of this project.

Classes have Storm's names, and messages begin with Storm's wording where Storm has one, so that a user can search for
them in Storm's documentation and sources. The given value, the legal values and a hint follow (:func:`explain`).
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
    "code_of",
    "explain",
    "mark_of",
    "message_of",
    "repr_of",
    "shorten",
    "text_after",
    "text_of",
]

_NOT_GIVEN = object()


def explain(words: str, *, given: Any = _NOT_GIVEN, component: str | None = None, legal: str | None = None, hint: str | None = None) -> str:
    """Return an error message with the facts that a reader needs to correct the error.

    :param words: the sentence that opens the message, in Storm's wording where Storm has one.
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
    text = repr_of(value)
    return text if len(text) <= limit else text[: limit - 3] + "..."


def shorten(text: str, limit: int) -> str:
    """Return ``text``, or, if it is longer than ``limit`` characters, its beginning and its end."""
    if len(text) <= limit:
        return text
    middle = f" ... (more than {len(text) - limit} characters left out) ... "
    half = max(0, limit - len(middle)) // 2
    return text[:half] + middle + text[len(text) - half :]


def message_of(error: BaseException) -> str:
    """Return ``str(error)``, or a replacement if the ``__str__`` of a user's exception raises."""
    try:
        return str(error)
    except Exception:
        return "its text cannot be shown"


def text_of(error: BaseException) -> str:
    """Return ``Type: message``; see :func:`message_of`."""
    return f"{type(error).__name__}: {message_of(error)}"


def repr_of(value: Any) -> str:
    """Return ``repr(value)``, or a replacement if the ``__repr__`` of a user's class raises."""
    try:
        return repr(value)
    except Exception:
        return f"a {type(value).__name__} that cannot be shown"


class DskypeError(Exception):
    """Base of every error that this project raises on purpose; its text is for the user, who needs no traceback.

    :cvar retriable: a later attempt may succeed, for example once a full disk has room. If such an error occurs in an executor, the
        component's query is restarted without a limit (see :func:`mark_of`); after other errors at most
        ``topology.emulator.restarts.max`` times in a row.
    """

    retriable = False


class TopologyError(DskypeError):
    """Base of every error raised by the emulator.

    :param args: the text, or what opens it; the other parameters are those of :func:`explain`.
    """

    def __init__(self, *args: Any, given: Any = _NOT_GIVEN, component: str | None = None, legal: str | None = None, hint: str | None = None) -> None:
        if len(args) == 1 and isinstance(args[0], str):
            args = (explain(args[0], given=given, component=component, legal=legal, hint=hint),)
        super().__init__(*args)


class FatalError(TopologyError):
    """A retry cannot help: the topology ends, says why, and keeps its state.

    Any other error in an executor restarts the component's query.
    """


FATAL_MARK, RETRIABLE_MARK = "[cannot go on]", "[try again]"


def mark_of(error: BaseException) -> str:
    """Return the code that precedes an error's text on its way from an executor to the driver; empty for most errors.

    Spark carries only the text of an error. The driver reads the code with :func:`text_after`.
    """
    if isinstance(error, FatalError):
        return FATAL_MARK
    return RETRIABLE_MARK if getattr(error, "retriable", False) else ""


def text_after(mark: str, text: str) -> str | None:
    """Return the line behind ``mark`` in the text that Spark made of an executor's error; None if the mark is not in it."""
    _, found, rest = text.partition(mark)
    return rest.strip().split("\n")[0].strip() if found else None


def code_of(error: BaseException) -> str:
    """Return the code under which dead letters with this error are counted: that of a :class:`DeadLetter`, else the name of the error's class."""
    return error.code if isinstance(error, DeadLetter) else type(error).__name__


class IllegalArgumentException(TopologyError, ValueError):
    """An argument is not acceptable."""


class IllegalStateException(TopologyError, RuntimeError):
    """An object's state does not allow the call."""


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
    """Raise from ``KafkaSpout.translate`` to send an unusable record to the dead letters.

    :param reason: one sentence; becomes the ``error`` header of the dead letter.
    :param code: one or a few words for all records with this problem, for example ``invalid-lat``; becomes the ``code`` header, and the
        label under which metrics count. Default: ``unusable``.
    """

    def __init__(self, reason: str = "", code: str = "unusable") -> None:
        super().__init__(reason)
        self.reason, self.code = reason, code
