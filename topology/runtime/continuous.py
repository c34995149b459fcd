"""Continuous queries: tasks of Spark that run for as long as their topology (see docs/transport.md)."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from dskype.topology.core.frames import NUDGE
from dskype.topology.planning.plan import inbox_topic
from dskype.topology.runtime import tuning
from dskype.topology.runtime.continuous_shim import ContinuousShim
from dskype.topology.runtime.kafka import starting_offsets
from dskype.topology.runtime.queries import ComponentQuery, QueryContext

__all__ = ["ContinuousQuery"]

_EPOCH = "1 hour"
"""Nothing is resumed from Spark's epochs, and at the end of one every task starts its Python function anew."""

_SOURCE = {
    # Spark's reader asks for the log's ends after every poll. The broker answers on the same connection only after a fetch that has been sent ahead, and
    # the client sends none while it holds a further record: so records come one by one, and the nudge behind a frame lets the frame pass.
    "kafka.max.poll.records": "1",
    "kafka.fetch.max.wait.ms": "500",
    # Each partition has a consumer that lives as long as the topology. A larger record comes all the same.
    "kafka.max.partition.fetch.bytes": str(1 << 20),
    "kafkaConsumer.pollTimeoutMs": "10000",
    "failOnDataLoss": "true",
}
_COLUMNS = ("partition", "IF(follower, -1L, offset) AS offset", "unix_micros(timestamp) AS timestamp", "IF(follower, NULL, value) AS value")
# Spark passes a row on only when it has the next one.
_FOLLOWERS = f"explode(IF(value = X'{NUDGE.hex()}', array(false), array(false, true))) AS follower"


class ContinuousQuery(ComponentQuery):
    """The continuous query of one component: Kafka source -> shim; the executors write to Kafka themselves.

    :param session: a session with the settings of continuous queries.
    """

    def __init__(self, context: QueryContext, component: str, positions: dict[tuple[str, int], int], session: Any) -> None:
        super().__init__(context, component, positions)
        self._session = session

    def start(self) -> None:
        """Start the query; return before its first record."""
        plan, kafka = self._context.plan, self._context.kafka
        inbox = inbox_topic(plan.name, self.component)
        reader = self._session.readStream.format("kafka").option("assign", json.dumps({inbox: sorted(partition for _, partition in self._positions)}))
        servers = {"kafka.bootstrap.servers": kafka.bootstrap_servers}
        for key, value in {**_SOURCE, **kafka.options, **servers, "startingOffsets": starting_offsets(self._positions)}.items():
            reader = reader.option(key, value)
        executors = tuple(plan.executor_of(t) for t in plan.component_tasks(self.component))
        shim = ContinuousShim(
            plan.topology_id, self.component, self._context.epoch, inbox, executors, False, self._context.payload, failures=str(self._failures)
        )
        rows = reader.load().selectExpr("partition", "offset", "timestamp", "value", _FOLLOWERS).selectExpr(*_COLUMNS)
        shutil.rmtree(self._failures, ignore_errors=True)
        writer = rows.mapInArrow(shim, "nothing int").writeStream.format("noop").queryName(f"{plan.topology_id}/{self.component}/{self._context.epoch}")
        self._query = writer.option("checkpointLocation", self._checkpoint.as_uri()).trigger(continuous=_EPOCH).start()
        tuning.drop_listeners(self._context.spark)

    @property
    def _failures(self) -> Path:
        return self._checkpoint.with_name(f"{self._checkpoint.name}.failures")

    def pace(self, *, busy: bool) -> None:
        """Do nothing: a continuous query waits for its next record."""

    def failure(self) -> BaseException | None:
        """Return what ended the query, or None while it runs."""
        if (error := super().failure()) is None:
            return None
        texts = [path.read_text() for path in sorted(self._failures.glob("*"), key=lambda path: path.stat().st_mtime)]
        return RuntimeError(texts[0]) if texts else error

    def stop(self) -> None:
        """Stop the query and remove its files."""
        super().stop()
        shutil.rmtree(self._failures, ignore_errors=True)
