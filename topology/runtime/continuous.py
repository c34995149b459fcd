"""Continuous queries: tasks of Spark that last as long as their topology (see docs/transport.md)."""

from __future__ import annotations

from dskype.topology.runtime import tuning
from dskype.topology.runtime.continuous_shim import ContinuousShim
from dskype.topology.runtime.queries import ComponentQuery

__all__ = ["ContinuousQuery"]


class ContinuousQuery(ComponentQuery):
    """The continuous query of one component: a single micro-batch whose tasks, one for each executor, last until the query is stopped.

    The executors read and write Kafka themselves.
    """

    def start(self) -> None:
        """Start the query; return before its first record."""
        plan, n = self._context.plan, self._context.plan.num_executors(self.component)
        # A row for each executor, so that there is a task for each.
        rows = self._context.spark.readStream.format("rate-micro-batch").option("rowsPerBatch", n).option("numPartitions", n).load()
        writer = (
            rows.mapInArrow(self._make_shim(ContinuousShim), "nothing int")
            .writeStream.format("noop")
            .queryName(f"{plan.topology_id}/{self.component}/{self._context.epoch}")
        )
        self._query = writer.option("checkpointLocation", self._checkpoint.as_uri()).trigger(once=True).start()
        tuning.drop_listeners(self._context.spark)

    def pace(self, *, busy: bool) -> None:
        """Do nothing: a continuous query does not poll."""
