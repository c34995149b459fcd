"""The names of a DSkype topology's external topics."""

from __future__ import annotations

from typing import NamedTuple

from dskype.topology.plan import dead_letters_topic, inbox_topic, metrics_topic

__all__ = ["TOPIC_CONFIG", "Topics"]

_KEEP, _COMPACT = {"cleanup.policy": "delete"}, {"cleanup.policy": "compact"}
_LOG_TIME = {"message.timestamp.type": "LogAppendTime"}

TOPIC_CONFIG: dict[str, dict[str, str]] = {
    # Arrival is what the broker's clock says: a ttl and a latency then do not depend on the clocks of clients.
    "messages": {**_KEEP, **_LOG_TIME},
    "subscriptions": {**_COMPACT, **_LOG_TIME},
    "results": _KEEP,
    # Written often, needed once per key: closed segments are what Kafka compacts. Each time it reads all of it: not for a few new records.
    "topk": {**_COMPACT, "segment.ms": "600000", "min.cleanable.dirty.ratio": "0.5"},
    # One short record when a subscription begins or ends; without the old ones nobody knows who is active.
    "registrations": {**_KEEP, "retention.ms": "-1"},
    # Key "plan": {"v": 1, "version": int, "plan": {...}}: plans of the distributor that a running topology changes to, one after
    # another. The plan is what Distributor.plan() returns; the version must be above all before it (and above 0), others are passed over.
    "plans": _COMPACT,
    # As long as its messages: numbers of messages that are gone help nobody.
    "sequence": _KEEP,
}
"""How the topics are set up where they are missing, by the names of :class:`Topics`."""


class Topics(NamedTuple):
    """External topics of one topology; see design and README for their formats.

    :ivar messages: JSON messages, in.
    :ivar subscriptions: JSON subscriptions by id, compacted, in; a null value unregisters.
    :ivar results: deltas, out.
    :ivar topk: the whole current top-k by subscription id, compacted, out.
    :ivar registrations: when a subscription became active and was removed, out.
    :ivar plans: plans of the distributor, compacted, in; see ``TOPIC_CONFIG``.
    :ivar sequence: which records got which sequence numbers, out.
    """

    messages: str
    subscriptions: str
    results: str
    topk: str
    registrations: str
    plans: str
    sequence: str
    dead_letters: str
    metrics: str

    @classmethod
    def of(cls, topology: str, inputs: str | None = None) -> Topics:
        """Return the topics of a topology by its name.

        :param inputs: the topology whose messages and subscriptions it reads; None: its own.
        """
        own = cls(*(inbox_topic(topology, name) for name in TOPIC_CONFIG), dead_letters_topic(topology), metrics_topic(topology))
        return own if inputs is None else own._replace(**{name: inbox_topic(inputs, name) for name in ("messages", "subscriptions")})
