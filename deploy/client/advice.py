"""Recommends a distributor for messages and subscriptions like those of a sample: ``dskype partition advise``.

Each distributor learns a plan from one half of the sample. The other half is placed and routed by this plan, so that a plan gains nothing by fitting only what it has
seen. What each task would have to do follows from where subscriptions live and messages go, and from what messages, subscriptions and changes of lists cost.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from dskype.bolts.boolean import make_index
from dskype.deploy.client.balancing import balance
from dskype.distribution import distributor_class, make_distributor
from dskype.distribution.base import Distributor, Sample
from dskype.distribution.hybrid.loads import LoadModel
from dskype.distribution.learning.sampling import halves
from dskype.distribution.trials import Trial, try_out
from dskype.spouts.batch import select_lists

__all__ = ["CANDIDATES", "LEVEL", "Advice", "Candidate", "Costs", "Judge", "advise", "learning_options", "reasons"]

CANDIDATES = ("hashing", "location", "keyword", "prefix", "spatial-first", "keyword-first", "agrid", "hybrid")
"""Distributors that are compared, simpler ones first: of two with equal results the earlier one is recommended."""

LEVEL = 0.9
"""Throughputs that differ by less than this factor are level: the rest is chance, or depends on the machine."""

_AT_ONCE, _PAIRS_AT_ONCE = 1_000, 1_000_000
"""Messages that are matched, and pairs that are counted, in one step."""

_CHANGE_US = 1.0
"""What a change of a top-k list costs. With a million subscriptions a message makes some 400 changes, and takes one task 456 us (docs/benchmarks/distribution.md)."""

_COPY_US = 0.3
"""What a distribution task spends on a copy of a message."""


class Costs(NamedTuple):
    """What tasks do, in microseconds.

    :ivar boolean: messages and boolean subscriptions of a subscription task.
    :ivar change_us: a message enters a top-k list, or leaves one.
    :ivar copy_us: a distribution task sends a message to one task.
    """

    boolean: LoadModel = LoadModel()
    change_us: float = _CHANGE_US
    copy_us: float = _COPY_US


class Candidate(NamedTuple):
    """What a distributor would make of the sample.

    :ivar communication: tasks that get a message, on average.
    :ivar replication: tasks on which a subscription lives, on average.
    :ivar balance: work of the busiest task / mean.
    :ivar messages_us: the work of all tasks for a message, as far as they read messages.
    :ivar matching_us: the same, as far as they find subscriptions and change lists.
    :ivar updates_us: the same, as far as subscriptions come and go.
    :ivar slowest_us: the work of the busiest task for a message, of all three kinds.
    :ivar memory_bytes: what each distribution task keeps in order to route.
    :ivar learn_s: seconds that learning took.
    :ivar tasks_us: the work of each task for a message.
    """

    distributor: str
    communication: float
    replication: float
    balance: float
    messages_us: float
    matching_us: float
    updates_us: float
    slowest_us: float
    memory_bytes: int
    learn_s: float = 0.0
    tasks_us: tuple[float, ...] = ()

    @property
    def per_s(self) -> float:
        """Messages per second that the busiest subscription task could do."""
        return 1e6 / self.slowest_us

    @property
    def work_us(self) -> float:
        """The work of all subscription tasks for a message."""
        return self.messages_us + self.matching_us + self.updates_us


class Advice(NamedTuple):
    """A recommendation.

    :ivar candidates: all, the fastest first.
    :ivar chosen: the recommended one.
    :ivar plan: its plan, learned from the whole sample.
    """

    tasks: int
    candidates: list[Candidate]
    chosen: Candidate
    plan: dict[str, Any]

    def of(self, distributor: str) -> Candidate:
        """Return a candidate by its name."""
        return next(one for one in self.candidates if one.distributor == distributor)


def advise(
    sample: Sample, window: int, tasks: int, subscriptions: int | None = None, costs: Costs | None = None, tell: Callable[[str], None] = lambda name: None
) -> Advice:
    """Compare all distributors on a sample, and recommend one.

    A distributor is as fast as its busiest task. Of those that are about as fast as the fastest one, the one with the least work in all is
    recommended, sending included.

    :param window: messages that a list is chosen from.
    :param tasks: of the subscription bolt.
    :param subscriptions: how many there will be; default: those of the sample.
    :param costs: default: those of :class:`Costs`.
    :param tell: called with the name of each distributor before its turn.
    """
    costs, expected = costs or Costs(), subscriptions or sample.n
    learned, judged = halves(sample)
    judge = Judge(judged, window, expected, costs)
    candidates = []
    for name in CANDIDATES:
        tell(name)
        began = time.perf_counter()
        options = learning_options(name, expected, judged)
        plan = distributor_class(name).learn(tasks, learned, options)
        learn_s = time.perf_counter() - began
        candidates.append(judge.expect(make_distributor(name, tasks, options, plan), options)._replace(learn_s=learn_s))
    candidates.sort(key=lambda one: one.slowest_us)
    level = [one for one in candidates if one.per_s >= LEVEL * candidates[0].per_s]
    chosen = min(level, key=lambda one: one.work_us + costs.copy_us * one.communication)
    plan = distributor_class(chosen.distributor).learn(tasks, sample, learning_options(chosen.distributor, expected, sample))
    return Advice(tasks, candidates, chosen, plan)


def learning_options(name: str, subscriptions: int, sample: Sample) -> dict[str, Any]:
    """Return the options to learn a plan with: a grid over the messages, and the number of subscriptions, if the distributor knows them."""
    legal: Sequence[str] = getattr(distributor_class(name), "legal_options", ())
    found: dict[str, Any] = {}
    if "box" in legal:
        m = sample.messages
        west, south, east, north = (float(x) for x in (m.lon.min(), m.lat.min(), m.lon.max(), m.lat.max()))
        if west < east and south < north:
            found["box"] = [west, south, east, north]
    return {**found, "subscriptions": subscriptions} if "subscriptions" in legal else found


def _checked_pairs(sample: Sample) -> tuple[np.ndarray, np.ndarray]:
    """Return the messages and boolean subscriptions of the pairs that an index checks, int64[m] and int64[m].

    In such a pair the message is in the rectangle of the subscription, and has one of its routing terms.
    """
    boxes = sample.rectangles()
    rows = np.flatnonzero(~np.isnan(boxes[:, 0]))
    index = make_index("lanes")
    terms = [sample.terms[sample.offsets[row] : sample.offsets[row + 1]].tolist() for row in rows.tolist()]
    if len(rows):
        index.insert_many(np.arange(len(rows)), boxes[rows], [own[0] if len(own) == 1 else ["or", *own] for own in terms])
    messages, subscriptions = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for start in range(0, sample.messages.n if len(rows) else 0, _AT_ONCE):
        message, slot = index.match(sample.messages.slice(start, min(sample.messages.n, start + _AT_ONCE)))
        messages.append(message.astype(np.int64) + start)
        subscriptions.append(rows[slot])
    return np.concatenate(messages), np.concatenate(subscriptions)


class Judge:
    """Says what a distributor would make tasks do, by a sample that its plan was not learned from.

    :param sample: messages and subscriptions.
    :param window: messages that a list is chosen from.
    :param subscriptions: how many there will be.
    :param costs: of what tasks do.
    """

    def __init__(self, sample: Sample, window: int, subscriptions: int, costs: Costs) -> None:
        self._sample, self._window, self._costs = sample, window, costs
        self._scale = subscriptions / sample.n  # how many subscriptions one of the sample stands for
        self._pairs = _checked_pairs(sample)

    def expect(self, distributor: Distributor, options: Mapping[str, Any] | None = None) -> Candidate:
        """Return what the tasks have to do.

        :param options: those of the distributor.
        """
        sample, model, tasks, n = self._sample, self._costs.boolean, distributor.tasks, self._sample.messages.n
        kind = type(distributor)
        trial = try_out(distributor, sample, kind.summaries is not None and kind.summarizes(options))
        if trial.routes is None:
            messages = np.full(tasks, n)
            checked = _per_task(trial, self._pairs, np.ones((1, tasks), np.bool_), tasks)
        else:
            messages = np.bincount(trial.routes.tasks, minlength=tasks)
            arrives = np.zeros((n, tasks), np.bool_)
            arrives[trial.routes.rows, trial.routes.tasks] = True
            checked = _per_task(trial, self._pairs, arrives, tasks)
        lived = np.diff(trial.offsets)
        boolean = ~np.isnan(sample.rectangles()[:, 0])
        changes = np.where(boolean, 0.0, 2.0 * sample.filled * sample.k / max(1, self._window))  # of a list for each message: it enters, and it leaves
        matching = self._scale * (model.check_us * checked / n + self._costs.change_us * np.bincount(trial.tasks, np.repeat(changes, lived), tasks))
        updates = model.update_us * np.bincount(trial.tasks, minlength=tasks) / sample.n
        reading = model.message_us * messages / n
        work = matching + updates + reading
        sums = float(reading.sum()), float(matching.sum()), float(updates.sum())
        slowest, each = max(1e-9, float(work.max())), tuple(work.tolist())
        return Candidate(distributor.name, float(messages.sum() / n), float(lived.mean()), balance(work), *sums, slowest, trial.memory_bytes, tasks_us=each)


def _per_task(trial: Trial, pairs: tuple[np.ndarray, np.ndarray], arrives: np.ndarray, tasks: int) -> np.ndarray:
    """Return how many pairs each task checks, float64[tasks].

    :param pairs: from :func:`_checked_pairs`.
    :param arrives: which message goes to which task, bool[messages, tasks]; a single row holds for all messages.
    """
    checked = np.zeros(tasks)
    for start in range(0, len(pairs[0]), _PAIRS_AT_ONCE):
        rows, subscriptions = (one[start : start + _PAIRS_AT_ONCE] for one in pairs)
        ends, own = select_lists(trial.offsets, subscriptions)
        there = trial.tasks[own]
        met = arrives[np.repeat(rows if len(arrives) > 1 else np.zeros_like(rows), np.diff(ends)), there]
        checked += np.bincount(there[met], minlength=tasks)
    return checked


# -- in words -------------------------------------------------------------------------------------------------------------


def reasons(advice: Advice) -> list[str]:
    """Return why a distributor is recommended, in sentences."""
    own, hashing = advice.chosen, advice.of("hashing")
    others = [one for one in advice.candidates if one is not own]
    found = [
        f"The busiest of {advice.tasks} tasks could do {own.per_s:,.0f} messages/s"
        + ("." if own is hashing else f", {own.per_s / hashing.per_s:.1f} times as many as with hashing.")
    ]
    if own is hashing:
        found.append(
            "It needs no plan, and stores every subscription once. What the others save by sending fewer messages, they lose by storing subscriptions several times or by uneven tasks."
        )
    else:
        found.append(
            f"A message goes to {own.communication:.2f} tasks, with hashing to all {advice.tasks}. A subscription lives on {own.replication:.2f} tasks, with hashing on 1."
        )
    most = max(
        (own.messages_us, "reading messages"), (own.matching_us, "finding and updating what matches"), (own.updates_us, "subscriptions that come and go")
    )
    found.append(
        f"Most of the work is {most[1]}: {most[0]:.2f} of {own.work_us:.2f} us for each message, of all tasks together. The busiest task has {own.balance:.2f} times the mean."
    )
    return [*found, _against(own, others[0])]


def _against(own: Candidate, other: Candidate) -> str:
    """Return a sentence about the best of the others."""
    if other.per_s >= own.per_s * LEVEL:
        return f"{other.distributor} is level ({other.per_s:,.0f} messages/s), but does more work in all: {other.work_us:.2f} us, and sends {other.communication:.2f} copies of a message."
    causes = [
        (other.messages_us / max(1e-9, own.messages_us), f"a message goes to {other.communication:.2f} tasks"),
        ((other.matching_us + other.updates_us) / max(1e-9, own.matching_us + own.updates_us), f"a subscription lives on {other.replication:.2f} tasks"),
        (other.balance / own.balance, f"its busiest task has {other.balance:.2f} times the mean work"),
    ]
    return f"The next best is {other.distributor} with {other.per_s / own.per_s:.2f} times the messages/s: {max(causes)[1]}."
