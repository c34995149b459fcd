"""Publishes results for subscription bolts, straight to Kafka or by way of the result bolt."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dskype.bolts.results.allowance import Allowance
from dskype.bolts.results.base import Opening, Removal, State
from dskype.bolts.results.deltas import encoded
from dskype.bolts.results.events import ADD, EVENTS, MATCHES, METAS, event_record, limited_record, parse_registration
from dskype.bolts.results.formats import MessageKeys, delta_records, heads, json_names, match_records, names_of, state_values
from dskype.bolts.results.kafka_store import KafkaStore
from dskype.bolts.results.match_kernels import Names
from dskype.spouts.columns import to_strings
from dskype.spouts.result_fields import AT_ONCE_BYTES
from dskype.spouts.streams import Lists, Results
from dskype.spouts.topics import Topics
from dskype.topology.config import RECORD_BYTES
from dskype.topology.errors import IllegalArgumentException
from dskype.topology.tuples import column_to_list

if TYPE_CHECKING:
    from dskype.spouts.settings import Settings

__all__ = ["ResultPublisher"]

_GROUPED_BYTES = 512 << 10
"""Of a record of grouped matches, at most: brokers and clients take it with their defaults."""


class ResultPublisher:
    """Turns results into records. Every subscription task and every result task has one.

    The columns of a call have one entry per row, in the order of publication, as arrays or lists of plain values. A publisher
    has no state to keep. ``wants_deltas`` and ``wants_states`` tell which calls have an effect (``dskype.results``).

    Deltas travel to the result bolt as columns, one tuple per delta, on stream ``results`` (:func:`~dskype.bolts.results.deltas.encoded`). A tuple of
    stream ``lists`` is (subscription, kind, record), with one of these records::

        topk    [registration, watermark, messages, scores]      in rank order; None, None: removed
        event   [registration, event, watermark]
        limited [registration, watermark, setting]

    :param collector: collector of the bolt.
    :param topology: name of the topology.
    :param settings: settings of the topology.
    :param via_bolt: emit results to the result bolt instead of writing them to Kafka; required for stores other than ``kafka``
        and for replicated subscriptions.
    :param run: see :func:`~dskype.bolts.results.base.run_of`.
    :param task: the task that writes.
    :param record_bytes: how large a record may be.
    :param allowance: what metas may cost, and which authors have been told; None: metas are always written, and nobody is told.
    :raises IllegalArgumentException: the settings' store needs the result bolt.
    """

    def __init__(
        self,
        collector: Any,
        topology: str,
        settings: Settings,
        *,
        via_bolt: bool = False,
        run: int = 0,
        task: int = 0,
        record_bytes: int = RECORD_BYTES,
        allowance: Allowance | None = None,
    ) -> None:
        if not via_bolt and settings.store != KafkaStore.name:
            raise IllegalArgumentException(
                "A store outside Kafka is written by the result bolt.", given=settings.store, legal="kafka", hint="add the result bolt to the topology"
            )
        self._collector, self._via_bolt, self._allowance = collector, via_bolt, allowance
        self._topics = Topics.for_topology(topology)
        self.wants_deltas = settings.results != "topk"
        self.wants_states = settings.results != "deltas"
        self.groups_matches = settings.matches == "grouped"
        """Matches are published with :meth:`matches` where one writer has all of a message and a task, not with :meth:`deltas`."""
        self._fields = settings.result_fields is not None
        self.rows_at_once = None if settings.result_fields is None else max(1, AT_ONCE_BYTES // settings.result_fields.max_bytes)
        """How many results with fields should be given to a call, at most; None: any number."""
        self._task, self._grouped_bytes = task, min(_GROUPED_BYTES, record_bytes // 2)
        self._store = KafkaStore()
        self._store.open(Opening(topology, run, collector))

    # -- publishing -----------------------------------------------------------------------------------------------------

    def deltas(self, batch: Results) -> int:
        """Publish changes of top-k lists, and matches of boolean and threshold subscriptions.

        With ``dskype.results: topk`` only matches are published, because no list contains them.

        :returns: number of published deltas.
        """
        ops = np.asarray(batch.kind)
        if not self.wants_deltas and (kept := np.isin(ops, MATCHES)).sum() < len(ops):
            batch = replace(batch, rank=None).take(np.flatnonzero(kept))
            ops = ops[kept]
        if not len(ops):
            return 0
        if (batch.score is None or batch.rank is None) and (ops == ADD).any():
            raise IllegalArgumentException("Deltas that add need scores and ranks.", given={"scores": batch.score is not None, "ranks": batch.rank is not None})
        (self.emit_deltas if self._via_bolt else self.write_deltas)(batch)
        return len(ops)

    def emit_deltas(self, batch: Results) -> None:
        """Emit deltas on stream ``results``, whatever ``dskype.results`` says."""
        if len(batch.subscription):
            encoded(batch, shared_messages=self._fields).emit_batch(self._collector)

    def write_deltas(self, batch: Results) -> None:
        """Write deltas to Kafka, without the metas that are too many bytes; see :func:`~dskype.bolts.results.formats.delta_records`."""
        if batch.meta is not None and self._allowance is not None:
            names = to_strings(batch.subscription)  # once for both
            metas, lacking = self._allowance.metas(names, batch.meta)
            batch = replace(batch, subscription=names, meta=metas)
            for setting in METAS:
                if rows := [row for row, cause in lacking if cause == setting]:
                    self.tell(batch.take(np.array(rows)).each("subscription", "registration", "watermark"), setting)
        keys, values, result_ids = delta_records(batch, self._fields)
        self._collector.send_records(self._topics.results, keys, values, [("result-id", result_ids)])

    def matches(self, messages: MessageKeys, rows: np.ndarray, subscriptions: np.ndarray, names: Names) -> None:
        """Write matches to Kafka, those of a message together; see :func:`~dskype.bolts.results.formats.match_records`.

        :param rows: int32[m], not falling: which of the messages matches ...
        :param subscriptions: int32[m]: ... the subscription of which of the names.
        """
        for keys, values, result_ids in match_records(messages, rows, subscriptions, names, self._task, self._grouped_bytes, self._fields):
            self._collector.send_records(self._topics.matches, keys, values, [("result-id", result_ids)])

    def merged_matches(self, batch: Results) -> None:
        """Write matches to Kafka, those of a message together; the batch is in any order, and has sequence numbers."""
        order = np.lexsort((batch.seq, batch.watermark))
        batch = replace(batch, meta=None, position=None).take(order)
        first = np.concatenate(([True], batch.seq[1:] != batch.seq[:-1]))[: len(order)]
        shared = batch.subscription.dictionary_encode()
        self.matches(
            MessageKeys(batch.message.take(np.flatnonzero(first)), batch.watermark[first], batch.seq[first]),
            np.cumsum(first, dtype=np.int32) - np.int32(1),
            shared.indices.to_numpy().astype(np.int32),
            names_of(json_names(shared.dictionary)),
        )

    def states(
        self, subscriptions: Sequence[str], registrations: Sequence[str], watermarks: Any, offsets: np.ndarray, messages: Sequence[str], scores: Any
    ) -> int:
        """Publish whole top-k lists.

        :param offsets: int64[n + 1]: the list of row *i* is ``messages[offsets[i]:offsets[i + 1]]``, in rank order.
        :param messages: ids as JSON text.
        :param scores: float64, scores of the messages.
        :returns: number of published lists; 0 with ``dskype.results: deltas``.
        """
        n = len(subscriptions)
        if not n or not self.wants_states:
            return 0
        if self._via_bolt:
            bounds, messages, scores = column_to_list(offsets), column_to_list(messages), column_to_list(scores)
            records = [
                [r, w, messages[start:stop], scores[start:stop]]
                for r, w, start, stop in zip(column_to_list(registrations), column_to_list(watermarks), bounds[:-1], bounds[1:], strict=True)
            ]
            self._emit(column_to_list(subscriptions), "topk", records)
        else:
            shared = heads(subscriptions, registrations)
            self._store.put_values(shared, watermarks, state_values(shared, watermarks, offsets, messages, scores))
        return n

    def encode_states(
        self, subscriptions: Sequence[str], registrations: Sequence[str], watermarks: Any, offsets: np.ndarray, messages: Any, scores: Any
    ) -> list[State]:
        """Return states with their JSON."""
        states: list[State] = []
        for part in self.lists_at_once(offsets):
            names, places, marks, bounds = subscriptions[part], registrations[part], watermarks[part], offsets[part.start : part.stop + 1]
            rows = slice(bounds[0], bounds[-1])
            values = state_values(heads(names, places), marks, bounds - bounds[0], messages[rows], scores[rows])
            states += [State(*row) for row in zip(names, places, marks, map(str.encode, values.to_pylist()), strict=True)]
        return states

    def lists_at_once(self, offsets: np.ndarray) -> Iterator[slice]:
        """Yield the lists in the parts that are put into records at once.

        :param offsets: int64[n + 1]: list *i* has the entries ``offsets[i]`` to ``offsets[i + 1]``.
        """
        start, n = 0, len(offsets) - 1
        while start < n:
            stop = n if self.rows_at_once is None else max(start + 1, int(np.searchsorted(offsets, offsets[start] + self.rows_at_once, "right")) - 1)
            yield slice(start, stop)
            start = stop

    def events(self, subscriptions: Sequence[str], registrations: Sequence[str], events: Sequence[str], watermarks: Any) -> int:
        """Publish registration events: ``active`` or ``removed``, as of a watermark (-1: before any message).

        :returns: number of published events.
        """
        n = len(subscriptions)
        rows = zip(column_to_list(subscriptions), column_to_list(registrations), events, column_to_list(watermarks), strict=True)
        if self._via_bolt:
            listed = list(rows)
            for _, registration, event, _ in listed:
                if event not in EVENTS:
                    raise IllegalArgumentException("A registration event is not known.", given=event, legal=" | ".join(EVENTS))
                parse_registration(registration)
            if n:
                self._emit([row[0] for row in listed], "event", [[r, e, w] for _, r, e, w in listed])
            return n
        for row in rows:
            self.write_event(*row)
        return n

    def write_event(self, subscription: str, registration: str, event: str, watermark: int) -> None:
        """Write one registration event to Kafka."""
        key, value, result_id = event_record(subscription, registration, event, watermark)
        self._collector.send_record(self._topics.registrations, key, value, (("result-id", result_id),))

    def emit_limited(self, rows: Iterable[tuple[str, str, int]], setting: str) -> None:
        """Publish that a setting has cut in, like :meth:`events`, unless the authors have been told of it recently.

        :param rows: (subscription, registration, watermark) of those whom it concerns.
        """
        for name, *about in self._untold(rows, setting):
            if self._via_bolt:
                self._emit([name], "limited", [[*about, setting]])
            else:
                self.write_limited(name, *about, setting)

    def tell(self, rows: Iterable[tuple[str, str, int]], setting: str) -> None:
        """Write to Kafka that a setting has cut in; see :meth:`emit_limited`."""
        for row in self._untold(rows, setting):
            self.write_limited(*row, setting)

    def _untold(self, rows: Iterable[tuple[str, str, int]], setting: str) -> list[tuple[str, str, int]]:
        if self._allowance is None:
            return []
        listed = list(rows)
        return [listed[i] for i in self._allowance.untold((registration for _, registration, _ in listed), setting)]

    def write_limited(self, subscription: str, registration: str, watermark: int, setting: str) -> None:
        """Write one event ``limited`` to Kafka."""
        key, value, result_id = limited_record(subscription, registration, watermark, setting)
        self._collector.send_record(self._topics.registrations, key, value, (("result-id", result_id),))

    def removed(self, subscriptions: Sequence[str], registrations: Sequence[str], watermarks: Any, states: bool = True) -> int:
        """Publish the end of registrations: the event ``removed``, and the null state.

        :param watermarks: watermarks up to which results are complete.
        :param states: False for subscriptions without a state, that is, boolean ones.
        :returns: number of registrations.
        """
        n = len(subscriptions)
        if not n:
            return 0
        subscriptions, registrations, watermarks = column_to_list(subscriptions), column_to_list(registrations), column_to_list(watermarks)
        self.events(subscriptions, registrations, ["removed"] * n, watermarks)
        if states and self.wants_states:
            if self._via_bolt:
                self._emit(subscriptions, "topk", [[r, w, None, None] for r, w in zip(registrations, watermarks, strict=True)])
            else:
                self._store.remove([Removal(*row) for row in zip(subscriptions, registrations, watermarks, strict=True)])
        return n

    def _emit(self, subscriptions: Sequence[str], kind: str, records: list[Any]) -> None:
        Lists(subscription=list(subscriptions), kind=[kind] * len(records), record=records).emit_batch(self._collector)
