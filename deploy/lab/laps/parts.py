"""Boolean indexes that decompose subscriptions into parts: what they have in common."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from dskype.bolts.arrays import enlarged
from dskype.bolts.boolean.base import BooleanIndex, arrays_bytes, box_of, foreign_snapshot
from dskype.bolts.topk.table import TermIds
from dskype.deploy.lab.laps import parts_kernels as kernels
from dskype.deploy.lab.laps.conjuncts import decompose
from dskype.deploy.lab.laps.match_kernels import Messages, Scratch
from dskype.spouts.batch import MessageBatch
from dskype.spouts.columns import read_only
from dskype.topology.errors import IllegalArgumentException, explain

__all__ = ["ConjunctRows", "PartsIndex", "grown"]

_FORMAT = 1
_SEARCHES = 1 << 26
"""How many searches the scratch can tell apart; after that it is cleared."""


class ConjunctRows(NamedTuple):
    """Subscriptions as conjuncts, terms by their global ids.

    :ivar slots: int64[n], of each conjunct; those of one slot stand together.
    :ivar boxes: float64[n, 4].
    :ivar offsets: int64[n + 1], into ``terms`` int64[].
    :ivar program: int64[n], -1 or the slot's program: ``literals[programs[p]:programs[p + 1]]`` (int64[]).
    """

    slots: np.ndarray
    boxes: np.ndarray
    offsets: np.ndarray
    terms: np.ndarray
    program: np.ndarray
    programs: np.ndarray
    literals: np.ndarray

    @classmethod
    def of_expressions(cls, slots: np.ndarray, boxes: np.ndarray, expressions: Sequence[Any]) -> ConjunctRows:
        """Return the conjuncts of expressions.

        :raises IllegalArgumentException: one is malformed.
        """
        lengths: list[int] = []
        terms: list[int] = []
        owners: list[int] = []
        program: list[int] = []
        programs: list[int] = [0]
        literals: list[int] = []
        for i, expression in enumerate(expressions):
            conjuncts, rest = decompose(expression)
            number = -1
            if rest is not None:
                number = len(programs) - 1
                literals += rest
                programs.append(len(literals))
            for conjunct in conjuncts:
                lengths.append(len(conjunct))
                terms += conjunct
                owners.append(i)
                program.append(number)
        offsets = np.zeros(len(lengths) + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        numbers = (np.array(column, np.int64) for column in (terms, program, programs, literals))
        return cls(slots[owners], boxes[owners], offsets, *numbers)


class PartsIndex(BooleanIndex):
    """Decomposes each subscription into parts, of one conjunct and one rectangle each, and finds these.

    An expression becomes its conjuncts (see :mod:`~dskype.deploy.lab.laps.conjuncts`); a rectangle that crosses the antimeridian becomes
    two. Terms have dense ids. Memory: 4 bytes per slot, 48 per part, 4 per term and 8 more, 28 per distinct term, and what the index adds; growing arrays have up
    to a quarter more.
    """

    def __init__(self, options: Mapping[str, Any] | None = None) -> None:
        super().__init__(options)
        self._clear()

    # -- what an index implements -------------------------------------------------------------------------------------

    @abstractmethod
    def _insert_parts(self, index: kernels.Index, batch: kernels.Batch, done: int) -> tuple[int, int, int]:
        """Insert parts from ``done`` on; return (how many are in, what is lacking for the next, how much)."""

    @abstractmethod
    def _remove_slots(self, index: kernels.Index, slots: np.ndarray, done: int) -> tuple[int, int, int]:
        """Take slots out from ``done`` on; return (how many are out, what is lacking for the next, how much)."""

    @abstractmethod
    def _match(self, index: kernels.Index, scratch: Scratch, messages: Messages) -> tuple[np.ndarray, np.ndarray]:
        """Return (message int32[], slot int32[]), as :meth:`match` does."""

    def _ordered(self, boxes: np.ndarray, offsets: np.ndarray, terms: np.ndarray) -> None:
        """Put the terms (dense ids) of new parts in the index's order, in place."""

    def _leaving(self, boxes: np.ndarray, starts: np.ndarray, stops: np.ndarray, terms: np.ndarray) -> None:
        """Learn that subscriptions are about to leave; those of the i-th rectangle had the terms ``terms[starts[i]:stops[i]]``."""

    def _rebuild(self) -> None:
        """Make what a kernel found stale again."""
        raise NotImplementedError

    def _empty(self) -> kernels.Index:
        """Return the arrays of an empty index."""
        meta = np.zeros(9, np.int64)
        meta[kernels.SPARE_PART] = -1
        return kernels.Index(
            kind=0,
            capacity=1,
            least=1,
            first=1,
            meta=meta,
            head=np.zeros(0, np.int32),
            part=np.zeros((0, 4), np.int32),
            box=np.zeros((0, 4)),
            pool=np.zeros(16, np.int32),
            free=np.full(kernels.CLASSES, -1, np.int64),
            key=np.full(16, kernels.EMPTY, np.int64),
            value=np.zeros(16, np.int64),
            node=np.zeros((0, 5), np.int32),
            child=np.zeros((0, 1), np.int32),
            rect=np.zeros((0, 4, 1), np.float32),
            hint=np.zeros((0, 1), np.int32),
            path=np.zeros(64, np.int64),
        )

    # -- size ---------------------------------------------------------------------------------------------------------

    def _clear(self) -> None:
        self._size = 0
        self._terms = TermIds()
        self._scratch = Scratch(np.zeros(1, np.int64), np.zeros(0, np.int32), np.zeros(0, np.int32))
        self._index = self._empty()

    def __len__(self) -> int:
        return self._size

    @property
    def memory_bytes(self) -> int:
        """What the arrays take."""
        return arrays_bytes(self._index) + arrays_bytes(self._scratch) + self._terms.memory_bytes

    def _grow(self, what: int, need: int) -> None:
        """Make room for what a kernel found lacking."""
        index = self._index
        if what == kernels.NEED_REBUILD:
            self._rebuild()
        elif what == kernels.NEED_PARTS:
            n = int(index.meta[kernels.PARTS]) + need
            self._index = index._replace(part=grown(index.part, n), box=grown(index.box, n))
        elif what == kernels.NEED_POOL:
            n = int(index.meta[kernels.POOL]) + need
            if n >= 2**31:
                raise IllegalArgumentException(explain("An index can hold no more.", given=f"{self._size} subscriptions", hint="use more tasks"))
            self._index = index._replace(pool=grown(index.pool, n))
        elif what == kernels.NEED_KEYS:
            size = len(index.key)
            while size * 3 < 4 * (int(index.meta[kernels.KEYS]) + need):
                size *= 2
            key, value = np.full(size, kernels.EMPTY, np.int64), np.zeros(size, np.int64)
            kernels.rehash(index, key, value)
            self._index = index._replace(key=key, value=value)
        else:
            n = int(index.meta[kernels.NODES]) + need
            self._index = index._replace(node=grown(index.node, n), child=grown(index.child, n), rect=grown(index.rect, n), hint=grown(index.hint, n))

    def _run(self, kernel: Callable[..., tuple[int, int, int]], given: Any) -> None:
        """Call a kernel until all is done, and make room where it stops."""
        done = 0
        while True:
            done, lacking, need = kernel(self._index, given, done)
            if not lacking:
                return
            self._grow(int(lacking), int(need))

    # -- changes ------------------------------------------------------------------------------------------------------

    def insert_many(self, slots: Sequence[int] | np.ndarray, boxes: np.ndarray, expressions: Sequence[Any]) -> None:
        """Put subscriptions in; see :meth:`BooleanIndex.insert_many`."""
        n = len(expressions)
        rectangles, array = box_of(boxes, n), self._free_slots(slots, n)
        self._insert(ConjunctRows.of_expressions(array, rectangles, expressions))
        self._size += n

    def _insert(self, rows: ConjunctRows) -> None:
        if not len(rows.slots):
            return
        crosses = rows.boxes[:, 0] > rows.boxes[:, 2]
        if crosses.any():
            copies = np.where(crosses, 2, 1)
            lengths = np.diff(rows.offsets)
            of = np.repeat(np.arange(len(copies)), copies)
            later = np.zeros(len(of), np.bool_)
            later[1:] = of[1:] == of[:-1]
            offsets = np.zeros(len(of) + 1, np.int64)
            np.cumsum(lengths[of], out=offsets[1:])
            terms = rows.terms[np.arange(offsets[-1]) + np.repeat(rows.offsets[:-1][of] - offsets[:-1], lengths[of])]
            slots, boxes, program = rows.slots[of], rows.boxes[of], rows.program[of]
        else:
            later = np.zeros(len(crosses), np.bool_)
            slots, boxes, program, offsets, terms = rows.slots, rows.boxes, rows.program, rows.offsets, rows.terms
        index = self._index
        self._index = index._replace(head=grown(index.head, int(slots.max()) + 1, -1))
        ids = self._terms.acquire(terms)
        literals = np.array(rows.literals, np.int64)
        literals[::3] = self._terms.acquire(literals[::3])
        self._ordered(boxes, offsets, ids)
        given = kernels.Batch(
            read_only(slots, np.int64),
            read_only(later, np.bool_),
            read_only(boxes, np.float64),
            read_only(offsets, np.int64),
            read_only(ids, np.int32),
            read_only(program, np.int64),
            read_only(rows.programs, np.int64),
            read_only(literals, np.int32),
        )
        self._run(self._insert_parts, given)

    def _by_slot(self) -> tuple[np.ndarray, int]:
        return self._index.head, -1

    def remove_many(self, slots: Sequence[int] | np.ndarray) -> None:
        """Take subscriptions out; see :meth:`BooleanIndex.remove_many`."""
        array = read_only(self._taken_slots(slots), np.int64)
        if not len(array):
            return
        boxes, offsets, stops, terms = kernels.used_terms(self._index, array)
        self._leaving(boxes, offsets[:-1], stops, terms)
        self._run(self._remove_slots, array)
        self._terms.release(terms)
        self._size -= len(array)

    # -- matching -----------------------------------------------------------------------------------------------------

    def match(self, messages: MessageBatch) -> tuple[np.ndarray, np.ndarray]:
        """Return the matches; see :meth:`BooleanIndex.match`."""
        areas = messages.rectangles()
        now, stamp, seen = self._scratch
        if now[0] + 2 * len(areas) >= _SEARCHES:
            now[0], stamp[:], seen[:] = 0, 0, 0
        self._scratch = Scratch(now, grown(stamp, len(self._terms)), grown(seen, len(self._index.part)))
        given = Messages(
            read_only(areas, np.float64), read_only(messages.offsets, np.int64), read_only(messages.terms, np.int64), self._terms.map.key, self._terms.map.local
        )
        return self._match(self._index, self._scratch, given)

    def boxes(self, slots: np.ndarray) -> np.ndarray:
        """Return rectangles; see :meth:`BooleanIndex.boxes`. Each part of a subscription has its whole rectangle."""
        return self._index.box[self._index.head[slots]]

    # -- state --------------------------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """Return the conjuncts of all slots; what the index makes of them is made again."""
        index = self._index
        slots = np.flatnonzero(index.head >= 0)
        parts, offsets, ids, programs, literals, program = kernels.columns(index, slots)
        names = self._terms.map.name
        literals = literals.astype(np.int64)
        literals[::3] = names[literals[::3]]
        rows = ConjunctRows(index.part[parts, kernels.SLOT].astype(np.int64), index.box[parts], offsets, names[ids], program, programs, literals)
        return {"format": _FORMAT, **rows._asdict()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over a state; subscriptions are inserted again."""
        if state["format"] != _FORMAT or "program" not in state:
            raise foreign_snapshot(state, _FORMAT)
        self._clear()
        self._insert(ConjunctRows(*(state[name] for name in ConjunctRows._fields)))
        self._size = len(np.unique(state["slots"]))

    # -- checks -------------------------------------------------------------------------------------------------------

    def _check(self) -> None:
        """Verify slots, parts, terms and the pool."""
        k, a = kernels, self._index
        parts = self._live_parts()
        assert len(np.flatnonzero(a.head >= 0)) == self._size
        spare, at = [], int(a.meta[k.SPARE_PART])
        while at >= 0:
            assert a.part[at, k.SLOT] == -1
            spare.append(at)
            at = int(a.part[at, k.NEXT])
        assert sorted(parts + spare) == list(range(a.meta[k.PARTS])) and a.meta[k.PARTS] <= len(a.part) == len(a.box)
        blocks, uses = self._list_blocks(), []
        programs: dict[int, Any] = {}
        for part in parts:
            slot, start = int(a.part[part, k.SLOT]), int(a.part[part, k.START])
            header = int(a.pool[start])
            terms = self._terms_of(part)
            assert len(terms) == header >> 2 > 0 and len(set(terms)) == len(terms)
            blocks.append((start, 1 + (header & 1) + len(terms)))
            uses += terms
            crosses = a.box[part, 0] > a.box[part, 2]
            assert crosses or not header & 2
            if header & 1:
                programs.setdefault(slot, int(a.pool[start + 1]))
                assert programs[slot] == a.pool[start + 1]
        for program in programs.values():
            length = int(a.pool[program])
            blocks.append((program, 1 + length))
            uses += a.pool[program + 1 : program + 1 + length : 3].tolist()
        self._terms._check(np.array(uses, np.int64))
        self._check_pool(blocks)
        used = np.flatnonzero(a.key != k.EMPTY)
        assert len(used) == a.meta[k.KEYS] <= 3 * len(a.key) // 4
        assert all(k.find(a, a.key[p] >> 32, a.key[p] & 0xFFFFFFFF) == p for p in used)

    def _live_parts(self) -> list[int]:
        k, a = kernels, self._index
        parts = []
        for slot in np.flatnonzero(a.head >= 0).tolist():
            part = int(a.head[slot])
            while part >= 0:
                assert a.part[part, k.SLOT] == slot
                parts.append(part)
                part = int(a.part[part, k.NEXT])
        return parts

    def _terms_of(self, part: int) -> list[int]:
        first, last = kernels.terms_of(self._index, part)
        return self._index.pool[int(first) : int(last)].tolist()

    def _list_blocks(self) -> list[tuple[int, int]]:
        """Return (start, size) of the blocks that the index itself has in the pool."""
        return []

    def _postings(self, place: int) -> list[int]:
        start, length, log_capacity = map(int, kernels.posting_list(self._index.value[place]))
        assert 0 < length <= 1 << log_capacity
        return self._index.pool[start : start + length].tolist()

    def _check_pool(self, blocks: list[tuple[int, int]]) -> None:
        """Verify that blocks in use and free ones lie one behind the other and fill what is used."""
        k, a = kernels, self._index
        whole = [(start, int(k.block_size(size))) for start, size in blocks]
        for size_class, head in enumerate(a.free.tolist()):
            while head >= 0:
                whole.append((head, size_class if size_class <= 64 else 64 << (size_class - 64)))
                head = int(a.pool[head])
        at = 0
        for start, size in sorted(whole):
            assert start == at, (start, at)
            at += size
        assert at == a.meta[k.POOL] <= len(a.pool)


def grown(array: np.ndarray, n: int, fill: int = 0) -> np.ndarray:
    """Return ``array``, or if it has fewer than ``n`` rows a copy with a quarter more than it had; new rows hold ``fill``."""
    have = len(array)
    return array if n <= have else enlarged(array, max(n, have + have // 4 + 16), fill)
