"""What travels from a driver to its executors. Drivers import this, and not what executors run."""

from __future__ import annotations

import pickle
import sys
from dataclasses import dataclass, field
from pathlib import Path

from pyspark import cloudpickle

from dskype.topology.core.snapshots import SnapshotStore
from dskype.topology.planning.plan import TopologyPlan
from dskype.topology.runtime.kafka.clients import KafkaSettings

__all__ = ["Payload"]

_PRODUCT = f"{__name__.partition('.')[0]}."


@dataclass(frozen=True)
class Payload:
    """What an executor needs to run its part of a topology; it travels in Spark's closure, like code.

    :param sys_path: the driver's ``sys.path``, so that executors find the same modules.
    :param store: where snapshots and journals are kept.
    :param logs: folder of the executors' logs; None: ``dskype-logs`` in the folder where Spark runs its executor.
    :param term: the driver's term.
    :param epoch: number of the query's start.
    :param given_up_s: after so long a silence Spark may run an executor elsewhere; None: there is no other host.
    :param starts: (topic, partition) -> first offset, for the external topics of a Kafka spout, as they were when the query started.
    :param interval_s: least time between the beginnings of two batches of an executor.
    """

    plan: TopologyPlan
    kafka: KafkaSettings
    store: SnapshotStore
    logs: Path | None
    sys_path: list[str]
    term: int
    epoch: int
    given_up_s: float | None
    starts: dict[tuple[str, int], int] = field(default_factory=dict)
    interval_s: float = 0.0

    def dumps(self) -> bytes:
        """Serialize with cloudpickle, as Spark does with functions; separate are ``sys_path``, because unpickling the rest needs it, and what the zygote imports."""
        modules = {type(self.plan.spec(component).obj).__module__ for component in self.plan.component_ids}
        return pickle.dumps((self.sys_path, sorted(m for m in modules if m.startswith(_PRODUCT)), cloudpickle.dumps(self)))

    @classmethod
    def loads(cls, data: bytes) -> Payload:
        """Deserialize what :meth:`dumps` wrote, in a process of the same topology."""
        sys_path, _, body = pickle.loads(data)
        sys.path += [p for p in sys_path if p not in sys.path and not p.endswith((".zip", ".jar"))]
        return pickle.loads(body)

    @staticmethod
    def modules(data: bytes) -> list[str]:
        """Return the modules of this product in which its components are."""
        _, modules, _ = pickle.loads(data)
        return modules
