"""Result buffers that hold a k-skyband (Mouratidis et al.; Skype, section 6): what may yet come to be among the best k.

**Dominance.** A message dominates another one if it ranks before it and expires no sooner (its position is not lower). Who has k
dominators will never again be among the best k. The *k-skyband* of a set is what has fewer than k dominators in it.

**Active slots.** Theta is fixed from one re-evaluation to the next. Let A be the live messages that rank before everything that was
left out at the re-evaluation: all with a score at or above theta, but for old ones of that very score. An arrival with a score
at or above theta belongs to A: it is newer than what was left out, and of two equal scores the newer one ranks first. The buffer
lies between the k-skyband of A and A itself. So its first k entries are the top-k list as long as it has k entries, or
nothing was left out (*complete*, theta is -inf); and it has k entries exactly if A has (Skype, theorems 5 and 6). With fewer the slot is due.

No counters of dominators are kept. Arrivals are put in their places, and what is dominated is dropped when the block is full, by one
pass in rank order with a heap of the k newest positions. It does not matter to any list when that is done.

**The limit.** If the skyband outgrows the slot's limit the last third is dropped and theta is raised to the score of the first one dropped:
A is cut at that message, and nothing else changes, as messages are dominated only by such as rank before them. When a block is
full follows from its capacity, which therefore is part of the state.

**Pending slots** collect every match, see ``kmax.py``; one with *limit* collected dominators is dropped. As the limit is at least k, the
skyband of whatever is put together later is the same as if it had been kept.

**The answer.** What is alive of the answer and the collection is put together; if the answer is full, everything below its last score is
left out. Theta is chosen as the class says, but not below that last score; and if fewer than k would remain, it is that last score.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np

from dskype.bolts.topk.base import Matches
from dskype.bolts.topk.buffers import _kernels as kernels
from dskype.bolts.topk.buffers import resolve_kernels
from dskype.bolts.topk.buffers import step_kernels as steps
from dskype.bolts.topk.buffers.base import Lists, ResultBuffers, Step
from dskype.bolts.topk.buffers.cost import LEAST_RHO, CostModel, Pace
from dskype.bolts.topk.buffers.store import readable_lists
from dskype.spouts.batch import MessageBatch
from dskype.topology.errors import IllegalArgumentException, explain

__all__ = ["CostSkybandBuffers", "Skybands"]


class Skybands(ResultBuffers):
    """What all skybands do; theta is ``ratio`` times the k-th score, or the score of a rank of the answer (:meth:`ranks`)."""

    ratio = 1.0

    @abstractmethod
    def expected(self, k: int) -> tuple[int, int]:
        """Return how many messages an answer should bring, and how many entries the skyband is expected to have."""

    def ranks(self, k: np.ndarray) -> np.ndarray:
        """Return the ranks of the messages whose score is to be theta (int64[n]); 0: theta follows from the k-th score."""
        return np.zeros(len(k), np.int64)

    def limits(self, k: np.ndarray) -> np.ndarray:
        """Return one and a half times the expected size."""
        return self._by_k(k, lambda one: max(one + 4, -(-3 * self.expected(one)[1] // 2)))

    def wanted(self, slots: np.ndarray) -> np.ndarray:
        """Return how many messages an answer should bring."""
        return self._by_k(self.store.pool.block[slots, kernels.K], lambda one: self.expected(one)[0])

    def apply(self, messages: MessageBatch, matches: Matches, watermark: int) -> Step:
        """Process matches and expiry; O(entries) per entry that comes or goes, O(log k) more for one that comes."""
        return self._advance(messages, matches, watermark, skyband=True)

    def resolve(self, slots: np.ndarray, answers: Lists, watermark: int) -> Step:
        """Merge answers with what was collected; O(messages log k)."""
        store = self.store
        store.expect(answers.seqs, answers.positions)
        store.expect_dates(len(slots))
        self.watermark = watermark
        most = steps.spacious(store.sizes(slots) + np.diff(answers.offsets))
        store.pool.make_room(int(np.minimum(most, store.pool.block[slots, kernels.LIMIT]).sum()))
        log, n, due = resolve_kernels.resolve_skyband(
            store.arrays,
            store.calendar,
            slots,
            readable_lists(answers),
            self.wanted(slots),
            self.ranks(store.pool.block[slots, kernels.K]),
            self.ratio,
            watermark - self.extent,
            watermark,
        )
        return Step(tuple(array[:n] for array in log), due, slots)

    def snapshot(self) -> dict[str, Any]:
        """Return the state as plain arrays, with the capacities of active slots (``room``)."""
        state = super().snapshot()
        block = self.store.pool.block[state["slots"]]
        return {**state, "room": np.where(block[:, kernels.STATE] == kernels.ACTIVE, block[:, kernels.CAPACITY], 0).astype(np.int32)}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Fill empty buffers from a snapshot."""
        super().restore(state)
        slots, room = np.array(state["slots"]), np.array(state["room"], np.int64)
        active = room > 0
        self.store.pool.reserve(slots[active], room[active])
        self.store.pool.trim(slots[active], room[active])

    @staticmethod
    def _by_k(k: np.ndarray, value: Any) -> np.ndarray:
        different, which = np.unique(np.asarray(k, np.int64), return_inverse=True)
        return np.array([value(int(one)) for one in different], np.int64)[which]

    def _check(self, watermark: int) -> None:
        """Verify all invariants."""
        super()._check(watermark)
        block = self.store.pool.block
        active = block[:, kernels.STATE] == kernels.ACTIVE
        assert (block[active, kernels.LENGTH] <= block[active, kernels.LIMIT]).all()
        assert (block[active, kernels.CAPACITY] <= block[active, kernels.LIMIT]).all()


class CostSkybandBuffers(Skybands):
    """Keeps the k-skyband of messages at or above the theta that :class:`CostModel` finds cheapest (*cSkyband*, section 6.2).

    :param reevaluation: cost of a re-evaluation, in units of passing over one entry of a buffer (about 1 ns); default 1e6.
    :param match: cost of a match before any entry is passed over, in the same unit; default 1000; 0 for the paper's formula.
    """

    def __init__(self, extent: int, *, reevaluation: float = 1e6, match: float = 1000.0) -> None:
        super().__init__(extent)
        for name, value in (("reevaluation", reevaluation), ("match", match)):
            if not 0 <= value < np.inf:
                raise IllegalArgumentException(explain("A cost is not negative.", given=value, legal=f"buffer option {name} >= 0"))
        self.model = CostModel(reevaluation, match)
        self.pace = Pace(extent)

    def expected(self, k: int) -> tuple[int, int]:
        """Return the number of messages at or above the lowest theta that is considered, some more as these
        may expire before they come, and the skyband's size.
        """
        return max(self.model.best(k), self.model.best(k, LEAST_RHO)) + max(k // 2, 20), self.model.size(k)

    def ranks(self, k: np.ndarray) -> np.ndarray:
        """Return the numbers of messages that should be at or above theta, as things are now."""
        rho = self.pace.rho(self.watermark)
        return np.minimum(self._by_k(k, lambda one: self.model.best(one, rho)), self._by_k(k, lambda one: self.expected(one)[0]))

    def apply(self, messages: MessageBatch, matches: Matches, watermark: int) -> Step:
        """Process matches and expiry, see :class:`SkybandBuffers`."""
        self.pace.count(messages.position)
        return super().apply(messages, matches, watermark)

    def snapshot(self) -> dict[str, Any]:
        """Return the state as plain arrays, with the recent past."""
        return {**super().snapshot(), "pace": self.pace.snapshot()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Fill empty buffers from a snapshot."""
        super().restore(state)
        self.pace.restore(state["pace"])
