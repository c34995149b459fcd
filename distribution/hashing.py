"""Distribution by hashing (journal paper, section 7.3, equation 14)."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any

from dskype.distribution.base import Distributor
from dskype.spouts.batch import MessageBatch
from dskype.topology.errors import IllegalArgumentException, explain

__all__ = ["HashingDistributor"]


class HashingDistributor(Distributor):
    """Places a subscription by its id: the CRC-32 of the id modulo the number of tasks. Every task needs every message.

    Replication 1, communication N.
    """

    def __init__(self, tasks: int, options: Mapping[str, Any] | None = None) -> None:
        if options:
            raise IllegalArgumentException(explain("The hashing distributor takes no options.", given=dict(options)))
        super().__init__(tasks)

    def subscription_tasks(self, subscription: str, placement: Mapping[str, Any] | None) -> list[int]:
        """Return its one task."""
        return [zlib.crc32(subscription.encode()) % self.tasks]

    def message_tasks(self, messages: MessageBatch) -> None:
        """Return None: every task."""
        return None
