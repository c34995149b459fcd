"""The contract of result stores, which keep whole top-k lists for readers.

A store answers the question "what is the top-k of this subscription now"; it is exchangeable (the paper names Memcached and HDFS).
Deltas and events go to Kafka with any store.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

from dskype.bolts.results.events import parse_registration
from dskype.topology.errors import IllegalArgumentException, TopologyError

__all__ = ["Opening", "Outcome", "Removal", "ResultStore", "State", "StoreUnavailable", "Stored", "run_of", "supersedes"]


class StoreUnavailable(TopologyError):
    """A store cannot be reached, or refuses to work for now; the same call may succeed later."""

    retriable = True


class State(NamedTuple):
    """A subscription's top-k as of a watermark; ``value`` is what :func:`~dskype.bolts.results.formats.state_values` made."""

    subscription: str
    registration: str
    watermark: int
    value: bytes


class Removal(NamedTuple):
    """The end of a registration, which leaves no top-k."""

    subscription: str
    registration: str
    watermark: int


class Stored(NamedTuple):
    """The stored state of a subscription; ``value`` is its JSON, or None if the subscription was removed."""

    registration: str
    watermark: int
    value: bytes | None
    run: int = 0


class Outcome(NamedTuple):
    """The outcome of a batch.

    :ivar written: number of states or removals that took effect.
    :ivar stale: number of those that were dropped because the store had a newer state.
    :ivar failed: (subscription, reason) of those that the store cannot accept; all others in the batch are done.
    """

    written: int = 0
    stale: int = 0
    failed: Sequence[tuple[str, str]] = ()


@dataclass(frozen=True)
class Opening:
    """The context in which a store is opened.

    :ivar topology: the topology's name.
    :ivar run: the run of that topology, see :func:`run_of`; 0 for readers.
    :ivar collector: collector of the bolt that writes; None for readers.
    :ivar kafka: :class:`~dskype.topology.runtime.kafka.clients.KafkaSettings` of the topology's brokers; readers only.
    """

    topology: str
    run: int = 0
    collector: Any = None
    kafka: Any = field(default=None, repr=False)


def run_of(topology_id: str) -> int:
    """Return a number that rises with every submission of a topology's name, from its id ``name-counter-seconds``.

    A topology that is killed and submitted again numbers its messages from 0 again, but its states are newer.
    """
    _, counter, seconds = topology_id.rsplit("-", 2)
    return int(seconds) * 10_000 + int(counter) % 10_000  # below 2**53: exact in Lua, too


def supersedes(new: Stored, old: Stored) -> bool:
    """Tell whether ``new`` may overwrite ``old``. Every store keeps this order.

    The newer run wins, then the newer registration, then (same registration) the removal, then the higher watermark; equals
    overwrite. Registrations are ordered by offset within a partition. Two registrations of one subscription are in different
    partitions only if partitions were added to the topic in between, or a producer chooses partitions in its own way. Then the
    higher watermark wins, and at equal watermarks the later call.
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

    A store is made with its options when a topology is checked, and again in every task; it does not connect yet. Then
    :meth:`open` is called, then the other methods by one thread, and at the end :meth:`close`. Tasks write disjoint subscriptions.

    Writes come **at least once**: after a crash a task runs a part of its input again, so older states come after newer ones
    until the newest comes again. A store must therefore write *conditionally*: a state that :func:`supersedes` refuses must
    not overwrite. The check must be atomic, because two processes may run for a moment. The store must remember the version
    of removed subscriptions for longer than such a replay takes. None of this applies to a store whose writes travel with the
    task's own records (``in_log``), because the log has the newest state last.

    :param options: ``dskype.store.options``; ``OPTIONS`` names the options of a store.
    :raises IllegalArgumentException: an option is not known, or its value is not usable.
    """

    name: ClassVar[str]
    in_log: ClassVar[bool] = False
    """Whether writes are records of the task's own batch, so that they cannot fail and need no buffer."""
    OPTIONS: ClassVar[Mapping[str, str]] = {}
    """Option -> its meaning."""

    def __init__(self, options: Mapping[str, Any] | None = None) -> None:
        options = dict(options or {})
        for key in options:
            if key not in self.OPTIONS:  # without the value, which may be a secret
                raise IllegalArgumentException(f"An option of store {self.name!r} is not known.", given=key, legal=", ".join(self.OPTIONS) or "no options")
        self.options = options

    def __repr__(self) -> str:
        return f"{type(self).__name__}(options {sorted(self.options)})"

    @abstractmethod
    def open(self, opening: Opening) -> None:
        """Prepare the store. Do not wait for a server that is away; the first write finds out.

        :raises IllegalArgumentException: the store cannot be used in this context.
        """

    @abstractmethod
    def put(self, states: Sequence[State]) -> Outcome:
        """Write each state that is not older than the stored one.

        :param states: in the order in which they were made; subscriptions may repeat.
        :raises StoreUnavailable: after bounded retries. Any part of the batch may have been written; the caller keeps all
            of it and calls again.
        """

    @abstractmethod
    def remove(self, removals: Sequence[Removal]) -> Outcome:
        """Remove the states of ended registrations, unless a newer registration has written.

        :raises StoreUnavailable: as :meth:`put`.
        """

    @abstractmethod
    def get(self, subscription: str) -> Stored | None:
        """Return the stored state of a subscription (``value`` None: removed), or None. For readers.

        :raises StoreUnavailable: the store does not answer.
        """

    @abstractmethod
    def close(self) -> None:
        """Close connections. May be called repeatedly, or without :meth:`open`."""
