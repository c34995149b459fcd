"""The names of a DSkype topology's external topics."""

from __future__ import annotations

from typing import NamedTuple

from dskype.topology.plan import dead_letters_topic, inbox_topic, metrics_topic

__all__ = ["Topics"]


class Topics(NamedTuple):
    """External topics of one topology; see design and README for their formats.

    :ivar messages: JSON messages, in.
    :ivar subscriptions: JSON subscriptions by id, compacted, in; a null value unregisters.
    :ivar results: deltas, out.
    :ivar topk: the whole current top-k by subscription id, compacted, out.
    :ivar registrations: when a subscription became active and was removed, out.
    :ivar sequence: which records got which sequence numbers, out.
    """

    messages: str
    subscriptions: str
    results: str
    topk: str
    registrations: str
    sequence: str
    dead_letters: str
    metrics: str

    @classmethod
    def of(cls, topology: str) -> Topics:
        """Return the topics of a topology by its name."""
        names = ("messages", "subscriptions", "results", "topk", "registrations", "sequence")
        return cls(*(inbox_topic(topology, name) for name in names), dead_letters_topic(topology), metrics_topic(topology))
