"""The top-k subscriptions of a task of the subscription bolt, and their evaluations.

How a list stays exact (journal paper, sections 6 and 7.2):

1. Messages are applied in rising (position, sequence number), when the watermark has passed them: at watermark *w* the
   task has applied exactly the messages of the window's history up to *w*.
2. An *active* subscription's buffer ranks before everything of the window that it does not hold, and has at least k live
   entries or holds everything; so its first k are the top-k of the window.
3. A new subscription, and one whose buffer falls below k, is *pending*: the task asks all message bolts for the window as
   of its own watermark ``w_req`` and goes on collecting what arrives, without threshold. The answer is exact as of
   ``w_req``; together with what has arrived since, it is complete, and the subscription is active again. While it is
   pending nothing is published for it; then its list jumps from the last published one to the present one.
4. The task announces the watermarks below which it will not ask any more (``progress``), so message bolts can forget.
   An announcement never overtakes a request: both travel on the same channels, in order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from dskype.bolts.busiest import Busiest
from dskype.bolts.changed_lists import ChangedLists
from dskype.bolts.message_ids import MessageIds
from dskype.bolts.message_queue import Arrived
from dskype.bolts.results.deltas import DeltaBatch
from dskype.bolts.results.publisher import ResultPublisher
from dskype.bolts.slot_metadata import SlotMetadata
from dskype.bolts.subscriptions import TopkSubscription
from dskype.bolts.topk.base import Changes
from dskype.bolts.topk.buffers.base import Lists
from dskype.bolts.topk.engine import TopkEngine
from dskype.spouts import streams
from dskype.spouts.columns import csr_to_lists, lists_to_csr
from dskype.spouts.settings import Settings
from dskype.topology.tuples import TupleBatch, column_to_list

__all__ = ["BEFORE_ALL", "Answers", "TopkSubscriptions", "make_engine"]

BEFORE_ALL = -1
"""The watermark before the first message."""


def make_engine(settings: Settings) -> TopkEngine:
    """Return an empty engine."""
    return TopkEngine(settings.extent, settings.space.diagonal_deg, settings.index, settings.buffer, settings.index_options, settings.buffer_options)


class Answers(NamedTuple):
    """What the window holds for pending slots.

    :ivar slots: int32[n].
    :ivar lists: their answers.
    """

    slots: np.ndarray
    lists: Lists


class TopkSubscriptions:
    """An engine, and what it does not know of its slots: names, message ids, requests on their way, and lists to be written.

    :param settings: of the topology.
    :param collector: the bolt's.
    :param publisher: of results.
    :param counters: ``states`` and ``evaluations``.
    """

    def __init__(self, settings: Settings, collector: Any, publisher: ResultPublisher, counters: Mapping[str, Any]) -> None:
        self._collector, self._publisher, self._counters = collector, publisher, counters
        self.engine = make_engine(settings)
        self.metadata = SlotMetadata()
        self.ids = MessageIds()
        self.slots: dict[str, int] = {}
        """Subscription -> slot."""
        self.busiest = Busiest(settings.results_per_s, self.metadata.name)
        self.changed = ChangedLists(settings.topk_interval_ms)
        self._requests: dict[int, int] = {}  # request -> slot
        self._request_of: dict[int, int] = {}  # slot -> its newest request
        self._asked = 0
        self._frozen: dict[int, int] = {}  # pending slot -> watermark of its last published list

    @property
    def watermark(self) -> int:
        """Up to which messages have been applied."""
        return self.engine.watermark

    @property
    def evaluations(self) -> int:
        """How many requests are on their way."""
        return len(self._request_of)

    # -- subscriptions ----------------------------------------------------------------------------

    def open(self, rows: Sequence[tuple[str, str, TopkSubscription]], complete: bool) -> np.ndarray:
        """Begin subscriptions (name, registration, what it asks for); return their slots.

        :param complete: the window is known to be empty. Else they are pending, and are to be asked for.
        """
        asked = [subscription for _, _, subscription in rows]
        offsets = np.zeros(len(rows) + 1, np.int64)
        np.cumsum([len(s.terms) for s in asked], out=offsets[1:])
        slots = self.engine.insert(
            np.array([s.k for s in asked], np.int32),
            np.array([s.alpha for s in asked], np.float64),
            np.array([s.lat for s in asked], np.float64),
            np.array([s.lon for s in asked], np.float64),
            offsets,
            np.concatenate([np.asarray(s.terms, np.int64) for s in asked]),
            np.concatenate([np.asarray(s.weights, np.float64) for s in asked]),
            complete,
        )
        for slot, (name, registration, subscription) in zip(slots.tolist(), rows):
            self.slots[name] = slot
            self.metadata.set(slot, name, registration, subscription.meta)
            if not complete:
                self._frozen[slot] = self.watermark
        return slots

    def forget(self, slot: int) -> None:
        """Empty a slot; an answer that comes later is ignored."""
        self.engine.remove(np.array([slot], np.int32))
        self.metadata.clear(slot)
        self.changed.forget(slot)
        self._frozen.pop(slot, None)
        request = self._request_of.pop(slot, None)
        if request is not None:
            del self._requests[request]

    def subscription(self, slot: int) -> TopkSubscription:
        """Return what the subscription in a slot asks for."""
        one = np.array([slot], np.int32)
        found = self.engine.subscriptions(one)
        place = (float(found[name][0]) for name in ("alpha", "lat", "lon"))
        return TopkSubscription(int(self.engine.k(one)[0]), *place, np.array(found["terms"]), np.array(found["weights"]), self.metadata.meta(slot))

    # -- messages ---------------------------------------------------------------------------------

    def advance(self, arrived: Arrived, watermark: int) -> Changes:
        """Apply the messages up to a watermark; return how lists changed, and what has fallen due."""
        before = self.watermark
        self.ids.add(arrived.messages.seq, arrived.messages.position, arrived.ids)
        changes = self.engine.advance(arrived.messages, watermark)
        self.busiest.count(changes.slot)
        for slot in changes.due.tolist():
            self._frozen.setdefault(slot, before)
        return changes

    def free_ids(self) -> None:
        """Forget the ids of messages that no list holds."""
        self.ids.free(min([self.watermark, *self._frozen.values()]) - self.engine.extent)

    # -- evaluations ------------------------------------------------------------------------------

    def is_asked(self, slot: int) -> bool:
        """Tell whether a request for a slot is on its way."""
        return slot in self._request_of

    def ask(self, slots: np.ndarray) -> None:
        """Ask the message bolts for the windows of slots as of the present watermark; answers to earlier requests are ignored."""
        n = len(slots)
        if not n:
            return
        numbers = np.arange(self._asked, self._asked + n, dtype=np.int64)
        self._asked += n
        self._counters["evaluations"].inc(n)
        for number, slot in zip(numbers.tolist(), slots.tolist()):
            old = self._request_of.get(slot)
            if old is not None:
                del self._requests[old]
            self._requests[number], self._request_of[slot] = slot, number
        asked = self.engine.subscriptions(slots)
        self._collector.emit_batch(
            [
                numbers,
                self.metadata.columns(slots)[0].tolist(),
                np.full(n, self.watermark),
                np.asarray(self.engine.wanted(slots), np.int64),
                asked["alpha"],
                asked["lat"],
                asked["lon"],
                csr_to_lists(asked["offsets"], asked["terms"]),
                csr_to_lists(asked["offsets"], asked["weights"]),
            ],
            streams.REQUESTS,
        )

    def pop_answers(self, batch: TupleBatch) -> Answers | None:
        """Return the answers in a frame to requests that still count; they are no longer on their way. None: there are none."""
        requests = np.array(batch["request"]).tolist()
        rows = [i for i, request in enumerate(requests) if request in self._requests]
        if not rows:
            return None
        offsets, seqs = lists_to_csr(batch["seqs"], np.int64)
        positions, scores = lists_to_csr(batch["positions"], np.int64)[1], lists_to_csr(batch["scores"], np.float64)[1]
        ids = [name for names in column_to_list(batch["ids"]) for name in names]
        if len(rows) < len(requests):
            index = np.concatenate([np.arange(offsets[i], offsets[i + 1]) for i in rows])
            lengths = np.diff(offsets)[rows]
            offsets = np.zeros(len(rows) + 1, np.int64)
            np.cumsum(lengths, out=offsets[1:])
            seqs, positions, scores, ids = seqs[index], positions[index], scores[index], [ids[i] for i in index.tolist()]
        slots = [self._requests.pop(requests[row]) for row in rows]
        for slot in slots:
            del self._request_of[slot]
        self.ids.add(seqs, positions, ids)
        return Answers(np.array(slots, np.int32), Lists(offsets, seqs, positions, scores))

    def resolve(self, answers: Answers) -> Changes:
        """Merge answers into the lists; return how these changed, and which slots are due again."""
        changes = self.engine.resolve(answers.slots, *answers.lists)
        due = set(changes.due.tolist())
        for slot in answers.slots.tolist():
            if slot not in due:
                del self._frozen[slot]
        return changes

    # -- results ----------------------------------------------------------------------------------

    def deltas(self, changes: Changes, rows: np.ndarray | slice = slice(None)) -> DeltaBatch:
        """Return changes, or some rows of them, with the names of what they are about."""
        names, registrations, metas = self.metadata.columns(changes.slot[rows])
        messages = self.ids.get(changes.seq[rows])
        return DeltaBatch(names, registrations, changes.op[rows], changes.watermark[rows], messages, changes.score[rows], changes.rank[rows], metas)

    def mark_changed(self, slots: np.ndarray) -> None:
        """Note that lists are to be written, if lists are wanted."""
        if self._publisher.wants_states:
            self.changed.mark(slots)

    def write_lists(self, now_ms: int) -> None:
        """Write the lists that changed, each at most every ``topk_interval_ms``; pending ones wait."""
        slots = self.changed.pop_due(now_ms, self._frozen)
        if not len(slots):
            return
        self._counters["states"].inc(len(slots))
        offsets, seqs, _, scores = self.engine.topk(slots)
        names, registrations, _ = self.metadata.columns(slots)
        self._publisher.states(names, registrations, np.full(len(slots), self.watermark), offsets, self.ids.get(seqs), scores)

    # -- state ------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """Return the state as arrays and plain values."""
        return {
            "engine": self.engine.snapshot(),
            "ids": self.ids.snapshot(),
            "asked": self._asked,
            "topk": self.metadata.snapshot(),
            "requests": [[request, slot] for request, slot in self._requests.items()],
            "frozen": [[slot, watermark] for slot, watermark in self._frozen.items()],
            "changed": self.changed.snapshot(),
        }

    def restore(self, state: Any) -> None:
        """Take over a snapshot."""
        self.engine.restore(state["engine"])
        self.ids.restore(state["ids"])
        self._asked = state["asked"]
        self.metadata.restore(state["topk"])
        self.slots = self.metadata.by_name()
        self._requests = dict(state["requests"])
        self._request_of = {slot: request for request, slot in state["requests"]}
        self._frozen = dict(state["frozen"])
        self.changed.restore(state["changed"])
