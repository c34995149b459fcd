"""Replicas of top-k subscriptions on one of the several tasks that they may live on.

**Why merged lists are exact.** A placement names tasks and a guard: no message that goes to none of these tasks scores above the guard.
The *floor* of a replica is theta, the threshold of its buffer. Consider the live messages that the replica received, or that its last
evaluation looked at, with a score of at least theta: each is in the buffer, unless the buffer has k better ones. The buffer has k live
entries, or theta is -inf. A replica is *ready* while it is not pending and its floor is above the guard, or the guard is -inf.

Let all replicas of a placement be ready at watermark w, and let *m* be in the true top-k at w. If some replica received *m*, or evaluated
it, then it holds *m*; otherwise it would hold k better messages, and *m* would not be in the top-k. If no replica did, then score(*m*) <=
guard < floor of each replica, so each replica holds k better messages, which contradicts the assumption. So the k best messages in the
union of the replicas' lists at w are the top-k.

An evaluation looks at the whole window. So a replica that is placed later only has to ask at a watermark from which on it receives
everything that its plan sends to its task (:class:`~dskype.bolts.ownership.coverage.Coverage`), and, with summaries, from which on no
distribution task withholds a message with one of its keywords. Apart from evaluations the floor only
rises, so a ready replica stays ready until it becomes pending.

A replica that is neither pending nor ready is *short*: it reports its placement and floor, and gets a new epoch with a lower guard.
Existing replicas keep their buffers and lists, and adopt the new epoch and guard; new replicas begin pending.

**Claims.** A replica tells the result bolt for which epochs it is ready: the newest one, and while the subscription moves also the one before
the move, with the guard of that epoch. It stays valid because messages still follow the old plan, too.

**Modes.** The result bolt knows nothing of a replica; or the replica is *alone*, that is, ready and the only one of its newest epoch, and its
deltas are published unchanged; or it is one of several whose lists the result bolt merges. Whenever the mode changes, and after every
evaluation, the replica sends its whole list, and if it was alone also its base: the results that it has published so far.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dskype.bolts.ownership.coverage import Coverage
from dskype.bolts.protocol.merging import PART, Claim, ReplicaDropped, ReplicaGone, ReplicaList
from dskype.bolts.protocol.placements import Epoch, Placement
from dskype.bolts.protocol.reports import EXPIRED, READY, SHORT, SURVEYED, ReplicaReport, ReportedPlacement
from dskype.bolts.ranked_lists import RankedList
from dskype.bolts.results.publisher import ResultPublisher
from dskype.bolts.topk.base import Changes
from dskype.bolts.topk_subscriptions import TopkSubscriptions
from dskype.spouts import streams

__all__ = ["Replicas"]

_NOTHING, _ALONE, _PART = 0, 1, 2
_NEVER = -2
_STATE = np.dtype(
    [
        ("epoch", np.int32),
        ("guard", np.float64),
        ("plan", np.int64),
        ("origin", np.int64),
        ("mode", np.int8),
        ("evaluated", np.int64),
        ("asked", np.int64),
        ("wanted", np.int64),
    ]
)


class Replicas:
    """The placements of a task's top-k subscriptions by slot, and what the result bolt knows of them; see the module.

    :param topk: the subscriptions, with the same slots.
    :param collector: collector of the bolt.
    :param publisher: publisher of results.
    :param coverage: coverage of plans.
    :param tasks: ids of all tasks of the bolt, by index.
    :param index: index of this task.
    :param counted: whether positions are sequence numbers.
    """

    def __init__(
        self, topk: TopkSubscriptions, collector: Any, publisher: ResultPublisher, coverage: Coverage, tasks: Sequence[int], index: int, counted: bool
    ) -> None:
        self._topk, self._collector, self._publisher = topk, collector, publisher
        self._coverage, self._tasks, self._me, self._counted = coverage, list(tasks), (index,), counted
        self.watermark = -1
        self._state = np.zeros(0, _STATE)
        self._placed: list[tuple[int, ...]] = []  # tasks by slot
        self._interned: dict[tuple[int, ...], tuple[int, ...]] = {}  # one object for equal tuples in ``_placed``
        self._standing: dict[int, tuple[int, tuple[int, ...], float]] = {}  # epoch, tasks and guard from before a move
        self._unreported: set[int] = set()  # slots that report when they are ready
        self._evaluate: dict[int, int] = {}  # slot to be evaluated again -> plan that must be in force before
        self._waiting: dict[int, dict[int, None]] = {}  # plan -> slots that ask when it is covered

    # -- placements -----------------------------------------------------------------------------------------------------

    def open(self, slots: Iterable[int], epochs: Iterable[Epoch], evaluated: bool) -> None:
        """Begin replicas in new slots; ``evaluated``: whether the window is known to be empty."""
        for slot, epoch in zip(slots, epochs):
            if slot >= len(self._state):
                self._state = np.concatenate((self._state, np.zeros(slot + 16 - len(self._state) + slot // 2, _STATE)))
                self._placed += [()] * (len(self._state) - len(self._placed))
            self._state[slot] = (0, 0.0, 0, epoch.since, _NOTHING, self.watermark if evaluated else _NEVER, _NEVER, self._coverage.wanted_since(epoch))
            self._begin_epoch(slot, epoch)

    def _begin_epoch(self, slot: int, epoch: Epoch) -> None:
        state, tasks = self._state[slot], tuple(epoch.tasks)
        state["epoch"], state["guard"], state["plan"] = epoch.number, epoch.guard, epoch.plan
        self._placed[slot] = self._interned.setdefault(tasks, tasks)
        if self._me[0] in epoch.report_ready:
            self._unreported.add(slot)
        else:
            self._unreported.discard(slot)
        if self._me[0] in epoch.evaluate:
            self._evaluate[slot] = epoch.since
        else:
            self._evaluate.pop(slot, None)

    def begin_epoch(self, slot: int, epoch: Epoch) -> bool:
        """Begin another epoch; return False if it does not name this task, and the slot has to be forgotten."""
        if self._me[0] not in epoch.tasks:
            self._send(slot, ReplicaDropped(self._topk.metadata.registration(slot), self.watermark))
            return False
        if not epoch.moving:
            self._standing.pop(slot, None)
        elif slot not in self._evaluate:
            state = self._state[slot]
            self._standing.setdefault(slot, (int(state["epoch"]), self._placed[slot], float(state["guard"])))
        self._begin_epoch(slot, epoch)
        return True

    def end(self, slot: int) -> None:
        """Tell the result bolt that the subscription in a slot has ended here; the slot has to be forgotten."""
        base = self._lists([slot])[0] if self._state[slot]["mode"] == _ALONE else None
        self._send(slot, ReplicaGone(self._topk.metadata.registration(slot), self._topk.metadata.meta(slot), base))

    def forget(self, slot: int) -> None:
        """Forget a slot."""
        self._standing.pop(slot, None)
        self._unreported.discard(slot)
        self._evaluate.pop(slot, None)
        for waiting in self._waiting.values():
            waiting.pop(slot, None)

    def renewed_placement(self, slot: int) -> Placement:
        """Return a placement by which the replica in a slot can begin again in another slot, in the same epoch."""
        state = self._state[slot]
        since = self._evaluate.get(slot, int(state["origin"]))
        report_ready = list(self._me) if slot in self._unreported else []
        decision = int(state["epoch"]), list(self._placed[slot]), float(state["guard"]), int(state["plan"])
        epoch = Epoch(*decision, since, self.watermark, False, report_ready, [])
        return Placement(self._topk.subscription(slot), epoch)

    # -- asking ---------------------------------------------------------------------------------------------------------

    def askable(self, slots: np.ndarray) -> np.ndarray:
        """Return the slots that may ask for the window now; the others wait until their plan is covered, and their interest is known.

        A replica that has asked under one plan need not wait for the next one: until that is in force, it receives the same messages.
        """
        covered = np.ones(len(slots), bool)
        for i, slot in enumerate(slots.tolist()):
            state = self._state[slot]
            if slot in self._evaluate or state["asked"] == _NEVER:
                plan = self._evaluate.get(slot, int(state["origin"]))
                if max(self._coverage.since(plan), state["wanted"]) > self.watermark:
                    covered[i] = False
                    self._waiting.setdefault(plan, {})[slot] = None
        asking = slots[covered]
        self._state["asked"][asking] = self.watermark
        return asking

    def pop_covered(self) -> list[int]:
        """Return the pending slots whose plan is now covered; they no longer wait."""
        found: list[int] = []
        for plan in [plan for plan in self._waiting if self._coverage.since(plan) <= self.watermark]:
            found += self._waiting.pop(plan)
        found = sorted(set(found))
        if not found:
            return []
        pending = self._topk.engine.pending(np.array(found, np.int32))
        return [slot for slot, waits in zip(found, pending.tolist()) if waits]

    # -- lists ----------------------------------------------------------------------------------------------------------

    def send_changes(self, changes: Changes, before: int, count: Callable[[int], None]) -> np.ndarray:
        """Send the changes that messages made, and tell which slots have fallen due; ``before`` is the former watermark.

        :returns: slots whose lists this task has to write.
        """
        modes = self._state["mode"][changes.slot] if len(changes.slot) else np.zeros(0, np.int8)
        rows = np.flatnonzero(modes != _NOTHING)
        if len(rows):
            count(len(rows))
            seqs, batch = changes.seq[rows], self._topk.deltas(changes, rows)
            kinds = batch.kind + np.where(modes[rows] == _PART, PART, 0).astype(np.int8)
            self._publisher.emit_deltas(replace(batch, kind=kinds, seq=seqs, position=seqs if self._counted else self._topk.ids.positions(seqs)))
        for slot in changes.due.tolist():
            if self._state[slot]["mode"] != _NOTHING:
                # It is unknown when the slot fell due; at the former watermark its list was right. (The result bolt need not know
                # this of a replica that is alone, but it may not have processed yet that it is alone.)
                self._send_list(slot, [], False, None, None, before + 1)
            if self._state[slot]["mode"] == _PART:
                self._state[slot]["mode"] = _NOTHING
        touched = changes.touched
        return touched[self._state["mode"][touched] == _ALONE] if len(touched) else touched

    def bases(self, slots: np.ndarray) -> dict[int, RankedList]:
        """Return the published lists of slots that are alone, before answers are merged into them."""
        alone = slots[self._state["mode"][slots] == _ALONE]
        return dict(zip(alone.tolist(), self._lists(alone)))

    def record_resolved(self, slots: np.ndarray) -> None:
        """Record that answers have been merged into slots."""
        self._state["evaluated"][slots] = self._state["asked"][slots]

    def settle(self, slots: np.ndarray, bases: Mapping[int, RankedList]) -> list[int]:
        """Tell result and distribution bolts the state of slots that got answers or epochs.

        :param bases: from :meth:`bases`, for slots that got answers.
        :returns: slots that have to be evaluated again.
        """
        slots = np.asarray(slots, np.int32)
        if not len(slots):
            return []
        to_evaluate: list[int] = []
        changed: list[tuple[int, list[Claim], bool, bool]] = []
        engine = self._topk.engine
        for slot, pending, floor in zip(slots.tolist(), engine.pending(slots).tolist(), engine.floors(slots).tolist()):
            state, tasks = self._state[slot], self._placed[slot]
            if slot in self._evaluate and not pending and state["evaluated"] >= self._coverage.since(self._evaluate[slot]):
                del self._evaluate[slot]
            if slot in self._evaluate and not pending:
                to_evaluate.append(slot)
            claims, ready = ([], False) if pending else self._claims(slot, floor)
            alone, mode = ready and tasks == self._me, int(state["mode"])
            if claims:
                if not (mode == _ALONE and alone and slot not in bases):
                    changed.append((slot, claims, alone, mode == _ALONE))
                state["mode"] = _ALONE if alone else _PART
            elif mode == _PART or (mode == _ALONE and not (pending and tasks == self._me)):
                changed.append((slot, [], False, mode == _ALONE))
                state["mode"] = _NOTHING
            if ready and slot in self._unreported:
                self._unreported.discard(slot)
                self._report(slot, READY)
        for (slot, claims, alone, was_alone), ranked in zip(changed, self._lists([slot for slot, *_ in changed])):
            base = bases.get(slot, ranked) if was_alone else None
            self._send_list(slot, claims, alone, ranked if claims else None, base, self.watermark)
        return to_evaluate

    def _claims(self, slot: int, floor: float) -> tuple[list[Claim], bool]:
        """Return the claims of a replica that is not pending, and whether it is ready for its newest epoch. If it is short, report it."""
        state, claims, ready = self._state[slot], [], False
        if slot not in self._evaluate:
            ready = bool(state["guard"] == -np.inf or floor > state["guard"])
            if not ready:
                self._report(slot, SHORT, floor)
        if slot in self._standing:
            epoch, tasks, guard = self._standing[slot]
            if guard == -np.inf or floor > guard:
                claims.append(self._claim(epoch, tasks))
        if ready:
            claims.append(self._claim(int(state["epoch"]), self._placed[slot]))
        return claims, ready

    def _claim(self, epoch: int, indexes: Iterable[int]) -> Claim:
        return Claim(epoch, [self._tasks[i] for i in indexes])

    def is_alone(self, slot: int) -> bool:
        """Tell whether the replica in a slot is alone, so that this task writes its list."""
        return self._state[slot]["mode"] == _ALONE

    def _lists(self, slots: Any) -> list[RankedList]:
        """Return the published lists of slots."""
        slots = np.asarray(slots, np.int32)
        if not len(slots):
            return []
        lists = self._topk.engine.topk(slots)
        return lists.split(lists.cut(self._topk.ids.get(lists.seqs).to_pylist()))

    def _send_list(self, slot: int, claims: list[Claim], alone: bool, ranked: RankedList | None, base: RankedList | None, watermark: int) -> None:
        metadata, k = self._topk.metadata, int(self._topk.engine.k(np.array([slot]))[0])
        self._send(slot, ReplicaList(metadata.registration(slot), watermark, k, metadata.meta(slot), claims, alone, ranked, base))

    def _send(self, slot: int, message: ReplicaList | ReplicaDropped | ReplicaGone) -> None:
        streams.Lists(subscription=self._topk.metadata.name(slot), kind=message.kind, record=message.encode()).emit(self._collector)

    # -- reports --------------------------------------------------------------------------------------------------------

    def _report(self, slot: int, kind: str, floor: float | None = None) -> None:
        state, placement = self._state[slot], None
        if kind not in (READY, EXPIRED):
            placement = ReportedPlacement(self._topk.subscription(slot), float(state["guard"]), int(state["plan"]))
        report = ReplicaReport(self._topk.metadata.name(slot), self._topk.metadata.registration(slot), int(state["epoch"]), kind, floor, placement)
        report.shortage().emit(self._collector)

    def report_expired(self, slot: int) -> None:
        """Report that a subscription has expired; the task that owns it ends it everywhere."""
        self._report(slot, EXPIRED)

    def survey(self, slot: int) -> None:
        """Report the placement in a slot, with its floor unless it is pending."""
        one = np.array([slot], np.int32)
        self._report(slot, SURVEYED, None if self._topk.engine.pending(one)[0] else float(self._topk.engine.floors(one)[0]))

    # -- state ----------------------------------------------------------------------------------------------------------

    def snapshot(self) -> Any:
        """Return the state as arrays and plain values."""
        return {
            "columns": {name: np.array(self._state[name]) for name in _STATE.names},
            "placed": [list(tasks) for tasks in self._placed],
            "standing": [[slot, epoch, list(tasks), guard] for slot, (epoch, tasks, guard) in self._standing.items()],
            "tell": sorted(self._unreported),
            "evaluate": list(self._evaluate.items()),
            "watermark": self.watermark,
            "waiting": [[plan, list(slots)] for plan, slots in self._waiting.items()],
        }

    def restore(self, state: Any) -> None:
        """Continue from a snapshot."""
        columns = state["columns"]
        self._state = np.zeros(len(columns["epoch"]), _STATE)
        self._state["wanted"] = -1  # absent from snapshots of earlier versions
        for name in columns:
            self._state[name] = columns[name]
        self._placed = [self._interned.setdefault(tuple(tasks), tuple(tasks)) for tasks in state["placed"]]
        self._standing = {slot: (epoch, tuple(tasks), guard) for slot, epoch, tasks, guard in state["standing"]}
        self._unreported, self._evaluate = set(state["tell"]), dict(state["evaluate"])
        self._waiting = {plan: dict.fromkeys(slots) for plan, slots in state["waiting"]}
        self.watermark = state["watermark"]
