"""Joins of streams within windows: :class:`JoinBolt`, as in Storm (``org.apache.storm.bolt.JoinBolt``).

.. code-block:: python

    # select ads.id, clicks.user, price from ads inner join clicks on clicks.id = ads.id left join bids on bids.ad = clicks.id
    joiner = (
        JoinBolt("ads", "id")
        .join("clicks", "id", "ads")
        .left_join("bids", "ad", "clicks")
        .select("ads:id, clicks:user, price")
        .with_tumbling_window(Duration.of_seconds(10))
    )
    builder.set_bolt("joiner", joiner, 2).fields_grouping("ads", "id").fields_grouping("clicks", "id").fields_grouping("bids", "ad")
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np

from dskype.topology.context import TopologyContext
from dskype.topology.errors import IllegalArgumentException, InvalidTopologyException, explain
from dskype.topology.fields import DEFAULT_STREAM_ID
from dskype.topology.model import OutputFieldsDeclarer, StormTopology
from dskype.topology.tuples import Tuple
from dskype.topology.windows import TupleWindow, WindowedBolt, WindowedOutputCollector

__all__ = ["JoinBolt", "Selector"]


class Selector(enum.Enum):
    """What the names in a join stand for."""

    STREAM = "stream"
    """Ids of streams."""
    SOURCE = "source"
    """Ids of the components that the tuples come from."""


@dataclass(frozen=True)
class _Field:
    """A field of a tuple, or a value in nested maps: ``source:field.key.key``, or without a source.

    :param source: the source, in lower case, because Storm compares it so; None: any.
    :param path: the field, followed by keys.
    :param name: the name that the field has in the output.
    """

    source: str | None
    path: tuple[str, ...]
    name: str

    @classmethod
    def parse(cls, text: str) -> _Field:
        source, colon, rest = text.partition(":")
        if not colon:
            source, rest = "", text
        path = tuple(rest.strip().split("."))
        if not all(path):
            raise IllegalArgumentException("A field of a join has an empty name.", given=text, legal="field, source:field, source:field.key")
        return cls(source.strip().lower() or None, path, text.strip().removeprefix(":").strip())

    @classmethod
    def of(cls, source: str, text: str) -> _Field:
        if ":" in text:
            words = f"Not expecting stream qualifier ':' in '{text}'. Stream name '{source}' is implicit in this context"
            raise IllegalArgumentException(words, given=text)
        return cls(source.lower(), cls.parse(text).path, text.strip())

    def lookup(self, source: str, tup: Tuple) -> Any:
        """Return the value in a tuple from ``source``; None if it has none.

        :raises TypeError: a value on the path is not a map.
        """
        if (self.source is not None and self.source != source.lower()) or not tup.contains(self.path[0]):
            return None
        value = tup[self.path[0]]
        for key in self.path[1:]:
            if value is None:
                return None
            if not isinstance(value, Mapping):
                raise TypeError(explain(f"The value before {key!r} in {self.name!r} is not a map.", given=value, component=tup.meta.component))
            value = value.get(key)
        return value


class _Row(NamedTuple):
    """A partial result: one tuple for each source that was joined, without those that a left join did not find."""

    tuples: tuple[tuple[str, Tuple], ...]

    def lookup(self, field: _Field) -> Any:
        """Return the first value that is not None; None if there is none."""
        return next((value for source, tup in self.tuples if (value := field.lookup(source, tup)) is not None), None)


class _Join(NamedTuple):
    """How one source joins those before it.

    :ivar field: its field.
    :ivar prior: the field of an earlier source that has to be equal.
    :ivar left: whether results stay that find no tuple of this source.
    """

    field: _Field
    prior: _Field | None = None
    left: bool = False


def _key(value: Any) -> Any:
    """Return what is equal for values that Java holds for equal: true is not 1, 1 is not 1.0, 0.0 is not -0.0, and every NaN is equal to every other one."""
    if isinstance(value, (np.generic, np.ndarray)):
        value = value.tolist()
    if isinstance(value, float):
        return float, "NaN" if value != value else (value, math.copysign(1.0, value))
    if isinstance(value, Mapping):
        return dict, frozenset((_key(key), _key(part)) for key, part in value.items())
    if isinstance(value, (list, tuple)):
        return list, tuple(map(_key, value))
    if isinstance(value, (set, frozenset)):
        return set, frozenset(map(_key, value))
    return type(value), value


class JoinBolt(WindowedBolt):
    """Joins two or more streams with the tuples of one window, and emits the rows of the result.

    The tuples are hashed by their join fields, so a window costs time in proportion to its tuples and results. Results are anchored to the tuples
    that they consist of. A tuple without its join field (None) joins nothing, and as in Storm it has no row of its own in a left join either. Keys
    are equal where Java's ``equals`` says so: 1 does not join 1.0, every NaN joins every other one, and 0.0 does not join -0.0.

    Each source has to reach the same task for equal join fields: use fields groupings, or one task.

    :param source: the first source: the id of a component, or of a stream with ``selector`` STREAM.
    :param field: its join field; ``a.b`` is the key ``b`` of the map in field ``a``.
    :param selector: what names of sources stand for; default: components.
    """

    def __init__(self, source: str, field: str, selector: Selector = Selector.SOURCE) -> None:
        if not isinstance(selector, Selector):
            raise IllegalArgumentException("Not a selector.", given=selector, legal="Selector.SOURCE, Selector.STREAM")
        self._selector = selector
        self._joins: dict[str, _Join] = {source: _Join(_Field.of(source, field))}
        self._selected: list[_Field] = []
        self._stream = DEFAULT_STREAM_ID

    # -- the query ---------------------------------------------------------------------------------

    def join(self, new: str, field: str, prior: str) -> Self:
        """Join ``new`` where its ``field`` equals the join field of ``prior``.

        :param prior: a source that is part of the join already.
        :raises IllegalArgumentException: ``new`` is part of it too, or ``prior`` is not.
        """
        return self._add(new, field, prior, left=False)

    def left_join(self, new: str, field: str, prior: str) -> Self:
        """Join ``new`` like :meth:`join`; a result that finds none of its tuples stays, with None for its fields."""
        return self._add(new, field, prior, left=True)

    def _add(self, new: str, field: str, prior: str, *, left: bool) -> Self:
        if new in self._joins:
            raise IllegalArgumentException(f"'{new}' is already part of join. Cannot join with it more than once.", given=new)
        if prior not in self._joins:
            raise IllegalArgumentException(f"Stream '{prior}' was not previously declared", given=prior, legal=", ".join(self._joins))
        self._joins[new] = _Join(_Field.of(new, field), _Field.of(prior, self._joins[prior].field.name), left)
        return self

    def select(self, fields: str) -> Self:
        """Set the fields of the result, separated by commas: ``field``, ``source:field`` or ``source:field.key``.

        A field without a source is taken from the first source that has it, in the order of the joins. The text itself is the name of the output field.

        :raises IllegalArgumentException: an empty name.
        """
        self._selected = [_Field.parse(text) for text in fields.split(",")]
        return self

    def with_output_stream(self, stream_id: str) -> Self:
        """Emit the result on ``stream_id`` instead of ``default``."""
        self._stream = stream_id
        return self

    # -- the bolt ----------------------------------------------------------------------------------

    def declare_output_fields(self, declarer: OutputFieldsDeclarer) -> None:
        """Declare the selected fields.

        :raises IllegalArgumentException: nothing was selected.
        """
        if not self._selected:
            raise IllegalArgumentException("Must specify output fields via .select() method.", given=list(self._joins))
        declarer.declare_stream(self._stream, [field.name for field in self._selected])

    def check_topology(self, component_id: str, conf: Mapping[str, Any], topology: StormTopology) -> None:
        """Refuse inputs that are not part of the join, and sources that are no input."""
        inputs = {stream if self._selector is Selector.STREAM else component for component, stream in topology.components[component_id].inputs}
        if inputs != set(self._joins):
            raise InvalidTopologyException(
                f"Component {component_id} joins other {self._selector.value}s than it subscribes to.", given=sorted(inputs), legal=", ".join(self._joins)
            )

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext, collector: WindowedOutputCollector) -> None:
        """Keep the collector."""
        self._collector = collector

    def execute(self, window: TupleWindow) -> None:
        """Join the tuples of a window, and emit the results."""
        for row in self._rows(window):
            values = [row.lookup(field) for field in self._selected]
            self._collector.emit(values, self._stream, [tup for _, tup in row.tuples])

    def _rows(self, tuples: Iterable[Tuple]) -> Sequence[_Row]:
        """Return the results, in the order of the first source's tuples."""
        first, *others = self._joins
        by_source: dict[str, list[Tuple]] = {source: [] for source in self._joins}
        for tup in tuples:
            by_source[tup.meta.stream if self._selector is Selector.STREAM else tup.meta.component].append(tup)
        rows = [_Row(((first, tup),)) for tup in by_source[first]]
        for source in others:
            rows = list(self._joined(rows, source, by_source[source]))
        return rows

    def _joined(self, rows: Iterable[_Row], source: str, tuples: Iterable[Tuple]) -> Iterator[_Row]:
        field, prior, left = self._joins[source]
        assert prior is not None
        found: dict[Any, list[Tuple]] = {}
        for tup in tuples:
            found.setdefault(_key(field.lookup(source, tup)), []).append(tup)
        for row in rows:
            value = row.lookup(prior)
            if value is None:
                continue
            matching = found.get(_key(value), ())
            for tup in matching:
                yield _Row((*row.tuples, (source, tup)))
            if left and not matching:
                yield row
