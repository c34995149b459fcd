"""Areas: rectangles ``[west, south, east, north]`` in degrees, as places of messages and of boolean subscriptions.

Borders belong to an area. ``west > east`` crosses the antimeridian: such an area has the longitudes from ``west`` to 180 and from
-180 to ``east``. The longitudes -180 and 180 are different numbers, and an area has both only if it crosses or spans the globe.
"""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["areas_to_columns", "centre_of", "centres", "columns_to_areas", "overlap"]


def centre_of(west: float, south: float, east: float, north: float) -> tuple[float, float]:
    """Return (lat, lon) of an area's centre: where a message that is an area lies for top-k subscriptions.

    >>> centre_of(11.0, 48.0, 12.0, 49.0), centre_of(170.0, -10.0, -160.0, 10.0)
    ((48.5, 11.5), (0.0, -175.0))
    """
    lon = (west + east) / 2 if west <= east else (west + east + 360) / 2
    return (south + north) / 2, lon - 360 if lon > 180 else lon


def centres(areas: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return (lat, lon) of the centres of areas, both float64[n], with the bits of :func:`centre_of`.

    :param areas: float64[n, 4].
    """
    west, south, east, north = areas.T
    lon = np.where(west <= east, west + east, west + east + 360) / 2
    return (south + north) / 2, np.where(lon > 180, lon - 360, lon)


def areas_to_columns(lat: np.ndarray, lon: np.ndarray, areas: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Return the columns ``lat`` and ``lon`` in which messages travel between tasks.

    They are float64[n] where all messages are points, and float64[n, 2] where there are areas: (south, north) and (west, east). So
    points travel as they would if there were no areas.
    """
    return (lat, lon) if areas is None else (areas[:, 1::2], areas[:, 0::2])


def columns_to_areas(lat: Any, lon: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Return (lat, lon, areas) of the columns that :func:`areas_to_columns` made, as copies; areas is None where all messages are points."""
    lat, lon = np.array(lat, np.float64), np.array(lon, np.float64)
    if lat.ndim == 1:
        return lat, lon, None
    areas = np.stack([lon[:, 0], lat[:, 0], lon[:, 1], lat[:, 1]], axis=1)
    return *centres(areas), areas


def overlap(areas: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Tell which areas share a point with which others, borders included.

    :param areas: float64[..., 4].
    :param others: float64[..., 4]; both are broadcast against each other.
    :returns: bool[...].
    """
    west, south, east, north = np.moveaxis(areas, -1, 0)
    other_west, other_south, other_east, other_north = np.moveaxis(others, -1, 0)
    crosses, other_crosses = west > east, other_west > other_east
    begins, ends = west <= other_east, other_west <= east
    # Of two areas that cross, both have the antimeridian; of one that does and one that does not, one end is enough.
    return (south <= other_north) & (other_south <= north) & ((begins & ends) | (crosses & other_crosses) | ((crosses | other_crosses) & (begins | ends)))
