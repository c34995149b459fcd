"""Tuples, singly (:class:`Tuple`) and as columns (:class:`TupleBatch`)."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from dskype.topology.errors import explain
from dskype.topology.fields import Fields, GlobalStreamId

__all__ = [
    "SYSTEM_COMPONENT_ID",
    "SYSTEM_TASK_ID",
    "SYSTEM_TICK_STREAM_ID",
    "InRecord",
    "StreamMeta",
    "Tuple",
    "TupleBatch",
    "column_to_list",
    "is_tick",
    "tick_tuple",
]

SYSTEM_COMPONENT_ID = "__system"
SYSTEM_TICK_STREAM_ID = "__tick"
SYSTEM_TASK_ID = -1


class InRecord(NamedTuple):
    """A record that a query has read: an inbox frame, or a record of an external topic."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes]] | None = None


class StreamMeta:
    """The source of tuples; all tuples of a segment share one object.

    :param component: id of the emitting component.
    :param task: task id of the emitter; -1 for system tuples.
    :param stream: stream id.
    :param fields: the stream's field names.
    :ivar counter: ``component/stream``, the key of the statistics of such tuples.
    """

    __slots__ = ("component", "counter", "fields", "stream", "task")

    def __init__(self, component: str, task: int, stream: str, fields: Fields) -> None:
        self.counter = f"{component}/{stream}"
        self.component = component
        self.task = task
        self.stream = stream
        self.fields = fields

    def _key(self) -> tuple[Any, ...]:
        return self.component, self.task, self.stream, self.fields

    def __eq__(self, other: object) -> bool:
        return self._key() == other._key() if isinstance(other, StreamMeta) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        return f"StreamMeta({self.component!r}, {self.task}, {self.stream!r}, {self.fields!r})"


def _typed_getters(java_name: str, accepted: tuple[type, ...], refuse_bool: bool = True) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Make ``get_x(i)`` and ``get_x_by_field(f)``; None passes, as a Java cast of null does."""

    def check(tup: Tuple, value: Any, where: Any) -> Any:
        if value is None or (isinstance(value, accepted) and not (refuse_bool and isinstance(value, bool))):
            return value
        raise TypeError(
            explain(
                f"The value at {where!r} is not a {java_name}.",
                given=value,
                component=tup.meta.component,
                hint="get_value(i) and get_value_by_field(f) return any value unchecked",
            )
        )

    def by_position(self: Tuple, i: int) -> Any:
        return check(self, self.values[i], i)

    def by_field(self: Tuple, field: str) -> Any:
        return check(self, self.get_value_by_field(field), field)

    by_position.__doc__ = f"Return the {java_name} (or None) at position ``i``; TypeError for another type."
    by_field.__doc__ = f"Return the {java_name} (or None) of ``field``; TypeError for another type."
    return by_position, by_field


class _Received:
    """What has a source: a tuple, or a batch of them."""

    __slots__ = ("meta",)

    meta: StreamMeta

    def get_fields(self) -> Fields:
        """Return the field names."""
        return self.meta.fields

    def get_source_component(self) -> str:
        """Return the id of the component that emitted the tuple."""
        return self.meta.component

    def get_source_task(self) -> int:
        """Return the id of the task that emitted the tuple; -1 for ticks."""
        return self.meta.task

    def get_source_stream_id(self) -> str:
        """Return the id of the stream the tuple came on."""
        return self.meta.stream


class Tuple(_Received):
    """One tuple as a bolt sees it; the values are read-only.

    Tuples are compared by identity, as in Storm. Besides Storm's getters there are ``tup[0]``, ``tup["word"]``,
    ``len(tup)`` and iteration over the values.

    :param values: the values, one per field, as a Python ``tuple``. They are neither copied nor checked, because this
        constructor is the hottest line of a bolt's loop; the collector has checked the arity at emit.
    :param meta: the tuple's source.
    :param message_id: what the runtime needs for acking; opaque to users.
    """

    __slots__ = ("ack_val", "message_id", "values")

    def __init__(self, values: tuple[Any, ...], meta: StreamMeta, message_id: Any = None) -> None:
        self.values = values
        self.meta = meta
        self.message_id = message_id
        self.ack_val = 0

    def get_value(self, i: int) -> Any:
        """Return the value at position ``i``."""
        return self.values[i]

    def get_value_by_field(self, field: str) -> Any:
        """Return the value of ``field``.

        :raises IllegalArgumentException: ``f does not exist``.
        """
        try:
            return self.values[self.meta.fields.index[field]]
        except KeyError:
            return self.values[self.meta.fields.field_index(field)]

    get_string, get_string_by_field = _typed_getters("String", (str,))
    get_integer, get_integer_by_field = _typed_getters("Integer", (numbers.Integral,))
    get_long, get_long_by_field = _typed_getters("Long", (numbers.Integral,))
    get_short, get_short_by_field = _typed_getters("Short", (numbers.Integral,))
    get_byte, get_byte_by_field = _typed_getters("Byte", (numbers.Integral,))
    get_boolean, get_boolean_by_field = _typed_getters("Boolean", (bool,), refuse_bool=False)
    get_double, get_double_by_field = _typed_getters("Double", (numbers.Real,))
    get_float, get_float_by_field = _typed_getters("Float", (numbers.Real,))
    get_binary, get_binary_by_field = _typed_getters("byte[]", (bytes, bytearray, memoryview))

    def get_values(self) -> list[Any]:
        """Return the values as a new list."""
        return list(self.values)

    def select(self, selector: Fields) -> list[Any]:
        """Return the values of ``selector``'s fields in its order."""
        return self.meta.fields.select(selector, self.values)

    def contains(self, field: str) -> bool:
        """Tell whether the tuple has ``field``."""
        return field in self.meta.fields.index

    def field_index(self, field: str) -> int:
        """Return the position of ``field``; ``f does not exist`` otherwise."""
        return self.meta.fields.field_index(field)

    def size(self) -> int:
        """Return the number of values."""
        return len(self.values)

    def get_source_global_stream_id(self) -> GlobalStreamId:
        """Return the pair (component id, stream id)."""
        return GlobalStreamId(self.meta.component, self.meta.stream)

    def get_message_id(self) -> Any:
        """Return the runtime's acking data of the tuple; None when untracked."""
        return self.message_id

    def __getitem__(self, key: int | str | slice) -> Any:
        if isinstance(key, str):
            return self.get_value_by_field(key)
        return self.values[key]

    def __len__(self) -> int:
        return len(self.values)

    def __bool__(self) -> bool:
        return True

    def __iter__(self) -> Iterator[Any]:
        return iter(self.values)

    def __repr__(self) -> str:
        m = self.meta
        return f"source: {m.component}:{m.task}, stream: {m.stream}, id: {self.message_id}, {list(self.values)!r}"


_TICK_FIELDS = Fields("rate_secs")


def tick_tuple(rate_secs: int) -> Tuple:
    """Build the tick tuple: component ``__system``, stream ``__tick``, task -1, one field ``rate_secs``."""
    return Tuple((rate_secs,), StreamMeta(SYSTEM_COMPONENT_ID, SYSTEM_TASK_ID, SYSTEM_TICK_STREAM_ID, _TICK_FIELDS))


def is_tick(tup: Tuple) -> bool:
    """Tell whether ``tup`` is a tick, by component and stream, never by value."""
    meta = tup.meta
    return meta.component == SYSTEM_COMPONENT_ID and meta.stream == SYSTEM_TICK_STREAM_ID


def column_to_list(column: Any) -> list[Any]:
    """Return a column's values as Python objects.

    :param column: numpy array, pyarrow array or list.
    """
    if isinstance(column, list):
        return column
    if hasattr(column, "to_pylist"):
        return column.to_pylist()
    if hasattr(column, "tolist"):
        return column.tolist()
    return list(column)


class TupleBatch(_Received):
    """Tuples of one stream from one source task as columns, the input of a ``BatchBolt``.

    :param columns: one column per field, each of length ``n``: numpy array, pyarrow (Dictionary)StringArray or list.
        Columns may be read-only views of the received frame: copy them before changing them.
    :param meta: the tuples' source.
    :param n: number of rows; needed because a stream may have no fields.
    :param roots: acking data per row or None; opaque to users.
    :param ids: edge ids per row or None; opaque to users.
    """

    __slots__ = ("columns", "ids", "n", "roots")

    def __init__(self, columns: Sequence[Any], meta: StreamMeta, n: int, roots: Any = None, ids: Any = None) -> None:
        self.columns = columns
        self.meta = meta
        self.n = n
        self.roots = roots
        self.ids = ids

    def column(self, key: str | int) -> Any:
        """Return the column of a field name or position, as received.

        :raises IllegalArgumentException: ``f does not exist``.
        """
        if isinstance(key, str):
            return self.columns[self.meta.fields.field_index(key)]
        return self.columns[key]

    __getitem__ = column

    def rows(self) -> Iterator[tuple[Any, ...]]:
        """Yield each row's values as a tuple of Python objects (slow: one object per value)."""
        if not self.columns:
            return iter([()] * self.n)
        return zip(*(column_to_list(c) for c in self.columns), strict=True)

    def tuples(self) -> Iterator[Tuple]:
        """Yield each row as a :class:`Tuple` without acking data."""
        meta = self.meta
        for values in self.rows():
            yield Tuple(values, meta)

    def __len__(self) -> int:
        return self.n

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return self.rows()

    def __repr__(self) -> str:
        return f"TupleBatch({self.n} rows of {self.meta!r})"
