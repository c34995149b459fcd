"""Objects that move, in random worlds with crashes anywhere: every ``enter``, ``inside`` and ``leave``, every list and every search is what the plain oracle says."""

import os
from collections import Counter

import pytest

from .harness import TOPICS, Simulation, check, random_run

pytestmark = pytest.mark.long(spread=True, seconds=60)

SEEDS = int(os.environ.get("DSKYPE_SEEDS", "104")) // 2
CHUNKS = 3


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_lists_have_an_object_once_at_its_newest_state(chunk):
    only = os.environ.get("DSKYPE_SEED")
    seeds = range(200 + chunk, 200 + SEEDS, CHUNKS) if only is None else [int(only)] if chunk == 0 else []
    compared, faults = Counter(), Counter()
    for seed in seeds:
        found, met = random_run(seed, objects=True, topk=0.7)
        compared.update(found)
        faults.update(met)
    if len(seeds) > 10:  # as without DSKYPE_SEEDS
        assert all(compared[what] > 100 for what in ("state", "delta")) and all(compared[what] > 20 for what in ("final", "top-k searches", "enter")), compared
        assert {"lost_before", "lost_after", "torn_write", "repeated", "restarted", "all_restarted", "elsewhere", "snapshot"} <= set(faults)


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_what_is_published_of_objects_is_what_the_oracle_says(chunk):
    only = os.environ.get("DSKYPE_SEED")
    seeds = range(chunk, SEEDS, CHUNKS) if only is None else [int(only)] if chunk == 0 else []
    compared, faults = Counter(), Counter()
    for seed in seeds:
        found, met = random_run(seed, objects=True)
        compared.update(found)
        faults.update(met)
    if len(seeds) > 10:  # as without DSKYPE_SEEDS
        assert all(compared[what] > 20 for what in ("match", "enter", "leave")) and compared["inside"] > 5 and compared["plans"], compared
        assert {"lost_before", "lost_after", "torn_write", "repeated", "restarted", "all_restarted", "elsewhere", "snapshot"} <= set(faults)


@pytest.mark.parametrize("distributor", ["hashing", "agrid"])
def test_results_of_messages_with_and_without_objects_are_in_one_order(distributor):
    """Those that a task applies at once, too: the watermarks of a subscription's results do not go back."""
    conf = {"dskype.objects": True, "dskype.buffer": "kmax", "dskype.window.index": "chunks", "dskype.distributor": distributor}
    simulation = Simulation(conf, {"subscription-bolt": 1})
    simulation.subscription("s", {"type": "boolean", "keywords": ["lake"], "bbox": [-5, -5, 5, 5]})
    simulation.drain(2)
    for number, object_id in enumerate(["car", None, None, "car", "bus", None]):
        message = {"id": f"m{number}", "text": "lake", "lat": 9 if number == 3 else 1, "lon": 1}
        simulation.message(message if object_id is None else {**message, "object": object_id})
    simulation.drain(2)
    found = [(record["op"], record["message"]) for _, record, _ in simulation.json(TOPICS.results)]
    assert found == [("enter", "m0"), ("match", "m1"), ("match", "m2"), ("leave", "m3"), ("enter", "m4"), ("match", "m5")]
    check(simulation)
