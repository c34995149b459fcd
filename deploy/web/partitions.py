"""The partitions of a distribution plan, as the map and the page of loads show them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dskype.deploy.client.balancing import balance
from dskype.deploy.client.plan_picture import colour
from dskype.deploy.client.plans import distributor_of
from dskype.distribution import HasPartitions

__all__ = ["partitions_of"]

_WORLD = (-180.0, -90.0, 180.0, 90.0)


def partitions_of(current: tuple[int, Mapping[str, Any]]) -> dict[str, Any]:
    """Return what a plan says as JSON-able data: the version, the loads that it expects of tasks, and its partitions, if it has some.

    A partition has a ``number``, ``tasks``, a ``load``, and, if it is a part of the world, a ``box`` (west, south, east, north in degrees, without
    open borders). ``colours`` are those of the tasks in ``dskype partition show --picture``.

    :param current: version and plan.
    """
    version, plan = current
    distributor = distributor_of(plan)
    rows = []
    for row in distributor.partitions() if isinstance(distributor, HasPartitions) else ():
        box = [edge if border is None else border for border, edge in zip(row["box"], _WORLD)] if "box" in row else None
        rows.append({"number": row["number"], "tasks": list(row["tasks"]), "load": row["load"], **({} if box is None else {"box": box})})
    loads = distributor.loads()
    return {
        "version": version,
        "distributor": plan["distributor"],
        "tasks": plan["tasks"],
        "loads": loads.tolist(),
        "balance": balance(loads),
        "colours": [colour(task) for task in range(plan["tasks"])],
        "partitions": rows,
    }
