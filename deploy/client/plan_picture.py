"""Draw distribution plans as SVG: cells on a map, ranges of keywords as bars."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from dskype.deploy.client.balancing import balance
from dskype.deploy.client.plans import with_partitions
from dskype.spouts.input_mapping import MessageReader
from dskype.spouts.readers import RecordFile
from dskype.spouts.record_values import RecordError

if TYPE_CHECKING:
    from dskype.spouts.settings import Settings

__all__ = ["colour", "draw", "places_of"]

_WIDTH, _MARGIN, _BARS = 1000, 28, 260
_MANY, _ROW = 4, 9
"""With more ranges per task than this, each task is a row instead of bars; height of such a row."""

_WORLD = (-180.0, -60.0, 180.0, 80.0)
_STYLE = "text{font-family:'DejaVu Sans',Verdana,sans-serif;fill:#dbe6f5}.far{fill:#8fa3c0}.dots{stroke:#4f8fe8;stroke-linecap:round;fill:none}"


def places_of(file: str | None, settings: Settings) -> tuple[np.ndarray, np.ndarray] | None:
    """Return (lat, lon) of the messages in a file, of an area its centre; None without a file. Records without a place are left out."""
    if file is None:
        return None
    source = RecordFile(file, settings.input)
    reader, places = MessageReader(settings, source.mapping), []
    for _, value in source:
        with contextlib.suppress(RecordError):
            if not isinstance(value, RecordError):
                places.append(reader.place(value))
    found = np.array(places, np.float64).reshape(-1, 2)
    return found[:, 0], found[:, 1]


def colour(task: int) -> str:
    """Return the colour of a task."""
    return f"hsl({round(360 * ((task * 0.618034) % 1))},62%,{58 if task % 2 else 48}%)"


def draw(plan: Mapping[str, Any], messages: tuple[np.ndarray, np.ndarray] | None = None) -> str:
    """Return the picture of a plan: a map if it has cells, bars if it has ranges of keywords, and both for hybrids.

    :param messages: latitudes and longitudes in degrees, drawn as dots on the map.
    """
    parts = with_partitions(plan).leaves()
    boxes = any(border is not None for part in parts for border in part.box)
    ranges = any(part.terms != (0, None) for part in parts)
    height, body = 70, []
    for wanted, make in ((boxes, lambda y: _maps(parts, plan["tasks"], messages, y)), (ranges, lambda y: _bars(parts, plan["tasks"], y))):
        if wanted:
            drawn, used = make(height)
            body += drawn
            height += used
    spread = balance(np.array(plan["loads"], np.float64))
    title = f"{plan['distributor']}: {len(parts)} partitions on {plan['tasks']} tasks"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}" role="img">',
            f"<title>{title}</title><style>{_STYLE}</style>",
            f'<rect width="{_WIDTH}" height="{height}" fill="#0b1220"/>',
            f'<text x="{_MARGIN}" y="36" font-size="22" font-weight="700">{title}</text>',
            f'<text x="{_MARGIN}" y="58" font-size="13" class="far">greatest load / mean: {spread:.2f}; a colour is a task</text>',
            *body,
            "</svg>\n",
        ]
    )


def _maps(parts: list[Any], tasks: int, messages: tuple[np.ndarray, np.ndarray] | None, y0: float) -> tuple[list[str], int]:
    """Draw one map, or one map for each range of keywords that has its own cells."""
    ranges = list(dict.fromkeys(part.terms for part in parts))
    if len(ranges) == 1 or not any(not part.in_range for part in parts):
        return _map(parts, tasks, messages, (_MARGIN, y0), _WIDTH - 2 * _MARGIN)
    drawn, used = [], 0
    width = (_WIDTH - 3 * _MARGIN) / 2
    for number, terms in enumerate(ranges):
        first, end = terms
        x = _MARGIN + number % 2 * (width + _MARGIN)
        some, height = _map([part for part in parts if part.terms == terms], tasks, messages, (x, y0 + used + 18), width)
        last = "the last" if end is None else f"{end - 1:,}"
        drawn += [f'<text x="{x:g}" y="{y0 + used + 12:g}" font-size="12" class="far">words {first:,} to {last}</text>', *some]
        used += height + 18 if number % 2 or number == len(ranges) - 1 else 0
    return drawn, used


def _map(parts: list[Any], tasks: int, messages: tuple[np.ndarray, np.ndarray] | None, corner: tuple[float, float], width: float) -> tuple[list[str], int]:
    west, south, east, north = _WORLD
    x0, y0 = corner
    scale = width / (east - west)
    height = (north - south) * scale

    def at(lat: float, lon: float) -> tuple[float, float]:
        return x0 + (min(max(lon, west), east) - west) * scale, y0 + (north - min(max(lat, south), north)) * scale

    drawn = [f'<rect x="{x0:g}" y="{y0:g}" width="{width:g}" height="{height:.1f}" fill="#101a2e" rx="6"/>']
    seen: dict[tuple[Any, ...], list[int]] = {}
    for part in parts:
        seen.setdefault(part.box, []).extend(part.node["tasks"])
    hybrid = any(part.in_range for part in parts)
    cells, dots = [], []
    for number, (box, own) in enumerate(seen.items()):
        x1, y2 = at(south if box[1] is None else box[1], west if box[0] is None else box[0])
        x2, y1 = at(north if box[3] is None else box[3], east if box[2] is None else box[2])
        if x2 - x1 < 0.05 or y2 - y1 < 0.05:
            continue
        tint = colour(number if hybrid else own[0])
        cells.append(
            f'<rect x="{x1:.1f}" y="{y1:.1f}" width="{x2 - x1:.1f}" height="{y2 - y1:.1f}" fill="{tint}" fill-opacity=".22" stroke="{tint}" stroke-width="1"/>'
        )
        if x2 - x1 > 14 and y2 - y1 > 10 and not (hybrid and len(own) > 1):
            cells.append(f'<text x="{(x1 + x2) / 2:.1f}" y="{(y1 + y2) / 2 + 4:.1f}" font-size="11" text-anchor="middle">{",".join(map(str, own[:2]))}</text>')
    if messages is not None:
        lat, lon = messages
        inside = (lat >= south) & (lat <= north)
        x, y = ((lon[inside] - west) * scale / 1.9).astype(np.int64), ((north - lat[inside]) * scale / 1.9).astype(np.int64)
        columns = int(width / 1.9) + 2
        grid, counts = np.unique(y * columns + x, return_counts=True)
        for least, most, opacity in ((1, 3, 0.35), (3, 10, 0.6), (10, None, 0.95)):
            some = grid[(counts >= least) & (counts < most if most else True)]
            if not len(some):
                continue
            ends = np.flatnonzero((np.diff(some) != 1) | (some[1:] % columns == 0))
            first, last = some[np.concatenate(([0], ends + 1))], some[np.concatenate((ends, [len(some) - 1]))]
            path = "".join(f"M{a % columns} {a // columns}h{b - a}" for a, b in zip(first.tolist(), last.tolist()))
            dots.append(f'<path class="dots" transform="translate({x0:g} {y0:g})scale(1.9)" stroke-width=".8" opacity="{opacity}" d="{path}"/>')
    return [*drawn, *dots, *cells], round(height) + 24


def _rows(ranges: Mapping[tuple[int, int | None], list[Any]], tasks: int, x_of: Mapping[int, float], top: float) -> list[str]:
    """Draw a row for each task that shows where its ranges are, on the scale of the bars."""
    paths: list[list[str]] = [[] for _ in range(tasks)]
    for terms, nodes in ranges.items():
        begin, end = x_of[terms[0]], _WIDTH - _MARGIN if terms[1] is None else x_of[terms[1]]
        for task in (t for node in nodes for t in node["tasks"]):
            paths[task].append(f"M{begin:.1f} {top + _ROW * (task + 0.5):g}h{max(0.6, end - begin - 0.3):.1f}")
    return [
        f'<path d="{"".join(path)}" stroke="{colour(task)}" stroke-width="{_ROW - 2}" fill="none"><title>task {task}: {len(path)} ranges</title></path>'
        for task, path in enumerate(paths)
    ]


def _bars(parts: list[Any], tasks: int, y0: float) -> tuple[list[str], int]:
    """Draw each list of ranges as bars, or as one row per task if there are many ranges.

    A bar is as high as the load of its range, and as wide as the range is on a logarithmic scale of the rank.
    """
    lists: dict[tuple[Any, ...], dict[tuple[int, int | None], list[Any]]] = {}
    inner = any(part.box != (None,) * 4 for part in parts) and not all(part.in_range for part in parts)
    for part in parts:
        lists.setdefault((None,) * 4 if inner else part.box, {}).setdefault(part.terms, []).append(part.node)
    drawn, used = [], 0
    high = _BARS if len(lists) == 1 else max(46, _BARS // len(lists))
    for ranges in lists.values():
        top = y0 + used
        width = _WIDTH - 2 * _MARGIN
        marks = [t for nodes in ranges.values() for node in nodes for t in node["marks"].get("term", ())]
        last = max([terms[0] for terms in ranges] + marks + [2]) + 1
        # Ranks are counted from the most frequent word, at the right: frequent words have the most ranges.
        x_of = {edge: _MARGIN + width * (1 - math.log(max(1, last - edge + 1)) / math.log(last + 1)) for terms in ranges for edge in terms if edge is not None}
        x_of[0] = float(_MARGIN)
        if len(ranges) > _MANY * tasks:
            drawn += _rows(ranges, tasks, x_of, top)
            used += _ROW * tasks + 8
            continue
        greatest = max(sum(n["load"] for n in nodes) for nodes in ranges.values()) or 1.0
        for terms, nodes in ranges.items():
            own = [t for node in nodes for t in node["tasks"]]
            x1, x2 = x_of[terms[0]], _MARGIN + width if terms[1] is None else x_of[terms[1]]
            load = sum(n["load"] for n in nodes)
            bar = max(2.0, (high - 34) * load / greatest)
            tint = colour(own[0])
            drawn.append(
                f'<rect x="{x1:.1f}" y="{top + high - 30 - bar:.1f}" width="{max(0.8, x2 - x1 - 0.6):.1f}" height="{bar:.1f}" fill="{tint}" fill-opacity=".75">'
                f"<title>words {terms[0]:,} to {'the last' if terms[1] is None else f'{terms[1] - 1:,}'}: tasks {', '.join(map(str, own))}, load {load:,.1f}</title></rect>"
            )
            if x2 - x1 > 16:
                drawn.append(
                    f'<text x="{(x1 + x2) / 2:.1f}" y="{top + high - 16:.1f}" font-size="10" text-anchor="middle" class="far">{own[0]}'
                    f"{'' if len(own) == 1 else '+'}</text>"
                )
        used += high
    drawn.append(
        f'<text x="{_MARGIN}" y="{y0 + used + 6:.1f}" font-size="12" class="far">rare words</text>'
        f'<text x="{_WIDTH - _MARGIN}" y="{y0 + used + 6:.1f}" font-size="12" text-anchor="end" class="far">frequent words (logarithm of the rank from here)</text>'
    )
    return drawn, used + 26
