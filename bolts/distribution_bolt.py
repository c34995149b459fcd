"""The distribution bolt: turns texts into weighted keywords and sends messages and subscriptions where they belong."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dskype.distribution import check_distributor, start_distributor
from dskype.spouts import expression, streams
from dskype.spouts.batch import MessageBatch
from dskype.spouts.columns import csr_to_lists
from dskype.spouts.settings import Settings
from dskype.spouts.text import Tokenizer
from dskype.spouts.vocabulary import Vocabulary
from dskype.topology.components import BatchBolt, OutputFieldsDeclarer
from dskype.topology.errors import InvalidTopologyException, explain
from dskype.topology.tuples import TupleBatch

__all__ = ["DistributionBolt"]


class DistributionBolt(BatchBolt):
    """Distributes messages and subscriptions (journal paper, section 7.2).

    Takes ``messages`` (shuffle) and ``subscriptions`` (fields(subscription)); emits ``matching`` and ``placements`` to the
    tasks of the subscription bolt that the distributor names, and ``window`` to the one task of the message bolt that
    keeps the message: its sequence number modulo their number.

    A placement is a map. Top-k: ``{"type": "topk", "k", "alpha", "lat", "lon", "terms": int64[], "weights": float64[],
    "meta"}``; boolean: ``{"type": "boolean", "bbox": [west, south, east, north], "expression": e, "expires_ms", "meta"}``
    where an expression is a term id, ``["and", e, ...]`` or ``["or", e, ...]``.

    :param subscription_bolt: id of the subscription bolt; default ``subscription-bolt``.
    :param message_bolt: id of the message bolt; default ``message-bolt``.
    """

    def __init__(self, subscription_bolt: str = "subscription-bolt", message_bolt: str = "message-bolt") -> None:
        self._subscription_bolt, self._message_bolt = subscription_bolt, message_bolt

    def check_topology(self, component_id: str, conf: Mapping[str, Any], topology: Any) -> None:
        """Check the settings and that both bolts are there."""
        settings = Settings.from_conf(conf)
        check_distributor(settings)
        for other in (self._subscription_bolt, self._message_bolt):
            if other not in topology.components:
                raise InvalidTopologyException(explain("The distribution bolt sends to a component that is not there.", given=other,
                                                       legal=", ".join(sorted(topology.components)), component=component_id))

    def declare_output_fields(self, declarer: OutputFieldsDeclarer) -> None:
        """Declare the direct streams ``matching``, ``placements`` and ``window``."""
        for stream in (streams.MATCHING, streams.PLACEMENTS, streams.WINDOW):
            declarer.declare_stream(stream, streams.FIELDS[stream], direct=True)

    def prepare(self, conf: Mapping[str, Any], context: Any, collector: Any) -> None:
        """Load the vocabulary (one copy per process) and make the distributor."""
        self._settings = settings = Settings.from_conf(conf)
        self._collector = collector
        self._tokenizer = Tokenizer(settings.stop_words)
        self._vocabulary = Vocabulary.load(settings.vocabulary) if settings.vocabulary else Vocabulary.empty()
        self._subscription_tasks = context.get_component_tasks(self._subscription_bolt)
        self._message_tasks = context.get_component_tasks(self._message_bolt)
        self._distributor = start_distributor(settings, len(self._subscription_tasks), self._vocabulary)

    def execute_batch(self, batch: TupleBatch) -> None:
        """Distribute a frame of messages or of subscriptions."""
        if batch.get_source_stream_id() == streams.MESSAGES:
            self._distribute(batch)
        else:
            for subscription, registration, record in batch.rows():
                self._place(subscription, registration, record)

    # -- messages ---------------------------------------------------------------------------------

    def _distribute(self, batch: TupleBatch) -> None:
        seq, position, ids, lat, lon, texts, arrival_ms = batch.columns
        offsets, terms, weights = self._vocabulary.weigh_texts(texts, self._tokenizer)
        messages = MessageBatch(np.array(seq), np.array(position), np.array(lat), np.array(lon), offsets, terms, weights)
        columns = [messages.seq, messages.position, ids, messages.lat, messages.lon, csr_to_lists(offsets, terms), csr_to_lists(offsets, weights)]
        self._to_subscription_bolts([*columns, arrival_ms], self._distributor.message_tasks(messages))
        self._to_message_bolts(columns, messages.seq)

    def _to_subscription_bolts(self, columns: list[Any], routes: Any) -> None:
        if routes is None:
            for task in self._subscription_tasks:
                self._collector.emit_direct_batch(task, columns, streams.MATCHING)
            return
        for index, task in enumerate(self._subscription_tasks):
            rows = routes.rows[routes.tasks == index]
            if len(rows):
                self._collector.emit_direct_batch(task, _take(columns, rows), streams.MATCHING)

    def _to_message_bolts(self, columns: list[Any], seq: np.ndarray) -> None:
        tasks = self._message_tasks
        if len(tasks) == 1:
            self._collector.emit_direct_batch(tasks[0], columns, streams.WINDOW)
            return
        index = seq % len(tasks)
        for i, task in enumerate(tasks):
            rows = np.flatnonzero(index == i)
            if len(rows):
                self._collector.emit_direct_batch(task, _take(columns, rows), streams.WINDOW)

    # -- subscriptions ----------------------------------------------------------------------------

    def _place(self, subscription: str, registration: str, record: Mapping[str, Any] | None) -> None:
        placement = None if record is None else self._placement(record)
        if placement is not None or self._distributor.by_id:
            tasks = self._distributor.place(subscription, placement or {}).tasks
        else:
            tasks = list(range(len(self._subscription_tasks)))  # wherever it may live
        for index in tasks:
            self._collector.emit_direct(self._subscription_tasks[index], (subscription, registration, placement), streams.PLACEMENTS)

    def _placement(self, record: Mapping[str, Any]) -> dict[str, Any]:
        if record["type"] == "topk":
            terms, weights = self._vocabulary.weigh(record["keywords"])
            return {"type": "topk", "k": record["k"], "alpha": record["alpha"], "lat": record["lat"], "lon": record["lon"],
                    "terms": terms, "weights": weights, "meta": record.get("meta")}
        words = expression.terms(record["expression"])
        terms = dict(zip(words, self._vocabulary.ids(words).tolist()))
        return {"type": "boolean", "bbox": record["bbox"], "expression": expression.map_terms(record["expression"], terms.__getitem__),
                "expires_ms": record.get("expires_ms"), "meta": record.get("meta")}

    def snapshot(self) -> Any:
        """Return the plan that is in force."""
        return None if self._distributor.by_id else self._distributor.plan()

    def restore(self, state: Any) -> None:
        """Give it back."""
        if state is not None:
            self._distributor = start_distributor(self._settings, len(self._subscription_tasks), self._vocabulary, state)


def _take(columns: list[Any], rows: np.ndarray) -> list[Any]:
    import pyarrow as pa

    index = pa.array(rows)
    return [c[rows] if isinstance(c, np.ndarray) else c.take(index) if hasattr(c, "take") else [c[i] for i in rows.tolist()] for c in columns]
