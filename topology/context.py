"""What a task knows about its topology, and its registry of metrics."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar, cast

from dskype.topology.background import Result, Work, run_at_once
from dskype.topology.errors import IllegalArgumentException, text_of
from dskype.topology.fields import Fields, GlobalStreamId
from dskype.topology.hooks import TaskHook
from dskype.topology.model import ComponentSpec, Grouping, StormTopology

__all__ = ["Counter", "Gauge", "Histogram", "Meter", "Timer", "TopologyContext"]

_METRIC_CHARS = 65_536
"""The longest value of a metric: those of all tasks of an executor travel in one record."""


class Counter:
    """A number that goes up and down."""

    def __init__(self) -> None:
        self._count = 0

    def inc(self, n: int = 1) -> None:
        """Add ``n``."""
        self._count += n

    def dec(self, n: int = 1) -> None:
        """Subtract ``n``."""
        self._count -= n

    def get_count(self) -> int:
        """Return the number."""
        return self._count

    def read(self) -> Any:
        """Return the value that statistics report."""
        return self._count


class Gauge:
    """A value that a function computes whenever statistics are reported.

    :param function: called without arguments.
    """

    def __init__(self, function: Callable[[], Any]) -> None:
        self._function = function

    def get_value(self) -> Any:
        """Return the function's value."""
        return self._function()

    read = get_value


class Meter:
    """Counts events and their mean rate."""

    def __init__(self) -> None:
        self._count = 0
        self._start = time.monotonic()

    def mark(self, n: int = 1) -> None:
        """Count ``n`` events."""
        self._count += n

    def get_count(self) -> int:
        """Return the number of events."""
        return self._count

    def get_mean_rate(self) -> float:
        """Return events per second since the meter was made."""
        elapsed = time.monotonic() - self._start
        return self._count / elapsed if elapsed > 0 else 0.0

    def read(self) -> Any:
        """Return the value that statistics report."""
        return {"count": self._count, "mean_rate": self.get_mean_rate()}


class Histogram:
    """Count, extremes and mean of values."""

    def __init__(self) -> None:
        self._count = 0
        self._sum = 0.0
        self._min: float | None = None
        self._max: float | None = None

    def update(self, value: float) -> None:
        """Record one value."""
        self._count += 1
        self._sum += value
        self._min = value if self._min is None else min(self._min, value)
        self._max = value if self._max is None else max(self._max, value)

    def get_count(self) -> int:
        """Return the number of values."""
        return self._count

    def get_mean(self) -> float:
        """Return the mean of the values; 0 if there are none."""
        return self._sum / self._count if self._count else 0.0

    def read(self) -> Any:
        """Return the value that statistics report."""
        return {"count": self._count, "mean": self.get_mean(), "min": self._min, "max": self._max}


class Timer(Histogram):
    """A histogram of durations in milliseconds."""

    @contextmanager
    def time(self) -> Iterator[None]:
        """Time the ``with`` block."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.update((time.perf_counter() - start) * 1000.0)


_Metric = TypeVar("_Metric")


class Plan(Protocol):
    """The part of a :class:`~dskype.topology.planning.plan.TopologyPlan` that a context needs."""

    @property
    def name(self) -> str:
        """Return the name of the topology."""

    @property
    def topology_id(self) -> str:
        """Return the id of this run of the topology."""

    @property
    def topology(self) -> StormTopology:
        """Return the topology with its system parts."""

    @property
    def task_component(self) -> Mapping[int, str]:
        """Return task -> component."""

    @property
    def component_ids(self) -> list[str]:
        """Return the ids of all components, system components included."""

    def spec(self, component_id: str) -> ComponentSpec:
        """Return a component's spec."""

    def component_of(self, task: int) -> str:
        """Return the component of a task."""

    def component_tasks(self, component_id: str) -> list[int]:
        """Return the tasks of a component."""

    def component_conf(self, component_id: str) -> dict[str, Any]:
        """Return the configuration that a component sees."""

    def task_index(self, task: int) -> int:
        """Return the 0-based position of a task among those of its component."""

    def worker_of(self, task: int) -> int:
        """Return the worker of a task."""

    def worker_tasks(self, worker: int) -> list[int]:
        """Return the tasks of a worker."""

    def worker_port(self, worker: int) -> int:
        """Return the port that stands for a worker."""


class TopologyContext:
    """A task's view of its topology; passed to ``open``, ``prepare`` and custom groupings.

    :param plan: the topology plan.
    :param task: id of this task.
    :param executor_data: dict shared by the tasks of one executor; default a new one.
    :param resources: the worker's shared resources for :meth:`get_resource`; default none.
    """

    def __init__(self, plan: Plan, task: int, executor_data: dict[str, Any] | None = None, resources: Mapping[str, Any] | None = None) -> None:
        self.plan = plan
        self._task = task
        self._component = plan.component_of(task)
        self.clock_ms: Callable[[], int]
        """The task's time, epoch ms: it follows from the task's inbox. Set by what runs the task."""
        self.now_ms: Callable[[], int]
        """The time of day, epoch ms. Set by what runs the task."""
        self.broker_ms: Callable[[], int]
        """The brokers' time when they got the newest pulse or tick that the task has seen, epoch ms. Set by what runs the task."""
        self.watermark: Callable[[], int | None]
        """The task's watermark; None before there is one. Set by what runs the task."""
        self.waiting_partitions: Callable[[], Mapping[tuple[str, int], bool]]
        """In a Kafka spout, ask the brokers for every (topic, partition) that the task reads, and whether it holds records that the spout has not been given.
        Empty if the brokers do not answer. Takes some milliseconds. Set by what runs the task."""
        self.run_in_background: Callable[[Work], Result] = run_at_once
        """Begin work that would keep tuples waiting, beside the task: in a copy of its process. Call what it returns after later batches, until that returns the result.
        When the result comes does not follow from the inbox: so emit nothing that depends on it, and expect it to be lost when the task continues from a snapshot.
        In tests and simulated topologies the work is done at once. Set by what runs the task."""
        self.task_data: dict[str, Any] = {}
        """Free for the user; one dict per task."""
        self.executor_data: dict[str, Any] = {} if executor_data is None else executor_data
        """Free for the user; one dict per executor."""
        self._resources = dict(resources or {})
        self._hooks: list[TaskHook] = []
        self.on_hook: Callable[[], None] = lambda: None
        """Called when a hook was added. Set by what runs the task."""
        self._last_values: dict[str, Any] = {}
        self.metrics: dict[str, tuple[Any, int | None]] = {}
        """Registered metrics: name -> (metric, bucket in seconds or None)."""

    # -- this task -----------------------------------------------------------------------------------------------------

    def get_this_task_id(self) -> int:
        """Return the id of this task."""
        return self._task

    def get_this_component_id(self) -> str:
        """Return the id of this task's component."""
        return self._component

    def get_this_task_index(self) -> int:
        """Return the 0-based position of this task among its component's tasks."""
        return self.plan.task_index(self._task)

    def get_this_streams(self) -> set[str]:
        """Return the ids of the streams this component emits, system streams included."""
        return self.get_component_streams(self._component)

    def get_this_output_fields(self, stream_id: str) -> Fields:
        """Return the fields of one of this component's streams."""
        return self.get_component_output_fields(self._component, stream_id)

    def get_this_sources(self) -> dict[GlobalStreamId, Grouping]:
        """Return this component's inputs: {(component, stream): grouping}."""
        return self.get_sources(self._component)

    def get_this_targets(self) -> dict[str, dict[str, Grouping]]:
        """Return who subscribes to this component: {stream: {component: grouping}}."""
        return self.get_targets(self._component)

    def get_this_input_fields(self) -> dict[str, dict[str, list[str]]]:
        """Return the fields of this component's inputs: {component: {stream: field names}}."""
        out: dict[str, dict[str, list[str]]] = {}
        for component_id, stream_id in self.get_this_sources():
            if component_id in self.plan.topology.components:
                fields = self.get_component_output_fields(component_id, stream_id)
                out.setdefault(component_id, {})[stream_id] = fields.to_list()
        return out

    def get_this_worker_tasks(self) -> list[int]:
        """Return the task ids of this task's worker, sorted."""
        return self.plan.worker_tasks(self.plan.worker_of(self._task))

    def get_this_worker_port(self) -> int:
        """Return the port that stands for this task's worker."""
        return self.plan.worker_port(self.plan.worker_of(self._task))

    # -- hooks ---------------------------------------------------------------------------------------------------------

    def add_task_hook(self, hook: TaskHook) -> None:
        """Prepare a hook, and call it from now on; see :mod:`dskype.topology.hooks`.

        A hook that ``execute`` adds sees further emits at once, but executed tuples from the next frame on.
        """
        if not isinstance(hook, TaskHook):
            raise IllegalArgumentException("Not a task hook.", given=hook, component=self._component, hint="extend dskype.topology.hooks.TaskHook")
        hook.prepare(self.get_conf(), self)
        self._hooks.append(hook)
        self.on_hook()

    def get_hooks(self) -> list[TaskHook]:
        """Return the hooks of this task."""
        return self._hooks

    # -- the topology --------------------------------------------------------------------------------------------------

    def get_storm_id(self) -> str:
        """Return the topology's id, ``name-counter-epochSecs``."""
        return self.plan.topology_id

    def get_raw_topology(self) -> StormTopology:
        """Return the topology, system parts included."""
        return self.plan.topology

    def get_conf(self) -> dict[str, Any]:
        """Return this component's configuration."""
        return self.plan.component_conf(self._component)

    def get_component_ids(self) -> list[str]:
        """Return all component ids in string order, system bolts included."""
        return self.plan.component_ids

    def get_component_id(self, task: int) -> str:
        """Return the component of a task; ``__system`` for -1."""
        return "__system" if task == -1 else self.plan.component_of(task)

    def get_component_tasks(self, component_id: str) -> list[int]:
        """Return a component's task ids, sorted; an empty list for an unknown component."""
        return list(self.plan.component_tasks(component_id)) if component_id in self.plan.topology.components else []

    def get_task_to_component(self) -> dict[int, str]:
        """Return {task id: component id} of all tasks."""
        return dict(self.plan.task_component)

    def get_component_streams(self, component_id: str) -> set[str]:
        """Return the ids of the streams a component emits."""
        return set(self.plan.spec(component_id).outputs)

    def get_component_output_fields(self, component_id: str | GlobalStreamId, stream_id: str | None = None) -> Fields:
        """Return the fields of a stream, given as (component, stream) or as one GlobalStreamId.

        :raises IllegalArgumentException: ``No output fields defined for component:stream c:s``.
        """
        if stream_id is None:
            component_id, stream_id = cast("GlobalStreamId", component_id)
        component_id = cast("str", component_id)
        info = self.plan.spec(component_id).outputs.get(stream_id)
        if info is None:
            raise IllegalArgumentException(
                f"No output fields defined for component:stream {component_id}:{stream_id}",
                given=stream_id,
                legal=", ".join(self.plan.spec(component_id).outputs),
            )
        return info.fields

    def get_sources(self, component_id: str) -> dict[GlobalStreamId, Grouping]:
        """Return a component's inputs: {(component, stream): grouping}."""
        return dict(self.plan.spec(component_id).inputs)

    def get_targets(self, component_id: str) -> dict[str, dict[str, Grouping]]:
        """Return who subscribes to a component: {stream: {component: grouping}}."""
        out: dict[str, dict[str, Grouping]] = {}
        for consumer in self.plan.component_ids:
            for (source, stream_id), grouping in self.plan.spec(consumer).inputs.items():
                if source == component_id:
                    out.setdefault(stream_id, {})[consumer] = grouping
        return out

    def get_component_conf(self, component_id: str) -> dict[str, Any]:
        """Return a component's configuration over the topology's."""
        return self.plan.component_conf(component_id)

    # -- data and metrics ----------------------------------------------------------------------------------------------

    def set_task_data(self, name: str, data: Any) -> None:
        """Keep ``data`` for this task."""
        self.task_data[name] = data

    def get_task_data(self, name: str) -> Any:
        """Return what :meth:`set_task_data` kept, or None."""
        return self.task_data.get(name)

    def set_executor_data(self, name: str, data: Any) -> None:
        """Keep ``data`` for the tasks of this executor."""
        self.executor_data[name] = data

    def get_executor_data(self, name: str) -> Any:
        """Return what :meth:`set_executor_data` kept, or None."""
        return self.executor_data.get(name)

    def get_resource(self, name: str) -> Any:
        """Return a resource shared by the worker's tasks, or None."""
        return self._resources.get(name)

    def register_metric(self, name: str, metric: _Metric, time_bucket_size_in_secs: int | None = None) -> _Metric:
        """Register any metric and return it.

        :param name: unique within the task.
        :param metric: an object with ``read()`` or Storm's ``get_value_and_reset()``, or a callable; its value is reported.
        :param time_bucket_size_in_secs: how often Storm would report it; kept for information.
        :raises IllegalArgumentException: the name is taken.
        """
        if name in self.metrics:
            raise IllegalArgumentException("The same metric name was registered twice.", given=name, component=self._component)
        self.metrics[name] = (metric, time_bucket_size_in_secs)
        return metric

    def _registered(self, name: str, kind: type[_Metric]) -> _Metric:
        if name in self.metrics and type(self.metrics[name][0]) is kind:
            return self.metrics[name][0]
        return self.register_metric(name, kind())

    def register_counter(self, name: str) -> Counter:
        """Return the counter ``name``, made on first use."""
        return self._registered(name, Counter)

    def register_meter(self, name: str) -> Meter:
        """Return the meter ``name``, made on first use."""
        return self._registered(name, Meter)

    def register_histogram(self, name: str) -> Histogram:
        """Return the histogram ``name``, made on first use."""
        return self._registered(name, Histogram)

    def register_timer(self, name: str) -> Timer:
        """Return the timer ``name``, made on first use."""
        return self._registered(name, Timer)

    def register_gauge(self, name: str, function: Callable[[], Any]) -> Gauge:
        """Register a function whose value is reported."""
        return self.register_metric(name, Gauge(function))

    def drop_component_metrics(self) -> None:
        """Drop gauges and user-defined metrics, which belong to the component instance; counters, meters, histograms and timers stay.

        Called before another instance of the component registers its own.
        """
        self.metrics = {name: entry for name, entry in self.metrics.items() if type(entry[0]) in (Counter, Meter, Histogram, Timer)}

    def metric_counts(self) -> dict[str, int]:
        """Return the counts of all counters and meters, which survive a crash of the task."""
        return {name: metric.get_count() for name, (metric, _) in self.metrics.items() if type(metric) in (Counter, Meter)}

    def restore_counts(self, counts: Mapping[str, int]) -> None:
        """Set the registered counters and meters to these counts; ignore names that are not registered."""
        for name, count in counts.items():
            metric = self.metrics.get(name, (None, None))[0]
            if type(metric) in (Counter, Meter):
                metric._count = count

    def read_metrics(self, *, reset: bool = True) -> dict[str, Any]:
        """Return the values of all registered metrics: {name: value}.

        A metric that raises is reported as the text of its error; the task is not disturbed.

        :param reset: whether to read those that a reading sets back (``get_value_and_reset``); otherwise their last value is repeated.
        """
        out: dict[str, Any] = {}
        for name, (metric, _) in list(self.metrics.items()):
            if not reset and not hasattr(metric, "read") and hasattr(metric, "get_value_and_reset"):
                out[name] = self._last_values.get(name)
                continue
            try:
                out[name] = _fit_for_json(_read(metric))
            except Exception as ex:  # user code: a broken metric must not take the task down
                out[name] = text_of(ex)[:_METRIC_CHARS]
        self._last_values = out
        return out

    def __repr__(self) -> str:
        return f"TopologyContext({self.plan.topology_id!r}, {self._component!r}, task {self._task})"


def _fit_for_json(value: Any) -> Any:
    """Return a metric's value if a statistics record can hold it, else a text that says why it cannot."""
    if value is None or type(value) in (int, float, bool):
        return value
    try:
        length = len(json.dumps(value))
    except (TypeError, ValueError, RecursionError) as error:
        return f"a metric's value must be serializable as JSON: {error}"[:_METRIC_CHARS]
    return value if length <= _METRIC_CHARS else f"a metric's value is too long; given: {length} characters of JSON; expected at most {_METRIC_CHARS}"


def _read(metric: Any) -> Any:
    for method in ("read", "get_value_and_reset"):
        if (function := getattr(metric, method, None)) is not None:
            return function()
    return metric() if callable(metric) else metric
