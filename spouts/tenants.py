"""Tenants: who a subscription belongs to, and how much each of them may have (``dskype.tenants``)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from dskype.topology.errors import IllegalArgumentException

__all__ = ["DEFAULT_TENANT", "TENANTS", "TENANTS_MOST", "TENANT_LEGAL", "Quota", "is_tenant", "read_tenants", "tenant_in"]

DEFAULT_TENANT = "default"
"""The tenant of subscriptions that name none, or one that ``dskype.tenants`` does not have."""
TENANTS = "tenants"
"""The metric of a distribution task with the numbers of each tenant."""
TENANTS_MOST = 1000
"""The most tenants of a topology: each has counters of its own."""
TENANT_LEGAL = "1 to 64 ASCII letters, digits, dots, underscores and hyphens, the first one a letter or a digit"
_TENANT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class Quota(NamedTuple):
    """What a tenant may have; None: any number.

    :ivar max_subscriptions: how many subscriptions may live at once.
    :ivar max_registrations_per_s: how many registrations are taken in a second of arrival; removals are not counted.
    :ivar max_results_per_s: how many results a second the web server and webhooks send to it; others wait.
    """

    max_subscriptions: int | None = None
    max_registrations_per_s: int | None = None
    max_results_per_s: int | None = None


def is_tenant(value: Any) -> bool:
    """Tell whether a value can be the name of a tenant."""
    return isinstance(value, str) and _TENANT.fullmatch(value) is not None


def tenant_in(tenants: Mapping[str, Quota], named: str | None) -> str:
    """Return the tenant whose quotas hold for a subscription.

    :param tenants: by name.
    :param named: by the subscription; None: it names none.
    """
    return named if named is not None and named in tenants else DEFAULT_TENANT


def read_tenants(key: str, value: Any) -> dict[str, Quota]:
    """Return the quotas of a configuration by tenant, with those of the default tenant among them; {}: there are no tenants.

    :param key: of the configuration.
    :raises IllegalArgumentException: it cannot be used.

    >>> read_tenants("dskype.tenants", {"acme": {"max_subscriptions": 5}})
    {'acme': Quota(max_subscriptions=5, max_registrations_per_s=None, max_results_per_s=None), 'default': Quota(max_subscriptions=None, max_registrations_per_s=None, max_results_per_s=None)}
    """
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise _refuse(key, value, "a map from names of tenants to their quotas, or null")
    if len(value) > TENANTS_MOST:
        raise _refuse(key, f"{len(value)} tenants", f"at most {TENANTS_MOST}", "let small tenants share the quotas of 'default'")
    found: dict[str, Quota] = {}
    for tenant, quotas in value.items():
        if not is_tenant(tenant):
            raise _refuse(key, f"the tenant {tenant!r}", TENANT_LEGAL, "quote a name that YAML would read as a number")
        if not isinstance(quotas, Mapping):
            raise _refuse(key, f"{tenant}: {quotas!r}", f"a map of quotas, such as {{{Quota._fields[0]}: 1000}}; {{}} for no bound")
        for name, most in quotas.items():
            if name not in Quota._fields:
                raise _refuse(key, f"{tenant}: {name!r}", ", ".join(Quota._fields))
            least = 1 if name == "max_results_per_s" else 0
            if most is not None and (type(most) is not int or not least <= most < 1 << 53):
                raise _refuse(key, f"{tenant}: {name}: {most!r}", f"an integer, {least} or more, or null for no bound")
        found[tenant] = Quota(**quotas)
    return {DEFAULT_TENANT: Quota(), **found} if DEFAULT_TENANT in found else {**found, DEFAULT_TENANT: Quota()}


def _refuse(key: str, given: Any, legal: str, hint: str | None = None) -> IllegalArgumentException:
    return IllegalArgumentException(f"The configuration key {key} is not usable.", given=given, legal=legal, hint=hint)
