"""Local load adjustment: which parts of the most loaded task go to the least loaded one (PS2Stream, section V-A).

A part is a zone of one task, or what a task has of the terms of a divided zone. *Phase I* divides a zone by text, or joins what two tasks have of one, where this makes less load. *Phase II*
solves the minimum cost migration problem (definition 4): it finds the parts that together are at least the load that has to move, and have the fewest subscriptions. The paper's cells are small. Parts
are not, so phase II cuts those that are much of that load into pieces, by space if it can and else by text. Pieces that stay are put together again.

Rectangles overlap several parts, so parts that move together move fewer subscriptions than they have, and a task may have some of them already. The paper's selections do not know this;
:func:`select_by_moves` does.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from dskype.distribution.hybrid.gridt import Part, Zone
from dskype.distribution.hybrid.kdt_tree import Node, divide_space, divide_text
from dskype.distribution.hybrid.leaf_loads import Leaf

__all__ = [
    "SELECTIONS",
    "Adjusted",
    "Movable",
    "adjust",
    "loads_of_zones",
    "matched_tasks",
    "select_by_moves",
    "select_by_programme",
    "select_by_size",
    "select_greedily",
    "select_randomly",
]

_MOST_STATES = 50_000_000
"""The dynamic programme counts sizes in coarser units if it had more states than this."""

_LOOKED_AT = 4
"""The most loaded parts that phase I looks at (the paper's p)."""

_ROUNDS = 64

_TAKERS = 4
"""So many of the least loaded tasks may take. Of them the one that has most of the giver's subscriptions does."""

_CUT, _PIECES = 8, (8, 2)
"""The most parts that are cut, and the most pieces of one, in the order in which they are tried. Small pieces are more work in all, because rectangles overlap several, and messages come for the words of
several. If they do not help, larger ones may."""

_SHARE = 0.25
"""A part with more than this share of the load that has to move is cut."""


# -- phase II: selection ------------------------------------------------------------------------------


class Movable(NamedTuple):
    """Parts of a task, some of which are to be moved to another one.

    :ivar loads: float64[n], > 0.
    :ivar subscriptions: of each part, int64[] below m.
    :ivar held: bool[m], those that the other task has already.
    """

    loads: np.ndarray
    subscriptions: Sequence[np.ndarray]
    held: np.ndarray

    @property
    def sizes(self) -> np.ndarray:
        """How many subscriptions each part has, int64[n]."""
        return np.array([len(some) for some in self.subscriptions], np.int64)

    def moved(self, parts: np.ndarray) -> int:
        """Return how many subscriptions move with some parts, int64[]."""
        held = self.held.copy()
        for part in parts.tolist():
            held[self.subscriptions[part]] = True
        return int(np.count_nonzero(held)) - int(np.count_nonzero(self.held))


def select_by_moves(parts: Movable, needed: float) -> np.ndarray:
    """Return parts, rising: the algorithm GR, where the size of a part is the number of subscriptions that move because of it, beside those of the parts before it. O(n * sum of sizes).

    :param needed: the load that is to be moved, at most the sum of ``loads``.
    """
    held, loads = parts.held.copy(), parts.loads.tolist()
    left, taken, sum_load, sum_moved = list(range(len(loads))), list[int](), 0.0, 0
    best: tuple[int, list[int]] | None = None
    while left:
        _, moved, part = min((new / loads[i], new, i) for i in left for new in [int(np.count_nonzero(~held[parts.subscriptions[i]]))])
        left.remove(part)
        if sum_load + loads[part] < needed:
            taken.append(part)
            sum_load, sum_moved = sum_load + loads[part], sum_moved + moved
            held[parts.subscriptions[part]] = True
        elif best is None or sum_moved + moved < best[0]:
            best = sum_moved + moved, [*taken, part]
    return np.sort(np.array(taken if best is None else best[1], np.int64))


def select_greedily(parts: Movable, needed: float) -> np.ndarray:
    """Return parts, rising: the algorithm GR. O(n log n).

    In rising order of size / load, a part is taken if the load is less than needed with it, too. Any other one would be enough with those before it: a candidate. The cheapest candidate is
    returned.

    :param needed: the load that is to be moved, at most the sum of ``loads``.
    """
    loads, sizes = parts.loads, parts.sizes
    taken, sum_load, sum_size = list[int](), 0.0, 0
    best: tuple[int, list[int]] | None = None
    for part in np.argsort(sizes / loads, kind="stable").tolist():
        if sum_load + loads[part] < needed:
            taken.append(part)
            sum_load, sum_size = sum_load + float(loads[part]), sum_size + int(sizes[part])
        elif best is None or sum_size + sizes[part] < best[0]:
            best = sum_size + int(sizes[part]), [*taken, part]
    return np.sort(np.array(taken if best is None else best[1], np.int64))


def select_by_programme(parts: Movable, needed: float) -> np.ndarray:
    """Return the parts with the least sum of sizes, rising: the algorithm DP. O(n * size of the greedy choice), also in memory.

    Parameters are those of :func:`select_greedily`. With very many subscriptions sizes are rounded up to coarser units.
    """
    sizes, greedy = parts.sizes, select_greedily(parts, needed)
    unit = max(1, -(-int(sizes[greedy].sum()) * len(sizes) // _MOST_STATES))
    units = -(-sizes // unit)
    most = int(units[greedy].sum())
    best, chosen = np.zeros(most + 1), np.zeros((len(sizes), most + 1), np.bool_)
    for part, (load, size) in enumerate(zip(parts.loads.tolist(), units.tolist())):
        if size > most:
            continue
        other = np.full(most + 1, -np.inf)
        other[size:] = best[: most + 1 - size] + load
        chosen[part] = other > best
        best = np.maximum(best, other)
    enough = np.flatnonzero(best >= needed * (1 - 1e-12))
    left, found = int(enough[0]) if len(enough) else most, []
    for part in range(len(sizes) - 1, -1, -1):
        if chosen[part, left]:
            found.append(part)
            left -= int(units[part])
    return np.array(found[::-1], np.int64)


def _first_enough(loads: np.ndarray, order: np.ndarray, needed: float) -> np.ndarray:
    before = np.cumsum(loads[order])
    return np.sort(order[: min(len(order), int(np.searchsorted(before, needed)) + 1)])


def select_by_size(parts: Movable, needed: float) -> np.ndarray:
    """Return the largest parts that are enough, rising: the algorithm SI. Parameters are those of :func:`select_greedily`."""
    return _first_enough(parts.loads, np.argsort(-parts.sizes, kind="stable"), needed)


def select_randomly(parts: Movable, needed: float) -> np.ndarray:
    """Return random parts that are enough, rising: the algorithm RA. The same arguments give the same ones; they are those of :func:`select_greedily`."""
    n = len(parts.loads)
    return _first_enough(parts.loads, np.random.default_rng([n, int(parts.sizes.sum())]).permutation(n), needed)


SELECTIONS: dict[str, Callable[[Movable, float], np.ndarray]] = {
    "moves": select_by_moves,
    "greedy": select_greedily,
    "programme": select_by_programme,
    "size": select_by_size,
    "random": select_randomly,
}
"""Names of selections; the paper calls the last four GR, DP, SI and RA."""


# -- both phases --------------------------------------------------------------------------------------


class Adjusted(NamedTuple):
    """Zones after an adjustment.

    :ivar zones: with their loads by the sample.
    :ivar moved: how many subscriptions of the sample came to a task that did not have them.
    :ivar rounds: pairs of tasks between which something was moved.
    :ivar before: the greatest load of a task, in us for a message; ``after``: likewise.
    """

    zones: list[Zone]
    moved: int
    rounds: int
    before: float
    after: float


class _Held(NamedTuple):
    """A part of a zone on a task, with its load by a sample. ``zone``: a number that other parts of the same rectangle have, too."""

    zone: int
    task: int
    node: Node

    @property
    def load(self) -> float:
        return self.node.load_with_repeats

    @property
    def subscriptions(self) -> np.ndarray:
        return self.node.subscriptions


def adjust(root: Leaf, zones: Sequence[Zone], tasks: int, sigma: float, selection: str = "moves") -> Adjusted:
    """Move parts from the most loaded task to one of the least loaded ones until the ratio of the greatest and the least load is at most ``sigma``, or nothing helps.

    :param root: a recent sample.
    :param zones: the present ones.
    :param selection: a name in :data:`SELECTIONS`.
    """
    held = [part for number, zone in enumerate(zones) for part in _held(root, number, zone)]
    moved, rounds, messages, numbers = 0, 0, root.loads.sample.messages.n, itertools.count(len(zones))
    before = float(_loads(held, tasks).max())
    while rounds < _ROUNDS:
        loads = _loads(held, tasks)
        giver = int(loads.argmax())
        if loads[giver] <= sigma * loads.min():
            break
        changes = (_changed(held, giver, taker, loads, selection, numbers) for taker in _takers(held, loads, sigma))
        found = next((change for change in changes if change is not None), None)
        if found is None:
            break
        held, rounds = found[0], rounds + 1
        moved += found[1]
    return Adjusted(_zones(held, tasks, messages), moved, rounds, before / messages, float(_loads(held, tasks).max()) / messages)


def loads_of_zones(root: Leaf, zones: Sequence[Zone], tasks: int) -> np.ndarray:
    """Return the load of each task by a sample, float64[tasks], in us for all its messages, with what several tasks of a divided zone check."""
    return _loads([part for number, zone in enumerate(zones) for part in _held(root, number, zone)], tasks)


def matched_tasks(common: np.ndarray) -> np.ndarray:
    """Return for each task of another plan a different present task, int64[tasks]: greedily those that have most subscriptions in common. O(tasks^2 log tasks).

    :param common: int64[tasks, tasks]: how many subscriptions a task of the other plan (row) has in common with a present one (column).
    """
    tasks = len(common)
    found, free = np.full(tasks, -1, np.int64), np.ones(tasks, np.bool_)
    for pair in np.argsort(-common, axis=None, kind="stable").tolist():
        task, present = divmod(pair, tasks)
        if found[task] < 0 and free[present]:
            found[task], free[present] = present, False
    return found


def _living(held: Sequence[_Held], tasks: int) -> np.ndarray:
    """Return which subscriptions of the sample live on which task, bool[tasks, subscriptions]."""
    found = np.zeros((tasks, held[0].node.leaf.loads.sample.n), np.bool_)
    for part in held:
        found[part.task, part.subscriptions] = True
    return found


def _loads(held: Sequence[_Held], tasks: int) -> np.ndarray:
    """Return the load of each task, float64[tasks]. A task handles updates of a subscription once, in however many of its parts it lives."""
    task_of = [part.task for part in held]
    several = np.bincount(task_of, [len(part.subscriptions) for part in held], tasks) - _living(held, tasks).sum(axis=1)
    return np.bincount(task_of, [part.load for part in held], tasks) - held[0].node.leaf.loads.update_us * several


def _takers(held: Sequence[_Held], loads: np.ndarray, sigma: float) -> list[int]:
    """Return the least loaded tasks, first the one that has most of the giver's subscriptions. Then fewer of them move, and fewer live on several tasks."""
    giver, living = int(loads.argmax()), _living(held, len(loads))
    least = [task for task in np.argsort(loads, kind="stable")[:_TAKERS].tolist() if loads[giver] > sigma * loads[task]]
    return sorted(least, key=lambda task: -np.count_nonzero(living[giver] & living[task]))


class _Pair(NamedTuple):
    """A task that gives, one that takes, and the load that is to move. ``there``: bool[subscriptions], those that live on the taker."""

    giver: int
    taker: int
    needed: float
    there: np.ndarray


def _changed(held: list[_Held], giver: int, taker: int, loads: np.ndarray, selection: str, numbers: Iterator[int]) -> tuple[list[_Held], int] | None:
    """Do one of both phases: return the parts after it, and how many subscriptions move; None: nothing makes the greater load of both tasks less.

    :param numbers: of new zones.
    """
    pair = _Pair(giver, taker, float(loads[giver] - loads[taker]) / 2, _living(held, len(loads))[taker])
    migrations = (_migrated(held, pair, selection, pieces, numbers) for pieces in _PIECES)
    for change in itertools.chain([_split_or_joined(held, giver, taker)], migrations):
        if change is not None and _loads(change, len(loads))[[giver, taker]].max() < loads[giver]:
            return change, int(np.count_nonzero(_living(change, len(loads))[taker] & ~pair.there))
    return None


def _held(root: Leaf, number: int, zone: Zone) -> list[_Held]:
    if not zone.divided:
        return [_Held(number, zone.parts[0].task, Node.whole(root.inside(zone.cells)))]
    named = np.sort(np.array([term for part in zone.parts for term in part.terms], np.int64))
    leaf = root.inside(zone.cells, named)
    return [
        _Held(
            number,
            part.task,
            Node.of_items(leaf, np.concatenate((leaf.items.of(np.array(part.terms, np.int64)), len(named) + np.array(part.buckets, np.int64)))),
        )
        for part in zone.parts
    ]


def _split_or_joined(held: list[_Held], giver: int, taker: int) -> list[_Held] | None:
    """Do phase I: return the parts after one change that makes the sum of loads less; None: there is none."""
    for part in sorted((part for part in held if part.task == giver), key=lambda part: -part.load)[:_LOOKED_AT]:
        node = part.node
        others = [one for one in held if one is not part]
        if node.items is None:
            halves = divide_text(node, 2)
            # Without repeats a load is never more, and is known at once.
            if len(halves) == 2 and sum(half.load for half in halves) < node.load and sum(half.load_with_repeats for half in halves) < node.load:
                more, fewer = sorted(halves, key=lambda half: -len(half.subscriptions))
                return [*others, _Held(part.zone, giver, more), _Held(part.zone, taker, fewer)]
            continue
        for other in others:
            if other.task == taker and other.zone == part.zone and other.node.items is not None:
                joined = Node.of_items(node.leaf, np.concatenate((node.items, other.node.items)))
                if joined.load_with_repeats < part.load + other.load:
                    return [*(one for one in others if one is not other), _Held(part.zone, taker, joined)]
    return None


def _migrated(held: list[_Held], pair: _Pair, selection: str, most: int, numbers: Iterator[int]) -> list[_Held] | None:
    """Do phase II: return the parts after the migration; None: there is nothing to move.

    :param most: pieces of a part.
    :param numbers: of new zones.
    """
    pieces = _cut([part for part in held if part.task == pair.giver], pair.needed, most, numbers)
    own = [(piece, part) for part, some in pieces for piece in some if 0 < piece.load < 2 * pair.needed]
    if not own:
        return None
    movable = Movable(np.array([piece.load for piece, _ in own]), [piece.subscriptions for piece, _ in own], pair.there)
    # Pieces may be less load together than their part: fewer messages are wanted in a smaller rectangle.
    chosen = SELECTIONS[selection](movable, min(pair.needed, float(movable.loads.sum()) / 2)).tolist()
    moved = {id(own[i][0]) for i in chosen}
    touched = {id(own[i][1]) for i in chosen}
    kept = [part for part in held if id(part) not in touched]
    changed = list[_Held]()
    for part, some in pieces:
        if id(part) in touched:
            changed += _rejoined(part, [piece._replace(task=pair.taker) if id(piece) in moved else piece for piece in some], numbers)
    return _together([*kept, *changed], {piece.zone for piece in changed})


def _rejoined(part: _Held, pieces: list[_Held], numbers: Iterator[int]) -> list[_Held]:
    """Return the pieces of a part after those of one task that form a rectangle are joined."""
    if part.node.items is not None or len(pieces) == 1 or pieces[0].node.items is not None:
        return pieces
    found = list(pieces)
    while True:
        pairs = itertools.combinations(range(len(found)), 2)
        unions = ((i, j, found[i].node.leaf.cells.union(found[j].node.leaf.cells)) for i, j in pairs if found[i].task == found[j].task)
        i, j, cells = next((one for one in unions if one[2] is not None), (0, 0, None))
        if cells is None:
            return found
        found[i] = _Held(next(numbers), found[i].task, Node.whole(part.node.leaf.inside(cells)))
        del found[j]


def _cut(parts: list[_Held], needed: float, most: int, numbers: Iterator[int]) -> list[tuple[_Held, list[_Held]]]:
    """Return each part with its pieces: the heaviest ones are cut."""
    largest = {id(part) for part in sorted(parts, key=lambda part: -part.load)[:_CUT]}
    return [(part, _pieces(part, _SHARE * needed, most, numbers) if id(part) in largest else [part]) for part in parts]


def _pieces(part: _Held, load: float, most: int, numbers: Iterator[int]) -> list[_Held]:
    """Return at most ``most`` pieces of a part, each of about the given load if possible: cut by space if it can be, and else by text."""
    count = min(most, int(np.ceil(part.load / max(load, 1e-12))))
    if count < 2:
        return [part]
    if part.node.items is None:
        *_, leaves = divide_space(part.node.leaf, count)
        if len(leaves) > 1:
            return [_Held(next(numbers), part.task, Node.whole(leaf)) for leaf in leaves]
        part = part._replace(zone=next(numbers))
    nodes = divide_text(part.node, count)
    return [part._replace(node=node) for node in nodes]


def _together(held: list[_Held], zones: set[int]) -> list[_Held]:
    """Return the parts after those of the same task in some zones with divided terms are put together."""
    found: list[_Held] = []
    groups: dict[tuple[int, int], list[_Held]] = {}
    for part in held:
        if part.zone in zones and part.node.items is not None:
            groups.setdefault((part.zone, part.task), []).append(part)
        else:
            found.append(part)
    for (zone, task), parts in groups.items():
        items = [part.node.items for part in parts if part.node.items is not None]
        found.append(parts[0] if len(parts) == 1 else _Held(zone, task, Node.of_items(parts[0].node.leaf, np.concatenate(items))))
    return found


def _zones(held: list[_Held], tasks: int, messages: int) -> list[Zone]:
    """Return the zones of all parts. The loads of the parts of a task add up to its load."""
    sums = np.bincount([part.task for part in held], [part.load for part in held], tasks)
    share = np.divide(_loads(held, tasks), sums, out=np.zeros(tasks), where=sums > 0) / messages
    found: dict[int, list[_Held]] = {}
    for part in held:
        found.setdefault(part.zone, []).append(part)
    zones = []
    for _, same in sorted(found.items()):
        parts = []
        for part in same:
            terms, buckets = ((), ()) if part.node.items is None else part.node.leaf.items.described(part.node.items)
            parts.append(Part(part.task, float(share[part.task]) * part.load, terms, buckets))
        zones.append(Zone(same[0].node.leaf.cells, ()).with_parts(parts))
    return zones
