"""What comparisons of indexes share: times of matches, hashes of what was found, clocks, the speed of the machine."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from typing import Any

import numpy as np

from dskype.deploy.machine.terminal import Progress
from dskype.spouts.batch import MessageBatch

__all__ = ["MatchTimes", "clocked", "differences", "digest", "fixed_loop_ms", "quiet", "show_share"]

_SINGLES = 2_000
_ADDITIONS = 20_000


class MatchTimes:
    """Times how an index matches batches of messages, and single ones, and hashes what it finds.

    :param name: of the index.
    :param batches: the messages.
    :ivar index: what is measured, set by a subclass. Its ``match`` returns columns of pairs: row of the message, slot, and whatever follows.
    :ivar found: ``message_us`` (in batches), ``p50_us`` and ``p99_us`` (single messages), ``matches`` (per message), ``measured`` (messages).
    :ivar digests: a hash of the pairs of each batch that was matched.
    """

    index: Any

    def __init__(self, name: str, batches: Sequence[MessageBatch]) -> None:
        self.name = name
        self.found: dict[str, float] = {}
        self.restart(batches)

    def restart(self, batches: Sequence[MessageBatch]) -> None:
        """Forget what was found about matches, and begin again with these messages."""
        self.batches = batches
        self.digests: list[str] = []
        self._first: tuple[np.ndarray, np.ndarray] | None = None
        for name in ("message_us", "p50_us", "p99_us", "matches", "measured"):
            self.found.pop(name, None)

    def match(self, budget_s: float) -> float:
        """Match all messages in batches, or as many batches as ``budget_s`` of CPU time lasts for; the fastest of several calls counts.

        :returns: us per message of this call.
        """
        spent = matched = done = 0
        digests = []
        with quiet():
            for batch in self.batches[: len(self.digests)] if self.digests else self.batches:
                began = time.process_time_ns()
                pairs = self.index.match(batch)
                spent += time.process_time_ns() - began
                matched += len(pairs[1])
                done += batch.n
                digests.append(digest(*pairs))
                if self._first is None:
                    self._first = pairs[0].copy(), pairs[1].copy()
                if not self.digests and spent > budget_s * 1e9:
                    break
        if self.digests and digests != self.digests:
            raise AssertionError(f"index {self.name!r} matches otherwise when it is asked again")
        self.digests = digests
        self.keep_least("message_us", spent / 1e3 / done)
        self.found["matches"], self.found["measured"] = matched / done, done
        return spent / 1e3 / done

    def single(self, budget_s: float) -> np.ndarray:
        """Match messages one at a time, as long as ``budget_s`` lasts; the lowest percentiles of several calls count.

        :returns: us of each message in this call, by the wall clock.
        """
        spent: list[int] = []
        with quiet():
            end = time.perf_counter() + budget_s
            for message in self._single_messages():
                began = time.perf_counter_ns()
                self.index.match(message)
                spent.append(time.perf_counter_ns() - began)
                if time.perf_counter() > end:
                    break
        times_us = np.array(spent) / 1e3
        for name, share in (("p50_us", 50), ("p99_us", 99)):
            self.keep_least(name, float(np.percentile(times_us, share)))
        return times_us

    def _single_messages(self) -> list[MessageBatch]:
        return [batch.slice(i, i + 1) for batch in self.batches[:_SINGLES] for i in range(batch.n)][:_SINGLES]

    def matches_of(self, row: int) -> np.ndarray:
        """Return the slots that a message of the first batch matched."""
        assert self._first is not None, "nothing has been matched"
        message, slot = self._first
        return slot[message == row]

    def keep_least(self, name: str, value: float) -> None:
        """Keep the least value of a measure."""
        self.found[name] = min(value, self.found.get(name, value))


def digest(*columns: np.ndarray) -> str:
    """Return a hash that tells lists of pairs apart, whatever the width of their integers."""
    hashed = blake2b(digest_size=8)
    for column in columns:
        hashed.update(np.ascontiguousarray(column, np.float64 if column.dtype.kind == "f" else np.int32).tobytes())
        hashed.update(b"|")
    return hashed.hexdigest()


def differences(digests: Mapping[str, Sequence[str]]) -> list[str]:
    """Return a line for each index whose batches differ from those of the index that matched most of them.

    :param digests: index -> hashes of its batches, which may be fewer than those of others.
    """
    if not digests:
        return []
    reference = max(digests, key=lambda name: len(digests[name]))
    errors = []
    for name, own in digests.items():
        wrong = [i for i, (a, b) in enumerate(zip(own, digests[reference])) if a != b]
        if wrong:
            errors.append(f"{name}: {len(wrong)} batches differ from those of {reference}, the first is number {wrong[0]}")
    return errors


def show_share(what: str) -> Callable[[float], None]:
    """Return a function that shows on standard error which share of something is done."""
    progress = Progress(20.0)

    def show(share: float) -> None:
        progress(f"{what}: {share:.0%}")
        if share >= 1:
            progress.end()

    return show


def clocked(owner: Any, name: str) -> list[float]:
    """Make a method of an object add up its CPU time; return the list with the sum, in seconds."""
    method, spent = getattr(owner, name), [0.0]

    def call(*arguments: Any) -> Any:
        began = time.process_time()
        try:
            return method(*arguments)
        finally:
            spent[0] += time.process_time() - began

    setattr(owner, name, call)
    return spent


def fixed_loop_ms() -> float:
    """Return how long a loop of 20,000 additions takes now, the median of 101 times: it tells how fast the machine is."""
    times_ms = []
    for _ in range(101):
        began, total = time.perf_counter_ns(), 0
        for number in range(_ADDITIONS):
            total += number
        times_ms.append((time.perf_counter_ns() - began) / 1e6)
    return statistics.median(times_ms)


@contextmanager
def quiet() -> Iterator[None]:
    """Let the garbage collector stand still."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
