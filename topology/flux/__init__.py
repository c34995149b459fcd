"""Flux: topologies written as YAML.

>>> from dskype.topology.flux import load
>>> flux = load('''
... name: words
... spouts: [{id: words, className: org.apache.storm.testing.TestWordSpout}]
... bolts: [{id: count, className: org.apache.storm.testing.TestWordCounter}]
... streams: [{from: words, to: count, grouping: {type: FIELDS, args: [word]}}]
... ''')
>>> flux.name, list(flux.topology.components)
('words', ['words', 'count'])
"""

from dskype.topology.flux.errors import ClassNotFoundException, FluxException
from dskype.topology.flux.loader import FluxTopology, load, read_properties
from dskype.topology.flux.registry import Registry, default_registry
from dskype.topology.flux.strict_yaml import Limits

__all__ = ["ClassNotFoundException", "FluxException", "FluxTopology", "Limits", "Registry", "default_registry", "load", "read_properties"]
