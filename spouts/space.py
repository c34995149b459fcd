"""The data space: the rectangle of the globe that a topology covers."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from dskype.topology.errors import IllegalArgumentException

__all__ = ["WORLD", "Space"]


@dataclass(frozen=True)
class Space:
    """A rectangle in degrees, borders included. It does not cross the antimeridian.

    :param west: least longitude, -180..180.
    :param south: least latitude, -90..90.
    :param east: greatest longitude, more than ``west``.
    :param north: greatest latitude, more than ``south``.
    :raises IllegalArgumentException: the borders are not numbers, or not in order.

    >>> europe = Space(-25, 34, 45, 72)
    >>> europe.contains(lat=48.1, lon=11.6), europe.contains(lat=48.1, lon=-122.3)
    (True, False)
    >>> round(europe.diagonal_deg, 3)
    79.649
    """

    west: float
    south: float
    east: float
    north: float
    diagonal_deg: float = field(init=False, repr=False, compare=False)
    """The length of the diagonal in degrees: what distances are divided by in scores."""

    def __post_init__(self) -> None:
        borders = (self.west, self.south, self.east, self.north)
        if not (
            all(isinstance(b, (int, float)) and not isinstance(b, bool) for b in borders)
            and -180 <= self.west < self.east <= 180
            and -90 <= self.south < self.north <= 90
        ):
            raise IllegalArgumentException(
                "Expected a data space [west, south, east, north] in degrees",
                given=list(borders),
                legal="-180 <= west < east <= 180, -90 <= south < north <= 90",
            )
        for name, border in zip(("west", "south", "east", "north"), borders):
            object.__setattr__(self, name, float(border))
        object.__setattr__(self, "diagonal_deg", math.hypot(self.east - self.west, self.north - self.south))

    def contains(self, lat: float, lon: float) -> bool:
        """Tell whether a point is inside, borders included; a NaN never is."""
        return self.south <= lat <= self.north and self.west <= lon <= self.east


WORLD = Space(-180, -90, 180, 90)
"""The whole globe: the default."""
