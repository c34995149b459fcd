"""Which components have continuous queries, and which have micro-batches."""

from __future__ import annotations

import logging
import threading
from typing import Any

from dskype.topology.components import KafkaSpout
from dskype.topology.config import Config
from dskype.topology.errors import explain
from dskype.topology.groupings import LocalOrShuffleGrouping
from dskype.topology.planning.plan import TopologyPlan
from dskype.topology.runtime.continuous import ContinuousQuery
from dskype.topology.runtime.kafka import KafkaSettings
from dskype.topology.runtime.librdkafka import UnsupportedOptionError, connection_settings
from dskype.topology.runtime.queries import ComponentQuery, QueryContext
from dskype.topology.runtime.real_time import RealTimeQuery
from dskype.topology.runtime.record_reader import READER_OPTIONS

__all__ = ["TaskSlots", "Transports"]


log = logging.getLogger(__name__)


class TaskSlots:
    """Counts the task slots that continuous queries occupy, over all topologies of this process."""

    KEPT = 8
    """Slots that stay free for micro-batches and for the end of executors."""

    def __init__(self) -> None:
        self._taken: dict[str, int] = {}
        self._lock = threading.Lock()

    def take(self, topology_id: str, n: int, total: int) -> int:
        """Take slots for a topology in place of those it has; return how many are missing, and take none if any are."""
        with self._lock:
            others = sum(m for topology, m in self._taken.items() if topology != topology_id)
            missing = max(0, others + n + self.KEPT - total)
            if not missing:
                self._taken[topology_id] = n
            return missing

    def release(self, topology_id: str) -> None:
        """Give the slots of a topology back."""
        with self._lock:
            self._taken.pop(topology_id, None)


_SLOTS = TaskSlots()


class Transports:
    """The transport of each component of a topology.

    A component has a continuous query unless its configuration asks for micro-batches. Where continuous queries cannot run, components have
    micro-batches. :attr:`warnings` says why if the configuration asks for continuous queries, or if it concerns a whole topology on a cluster, where
    micro-batches are several times slower; otherwise the log does.
    """

    def __init__(self) -> None:
        self.continuous: frozenset[str] = frozenset()
        """Components with continuous queries, real-time queries included."""
        self.real_time: frozenset[str] = frozenset()
        """Components with real-time queries."""
        self.warnings: list[str] = []
        self._topology_id = ""

    def choose(self, plan: TopologyPlan, spark: Any, kafka: KafkaSettings) -> list[str]:
        """Choose the transport of each component of a plan anew; return the warnings.

        :param plan: the topology plan; with other executors, a topology needs another number of task slots.
        """
        self.release()
        self.continuous, self.real_time, self.warnings, self._topology_id = frozenset(), frozenset(), [], plan.topology_id
        wanted = {c: plan.component_conf(c)[Config.TOPOLOGY_EMULATOR_TRANSPORT] for c in plan.component_ids}
        asked = {c for c, transport in wanted.items() if transport in ("continuous", "real-time")}
        local = spark.sparkContext.master.startswith("local")
        chosen = [
            c
            for c, transport in wanted.items()
            if transport != "micro-batch"
            and (transport == "real-time" or not self._has_foreign_options(plan, c, asked=c in asked))
            and (local or not self._depends_on_workers(plan, c, asked=c in asked))
        ]
        if not chosen:
            return self.warnings
        real_time = {c for c in chosen if wanted[c] == "real-time" and self._may_be_real_time(plan, c, local=local)}
        needed = sum(len(plan.component_tasks(c)) if c in real_time else plan.num_executors(c) for c in chosen)
        total = spark.sparkContext.defaultParallelism
        reason = _unsupported(kafka)
        if reason is None and (missing := _SLOTS.take(plan.topology_id, needed, total)):
            reason = explain(
                "Each executor of a component with a continuous query, and each task of one with a real-time query, occupies a task slot of Spark.",
                given=f"{needed} slots needed, {missing} slots too few",
                hint=f"start Spark with more slots, for example {f'local[{total + missing}]' if local else 'workers with more --cores'}: slots are not cores",
            )
        if reason is not None:
            self._say(f"topology {plan.name!r} runs in micro-batches", reason, asked=bool(asked) or not local)
        else:
            self.continuous, self.real_time = frozenset(chosen), frozenset(real_time)
        return self.warnings

    def _may_be_real_time(self, plan: TopologyPlan, component: str, *, local: bool) -> bool:
        """Tell whether a component may have a real-time query, and say so if not."""
        if not local:
            self.warnings.append(
                f"component {component!r} of topology {plan.name!r} has a continuous query in place of a real-time query: clusters have none yet"
            )
        return local

    def _say(self, what: str, reason: str, *, asked: bool) -> None:
        if asked:
            self.warnings.append(f"{what}, although it asks for another transport. {reason}")
        else:
            log.info("%s: %s", what, reason)

    def _has_foreign_options(self, plan: TopologyPlan, component: str, *, asked: bool) -> bool:
        """Tell whether a Kafka spout has options that only Spark's source knows, and say so."""
        spout: Any = plan.spec(component).obj
        if not isinstance(spout, KafkaSpout) or not (foreign := sorted(set(spout.kafka_options) - READER_OPTIONS - {"group.id", "bootstrap.servers"})):
            return False
        reason = explain(
            "Executors that read Kafka themselves do not know these options of a KafkaSpout.", given=foreign, legal=", ".join(sorted(READER_OPTIONS))
        )
        self._say(f"component {component!r} of topology {plan.name!r} runs in micro-batches", reason, asked=asked)
        return True

    def _depends_on_workers(self, plan: TopologyPlan, component: str, *, asked: bool) -> bool:
        """Tell whether the tasks that a component's tuples go to change with its worker, and say so.

        Where other hosts run executors, one that is out of reach may go on after a rebalance. What it then sends to other tasks than its successor does
        would count twice.
        """
        inputs = (spec.inputs.items() for spec in plan.topology.components.values())
        if not any(source == component and isinstance(grouping, LocalOrShuffleGrouping) for each in inputs for (source, _), grouping in each):
            return False
        reason = explain(
            "On a cluster, components whose tuples go to a task of their own worker run in micro-batches.",
            given=LocalOrShuffleGrouping.kind,
            hint="a shuffle grouping allows continuous queries",
        )
        self._say(f"component {component!r} of topology {plan.name!r} runs in micro-batches", reason, asked=asked)
        return True

    def start_query(self, context: QueryContext, component: str, positions: dict[tuple[str, int], int]) -> ComponentQuery:
        """Start the query of a component."""
        kind = RealTimeQuery if component in self.real_time else ContinuousQuery if component in self.continuous else ComponentQuery
        query = kind(context, component, positions)
        query.start()
        return query

    def release(self) -> None:
        """Give the task slots back."""
        _SLOTS.release(self._topology_id)


def _unsupported(kafka: KafkaSettings) -> str | None:
    """Return why the connection does not allow continuous queries; None if it does."""
    try:
        with connection_settings(kafka):
            return None
    except UnsupportedOptionError as error:
        return str(error)
