"""Hybrid partitioning by space and text as a distributor (PS2Stream, section IV)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dskype.distribution.agrid import AGrid
from dskype.distribution.base import Sample
from dskype.distribution.gridt import Zone
from dskype.distribution.gridt_distributor import GridtDistributor, sample_loads
from dskype.distribution.kdt_tree import Limits, best_partitions, hybrid_partitions, zones_of
from dskype.distribution.migration import Adjusted, adjust
from dskype.topology.errors import IllegalArgumentException, explain

__all__ = ["HybridDistributor"]

_NODES_PER_TASK = 8


class HybridDistributor(GridtDistributor):
    """Divides the world by space, and by text where that makes less load: the leaves of a kdt-tree (Algorithm 1).

    :param options: ``delta``: zones whose messages and subscriptions are at least so similar in text may be divided by space (default: the threshold that makes the least load, see
        :func:`~dskype.distribution.kdt_tree.best_partitions`); ``sigma`` (1.3): the greatest load
        of a task may be so many times the least; ``theta``: the most nodes of the tree (default 8 for each task). Others: :class:`GridtDistributor`.
    """

    name = "hybrid"
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
                raise IllegalArgumentException(explain(f"The option {option} of the {cls.name} distributor is not usable.", given=value, legal=legal))
        return found

    @classmethod
    def learned(cls, tasks: int, grid: AGrid, sample: Sample, options: Mapping[str, Any]) -> list[Zone]:
        """Return the leaves of a kdt-tree."""
        delta, sigma, theta = options["delta"], options["sigma"], max(tasks, options["theta"] or _NODES_PER_TASK * tasks)
        root = sample_loads(grid, sample, options).root()
        found = best_partitions(root, tasks, sigma, theta) if delta is None else hybrid_partitions(root, tasks, Limits(delta, sigma, theta))
        return zones_of(found, sample.messages.n)

    def adjusted(self, sample: Sample, selection: str = "greedy") -> tuple[dict[str, Any], Adjusted]:
        """Return the plan after a local load adjustment for a recent sample, and what was moved (section V-A).

        :param selection: a name in :data:`~dskype.distribution.migration.SELECTIONS`.
        """
        grid = self.gridt.grid
        root = sample_loads(AGrid(grid.columns, grid.rows, grid.box), sample, self.options).root()
        found = adjust(root, self.gridt.zones, self.tasks, self.options["sigma"], selection)
        return self.planned(self.tasks, grid.columns, grid.box, found.zones), found
