"""Seeded boolean subscriptions and messages, and what should match."""

from __future__ import annotations

import random

import numpy as np

from dskype.spouts.areas import centre_of
from dskype.spouts.batch import MessageBatch
from tests.naive import overlapping, satisfies

UNKNOWN = [-1, -(1 << 62), -(1 << 40) - 12345]


def messages_of(rows):
    """Return a batch of (lat, lon, terms) and (area, terms); one of points alone has no areas."""
    n = len(rows)
    terms = [sorted(set(row[-1])) for row in rows]
    offsets = np.cumsum([0, *map(len, terms)]).astype(np.int64)
    flat = np.array([t for ts in terms for t in ts], np.int64)
    areas = np.array([place_of(row) for row in rows], float).reshape(-1, 4)
    points = [centre_of(*row[0]) if len(row) == 2 else row[:2] for row in rows]
    lat, lon = (np.array([point[i] for point in points], float) for i in (0, 1))
    return MessageBatch(np.arange(n), np.arange(n), lat, lon, offsets, flat, np.ones(len(flat)), areas if any(len(row) == 2 for row in rows) else None)


def place_of(row):
    """Return where a message is, as a rectangle."""
    return row[0] if len(row) == 2 else (row[1], row[0], row[1], row[0])


def expected(subscriptions, rows):
    """Return the pairs (message, slot), sorted; ``subscriptions`` is slot -> (bbox, expression)."""
    return [
        (i, slot)
        for i, row in enumerate(rows)
        for slot in sorted(subscriptions)
        if overlapping(subscriptions[slot][0], place_of(row)) and satisfies(subscriptions[slot][1], set(row[-1]))
    ]


def pairs(found):
    message, slot = found
    assert message.dtype == slot.dtype == np.int32
    return list(zip(message.tolist(), slot.tolist(), strict=True))


def any_term(rng, vocabulary):
    return rng.choice(UNKNOWN) if rng.random() < 0.05 else min(int(rng.expovariate(4 / vocabulary)), vocabulary - 1)


def any_expression(rng, vocabulary, depth):
    if depth == 0 or rng.random() < 0.35:
        return any_term(rng, vocabulary)
    return [rng.choice(["and", "or"]), *(any_expression(rng, vocabulary, depth - 1) for _ in range(rng.randrange(1, 5)))]


def any_box(rng):
    # Coordinates on a small lattice, so that messages often lie on borders; sizes from a point to everything.
    kind = rng.random()
    if kind < 0.1:
        return (-180.0, -90.0, 180.0, 90.0)
    south, north = sorted(rng.randrange(-6, 7) * 15.0 for _ in range(2))
    west, east = (rng.randrange(-6, 7) * 30.0 for _ in range(2))  # west > east: about half of them cross the antimeridian
    if kind < 0.2:
        return (west, south, west, south)
    return (west, south, east, north)


def any_subscription(rng, vocabulary=40, depth=3):
    if rng.random() < 0.5:
        terms = [any_term(rng, vocabulary) for _ in range(rng.randrange(1, 4))]
        return any_box(rng), ["and", *terms]
    return any_box(rng), any_expression(rng, vocabulary, rng.randrange(depth + 1))


def any_message(rng, vocabulary=40):
    if rng.random() < 0.6:
        lat, lon = rng.randrange(-6, 7) * 15.0, rng.randrange(-6, 7) * 30.0
        if rng.random() < 0.3:  # one float64 beside a border
            lat = float(np.nextafter(lat, rng.choice([-90.0, 90.0])))
            lon = float(np.nextafter(lon, rng.choice([-180.0, 180.0])))
    else:
        lat, lon = rng.uniform(-90, 90), rng.uniform(-180, 180)
    return lat, lon, [any_term(rng, vocabulary) for _ in range(rng.randrange(0, 12))]


def any_area(rng):
    """Return a rectangle, often with borders on the lattice or one float64 beside it."""
    if rng.random() < 0.3:
        lat, lon = rng.uniform(-89, 89), rng.uniform(-179, 179)
        return lon, lat, lon + rng.uniform(0, 1), lat + rng.uniform(0, 1)
    west, south, east, north = any_box(rng)
    if rng.random() < 0.3:
        west, east = (float(np.nextafter(x, rng.choice([-180.0, 180.0]))) for x in (west, east))
        south, north = float(np.nextafter(south, -90.0)), float(np.nextafter(north, 90.0))
    return west, south, east, north


def any_place_message(rng, vocabulary=40, areas=0.7):
    """Return a message that is a point or, with the probability ``areas``, an area."""
    row = any_message(rng, vocabulary)
    return (any_area(rng), row[-1]) if rng.random() < areas else row


def seeded(seed):
    return random.Random(seed)
