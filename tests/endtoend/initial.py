"""Boolean subscriptions of simulated topologies that ask for what matches already, and the check of what they get with the plain oracle."""

from __future__ import annotations

import json

from tests import naive

from . import places as plain_places


class Initial:
    """Lets boolean subscriptions ask for what matches already.

    :param rng: what it draws from.
    """

    def __init__(self, rng):
        self._rng = rng

    def of_subscription(self, record):
        """Return a subscription that perhaps asks; None: its end."""
        rng = self._rng
        if record is None or record["type"] != "boolean" or rng.random() < 0.3:
            return record
        return record | {"initial": rng.choice([True, True, 1, 2, 5, False])}


def check_initial(subscription, registration, deltas, at, world, settings, satisfies, compared, hint):
    """Compare the first matches of a boolean subscription: the newest ones of the window at which it becomes active, the oldest first.

    :param deltas: its matches that say that they are initial.
    :param at: the watermark at which it became active; None: it went on from another registration.
    :param satisfies: tells whether a message has what the expression asks for, wherever it is.
    """
    asked = subscription.get("initial", False)
    most = settings.limits.k_max if asked is True else asked or 0
    window = [] if at is None else [m for m in world.messages if at - settings.extent < m["position"] <= at]
    good = [m for m in window if plain_places.sharing(subscription, {"lat": m["lat"], "lon": m["lon"]}, world.turned) and satisfies(m)]
    expected = [(m["id"], at) for m in reversed(naive.newest(good, most))]
    found = [(json.dumps(d["message"]), d["watermark"]) for d in deltas]
    assert all(d["op"] == "match" and d["initial"] is True and "object" not in d for d in deltas), f"{registration}: {deltas}; {hint}"
    assert found == expected, f"what matched {subscription['id']} ({registration}) at first: {found}, expected {expected} of {len(good)}; {hint}"
    compared["initial"] += len(found)
    compared["asked at first"] += bool(most) and at is not None and at >= 0
    compared["asked at first and cut"] += 0 < most < len(good)
