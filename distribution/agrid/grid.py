"""The A-Grid: a fine grid over rectangular partitions of the world, in which partitions are found fast and change cheaply (Tornado, section 3.1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from dskype.distribution.agrid import _kernels as kernels
from dskype.topology.errors import IllegalArgumentException

__all__ = ["WORLD", "AGrid", "CellBox"]

WORLD = (-180.0, -90.0, 180.0, 90.0)
"""West, south, east, north in degrees."""

_TILES = 256
"""The most tiles along a side while tiles can grow. They fill a quarter of a megabyte, which a processor keeps in its second cache."""

_MOST_SHIFT = 4
"""Tiles have sides of up to 16 cells. Finer grids than 16 x 256 cells along a side have more tiles."""

_MOST_CELLS = 16_384
"""The most columns and the most rows. So many have 4 MB of tiles."""


class CellBox(NamedTuple):
    """A rectangle of cells: columns ``x0`` to ``x1`` - 1 and rows ``y0`` to ``y1`` - 1. Columns count from the west, rows from the south."""

    x0: int
    y0: int
    x1: int
    y1: int

    @property
    def cells(self) -> int:
        """The number of cells; 0 if the rectangle is empty."""
        return max(0, self.x1 - self.x0) * max(0, self.y1 - self.y0)

    def intersection(self, other: CellBox) -> CellBox:
        """Return the cells in both; perhaps empty."""
        return CellBox(max(self.x0, other.x0), max(self.y0, other.y0), min(self.x1, other.x1), min(self.y1, other.y1))

    def union(self, other: CellBox) -> CellBox | None:
        """Return a rectangle with the cells of both if there is one without others and they share no cell, else None."""
        around = CellBox(min(self.x0, other.x0), min(self.y0, other.y0), max(self.x1, other.x1), max(self.y1, other.y1))
        return around if around.cells == self.cells + other.cells and not self.intersection(other).cells else None

    def without(self, other: CellBox) -> CellBox | None:
        """Return the other cells if ``other`` lies inside along a whole side, else None. Empty if ``other`` is all of it."""
        if other.cells and self.intersection(other) == other:
            if (other.y0, other.y1) == (self.y0, self.y1):
                if other.x0 == self.x0:
                    return self._replace(x0=other.x1)
                if other.x1 == self.x1:
                    return self._replace(x1=other.x0)
            elif (other.x0, other.x1) == (self.x0, self.x1):
                if other.y0 == self.y0:
                    return self._replace(y0=other.y1)
                if other.y1 == self.y1:
                    return self._replace(y1=other.y0)
        return None


class AGrid:
    """A fine grid whose cells belong to rectangular partitions.

    A place is looked up in O(1), and the partitions of a rectangle in O(partitions that it touches): the search jumps from partition to partition
    (:func:`dskype.distribution.agrid._kernels.search`). Neither time depends on how fine the grid is.

    A partition has a small number that stays when others change. Every change is a :meth:`move` of cells from one partition to another, after
    which both are rectangles: a shift of the border between two, a corner shift, a split, a merge. It costs O(cells on the border + tiles inside + partitions).

    The borders of the grid are no borders of the world: the outermost cells reach to its end.

    :param columns: columns from west to east; ``rows``: rows from south to north; each 1 to 16,384.
    :param box: west, south, east and north of the grid in degrees.
    :param partitions: the cells of each partition, by its number; together they are the whole grid, each cell once. Default: number 0 has them all.
    :raises IllegalArgumentException: the partitions are no division of the grid, or the grid has no cells.
    """

    def __init__(self, columns: int, rows: int, box: Sequence[float] = WORLD, partitions: Mapping[int, Sequence[int]] | None = None) -> None:
        west, south, east, north = map(float, box)
        if not (1 <= columns <= _MOST_CELLS and 1 <= rows <= _MOST_CELLS):
            raise IllegalArgumentException("The grid has too many columns or rows, or none.", given=f"{columns} x {rows}", legal=f"1 to {_MOST_CELLS:,} each")
        if not (np.isfinite([west, south, east, north]).all() and west < east and south < north):
            raise IllegalArgumentException("The grid has no cells.", given=list(box), legal="[west, south, east, north], west < east, south < north")
        self.columns, self.rows, self.box = columns, rows, (west, south, east, north)
        self.all_cells = CellBox(0, 0, columns, rows)
        shift = min(_MOST_SHIFT, max(0, (-(-max(columns, rows) // _TILES) - 1).bit_length()))
        tiles = np.zeros((((rows - 1) >> shift) + 1, ((columns - 1) >> shift) + 1), np.int32)
        boxes = {0: self.all_cells} if partitions is None else {number: CellBox(*map(int, cells)) for number, cells in partitions.items()}
        for number, cells in boxes.items():
            if number < 0 or not cells.cells or self.all_cells.intersection(cells) != cells:
                raise IllegalArgumentException("A partition has no cells of the grid.", given={number: list(cells)}, legal=f"{columns} x {rows} cells")
        bounds = np.zeros((max(boxes, default=0) + 1, 4), np.int32)
        strips, tables = np.zeros((1, 3), np.int64), np.zeros((1, 1 << 2 * shift), np.int32)
        self._free = np.array([1, 0], np.int64)
        scales = (columns / (east - west), rows / (north - south))
        self.arrays = kernels.GridArrays(west, south, *scales, columns, rows, shift, tiles, strips, tables, bounds, np.zeros((len(bounds), 8), np.int32))
        """The grid as arrays, for kernels; other arrays after a change."""
        for number, cells in boxes.items():
            bounds[number] = cells
            self._assign(cells, number)
        cells, inside = kernels.count_cells(self.arrays)
        sizes = np.array([boxes[number].cells if number in boxes else 0 for number in range(len(bounds))])
        if not ((cells == sizes) & (inside == sizes)).all():
            wrong = np.flatnonzero((cells != sizes) | (inside != sizes)).tolist()
            raise IllegalArgumentException("The partitions overlap, or leave cells out.", given=f"partitions {wrong[:8]}", legal="each cell in one partition")
        kernels.link(self.arrays.bounds, self.arrays.links)

    # -- what is where ----------------------------------------------------------------------------

    def has_cells_of(self, other: AGrid) -> bool:
        """Tell whether the cells of both grids are the same; partitions may differ."""
        return (self.box, self.all_cells) == (other.box, other.all_cells)

    def partitions(self) -> dict[int, CellBox]:
        """Return the cells of each partition, by its number, rising."""
        return {number: CellBox(*cells) for number, cells in enumerate(self.arrays.bounds.tolist()) if cells[2]}

    def cells(self, partition: int) -> CellBox:
        """Return the cells of a partition.

        :raises IllegalArgumentException: there is no such partition.
        """
        bounds = self.arrays.bounds
        if not (0 <= partition < len(bounds) and bounds[partition, 2]):
            raise IllegalArgumentException("There is no such partition.", given=partition, legal=", ".join(map(str, self.partitions())))
        return CellBox(*bounds[partition].tolist())

    def cells_of(self, lat: np.ndarray, lon: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return column and row of each place, int64[n].

        :param lat: float64[n], degrees; ``lon``: likewise.
        """
        return kernels.cells_of(np.asarray(lat, np.float64), np.asarray(lon, np.float64), self.arrays)

    def boxes_of(self, areas: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return (rows int64[m], boxes int64[m, 4]): the cells of each area as columns and rows (x0, y0, x1, y1). An area across the antimeridian has two boxes.

        :param areas: float64[n, 4], west, south, east and north in degrees.
        """
        west, south, east, north = np.ascontiguousarray(np.asarray(areas, np.float64).reshape(-1, 4).T)
        (x0, y0), (x1, y1) = self.cells_of(south, west), self.cells_of(north, east)
        crossing = west > east
        boxes = np.stack((x0, y0, np.where(crossing, self.columns, x1 + 1), y1 + 1), axis=1)
        behind = np.stack((np.zeros_like(x0), y0, x1 + 1, y1 + 1), axis=1)
        return np.concatenate((np.arange(len(west)), np.flatnonzero(crossing))), np.concatenate((boxes, behind[crossing]))

    def locate(self, lat: np.ndarray, lon: np.ndarray) -> np.ndarray:
        """Return the partition of each place, int32[n]. O(1) each.

        :param lat: float64[n], degrees; ``lon``: likewise.
        """
        return kernels.locate(np.asarray(lat, np.float64), np.asarray(lon, np.float64), self.arrays)

    def touching(self, area: Sequence[float]) -> list[int]:
        """Return the partitions that an area touches, rising. O(partitions found), and sorting them.

        :param area: west, south, east, north in degrees; west > east crosses the antimeridian.
        """
        return sorted(self.overlaps(np.array([area], np.float64))[1].tolist())

    def overlaps(self, areas: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return (rows int64[m], partitions int32[m]): the partitions that each area touches. O(partitions found).

        :param areas: float64[n, 4], west, south, east and north in degrees.
        """
        numbers = np.arange(len(self.arrays.bounds), dtype=np.int32)
        return kernels.route_areas(np.arange(len(areas) + 1), np.asarray(areas, np.float64), self.arrays, numbers, len(numbers))

    @property
    def memory_bytes(self) -> int:
        """Size of its arrays."""
        return sum(array.nbytes for array in (*self.arrays[7:], self._free))

    def search(self, cells: CellBox) -> list[int]:
        """Return the partitions that have one of these cells, rising. O(partitions found), and sorting them."""
        inside = self.all_cells.intersection(cells)
        return sorted(kernels.search(inside.x0, inside.y0, inside.x1 - 1, inside.y1 - 1, self.arrays).tolist()) if inside.cells else []

    def neighbours(self, partition: int) -> list[int]:
        """Return the partitions that share a piece of border with one, rising; a corner in common is not enough."""
        x0, y0, x1, y1 = self.cells(partition)
        strips = (CellBox(x0 - 1, y0, x0, y1), CellBox(x1, y0, x1 + 1, y1), CellBox(x0, y0 - 1, x1, y0), CellBox(x0, y1, x1, y1 + 1))
        return sorted({found for strip in strips for found in self.search(strip)})

    def degrees(self, cells: CellBox) -> tuple[float, float, float, float]:
        """Return west, south, east and north of cells in degrees. Those at the border of the grid reach on to the end of the world."""
        west, south = self.arrays.west, self.arrays.south
        per_lon, per_lat = self.arrays.per_lon, self.arrays.per_lat
        return west + cells.x0 / per_lon, south + cells.y0 / per_lat, west + cells.x1 / per_lon, south + cells.y1 / per_lat

    # -- changes ----------------------------------------------------------------------------------

    def move(self, cells: CellBox, giver: int, taker: int) -> None:
        """Move cells of one partition to another. All changes are made of this; O(cells on the border + tiles inside + partitions).

        If they are all the cells of the giver, its number becomes free. The taker may be a free number, of which these become the cells.

        :raises IllegalArgumentException: the giver does not have these cells, or one of the two would be no rectangle. Nothing has changed then.
        """
        own = self.cells(giver)
        left = own.without(cells)
        known = 0 <= taker < len(self.arrays.bounds) and self.arrays.bounds[taker, 2]
        taken = self.cells(taker).union(cells) if known else cells
        if left is None or taken is None or giver == taker or taker < 0:
            raise IllegalArgumentException(
                "Partitions stay rectangles.", given=f"{list(cells)} from {giver} {list(own)} to {taker}", legal="cells along a whole side of both"
            )
        if taker >= len(self.arrays.bounds):
            more = np.zeros((taker + 1 + taker // 4, 4), np.int32)
            more[: len(self.arrays.bounds)] = self.arrays.bounds
            self.arrays = self.arrays._replace(bounds=more, links=np.zeros((len(more), 8), np.int32))
        self.arrays.bounds[giver] = left if left.cells else 0
        self.arrays.bounds[taker] = taken
        self._assign(cells, taker)
        kernels.link(self.arrays.bounds, self.arrays.links)

    def split(self, partition: int, axis: str, at: int, taker: int | None = None) -> int:
        """Cut a partition in two: it keeps the cells before the line, and another one gets the others.

        :param axis: ``lon``: the line is before column ``at``; ``lat``: before row ``at``.
        :param taker: a free number; default: the least one.
        :returns: the number of the other one.
        :raises IllegalArgumentException: one side would be empty, or the number is not free.
        """
        own, free = self.cells(partition), self.free_number() if taker is None else taker
        if free in self.partitions():
            raise IllegalArgumentException("A partition has this number.", given=free, legal="a free number")
        part = own._replace(x0=at) if axis == "lon" else own._replace(y0=at)
        if axis not in ("lon", "lat") or not 0 < part.cells < own.cells:
            raise IllegalArgumentException("A partition cannot be cut there.", given=f"{axis} {at}", legal=f"a line inside {list(own)}")
        self.move(part, partition, free)
        return free

    def merge(self, keeper: int, giver: int) -> None:
        """Give all cells of a partition to a neighbour; its number becomes free.

        :raises IllegalArgumentException: together they are no rectangle.
        """
        self.cells(keeper)  # it is not free
        self.move(self.cells(giver), giver, keeper)

    def shift(self, giver: int, taker: int, at: int | None = None) -> CellBox:
        """Move cells from a partition to a neighbour; return the cells.

        :param at: where the border will be between two that share a whole side (a column if they lie side by side, else a row). None: a corner
            shift, see :meth:`corner`.
        :raises IllegalArgumentException: there are no such cells.
        """
        cells = self.corner(giver, taker) if at is None else self.strip(giver, taker, at)
        if cells is None:
            raise IllegalArgumentException(
                "No cells can be shifted between these partitions" + (" that way." if at is None else " to this border."),
                given=f"{giver} {list(self.cells(giver))} to {taker} {list(self.cells(taker))}" + ("" if at is None else f", {at}"),
                legal="partitions that share a whole side, or a corner along their common border",
            )
        self.move(cells, giver, taker)
        return cells

    def strip(self, giver: int, taker: int, at: int) -> CellBox | None:
        """Return the cells of the giver between a neighbour with which it shares a whole side and a line; None: they share none, or no cells would move, or all.

        :param at: a column if they lie side by side, else a row: where the border will be.
        """
        own, other = self.cells(giver), self.cells(taker)
        if (own.y0, own.y1) == (other.y0, other.y1) and (own.x0 == other.x1 or own.x1 == other.x0):
            part = own._replace(x1=at) if own.x0 == other.x1 else own._replace(x0=at)
        elif (own.x0, own.x1) == (other.x0, other.x1) and (own.y0 == other.y1 or own.y1 == other.y0):
            part = own._replace(y1=at) if own.y0 == other.y1 else own._replace(y0=at)
        else:
            return None
        return part if 0 < part.cells < own.cells and own.intersection(part) == part else None

    def corner(self, giver: int, taker: int) -> CellBox | None:
        """Return the cells of a corner shift: the taker grows over the whole width of the giver; None if there are none (Tornado, Figure 3 c).

        The two lie side by side, and one end of the taker's side is one end of the giver's. Where the line is follows from the other end.
        """
        own, other = self.cells(giver), self.cells(taker)
        if own.x0 == other.x1 or own.x1 == other.x0:
            part = own._replace(y0=other.y0, y1=other.y1)
        elif own.y0 == other.y1 or own.y1 == other.y0:
            part = own._replace(x0=other.x0, x1=other.x1)
        else:
            return None
        left = own.without(part)
        return part if left is not None and left.cells and other.union(part) is not None else None

    def free_number(self) -> int:
        """Return the least number that no partition has."""
        free = np.flatnonzero(self.arrays.bounds[:, 2] == 0)
        return int(free[0]) if len(free) else len(self.arrays.bounds)

    def copy(self) -> AGrid:
        """Return a copy that changes by itself."""
        other = object.__new__(AGrid)
        other.columns, other.rows, other.box, other.all_cells, other._free = self.columns, self.rows, self.box, self.all_cells, self._free.copy()
        arrays = self.arrays
        changing = {name: getattr(arrays, name).copy() for name in ("tiles", "strips", "tables", "bounds", "links")}
        other.arrays = arrays._replace(**changing)
        return other

    def _assign(self, cells: CellBox, partition: int) -> None:
        """Give cells to a partition, with room for blocks on the border."""
        shift, tables = self.arrays.shift, self.arrays.tables
        wanted = 2 * ((cells.x1 - cells.x0 >> shift) + (cells.y1 - cells.y0 >> shift)) + 8
        if shift and self._free[0] < wanted:
            before, count = len(tables), int(self._free[0])
            after = 2 * before + wanted
            more_strips, more_tables = np.zeros((after, 3), np.int64), np.zeros((after, tables.shape[1]), np.int32)
            more_strips[:before], more_tables[:before] = self.arrays.strips, tables
            free = np.zeros(after + 1, np.int64)
            new = np.arange(after - 1, before - 1, -1)
            free[1 : 1 + len(new)], free[1 + len(new) : 1 + len(new) + count] = new, self._free[1 : 1 + count]
            free[0] = len(new) + count
            self.arrays, self._free = self.arrays._replace(strips=more_strips, tables=more_tables), free
        kernels.assign(*cells, partition, self.arrays, self._free)

    def _check(self) -> None:
        """Verify that every cell is in the partition whose bounds have it, and that exactly the tiles on borders have blocks."""
        arrays, found = self.arrays, self.partitions()
        assert sum(cells.cells for cells in found.values()) == self.columns * self.rows
        cells, inside = kernels.count_cells(arrays)
        for number, count in enumerate(cells.tolist()):
            assert count == inside[number] == (found[number].cells if number in found else 0), number
        used = [~tile for tile in arrays.tiles.ravel().tolist() if tile < 0]
        free = self._free[1 : 1 + self._free[0]].tolist()
        side = 1 << arrays.shift
        assert sorted([*used, *free]) == list(range(len(arrays.tables)))
        columns, rows = (
            np.minimum(np.arange(n), most - 1) for n, most in ((arrays.tiles.shape[1] * side, self.columns), (arrays.tiles.shape[0] * side, self.rows))
        )
        for ty, tx in np.argwhere(arrays.tiles < 0).tolist():
            x, y = columns[tx * side : tx * side + side], rows[ty * side : ty * side + side]
            inside = [cells for cells in found.values() if cells.intersection(CellBox(int(x[0]), int(y[0]), int(x[-1]) + 1, int(y[-1]) + 1)).cells]
            assert len(inside) > 1
            widths, *_ = arrays.strips[~arrays.tiles[ty, tx], 2:].tolist()
            assert widths == 1 + len({cells.x0 for cells in inside if x[0] < cells.x0 <= x[-1]})
        assert all(cells == self.all_cells.intersection(cells) and cells.cells for cells in found.values())
        for number, cells in found.items():
            for first, beside in ((0, cells._replace(x0=cells.x1, x1=cells.x1 + 1)), (4, cells._replace(y0=cells.y1, y1=cells.y1 + 1))):
                near = sorted((other[1 - first // 4], p) for p, other in found.items() if beside.intersection(other).cells)
                stored = arrays.links[number, first : first + 4].tolist()
                assert stored[0] == -1 if len(near) > 4 else stored == [p for _, p in near] + [-1] * (4 - len(near))
