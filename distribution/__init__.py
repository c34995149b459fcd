"""Distributors: which subscription bolts a subscription lives on, and which of them need a message."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from dskype.distribution.base import Distributor
from dskype.distribution.hashing import HashingDistributor
from dskype.topology.errors import IllegalArgumentException, explain

__all__ = ["DISTRIBUTORS", "Distributor", "HashingDistributor", "make_distributor"]

DISTRIBUTORS: dict[str, type[Distributor]] = {"hashing": HashingDistributor}
"""Distributors by the name that ``dskype.distributor`` gives."""


def make_distributor(name: str, tasks: int, options: Mapping[str, Any] | None = None) -> Distributor:
    """Return a distributor by its name.

    :raises IllegalArgumentException: the name is not known, or the options are not.
    """
    kind = DISTRIBUTORS.get(name)
    if kind is None:
        near = difflib.get_close_matches(str(name), DISTRIBUTORS, 1)
        raise IllegalArgumentException(explain("The distributor is not known.", given=name, legal=", ".join(sorted(DISTRIBUTORS)),
                                               hint=f"did you mean {near[0]}?" if near else None))
    return kind(tasks, options)
