"""Distances on the globe: a sphere of the earth's mean radius, along great circles.

The earth is flatter at the poles than a sphere, so a distance here differs from the true one by up to 0.6 %.
"""

from __future__ import annotations

from math import asin, cos, pi, sin, sqrt

__all__ = ["EARTH_RADIUS_M", "great_circle_m"]

EARTH_RADIUS_M = 6_371_008.8
"""The mean radius of the earth (IUGG), in metres."""

_RADIANS = pi / 180


def great_circle_m(lat: float, lon: float, other_lat: float, other_lon: float) -> float:
    """Return the distance in metres between two places in degrees, with the bits of :func:`dskype.spouts.sphere_kernels.great_circle_m`.

    >>> round(great_circle_m(52.52, 13.405, 48.137, 11.575))
    504339
    """
    across = abs(lon - other_lon)
    if across > 180:
        across = (180 - abs(lon)) + (180 - abs(other_lon))
    half_across, half_up, middle = across * _RADIANS * 0.5, (lat - other_lat) * _RADIANS * 0.5, (lat + other_lat) * _RADIANS * 0.5
    sin_across, sin_up = sin(half_across), sin(half_up)
    part = sin_up * sin_up + cos(lat * _RADIANS) * cos(other_lat * _RADIANS) * (sin_across * sin_across)
    if part <= 0.5:
        return 2 * EARTH_RADIUS_M * asin(sqrt(part))
    # Near the opposite side of the globe, what is missing of the whole has more digits than the part.
    with_cosine, with_sine = cos(half_across) * cos(half_up), sin_across * sin(middle)
    return EARTH_RADIUS_M * (pi - 2 * asin(sqrt(with_cosine * with_cosine + with_sine * with_sine)))
