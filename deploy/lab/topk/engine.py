"""What the whole top-k engine costs, step by step: matching, buffers, expiry, thresholds, re-evaluations, the message window."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from dskype.bolts.skype import Skype
from dskype.deploy.lab.comparing import clocked, quiet
from dskype.deploy.lab.corpus import Corpus
from dskype.deploy.lab.skype.engine import Known, SkypeScale, prepare
from dskype.deploy.lab.skype.workload import Stream, draw_subscriptions
from dskype.deploy.lab.topk import truth
from dskype.deploy.lab.topk.workload import SETTING
from dskype.spouts.batch import MessageBatch

__all__ = ["STEPS", "measure_engine"]

STEPS = {
    "match_us": "match",
    "arrivals_us": "arrivals in buffers",
    "expiry_us": "expiry",
    "thresholds_us": "thresholds",
    "evaluations_us": "re-evaluations",
    "window_us": "message window",
    "all_us": "all",
}
"""Measure -> title."""


def measure_engine(
    index: str,
    corpus: Corpus,
    scale: SkypeScale,
    known: Known,
    *,
    parts: int = 3,
    between: int = 0,
    samples: int = 8,
    tell: Callable[[str], None] = lambda line: None,
) -> dict[str, Any]:
    """Fill a window, register all subscriptions, measure ``parts`` times ``scale.arrivals`` messages, and check some lists.

    :param index: a name in ``dskype.bolts.topk.engine.INDEXES``; buffers are *kmax*.
    :param known: the lists of all subscriptions at the start, shared by several calls.
    :param between: messages after the first part that are not measured, so that the other parts show the engine as it is later.
    :param samples: subscriptions whose lists at the end are compared with :func:`truth.best`.
    :param tell: called with lines about how far it is.
    :returns: ``parts`` (each has the measures of :data:`STEPS`, us per message, and ``first`` and ``last`` (number of the message, from 1), ``changes`` (of lists, per
        message), ``evaluations_per_1000`` and ``engine_mib``, ``window_mib`` at the end of the part), ``lists`` (the mean length of a list) and ``errors``.
    """
    skype, stream, slots = prepare(replace(SETTING, index=index), corpus, scale, known)
    tell(f"{index}: {len(slots):,} subscriptions are registered")
    measure = _Clocks(skype)
    found: dict[str, Any] = {"parts": []}
    for part in range(parts):
        if part == 1:
            measure.pass_by(stream, between)
        found["parts"].append(measure.part(stream, scale.arrivals))
        tell(f"{index}: part {part + 1} takes {found['parts'][-1]['all_us']:.1f} us per message")
    found["lists"] = float(np.diff(skype.topk(slots).offsets).mean())
    found["errors"] = _wrong(skype, slots, corpus, scale, stream, samples)
    return found


class _Clocks:
    """Adds up the CPU time of each step of an engine."""

    def __init__(self, skype: Skype) -> None:
        self.skype = skype
        engine, window = skype.engine, skype.window
        self._arrived = 0
        self._buffers = clocked(engine.buffers, "apply")
        self._others = {
            "match_us": [clocked(engine.index, "match")],
            "thresholds_us": [clocked(engine.index, "set_thresholds")],
            "evaluations_us": [clocked(skype, "look_up"), clocked(engine.buffers, "resolve")],
            "window_us": [clocked(window, "insert"), clocked(window, "free")],
        }

    def pass_by(self, stream: Stream, messages: int) -> None:
        """Let messages arrive and expire without measuring them."""
        last = self._arrived + messages
        while self._arrived < last:
            batch, full, end = stream.slot()
            self.skype.advance(batch, watermark=full)
            self.skype.advance(watermark=end)
            self._arrived += batch.n

    def part(self, stream: Stream, arrivals: int) -> dict[str, float]:
        """Measure ``arrivals`` messages: they arrive, then as many expire, slot by slot of the stream."""
        for spent in (self._buffers, *(spent for several in self._others.values() for spent in several)):
            spent[0] = 0.0
        arrived, changes, arriving_s, all_s, evaluations = 0, 0, 0.0, 0.0, self.skype.evaluations
        with quiet():
            while arrived < arrivals:
                messages, full, end = stream.slot()
                before, began = self._buffers[0], time.process_time()
                first = self.skype.advance(messages, watermark=full)
                arriving_s += self._buffers[0] - before
                second = self.skype.advance(watermark=end)
                all_s += time.process_time() - began
                arrived += messages.n
                changes += len(first.slot) + len(second.slot)
        seconds = {name: sum(spent[0] for spent in several) for name, several in self._others.items()}
        seconds |= {"arrivals_us": arriving_s, "expiry_us": self._buffers[0] - arriving_s, "all_us": all_s}
        self._arrived += arrived
        return {
            **{name: seconds[name] / arrived * 1e6 for name in STEPS},
            "first": self._arrived - arrived + 1,
            "last": self._arrived,
            "changes": changes / arrived,
            "evaluations_per_1000": (self.skype.evaluations - evaluations) / arrived * 1e3,
            "engine_mib": self.skype.engine.memory_bytes / 2**20,
            "window_mib": self.skype.window.memory_bytes / 2**20,
        }


def _wrong(skype: Skype, slots: np.ndarray, corpus: Corpus, scale: SkypeScale, stream: Stream, samples: int) -> list[str]:
    """Return a line for each of some subscriptions whose list is not that of a plain computation."""
    subscriptions = draw_subscriptions(corpus, len(slots), k=SETTING.k, keywords=SETTING.keywords, seed=scale.seed)
    replayed, end = Stream(corpus, scale.window, seed=scale.seed), -1
    batches: deque[MessageBatch] = deque(maxlen=stream.slots_of_window + 1)
    while end < skype.watermark:
        messages, _, end = replayed.slot()
        batches.append(messages)
    messages = MessageBatch.concat(list(batches))
    window = messages.select(np.flatnonzero((skype.watermark - skype.extent < messages.position) & (messages.position <= skype.watermark)))
    errors = []
    for row in np.random.default_rng(1).permutation(len(slots))[:samples].tolist():
        lists = skype.topk(slots[row])
        seqs, scores = truth.best(subscriptions, row, window, corpus.diagonal_deg)
        if not (np.array_equal(lists.seqs, seqs) and np.array_equal(lists.scores, scores)):
            errors.append(f"{skype.engine.index_name}: the list of subscription {row} is not that of a plain computation, which has {len(seqs)} messages")
    return errors
