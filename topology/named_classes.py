"""Classes that a configuration names, such as hooks and metrics consumers.

A name is ``module.Class`` of a module that can be imported where the topology runs, or Storm's name of a class that has a replacement. A Flux file may
name only classes that it may name elsewhere, too.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

from dskype.topology.config import Config
from dskype.topology.errors import InvalidTopologyException
from dskype.topology.events import EventLogger
from dskype.topology.hooks import TaskHook
from dskype.topology.metrics_consumers import MetricsConsumer

__all__ = ["STORM_CLASSES", "load_class", "named_classes"]

_Base = TypeVar("_Base")

STORM_CLASSES = {
    "org.apache.storm.hooks.BaseTaskHook": "dskype.topology.hooks.TaskHook",
    "org.apache.storm.metric.FileBasedEventLogger": "dskype.topology.events.LogEventLogger",
    "org.apache.storm.metric.LoggingMetricsConsumer": "dskype.topology.metrics_consumers.LoggingMetricsConsumer",
}
"""Storm's name -> the class that replaces it."""


def named_classes(conf: Mapping[str, Any]) -> Iterator[tuple[str, str, type]]:
    """Yield (key, name, base class) for each class that a configuration names."""
    for name in conf.get(Config.TOPOLOGY_AUTO_TASK_HOOKS) or ():
        yield Config.TOPOLOGY_AUTO_TASK_HOOKS, name, TaskHook
    registers: list[tuple[str, type]] = [(Config.TOPOLOGY_EVENT_LOGGER_REGISTER, EventLogger), (Config.TOPOLOGY_METRICS_CONSUMER_REGISTER, MetricsConsumer)]
    for key, base in registers:
        for entry in conf.get(key) or ():
            yield key, entry["class"], base


def load_class(name: str, base: type[_Base], where: str) -> type[_Base]:
    """Return the class with this name.

    :param name: ``module.Class``, or Storm's name of a class.
    :param base: the class that it has to extend.
    :param where: the key that names it, for messages.
    :raises InvalidTopologyException: it is not found, or no such class.
    """
    if (known := STORM_CLASSES.get(name)) is None and name.startswith(("org.", "com.", "java.", "backtype.")):
        raise InvalidTopologyException(
            f"{where} names a Java class that has no replacement.", given=name, legal=", ".join(STORM_CLASSES), hint="write module.Class of a Python class"
        )
    module, _, attribute = (known or name).rpartition(".")
    try:
        found: Any = getattr(importlib.import_module(module), attribute)
    except (ImportError, ValueError, AttributeError) as error:
        raise InvalidTopologyException(f"{where} names a class that is not found: {error}.", given=name, hint="module.Class") from error
    if not isinstance(found, type) or not issubclass(found, base):
        raise InvalidTopologyException(f"{where} names something that is no {base.__name__}.", given=name, hint=f"extend {base.__module__}.{base.__name__}")
    return found
