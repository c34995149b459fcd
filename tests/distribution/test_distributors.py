"""What every distributor keeps to."""

import subprocess
import sys

import numpy as np
import pytest

from dskype.distribution import DISTRIBUTORS, make_distributor
from dskype.spouts.batch import MessageBatch
from dskype.topology.errors import IllegalArgumentException
from tests import naive

every_distributor = pytest.mark.parametrize("name", sorted(DISTRIBUTORS))
every_size = pytest.mark.parametrize("tasks", [1, 2, 5, 32])


def random_messages(rng, n):
    lengths = rng.integers(0, 5, n)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    terms = np.concatenate([np.sort(rng.choice(20, size, replace=False)) for size in lengths] or [[]]).astype(np.int64)
    return MessageBatch(np.arange(n), np.arange(n), rng.uniform(-90, 90, n), rng.uniform(-180, 180, n), offsets.astype(np.int64), terms, np.ones(len(terms)))


def random_placement(rng):
    terms = np.sort(rng.choice(20, rng.integers(1, 4), replace=False)).astype(np.int64)
    return {"type": "topk", "k": 3, "alpha": float(rng.random()), "lat": float(rng.uniform(-90, 90)), "lon": float(rng.uniform(-180, 180)),
            "terms": terms, "weights": np.full(len(terms), len(terms) ** -0.5), "meta": None}


@every_distributor
@every_size
def test_a_subscription_gets_every_message_that_it_may_want(name, tasks):
    rng = np.random.default_rng(tasks)
    distributor, messages = make_distributor(name, tasks), random_messages(rng, 200)
    routes = distributor.message_tasks(messages)
    for number in range(100):
        placement = random_placement(rng)
        places = distributor.place(f"s{number}", placement, -np.inf).tasks
        assert places == sorted(set(places)) and places and all(0 <= t < tasks for t in places)
        assert distributor.replicates or len(places) == 1
        for i in range(messages.n):
            common = naive.score({"weights": dict.fromkeys(placement["terms"].tolist(), 1.0), **{k: placement[k] for k in ("lat", "lon", "alpha")}},
                                 {"weights": dict.fromkeys(messages.terms[messages.offsets[i]:messages.offsets[i + 1]].tolist(), 1.0), "lat": 0, "lon": 0}, 1.0)
            if common is not None and routes is not None:
                assert set(routes.tasks[routes.rows == i].tolist()) & set(places)


@every_distributor
def test_routing_is_the_same_in_another_process_and_after_a_restart(name):
    code = ("import numpy as np; from tests.distribution.test_distributors import *\n"
            f"rng = np.random.default_rng(3); d = make_distributor({name!r}, 5)\n"
            "print([d.place(f's{i}', random_placement(rng)).tasks for i in range(50)])")
    outputs = {subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": seed}).stdout for seed in "12"}
    rng = np.random.default_rng(3)
    first = make_distributor(name, 5)
    placements = [random_placement(rng) for _ in range(50)]
    here = [first.place(f"s{i}", placement).tasks for i, placement in enumerate(placements[:25])]
    second = make_distributor(name, 5, plan=first.plan())
    here += [second.place(f"s{i}", placement).tasks for i, placement in enumerate(placements[25:], 25)]
    assert outputs == {f"{here}\n"}


@every_distributor
def test_loads_are_one_number_per_task(name):
    assert make_distributor(name, 5).loads().shape == (5,)


def test_hashing_spreads_subscriptions_evenly():
    distributor = make_distributor("hashing", 8)
    counts = np.bincount([distributor.place(f"s{i}", {}).tasks[0] for i in range(8000)], minlength=8)
    assert counts.min() > 900 and counts.max() < 1100
    assert [distributor.place(id, {}).tasks for id in ("s0", "s1", "lake-park", "東京")] == [[6], [0], [7], [7]]  # CRC-32 modulo 8


def test_an_unknown_distributor_is_refused():
    with pytest.raises(IllegalArgumentException, match="given: 'hasing'.*legal: .*hashing.*did you mean hashing"):
        make_distributor("hasing", 2)
    with pytest.raises(IllegalArgumentException, match="takes no options"):
        make_distributor("hashing", 2, {"n": 1})
