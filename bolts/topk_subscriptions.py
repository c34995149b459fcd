"""The top-k subscriptions of a subscription task, and their evaluations.

How a list stays exact (journal paper, sections 6 and 7.2):

1. Messages are applied in rising order of (position, sequence number) when the watermark has passed them. So at watermark
   *w* the task has applied exactly the messages up to *w*.
2. The entries in the buffer of an *active* subscription rank before all other messages of the window. The buffer has at least
   k live entries, or holds every matching message. So its first k entries are the top-k of the window.
3. A new subscription, and one whose buffer falls below k, is *pending*: the task asks all message tasks for the window as
   of its own watermark ``w_req``, and collects all matching messages that arrive from then on. The answer is exact as of
   ``w_req``; together with the collected messages it is complete, and the subscription becomes active. Nothing is published
   for a pending subscription; afterwards its list jumps from the last published one to the present one.
4. A subscription with a lifetime ends with the first message that arrived when it was over: its list holds up to there, and is then withdrawn.
5. The task announces watermarks below which it will not ask any more (``progress``), so that message tasks can forget
   messages. An announcement never overtakes a request, because both travel in order on the same channels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import repeat
from typing import Any

import numpy as np
from sortedcontainers import SortedList

from dskype.bolts.busiest import Busiest
from dskype.bolts.changed_lists import ChangedLists
from dskype.bolts.message_ids import MessageIds
from dskype.bolts.message_queue import Arrived
from dskype.bolts.objects import StatePairs
from dskype.bolts.ranked_lists import RankedLists
from dskype.bolts.results.events import LISTS
from dskype.bolts.results.publisher import ResultPublisher
from dskype.bolts.slot_metadata import SlotMetadata
from dskype.bolts.topk.base import Changes
from dskype.bolts.topk.engine import TopkEngine
from dskype.bolts.window.base import QueryBatch
from dskype.distribution.subscriptions import TopkSubscription
from dskype.spouts.settings import Settings, list_bytes
from dskype.spouts.streams import Answers, Requests, Results
from dskype.topology.tuples import TupleBatch, column_to_list

__all__ = ["BEFORE_ALL", "TopkSubscriptions", "make_engine"]

BEFORE_ALL = -1
"""The watermark before the first message."""
_TELL_EVERY_MS, _NAMED = 10_000, 3


def make_engine(settings: Settings) -> TopkEngine:
    """Return an empty engine with the settings of a topology."""
    options = settings.index, settings.buffer, settings.index_options, settings.buffer_options
    return TopkEngine(settings.extent, settings.space.diagonal_deg, *options, ending=settings.objects, half_life_ms=settings.half_life_ms)


class TopkSubscriptions:
    """An engine, and what it does not know: names of subscriptions, message ids, open requests, and lists to be written.

    :param settings: settings of the topology.
    :param collector: collector of the bolt.
    :param publisher: publisher of results.
    :param counters: counters ``states`` and ``evaluations``.
    :param total_bytes_per_s: how many bytes of all lists this task writes per second; None: any number.
    """

    def __init__(self, settings: Settings, collector: Any, publisher: ResultPublisher, counters: Mapping[str, Any], total_bytes_per_s: int | None) -> None:
        self._collector, self._publisher, self._counters = collector, publisher, counters
        self.engine = make_engine(settings)
        self.metadata = SlotMetadata()
        self.ids = MessageIds()
        self.slots: dict[str, int] = {}
        """Subscription -> slot."""
        self.busiest = Busiest(settings.results_per_s, self.metadata.name)
        self.changed = ChangedLists(settings.topk_interval_ms, settings.topk_bytes_per_s, total_bytes_per_s)
        self._told, self._told_ms = 0, -_TELL_EVERY_MS
        self._requests: dict[int, int] = {}  # request -> slot
        self._request_of: dict[int, int] = {}  # slot -> its newest request
        self._asked = 0
        self._frozen: dict[int, int] = {}  # pending slot -> watermark of its last published list
        self._ends_ms: dict[int, int] = {}  # slot -> when it expires
        self._expiring = SortedList()  # (end in ms, slot) of the same

    @property
    def watermark(self) -> int:
        """The watermark up to which messages have been applied."""
        return self.engine.watermark

    @property
    def evaluations(self) -> int:
        """The number of open requests."""
        return len(self._request_of)

    # -- subscriptions ----------------------------------------------------------------------------

    def open(self, rows: Sequence[tuple[str, str, TopkSubscription]], complete: bool) -> np.ndarray:
        """Begin subscriptions, given as (name, registration, subscription); return their slots.

        :param complete: the window is known to be empty. Otherwise the subscriptions are pending, and :meth:`ask` has to follow.
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
            [s.program for s in asked],
            np.array([s.scale_m or 0.0 for s in asked]),
        )
        for slot, (name, registration, subscription) in zip(slots.tolist(), rows):
            self.slots[name] = slot
            self.metadata.set(slot, name, registration, subscription.meta)
            if not complete:
                self._frozen[slot] = self.watermark
            if subscription.expires_ms is not None:
                self._ends_ms[slot] = subscription.expires_ms
                self._expiring.add((subscription.expires_ms, slot))
        return slots

    def published_at(self, slot: int) -> int:
        """Return the watermark of the published list of a slot."""
        return self._frozen.get(slot, self.watermark)

    def keep_ids(self, slot: int, watermark: int) -> None:
        """Keep the ids of the messages of the window as of a watermark until a pending slot is resolved."""
        self._frozen[slot] = min(watermark, self._frozen[slot])

    def forget(self, slot: int) -> None:
        """Empty a slot; a later answer is ignored."""
        self.engine.remove(np.array([slot], np.int32))
        self.metadata.clear(slot)
        self.changed.forget(slot)
        self._frozen.pop(slot, None)
        if (ends_ms := self._ends_ms.pop(slot, None)) is not None:
            self._expiring.remove((ends_ms, slot))
        request = self._request_of.pop(slot, None)
        if request is not None:
            del self._requests[request]

    def subscription(self, slot: int) -> TopkSubscription:
        """Return the subscription in a slot."""
        one = np.array([slot], np.int32)
        found = self.engine.subscriptions(one)
        place = (float(found[name][0]) for name in ("alpha", "lat", "lon"))
        steps = self.engine.programs(one).steps
        words = np.array(found["terms"]), np.array(found["weights"])
        scale_m = float(found["scale_m"][0]) if "scale_m" in found else None
        program = steps if len(steps) else None
        return TopkSubscription(int(self.engine.k(one)[0]), *place, *words, self.metadata.meta(slot), program, scale_m, self._ends_ms.get(slot))

    def pop_expired(self, applied: Arrived, pairs: StatePairs | None = None) -> list[int]:
        """Return the slots of subscriptions that have expired since the last call, each once. The owner forgets each of them, at once or later.

        :param applied: the messages that have been applied since, and ``pairs``, the updates; their times of arrival say what time it is.
        """
        found: list[int] = []
        times_ms = [applied.arrival_ms] if pairs is None else [applied.arrival_ms, pairs.arrivals_ms()]
        if self._expiring and any(map(len, times_ms)):
            now_ms = int(np.concatenate(times_ms).max())
            while self._expiring and self._expiring[0][0] <= now_ms:
                found.append(self._expiring.pop(0)[1])
                del self._ends_ms[found[-1]]
        return found

    # -- messages ---------------------------------------------------------------------------------

    def advance(self, arrived: Arrived, watermark: int, pairs: StatePairs | None = None) -> Changes:
        """Apply messages and updates of objects up to a watermark; return how lists changed, and which slots fell due."""
        before, ended = self.watermark, None
        self.ids.remember(arrived.messages.seq, arrived.messages.position, arrived.ids)
        if pairs is not None and pairs.messages.n and len(self.engine):
            begun = pairs.begun()
            self.ids.remember(begun.messages.seq, begun.messages.position, begun.ids)
            arrived, ended = pairs.with_messages(arrived)
        changes = self.engine.advance(arrived.messages, watermark, arrived.details, ended)
        self.busiest.count(changes.slot)
        for slot in changes.due.tolist():
            self._frozen.setdefault(slot, before)
        return changes

    def free_ids(self) -> None:
        """Forget the ids of messages that can be in no list, and the states of objects that ended before the oldest open request."""
        oldest = min([self.watermark, *self._frozen.values()])
        self.ids.free(oldest - self.engine.extent)
        self.engine.forget_ends(oldest)

    # -- evaluations ------------------------------------------------------------------------------

    def is_asked(self, slot: int) -> bool:
        """Tell whether a request for a slot is open."""
        return slot in self._request_of

    def ask(self, slots: np.ndarray) -> None:
        """Request the windows of slots as of the present watermark; answers to earlier requests will be ignored."""
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
        queries = QueryBatch(np.full(n, self.watermark), np.asarray(self.engine.wanted(slots), np.int64), **asked)
        names, programs = self.metadata.columns(slots)[0].tolist(), self.engine.programs(slots).column()
        Requests(request=numbers, subscription=names, **queries.columns(), programs=programs, filter=[None] * n).emit_batch(self._collector)

    def pop_answers(self, batch: TupleBatch) -> tuple[np.ndarray, RankedLists] | None:
        """Close the open requests that a frame answers; return their slots (int32[n]) and a list for each, or None if there are none."""
        answers = Answers.of(batch)
        requests = np.array(answers.request).tolist()
        rows = [i for i, request in enumerate(requests) if request in self._requests]
        if not rows:
            return None
        lists, ids = RankedLists.of(answers), [name for names in column_to_list(answers.ids) for name in names]
        if len(rows) < len(requests):
            lists, index = lists.select(np.array(rows))
            ids = [ids[i] for i in index.tolist()]
        slots = [self._requests.pop(requests[row]) for row in rows]
        for slot in slots:
            del self._request_of[slot]
        self.ids.remember(lists.seqs, lists.positions, ids)
        return np.array(slots, np.int32), lists

    def resolve(self, slots: np.ndarray, answers: RankedLists) -> Changes:
        """Merge an answer for each slot into its list; return how lists changed, and which slots are due again."""
        changes = self.engine.resolve(slots, *answers)
        due = set(changes.due.tolist())
        for slot in slots.tolist():
            if slot not in due:
                del self._frozen[slot]
        return changes

    # -- results ----------------------------------------------------------------------------------

    def deltas(self, changes: Changes, rows: np.ndarray | slice = slice(None)) -> Results:
        """Return changes, or some rows of them, as deltas with the names of subscriptions and the ids of messages."""
        names, registrations, metas = self.metadata.columns(changes.slot[rows])
        return Results(
            subscription=names,
            registration=registrations,
            kind=changes.op[rows],
            watermark=changes.watermark[rows],
            message=self.ids.get(changes.seq[rows]),
            score=changes.score[rows],
            rank=changes.rank[rows],
            meta=metas,
        )

    def mark_changed(self, slots: np.ndarray) -> None:
        """Mark lists to be written, if lists are published at all."""
        if self._publisher.wants_states:
            self.changed.mark(slots)

    def write_lists(self, now_ms: int) -> None:
        """Write changed lists, each at most every ``topk_interval_ms`` and long ones less often; those of pending subscriptions wait."""
        import pyarrow.compute as pc

        slots = self.changed.pop_due(now_ms, self._frozen)
        if not len(slots):
            return
        self._counters["postponed_lists"].inc(self.changed.postponed - self._counters["postponed_lists"].get_count())
        self._counters["states"].inc(len(slots))
        offsets, seqs, _, scores = self.engine.topk(slots)
        names, registrations, _ = self.metadata.columns(slots)
        sizes: list[np.ndarray] = []
        for part in self._publisher.lists_at_once(offsets):
            bounds = offsets[part.start : part.stop + 1]
            rows, bounds = slice(bounds[0], bounds[-1]), bounds - bounds[0]
            messages = self.ids.get(seqs[rows])
            ends = np.concatenate(([0], np.cumsum(pc.binary_length(messages).to_numpy(), dtype=np.int64)))
            sizes.append(list_bytes(np.diff(bounds), ends[bounds[1:]] - ends[bounds[:-1]]))
            self._publisher.states(names[part], registrations[part], np.full(len(bounds) - 1, self.watermark), bounds, messages, scores[rows])
        self.changed.note_written(slots, np.concatenate(sizes), now_ms)
        if len(late := self.changed.late):
            names, registrations, _ = self.metadata.columns(late)
            self._publisher.emit_limited(zip(names.tolist(), registrations.tolist(), repeat(self.watermark)), LISTS[self.changed.all_late])

    def pop_postponed(self, now_ms: int) -> str | None:
        """Return a report of lists that were written late because of their bytes, at most every ten seconds; None: there were none."""
        if self.changed.postponed == self._told or now_ms - self._told_ms < _TELL_EVERY_MS:
            return None
        count, self._told, self._told_ms = self.changed.postponed - self._told, self.changed.postponed, now_ms
        named = [f"{name[:80]!r} every {pause / 1000:.1f} s" for slot, pause in self.changed.slowest(_NAMED) if (name := self.metadata.name(slot)) is not None]
        longest = (
            f"; the longest lists: {', '.join(named)} (dskype.results.topk.bytes.per.second)" if named else " (dskype.results.topk.total.bytes.per.second)"
        )
        return f"{count:,} writes of top-k lists were postponed, because they would have been too many bytes per second{longest}"

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
            "topk_ends_ms": [[slot, ends_ms] for slot, ends_ms in self._ends_ms.items()],
        }

    def restore(self, state: Any) -> None:
        """Continue from a snapshot."""
        self.engine.restore(state["engine"])
        self.ids.restore(state["ids"])
        self._asked = state["asked"]
        self.metadata.restore(state["topk"])
        self.slots = self.metadata.by_name()
        self._requests = dict(state["requests"])
        self._request_of = {slot: request for request, slot in state["requests"]}
        self._frozen = dict(state["frozen"])
        self.changed.restore(state["changed"])
        self._ends_ms = dict(state.get("topk_ends_ms", ()))  # absent from snapshots of earlier versions
        self._expiring = SortedList((ends_ms, slot) for slot, ends_ms in self._ends_ms.items())
