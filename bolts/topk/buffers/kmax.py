"""The plain result buffer: between k and kmax messages (Yi et al., the baseline *kmax* of Skype, section 2.3).

**Active slots.** The buffer holds at most kmax messages in rank order. Invariant: every live matching message outside the buffer
ranks behind every entry; or no message is outside (the slot is *complete*), and theta is -inf. So while the buffer has k entries
or is complete, its first k entries are the top-k list.

- Expiry removes entries; messages outside still rank behind the rest.
- An arrival is newer than all other messages, so it ranks first among equal scores. Theta is the highest score that was dropped or
  left out since the buffer was filled. An arrival below theta ranks behind every entry (all have scores >= theta) and stays
  outside. An arrival at or above theta ranks before all messages outside, and is inserted.
- The entry behind place kmax is dropped. It ranks behind the others, and theta becomes its score (never less than before).
- A slot with fewer than k entries and messages outside is due: its published list is frozen, and the rest is forgotten.

**Pending slots** collect every match from a watermark w_c on, in order of arrival. The answer has the best kmax messages of the
window at w_req >= w_c, or all if there are fewer. The new buffer has the best kmax of the live messages in answer and
collection together, each once.

- If the answer is full, messages outside it rank behind its last one: theta is at least that score, and collected messages
  below it are left out. (A collected message with that same score is newer than the answer's last message and ranks before it,
  unless it is in the answer.)
- If the new buffer has kmax messages, theta is at least the score of the last one, because all messages left out rank behind it.
- Otherwise no message is outside: the slot is complete.

**What a pending slot may forget.** A collected message *x* is dropped when kmax newer (position, then seq) collected messages have at
least its score. They rank before *x* and expire no sooner. So while *x* is alive, kmax live messages of the collection rank
before it, and *x* is not among the best kmax of any merge. Whenever a dropped message *x* is alive, the new buffer has kmax
messages (or only those at or above the last score of a full answer, and *x* is below it, too), so theta covers *x*. So the
outcome is the same as if all messages had been kept. This also holds when an answer takes longer than the window is wide: then
all live messages were collected, so a slot cannot fall due over and over because of messages that it dropped. Of *n*
collected messages about kmax (1 + ln(n / kmax)) remain. Dropping twice changes nothing (of the messages that dominate *x*, the
kmax best are never dropped), so it does not matter when it is done.

**Messages that end.** A message may end before it leaves the window, and leaves the buffer then. Messages outside still rank behind the rest, so
this is like an expiry. But those that ranked before a collected message may end earlier than it does. So with messages that end, a pending
slot forgets only what has expired or ended. Messages of an answer that have ended since do not count, and its last one still says what is outside.
"""

from __future__ import annotations

import numpy as np

from dskype.bolts.ranked_lists import RankedLists
from dskype.bolts.topk.base import Matches
from dskype.bolts.topk.buffers import _kernels as kernels
from dskype.bolts.topk.buffers import resolve_kernels
from dskype.bolts.topk.buffers.base import ResultBuffers, Step
from dskype.bolts.topk.buffers.store import readable_lists
from dskype.spouts.batch import MessageBatch
from dskype.topology.errors import IllegalArgumentException, explain

__all__ = ["KmaxBuffers"]


class KmaxBuffers(ResultBuffers):
    """Keeps the best k to kmax messages.

    kmax = max(factor * k, k + extra), at least k. A larger buffer is refilled less often, but has to process more messages.

    :param factor: default 2.0.
    :param extra: default 20.
    """

    ends = True
    decays = True

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

    def apply(self, messages: MessageBatch, matches: Matches, watermark: int, ended: np.ndarray | None = None) -> Step:
        """Process matches and expiry; O(kmax) per entry that enters or leaves, O(1) per match that is not admitted."""
        return self._advance(messages, matches, watermark, skyband=False, ended=ended)

    def resolve(self, slots: np.ndarray, answers: RankedLists, watermark: int, ended: np.ndarray | None = None) -> Step:
        """Merge answers with collected messages; O(messages)."""
        store, block = self.store, self.store.pool.block
        store.expect(answers.seqs, answers.positions)
        store.expect_dates(len(slots))
        answers = readable_lists(answers)
        store.pool.reserve(slots, np.minimum(block[slots, kernels.LIMIT], store.sizes(slots) + np.diff(answers.offsets)))
        gone = np.zeros(0, np.bool_) if ended is None else ended
        log, n, due = resolve_kernels.resolve_kmax(store.arrays, store.calendar, slots, answers, gone, watermark - self.extent, watermark)
        self.watermark = watermark
        store.pool.trim(slots, np.maximum(block[slots, kernels.LENGTH], block[slots, kernels.LIMIT]))
        return Step(tuple(array[:n] for array in log), due, slots)

    def _check(self, watermark: int) -> None:
        """Verify all invariants."""
        super()._check(watermark)
        block = self.store.pool.block
        active = block[:, kernels.STATE] == kernels.ACTIVE
        assert (block[active, kernels.LENGTH] <= block[active, kernels.LIMIT]).all()
