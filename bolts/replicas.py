"""Replicas: subscriptions that may live on several tasks of the subscription bolt, as one of these tasks sees them.

**Why the lists of replicas, merged, are exact.** A placement names tasks, and a guard: no message that goes to none of these tasks
has a score above it. A replica of a top-k subscription is *ready* while it is not pending and its floor theta is above the guard,
or the guard is -inf. Theta is the threshold of its buffer: every live message that it received, or that its last evaluation looked
at, and that has a score of theta or more is in the buffer, unless k better and newer ones are; and the buffer has k live entries,
or theta is -inf. Let all replicas of a placement be ready at watermark w, and *m* be in the true top-k at w. If some replica
received *m* or evaluated it, it holds it, or k better ones, and *m* would not be in the top-k. If none did, score(*m*) <= guard <
theta of any of them, which then holds k better ones. So the k best of the union of the replicas' lists at w are the top-k.

An evaluation looks at the whole window. So a replica that is placed later needs only to have asked at a watermark from which on
it receives all that its plan sends to its task: see :mod:`dskype.bolts.placer` for plans and how they change. Theta rises only,
but for evaluations; so a replica that is ready stays so until it is pending.

A replica that is not pending and not ready is *short*. It reports its whole placement with theta to the distribution task that
owns the subscription, which places it anew with a guard below theta: a new epoch. Replicas that there are already keep their
buffers and lists and take epoch and guard only; new ones begin pending.

**Claims.** A replica tells the result bolt for which epochs it is ready: the newest, and while the subscription moves to other
tasks also the one before it moved, with that one's guard, which stays good: messages still go by the old plan, too.

**Modes.** What the result bolt has of a replica: nothing; or it is *alone*, the ready and only replica of its newest epoch: its
deltas are what is to be published, and it writes its lists; or it is one of several (*part*), whose list the result bolt
merges. Whenever it changes from one to another, and after every evaluation, it sends its whole list, with what has been
published so far where it was alone.

**Boolean subscriptions** match exactly the messages with a position above that of their begin, up to that of their end, both
given by the distribution task that owns them: a watermark that no task has passed when it hears of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from dskype.bolts.entries import Entries
from dskype.bolts.merging import PART
from dskype.bolts.message_ids import MessageIds
from dskype.bolts.topk.buffers._kernels import K
from dskype.bolts.topk.engine import TopkEngine
from dskype.spouts import streams

__all__ = ["Coverage", "Replicas"]

_NOTHING, _ALONE, _PART = 0, 1, 2
_NEVER = -2
_LISTED = np.iinfo(np.int64).max


class Coverage:
    """From which watermark on a task receives all that a plan sends to it.

    :param sources: how many distribution tasks there are.
    """

    def __init__(self, sources: int) -> None:
        self._sources = sources
        self._from: dict[int, int] = {0: -1}
        self._markers: dict[int, dict[int, int]] = {}
        self._done: dict[int, set[int]] = {}

    def mark(self, version: int, source: int, high: int) -> None:
        """Take a marker of a distribution task: what it sends from here on, it sends by this plan; ``high`` is the newest position before."""
        marks = self._markers.setdefault(version, {})
        marks[source] = high
        if len(marks) == self._sources:
            self._from[version] = max(self._markers.pop(version).values())

    def done(self, version: int, source: int) -> bool:
        """Note that all subscriptions of a distribution task have moved; returns whether that is so of all of them now."""
        done = self._done.setdefault(version, set())
        done.add(source)
        if len(done) < self._sources:
            return False
        del self._done[version]
        return True

    def since(self, version: int) -> int:
        """Return the watermark; higher than any if it is not known yet."""
        return self._from.get(version, _LISTED)

    def snapshot(self) -> Any:
        """Return the state as plain values."""
        return [
            list(self._from.items()),
            [[v, list(marks.items())] for v, marks in self._markers.items()],
            [[v, sorted(done)] for v, done in self._done.items()],
        ]

    def restore(self, state: Any) -> None:
        """Take it over."""
        since, markers, done = state
        self._from = {v: at for v, at in since}
        self._markers = {v: {source: high for source, high in marks} for v, marks in markers}
        self._done = {v: set(sources) for v, sources in done}


class Replicas:
    """The placements of a task's top-k subscriptions; see the module.

    :param engine: with the same slots.
    :param entries: names, registrations and metas by slot.
    :param ids: of messages.
    :param collector: the bolt's.
    :param publisher: of results.
    :param coverage: of plans.
    :param tasks: ids of all tasks of the bolt by index; ``index`` is this one's.
    :param counted: positions are sequence numbers.
    """

    def __init__(
        self,
        engine: TopkEngine,
        entries: Entries,
        ids: MessageIds,
        collector: Any,
        publisher: Any,
        coverage: Coverage,
        tasks: Sequence[int],
        index: int,
        counted: bool,
    ) -> None:
        self._engine, self._entries, self._ids, self._collector, self._publisher = engine, entries, ids, collector, publisher
        self._coverage, self._tasks, self._me, self._counted = coverage, list(tasks), (index,), counted
        self.watermark = -1
        self._state = np.zeros(0, _STATE)
        self._placed: list[tuple[int, ...]] = []  # tasks by slot
        self._same: dict[tuple[int, ...], tuple[int, ...]] = {}
        self._standing: dict[int, tuple[int, tuple[int, ...], float]] = {}  # epoch, tasks and guard from before a move
        self._tell: set[int] = set()
        self._evaluate: dict[int, int] = {}  # slots to be evaluated anew, when this plan is in force
        self._waiting: dict[int, dict[int, None]] = {}  # plan -> slots that ask when it is covered

    # -- placements -----------------------------------------------------------------------------------------------------

    def open(self, slots: Iterable[int], placements: Iterable[Mapping[str, Any]], evaluated: bool) -> None:
        """Begin replicas in new slots; ``evaluated``: the window is known to be empty."""
        for slot, placement in zip(slots, placements):
            if slot >= len(self._state):
                self._state = np.concatenate((self._state, np.zeros(slot + 16 - len(self._state) + slot // 2, _STATE)))
                self._placed += [()] * (len(self._state) - len(self._placed))
            self._state[slot] = (0, 0.0, 0, placement["since"], _NOTHING, self.watermark if evaluated else _NEVER, _NEVER)
            self._take(slot, placement)

    def _take(self, slot: int, placement: Mapping[str, Any]) -> None:
        state, tasks = self._state[slot], tuple(placement["tasks"])
        state["epoch"], state["guard"], state["plan"] = placement["epoch"], placement["guard"], placement["plan"]
        self._placed[slot] = self._same.setdefault(tasks, tasks)
        if self._me[0] in placement["tell"]:
            self._tell.add(slot)
        else:
            self._tell.discard(slot)
        if self._me[0] in placement["evaluate"]:
            self._evaluate[slot] = placement["since"]
        else:
            self._evaluate.pop(slot, None)

    def take_epoch(self, slot: int, placement: Mapping[str, Any]) -> bool:
        """Take another epoch; returns False if this task is not among its tasks any more, and the slot is to be forgotten."""
        if self._me[0] not in placement["tasks"]:
            self._send(slot, "drop", [self._entries.registration(slot), self.watermark])
            return False
        if not placement["moving"]:
            self._standing.pop(slot, None)
        elif slot not in self._evaluate:
            self._standing.setdefault(slot, (int(self._state[slot]["epoch"]), self._placed[slot], float(self._state[slot]["guard"])))
        self._take(slot, placement)
        return True

    def end(self, slot: int) -> None:
        """Say that the subscription in a slot has ended here; the slot is to be forgotten."""
        base = self._lists([slot])[0] if self._state[slot]["mode"] == _ALONE else None
        _, registrations, metas = self._entries.take(np.array([slot]))
        self._send(slot, "gone", [registrations[0], None if metas is None else metas[0], base])

    def forget(self, slot: int) -> None:
        """Forget a slot."""
        self._standing.pop(slot, None)
        self._tell.discard(slot)
        self._evaluate.pop(slot, None)
        for waiting in self._waiting.values():
            waiting.pop(slot, None)

    def placement(self, slot: int) -> dict[str, Any]:
        """Return the whole placement in a slot, as the distribution bolt sent it, but for its tasks."""
        found = self._engine.index.table.columns(np.array([slot], np.int32))
        state = self._state[slot]
        metas = self._entries.take(np.array([slot]))[2]
        return {
            "type": "topk",
            "k": self._k(slot),
            "alpha": float(found["alpha"][0]),
            "lat": float(found["lat"][0]),
            "lon": float(found["lon"][0]),
            "terms": np.array(found["terms"]),
            "weights": np.array(found["weights"]),
            "meta": None if metas is None else metas[0],
            "guard": float(state["guard"]),
            "plan": int(state["plan"]),
        }

    def _k(self, slot: int) -> int:
        return int(self._engine.buffers.store.pool.block[slot, K])

    def epoch(self, slot: int) -> dict[str, Any]:
        """Return what :meth:`open` has to know to go on with the newest epoch in another slot."""
        state = self._state[slot]
        return {
            "epoch": int(state["epoch"]),
            "guard": float(state["guard"]),
            "plan": int(state["plan"]),
            "tasks": list(self._placed[slot]),
            "since": self._evaluate.get(slot, int(state["origin"])),
            "tell": list(self._me) if slot in self._tell else [],
            "evaluate": [],
        }

    # -- asking ---------------------------------------------------------------------------------------------------------

    def askable(self, slots: np.ndarray) -> np.ndarray:
        """Return the slots that may ask for the window now; the others will when their plan is covered.

        A replica that has asked under one plan need not wait for the next one: until that is in force it gets what it got.
        """
        covered = np.ones(len(slots), bool)
        for i, slot in enumerate(slots.tolist()):
            state = self._state[slot]
            if slot in self._evaluate or state["asked"] == _NEVER:
                plan = self._evaluate.get(slot, int(state["origin"]))
                if self._coverage.since(plan) > self.watermark:
                    covered[i] = False
                    self._waiting.setdefault(plan, {})[slot] = None
        asking = slots[covered]
        self._state["asked"][asking] = self.watermark
        return asking

    def covered(self) -> list[int]:
        """Return slots that have waited for their plan."""
        found: list[int] = []
        for plan in [v for v in self._waiting if self._coverage.since(v) <= self.watermark]:
            found += self._waiting.pop(plan)
        found = sorted(set(found))
        if not found:
            return []
        pending = self._engine.pending(np.array(found, np.int32))
        return [slot for slot, waits in zip(found, pending.tolist()) if waits]

    # -- lists ----------------------------------------------------------------------------------------------------------

    def send_changes(self, changes: Any, before: int, count: Callable[[int], None]) -> np.ndarray:
        """Send the changes that messages made, and that slots have fallen due; ``before``: the former watermark.

        :returns: slots whose lists are this task's to write.
        """
        modes = self._state["mode"][changes.slot] if len(changes.slot) else np.zeros(0, np.int8)
        rows = np.flatnonzero(modes != _NOTHING)
        if len(rows):
            slots, seqs = changes.slot[rows], changes.seq[rows]
            names, registrations, metas = self._entries.take(slots)
            count(len(rows))
            kinds = changes.op[rows] + np.where(modes[rows] == _PART, PART, 0).astype(np.int8)
            positions = seqs if self._counted else self._ids.positions(seqs)
            self._publisher.emit_rows(
                names, registrations, kinds, self._ids.get(seqs), changes.watermark[rows], changes.score[rows], changes.rank[rows], metas, seqs, positions
            )
        for slot in changes.due.tolist():
            if self._state[slot]["mode"] != _NOTHING:
                # When in between it fell due is not known; the list was right at the former watermark. (Of one that is alone the
                # result bolt need not know anything; but it may not be done yet with making it so.)
                self._send_list(slot, [], False, None, None, before + 1)
            if self._state[slot]["mode"] == _PART:
                self._state[slot]["mode"] = _NOTHING
        touched = changes.touched
        return touched[self._state["mode"][touched] == _ALONE] if len(touched) else touched

    def bases(self, slots: np.ndarray) -> dict[int, Any]:
        """Return what has been published of slots that are alone, before they take answers."""
        alone = slots[self._state["mode"][slots] == _ALONE]
        return dict(zip(alone.tolist(), self._lists(alone)))

    def resolved(self, slots: np.ndarray) -> None:
        """Note that slots have taken answers."""
        self._state["evaluated"][slots] = self._state["asked"][slots]

    def settle(self, slots: np.ndarray, bases: Mapping[int, Any]) -> list[int]:
        """Tell result and distribution bolts how it is with slots that took answers or epochs.

        :param bases: of those that took answers.
        :returns: slots that have to be evaluated anew.
        """
        slots = np.asarray(slots, np.int32)
        if not len(slots):
            return []
        again: list[int] = []
        tell: list[tuple[int, list[Any], bool, bool]] = []
        engine = self._engine
        for slot, pending, theta in zip(slots.tolist(), engine.pending(slots).tolist(), engine.buffers.thresholds(slots).tolist()):
            state, tasks = self._state[slot], self._placed[slot]
            ready, claims = False, []
            if not pending:
                if slot in self._evaluate and state["evaluated"] >= self._coverage.since(self._evaluate[slot]):
                    del self._evaluate[slot]
                if slot in self._evaluate:
                    again.append(slot)
                else:
                    ready = bool(state["guard"] == -np.inf or theta > state["guard"])
                    if not ready:
                        self._report(slot, "short", theta)
                if slot in self._standing:
                    epoch, before, guard = self._standing[slot]
                    if guard == -np.inf or theta > guard:
                        claims.append((epoch, before))
                if ready:
                    claims.append((int(state["epoch"]), tasks))
            alone, mode = ready and tasks == self._me, int(state["mode"])
            if claims:
                if not (mode == _ALONE and alone and slot not in bases):
                    tell.append((slot, claims, alone, mode == _ALONE))
                state["mode"] = _ALONE if alone else _PART
            elif mode == _PART or (mode == _ALONE and not (pending and tasks == self._me)):
                tell.append((slot, [], False, mode == _ALONE))
                state["mode"] = _NOTHING
            if ready and slot in self._tell:
                self._tell.discard(slot)
                self._report(slot, "ready", None)
        for (slot, claims, alone, was_alone), columns in zip(tell, self._lists([slot for slot, *_ in tell])):
            base = bases.get(slot, columns) if was_alone else None
            self._send_list(slot, claims, alone, columns if claims else None, base, self.watermark)
        return again

    def is_alone(self, slot: int) -> bool:
        """Tell whether the list in a slot is this task's to write."""
        return self._state[slot]["mode"] == _ALONE

    def _lists(self, slots: Any) -> list[Any]:
        """Return the published lists of slots: [seqs, positions, scores, ids]."""
        slots = np.asarray(slots, np.int32)
        if not len(slots):
            return []
        offsets, seqs, positions, scores = self._engine.topk(slots)
        ids, bounds = self._ids.get(seqs).to_pylist(), offsets.tolist()
        return [[np.array(seqs[a:b]), np.array(positions[a:b]), np.array(scores[a:b]), ids[a:b]] for a, b in zip(bounds, bounds[1:])]

    def _send_list(self, slot: int, claims: list[Any], alone: bool, columns: Any, base: Any, watermark: int) -> None:
        _, registrations, metas = self._entries.take(np.array([slot]))
        self._send(
            slot,
            "replica",
            [
                registrations[0],
                watermark,
                self._k(slot),
                None if metas is None else metas[0],
                [[epoch, [self._tasks[i] for i in tasks]] for epoch, tasks in claims],
                alone,
                columns,
                base,
            ],
        )

    def _send(self, slot: int, kind: str, record: list[Any]) -> None:
        self._collector.emit((self._entries.name(slot), kind, record), streams.LISTS)

    # -- reports --------------------------------------------------------------------------------------------------------

    def _report(self, slot: int, kind: str, theta: float | None) -> None:
        self._collector.emit(
            (
                self._entries.name(slot),
                self._entries.registration(slot),
                int(self._state[slot]["epoch"]),
                kind,
                theta,
                None if kind == "ready" else self.placement(slot),
            ),
            streams.SHORTAGES,
        )

    def survey(self, slot: int) -> None:
        """Report the placement in a slot, with its floor if that is known."""
        one = np.array([slot], np.int32)
        self._report(slot, "survey", None if self._engine.pending(one)[0] else float(self._engine.buffers.thresholds(one)[0]))

    # -- state ----------------------------------------------------------------------------------------------------------

    def snapshot(self) -> Any:
        """Return the state as arrays and plain values."""
        return {
            "columns": {name: np.array(self._state[name]) for name in _STATE.names},
            "placed": [list(tasks) for tasks in self._placed],
            "standing": [[slot, epoch, list(tasks), guard] for slot, (epoch, tasks, guard) in self._standing.items()],
            "tell": sorted(self._tell),
            "evaluate": list(self._evaluate.items()),
            "watermark": self.watermark,
            "waiting": [[plan, list(slots)] for plan, slots in self._waiting.items()],
        }

    def restore(self, state: Any) -> None:
        """Take it over."""
        columns = state["columns"]
        self._state = np.zeros(len(columns["epoch"]), _STATE)
        for name in _STATE.names:
            self._state[name] = columns[name]
        self._placed = [self._same.setdefault(tuple(tasks), tuple(tasks)) for tasks in state["placed"]]
        self._standing = {slot: (epoch, tuple(tasks), guard) for slot, epoch, tasks, guard in state["standing"]}
        self._tell, self._evaluate = set(state["tell"]), {slot: plan for slot, plan in state["evaluate"]}
        self._waiting = {plan: dict.fromkeys(slots) for plan, slots in state["waiting"]}
        self.watermark = state["watermark"]


_STATE = np.dtype(
    [("epoch", np.int32), ("guard", np.float64), ("plan", np.int32), ("origin", np.int32), ("mode", np.int8), ("evaluated", np.int64), ("asked", np.int64)]
)
