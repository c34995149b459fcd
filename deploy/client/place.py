"""Where a boolean subscription looks, and whether a message is there.

Regions are tested by what the subscription bolt tests them by (:mod:`dskype.spouts.region_table`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dskype.spouts.records import Message
from dskype.spouts.region_table import RegionTable
from dskype.spouts.regions import Circle, Polygon, decode_region
from dskype.spouts.sphere import great_circle_m
from dskype.spouts.subscriptions import BooleanSubscription

__all__ = ["Place", "borders_between", "distance_km"]

_EARTH_KM = 6371.0
_FIRST = np.zeros(1, np.int64)


class Place:
    """The rectangle of a boolean subscription, and its region."""

    def __init__(self, subscription: BooleanSubscription) -> None:
        self._bbox, self._region = subscription.bbox, subscription.region
        self._table = RegionTable()
        if self._region is not None:
            self._table.put(0, self._region)

    def has(self, message: Message) -> bool:
        """Tell whether a message shares a place with the subscription."""
        return not borders_between(self._bbox, message) and self._touches(message)

    def _touches(self, message: Message) -> bool:
        """Tell whether the regions share a place; where one of the two has none, its rectangle or point counts."""
        if self._region is None and message.region is None:
            return True
        return self._touching(message.lat, message.lon, message.bbox, message.region)

    def _touching(self, lat: float, lon: float, bbox: Any, region: Any) -> bool:
        shapes = np.array(region or (), np.float64)
        found = self._table.touches(
            _FIRST,
            _FIRST,
            np.array([lat]),
            np.array([lon]),
            areas=None if bbox is None else np.array([bbox], np.float64),
            shape_offsets=np.array([0, len(shapes)]),
            shapes=shapes,
            boxes=np.array([self._bbox], np.float64),
        )
        return bool(found[0])

    def prepare(self) -> None:
        """Load what tests regions, which takes seconds where it has to be compiled, so that the first message takes no longer than the others."""
        if self._region is not None:
            self._touching(0.0, 0.0, None, None)

    def explain_region(self, message: Message) -> dict[str, Any] | None:
        """Say whether the regions share a place; see :func:`~dskype.deploy.client.explanation.explain_boolean`."""
        if self._region is None and message.region is None:
            return None
        shapes = () if self._region is None else tuple(decode_region(self._region))
        circle = shapes[0] if len(shapes) == 1 and isinstance(shapes[0], Circle) and message.bbox is None else None
        return {
            "inside": self._touches(message),
            "subscription": "the rectangle" if self._region is None else _in_words(self._region),
            "message": _in_words(message.region) if message.region is not None else "the place" if message.bbox is None else "the area",
            "distance_m": None if circle is None else great_circle_m(message.lat, message.lon, circle.lat, circle.lon),
        }


def _in_words(region: Sequence[float]) -> str:
    shapes = list(decode_region(region))
    if len(shapes) > 1:
        return f"the region of {len(shapes)} shapes"
    if isinstance(shapes[0], Circle):
        return f"the circle of {shapes[0].radius_m:,.10g} m around {shapes[0].lat:.10g}, {shapes[0].lon:.10g}"
    if isinstance(shapes[0], Polygon):
        return f"the polygon of {sum(len(corners) for _, corners in shapes[0].rings)} corners"
    return "the rectangle"


def borders_between(bbox: Sequence[float], message: Message) -> list[dict[str, Any]]:
    """Return the borders of a rectangle that lie between it and a message, with the gap; [] if they share a point.

    ``by_deg`` is the gap in the plane of degrees, which counts; ``by_km`` is the way on the globe, also across the antimeridian.
    """
    west, south, east, north = bbox
    area = message.bbox or (message.lon, message.lat, message.lon, message.lat)
    found = []
    for border, gap_deg in (("south", south - area[3]), ("north", area[1] - north)):
        if gap_deg > 0:
            found.append({"border": border, "by_deg": gap_deg, "by_km": distance_km(0.0, 0.0, gap_deg, 0.0)})
    gaps = [
        (max(w - other_e, other_w - e), "west" if w - other_e > other_w - e else "east")
        for w, e in _spans(west, east)
        for other_w, other_e in _spans(area[0], area[2])
    ]
    gap_deg, border = min(gaps)
    if gap_deg > 0:
        lat = (area[1] + area[3]) / 2
        by_km = min(distance_km(lat, a, lat, b) for a, b in ((west, area[2]), (east, area[0])))
        found.append({"border": border, "by_deg": gap_deg, "by_km": by_km})
    return found


def _spans(west: float, east: float) -> list[tuple[float, float]]:
    return [(west, east)] if west <= east else [(west, 180.0), (-180.0, east)]


def distance_km(lat: float, lon: float, other_lat: float, other_lon: float) -> float:
    """Return the length of the great circle between two points, to the millimetre: rounding errors of the sines are less."""
    a, b = math.radians(lat), math.radians(other_lat)
    h = math.sin((b - a) / 2) ** 2 + math.cos(a) * math.cos(b) * math.sin(math.radians(other_lon - lon) / 2) ** 2
    return round(2 * _EARTH_KM * math.asin(min(1.0, math.sqrt(h))), 6)
