"""How fast tenants get their results (``max_results_per_s`` of ``dskype.tenants``), and how many they got: what is more waits in Kafka, and nothing is lost."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from prometheus_client.core import CounterMetricFamily

from dskype.spouts.tenants import Quota, tenant_in

__all__ = ["DELIVERED", "ResultRates", "TenantRate", "TenantResults"]

DELIVERED = (
    ("dskype_tenant_results_total", "Results that the process which serves these numbers has sent to a tenant."),
    ("dskype_tenant_results_delayed_total", "Those of them that had to wait, because more came than max_results_per_s allows."),
)
"""Names and help texts of the metrics of :class:`TenantResults`; their labels are ``topology`` and ``tenant``."""


class TenantResults:
    """How many results one process has sent to tenants, as a collector for prometheus_client.

    A tenant without quotas of its own counts as ``default`` where there are quotas. So there is at most one label more than names that the process was given.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: tuple[Counter[tuple[str, str]], ...] = (Counter(), Counter())

    def note(self, topology: str, tenant: str, sent: int, delayed: int) -> None:
        """Count results; a tenant without any appears with 0, because Prometheus sees no increase where a counter begins with 1."""
        with self._lock:
            for counts, number in zip(self._counts, (sent, delayed), strict=True):
                counts[topology, tenant] += number

    def collect(self) -> list[Any]:
        """Return the families."""
        with self._lock:
            found = [CounterMetricFamily(name, text, labels=("topology", "tenant")) for name, text in DELIVERED]
            for family, counts in zip(found, self._counts, strict=True):
                for labels, number in counts.items():
                    family.add_metric(labels, number)
            return found


class ResultRates:
    """The rates of all tenants of a topology in one process. Those who deliver to the same tenant share its rate.

    :param quotas: returns the present ones by tenant.
    :param topology: its name.
    :param results: counts what is delivered.
    :param clock_s: a clock that never goes back.
    """

    def __init__(self, quotas: Callable[[], Mapping[str, Quota]], topology: str, results: TenantResults, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._quotas, self._topology, self._results, self._clock_s, self._lock = quotas, topology, results, clock_s, threading.Lock()
        self._free_s: dict[str, float] = {}  # tenant whose quota it is -> when the next result may be sent

    def of(self, tenant: str) -> TenantRate:
        """Return the rate of one who delivers to a tenant."""
        self.note(tenant, 0, 0.0)
        return TenantRate(self, tenant)

    def note(self, tenant: str, results: int, waited_s: float) -> None:
        """Count results that were sent to a tenant after a wait."""
        quotas = self._quotas()
        self._results.note(self._topology, tenant_in(quotas, tenant) if quotas else tenant, results, results if waited_s > 0 else 0)

    def wait_s(self, tenant: str, results: int) -> float:
        """Return how long to wait before some results are sent to a tenant; they count for its rate from then on."""
        quotas = self._quotas()
        if not quotas or not results or (most := quotas[name := tenant_in(quotas, tenant)].max_results_per_s) is None:
            return 0.0
        with self._lock:
            now_s = self._clock_s()
            free_s = max(now_s, self._free_s.get(name, now_s))
            self._free_s[name] = free_s + results / most
            return free_s - now_s


class TenantRate:
    """The rate of one who delivers to a tenant; made by :meth:`ResultRates.of`.

    :param rates: of the topology.
    :param tenant: as whoever delivers names it.
    """

    def __init__(self, rates: ResultRates, tenant: str) -> None:
        self._rates, self._tenant = rates, tenant

    def wait_s(self, results: int) -> float:
        """Return how long to wait before some results are sent."""
        return self._rates.wait_s(self._tenant, results)

    def note(self, results: int, waited_s: float) -> None:
        """Count results that were sent after such a wait."""
        self._rates.note(self._tenant, results, waited_s)
