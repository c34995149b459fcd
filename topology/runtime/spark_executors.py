"""How many executors Spark has on other hosts, how long they have been there, and how many tasks reach all of them."""

from __future__ import annotations

import time
from typing import Any

__all__ = ["count_executors", "newest_executor_age_s", "tasks_on_all_executors"]


def count_executors(context: Any) -> int:
    """Return the number of Spark's executors on other hosts, those that Spark has not given up."""
    return max(0, len(context._jsc.sc().statusTracker().getExecutorInfos()) - 1)  # one is the driver


def newest_executor_age_s(context: Any) -> float:
    """Return for how many seconds the newest of Spark's executors has been there; 0 without one."""
    executors = context._jsc.sc().statusStore().executorList(True)
    since_ms = [e.addTime().getTime() for e in map(executors.apply, range(executors.size())) if e.id() != "driver"]
    return max(0.0, time.time() - max(since_ms) / 1000) if since_ms else 0.0


def tasks_on_all_executors(context: Any) -> int:
    """Return how many tasks a job needs so that every Spark executor most likely gets one: Spark deals them out in turn to free slots."""
    return 4 * max(8, count_executors(context))
