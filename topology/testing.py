"""Spouts, bolts and groupings for tests and first topologies, as in Storm's ``org.apache.storm.testing``.

Storm's helpers share static variables between the test and the tasks. Here tasks may run in other processes, so the
helpers share a :class:`SharedLog`, an append-only file on this machine. With it a test can feed a spout and see what
was acked or captured, both on the simulated transport and on Spark, but not on a cluster of several machines.
"""

from __future__ import annotations

import logging
import time
import uuid
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dskype.topology.components import BasicBolt, Bolt, Spout
from dskype.topology.core.shared_log import SharedLog
from dskype.topology.errors import IllegalArgumentException
from dskype.topology.fields import DEFAULT_STREAM_ID, Fields, as_fields
from dskype.topology.groupings import CustomStreamGrouping
from dskype.topology.mixins import DeclaresFields, KeepsCollector, MayBeOfOneTask, RemembersAttribute, SettlesTrees
from dskype.topology.model import OutputFieldsDeclarer
from dskype.topology.tuples import Tuple

__all__ = [
    "AckFailDelegate",
    "AckFailMapTracker",
    "AckTracker",
    "CompletableSpout",
    "FeederSpout",
    "FixedTuple",
    "FixedTupleSpout",
    "IdentityBolt",
    "LogInfoBolt",
    "NGrouping",
    "SharedLog",
    "TestAggregatesCounter",
    "TestConfBolt",
    "TestEventLogSpout",
    "TestEventOrderCheckBolt",
    "TestGlobalCount",
    "TestPlannerBolt",
    "TestPlannerSpout",
    "TestWordBytesCounter",
    "TestWordCounter",
    "TestWordSpout",
    "TupleCaptureBolt",
]

log = logging.getLogger(__name__)


def _now_ms(context: Any) -> int:
    """Return the transport's time, which may be simulated, if the context knows it; else that of a clock of this machine."""
    clock = getattr(context, "now_ms", None)
    return clock() if clock is not None else time.monotonic_ns() // 1_000_000


# --- acks seen by a test ----------------------------------------------------------------------------------------------


class AckFailDelegate:
    """Receives the acks and fails of a :class:`FeederSpout`."""

    def ack(self, msg_id: Any) -> None:
        """Handle a completed tree."""

    def fail(self, msg_id: Any) -> None:
        """Handle a failed tree."""


class AckTracker(AckFailDelegate):
    """Counts acks. After a crash an ack may be repeated, as in Storm, and is then counted again."""

    def __init__(self) -> None:
        self._acks = SharedLog()
        self._from = 0

    def ack(self, msg_id: Any) -> None:
        """Count an ack."""
        self._acks.append(None)

    def get_num_acks(self) -> int:
        """Return the number of acks since the last :meth:`reset_num_acks`."""
        return sum(1 for _ in self._acks.read(self._from))

    def reset_num_acks(self) -> None:
        """Count from 0 again."""
        self._from = self._acks.end()


class AckFailMapTracker(SettlesTrees, AckFailDelegate):
    """Records which message ids were acked and which failed."""

    def __init__(self) -> None:
        self._done = SharedLog()

    def is_acked(self, msg_id: Any) -> bool:
        """Tell whether the tree of ``msg_id`` was completed."""
        return any(value == ("ack", msg_id) for value in self._done.values())

    def is_failed(self, msg_id: Any) -> bool:
        """Tell whether the tree of ``msg_id`` failed or timed out."""
        return any(value == ("fail", msg_id) for value in self._done.values())


# --- spouts -----------------------------------------------------------------------------------------------------------


class CompletableSpout(Spout):
    """A spout with a finite number of tuples."""

    def is_exhausted(self) -> bool:
        """Tell whether every tuple was emitted and its tree acked or failed; a test may call it in its own process."""
        raise NotImplementedError


_NEW_ID = object()


class FeederSpout(DeclaresFields, Spout):
    """Emits the tuples that a test feeds it.

    Call ``feed`` on the object passed to the builder, before or while the topology runs. With n tasks, the task with
    index i emits every n-th tuple, starting with the i-th. A crash neither loses nor repeats a tuple.

    :param fields: the fields of its stream ``default``.
    """

    def __init__(self, fields: Fields | str | Iterable[str]) -> None:
        self._fields = as_fields(fields)
        self._fed = SharedLog()
        self._delegate = AckFailDelegate()
        self._position = 0
        self._seen = 0

    def set_ack_fail_delegate(self, delegate: AckFailDelegate) -> None:
        """Pass acks and fails on to ``delegate``."""
        self._delegate = delegate

    def feed(self, values: Sequence[Any], msg_id: Any = _NEW_ID) -> None:
        """Queue one tuple.

        :param values: one per field.
        :param msg_id: message id; default: a new unique string, so that the tree is tracked. With None it is not tracked.
        """
        if len(values) != len(self._fields):
            raise IllegalArgumentException(f"Expected {len(self._fields)} values but got {len(values)}.", given=list(values), legal=f"{self._fields}")
        self._fed.append((list(values), uuid.uuid4().hex if msg_id is _NEW_ID else msg_id))

    feed_no_wait = feed

    def open(self, conf: Mapping[str, Any], context: Any, collector: Any) -> None:
        """Determine this task's share of the tuples."""
        self._collector = collector
        tasks = context.get_component_tasks(context.get_this_component_id())
        self._share = context.get_this_task_index(), len(tasks)

    def next_tuple(self) -> None:
        """Emit the next tuple of this task, if there is one."""
        index, tasks = self._share
        for position, (values, msg_id) in self._fed.read(self._position):
            mine = self._seen % tasks == index
            self._position, self._seen = position, self._seen + 1
            if mine:
                self._collector.emit(values, message_id=msg_id)
                return

    def ack(self, msg_id: Any) -> None:
        """Notify the delegate."""
        self._delegate.ack(msg_id)

    def fail(self, msg_id: Any) -> None:
        """Notify the delegate."""
        self._delegate.fail(msg_id)

    def snapshot(self) -> Any:
        """Return the position in the log and the number of tuples read."""
        return [self._position, self._seen]

    def restore(self, state: Any) -> None:
        """Continue from the position of the snapshot."""
        self._position, self._seen = state


@dataclass
class FixedTuple:
    """The values of a tuple and their stream.

    :param values: one per field.
    :param stream: stream id, default ``default``.
    """

    values: list[Any]
    stream: str = DEFAULT_STREAM_ID

    def __post_init__(self) -> None:
        self.values = list(self.values)


class FixedTupleSpout(RemembersAttribute, SettlesTrees, CompletableSpout):
    """Emits a list of tuples once, each with a message id; of n tasks, the one with index i emits every n-th, starting with the i-th.

    :param tuples: :class:`FixedTuple` objects or lists of values.
    :param fields: fields of the stream ``default``; None declares no stream (for use as a mocked component).
    """

    _state = "_next"

    def __init__(self, tuples: Iterable[FixedTuple | Sequence[Any]], fields: Fields | str | Iterable[str] | None = None) -> None:
        self._tuples = [t if isinstance(t, FixedTuple) else FixedTuple(list(t)) for t in tuples]
        self._fields = None if fields is None else as_fields(fields)
        self._done = SharedLog()
        self._next = 0

    def get_source_tuples(self) -> list[FixedTuple]:
        """Return the tuples of all tasks."""
        return self._tuples

    def _outcomes(self) -> dict[str, str]:
        # By id, because a crash may repeat an ack.
        return {msg_id: outcome for outcome, msg_id in self._done.values()}

    def get_num_acked(self) -> int:
        """Return how many trees are complete."""
        return list(self._outcomes().values()).count("ack")

    def get_num_failed(self) -> int:
        """Return how many trees failed."""
        return list(self._outcomes().values()).count("fail")

    def get_completed(self) -> int:
        """Return how many trees are settled: acked or failed."""
        return len(self._outcomes())

    def is_exhausted(self) -> bool:
        """Tell whether all trees are settled."""
        return self.get_completed() == len(self._tuples)

    def open(self, conf: Mapping[str, Any], context: Any, collector: Any) -> None:
        """Determine this task's share of the tuples."""
        self._collector = collector
        tasks = context.get_component_tasks(context.get_this_component_id())
        self._mine = range(context.get_this_task_index(), len(self._tuples), len(tasks))

    def next_tuple(self) -> None:
        """Emit the next tuple, if any is left."""
        if self._next < len(self._mine):
            number = self._mine[self._next]
            self._next += 1
            fixed = self._tuples[number]
            self._collector.emit(fixed.values, fixed.stream, message_id=str(number))

    def declare_output_fields(self, declarer: OutputFieldsDeclarer) -> None:
        """Declare the fields, if there are any."""
        if self._fields is not None:
            declarer.declare(self._fields)


class TestWordSpout(DeclaresFields, MayBeOfOneTask, RemembersAttribute, Spout):
    """Emits one of five names ten times a second, field ``word``, untracked.

    Storm's spout sleeps 100 ms in ``next_tuple``; this one returns at once until the time has come. The words follow
    from task and count, so that two runs are alike.

    :param is_distributed: False allows one task only.
    :param interval_ms: time between two words, default 100.
    """

    _fields, _state = Fields("word"), "_count"

    __test__ = False
    WORDS = ("nathan", "mike", "jackson", "golda", "bertels")

    def __init__(self, is_distributed: bool = True, interval_ms: int = 100) -> None:
        self._is_distributed = is_distributed
        self._interval_ms = interval_ms
        self._count = 0
        self._due_ms: int | None = None

    def open(self, conf: Mapping[str, Any], context: Any, collector: Any) -> None:
        """Keep the collector."""
        self._context, self._collector = context, collector

    def next_tuple(self) -> None:
        """Emit a word when the time has come."""
        now = _now_ms(self._context)
        if self._due_ms is not None and now < self._due_ms:
            return
        self._due_ms = now + self._interval_ms
        seed = f"{self._context.get_this_task_id()}/{self._count}".encode()
        self._count += 1
        self._collector.emit([self.WORDS[zlib.crc32(seed) % len(self.WORDS)]])


class TestPlannerSpout(DeclaresFields, MayBeOfOneTask, Spout):
    """Declares a stream and emits nothing.

    Takes (fields, is_distributed), (fields) or (is_distributed), as Storm's does.
    """

    __test__ = False

    def __init__(self, fields: Fields | list[str] | bool = True, is_distributed: bool = True) -> None:
        if isinstance(fields, bool):
            is_distributed = fields
            fields = Fields("field1", "field2")
        self._fields = as_fields(fields)
        self._is_distributed = is_distributed

    def get_output_fields(self) -> Fields:
        """Return the fields of its stream."""
        return self._fields

    def next_tuple(self) -> None:
        """Do nothing."""


class TestEventLogSpout(DeclaresFields, RemembersAttribute, CompletableSpout):
    """Emits ``source`` (its task) and ``eventId`` 1, 2, 3, ... tracked; the tasks share ``total_count`` equally."""

    _fields, _state = Fields("source", "eventId"), "_event"

    __test__ = False

    def __init__(self, total_count: int) -> None:
        self._total = total_count
        self._done = SharedLog()
        self._event = 0

    def open(self, conf: Mapping[str, Any], context: Any, collector: Any) -> None:
        """Determine this task's share of the events."""
        self._collector = collector
        self._source = context.get_this_task_id()
        self._share = self._total // len(context.get_component_tasks(context.get_this_component_id()))

    def next_tuple(self) -> None:
        """Emit the next event, if any is left."""
        if self._event < self._share:
            self._event += 1
            self._collector.emit([self._source, self._event], message_id=self._event)

    def ack(self, msg_id: Any) -> None:
        """Record that the tree is settled."""
        self._done.append((self._source, msg_id))

    fail = ack

    def completed(self) -> bool:
        """Tell whether all trees are settled."""
        return len({tuple(done) for done in self._done.values()}) >= self._total

    is_exhausted = completed


# --- bolts ------------------------------------------------------------------------------------------------------------


class TestWordCounter(DeclaresFields, RemembersAttribute, BasicBolt):
    """Counts words: for each input emits ``word`` and its ``count`` so far."""

    _fields, _state = Fields("word", "count"), "_counts"

    __test__ = False

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def _word(self, tup: Tuple) -> str:
        return tup.get_string(0)

    def execute(self, tup: Tuple, collector: Any) -> None:
        """Count the first value."""
        word = self._word(tup)
        count = self._counts[word] = self._counts.get(word, 0) + 1
        collector.emit([word, count])


class TestWordBytesCounter(TestWordCounter):
    """Counts words that come as bytes."""

    def _word(self, tup: Tuple) -> str:
        return bytes(tup.get_binary(0)).decode()


class TestGlobalCount(DeclaresFields, RemembersAttribute, KeepsCollector, Bolt):
    """Counts all inputs of its task: emits ``global-count``, unanchored, then acks."""

    _fields, _state = Fields("global-count"), "_count"

    __test__ = False

    def __init__(self) -> None:
        self._count = 0

    def execute(self, tup: Tuple) -> None:
        """Count."""
        self._count += 1
        self._collector.emit([self._count])
        self._collector.ack(tup)


class TestAggregatesCounter(DeclaresFields, RemembersAttribute, KeepsCollector, Bolt):
    """Sums the newest counts of all words: takes (word, count), emits ``agg-global``, unanchored, then acks."""

    _fields, _state = Fields("agg-global"), "_counts"

    __test__ = False

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def execute(self, tup: Tuple) -> None:
        """Replace the word's count and emit the sum."""
        self._counts[tup.get_string(0)] = tup.get_integer(1)
        self._collector.emit([sum(self._counts.values())])
        self._collector.ack(tup)


class TestConfBolt(DeclaresFields, BasicBolt):
    """Looks up configuration keys: takes a key, emits ``conf`` (the key) and ``value``.

    :param component_conf: the component's own configuration.
    """

    _fields = Fields("conf", "value")

    __test__ = False

    def __init__(self, component_conf: Mapping[str, Any] | None = None) -> None:
        self._component_conf = dict(component_conf or {})

    def prepare(self, conf: Mapping[str, Any], context: Any) -> None:
        """Keep the configuration."""
        self._conf = conf

    def execute(self, tup: Tuple, collector: Any) -> None:
        """Look the key up."""
        key = tup.get_string(0)
        collector.emit([key, self._conf.get(key)])

    def get_component_configuration(self) -> dict[str, Any]:
        """Return the component's own configuration."""
        return self._component_conf


class TestPlannerBolt(DeclaresFields, Bolt):
    """Declares ``field1`` and ``field2``, does nothing: inputs are neither acked nor failed."""

    _fields = Fields("field1", "field2")

    __test__ = False

    def execute(self, tup: Tuple) -> None:
        """Do nothing."""


class IdentityBolt(DeclaresFields, BasicBolt):
    """Emits its input.

    :param fields: the fields of its input.
    """

    def __init__(self, fields: Fields | str | Iterable[str]) -> None:
        self._fields = as_fields(fields)

    def execute(self, tup: Tuple, collector: Any) -> None:
        """Emit the values."""
        collector.emit(list(tup.values))


class TestEventOrderCheckBolt(DeclaresFields, RemembersAttribute, KeepsCollector, Bolt):
    """Checks that the events of each source come in order; emits ``source`` and ``eventId``, or raises."""

    _fields, _state = Fields("source", "eventId"), "_last"

    __test__ = False

    def __init__(self) -> None:
        self._last: dict[int, int] = {}

    def execute(self, tup: Tuple) -> None:
        """Compare with the last event of the source."""
        source, event = tup.get_integer_by_field("source"), tup.get_long_by_field("eventId")
        last = self._last.get(source)
        if last is not None and event <= last:
            raise RuntimeError(f"Error: event id is not in strict order! event source Id: {source}, last event Id: {last}, current event Id: {event}")
        self._last[source] = event
        self._collector.emit([source, event])
        self._collector.ack(tup)


class TupleCaptureBolt(RemembersAttribute, Bolt):
    """Keeps every input for the test and acks it.

    Each task numbers its inputs, and the number is its state, so an input that a crash repeats is captured once.
    """

    _state = "_count"

    def __init__(self) -> None:
        self._captured = SharedLog()
        self._from = 0
        self._count = 0

    def prepare(self, conf: Mapping[str, Any], context: Any, collector: Any) -> None:
        """Keep the collector."""
        self._task, self._collector = context.get_this_task_id(), collector

    def execute(self, tup: Tuple) -> None:
        """Capture the input."""
        self._captured.append((self._task, self._count, tup.get_source_component(), tup.get_source_stream_id(), list(tup.values)))
        self._count += 1
        self._collector.ack(tup)

    def get_results(self) -> dict[str, list[FixedTuple]]:
        """Return source component -> its tuples, in the order they came."""
        seen: set[tuple[int, int]] = set()
        results: dict[str, list[FixedTuple]] = {}
        for _, (task, number, component, stream, values) in self._captured.read(self._from):
            if (task, number) not in seen:
                seen.add((task, number))
                results.setdefault(component, []).append(FixedTuple(values, stream))
        return results

    def get_and_clear_results(self) -> dict[str, list[FixedTuple]]:
        """Return the results and forget them."""
        results = self.get_results()
        self._from = self._captured.end()
        return results

    get_and_remove_results = get_and_clear_results


class LogInfoBolt(BasicBolt):
    """Logs every input at level INFO and emits nothing."""

    def execute(self, tup: Tuple, collector: Any) -> None:
        """Log the input."""
        log.info("%s", tup)


# --- groupings --------------------------------------------------------------------------------------------------------


class NGrouping(CustomStreamGrouping):
    """Sends every tuple to the ``n`` tasks with the lowest ids.

    :param n: how many; all tasks if there are fewer.
    """

    def __init__(self, n: int) -> None:
        self._n = int(n)
        self._targets: list[int] = []

    def prepare(self, context: Any, stream: Any, target_tasks: Sequence[int]) -> None:
        """Choose the tasks."""
        self._targets = sorted(target_tasks)[: self._n]

    def choose_tasks(self, task_id: int, values: Sequence[Any]) -> Sequence[int]:
        """Return the chosen tasks."""
        return self._targets
