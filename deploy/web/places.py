"""Where a client of the results is: a place in each partition of the topics, as the text that ``Last-Event-ID`` carries."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

from dskype.spouts.topics import Topics
from dskype.topology.errors import IllegalArgumentException

__all__ = ["LETTERS", "Place", "Places"]

LETTERS = {"r": "results", "m": "matches", "a": "registrations", "d": "dead_letters"}
"""Letter -> topic, by its name in :class:`~dskype.spouts.topics.Topics`."""

_PLACE = re.compile(r"([a-z])(\d{1,6}):(\d{1,18})(?:\.(\d{1,9}))?")

T = TypeVar("T")


class Place(NamedTuple):
    """A place in a partition: the next record, and how many results of it the client has already (of grouped matches, a record has many)."""

    offset: int
    taken: int = 0

    def left_of(self, offset: int, found: Sequence[T]) -> Iterator[tuple[T, Place]]:
        """Yield what a client at this place has not had of a record, each with the place behind it.

        :param offset: of the record.
        :param found: what the record has for the client, in order.
        """
        if offset < self.offset:
            return
        taken = self.taken if self.offset == offset else 0
        for number, one in enumerate(found[taken:], taken + 1):
            yield one, Place(offset, number) if number < len(found) else Place(offset + 1)


class Places(dict[tuple[str, int], Place]):
    """(topic, partition) -> place. Change it by item only: each partition's part of the text is written when its place changes, and not for every event."""

    _parts: dict[tuple[str, int], str] | None = None
    _letters: Mapping[str, str] = {}

    def __setitem__(self, where: tuple[str, int], place: Place) -> None:
        super().__setitem__(where, place)
        if self._parts is not None:
            if where in self._parts:
                self._parts[where] = self._part(where, place)
            else:
                self._parts = None

    @classmethod
    def of(cls, offsets: Mapping[tuple[str, int], int]) -> Places:
        """Return the places of offsets."""
        return cls({where: Place(offset) for where, offset in offsets.items()})

    @classmethod
    def parse(cls, text: str, topics: Topics) -> Places:
        """Parse what :meth:`text` wrote.

        :raises IllegalArgumentException: it is something else.
        """
        found = cls()
        for part in text.split(","):
            match = _PLACE.fullmatch(part)
            if match is None or match[1] not in LETTERS:
                raise IllegalArgumentException("Last-Event-ID does not name a place in the results.", given=text[:100], legal="the id of an event of this path")
            found[getattr(topics, LETTERS[match[1]]), int(match[2])] = Place(int(match[3]), int(match[4] or 0))
        return found

    def text(self, topics: Topics) -> str:
        """Return the places as a text without spaces."""
        if self._parts is None:
            self._letters = {getattr(topics, name): letter for letter, name in LETTERS.items()}
            self._parts = {where: self._part(where, place) for where, place in sorted(self.items())}
        return ",".join(self._parts.values())

    def _part(self, where: tuple[str, int], at: Place) -> str:
        return f"{self._letters[where[0]]}{where[1]}:{at.offset}" + (f".{at.taken}" if at.taken else "")

    def within(self, partitions: Collection[tuple[str, int]]) -> Places:
        """Return the places in these partitions. Whoever names places may name partitions that do not exist."""
        return Places({where: place for where, place in self.items() if where in partitions})

    def offsets(self) -> dict[tuple[str, int], int]:
        """Return (topic, partition) -> offset of the next record."""
        return {where: place.offset for where, place in self.items()}

    def reached(self, others: Places) -> bool:
        """Tell whether no place is before the one in ``others``."""
        return all(self.get(where, Place(0)).offset >= other.offset for where, other in others.items())

    def advance(self, others: Iterable[tuple[tuple[str, int], Place]]) -> None:
        """Go on to the places that are farther."""
        for where, place in others:
            if where not in self or place > self[where]:
                self[where] = place
