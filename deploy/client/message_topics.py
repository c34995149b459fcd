"""Which topics a topology's messages come from, and what their records say."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from dskype.spouts.input_mapping import MessageReader
from dskype.spouts.records import Message
from dskype.spouts.settings import Settings
from dskype.spouts.topics import MESSAGES_STREAM, Topics
from dskype.topology.planning.outline import PlanOutline

__all__ = ["MessageTopics", "message_topics"]

_DEFAULT_ID = re.compile(r"(?:(.+)-)?(\d{1,9})-(\d{1,18})")


def message_topics(record: Mapping[str, Any] | None, name: str, settings: Settings, source: str | None = None) -> tuple[str, ...]:
    """Return the topics of messages that a topology reads, in the order in which its message spout names them.

    :param record: of the topology in the nimbus topic. None, or that of an earlier version: the topics are its own, or that of ``source``, and those with mappings.
    :param source: the topology whose messages it reads; None: its own.
    """
    try:
        components = list(PlanOutline.from_json(record["plan"]).components.values()) if record is not None else []
    except (ValueError, KeyError, TypeError, AttributeError):
        components = []
    found = next((one.topics for one in components if one.topics and MESSAGES_STREAM in one.streams), None)
    first = Topics.for_topology(name, source).messages
    return found or (first, *(topic for topic in settings.inputs if topic != first))


class MessageTopics:
    """Reads the records of a topology's topics of messages, each in its form.

    :param names: the topics in the order of the message spout.
    :param settings: of the topology.
    :param own: the topology's own topic of messages, whose records have DSkype's own form.
    """

    def __init__(self, names: Sequence[str], settings: Settings, own: str) -> None:
        self.names = tuple(names)
        self.objects = settings.objects
        """Whether messages may name objects."""
        self.limits = settings.limits
        self._readers = {topic: MessageReader(settings, settings.mapping_of(topic, own)) for topic in self.names}
        self._mapped = frozenset(topic for topic in self.names if settings.mapping_of(topic, own) is not None)

    def is_mapped(self, topic: str) -> bool:
        """Tell whether the records of a topic have another form than DSkype's own."""
        return topic in self._mapped

    def own_form(self, topic: str, value: bytes | None) -> Any:
        """Return a record in DSkype's own form, not checked: a dict, or, without a mapping, what was given.

        :raises RecordError: something is missing, or cannot be read.
        """
        return self._readers[topic].own_form(value)

    def read(self, topic: str, value: bytes | None) -> Message:
        """Return the message in a record; it is checked as the topology does it, except for its time.

        :raises RecordError: the topology would refuse it.
        """
        reader = self._readers[topic]
        return reader.check(reader.own_form(value))

    def default_id(self, topic: str, partition: int, offset: int) -> str:
        """Return what a message without an id is called: ``<partition>-<offset>`` if it is from the first topic, ``<topic>-<partition>-<offset>`` if it is from another."""
        return f"{partition}-{offset}" if topic == self.names[0] else f"{topic}-{partition}-{offset}"

    def place_of(self, id: str | int) -> tuple[str, int, int] | None:
        """Return (topic, partition, offset) of a default id; None of any other id."""
        found = _DEFAULT_ID.fullmatch(id) if isinstance(id, str) else None
        topic = None if found is None else self.names[0] if found[1] is None else found[1] if found[1] in self.names[1:] else None
        return None if found is None or topic is None else (topic, int(found[2]), int(found[3]))
