"""Stand-ins in degrees of subscriptions in metres: their scores bound the true ones everywhere on the globe, and find few others."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from dskype.bolts.topk.cones.index import ConeIndex
from dskype.bolts.topk.metres import MetresSubscriptions, stand_ins
from dskype.spouts.score_kernels import score, ssim
from tests import naive
from tests.bolts.topk.world import batch, csr, globe, random_scale_m


def stand_in_scores(found, lat, lon, text, diagonal_deg):
    """The scores of a message for stand-ins."""
    return [score(a, ssim(lon - x, lat - y, diagonal_deg), text) for x, y, a in zip(found.lon.tolist(), found.lat.tolist(), found.alpha.tolist())]


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
def test_what_reaches_a_threshold_reaches_that_of_a_stand_in(seed):
    """Thresholds are the very scores of messages, near and far, so that every rounding error counts."""
    rng = random.Random(seed)
    tight = 0
    for _ in range(3000):
        (lat, lon), *others = globe(rng, 8)
        scale_m, diagonal_deg = rng.choice((random_scale_m(rng), 10 ** rng.uniform(0, 7.5))), rng.choice((1.0, 40.0, 402.492))
        alpha = rng.choice((0.0, 1.0, 1 - 1e-13, 1e-13, rng.random()))
        found = stand_ins(np.array([lon]), np.array([lat]), np.array([alpha]), np.array([scale_m]), diagonal_deg)
        assert (found.owner == 0).all() and 1 <= len(found.owner) <= 3 and ((found.alpha >= 0) & (found.alpha <= 1)).all() and (found.factor > 0).all()
        for other_lat, other_lon in [(lat, lon), *others]:
            text = rng.choice((0.0, 1.0, rng.random(), 1e-9))
            away_m = naive.distance_m(lat, lon, other_lat, other_lon)
            theta = alpha * (1.0 - min(1.0, away_m / scale_m)) + (1.0 - alpha) * text
            scores = stand_in_scores(found, other_lat, other_lon, text, diagonal_deg)
            limits = (theta * found.factor + found.shift).tolist()
            assert any(s >= limit for s, limit in zip(scores, limits)), (lat, lon, other_lat, other_lon, alpha, scale_m, text)
            higher = ((theta + 0.05) * found.factor + found.shift).tolist()
            tight += not any(s >= limit for s, limit in zip(scores, higher))
    assert tight > 3000


def test_a_bound_is_close_where_degrees_are_nearly_a_plane():
    """Away from the poles, a message of another distance or text that misses the threshold by a little is no candidate."""
    found = stand_ins(np.array([13.4]), np.array([1.0]), np.array([0.5]), np.array([5000.0]), 402.0)
    assert found.alpha.tolist()[0] == 0.0 and len(found.owner) == 2
    for km in (0.5, 2.0, 4.5):
        true = 0.5 * (1 - km / 5) + 0.5 * 0.3
        lon = 13.4 + math.degrees(km * 1000 / 6_371_008.8)
        scores = stand_in_scores(found, 1.0, lon, 0.3, 402.0)
        assert all(s < limit for s, limit in zip(scores, ((true + 0.001) * found.factor + found.shift).tolist()))


@pytest.mark.long
def test_candidates_are_few_and_slots_come_and_go():
    group = MetresSubscriptions(ConeIndex(402.0))
    slots = np.array([3, 4, 9, 40], np.int32)
    places = np.array([(50.0, 8.0), (50.0, 8.01), (-17.0, 179.999), (50.0, 8.02)])
    weights = [{1: 0.6, 7: 0.8}, {7: 1.0}, {1: 1.0}, {2: 1.0}]
    group.insert(slots, places[:, 1], places[:, 0], np.full(4, 0.5), np.full(4, 5000.0), csr(weights))
    group._check()
    assert group.has(np.array([0, 3, 9, 10, 4000])).tolist() == [False, True, True, False, False] and len(group) == 4
    group.set_thresholds(slots, np.full(4, 0.9))
    near = [{"seq": i, "position": i, "lat": lat, "lon": lon, "weights": {7: 1.0}} for i, (lat, lon) in enumerate([(50.0, 8.01), (50.0, 9.0), (51.0, 8.0)])]
    across = [{"seq": 9, "position": 9, "lat": -17.0, "lon": -179.999, "weights": {1: 1.0}}]
    found = group.match(batch(near + across))
    assert list(zip(found.message.tolist(), found.slot.tolist())) == [(0, 4), (3, 9)]
    assert group.candidates <= 4, "messages of other towns are no candidates"
    group.remove(np.array([40, 4], np.int32))
    group._check()
    group.insert(np.array([4], np.int32), np.array([8.0]), np.array([50.0]), np.array([1.0]), np.array([20.0]), csr([{7: 1.0}]))
    group._check()
    assert group.columns(np.array([4, 9]))["scale_m"].tolist() == [20.0, 5000.0] and group.slots.tolist() == [3, 4, 9]
