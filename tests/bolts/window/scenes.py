"""Messages and queries drawn at random, with the edge cases that windows get wrong; answers by the plain oracle."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dskype.bolts.filters import Programs
from dskype.bolts.ranked_lists import RankedLists
from dskype.bolts.window.base import MessageWindow, QueryBatch
from dskype.spouts.batch import MessageBatch
from dskype.spouts.columns import lists_to_csr
from tests import naive, naive_where

DIAGONAL = 25.0
UNKNOWN = -(2**62)
TERMS = [UNKNOWN, -77, -5, *range(14)]
"""Few terms, some of them unknown to the vocabulary: many messages share some."""
SCALES_M = [None, 300_000.0, None, None, 1_000_000.0, None, 20.0]
"""Of queries: two of three have distances in degrees."""


def draw_messages(rng: np.random.Generator, n: int, *, kind: str = "count", first_seq: int = 0, first_ms: int = 1000) -> list[dict[str, Any]]:
    """Return ``n`` messages in order; one in ten has no keyword, points and weights repeat, so that scores are tied.

    :param kind: ``count``: the position is the seq; ``time``: positions repeat, and seqs are no longer in order.
    """
    seqs = np.arange(first_seq, first_seq + n)
    positions = seqs
    if kind == "time":
        positions = first_ms + np.cumsum(rng.integers(0, 3, n) * rng.integers(0, 5, n))
        seqs = rng.permutation(seqs)
        order = np.lexsort((seqs, positions))
        positions, seqs = positions[order], seqs[order]
    messages = []
    for seq, position in zip(seqs.tolist(), positions.tolist()):
        counts = {t: int(rng.integers(1, 3)) for t in rng.choice(len(TERMS), size=rng.integers(1, 6), replace=False).tolist()}
        weights = naive.norm_weights({TERMS[t]: tf for t, tf in counts.items()}, {t: 1 + abs(t) % 7 for t in TERMS}, 20)
        if rng.random() < 0.1:
            weights = {}
        messages.append(
            {
                "seq": seq,
                "position": position,
                "lat": float(rng.integers(0, 5) * 2.5),
                "lon": float(rng.integers(0, 5) * 3.0),
                "weights": weights,
                "id": f'"m{seq}\u00e9"' if seq % 3 else str(seq),
            }
        )
    return messages


def message_batch(messages: list[dict[str, Any]]) -> MessageBatch:
    """Return messages as arrays that cannot be written to, as they come from a frame."""
    terms = [sorted(m["weights"]) for m in messages]
    offsets, values = lists_to_csr(terms, np.int64)
    weights = lists_to_csr([[m["weights"][t] for t in ts] for m, ts in zip(messages, terms)], np.float64)[1]
    columns = [
        np.array([m[name] for m in messages], dtype) for name, dtype in (("seq", np.int64), ("position", np.int64), ("lat", np.float64), ("lon", np.float64))
    ]
    return MessageBatch(*map(frozen, (*columns, offsets, values, weights)))


def frozen(array: np.ndarray) -> np.ndarray:
    """Return the array, read-only from now on."""
    array.setflags(write=False)
    return array


def draw_queries(rng: np.random.Generator, n: int, lowest: int, highest: int, filtered: float = 0.0) -> list[dict[str, Any]]:
    """Return queries at watermarks from ``lowest`` to ``highest``: alpha 0 and 1 too, counts beyond the window and of zero, keywords that nothing has.

    :param filtered: the share that has a filter.
    """
    queries = []
    for _ in range(n):
        terms = [TERMS[i] for i in rng.choice(len(TERMS), size=rng.integers(0, 6), replace=False)] + ([99] if rng.random() < 0.2 else [])
        weights = naive.norm_weights(dict.fromkeys(terms, 1), {t: 1 + abs(t) % 7 for t in TERMS}, 20) if terms else {}
        queries.append(
            {
                "watermark": int(rng.integers(lowest, highest + 1)),
                "k": int(rng.choice([0, 1, 2, 5, 20, 10_000])),
                "alpha": float(rng.choice([0.0, 1.0, 0.5, 0.3, rng.random()])),
                "lat": float(rng.integers(0, 5) * 2.5),
                "lon": float(rng.integers(0, 5) * 3.0),
                "weights": weights,
                "where": naive_where.random_where(random.Random(int(rng.integers(2**32))), TERMS) if rng.random() < filtered else None,
                "scale_m": SCALES_M[len(queries) % len(SCALES_M)],
            }
        )
    return queries


def query_batch(queries: list[dict[str, Any]]) -> QueryBatch:
    """Return queries as arrays that cannot be written to."""
    terms = [sorted(q["weights"]) for q in queries]
    offsets, values = lists_to_csr(terms, np.int64)
    weights = lists_to_csr([[q["weights"][t] for t in ts] for q, ts in zip(queries, terms)], np.float64)[1]
    columns = [
        np.array([q[name] for q in queries], dtype)
        for name, dtype in (("watermark", np.int64), ("k", np.int64), ("alpha", np.float64), ("lat", np.float64), ("lon", np.float64))
    ]
    scale_m = np.array([q.get("scale_m") or 0.0 for q in queries])
    return QueryBatch(*map(frozen, (*columns, offsets, values, weights, scale_m)))


def programs_of(queries: list[dict[str, Any]]) -> Programs:
    """Return the filters of queries."""
    return Programs.of([naive_where.program(q.get("where")) for q in queries], len(queries))


def exact_topk(query: dict[str, Any], messages: list[dict[str, Any]], extent: int, half_life_ms: float | None = None) -> list[tuple[int, int, float]]:
    """Return the answer as (seq, position, score)."""
    messages = [m for m in messages if naive_where.counts(query, m) and query["watermark"] < m.get("end", np.inf)]
    return [(seq, position, s) for s, position, seq in naive.ranked(query, messages, query["watermark"], extent, DIAGONAL, half_life_ms)[: query["k"]]]


def rows(answers: RankedLists, i: int) -> list[tuple[int, int, float]]:
    """Return the answer to query ``i`` as (seq, position, score)."""
    part = slice(answers.offsets[i], answers.offsets[i + 1])
    return list(zip(answers.seqs[part].tolist(), answers.positions[part].tolist(), answers.scores[part].tolist()))


@dataclass
class Checked:
    """A window, and all messages that it has got; every answer is compared with the oracle."""

    window: MessageWindow
    extent: int
    messages: list[dict[str, Any]] = field(default_factory=list)
    freed: int = -(10**9)
    half_life_ms: float | None = None

    def insert(self, messages: list[dict[str, Any]]) -> None:
        """Insert messages into both."""
        self.window.insert(message_batch(messages), [m["id"] for m in messages])
        self.messages += messages
        self.window._check()

    def end(self, ends: dict[int, int]) -> None:
        """Let messages end in both, by their sequence numbers."""
        ended = [m for m in self.messages if m["seq"] in ends]
        for message in ended:
            message["end"] = ends[message["seq"]]
        self.window.end(*(np.array([m[name] for m in ended], np.int64) for name in ("seq", "position", "end")))
        self.window._check()

    def free(self, position: int) -> None:
        """Free in both."""
        self.window.free(position)
        self.freed = max(self.freed, position)
        self.window._check()

    def ask_for_all(self, queries: list[dict[str, Any]]) -> None:
        """Ask for all that reaches a threshold, and for the best of it: some at just the score of a message, or next to it."""
        whole = [exact_topk({**q, "k": len(self.messages)}, self.messages, self.extent, self.half_life_ms) for q in queries]
        thresholds = np.full(len(queries), -np.inf)
        for i, found in enumerate(whole):
            if i % 4 and found:
                at = found[(7 * i) % len(found)][2]
                thresholds[i] = (at, np.nextafter(at, np.inf), np.nextafter(at, -np.inf))[i % 3]
        expected = [[row for row in found if row[2] >= threshold] for found, threshold in zip(whole, thresholds.tolist())]
        everything = self.window.topk(query_batch([{**q, "k": len(self.messages)} for q in queries]), self.extent, DIAGONAL, frozen(thresholds))
        best = self.window.topk(query_batch(queries), self.extent, DIAGONAL, thresholds)
        for i, query in enumerate(queries):
            assert rows(everything, i) == expected[i], query
            assert rows(best, i) == expected[i][: query["k"]], query
        assert everything.offsets[-1] == len(everything.seqs) == sum(map(len, expected))

    def ask(self, queries: list[dict[str, Any]]) -> None:
        """Ask, and compare the answers."""
        answers = self.window.topk(query_batch(queries), self.extent, DIAGONAL)
        assert len(answers.offsets) == len(queries) + 1 and answers.offsets[0] == 0
        assert answers.offsets[-1] == len(answers.seqs) == len(answers.positions) == len(answers.scores)
        for i, query in enumerate(queries):
            expected = exact_topk(query, self.messages, self.extent, self.half_life_ms)
            assert rows(answers, i) == expected, query
        self.ask_for_all(queries)
        id_of = {m["seq"]: m["id"] for m in self.messages}
        assert self.window.ids(answers.seqs, answers.positions) == [id_of[seq] for seq in answers.seqs.tolist()]
