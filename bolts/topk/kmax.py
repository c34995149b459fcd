"""The plain result buffer: between k and kmax messages (Yi et al., the baseline *kmax* of Skype, section 2.3).

**Active slots.** The buffer holds at most kmax messages in rank order. The invariant: every live message of the window that
is not in the buffer ranks behind every entry of it; or nothing is outside (*complete*), and then theta is -inf. Hence, while
the buffer has k entries or is complete, its first k are the top-k list.

- Expiry takes entries away: what was outside still ranks behind the rest.
- An arrival is newer than everything else, so of two equal scores its own ranks first. theta is the highest score ever
  dropped or left out since the buffer was filled. An arrival below theta ranks behind every entry (all have scores >= theta) and stays outside;
  one at or above theta ranks before everything outside, and is put in its place.
- The entry behind place kmax is dropped: it ranks behind the others, and theta becomes its score (never less than before).
- With fewer than k entries and something outside, the slot is due: its published list is frozen, the rest forgotten.

**Pending slots** collect every match from a watermark w_c on, in order of arrival. When the answer comes (the best kmax messages of
the window at w_req >= w_c, or all of them if there are fewer) the new buffer is the best kmax of what is alive in
answer and collection together; what is in both is taken once.

- If the answer is full, messages outside it rank behind its last one: theta is at least that score, and collected messages below it are left out.
  (One with that very score is newer than the answer's last message and belongs in front of it, unless it is in the answer.)
- If kmax messages were put together, theta is at least the last one's score: whatever was left out ranks behind it.
- Otherwise nothing is outside: complete.

**What a pending slot may forget.** A collected message *x* is dropped when kmax collected messages that are newer (position, then seq) have at
least its score. They rank before *x*, and expire no sooner. So while *x* is alive, kmax live messages of the collection rank before
it, and *x* is not among the best kmax of any merge. And whenever one so dropped is alive, kmax messages are
put together (or only those at or above the full answer's last score, where *x* is below it too): theta then covers it. So the outcome is the
same as if all had been kept, also when an answer takes longer than the window is wide: then everything alive was collected, and a
slot can never be due again and again for want of what it has thrown away. Of *n* collected ones about kmax (1 + ln(n / kmax)) remain.
Dropping twice changes nothing (of the messages that dominate *x*, the kmax best are never dropped), so when it is done does not matter.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dskype.bolts.topk import _kernels as kernels
from dskype.bolts.topk.base import Lists, Matches, ResultBuffers, Step
from dskype.bolts.topk.pool import BlockPool, grown
from dskype.bolts.topk.table import readable
from dskype.spouts.batch import MessageBatch
from dskype.topology.errors import IllegalArgumentException, explain

__all__ = ["KmaxBuffers"]

_NONE = np.zeros(0, np.int32)


class KmaxBuffers(ResultBuffers):
    """Keeps the best k to kmax messages, and everything that ranks in between.

    kmax = max(factor * k, k + extra), at least k. A larger one is refilled more rarely but takes in more.

    :param factor: default 2.0.
    :param extra: default 20.
    """

    def __init__(self, extent: int, *, factor: float = 2.0, extra: int = 20) -> None:
        super().__init__(extent)
        if not factor >= 1:
            raise IllegalArgumentException(explain("kmax cannot be less than k.", given=factor, legal="buffer option factor >= 1"))
        if extra < 0:
            raise IllegalArgumentException(explain("kmax cannot be less than k.", given=extra, legal="buffer option extra >= 0"))
        self.factor, self.extra = float(factor), int(extra)
        # In a count window positions are seqs: one array serves for both until a position is met that is not.
        self._pool = BlockPool({"seq": np.int64, "score": np.float64}, columns=8)
        self._theta = np.zeros(0)
        self._changed = np.zeros(0, np.bool_)
        self._calendar = kernels.Calendar(np.zeros(64, np.int64), np.zeros(64, np.int32), np.zeros(1, np.int64))
        self._watermark = -1

    def open(self, slots: np.ndarray, k: np.ndarray, complete: bool) -> None:
        """Start empty buffers; O(slots)."""
        if not len(slots):
            return
        self._widen(int(slots.max()) + 1)
        block = self._pool.block
        block[slots] = 0
        block[slots, kernels.K] = k
        block[slots, kernels.LIMIT] = np.maximum(np.floor(np.asarray(k) * self.factor).astype(np.int64), np.asarray(k, np.int64) + self.extra)
        block[slots, kernels.STATE] = kernels.ACTIVE if complete else kernels.PENDING
        block[slots, kernels.KEY] = kernels.FAR
        self._theta[slots] = -np.inf

    def close(self, slots: np.ndarray) -> None:
        """Forget slots; O(slots)."""
        self._pool.release(slots)
        self._pool.block[slots, kernels.STATE] = kernels.FREE
        self._pool.block[slots, kernels.KEY] = kernels.FAR
        self._theta[slots] = np.inf

    def wanted(self, slots: np.ndarray) -> np.ndarray:
        """Return kmax of slots."""
        return self._pool.block[slots, kernels.LIMIT]

    def apply(self, messages: MessageBatch, matches: Matches, watermark: int) -> Step:
        """Process matches and expiry; O(matches * kmax) at worst, O(1) per slot that nothing happens to."""
        self._see(messages.seq, messages.position)
        self._extend_calendar(len(matches.slot))
        pool = self._pool
        buffers, log, n, due, _ = kernels.apply_kmax(
            self._buffers, pool.cursor, self._calendar, readable(messages.seq, np.int64), readable(messages.position, np.int64),
            kernels.Rows(*matches), self.extent, watermark, self._changed, self._apart)
        pool.seq, pool.score = buffers.seq, buffers.score
        if self._apart:
            pool.position = buffers.position
        self._watermark = watermark
        retuned = np.flatnonzero(self._changed).astype(np.int32)
        self._changed[retuned] = False
        return Step(tuple(array[:n] for array in log), due, retuned)

    def collect(self, slots: np.ndarray) -> None:
        """Make due slots pending."""
        self._pool.block[slots, kernels.STATE] = kernels.PENDING
        self._theta[slots] = -np.inf

    def resolve(self, slots: np.ndarray, answers: Lists, watermark: int) -> Step:
        """Merge answers with what was collected; O(messages)."""
        block = self._pool.block
        if not len(slots):
            return Step(kernels.new_log(0), _NONE, _NONE)
        self._see(answers.seqs, answers.positions)
        offsets = readable(answers.offsets, np.int64)
        held = block[slots, kernels.LENGTH] - block[slots, kernels.FROZEN] + np.diff(offsets)
        self._pool.reserve(slots, np.minimum(block[slots, kernels.LIMIT], held))
        self._extend_calendar(len(slots))
        log, n, due = kernels.resolve_kmax(
            self._buffers, self._calendar, slots, offsets, readable(answers.seqs, np.int64), readable(answers.positions, np.int64),
            readable(answers.scores, np.float64), watermark - self.extent, watermark)
        self._watermark = watermark
        self._pool.trim(slots, np.maximum(block[slots, kernels.LENGTH], block[slots, kernels.LIMIT]))
        return Step(tuple(array[:n] for array in log), due, slots)

    def published(self, slots: np.ndarray) -> Lists:
        """Return the published lists; O(k) each."""
        block = self._pool.block[slots]
        active = block[:, kernels.STATE] == kernels.ACTIVE
        lengths = np.where(active, np.minimum(block[:, kernels.K], block[:, kernels.LENGTH]), block[:, kernels.FROZEN])
        return self._lists(block[:, kernels.START], lengths)

    def pending(self, slots: np.ndarray) -> np.ndarray:
        """Tell which slots are pending."""
        return self._pool.block[slots, kernels.STATE] != kernels.ACTIVE

    def thresholds(self, slots: np.ndarray) -> np.ndarray:
        """Return theta of slots."""
        return self._theta[slots]

    def sizes(self, slots: np.ndarray) -> np.ndarray:
        """Return how many entries the buffers of slots hold (int64[n])."""
        return self._pool.block[slots, kernels.LENGTH] - self._pool.block[slots, kernels.FROZEN]

    def snapshot(self) -> dict[str, Any]:
        """Return state, k, theta and entries of all slots in use."""
        block = self._pool.block
        slots = np.flatnonzero(block[:, kernels.STATE] != kernels.FREE)
        rows = block[slots]
        pending = slots[rows[:, kernels.STATE] == kernels.PENDING]
        best = np.empty(int(rows[:, kernels.LIMIT].max(initial=0)))
        for slot in pending.tolist():      # so that equal states look equal
            kernels.thin(self._buffers, slot, self._watermark - self.extent, best)
        rows = block[slots]
        entries = self._lists(rows[:, kernels.START], rows[:, kernels.LENGTH])
        return {"slots": slots.astype(np.int32), "k": rows[:, kernels.K].astype(np.int32), "limit": rows[:, kernels.LIMIT].astype(np.int32),
                "state": rows[:, kernels.STATE].astype(np.int8), "frozen": rows[:, kernels.FROZEN].astype(np.int32), "theta": self._theta[slots],
                "offsets": entries.offsets, "seqs": entries.seqs, "positions": entries.positions, "scores": entries.scores,
                "watermark": int(self._watermark)}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Fill empty buffers; limits stay as they were when a slot was opened."""
        slots = np.array(state["slots"])
        self._watermark = int(state["watermark"])
        if not len(slots):
            return
        self.open(slots, state["k"], complete=False)
        block = self._pool.block
        self._see(state["seqs"], state["positions"])
        offsets = readable(state["offsets"], np.int64)
        lengths = np.diff(offsets)
        self._pool.reserve(slots, lengths)
        block[slots, kernels.LIMIT], block[slots, kernels.STATE], block[slots, kernels.FROZEN] = state["limit"], state["state"], state["frozen"]
        block[slots, kernels.LENGTH] = lengths
        self._theta[slots] = state["theta"]
        buffers = self._buffers
        for entries, array in ((state["seqs"], buffers.seq), (state["positions"], buffers.position), (state["scores"], buffers.score)):
            kernels.copy_ranges(readable(entries, array.dtype), offsets[:-1], lengths, block[slots, kernels.START], array)
        self._extend_calendar(len(slots))
        kernels.enter_calendar(self._buffers, self._calendar, slots)

    @property
    def memory_bytes(self) -> int:
        """Bytes of all arrays."""
        return self._pool.memory_bytes + sum(a.nbytes for a in (self._theta, self._changed, *self._calendar))

    @property
    def _buffers(self) -> kernels.Buffers:
        pool = self._pool
        return kernels.Buffers(pool.block, self._theta, pool.seq, pool.position if self._apart else pool.seq, pool.score)

    @property
    def _apart(self) -> bool:
        return "position" in self._pool.fields

    def _see(self, seqs: np.ndarray, positions: np.ndarray) -> None:
        """Give positions an array of their own if they are not seqs."""
        if not self._apart and not np.array_equal(seqs, positions):
            self._pool.split("position", "seq")

    def _lists(self, starts: np.ndarray, lengths: np.ndarray) -> Lists:
        offsets = np.zeros(len(lengths) + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        seqs, scores = self._pool.gather(starts, lengths, "seq", "score")
        return Lists(offsets, seqs, self._pool.gather(starts, lengths, "position")[0] if self._apart else seqs.copy(), scores)

    def _widen(self, n: int) -> None:
        self._pool.widen(n)
        n = len(self._pool.block)
        self._theta, self._changed = grown(self._theta, n, np.inf), grown(self._changed, n, False)

    def _extend_calendar(self, more: int) -> None:
        calendar = self._calendar
        n = int(calendar.size[0])
        if n + more <= len(calendar.key):
            return
        kernels.calendar_clean(calendar, self._pool.block)
        n = int(calendar.size[0])
        if 2 * (n + more) > len(calendar.key):
            self._calendar = kernels.Calendar(grown(calendar.key, 2 * (n + more), 0), grown(calendar.slot, 2 * (n + more), 0), calendar.size)

    def _check(self, watermark: int) -> None:
        """Verify all invariants."""
        pool, block = self._pool, self._pool.block
        pool._check()
        assert not self._changed.any()
        n = int(self._calendar.size[0])
        dated = set(zip(self._calendar.slot[:n].tolist(), self._calendar.key[:n].tolist()))
        for slot in range(len(block)):
            start, length, _, frozen, k, limit, state, key = block[slot].tolist()
            theta = self._theta[slot]
            entries = list(zip(pool.score[start:start + length].tolist(), self._buffers.position[start:start + length].tolist(),
                               pool.seq[start:start + length].tolist()))
            listed = entries[:frozen] if state != kernels.ACTIVE else entries
            assert all(a > b for a, b in zip(listed, listed[1:])), (slot, listed)
            assert len({seq for _, _, seq in listed}) == len(listed)
            if state == kernels.ACTIVE:
                assert 1 <= k <= limit >= length and frozen == 0
                assert length >= k or theta == -np.inf, (slot, length, k, theta)
                assert all(score >= theta and watermark - self.extent < position <= watermark for score, position, _ in entries)
                assert not entries or (key <= min(position for _, position, _ in entries) and (slot, key) in dated)
                assert length or key == kernels.FAR
            elif state == kernels.PENDING:
                assert theta == -np.inf and frozen <= k
                collected = [(position, seq) for _, position, seq in entries[frozen:]]
                assert collected == sorted(collected)
            else:
                assert state == kernels.FREE and length == 0 and theta == np.inf, (slot, state)
