"""Groupers: a grouper chooses, for one producer task and one subscription, the tasks that get a tuple.

:func:`build_grouper` makes a :class:`Grouper` from the spec that a consumer declared (:mod:`~dskype.topology.groupings`). Its state is
explicit (``snapshot``/``restore``). With the same seed, state and tuples, a grouper makes the same choices in every process; replays
depend on this.
"""

from __future__ import annotations

import copy
import hashlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from dskype.topology.context import TopologyContext
from dskype.topology.errors import IllegalArgumentException, IllegalStateException
from dskype.topology.fields import Fields, GlobalStreamId, as_fields
from dskype.topology.groupings import (
    AllGrouping,
    CustomGrouping,
    DirectGrouping,
    FieldsGrouping,
    GlobalGrouping,
    LocalOrShuffleGrouping,
    NoneGrouping,
    PartialKeyGrouping,
    RowTasks,
    ShuffleGrouping,
)
from dskype.topology.model import Grouping
from dskype.topology.routing import java_hash

__all__ = ["Grouper", "build_grouper", "grouping_seed"]

_INT64 = 1 << 63
_CACHE_LIMIT = 1 << 16
_CACHEABLE = (str, int, bytes)  # not float: 0.0 == -0.0; not bool: cheap; no containers: (1,) == (True,)


class Grouper(ABC):
    """Chooses the consumer's tasks for one producer task, stream and consumer.

    ``all_tasks`` are the consumer's tasks, sorted. ``is_direct`` marks a direct grouping, on which ``choose`` is refused.
    """

    is_direct = False

    def __init__(self, spec: Grouping, target_tasks: Sequence[int]) -> None:
        self.spec = spec
        self.all_tasks: list[int] = list(target_tasks)

    @abstractmethod
    def choose(self, values: Sequence[Any]) -> Sequence[int]:
        """Return the tasks that get the tuple.

        Calls share the list, so callers must not change it.

        :param values: the tuple's values.
        """

    @abstractmethod
    def choose_batch(self, columns: Sequence[Any], n: int) -> np.ndarray | RowTasks | None:
        """Return the tasks of ``n`` rows: the same choices, and the same state after, as ``n`` calls of ``choose``.

        :param columns: one column per field of the stream: numpy array, pyarrow array or list.
        :returns: int32 array[n] of task ids, one per row; None when every row goes to ``all_tasks``; :class:`RowTasks`
            from custom groupings that choose several tasks or none.
        """

    def snapshot(self) -> Any:
        """Return the state, a small value that msgpack can encode; None if there is none."""
        return None

    def restore(self, state: Any) -> None:
        """Restore a state that :meth:`snapshot` returned."""


class _FixedGrouper(Grouper):
    """Sends every tuple to the task with the lowest id: a global grouping, or a fields grouping without fields."""

    def __init__(self, spec: Grouping, target_tasks: Sequence[int]) -> None:
        super().__init__(spec, target_tasks)
        self._chosen = self.all_tasks[:1]

    def choose(self, values: Sequence[Any]) -> Sequence[int]:
        return self._chosen

    def choose_batch(self, columns: Sequence[Any], n: int) -> np.ndarray | None:
        return np.full(n, self._chosen[0], np.int32) if self._chosen else None


class _AllGrouper(Grouper):
    def choose(self, values: Sequence[Any]) -> Sequence[int]:
        return self.all_tasks

    def choose_batch(self, columns: Sequence[Any], n: int) -> None:
        return None


class _DirectGrouper(Grouper):
    is_direct = True

    def choose(self, values: Sequence[Any]) -> Sequence[int]:
        raise IllegalArgumentException("Cannot do regular emit to direct stream")

    def choose_batch(self, columns: Sequence[Any], n: int) -> None:
        raise IllegalArgumentException("Cannot do regular emit to direct stream")


class _ShuffleGrouper(Grouper):
    """Cycles through this producer's own permutation of the tasks; the state is the position in it."""

    def __init__(self, spec: Grouping, target_tasks: Sequence[int], ring_tasks: Sequence[int], seed: int) -> None:
        super().__init__(spec, target_tasks)
        order = list(ring_tasks)
        random = _SplitMix64(seed)
        for i in range(len(order) - 1, 0, -1):
            j = random.below(i + 1)
            order[i], order[j] = order[j], order[i]
        self._ring = [[task] for task in order]
        self._ring_array = np.array(order, np.int32)
        self._position = 0

    def choose(self, values: Sequence[Any]) -> Sequence[int]:
        position = self._position
        chosen = self._ring[position]
        position += 1
        self._position = position if position < len(self._ring) else 0
        return chosen

    def choose_batch(self, columns: Sequence[Any], n: int) -> np.ndarray:
        size = len(self._ring)
        start = self._position
        self._position = (start + n) % size
        return np.tile(np.roll(self._ring_array, -start), -(-n // size))[:n]

    def snapshot(self) -> Any:
        return {"position": self._position}

    def restore(self, state: Any) -> None:
        # A rebalance may have changed the local tasks, and with them the size of the ring.
        self._position = int(state["position"]) % len(self._ring)


class _NoneGrouper(Grouper):
    def __init__(self, spec: Grouping, target_tasks: Sequence[int], seed: int) -> None:
        super().__init__(spec, target_tasks)
        self._random = _SplitMix64(seed)
        self._lists = [[task] for task in self.all_tasks]
        self._tasks = np.array(self.all_tasks, np.int32)

    def choose(self, values: Sequence[Any]) -> Sequence[int]:
        return self._lists[self._random.below(len(self._lists))]

    def choose_batch(self, columns: Sequence[Any], n: int) -> np.ndarray:
        random = self._random
        chosen = java_hash.kernels().random_indices(np.uint64(random.seed), np.uint64(random.counter), n, len(self._tasks))
        random.counter = (random.counter + n) & _MASK64
        return self._tasks[chosen]

    def snapshot(self) -> Any:
        return {"counter": self._random.counter}

    def restore(self, state: Any) -> None:
        self._random.counter = int(state["counter"])


def _new_caches() -> dict[type, dict[Any, Any]]:
    """Return caches by type, because 1, True and 1.0 are equal as keys."""
    return {t: {} for t in _CACHEABLE}


def _cached_hash(caches: dict[type, dict[Any, Any]], value: Any) -> int:
    """Return ``value_hash(value)``, cached by type and value."""
    cache = caches.get(value.__class__)
    if cache is None:
        return java_hash.value_hash(value)
    h = cache.get(value)
    if h is None:
        h = java_hash.value_hash(value)
        if len(cache) >= _CACHE_LIMIT:
            cache.clear()
        cache[value] = h
    return h


class _FieldsGrouper(Grouper):
    """Chooses ``floorMod(deepHash(selected values), number of tasks)``; results are cached by type and value."""

    def __init__(self, spec: Grouping, target_tasks: Sequence[int], positions: Sequence[int]) -> None:
        super().__init__(spec, target_tasks)
        self._positions = list(positions)
        self._lists = [[task] for task in self.all_tasks]
        self._tasks = np.array(self.all_tasks, np.int32)
        self._caches = _new_caches()

    def choose(self, values: Sequence[Any]) -> Sequence[int]:
        h = 1
        for position in self._positions:
            h = (31 * h + _cached_hash(self._caches, values[position])) & 0xFFFFFFFF
        if h & 0x80000000:
            h -= 0x100000000
        return self._lists[h % len(self._lists)]

    def choose_batch(self, columns: Sequence[Any], n: int) -> np.ndarray:
        return java_hash.kernels().take_floor_mod(java_hash.hash_columns([columns[i] for i in self._positions], n), self._tasks)


class _FieldGrouper(_FieldsGrouper):
    """A fields grouping by one field: caches the task of a value instead of its hash."""

    def __init__(self, spec: Grouping, target_tasks: Sequence[int], positions: Sequence[int]) -> None:
        super().__init__(spec, target_tasks, positions)
        self._position = positions[0]

    def choose(self, values: Sequence[Any]) -> Sequence[int]:
        value = values[self._position]
        if value.__class__ is int and -_INT64 <= value < _INT64:  # computed faster than looked up; most numbers come once
            h = (31 + (value ^ (value >> 32))) & 0xFFFFFFFF  # java_hash.deep_hash((value,))
            return self._lists[(h - 0x100000000 if h & 0x80000000 else h) % len(self._lists)]
        cache = self._caches.get(value.__class__)
        if cache is None:
            return self._lists[java_hash.deep_hash((value,)) % len(self._lists)]
        chosen = cache.get(value)
        if chosen is None:
            chosen = self._lists[java_hash.deep_hash((value,)) % len(self._lists)]
            if len(cache) >= _CACHE_LIMIT:
                cache.clear()
            cache[value] = chosen
        return chosen


class _PartialKeyGrouper(Grouper):
    """Chooses the less used of Storm's two candidates per key, which ``java.util.Random`` draws with the key's hashes as seed."""

    def __init__(self, spec: Grouping, target_tasks: Sequence[int], positions: Sequence[int]) -> None:
        super().__init__(spec, target_tasks)
        self._positions = list(positions)
        self._lists = [[task] for task in self.all_tasks]
        self._tasks = np.array(self.all_tasks, np.int32)
        self._counts = [0] * len(self.all_tasks)
        self._caches = _new_caches()
        self._candidates: dict[tuple[int, ...], tuple[int, int]] = {}

    def choose(self, values: Sequence[Any]) -> Sequence[int]:
        hashes = tuple([_cached_hash(self._caches, values[i]) for i in self._positions])
        pair = self._candidates.get(hashes)
        if pair is None:
            pair = java_hash.two_candidates(java_hash.key_bytes_seed(hashes), len(self._lists))
            if len(self._candidates) >= _CACHE_LIMIT:
                self._candidates.clear()
            self._candidates[hashes] = pair
        first, second = pair
        counts = self._counts
        chosen = second if counts[second] < counts[first] else first
        counts[chosen] += 1
        return self._lists[chosen]

    def choose_batch(self, columns: Sequence[Any], n: int) -> np.ndarray:
        seeds = np.ones(n, np.int32)
        for i in self._positions:
            java_hash.kernels().combine_key_bytes(seeds, java_hash.hash_column(columns[i]))
        counts = np.array(self._counts, np.int64)
        out = java_hash.kernels().deal_partial_key(seeds, counts, self._tasks)
        self._counts = counts.tolist()
        return out

    def snapshot(self) -> Any:
        return {"counts": list(self._counts)}

    def restore(self, state: Any) -> None:
        self._counts = [int(c) for c in state["counts"]]


class _CustomGrouper(Grouper):
    def __init__(self, spec: CustomGrouping, target_tasks: Sequence[int], context: Any, producer_task: int, stream: GlobalStreamId) -> None:
        super().__init__(spec, target_tasks)
        self._grouping = copy.deepcopy(spec.grouping)
        self._grouping.prepare(context, stream, list(target_tasks))
        self._producer_task = producer_task
        self._legal = frozenset(target_tasks)

    def choose(self, values: Sequence[Any]) -> Sequence[int]:
        chosen = self._grouping.choose_tasks(self._producer_task, values)
        if not self._legal.issuperset(chosen):
            self._refuse(chosen)
        return chosen

    def choose_batch(self, columns: Sequence[Any], n: int) -> np.ndarray | RowTasks | None:
        chosen = self._grouping.choose_tasks_batch(self._producer_task, columns, n)
        if chosen is None:
            return None
        if isinstance(chosen, tuple):
            rows, tasks = np.asarray(chosen[0], np.int64), np.asarray(chosen[1], np.int32)
            if len(rows) != len(tasks):
                self._refuse(chosen)
        else:
            rows, tasks = None, np.asarray(chosen, np.int32)
            if len(tasks) != n:
                self._refuse(chosen)
        if len(tasks) and not np.isin(tasks, self.all_tasks).all():
            self._refuse(sorted(set(tasks.tolist())))
        if rows is None:
            return tasks
        if len(rows) == n and np.array_equal(rows, np.arange(n)):
            return tasks
        return RowTasks(rows, tasks)

    def _refuse(self, chosen: Any) -> None:
        raise IllegalArgumentException(
            f"The custom grouping {type(self._grouping).__name__} chose tasks that are not its targets.", given=chosen, legal=str(self.all_tasks)
        )

    def snapshot(self) -> Any:
        return self._grouping.snapshot()

    def restore(self, state: Any) -> None:
        if state is not None:
            self._grouping.restore(state)


_MASK64 = (1 << 64) - 1


class _SplitMix64:
    """Counter-based random numbers, whose state is the count of numbers drawn (Steele, Lea, Flood: OOPSLA 2014)."""

    __slots__ = ("counter", "seed")

    def __init__(self, seed: int) -> None:
        self.seed = seed & _MASK64
        self.counter = 0

    def below(self, bound: int) -> int:
        """Return a random number in [0, bound)."""
        self.counter = counter = (self.counter + 1) & _MASK64
        z = (self.seed + counter * 0x9E3779B97F4A7C15) & _MASK64
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK64
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK64
        z ^= z >> 31
        return ((z >> 32) * bound) >> 32


@lru_cache(maxsize=4096)  # a task that starts again asks for the same ones
def grouping_seed(topology_id: str, producer_task: int, consumer: str, stream: str) -> int:
    """Return the 64-bit seed of a grouper's random choices: equal in every process, distinct for each subscription and producer task."""
    text = "\0".join((topology_id, str(producer_task), consumer, stream))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


def build_grouper(
    spec: Grouping,
    *,
    producer_task: int,
    stream: GlobalStreamId | tuple[str, str],
    out_fields: Fields,
    target_tasks: Sequence[int],
    local_tasks: Sequence[int] = (),
    seed: int = 0,
    context: TopologyContext | None = None,
) -> Grouper:
    """Make the grouper of one producer task for one subscription.

    :param spec: what the consumer declared.
    :param producer_task: id of the emitting task.
    :param stream: (component, stream) that is grouped.
    :param out_fields: the stream's fields.
    :param target_tasks: the consumer's task ids; sorted here.
    :param local_tasks: task ids of the producer's worker, of whatever component; for local-or-shuffle.
    :param seed: from :func:`grouping_seed`.
    :param context: the producer task's context; handed to custom groupings.
    :raises IllegalArgumentException: the grouping names a field that the stream does not have.
    """
    targets = sorted(target_tasks)
    if not targets and not isinstance(spec, (AllGrouping, DirectGrouping, CustomGrouping)):
        raise IllegalStateException("A subscription has no target tasks.", given=tuple(stream))
    if isinstance(spec, (FieldsGrouping, PartialKeyGrouping)) and len(as_fields(spec.fields)):
        positions = [out_fields.field_index(name) for name in as_fields(spec.fields)]
        if isinstance(spec, PartialKeyGrouping):
            return _PartialKeyGrouper(spec, targets, positions)
        return (_FieldGrouper if len(positions) == 1 else _FieldsGrouper)(spec, targets, positions)
    if isinstance(spec, (GlobalGrouping, FieldsGrouping)):
        return _FixedGrouper(spec, targets)
    if isinstance(spec, ShuffleGrouping):
        return _ShuffleGrouper(spec, targets, targets, seed)
    if isinstance(spec, LocalOrShuffleGrouping):
        local = sorted(set(targets).intersection(local_tasks))
        return _ShuffleGrouper(spec, targets, local or targets, seed)
    if isinstance(spec, AllGrouping):
        return _AllGrouper(spec, targets)
    if isinstance(spec, NoneGrouping):
        return _NoneGrouper(spec, targets, seed)
    if isinstance(spec, DirectGrouping):
        return _DirectGrouper(spec, targets)
    if isinstance(spec, CustomGrouping):
        return _CustomGrouper(spec, targets, context, producer_task, GlobalStreamId(*stream))
    raise IllegalArgumentException("Not a grouping.", given=spec, legal="one of the specs of dskype.topology.groupings")
