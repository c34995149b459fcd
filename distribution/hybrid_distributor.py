"""Hybrid partitioning by space and text as a distributor (PS2Stream, section IV)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dskype.distribution.agrid import AGrid
from dskype.distribution.base import Sample
from dskype.distribution.gridt import Zone
from dskype.distribution.gridt_distributor import GridtDistributor
from dskype.distribution.kdt_tree import Limits, best_partitions, hybrid_partitions, zones_of
from dskype.distribution.leaf_loads import SampleLoads
from dskype.distribution.loads import LoadModel
from dskype.topology.errors import IllegalArgumentException, explain

__all__ = ["HybridDistributor", "check_costs", "sample_loads"]

_NODES_PER_TASK = 8


class HybridDistributor(GridtDistributor):
    """Divides the world by space, and by text where that makes less load: the leaves of a kdt-tree (Algorithm 1).

    :param options: ``delta``: zones whose messages and subscriptions are at least so similar in text may be divided by space (default: the threshold that makes the least load, see
        :func:`~dskype.distribution.kdt_tree.best_partitions`); ``sigma`` (1.3): the greatest load
        of a task may be so many times the least; ``theta``: the most nodes of the tree (default 8 for each task). ``costs``: constants of the load model, from
        ``dskype partition calibrate``; ``matching``: ``checked`` (default) or ``product``, see :class:`~dskype.distribution.leaf_loads.SampleLoads`; ``subscriptions``: how many there will be
        (default: those of the sample). Others: :class:`GridtDistributor`.
    """

    name = "hybrid"
    legal_options = (*GridtDistributor.legal_options, "delta", "sigma", "theta", "costs", "matching", "subscriptions")

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
        return check_costs(cls.name, found)

    @classmethod
    def learned(cls, tasks: int, grid: AGrid, sample: Sample, options: Mapping[str, Any]) -> list[Zone]:
        """Return the leaves of a kdt-tree."""
        delta, sigma, theta = options["delta"], options["sigma"], max(tasks, options["theta"] or _NODES_PER_TASK * tasks)
        root = sample_loads(grid, sample, options).root()
        found = best_partitions(root, tasks, sigma, theta) if delta is None else hybrid_partitions(root, tasks, Limits(delta, sigma, theta))
        return zones_of(found, sample.messages.n)


def check_costs(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a distributor that learns by the load model, with its defaults.

    :raises IllegalArgumentException: ``costs``, ``matching`` or ``subscriptions`` is not usable.
    """
    found = {"costs": {}, "matching": "checked", "subscriptions": None, **options}
    LoadModel.checked(name, found["costs"])
    if found["matching"] not in ("checked", "product"):
        raise IllegalArgumentException(
            explain(f"The option matching of the {name} distributor is not usable.", given=found["matching"], legal="checked | product")
        )
    if found["subscriptions"] is not None and (type(found["subscriptions"]) is not int or found["subscriptions"] < 1):
        raise IllegalArgumentException(
            explain(f"The option subscriptions of the {name} distributor is not usable.", given=found["subscriptions"], legal="an integer from 1")
        )
    return found


def sample_loads(grid: AGrid, sample: Sample, options: Mapping[str, Any]) -> SampleLoads:
    """Return the loads of a sample by the options of a distributor."""
    subscriptions = options["subscriptions"] or sample.n
    return SampleLoads(grid, sample, LoadModel(**options["costs"]), options["matching"] == "product", subscriptions)
