"""Where top-k subscriptions live if messages go to the tasks of their places: on the tasks near enough."""

from __future__ import annotations

import numpy as np

from dskype.distribution.agrid.grid import AGrid
from dskype.distribution.base import Placed
from dskype.distribution.methods.keyword import loose_limit
from dskype.distribution.subscriptions import TopkSubscription
from dskype.spouts.score_kernels import MARGIN
from dskype.spouts.sphere_kernels import EARTH_RADIUS_M, RADIANS

__all__ = ["near_tasks", "reach_of"]

_LONGEST_DEG = 402.5
"""No data space has a longer diagonal: the world's is 402.49 degrees."""

_SLACK = 0.1
"""By how much of itself a threshold may fall before a top-k subscription needs more tasks."""


def reach_of(grid: AGrid) -> np.ndarray:
    """Return west, south, east and north of each partition in degrees, float64[partitions, 4]; infinite where it reaches to the border of the grid."""
    found = np.array([grid.degrees(cells) for cells in grid.partitions().values()])
    cells = np.array(list(grid.partitions().values()))
    ends = cells == [0, 0, grid.columns, grid.rows]
    return np.where(ends, [-np.inf, -np.inf, np.inf, np.inf], found)


def near_tasks(subscription: TopkSubscription, threshold: float, reach: np.ndarray, tasks_of: np.ndarray, tasks: int) -> Placed:
    """Return the tasks from whose zones a message may reach a score, and as the guard what one from elsewhere may reach. O(zones).

    :param threshold: the score.
    :param reach: float64[n, 4], west, south, east and north of zones in degrees.
    :param tasks_of: int[n], the task that messages from there go to. A zone may occur several times; the tasks that do not occur get no messages.
    :param tasks: number of tasks.
    """
    west, south, east, north = reach.T
    lat, lon, alpha, scale_m = subscription.lat, subscription.lon, subscription.alpha, subscription.scale_m
    if scale_m is None:
        distance_deg = np.hypot(np.maximum(np.maximum(west - lon, lon - east), 0.0), np.maximum(np.maximum(south - lat, lat - north), 0.0))
        bounds = alpha * (1.0 - distance_deg / _LONGEST_DEG) + (1.0 - alpha) + MARGIN
    else:
        bounds = alpha * (1.0 - np.minimum(_least_m(lat, lon, reach) / scale_m, 1.0)) + (1.0 - alpha) + MARGIN * (1.0 + 10.0 / scale_m)
    best = np.full(tasks, -np.inf)
    np.maximum.at(best, tasks_of, bounds)
    near = best >= min(loose_limit(threshold, _SLACK), best.max())
    return Placed(np.flatnonzero(near).tolist(), float(best[~near].max(initial=-np.inf)))


def _least_m(lat: float, lon: float, reach: np.ndarray) -> np.ndarray:
    """Return less than the metres from a place to the nearest point of each zone, float64[n]: the way to its parallels, or that to its meridians."""
    west, south, east, north = np.clip(reach, [-180.0, -90.0, -180.0, -90.0], [180.0, 90.0, 180.0, 90.0]).T
    up_deg = np.maximum(np.maximum(south - lat, lat - north), 0.0)
    across_deg = np.min([np.maximum(np.maximum(west - x, x - east), 0.0) for x in (lon - 360.0, lon, lon + 360.0)], axis=0)
    # A meridian is nearest where a great circle meets it at a right angle; one on the other side of the globe, at the pole.
    across = np.where(across_deg < 90.0, np.arcsin(np.cos(lat * RADIANS) * np.sin(across_deg * RADIANS)), (90.0 - abs(lat)) * RADIANS)
    return np.maximum(np.maximum(up_deg * RADIANS, across) * EARTH_RADIUS_M * (1.0 - MARGIN), 0.0)
