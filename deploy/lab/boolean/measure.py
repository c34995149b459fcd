"""What one boolean index costs on a workload: building, matching, single messages, changes, memory.

Costs are CPU times of the process, so that others on the machine matter less; single messages are timed by the wall clock. Expressions
are made before the clock runs, and the garbage collector stands still.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from dskype.bolts.boolean import INDEXES, BooleanIndex, make_index
from dskype.bolts.boolean.programs import compile_expression
from dskype.deploy.lab.boolean.subscriptions import BooleanSubscriptions
from dskype.deploy.lab.boolean.workloads import BooleanIndexWorkload
from dskype.deploy.lab.comparing import MatchTimes, digest, quiet
from dskype.distribution.agrid.learning import box_of_messages
from dskype.spouts.batch import MessageBatch

__all__ = ["BATCH", "CALL", "Measured", "TooSlowError", "compile_us", "insert", "options_over", "warm_up", "within"]

BATCH = 256
"""Messages per batch."""

CALL = 256
"""Subscriptions per call of insert or remove."""

_CHANGED = 100_000


class Measured(MatchTimes):
    """An index that is filled with the subscriptions of a workload, and what was found about it so far.

    :param name: of the index; ``options``: its own.
    :param tell: called with the share of the building that is done.
    :ivar found: ``build_us`` (per subscription), ``longest_insert_ms`` (of a call with 256), ``bytes`` and ``resident_bytes`` (per
        subscription; the latter as the process grew), ``message_us`` (in batches of 256), ``p50_us`` and ``p99_us`` (single messages), ``matches`` (per
        message), ``measured`` (messages), ``remove_us``, ``again_us`` (insert what was removed), ``longest_remove_ms``, ``longest_again_ms``, ``bytes_after`` (the changes).
    """

    def __init__(
        self, name: str, workload: BooleanIndexWorkload, options: dict[str, Any] | None = None, tell: Callable[[float], None] = lambda share: None
    ) -> None:
        super().__init__(name, _batches(workload.messages))
        self.workload = workload
        before = _resident_bytes()
        self.index = make_index(name, options)
        n = workload.subscriptions.n
        calls = insert(self.index, workload.subscriptions, np.arange(n), tell)
        self.found["build_us"] = calls.sum() / 1e3 / n
        self.found["longest_insert_ms"] = calls.max() / 1e6
        self.found["bytes"] = self.index.memory_bytes / n
        self.found["resident_bytes"] = max(0, _resident_bytes() - before) / n

    def change(self, seed: int = 0) -> None:
        """Remove some subscriptions and put them in again, then look whether matches are the same."""
        n = self.workload.subscriptions.n
        rows = np.random.default_rng([seed, 5]).permutation(n)[: min(_CHANGED, max(1, n // 10))]
        calls = []
        with quiet():
            for start in range(0, len(rows), CALL):
                began = time.process_time_ns()
                self.index.remove_many(rows[start : start + CALL])
                calls.append(time.process_time_ns() - began)
        self.found["remove_us"], self.found["longest_remove_ms"] = sum(calls) / 1e3 / len(rows), max(calls) / 1e6
        again = insert(self.index, self.workload.subscriptions, rows)
        self.found["again_us"], self.found["longest_again_ms"] = again.sum() / 1e3 / len(rows), again.max() / 1e6
        self.found["bytes_after"] = self.index.memory_bytes / n
        if self.digests and digest(*self.index.match(self.workload.messages.slice(0, min(BATCH, self.workload.messages.n)))) != self.digests[0]:
            raise AssertionError(f"index {self.name!r} matches otherwise after subscriptions left and came again")

    def take_messages(self, messages: MessageBatch) -> None:
        """Begin again with other messages and the same subscriptions."""
        self.workload = self.workload._replace(messages=messages)
        self.restart(_batches(messages))

    def remove(self, share: float, seed: int = 0) -> None:
        """Take a share of the subscriptions out for good."""
        n = self.workload.subscriptions.n
        rows = np.random.default_rng([seed, 17]).permutation(n)[: round(share * n)]
        for start in range(0, len(rows), CALL):
            self.index.remove_many(rows[start : start + CALL])

    def match_between(self, updates: float, budget_s: float, seed: int = 0) -> None:
        """Match all messages in batches; before each batch, ``updates`` subscriptions per message are removed and as many inserted.

        ``message_us`` is the time of both. It ends when ``budget_s`` is over.
        """
        n = self.workload.subscriptions.n
        each = max(1, min(n // 2, round(updates * BATCH)))
        rng = np.random.default_rng([seed, 19])
        away = rng.permutation(n)[:each]
        self.index.remove_many(away)
        spent = matched = done = 0
        digests = []
        with quiet():
            for start in range(0, self.workload.messages.n, BATCH):
                batch = self.workload.messages.slice(start, min(start + BATCH, self.workload.messages.n))
                going = np.setdiff1d(rng.integers(0, n, each), away)
                boxes, expressions = self.workload.subscriptions.boxes[away], self.workload.subscriptions.expressions(away)
                began = time.process_time_ns()
                self.index.remove_many(going)
                self.index.insert_many(away, boxes, expressions)
                message, slot = self.index.match(batch)
                spent += time.process_time_ns() - began
                away = going
                matched += len(slot)
                done += batch.n
                digests.append(digest(message, slot))
                if spent > budget_s * 1e9:
                    break
        self.digests = digests
        self.keep_least("message_us", spent / 1e3 / done)
        self.found["matches"], self.found["measured"] = matched / done, done

    @property
    def bytes_each(self) -> float:
        """What the index takes now, per subscription that it holds."""
        return self.index.memory_bytes / max(1, len(self.index))


def _batches(messages: MessageBatch) -> list[MessageBatch]:
    return [messages.slice(i, min(i + BATCH, messages.n)) for i in range(0, messages.n, BATCH)]


def insert(index: BooleanIndex, subscriptions: BooleanSubscriptions, rows: np.ndarray, tell: Callable[[float], None] = lambda share: None) -> np.ndarray:
    """Insert subscriptions into the slots that are their rows, 256 at a time; return the CPU times of the calls, ns.

    They are given as columns where the index takes these as they are, and else as expressions.
    """
    calls = np.zeros(-(-len(rows) // CALL), np.int64)
    columns = type(index).insert_conjunctions is not BooleanIndex.insert_conjunctions and not subscriptions.shapes.any()
    with quiet():
        for number in range(len(calls)):
            some = rows[number * CALL : (number + 1) * CALL]
            given: tuple[Any, ...] = subscriptions.columns(some) if columns else (subscriptions.expressions(some),)
            call, boxes = index.insert_conjunctions if columns else index.insert_many, subscriptions.boxes[some]
            began = time.process_time_ns()
            call(some, boxes, *given)
            calls[number] = time.process_time_ns() - began
            if number % 256 == 0:
                tell(number / len(calls))
    tell(1.0)
    return calls


def compile_us(subscriptions: BooleanSubscriptions) -> float:
    """Return how long it takes to compile an expression, part of an insert that is not given columns."""
    expressions = subscriptions.expressions(np.arange(min(10_000, subscriptions.n)))
    with quiet():
        began = time.process_time_ns()
        for expression in expressions:
            compile_expression(expression)
        return (time.process_time_ns() - began) / 1e3 / len(expressions)


def options_over(name: str, lat: np.ndarray, lon: np.ndarray, options: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the options of an index whose grid, if it has one, lies over messages, as in the papers, and not over the world.

    :param lat: float64[n], degrees, of the messages; so is ``lon``.
    :param options: other ones.
    """
    grid = {"box": box_of_messages(lat, lon)} if "box" in INDEXES[name].OPTIONS and len(lat) else {}
    return {**grid, **(options or {})}


def warm_up(name: str, workload: BooleanIndexWorkload, options: dict[str, Any] | None = None) -> None:
    """Compile the kernels of an index: do everything once with few subscriptions."""
    few = BooleanIndexWorkload(
        workload.name, workload.subscriptions.first(min(2_000, workload.subscriptions.n)), workload.messages.slice(0, min(300, workload.messages.n))
    )
    index = Measured(name, few, options)
    index.match(1.0)
    index.single(0.1)
    index.change()


class TooSlowError(Exception):
    """An index has taken longer than it may."""


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Interrupt the block when it has taken longer than ``seconds`` by the wall clock. Works in the main thread only, and not within a kernel.

    :raises TooSlowError: the time is over.
    """

    def end(*_: object) -> None:
        raise TooSlowError

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _resident_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
