"""Who a token belongs to, and what that one may ask for."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from typing import Any

from dskype.topology.errors import explain

__all__ = ["Rights", "tenant_of"]


class Rights:
    """The tokens of the operator and of tenants.

    Without tenants everyone may read, and changes need the operator's token. With tenants everything needs a token: the operator's for all, a tenant's for what an
    extension has :attr:`~dskype.topology.ui.extension.Extension.for_tenants`. Only digests of the tenants' tokens are kept.

    :param token: the operator's.
    :param tenants: tenant -> its token.
    """

    def __init__(self, token: str, tenants: Mapping[str, str]) -> None:
        self._token = token.encode()
        self._tenants = {hashlib.sha256(own.encode()).digest(): tenant for tenant, own in tenants.items()}

    @property
    def guarded(self) -> bool:
        """Whether reading needs a token, too."""
        return bool(self._tenants)

    def of(self, given: str) -> tuple[bool, str | None]:
        """Return whether a token is right, and the tenant that it belongs to; None: the operator."""
        if hmac.compare_digest(given.encode(), self._token):
            return True, None
        tenant = self._tenants.get(hashlib.sha256(given.encode()).digest())
        return tenant is not None, tenant

    def words(self, change: bool) -> str:
        """Return what is said to somebody without a right token."""
        if not self.guarded:
            return "A change needs the token that was printed when the UI started, or given to it: Authorization: Bearer TOKEN"
        what = "A change" if change else "Reading"
        return explain(
            f"{what} needs a token: the operator's, or that of a tenant.", hint="Authorization: Bearer TOKEN, or #token=TOKEN in the address of a page"
        )


def tenant_of(request: Any) -> str | None:
    """Return the tenant whose token a request has; None: the operator's, or nobody needs one."""
    return getattr(request.state, "tenant", None)
