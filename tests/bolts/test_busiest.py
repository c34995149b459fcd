"""Subscriptions that make too many results are named."""

import numpy as np
import pytest

from dskype.bolts.busiest import Busiest
from tests.endtoend.harness import Simulation

NAMES = {0: "calm", 1: "hot", 2: "hotter", 500: "hottest", 3: None}


def test_subscriptions_above_the_rate_are_named_busiest_first_and_counts_start_over():
    busiest = Busiest(10, NAMES.get)
    assert busiest.pop_report(5_000) is None
    busiest.count(np.repeat([0, 1, 2, 500, 3], [100, 101, 150, 900, 400]))
    busiest.count(np.array([], np.int64))
    assert busiest.pop_report(14_999) is None
    found = busiest.pop_report(15_000)
    assert found.startswith("results per second of the busiest subscriptions: 'hottest' 90, 'hotter' 15; of all here 165; named above 10")
    assert busiest.pop_report(15_001) is None and busiest.pop_report(30_000) is None
    busiest.count(np.repeat([1], 1000))
    assert "'hot' 50;" in busiest.pop_report(50_000)


def test_no_subscription_is_named_without_a_limit_or_at_it():
    for busiest, n in ((Busiest(None, NAMES.get), 10_000), (Busiest(10, NAMES.get), 100)):
        busiest.pop_report(0)
        busiest.count(np.repeat([1], n))
        assert busiest.pop_report(10_000) is None


@pytest.mark.long
def test_a_running_topology_names_the_subscription_that_makes_most_of_the_results():
    simulation = Simulation({"dskype.limits.results.per.second": 3})
    simulation.subscription("everything", {"type": "boolean", "bbox": [-10, -10, 10, 10], "expression": "lake OR park"})
    simulation.subscription("few", {"type": "boolean", "bbox": [-10, -10, 10, 10], "expression": "lake AND park"})
    for number in range(100):
        simulation.message({"text": "lake" if number % 9 else "lake park", "lat": 0, "lon": 0})
        simulation.step(ms=150)
    errors = [error["error"] for error in simulation.sim.stats.errors]
    assert errors and all("'everything' 7" in error or "'everything' 6" in error for error in errors) and not any("'few'" in error for error in errors)
