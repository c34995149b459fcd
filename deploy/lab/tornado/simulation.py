"""The routing simulation for boolean subscriptions: a distributor and the indexes of all its evaluators (subscription tasks) in one process.

As in :mod:`~dskype.deploy.lab.dskype.simulation`, everything that a topology does to a message between the distribution bolt and its matches is
done by the same code, and its time counts for the task that would do it:

- *distribution*: routing, by the summaries if the distributor has them, and gathering and encoding the frame of each evaluator;
- *an evaluator*: decoding its frames, and matching.

Times are CPU times of the thread, the least of several runs of each step, so that what else the machine does counts little. Evaluators run one after the other, each with warm caches as if it had its own core. The throughput is that of the busiest one. Kafka, Spark and what
is published are not in it. The matches of all evaluators together are compared with those of one index that has all subscriptions.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from dskype.bolts.boolean import BooleanIndex, make_index
from dskype.deploy.client.balancing import balance
from dskype.deploy.lab.boolean.experiments import World
from dskype.deploy.lab.boolean.measure import insert, options_over
from dskype.deploy.lab.boolean.subscriptions import BooleanSubscriptions
from dskype.deploy.lab.boolean.workloads import draw_messages, draw_subscriptions
from dskype.deploy.lab.comparing import quiet
from dskype.deploy.lab.corpus import Corpus
from dskype.deploy.lab.dskype.frames import Frames, decoded, encode_frames, ids_of, message_columns
from dskype.deploy.lab.tornado.routers import GridRouter, TreeRouter
from dskype.distribution.agrid.distributor import AGridDistributor
from dskype.distribution.base import Distributor, Placed, Sample
from dskype.distribution.routing.interest import Interest
from dskype.distribution.subscriptions import BooleanSubscription, Subscription
from dskype.distribution.trials import routes_of
from dskype.spouts.areas import centres
from dskype.spouts.batch import MessageBatch
from dskype.topology.groupings import RowTasks

__all__ = ["ROUTED", "BooleanSimulation", "BooleanWorkload", "GridRouted", "RoutingScale", "TreeRouted", "draw_workload"]

_AT_ONCE = 1_000
_REFERENCE = "lanes"
"""The index that tells what has to be found."""


@dataclass(frozen=True)
class RoutingScale:
    """The sizes of a run.

    :ivar subscriptions: that are registered.
    :ivar messages: to measure; ``step``: how many of them are routed and matched at a time.
    :ivar sample: subscriptions, and as many messages, to learn plans from; they are not among those that are measured.
    :ivar repeat: how often everything is done; the least time of each step counts.
    :ivar places: of the messages, to measure routers with; None: all.
    :ivar grid: columns and rows of an A-Grid.
    """

    subscriptions: int = 100_000
    messages: int = 16_384
    step: int = 4_096
    sample: int = 20_000
    repeat: int = 3
    places: int | None = None
    grid: int = 1000
    seed: int = 0


class BooleanWorkload(NamedTuple):
    """Subscriptions and messages.

    :ivar subscriptions: conjunctions.
    :ivar triggers: int64[n], the rarest keyword of each.
    :ivar messages: points, with positions from 0 on.
    :ivar sample: other subscriptions and messages, to learn plans from.
    :ivar expected: int64[], rising: message * number of subscriptions + subscription, for each match.
    """

    subscriptions: BooleanSubscriptions
    triggers: np.ndarray
    messages: MessageBatch
    sample: Sample
    expected: np.ndarray


def draw_workload(corpus: Corpus, world: World, scale: RoutingScale) -> BooleanWorkload:
    """Draw a workload; the same arguments give the same one."""
    rng = np.random.default_rng([scale.seed, 31])
    n = max(1, round(scale.subscriptions * world.subscriptions))
    drawn = draw_subscriptions(
        corpus, scale.sample + n, rng, km=world.km, space_share=world.space_share, keywords=world.keywords, rarest_share=world.rarest_share
    )
    messages = draw_messages(corpus, scale.sample + scale.messages, rng)
    triggers = drawn.terms[drawn.offsets[:-1]].astype(np.int64)  # terms rise within a subscription, so the first one is the rarest
    rows = np.arange(scale.sample, scale.sample + n)
    own = _taken(drawn, rows)
    counted = messages.select(np.arange(scale.sample, messages.n))._replace(seq=np.arange(scale.messages), position=np.arange(scale.messages))
    every = make_index(_REFERENCE)
    insert(every, own, np.arange(n))
    found = [
        (message.astype(np.int64) + start) * n + slot
        for start in range(0, counted.n, _AT_ONCE)
        for message, slot in [every.match(counted.slice(start, min(counted.n, start + _AT_ONCE)))]
    ]
    sample = _sample(messages.select(np.arange(scale.sample)), drawn.boxes[: scale.sample], triggers[: scale.sample])
    return BooleanWorkload(own, triggers[rows], counted, sample, np.sort(np.concatenate(found)))


def _sample(messages: MessageBatch, boxes: np.ndarray, triggers: np.ndarray) -> Sample:
    """Return a sample of conjunctions as :func:`dskype.distribution.learning.sampling.make_sample` does."""
    n = len(boxes)
    lat, lon = centres(boxes)
    return Sample(messages, np.ones(n, np.int64), np.zeros(n), lat, lon, np.arange(n + 1), triggers, np.ones(n), np.full(n, -np.inf), np.ones(n), boxes)


def _taken(s: BooleanSubscriptions, rows: np.ndarray) -> BooleanSubscriptions:
    """Return the subscriptions at ``rows``, in that order."""
    offsets, terms = s.columns(rows)
    return BooleanSubscriptions(s.boxes[rows], offsets, terms.astype(np.int32), s.shapes[rows])


# -- routers in place of the A-Grid ---------------------------------------------------------------------------


class _Routed(AGridDistributor):
    """The partitions of an A-Grid, found by another router."""

    summaries = False
    router: Any

    def __init__(self, tasks: int, options: Mapping[str, Any] | None = None, plan: Mapping[str, Any] | None = None) -> None:
        super().__init__(tasks, options, plan)
        self._router = self.router(self.grid)

    def place(self, name: str, subscription: Subscription, threshold: float | None = None) -> Placed:
        """Return the tasks of all partitions that a rectangle touches."""
        assert isinstance(subscription, BooleanSubscription)
        _, found = self._router.overlaps(np.array([subscription.bbox], np.float64))
        return Placed(np.unique(self.task_of[found]).tolist())

    def message_tasks(self, messages: MessageBatch) -> RowTasks:
        """Return the task of each point that has keywords."""
        rows = np.flatnonzero(np.diff(messages.offsets))
        return RowTasks(rows, self.task_of[self._router.locate(messages.lat[rows], messages.lon[rows])])


class GridRouted(_Routed):
    """Routes by a plain grid whose cells know their partition."""

    router = GridRouter


class TreeRouted(_Routed):
    """Routes by an R-tree over the partitions."""

    router = TreeRouter


ROUTED: dict[str, type[_Routed]] = {"plain grid": GridRouted, "R-tree": TreeRouted}
"""Names of routers that are no distributors -> what makes them one for this simulation. Their plans are those of ``agrid``."""


# -- the simulation -------------------------------------------------------------------------------------------


class BooleanSimulation:
    """One run.

    :param summaries: whether messages are routed by the summaries of the evaluators, too.
    :param index: name of the index of each evaluator.
    :param step: messages that are routed and matched at a time; ``repeat``: how often.
    """

    def __init__(self, workload: BooleanWorkload, distributor: Distributor, summaries: bool, index: str, step: int, repeat: int = 1) -> None:
        self.workload, self.distributor, self.index, self.repeat = workload, distributor, index, repeat
        self.n, self.tasks = workload.subscriptions.n, distributor.tasks
        self.interest = Interest(distributor.regions()) if summaries else None
        seen = workload.sample.messages
        self.index_options = options_over(index, seen.lat, seen.lon)
        self.batches = [workload.messages.slice(i, min(i + step, workload.messages.n)) for i in range(0, workload.messages.n, step)]
        self.busy = np.full((len(self.batches), self.tasks), np.inf)
        self.routing, self.encoding = (np.full(len(self.batches), np.inf) for _ in range(2))
        self.frames: list[Frames] = []
        self._last: tuple[np.ndarray, BooleanIndex] | None = None

    def run(self) -> dict[str, Any]:
        """Place, route, and run every evaluator.

        :returns: per message: ``communication`` (tuples), ``bytes``, ``matches``, ``route_us``, ``distribution_us`` (with encoding), ``work_us`` (of all evaluators),
            ``slowest_us`` (of the busiest one), ``cpu_us`` (distribution and work); messages/s: ``throughput`` (of the busiest evaluator), ``distribution_per_s`` (of one
            routing unit); ``latency_ms`` (of a step: one routing unit and the slowest evaluator), of which ``routing_ms`` in the routing unit; of subscriptions: ``place_us``, ``replication``; max / mean of
            evaluators: ``balance_busy``, ``balance_subscriptions``; ``memory_mib`` (of all indexes), ``summary_pairs`` (evaluator and word), ``different`` (pairs of
            message and subscription that are missing or too many), ``seconds``.
        """
        began = time.perf_counter()
        with quiet():
            place_us, rows_of = self._place()
            for number, batch in enumerate(self.batches):
                self._distribute(number, batch)
            living, memory, found = np.array([len(rows) for rows in rows_of]), 0, []
            for task, rows in enumerate(rows_of):
                index = self._filled(rows)
                memory += index.memory_bytes
                found += self._match(task, index, rows)
        self._last = None
        different = len(np.setxor1d(np.concatenate(found), self.workload.expected))
        return self._found(living) | {
            "place_us": place_us,
            "memory_mib": memory / 2**20,
            "different": different,
            "summary_pairs": 0 if self.interest is None else len(self.interest),
            "seconds": time.perf_counter() - began,
        }

    def _place(self) -> tuple[float, list[np.ndarray]]:
        """Place all subscriptions; return us per subscription, and the rows of each task."""
        s, place, spent, tasks_of = self.workload.subscriptions, self.distributor.place, 0.0, list[list[int]]()
        for start in range(0, self.n, _AT_ONCE):
            rows = np.arange(start, min(self.n, start + _AT_ONCE))
            given = [BooleanSubscription(box, e, None, None) for box, e in zip(s.boxes[rows].tolist(), s.expressions(rows))]
            names = [f"s{row}" for row in rows.tolist()]
            t0 = time.thread_time()
            placed = [place(name, one) for name, one in zip(names, given)]
            spent += time.thread_time() - t0
            tasks_of += [p.tasks for p in placed]
        owners = np.repeat(np.arange(self.n), [len(tasks) for tasks in tasks_of])
        tasks = np.array([task for tasks in tasks_of for task in tasks], np.int32)
        if self.interest is not None:
            self.interest.add(tasks, self.workload.triggers[owners])
        order = np.argsort(tasks, kind="stable")
        return spent / self.n * 1e6, np.split(owners[order], np.searchsorted(tasks[order], np.arange(1, self.tasks)))

    def _distribute(self, number: int, m: MessageBatch) -> None:
        """Do a routing unit's work on the messages of a step."""
        ids = ids_of(m)
        for turn in range(self.repeat + (number == 0)):  # the first of all compiles kernels and touches memory
            t0 = time.thread_time()
            routes = routes_of(self.distributor, m, self.interest)
            t1 = time.thread_time()
            frames = encode_frames(message_columns(m, ids), routes, self.tasks)
            t2 = time.thread_time()
            if turn or number:
                self.routing[number], self.encoding[number] = min(self.routing[number], t1 - t0), min(self.encoding[number], t2 - t1)
        self.frames.append(frames)

    def _filled(self, rows: np.ndarray) -> BooleanIndex:
        """Return an index with some subscriptions: the last one, if they are the same."""
        if self._last is None or not np.array_equal(self._last[0], rows):
            self._last = None
            index = make_index(self.index, self.index_options)
            insert(index, _taken(self.workload.subscriptions, rows), self._at_first(rows))
            self._last = rows, index
        return self._last[1]

    def _at_first(self, rows: np.ndarray) -> np.ndarray:
        """Return which of the subscriptions of an evaluator are there from the start, as places in ``rows``: here all."""
        return np.arange(len(rows))

    def _match(self, task: int, index: BooleanIndex, rows: np.ndarray) -> list[np.ndarray]:
        """Do an evaluator's work in all steps; return its matches as in :attr:`BooleanWorkload.expected`."""
        found = []
        index.match(decoded(self.frames[0].values[task]))  # touches memory
        for number, frames in enumerate(self.frames):
            for _ in range(self.repeat):
                t0 = time.thread_time()
                messages = decoded(frames.values[task])
                message, slot = index.match(messages)
                self.busy[number, task] = min(self.busy[number, task], time.thread_time() - t0)
            found.append(messages.seq[message] * self.n + rows[slot])
            self._update(number, task, index, rows)
        return found

    def _update(self, number: int, task: int, index: BooleanIndex, rows: np.ndarray) -> None:
        """Apply what changes at an evaluator after a step: here nothing."""

    def _found(self, living: np.ndarray) -> dict[str, Any]:
        n = self.workload.messages.n
        us = 1e6 / n
        received, sent = (sum(getattr(frames, name) for frames in self.frames) for name in ("received", "bytes"))
        spent = self.busy.sum(axis=0) * us
        distribution_us = (self.routing.sum() + self.encoding.sum()) * us
        found = {
            "communication": received.sum() / n,
            "bytes": sent.sum() / n,
            "matches": len(self.workload.expected) / n,
            "route_us": self.routing.sum() * us,
            "distribution_us": distribution_us,
            "work_us": spent.sum(),
            "slowest_us": spent.max(),
            "cpu_us": distribution_us + spent.sum(),
            "throughput": 1e6 / spent.max(),
            "distribution_per_s": 1e6 / distribution_us,
            "routing_ms": float((self.routing + self.encoding).mean()) * 1e3,
            "latency_ms": float((self.routing + self.encoding + self.busy.max(axis=1)).mean()) * 1e3,
            "replication": living.sum() / self.n,
            "balance_busy": balance(spent),
            "balance_subscriptions": balance(living),
            "subscriptions": self.n,
        }
        return {name: value.item() if isinstance(value, np.generic) else value for name, value in found.items()}
