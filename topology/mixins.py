"""Mixins for small components; they stand before ``Spout`` or a kind of bolt among the base classes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from dskype.topology.config import Config
from dskype.topology.core.shared_log import SharedLog
from dskype.topology.fields import Fields
from dskype.topology.model import OutputFieldsDeclarer

__all__ = ["DeclaresFields", "KeepsCollector", "MayBeOfOneTask", "RemembersAttribute", "SettlesTrees"]


class DeclaresFields:
    """Declares the stream ``default`` with ``_fields``, which the class or its constructor sets."""

    _fields: Fields

    def declare_output_fields(self, declarer: OutputFieldsDeclarer) -> None:
        """Declare the fields."""
        declarer.declare(self._fields)


class MayBeOfOneTask:
    """Limits a spout to one task unless its constructor sets ``_is_distributed``."""

    _is_distributed: bool

    def get_component_configuration(self) -> dict[str, Any]:
        """Return the limit of one task, or nothing."""
        return {} if self._is_distributed else {Config.TOPOLOGY_MAX_TASK_PARALLELISM: 1}


class RemembersAttribute:
    """Makes one attribute the component's state, so that it survives a crash.

    :cvar _state: name of the attribute.
    """

    _state: ClassVar[str]

    def snapshot(self) -> Any:
        """Return the attribute."""
        return getattr(self, self._state)

    def restore(self, state: Any) -> None:
        """Set the attribute."""
        setattr(self, self._state, state)


class KeepsCollector:
    """Keeps a bolt's collector in ``_collector``."""

    def prepare(self, conf: Mapping[str, Any], context: Any, collector: Any) -> None:
        """Keep the collector."""
        self._collector = collector


class SettlesTrees:
    """Records in ``_done`` which message ids were acked and which failed."""

    _done: SharedLog

    def ack(self, msg_id: Any) -> None:
        """Record an ack."""
        self._done.append(("ack", msg_id))

    def fail(self, msg_id: Any) -> None:
        """Record a failure."""
        self._done.append(("fail", msg_id))
