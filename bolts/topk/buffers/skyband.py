"""Result buffers that hold a k-skyband (Mouratidis et al.; Skype, section 6): the messages that may still be among the best k.

**Dominance.** A message dominates another if it ranks before it and expires no sooner (its position is not lower). A message with k
dominators will never again be among the best k. The *k-skyband* of a set is its subset of messages with fewer than k dominators.

**Active slots.** Theta is fixed between two re-evaluations. Let A be the live messages that rank before all messages left out at the
re-evaluation: those with a score of at least theta, except for old ones with exactly that score. An arrival with a score of at least theta
belongs to A, because it is newer than the messages left out, and ranks first among equal scores. The buffer is a subset of A that contains
the k-skyband of A. So while it has k entries, or no message was left out (the slot is *complete*, theta is -inf), its first k entries are the
top-k list. It has k entries exactly if A has k (Skype, theorems 5 and 6). A slot with fewer is due.

The buffer keeps no counts of dominators. Arrivals are inserted in rank order, and dominated entries are dropped when the block is full, by
one pass in rank order with a heap of the k newest positions. No list depends on when this is done.

**The limit.** If the skyband outgrows the slot's limit, the last third is dropped, and theta is raised to the score of the first message
dropped. This cuts A at that message and changes nothing else, because only messages that rank before a message can dominate it. When a block
is full depends on its capacity, which is therefore part of the state.

**Pending slots** collect every match, see ``kmax.py``; a collected message with *limit* dominators is dropped. Since the limit is at least k,
the skyband of every later merge is the same as if it had been kept.

**The answer.** The live messages of answer and collection are merged; if the answer is full, messages below its last score are left out.
The class chooses theta, which is at least that last score; if fewer than k messages would remain, theta is that last score.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np

from dskype.bolts.ranked_lists import RankedLists
from dskype.bolts.topk.base import Matches
from dskype.bolts.topk.buffers import _kernels as kernels
from dskype.bolts.topk.buffers import resolve_kernels
from dskype.bolts.topk.buffers import step_kernels as steps
from dskype.bolts.topk.buffers.base import ResultBuffers, Step
from dskype.bolts.topk.buffers.cost import LEAST_RHO, CostModel, Pace
from dskype.bolts.topk.buffers.store import readable_lists
from dskype.spouts.batch import MessageBatch
from dskype.topology.errors import IllegalArgumentException, explain

__all__ = ["CostSkybandBuffers", "Skybands"]


class Skybands(ResultBuffers):
    """The base of all skybands. Theta is ``ratio`` times the k-th score, or the score at a rank of the answer (:meth:`ranks`)."""

    ratio = 1.0

    @abstractmethod
    def expected(self, k: int) -> tuple[int, int]:
        """Return how many messages an answer should have, and how many entries the skyband is expected to have."""

    def ranks(self, k: np.ndarray) -> np.ndarray:
        """Return the ranks in the answers whose scores become theta (int64[n]); 0: theta follows from the k-th score."""
        return np.zeros(len(k), np.int64)

    def limits(self, k: np.ndarray) -> np.ndarray:
        """Return one and a half times the expected size."""
        return self._by_k(k, lambda one: max(one + 4, -(-3 * self.expected(one)[1] // 2)))

    def wanted(self, slots: np.ndarray) -> np.ndarray:
        """Return how many messages an answer should have."""
        return self._by_k(self.store.pool.block[slots, kernels.K], lambda one: self.expected(one)[0])

    def apply(self, messages: MessageBatch, matches: Matches, watermark: int, ended: np.ndarray | None = None) -> Step:
        """Process matches and expiry; O(entries) per entry that enters or leaves, and O(log k) more per entry that enters."""
        assert ended is None, "a skyband has dropped what a message that ends was better than"
        return self._advance(messages, matches, watermark, skyband=True)

    def resolve(self, slots: np.ndarray, answers: RankedLists, watermark: int, ended: np.ndarray | None = None) -> Step:
        """Merge answers with collected messages; O(messages log k)."""
        assert ended is None
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

    :param reevaluation: cost of a re-evaluation, in units of visiting one entry of a buffer (about 1 ns); default 1e6.
    :param match: cost of a match before any entry is visited, in the same unit; default 1000; 0 gives the paper's formula.
    """

    decays = True

    def __init__(self, extent: int, *, reevaluation: float = 1e6, match: float = 1000.0) -> None:
        super().__init__(extent)
        for name, value in (("reevaluation", reevaluation), ("match", match)):
            if not 0 <= value < np.inf:
                raise IllegalArgumentException(explain("A cost must not be negative.", given=value, legal=f"buffer option {name} >= 0"))
        self.model = CostModel(reevaluation, match)
        self.pace = Pace(extent)

    def expected(self, k: int) -> tuple[int, int]:
        """Return the number of messages at or above the lowest theta, plus some that may expire on the way, and the skyband's size."""
        return max(self.model.best(k), self.model.best(k, LEAST_RHO)) + max(k // 2, 20), self.model.size(k)

    def ranks(self, k: np.ndarray) -> np.ndarray:
        """Return how many messages should be at or above theta at the present pace."""
        rho = self.pace.rho(self.watermark)
        return np.minimum(self._by_k(k, lambda one: self.model.best(one, rho)), self._by_k(k, lambda one: self.expected(one)[0]))

    def apply(self, messages: MessageBatch, matches: Matches, watermark: int, ended: np.ndarray | None = None) -> Step:
        """Count arrivals, and process matches and expiry."""
        self.pace.count(messages.position)
        return super().apply(messages, matches, watermark, ended)

    def snapshot(self) -> dict[str, Any]:
        """Return the state as plain arrays, with the counts of the recent past."""
        return {**super().snapshot(), "pace": self.pace.snapshot()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Fill empty buffers from a snapshot."""
        super().restore(state)
        self.pace.restore(state["pace"])
