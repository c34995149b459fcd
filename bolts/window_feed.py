"""What the message tasks get: the messages that they keep, and the ends of states of objects.

Only evaluations of top-k subscriptions, the look-ups of ``initial`` and searches ask the message tasks, and each of them follows from a tuple that the distribution bolt passes on. While there
was none, nobody waits for what the message tasks know. A frame costs executors, Spark and the brokers as much as hundreds of messages. So a distribution task *holds back* what they get,
and its watermark with it, until there is much of it, or a tick comes.

Answers stay exact: a message task answers as of a watermark when its own has reached that, and the watermark never leaves before what lies at or below it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dskype.bolts.message_queue import Arrived
from dskype.bolts.objects import StatePairs
from dskype.spouts import streams
from dskype.spouts.columns import csr_to_lists

__all__ = ["WindowFeed", "send_rows"]

_MOST = 4096
"""So many messages and updates leave at once, without a tick."""
_TICKS = 10
"""For so many ticks nothing is held back after a subscription that looks the window up once: it does so when it is active, a moment later."""


def send_rows(collector: Any, sent: streams.Stream, rows: np.ndarray, targets: np.ndarray, tasks: Sequence[int]) -> None:
    """Send row ``rows[i]`` to task ``tasks[targets[i]]``, in order. The rows are sorted by task once, and each task gets a slice."""
    order = np.argsort(targets, kind="stable")
    bounds = np.searchsorted(targets[order], np.arange(len(tasks) + 1)).tolist()
    by_task = sent.take(rows[order])
    for task, start, stop in zip(tasks, bounds, bounds[1:]):
        if start < stop:
            by_task.slice(start, stop).emit_direct_batch(collector, task)


class WindowFeed:
    """Sends messages and ends of states to the message tasks that keep them: each to one, by its sequence number.

    ::

        holding back ---- ask() ----> passing on for some ticks ---- tick(), the last time ----> holding back
             |                                  |
             +------- ask(lasting=True) --------+----> passing on for ever

    :param tasks: ids of the message tasks.
    :param collector: of the bolt.
    :param alone: whether the distribution bolt has this task only. Otherwise it passes everything on at once, for others may know who asks.
    """

    def __init__(self, tasks: Sequence[int], collector: Any, *, alone: bool) -> None:
        self._tasks, self._collector = tasks, collector
        self._lasting = not alone
        self._ticks = 0  # for which it passes on
        self._messages: list[Arrived] = []
        self._pairs: list[StatePairs] = []
        self._held = 0

    def messages(self, arrived: Arrived) -> None:
        """Send messages of no object, or hold them back."""
        if not self._held_back(arrived, self._messages):
            self._send_messages(arrived)

    def updates(self, pairs: StatePairs) -> None:
        """Send the states that begin, and where others end, or hold them back."""
        if not self._held_back(pairs, self._pairs):
            self._send_updates(pairs)

    def ask(self, *, lasting: bool = False) -> None:
        """Note that a subscription will ask for the window, ``lasting``: again and again; pass on what was held back."""
        self._lasting, self._ticks = self._lasting or lasting, _TICKS
        self.release()

    def tick(self) -> None:
        """Pass on what was held back."""
        self._ticks = max(0, self._ticks - 1)
        self.release()

    def release(self) -> None:
        """Pass on what was held back, and then the watermark."""
        if not self._held:
            return
        messages, pairs, self._messages, self._pairs, self._held = self._messages, self._pairs, [], [], 0
        if messages:
            self._send_messages(Arrived.concat(messages))
        if pairs:
            self._send_updates(StatePairs.concat(pairs))
        self._collector.pass_watermarks(self._tasks)

    def _held_back(self, some: Any, held: list[Any]) -> bool:
        """Hold some back unless somebody asks, and return whether it was done; much of it leaves at once."""
        n = some.messages.n
        if self._lasting or self._ticks or not n:
            return False
        if not self._held:
            self._collector.hold_watermarks(self._tasks)
        held.append(some)
        self._held += n
        if self._held >= _MOST:
            self.release()
        return True

    # -- sending ------------------------------------------------------------------------------------------------------

    def _send_messages(self, arrived: Arrived) -> None:
        messages = arrived.messages
        columns = arrived.details.columns()
        del columns["region"]  # an area lies at its centre there
        lists = {name: csr_to_lists(messages.offsets, getattr(messages, name)) for name in ("terms", "weights")}
        sent = streams.Window(seq=messages.seq, position=messages.position, id=arrived.ids, lat=messages.lat, lon=messages.lon, **lists, **columns)
        self._send(sent, messages.seq)

    def _send_updates(self, pairs: StatePairs) -> None:
        self._send_messages(pairs.begun())
        ends = pairs.ends()
        self._send(ends, ends.seq)

    def _send(self, sent: streams.Window | streams.Ends, seq: np.ndarray) -> None:
        if len(self._tasks) == 1:
            sent.emit_direct_batch(self._collector, self._tasks[0])
        else:
            send_rows(self._collector, sent, np.arange(len(seq)), seq % len(self._tasks), self._tasks)

    # -- state --------------------------------------------------------------------------------------------------------

    def snapshot(self) -> list[Any]:
        """Return the state as arrays and plain values."""
        return [self._lasting, self._ticks, [one.snapshot() for one in self._messages], [one.snapshot() for one in self._pairs]]

    def restore(self, state: Sequence[Any] | None) -> None:
        """Continue from a snapshot; None: an earlier version has written it, and held nothing back. Nobody knows who asks then."""
        if state is None:
            self._lasting = True
            return
        lasting, self._ticks, messages, pairs = state
        self._lasting = self._lasting or lasting
        self._messages, self._pairs = [Arrived.restored(one) for one in messages], [StatePairs.restored(one) for one in pairs]
        self._held = sum(one.messages.n for one in self._messages) + sum(one.messages.n for one in self._pairs)
        if self._held:
            self._collector.hold_watermarks(self._tasks)
