"""Errors of Flux files."""

from __future__ import annotations

from dskype.topology.errors import IllegalArgumentException

__all__ = ["ClassNotFoundException", "FluxException"]


class FluxException(IllegalArgumentException):
    """A Flux file, or a file that it includes, cannot be read or built."""


class ClassNotFoundException(FluxException):
    """A ``className`` is in neither the registry nor an allowed module."""
