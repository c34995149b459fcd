"""Distribution by hashing (journal paper, section 7.3, equation 14)."""

from __future__ import annotations

import zlib

import numpy as np

from dskype.distribution.base import Placed, Sample, default_hashes
from dskype.distribution.methods.unlearned import Unlearned
from dskype.distribution.subscriptions import Subscription
from dskype.spouts.batch import MessageBatch

__all__ = ["HashingDistributor"]


class HashingDistributor(Unlearned):
    """Places a subscription by the CRC-32 of its id, modulo the number of tasks. Every task needs every message.

    Replication 1, communication N. There is nothing to learn.
    """

    name = "hashing"
    replicates = False

    def place(self, name: str, subscription: Subscription, threshold: float | None = None) -> Placed:
        """Return its one task, which depends on the id alone."""
        return Placed(self.tasks_of_name(name))

    def tasks_of_name(self, name: str) -> list[int]:
        """Return the one task of a subscription."""
        return [zlib.crc32(name.encode()) % self.tasks]

    def message_tasks(self, messages: MessageBatch) -> None:
        """Return None: every task needs every message."""
        return

    def place_all(self, sample: Sample, thresholds: np.ndarray | None = None, hashes: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Place all subscriptions of a sample at once."""
        hashes = default_hashes(sample.n) if hashes is None else hashes
        return np.arange(sample.n + 1), (hashes % self.tasks).astype(np.int32), np.full(sample.n, -np.inf)
