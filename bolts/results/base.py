"""Where whole top-k states are kept for readers: the contract of result stores.

A store is an exchangeable place (the paper names Memcached and HDFS) that answers "what is the top-k of this subscription
now". Deltas and events go to Kafka whatever the store is.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

from dskype.bolts.results.formats import parse_registration
from dskype.topology.errors import IllegalArgumentException, TopologyError, explain

__all__ = ["Opening", "Outcome", "Removal", "ResultStore", "State", "StoreUnavailable", "Stored", "run_of", "supersedes"]


class StoreUnavailable(TopologyError):
    """A store cannot be reached or refuses to work for now; the same call may succeed later."""

    retriable = True


class State(NamedTuple):
    """A subscription's top-k as of a watermark; ``value`` is what :func:`~dskype.bolts.results.formats.state_values` made."""

    subscription: str
    registration: str
    watermark: int
    value: bytes


class Removal(NamedTuple):
    """The end of a registration: there is no top-k any more."""

    subscription: str
    registration: str
    watermark: int


class Stored(NamedTuple):
    """What a store has of a subscription; ``value`` is the JSON of the state, None if the subscription was removed."""

    registration: str
    watermark: int
    value: bytes | None
    run: int = 0


class Outcome(NamedTuple):
    """What became of a batch.

    :ivar written: how many took effect.
    :ivar stale: how many were older than what the store had, and were dropped.
    :ivar failed: (subscription, reason) of those that the store cannot take; the others of the batch are done.
    """

    written: int = 0
    stale: int = 0
    failed: Sequence[tuple[str, str]] = ()


@dataclass(frozen=True)
class Opening:
    """What a store gets to know when it is opened.

    :ivar topology: the topology's name.
    :ivar run: which run of that name, see :func:`run_of`; 0 for readers.
    :ivar collector: of the bolt that writes; None for readers.
    :ivar kafka: :class:`~dskype.topology.runtime.kafka.KafkaSettings` of the topology's brokers; readers only.
    """

    topology: str
    run: int = 0
    collector: Any = None
    kafka: Any = field(default=None, repr=False)


def run_of(topology_id: str) -> int:
    """Return a number that rises with every submission of a topology's name, from its id ``name-counter-seconds``.

    A topology that is killed and submitted again numbers its messages from 0 again. What it writes is newer all the same.
    """
    _, counter, seconds = topology_id.rsplit("-", 2)
    return int(seconds) * 10_000 + int(counter) % 10_000  # below 2**53: exact in Lua, too


def supersedes(new: Stored, old: Stored) -> bool:
    """Tell whether ``new`` may overwrite ``old``; the order that every store keeps.

    A newer run wins, then the newer registration, then (same registration) the removal, then the higher watermark; equals
    overwrite. Registrations are ordered by offset within a partition. Two registrations of one subscription lie in different
    partitions only if the topic was given more of them in between (or a producer chooses partitions in its own way): then
    the higher watermark wins, at equal watermarks the later call.
    """
    if new.run != old.run:
        return new.run > old.run
    (new_partition, new_offset), (old_partition, old_offset) = parse_registration(new.registration), parse_registration(old.registration)
    if new_partition != old_partition:
        return new.watermark >= old.watermark
    if new_offset != old_offset:
        return new_offset > old_offset
    if (new.value is None) != (old.value is None):
        return new.value is None
    return new.watermark >= old.watermark


class ResultStore(ABC):
    """A place for the newest top-k state of every subscription.

    Life: made with its options when a topology is checked and again in every task (nothing is connected yet), :meth:`open`,
    then calls by one thread, :meth:`close`. Tasks write disjoint subscriptions.

    Writes come **at least once**: after a crash a task runs a part of its input again, so states that were written before
    come again, older ones after newer ones, until the newest comes again. A store must therefore write *conditionally*: what
    :func:`supersedes` refuses must not overwrite, atomically, for two processes may live for a moment. It must remember the
    version of removed subscriptions for longer than such a replay takes. A store whose writes travel with the task's own
    records (``in_log``) is excused: the log has the newest state last.

    :param options: ``dskype.store.options``; a store names those it knows in ``OPTIONS``.
    :raises IllegalArgumentException: an unknown option, or a value that makes no sense.
    """

    name: ClassVar[str]
    in_log: ClassVar[bool] = False
    """Writes are records of the task's own batch: they cannot fail, and need no buffer."""
    OPTIONS: ClassVar[Mapping[str, str]] = {}
    """Option -> what it means."""

    def __init__(self, options: Mapping[str, Any] | None = None) -> None:
        options = dict(options or {})
        for key in options:
            if key not in self.OPTIONS:  # the value may be a secret
                raise IllegalArgumentException(
                    explain(f"An option of store {self.name!r} is not known.", given=key, legal=", ".join(self.OPTIONS) or "no options")
                )
        self.options = options

    def __repr__(self) -> str:
        return f"{type(self).__name__}(options {sorted(self.options)})"

    @abstractmethod
    def open(self, opening: Opening) -> None:
        """Get ready; must not wait for a server that is away (the first write finds out).

        :raises IllegalArgumentException: the store cannot be used like this.
        """

    @abstractmethod
    def put(self, states: Sequence[State]) -> Outcome:
        """Write states, each where it is not older than what is there.

        :param states: in the order of their making; the subscriptions of one call may repeat.
        :raises StoreUnavailable: after bounded retries; any part of the batch may have been written, the caller keeps all
            and calls again.
        """

    @abstractmethod
    def remove(self, removals: Sequence[Removal]) -> Outcome:
        """Remove the states of registrations that ended, unless a newer registration has written already.

        :raises StoreUnavailable: as :meth:`put`.
        """

    @abstractmethod
    def get(self, subscription: str) -> Stored | None:
        """Return what the store has of a subscription (``value`` None: removed), or None. For readers.

        :raises StoreUnavailable: the store does not answer.
        """

    @abstractmethod
    def close(self) -> None:
        """Free connections; may be called again, or without :meth:`open`."""
