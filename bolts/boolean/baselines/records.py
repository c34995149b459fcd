"""What indexes over subscription records have in common: records, growth, snapshots."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dskype.bolts.boolean.base import BooleanIndex, box_of
from dskype.bolts.boolean.baselines import record_kernels as kernels
from dskype.bolts.boolean.programs import AND, compile_expression
from dskype.spouts.batch import MessageBatch
from dskype.topology.errors import IllegalArgumentException, explain

__all__ = ["RecordIndex", "enlarged"]

_FORMAT = 1
_MOST_WORDS = 2**31


class RecordIndex(BooleanIndex):
    """Holds one record per subscription (see :mod:`~dskype.bolts.boolean.baselines.record_kernels`), and files records in postings of its own.

    A subclass files with a kernel that can go on where it stopped: it returns what is lacking, :meth:`_grow` makes room, and the kernel is
    called again. Memory: 4 bytes per slot, 48 and 8 per step of the program for each record, and the subclass's postings.
    """

    def __init__(self, options: Mapping[str, Any] | None = None) -> None:
        super().__init__(options)
        self._clear()

    def _clear(self) -> None:
        words = np.zeros(64, np.int64)
        self._records = kernels.Records(words, words.view(np.float64), np.full(16, -1, np.int32), np.full(128, -1, np.int64), np.zeros(2, np.int64))

    def __len__(self) -> int:
        return int(self._records.counters[kernels.LIVE])

    # -- what a subclass implements -----------------------------------------------------------------------------------

    @abstractmethod
    def _file(self, batch: kernels.Batch, progress: np.ndarray) -> tuple[int, int]:
        """File a batch from where ``progress`` (int64[3], all 0 at first) says; return what is lacking and how much, (0, 0) at the end."""

    @abstractmethod
    def _grow(self, what: int, need: int) -> None:
        """Make room for what is lacking."""

    @abstractmethod
    def _unfile(self, slots: np.ndarray) -> None:
        """Take live subscriptions out."""

    @abstractmethod
    def _match(self, messages: tuple[np.ndarray, ...]) -> tuple[np.ndarray, np.ndarray]:
        """Match points: latitudes, longitudes, offsets, terms."""

    @abstractmethod
    def _match_areas(self, messages: tuple[np.ndarray, ...]) -> tuple[np.ndarray, np.ndarray]:
        """Match areas: float64[n, 4], offsets, terms."""

    # -- changes ------------------------------------------------------------------------------------------------------

    def insert_many(self, slots: Sequence[int] | np.ndarray, boxes: np.ndarray, expressions: Sequence[Any]) -> None:
        """Put subscriptions in; see :meth:`BooleanIndex.insert_many`."""
        n = len(expressions)
        compiled = [compile_expression(expression) for expression in expressions]
        offsets = np.zeros(n + 1, np.int64)
        np.cumsum([len(program) for _, program in compiled], out=offsets[1:])
        programs = np.fromiter((step for _, program in compiled for step in program), np.int64, int(offsets[-1]))
        self._insert(np.asarray(slots, np.int64), box_of(boxes, n), np.array([kind for kind, _ in compiled], np.int8), offsets, programs)

    def insert_conjunctions(self, slots: Sequence[int] | np.ndarray, boxes: np.ndarray, offsets: np.ndarray, terms: np.ndarray) -> None:
        """Put conjunctions in; see :meth:`BooleanIndex.insert_conjunctions`. Takes no time in Python if terms rise and are there once."""
        n, ends, steps = len(offsets) - 1, np.asarray(offsets, np.int64), np.asarray(terms, np.int64)
        rising = np.ones(len(steps) + 1, bool)
        rising[1:-1] = steps[1:] > steps[:-1]
        rising[ends] = True
        if (np.diff(ends) < 1).any() or not rising[ends[0] : ends[-1]].all():
            super().insert_conjunctions(slots, boxes, offsets, steps)
        else:
            self._insert(np.asarray(slots, np.int64), box_of(boxes, n), np.full(n, AND, np.int8), ends, steps)

    def _insert(self, slots: np.ndarray, boxes: np.ndarray, kinds: np.ndarray, offsets: np.ndarray, programs: np.ndarray) -> None:
        n = len(slots)
        if n != len(kinds):
            raise IllegalArgumentException(explain("Each subscription needs a slot.", given=f"{n} slots for {len(kinds)} subscriptions"))
        if n == 0:
            return
        blocks = self._records.blocks
        inside = slots[(slots >= 0) & (slots < len(blocks))]
        if slots.min() < 0 or slots.max() >= 2**31 or (blocks[inside] >= 0).any() or len(np.unique(slots)) != n:
            taken = [s for s in slots.tolist() if self._has(s)]
            raise IllegalArgumentException(explain("A slot must be free, and be given once.", given=taken or slots.tolist(), legal="free ones, 0 to 2**31 - 1"))
        high = int(slots.max())
        if high >= len(blocks):
            self._records = self._records._replace(blocks=enlarged(blocks, max(high + 1, len(blocks) * 5 // 4), -1))
        batch, progress = kernels.Batch(*map(_frozen, (slots, boxes, kinds, offsets, programs))), np.zeros(3, np.int64)
        while True:
            what, need = self._file(batch, progress)
            if not what:
                return
            self._grow(int(what), int(need))

    def _grow_words(self, need: int) -> None:
        records = self._records
        size = max(int(records.counters[kernels.USED]) + need, len(records.words) * 5 // 4)
        if size >= _MOST_WORDS:
            raise IllegalArgumentException(
                explain(f"A boolean index {self.name!r} can hold no more.", given=f"{len(self)} subscriptions", hint="use more tasks")
            )
        words = enlarged(records.words, size, 0)
        self._records = records._replace(words=words, floats=words.view(np.float64))

    def _has(self, slot: int) -> bool:
        return 0 <= slot < len(self._records.blocks) and bool(self._records.blocks[slot] >= 0)

    def remove_many(self, slots: Sequence[int] | np.ndarray) -> None:
        """Take subscriptions out; see :meth:`BooleanIndex.remove_many`."""
        array = np.asarray(slots, np.int64)
        if len(array) == 0:
            return
        outside = array.min() < 0 or array.max() >= len(self._records.blocks)
        if outside or (self._records.blocks[array] < 0).any() or len(np.unique(array)) != len(array):
            listed = array.tolist()
            missing = [s for s in listed if not self._has(s)]
            raise IllegalArgumentException(explain("A slot must hold a subscription, and be given once.", given=missing or listed))
        self._unfile(_frozen(array))

    # -- matching -----------------------------------------------------------------------------------------------------

    def match(self, messages: MessageBatch) -> tuple[np.ndarray, np.ndarray]:
        """Return the matches; see :meth:`BooleanIndex.match`."""
        if messages.areas is not None:
            return self._match_areas(tuple(map(_frozen, (messages.areas, messages.offsets, messages.terms))))
        return self._match(tuple(map(_frozen, (messages.lat, messages.lon, messages.offsets, messages.terms))))

    # -- state --------------------------------------------------------------------------------------------------------

    @property
    def memory_bytes(self) -> int:
        """What the arrays take; two views of the same memory count once."""
        return sum(array.nbytes for part in self._parts() for array in part if array.base is None)

    def _parts(self) -> tuple[tuple[np.ndarray, ...], ...]:
        """Return the tuples of arrays that the index consists of."""
        return (self._records,)

    def snapshot(self) -> dict[str, Any]:
        """Return slots, boxes and programs; postings are made again."""
        records = self._records
        slots = np.flatnonzero(records.blocks >= 0)
        starts = records.blocks[slots].astype(np.int64)
        heads = records.words[starts]
        lengths = (heads & 0xFFFFFFFF) >> 2
        offsets = np.zeros(len(slots) + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        places = np.arange(offsets[-1]) + np.repeat(starts + kernels.HEAD - offsets[:-1], lengths)
        boxes = records.floats[starts[:, None] + np.arange(kernels.WEST, kernels.HEAD)]
        return {"format": _FORMAT, "slots": slots, "boxes": boxes, "kinds": (heads & 3).astype(np.int8), "offsets": offsets, "programs": records.words[places]}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over a state."""
        if state["format"] != _FORMAT:
            raise IllegalArgumentException(explain("A snapshot of a boolean index has another format.", given=state["format"], legal=str(_FORMAT)))
        self._clear()
        self._insert(state["slots"], state["boxes"], state["kinds"], state["offsets"], state["programs"])

    # -- checks -------------------------------------------------------------------------------------------------------

    def _check_records(self, named: Mapping[int, int]) -> set[int]:
        """Verify the records, given how many postings name each; return the dead ones."""
        records = self._records
        live = np.flatnonzero(records.blocks >= 0).tolist()
        assert len(live) == len(self)
        blocks = {}
        for slot in live:
            record = int(records.blocks[slot])
            assert int(kernels.slot_of(records, record)) == slot
            blocks[record] = kernels.size_of_class(kernels.size_class(kernels.HEAD + int(kernels.length_of(records, record))))
        dead = set(named) - set(blocks)
        for record in dead:
            assert int(kernels.slot_of(records, record)) == -1
            blocks[record] = kernels.size_of_class(kernels.size_class(kernels.HEAD + int(kernels.length_of(records, record))))
        for found, head in enumerate(records.free.tolist()):
            while head >= 0:
                assert head not in blocks
                blocks[head] = kernels.size_of_class(found)
                head = int(records.words[head])
        at = 0
        for start in sorted(blocks):
            assert start == at, (start, at)
            at += blocks[start]
        assert at == int(records.counters[kernels.USED]) <= len(records.words)
        return dead


def enlarged(array: np.ndarray, size: int, fill: float) -> np.ndarray:
    """Return an array of ``size`` rows that begins with ``array``; the others hold ``fill``."""
    larger = np.empty((size, *array.shape[1:]), array.dtype)
    larger[: len(array)] = array
    larger[len(array) :] = fill
    return larger


def _frozen(array: np.ndarray) -> np.ndarray:
    """Return a read-only view: kernels are compiled once, whether what is given can be written to or not."""
    view = np.ascontiguousarray(array).view()
    view.flags.writeable = False
    return view
