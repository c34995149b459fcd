"""The store of result buffers: state and entries by slot, and a calendar of expiry."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np

from dskype.bolts import array_kernels
from dskype.bolts.arrays import BlockPool, grown
from dskype.bolts.ranked_lists import RankedLists
from dskype.bolts.topk.base import Matches
from dskype.bolts.topk.buffers import _kernels as kernels
from dskype.bolts.topk.buffers import step_kernels as steps
from dskype.spouts.batch import MessageBatch
from dskype.spouts.columns import read_only

__all__ = ["BufferStore", "readable_lists"]

_PERIODS = 1 << 16
_KEPT = 1 << 18
"""A log with room for more changes is replaced by a small one after use."""


def readable_lists(lists: RankedLists) -> RankedLists:
    """Return lists as kernels take them."""
    return RankedLists(
        read_only(lists.offsets, np.int64), read_only(lists.seqs, np.int64), read_only(lists.positions, np.int64), read_only(lists.scores, np.float64)
    )


class BufferStore:
    """State, k, theta and entries (seq, position, score) by slot, and a calendar of the oldest entries.

    ``pool.block`` has a row per slot, see :data:`dskype.bolts.topk.buffers._kernels.Buffers`. The block of an active slot holds its buffer
    in rank order; that of a pending slot holds its frozen list, and behind it the collected messages in order of arrival. Kernels change
    ``arrays`` and ``calendar`` in place; they never allocate arrays that outlive them.

    The calendar has for every active slot with entries a lower bound of their positions. It finds the next expiry in O(1), without looking
    at other slots.

    :param extent: extent of the window.
    """

    def __init__(self, extent: int) -> None:
        self.extent = int(extent)
        self.ending = False
        """Whether messages may end before they leave the window; then pending slots forget less."""
        # In a count window positions are seqs. One array serves for both until a position differs from its seq.
        self.pool = BlockPool({"seq": np.int64, "score": np.float64}, columns=16, dtype=np.int32)
        shift = max(0, (-(-extent // _PERIODS) - 1).bit_length())
        periods = 1 << ((int(extent) >> shift) + 2).bit_length()
        self.calendar = kernels.Calendar(
            np.full((periods, 2), -1, np.int32),
            np.zeros((0, kernels.SLOTS + 1), np.int32),
            np.zeros(0, np.int32),
            np.array([0, 0, 0, -1, shift, -1, 0], np.int64),
        )
        self._log = kernels.new_log(1024)
        self._scratch = [np.empty(256, dtype) for dtype in (np.int64, np.int64, np.float64, np.int64, np.float64)]  # see ``steps.Work``
        self._due, self._marked = np.empty(64, np.int32), np.empty(64, np.int32)

    # -- for kernels

    @property
    def apart(self) -> bool:
        """Whether positions have an array of their own."""
        return "position" in self.pool.fields

    @property
    def arrays(self) -> kernels.Buffers:
        """The arrays as kernels take them."""
        pool = self.pool
        position = pool.position if self.apart else pool.seq
        return kernels.Buffers(pool.block, pool.block.view(np.int64), pool.block.view(np.float64), pool.seq, position, pool.score, pool.cursor)

    @property
    def theta(self) -> np.ndarray:
        """Thresholds by slot (float64[]): a view."""
        return self.pool.block.view(np.float64)[:, kernels.THETA]

    def expect(self, seqs: np.ndarray, positions: np.ndarray) -> None:
        """Prepare for entries with these seqs and positions."""
        if not self.apart and not np.array_equal(seqs, positions):
            self.pool.split("position", "seq")

    def advance(
        self, messages: MessageBatch, matches: Matches, before: int, watermark: int, skyband: bool, ended: np.ndarray | None = None
    ) -> tuple[tuple[np.ndarray, ...], np.ndarray, np.ndarray]:
        """Implement :meth:`ResultBuffers.apply`; return changes, due slots, and slots whose threshold has changed.

        :param before: the previous watermark.
        :param skyband: whether buffers are skybands; else they are *kmax*.
        """
        seq, position, rows = read_only(messages.seq, np.int64), read_only(messages.position, np.int64), kernels.Rows(*matches)
        if ended is None:
            self.expect(seq, position)
        else:
            self.expect(seq[~ended], position[~ended])
            rows = rows._replace(score=np.where(ended[rows.message], np.nan, rows.score))
        if (position[1:] == position[:-1]).any():
            rows = steps.by_slot(position, rows)
        arrivals = steps.Arrivals(seq, position, *(read_only(array, array.dtype) for array in rows))
        at = np.zeros(steps.SINK + 1, np.int64)
        at[steps.NOW] = before
        while True:
            work = steps.Work(at, self._due, self._marked, *self._scratch)
            stop = steps.advance(self.arrays, self.calendar, work, self._log, arrivals, self.extent, watermark, self.apart, skyband, self.ending)
            if stop == steps.DONE:
                break
            need = int(at[steps.NEED])
            if stop == steps.NO_ENTRIES:
                self.pool.make_room(need)
            elif stop == steps.NO_CHANGES:
                self._log = kernels.grow_log(self._log, at[steps.CHANGED], need)
            elif stop == steps.NO_SPACE:
                self._scratch = [np.empty(2 * need, array.dtype) for array in self._scratch]
            elif stop == steps.NO_PAGES:
                self._spare_pages(len(self.calendar.pages) // 2 + 64)
            else:
                self._due, self._marked = (np.resize(array, 2 * len(array)) for array in (self._due, self._marked))
        marked = np.sort(self._marked[: at[steps.MARKS]])
        self.pool.block[marked, kernels.MARKED] = 0
        changes = tuple(column[: at[steps.CHANGED]].copy() for column in self._log)
        if len(self._log.slot) > _KEPT:
            self._log = kernels.new_log(1024)
        return changes, self._due[: at[steps.DUES]].copy(), marked

    def expect_dates(self, n: int) -> None:
        """Prepare for ``n`` slots to be entered into the calendar."""
        self._spare_pages(min(n, len(self.calendar.head)) + n // kernels.SLOTS + 1)

    def _spare_pages(self, n: int) -> None:
        size = self.calendar.size
        more = n - int(size[kernels.SPARES])
        if more > 0:
            had = len(self.calendar.pages)
            pages = np.empty((had + more, kernels.SLOTS + 1), np.int32)
            pages[:had] = self.calendar.pages
            pages[had:, kernels.LINK] = np.arange(had + 1, had + more + 1)
            pages[-1, kernels.LINK] = size[kernels.SPARE]
            size[kernels.SPARE], size[kernels.SPARES] = had, n
            self.calendar = self.calendar._replace(pages=pages)

    # -- for buffers

    def open(self, slots: np.ndarray, k: np.ndarray, limits: np.ndarray, complete: bool) -> None:
        """Start empty buffers; O(slots)."""
        had = len(self.pool.block)
        self.pool.widen(int(slots.max(initial=-1)) + 1)
        n = len(self.pool.block)
        self.theta[had:] = np.inf
        self.calendar = self.calendar._replace(near=grown(self.calendar.near, n, -1))
        block = self.pool.block
        block[slots] = 0
        block[slots, kernels.K], block[slots, kernels.LIMIT] = k, np.minimum(limits, np.iinfo(np.int32).max)
        block[slots, kernels.STATE] = kernels.ACTIVE if complete else kernels.PENDING
        block.view(np.int64)[slots, kernels.KEY] = kernels.FAR
        self.theta[slots] = -np.inf

    def close(self, slots: np.ndarray) -> None:
        """Forget slots; O(slots)."""
        self.pool.release(slots)
        kernels.leave_dates(self.calendar, self.arrays, slots)
        self.pool.block[slots, kernels.STATE] = kernels.FREE
        self.theta[slots] = np.inf

    def collect(self, slots: np.ndarray) -> None:
        """Make due slots pending."""
        self.pool.block[slots, kernels.STATE] = kernels.PENDING
        self.theta[slots] = -np.inf

    def published(self, slots: np.ndarray) -> RankedLists:
        """Return the published lists; O(k) each."""
        block = self.pool.block[slots]
        active = block[:, kernels.STATE] == kernels.ACTIVE
        return self._lists(block[:, kernels.START], np.where(active, np.minimum(block[:, kernels.K], block[:, kernels.LENGTH]), block[:, kernels.FROZEN]))

    def sizes(self, slots: np.ndarray) -> np.ndarray:
        """Return how many entries the buffers hold (int64[n])."""
        return self.pool.block[slots, kernels.LENGTH] - self.pool.block[slots, kernels.FROZEN]

    def snapshot(self, expired: int) -> dict[str, Any]:
        """Return state, k, theta and entries of all slots in use; pending slots first drop the messages that they may forget.

        :param expired: positions up to this one have left the window.
        """
        block = self.pool.block
        slots = np.flatnonzero(block[:, kernels.STATE] != kernels.FREE)
        kernels.drop_hopeless_all(self.arrays, slots, expired, self.ending)
        rows = block[slots]
        entries = self._lists(rows[:, kernels.START], rows[:, kernels.LENGTH])
        k, limit, frozen = (rows[:, column].copy() for column in (kernels.K, kernels.LIMIT, kernels.FROZEN))
        return {
            "slots": slots.astype(np.int32),
            "k": k,
            "limit": limit,
            "state": rows[:, kernels.STATE].astype(np.int8),
            "frozen": frozen,
            "theta": self.theta[slots],
            "offsets": entries.offsets,
            "seqs": entries.seqs,
            "positions": entries.positions,
            "scores": entries.scores,
        }

    def restore(self, state: Mapping[str, Any], expired: int) -> None:
        """Fill an empty store; arrays may be read-only."""
        self.calendar.size[kernels.PERIOD] = max(-1, expired >> int(self.calendar.size[kernels.SHIFT]))
        slots = np.array(state["slots"])
        if not len(slots):
            return
        self.open(slots, state["k"], state["limit"], complete=False)
        self.expect(state["seqs"], state["positions"])
        offsets = read_only(state["offsets"], np.int64)
        block, lengths = self.pool.block, np.diff(offsets)
        self.pool.reserve(slots, lengths)
        block[slots, kernels.LENGTH], block[slots, kernels.STATE], block[slots, kernels.FROZEN] = lengths, state["state"], state["frozen"]
        self.theta[slots] = state["theta"]
        arrays = self.arrays
        for entries, array in ((state["seqs"], arrays.seq), (state["positions"], arrays.position), (state["scores"], arrays.score)):
            array_kernels.copy_ranges(read_only(entries, array.dtype), offsets[:-1], lengths, block[slots, kernels.START], array)
        self.expect_dates(len(slots))
        kernels.enter_oldest(arrays, self.calendar, slots)

    @property
    def memory_bytes(self) -> int:
        """Bytes of all arrays."""
        return self.pool.memory_bytes + sum(a.nbytes for a in (*self.calendar, *self._log, *self._scratch, self._due, self._marked))

    def _lists(self, starts: np.ndarray, lengths: np.ndarray) -> RankedLists:
        offsets = np.zeros(len(lengths) + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        seqs, scores = self.pool.gather(starts, lengths, "seq", "score")
        return RankedLists(offsets, seqs, self.pool.gather(starts, lengths, "position")[0] if self.apart else seqs.copy(), scores)

    def _check(self, watermark: int, extent: int) -> None:
        """Verify the invariants of all kinds of buffers."""
        self.pool._check()
        assert not self.pool.block[:, kernels.MARKED].any() and not self.pool.block.ctypes.data % 64
        calendar, dated, keys = self.calendar, set(), self.arrays.long[:, kernels.KEY]
        first, last, late, period, shift, spare, spares = calendar.size.tolist()
        written = 0
        for at in np.flatnonzero(calendar.head[:, kernels.PAGE] >= 0).tolist():
            page, fill = calendar.head[at].tolist()
            while page >= 0:
                assert 0 < fill <= kernels.SLOTS
                for slot in calendar.pages[page, :fill].tolist():
                    key = int(keys[slot])
                    assert key >> shift > period and key >> shift & len(calendar.head) - 1 == at
                    dated.add((slot, key))
                written += 1
                page, fill = int(calendar.pages[page, kernels.LINK]), kernels.SLOTS
        while spare >= 0:
            written, spares, spare = written + 1, spares - 1, int(calendar.pages[spare, kernels.LINK])
        assert spares == 0 and written == len(calendar.pages)
        run, heap = ([(int(keys[slot]), slot) for slot in calendar.near[a:b].tolist()] for a, b in ((first, last), (0, late)))
        assert run == sorted(run) and (late <= first or first == last) and all(heap[(i - 1) // 2] < heap[i] for i in range(1, late))
        assert len({*run, *heap}) == len(run) + len(heap)
        for key, slot in run + heap:
            assert watermark - extent < key and key >> shift <= period
            dated.add((slot, key))
        arrays = self.arrays
        assert len(dated) == (keys[: len(self.pool.block)][arrays.block[:, kernels.STATE] != kernels.FREE] != kernels.FAR).sum()
        free = arrays.block[:, kernels.STATE] == kernels.FREE
        assert not arrays.block[free, kernels.LENGTH].any() and (self.theta[free] == np.inf).all()
        used = np.flatnonzero(~free)
        columns = (used, arrays.block[used, : kernels.MARKED], self.theta[used], keys[used])
        for slot, (start, length, _, frozen, k, limit, state), theta, key in zip(*(column.tolist() for column in columns)):
            entries = list(zip(*(a[start : start + length].tolist() for a in (arrays.score, arrays.position, arrays.seq))))
            listed = entries[:frozen] if state != kernels.ACTIVE else entries
            assert all(a > b for a, b in itertools.pairwise(listed)), (slot, listed)
            assert len({seq for _, _, seq in listed}) == len(listed)
            if state == kernels.ACTIVE:
                assert 1 <= k <= limit and frozen == 0
                assert length >= k or theta == -np.inf, (slot, length, k, theta)
                assert all(score >= theta and watermark - extent < position <= watermark for score, position, _ in entries)
                assert not entries or (key <= min(position for _, position, _ in entries) and (slot, key) in dated)
                assert length or key == kernels.FAR
            else:
                assert state == kernels.PENDING and theta == -np.inf and frozen <= k and key == kernels.FAR
                collected = [(position, seq) for _, position, seq in entries[frozen:]]
                assert collected == sorted(collected)
