"""Where result buffers keep their entries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from dskype.bolts.topk.buffers import _kernels as kernels
from dskype.bolts.topk.pool import BlockPool, grown
from dskype.bolts.topk.table import readable

__all__ = ["BufferStore", "Lists"]

_PERIODS = 1 << 16


class Lists(NamedTuple):
    """One list of messages per slot, in rank order.

    :ivar offsets: int64[slots + 1]; list *i* is ``offsets[i]:offsets[i + 1]`` of the others.
    :ivar seqs: int64[].
    :ivar positions: int64[].
    :ivar scores: float64[].
    """

    offsets: np.ndarray
    seqs: np.ndarray
    positions: np.ndarray
    scores: np.ndarray


class BufferStore:
    """State, k, theta and entries (seq, position, score) by slot, and a calendar of the oldest entries.

    ``pool.block`` has a row per slot, see :data:`dskype.bolts.topk.buffers._kernels.Buffers`. An active slot's block holds its buffer
    in rank order; a pending one's its frozen list, and behind it what it has collected, in order of arrival. Kernels get ``arrays`` and
    ``calendar`` and change them in place; arrays that they had to replace are handed to :meth:`adopt`.

    The calendar knows for every active slot with entries a lower bound of their positions: what expires is found without a
    look at the others, in O(1).

    :param extent: of the window.
    """

    def __init__(self, extent: int) -> None:
        # In a count window positions are seqs: one array serves for both until a position is met that is not.
        self.pool = BlockPool({"seq": np.int64, "score": np.float64}, columns=8)
        self.theta = np.zeros(0)
        self.changed = np.zeros(0, np.bool_)        # scratch of kernels: which theta they have changed
        width = -(-extent // _PERIODS)
        periods = 1 << int(extent // width + 2).bit_length()
        none = np.zeros(0, np.int32)
        self.calendar = kernels.Calendar(np.full(periods, -1, np.int32), none, none, none, np.array([0, -1, width], np.int64))

    # -- for kernels

    @property
    def apart(self) -> bool:
        """Whether positions have an array of their own."""
        return "position" in self.pool.fields

    @property
    def arrays(self) -> kernels.Buffers:
        """The arrays as kernels take them."""
        pool = self.pool
        return kernels.Buffers(pool.block, self.theta, pool.seq, pool.position if self.apart else pool.seq, pool.score)

    def adopt(self, arrays: kernels.Buffers) -> None:
        """Take over the arrays of entries that a kernel returns."""
        self.pool.seq, self.pool.score = arrays.seq, arrays.score
        if self.apart:
            self.pool.position = arrays.position

    def expect(self, seqs: np.ndarray, positions: np.ndarray) -> None:
        """Prepare for entries with these seqs and positions."""
        if not self.apart and not np.array_equal(seqs, positions):
            self.pool.split("position", "seq")

    def take_changed(self) -> np.ndarray:
        """Return the slots whose theta kernels have changed (int32[], rising), and begin anew."""
        slots = np.flatnonzero(self.changed).astype(np.int32)
        self.changed[slots] = False
        return slots

    # -- for buffers

    def open(self, slots: np.ndarray, k: np.ndarray, limits: np.ndarray, complete: bool) -> None:
        """Start empty buffers; O(slots)."""
        n = int(slots.max(initial=-1)) + 1
        self.pool.widen(n)
        n = len(self.pool.block)
        self.theta, self.changed = grown(self.theta, n, np.inf), grown(self.changed, n, False)
        calendar = self.calendar
        self.calendar = calendar._replace(**{name: grown(getattr(calendar, name), n, -1) for name in ("next", "previous", "heap")})
        block = self.pool.block
        block[slots] = 0
        block[slots, kernels.K], block[slots, kernels.LIMIT], block[slots, kernels.KEY] = k, limits, kernels.FAR
        block[slots, kernels.STATE] = kernels.ACTIVE if complete else kernels.PENDING
        self.theta[slots] = -np.inf

    def close(self, slots: np.ndarray) -> None:
        """Forget slots; O(slots)."""
        self.pool.release(slots)
        kernels.leave_dates(self.calendar, self.pool.block, slots)
        self.pool.block[slots, kernels.STATE] = kernels.FREE
        self.theta[slots] = np.inf

    def collect(self, slots: np.ndarray) -> None:
        """Make due slots pending."""
        self.pool.block[slots, kernels.STATE] = kernels.PENDING
        self.theta[slots] = -np.inf

    def published(self, slots: np.ndarray) -> Lists:
        """Return the published lists; O(k) each."""
        block = self.pool.block[slots]
        active = block[:, kernels.STATE] == kernels.ACTIVE
        return self._lists(block[:, kernels.START],
                           np.where(active, np.minimum(block[:, kernels.K], block[:, kernels.LENGTH]), block[:, kernels.FROZEN]))

    def sizes(self, slots: np.ndarray) -> np.ndarray:
        """Return how many entries the buffers hold (int64[n])."""
        return self.pool.block[slots, kernels.LENGTH] - self.pool.block[slots, kernels.FROZEN]

    def snapshot(self, expired: int) -> dict[str, Any]:
        """Return state, k, theta and entries of all slots in use; pending ones first forget what they can.

        :param expired: positions up to this one have left the window.
        """
        block = self.pool.block
        slots = np.flatnonzero(block[:, kernels.STATE] != kernels.FREE)
        kernels.thin_all(self.arrays, slots, expired)
        rows = block[slots]
        entries = self._lists(rows[:, kernels.START], rows[:, kernels.LENGTH])
        k, limit, frozen = (rows[:, column].astype(np.int32) for column in (kernels.K, kernels.LIMIT, kernels.FROZEN))
        return {"slots": slots.astype(np.int32), "k": k, "limit": limit, "state": rows[:, kernels.STATE].astype(np.int8), "frozen": frozen,
                "theta": self.theta[slots], "offsets": entries.offsets, "seqs": entries.seqs, "positions": entries.positions,
                "scores": entries.scores}

    def restore(self, state: Mapping[str, Any], expired: int) -> None:
        """Fill an empty store; arrays may be read-only."""
        self.calendar.size[kernels.PERIOD] = max(-1, expired // self.calendar.size[kernels.WIDTH])
        slots = np.array(state["slots"])
        if not len(slots):
            return
        self.open(slots, state["k"], state["limit"], complete=False)
        self.expect(state["seqs"], state["positions"])
        offsets = readable(state["offsets"], np.int64)
        block, lengths = self.pool.block, np.diff(offsets)
        self.pool.reserve(slots, lengths)
        block[slots, kernels.LENGTH], block[slots, kernels.STATE], block[slots, kernels.FROZEN] = lengths, state["state"], state["frozen"]
        self.theta[slots] = state["theta"]
        arrays = self.arrays
        for entries, array in ((state["seqs"], arrays.seq), (state["positions"], arrays.position), (state["scores"], arrays.score)):
            kernels.copy_ranges(readable(entries, array.dtype), offsets[:-1], lengths, block[slots, kernels.START], array)
        kernels.enter_oldest(arrays, self.calendar, slots)

    @property
    def memory_bytes(self) -> int:
        """Bytes of all arrays."""
        return self.pool.memory_bytes + sum(a.nbytes for a in (self.theta, self.changed, *self.calendar))

    def _lists(self, starts: np.ndarray, lengths: np.ndarray) -> Lists:
        offsets = np.zeros(len(lengths) + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        seqs, scores = self.pool.gather(starts, lengths, "seq", "score")
        return Lists(offsets, seqs, self.pool.gather(starts, lengths, "position")[0] if self.apart else seqs.copy(), scores)

    def _check(self, watermark: int, extent: int) -> None:
        """Verify what holds for all kinds of buffers."""
        self.pool._check()
        assert not self.changed.any()
        calendar, dated = self.calendar, set()
        waiting, period, width = calendar.size.tolist()
        for first in calendar.head[calendar.head >= 0].tolist():
            before, slot = -1, first
            while slot >= 0:
                key = int(self.pool.block[slot, kernels.KEY])
                assert calendar.previous[slot] == before and key // width > period
                assert calendar.head[key // width & (len(calendar.head) - 1)] == first
                dated.add((slot, key))
                before, slot = slot, int(calendar.next[slot])
        near = calendar.heap[:waiting].tolist()
        assert len(set(near)) == len(near)
        for slot in near:
            key = int(self.pool.block[slot, kernels.KEY])
            assert key // width <= period
            dated.add((slot, key))
        arrays = self.arrays
        for slot, (start, length, _, frozen, k, limit, state, key) in enumerate(self.pool.block.tolist()):
            theta = self.theta[slot]
            entries = list(zip(*(a[start:start + length].tolist() for a in (arrays.score, arrays.position, arrays.seq))))
            listed = entries[:frozen] if state != kernels.ACTIVE else entries
            assert all(a > b for a, b in zip(listed, listed[1:])), (slot, listed)
            assert len({seq for _, _, seq in listed}) == len(listed)
            if state == kernels.ACTIVE:
                assert 1 <= k <= limit and frozen == 0
                assert length >= k or theta == -np.inf, (slot, length, k, theta)
                assert all(score >= theta and watermark - extent < position <= watermark for score, position, _ in entries)
                assert not entries or (key <= min(position for _, position, _ in entries) and (slot, key) in dated)
                assert length or key == kernels.FAR
            elif state == kernels.PENDING:
                assert theta == -np.inf and frozen <= k and key == kernels.FAR
                collected = [(position, seq) for _, position, seq in entries[frozen:]]
                assert collected == sorted(collected)
            else:
                assert state == kernels.FREE and length == 0 and theta == np.inf, (slot, state)
