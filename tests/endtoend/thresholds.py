"""Random threshold subscriptions of simulated topologies, and the check of their matches with the plain oracle."""

from __future__ import annotations

import json
import math

from tests import naive

_TOLERANCE = 1e-9
"""A score this near to the threshold may be on either side: the oracle has a formula of its own."""


class Thresholds:
    """Puts threshold subscriptions in place of others.

    :param rng: what it draws from.
    :param draw: draws a top-k subscription.
    :param diagonal_deg: of the data space.
    :param often: probability of one.
    """

    def __init__(self, rng, draw, diagonal_deg, often=0.3):
        self._rng, self._draw, self._diagonal_deg, self._often = rng, draw, diagonal_deg, often
        self._present = {}  # subscription -> its record, where it is one with a threshold

    def instead_of(self, id, record):
        """Return the record of a subscription, or that of another one with a threshold; None: its end."""
        rng = self._rng
        self._present.pop(id, None)
        if record is None or rng.random() >= self._often:
            return record
        found = {name: value for name, value in self._draw().items() if name != "k"} | {"type": "threshold"}
        reached = 1 - rng.choice([math.hypot(3, 4), 5, 1]) / self._diagonal_deg  # what a message at a whole degree scores, if only places count
        found["min_score"] = rng.choice([0, 1, 0.3, 0.5, 0.6, 0.7, 0.8, 0.9, reached, rng.random()])
        self._present[id] = found | ({"ttl_s": rng.choice([0.5, 1, 2])} if rng.random() < 0.2 else {})
        return self._present[id]

    def moved(self, id, record):
        """Return the record of an update, or that of the present subscription with a threshold, moved."""
        if id not in self._present:
            return record
        found, rng = self._present[id], self._rng
        self._present[id] = found | {"lat": float(rng.randint(-10, 10)), "min_score": rng.choice([found["min_score"], 0.5]), "update": True}
        return self._present[id]


def check_scored(subscription, messages, deltas, diagonal_deg, compared, hint):
    """Compare the matches of a threshold subscription: none wrong, none missing, and the scores.

    :param messages: which it may be told of, and satisfy its filter.
    :param deltas: its matches; those of records of several have no score.
    """
    scores = {m["id"]: s for m in messages if (s := naive.score(subscription, m, diagonal_deg)) is not None}
    least, most = ({id for id, s in scores.items() if s >= subscription["min_score"] + slack} for slack in (_TOLERANCE, -_TOLERANCE))
    found = {json.dumps(delta["message"]) for delta in deltas}
    assert least <= found <= most, f"{subscription}: {found}, expected {least}, and perhaps {most - least}; scores {scores}; {hint}"
    for delta in deltas:
        if "task" not in delta:
            assert abs(delta["score"] - scores[json.dumps(delta["message"])]) <= _TOLERANCE and "rank" not in delta, f"{delta}: {scores}; {hint}"
    compared["scored"] += len(found)
    compared["near the threshold"] += len(most - least)
    compared["below the threshold"] += len(scores.keys() - most)
