"""What the product provides for Flux files: classes that they may name, and ready-made topologies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

__all__ = ["TOPOLOGIES", "registry"]

TOPOLOGIES = Path(__file__).parents[1] / "topologies"
"""The folder of ``dskype.yaml`` and ``wordcount.yaml``."""

DSKYPE = {
    "dskype.MessageSpout": "dskype.spouts.kafka:MessageSpout",
    "dskype.SubscriptionSpout": "dskype.spouts.kafka:SubscriptionSpout",
    "dskype.DistributionBolt": "dskype.bolts.distribution_bolt:DistributionBolt",
    "dskype.SubscriptionBolt": "dskype.bolts.subscription_bolt:SubscriptionBolt",
    "dskype.MessageBolt": "dskype.bolts.message_bolt:MessageBolt",
    "dskype.AggregationBolt": "dskype.bolts.aggregation_bolt:AggregationBolt",
    "dskype.ResultBolt": "dskype.bolts.result_bolt:ResultBolt",
}
_DEMO = {f"dskype.demo.{name}": f"dskype.deploy.demo.wordcount:{name}" for name in ("PlacesSpout", "SplitBolt", "CountBolt", "TopBolt")}


def registry() -> Any:
    """Return the classes that a Flux file may name: the emulator's, DSkype's and the demo's."""
    from dskype.topology.flux import default_registry  # imported late: it reads YAML, which few commands need

    return default_registry().extended({**DSKYPE, **_DEMO})
