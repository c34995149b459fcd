"""The names of a DSkype topology's external topics."""

from __future__ import annotations

from typing import NamedTuple

from dskype.spouts.records import longest_record_bytes
from dskype.spouts.settings import Settings
from dskype.topology.planning.plan import dead_letters_topic, inbox_topic, metrics_topic

__all__ = ["TOPIC_CONFIG", "Topics", "topic_config"]

_KEEP, _COMPACT = {"cleanup.policy": "delete"}, {"cleanup.policy": "compact"}
_LOG_TIME = {"message.timestamp.type": "LogAppendTime"}
_FRAMING_BYTES, _BATCH_BYTES = 65536, 1 << 20
_DAY_MS, _NEVER_MS = 86_400_000, (1 << 63) - 1


def topic_config(settings: Settings) -> dict[str, dict[str, str]]:
    """Return how the topics are set up where they are missing, by the names of :class:`Topics`.

    Kafka keeps records at least so long; it deletes or compacts whole segments, which ends later.
    """
    # Compressed records are unpacked and measured by the broker: a few KB that unpack to many MB never reach a task.
    # The bound is that of a producer's batch, too.
    bounded = {"compression.type": "uncompressed", "max.message.bytes": str(max(_BATCH_BYTES, longest_record_bytes(settings.limits) + _FRAMING_BYTES))}
    kept_ms, kept_bytes = (-1 if limit is None else limit for limit in (settings.results_retention_ms, settings.results_retention_bytes))
    results = {**_KEEP, "retention.ms": str(kept_ms), "retention.bytes": str(kept_bytes), "segment.ms": str(_DAY_MS)}
    return {
        # Arrival is what the broker's clock says: a ttl and a latency then do not depend on the clocks of clients.
        "messages": {**_KEEP, **_LOG_TIME, **bounded},
        "subscriptions": {**_COMPACT, **_LOG_TIME, **bounded},
        "results": results,
        # By message, where matches are not published one by one.
        **({"matches": results} if settings.matches == "grouped" else {}),
        # Written often, needed once per key: closed segments are what Kafka compacts. Each time it reads all of it: not for a few new records.
        "topk": {**_COMPACT, "segment.ms": "600000", "min.cleanable.dirty.ratio": "0.5"},
        # A short record when a subscription begins or ends. Of each subscription the last one stays: it says who is active. Those before it
        # stay longer than the results that were published meanwhile, the last segment of these included: 'dskype verify' needs both.
        "registrations": {**_COMPACT, "min.compaction.lag.ms": str(_NEVER_MS if kept_ms < 0 else min(kept_ms + 2 * _DAY_MS, _NEVER_MS))},
        # Key "plan": {"v": 1, "version": int, "plan": {...}}: plans of the distributor that a running topology changes to, one after
        # another. The plan is what Distributor.plan() returns; the version must be above all before it (and above 0), others are passed over.
        "plans": {**_COMPACT, "compression.type": "uncompressed"},
        # As long as its messages: numbers of messages that are gone help nobody.
        "sequence": _KEEP,
    }


TOPIC_CONFIG = topic_config(Settings())
"""The same with the default settings."""


class Topics(NamedTuple):
    """External topics of one topology; see docs/pubsub.md for their formats.

    :ivar messages: JSON messages, in.
    :ivar subscriptions: JSON subscriptions by id, compacted, in; a null value unregisters.
    :ivar results: deltas, and matches unless they are grouped, out.
    :ivar matches: matches by message, out; with ``dskype.results.matches: grouped`` only.
    :ivar topk: the whole current top-k by subscription id, compacted, out.
    :ivar registrations: when a subscription became active and was removed, out.
    :ivar plans: plans of the distributor, compacted, in; see ``TOPIC_CONFIG``.
    :ivar sequence: which records got which sequence numbers, out.
    """

    messages: str
    subscriptions: str
    results: str
    matches: str
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
        own = cls(*(inbox_topic(topology, name) for name in cls._fields[:-2]), dead_letters_topic(topology), metrics_topic(topology))
        return own if inputs is None else own._replace(**{name: inbox_topic(inputs, name) for name in ("messages", "subscriptions")})
