"""Objects that move, in random worlds with crashes anywhere: every ``enter``, ``inside`` and ``leave``, every list and every search is what the plain oracle says."""

import os
from collections import Counter

import pytest

from .harness import random_run

pytestmark = pytest.mark.product(schedules=True, spread=True, seconds=60)

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
