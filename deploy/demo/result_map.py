"""Draw one subscription's results on a map, as SVG without any library.

There is no coastline: the dots of all messages show the world. The upper map is the detail around the subscription, with a list of its results,
numbered by rank. The lower map is the world, with the detail's frame. Both are drawn in plain degrees, as the score measures them, except that
the detail's width shrinks with the latitude.
"""

from __future__ import annotations

import math
import os
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from dskype.deploy.machine import paths
from dskype.topology.errors import IllegalArgumentException

__all__ = ["Pin", "draw", "write"]

_WIDTH, _MARGIN = 1200, 28
_HEAD, _DETAIL, _LIST, _GAP = 96, 560, 372, 20
_WORLD_SOUTH, _WORLD_NORTH = -56.5, 78.5
_LISTED = 20
_BUBBLE = 10.5
_SHADES = ((1, 0.55), (3, 0.78), (8, 1))
"""(messages, opacity): a dot for at least this many messages has this opacity."""

_Box = tuple[float, float, float, float]

_STYLE = """
text{font-family:Inter,'Helvetica Neue',Helvetica,Arial,'DejaVu Sans',sans-serif;fill:#dbe4f3}
.dots{fill:none;stroke:#7fa6d9;stroke-linecap:round;stroke-dasharray:0 1;stroke-dashoffset:.5}
.panel{fill:#0d1626;stroke:#22314d}
.far{fill:#8fa3c2}
.pin{fill:#f5b942;stroke:#0b1220;stroke-width:1.2}
.first{fill:#ff7a45}
.rank{fill:#111a2b;font-weight:700;text-anchor:middle}
.lead{stroke:#f5b942;stroke-width:1;opacity:.75}
.halo{paint-order:stroke;stroke:#0b1220;stroke-width:3.5px;stroke-linejoin:round}
.here{fill:none;stroke:#7df0d0;stroke-width:2}
.name{fill:#7df0d0;font-weight:600}
.score{fill:#9db2d3;text-anchor:end}
""".strip().replace("\n", "")


@dataclass(frozen=True)
class Pin:
    """A result: its place, its name and its score. Its rank is its position in the list of results."""

    lat: float
    lon: float
    name: str
    region: str
    score: float


class _View(NamedTuple):
    """A rectangle of degrees on a rectangle of pixels."""

    west: float
    south: float
    east: float
    north: float
    x: float
    y: float
    width: float
    height: float

    def at(self, lat: float, lon: float) -> tuple[float, float]:
        """Return the pixel of a place."""
        return (self.x + (lon - self.west) / (self.east - self.west) * self.width, self.y + (self.north - lat) / (self.north - self.south) * self.height)

    def holds(self, lat: float, lon: float) -> bool:
        return self.west <= lon <= self.east and self.south <= lat <= self.north


def draw(
    lat: np.ndarray, lon: np.ndarray, *, here: tuple[float, float], name: str, pins: Sequence[Pin], title: str, subtitle: str = "", cell_px: float = 1.9
) -> str:
    """Return a map as SVG text.

    :param lat: float64[n], degrees, of all messages, drawn as faint dots.
    :param lon: float64[n], degrees.
    :param here: latitude and longitude of the subscription.
    :param name: the name of its place.
    :param pins: its results, best first.
    :param cell_px: dots closer than this are merged; a larger value makes a smaller file.
    :raises IllegalArgumentException: ``cell_px`` is too small.
    """
    if not cell_px >= 0.5:
        raise IllegalArgumentException("The dots of a map are too fine.", given=cell_px, legal="0.5 pixels or more")
    lat, lon = np.asarray(lat, np.float64), np.asarray(lon, np.float64)
    detail = _detail_view(here, pins)
    world_width = _WIDTH - 2 * _MARGIN
    world_height = world_width * (_WORLD_NORTH - _WORLD_SOUTH) / 360
    world = _View(-180, _WORLD_SOUTH, 180, _WORLD_NORTH, _MARGIN, _HEAD + _DETAIL + _GAP, world_width, world_height)
    height = round(world.y + world_height + _MARGIN)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}" role="img">',
        f"<title>{_text(title)}</title><style>{_STYLE}</style>",
        f'<rect width="{_WIDTH}" height="{height}" fill="#0b1220"/>',
        f'<text x="{_MARGIN}" y="48" font-size="28" font-weight="700">{_text(_cut(title, 72))}</text>',
        f'<text x="{_MARGIN}" y="76" font-size="15" class="far">{_text(_cut(subtitle, 150))}</text>',
        *_panel("detail", detail),
        *_dots(lat, lon, detail, cell_px * 1.15),
        *_detail_marks(detail, here, name, pins),
        "</g>",
        *_list(pins, detail, len(pins)),
        *_panel("world", world),
        *_dots(lat, lon, world, cell_px),
        *_world_marks(world, detail, here, pins),
        "</g>",
        "</svg>\n",
    ]
    return "\n".join(parts)


def write(path: str | os.PathLike[str], svg: str) -> Path:
    """Write a picture atomically; return its path."""
    target = Path(path)
    paths.write_whole(target, svg)
    return target


# --- parts ------------------------------------------------------------------------------------------------------------


def _detail_view(here: tuple[float, float], pins: Sequence[Pin]) -> _View:
    """Return the detail: the subscription, and its results without far outliers."""
    lat0, lon0 = here
    width, height = _WIDTH - 2 * _MARGIN - _LIST - _GAP, float(_DETAIL)
    distances = sorted(math.hypot(p.lat - lat0, p.lon - lon0) for p in pins)
    reach = max(6.0, 4 * distances[len(distances) // 2]) if distances else 6.0
    near = [(lat0, lon0), *((p.lat, p.lon) for p in pins if math.hypot(p.lat - lat0, p.lon - lon0) <= reach)]
    south, north = min(y for y, _ in near), max(y for y, _ in near)
    west, east = min(x for _, x in near), max(x for _, x in near)
    middle_lat, middle_lon = (south + north) / 2, (west + east) / 2
    narrow = max(0.2, math.cos(math.radians(max(-80.0, min(80.0, middle_lat)))))
    # Degrees of latitude per pixel that show all of it, with a border.
    scale = 1.22 * max((north - south) / height, (east - west) * narrow / width, 1.5 / height)
    half_lat, half_lon = scale * height / 2, scale * width / narrow / 2
    return _View(middle_lon - half_lon, middle_lat - half_lat, middle_lon + half_lon, middle_lat + half_lat, _MARGIN, _HEAD, width, height)


def _panel(id: str, view: _View) -> list[str]:
    box = f'x="{view.x:g}" y="{view.y:g}" width="{view.width:g}" height="{view.height:.1f}" rx="8"'
    return [f'<clipPath id="{id}"><rect {box}/></clipPath>', f'<rect class="panel" {box}/>', f'<g clip-path="url(#{id})">']


def _dots(lat: np.ndarray, lon: np.ndarray, view: _View, cell_px: float) -> list[str]:
    """Return the messages' dots, one per cell; the fewer dots, the larger they are.

    Neighbours in a row are one dashed stroke (dashes of zero length with round ends are dots), which keeps the text short.
    """
    columns, rows = int(view.width / cell_px) + 1, int(view.height / cell_px) + 1
    inside = (lon >= view.west) & (lon <= view.east) & (lat >= view.south) & (lat <= view.north)
    x = ((lon[inside] - view.west) / (view.east - view.west) * view.width / cell_px).astype(np.int64)
    y = ((view.north - lat[inside]) / (view.north - view.south) * view.height / cell_px).astype(np.int64)
    counts = np.bincount(y * columns + x, minlength=rows * columns)
    sparse = view.width * view.height / max(1, np.count_nonzero(counts))  # square pixels per dot
    size = min(1.8, max(0.72, 0.09 * math.sqrt(sparse)))
    parts = []
    for (least, opacity), above in zip(_SHADES, [*(n for n, _ in _SHADES[1:]), None]):
        cells = np.flatnonzero((counts >= least) & (counts < above) if above else counts >= least)
        if not len(cells):
            continue
        # A run ends where the next cell is not a neighbour in the same row.
        ends = np.flatnonzero((np.diff(cells) != 1) | (cells[1:] % columns == 0))
        first, last = cells[np.concatenate(([0], ends + 1))], cells[np.concatenate((ends, [len(cells) - 1]))]
        path, at_x, at_y = [], 0, 0
        for start, stop in zip(first.tolist(), (last + 1).tolist()):
            row, column = divmod(start, columns)
            path.append(f"m{column - at_x} {row - at_y}h{stop - start}".replace(" -", "-"))
            at_x, at_y = column + stop - start, row
        place = f"translate({view.x:g} {view.y + cell_px / 2:.2f})scale({cell_px:g})"
        parts.append(f'<path class="dots" transform="{place}" stroke-width="{size:.2f}" opacity="{opacity}" d="{"".join(path)}"/>')
    return parts


def _detail_marks(view: _View, here: tuple[float, float], name: str, pins: Sequence[Pin]) -> list[str]:
    """Return the subscription's place and the numbered results, without overlaps."""
    x0, y0 = view.at(*here)
    shown = [(rank, p, *view.at(p.lat, p.lon)) for rank, p in enumerate(pins, 1) if view.holds(p.lat, p.lon)]
    taken: list[_Box] = [(x0 - 9, y0 - 9, x0 + 9, y0 + 9)]
    parts = [f'<circle class="here" cx="{x0:.1f}" cy="{y0:.1f}" r="7"/><circle cx="{x0:.1f}" cy="{y0:.1f}" r="2.5" fill="#7df0d0"/>']
    # The place's name stands where the fewest results are; these move aside.
    spots = [spot for spot in _label_spots(name, x0, y0, 11, 17) if _within(spot[3], view)] or _label_spots(name, x0, y0, 11, 17)[:1]
    best = min(spots, key=lambda spot: sum(_overlap(spot[3], (x - _BUBBLE, y - _BUBBLE, x + _BUBBLE, y + _BUBBLE)) for _, _, x, y in shown))
    parts.append(_label(name, best, 17, "name halo"))
    taken.append(best[3])
    bubbles = []
    for rank, pin, x, y in shown:
        bx, by = _free_spot(x, y, taken, view)
        taken.append((bx - _BUBBLE, by - _BUBBLE, bx + _BUBBLE, by + _BUBBLE))
        bubbles.append((rank, pin, x, y, bx, by))
    moved = [(x, y, bx, by) for _, _, x, y, bx, by in bubbles if math.hypot(bx - x, by - y) > 1]
    parts += [
        f'<line class="lead" x1="{x:.1f}" y1="{y:.1f}" x2="{bx:.1f}" y2="{by:.1f}"/><circle class="pin" cx="{x:.1f}" cy="{y:.1f}" r="3"/>'
        for x, y, bx, by in moved
    ]
    for rank, _, _, _, bx, by in reversed(bubbles):
        parts.append(
            f'<circle class="pin{" first" if rank == 1 else ""}" cx="{bx:.1f}" cy="{by:.1f}" r="{_BUBBLE}"/>'
            f'<text class="rank" x="{bx:.1f}" y="{by + 4:.1f}" font-size="{11 if rank < 100 else 9}">{rank}</text>'
        )
    taken += [(x - 3, y - 3, x + 3, y + 3) for x, y, _, _ in moved]
    for _, pin, _, _, bx, by in bubbles:
        text = _cut(pin.name, 30)
        for spot in _label_spots(text, bx, by, _BUBBLE + 4, 12.5):
            if _within(spot[3], view) and not any(_overlap(spot[3], other) for other in taken):
                taken.append(spot[3])
                parts.append(_label(text, spot, 12.5, "halo"))
                break
    return parts


def _free_spot(x: float, y: float, taken: list[_Box], view: _View) -> tuple[float, float]:
    """Return the nearest place where a bubble touches no other, on growing rings around its point."""
    size = _BUBBLE + 1
    for ring in range(40):
        for step in range(max(1, 8 * min(ring, 4))):
            angle = 2 * math.pi * step / max(1, 8 * min(ring, 4)) - math.pi / 2
            cx, cy = x + 7 * ring * math.cos(angle), y + 7 * ring * math.sin(angle)
            box = (cx - size, cy - size, cx + size, cy + size)
            if _within(box, view) and not any(_overlap(box, other) for other in taken):
                return cx, cy
    return x, y


def _label_spots(text: str, x: float, y: float, away: float, size: float) -> list[tuple[str, float, float, _Box]]:
    """Return possible places of a label beside a point (right, left, above, below) as (anchor, x, y, box)."""
    width, spots = _text_width(text, size), []
    for anchor, tx, ty in (
        ("start", x + away, y + size * 0.36),
        ("end", x - away, y + size * 0.36),
        ("middle", x, y - away - 2),
        ("middle", x, y + away + size * 0.8),
    ):
        left = tx - {"start": 0.0, "middle": width / 2, "end": width}[anchor]
        spots.append((anchor, tx, ty, (left - 2, ty - size * 0.94, left + width + 2, ty + size * 0.28)))
    return spots


def _label(text: str, spot: tuple[str, float, float, _Box], size: float, style: str) -> str:
    anchor, x, y, _ = spot
    return f'<text class="{style}" x="{x:.1f}" y="{y:.1f}" font-size="{size:g}" text-anchor="{anchor}">{_text(text)}</text>'


def _list(pins: Sequence[Pin], detail: _View, total: int) -> list[str]:
    x, right = _WIDTH - _MARGIN - _LIST + 4, _WIDTH - _MARGIN - 4
    step = min(38.0, (_DETAIL - 34) / max(1, min(total, _LISTED)))
    parts = [
        f'<text x="{x}" y="{_HEAD + 16}" font-size="13" class="far">rank and place</text>',
        f'<text x="{right}" y="{_HEAD + 16}" font-size="13" class="score">score</text>',
        f'<path d="M{x} {_HEAD + 25.5}H{right}" stroke="#22314d"/>',
    ]
    for rank, pin in enumerate(pins[:_LISTED], 1):
        y = _HEAD + 26 + step * (rank - 0.5)
        away = not detail.holds(pin.lat, pin.lon)
        first, dim, far = " first" if rank == 1 else "", ' opacity=".55"' if away else "", ' class="far"' if away else ""
        parts.append(
            f'<circle class="pin{first}" cx="{x + 11}" cy="{y:.1f}" r="{_BUBBLE - 0.5}"{dim}/>'
            f'<text class="rank" x="{x + 11}" y="{y + 4:.1f}" font-size="11">{rank}</text>'
            f'<text x="{x + 30}" y="{y + 5:.1f}" font-size="14"{far}>{_name_and_region(pin, right - x - 84)}</text>'
            f'<text class="score" x="{right}" y="{y + 5:.1f}" font-size="14">{pin.score:.3f}</text>'
        )
    notes = [f"and {total - _LISTED} more"] if total > _LISTED else []
    if any(not detail.holds(pin.lat, pin.lon) for pin in pins[:_LISTED]):
        notes.append("dimmed: only on the map of the world")
    if not total:
        parts.append(f'<text x="{x}" y="{_HEAD + 52}" font-size="14" class="far">nothing yet</text>')
    elif notes:
        parts.append(f'<text x="{x}" y="{_HEAD + _DETAIL}" font-size="12" class="far">{"; ".join(notes)}</text>')
    return parts


def _name_and_region(pin: Pin, width: float) -> str:
    """Return a list entry's text, cut to ``width`` pixels."""
    name = _cut_px(pin.name, 14, width)
    left = width - _text_width(name + "  ", 14)
    region = _cut_px(pin.region, 12, left) if left > 30 else ""
    return _text(name) + (f'<tspan class="far" font-size="12" dx="7">{_text(region)}</tspan>' if region else "")


def _world_marks(view: _View, detail: _View, here: tuple[float, float], pins: Sequence[Pin]) -> list[str]:
    x1, y1 = view.at(min(detail.north, 90), max(detail.west, -180))
    x2, y2 = view.at(max(detail.south, -90), min(detail.east, 180))
    x0, y0 = view.at(*here)
    parts = [f'<circle class="pin" cx="{x:.1f}" cy="{y:.1f}" r="3"/>' for x, y in (view.at(p.lat, p.lon) for p in reversed(pins))]
    parts.append(
        f'<rect x="{x1:.1f}" y="{y1:.1f}" width="{max(4, x2 - x1):.1f}" height="{max(4, y2 - y1):.1f}" fill="#7df0d0" fill-opacity=".07" '
        'stroke="#7df0d0" stroke-width="1.4" rx="2"/>'
    )
    parts.append(f'<circle cx="{x0:.1f}" cy="{y0:.1f}" r="2.2" fill="#7df0d0"/>')
    return parts


# --- text -------------------------------------------------------------------------------------------------------------


def _text(text: str) -> str:
    """Escape text for XML; leave out characters that XML does not allow."""
    allowed = (c for c in text if c in "\t\n" or " " <= c <= "\ud7ff" or "\ue000" <= c <= "\ufffd" or c > "\uffff")
    escaped = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;"}
    return "".join(escaped.get(c, c) for c in allowed)


def _text_width(text: str, size: float) -> float:
    """Estimate a text's width in pixels."""
    return size * sum(_char_widths(text))


def _char_widths(text: str) -> Iterable[float]:
    for c in text:
        if unicodedata.combining(c):
            yield 0.0
        elif unicodedata.east_asian_width(c) in "WF":
            yield 1.0
        else:
            yield 0.30 if c in "ijl.,:;'| ()[]tfrI" else 0.86 if c in "mwMW@" else 0.67 if c.isupper() else 0.56


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1].rstrip() + "…"


def _cut_px(text: str, size: float, width: float) -> str:
    while _text_width(text, size) > width and len(text) > 2:
        text = text[:-2].rstrip() + "…"
    return text


def _within(box: _Box, view: _View) -> bool:
    return box[0] > view.x + 3 and box[1] > view.y + 3 and box[2] < view.x + view.width - 3 and box[3] < view.y + view.height - 3


def _overlap(a: _Box, b: _Box) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]
