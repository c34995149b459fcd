"""Spouts and bolts of the benchmarks."""

from __future__ import annotations

import json
import time

import numpy as np
import pyarrow as pa

from dskype.deploy.demo.wordcount import PlacesSpout
from dskype.topology import BasicBolt, BatchBolt, Bolt, Fields, Spout

__all__ = [
    "FIELDS",
    "BatchPass",
    "BatchSpout",
    "CountWords",
    "Histogram",
    "IdleSpout",
    "PacedSpout",
    "Pass",
    "SplitWords",
    "StatefulBatchPass",
    "TextSpout",
    "quantile_ms",
]

FIELDS = Fields("key", "born_us", "sent_us")


def now_us() -> int:
    """Return the time of day, epoch microseconds."""
    return time.time_ns() // 1000


class Histogram:
    """Counts durations in buckets of 0.1 ms up to 60 s."""

    BUCKET_US, SIZE = 100, 600_000

    def __init__(self) -> None:
        self.counts = np.zeros(self.SIZE, dtype=np.int64)

    def count(self, micros) -> None:
        """Count durations in microseconds; 60 s and more count as the longest."""
        np.add.at(self.counts, np.clip(np.asarray(micros) // self.BUCKET_US, 0, self.SIZE - 1), 1)

    def drain(self) -> list[list[int]]:
        """Return the [bucket, count] pairs and reset all counts."""
        where = np.flatnonzero(self.counts)
        pairs = [[int(i), int(self.counts[i])] for i in where]
        self.counts[:] = 0
        return pairs


def quantile_ms(pairs: dict[int, int], q: float) -> float:
    """Return the q-quantile of {bucket: count}, the upper edge of its bucket."""
    total = sum(pairs.values())
    seen = 0
    for bucket in sorted(pairs):
        seen += pairs[bucket]
        if seen >= q * total:
            return (bucket + 1) * Histogram.BUCKET_US / 1000
    return 0.0


class PacedSpout(Spout):
    """Emits ``rate`` tuples per second in all (open loop), or as many as possible.

    :param rate: tuples per second over all tasks; 0: as fast as possible.
    :param tracked: emit with message ids.
    """

    def __init__(self, rate: float, tracked: bool = False) -> None:
        self.rate, self.tracked = rate, tracked

    def open(self, conf, context, collector) -> None:
        self.collector = collector
        self.tasks = len(context.get_component_tasks(context.get_this_component_id()))
        self.number = context.get_this_task_index()
        self.started = None

    def activate(self) -> None:
        self.started = time.monotonic()
        self.first = self.number

    def next_tuple(self) -> None:
        if self.rate and (self.number - self.first) / self.rate > time.monotonic() - self.started:
            return
        now = now_us()
        self.collector.emit((self.number, now, now), message_id=self.number if self.tracked else None)
        self.number += self.tasks

    def snapshot(self):
        return self.number

    def restore(self, state) -> None:
        self.number = state

    def declare_output_fields(self, declarer) -> None:
        declarer.declare(FIELDS)


class BatchSpout(PacedSpout):
    """Emits columns of up to ``size`` rows at a time."""

    def __init__(self, rate: float, tracked: bool = False, size: int = 8192) -> None:
        super().__init__(rate, tracked)
        self.size = size

    def next_tuple(self) -> None:
        n = self.size
        if self.rate:
            n = min(n, int((time.monotonic() - self.started) * self.rate - (self.number - self.first)) // self.tasks)
            if n <= 0:
                return
        keys = np.arange(self.number, self.number + n * self.tasks, self.tasks, dtype=np.int64)
        times = np.full(n, now_us(), dtype=np.int64)
        self.number += n * self.tasks
        self.collector.emit_batch([keys, times, times], message_ids=keys.tolist() if self.tracked else None)


class IdleSpout(Spout):
    """Never has anything to emit."""

    def next_tuple(self) -> None:
        pass

    def declare_output_fields(self, declarer) -> None:
        declarer.declare(FIELDS)


class _Measured:
    """Measures the hop from the previous component, and reports to the topic ``bench`` at every tick."""

    def _open(self, context, collector) -> None:
        self.collector, self.context = collector, context
        self.hop, self.whole = Histogram(), Histogram()
        self.count = 0
        self._hops: list[int] = []
        self._wholes: list[int] = []

    def _report(self) -> None:
        if self._hops:
            self.hop.count(self._hops)
            self.whole.count(self._wholes)
            self._hops, self._wholes = [], []
        line = {
            "component": self.context.get_this_component_id(),
            "task": self.context.get_this_task_id(),
            "time_ms": now_us() // 1000,
            "count": self.count,
            "hop": self.hop.drain(),
            "whole": self.whole.drain(),
        }
        self.collector.send_record("bench", None, json.dumps(line).encode())


class Pass(_Measured, Bolt):
    """An ordinary bolt that passes its tuple on."""

    def prepare(self, conf, context, collector) -> None:
        self._open(context, collector)

    def execute(self, tup) -> None:
        values = tup.values
        if len(values) == 1:  # a tick
            self._report()
            return
        now = now_us()
        self._hops.append(now - values[2])
        self._wholes.append(now - values[1])
        self.count += 1
        self.collector.emit((values[0], values[1], now), anchors=tup)
        self.collector.ack(tup)

    def declare_output_fields(self, declarer) -> None:
        declarer.declare(FIELDS)


class BatchPass(_Measured, BatchBolt):
    """A batch bolt that passes its rows on."""

    def prepare(self, conf, context, collector) -> None:
        self._open(context, collector)

    def execute_batch(self, batch) -> None:
        keys, born, sent = (np.asarray(c) for c in batch.columns)
        now = now_us()
        self.hop.count(now - sent)
        self.whole.count(now - born)
        self.count += batch.n
        parents = None if batch.roots is None else np.arange(batch.n)
        self.collector.emit_batch([keys, born, np.full(batch.n, now, dtype=np.int64)], parents=parents)

    def execute_tick(self, tup) -> None:
        self._report()

    def declare_output_fields(self, declarer) -> None:
        declarer.declare(FIELDS)


class StatefulBatchPass(BatchPass):
    """A batch bolt with a state of ``state_bytes`` per task, and a count that must be right at the end.

    :param state_bytes: size of the array that goes into every snapshot.
    """

    def __init__(self, state_bytes: int) -> None:
        self.state_bytes = state_bytes

    def prepare(self, conf, context, collector) -> None:
        super().prepare(conf, context, collector)
        self.sums = np.zeros(max(1, self.state_bytes // 8), dtype=np.int64)

    def execute_batch(self, batch) -> None:
        np.add.at(self.sums, np.asarray(batch.columns[0]) % len(self.sums), 1)
        super().execute_batch(batch)

    def snapshot(self):
        return {"sums": self.sums, "count": self.count}

    def restore(self, state) -> None:
        self.sums, self.count = state["sums"].copy(), state["count"]


class SplitWords(BasicBolt):
    """Splits a sentence into words, one tuple each."""

    def execute(self, tup, collector) -> None:
        for word in tup.values[0].split():
            collector.emit((word,))

    def declare_output_fields(self, declarer) -> None:
        declarer.declare(Fields("word"))


class CountWords(BasicBolt):
    """Counts words."""

    def prepare(self, conf, context) -> None:
        self.counts: dict[str, int] = {}

    def execute(self, tup, collector) -> None:
        word = tup.values[0]
        self.counts[word] = self.counts.get(word, 0) + 1

    def snapshot(self):
        return self.counts

    def restore(self, state) -> None:
        self.counts = dict(state)


class TextSpout(Spout):
    """Emits the texts of the demo's places repeatedly, from memory.

    :param batch: emit columns of a few hundred texts instead of single texts.
    """

    CHUNK = 400

    def __init__(self, batch: bool) -> None:
        self.batch = batch

    def open(self, conf, context, collector) -> None:
        self.collector, self.number = collector, 0
        texts: list[str] = []

        class Gather:
            """Collects the texts that the demo's spout emits."""

            @staticmethod
            def emit_batch(columns) -> None:
                texts.extend(columns[1].to_pylist())

        reader = PlacesSpout()
        reader.open(conf, context, Gather())
        before = -1
        while before != len(texts) and len(texts) < 60_000:
            before = len(texts)
            reader.next_tuple()
        reader.close()
        chunks = [texts[i : i + self.CHUNK] for i in range(0, len(texts), self.CHUNK)]
        self.chunks = [pa.array(chunk, pa.string()) for chunk in chunks] if self.batch else chunks

    def next_tuple(self) -> None:
        chunk = self.chunks[self.number % len(self.chunks)]
        self.number += 1
        if self.batch:
            self.collector.emit_batch([chunk])
        else:
            for text in chunk:
                self.collector.emit((text,))

    def declare_output_fields(self, declarer) -> None:
        declarer.declare(Fields("text"))
