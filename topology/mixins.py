"""What small components have in common, to be mixed in before ``Spout`` or a kind of bolt."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from dskype.topology.config import Config
from dskype.topology.core.shared_log import SharedLog
from dskype.topology.fields import Fields
from dskype.topology.model import OutputFieldsDeclarer

__all__ = ["DeclaresFields", "KeepsCollector", "MayBeOfOneTask", "RemembersAttribute", "SettlesTrees"]


class DeclaresFields:
    """Declares the fields of the stream ``default``: those of the class, or those that the constructor has kept."""

    _fields: Fields

    def declare_output_fields(self, declarer: OutputFieldsDeclarer) -> None:
        """Declare the fields."""
        declarer.declare(self._fields)


class MayBeOfOneTask:
    """A spout that says by its constructor whether it is distributed."""

    _is_distributed: bool

    def get_component_configuration(self) -> dict[str, Any]:
        """Return one task at most, unless distributed."""
        return {} if self._is_distributed else {Config.TOPOLOGY_MAX_TASK_PARALLELISM: 1}


class RemembersAttribute:
    """Keeps one attribute over a crash.

    :cvar _state: its name.
    """

    _state: ClassVar[str]

    def snapshot(self) -> Any:
        """Return the attribute."""
        return getattr(self, self._state)

    def restore(self, state: Any) -> None:
        """Set the attribute."""
        setattr(self, self._state, state)


class KeepsCollector:
    """Keeps the collector of a bolt."""

    def prepare(self, conf: Mapping[str, Any], context: Any, collector: Any) -> None:
        """Keep the collector."""
        self._collector = collector


class SettlesTrees:
    """Notes in ``_done`` which message ids were acked and which failed."""

    _done: SharedLog

    def ack(self, msg_id: Any) -> None:
        """Note an ack."""
        self._done.append(("ack", msg_id))

    def fail(self, msg_id: Any) -> None:
        """Note a fail."""
        self._done.append(("fail", msg_id))
