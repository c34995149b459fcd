"""Storm-faithful topologies on Spark, and DSkype: distributed spatial-keyword publish/subscribe.

This is the public surface: ``from dskype import PubSub, TopologyBuilder``. What ``__all__`` lists is stable; ``docs/reference/api.md`` groups it by role and says
what that promises. The names are those of the modules that define them, which can be imported from there as well.

A name is imported when it is first used: ``import dskype`` costs nothing, and a client loads neither Spark nor a compiler.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dskype.bolts.dskype_topology import dskype_topology
    from dskype.bolts.results.base import StoreUnavailable
    from dskype.bolts.skype import Skype, TextSkype
    from dskype.deploy.client.dead_letters import DeadLetters
    from dskype.deploy.client.pubsub import PendingError, PubSub, SendError
    from dskype.deploy.client.records import Registered, Result, TopK
    from dskype.deploy.client.searches import Answer, SearchError
    from dskype.deploy.client.topic_reader import UnknownTopicError, UnreachableError
    from dskype.spouts.batch import MessageBatch
    from dskype.spouts.record_values import RecordError
    from dskype.spouts.settings import Settings
    from dskype.topology.builder import TopologyBuilder
    from dskype.topology.components import BasicBolt, BatchBolt, Bolt, KafkaBolt, KafkaSpout, Spout
    from dskype.topology.config import Config
    from dskype.topology.context import TopologyContext
    from dskype.topology.errors import (
        AlreadyAliveException,
        DeadLetter,
        DskypeError,
        FailedException,
        IllegalArgumentException,
        InvalidTopologyException,
        NotAliveException,
    )
    from dskype.topology.fields import Fields
    from dskype.topology.groupings import CustomStreamGrouping
    from dskype.topology.local import LocalCluster
    from dskype.topology.model import StormTopology
    from dskype.topology.runtime.kafka.clients import KafkaSettings, KafkaTimeoutError
    from dskype.topology.states import StatefulBolt
    from dskype.topology.submitter import StormSubmitter
    from dskype.topology.tuples import Tuple, TupleBatch, is_tick
    from dskype.topology.windows import Count, Duration, TupleWindow, WindowedBolt

    __version__: str
    """The version of the installed package, as ``setup.cfg`` has it."""

__all__ = [
    "AlreadyAliveException",
    "Answer",
    "BasicBolt",
    "BatchBolt",
    "Bolt",
    "Config",
    "Count",
    "CustomStreamGrouping",
    "DeadLetter",
    "DeadLetters",
    "DskypeError",
    "Duration",
    "FailedException",
    "Fields",
    "IllegalArgumentException",
    "InvalidTopologyException",
    "KafkaBolt",
    "KafkaSettings",
    "KafkaSpout",
    "KafkaTimeoutError",
    "LocalCluster",
    "MessageBatch",
    "NotAliveException",
    "PendingError",
    "PubSub",
    "RecordError",
    "Registered",
    "Result",
    "SearchError",
    "SendError",
    "Settings",
    "Skype",
    "Spout",
    "StatefulBolt",
    "StoreUnavailable",
    "StormSubmitter",
    "StormTopology",
    "TextSkype",
    "TopK",
    "TopologyBuilder",
    "TopologyContext",
    "Tuple",
    "TupleBatch",
    "TupleWindow",
    "UnknownTopicError",
    "UnreachableError",
    "WindowedBolt",
    "__version__",
    "dskype_topology",
    "is_tick",
]

# The same names once more for run time: module below dskype -> what it defines. tests/deploy/api/ compares both lists.
_DEFINED = {
    "bolts.dskype_topology": "dskype_topology",
    "bolts.results.base": "StoreUnavailable",
    "bolts.skype": "Skype TextSkype",
    "deploy.client.dead_letters": "DeadLetters",
    "deploy.client.pubsub": "PendingError PubSub SendError",
    "deploy.client.records": "Registered Result TopK",
    "deploy.client.searches": "Answer SearchError",
    "deploy.client.topic_reader": "UnknownTopicError UnreachableError",
    "spouts.batch": "MessageBatch",
    "spouts.record_values": "RecordError",
    "spouts.settings": "Settings",
    "topology.builder": "TopologyBuilder",
    "topology.components": "BasicBolt BatchBolt Bolt KafkaBolt KafkaSpout Spout",
    "topology.config": "Config",
    "topology.context": "TopologyContext",
    "topology.errors": "AlreadyAliveException DeadLetter DskypeError FailedException IllegalArgumentException InvalidTopologyException NotAliveException",
    "topology.fields": "Fields",
    "topology.groupings": "CustomStreamGrouping",
    "topology.local": "LocalCluster",
    "topology.model": "StormTopology",
    "topology.runtime.kafka.clients": "KafkaSettings KafkaTimeoutError",
    "topology.states": "StatefulBolt",
    "topology.submitter": "StormSubmitter",
    "topology.tuples": "Tuple TupleBatch is_tick",
    "topology.windows": "Count Duration TupleWindow WindowedBolt",
}
_MODULE_OF = {name: module for module, names in _DEFINED.items() for name in names.split()}


def _imported(name: str) -> Any:
    try:
        return getattr(import_module(f"dskype.{_MODULE_OF[name]}"), name)
    except ModuleNotFoundError as error:
        from dskype.deploy.machine.extras import SPARK
        from dskype.topology.errors import explain

        if error.name is None or error.name.partition(".")[0] not in SPARK:
            raise
        words = explain(f"'dskype.{name}' needs what topologies need.", given=f"no module {error.name}", hint="pip install '/path/to/dskype[spark]'")
        raise ModuleNotFoundError(words, name=error.name) from error


if not TYPE_CHECKING:  # a type checker would let any name pass

    def __getattr__(name: str) -> Any:
        if name == "__version__":
            from dskype.deploy.machine.versions import own_version

            found = own_version()
        elif name in _MODULE_OF:
            found = _imported(name)
        else:
            raise AttributeError(f"module 'dskype' has no attribute {name!r}")
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
