"""The cone index: a match is found in the list of its first common keyword, where the subscription is a cone in place and text."""

from __future__ import annotations

import math

import numpy as np

from dskype.bolts import array_kernels
from dskype.bolts.arrays import BlockPool, aligned, grown
from dskype.bolts.topk import _kernels as shared
from dskype.bolts.topk.base import Matches, SubscriptionIndex
from dskype.bolts.topk.cones import _kernels as kernels
from dskype.bolts.topk.cones import order_kernels as order
from dskype.bolts.topk.cones import search_kernels as search
from dskype.bolts.topk.table import readable_messages
from dskype.spouts.batch import MessageBatch

__all__ = ["ConeIndex"]


class ConePool:
    """Rows of many lists: each list has one run of rows in every field.

    ``block`` (int64[lists, 3]: START, LENGTH, CAPACITY) says where. A list whose run is too small gets a larger one, among the abandoned
    runs or at the end; its old run is free for other lists. When the end of the arrays is reached, all runs move to new arrays.

    :param growth: a run grows at least by this fraction.
    :param fields: name -> (dtype, shape of a row).
    """

    def __init__(self, growth: float, **fields: tuple[type, tuple[int, ...]]) -> None:
        self.growth, self.fields = growth, fields
        self.arrays = {name: aligned((0, *shape), dtype) for name, (dtype, shape) in fields.items()}
        self.block = np.zeros((0, 3), np.int64)
        self.end = self.left = 0
        self._free = np.zeros((1024, 2), np.int64)  # START, LENGTH of abandoned runs, the largest ones; 0, 0: none

    def reserve(self, numbers: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Give lists (each once) runs of at least ``rows`` rows, and keep their contents; return the lists whose runs have grown."""
        block = self.block
        larger = rows > block[numbers, kernels.CAPACITY]
        numbers, rows = numbers[larger], rows[larger]
        if not len(numbers):
            return numbers
        held = block[numbers, kernels.CAPACITY]
        room = np.where(held > 0, np.maximum(rows, held + (held * self.growth).astype(np.int64)), rows)
        starts, used = kernels.allocate_runs(self._free, room)
        need = int(room[starts < 0].sum())
        self.left -= used
        if self.end + need > self._size:
            need = int(room.sum())
            self._pack(need)
            starts[:] = -1
        behind = starts < 0
        starts[behind] = self.end + np.cumsum(room[behind]) - room[behind]
        old = block[numbers, kernels.START]
        self._copy(old, held, starts, self.arrays)
        block[numbers, kernels.START], block[numbers, kernels.CAPACITY] = starts, room
        block[numbers, kernels.LENGTH] = room
        self.end += need
        self.left += int(held.sum())
        kernels.free_runs(self._free, old, held)
        return numbers

    def release(self, numbers: np.ndarray) -> None:
        """Abandon the runs of lists (each once)."""
        starts, _, held = self.block[numbers].T.copy()
        self.left += int(held.sum())
        kernels.free_runs(self._free, starts, held)
        self.block[numbers] = 0

    @property
    def memory_bytes(self) -> int:
        """Bytes of all arrays."""
        return self.block.nbytes + sum(array.nbytes for array in self.arrays.values())

    @property
    def _size(self) -> int:
        return len(next(iter(self.arrays.values())))

    def _copy(self, source: np.ndarray, length: np.ndarray, destination: np.ndarray, to: dict[str, np.ndarray]) -> None:
        for name, (_, shape) in self.fields.items():
            width = math.prod(shape)
            kernels.copy_rows(self.arrays[name].reshape(-1, width), source, length, destination, to[name].reshape(-1, width))

    def _pack(self, more: int) -> None:
        *moves, end = array_kernels.pack_blocks(self.block)
        size = end + more
        size += size // 16 + 16
        new = {name: aligned((size, *shape), dtype) for name, (dtype, shape) in self.fields.items()}
        self._copy(*moves, new)
        self.arrays, self.end, self.left = new, end, 0
        self._free[:] = 0

    def _check(self) -> None:
        """Verify that runs lie within the arrays and do not overlap."""
        start, capacity = np.concatenate((self.block[:, [kernels.START, kernels.CAPACITY]], self._free)).T
        used = np.flatnonzero(capacity)
        used = used[np.argsort(start[used], kind="stable")]
        assert (start[used][1:] >= (start + capacity)[used][:-1]).all(), "runs overlap"
        assert self.end <= self._size and (not len(used) or (start + capacity)[used[-1]] <= self.end), "runs outside"
        assert self.block[:, kernels.CAPACITY].sum() + self.left == self.end and self._free[:, 1].sum() <= self.left


class ConeIndex(SubscriptionIndex):
    """Finds a match in the list of its first common keyword, in which every subscription is a cone in place and text weight.

    Keywords are in order of rising term id, the rarest first. A subscription is in the lists of all its keywords. Let *i* be its first
    keyword in common with a message. Its score is at most the score if all its later keywords were as heavy as the heaviest later term of the
    message, so it can match only if the message lies in a cone. Cones are kept as 16-bit numbers, rounded so that they only grow. 16 cones
    are a block, 16 blocks are a group, and the bounds of 16 groups are stored side by side. Cones that pass are tested with hashed codes of
    the later keywords, and the remaining subscriptions are scored. There are no accumulators, and no match is found twice.

    The time of a match is about proportional to its results, plus one test per 4096 postings of each of the message's terms. Changes are made
    in place: a new cone takes the next free lane; cones and bounds grow at once when a threshold falls, and shrink later. A list is arranged
    again, in O(n log n) for its n cones, when nearly a third of it has changed. Until then, added cones that have thresholds are arranged in
    runs that grow like the digits of a number. When a list would have to grow, they move into dead lanes instead, each to where it widens
    bounds least. No call ever arranges all lists.

    Memory: 24 bytes per posting in a long list, about 2 more for bounds, and up to an eighth for growth and dead lanes; 4 in a short list.

    :param short: the most postings of a list that keeps only slots, >= 1.
    :param flat: the most blocks of a list without bounds, >= 0.
    :param least: the fewest changes after which a list is arranged again.
    :param slack: how far below a falling threshold cones are made, so that they need not change again soon.
    :param drift: how far a threshold may rise before the index follows.
    """

    def __init__(self, diagonal_deg: float, *, short: int = 8, flat: int = 4, least: int = 64, slack: float = 0.002, drift: float = 0.01) -> None:
        super().__init__(diagonal_deg, where=np.int32)  # where: place of the keyword's posting in its list
        self._short, self._flat, self._least, self._slack, self._drift = int(short), int(flat), int(least), float(slack), float(drift)
        self._ids = BlockPool({"slot": np.int32}, columns=4)
        self._long = np.zeros((0, 6), np.int64)
        self._spare: list[int] = []  # numbers of long lists to use again
        self._ever = 0
        lanes = kernels.LANES
        self._lanes = ConePool(0.0625, field=(np.uint16, (6, lanes)), slot=(np.int32, (lanes,)), code=(np.uint8, (2, kernels.CODES * lanes)))
        self._groups = ConePool(0.5, bound=(np.uint16, (8, lanes)))
        self._uppers = ConePool(0.5, upper=(np.uint16, (8, lanes)))
        self._indexed = np.zeros(0, np.float32)  # threshold for which a slot's cones are made: at most the true one
        self._step = kernels.STEPS / kernels.TOP * 2.0 / kernels.TOP  # a step of distance in steps of score, for a step of NEAR
        self._frame: np.ndarray | None = None

    # -- the contract

    def link(self, slots: np.ndarray) -> None:
        """Enter postings."""
        if not len(slots):
            return
        table = self.table
        if self._frame is None:
            # Two diagonals around the first subscription cover any data space that contains it.
            lon, lat = table.place[slots[0], :2].tolist()
            self._frame = np.array([lon - self.diagonal_deg, lat - self.diagonal_deg, kernels.TOP / (2.0 * self.diagonal_deg)])
        self._indexed = grown(self._indexed, len(table), 0.0)
        self._indexed[slots] = -np.inf
        self._ids.widen(len(table.terms))
        terms, counts = np.unique(table.keywords(slots)[1], return_counts=True)
        ids = self._ids.block
        is_long = ids[terms, kernels.LONG] > 0
        lengths = ids[terms, kernels.LENGTH] + counts  # of short lists
        new = ~is_long & (lengths > self._short)
        short = ~is_long & ~new
        self._ids.reserve(terms[short], lengths[short])
        numbers = ids[terms[is_long], kernels.LONG] - 1
        order.compact(self._lists, numbers, counts[is_long], self._words, self._step)
        self._make_room(numbers, self._long[numbers, kernels.USED] + counts[is_long])
        fresh = self._number(int(new.sum()))
        self._long[fresh] = 0
        self._long[fresh, kernels.TERM] = terms[new]
        self._make_room(fresh, lengths[new])
        kernels.promote(self._lists, fresh, table.place, self._frame, self._words, self._indexed)
        self._ids.release(terms[new])
        ids[terms[new], kernels.LONG] = fresh + 1
        kernels.link(self._lists, slots, table.place, self._frame, self._words, self._indexed)
        order.sort_stale(self._lists, np.concatenate((numbers, fresh)), self._words, self._least, self._step, False)

    def unlink(self, slots: np.ndarray) -> None:
        """Remove postings."""
        if not len(slots):
            return
        words = self._words
        numbers = np.unique(kernels.long_lists(self._ids.block, slots, words))
        kernels.unlink(self._lists, slots, words)
        live = self._long[numbers, kernels.USED] - self._long[numbers, kernels.DEAD]
        few = live <= self._short // 2
        gone = numbers[few]
        if len(gone):
            self._ids.reserve(self._long[gone, kernels.TERM], live[few])
            kernels.demote(self._lists, gone, words)
            for pool in (self._lanes, self._groups, self._uppers):
                pool.release(gone)
            self._long[gone] = 0
            self._spare += gone.tolist()
        order.sort_stale(self._lists, numbers[~few], words, self._least, self._step, False)

    def retune(self, slots: np.ndarray, before: np.ndarray) -> None:
        """Follow thresholds: falling ones at once, rising ones when the difference is large enough."""
        words = self._words
        lists = self._lists
        changed = kernels.retune(lists, slots, self.table.place, words, self._indexed, self._slack, self._drift, self._least)
        order.sort_stale(lists, changed, words, self._least, self._step, True)

    def match(self, messages: MessageBatch) -> Matches:
        """Return what reaches its threshold."""
        if self._frame is None:
            return Matches(np.zeros(0, np.int32), np.zeros(0, np.int32), np.zeros(0))
        table = self.table
        found = search.match(readable_messages(messages), table.terms.map, self._lists, self._words, table.place, self._frame, self._step, self.diagonal_deg)
        return Matches(*found[:3])

    @property
    def structure_bytes(self) -> int:
        """Bytes of the lists."""
        pools = sum(pool.memory_bytes for pool in (self._ids, self._lanes, self._groups, self._uppers))
        return pools + self._long.nbytes + self._indexed.nbytes

    # -- lists

    @property
    def _lists(self) -> kernels.Lists:
        return kernels.Lists(
            self._ids.block,
            self._ids.slot,
            self._long,
            self._lanes.block,
            self._groups.block,
            self._uppers.block,
            *self._lanes.arrays.values(),
            *self._groups.arrays.values(),
            *self._uppers.arrays.values(),
        )

    @property
    def _words(self) -> shared.Words:
        return self.table.keyword_arrays

    def _number(self, n: int) -> np.ndarray:
        """Return ``n`` numbers for new long lists (int64[n])."""
        reused = [self._spare.pop() for _ in range(min(n, len(self._spare)))]
        numbers = np.array([*reused, *range(self._ever, self._ever + n - len(reused))], np.int64)
        self._ever += n - len(reused)
        self._long = grown(self._long, self._ever, 0)
        for pool in (self._lanes, self._groups, self._uppers):
            pool.block = grown(pool.block, len(self._long), 0)
        return numbers

    def _make_room(self, numbers: np.ndarray, lengths: np.ndarray) -> None:
        """Give long lists (each once) room for ``lengths`` lanes."""
        larger = self._lanes.reserve(numbers, -(-lengths // kernels.LANES))
        if not len(larger):
            return
        kernels.clear_behind(self._lists, larger)
        blocks = self._lanes.block[larger, kernels.CAPACITY]
        bounded = larger[blocks > self._flat]
        groups = -(-self._lanes.block[bounded, kernels.CAPACITY] // kernels.LANES)
        moved = self._groups.reserve(bounded, groups)
        moved = np.union1d(moved, self._uppers.reserve(bounded, -(-groups // kernels.LANES)))
        kernels.bound_all(self._lists, moved)

    def _check(self) -> None:
        """Verify that every keyword has its posting, that no cone or bound is too small, and that all counts are right."""
        super()._check()
        self._ids._check()
        for pool in (self._lanes, self._groups, self._uppers):
            pool._check()
        table, words, ids, lists = self.table, self.table.words, self._ids.block, self._lists
        slots = np.flatnonzero(table.live)
        assert (self._indexed[slots] <= table.place[slots, kernels.THRESHOLD]).all()
        offsets, terms, weights = table.keywords(slots)
        counts = np.bincount(terms, minlength=len(ids))
        numbers = ids[:, kernels.LONG] - 1
        long = np.flatnonzero(numbers >= 0)
        assert len(set(numbers[long].tolist())) == len(long) == self._ever - len(self._spare)
        assert not set(numbers[long].tolist()) & set(self._spare) and not self._long[self._spare].any()
        assert (self._long[numbers[long], kernels.TERM] == long).all()
        live = ids[:, kernels.LENGTH].copy()
        live[long] = (self._long[:, kernels.USED] - self._long[:, kernels.DEAD])[numbers[long]]
        assert (live == counts).all()
        assert not ids[long, :3].any() and (ids[numbers < 0, kernels.LENGTH] <= self._short).all()
        for i, slot in enumerate(slots.tolist()):
            for nth in range(offsets[i + 1] - offsets[i]):
                term, where = terms[offsets[i] + nth], words.where[words.block[slot, kernels.START] + nth]
                if numbers[term] < 0:
                    assert where < ids[term, kernels.LENGTH] and self._ids.slot[ids[term, kernels.START] + where] == slot
                else:
                    self._check_cone(slot, int(numbers[term]), int(where), terms[offsets[i] + nth : offsets[i + 1]], weights[offsets[i] + nth : offsets[i + 1]])
        for number in numbers[long].tolist():
            self._check_bounds(number, lists)

    def _check_cone(self, slot: int, number: int, lane: int, terms: np.ndarray, weights: np.ndarray) -> None:
        """Verify that a cone is not too small for its subscription, given the terms and weights from its keyword on."""
        lists = self._lists
        assert 0 <= lane < self._long[number, kernels.USED]
        b, j = lists.lanes[number, kernels.START] + lane // kernels.LANES, lane % kernels.LANES
        assert lists.slot[b, j] == slot
        x, y, near, first, rest, need = lists.field[b, :, j].tolist()
        lon, lat, alpha, threshold = self.table.place[slot].tolist()
        if need == 0:
            return
        off = np.hypot((lon - self._frame[0]) * self._frame[2] - x, (lat - self._frame[1]) * self._frame[2] - y)
        assert near == 0 or off <= 0.7072
        parts = (1.0 - alpha) * weights
        assert near <= alpha * kernels.TOP and first >= parts[0] * kernels.STEPS and rest >= parts[1:].sum() * kernels.STEPS
        if need < kernels.TOP:
            assert need / kernels.STEPS - 2.0 <= threshold - alpha - near / kernels.TOP * 0.7072 / self._frame[2] / self.diagonal_deg
        else:
            assert threshold - alpha >= 1.99
        codes, steps = lists.code[b, :, j :: kernels.LANES].tolist()
        if codes[0] != kernels.OPEN:
            assert len(terms) - 1 <= kernels.CODES and not any(codes[len(terms) - 1 :])
            for term, part, code, step in zip(terms[1:].tolist(), parts[1:].tolist(), codes, steps):
                assert code == kernels.hashed(term) and step >= part * kernels.WEIGHTS
        else:
            assert set(codes + steps) == {kernels.OPEN}

    def _check_bounds(self, number: int, lists: kernels.Lists) -> None:
        """Verify that the bounds of a long list contain its cones, and that other lanes are empty."""
        lanes, used = kernels.LANES, int(self._long[number, kernels.USED])
        start, _, capacity = lists.lanes[number]
        slot = lists.slot[start : start + capacity].reshape(-1)
        assert used <= capacity * lanes and (slot[used:] == -1).all()
        base, fresh = self._long[number, kernels.BASE :].tolist()
        assert 0 <= base <= fresh <= used and base % lanes**2 == 0 and (slot[:used] < 0).sum() == self._long[number, kernels.DEAD]
        cones = lists.field[start : start + capacity].transpose(1, 0, 2).reshape(6, -1).astype(np.int64)
        if not lists.groups[number, kernels.CAPACITY]:
            assert capacity <= self._flat
            return
        for level, pool, bounds in ((lanes, lists.groups, lists.bound), (lanes * lanes, lists.uppers, lists.upper)):
            first, _, n = pool[number]
            assert n * lanes * level >= capacity * lanes
            box = bounds[first : first + n].transpose(1, 0, 2).reshape(8, -1).astype(np.int64)
            for lane in np.flatnonzero(slot >= 0).tolist():
                x, y, near, gain, rest, need = cones[:, lane].tolist()
                x0, y0, x1, y1, near0, gain1, both1, need0 = box[:, lane // level].tolist()
                assert x0 <= x <= x1 and y0 <= y <= y1 and near0 <= near and gain <= gain1 and gain + rest <= both1 and need0 <= need
