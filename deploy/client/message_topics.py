"""Which topics a topology's messages come from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dskype.spouts.settings import Settings
from dskype.spouts.streams import Messages
from dskype.spouts.topics import Topics
from dskype.topology.planning.outline import PlanOutline

__all__ = ["message_topics"]


def message_topics(record: Mapping[str, Any] | None, name: str, settings: Settings, source: str | None = None) -> tuple[str, ...]:
    """Return the topics of messages that a topology reads, in the order in which its message spout names them.

    Messages of the first one that have no id are called ``<partition>-<offset>``, others ``<topic>-<partition>-<offset>``.

    :param record: of the topology in the nimbus topic. None, or that of an earlier version: the topics are its own, or that of ``source``, and those with mappings.
    :param source: the topology whose messages it reads; None: its own.
    """
    try:
        components = PlanOutline.from_json(record["plan"]).components.values() if record is not None else ()
    except (ValueError, KeyError, TypeError, AttributeError):
        components = ()
    found = next((one.topics for one in components if one.topics and Messages.name in one.streams), None)
    first = Topics.for_topology(name, source).messages
    return found or (first, *(topic for topic in settings.inputs if topic != first))
