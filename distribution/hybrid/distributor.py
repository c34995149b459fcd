"""Hybrid partitioning by space and text as a distributor (PS2Stream, section IV)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dskype.distribution.agrid.grid import AGrid
from dskype.distribution.base import Sample
from dskype.distribution.hybrid.gridt import Zone
from dskype.distribution.hybrid.gridt_distributor import GridtDistributor, sample_loads
from dskype.distribution.hybrid.kdt_tree import Limits, exchange_leaves, hybrid_partitions, zones_of
from dskype.distribution.hybrid.leaf_loads import Leaf
from dskype.distribution.hybrid.limits_choice import chosen_partitions
from dskype.distribution.hybrid.migration import Adjusted, adjust, loads_of_zones, matched_tasks
from dskype.topology.errors import IllegalArgumentException

__all__ = ["HybridDistributor"]

_NODES_PER_TASK = 8


class HybridDistributor(GridtDistributor):
    """Divides the world by space, and by text where that makes less load: the leaves of a kdt-tree (Algorithm 1).

    :param options: ``delta``: zones whose messages and subscriptions are at least so similar in text may be divided by space (default: what makes the least load for the other half of the sample, see
        :func:`~dskype.distribution.hybrid.limits_choice.chosen_partitions`); ``sigma`` (1.3): the greatest load
        of a task may be so many times the least; ``theta``: the most nodes of the tree (default 8 for each task). Others: :class:`GridtDistributor`.
    """

    name = "hybrid"
    balances = True
    legal_options = (*GridtDistributor.legal_options, "delta", "sigma", "theta")

    @classmethod
    def checked(cls, tasks: int, options: Mapping[str, Any] | None) -> dict[str, Any]:
        """Return all options with their defaults, checked."""
        found = {"delta": None, "sigma": 1.3, "theta": None, **super().checked(tasks, options)}
        ranges: dict[str, tuple[tuple[type, ...], float, str]] = {
            "delta": ((int, float, type(None)), 0, "a number from 0"),
            "sigma": ((int, float), 1, "a number from 1"),
            "theta": ((int, type(None)), 1, "an integer from 1"),
        }
        for option, (kinds, least, legal) in ranges.items():
            value = found[option]
            if type(value) not in kinds or (value is not None and not least <= value < float("inf")):
                raise IllegalArgumentException(f"The option {option} of the {cls.name} distributor is not usable.", given=value, legal=legal)
        return found

    @classmethod
    def learned(cls, tasks: int, grid: AGrid, sample: Sample, options: Mapping[str, Any]) -> list[Zone]:
        """Return the leaves of a kdt-tree."""
        delta, sigma, theta = options["delta"], options["sigma"], max(tasks, options["theta"] or _NODES_PER_TASK * tasks)

        def root_of(some: Sample) -> Leaf:
            return sample_loads(grid, some, {**options, "subscriptions": options["subscriptions"] or sample.n}).root()

        root = root_of(sample)
        if delta is not None:
            partitions = exchange_leaves(hybrid_partitions(root, tasks, Limits(delta, sigma, theta)))
        else:
            partitions = chosen_partitions(root, root_of, sample, tasks, sigma, theta)
        return zones_of(partitions, sample.messages.n)

    def adjusted(self, sample: Sample, selection: str = "moves", measured: Mapping[str, Any] | None = None) -> tuple[dict[str, Any], Adjusted]:
        """Return the plan after a local load adjustment for a recent sample, and what was moved (section V-A).

        :param selection: a name in :data:`~dskype.distribution.hybrid.migration.SELECTIONS`.
        :param measured: what is known better than the options ``costs`` and ``subscriptions`` say.
        """
        found = adjust(self.root_of(sample, measured), self.gridt.zones, self.tasks, self.options["sigma"], selection)
        return self._joined(list(found.zones)), found

    def repartitioned(self, sample: Sample, gain: float, measured: Mapping[str, Any] | None = None) -> dict[str, Any] | None:
        """Return a plan from scratch for a recent sample, if it is much better than this one after a local load adjustment (section V-B); None: it is not.

        Its tasks are numbered so that many subscriptions stay where they are.

        :param gain: by which share its greatest load has to be less.
        :param measured: as of :meth:`adjusted`.
        """
        grid, root = self.gridt.grid, self.root_of(sample, measured)
        options = {**self.options, **(measured or {})}
        zones = type(self).learned(self.tasks, AGrid(grid.columns, grid.rows, grid.box), sample, options)
        present = self.adjusted(sample, measured=measured)[1].zones
        least = [float(loads_of_zones(root, some, self.tasks).max()) for some in (zones, present)]
        if least[0] > (1 - gain) * least[1]:
            return None
        other = type(self)(self.tasks, self.options, self.planned(self.tasks, grid.columns, grid.box, zones))
        tasks = matched_tasks(self._held_by_tasks(other, sample).T @ self._held_by_tasks(self, sample)).tolist()
        renamed = [zone.with_parts(part._replace(task=tasks[part.task]) for part in zone.parts) for zone in zones]
        return self.planned(self.tasks, grid.columns, grid.box, renamed)

    def _held_by_tasks(self, distributor: GridtDistributor, sample: Sample) -> np.ndarray:
        """Return which task has which subscription, int64[subscriptions, tasks] of 0 and 1."""
        found = np.zeros((sample.n, self.tasks), np.int64)
        offsets, tasks, _ = distributor.place_all(sample)
        found[np.repeat(np.arange(sample.n), np.diff(offsets)), tasks] = 1
        return found
