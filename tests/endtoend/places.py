"""Random regions for the worlds of the end-to-end oracle, and in the plainest way whether two places share a point.

Worlds lie in a small square around 0, 0, where regions have corners with whole degrees. Some worlds are turned: all longitudes are moved by 180 degrees, so that the antimeridian
runs through the middle. Judged is what was drawn, before it was turned; there a ring is a polygon in a plane.
"""

from __future__ import annotations

import functools
import json
import math
import random
from itertools import pairwise
from typing import Any

from dskype.deploy.verification import geometry
from tests import naive
from tests.spouts.region_worlds import any_region

_RADIUS_M = 6_371_008.8
_NEAR_DEG = 40
"""No coordinate of what is drawn in the small square is greater; those of regions anywhere on the globe mostly are."""


class Places:
    """Gives messages and boolean subscriptions regions, and turns them.

    :param rng: what it draws from.
    :param often: the probability of a region.
    :param turned: whether all longitudes are moved by 180 degrees.
    """

    def __init__(self, rng: random.Random, often: float, turned: bool) -> None:
        self._rng, self._often, self.turned = rng, often, turned

    def of_message(self, record: dict[str, Any]) -> dict[str, Any]:
        """Return a message, perhaps with a region in place of its point or rectangle."""
        if self._rng.random() < self._often:
            record = {name: value for name, value in record.items() if name not in ("lat", "lon", "bbox")} | {"region": random_region(self._rng)}
        return turned(record) if self.turned else record

    def of_subscription(self, record: dict[str, Any] | None) -> dict[str, Any] | None:
        """Return a subscription, perhaps with a region in place of its rectangle."""
        if record is None:
            return None
        if "bbox" in record and self._rng.random() < 2 * self._often:
            record = {name: value for name, value in record.items() if name != "bbox"} | {"region": random_region(self._rng)}
            if self._rng.random() < 0.15:
                return record | {"region": any_region(self._rng)[0]}
        return turned(record) if self.turned else record


def random_region(rng: random.Random) -> Any:
    """Return a circle, a polygon, perhaps with a hole, or several of these, with its middle in the square."""
    shapes = [_random_shape(rng) for _ in range(rng.choice([1, 1, 1, 2, 3]))]
    return shapes if len(shapes) > 1 or rng.random() < 0.1 else shapes[0]


def _random_shape(rng: random.Random) -> Any:
    kind = rng.choice("ccpphmr")
    if kind == "c":
        return {"center": {"lat": rng.randint(-6, 6), "lon": rng.randint(-6, 6)}, "radius_m": rng.choice([1, 1e5, 4e5]) * rng.uniform(0.5, 1)}
    if kind == "r":
        (west, east), (south, north) = (sorted(rng.randint(-10, 10) for _ in range(2)) for _ in range(2))
        return {"bbox": [west, south, east, north]}
    if kind == "m":
        return {"type": "MultiPolygon", "coordinates": [[_ring(rng)], [_ring(rng)]]}
    if kind == "h":  # a square with a hole
        return {"type": "Polygon", "coordinates": [_square(rng, rng.randint(5, 10)), _square(rng, rng.randint(1, 5))]}
    return {"type": "Polygon", "coordinates": [_ring(rng)]}


def _ring(rng: random.Random) -> list[list[int]]:
    corners = [[rng.randint(-10, 10), rng.randint(-10, 10)] for _ in range(rng.randint(3, 6))]
    return [*corners, corners[0]]


def _square(rng: random.Random, half: int) -> list[list[int]]:
    ring = [[-half, -half], [half, -half], [half, half], [-half, half], [-half, -half]]
    return ring[::-1] if rng.random() < 0.5 else ring


# -- turning --------------------------------------------------------------------------------------


def turn(lon: float) -> float:
    """Move a longitude by 180 degrees; twice is where it was."""
    return lon + 180 if lon <= 0 else lon - 180


def turned(record: dict[str, Any]) -> dict[str, Any]:
    """Return a record with all its longitudes moved by 180 degrees."""
    found = dict(record)
    if "lon" in record:
        found["lon"] = turn(record["lon"])
    if "bbox" in record:
        west, south, east, north = record["bbox"]
        found["bbox"] = [turn(west), south, turn(east), north]
    if "region" in record:
        region = record["region"]
        found["region"] = list(map(_turned_shape, region)) if isinstance(region, list) else _turned_shape(region)
    return found


def _turned_shape(shape: Any) -> Any:
    if "center" in shape:
        return shape | {"center": turned(shape["center"])}
    return turned(shape) if "bbox" in shape else shape | {"coordinates": _turned_positions(shape["coordinates"])}


def _turned_positions(value: Any) -> Any:
    return [turn(value[0]), value[1]] if not isinstance(value[0], list) else list(map(_turned_positions, value))


# -- judging --------------------------------------------------------------------------------------


def sharing(subscription: dict[str, Any], message: dict[str, Any], is_turned: bool) -> bool:
    """Tell whether a message is where a boolean subscription looks.

    :param subscription: its record.
    :param message: its record.
    :param is_turned: whether the world is turned.
    """
    own, other = _place_of(subscription), _place_of(message)
    return own is None or (other is not None and _share(json.dumps(own), json.dumps(other), is_turned))


def _place_of(record: dict[str, Any]) -> dict[str, Any] | None:
    """Return that part of a record which says where it is; a region that is one rectangle is that rectangle."""
    if "region" in record:
        region = record["region"]
        return {"bbox": geometry.shapes_of(region)[0][1]} if geometry.is_box(region) else {"region": region}
    if "bbox" in record:
        return {"bbox": record["bbox"]}
    return {"lat": record["lat"], "lon": record["lon"]} if "lat" in record else None


@functools.lru_cache(100_000)
def _share(one: str, other: str, is_turned: bool) -> bool:
    places = [json.loads(one), json.loads(other)]
    drawn = [turned(place) for place in places] if is_turned else places
    if not any("region" in place for place in places):
        return naive.overlapping(*map(_box, drawn))
    if max(map(_farthest, drawn)) <= _NEAR_DEG:
        shapes, others = map(_shapes, drawn)
        return any(_gap_m(a, b) <= 0 for a in shapes for b in others)
    regions = [place.get("region") or {"bbox": _box(place)} for place in places]
    boxes = [geometry.widened(geometry.box_of(region)) for region in regions]
    if not naive.overlapping(*boxes):
        return False
    if "lat" in places[1]:
        return geometry.gap_m(regions[0], places[1]["lat"], places[1]["lon"]) <= 0
    return geometry.regions_gap_m(*regions) <= 0


def _box(place: dict[str, Any]) -> list[float]:
    return place["bbox"] if "bbox" in place else [place["lon"], place["lat"], place["lon"], place["lat"]]


def _farthest(place: Any) -> float:
    """Return the greatest coordinate; rectangles around almost all of the globe do not count."""
    if "bbox" in place:
        return 0 if place["bbox"][0] > place["bbox"][2] else max(map(abs, place["bbox"]))
    if "region" not in place:
        return max(abs(place["lat"]), abs(place["lon"]))
    shapes = geometry.shapes_of(place["region"])
    circles = [max(abs(shape[0]), abs(shape[1]), shape[2] / 1e5) for kind, shape in shapes if kind == "circle"]
    corners = [abs(x) for kind, shape in shapes if kind == "polygon" for ring in shape for corner in ring for x in corner]
    return max([*circles, *corners, *(abs(x) for kind, shape in shapes if kind == "rectangle" for x in shape)])


def _shapes(place: dict[str, Any]) -> list[tuple[float, list[list[tuple[float, float]]]]]:
    """Return shapes as (radius in metres, rings): a circle is a ring of one position, its centre, and a point has the radius 0."""
    if "region" not in place and "bbox" not in place:
        return [(0.0, [[(place["lon"], place["lat"])]])]
    found: list[Any] = []
    for kind, shape in geometry.shapes_of(place.get("region") or {"bbox": place["bbox"]}):
        if kind == "circle":
            found.append((shape[2], [[(shape[1], shape[0])]]))
        elif kind == "polygon":
            found.append((0.0, shape))
        else:
            west, south, east, north = shape
            for w, e in [(west, east)] if west <= east else [(west - 360, east), (west, east + 360)]:
                found.append((0.0, [[(w, south), (e, south), (e, north), (w, north), (w, south)]]))
    return found


def _gap_m(one: Any, other: Any) -> float:
    """Return how far two shapes are apart; infinite where that is neither 0 nor a matter of a circle."""
    (radius_m, rings), (other_m, other_rings) = one, other
    corners, others = ([corner for ring in both for corner in ring] for both in (rings, other_rings))
    if any(_inside(corner, other_rings) for corner in corners) or any(_inside(corner, rings) for corner in others):
        return 0.0
    edges, other_edges = ([edge for ring in both for edge in pairwise(ring)] for both in (rings, other_rings))
    if any(_meet(edge, line) for edge in edges for line in other_edges):
        return 0.0
    if not radius_m and not other_m:
        return math.inf
    centre, lines = (corners[0], other_edges) if radius_m else (others[0], edges)
    nearest_m = min(_nearest_m(centre, line) for line in lines) if lines else _distance_m(corners[0], others[0])
    return nearest_m - radius_m - other_m


def _inside(place: tuple[float, float], rings: Any) -> bool:
    """Tell whether a place is in a polygon or on its border, by the even-odd rule."""
    x, y = place
    inside = False
    for ring in rings:
        for (ax, ay), (bx, by) in pairwise(ring):
            if _side((ax, ay), (bx, by), place) == 0 and min(ax, bx) <= x <= max(ax, bx) and min(ay, by) <= y <= max(ay, by):
                return True
            if (ay > y) != (by > y) and (_side((ax, ay), (bx, by), place) > 0) == (by > ay):
                inside = not inside
    return inside


def _side(a: Any, b: Any, place: Any) -> float:
    return (b[0] - a[0]) * (place[1] - a[1]) - (b[1] - a[1]) * (place[0] - a[0])


def _meet(edge: Any, other: Any) -> bool:
    """Tell whether two edges cross; those that touch with an end are found as corners on borders."""
    (a, b), (c, d) = edge, other
    return _side(a, b, c) * _side(a, b, d) < 0 and _side(c, d, a) * _side(c, d, b) < 0


def _distance_m(one: Any, other: Any) -> float:
    lon, lat, other_lon, other_lat = map(math.radians, (*one, *other))
    square = math.sin((other_lat - lat) / 2) ** 2 + math.cos(lat) * math.cos(other_lat) * math.sin((other_lon - lon) / 2) ** 2
    return 2 * _RADIUS_M * math.asin(math.sqrt(square))


def _nearest_m(place: Any, edge: Any) -> float:
    """Return the least distance from a place to an edge: from ever finer samples around the best one."""
    (ax, ay), (bx, by) = edge
    best, middle, width = math.inf, 0.5, 1.0
    while width > 1e-9:
        shares = [min(1.0, max(0.0, middle + width * (i / 16 - 0.5))) for i in range(17)]
        best, middle = min((_distance_m(place, (ax + (bx - ax) * share, ay + (by - ay) * share)), share) for share in shares)
        width /= 4
    return best
