"""What distribution tasks tell each other about routing terms (stream ``interest``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

__all__ = ["InterestAdded", "InterestEnded", "InterestKnown", "InterestMessage", "decode_interest"]


class InterestAdded(NamedTuple):
    """Pairs that a distribution task needs from now on: term ``terms[i]`` in region ``regions[i]``.

    :ivar number: of the announcement, from 1, rising by 1 for each task.
    :ivar regions: int32[n]; ``terms``: int64[n]; each pair once.
    """

    number: int
    regions: Any
    terms: Any
    kind = "added"


class InterestKnown(NamedTuple):
    """The answer to :class:`InterestAdded`.

    :ivar number: of the announcement.
    :ivar withheld: the highest position of a message that these regions may have missed here; -1: there was none.
    """

    number: int
    withheld: int
    kind = "known"


class InterestEnded(NamedTuple):
    """Pairs that a distribution task needs no more for messages with a position above ``at``, its watermark."""

    at: int
    regions: Any
    terms: Any
    kind = "ended"


InterestMessage = InterestAdded | InterestKnown | InterestEnded

_INTEREST_MESSAGES: dict[str, Any] = {message.kind: message for message in (InterestAdded, InterestKnown, InterestEnded)}


def decode_interest(kind: str, record: Sequence[Any]) -> InterestMessage:
    """Return the message in a row of the stream ``interest``; the record is the plain tuple."""
    return _INTEREST_MESSAGES[kind](*record)
