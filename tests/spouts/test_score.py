"""The score has one formula, which all parts of the product use, and three oracles that have their own."""

from __future__ import annotations

import ast
import random
from pathlib import Path

import numpy as np

from dskype.deploy.lab.topk import truth
from dskype.deploy.verification import _kernels as verification
from dskype.spouts.score_kernels import score, score_anywhere, ssim
from tests import naive

ROOT = Path(__file__).parents[2]

PARTS = {
    "spouts/score_kernels.py": "the formula",
    "deploy/verification/_kernels.py": "an oracle: dskype verify",
    "deploy/verification/oracle.py": "an oracle: the reports of dskype verify, in plain Python",
    "deploy/lab/topk/truth.py": "an oracle: the comparison of top-k indexes",
    "deploy/client/explanation.py": "prints 1 - alpha as a number of the formula that it explains",
    "distribution/near_tasks.py": "the most that a message from a zone can reach, for all zones at once: arrays, which the compiled formula does not take",
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
    minuses = (n for n in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(n, ast.BinOp) and isinstance(n.op, ast.Sub))
    return any(isinstance(n.left, ast.Constant) and n.left.value == 1 and "alpha" in ast.unparse(n.right) for n in minuses)


def test_no_other_module_has_a_formula_of_its_own():
    files = [path for folder in ("topology", "spouts", "distribution", "bolts", "deploy") for path in (ROOT / folder).rglob("*.py")]
    assert {str(path.relative_to(ROOT)) for path in files if computes_with_the_rest_of_alpha(path)} == PARTS.keys()


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
