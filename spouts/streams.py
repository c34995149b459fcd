"""The streams of DSkype (Table 1 of the journal paper), with their fields.

========  ==================  ==============================  =====================================================
stream    name here           from -> to                      grouping
========  ==================  ==============================  =====================================================
1         ``messages``        message-spout -> distribution   shuffle
1         ``updates``         message-spout -> distribution   fields(object): messages that are states of objects
2         ``subscriptions``   subscription-spout -> distr.    fields(subscription): an unregister never overtakes
3         ``matching``        distribution -> subscription    direct: the messages that a task needs
3         ``pairs``           distribution -> subscription    direct: updates of objects, with the states before them
3         ``placements``      distribution -> subscription    direct: subscriptions placed on or removed from a task
          ``shortages``       subscription -> distribution    fields(subscription): reports on placements
          ``plans``           subscription-spout -> distr.    all: another plan of the distributor
          ``searches``        subscription-spout -> distr.    shuffle: questions about the window
          ``lookups``         distribution -> message         all: look these up at a watermark
          ``switched``        subscription -> distribution    all: no task uses routes of older plans any more
          ``transfers``       subscription -> subscription    direct: boolean subscriptions that move, and costs of cells
          ``balance``         subscription -> distribution    direct: the workload of a task, to the task that balances
          ``interest``        distribution -> distribution    direct: routing terms that begin or end to be needed
          ``registrations``   distribution -> result          fields(subscription): what begins, what ends and where
4         ``window``          distribution -> message         direct: each message lives on one task
          ``ends``            distribution -> message         direct: from when on states of objects do not count
5         ``requests``        subscription -> message         all: evaluate these subscriptions at a watermark
5         ``progress``        subscription -> message         all: no request below this watermark will follow
6         ``partials``        message -> aggregation          fields(subscription)
7         ``answers``         aggregation -> subscription     direct, to the task that asked
8         ``results``         subscription -> result          fields(subscription): deltas and matches, as columns
8         ``lists``           subscription -> result          fields(subscription): whole lists and events
========  ==================  ==============================  =====================================================

Each stream is a class whose attributes are its columns, in the order in which they travel. A writer makes an instance with the columns' names
and emits it; a reader gets one with :meth:`Stream.of`, or one for each tuple with :meth:`Stream.rows`. Columns are passed on as they are.

The classes are dataclasses, not named tuples: their constructors take names only, nobody can unpack them by position, and a column may be
called ``count``. They are not frozen, because a frozen one takes three times as long to make, and subscriptions travel one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from dataclasses import fields as dataclass_fields
from operator import attrgetter
from typing import Annotated, Any, ClassVar, NamedTuple, Self, TypeVar, dataclass_transform, get_type_hints

import numpy as np

from dskype.topology.fields import Fields
from dskype.topology.tuples import TupleBatch, column_to_list

__all__ = [
    "STREAMS",
    "Answers",
    "Balance",
    "Column",
    "Ends",
    "Interest",
    "Lists",
    "Lookups",
    "Matching",
    "Messages",
    "Pairs",
    "Partials",
    "Placements",
    "Plans",
    "Progress",
    "Registrations",
    "Requests",
    "Results",
    "Searches",
    "Shortages",
    "Stream",
    "Subscriptions",
    "Switched",
    "Transfers",
    "Updates",
    "Window",
]


class Column(NamedTuple):
    """What a column holds.

    :ivar dtype: of its numbers; ``str`` for text; ``object`` for plain values (maps, lists, None).
    :ivar lists: whether each row is a list of these: an Arrow list of numbers, or a Python list of texts.
    :ivar unit: of its numbers; "" if they have none.
    """

    dtype: type
    lists: bool = False
    unit: str = ""


# In a batch an attribute is a column: a numpy array, an Arrow array or a list. In a row it is one value.
Int8 = Annotated[Any, Column(np.int8)]
Int32 = Annotated[Any, Column(np.int32)]
Int64 = Annotated[Any, Column(np.int64)]
Int16Lists = Annotated[Any, Column(np.int16, lists=True)]
Float64 = Annotated[Any, Column(np.float64)]
Milliseconds = Annotated[Any, Column(np.int64, unit="ms")]
Metres = Annotated[Any, Column(np.float64, unit="m")]
Degrees = Annotated[Any, Column(np.float64, unit="deg")]
Text = Annotated[Any, Column(str)]
Plain = Annotated[Any, Column(object)]
Int64Lists = Annotated[Any, Column(np.int64, lists=True)]
Float64Lists = Annotated[Any, Column(np.float64, lists=True)]
TextLists = Annotated[Any, Column(str, lists=True)]


class Stream:
    """The tuples of one stream: many as columns, or one as values.

    :cvar name: the stream's id.
    :cvar fields: the names of its columns, in order.
    :cvar columns: name -> what the column holds.
    :cvar optional: the columns that may be None until a batch travels: those with a default.
    :cvar later: how many of the last columns earlier versions did not send. In a frame of theirs they are None in each row.
    """

    __slots__ = ()

    name: ClassVar[str]
    fields: ClassVar[Fields]
    columns: ClassVar[dict[str, Column]]
    optional: ClassVar[frozenset[str]]
    later: ClassVar[int]
    _values: ClassVar[Callable[[Any], tuple[Any, ...]]]

    @classmethod
    def make(cls, values: Sequence[Any]) -> Self:
        """Return the tuples with these columns, or the tuple with these values, in the order of the fields.

        :raises ValueError: there are more or fewer than the stream has.
        """
        return cls(**dict(zip(cls.fields.names, values, strict=True)))

    @classmethod
    def of(cls, batch: TupleBatch) -> Self:
        """Return a batch of the stream, as columns. They may be read-only views of the frame."""
        return cls.make(batch.columns)

    @classmethod
    def rows(cls, batch: TupleBatch) -> Iterator[Self]:
        """Yield each tuple of a batch (slow: an object for each; :meth:`each` makes none)."""
        return map(cls.make, batch.rows())

    def each(self, *names: str) -> Iterator[tuple[Any, ...]]:
        """Yield the values of some columns of each tuple, in the order of ``names``, as Python objects."""
        return zip(*(column_to_list(getattr(self, name)) for name in names), strict=True)

    def values(self) -> tuple[Any, ...]:
        """Return the columns or values in the order of the fields."""
        return type(self)._values(self)

    @classmethod
    def declare(cls, declarer: Any, direct: bool = False) -> None:
        """Declare the stream as an output of a component."""
        declarer.declare_stream(cls.name, cls.fields, direct, cls.later)

    def take(self, rows: np.ndarray) -> Self:
        """Return the tuples with these numbers (int64[]), in this order. Columns that are None stay so."""
        from dskype.topology.core.values import take_column  # here, because clients use the names of streams, and have no pyarrow

        return self.make([None if column is None else take_column(column, rows) for column in self.values()])

    def slice(self, start: int, stop: int) -> Self:
        """Return the tuples from ``start`` up to ``stop``, without a copy where the type of a column allows it."""
        from dskype.topology.core.values import slice_column  # as above

        return self.make([slice_column(column, start, stop) for column in self.values()])

    def emit(self, collector: Any) -> None:
        """Emit one tuple."""
        collector.emit(self.values(), self.name)

    def emit_direct(self, collector: Any, task: int) -> None:
        """Emit one tuple to a task."""
        collector.emit_direct(task, self.values(), self.name)

    def emit_batch(self, collector: Any) -> None:
        """Emit all tuples."""
        collector.emit_batch(list(self.values()), self.name)

    def emit_direct_batch(self, collector: Any, task: int) -> None:
        """Emit all tuples to a task."""
        collector.emit_direct_batch(task, list(self.values()), self.name)


STREAMS: dict[str, type[Stream]] = {}
"""Streams by their names."""

_S = TypeVar("_S", bound=Stream)


@dataclass_transform(kw_only_default=True)
def _stream(name: str, later: int = 0) -> Callable[[type[_S]], type[_S]]:
    """Make a class the stream ``name``; its annotations are the columns."""

    def declare(cls: type[_S]) -> type[_S]:
        made = dataclass(slots=True, kw_only=True)(cls)
        hints = get_type_hints(made, include_extras=True)
        made.name = name
        made.columns = {field.name: hints[field.name].__metadata__[0] for field in dataclass_fields(made)}  # type: ignore[arg-type]
        made.fields = Fields(made.columns)
        made.optional = frozenset(field.name for field in dataclass_fields(made) if field.default is None)  # type: ignore[arg-type]
        made.later = later
        get = attrgetter(*made.columns)
        made._values = staticmethod(get if len(made.columns) > 1 else lambda one: (get(one),))
        STREAMS[name] = made
        return made

    return declare


@_stream("messages", later=2)
class Messages(Stream):
    """Messages as they have arrived.

    :ivar seq: sequence numbers, unique.
    :ivar position: positions in the window: the sequence number, or the time in ms.
    :ivar id: ids as JSON text (``17`` or ``"a17"``); where results carry fields, with these behind them, as everywhere (:mod:`dskype.spouts.result_fields`).
    :ivar lat: degrees, float64[n]; pairs of degrees, float64[n, 2], where some messages of a frame are areas
        (:func:`dskype.spouts.areas.areas_to_columns`). ``lon`` likewise.
    :ivar attributes: pairs (key, value), rising (:mod:`dskype.spouts.attributes`).
    :ivar region: encoded regions (:mod:`dskype.spouts.regions`) of messages that are neither points nor rectangles; empty for the others.
    """

    seq: Int64
    position: Int64
    id: Text
    lat: Degrees
    lon: Degrees
    text: Text
    arrival_ms: Milliseconds
    attributes: Int64Lists
    region: Float64Lists


@_stream("updates")
class Updates(Messages):
    """Messages that are states of objects; the first columns are those of :class:`Messages`. A deletion has no text, and lies at (0, 0).

    :ivar id: ids as JSON text, and behind each the member ``,"object":...`` of results.
    :ivar object: ids of the objects.
    :ivar time_ms: by which the states of an object follow each other: the message's own time, or that of its arrival.
    :ivar deleted: 1 where the object ends.
    """

    object: Text
    time_ms: Milliseconds
    deleted: Int8


@_stream("subscriptions")
class Subscriptions(Stream):
    """Subscriptions as they have arrived.

    :ivar registration: ``"<partition>-<offset>"`` of the record.
    :ivar record: None to unregister.
    """

    subscription: Text
    registration: Text
    record: Plain


@_stream("searches")
class Searches(Stream):
    """Searches as they have arrived.

    :ivar search: ids.
    :ivar record: of a subscription that asks the same, with ``k``, the most messages wanted.
    """

    search: Text
    record: Plain


@_stream("lookups")
class Lookups(Stream):
    """Searches with term ids in place of words, for the message tasks, which write their parts of the answers.

    :ivar watermark: as of which they look; that of the task that sends it, and -1 before the first message.
    :ivar record: a top-k subscription as a map, or that of a :class:`dskype.bolts.searches.Filter`.
    """

    search: Text
    watermark: Int64
    record: Plain


@_stream("matching", later=4)
class Matching(Stream):
    """Messages that a subscription task needs; the first columns are those of :class:`Window`, except that messages may be areas here.

    :ivar id: ids as JSON text.
    :ivar lat: as in :class:`Messages`; ``lon`` likewise.
    :ivar terms: ids of terms, rising within a message; ``weights``: theirs.
    :ivar order: the words in reading order, ``attributes`` and ``region`` as in :class:`Messages`, and ``prefixes``: see :class:`dskype.spouts.batch.Details`.
    """

    seq: Int64
    position: Int64
    id: Text
    lat: Degrees
    lon: Degrees
    terms: Int64Lists
    weights: Float64Lists
    arrival_ms: Milliseconds
    order: Int16Lists
    attributes: Int64Lists
    prefixes: Int64Lists
    region: Float64Lists


@_stream("pairs", later=1)
class Pairs(Matching):
    """Updates of objects: one row for the state that begins with an update, one for the state before it; the two are neighbours, and either may be missing.
    A task that needs neither gets the second one alone, because it may be in one of its lists.

    The first columns are those of :class:`Matching`. Of both rows ``seq``, ``position``, ``id`` and ``arrival_ms`` are those of the update; the
    other columns are those of the state.

    :ivar before: 1 where it is the state before the update; 2 where that came alone, and only lists are to take it out.
    :ivar since: position at which the state began; ``since_ms``: when the message arrived that it began with.
    :ivar since_seq: sequence number of that message.
    """

    before: Int8
    since: Int64
    since_ms: Milliseconds
    since_seq: Int64


@_stream("placements")
class Placements(Stream):
    """Subscriptions that are placed on a task or removed from it.

    With a distributor that replicates, a placement says more (``epoch``, ``tasks``, ``guard``, ``plan``, ...), and the stream carries other
    messages, which end a subscription or announce a plan: see :mod:`dskype.bolts.protocol`.

    :ivar placement: the subscription; None to unregister.
    """

    subscription: Text
    registration: Text
    placement: Plain


@_stream("window", later=3)
class Window(Stream):
    """Messages that a message task keeps. An area lies at its centre.

    :ivar id: ids as JSON text.
    :ivar terms: ids of terms, rising within a message; ``weights``: theirs.
    :ivar order: as in :class:`Matching`; ``attributes`` and ``prefixes`` likewise.
    """

    seq: Int64
    position: Int64
    id: Text
    lat: Degrees
    lon: Degrees
    terms: Int64Lists
    weights: Float64Lists
    order: Int16Lists
    attributes: Int64Lists
    prefixes: Int64Lists


@_stream("ends")
class Ends(Stream):
    """Messages in the window that were states of objects, and end.

    :ivar seq: sequence number of the message; ``since``: its position.
    :ivar position: at which it ends.
    """

    seq: Int64
    since: Int64
    position: Int64


@_stream("requests", later=3)
class Requests(Stream):
    """Queries of subscriptions over the window at a watermark; see :class:`dskype.bolts.window.base.QueryBatch`.

    :ivar request: number of the request, unique for the task that asks.
    :ivar count: the most messages wanted.
    :ivar programs: which messages count (:mod:`dskype.spouts.filters`); an empty list: all do.
    :ivar scale_m: the distance at which the spatial similarity is 0; 0: distances are in degrees.
    :ivar filter: that of a boolean subscription (a :class:`dskype.bolts.searches.Filter` as a map), which asks for its newest messages; the columns of scores
        mean nothing there. None: a top-k subscription.
    """

    request: Int64
    subscription: Text
    watermark: Int64
    count: Int64
    alpha: Float64
    lat: Degrees
    lon: Degrees
    terms: Int64Lists
    weights: Float64Lists
    programs: Int64Lists
    scale_m: Metres
    filter: Plain


@_stream("progress")
class Progress(Stream):
    """No request of the task below this watermark will follow."""

    watermark: Int64


@_stream("partials")
class Partials(Stream):
    """The answer of one message task to each request, with lists in rank order.

    :ivar task: id of the subscription task that asked.
    :ivar count: how many messages it wants.
    :ivar ids: of the messages, as JSON text.
    """

    request: Int64
    subscription: Text
    task: Int64
    count: Int64
    seqs: Int64Lists
    positions: Int64Lists
    scores: Float64Lists
    ids: TextLists


@_stream("answers")
class Answers(Stream):
    """The answer to each request, with lists in rank order.

    :ivar ids: of the messages, as JSON text.
    """

    request: Int64
    subscription: Text
    seqs: Int64Lists
    positions: Int64Lists
    scores: Float64Lists
    ids: TextLists


@_stream("shortages")
class Shortages(Stream):
    """Reports on placements (:class:`dskype.bolts.protocol.ReplicaReport`); only with a distributor that replicates."""

    subscription: Text
    registration: Text
    epoch: Int64
    kind: Text
    theta: Plain
    placement: Plain


@_stream("plans")
class Plans(Stream):
    """Plans of the distributor; ignored if it does not replicate."""

    version: Int64
    plan: Plain


@_stream("switched", later=1)
class Switched(Stream):
    """The task uses no routes of plans before this version any more; only with a distributor that replicates.

    :ivar at: the last position for which it did.
    """

    version: Int64
    at: Int64


@_stream("transfers")
class Transfers(Stream):
    """Boolean subscriptions that move, and costs of cells (:mod:`dskype.bolts.ownership.transfers`)."""

    subscription: Text
    registration: Text
    record: Plain


@_stream("interest")
class Interest(Stream):
    """Routing terms that begin or end to be needed (:mod:`dskype.bolts.protocol`); only where the distributor keeps summaries."""

    kind: Text
    record: Plain


@_stream("balance")
class Balance(Stream):
    """Reports on workloads (:mod:`dskype.bolts.protocol`); only with ``dskype.balance``."""

    kind: Text
    record: Plain


@_stream("registrations")
class Registrations(Stream):
    """What begins, what ends and where (:mod:`dskype.bolts.protocol`); only with a distributor that replicates.

    :ivar event: ``begin`` or ``end``.
    """

    subscription: Text
    registration: Text
    event: Text
    record: Plain


@_stream("results")
class Results(Stream):
    """Deltas and matches, in the order of publication. :mod:`dskype.bolts.results.deltas` encodes them: a column that is None arrives as 0 or "" in each row.

    :ivar registration: ``"<partition>-<offset>"`` of the subscription's record.
    :ivar kind: ``events.ADD``, ``REMOVE``, ``SCORE`` or one of ``MATCHES``; on the stream plus ``protocol.merging.PART`` for a change of one replica's list.
    :ivar message: ids as JSON text; of an update of an object, ``,"object":`` and the object's id follow.
    :ivar score: read where the kind is ``ADD``, ``SCORE`` or ``SCORED_MATCH``.
    :ivar rank: from 1, read where the kind is ``ADD`` or ``SCORE``.
    :ivar meta: JSON text of the subscription's ``meta``, or None; where it arrives "" if it has none.
    :ivar seq: sequence numbers of the messages, and ``position``, their positions; for merging only.
    """

    subscription: Text
    registration: Text
    kind: Int8
    watermark: Int64
    message: Text
    score: Float64 = None
    rank: Int32 = None
    meta: Text = None
    seq: Int64 = None
    position: Int64 = None


@_stream("lists")
class Lists(Stream):
    """Whole lists and events (:class:`dskype.bolts.results.publisher.ResultPublisher`).

    :ivar kind: ``topk``, ``event``, ``limited``, or that of a message of a replica.
    """

    subscription: Text
    kind: Text
    record: Plain
