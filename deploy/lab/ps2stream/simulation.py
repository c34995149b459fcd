"""The simulation of PS2Stream: dispatchers (distribution tasks) and workers (subscription tasks) with subscriptions that come and go, in one process.

It is that of :mod:`~dskype.deploy.lab.tornado.simulation` with general expressions, and with one update for five messages: about half of the updates remove a subscription,
half insert one. A tuple is a message or an update.

A subscription lives until as many others have come as :func:`~dskype.deploy.lab.boolean.workloads.draw_lifetimes` says (section VI-A). So their number is about the mean of these lifetimes, and
changes from step to step. Updates become effective after the step in which they come.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from dskype.bolts.boolean import BooleanIndex, make_index
from dskype.deploy.lab.boolean.measure import insert
from dskype.deploy.lab.boolean.subscriptions import ALL, BooleanSubscriptions
from dskype.deploy.lab.boolean.workloads import draw_lifetimes, draw_messages, draw_regional
from dskype.deploy.lab.corpus import Corpus
from dskype.deploy.lab.tornado.simulation import BooleanSimulation, RoutingScale
from dskype.distribution import distributor_class
from dskype.distribution.base import Distributor, Sample
from dskype.distribution.hybrid.loads import UPDATES_PER_MESSAGE
from dskype.distribution.learning.recent_sample import sample_of
from dskype.distribution.subscriptions import BooleanSubscription
from dskype.distribution.trials import interest_of
from dskype.spouts.batch import MessageBatch, select_lists

__all__ = ["Method", "RegionalWorkload", "UpdatedSimulation", "draw_group", "learn"]

_PLACED = 20_000
"""Subscriptions that are placed one by one, to measure how long that takes."""

_AT_ONCE = 1_000


@dataclass(frozen=True)
class Method:
    """A distributor with its options."""

    distributor: str
    options: Mapping[str, Any] = field(default_factory=dict)


class RegionalWorkload(NamedTuple):
    """Subscriptions and messages.

    :ivar subscriptions: with AND or OR.
    :ivar offsets: int64[n + 1]; the routing terms of subscription *i* are ``terms[offsets[i]:offsets[i + 1]]``, int64[].
    :ivar messages: points, with positions from 0 on.
    :ivar sample: other subscriptions and messages, to learn plans from.
    :ivar expected: int64[], rising: message * number of subscriptions + subscription, for each match.
    :ivar begins: int64[n], the message before which a subscription comes: 0 if it is there from the start, and else the first one of a step, or one after the last message.
    :ivar ends: int64[n], likewise, before which it goes; more than the number of messages if it stays. Always after ``begins``.
    """

    subscriptions: BooleanSubscriptions
    offsets: np.ndarray
    terms: np.ndarray
    messages: MessageBatch
    sample: Sample
    expected: np.ndarray
    begins: np.ndarray
    ends: np.ndarray

    @property
    def places(self) -> Sample:
        """The subscriptions in the form in which distributors place many of them; without messages."""
        return sample_of(MessageBatch.empty(), self.subscriptions.boxes, self.offsets, self.terms)


def _routing_terms(s: BooleanSubscriptions) -> tuple[np.ndarray, np.ndarray]:
    """Return the routing terms of conjunctions and alternatives: of the former the rarest term, which is the first one."""
    lengths = np.where(s.shapes == ALL, 1, np.diff(s.offsets))
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return offsets, s.terms[np.arange(offsets[-1]) + np.repeat(s.offsets[:-1] - offsets[:-1], lengths)].astype(np.int64)


def draw_group(corpus: Corpus, group: str, scale: RoutingScale, matches: bool = True, switched: int = 0) -> RegionalWorkload:
    """Draw a workload: ``q1``, ``q2`` or ``q3``; the same arguments give the same one.

    :param matches: False: do not look for the matches that are expected.
    :param switched: how many of the 100 regions of ``q3`` have changed to the other group.
    """
    rng = np.random.default_rng([scale.seed, 37])
    begins, ends = _draw_lives(scale, rng)
    own, other = (draw_regional(corpus, n, rng, group, scale.seed, switched) for n in (len(begins), scale.sample))
    messages = draw_messages(corpus, scale.sample + scale.messages, rng)
    counted = messages.select(np.arange(scale.sample, messages.n))._replace(seq=np.arange(scale.messages), position=np.arange(scale.messages))
    sample = sample_of(messages.select(np.arange(scale.sample)), other.boxes, *_routing_terms(other))
    expected = _matches(own, counted, begins, ends) if matches else np.zeros(0, np.int64)
    return RegionalWorkload(own, *_routing_terms(own), counted, sample, expected, begins, ends)


def _draw_lives(scale: RoutingScale, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return when each subscription begins and ends, as in :class:`RegionalWorkload`.

    One comes in turn with the messages. The first message finds those that have come before and still live; they are ``scale.subscriptions`` on average. Who would come and go in the same step is left out.
    """
    mu, coming = scale.subscriptions, max(1, round(scale.messages * UPDATES_PER_MESSAGE / 2))
    born = np.arange(-2 * mu, coming)  # who came earlier is gone: it would have to live for five deviations more than the mean
    dies = born + draw_lifetimes(len(born), mu, rng)

    def message_of(arrivals: np.ndarray) -> np.ndarray:
        """Return the message before which an arrival is effective: the first one of the next step."""
        step = np.maximum(arrivals, 0) * scale.messages // coming // scale.step + 1
        return np.minimum(step * scale.step, scale.messages)

    begins = np.where(born < 0, 0, message_of(born))
    ends = np.where(dies < 0, 0, np.where(dies < coming, message_of(dies), scale.messages + 1))
    lives = ends > begins
    return begins[lives], ends[lives]


def _matches(s: BooleanSubscriptions, messages: MessageBatch, begins: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Return all matches as in :class:`RegionalWorkload`, found by one index in which subscriptions come and go."""
    every, found = make_index("lanes"), [np.zeros(0, np.int64)]
    steps = np.unique(np.concatenate(([0, messages.n], begins, ends)))
    for first, last in itertools.pairwise(steps[steps <= messages.n].tolist()):
        every.remove_many(np.flatnonzero(ends == first))
        insert(every, s, np.flatnonzero(begins == first))
        for start in range(first, last, _AT_ONCE):
            message, slot = every.match(messages.slice(start, min(last, start + _AT_ONCE)))
            found.append((message.astype(np.int64) + start) * s.n + slot)
    return np.sort(np.concatenate(found))


def learn(method: Method, tasks: int, workload: RegionalWorkload, granularity: int) -> Distributor:
    """Return the distributor of a method with a plan for the sample of a workload; if it has a grid, this is over the messages."""
    lat, lon = workload.sample.messages.lat, workload.sample.messages.lon
    box = [float(x) for x in (lon.min(), lat.min(), lon.max(), lat.max())]
    kind = distributor_class(method.distributor)
    known = {"granularity": granularity, "box": box, "subscriptions": workload.subscriptions.n}
    legal: Sequence[str] = getattr(kind, "legal_options", ())
    options = {**{name: value for name, value in known.items() if name in legal}, **method.options}
    return kind(tasks, options, kind.learn(tasks, workload.sample, options))


class UpdatedSimulation(BooleanSimulation):
    """One run.

    :param summaries: whether messages are routed by what subscriptions need, too (the paper's H2).
    :param index: name of the index of each worker.
    """

    def __init__(self, workload: RegionalWorkload, distributor: Distributor, summaries: bool, index: str, step: int, repeat: int = 1) -> None:
        super().__init__(workload, distributor, False, index, step, repeat)  # a RegionalWorkload has all that is used
        self.regional, self.summaries = workload, summaries
        self.updates = np.zeros(distributor.tasks)
        starts = {int(batch.seq[0]) for batch in self.batches} | {workload.messages.n}
        changes = np.concatenate((workload.begins, workload.ends[workload.ends <= workload.messages.n]))
        assert starts.issuperset(np.unique(changes).tolist()), "subscriptions come and go between steps"

    def _place(self) -> tuple[float, list[np.ndarray]]:
        """Place some subscriptions one by one, and all of them; return us per subscription, and the rows of each task."""
        s, place = self.workload.subscriptions, self.distributor.place
        rows = np.arange(min(self.n, _PLACED))
        given = [BooleanSubscription(box, e, None, None) for box, e in zip(s.boxes[rows].tolist(), s.expressions(rows))]
        names, best = list(map(str, rows.tolist())), np.inf
        for _ in range(2):
            t0 = time.thread_time()
            placed = [place(name, one).tasks for name, one in zip(names, given)]
            best = min(best, time.thread_time() - t0)
        places = self.regional.places
        offsets, tasks, _ = self.distributor.place_all(places, places.thresholds)
        assert placed == [tasks[offsets[i] : offsets[i + 1]].tolist() for i in rows.tolist()]
        if self.summaries:
            first = np.flatnonzero(self.regional.begins == 0)
            (term_offsets, own), (offsets_of_first, placed_of_first) = (select_lists(one, first) for one in (self.regional.offsets, offsets))
            self.interest = interest_of(self.distributor.regions(), term_offsets, self.regional.terms[own], offsets_of_first, tasks[placed_of_first])
            self._tasks = offsets, tasks
        owners = np.repeat(np.arange(self.n), np.diff(offsets))
        order = np.argsort(tasks, kind="stable")
        return best / len(rows) * 1e6, np.split(owners[order], np.searchsorted(tasks[order], np.arange(1, self.tasks)))

    def _distribute(self, number: int, m: MessageBatch) -> None:
        """Do a routing unit's work on the messages of a step, before which interest changes."""
        at = int(m.seq[0])
        if self.interest is not None and at:
            self.interest.add(*self._interest_in(np.flatnonzero(self.regional.begins == at)))
            self.interest.remove(*self._interest_in(np.flatnonzero(self.regional.ends == at)))
        super()._distribute(number, m)

    def _interest_in(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the pairs (region int32[], routing term int64[]) of subscriptions."""
        offsets, placed = select_lists(self._tasks[0], rows)
        ends, own = select_lists(self.regional.offsets, np.repeat(rows, np.diff(offsets)))
        return np.repeat(self._tasks[1][placed], np.diff(ends)).astype(np.int32), self.regional.terms[own]

    def _at_first(self, rows: np.ndarray) -> np.ndarray:
        return np.flatnonzero(self.regional.begins[rows] == 0)

    def _update(self, number: int, task: int, index: BooleanIndex, rows: np.ndarray) -> None:
        """Do a worker's work on the updates of a step."""
        self._last = None  # the index is not that of the start any more
        s, at = self.workload.subscriptions, int(self.batches[number].seq[-1]) + 1
        gone, new = np.flatnonzero(self.regional.ends[rows] == at), np.flatnonzero(self.regional.begins[rows] == at)
        if len(gone) + len(new) == 0:
            return
        boxes, expressions, spent = s.boxes[rows[new]], s.expressions(rows[new]), []
        for turn in range(self.repeat):
            if turn:
                index.remove_many(new)
                index.insert_many(gone, s.boxes[rows[gone]], s.expressions(rows[gone]))
            t0 = time.thread_time()
            index.remove_many(gone)
            index.insert_many(new, boxes, expressions)
            spent.append(time.thread_time() - t0)
        self.updates[task] += min(spent)

    def _found(self, living: np.ndarray) -> dict[str, Any]:
        """Return the measures of :class:`BooleanSimulation`, of which the throughput is that of tuples, and more.

        ``subscriptions`` (that are there from the start), ``update_us`` (per update, of all workers), ``work_us`` (per tuple), ``ratio_busy`` (greatest / least time of a worker), ``ratio_load`` (likewise, as the plan says),
        ``dispatcher_mib`` (what the distributor routes by, and interest), ``worker_mib`` is made of ``memory_mib`` by :meth:`run`.
        """
        found = super()._found(living)
        n = self.workload.messages.n
        updates = np.count_nonzero(self.regional.begins) + np.count_nonzero(self.regional.ends <= n)
        spent, loads = self.busy.sum(axis=0) + self.updates, self.distributor.loads()
        memory = self.distributor.memory_bytes + (0 if self.interest is None else self.interest.memory_bytes)
        return found | {
            "subscriptions": int(np.count_nonzero(self.regional.begins == 0)),
            "throughput": (n + updates) / float(spent.max()),
            "slowest_us": float(spent.max()) / (n + updates) * 1e6,
            "work_us": float(spent.sum()) / (n + updates) * 1e6,
            "update_us": float(self.updates.sum()) / updates * 1e6,
            "balance_busy": float(spent.max() / spent.mean()),
            "ratio_busy": float(spent.max() / max(1e-12, spent.min())),
            "ratio_load": float(loads.max() / max(1e-12, loads.min())),
            "dispatcher_mib": memory / 2**20,
        }

    def run(self) -> dict[str, Any]:
        """Place, route, and run every worker; see :meth:`_found`."""
        found = super().run()
        return found | {"worker_mib": found["memory_mib"] / self.tasks}
