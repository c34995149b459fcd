"""Kernels for distances on the globe; :mod:`dskype.spouts.sphere` has the same for those who do without numba.

The distance is that of the haversine formula on a sphere of 6,371,008.8 m, the mean radius of the earth.
"""

from __future__ import annotations

import numpy as np

from dskype.topology.kernel_cache import njit

__all__ = ["EARTH_RADIUS_M", "RADIANS", "great_circle_m", "great_circles_m"]

EARTH_RADIUS_M = 6_371_008.8
"""As in :mod:`dskype.spouts.sphere`."""
RADIANS = np.pi / 180
"""In a degree."""


@njit(cache=True)
def great_circle_m(lat, lon, other_lat, other_lon):
    """Return the distance in metres between two places in degrees."""
    across = abs(lon - other_lon)
    if across > 180.0:
        across = (180.0 - abs(lon)) + (180.0 - abs(other_lon))
    half_across, half_up, middle = across * RADIANS * 0.5, (lat - other_lat) * RADIANS * 0.5, (lat + other_lat) * RADIANS * 0.5
    sin_across, sin_up = np.sin(half_across), np.sin(half_up)
    part = sin_up * sin_up + np.cos(lat * RADIANS) * np.cos(other_lat * RADIANS) * (sin_across * sin_across)
    if part <= 0.5:
        return 2 * EARTH_RADIUS_M * np.arcsin(np.sqrt(part))
    # Near the opposite side of the globe, what is missing of the whole has more digits than the part.
    with_cosine, with_sine = np.cos(half_across) * np.cos(half_up), sin_across * np.sin(middle)
    return EARTH_RADIUS_M * (np.pi - 2 * np.arcsin(np.sqrt(with_cosine * with_cosine + with_sine * with_sine)))


@njit(cache=True)
def great_circles_m(lat, lon, lats, lons):
    """Return the distances in metres, float64[n], from one place to others (float64[n], degrees)."""
    distances_m = np.empty(len(lats))
    for i in range(len(lats)):
        distances_m[i] = great_circle_m(lat, lon, lats[i], lons[i])
    return distances_m
