"""DSkype's components and the streams between them, in Python; ``deploy/topologies/dskype.yaml`` has the same for Flux."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dskype.bolts.aggregation_bolt import AggregationBolt
from dskype.bolts.distribution_bolt import DistributionBolt
from dskype.bolts.message_bolt import MessageBolt
from dskype.bolts.result_bolt import ResultBolt
from dskype.bolts.subscription_bolt import SubscriptionBolt
from dskype.spouts import streams
from dskype.spouts.kafka import MessageSpout, SubscriptionSpout
from dskype.spouts.topics import Topics
from dskype.topology.builder import TopologyBuilder
from dskype.topology.errors import IllegalArgumentException
from dskype.topology.fields import Fields
from dskype.topology.groupings import AllGrouping, DirectGrouping, FieldsGrouping, Grouping, ShuffleGrouping

__all__ = ["dskype_topology"]

_SHUFFLE, _ALL, _DIRECT, _BY_SUBSCRIPTION = ShuffleGrouping(), AllGrouping(), DirectGrouping(), FieldsGrouping(Fields("subscription"))

_WIRING: tuple[tuple[str, type[streams.Stream], str, Grouping], ...] = (
    ("message-spout", streams.Messages, "distribution-bolt", _SHUFFLE),
    ("message-spout", streams.Updates, "distribution-bolt", FieldsGrouping(Fields("object"))),
    ("subscription-spout", streams.Subscriptions, "distribution-bolt", _BY_SUBSCRIPTION),
    ("subscription-spout", streams.Plans, "distribution-bolt", _ALL),
    ("subscription-spout", streams.Searches, "distribution-bolt", _SHUFFLE),
    ("subscription-bolt", streams.Shortages, "distribution-bolt", _BY_SUBSCRIPTION),
    ("subscription-bolt", streams.Switched, "distribution-bolt", _ALL),
    ("distribution-bolt", streams.Interest, "distribution-bolt", _DIRECT),
    ("subscription-bolt", streams.Balance, "distribution-bolt", _DIRECT),
    ("distribution-bolt", streams.Matching, "subscription-bolt", _DIRECT),
    ("distribution-bolt", streams.Pairs, "subscription-bolt", _DIRECT),
    ("distribution-bolt", streams.Placements, "subscription-bolt", _DIRECT),
    ("subscription-bolt", streams.Transfers, "subscription-bolt", _DIRECT),
    ("aggregation-bolt", streams.Answers, "subscription-bolt", _DIRECT),
    ("distribution-bolt", streams.Window, "message-bolt", _DIRECT),
    ("distribution-bolt", streams.Ends, "message-bolt", _DIRECT),
    ("distribution-bolt", streams.Lookups, "message-bolt", _ALL),
    ("subscription-bolt", streams.Requests, "message-bolt", _ALL),
    ("subscription-bolt", streams.Progress, "message-bolt", _ALL),
    ("message-bolt", streams.Partials, "aggregation-bolt", _BY_SUBSCRIPTION),
    ("subscription-bolt", streams.Results, "result-bolt", _BY_SUBSCRIPTION),
    ("subscription-bolt", streams.Lists, "result-bolt", _BY_SUBSCRIPTION),
    ("distribution-bolt", streams.Registrations, "result-bolt", _BY_SUBSCRIPTION),
)
"""Source, stream, target and grouping."""


def dskype_topology(name: str = "dskype", tasks: Mapping[str, int] | None = None, result_tick_secs: int | None = 2) -> TopologyBuilder:
    """Return a builder that has DSkype's components and streams; more components may be added to it.

    Settings (``dskype.space``, ...) belong to the configuration that the topology is submitted with.

    :param name: the topology's name, which begins the names of its topics.
    :param tasks: component -> number of its tasks; default: one of each.
    :param result_tick_secs: seconds between ticks of the result bolt, see :class:`ResultBolt`; default 2.
    :raises IllegalArgumentException: ``tasks`` names a component that DSkype does not have.

    >>> list(dskype_topology(tasks={"subscription-bolt": 4}).create_topology().components)
    ['message-spout', 'subscription-spout', 'distribution-bolt', 'subscription-bolt', 'message-bolt', 'aggregation-bolt', 'result-bolt']
    """
    topics, builder, counts = Topics.for_topology(name), TopologyBuilder(), dict(tasks or {})
    spouts: dict[str, Any] = {
        "message-spout": MessageSpout(topics.messages),
        "subscription-spout": SubscriptionSpout(topics.subscriptions, plans=topics.plans, searches=topics.searches),
    }
    bolts: dict[str, Any] = {
        "distribution-bolt": DistributionBolt(),
        "subscription-bolt": SubscriptionBolt(),
        "message-bolt": MessageBolt(),
        "aggregation-bolt": AggregationBolt(),
        "result-bolt": ResultBolt(result_tick_secs),
    }
    if unknown := sorted(counts.keys() - spouts.keys() - bolts.keys()):
        raise IllegalArgumentException("DSkype does not have this component.", given=", ".join(unknown), legal=", ".join([*spouts, *bolts]))
    for component, spout in spouts.items():
        builder.set_spout(component, spout, counts.get(component))
    declarers = {component: builder.set_bolt(component, bolt, counts.get(component)) for component, bolt in bolts.items()}
    for source, stream, target, grouping in _WIRING:
        declarers[target].grouping(source, grouping, stream.name)
    return builder
