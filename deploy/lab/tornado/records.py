"""What indexes over subscription records have in common: records, growth, snapshots. And the one that has nothing else."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping

import numpy as np

from dskype.bolts.arrays import enlarged
from dskype.bolts.boolean.compiled import CompiledIndex
from dskype.bolts.boolean.program_kernels import Batch
from dskype.deploy.lab.tornado import record_kernels as kernels
from dskype.spouts.batch import MessageBatch
from dskype.spouts.columns import read_only
from dskype.topology.errors import IllegalArgumentException, explain

__all__ = ["RecordIndex", "ScanIndex"]

_MOST_WORDS = 2**31


class RecordIndex(CompiledIndex):
    """Holds one record per subscription (see :mod:`~dskype.deploy.lab.tornado.record_kernels`), and files records in postings of its own.

    A subclass files with a kernel that can continue where it stopped: the kernel returns what is lacking, :meth:`_grow` makes room, and the kernel is
    called again. Memory: 4 bytes per slot, 48 and 8 per step of the program for each record, and the subclass's postings.
    """

    def _clear(self) -> None:
        words = np.zeros(64, np.int64)
        self._records = kernels.Records(words, words.view(np.float64), np.full(16, -1, np.int32), np.full(128, -1, np.int64), np.zeros(2, np.int64))

    def __len__(self) -> int:
        return int(self._records.counters[kernels.LIVE])

    # -- what a subclass implements -----------------------------------------------------------------------------------

    @abstractmethod
    def _file(self, batch: Batch, progress: np.ndarray) -> tuple[int, int]:
        """File a batch from where ``progress`` (int64[3], all 0 at first) says; return what is lacking and how much, (0, 0) at the end."""

    @abstractmethod
    def _grow(self, what: int, need: int) -> None:
        """Make room for what is lacking."""

    @abstractmethod
    def _match(self, rectangles: np.ndarray, points: bool, offsets: np.ndarray, terms: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Match messages.

        :param rectangles: float64[n, 4].
        :param points: whether all of them are points.
        """

    # -- changes ------------------------------------------------------------------------------------------------------

    def _by_slot(self) -> tuple[np.ndarray, int]:
        return self._records.blocks, -1

    def _insert(self, batch: Batch) -> None:
        blocks, high = self._records.blocks, int(batch.slots.max())
        if high >= len(blocks):
            self._records = self._records._replace(blocks=enlarged(blocks, max(high + 1, len(blocks) * 5 // 4), -1))
        progress = np.zeros(3, np.int64)
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

    # -- matching -----------------------------------------------------------------------------------------------------

    def match(self, messages: MessageBatch) -> tuple[np.ndarray, np.ndarray]:
        """Return the matches; see :meth:`~dskype.bolts.boolean.base.BooleanIndex.match`."""
        return self._match(read_only(messages.rectangles()), messages.areas is None, read_only(messages.offsets), read_only(messages.terms))

    # -- state --------------------------------------------------------------------------------------------------------

    @property
    def memory_bytes(self) -> int:
        """What the arrays take; two views of the same memory count once."""
        return sum(array.nbytes for part in self._parts() for array in part if array.base is None)

    def _parts(self) -> tuple[tuple[np.ndarray, ...], ...]:
        """Return the tuples of arrays that the index consists of."""
        return (self._records,)

    def _compiled(self, slots: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        records = self._records
        starts = records.blocks[slots].astype(np.int64)
        heads = records.words[starts]
        lengths = (heads & 0xFFFFFFFF) >> 2
        offsets = np.zeros(len(slots) + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        places = np.arange(offsets[-1]) + np.repeat(starts + kernels.HEAD - offsets[:-1], lengths)
        return records.floats[starts[:, None] + np.arange(kernels.WEST, kernels.HEAD)], (heads & 3).astype(np.int8), offsets, records.words[places]

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


class ScanIndex(RecordIndex):
    """No index: every message looks at every subscription, as the native implementation on Storm that Tornado is compared with (section 5.1).

    Insert and remove: O(1); match: O(subscriptions).
    """

    name = "scan"

    def _file(self, batch: Batch, progress: np.ndarray) -> tuple[int, int]:
        return kernels.create_all(self._records, batch, progress)

    def _grow(self, what: int, need: int) -> None:
        self._grow_words(need)

    def _remove(self, slots: np.ndarray) -> None:
        kernels.kill_all(self._records, slots)

    def _match(self, rectangles: np.ndarray, points: bool, offsets: np.ndarray, terms: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return kernels.scan(self._records, rectangles, points, offsets, terms)

    def _check(self) -> None:
        """Verify the records."""
        self._check_records({})
