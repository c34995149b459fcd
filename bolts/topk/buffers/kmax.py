"""The plain result buffer: between k and kmax messages (Yi et al., the baseline *kmax* of Skype, section 2.3).

**Active slots.** The buffer holds at most kmax messages in rank order. The invariant: every live message of the window that
is not in the buffer ranks behind every entry of it; or nothing is outside (*complete*), and then theta is -inf. Hence, while
the buffer has k entries or is complete, its first k are the top-k list.

- Expiry takes entries away: what was outside still ranks behind the rest.
- An arrival is newer than everything else, so of two equal scores its own ranks first. theta is the highest score ever
  dropped or left out since the buffer was filled. An arrival below theta ranks behind every entry (all have scores >= theta)
  and stays outside; one at or above theta ranks before everything outside, and is put in its place.
- The entry behind place kmax is dropped: it ranks behind the others, and theta becomes its score (never less than before).
- With fewer than k entries and something outside, the slot is due: its published list is frozen, the rest forgotten.

**Pending slots** collect every match from a watermark w_c on, in order of arrival. When the answer comes (the best kmax
messages of the window at w_req >= w_c, or all of them if there are fewer) the new buffer is the best kmax of what is alive
in answer and collection together; what is in both is taken once.

- If the answer is full, messages outside it rank behind its last one: theta is at least that score, and collected messages
  below it are left out. (One with that very score is newer than the answer's last message and belongs in front of it, unless
  it is in the answer.)
- If kmax messages were put together, theta is at least the last one's score: whatever was left out ranks behind it.
- Otherwise nothing is outside: complete.

**What a pending slot may forget.** A collected message *x* is dropped when kmax collected messages that are newer (position,
then seq) have at least its score. They rank before *x*, and expire no sooner. So while *x* is alive, kmax live messages of
the collection rank before it, and *x* is not among the best kmax of any merge. And whenever one so dropped is alive, kmax
messages are put together (or only those at or above the full answer's last score, where *x* is below it too): theta then
covers it. So the outcome is the same as if all had been kept, also when an answer takes longer than the window is wide: then
everything alive was collected, and a slot can never be due again and again for want of what it has thrown away. Of *n*
collected ones about kmax (1 + ln(n / kmax)) remain. Dropping twice changes nothing (of the messages that dominate *x*, the
kmax best are never dropped), so when it is done does not matter.
"""

from __future__ import annotations

import numpy as np

from dskype.bolts.topk.base import Matches
from dskype.bolts.topk.buffers import _kernels as kernels
from dskype.bolts.topk.buffers import resolve_kernels
from dskype.bolts.topk.buffers.base import Lists, ResultBuffers, Step
from dskype.bolts.topk.buffers.store import readable_lists
from dskype.spouts.batch import MessageBatch
from dskype.topology.errors import IllegalArgumentException, explain

__all__ = ["KmaxBuffers"]


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

    def limits(self, k: np.ndarray) -> np.ndarray:
        """Return kmax."""
        return np.maximum(np.floor(k * self.factor).astype(np.int64), k + self.extra)

    def apply(self, messages: MessageBatch, matches: Matches, watermark: int) -> Step:
        """Process matches and expiry; O(kmax) per entry that comes or goes, O(1) per match that is not admitted."""
        return self._advance(messages, matches, watermark, skyband=False)

    def resolve(self, slots: np.ndarray, answers: Lists, watermark: int) -> Step:
        """Merge answers with what was collected; O(messages)."""
        store, block = self.store, self.store.pool.block
        store.expect(answers.seqs, answers.positions)
        store.expect_dates(len(slots))
        answers = readable_lists(answers)
        store.pool.reserve(slots, np.minimum(block[slots, kernels.LIMIT], store.sizes(slots) + np.diff(answers.offsets)))
        log, n, due = resolve_kernels.resolve_kmax(store.arrays, store.calendar, slots, answers, watermark - self.extent, watermark)
        self.watermark = watermark
        store.pool.trim(slots, np.maximum(block[slots, kernels.LENGTH], block[slots, kernels.LIMIT]))
        return Step(tuple(array[:n] for array in log), due, slots)

    def _check(self, watermark: int) -> None:
        """Verify all invariants."""
        super()._check(watermark)
        block = self.store.pool.block
        active = block[:, kernels.STATE] == kernels.ACTIVE
        assert (block[active, kernels.LENGTH] <= block[active, kernels.LIMIT]).all()
