"""The packages of the extra ``spark``, which whoever only publishes and subscribes need not have."""

from __future__ import annotations

from importlib.util import find_spec

__all__ = ["SPARK", "missing_for_topologies"]

SPARK = ("pyspark", "msgpack", "numba", "pyarrow", "pandas", "yaml")
"""The modules of those packages, by which they are imported."""


def missing_for_topologies() -> list[str]:
    """Return the modules of the extra ``spark`` that are not installed, without importing the others."""
    return [name for name in SPARK if find_spec(name) is None]
