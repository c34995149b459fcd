"""Reads the ends of topics in one thread for all who follow them, for as long as somebody does."""

from __future__ import annotations

import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from dskype.deploy.client.follower import Follower
from dskype.topology.errors import TopologyError

__all__ = ["Tail"]

log = logging.getLogger(__name__)

_POLL_S = 0.2
_BATCH = 2000
_CHECK_EVERY_S, _ANSWER_S = 2.0, 4.0
"""How often the brokers are asked whether they are there, and how long they may take. Members are cut off if they do not answer."""
_STAY_S = 5.0
"""How long the thread stays after the last member has left: a page that is loaded again comes back at once."""

M = TypeVar("M")


class Tail(ABC, Generic[M]):
    """Reads new records, and hands them to its members.

    A member is whatever a subclass hands records to. What it does with a batch must be quick: it is called with the lock.

    :param open_follower: opens a :class:`~dskype.deploy.client.follower.Follower` at the place to begin.
    :param name: of the thread.
    :param is_current: tells whether what is read is still what should be; if not, the members are told that the reading has ended, and come back to another one.
    :ivar lock: held while records are handed out.
    """

    def __init__(self, open_follower: Callable[[], Follower], name: str, is_current: Callable[[], bool] = lambda: True) -> None:
        self._open, self._name, self._is_current = open_follower, name, is_current
        self.lock = threading.Lock()
        self._starting = threading.Lock()
        self._members: list[M] = []
        self._follower: Follower | None = None
        self._positions: dict[tuple[str, int], int] = {}
        self._begun_at: dict[tuple[str, int], int] = {}  # the ends of the partitions when the reading began
        self._polls = 0  # that have ended
        self._closed, self._empty_since = False, 0.0

    def join(self, member: M) -> dict[tuple[str, int], int]:
        """Hand new records to a member from now on; return (topic, partition) -> the first offset that it will be handed.

        It blocks until the brokers have answered.

        :raises TopologyError: the server is stopping.
        """
        with self._starting:
            with self.lock:
                if self._closed:
                    raise TopologyError("The server is stopping, or the topology was submitted again: connect again.")
                if self._follower is not None:
                    self._add(member)
                    return dict(self._positions)
            follower = self._open()
            with self.lock:
                self._positions, self._begun_at = follower.positions(), follower.ends()
                self._add(member)
                self._follower = follower
                positions = dict(self._positions)
            threading.Thread(target=self._run, args=(follower,), name=self._name, daemon=True).start()
            return positions

    def leave(self, member: M) -> None:
        """Hand nothing more to a member; it need not be there."""
        with self.lock:
            self._remove(member)

    def _add(self, member: M) -> None:
        self._members.append(member)

    def _remove(self, member: M) -> None:
        self._members = [other for other in self._members if other is not member]
        if not self._members:
            self._empty_since = time.monotonic()

    def has_caught_up(self) -> bool:
        """Tell whether everything has been read that was there when the reading began; call it with the lock."""
        return all(self._positions.get(where, 0) >= end for where, end in self._begun_at.items())

    def positions(self) -> dict[tuple[str, int], int]:
        """Return (topic, partition) -> the next offset; call it with the lock."""
        return dict(self._positions)

    def close(self) -> None:
        """Stop; the members are told."""
        with self.lock:
            self._closed = True
            self._drop_all()

    @abstractmethod
    def _take(self, records: Sequence[Any]) -> None:
        """Hand a batch to the members; called with the lock, before the positions go past it."""

    @abstractmethod
    def _dropped(self, member: M) -> None:
        """Tell a member that the reading has ended; called with the lock."""

    def _drop_all(self) -> None:
        for member in list(self._members):
            self._dropped(member)
            self._remove(member)

    def _run(self, follower: Follower) -> None:
        try:
            checked_s = time.monotonic()
            while not self._stops(follower):
                if time.monotonic() - checked_s > _CHECK_EVERY_S:
                    follower.check(_ANSWER_S)
                    checked_s = time.monotonic()
                    if not self._is_current():
                        return
                records = follower.poll(_POLL_S, _BATCH)
                with self.lock:
                    if records:
                        self._take(records)
                        self._positions.update(((r.topic, r.partition), r.offset + 1) for r in records)
                    self._polls += 1
        except Exception as error:  # the members come back, and a new thread begins
            log.warning("%s: reading has ended (%s: %s)", self._name, type(error).__name__, error)
        finally:
            with self.lock:
                if self._follower is follower:
                    self._follower = None
                    self._drop_all()
            follower.close()

    def _stops(self, follower: Follower) -> bool:
        """Tell whether to stop, because nobody has listened for some seconds; from then on another thread may begin."""
        with self.lock:
            if self._closed or (not self._members and time.monotonic() - self._empty_since > _STAY_S):
                self._follower = None
                return True
            return False
