"""Addresses of this machine."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

__all__ = ["ALL_ADDRESSES", "is_loopback", "own_names", "url_host"]

ALL_ADDRESSES = {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "::1"}
"""What to listen on to be reached by every address of this machine -> the address by which this machine itself reaches it."""


def is_loopback(host: str) -> bool:
    """Tell whether only this machine can reach an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def url_host(host: str) -> str:
    """Return an address as it is written in a URL."""
    return f"[{host}]" if ":" in host else host


def own_names(host: str, further: Iterable[str] = ()) -> frozenset[str] | None:
    """Return the names by which requests may name a server, without a port; None: any, because nobody has said what its names are.

    :param host: the address on which it listens.
    :param further: names that it was given.
    """
    names = [name.lower() for name in further]
    if host in ALL_ADDRESSES and not names:
        return None
    return frozenset({"127.0.0.1", "localhost", "[::1]", url_host(ALL_ADDRESSES.get(host, host)).lower(), *names})
