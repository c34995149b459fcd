"""Checks of topologies that several bolts make at submission."""

from __future__ import annotations

from typing import Any

from dskype.topology.errors import InvalidTopologyException

__all__ = ["require_component"]


def require_component(topology: Any, component_id: str, other: str, words: str) -> None:
    """Refuse a topology that lacks a component which ``component_id`` needs.

    :param other: id of the component that has to be there.
    :param words: says what is wrong if it is not.
    :raises InvalidTopologyException: the topology has no component ``other``.
    """
    if other not in topology.components:
        raise InvalidTopologyException(words, given=other, legal=", ".join(sorted(topology.components)), component=component_id)
