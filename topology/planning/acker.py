"""The acker: detects when all tuples of a tree are acked.

It uses Storm's algorithm (Storm's docs/Acking-framework-implementation.md): for each root it keeps one 64-bit value, the
XOR of the ids of all edges that were created and of all that were acked. The value is 0 when each id was seen twice.
Edge ids follow from channel and tuple number, and channels drop repetitions, so a batch that is run again neither
cancels nor loses an ack.
"""

from __future__ import annotations

from typing import Any

from dskype.topology.components import BatchBolt
from dskype.topology.tuples import Tuple, TupleBatch

__all__ = ["ACKER_ACK_STREAM_ID", "ACKER_COMPONENT_ID", "ACKER_FAIL_STREAM_ID", "ACKER_INIT_STREAM_ID", "ACKER_RESET_TIMEOUT_STREAM_ID", "Acker"]

ACKER_COMPONENT_ID = "__acker"
ACKER_INIT_STREAM_ID = "__ack_init"
ACKER_ACK_STREAM_ID = "__ack_ack"
ACKER_FAIL_STREAM_ID = "__ack_fail"
ACKER_RESET_TIMEOUT_STREAM_ID = "__ack_reset_timeout"

_VALUE, _SPOUT, _FAILED, _SINCE = range(4)


class Acker(BatchBolt):
    """The bolt ``__acker``; inputs ``__ack_init``, ``__ack_ack``, ``__ack_fail``, ``__ack_reset_timeout``.

    Trees without a message for two ticks are forgotten: their spout has failed them by then.
    """

    GENERATIONS = 3

    def prepare(self, conf, context, collector) -> None:
        self._collector, self._context = collector, context
        self._pending: list[dict[int, list[Any]]] = [{} for _ in range(self.GENERATIONS)]

    def _entry(self, root: int) -> list[Any]:
        newest = self._pending[0]
        entry = newest.get(root)
        if entry is None:
            for generation in self._pending[1:]:
                entry = generation.pop(root, None)
                if entry is not None:
                    break
            else:
                entry = [0, None, False, self._context.clock_ms()]
            newest[root] = entry
        return entry

    def execute_batch(self, batch: TupleBatch) -> None:
        stream = batch.meta.stream
        if stream == ACKER_ACK_STREAM_ID:
            newest = self._pending[0]
            for root, value in batch.rows():
                entry = newest.get(root) or self._entry(root)
                entry[_VALUE] ^= value
                if entry[_VALUE] == 0 and entry[_SPOUT] is not None:
                    self._complete(root, entry)
        elif stream == ACKER_INIT_STREAM_ID:
            for root, value, spout_task in batch.rows():
                entry = self._entry(root)
                entry[_VALUE] ^= value
                entry[_SPOUT] = spout_task
                if entry[_FAILED]:
                    self._fail(root, entry)
                elif entry[_VALUE] == 0:
                    self._complete(root, entry)
        elif stream == ACKER_FAIL_STREAM_ID:
            for (root,) in batch.rows():
                entry = self._entry(root)
                entry[_FAILED] = True
                if entry[_SPOUT] is not None:
                    self._fail(root, entry)
        elif stream == ACKER_RESET_TIMEOUT_STREAM_ID:
            for (root,) in batch.rows():
                entry = self._entry(root)
                if entry[_SPOUT] is not None:
                    self._answer(ACKER_RESET_TIMEOUT_STREAM_ID, root, entry)

    def _complete(self, root: int, entry: list[Any]) -> None:
        del self._pending[0][root]
        self._answer(ACKER_ACK_STREAM_ID, root, entry)

    def _fail(self, root: int, entry: list[Any]) -> None:
        del self._pending[0][root]
        self._answer(ACKER_FAIL_STREAM_ID, root, entry)

    def _answer(self, stream: str, root: int, entry: list[Any]) -> None:
        self._collector.emit_direct(entry[_SPOUT], (root, self._context.clock_ms() - entry[_SINCE]), stream)

    def execute_tick(self, tup: Tuple) -> None:
        self._pending = [{}, *self._pending[:-1]]

    def snapshot(self) -> Any:
        return self._pending

    def restore(self, state: Any) -> None:
        self._pending = [{root: list(entry) for root, entry in generation.items()} for generation in state]
