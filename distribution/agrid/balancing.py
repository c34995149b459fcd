"""Load balancing decided from summaries (Tornado, section 4.2 and 4.3).

Each evaluator sends a :class:`Summary` of its partition to one routing unit from time to time. :func:`decide` chooses operations from the
summaries and the partition map alone. Evaluators choose coordinates: that of a split and the sizes of corner shifts before the decision, as
part of the summary, and that of other shifts after it, because it depends on the cost of both evaluators.

==============  ==================================================================================================================
operation       effect
==============  ==================================================================================================================
shift           A strip along the side that two partitions share moves from one to the other.
corner shift    The same for two partitions of which the smaller side of one begins or ends with the side of the other. The strip is as
                wide as the smaller partition, so that both stay rectangles.
split/merge     Half of a partition moves to an auxiliary evaluator, whose own partition is merged with its neighbours before.
==============  ==================================================================================================================

A partition is merged with all neighbours along one of its sides, if that side is *closed*: its ends are ends of neighbours. Each neighbour grows
across the whole partition. In the paper there is one such neighbour. But two of little load seldom share a whole side, while after splits alone
every partition has a closed side. One of these neighbours may be the evaluator that is split; with few evaluators there often is no other way.

An operation is worth while if its cost reduction C_r is above its transfer overhead C_t = beta * subscriptions to send. Costs cover the recent past,
but the reduction lasts as long as the load stays where it is: so beta is the cost of sending a subscription by :data:`REDUCTION_LASTS`. The paper carries out
the operation with the greatest C_r. Here one decision may have several operations of different evaluators, chosen in that order, for the most
loaded evaluators first: one at a time cannot follow a hotspot with a hundred evaluators.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from dskype.distribution.agrid.aggregates import Split, Strip, StripLoad, Workload
from dskype.distribution.agrid.grid import CellBox

__all__ = [
    "BOX_BYTES",
    "OPERATION_BYTES",
    "REDUCTION_LASTS",
    "Balance",
    "CornerOffer",
    "Merger",
    "Move",
    "Operation",
    "Part",
    "Shift",
    "SplitMerge",
    "Summary",
    "boxes_after",
    "closed_sides",
    "corner_neighbours",
    "decide",
    "evaluators_of",
    "moves_of",
    "sized",
    "summarize",
]

REDUCTION_LASTS = 4.0
"""How many times as long as the time that costs cover a cost reduction is taken to last."""

_HEAD, _OFFER, _ORDER = struct.Struct("<HfIB"), struct.Struct("<BHHfI"), struct.Struct("<BHHHBHf")
"""Evaluator, cost, subscriptions, number of offers; side, size, neighbour, cost, subscriptions; an operation."""


class CornerOffer(NamedTuple):
    """A corner shift that an evaluator could make.

    :ivar target: the evaluator that would get the strip.
    """

    moving: StripLoad
    target: int


class Part(NamedTuple):
    """What a neighbour gets when a partition is merged with those along a side.

    :ivar target: the neighbour.
    :ivar size: columns or rows; ``cost``: of these; ``queries``: number of subscriptions that overlap them.
    """

    target: int
    size: int
    cost: float
    queries: int


class Merger(NamedTuple):
    """A way to give a whole partition away.

    :ivar side: along which the neighbours lie.
    :ivar parts: in the order of their places, from the west or from the south.
    """

    side: int
    parts: tuple[Part, ...]


class Summary(NamedTuple):
    """What an evaluator says about its partition.

    :ivar evaluator: its number.
    :ivar cost: of the partition; ``queries``: number of its subscriptions.
    :ivar split: the best one; None: it cannot be split.
    :ivar corners: at most 8.
    :ivar mergers: at most 4; one for each closed side.
    """

    evaluator: int
    cost: float
    queries: int
    split: Split | None
    corners: tuple[CornerOffer, ...]
    mergers: tuple[Merger, ...]

    @property
    def size_bytes(self) -> int:
        """The size of the summary on the wire. The ends of a merger are corner shifts, too, and are sent once."""
        between = sum(max(0, len(merger.parts) - 2) for merger in self.mergers)
        return _HEAD.size + _OFFER.size * ((self.split is not None) + len(self.corners) + between)

    def encode(self) -> list[Any]:
        """Return the summary as nested lists."""
        plain: list[Any] = _plain(self)
        return plain

    @classmethod
    def decode(cls, record: Sequence[Any]) -> Summary:
        """Return the summary in nested lists."""
        evaluator, cost, queries, split, corners, mergers = record
        return cls(
            evaluator,
            cost,
            queries,
            None if split is None else Split(_strip_load(split[0]), split[1]),
            tuple(CornerOffer(_strip_load(moving), target) for moving, target in corners),
            tuple(Merger(side, tuple(Part(*part) for part in parts)) for side, parts in mergers),
        )


def _plain(value: Any) -> Any:
    return [_plain(one) for one in value] if isinstance(value, tuple) else value


def _strip_load(record: Sequence[Any]) -> StripLoad:
    return StripLoad(Strip(*record[0]), record[1], record[2])


class Shift(NamedTuple):
    """Moves a strip of ``source`` to ``target``, its neighbour on that side.

    :ivar side: an index of :data:`~dskype.distribution.agrid.aggregates.SIDES`, of the source.
    :ivar size: the number of columns or rows; None: the source chooses it so that the cost of the strip comes nearest to ``cost``.
    :ivar cost: what has to move for both to have the same cost.
    """

    source: int
    target: int
    side: int
    size: int | None
    cost: float


class SplitMerge(NamedTuple):
    """Moves the partition of ``auxiliary`` to its neighbours, and then a strip of ``source`` to ``auxiliary``.

    :ivar strip: of the partition that the source has after the first step: it may be one of these neighbours.
    """

    source: int
    strip: Strip
    auxiliary: int
    merger: Merger


Operation = Shift | SplitMerge


class Move(NamedTuple):
    """Cells that go from one evaluator to another, as in :meth:`dskype.distribution.agrid.grid.AGrid.move`."""

    cells: CellBox
    giver: int
    taker: int


OPERATION_BYTES = _ORDER.size
"""The size of an operation on the wire."""

BOX_BYTES = struct.calcsize("<HHHHH")
"""The size of an evaluator's number and its partition on the wire."""


@dataclass(frozen=True)
class Balance:
    """Settings of load balancing.

    :ivar beta: the cost of sending one subscription, in units of costs, by :data:`REDUCTION_LASTS`.
    :ivar tolerance: evaluators with at most ``1 + tolerance`` times the mean cost give nothing away.
    :ivar operations: the most operations of one decision; 1: as in the paper.
    """

    beta: float = 0.2 / REDUCTION_LASTS
    tolerance: float = 0.1
    operations: int = 64


# -- evaluators -------------------------------------------------------------------------------------------------------------


def corner_neighbours(boxes: Mapping[int, CellBox], evaluator: int) -> list[tuple[int, Strip]]:
    """Return the evaluators that could get a strip by a corner shift, with the strip; at most 8.

    A neighbour's side has to begin or end where that of the evaluator does, and to be shorter. The strip is opposite to it, and reaches
    across the whole partition.
    """
    a, found = boxes[evaluator], []
    for other, b in boxes.items():
        if other == evaluator:
            continue
        for across in (0, 1):  # b is west or east of a, and rows move; or south or north, and columns move
            along = 1 - across
            touches = b[across + 2] == a[across] or a[across + 2] == b[across]
            low, high = b[along] == a[along], b[along + 2] == a[along + 2]
            inside = a[along] <= b[along] and b[along + 2] <= a[along + 2]
            if touches and inside and low != high:
                found.append((other, Strip(along if low else along + 2, b[along + 2] - b[along])))
    return found


def closed_sides(boxes: Mapping[int, CellBox], evaluator: int) -> dict[int, list[tuple[int, int]]]:
    """Return (neighbour, its columns or rows) of each closed side of a partition, in the order of their places; see the module."""
    a, found = boxes[evaluator], {}
    for side in range(4):
        across, along = side % 2, 1 - side % 2
        border = a[side]
        touching = sorted(
            (b[along], b[along + 2], other)
            for other, b in boxes.items()
            if b[(side + 2) % 4] == border and b[along] < a[along + 2] and a[along] < b[along + 2] and other != evaluator and b[across] != a[across]
        )
        if touching and touching[0][0] == a[along] and touching[-1][1] == a[along + 2]:
            found[side] = [(other, high - low) for low, high, other in touching]
    return found


def summarize(evaluator: int, workload: Workload, boxes: Mapping[int, CellBox]) -> Summary:
    """Return the summary of an evaluator; O(evaluators + columns + rows).

    :param boxes: the partition map.
    """
    corners = tuple(CornerOffer(workload.load_of(strip), other) for other, strip in corner_neighbours(boxes, evaluator))
    mergers = []
    for side, neighbours in closed_sides(boxes, evaluator).items():
        at, parts = 0, []
        for other, size in neighbours:
            parts.append(Part(other, size, *workload.span(1 - side % 2, at, at + size)))
            at += size
        mergers.append(Merger(side, tuple(parts)))
    return Summary(evaluator, workload.cost, workload.queries, workload.best_split(), corners, tuple(mergers))


def sized(shift: Shift, workload: Workload, beta: float) -> Shift | None:
    """Return a shift with the size that its source chooses; None: the source refuses, because no size is worth while.

    :param workload: of the source.
    """
    if shift.size is not None:
        return shift
    found = workload.strip_of_cost(shift.side, shift.cost)
    if found is None:
        return None
    target = workload.cost - 2 * shift.cost
    reduction = workload.cost - max(workload.cost - found.cost, target + found.cost)
    return shift._replace(size=found.strip.size) if reduction > beta * found.queries else None


# -- routing units ----------------------------------------------------------------------------------------------------------


class _Candidate(NamedTuple):
    """An operation that may be chosen, with its cost reduction and transfer overhead."""

    reduction: float
    overhead: float
    operation: Operation


def evaluators_of(operation: Operation) -> set[int]:
    """Return the evaluators whose partitions an operation changes."""
    if isinstance(operation, Shift):
        return {operation.source, operation.target}
    return {operation.source, operation.auxiliary, *(part.target for part in operation.merger.parts)}


def _mergeable(boxes: Mapping[int, CellBox]) -> dict[int, list[tuple[int, int]]]:
    """Return, of each evaluator, (neighbour, side) for each neighbour with which it shares a whole side; O(evaluators)."""
    found: dict[int, list[tuple[int, int]]] = {evaluator: [] for evaluator in boxes}
    by_side: dict[tuple[int, ...], int] = {}
    for evaluator, (x0, y0, x1, y1) in boxes.items():
        by_side[0, x0, y0, y1], by_side[1, y0, x0, x1] = evaluator, evaluator
    for evaluator, (x0, y0, x1, y1) in boxes.items():
        for side, key in ((2, (0, x1, y0, y1)), (3, (1, y1, x0, x1))):
            other = by_side.get(key)
            if other is not None:
                found[evaluator].append((other, side))
                found[other].append((evaluator, side - 2))
    return found


def decide(
    boxes: Mapping[int, CellBox], summaries: Iterable[Summary], settings: Balance, resting: Collection[int] = (), refused: Collection[tuple[int, int]] = ()
) -> list[Operation]:
    """Choose operations of different evaluators, by falling cost of the evaluator that gives.

    :param boxes: the partition map, evaluator -> partition.
    :param summaries: of all evaluators.
    :param resting: evaluators that take no part, because an operation is under way there.
    :param refused: (source, target) of shifts that the source has refused lately, see :func:`sized`.
    """
    by_number = {summary.evaluator: summary for summary in summaries}
    mean = sum(s.cost for s in by_number.values()) / max(1, len(by_number))
    neighbours, mergers = _mergeable(boxes), _Mergers(by_number, boxes)
    busy, chosen = set(resting), list[Operation]()
    for summary in sorted(by_number.values(), key=lambda s: (-s.cost, s.evaluator)):
        if len(chosen) >= settings.operations or summary.cost <= (1 + settings.tolerance) * mean:
            break
        if summary.evaluator in busy:
            continue
        possible = [pair for pair in neighbours[summary.evaluator] if (summary.evaluator, pair[0]) not in refused]
        candidates = [*_shifts(summary, by_number, possible, busy, settings.beta), *mergers.splits(summary, busy, settings.beta)]
        worth = [candidate for candidate in candidates if candidate.reduction > candidate.overhead]
        if worth:
            best = max(worth, key=lambda c: (c.reduction, -c.overhead))
            chosen.append(best.operation)
            busy |= evaluators_of(best.operation)
    return chosen


def _shifts(a: Summary, summaries: Mapping[int, Summary], neighbours: Sequence[tuple[int, int]], busy: set[int], beta: float) -> Iterable[_Candidate]:
    """Return the shifts from an evaluator. Those along a whole side are estimated: half of the difference moves, and subscriptions in proportion."""
    for other, side in neighbours:
        b = summaries[other]
        if other not in busy and b.cost < a.cost:
            moving = (a.cost - b.cost) / 2
            yield _Candidate(moving, beta * a.queries * moving / a.cost, Shift(a.evaluator, other, side, None, moving))
    for (strip, cost, queries), other in a.corners:
        if other not in busy:
            after = max(a.cost - cost, summaries[other].cost + cost)
            yield _Candidate(a.cost - after, beta * queries, Shift(a.evaluator, other, strip.side, strip.size, cost))


class _Mergers:
    """All ways to give a whole partition away, for evaluators that are to be split.

    :param summaries: by evaluator; ``boxes``: the partition map.
    """

    def __init__(self, summaries: Mapping[int, Summary], boxes: Mapping[int, CellBox]) -> None:
        self._summaries, self._boxes = summaries, boxes
        self._by_load: list[tuple[float, int, int, Merger]] = []  # greatest cost of a neighbour after it, subscriptions to send, auxiliary
        self._with: dict[int, list[tuple[int, Merger]]] = {}  # neighbour -> those in which it takes part
        for summary in summaries.values():
            for merger in summary.mergers:
                self._by_load.append((self._merged(merger), sum(part.queries for part in merger.parts), summary.evaluator, merger))
                for part in merger.parts:
                    self._with.setdefault(part.target, []).append((summary.evaluator, merger))
        self._by_load.sort(key=lambda found: found[:3])

    def _merged(self, merger: Merger, without: int = -1) -> float:
        """Return the greatest cost of the neighbours of a merger after it, without one of them."""
        return max((self._summaries[part.target].cost + part.cost for part in merger.parts if part.target != without), default=0.0)

    def splits(self, x: Summary, busy: set[int], beta: float) -> Iterable[_Candidate]:
        """Return splits of an evaluator (Equations 4 and 5): with the merger that loads its neighbours least, and with those in which it takes part."""
        if x.split is None:
            return
        for merged, queries, auxiliary, merger in self._by_load:
            involved = {auxiliary, *(part.target for part in merger.parts)}
            if x.evaluator not in involved and not involved & busy:
                after = max(x.split.moving.cost, x.split.staying, merged)
                operation = SplitMerge(x.evaluator, x.split.moving.strip, auxiliary, merger)
                yield _Candidate(x.cost - after, beta * (x.split.moving.queries + queries), operation)
                break
        for auxiliary, merger in self._with.get(x.evaluator, ()):
            if not {auxiliary, *(part.target for part in merger.parts)} & busy:
                yield self._split_with_own_part(x, auxiliary, merger, beta)

    def _split_with_own_part(self, x: Summary, auxiliary: int, merger: Merger, beta: float) -> _Candidate:
        """Return the split of an evaluator that first takes a part of the auxiliary's partition.

        The cut stays where it is best without that part. If it crosses the part, nobody knows how it divides its cost: then it counts on both sides.
        """
        assert x.split is not None
        (side, size), own = x.split.moving.strip, next(part.cost for part in merger.parts if part.target == x.evaluator)
        moving, staying = x.split.moving.cost, x.split.staying
        if side != merger.side:
            moving += own
        if side != (merger.side + 2) % 4:
            staying += own
        else:  # the strip lies where the part is added
            left = self._boxes[auxiliary]
            size += left[side % 2 + 2] - left[side % 2]
        after = max(moving, staying, self._merged(merger, x.evaluator))
        queries = x.split.moving.queries + sum(part.queries for part in merger.parts)
        return _Candidate(x.cost - after, beta * queries, SplitMerge(x.evaluator, Strip(side, size), auxiliary, merger))


def moves_of(operation: Operation, boxes: Mapping[int, CellBox]) -> list[Move]:
    """Return the moves of cells that an operation consists of, in order.

    :param boxes: the partition map before it.
    :param operation: the size of a shift must have been chosen.
    """
    if isinstance(operation, SplitMerge):
        left, side, source, found = boxes[operation.auxiliary], 1 - operation.merger.side % 2, boxes[operation.source], []
        for part in operation.merger.parts:
            cells = Strip(side, part.size).cells(left)
            found.append(Move(cells, operation.auxiliary, part.target))
            left = left.without(cells) or left
            if part.target == operation.source:
                source = source.union(cells) or source
        return [*found, Move(operation.strip.cells(source), operation.source, operation.auxiliary)]
    assert operation.size is not None
    return [Move(Strip(operation.side, operation.size).cells(boxes[operation.source]), operation.source, operation.target)]


def boxes_after(operation: Operation, boxes: Mapping[int, CellBox]) -> dict[int, CellBox]:
    """Return the partitions of :func:`evaluators_of` after an operation.

    :param boxes: the partition map before it.
    :param operation: the size of a shift must have been chosen.
    """
    after = {evaluator: boxes[evaluator] for evaluator in evaluators_of(operation)}
    for cells, giver, taker in moves_of(operation, boxes):
        after[giver] = after[giver].without(cells) or after[giver]
        after[taker] = (after[taker].union(cells) if after[taker].cells else cells) or after[taker]
    return after
