"""Random messages, subscriptions and samples for tests of distributors."""

from __future__ import annotations

import random

import numpy as np

from dskype.distribution import DISTRIBUTORS, Sample
from dskype.distribution.learning.sampling import sample_thresholds
from dskype.distribution.subscriptions import BooleanSubscription, TopkSubscription
from dskype.spouts.areas import centres
from dskype.spouts.batch import MessageBatch
from dskype.spouts.expression import words
from dskype.spouts.filters import compile_filter
from dskype.spouts.settings import Settings
from tests import languages, naive

DIAGONAL = 402.5

EVERY = [(name, {}) for name in sorted(DISTRIBUTORS)] + [
    ("location", {"method": "paper"}),
    ("location", {"cost": "work"}),
    ("location", {"summaries": True}),
    ("keyword", {"method": "paper"}),
    ("keyword", {"method": "balanced"}),
    ("prefix", {"method": "paper", "slack": 0}),
    ("prefix", {"method": "balanced"}),
    ("prefix", {"slack": 0.5}),
    ("prefix", {"cost": "work"}),
    ("keyword", {"method": "balanced", "cost": "work"}),
    ("spatial-first", {"keywords": "keyword", "n2": 1}),
    ("keyword-first", {"keywords": "keyword", "method": "paper"}),
    ("agrid", {"granularity": 8, "box": [-100, -40, 90, 60]}),
    ("hybrid", {"granularity": 8, "box": [-100, -40, 90, 60], "delta": 0}),
    ("hybrid", {"delta": 2, "theta": 20, "matching": "product", "subscriptions": 100_000}),
    ("text-partitioning", {"method": "frequency"}),
    ("text-partitioning", {"method": "hypergraph"}),
    ("space-partitioning", {"method": "grid"}),
    ("space-partitioning", {"method": "r-tree"}),
]
"""Every distributor, and its options."""


def csr(rng, n, low, high, vocabulary, unknown=0.0):
    """Return keywords of n documents, the common ones (high ids) often; some are unknown to the vocabulary."""
    offsets, terms, weights = [0], [], []
    for _ in range(n):
        size = int(rng.integers(low, high + 1))
        own = np.unique(vocabulary - 1 - (rng.zipf(1.3, 4 * size) - 1) % vocabulary)
        own = rng.permutation(own)[:size]
        own = np.unique(np.where(rng.random(len(own)) < unknown, -1 - own * 2654435761, own))
        weight = rng.uniform(0.2, 1.0, len(own))
        terms.append(own)
        weights.append(weight / np.sqrt((weight * weight).sum()) if len(own) else weight)
        offsets.append(offsets[-1] + len(own))
    return np.array(offsets, np.int64), np.concatenate([np.zeros(0), *terms]).astype(np.int64), np.concatenate([np.zeros(0), *weights])


def places(rng, n):
    """Return places, most of them in a few clusters."""
    centres = rng.uniform((-60, -170), (70, 170), (7, 2))
    found = centres[rng.integers(0, 7, n)] + rng.normal(0, 4, (n, 2))
    return np.clip(np.round(found[:, 0], 2), -90, 90), np.clip(np.round(found[:, 1], 2), -180, 180)


def messages(rng, n, vocabulary=300, unknown=0.05, first=0):
    return MessageBatch(np.arange(first, first + n), np.arange(first, first + n), *places(rng, n), *csr(rng, n, 0, 8, vocabulary, unknown))


def with_areas(rng, batch, share=0.6):
    """Return messages of which some are areas, a few of them across the antimeridian; their places are the centres."""
    areas = batch.rectangles().copy()
    for i in np.flatnonzero(rng.random(batch.n) < share).tolist():
        west, south, east, north = areas[i].tolist()
        width, height = rng.choice([0.0, 0.5, 5.0, 60.0], 2)
        areas[i] = [max(west - width, -180), max(south - height, -90), min(east + width, 180), min(north + height, 90)]
        if rng.random() < 0.1:
            areas[i, 0], areas[i, 2] = areas[i, 2] + 1e-9 if areas[i, 2] < 179 else 180, areas[i, 0]
    lat, lon = centres(areas)
    return batch._replace(lat=lat, lon=lon, areas=areas)


def sample(rng, n_messages=400, n=300, vocabulary=300, unknown=0.05):
    """Return a sample with true thresholds."""
    found = Sample(
        messages(rng, n_messages, vocabulary, unknown),
        rng.integers(1, 6, n),
        rng.random(n),
        *places(rng, n),
        *csr(rng, n, 1, 5, vocabulary, unknown),
        np.full(n, -np.inf),
        np.ones(n),
        None,
        np.array([scale_m(i) or 0.0 for i in range(n)]),
    )
    thresholds, counts = sample_thresholds(found, found.messages, DIAGONAL)
    return found._replace(thresholds=thresholds, filled=np.minimum(1.0, counts / found.k))


def subscription(sample, i):
    """Return a subscription, as the distribution bolt makes it."""
    own = slice(sample.offsets[i], sample.offsets[i + 1])
    place = float(sample.lat[i]), float(sample.lon[i])
    return TopkSubscription(
        int(sample.k[i]), float(sample.alpha[i]), *place, sample.terms[own], sample.weights[own], None, None, float(sample.scales_m()[i]) or None
    )


def scale_m(i):
    """Return the scale of a subscription; None: its distances are in degrees, as those of every second one."""
    return None if i % 2 else (20.0, 100_000.0, 1_000_000.0, 9_000_000.0)[i // 2 % 4]


def expression(rng, vocabulary, depth=2):
    """Return a random expression over term ids."""
    if depth == 0 or rng.random() < 0.3:
        term = int(vocabulary - 1 - (rng.zipf(1.3) - 1) % vocabulary)
        return term if rng.random() < 0.9 else -1 - term
    return [str(rng.choice(["and", "or"])), *(expression(rng, vocabulary, depth - 1) for _ in range(rng.integers(2, 4)))]


def described(rng, n):
    """Return messages of the whole language with all their terms (:mod:`tests.languages`), at random places, and the same as in their records."""
    drawn = random.Random(int(rng.integers(1 << 30)))
    records = [languages.random_message(drawn) for _ in range(n)]
    lat, lon = places(rng, n)
    return languages.analyzed(records, Settings.from_conf(languages.CONF), languages.vocabulary())[2]._replace(lat=lat, lon=lon), records


def filtered(rng):
    """Return a boolean subscription of the whole language as the distribution bolt makes it, and its expression."""
    drawn = random.Random(int(rng.integers(1 << 30)))
    tree = ["all"] if drawn.random() < 0.1 else languages.random_expression(drawn, languages.WHOLE, drawn.randrange(4))
    condition, program = compile_filter(tree, languages.vocabulary().ids_of(words(tree)), languages.FIELDS)
    bbox = [-180.0, -90.0, 180.0, 90.0] if drawn.random() < 0.3 else boolean(rng, 300).bbox
    return BooleanSubscription(bbox, condition, None, None, program), tree


def boolean(rng, vocabulary):
    """Return a boolean subscription; its rectangle may cross the antimeridian."""
    west, east = rng.uniform(-180, 180, 2)
    south, north = np.sort(rng.uniform(-90, 90, 2))
    return BooleanSubscription([float(west), float(south), float(east), float(north)], expression(rng, vocabulary), None, None)


def scores(sample, i, messages):
    """Return the scores of all messages for a subscription, None without a common keyword."""

    def document(rows, j):
        own = slice(rows.offsets[j], rows.offsets[j + 1])
        return {"lat": float(rows.lat[j]), "lon": float(rows.lon[j]), "weights": dict(zip(rows.terms[own].tolist(), rows.weights[own].tolist()))}

    subscription = {**document(sample, i), "alpha": float(sample.alpha[i]), "scale_m": float(sample.scales_m()[i])}
    return [naive.score(subscription, document(messages, j), DIAGONAL) for j in range(messages.n)]
