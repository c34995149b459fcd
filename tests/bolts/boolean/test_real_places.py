"""Every index on the places of GeoNames, with subscriptions drawn around them: matches are those of the oracle, which compares words and not their ids."""

import functools

import numpy as np
import pytest

from dskype.bolts.boolean import INDEXES, make_index
from dskype.deploy.demo import places
from dskype.spouts.text import Tokenizer
from dskype.spouts.vocabulary import Vocabulary
from tests.naive import overlapping, satisfies

from .oracle import messages_of, pairs, seeded

pytestmark = pytest.mark.long

PLACES, SUBSCRIPTIONS, MESSAGES = 500, 1000, 250


def drawn_places(rng):
    """Return (latitude, longitude, words) of places: around two cities, at the antimeridian, nearest to the poles, and anywhere."""
    found = places.load()
    near = [np.flatnonzero((abs(found.lat - lat) < 1) & (abs(found.lon - lon) < 1)) for lat, lon in ((40.7, -74.0), (48.9, 2.3))]
    edge = np.argsort(-abs(found.lon))[:120]
    poles = np.argsort(-abs(found.lat))[:30]
    rows = [row for part in near for row in rng.sample(part.tolist(), 100)] + edge.tolist() + poles.tolist()
    rows += rng.sample(range(len(found)), PLACES - len(rows))
    tokenizer = Tokenizer()
    texts = found.texts.take(rows).to_pylist()
    return [(found.lat[row], found.lon[row], list(dict.fromkeys(tokenizer.tokens(text)))) for row, text in zip(rows, texts)], Vocabulary.build(texts, tokenizer)


def box_at(rng, drawn, lat, lon):
    """Return a rectangle around a place: a square, or one with another place in a corner, so that places lie on its borders."""
    if rng.random() < 0.5:
        half = rng.choice([0.0, rng.uniform(0, 0.3), rng.uniform(0, 20)])
        west, east = ((x + 180) % 360 - 180 for x in (lon - half, lon + half))
        return west, max(-90.0, lat - half), east, min(90.0, lat + half)
    other_lat, other_lon, _ = min(rng.sample(drawn, 20), key=lambda one: abs(one[0] - lat) + abs((one[1] - lon + 180) % 360 - 180))
    (west, east), (south, north) = sorted((lon, other_lon)), sorted((lat, other_lat))
    return (west, south, east, north) if east - west <= 180 else (east, south, west, north)


def expression_of(rng, words):
    """Return a keyword expression over some of a place's words."""
    chosen = rng.sample(words, rng.randint(1, min(6, len(words))))
    kind = rng.random()
    if len(chosen) == 1:
        return chosen[0]
    if kind < 0.5:
        return ["and", *chosen[:4]]
    if kind < 0.75:
        return ["or", *chosen]
    return [rng.choice(["and", "or"]), chosen[0], [rng.choice(["and", "or"]), *chosen[1:]]]


def in_ids(expression, ids):
    return [expression[0], *(in_ids(e, ids) for e in expression[1:])] if isinstance(expression, list) else ids[expression]


@functools.cache
def world():
    """Return subscriptions, messages, and what matches at first and without every third subscription: for points, for areas."""
    rng = seeded(31)
    drawn, vocabulary = drawn_places(rng)
    drawn = [place for place in drawn if place[2]]
    words = sorted({word for _, _, own in drawn for word in own})
    ids = dict(zip(words, vocabulary.ids(words).tolist(), strict=True))
    by_words = {}
    for slot in range(SUBSCRIPTIONS):
        lat, lon, own = rng.choice(drawn)
        by_words[slot] = tuple(map(float, box_at(rng, drawn, lat, lon))), expression_of(rng, own)
    points, areas = [], []
    for _ in range(MESSAGES):
        lat, lon, own = rng.choice(drawn)
        own = own + rng.choice(drawn)[2]
        points.append((float(lat), float(lon), own))
        areas.append((tuple(map(float, box_at(rng, drawn, lat, lon))), own))
    batches = []
    for rows in (points, areas):
        wanted = [
            (i, slot)
            for i, row in enumerate(rows)
            for slot, (box, expression) in by_words.items()
            if overlapping(box, row[0] if len(row) == 2 else (row[1], row[0], row[1], row[0])) and satisfies(expression, set(row[-1]))
        ]
        batches.append((messages_of([(*row[:-1], [ids[word] for word in row[-1]]) for row in rows]), wanted))
    return {slot: (box, in_ids(expression, ids)) for slot, (box, expression) in by_words.items()}, batches


@pytest.mark.parametrize("name", sorted(INDEXES))
def test_matches_of_real_places_are_those_of_the_oracle(name):
    subscriptions, batches = world()
    index = make_index(name)
    index.insert_many(list(subscriptions), np.array([box for box, _ in subscriptions.values()]), [e for _, e in subscriptions.values()])
    index._check()
    for batch, wanted in batches:
        assert pairs(index.match(batch)) == wanted
    gone = list(range(0, SUBSCRIPTIONS, 3))
    index.remove_many(gone)
    for batch, wanted in batches:
        assert pairs(index.match(batch)) == [pair for pair in wanted if pair[1] % 3]
    index.insert_many(gone, np.array([subscriptions[slot][0] for slot in gone]), [subscriptions[slot][1] for slot in gone])
    index._check()
    for batch, wanted in batches:
        assert pairs(index.match(batch)) == wanted


def test_places_lie_on_borders_and_rectangles_cross_the_antimeridian():
    subscriptions, ((points, by_point), (areas, by_area)) = world()
    assert min(len(by_point), len(by_area)) > 500
    boxes = np.array([box for box, _ in subscriptions.values()])
    message, slot = np.array(by_point).T
    lon, lat = points.lon[message], points.lat[message]
    assert np.count_nonzero((boxes[slot, 0] == lon) | (boxes[slot, 2] == lon) | (boxes[slot, 1] == lat) | (boxes[slot, 3] == lat)) > 100
    assert np.count_nonzero(boxes[slot, 0] > boxes[slot, 2]) > 20
    message, slot = np.array(by_area).T
    assert np.count_nonzero((areas.areas[message, 0] > areas.areas[message, 2]) | (boxes[slot, 0] > boxes[slot, 2])) > 20
