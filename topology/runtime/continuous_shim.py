"""The function that Spark's Python worker runs for a component with the continuous transport: it lets one executor run, and waits for its end."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

import pyarrow as pa
from pyspark import TaskContext

from dskype.topology.runtime.resident import BATCH, BATCH_KIND
from dskype.topology.runtime.shim import ExecutorFailedError, Shim, freeze_once
from dskype.topology.runtime.wire import receive, send

__all__ = ["ContinuousShim"]

_DEATHS, _DEATHS_S = 3, 10.0
"""An executor that dies so often within so many seconds has failed."""


@dataclass(frozen=True)
class ContinuousShim(Shim):
    """The function for ``mapInArrow`` of one component's continuous query; it yields nothing."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Let the executor with the number of this partition read, process and write until it is stopped; start it again if it dies.

        :raises ExecutorFailedError: it could not process a batch.
        """
        freeze_once()
        for _ in batches:  # a row that Spark needs in order to have a task
            pass
        index = cast("Any", TaskContext.get()).partitionId()
        deaths: deque[float] = deque(maxlen=_DEATHS)
        while not self._run(index):
            deaths.append(time.monotonic())
            if len(deaths) == _DEATHS and deaths[-1] - deaths[0] < _DEATHS_S:
                msg = f"executor {index} of component {self.component!r} died {_DEATHS} times within {_DEATHS_S:g} s"
                raise ExecutorFailedError(msg)
        yield from ()

    def _run(self, index: int) -> bool:
        """Let the executor run until it ends; return whether it was asked to."""
        try:
            connection = self._connect(index)
            send(connection, BATCH.pack(BATCH_KIND, 0, self.external, True))
            answer = receive(connection)
        except OSError:
            self._drop(index)
            return False
        self._drop(index)
        if answer[0]:
            raise ExecutorFailedError(bytes(answer[1:]).decode(errors="replace"))
        return True
