"""The topology plan: which tasks, executors and workers a topology has."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeVar

from dskype.topology.config import DEFAULTS, Config, merge
from dskype.topology.errors import IllegalArgumentException, InvalidTopologyException
from dskype.topology.model import ComponentSpec, StormTopology, is_system_id
from dskype.topology.planning.system import with_system

__all__ = ["FIRST_PORT", "TopologyPlan", "chunks_topic", "dead_letters_topic", "inbox_topic", "metrics_topic", "partition_fixed", "state_topic"]

_T = TypeVar("_T")

FIRST_PORT = 6700
"""Port of the first worker; those of the others follow, as in Storm's default slots."""

RESERVED_TOPIC_NAMES = frozenset({"metrics", "dead-letters", "__state", "__chunks"})
"""Topic names after ``<topology>.`` that the emulator uses itself."""


def partition_fixed(max_parts: int, items: Sequence[int]) -> list[list[int]]:
    """Split ``items`` into contiguous parts whose sizes differ by at most one, larger parts first.

    >>> [len(p) for p in partition_fixed(3, range(10))]
    [4, 3, 3]

    :param max_parts: number of parts; there are never more parts than items.
    """
    parts = min(max_parts, len(items))
    if parts <= 0:
        return []
    size, larger = divmod(len(items), parts)
    out = []
    start = 0
    for i in range(parts):
        end = start + size + (i < larger)
        out.append(list(items[start:end]))
        start = end
    return out


@dataclass(frozen=True)
class TopologyPlan:
    """Tasks, executors and workers of one topology; made by :meth:`build`, and equal in every process.

    Task ids count from 1 over the components in string order of their ids, system bolts included. Tasks never change
    during a topology's life; executors and workers may (:meth:`rebalanced`).

    :param name: the topology's name.
    :param topology_id: its id, ``name-counter-epochSecs``.
    :param conf: the topology's configuration with defaults.
    :param topology: the topology with its system parts.
    :param num_workers: requested number of workers.
    :param executor_counts: component id -> requested number of executors; more than tasks has no effect.
    """

    name: str
    topology_id: str
    conf: dict[str, Any] = field(repr=False)  # may hold secrets
    topology: StormTopology
    num_workers: int
    executor_counts: dict[str, int]
    task_component: dict[int, str] = field(init=False, repr=False)
    """Task id -> component id, for all tasks."""
    _tasks: dict[str, list[int]] = field(init=False, repr=False)
    _executors: dict[str, list[tuple[int, int]]] = field(init=False, repr=False)
    _worker: dict[int, int] = field(init=False, repr=False)
    _confs: dict[str, dict[str, Any]] = field(init=False, repr=False)
    _derived: dict[tuple[str, str], Any] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        tasks: dict[str, list[int]] = {}
        confs: dict[str, dict[str, Any]] = {}
        task_component: dict[int, str] = {}
        next_task = 1
        for component_id in sorted(self.topology.components):
            spec = self.topology.components[component_id]
            confs[component_id] = merge(self.conf, spec.conf)
            count = _num_tasks(spec, confs[component_id])
            tasks[component_id] = list(range(next_task, next_task + count))
            task_component.update(dict.fromkeys(tasks[component_id], component_id))
            next_task += count
        executors = {c: [(part[0], part[-1]) for part in partition_fixed(self.executor_counts[c], tasks[c])] for c in tasks}
        # Like Storm's even scheduler: executors, ordered by their first tasks, go to the workers in turn.
        worker: dict[int, int] = {}
        in_order = sorted(e for of_component in executors.values() for e in of_component)
        for i, (first, last) in enumerate(in_order):
            for task in range(first, last + 1):
                worker[task] = i % self.num_workers
        for name, value in (("task_component", task_component), ("_tasks", tasks), ("_executors", executors), ("_worker", worker), ("_confs", confs)):
            object.__setattr__(self, name, value)

    @classmethod
    def build(cls, name: str, topology_id: str, conf: Mapping[str, Any] | None, topology: StormTopology) -> TopologyPlan:
        """Make the plan of a topology.

        :param name: its name.
        :param topology_id: its id.
        :param conf: its configuration, without defaults.
        :param topology: the builder's topology; the acker and the system streams are added if they are missing.
        :raises InvalidTopologyException: a component has tasks but no executors.
        """
        full = merge(DEFAULTS, conf)
        system = with_system(topology, full)
        counts = {c.id: 1 if c.parallelism_hint is None else c.parallelism_hint for c in system.components.values()}
        return cls(name, topology_id, full, system, full[Config.TOPOLOGY_WORKERS] or 1, counts)

    # -- tasks ---------------------------------------------------------------------------------------------------------

    @property
    def component_ids(self) -> list[str]:
        """All component ids in string order, system bolts included."""
        return list(self._tasks)

    @property
    def num_tasks(self) -> int:
        """Number of tasks, those of system bolts included."""
        return len(self.task_component)

    def spec(self, component_id: str) -> ComponentSpec:
        """Return a component's spec."""
        return self.topology.components[self._known(component_id)]

    def component_tasks(self, component_id: str) -> list[int]:
        """Return a component's task ids, sorted; the caller must not change the list."""
        return self._tasks[self._known(component_id)]

    def component_of(self, task: int) -> str:
        """Return the component of a task."""
        try:
            return self.task_component[task]
        except KeyError:
            raise IllegalArgumentException("No such task.", given=task, legal=f"1..{len(self.task_component)}") from None

    def task_index(self, task: int) -> int:
        """Return the 0-based position of a task within its component: its partition of the inbox topic."""
        return task - self._tasks[self.component_of(task)][0]

    def component_conf(self, component_id: str) -> dict[str, Any]:
        """Return the topology's configuration, overridden by the component's own; the caller must not change it."""
        return self._confs[self._known(component_id)]

    def once(self, what: str, component_id: str, derive: Callable[[], _T]) -> _T:
        """Return what follows from the plan for a component: derived at the first call in this process, for all tasks.

        :param what: a name for it.
        """
        key = what, component_id
        if key not in self._derived:
            self._derived[key] = derive()
        found: _T = self._derived[key]
        return found

    # -- executors and workers -----------------------------------------------------------------------------------------

    def executors(self, component_id: str) -> list[tuple[int, int]]:
        """Return a component's executors as (first task, last task), both inclusive."""
        return self._executors[self._known(component_id)]

    def num_executors(self, component_id: str) -> int:
        """Return how many executors a component has."""
        return len(self._executors[self._known(component_id)])

    @property
    def total_executors(self) -> int:
        """Number of executors of all components."""
        return sum(map(len, self._executors.values()))

    def executor_tasks(self, component_id: str, executor_index: int) -> range:
        """Return the task ids of a component's ``executor_index``-th executor (from 0)."""
        first, last = self.executors(component_id)[executor_index]
        return range(first, last + 1)

    def executor_of(self, task: int) -> int:
        """Return the index, within its component, of the executor that runs a task."""
        for i, (first, last) in enumerate(self._executors[self.component_of(task)]):
            if first <= task <= last:
                return i
        raise AssertionError(task)

    def worker_of(self, task: int) -> int:
        """Return the 0-based worker that runs a task."""
        self.component_of(task)
        return self._worker[task]

    @property
    def used_workers(self) -> int:
        """Number of workers that have at least one executor."""
        return min(self.num_workers, self.total_executors)

    def worker_tasks(self, worker: int) -> list[int]:
        """Return the task ids of a worker, sorted."""
        found: dict[int, list[int]] = self.once("tasks of workers", "", self._tasks_of_workers)
        return list(found.get(worker, ()))

    def _tasks_of_workers(self) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        for task, worker in sorted(self._worker.items()):
            found.setdefault(worker, []).append(task)
        return found

    def worker_port(self, worker: int) -> int:
        """Return the port that stands for a worker."""
        return FIRST_PORT + worker

    def rebalanced(self, executors: Mapping[str, int] | None = None, workers: int | None = None) -> TopologyPlan:
        """Return a plan with other executors and workers, and the same tasks.

        :param executors: component id -> number of executors, from 1; at most as many as tasks are used.
        :param workers: number of workers, from 1; default unchanged.
        :raises InvalidTopologyException: unknown component.
        :raises IllegalArgumentException: a number below 1.
        """
        counts = dict(self.executor_counts)
        for component_id, count in (executors or {}).items():
            if component_id not in self._tasks:
                legal = ",".join(c for c in self._tasks if not is_system_id(c))
                raise InvalidTopologyException(f"Invalid component {component_id} for topology {self.name}, valid values are {legal}")
            if isinstance(count, bool) or not isinstance(count, int) or count < 1:
                raise IllegalArgumentException("Number of executors must be greater than 0", given=count, component=component_id)
            counts[component_id] = count
        if workers is not None and (isinstance(workers, bool) or not isinstance(workers, int) or workers < 1):
            raise IllegalArgumentException("Number of workers must be greater than 0", given=workers)
        num_workers = workers or self.num_workers
        # The number of ackers follows the workers only at submission, because tasks cannot change.
        conf = {**self.conf, Config.TOPOLOGY_WORKERS: num_workers}
        return TopologyPlan(self.name, self.topology_id, conf, self.topology, num_workers, counts)

    # -- topics --------------------------------------------------------------------------------------------------------

    def inbox_topic(self, component_id: str) -> str:
        """Return the name of a component's inbox topic."""
        return inbox_topic(self.name, self._known(component_id))

    def _known(self, component_id: str) -> str:
        if component_id not in self._tasks:
            raise IllegalArgumentException("No such component.", given=component_id, legal=", ".join(self._tasks))
        return component_id

    def __reduce__(self) -> tuple[Any, ...]:
        # Derived fields are computed again: the pickle is smaller, and they cannot be inconsistent.
        return TopologyPlan, (self.name, self.topology_id, self.conf, self.topology, self.num_workers, self.executor_counts)


def _num_tasks(spec: ComponentSpec, conf: Mapping[str, Any]) -> int:
    """Return min(topology.tasks or the hint, topology.max.task.parallelism); the bound spares system bolts."""
    hint = 1 if spec.parallelism_hint is None else spec.parallelism_hint
    tasks = conf.get(Config.TOPOLOGY_TASKS)
    if tasks is None:
        tasks = hint
    if tasks > 0 and hint <= 0:
        raise InvalidTopologyException("Number of executors must be greater than 0 when number of tasks is greater than 0", given=hint, component=spec.id)
    bound = conf.get(Config.TOPOLOGY_MAX_TASK_PARALLELISM)
    return tasks if bound is None or is_system_id(spec.id) else min(tasks, bound)


_ESCAPED = re.compile(r"_(?=x)|[^A-Za-z0-9_-]")
_MAX_TOPIC_LENGTH = 249


def _escape(name: str) -> str:
    """Return ``name`` in Kafka's alphabet without dots; other characters become ``_xHH`` per UTF-8 byte. The mapping is injective.

    An underscore stays unless an ``x`` follows. Dots are escaped because Kafka reports ``a.b`` and ``a_b`` as a collision.
    """
    return _ESCAPED.sub(lambda m: "".join(f"_x{b:02x}" for b in m[0].encode("utf-8", "surrogatepass")), name)


def _topic(topology: str, last: str) -> str:
    topic = f"{_escape(topology)}.{last}"
    if len(topic) <= _MAX_TOPIC_LENGTH:
        return topic
    digest = hashlib.blake2b(topic.encode(), digest_size=12).hexdigest()
    # "_x-" is no escape, so no short name looks like this.
    return f"{topic[: _MAX_TOPIC_LENGTH - 27]}_x-{digest}"


@lru_cache(maxsize=1024)
def inbox_topic(topology: str, component: str) -> str:
    """Return the inbox topic of a component: ``<topology>.<component>``, with characters escaped that Kafka refuses.

    Different pairs have different topics, and none is ``<topology>.metrics`` or ``<topology>.dead-letters``.

    >>> inbox_topic("word-count", "split")
    'word-count.split'
    """
    if component in RESERVED_TOPIC_NAMES:
        return _topic(topology, f"_x{ord(component[0]):02x}{component[1:]}")
    return _topic(topology, _escape(component))


@lru_cache(maxsize=1024)
def metrics_topic(topology: str) -> str:
    """Return the topic of a topology's statistics: ``<topology>.metrics``."""
    return _topic(topology, "metrics")


def state_topic(topology: str) -> str:
    """Return the topic of a topology's snapshots and journals, where Kafka keeps them; no component may have such a name."""
    return _topic(topology, "__state")


def chunks_topic(topology: str) -> str:
    """Return the topic with the pieces of large snapshots and journals, where Kafka keeps them."""
    return _topic(topology, "__chunks")


def dead_letters_topic(topology: str) -> str:
    """Return the topic of a topology's dead letters: ``<topology>.dead-letters``."""
    return _topic(topology, "dead-letters")
