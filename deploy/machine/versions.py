"""Versions of installed packages."""

from __future__ import annotations

__all__ = ["installed_version", "own_version"]


def installed_version(package: str, default: str) -> str:
    """Return the version of an installed package, or ``default``."""
    from importlib.metadata import PackageNotFoundError, version  # imported late: it would slow down every command

    try:
        return version(package)
    except PackageNotFoundError:
        return default


def own_version() -> str:
    """Return the version of this product."""
    return installed_version("dskype", "unknown")
