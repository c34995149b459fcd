"""The routing simulation: a distributor and the indexes of all its tasks in one process, with the work of each task timed separately.

Everything that a topology does to a message, from its arrival at the distribution bolt to the changes of lists, is done by the same code. Its
CPU time counts for the task that would do it:

- *distribution*: weighing the keywords, routing, gathering and encoding the frame of each task;
- *a subscription task*: decoding its frames, matching, expiry, and merging the answers to its evaluations;
- *message tasks*: looking up evaluations. This is the same for every method, and not part of the throughput.

The tasks run one after the other through all messages, each with warm caches as if it had its own core, so the memory of one task is enough for
any number of them. The throughput is that of the busiest subscription task: in the paper, and with many subscriptions here, subscription tasks
are the bottleneck. What one distribution task could do is a separate measure, because there can be several: messages are shuffled over them.
Neither includes the cost of Kafka, Spark and the results.

Replicas are exact, as in the topology: a subscription is placed by the threshold (floor) of its buffer. When an evaluation finds a floor that is
not above the guard of the placement, the subscription is placed again with that floor, on more tasks.
"""

from __future__ import annotations

import gc
import itertools
import time
from collections import defaultdict
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from dskype.bolts.ranked_lists import RankedLists
from dskype.bolts.topk.engine import TopkEngine
from dskype.deploy.client.balancing import balance
from dskype.deploy.lab.dskype.frames import decoded, encode_frames, ids_of, message_columns
from dskype.deploy.lab.dskype.workload import View
from dskype.deploy.lab.skype.workload import look_up
from dskype.distribution.base import Distributor
from dskype.distribution.subscriptions import TopkSubscription
from dskype.spouts.batch import MessageBatch, select_lists
from dskype.spouts.streams import Matching
from dskype.spouts.text import Tokenizer

__all__ = ["Simulation", "simulate", "subscription_at"]

_PROBES = 1_000
"""How many subscriptions are also placed without a threshold, to see whether that would be enough."""

_AT_ONCE = 1_000


class _Late(NamedTuple):
    """A subscription that a task gets after ``step``."""

    step: int
    row: int


def subscription_at(s: Any, row: int) -> TopkSubscription:
    """Return a subscription as the distribution bolt places it."""
    keywords = slice(s.offsets[row], s.offsets[row + 1])
    return TopkSubscription(int(s.k[row]), float(s.alpha[row]), float(s.lat[row]), float(s.lon[row]), s.terms[keywords], s.weights[keywords], None)


def simulate(view: View, distributor: Distributor, check: int = 200, repeat: int = 1) -> dict[str, Any]:
    """Run a distributor, and return its measures.

    :param check: for how many subscriptions the merged lists of all tasks are compared with those of the whole window at the end.
    :param repeat: how often each task runs; the shortest time of each step counts.
    :returns: see :meth:`Simulation.run`.
    """
    return Simulation(view, distributor, check, repeat).run()


class Simulation:
    """One run; see the module, and :func:`simulate`.

    :param index: of the subscriptions; None: the default.
    :ivar tasks_of: of each subscription, rising.
    :ivar guards: float64[n], of their placements.
    :ivar merged: of the checked subscriptions, row -> {seq: score}, of all tasks.
    """

    def __init__(self, view: View, distributor: Distributor, check: int = 200, repeat: int = 1, index: str | None = None) -> None:
        self.view, self.workload, self.distributor, self.repeat, self.index = view, view.workload, distributor, repeat, index
        self.n, self.tasks = len(view.subscriptions), distributor.tasks
        scale = self.workload.scale
        edges = np.unique(np.r_[np.arange(scale.window, self.workload.messages.n, scale.step), self.workload.messages.n])
        self.steps = [(int(a), int(b)) for a, b in itertools.pairwise(edges)]
        self.measured = np.array([a >= scale.window + scale.warm_up for a, _ in self.steps])
        if not self.measured.any():
            self.measured[-1] = True
        self.checked = np.sort(np.random.default_rng(scale.seed).choice(self.n, min(check, self.n), replace=False))
        self.merged: dict[int, dict[int, float]] = {int(row): {} for row in self.checked}
        shape = len(self.steps), self.tasks
        self.received = np.zeros(shape, np.int64)  # messages
        self.busy, self.bytes = np.zeros(shape), np.zeros(shape, np.int64)  # busy: seconds
        self.routing, self.encoding, self.looking, self.evaluations = (np.zeros(len(self.steps)) for _ in range(4))
        self.living, self.memory = np.zeros(self.tasks, np.int64), np.zeros(self.tasks)
        self.grown = self.late = 0
        self._late: dict[int, list[_Late]] = defaultdict(list)

    # -- the run ----------------------------------------------------------------------------------

    def run(self) -> dict[str, Any]:
        """Place, route, and run every task.

        :returns: per message (of those measured): ``communication`` (tuples), ``bytes``, ``weigh_us``, ``route_us``, ``encode_us``,
            ``distribution_us`` (their sum), ``work_us`` (of all subscription tasks), ``slowest_us`` (of the busiest one), ``critical_us``
            (distribution and, in each step, its slowest task), ``cpu_us`` (distribution and subscription tasks), ``look_up_us``
            (message tasks), ``evaluations_per_1000``;
            messages/s: ``throughput`` (of the busiest subscription task), ``even_per_s`` (if all were equally busy), ``distribution_per_s`` (of
            one distribution task);
            of subscriptions: ``place_us``, ``replication``, ``probes_enough`` (share that a placement without threshold serves),
            ``unbounded`` (share without threshold), ``grown`` (placements that had to grow meanwhile), ``late`` (replicas that this made);
            max / mean of tasks: ``balance_subscriptions``, ``balance_messages``, ``balance_load`` (subscriptions x messages, the paper's
            cost), ``balance_busy`` (CPU time), ``balance_planned`` (what the plan says);
            ``memory_mib`` (of all tasks), ``largest_mib`` (of one), ``checked`` and ``different`` (subscriptions), ``seconds``.
        """
        began, collecting = time.perf_counter(), gc.isenabled()
        gc.collect()
        gc.disable()  # a collection visits all subscriptions, and would count for the task that is being timed
        try:
            found = self._run()
        finally:
            if collecting:
                gc.enable()
        return found | {"seconds": time.perf_counter() - began}

    def _run(self) -> dict[str, Any]:
        place_us = self._place()
        weigh_us = self._weigh_us()
        self.frames = [self._distribute(number, *step) for number, step in enumerate(self.steps)]
        starts: list[list[int]] = [[] for _ in range(self.tasks)]
        for row, tasks in enumerate(self.tasks_of):
            for task in tasks:
                starts[task].append(row)
        self.living += [len(rows) for rows in starts]
        for task in range(self.tasks):
            self._run_task(task, np.array(starts[task], np.int64))
        while any(self._late.values()):  # tasks that got subscriptions after they had finished run again, for these alone
            for task in [task for task, late in self._late.items() if late]:
                self._run_task(task, np.zeros(0, np.int64), again=True)
        return self._found(place_us, weigh_us)

    def _place(self) -> float:
        """Place all subscriptions; return us per subscription."""
        s, floors, place, spent = self.view.subscriptions, self.view.floors.tolist(), self.distributor.place, 0.0
        self.tasks_of: list[list[int]] = []
        self.guards = np.empty(self.n)
        for start in range(0, self.n, _AT_ONCE):
            rows = range(start, min(self.n, start + _AT_ONCE))
            subscriptions = [subscription_at(s, row) for row in rows]
            names = [f"s{row}" for row in rows]
            t0 = time.process_time()
            placed = [place(name, one, floors[row]) for name, one, row in zip(names, subscriptions, rows)]
            spent += time.process_time() - t0
            self.tasks_of += [p.tasks for p in placed]
            self.guards[start : start + len(placed)] = [p.guard for p in placed]
        rows = np.random.default_rng(self.workload.scale.seed).choice(self.n, min(_PROBES, self.n), replace=False)
        probes = np.array([place(f"s{row}", subscription_at(s, row), None).guard for row in rows.tolist()])
        self.probes_enough = float(((probes < self.view.floors[rows]) | (probes == -np.inf)).mean())
        return spent / self.n * 1e6

    def _weigh_us(self) -> float:
        """Return the time to weigh the keywords of a message, us."""
        w, (start, stop) = self.workload, self.steps[-1]
        texts = pa.array([w.data.texts[row] for row in w.rows[start:stop].tolist()], pa.string())
        tokenizer, vocabulary, spent = Tokenizer(), w.data.corpus.vocabulary, []
        for _ in range(3):
            t0 = time.process_time()
            vocabulary.weigh_texts(texts, tokenizer)
            spent.append(time.process_time() - t0)
        return min(spent) / (stop - start) * 1e6

    def _distribute(self, number: int, start: int, stop: int) -> list[bytes | None]:
        """Do the distribution bolt's work on the messages of a step; return the frame for each task."""
        m, distributor = self.workload.messages.slice(start, stop), self.distributor
        ids = ids_of(m)
        if number == 0:  # compile kernels and touch memory first
            self._encode(message_columns(m, ids), distributor.message_tasks(m), number)
        t0 = time.process_time()
        routes = distributor.message_tasks(m)
        t1 = time.process_time()
        frames = self._encode(message_columns(m, ids), routes, number)
        t2 = time.process_time()
        self.routing[number], self.encoding[number] = t1 - t0, t2 - t1
        return frames

    def _encode(self, messages: Matching, routes: Any, number: int) -> list[bytes | None]:
        frames = encode_frames(messages, routes, self.tasks)
        self.received[number], self.bytes[number] = frames.received, frames.bytes
        return frames.values

    # -- one task ---------------------------------------------------------------------------------

    def _run_task(self, task: int, rows: np.ndarray, again: bool = False) -> None:
        """Run a task through all steps, ``repeat`` times; the shortest time of each step counts.

        :param rows: the subscriptions that it has at the start.
        :param again: the task has run before; only its late subscriptions are missing, and nothing is counted.
        """
        late = self._late.pop(task, [])
        self.late += len(late)
        self.living[task] += len(late)
        for turn in range(1 if again else self.repeat):
            spent = self._turn(rows, late, task, first=turn == 0, count=not again and turn == 0)
            if not again:
                self.busy[:, task] = spent if turn == 0 else np.minimum(self.busy[:, task], spent)

    def _turn(self, rows: np.ndarray, late: list[_Late], task: int, first: bool, count: bool) -> np.ndarray:
        """Run a task through all steps; return the seconds of each."""
        engine = self.workload.engine(self.index)
        own, seconds = _Rows(engine), np.zeros(len(self.steps))
        engine.advance(MessageBatch.empty(), self.workload.scale.window - 1)
        if len(rows):
            engine.resolve(own.insert(rows, self.view.subscriptions.take(rows)), *_of_rows(self.view.lists, rows))
        for number, (_, stop) in enumerate(self.steps):
            t0 = time.process_time()
            changes = engine.advance(decoded(self.frames[number][task]), stop - 1)
            spent = time.process_time() - t0
            spent += self._evaluate(engine, own, changes.due, number, stop - 1, count)
            coming = np.array([one.row for one in late if one.step == number], np.int64)
            if len(coming):
                t0 = time.process_time()
                slots = own.insert(coming, self.view.subscriptions.take(coming))
                spent += time.process_time() - t0
                spent += self._evaluate(engine, own, slots, number, stop - 1, count)
            seconds[number] = spent
        if count:
            self.memory[task] = engine.memory_bytes
        if first:
            self._collect(engine, own)
        return seconds

    def _evaluate(self, engine: TopkEngine, own: _Rows, due: np.ndarray, number: int, watermark: int, count: bool) -> float:
        """Evaluate pending subscriptions until none is left, and place those again whose floors fell below their guards; return the task's seconds."""
        spent = 0.0
        while len(due):
            slots, again = due, []
            for start in range(0, len(slots), _AT_ONCE):
                part = slots[start : start + _AT_ONCE]
                rows = own.rows[part]
                t0 = time.process_time()
                s = self.view.subscriptions.take(rows)
                answers = look_up(self.workload.window, s, watermark, engine.wanted(part), engine.extent, engine.diagonal_deg)
                t1 = time.process_time()
                again.append(engine.resolve(part, *answers).due)
                spent += time.process_time() - t1
                if count:
                    self.looking[number] += t1 - t0
                    self.evaluations[number] += len(part)
            due = np.concatenate(again)
            self._grow(own.rows[slots], engine.buffers.thresholds(slots), number)
        return spent

    def _grow(self, rows: np.ndarray, floors: np.ndarray, number: int) -> None:
        short = (floors <= self.guards[rows]) & (self.guards[rows] > -np.inf)
        for row, floor in zip(rows[short].tolist(), floors[short].tolist()):
            placed = self.distributor.place(f"s{row}", subscription_at(self.view.subscriptions, row), floor)
            self.guards[row] = min(self.guards[row], placed.guard)
            self.grown += 1
            for task in sorted(set(placed.tasks) - set(self.tasks_of[row])):
                self._late[task].append(_Late(number, row))
            self.tasks_of[row] = sorted({*self.tasks_of[row], *placed.tasks})

    def _collect(self, engine: TopkEngine, own: _Rows) -> None:
        rows = own.rows[: own.n]
        slots = np.flatnonzero(np.isin(rows, self.checked)).astype(np.int32)
        offsets, seqs, _, scores = engine.topk(slots)
        for i, slot in enumerate(slots.tolist()):
            part = slice(offsets[i], offsets[i + 1])
            self.merged[int(rows[slot])].update(zip(seqs[part].tolist(), scores[part].tolist()))

    # -- what was found ---------------------------------------------------------------------------

    def different(self) -> list[int]:
        """Return the checked subscriptions whose merged lists are not the best k messages of the whole window at the end."""
        w, k, s = self.workload, self.view.k, self.view.subscriptions.take(self.checked)
        truth = look_up(w.window, s, w.messages.n - 1, np.full(len(s), k), w.scale.window, w.diagonal_deg)
        found = []
        for i, row in enumerate(self.checked.tolist()):
            part = slice(truth.offsets[i], truth.offsets[i + 1])
            expected = list(zip(truth.seqs[part].tolist(), truth.scores[part].tolist()))
            if sorted(self.merged[row].items(), key=lambda one: (-one[1], -one[0]))[:k] != expected:
                found.append(row)
        return found

    def _found(self, place_us: float, weigh_us: float) -> dict[str, Any]:
        on = self.measured
        n = sum(stop - start for (start, stop), counted in zip(self.steps, on) if counted)
        us = 1e6 / n
        busy, received = self.busy[on], self.received[on]
        route_us, encode_us, slowest_us = self.routing[on].sum() * us, self.encoding[on].sum() * us, busy.sum(axis=0).max() * us
        distribution_us = weigh_us + route_us + encode_us
        different = self.different()
        found = {
            "communication": received.sum() / n,
            "bytes": self.bytes[on].sum() / n,
            "weigh_us": weigh_us,
            "route_us": route_us,
            "encode_us": encode_us,
            "distribution_us": distribution_us,
            "work_us": busy.sum() * us,
            "slowest_us": slowest_us,
            "critical_us": distribution_us + busy.max(axis=1).sum() * us,
            "look_up_us": self.looking[on].sum() * us,
            "evaluations_per_1000": self.evaluations[on].sum() / n * 1e3,
            "throughput": 1e6 / slowest_us,
            "distribution_per_s": 1e6 / distribution_us,
            "even_per_s": self.tasks * n / busy.sum(),
            "cpu_us": distribution_us + busy.sum() * us,
            "place_us": place_us,
            "replication": sum(map(len, self.tasks_of)) / self.n,
            "probes_enough": self.probes_enough,
            "unbounded": float((self.view.floors == -np.inf).mean()),
            "grown": self.grown,
            "late": self.late,
            "balance_subscriptions": balance(self.living),
            "balance_messages": balance(received.sum(axis=0)),
            "balance_load": balance(self.living * received.sum(axis=0)),
            "balance_busy": balance(busy.sum(axis=0)),
            "balance_planned": balance(self.distributor.loads()),
            "memory_mib": self.memory.sum() / 2**20,
            "largest_mib": self.memory.max() / 2**20,
            "checked": len(self.checked),
            "different": len(different),
            "subscriptions": self.n,
            "tasks": self.tasks,
        }
        return {name: value.item() if isinstance(value, np.generic) else value for name, value in found.items()}


class _Rows:
    """The subscriptions of an engine: slot -> row of the view."""

    def __init__(self, engine: TopkEngine) -> None:
        self.engine, self.n, self.rows = engine, 0, np.zeros(0, np.int64)

    def insert(self, rows: np.ndarray, s: Any) -> np.ndarray:
        slots = self.engine.insert(*vars(s).values(), complete=False)
        self.rows = np.concatenate([self.rows[: self.n], rows])  # nothing is ever removed, so slots rise
        self.n += len(rows)
        return slots


def _of_rows(lists: RankedLists, rows: np.ndarray) -> RankedLists:
    """Return the lists of some rows."""
    offsets, index = select_lists(lists.offsets, rows)
    return RankedLists(offsets, lists.seqs[index], lists.positions[index], lists.scores[index])
