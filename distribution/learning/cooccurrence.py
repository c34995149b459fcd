"""Assigns words that occur together to the same task, by partitioning the vocabulary with documents as hyperedges."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dskype.distribution.base import Sample
from dskype.distribution.learning import cuts_kernels as kernels
from dskype.distribution.learning.cuts import first_terms
from dskype.distribution.plans import Node, joined, leaf

__all__ = ["learn_cooccurring"]

_PARTITIONS = 4096
"""Most partitions. More would fit the sample better and the future worse, and a plan has to fit into a Kafka record."""

_LEAST = 8
"""Fewest keywords of subscriptions that partitions have on average; from fewer nothing can be learned."""

_SWEEPS, _ROUNDS = 20, 3
"""Sweeps per round, and rounds. Each round starts with nothing assigned; its mean loads set the caps of the next round."""

_CAP, _LOOSE, _LAST = 1.05, 0.3, 4
"""The cap on a task's load divided by the mean; how much higher it is in the first sweep, so that partitions can pass each other; and the number of
last sweeps with the plain cap. In between the extra shrinks to 0."""


class _Documents(NamedTuple):
    """Documents by partition: those of partition *p* are ``rows[start[p]:start[p + 1]]``, each once.

    :ivar n: number of documents.
    """

    n: int
    start: np.ndarray
    rows: np.ndarray

    @classmethod
    def by_partition(cls, n: int, rows: np.ndarray, partitions: np.ndarray, count: int) -> _Documents:
        """Return ``n`` documents by ``count`` partitions, from pairs of a document and a partition, with repetitions."""
        keys = np.unique(partitions * n + rows)
        return cls(n, np.searchsorted(keys, np.arange(count + 1) * n).astype(np.int64), keys % n)

    @property
    def sizes(self) -> np.ndarray:
        """The number of documents of each partition."""
        return np.diff(self.start)

    def weights(self, weight: np.ndarray) -> np.ndarray:
        """Return the total weight of each partition's documents, float64[partitions]."""
        sums = np.concatenate([[0.0], np.cumsum(weight[self.rows])])
        return sums[self.start[1:]] - sums[self.start[:-1]]


def learn_cooccurring(sample: Sample, lengths: np.ndarray, work: np.ndarray, overhead: float, tasks: int) -> Node:
    """Return ranges of the vocabulary with tasks, so that the words of a document are on few tasks.

    The vocabulary is cut into many short ranges of consecutive words; a frequent word is a range of its own. (Words of one frequency are in
    alphabetical order, so rare neighbours share a script and often a language: what holds for the sample's words in a range holds for the others.)
    Ranges are then assigned, the largest first, to the task that has most of their documents already, and this sweep is repeated (linear
    deterministic greedy, restreamed: Stanton and Kliot, KDD 2012; Nishimura and Ugander, KDD 2013). A task takes a range only while two loads
    stay within a cap: subscriptions x messages, and work. A range that is too large for one task is shared by several, which attract the other
    words of its documents.

    O(sweeps x tasks x postings).

    :param lengths: int64[n], how many keywords of each subscription count, from the first on.
    :param work: float64[n], work of each subscription; ``overhead``: work of a message that comes to a task.
    """
    m = sample.messages
    owners, terms = first_terms(sample.offsets, sample.terms, lengths)
    m_owners, m_terms = first_terms(m.offsets, m.terms, np.diff(m.offsets))
    owners, terms, m_owners, m_terms = owners[terms >= 0], terms[terms >= 0], m_owners[m_terms >= 0], m_terms[m_terms >= 0]
    firsts = _short_ranges(terms, m_terms, max(tasks, min(_PARTITIONS, len(terms) // _LEAST)))
    count = len(firsts)
    s = _Documents.by_partition(sample.n, owners, np.searchsorted(firsts, terms, side="right") - 1, count)
    heard = _Documents.by_partition(max(1, m.n), m_owners, np.searchsorted(firsts, m_terms, side="right") - 1, count)
    groups, loads = _assigned(s, heard, work, overhead, tasks)
    ranges: list[Node] = []
    for first, group, load in zip(firsts.tolist(), groups, loads.tolist()):
        node = leaf(group, float(f"{load:.6g}"))
        if ranges and (both := joined(ranges[-1]["node"], node, first)):
            ranges[-1]["node"] = both
        else:
            ranges.append({"from": first, "node": node})
    return {"ranges": ranges}


def _short_ranges(terms: np.ndarray, m_terms: np.ndarray, count: int) -> np.ndarray:
    """Return the first terms of about ``count`` ranges, rising from 0. A range has at most an average share of all keywords, or is one word."""
    vocabulary = int(max(terms.max(initial=-1), m_terms.max(initial=-1))) + 1
    if vocabulary == 0:
        return np.zeros(1, np.int64)
    mass = np.bincount(terms, minlength=vocabulary) / max(1, len(terms)) + np.bincount(m_terms, minlength=vocabulary) / max(1, len(m_terms))
    return kernels.short_ranges(mass, mass.sum() / count)


def _assigned(s: _Documents, m: _Documents, work: np.ndarray, overhead: float, tasks: int) -> tuple[list[list[int]], np.ndarray]:
    """Return the tasks of each partition, and its load: its part of its tasks' subscriptions x messages, per message."""
    product, work_of, heard = s.sizes * m.sizes.astype(np.float64), s.weights(work), overhead * m.sizes
    spread = np.random.default_rng(0).integers(0, 1 << 31, s.n)  # stands for the hashes of ids
    # In the first round, assume that all words of a document are on different tasks.
    product_mean, work_mean = float(s.sizes.sum()) * float(m.sizes.sum()) / tasks**2, float(work_of.sum() + heard.sum()) / tasks
    for _ in range(_ROUNDS):
        sizes = np.maximum(product / max(1e-12, product_mean), (work_of + heard) / max(1e-12, work_mean))
        parts = np.maximum(product / max(1e-12, product_mean), work_of / np.maximum(work_mean - heard, 1e-3 * work_mean + 1e-12))
        among = np.clip(np.ceil(parts), 1, tasks).astype(np.int64)
        shared, single = np.flatnonzero(among > 1), np.flatnonzero(among == 1)
        groups = _groups(shared[np.argsort(-sizes[shared], kind="stable")], sizes, among, tasks)
        state = _State(s, m, groups, tasks)
        now = state.arrays
        label = np.full(len(among), -1, np.int64)
        order = single[np.argsort(-sizes[single], kind="stable")]
        for sweep in range(-1, _SWEEPS):
            state.count_shared(spread, work)
            cap = 1.0 if sweep < 0 else _CAP + _LOOSE * max(0.0, 1 - (sweep + _LAST) / _SWEEPS)
            limits = kernels.SweepLimits(overhead, s.n / max(1, m.n), cap, product_mean if sweep < 0 else -1.0, work_mean)
            moved = kernels.assign_partitions(order, label, s, m, state.arrays, work, limits)
            if not moved and cap == _CAP:
                break
        product_mean, work_mean = float((now.subscriptions * now.messages).mean()), float((now.work + overhead * now.messages).mean())
    groups.update((p, [task]) for p, task in zip(single.tolist(), label[single].tolist()))
    assigned = [groups[p] for p in range(len(among))]
    return assigned, _loads(s, m, assigned, now, tasks)


def _groups(shared: np.ndarray, sizes: np.ndarray, among: np.ndarray, tasks: int) -> dict[int, list[int]]:
    """Return the tasks of each shared partition: those with the least load so far."""
    load, groups = np.zeros(tasks), {}
    for p in shared.tolist():
        group = np.sort(np.argsort(load, kind="stable")[: among[p]])
        groups[p] = group.tolist()
        load[group] += sizes[p] / among[p]
    return groups


class _State:
    """Where documents are while partitions are assigned. At first only shared partitions are assigned.

    :ivar arrays: the state as the kernel reads and changes it.
    """

    def __init__(self, s: _Documents, m: _Documents, groups: dict[int, list[int]], tasks: int) -> None:
        single, shared, heard = (np.zeros((n, tasks), np.uint16) for n in (s.n, s.n, m.n))
        self.arrays = kernels.Assignment(single, shared, heard, np.zeros(tasks), np.zeros(tasks), np.zeros(tasks))
        self._rest = np.zeros(tasks), np.zeros(tasks)
        self._shared: tuple[np.ndarray, ...] | None = None
        if not groups:
            return
        rows = [s.rows[s.start[p] : s.start[p + 1]] for p in groups]
        for (p, group), documents in zip(groups.items(), rows):
            shared[np.ix_(documents, group)] += 1
            heard[np.ix_(m.rows[m.start[p] : m.start[p + 1]], group)] += 1
        self.arrays.messages[:] = (heard > 0).sum(axis=0)
        owners, number = np.concatenate(rows), np.repeat(np.arange(len(rows)), list(map(len, rows)))
        self._shared = (
            np.concatenate([[0], np.cumsum(np.bincount(owners, minlength=s.n))]).astype(np.int64),
            number[np.argsort(owners, kind="stable")],
            np.cumsum([0, *map(len, groups.values())]).astype(np.int64),
            np.concatenate([np.array(group, np.int64) for group in groups.values()]),
        )

    def count_shared(self, spread: np.ndarray, work: np.ndarray) -> None:
        """Recount the subscriptions that are at a task only for a shared partition, because none of its tasks has another of their words."""
        if self._shared is not None:
            self.arrays.subscriptions[:] -= self._rest[0]
            self.arrays.work[:] -= self._rest[1]
            self._rest = kernels.shared_rest(*self._shared, self.arrays.single, spread, work)
            self.arrays.subscriptions[:] += self._rest[0]
            self.arrays.work[:] += self._rest[1]


def _loads(s: _Documents, m: _Documents, assigned: list[list[int]], state: kernels.Assignment, tasks: int) -> np.ndarray:
    """Return the share of each partition in the loads of its tasks, half by its subscriptions and half by its messages."""
    numbers, to = np.repeat(np.arange(len(assigned)), [len(group) for group in assigned]), np.concatenate([np.array(group, np.int64) for group in assigned])
    spread = np.bincount(numbers)[numbers]
    loads = state.subscriptions * state.messages / m.n
    found = np.zeros(len(assigned))
    for sizes in (s.sizes[numbers] / spread, m.sizes[numbers].astype(np.float64)):
        found += np.bincount(numbers, 0.5 * loads[to] * sizes / np.maximum(np.bincount(to, sizes, tasks), 1e-12)[to], len(assigned))
    return found
