"""How long a spout that has nothing to emit waits before it is asked again: Storm's wait strategies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dskype.topology.config import Config
from dskype.topology.config_checks import PARK, SLEEP

__all__ = ["SpoutWait"]

_YIELD_S = 1e-9
"""The pause of level 2; the operating system makes some 50 us of it."""
_LEAST_SLEEP_S = 0.001
"""Least pause of level 3 and of a fixed sleep: a shorter one would only burn a core."""


class SpoutWait:
    """Counts how often spouts were asked in vain, and says how long to wait; see ``topology.spout.wait.strategy``.

    WaitStrategyProgressive has three levels: it does not wait for ``level1.count`` times, then waits shortly for ``level2.count`` times, and then
    sleeps ``level3.sleep.millis`` each time. The other strategies always wait equally long.

    :param conf: the spout's configuration.
    """

    def __init__(self, conf: Mapping[str, Any]) -> None:
        strategy = conf[Config.TOPOLOGY_SPOUT_WAIT_STRATEGY]
        self._first = self._second = self._asked = 0
        if strategy == PARK:
            self._sleep_s = conf[Config.TOPOLOGY_SPOUT_WAIT_PARK_MICROSEC] / 1e6
        elif strategy == SLEEP:
            self._sleep_s = max(_LEAST_SLEEP_S, conf[Config.TOPOLOGY_SLEEP_SPOUT_WAIT_STRATEGY_TIME_MS] / 1000)
        else:
            self._first = conf[Config.TOPOLOGY_SPOUT_WAIT_PROGRESSIVE_LEVEL1_COUNT]
            self._second = self._first + conf[Config.TOPOLOGY_SPOUT_WAIT_PROGRESSIVE_LEVEL2_COUNT]
            self._sleep_s = max(_LEAST_SLEEP_S, conf[Config.TOPOLOGY_SPOUT_WAIT_PROGRESSIVE_LEVEL3_SLEEP_MILLIS] / 1000)

    @property
    def seconds(self) -> float:
        """How long to wait now."""
        if self._asked < self._first:
            return 0.0
        return _YIELD_S if self._asked < self._second else self._sleep_s

    def note(self, *, idle: bool) -> None:
        """Note whether the spouts had nothing to emit when they were asked."""
        self._asked = self._asked + 1 if idle else 0
