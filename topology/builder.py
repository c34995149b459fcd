"""Building a topology: a ``TopologyBuilder`` makes a ``StormTopology``.

.. code-block:: python

    builder = TopologyBuilder()
    builder.set_spout("words", WordSpout(), 2)
    builder.set_bolt("count", CountBolt(), 4).fields_grouping("words", Fields("word"))
    topology = builder.create_topology()
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Literal, Self

from dskype.topology.components import BaseBolt, Spout
from dskype.topology.config import Config
from dskype.topology.errors import IllegalArgumentException, IllegalStateException
from dskype.topology.fields import DEFAULT_STREAM_ID, Fields, GlobalStreamId, as_fields
from dskype.topology.groupings import (
    AllGrouping,
    CustomGrouping,
    CustomStreamGrouping,
    DirectGrouping,
    FieldsGrouping,
    GlobalGrouping,
    LocalOrShuffleGrouping,
    NoneGrouping,
    PartialKeyGrouping,
    ShuffleGrouping,
)
from dskype.topology.hooks import WorkerHook
from dskype.topology.model import Component, ComponentSpec, Grouping, OutputFieldsDeclarer, StormTopology

__all__ = ["BoltDeclarer", "ComponentSpec", "SpoutDeclarer", "StormTopology", "TopologyBuilder"]


class _Declarer:
    """Settings that spouts and bolts share, made after ``set_spout`` or ``set_bolt``; every method returns the declarer."""

    def __init__(self, spec: ComponentSpec) -> None:
        self._spec = spec

    @property
    def component_id(self) -> str:
        """Id of the declared component."""
        return self._spec.id

    def add_configurations(self, conf: Mapping[str, Any]) -> Self:
        """Set several keys of the component's own configuration."""
        if conf.get(Config.TOPOLOGY_KRYO_REGISTER) is not None:
            raise IllegalArgumentException("Cannot set serializations for a component using fluent API", component=self._spec.id)
        self._spec.conf.update(conf)
        return self

    def add_configuration(self, key: str, value: Any) -> Self:
        """Set one key of the component's own configuration."""
        return self.add_configurations({key: value})

    def set_num_tasks(self, tasks: int) -> Self:
        """Set ``topology.tasks``: the number of tasks, which never changes while the topology lives."""
        return self.add_configuration(Config.TOPOLOGY_TASKS, tasks)

    def set_max_task_parallelism(self, tasks: int) -> Self:
        """Set ``topology.max.task.parallelism``: an upper bound of the number of tasks."""
        return self.add_configuration(Config.TOPOLOGY_MAX_TASK_PARALLELISM, tasks)

    def set_max_spout_pending(self, tuples: int) -> Self:
        """Set ``topology.max.spout.pending``: the most tracked, unfinished tuples per task."""
        return self.add_configuration(Config.TOPOLOGY_MAX_SPOUT_PENDING, tuples)

    def set_debug(self, on: bool) -> Self:
        """Set ``topology.debug`` of this component."""
        return self.add_configuration(Config.TOPOLOGY_DEBUG, on)

    def set_memory_load(self, on_heap_mb: float, off_heap_mb: float | None = None) -> Self:
        """Record the memory that one executor needs; shown to users, not used for scheduling."""
        self.add_configuration(Config.TOPOLOGY_COMPONENT_RESOURCES_ONHEAP_MEMORY_MB, on_heap_mb)
        if off_heap_mb is not None:
            self.add_configuration(Config.TOPOLOGY_COMPONENT_RESOURCES_OFFHEAP_MEMORY_MB, off_heap_mb)
        return self

    def set_cpu_load(self, percent: float) -> Self:
        """Record the CPU share that one executor needs; shown to users, not used for scheduling."""
        return self.add_configuration(Config.TOPOLOGY_COMPONENT_CPU_PCORE_PERCENT, percent)


class SpoutDeclarer(_Declarer):
    """Declares a spout's configuration."""


class BoltDeclarer(_Declarer):
    """Declares a bolt's inputs and configuration.

    A second grouping on the same (component, stream) replaces the first, as in Storm. Without a stream id, a grouping
    subscribes to the component's stream ``default``.
    """

    def grouping(self, component_id: str, grouping: Grouping, stream_id: str = DEFAULT_STREAM_ID) -> Self:
        """Subscribe to a stream with any grouping spec.

        :param component_id: the component that emits; it may be declared later.
        :param grouping: one of the specs of ``dskype.topology.groupings``.
        :param stream_id: its stream; default ``default``.
        """
        for kind, value in (("component", component_id), ("stream", stream_id)):
            if not isinstance(value, str):
                raise IllegalArgumentException(f"The {kind} id of a grouping must be a string.", given=value, component=self._spec.id)
        if not isinstance(grouping, Grouping):
            raise IllegalArgumentException("Not a grouping.", given=grouping, component=self._spec.id)
        self._spec.inputs[GlobalStreamId(component_id, stream_id)] = grouping
        return self

    def shuffle_grouping(self, component_id: str, stream_id: str = DEFAULT_STREAM_ID) -> Self:
        """Subscribe so that all tasks get equal shares."""
        return self.grouping(component_id, ShuffleGrouping(), stream_id)

    def fields_grouping(self, component_id: str, fields: Fields | str | Iterable[str], stream_id: str = DEFAULT_STREAM_ID) -> Self:
        """Subscribe so that equal values of ``fields`` go to the same task."""
        return self.grouping(component_id, FieldsGrouping(as_fields(fields)), stream_id)

    def all_grouping(self, component_id: str, stream_id: str = DEFAULT_STREAM_ID) -> Self:
        """Subscribe so that every task gets a copy."""
        return self.grouping(component_id, AllGrouping(), stream_id)

    def global_grouping(self, component_id: str, stream_id: str = DEFAULT_STREAM_ID) -> Self:
        """Subscribe so that everything goes to the task with the lowest id."""
        return self.grouping(component_id, GlobalGrouping(), stream_id)

    def none_grouping(self, component_id: str, stream_id: str = DEFAULT_STREAM_ID) -> Self:
        """Subscribe so that each tuple goes to a random task."""
        return self.grouping(component_id, NoneGrouping(), stream_id)

    def direct_grouping(self, component_id: str, stream_id: str = DEFAULT_STREAM_ID) -> Self:
        """Subscribe so that the producer names the task (``emit_direct``)."""
        return self.grouping(component_id, DirectGrouping(), stream_id)

    def local_or_shuffle_grouping(self, component_id: str, stream_id: str = DEFAULT_STREAM_ID) -> Self:
        """Subscribe by shuffle among the tasks in the producer's worker; if there are none, among all tasks."""
        return self.grouping(component_id, LocalOrShuffleGrouping(), stream_id)

    def partial_key_grouping(self, component_id: str, fields: Fields | str | Iterable[str], stream_id: str = DEFAULT_STREAM_ID) -> Self:
        """Subscribe so that each key goes to two tasks, each tuple to the one that has got less so far."""
        names = as_fields(fields)
        if not len(names):
            raise IllegalArgumentException("A partial key grouping needs a field.", given=fields, component=self._spec.id)
        return self.grouping(component_id, PartialKeyGrouping(names), stream_id)

    def custom_grouping(self, component_id: str, grouping: CustomStreamGrouping, stream_id: str = DEFAULT_STREAM_ID) -> Self:
        """Subscribe with a user-defined grouping."""
        if not isinstance(grouping, CustomStreamGrouping):
            raise IllegalArgumentException("Not a custom grouping.", given=grouping, component=self._spec.id, legal="a CustomStreamGrouping object")
        return self.grouping(component_id, CustomGrouping(grouping), stream_id)


class TopologyBuilder:
    """Collects spouts and bolts and makes a :class:`StormTopology`."""

    def __init__(self) -> None:
        self._specs: dict[str, ComponentSpec] = {}
        self._worker_hooks: list[WorkerHook] = []

    def set_spout(self, component_id: str, spout: Spout, parallelism_hint: int | None = None) -> SpoutDeclarer:
        """Add a spout.

        :param component_id: its id; ids of spouts and bolts are one namespace.
        :param spout: the spout; each task works on its own copy.
        :param parallelism_hint: initial executors, default 1; also the number of tasks unless ``set_num_tasks`` is used.
        :raises IllegalArgumentException: id in use, hint below 1, not a spout.
        """
        if not isinstance(spout, Spout):
            raise IllegalArgumentException(
                "set_spout needs a Spout.", given=spout, component=component_id, hint="an object, not its class; bolts go to set_bolt"
            )
        return SpoutDeclarer(self._add(component_id, "spout", spout, parallelism_hint))

    def set_bolt(self, component_id: str, bolt: BaseBolt, parallelism_hint: int | None = None) -> BoltDeclarer:
        """Add a bolt: a ``Bolt``, ``BasicBolt``, ``BatchBolt``, ``WindowedBolt``, ``StatefulBolt``, ``StatefulWindowedBolt`` or ``KafkaBolt``.

        :param component_id: its id; ids of spouts and bolts are one namespace.
        :param bolt: the bolt; each task works on its own copy.
        :param parallelism_hint: initial executors, default 1; also the number of tasks unless ``set_num_tasks`` is used.
        :raises IllegalArgumentException: id in use, hint below 1, not a bolt.
        """
        if not isinstance(bolt, BaseBolt):
            raise IllegalArgumentException(
                "set_bolt needs a bolt.", given=bolt, component=component_id, hint="an object, not its class; spouts go to set_spout"
            )
        if (as_executor := getattr(bolt, "as_executor", None)) is not None:  # another bolt runs windowed and stateful bolts
            bolt = as_executor()
        return BoltDeclarer(self._add(component_id, "bolt", bolt, parallelism_hint))

    def add_worker_hook(self, hook: WorkerHook) -> None:
        """Add a hook that runs in the process of each executor.

        :raises IllegalArgumentException: not a hook.
        """
        if not isinstance(hook, WorkerHook):
            raise IllegalArgumentException("WorkerHook must not be null.", given=hook, hint="extend dskype.topology.hooks.WorkerHook")
        self._worker_hooks.append(hook)

    def _add(self, component_id: str, kind: Literal["spout", "bolt"], obj: Component, hint: int | None) -> ComponentSpec:
        if not isinstance(component_id, str):
            raise IllegalArgumentException("A component id must be a string.", given=component_id)
        if component_id in self._specs:
            other = self._specs[component_id].kind.capitalize()
            raise IllegalArgumentException(f"{other} has already been declared for id {component_id}", given=type(obj).__name__)
        if hint is not None and (isinstance(hint, bool) or not isinstance(hint, int)):
            raise IllegalArgumentException("The parallelism hint must be an integer.", given=hint, component=component_id, legal="an integer >= 1")
        if hint is not None and hint < 1:
            raise IllegalArgumentException("Parallelism must be positive.", given=hint, component=component_id, legal="an integer >= 1")
        conf = dict(obj.get_component_configuration() or {})
        spec = self._specs[component_id] = ComponentSpec(component_id, kind, obj, hint, conf)
        return spec

    def create_topology(self, check_serializable: bool = True) -> StormTopology:
        """Ask every component for its streams and return the topology.

        Whether the components, streams and fields that inputs name exist is checked at submission.

        :param check_serializable: refuse components that cannot be pickled; default True.
        :raises IllegalArgumentException: bad stream declarations, e.g. ``Fields for S already set``.
        :raises IllegalStateException: a component cannot be pickled.
        """
        components: dict[str, ComponentSpec] = {}
        for spec in self._specs.values():
            declarer = OutputFieldsDeclarer()
            try:
                spec.obj.declare_output_fields(declarer)
            except IllegalArgumentException as ex:
                raise IllegalArgumentException(str(ex), component=spec.id) from ex
            if check_serializable:
                _check_serializable(spec)
            components[spec.id] = replace(spec, conf=dict(spec.conf), inputs=dict(spec.inputs), outputs=dict(declarer.streams))
        return StormTopology(components, list(self._worker_hooks))


def _check_serializable(spec: ComponentSpec) -> None:
    """Refuse a component, or a custom grouping of its inputs, that cannot be pickled.

    :raises IllegalStateException: names the component, the attribute and the method that should create it.
    """
    # Imported here because pyspark takes a quarter of a second, longer than all of dskype.topology.
    from pyspark import cloudpickle

    method = "open" if spec.kind == "spout" else "prepare"
    subjects: list[Any] = [spec.obj] + [g.grouping for g in spec.inputs.values() if isinstance(g, CustomGrouping)]
    for subject in subjects:
        try:
            cloudpickle.dumps(subject)
        except Exception as ex:  # an object's own __reduce__ may raise anything
            name, culprit = _culprit(subject, cloudpickle.dumps)
            raise IllegalStateException(
                f"{spec.kind.capitalize()} '{spec.id}' contains a non-serializable field of type {culprit}, "
                f"which was instantiated prior to topology creation. {culprit} should be instantiated within the "
                f"{method} method of '{spec.id}' at the earliest.",
                component=spec.id,
                hint=f"{name}: {ex}",
            ) from ex


def _culprit(subject: Any, dumps: Any) -> tuple[str, str]:
    """Return (attribute, type name) of the first attribute that cannot be pickled."""
    try:
        attributes = vars(subject)
    except TypeError:
        attributes = {}
    for name, value in attributes.items():
        try:
            dumps(value)
        except Exception:
            return f"attribute {name!r}", f"{type(value).__module__}.{type(value).__qualname__}"
    return "the object itself", f"{type(subject).__module__}.{type(subject).__qualname__}"
