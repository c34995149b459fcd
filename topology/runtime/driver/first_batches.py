"""Waiting until every component of a topology has run a batch."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from kafka.errors import KafkaError

from dskype.topology.errors import shorten
from dskype.topology.planning.plan import TopologyPlan
from dskype.topology.runtime.driver.driver import TopologyDriver

__all__ = ["await_first_batches"]

_NOTICE_S = 30
_ERROR_CHARS = 300


def await_first_batches(driver: TopologyDriver, notice: Callable[[str], None], wanted: Callable[[], bool], since_ms: int = 0) -> None:
    """Wait until every component has reported to this driver, which shows that Spark, brokers and executors work together.

    :param driver: of an opened topology.
    :param notice: gets a line of text every half minute, about what is waited for.
    :param wanted: tells whether the topology is still to run; if not, the wait ends.
    :param since_ms: when the start began, epoch ms: errors before that are of an earlier run, and say nothing about this one.
    :raises TopologyError: the topology has failed.
    """
    while wanted() and (missing := _missing(driver.plan, driver.stats.reported(driver.tenure.term))):
        with contextlib.suppress(KafkaError):
            driver.request_snapshots()  # bolts without input have a batch, too
        with contextlib.suppress(TimeoutError):
            driver.wait_until(lambda stats: not wanted() or not _missing(driver.plan, stats.reported(driver.tenure.term)), _NOTICE_S, "a first batch")
            return
        notice(f"waiting for the first batch of {', '.join(missing)}{_last_error(driver.stats.errors, since_ms)}")


def _missing(plan: TopologyPlan, reported: Collection[int]) -> list[str]:
    """Return the components of which no task has reported."""
    return [c for c in plan.component_ids if not any(task in reported for task in plan.component_tasks(c))]


def _last_error(errors: Iterable[Mapping[str, Any]], since_ms: int) -> str:
    last = [error for error in list(errors) if error.get("time_ms", 0) >= since_ms][-1:]
    return f"; the last error is of {last[0]['component']}: {shorten(last[0]['error'], _ERROR_CHARS)}" if last else ""
