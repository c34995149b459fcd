"""Draw the partitions of an A-Grid in characters, and follow those of a running topology."""

from __future__ import annotations

import string
from collections.abc import Mapping
from typing import Any

import numpy as np

from dskype.deploy.client.follower import Follower
from dskype.deploy.client.plans import SUBSCRIPTION_BOLT, distributor_of, is_usable, parse_record
from dskype.distribution import start_distributor
from dskype.distribution.agrid.distributor import AGridDistributor
from dskype.spouts.settings import Settings
from dskype.spouts.topics import Topics
from dskype.spouts.vocabulary import Vocabulary
from dskype.topology.planning.plan import TopologyPlan

__all__ = ["PartitionScreen", "draw"]

_MARKS = string.digits + string.ascii_letters
"""One for each task; with more tasks they repeat."""


def draw(plan: Mapping[str, Any], columns: int = 72, rows: int = 18) -> list[str]:
    """Return lines, the north first, in which each character is the task of a place; [] if the plan is not one of an A-Grid."""
    distributor = distributor_of(plan)
    if not isinstance(distributor, AGridDistributor):
        return []
    west, south, east, north = distributor.grid.box
    lon = west + (east - west) * (np.arange(columns) + 0.5) / columns
    lat = north - (north - south) * (np.arange(rows) + 0.5) / rows
    tasks = distributor.task_of[distributor.grid.locate(np.repeat(lat, columns), np.tile(lon, rows))]
    return ["".join(_MARKS[task % len(_MARKS)] for task in row) for row in tasks.reshape(rows, columns).tolist()]


class PartitionScreen:
    """Draws the partitions of a running topology.

    :param kafka: the brokers.
    :param name: of the topology.
    :param conf: its configuration.
    :param tasks: of its subscription bolt.
    """

    def __init__(self, kafka: Any, name: str, conf: Mapping[str, Any], tasks: int) -> None:
        self._settings, self._tasks = Settings.from_conf(conf), tasks
        self.version = self._newest = 0  # of the plan in force; of all that came
        self._plan: Mapping[str, Any] | None = None
        if "sample" not in (settings := self._settings).distributor_options:  # learning from it takes too long here
            self._plan = start_distributor(settings, tasks, Vocabulary.empty()).plan()
        self._follower = Follower(kafka, [Topics.for_topology(name).plans], "beginning")

    @classmethod
    def of(cls, kafka: Any, plan: TopologyPlan) -> PartitionScreen | None:
        """Return that of a topology; None if it has no subscription bolt."""
        if SUBSCRIPTION_BOLT not in plan.component_ids:
            return None
        return cls(kafka, plan.name, plan.conf, len(plan.component_tasks(SUBSCRIPTION_BOLT)))

    def lines(self) -> list[str]:
        """Return the newest plan as a map; [] while it is not known."""
        for record in self._follower.poll(0.05):
            version, plan = parse_record(record.value)
            if plan is not None and version > self._newest:
                self._newest = version
                if is_usable(self._settings, self._tasks, plan):
                    self.version, self._plan = version, plan
        return [] if self._plan is None else draw(self._plan)

    def close(self) -> None:
        """Close the connection."""
        self._follower.close()
