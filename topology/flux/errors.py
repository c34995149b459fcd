"""Errors of Flux files."""

from __future__ import annotations

from dskype.topology.errors import IllegalArgumentException

__all__ = ["ClassNotFoundException", "FluxException"]


class FluxException(IllegalArgumentException):
    """A Flux file, or what it includes, cannot be read or built."""


class ClassNotFoundException(FluxException):
    """A ``className`` is neither in the registry nor in an allowed module."""
