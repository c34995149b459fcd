"""The function that Spark's Python worker runs: it forwards a micro-batch to the resident executors, and their answers to the sink.

It keeps connections and no other state. Spark assigns idle workers to tasks in any order, so several workers may be
connected to one executor.
"""

from __future__ import annotations

import gc
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import pyarrow as pa
from pyspark import TaskContext

from dskype.topology.core.executor import route_index
from dskype.topology.errors import TopologyError
from dskype.topology.runtime.processes import connect_socket
from dskype.topology.runtime.resident import BATCH, BATCH_KIND
from dskype.topology.runtime.standstill import boot_s, process_watch
from dskype.topology.runtime.supervisor import ask_supervisor
from dskype.topology.runtime.wire import EXTERNAL_INPUT, INBOX_INPUT, decode_batches, receive, send

__all__ = ["ExecutorFailedError", "Shim", "freeze_once", "stop_executors"]

_TRIES = 3
_frozen: list[bool] = []
_connections: dict[tuple[str, str, int, int], socket.socket] = {}


class ExecutorFailedError(TopologyError):
    """A resident executor could not process a batch; the text is its traceback."""


@dataclass(frozen=True)
class Shim:
    """The function for ``mapInArrow`` of one component's query.

    :param topology: topology id.
    :param component: component id.
    :param epoch: number of the query's start; executors of a lower one are replaced.
    :param inbox: name of the inbox topic.
    :param executors: executor index of every task, by task index.
    :param external: whether the input has rows of external topics (a Kafka spout).
    :param payload: a serialized ``resident.Payload``.
    :param standstill_s: after a longer standstill of this process, another one may have its work; None: there is no other one.
    """

    topology: str
    component: str
    epoch: int
    inbox: str
    executors: tuple[int, ...]
    external: bool
    payload: bytes = field(repr=False)
    standstill_s: float | None = None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Forward all rows of one Spark task, and yield the output rows.

        :raises ExecutorFailedError: an executor failed, or this process has stood still.
        """
        freeze_once()
        started_s = boot_s()
        if self.standstill_s is not None:
            process_watch(self.standstill_s)
        # All rows at once: a task's part of a batch must reach its executor in one piece, also when the batch is run again.
        parts = [b for b in batches if b.num_rows]
        if not parts:
            return
        rows = parts[0] if len(parts) == 1 else pa.Table.from_batches(parts).combine_chunks().to_batches()[0]
        rows = rows.cast(EXTERNAL_INPUT if self.external else INBOX_INPUT) if rows.schema != INBOX_INPUT else rows
        batch_id = int(cast("Any", TaskContext.get()).getLocalProperty("streaming.sql.batchId"))
        head = BATCH.pack(BATCH_KIND, batch_id, self.external)
        requests = {index: (head, part.serialize()) for index, part in self._split(rows)}
        for index, request in requests.items():
            self._send(index, request)
        for index, request in requests.items():
            answer = self._reply(index, request)
            self._check_standstill(started_s)
            yield from decode_batches(answer)

    def _split(self, rows: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
        if len(set(self.executors)) == 1:
            yield self.executors[0], rows
            return
        partitions = rows.column("partition").to_numpy()
        if self.external:
            tasks = [
                route_index(self.inbox, len(self.executors), topic, partition)
                for topic, partition in zip(rows.column("topic").to_pylist(), partitions.tolist())
            ]
        else:
            tasks = partitions
        owners = np.asarray(self.executors)[tasks]
        for index in np.unique(owners).tolist():
            yield index, rows.take(pa.array(np.flatnonzero(owners == index)))

    def _check_standstill(self, started_s: float) -> None:
        """Write nothing if this process has stood still since shortly before this task started.

        Spark may have given this host up. Then it ends this process as soon as it hears of it, so it gets time for that. Otherwise it runs the task again.

        :raises ExecutorFailedError: it has.
        """
        if self.standstill_s is None:
            return
        ended_s = process_watch(self.standstill_s).ended_since(started_s - self.standstill_s)
        if ended_s is not None:
            time.sleep(max(0.0, ended_s + self.standstill_s - boot_s()))
            msg = f"this process stood still for more than {self.standstill_s:g} s, so another host may have run its task of component {self.component!r}"
            raise ExecutorFailedError(msg)

    # -- connections ------------------------------------------------------------------------------

    def _connect(self, index: int) -> socket.socket:
        key = (self.topology, self.component, index, self.epoch)
        connection = _connections.get(key)
        if connection is None:
            request = {"op": "executor", "topology": self.topology, "component": self.component, "index": index, "epoch": self.epoch}
            try:
                answer = ask_supervisor(request)
                if "need" in answer:
                    answer = ask_supervisor({**request, "payload": self.payload})
            except OSError as error:
                _replace_daemon()
                msg = f"the supervisor has ended ({error}); Spark starts another"
                raise ExecutorFailedError(msg) from error
            if "error" in answer:
                raise ExecutorFailedError(answer["error"])
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            connect_socket(connection, answer["path"])
            _connections[key] = connection
        return connection

    def _drop(self, index: int) -> None:
        connection = _connections.pop((self.topology, self.component, index, self.epoch), None)
        if connection is not None:
            connection.close()

    def _send(self, index: int, request: tuple) -> None:
        try:
            send(self._connect(index), *request)
        except OSError:  # the executor has died since; _reply connects to a new one
            self._drop(index)

    def _reply(self, index: int, request: tuple) -> memoryview:
        for attempt in range(_TRIES):
            try:
                if attempt or (self.topology, self.component, index, self.epoch) not in _connections:
                    send(self._connect(index), *request)
                answer = receive(self._connect(index))
                break
            except OSError as error:
                self._drop(index)
                if attempt == _TRIES - 1:
                    msg = f"executor {index} of component {self.component!r} died {_TRIES} times while it processed one batch: {error}"
                    raise ExecutorFailedError(msg) from error
                time.sleep(0.02 * attempt)
        if answer[0]:
            self._drop(index)
            raise ExecutorFailedError(bytes(answer[1:]).decode(errors="replace"))
        return memoryview(answer)[1:]


def freeze_once() -> None:
    """Freeze what the first task has imported, because Spark collects garbage after every task."""
    if not _frozen:
        _frozen.append(True)
        gc.collect()
        gc.freeze()


def _replace_daemon() -> None:
    """End the daemon that forked this worker: with the next task, Spark starts another, which starts a supervisor."""
    os.kill(os.getppid(), signal.SIGTERM)


def stop_executors(topology: str, epoch: int, component: str | None = None) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return a function for ``mapInArrow`` that ends a topology's executors on the Spark executor it runs on."""

    def stop(_: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            stopped = ask_supervisor({"op": "stop", "topology": topology, "epoch": epoch, "component": component})["stopped"]
        except OSError:  # the supervisor has ended, and its executors with it
            stopped = 0
        yield pa.RecordBatch.from_arrays([pa.array([stopped], pa.int32())], names=["stopped"])

    return stop
