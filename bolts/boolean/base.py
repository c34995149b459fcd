"""Boolean subscriptions (a rectangle and a keyword expression): the contract of their indexes."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from dskype.spouts.batch import MessageBatch
from dskype.topology.errors import IllegalArgumentException

__all__ = ["BooleanIndex", "arrays_bytes", "box_of", "foreign_snapshot"]


class BooleanIndex(ABC):
    """Finds the boolean subscriptions that messages satisfy.

    A subscription lives in a *slot*, a small number that the caller chooses; memory is in proportion to the highest one, so
    slots of removed subscriptions should be used again. A message satisfies a subscription if its place and the rectangle share a point
    (borders included; west > east crosses the antimeridian, in either) and its terms satisfy the expression. The place is a point, or
    a rectangle too: an area (:mod:`dskype.spouts.areas`). Term ids are int64: ranks by document frequency (0 is the rarest), negative
    ones for words that the vocabulary does not know.

    An index lives in one task, is used by one thread, and depends on nothing but its calls: the same calls give the same
    results, before and after ``snapshot``/``restore``.

    :param options: ``dskype.boolean.index.options``; an index names those it knows in ``OPTIONS``.
    :raises IllegalArgumentException: an unknown option.
    """

    name: ClassVar[str]
    OPTIONS: ClassVar[Mapping[str, str]] = {}
    """Option -> what it means."""

    def __init__(self, options: Mapping[str, Any] | None = None) -> None:
        self.options = dict(options or {})
        for key in self.options:
            if key not in self.OPTIONS:
                raise IllegalArgumentException(
                    f"An option of boolean index {self.name!r} is not known.", given=key, legal=", ".join(self.OPTIONS) or "no options"
                )

    # -- what an index implements -------------------------------------------------------------------------------------

    @abstractmethod
    def insert_many(self, slots: Sequence[int] | np.ndarray, boxes: np.ndarray, expressions: Sequence[Any]) -> None:
        """Put subscriptions in; all or, if it raises, none.

        :param slots: int[n], each free and given once.
        :param boxes: float64[n, 4]: west, south, east, north in degrees.
        :param expressions: ``term`` | ``["and", e, ...]`` | ``["or", e, ...]`` over int term ids.
        :raises IllegalArgumentException: a slot is taken or negative, a box is not finite, an expression is malformed.
        """

    @abstractmethod
    def remove_many(self, slots: Sequence[int] | np.ndarray) -> None:
        """Take subscriptions out; all or, if it raises, none.

        :raises IllegalArgumentException: a slot is free, or given twice.
        """

    @abstractmethod
    def match(self, messages: MessageBatch) -> tuple[np.ndarray, np.ndarray]:
        """Return which messages satisfy which subscriptions.

        ``messages.areas`` is None where all of them are points, which should cost nothing more. In a batch with areas, a point has
        the rectangle ``[lon, lat, lon, lat]``; ``lat`` and ``lon`` are not looked at there.

        :param messages: any number; positions, sequence numbers and weights are not looked at.
        :returns: (message int32[], slot int32[]): rows of the batch and slots, each pair once, sorted by message, then slot.
        """

    @abstractmethod
    def boxes(self, slots: np.ndarray) -> np.ndarray:
        """Return the rectangles of the subscriptions in ``slots`` (int[n], taken ones, in any order), float64[n, 4], as they were given."""

    @abstractmethod
    def snapshot(self) -> dict[str, Any]:
        """Return the state as plain values and arrays."""

    @abstractmethod
    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over a state, in place of what is there; its arrays may be read-only."""

    @abstractmethod
    def __len__(self) -> int:
        """Return how many subscriptions there are."""

    @abstractmethod
    def _by_slot(self) -> tuple[np.ndarray, int]:
        """Return an array by slot, and the value that it has for free slots."""

    # -- what it may override -----------------------------------------------------------------------------------------

    def insert(self, slot: int, bbox: Sequence[float], expression: Any) -> None:
        """Put one subscription in; see :meth:`insert_many`."""
        self.insert_many([slot], np.array([bbox], np.float64), [expression])

    def insert_conjunctions(self, slots: Sequence[int] | np.ndarray, boxes: np.ndarray, offsets: np.ndarray, terms: np.ndarray) -> None:
        """Put subscriptions in that ask for all of some terms, given as columns; the same as :meth:`insert_many` with ``["and", ...]``.

        :param offsets: int64[n + 1]; those of subscription *i* are ``terms[offsets[i]:offsets[i + 1]]``, at least one.
        :param terms: int64[].
        :raises IllegalArgumentException: as :meth:`insert_many` does.
        """
        ends = np.asarray(offsets).tolist()
        self.insert_many(slots, boxes, [["and", *terms[first:last].tolist()] for first, last in itertools.pairwise(ends)])

    def remove(self, slot: int) -> None:
        """Take one subscription out; see :meth:`remove_many`."""
        self.remove_many([slot])

    @property
    def memory_bytes(self) -> int:
        """What the index's arrays take."""
        return arrays_bytes(vars(self).values())

    # -- slots --------------------------------------------------------------------------------------------------------

    def _is_taken(self, slots: np.ndarray) -> np.ndarray:
        by_slot, free = self._by_slot()
        taken = np.zeros(len(slots), bool)
        there = (slots >= 0) & (slots < len(by_slot))
        taken[there] = by_slot[slots[there]] != free
        return taken

    def _free_slots(self, slots: Sequence[int] | np.ndarray, n: int) -> np.ndarray:
        """Return the slots of ``n`` new subscriptions as int64[n].

        :raises IllegalArgumentException: a slot is taken, negative or too large, or given twice, or there are not ``n``.
        """
        array = np.asarray(slots, np.int64)
        if len(array) != n:
            raise IllegalArgumentException("Each subscription needs a slot.", given=f"{len(array)} slots for {n} subscriptions")
        wrong = self._is_taken(array) | (array < 0) | (array >= 2**31)
        if wrong.any() or _has_repeats(array):
            given = array[wrong].tolist() or array.tolist()
            raise IllegalArgumentException("A slot must be free, and be given once.", given=given, legal="free ones, 0 to 2**31 - 1")
        return array

    def _taken_slots(self, slots: Sequence[int] | np.ndarray) -> np.ndarray:
        """Return slots of subscriptions that are to leave as int64[n].

        :raises IllegalArgumentException: a slot is free, or given twice.
        """
        array = np.asarray(slots, np.int64)
        free = ~self._is_taken(array)
        if free.any() or _has_repeats(array):
            raise IllegalArgumentException("A slot must hold a subscription, and be given once.", given=array[free].tolist() or array.tolist())
        return array

    def _check(self) -> None:
        """Verify all invariants; for tests.

        :raises AssertionError: one does not hold.
        """


def _has_repeats(slots: np.ndarray) -> bool:
    ordered = np.sort(slots)
    return bool((ordered[1:] == ordered[:-1]).any())


def foreign_snapshot(state: Mapping[str, Any], legal: int) -> IllegalArgumentException:
    """Return the error for a snapshot of another format, or of an index of another kind."""
    given = f"{state.get('format')} with {', '.join(sorted(map(str, state)))}"
    return IllegalArgumentException("A snapshot of a boolean index has another format.", given=given, legal=str(legal))


def arrays_bytes(values: Any) -> int:
    """Return the bytes of all arrays among ``values``, within containers too."""
    total = 0
    for value in values:
        if isinstance(value, np.ndarray):
            total += value.nbytes
        elif isinstance(value, (list, tuple)):
            total += arrays_bytes(value)
        elif isinstance(value, dict):
            total += arrays_bytes(value.values())
    return total


def box_of(boxes: Any, n: int) -> np.ndarray:
    """Return boxes as float64[n, 4].

    :raises IllegalArgumentException: another shape, or a value that is not finite.
    """
    array = np.asarray(boxes, np.float64).reshape(-1, 4) if n == 0 else np.asarray(boxes, np.float64)
    if array.shape != (n, 4) or not np.isfinite(array).all():
        raise IllegalArgumentException("Rectangles cannot be indexed.", given=boxes, legal=f"{n} times west, south, east, north, finite, in degrees")
    return array
