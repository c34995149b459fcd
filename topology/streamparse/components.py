"""Spouts and bolts as streamparse (pystorm) has them, and the adapters that run them.

A user's class is instantiated in the task's process, when the task is prepared. What pystorm writes to its pipe goes to the task's collector.
"""

from __future__ import annotations

import logging
import math
from collections import Counter, defaultdict, namedtuple
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any, ClassVar

from dskype.topology import components as emulator
from dskype.topology import multilang
from dskype.topology.config import Config
from dskype.topology.fields import Fields
from dskype.topology.model import OutputFieldsDeclarer
from dskype.topology.streamparse.specs import ComponentSpec
from dskype.topology.tuples import Tuple as StormTuple
from dskype.topology.tuples import is_tick

__all__ = ["BatchingBolt", "Bolt", "Component", "ReliableSpout", "Spout", "TicklessBatchingBolt", "Tuple", "adapted"]

_LEVELS = {"trace": logging.DEBUG, "debug": logging.DEBUG, "info": logging.INFO, "warn": logging.WARNING, "warning": logging.WARNING, "error": logging.ERROR}


class Tuple(namedtuple("Tuple", "id component stream task values")):
    """A tuple as pystorm shows it; ``values`` is a named tuple of the stream's fields.

    :ivar source: the emulator's tuple.
    """

    source: StormTuple | None = None


@cache
def _values_class(fields: tuple[str, ...]) -> Any:
    return namedtuple("Values", fields, rename=True)  # a field that is no identifier is known by its position


class Component:
    """What spouts and bolts have in common.

    :cvar outputs: fields of the stream ``default``, or a list of :class:`~dskype.topology.streamparse.Stream`.
    :cvar par: default number of executors.
    :cvar config: default configuration.
    :ivar task_id: id of this task.
    :ivar component_name: id of this component.
    :ivar topology_name: the topology's name.
    :ivar storm_conf: the configuration.
    :ivar context: the keys ``taskid``, ``componentid`` and ``task->component`` of pystorm's context.
    :ivar logger: logs to the executor's log.
    """

    outputs: ClassVar[Any] = None
    par: ClassVar[Any] = 1
    config: ClassVar[Mapping[str, Any] | None] = None
    exit_on_exception = True
    storm_kind: ClassVar[str | None] = None
    """``spout`` or ``bolt``."""
    command: ClassVar[list[str] | None] = None
    """Program and arguments of a component in another language."""

    task_id: int
    component_name: str
    topology_name: str
    storm_conf: Mapping[str, Any]
    context: dict[str, Any]
    logger: logging.Logger
    _collector: Any
    _metrics: dict[str, Any]

    @classmethod
    def spec(cls, name: str | None = None, inputs: Any = None, par: Any = None, config: Mapping[str, Any] | None = None) -> ComponentSpec:
        """Return the spec of this component in a topology.

        :param name: its id; default: the attribute's name in the topology's class.
        :param inputs: spec or ``spec["stream"]`` -> grouping; a list for shuffle groupings (or direct ones, where the source's stream is direct).
        :param par: executors, or {environment: executors}; default: the class's.
        :param config: configuration of the component.
        :raises TypeError, ValueError: a value that cannot be used.
        """
        return ComponentSpec(cls, name=name, inputs=inputs, par=par, config=config)

    def initialize(self, storm_conf: Mapping[str, Any], context: Mapping[str, Any]) -> None:
        """Set the component up; called once, before the first tuple."""

    def _attach(self, conf: Mapping[str, Any], context: Any, collector: Any) -> None:
        self._collector, self._metrics, self._context = collector, {}, context
        self.task_id, self.component_name = context.get_this_task_id(), context.get_this_component_id()
        self.topology_name, self.storm_conf = conf.get(Config.TOPOLOGY_NAME, ""), conf
        self.context = {"taskid": self.task_id, "componentid": self.component_name, "task->component": context.get_task_to_component()}
        self.logger = logging.getLogger(f"streamparse.{self.component_name}")
        self.initialize(conf, self.context)

    def log(self, message: str, level: str | None = None) -> None:
        """Log a message.

        :param level: trace, debug, info (default), warn or error.
        """
        self.logger.log(_LEVELS.get(level or "info", logging.INFO), "%s", message)

    def raise_exception(self, exception: BaseException, tup: Tuple | None = None) -> None:
        """Report an exception; the component continues."""
        self._collector.report_error(exception)

    def report_metric(self, name: str, value: Any) -> None:
        """Set a metric of this task, which its reports show."""
        if name not in self._metrics:
            self._context.register_gauge(name, lambda: self._metrics[name])
        self._metrics[name] = value

    @staticmethod
    def is_heartbeat(tup: Tuple) -> bool:
        """Tell whether a tuple is a heartbeat of the multi-language protocol; here none is."""
        return False

    @staticmethod
    def is_tick(tup: Tuple) -> bool:
        """Tell whether a tuple is a tick."""
        return tup.component == "__system" and tup.stream == "__tick"


def _row(tup: Any) -> Sequence[Any]:
    if not isinstance(tup, (list, tuple)):
        msg = f"All tuples must be either lists or tuples, received {type(tup)} instead."
        raise TypeError(msg)
    return tup


# --- bolts ------------------------------------------------------------------------------------------------------------


class Bolt(Component):
    """A bolt: overrides :meth:`process`.

    :cvar auto_anchor: anchor what is emitted to the present tuple.
    :cvar auto_ack: ack a tuple when ``process`` returns.
    :cvar auto_fail: fail a tuple when ``process`` raises.
    """

    storm_kind = "bolt"
    auto_anchor = True
    auto_ack = True
    auto_fail = True
    _current_tups: list[Tuple] = []  # noqa: RUF012 - replaced, never changed

    def process(self, tup: Tuple) -> None:
        """Process a tuple."""
        raise NotImplementedError

    def process_tick(self, tup: Tuple) -> None:
        """Process a tick. Default: nothing."""

    def emit(
        self, tup: Sequence[Any], stream: str | None = None, anchors: Iterable[Tuple] | None = None, direct_task: int | None = None, need_task_ids: bool = False
    ) -> list[int] | None:
        """Emit a tuple.

        :param anchors: default: the present tuple, if ``auto_anchor``.
        :param direct_task: the task of a direct stream.
        :returns: the tasks, if ``need_task_ids``.
        :raises TypeError: ``tup`` is neither a list nor a tuple.
        """
        row, name = _row(tup), stream or "default"
        if anchors is None:
            anchors = self._current_tups if self.auto_anchor else ()
        sources = [anchor.source for anchor in anchors if anchor.source is not None and not is_tick(anchor.source)] or None
        if direct_task is not None:
            self._collector.emit_direct(direct_task, row, name, sources)
            return [direct_task] if need_task_ids else None
        tasks = self._collector.emit(row, name, sources)
        return list(tasks) if need_task_ids else None

    def ack(self, tup: Tuple) -> None:
        """Ack a tuple."""
        if tup.source is not None:
            self._collector.ack(tup.source)

    def fail(self, tup: Tuple) -> None:
        """Fail a tuple."""
        if tup.source is not None:
            self._collector.fail(tup.source)

    def _run(self, tup: Tuple, tick: bool) -> None:
        """Process a tuple of the task."""
        self._guard([tup], self._run_tick if tick else self.process, tup)

    def _run_tick(self, tup: Tuple) -> None:
        self.process_tick(tup)

    def _guard(self, tups: list[Tuple], call: Callable[..., None], *args: Any) -> bool:
        """Call the user's code for tuples, and settle them as pystorm does; return whether it succeeded."""
        self._current_tups = tups
        try:
            call(*args)
        except Exception as error:
            if self.auto_fail:
                for tup in tups:
                    self.fail(tup)
            if self.exit_on_exception:  # the emulator restarts the component
                raise
            self.raise_exception(error)
            return False
        finally:
            self._current_tups = []
        if self.auto_ack:
            for tup in tups:
                self.ack(tup)
        return True


class BatchingBolt(Bolt):
    """A bolt that collects tuples, and processes them in groups after some ticks; the configuration has to switch ticks on.

    :cvar ticks_between_batches: how many ticks pass without a batch.
    """

    ticks_between_batches = 1

    def _attach(self, conf: Mapping[str, Any], context: Any, collector: Any) -> None:
        self._batches: dict[Hashable, list[Tuple]] = defaultdict(list)
        self._tick_counter = 0
        super()._attach(conf, context, collector)

    def group_key(self, tup: Tuple) -> Hashable:
        """Return the group of a tuple; default: one group."""
        return None

    def process_batch(self, key: Hashable, tups: list[Tuple]) -> None:
        """Process the tuples of a group."""
        raise NotImplementedError

    def process(self, tup: Tuple) -> None:
        """Add a tuple to its group."""
        self._batches[self.group_key(tup)].append(tup)

    def process_batches(self) -> None:
        """Process all groups; each is acked, or failed, as a whole."""
        batches, self._batches = self._batches, defaultdict(list)
        for key, tups in batches.items():
            self._guard(tups, self.process_batch, key, tups)

    def process_tick(self, tup: Tuple) -> None:
        """Process the groups if enough ticks have passed."""
        self._tick_counter += 1
        if self._tick_counter > self.ticks_between_batches and self._batches:
            self._tick_counter = 0
            self.process_batches()

    def _run(self, tup: Tuple, tick: bool) -> None:
        if tick:
            self.process_tick(tup)
            return
        try:
            self.process(tup)
        except Exception as error:
            if self.auto_fail:
                self.fail(tup)
            if self.exit_on_exception:
                raise
            self.raise_exception(error)


class TicklessBatchingBolt(BatchingBolt):
    """A batching bolt with a time of its own.

    :cvar secs_between_batches: how often groups are processed; whole seconds here, rounded up, because time comes to tasks as ticks.
    """

    secs_between_batches = 2

    def process_tick(self, tup: Tuple) -> None:
        """Process the groups."""
        self.process_batches()


# --- spouts -----------------------------------------------------------------------------------------------------------


class Spout(Component):
    """A spout: overrides :meth:`next_tuple`."""

    storm_kind = "spout"

    def next_tuple(self) -> None:
        """Emit a tuple, if there is one."""
        raise NotImplementedError

    def ack(self, tup_id: Any) -> None:
        """Note that a tuple was processed. Default: nothing."""

    def fail(self, tup_id: Any) -> None:
        """Note that a tuple has failed. Default: nothing."""

    def activate(self) -> None:
        """Continue. Default: nothing."""

    def deactivate(self) -> None:
        """Pause. Default: nothing."""

    def emit(
        self, tup: Sequence[Any], tup_id: Any = None, stream: str | None = None, direct_task: int | None = None, need_task_ids: bool = False
    ) -> list[int] | None:
        """Emit a tuple.

        :param tup_id: its id; with one, the tuple is tracked.
        :param direct_task: the task of a direct stream.
        :returns: the tasks, if ``need_task_ids``.
        :raises TypeError: ``tup`` is neither a list nor a tuple.
        """
        row, name = _row(tup), stream or "default"
        if direct_task is not None:
            self._collector.emit_direct(direct_task, row, name, tup_id)
            return [direct_task] if need_task_ids else None
        tasks = self._collector.emit(row, name, tup_id)
        return list(tasks) if need_task_ids else None


class ReliableSpout(Spout):
    """A spout that emits failed tuples again.

    :cvar max_fails: after how many failures a tuple is given up, and acked.
    """

    max_fails = 3

    def _attach(self, conf: Mapping[str, Any], context: Any, collector: Any) -> None:
        self.unacked_tuples: dict[Any, dict[str, Any]] = {}
        self.failed_tuples: Counter[Any] = Counter()
        super()._attach(conf, context, collector)

    def emit(
        self, tup: Sequence[Any], tup_id: Any = None, stream: str | None = None, direct_task: int | None = None, need_task_ids: bool = False
    ) -> list[int] | None:
        """Emit a tuple, which needs an id.

        :raises ValueError: it has none.
        """
        if tup_id is None:
            msg = "You must provide a tuple ID when emitting with a ReliableSpout in order for the tuple to be tracked."
            raise ValueError(msg)
        given: dict[str, Any] = {"tup": tup, "stream": stream, "direct_task": direct_task, "need_task_ids": need_task_ids}
        found = super().emit(tup_id=tup_id, **given)
        self.unacked_tuples[tup_id] = given
        return found

    def ack(self, tup_id: Any) -> None:
        """Forget a tuple."""
        self.failed_tuples.pop(tup_id, None)
        self.unacked_tuples.pop(tup_id, None)

    def fail(self, tup_id: Any) -> None:
        """Emit a tuple again, or give it up."""
        given = self.unacked_tuples.get(tup_id)
        if given is None:
            self.logger.error("Received fail for unknown tuple ID: %r", tup_id)
        elif self.failed_tuples[tup_id] < self.max_fails:
            self.failed_tuples[tup_id] += 1
            self.emit(tup_id=tup_id, **given)
        else:
            self.logger.info("Acking tuple ID %r after it exceeded limit of %r retries.", tup_id, self.max_fails)
            self.ack(tup_id)


# --- adapters ---------------------------------------------------------------------------------------------------------


class _Declares:
    """Declares the streams of a user's class.

    :param kind: the user's class.
    :param streams: stream -> (fields, direct).
    """

    def __init__(self, kind: Any, streams: Mapping[str, tuple[Fields, bool]]) -> None:
        self._kind, self._streams = kind, dict(streams)
        self.class_name = kind.__name__

    def declare_output_fields(self, declarer: OutputFieldsDeclarer) -> None:
        """Declare the streams."""
        for name, (fields, direct) in self._streams.items():
            declarer.declare_stream(name, fields, direct)

    def get_component_configuration(self) -> Mapping[str, Any] | None:
        """Return the ticks that a tickless bolt needs."""
        if issubclass(self._kind, TicklessBatchingBolt):
            return {Config.TOPOLOGY_TICK_TUPLE_FREQ_SECS: max(1, math.ceil(self._kind.secs_between_batches))}
        return None


class AdaptedSpout(_Declares, emulator.Spout):
    """Runs a streamparse spout."""

    def open(self, conf: Mapping[str, Any], context: Any, collector: Any) -> None:
        """Make the user's spout."""
        self._user = self._kind()
        self._user._attach(conf, context, collector)

    def next_tuple(self) -> None:
        """Ask it."""
        self._user.next_tuple()

    def ack(self, msg_id: Any) -> None:
        """Pass it on."""
        self._user.ack(msg_id)

    def fail(self, msg_id: Any) -> None:
        """Pass it on."""
        self._user.fail(msg_id)

    def activate(self) -> None:
        """Pass it on."""
        self._user.activate()

    def deactivate(self) -> None:
        """Pass it on."""
        self._user.deactivate()


class AdaptedBolt(_Declares, emulator.Bolt):
    """Runs a streamparse bolt."""

    def prepare(self, conf: Mapping[str, Any], context: Any, collector: Any) -> None:
        """Make the user's bolt."""
        self._number = 0
        self._user = self._kind()
        self._user._attach(conf, context, collector)

    def execute(self, tup: StormTuple) -> None:
        """Give it a tuple."""
        self._number += 1
        fields = tuple(tup.get_fields())
        shown = Tuple(str(self._number), tup.get_source_component(), tup.get_source_stream_id(), tup.get_source_task(), _values_class(fields)(*tup.values))
        shown.source = tup
        self._user._run(shown, is_tick(tup))


def adapted(kind: type[Component], streams: Mapping[str, tuple[Fields, bool]]) -> emulator.Spout | emulator.Bolt:
    """Return the component that runs a streamparse class.

    :param streams: stream -> (fields, direct).
    """
    if kind.command is not None:
        shell = (multilang.ShellSpout if kind.storm_kind == "spout" else multilang.ShellBolt)(kind.command)
        for name, (fields, direct) in streams.items():
            shell.set_named_stream(name, direct, list(fields))
        return shell
    return AdaptedSpout(kind, streams) if kind.storm_kind == "spout" else AdaptedBolt(kind, streams)
