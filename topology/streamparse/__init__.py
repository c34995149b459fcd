"""Classes of streamparse: topologies that were written for streamparse run with another import.

``from streamparse import Bolt, Grouping, Spout, Stream, Topology`` becomes ``from dskype.topology.streamparse import ...``. Components run in the
emulator's processes, without the multi-language protocol.
"""

from dskype.topology.streamparse.components import BatchingBolt, Bolt, Component, ReliableSpout, Spout, TicklessBatchingBolt, Tuple
from dskype.topology.streamparse.dsl import JavaBolt, JavaSpout, ShellBolt, ShellSpout, Topology
from dskype.topology.streamparse.specs import ComponentSpec, Grouping, Stream

__all__ = [
    "BatchingBolt",
    "Bolt",
    "Component",
    "ComponentSpec",
    "Grouping",
    "JavaBolt",
    "JavaSpout",
    "ReliableSpout",
    "ShellBolt",
    "ShellSpout",
    "Spout",
    "Stream",
    "TicklessBatchingBolt",
    "Topology",
    "Tuple",
]
