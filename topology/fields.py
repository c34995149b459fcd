"""Field names of a stream."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from dskype.topology.errors import IllegalArgumentException

__all__ = ["DEFAULT_STREAM_ID", "Fields", "GlobalStreamId", "StreamInfo", "as_fields"]

DEFAULT_STREAM_ID = "default"
"""The stream of an emit or a subscription that names none."""


class Fields:
    """The ordered, distinct field names of a stream or of a grouping; immutable.

    ``Fields("word", "count")`` and ``Fields(["word", "count"])`` are the same.

    >>> Fields("word", "count").field_index("count")
    1

    :raises IllegalArgumentException: a name occurs twice (``duplicate field 'f'``) or is not a string.
    """

    __slots__ = ("index", "names")

    names: tuple[str, ...]
    """The names in order."""
    index: dict[str, int]
    """Name -> position. Shared with tuples for fast access by name; never changed."""

    def __init__(self, *names: str | Iterable[str]) -> None:
        if len(names) == 1 and not isinstance(names[0], str):
            given: tuple[Any, ...] = tuple(names[0])
        else:
            given = names
        index: dict[str, int] = {}
        for name in given:
            if not isinstance(name, str):
                raise IllegalArgumentException("A field name must be a string.", given=name, hint="Fields('a', 'b') or Fields(['a', 'b'])")
            if name in index:
                raise IllegalArgumentException(f"duplicate field '{name}'", given=list(given))
            index[name] = len(index)
        self.names = given
        self.index = index

    def size(self) -> int:
        """Return the number of fields."""
        return len(self.names)

    def get(self, i: int) -> str:
        """Return the name at position ``i``."""
        return self.names[i]

    def field_index(self, name: str) -> int:
        """Return the position of ``name``.

        :raises IllegalArgumentException: ``f does not exist``.
        """
        try:
            return self.index[name]
        except (KeyError, TypeError):
            raise IllegalArgumentException(f"{name} does not exist", given=name, legal=", ".join(self.names)) from None

    def contains(self, name: str) -> bool:
        """Tell whether ``name`` is one of the fields."""
        return name in self.index

    def select(self, selector: Fields, values: Sequence[Any]) -> list[Any]:
        """Return the values of ``selector``'s fields, in the selector's order.

        :param selector: the fields wanted.
        :param values: one value per field of this object.
        :raises IllegalArgumentException: the selector names a field that does not exist.
        """
        return [values[self.field_index(name)] for name in selector.names]

    def to_list(self) -> list[str]:
        """Return the names as a new list."""
        return list(self.names)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, i: int) -> str:
        return self.names[i]

    def __contains__(self, name: object) -> bool:
        return name in self.index

    def __eq__(self, other: object) -> bool:
        return self.names == other.names if isinstance(other, Fields) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.names)

    def __repr__(self) -> str:
        return f"Fields({', '.join(map(repr, self.names))})"

    def __reduce__(self) -> tuple[Any, ...]:
        return Fields, (list(self.names),)


def as_fields(value: Fields | str | Iterable[str]) -> Fields:
    """Return ``value`` as :class:`Fields`; a string is one field, an iterable is several."""
    if isinstance(value, Fields):
        return value
    if isinstance(value, str):
        return Fields(value)
    try:
        names = list(value)
    except TypeError:
        raise IllegalArgumentException("Fields expected.", given=value, legal="Fields, a field name, or a list of field names") from None
    return Fields(names)


class GlobalStreamId(NamedTuple):
    """A stream of a component; equal to the plain pair ``(component_id, stream_id)``."""

    component_id: str
    stream_id: str = DEFAULT_STREAM_ID

    def get_component_id(self) -> str:
        """Return the id of the emitting component."""
        return self.component_id

    def get_stream_id(self) -> str:
        """Return the stream id."""
        return self.stream_id


class StreamInfo(NamedTuple):
    """A component's declaration of one of its streams.

    :ivar later: how many of the last fields are newer than the others (``declare_stream``).
    """

    fields: Fields
    direct: bool = False
    later: int = 0
