"""Quotas of tenants: how many subscriptions each has, and whether it may register another one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from sortedcontainers import SortedList

from dskype.topology.errors import explain

__all__ = ["Excess", "Quotas"]

_NEVER_MS = np.iinfo(np.int64).max


class Excess(NamedTuple):
    """Why a registration is refused.

    :ivar tenant: whose quota it exceeds.
    :ivar quota: the name of the quota.
    :ivar most: how much the quota allows.
    :ivar used: how much of it is used without the registration.
    """

    tenant: str
    quota: str
    most: int
    used: int

    def headers(self) -> dict[str, str]:
        """Return the headers of the dead letter that say so to programs."""
        return {"tenant": self.tenant, "quota": self.quota, "most": str(self.most), "used": str(self.used)}

    def reason(self, subscription: str, component: str) -> str:
        """Return one sentence for the author and the operator."""
        hints = {"max_subscriptions": "remove some, or raise the quota", "max_registrations_per_s": "try again in a second, or raise the quota"}
        words = {"max_subscriptions": "subscriptions live", "max_registrations_per_s": "registrations in this second"}
        return explain(
            f"The quota {self.quota} of the tenant {self.tenant} is used up: {self.used:,} of {self.most:,} {words[self.quota]}.",
            given=subscription[:80],
            component=component,
            hint=f"{hints[self.quota]} (dskype.tenants)",
        )


class Quotas:
    """The live subscriptions of all tenants, in the order in which they were registered.

    Each registration comes with its quotas, as the subscription spout read them. So the same decisions are made again when the inbox is read
    again, also after the configuration has changed. The time is the newest arrival of a registration. It never goes back.

    A subscription lives from its registration until it is removed, or until a registration arrives ``ttl_s`` or more after it. About 250 bytes each.
    """

    def __init__(self) -> None:
        self._live: dict[str, tuple[str, int]] = {}  # subscription -> its tenant, and the end of its life (epoch ms)
        self._ends = SortedList()  # (end in ms, subscription) of those that end
        self._now_ms = 0
        self._second = -1
        self._registered: Counter[str] = Counter()  # by tenant, in this second
        self.used: Counter[str] = Counter()
        """Tenant -> how many of its subscriptions live."""
        self._taken: Counter[str] = Counter()
        self._refused: Counter[tuple[str, str]] = Counter()

    def report(self) -> dict[str, dict[str, Any]]:
        """Return tenant -> ``subscriptions`` that live, ``registrations`` that were taken, and ``refused`` ones by quota; tenants that never had any are left out."""
        found: dict[str, dict[str, Any]] = {
            tenant: {"subscriptions": self.used[tenant], "registrations": self._taken[tenant], "refused": {}} for tenant in self._taken
        }
        for (tenant, quota), number in self._refused.items():
            found.setdefault(tenant, {"subscriptions": self.used[tenant], "registrations": 0, "refused": {}})["refused"][quota] = number
        return found

    def excess(self, name: str, record: Mapping[str, Any]) -> Excess | None:
        """Count a registration, or count and return why it is refused. A refused one leaves the subscription of its name as it was.

        :param record: of the subscription spout, with ``quota``: the tenant, its ``max_subscriptions`` and ``max_registrations_per_s``, and the arrival in ms.
        """
        excess = self._excess(name, *record["quota"])
        if excess is not None:
            self._refused[excess.tenant, excess.quota] += 1
            return excess
        self.remove(name)
        tenant, end_ms = record["quota"][0], record.get("expires_ms", _NEVER_MS)
        self._registered[tenant] += 1
        self._taken[tenant] += 1
        self._live[name] = tenant, end_ms
        self.used[tenant] += 1
        if end_ms < _NEVER_MS:
            self._ends.add((end_ms, name))
        return None

    def _excess(self, name: str, tenant: str, most: int | None, most_per_s: int | None, arrival_ms: int) -> Excess | None:
        self._advance(arrival_ms)
        if most_per_s is not None and (registered := self._registered[tenant]) >= most_per_s:
            return Excess(tenant, "max_registrations_per_s", most_per_s, registered)
        before = self._live.get(name)
        if most is not None and self.used[tenant] >= most and (before is None or before[0] != tenant):
            return Excess(tenant, "max_subscriptions", most, self.used[tenant])
        return None

    def remove(self, name: str) -> None:
        """Forget a subscription; an unknown one is no error."""
        if (found := self._live.pop(name, None)) is None:
            return
        tenant, end_ms = found
        self.used[tenant] -= 1
        if end_ms < _NEVER_MS:
            self._ends.remove((end_ms, name))

    def _advance(self, arrival_ms: int) -> None:
        self._now_ms = max(self._now_ms, arrival_ms)
        while self._ends and self._ends[0][0] <= self._now_ms:
            self.remove(self._ends[0][1])
        if self._now_ms // 1000 != self._second:
            self._second = self._now_ms // 1000
            self._registered.clear()

    def snapshot(self) -> Any:
        """Return the state as plain values."""
        tenants = list(self.used)
        number = {tenant: i for i, tenant in enumerate(tenants)}
        owners = np.array([number[tenant] for tenant, _ in self._live.values()], np.int32)
        ends_ms = np.array([end_ms for _, end_ms in self._live.values()], np.int64)
        counts = [dict(self._registered), dict(self._taken), [[*key, number] for key, number in self._refused.items()]]
        return [self._now_ms, *counts, tenants, list(self._live), owners, ends_ms]

    def restore(self, state: Any) -> None:
        """Continue from a snapshot."""
        self._now_ms, registered, taken, refused, tenants, names, owners, ends_ms = state
        self._second, self._registered, self._taken = self._now_ms // 1000, Counter(registered), Counter(taken)
        self._refused = Counter({(tenant, quota): number for tenant, quota, number in refused})
        self._live = {name: (tenants[owner], end_ms) for name, owner, end_ms in zip(names, owners.tolist(), ends_ms.tolist(), strict=True)}
        self._ends = SortedList((end_ms, name) for name, (_, end_ms) in self._live.items() if end_ms < _NEVER_MS)
        self.used = Counter(dict.fromkeys(tenants, 0))
        self.used.update(tenant for tenant, _ in self._live.values())
