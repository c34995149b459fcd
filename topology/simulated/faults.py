"""The faults that a simulated run may meet, and how likely each of them is."""

from __future__ import annotations

import random
from dataclasses import dataclass, fields

__all__ = ["Faults"]


@dataclass(frozen=True)
class Faults:
    """How likely each fault is, per batch; with 0 for all, the run is faithful.

    :param lost_before: executors die before they process the batch.
    :param lost_after: the executor dies after the batch, before it has written anything.
    :param torn_write: it dies when a part is written.
    :param repeated: it dies when everything is written, and nobody knows.
    :param restarted: the query restarts from the snapshots.
    :param all_restarted: the driver dies, and every query restarts.
    :param elsewhere: the executor moves to another host, where it begins at its snapshots.
    :param second_owner: the query is replaced without knowing it, and gets its own batches beside its successor. The records of a
        batch are written before its next one, or, when the query ends, late, in part or never.
    :param damaged: the newest snapshot of a task is damaged before a restart.
    :param snapshot: a snapshot is taken before the batch, besides those that are due by time.
    :param begun_again: Spark passes on records of its batch again, while the task that it has replaced passes on some, too.
    """

    lost_before: float = 0.0
    lost_after: float = 0.0
    torn_write: float = 0.0
    repeated: float = 0.0
    restarted: float = 0.0
    all_restarted: float = 0.0
    elsewhere: float = 0.0
    second_owner: float = 0.0
    damaged: float = 0.0
    snapshot: float = 0.0
    begun_again: float = 0.0

    @classmethod
    def heavy(cls) -> Faults:
        """Return a mix in which about every other batch meets a fault."""
        return cls(
            lost_before=0.05,
            lost_after=0.08,
            torn_write=0.1,
            repeated=0.12,
            restarted=0.06,
            all_restarted=0.02,
            elsewhere=0.08,
            second_owner=0.04,
            damaged=0.2,
            snapshot=0.2,
            begun_again=0.05,
        )

    @classmethod
    def drawn(cls, seed: object) -> Faults:
        """Return a mix that differs from seed to seed: each fault never happens, or a quarter as often as in :meth:`heavy`, or as often.

        Many seeds together meet all faults, alone and among others, and runs get far enough between them to have much to lose.

        :param seed: what the mix follows from, such as the seed of the run.
        """
        rng, heavy = random.Random(f"faults {seed}"), cls.heavy()
        return cls(**{kind.name: getattr(heavy, kind.name) * rng.choice((0.0, 0.25, 1.0)) for kind in fields(cls)})
