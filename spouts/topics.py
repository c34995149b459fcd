"""The names of a DSkype topology's external topics."""

from __future__ import annotations

from typing import NamedTuple

from dskype.spouts.records import longest_record_bytes
from dskype.spouts.settings import Settings
from dskype.topology.planning.plan import dead_letters_topic, inbox_topic, metrics_topic

__all__ = ["BALANCE_KEY", "MESSAGES_STREAM", "PLAN_KEY", "TOPIC_CONFIG", "Topics", "topic_config"]

_KEEP, _COMPACT = {"cleanup.policy": "delete"}, {"cleanup.policy": "compact"}
_LOG_TIME = {"message.timestamp.type": "LogAppendTime"}
_SHORT = {**_KEEP, "retention.ms": "600000", "segment.ms": "600000"}
_FRAMING_BYTES, _BATCH_BYTES = 65536, 1 << 20
_DAY_MS, _NEVER_MS = 86_400_000, (1 << 63) - 1

MESSAGES_STREAM = "messages"
"""The stream of the message spout (:class:`dskype.spouts.streams.Messages`); here for clients, which do without numpy."""

PLAN_KEY, BALANCE_KEY = b"plan", b"balance"
"""Keys of plans that a client sends, and of those from load balancing. If both write a version, compaction must not keep the later one alone: the
earlier one counts."""


def topic_config(settings: Settings) -> dict[str, dict[str, str]]:
    """Return the configuration with which missing topics are created, by the names of :class:`Topics`.

    Kafka keeps records at least as long as said here, because it deletes or compacts whole segments.
    """
    # The broker unpacks and measures compressed records: a few KB that unpack to many MB never reach a task.
    # The same bound applies to a producer's batch.
    bounded = {"compression.type": "uncompressed", "max.message.bytes": str(max(_BATCH_BYTES, longest_record_bytes(settings.limits) + _FRAMING_BYTES))}
    kept_ms, kept_bytes = (-1 if limit is None else limit for limit in (settings.results_retention_ms, settings.results_retention_bytes))
    results = {**_KEEP, "retention.ms": str(kept_ms), "retention.bytes": str(kept_bytes), "segment.ms": str(_DAY_MS)}
    return {
        # The broker's clock stamps arrivals, so that a ttl and a latency do not depend on the clocks of clients.
        "messages": {**_KEEP, **_LOG_TIME, **bounded},
        "subscriptions": {**_COMPACT, **_LOG_TIME, **bounded},
        "results": results,
        # By message, where matches are not published one by one. There from the start: whoever follows results follows this one, too, if the setting changes later.
        "matches": results,
        # Written often, needed once per key. Kafka compacts closed segments only, and reads the whole topic each time: not for a few new records.
        "topk": {**_COMPACT, "segment.ms": "600000", "min.cleanable.dirty.ratio": "0.5"},
        # A short record when a subscription begins or ends. The last record of each subscription stays: it says whether it is active. Earlier
        # records stay longer than the results of their time (including the last segment of these): 'dskype verify' needs both.
        "registrations": {**_COMPACT, "min.compaction.lag.ms": str(_NEVER_MS if kept_ms < 0 else min(kept_ms + 2 * _DAY_MS, _NEVER_MS))},
        # Key PLAN_KEY or BALANCE_KEY: {"v": 1, "version": int, "plan": {...}}: distribution plans that a running topology changes to, one
        # after another. The plan is what Distributor.plan() returns. A version that is not above 0 and above all earlier ones is ignored.
        "plans": {**_COMPACT, "compression.type": "uncompressed"},
        # Kept as long as the messages: the numbers of deleted messages are of no use.
        "sequence": _KEEP,
        # Searches and their answers: nobody waits longer than MOST_TIMEOUT_MS for them.
        "searches": {**_SHORT, **_LOG_TIME, **bounded},
        "answers": _SHORT,
    }


TOPIC_CONFIG = topic_config(Settings())
"""The configuration with default settings."""


class Topics(NamedTuple):
    """External topics of one topology; see docs/concepts/pubsub.md for their formats.

    :ivar messages: JSON messages, in.
    :ivar subscriptions: JSON subscriptions by id, compacted, in; a null value unregisters.
    :ivar results: deltas, and matches unless they are grouped, out.
    :ivar topk: the whole current top-k by subscription id, compacted, out.
    :ivar registrations: events of subscriptions that become active or are removed, out.
    :ivar plans: distribution plans, compacted, in; see :func:`topic_config`.
    :ivar sequence: which records got which sequence numbers, out.
    :ivar matches: matches by message, out; with ``dskype.results.matches: grouped`` only.
    :ivar searches: questions about the window, in.
    :ivar answers: the parts of their answers, out.
    """

    messages: str
    subscriptions: str
    results: str
    topk: str
    registrations: str
    plans: str
    sequence: str
    matches: str
    searches: str
    answers: str
    dead_letters: str
    metrics: str

    @classmethod
    def for_topology(cls, topology: str, inputs: str | None = None) -> Topics:
        """Return the topics of a topology by its name.

        :param inputs: the topology whose messages and subscriptions it reads; default: its own.
        """
        own = cls(*(inbox_topic(topology, name) for name in cls._fields[:-2]), dead_letters_topic(topology), metrics_topic(topology))
        return own if inputs is None else own._replace(**{name: inbox_topic(inputs, name) for name in ("messages", "subscriptions")})
