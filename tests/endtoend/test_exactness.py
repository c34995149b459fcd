"""Random worlds with crashes anywhere: everything that is published is what the plain oracle says.

Messages, subscriptions of both kinds, replaced and unregistered in between, bad records, any number of tasks of every bolt,
count and time windows, one and two partitions. A failing seed runs alone with ``DSKYPE_SEED=<seed>``; ``DSKYPE_SEEDS`` sets
how many are drawn.
"""

import os
from collections import Counter

import pytest

from .harness import random_run

SEEDS = int(os.environ.get("DSKYPE_SEEDS", "520"))
CHUNKS = 20


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_what_is_published_is_what_the_oracle_says(chunk):
    only = os.environ.get("DSKYPE_SEED")
    seeds = range(chunk, SEEDS, CHUNKS) if only is None else [int(only)] if chunk == 0 else []
    compared, faults = Counter(), Counter()
    for seed in seeds:
        found, met = random_run(seed)
        compared.update(found)
        faults.update(met)
    if len(seeds) > 20:
        assert all(compared[what] > 20 for what in ("state", "delta", "match", "final")), compared
        assert {"lost_before", "lost_after", "torn_write", "repeated", "restarted", "all_restarted", "elsewhere", "snapshot"} <= set(faults)
