"""Top-k subscriptions with filters, under every distributor, with faults, plans that change, and lists that refill from the window."""

import random

import pytest

from dskype.distribution import DISTRIBUTORS
from dskype.topology.simulated.faults import Faults
from tests import languages

from .harness import Planner, Simulation, check, metric, options_of, play, unfinished

pytestmark = pytest.mark.long(spread=True, seconds=60)

CONF = {"dskype.attributes": languages.ATTRIBUTES, "dskype.boolean.prefixes": True, "dskype.buffer.options": {"factor": 1.0, "extra": 1}}


@pytest.mark.parametrize(("seed", "name"), list(enumerate(sorted(DISTRIBUTORS))))
def test_lists_are_the_best_messages_that_satisfy_a_filter(seed, name):
    rng, n = random.Random(f"where {seed}"), 1 + seed % 4
    conf = {**CONF, "dskype.distributor": name, "dskype.distributor.options": options_of(name, n), "dskype.window.messages": rng.choice([10, 25, 40])}
    tasks = {"subscription-bolt": n, "distribution-bolt": 2, "message-bolt": 1 + seed % 3, "result-bolt": 2}
    simulation = Simulation(conf, tasks, seed=seed, faults=Faults.drawn(seed))
    planner = None if name == "hashing" else Planner(simulation, rng, often=0.2, takeovers=0.3)
    play(simulation, rng, messages=70, topk=1.0, planner=planner, whole=random.Random(seed))
    for _ in range(4):
        if not unfinished(simulation):
            break
        simulation.drain(4)
    compared = check(simulation, hint=f"seed {seed}")
    assert compared["final"] and compared["delta"] > 10 and metric(simulation, "evaluations"), compared
