"""How fast tenants get their results (``max_results_per_s`` of ``dskype.tenants``): what is more waits in Kafka, and nothing is lost."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping

from dskype.spouts.tenants import Quota, tenant_in

__all__ = ["ResultRates"]


class ResultRates:
    """The rates of all tenants in one process. Those who deliver to the same tenant share its rate.

    :param quotas: returns the present ones by tenant.
    :param clock_s: a clock that never goes back.
    """

    def __init__(self, quotas: Callable[[], Mapping[str, Quota]], clock_s: Callable[[], float] = time.monotonic) -> None:
        self._quotas, self._clock_s, self._lock = quotas, clock_s, threading.Lock()
        self._free_s: dict[str, float] = {}  # tenant whose quota it is -> when the next result may be sent

    def wait_s(self, tenant: str, results: int) -> float:
        """Return how long to wait before some results are sent, and count them."""
        quotas = self._quotas()
        if not quotas or not results or (most := quotas[tenant_in(quotas, tenant)].max_results_per_s) is None:
            return 0.0
        with self._lock:
            now_s = self._clock_s()
            free_s = max(now_s, self._free_s.get(tenant, now_s))
            self._free_s[tenant] = free_s + results / most
            return free_s - now_s
