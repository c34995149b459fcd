"""Bolts whose state the topology keeps for them: :class:`StatefulBolt` and :class:`StatefulWindowedBolt`, as in Storm (docs/State-checkpointing.md).

The bolt puts what it has to remember into a :class:`KeyValueState`. After a crash it gets the state that belongs to the tuples it has processed, and the
tuples behind them again. So each tuple changes the state exactly once in effect; a windowed bolt gets the tuples that its window held as well.

Storm saves states with checkpoint tuples, which flow through the topology as transactions. Here they are part of the task's snapshots. So a topology
needs no state provider, tuples need no field with a message id, and no method is called for a commit or a rollback.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Generic, Self, TypeVar

from dskype.topology.components import BaseBolt, Bolt, WrappingBolt
from dskype.topology.config import Config
from dskype.topology.context import TopologyContext
from dskype.topology.errors import IllegalArgumentException, InvalidTopologyException
from dskype.topology.model import StormTopology, stateful
from dskype.topology.tuples import Tuple
from dskype.topology.windows import WindowedBolt, WindowedBoltExecutor

__all__ = ["KeyValueState", "StatefulBolt", "StatefulBoltExecutor", "StatefulWindowedBolt", "StatefulWindowedBoltExecutor"]

_K = TypeVar("_K")
_V = TypeVar("_V")


class KeyValueState(Generic[_K, _V]):
    """The state of one task: values by key.

    Keys and values are plain values, as in snapshots (:meth:`~dskype.topology.model.Component.snapshot`).
    """

    def __init__(self, values: Mapping[_K, _V] | None = None) -> None:
        self._values: dict[_K, _V] = dict(values or {})

    def put(self, key: _K, value: _V) -> None:
        """Set the value of a key."""
        self._values[key] = value

    def get(self, key: _K, default: Any = None) -> Any:
        """Return the value of a key; ``default`` if it has none."""
        return self._values.get(key, default)

    def delete(self, key: _K) -> Any:
        """Remove a key; return its value, or None if it has none."""
        return self._values.pop(key, None)

    def __iter__(self) -> Iterator[tuple[_K, _V]]:
        return iter(self._values.items())

    def __contains__(self, key: object) -> bool:
        return key in self._values

    def __len__(self) -> int:
        return len(self._values)

    def to_dict(self) -> dict[_K, _V]:
        """Return a copy of the values."""
        return dict(self._values)


class _Stateful(BaseBolt):
    """What bolts with a state have in common."""

    @abstractmethod
    def init_state(self, state: KeyValueState[Any, Any]) -> None:
        """Take the state: empty at the first start, and as it was after a crash. Called once after ``prepare``, before the first tuple; keep ``state``."""

    def pre_prepare(self, txid: int) -> None:
        """Put into the state what is only in memory; called before the state is saved. Optional.

        It may run in a copy of the process. So it must not do anything but change the state.

        :param txid: the task's time, epoch ms.
        """

    def pre_commit(self, txid: int) -> None:
        """Not called; a bolt that overrides it is refused, because there are no transactions to commit."""

    def pre_rollback(self) -> None:
        """Not called; a bolt that overrides it is refused, because there are no transactions to roll back."""

    def check_topology(self, component_id: str, conf: Mapping[str, Any], topology: StormTopology) -> None:
        """Refuse methods that would never be called, and a second way to keep a state."""
        if stateful(self):
            raise InvalidTopologyException(
                "A stateful bolt has snapshot and restore of its own, which would not be called.", component=component_id, hint="use the state alone"
            )
        for name in ("pre_commit", "pre_rollback"):
            if getattr(type(self), name) is not getattr(_Stateful, name):
                raise InvalidTopologyException(
                    f"A stateful bolt overrides {name}, which is not called: states are saved without transactions.", component=component_id
                )


class StatefulBolt(_Stateful, Bolt):
    """A bolt with a state; it anchors and acks like any :class:`~dskype.topology.components.Bolt`.

    >>> class Count(StatefulBolt):
    ...     def prepare(self, conf, context, collector):
    ...         self.collector = collector
    ...     def init_state(self, state):
    ...         self.counts = state
    ...     def execute(self, tup):
    ...         self.counts.put(tup["word"], self.counts.get(tup["word"], 0) + 1)
    ...         self.collector.ack(tup)
    """

    def as_executor(self) -> StatefulBoltExecutor:
        """Return the bolt that executes this one; called by ``set_bolt``."""
        return StatefulBoltExecutor(self)


class StatefulWindowedBolt(_Stateful, WindowedBolt):
    """A windowed bolt with a state. After a crash the window holds the tuples that it held, and the state is that of the windows before."""

    def with_persistence(self) -> Self:
        """Keep the tuples of the window through crashes, which is always so here; Storm keeps only their ids by default."""
        return self

    def with_max_events_in_memory(self, events: int) -> Self:
        """Refuse a limit: the tuples of a window are in memory.

        :raises IllegalArgumentException: always.
        """
        raise IllegalArgumentException("The tuples of a window stay in memory; their number has no limit.", given=events)

    def with_message_id_field(self, field: str) -> Self:
        """Name the field with an id of the tuple. Storm needs it to recognise repetitions; here it has no effect, because channels number their tuples."""
        self.window_configuration[Config.TOPOLOGY_BOLTS_MESSAGE_ID_FIELD_NAME] = field
        return self

    def as_executor(self) -> StatefulWindowedBoltExecutor:
        """Return the bolt that executes this one; called by ``set_bolt``."""
        return StatefulWindowedBoltExecutor(self)


class _Holder:
    """Holds the state of a bolt, and hands it over once.

    :param bolt: the user's bolt.
    """

    def __init__(self, bolt: _Stateful, now_ms: Callable[[], int]) -> None:
        self._bolt, self._now_ms = bolt, now_ms
        self._state: KeyValueState[Any, Any] = KeyValueState()
        self._given = False

    def give(self) -> None:
        """Give the bolt its state, unless it has it."""
        if not self._given:
            self._given = True
            self._bolt.init_state(self._state)

    def save(self) -> dict[Any, Any]:
        """Return the values."""
        if self._given:
            self._bolt.pre_prepare(self._now_ms())
        return self._state.to_dict()

    def restore(self, values: Mapping[Any, Any]) -> None:
        """Give the bolt the values of :meth:`save`."""
        self._state, self._given = KeyValueState(values), False
        self.give()


class StatefulBoltExecutor(WrappingBolt):
    """Runs a :class:`StatefulBolt` as a bolt with ``snapshot`` and ``restore``; made by ``set_bolt``."""

    bolt: StatefulBolt

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext, collector: Any) -> None:
        """Prepare the user's bolt."""
        self._holder = _Holder(self.bolt, context.clock_ms)
        self.bolt.prepare(conf, context, collector)

    def execute(self, tup: Tuple) -> None:
        """Let the user's bolt process a tuple."""
        self._holder.give()
        self.bolt.execute(tup)

    def on_watermark(self, watermark: int) -> None:
        """Pass the task's watermark on."""
        self._holder.give()
        self.bolt.on_watermark(watermark)

    def snapshot(self) -> dict[Any, Any]:
        """Return the values of the state."""
        return self._holder.save()

    def restore(self, state: Mapping[Any, Any]) -> None:
        """Give the user's bolt its state."""
        self._holder.restore(state)


class StatefulWindowedBoltExecutor(WindowedBoltExecutor):
    """Runs a :class:`StatefulWindowedBolt`; made by ``set_bolt``."""

    bolt: StatefulWindowedBolt

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext, collector: Any) -> None:
        """Prepare the user's bolt, and check the window."""
        self._holder = _Holder(self.bolt, context.clock_ms)
        super().prepare(conf, context, collector)

    def on_watermark(self, watermark: int) -> None:
        """Pass the task's watermark on."""
        self._holder.give()
        super().on_watermark(watermark)

    def _activate(self, tuples: list[Tuple], new: list[Tuple], expired: list[Tuple], end_ms: int) -> None:
        self._holder.give()
        super()._activate(tuples, new, expired, end_ms)

    def _user_state(self) -> Any:
        return self._holder.save()

    def _restore_user(self, state: Any) -> None:
        self._holder.restore(state)
