"""Publishes results, straight to Kafka or by way of the result bolt; what subscription bolts call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dskype.bolts.results.base import Opening, Removal, State
from dskype.bolts.results.formats import ADD, EVENTS, MATCH, Heads, delta_records, event_record, heads, parse_registration, state_values
from dskype.bolts.results.kafka_store import KafkaStore
from dskype.spouts import streams
from dskype.spouts.columns import to_strings
from dskype.spouts.topics import Topics
from dskype.topology.core.values import column_rows
from dskype.topology.errors import IllegalArgumentException, explain

if TYPE_CHECKING:
    from dskype.spouts.settings import Settings

__all__ = ["ResultPublisher"]


class ResultPublisher:
    """Turns results into records; one per task of a subscription bolt (or of the result bolt itself).

    All columns of a call have one entry per row, in the order of publication, as arrays or lists of plain values. A publisher
    has no state to be kept. ``wants_deltas`` and ``wants_states`` tell which calls have an effect (``dskype.results``).

    To the result bolt deltas travel as columns, one tuple each (stream ``results``: ``kind`` is the op, ``meta`` "" where there is
    none, ``seq`` and ``position`` 0 where they are not given). On stream ``lists`` a tuple is (subscription, kind, record), and
    ``record`` is, by kind::

        topk    [registration, watermark, messages, scores]      in rank order; None, None: removed
        event   [registration, event, watermark]

    :param collector: the bolt's collector.
    :param topology: the topology's name.
    :param settings: of the topology.
    :param via_bolt: emit on stream ``results`` for the result bolt, instead of writing to Kafka; needed for stores other than
        ``kafka`` and for replicated subscriptions.
    :param run: see :func:`~dskype.bolts.results.base.run_of`.
    :raises IllegalArgumentException: the settings' store needs the result bolt.
    """

    def __init__(self, collector: Any, topology: str, settings: Settings, *, via_bolt: bool = False, run: int = 0) -> None:
        if not via_bolt and settings.store != KafkaStore.name:
            raise IllegalArgumentException(
                explain("A store outside Kafka is written by the result bolt.", given=settings.store, legal="kafka", hint="add the result bolt to the topology")
            )
        self._collector, self._via_bolt = collector, via_bolt
        self._topics = Topics.of(topology)
        self.wants_deltas = settings.results != "topk"
        self.wants_states = settings.results != "deltas"
        self._store = KafkaStore()
        self._store.open(Opening(topology, run, collector))

    # -- publishing -----------------------------------------------------------------------------------------------------

    def deltas(
        self,
        subscriptions: Sequence[str],
        registrations: Sequence[str],
        ops: Any,
        messages: Sequence[str],
        scores: Any = None,
        ranks: Any = None,
        watermarks: Any = (),
        metas: Sequence[str | None] | None = None,
    ) -> int:
        """Publish changes of top-k lists, and matches of boolean subscriptions.

        With ``dskype.results: topk`` only matches are published: they are no part of any top-k.

        :param subscriptions: ids.
        :param registrations: ``"<partition>-<offset>"``.
        :param ops: int8: ``formats.ADD``, ``REMOVE`` or ``MATCH``.
        :param messages: ids as JSON text.
        :param scores: float64, read where the op is ``ADD``.
        :param ranks: int32, 1-based, read where the op is ``ADD``.
        :param watermarks: int64.
        :param metas: JSON text of the subscriptions' ``meta``, or None; None for all: nobody has one.
        :returns: how many were published.
        """
        ops = np.asarray(ops)
        if not self.wants_deltas and len(ops):
            kept = np.flatnonzero(ops == MATCH)
            if len(kept) < len(ops):
                rows = kept.tolist()
                subscriptions, registrations, messages, metas = (
                    None if column is None else [column_rows(column)[i] for i in rows] for column in (subscriptions, registrations, messages, metas)
                )
                ops, watermarks, scores, ranks = ops[kept], np.asarray(watermarks)[kept], None, None
        if not len(ops):
            return 0
        if (scores is None or ranks is None) and (ops == ADD).any():
            raise IllegalArgumentException(explain("Deltas that add need scores and ranks.", given={"scores": scores is not None, "ranks": ranks is not None}))
        if self._via_bolt:
            self.emit_rows(subscriptions, registrations, ops, messages, watermarks, scores, ranks, metas)
        else:
            self.write_deltas(heads(subscriptions, registrations, metas), ops, messages, watermarks, scores, ranks)
        return len(ops)

    def write_deltas(self, shared: Heads, ops: Any, messages: Any, watermarks: Any, scores: Any = None, ranks: Any = None) -> None:
        """Write deltas to Kafka; see :func:`~dskype.bolts.results.formats.delta_records`."""
        keys, values, result_ids = delta_records(shared, ops, messages, watermarks, scores, ranks)
        self._collector.send_records(self._topics.results, keys, values, [("result-id", result_ids)])

    def states(
        self, subscriptions: Sequence[str], registrations: Sequence[str], watermarks: Any, offsets: np.ndarray, messages: Sequence[str], scores: Any
    ) -> int:
        """Publish whole top-k lists.

        :param offsets: int64[n + 1]: the list of row *i* is ``messages[offsets[i]:offsets[i + 1]]``, in rank order.
        :param messages: ids as JSON text.
        :param scores: float64, theirs.
        :returns: how many were published; 0 with ``dskype.results: deltas``.
        """
        n = len(subscriptions)
        if not n or not self.wants_states:
            return 0
        if self._via_bolt:
            bounds, messages, scores = column_rows(offsets), column_rows(messages), column_rows(scores)
            records = [
                [r, w, messages[start:stop], scores[start:stop]]
                for r, w, start, stop in zip(column_rows(registrations), column_rows(watermarks), bounds[:-1], bounds[1:], strict=True)
            ]
            self._emit(column_rows(subscriptions), "topk", records)
        else:
            shared = heads(subscriptions, registrations)
            self._store.put_values(shared, watermarks, state_values(shared, watermarks, offsets, messages, scores))
        return n

    @staticmethod
    def encode_states(subscriptions: Sequence[str], registrations: Sequence[str], watermarks: Any, offsets: Any, messages: Any, scores: Any) -> list[State]:
        """Return states with their JSON."""
        values = state_values(heads(subscriptions, registrations), watermarks, offsets, messages, scores)
        return [State(*row) for row in zip(subscriptions, registrations, watermarks, map(str.encode, values.to_pylist()), strict=True)]

    def events(self, subscriptions: Sequence[str], registrations: Sequence[str], events: Sequence[str], watermarks: Any) -> int:
        """Publish registration events: ``active`` or ``removed``, as of a watermark (-1: before any message).

        :returns: how many were published.
        """
        n = len(subscriptions)
        rows = zip(column_rows(subscriptions), column_rows(registrations), events, column_rows(watermarks), strict=True)
        if self._via_bolt:
            listed = list(rows)
            for _, registration, event, _ in listed:
                if event not in EVENTS:
                    raise IllegalArgumentException(explain("A registration event is not known.", given=event, legal=" | ".join(EVENTS)))
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

    def removed(self, subscriptions: Sequence[str], registrations: Sequence[str], watermarks: Any, states: bool = True) -> int:
        """Publish that registrations ended: the event ``removed``, and the null state.

        :param watermarks: up to which results are complete.
        :param states: False for subscriptions that have no state (boolean ones).
        :returns: how many.
        """
        n = len(subscriptions)
        if not n:
            return 0
        subscriptions, registrations, watermarks = column_rows(subscriptions), column_rows(registrations), column_rows(watermarks)
        self.events(subscriptions, registrations, ["removed"] * n, watermarks)
        if states and self.wants_states:
            if self._via_bolt:
                self._emit(subscriptions, "topk", [[r, w, None, None] for r, w in zip(registrations, watermarks, strict=True)])
            else:
                self._store.remove([Removal(*row) for row in zip(subscriptions, registrations, watermarks, strict=True)])
        return n

    # -- the streams to the result bolt -------------------------------------------------------------------------------

    def emit_rows(
        self,
        subscriptions: Any,
        registrations: Any,
        kinds: Any,
        messages: Any,
        watermarks: Any,
        scores: Any = None,
        ranks: Any = None,
        metas: Any = None,
        seqs: Any = None,
        positions: Any = None,
    ) -> None:
        """Emit deltas on stream ``results``, whatever is wanted; ``kinds`` (int8) are ops, or what the result bolt makes of them."""
        import pyarrow as pa

        n = len(subscriptions)
        lengths = [len(column) for column in (subscriptions, registrations, kinds, messages, watermarks)]
        if len(set(lengths)) > 1:
            raise IllegalArgumentException(explain("The columns of deltas differ in length.", given=lengths))
        if not n:
            return
        nothing = np.zeros(n, np.int64)
        numbers = [
            np.asarray(_numbers(column), dtype) if column is not None else nothing.astype(dtype)
            for column, dtype in ((scores, np.float64), (ranks, np.int32), (seqs, np.int64), (positions, np.int64))
        ]
        texts = [to_strings(column).dictionary_encode() for column in (subscriptions, registrations)]
        if metas is None:
            metas = pa.DictionaryArray.from_arrays(pa.array(nothing.astype(np.int32)), pa.array([""]))
        else:
            metas = pa.array(metas, pa.string()).fill_null("").dictionary_encode()
        self._collector.emit_batch(
            [*texts, np.asarray(kinds, np.int8), np.asarray(watermarks, np.int64), to_strings(messages), numbers[0], numbers[1], metas, numbers[2], numbers[3]],
            stream=streams.RESULTS,
        )

    def _emit(self, subscriptions: Sequence[str], kind: str, records: list[Any]) -> None:
        self._collector.emit_batch([list(subscriptions), [kind] * len(records), records], stream=streams.LISTS)


def _numbers(column: Any) -> Any:
    return [0 if number is None else number for number in column] if isinstance(column, list) else column
