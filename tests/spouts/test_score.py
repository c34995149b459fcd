"""The score has one formula, which all parts of the product use, and three oracles that have their own."""

from __future__ import annotations

import ast
import decimal
import math
import random

import numpy as np
import pytest

from dskype.deploy.lab.topk import truth
from dskype.deploy.verification import _kernels as verification
from dskype.spouts.recency import least_scores
from dskype.spouts.score_kernels import LEAST, score, score_anywhere, ssim, time_score, time_scores
from tests import naive
from tests.sources import MODULES, name_of, text_of, tree_of

PARTS = {
    "spouts/score_kernels.py": "the formula",
    "deploy/verification/_kernels.py": "an oracle: dskype verify",
    "deploy/verification/oracle.py": "an oracle: the reports of dskype verify, in plain Python",
    "deploy/lab/topk/truth.py": "an oracle: the comparison of top-k indexes",
    "deploy/client/explanation.py": "prints 1 - alpha as a number of the formula that it explains",
    "distribution/agrid/near_tasks.py": "the most that a message from a zone can reach, for all zones at once: arrays, which the compiled formula does not take",
    "bolts/topk/metres.py": "scores in degrees that bound those in metres, for many subscriptions at once",
    "spouts/reach.py": "solved for the distance: what a message needs at the least, which clients compute too",
    "deploy/lab/topk/distances.py": "an oracle: the benchmark of distances in metres",
    "bolts/topk/cones/_kernels.py": "the cones' bound, solved for the textual part and rounded up to steps",
    "bolts/topk/cones/index.py": "checks that bound",
    "deploy/lab/skype/ciq_kernels.py": "bounds of CIQ",
    "deploy/lab/skype/igpt.py": "groups of similar alpha / (1 - alpha) of IGPT",
    "deploy/lab/skype/igpt_kernels.py": "bounds of IPT and IGPT",
}
"""Every module that computes with 1 - alpha -> what for."""


def computes_with_the_rest_of_alpha(path):
    """Tell whether a module has an expression like 1 - alpha."""
    minuses = (n for n in ast.walk(tree_of(path)) if isinstance(n, ast.BinOp) and isinstance(n.op, ast.Sub))
    return any(isinstance(n.left, ast.Constant) and n.left.value == 1 and "alpha" in ast.unparse(n.right) for n in minuses)


def test_no_other_module_has_a_formula_of_its_own():
    assert {name_of(path) for path in MODULES if "alpha" in text_of(path) and computes_with_the_rest_of_alpha(path)} == PARTS.keys()


def test_all_oracles_agree_with_it_to_the_last_bit():
    draw = random.Random(7)
    for _ in range(300):
        alpha, diagonal_deg = draw.choice([0.0, 1.0, draw.random()]), draw.choice([1.5, 180.0, 402.49])
        places = [(draw.uniform(-90, 90), draw.uniform(-180, 180)) for _ in range(2)]
        first, second = ({t: draw.random() for t in draw.sample(range(12), 6)} for _ in range(2))
        (lat, lon), (own_lat, own_lon) = places
        dx, dy = lon - own_lon, lat - own_lat
        plain = naive.score({"lat": own_lat, "lon": own_lon, "alpha": alpha, "weights": first}, {"lat": lat, "lon": lon, "weights": second}, diagonal_deg)
        if plain is None:
            continue
        text = 0.0
        for term in sorted(first.keys() & second.keys()):
            text += first[term] * second[term]
        found = score(alpha, ssim(dx, dy, diagonal_deg), text)
        assert found == plain == verification.own_score(alpha, dx, dy, diagonal_deg, text)
        assert found == truth._score(np.array([alpha]), np.array([dx]), np.array([dy]), diagonal_deg, np.array([text]))[0]
        assert found < score_anywhere(alpha, text)


HALF_LIVES_MS = [100.0, 1000.0, 60_000.0, 3_600_000.0, 86_400_000.0 * 365]


def what_is_left(plain, age_ms, half_life_ms):
    """Return the score times 2 ** (-age / half-life), with fifty digits."""
    with decimal.localcontext(prec=50, Emin=-(10**12)):
        return decimal.Decimal(plain) * decimal.Decimal(2) ** (-decimal.Decimal(age_ms) / decimal.Decimal(half_life_ms))


def test_time_scores_rank_as_what_is_left_of_scores_at_any_moment():
    draw, compared = random.Random(8), 0
    for half_life_ms in HALF_LIVES_MS:
        for _ in range(300):
            begin, now = 1_700_000_000_000, 1_700_000_000_000 + draw.choice([10**4, 10**7, 10**10])
            one, other = ((draw.random(), begin + round(draw.random() * draw.choice([1, 3, 30]) * half_life_ms)) for _ in range(2))
            keys = [time_score(s, t, half_life_ms) for s, t in (one, other)]
            left = [what_is_left(s, now - t, half_life_ms) for s, t in (one, other)]
            close = 4 * math.ulp(keys[0])
            if abs(keys[0] - keys[1]) > close:
                compared += 1
                assert (keys[0] > keys[1]) == (left[0] > left[1]), (one, other, half_life_ms)
            assert 2.0 ** min(keys[0] - now / half_life_ms, 9.0) == pytest.approx(float(min(left[0], 512)), rel=close + 1e-9)
    assert compared > 1400


def test_time_scores_never_fall_while_the_score_or_the_time_rises():
    draw = random.Random(9)
    for half_life_ms in HALF_LIVES_MS:
        scores = sorted([0.0, -1e-17, LEAST, 1.0, *(draw.random() ** 9 for _ in range(200)), *(0.5 + i * 2**-53 for i in range(50))])
        times = sorted(1_700_000_000_000 + draw.randrange(10**6) for _ in range(200))
        for one in (
            time_scores(np.array(scores), np.full(len(scores), 1_700_000_000_000), half_life_ms),
            time_scores(np.full(200, 0.3), np.array(times), half_life_ms),
        ):
            assert (np.diff(one) >= 0).all() and np.isfinite(one).all()


def test_no_message_with_a_time_score_is_below_the_least_score():
    draw = random.Random(10)
    for half_life_ms in HALF_LIVES_MS:
        until_ms = 1_700_000_000_000
        for _ in range(300):
            plain, age_ms = draw.choice([draw.random(), draw.random() ** 12, 0.0, 1.0]), round(draw.random() * half_life_ms * draw.choice([0, 1, 40]))
            key = time_score(plain, until_ms - age_ms, half_life_ms)
            assert key == naive_time_score(plain, until_ms - age_ms, half_life_ms)
            [least] = least_scores(np.array([key]), until_ms, half_life_ms)
            assert plain >= least
            if age_ms == 0 and plain > 1e-6:
                assert least > plain * (1 - 1e-4)
    assert least_scores(np.array([-np.inf, np.inf]), 5, 1000.0).tolist() == [-np.inf, np.inf]


def naive_time_score(plain, position, half_life_ms):
    subscription = {"lat": 0.0, "lon": 0.0, "alpha": 0.0, "weights": {1: 1.0}}
    return naive.score(subscription, {"lat": 0.0, "lon": 0.0, "weights": {1: plain}, "position": position}, 1.0, half_life_ms)
