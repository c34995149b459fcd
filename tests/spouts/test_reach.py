"""No message that reaches a score is outside of the rectangle that it needs, or without one of the words."""

import math
import random

import pytest

from dskype.spouts.reach import needed_terms, reach
from tests import naive


def any_weights(rng):
    counts = {term: rng.choice([1, 1, 2, 5]) for term in rng.sample(range(12), rng.randint(1, 6))}
    return naive.norm_weights(counts, {term: 1 + term * term * 8 for term in range(12)}, 1000)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(8))
def test_what_reaches_the_score_is_in_reach(seed):
    rng, reached = random.Random(seed), 0
    for _ in range(400):
        diagonal_deg = rng.choice([1e-3, 28.3, 402.5])
        lat, lon = rng.uniform(-90, 90), rng.choice([rng.uniform(-180, 180), 179.999, -180.0])
        scale_m = rng.choice([None, None, 1, 5000.5, 3e6, 1e8])
        own = {"lat": lat, "lon": lon, "alpha": rng.choice([0, 1, rng.random()]), "scale_m": scale_m, "weights": any_weights(rng)}
        far = diagonal_deg if scale_m is None else math.degrees(scale_m / 6_371_008)
        for _ in range(20):
            away = far * rng.choice([0, 1, rng.random(), rng.random() ** 4])
            angle = rng.choice([0, math.pi / 2, math.pi, -math.pi / 2, rng.uniform(0, 6.3)])
            x, y = lon + away * math.cos(angle), max(-90.0, min(90.0, lat + away * math.sin(angle)))
            message = {"lat": y, "lon": max(-180.0, min(180.0, x)) if scale_m is None else (x + 180) % 360 - 180, "weights": any_weights(rng)}
            score = naive.score(own, message, diagonal_deg)
            if score is None or score < 0:
                continue
            min_score = min(1.0, max(0.0, rng.choice([score, score - 1e-12, score - rng.random() / 10])))
            if score < min_score:
                continue
            reached += 1
            bbox = reach(own["alpha"], lat, lon, scale_m, min_score, diagonal_deg)
            assert naive.in_bbox(bbox, message["lat"], message["lon"]), (own, message, min_score, bbox)
            terms = sorted(own["weights"])
            assert set(needed_terms(own["alpha"], min_score, terms, [own["weights"][t] for t in terms])) & message["weights"].keys(), (own, message)
    assert reached > 1000


def test_what_is_out_of_reach_is_left_out():
    assert [round(border, 6) for border in reach(1.0, 0.0, 0.0, None, 0.9, 100.0)] == [-10.0, -10.0, 10.0, 10.0]
    west, south, east, north = reach(1.0, 0.0, 180.0, 1000.0, 0.5, 100.0)
    assert west > 179.99 and east < -179.99 and north == -south < 0.005
    assert reach(1.0, 89.9999, 0.0, 1000.0, 0.5, 100.0)[0::2] == (-180.0, 180.0), "a pole is in reach"
    assert reach(1.0, 0.0, 0.0, 1e8, 0.1, 100.0) == (-180.0, -90.0, 180.0, 90.0), "the whole globe is nearer than that"
    assert needed_terms(0.0, 1.0, [1, 2], [0.6, 0.8]) == [2] and needed_terms(0.0, 0.6, [1, 2], [0.6, 0.8]) == [1, 2]
