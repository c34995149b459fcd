"""What a message needs, at the least, to reach the score of a threshold subscription: where it has to be, and one of which words it has to have.

A message outside of the rectangle, or without any of these words, scores less than ``min_score``. So indexes and distributors treat a threshold subscription
as a boolean one, and only what they find is scored. Both bounds are a little wide, so that rounding leaves no message out.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

__all__ = ["needed_terms", "reach"]

_MARGIN = 1e-9
"""More than all rounding errors of a score together, as in :mod:`dskype.spouts.score_kernels`, which clients cannot load."""
_MARGIN_DEG = 1e-12
"""More than the rounding errors of a border in degrees."""


def reach(alpha: float, lat: float, lon: float, scale_m: float | None, min_score: float, diagonal_deg: float) -> tuple[float, float, float, float]:
    """Return the rectangle (west, south, east, north) outside of which no message reaches a score; west > east crosses the antimeridian. O(1).

    A textual similarity is at most 1, so a message needs the spatial similarity ``(min_score - (1 - alpha)) / alpha``.

    :param alpha: weight of the distance, 0..1; ``lat``, ``lon``: of the subscription, degrees.
    :param scale_m: distances are in metres, and the spatial similarity is 0 from here on; None: they are in degrees.
    :param min_score: 0..1.
    :param diagonal_deg: of the data space.

    >>> [round(border, 6) for border in reach(0.5, 48.0, 11.0, None, 0.75, 10.0)]
    [6.0, 43.0, 16.0, 53.0]
    >>> reach(0.5, 48.0, 11.0, 5000, 0.4, 10.0)
    (-180.0, -90.0, 180.0, 90.0)
    """
    needed = min_score - _MARGIN - (1 - alpha)
    if needed <= 0:
        return -180.0, -90.0, 180.0, 90.0
    far = 1 - needed / alpha  # as a part of the scale, or of the diagonal
    if scale_m is not None:
        from dskype.spouts.regions import RADIUS_M_MAX, bounding_box, parse_region  # here, because clients of distances in degrees need not load numpy

        return bounding_box(parse_region({"center": {"lat": lat, "lon": lon}, "radius_m": min(far * scale_m, RADIUS_M_MAX)}))
    far_deg = far * diagonal_deg + _MARGIN_DEG
    return max(-180.0, lon - far_deg), max(-90.0, lat - far_deg), min(180.0, lon + far_deg), min(90.0, lat + far_deg)


def needed_terms(alpha: float, min_score: float, terms: Sequence[int], weights: Sequence[float]) -> list[int]:
    """Return terms, rising, of which every message that reaches a score has one: all but those that do not suffice together. O(terms * log(terms)).

    The weights of a message have norm 1. So the textual similarity through some terms alone is at most the norm of their weights in the subscription (Cauchy-Schwarz).

    :param terms: of the subscription, at least one; ``weights``: theirs.

    >>> needed_terms(0.5, 0.8, [3, 7, 9], [0.8, 0.5, 0.33])
    [3]
    >>> needed_terms(0.5, 0.5, [3, 7, 9], [0.8, 0.5, 0.33])
    [3, 7, 9]
    """
    ordered = sorted(zip(weights, terms))
    left_out, squares = 0, 0.0
    for weight, _ in ordered[:-1]:
        squares += weight * weight
        if alpha + (1 - alpha) * sqrt(squares) >= min_score - _MARGIN:
            break
        left_out += 1
    return sorted(term for _, term in ordered[left_out:])
