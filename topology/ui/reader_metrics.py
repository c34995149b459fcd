"""What readers were refused, as a metric for Prometheus: of the web server, with what its extensions count, and of the endpoint of the metrics."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily

from dskype.topology.ui.budget import Usage

__all__ = ["REFUSALS", "scrape"]

REFUSALS = (
    "dskype_reader_refusals_total",
    "Readers of the server that serves these numbers that were refused or cut off, by the limit or the rule (SECURITY.md has the list).",
)
"""Name and help text."""


class _Refusals:
    """A collector for prometheus_client."""

    def __init__(self, usage: Usage) -> None:
        self._usage = usage

    def collect(self) -> list[Any]:
        """Return the only family."""
        family = CounterMetricFamily(*REFUSALS, labels=("limit",))
        for limit, number in self._usage.refusals().items():
            family.add_metric([limit], number)
        return [family]


def scrape(usage: Usage, more: Iterable[Any] = ()) -> bytes:
    """Return the metric in Prometheus' text format; it costs as little as a small file.

    :param more: further collectors.
    """
    registry = CollectorRegistry(auto_describe=False)
    for collector in (_Refusals(usage), *more):
        registry.register(collector)
    return generate_latest(registry)
