"""Idle spouts wait by Storm's strategies."""

from itertools import groupby

import pytest

from dskype.topology import Config, IllegalArgumentException
from dskype.topology.config import DEFAULTS, validate
from dskype.topology.core.waiting import SpoutWait

PREFIX = "topology.spout.wait."


def waits(conf, times):
    """Return how long a spout waits when it is asked in vain so many times."""
    wait, found = SpoutWait({**DEFAULTS, **conf}), []
    for _ in range(times):
        found.append(wait.seconds)
        wait.note(idle=True)
    return found


def runs(found):
    return [(value, len(list(group))) for value, group in groupby(found)]


def test_by_default_it_sleeps_five_milliseconds():
    assert runs(waits({}, 100)) == [(0.005, 100)]


def test_the_levels_of_the_progressive_strategy_follow_each_other():
    conf = {f"{PREFIX}progressive.level1.count": 3, f"{PREFIX}progressive.level2.count": 2, f"{PREFIX}progressive.level3.sleep.millis": 7}
    (none, n), (shortly, m), (long, _) = runs(waits(conf, 10))
    assert (none, n, m, long) == (0.0, 3, 2, 0.007) and 0 < shortly < 1e-4


def test_a_tuple_begins_the_first_level_again():
    wait = SpoutWait({**DEFAULTS, f"{PREFIX}progressive.level1.count": 1})
    wait.note(idle=True)
    assert wait.seconds == 0.005
    wait.note(idle=False)
    assert wait.seconds == 0.0


@pytest.mark.parametrize(
    ("conf", "seconds"),
    [
        ({f"{PREFIX}strategy": "org.apache.storm.policy.WaitStrategyPark"}, 1e-4),
        ({f"{PREFIX}strategy": "org.apache.storm.policy.WaitStrategyPark", f"{PREFIX}park.microsec": 250}, 2.5e-4),
        ({f"{PREFIX}strategy": "org.apache.storm.spout.SleepSpoutWaitStrategy", "topology.sleep.spout.wait.strategy.time.ms": 20}, 0.02),
        ({f"{PREFIX}progressive.level3.sleep.millis": 0}, 0.001),  # less would only burn a core
    ],
)
def test_the_other_strategies_wait_equally_long(conf, seconds):
    validate(conf)
    assert runs(waits(conf, 5)) == [(seconds, 5)]


def test_another_strategy_is_refused_by_name():
    with pytest.raises(IllegalArgumentException, match="TOPOLOGY_SPOUT_WAIT_STRATEGY names a wait strategy that is not here"):
        validate({Config.TOPOLOGY_SPOUT_WAIT_STRATEGY: "org.example.Spin"})
