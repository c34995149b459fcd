"""How many executors Spark has on other hosts, and how many tasks reach all of them."""

from __future__ import annotations

from typing import Any

__all__ = ["count_executors", "tasks_on_all_executors"]


def count_executors(context: Any) -> int:
    """Return the number of Spark's executors on other hosts, those that Spark has not given up."""
    return max(0, len(context._jsc.sc().statusTracker().getExecutorInfos()) - 1)  # one is the driver


def tasks_on_all_executors(context: Any) -> int:
    """Return how many tasks a job needs so that every Spark executor most likely gets one: Spark deals them out in turn to free slots."""
    return 4 * max(8, count_executors(context))
