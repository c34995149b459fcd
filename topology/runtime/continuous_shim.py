"""The function that Spark's Python worker runs for a continuous query.

It runs for as long as the query, and Spark gives it single records as they arrive. What arrives while the executor is
busy is sent to it in one piece, so batches grow with the load.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa

from dskype.topology.core.frames import NUDGE
from dskype.topology.runtime.resident import BATCH
from dskype.topology.runtime.shim import Shim, freeze_once
from dskype.topology.runtime.wire import EXTERNAL_INPUT, INBOX_INPUT

__all__ = ["ContinuousShim"]

_MOST_ROWS = 2000
"""Most rows that are sent to an executor at once."""
_HELD_BYTES = 32 << 20
"""When rows of so many bytes wait for the executor, no more are read, and Kafka keeps the rest."""


@dataclass(frozen=True)
class ContinuousShim(Shim):
    """The function for ``mapInArrow`` of one component's continuous query; it yields nothing.

    :param failures: folder for the texts of errors. Spark runs a failed task again, which fails as well, and tells the driver only of the last error.
    """

    failures: str = field(kw_only=True)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Forward the rows of one partition until the query ends."""
        freeze_once()
        arrivals = _Arrivals(batches, "value")
        try:
            while parts := arrivals.take(_MOST_ROWS):
                self._forward(parts)
        except Exception as error:
            with contextlib.suppress(OSError):
                os.makedirs(self.failures, exist_ok=True)
                with open(f"{self.failures}/{os.getpid()}", "w") as file:
                    file.write(str(error))
            raise
        yield from ()

    def _forward(self, parts: list[pa.RecordBatch]) -> None:
        """Send rows to their executors, and return when the brokers have everything that followed from them."""
        rows = parts[0] if len(parts) == 1 else pa.Table.from_batches(parts).combine_chunks().to_batches()[0]
        schema = EXTERNAL_INPUT if self.external else INBOX_INPUT
        rows = rows.cast(schema) if rows.schema != schema else rows
        head = BATCH.pack(0, self.external, True)
        requests = {index: (head, part.serialize()) for index, part in self._split(rows)}
        for index, request in requests.items():
            self._send(index, request)
        for index, request in requests.items():
            self._reply(index, request)


class _Arrivals:
    """Reads Spark's batches in a thread, because that blocks until the next record comes.

    :param batches: batches of one row. A row with a negative offset follows each record, which Spark would otherwise hold back.
    :param value: the column with the frames.
    """

    def __init__(self, batches: Iterator[pa.RecordBatch], value: str) -> None:
        self._batches, self._value = batches, value
        self._changed = threading.Condition()
        self._rows: list[pa.RecordBatch] = []
        self._n_bytes = 0
        self._ready = 0  # rows up to the last one that is not a nudge
        self._ended = False
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._read, name="arrivals", daemon=True)
        self._thread.start()

    def _read(self) -> None:
        error: BaseException | None = None
        try:
            for batch in self._batches:
                if not batch.num_rows or batch.column("offset")[0].as_py() < 0:
                    continue
                with self._changed:
                    self._changed.wait_for(lambda: self._n_bytes < _HELD_BYTES)
                    self._rows.append(batch)
                    self._n_bytes += batch.nbytes
                    if not self._is_nudge(batch):
                        self._ready = len(self._rows)
                        self._changed.notify_all()
        except BaseException as caught:
            error = caught
        with self._changed:
            self._ended, self._error, self._ready = True, error, len(self._rows)
            self._changed.notify_all()

    def _is_nudge(self, batch: pa.RecordBatch) -> bool:
        value = batch.column(self._value)[0]
        return value.is_valid and value.as_buffer().size == len(NUDGE) and value.as_py() == NUDGE

    def take(self, most: int) -> list[pa.RecordBatch]:
        """Wait for records, and return what has arrived; [] when the query ends. Nudges wait for the record behind them."""
        with self._changed:
            self._changed.wait_for(lambda: self._ready or self._ended)
            n = min(most, self._ready)
            taken, self._rows, self._ready = self._rows[:n], self._rows[n:], self._ready - n
            self._n_bytes -= sum(batch.nbytes for batch in taken)
            self._changed.notify_all()
            if not taken and self._error is not None:
                raise self._error
            return taken
