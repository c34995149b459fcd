"""A small random world for tests of the top-k library: messages, subscriptions, oracles, a caller with slow answers."""

from __future__ import annotations

import bisect
import math
import random
from collections import defaultdict
from typing import Any

import numpy as np

from dskype.bolts.topk.engine import TopkEngine
from dskype.spouts.batch import MessageBatch
from tests import naive, naive_where

DIAGONAL_DEG = 40.0


def weigh(terms: list[int], rng: random.Random) -> dict[int, float]:
    raw = {term: rng.choice((1.0, 1.0, 0.5, 2.5)) for term in terms}
    norm = math.sqrt(sum(w * w for w in raw.values()))
    return {term: w / norm for term, w in sorted(raw.items())}


def exact_score(subscription: dict[str, Any], message: dict[str, Any]) -> float | None:
    """The score to the last bit; None without a common keyword, or if the subscription's filter rules the message out. A subscription may have a ``half_life_ms``."""
    return naive.score(subscription, message, DIAGONAL_DEG, subscription.get("half_life_ms")) if naive_where.counts(subscription, message) else None


def exact_topk(subscription: dict[str, Any], messages: list[dict[str, Any]], watermark: int, extent: int, count: int) -> list[tuple[float, int, int]]:
    """(score, position, seq) of the best ``count`` messages of the window, in rank order."""
    return naive.ranked(subscription, messages, watermark, extent, DIAGONAL_DEG)[:count]


class Ranking:
    """What :func:`exact_topk` says of one subscription, for a caller that asks again and again: each score is computed once.

    :param messages: in rising order of positions; the caller appends to it.
    :param after: no window that is asked for begins before this position.
    :param ends: sequence number -> the position from which on a message does not count; the caller adds to it.
    """

    def __init__(self, subscription: dict[str, Any], messages: list[dict[str, Any]], after: float = -math.inf, ends: dict[int, int] | None = None) -> None:
        self.subscription, self.messages, self.ends = subscription, messages, {} if ends is None else ends
        self.scored: list[tuple[float, int, int]] = []
        self.known = bisect.bisect_right(messages, after, key=lambda message: message["position"])
        self.after = after
        self.last: tuple[Any, list[tuple[float, int, int]]] = (None, [])

    def topk(self, watermark: int, extent: int, count: int) -> list[tuple[float, int, int]]:
        assert watermark - extent >= self.after
        for message in self.messages[self.known :]:
            assert not self.scored or self.scored[-1][1] <= message["position"]
            if (score := exact_score(self.subscription, message)) is not None:
                self.scored.append((score, message["position"], message["seq"]))
        self.known = len(self.messages)
        asked = (watermark, extent, self.known, len(self.ends))
        if self.last[0] != asked:
            first, end = (bisect.bisect_right(self.scored, position, key=lambda entry: entry[1]) for position in (watermark - extent, watermark))
            self.last = (asked, sorted((e for e in self.scored[first:end] if watermark < self.ends.get(e[2], math.inf)), reverse=True))
        return self.last[1][:count]


class World:
    """Draws messages and subscriptions from few places, terms and weights, so that equal scores are common.

    :param filtered: the share of subscriptions that have a filter.
    :param metres: the share of subscriptions whose distances are in metres; where there are any, places lie all over the globe.
    :param half_life_ms: of scores; None: age does not count.
    """

    def __init__(
        self,
        seed: int,
        *,
        terms: int = 12,
        places: int = 6,
        timed: bool = False,
        most_terms: int = 4,
        filtered: float = 0.0,
        metres: float = 0.0,
        half_life_ms: float | None = None,
    ) -> None:
        self.rng = random.Random(seed)
        self.filters, self.filtered = random.Random(f"filters {seed}"), filtered
        # Known terms, unknown ones (negative), and one of the widest ids.
        self.terms = sorted([*range(0, 3 * terms, 3), *(-1 - self.rng.randrange(2**62) for _ in range(terms // 3)), 2**62])
        self.places = [(self.rng.uniform(-10, 10), self.rng.uniform(-10, 10)) for _ in range(places)]
        self.scales, self.metres = random.Random(f"scales {seed}"), metres
        if metres:
            self.places = globe(self.scales, 3 * places)
        self.timed, self.most_terms, self.half_life_ms = timed, most_terms, half_life_ms
        self.seq, self.position = -1, -1

    def pick_terms(self, most: int) -> list[int]:
        n = min(len(self.terms), self.rng.randint(1, most))
        weights = [1 / (i + 1) for i in range(len(self.terms))]
        return sorted(set(self.rng.choices(self.terms, weights, k=n)))

    def message(self) -> dict[str, Any]:
        self.seq += 1
        self.position = self.position + self.rng.choice((0, 0, 1, 1, 2, 7)) if self.timed and self.position >= 0 else self.position + 1
        lat, lon = self.rng.choice(self.places)
        terms = [] if self.rng.random() < 0.05 else self.pick_terms(2 * self.most_terms)
        return {"seq": self.seq, "position": self.position, "lat": lat, "lon": lon, "weights": weigh(terms, self.rng)}

    def messages(self, n: int) -> list[dict[str, Any]]:
        """``n`` messages; in a timed world they start after everything before."""
        if self.timed and n:
            self.position += 1
        return [self.message() for _ in range(n)]

    def subscription(self, k: int | None = None) -> dict[str, Any]:
        lat, lon = self.rng.choice(self.places)
        most = 64 if self.rng.random() < 0.05 else self.most_terms
        return {
            "k": k or self.rng.choice((1, 1, 2, 3, 5, 8, 40)),
            "alpha": self.rng.choice((0.0, 1.0, 0.5, self.rng.random())),
            "lat": lat,
            "lon": lon,
            "weights": weigh(self.pick_terms(most), self.rng),
            "where": naive_where.random_where(self.filters, self.terms) if self.filters.random() < self.filtered else None,
            "scale_m": random_scale_m(self.scales) if self.scales.random() < self.metres else None,
            "half_life_ms": self.half_life_ms,
        }


def globe(rng: random.Random, n: int) -> list[tuple[float, float]]:
    """Return places as (lat, lon): on poles, at the antimeridian, and anywhere, each with neighbours from metres to a hundred kilometres away."""
    around = [
        (90.0, 7.0),
        (-89.9995, -60.0),
        (0.0, 180.0),
        (52.0, -179.9999),
        (-17.0, 179.5),
        (52.5, 13.4),
        (-33.9, 151.2),
        (rng.uniform(-90, 90), rng.uniform(-180, 180)),
    ]
    places = []
    for i in range(n):
        lat, lon = around[i % len(around)]
        away = rng.choice((0.0, 0.00001, 0.01, 1.0))
        lon = (lon + rng.uniform(-away, away) + 540.0) % 360.0 - 180.0
        places.append((max(-90.0, min(90.0, lat + rng.uniform(-away, away))), rng.choice((lon, lon, rng.choice((-180.0, 180.0))))))
    return places


def random_scale_m(rng: random.Random) -> float:
    """Return a scale from a metre to more than the globe has."""
    return rng.choice((1.0, 500.0, 5_000.0, 250_000.0, 3_000_000.0, 12_345_678.9, 30_000_000.0))


def csr(weights: list[dict[int, float]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    offsets = np.cumsum([0, *map(len, weights)]).astype(np.int64)
    return offsets, np.array([t for w in weights for t in w], np.int64), np.array([x for w in weights for x in w.values()], np.float64)


def batch(messages: list[dict[str, Any]]) -> MessageBatch:
    return MessageBatch(
        np.array([m["seq"] for m in messages], np.int64),
        np.array([m["position"] for m in messages], np.int64),
        np.array([m["lat"] for m in messages], float),
        np.array([m["lon"] for m in messages], float),
        *csr([m["weights"] for m in messages]),
    )


def columns(subscriptions: list[dict[str, Any]]) -> tuple[np.ndarray, ...]:
    """The arguments of ``TopkEngine.insert`` but for ``complete`` and ``programs``."""
    return (
        np.array([s["k"] for s in subscriptions], np.int32),
        np.array([s["alpha"] for s in subscriptions], float),
        np.array([s["lat"] for s in subscriptions], float),
        np.array([s["lon"] for s in subscriptions], float),
        *csr([s["weights"] for s in subscriptions]),
    )


def programs(subscriptions: list[dict[str, Any]]) -> list[list[int] | None]:
    """The filters of subscriptions."""
    return [naive_where.program(s["where"]) for s in subscriptions]


def scales_m(subscriptions: list[dict[str, Any]]) -> np.ndarray:
    """The scales of subscriptions, 0 where distances are in degrees."""
    return np.array([s.get("scale_m") or 0.0 for s in subscriptions])


class Caller:
    """Drives an engine as a subscription bolt does, and checks everything that it says against the oracle.

    ``folded`` is what the changes amount to; ``open`` the requests on their way: (slot, generation, watermark, wanted).
    """

    def __init__(self, engine: TopkEngine, world: World) -> None:
        self.engine, self.world = engine, world
        self.messages: list[dict[str, Any]] = []
        self.by_seq: dict[int, dict[str, Any]] = {}
        self.ends: dict[int, int] = {}
        self.subscriptions: dict[int, dict[str, Any]] = {}
        self.rankings: dict[int, Ranking] = {}
        self.generation: dict[int, int] = {}
        self.folded: dict[int, list[int]] = {}
        self.active: set[int] = set()
        self.open: list[tuple[int, int, int, int]] = []
        self.log: list[Any] = []
        self.resolved = self.checked = 0

    def insert(self, subscriptions: list[dict[str, Any]], complete: bool = False) -> list[int]:
        slots = self.engine.insert(*columns(subscriptions), complete, programs(subscriptions), scales_m(subscriptions)).tolist()
        free = [i for i in range(len(self.subscriptions) + len(slots)) if i not in self.subscriptions]
        assert slots == free[: len(slots)]  # the lowest free ones
        for slot, subscription in zip(slots, subscriptions):
            self.subscriptions[slot] = subscription
            self.rankings[slot] = Ranking(subscription, self.messages, self.engine.watermark - self.engine.extent, self.ends)
            self.generation[slot] = self.generation.get(slot, 0) + 1
            self.folded[slot] = []
            if complete:
                self.active.add(slot)
        if not complete:
            self.ask(slots)
        return slots

    def remove(self, slots: list[int]) -> None:
        self.engine.remove(np.array(slots, np.int32))
        for slot in slots:
            del self.subscriptions[slot], self.rankings[slot], self.folded[slot]
            self.active.discard(slot)

    def ask(self, slots: list[int]) -> None:
        wanted = self.engine.wanted(np.array(slots, np.int32)).tolist()
        self.open += [(slot, self.generation[slot], self.engine.watermark, n) for slot, n in zip(slots, wanted)]

    def draw_ends(self, messages: list[dict[str, Any]], watermark: int) -> dict[int, int]:
        """Return sequence number -> end of some messages that count, or are about to; they end later than they began, and up to a watermark."""
        before, rng = self.engine.watermark, self.world.rng
        there = [m for m in [*self.messages, *messages] if m["seq"] not in self.ends and m["position"] < watermark and rng.random() < 0.15]
        return {m["seq"]: rng.randint(max(before, m["position"]) + 1, watermark) for m in there if before < watermark}

    def advance(self, messages: list[dict[str, Any]], watermark: int, ends: dict[int, int] | None = None) -> None:
        before, active = self.engine.watermark, set(self.active)
        self.messages += messages
        self.by_seq.update((m["seq"], m) for m in messages)
        if ends is None:
            changes = self.engine.advance(batch(messages), watermark, naive_where.details(messages))
        else:
            self.ends |= ends
            both = [(m, False) for m in messages] + [({**self.by_seq[seq], "position": end}, True) for seq, end in ends.items()]
            both.sort(key=lambda one: (one[0]["position"], one[0]["seq"]))
            rows = [m for m, _ in both]
            changes = self.engine.advance(batch(rows), watermark, naive_where.details(rows), np.array([ended for _, ended in both], bool))
        self._record(changes)
        due = changes.due.tolist()
        assert due == sorted(set(due)) and set(due) <= active
        times = sorted(
            {m["position"] for m in messages} | set((ends or {}).values()) | {m["position"] + self.engine.extent for m in self.messages} | {watermark}
        )
        self._fold(changes, active, [t for t in times if before < t <= watermark])
        self.active -= set(due)
        self.ask(due)
        self.engine.forget_ends(min([watermark, *(asked for _, _, asked, _ in self.open)]))
        self.check()

    def _record(self, changes: Any) -> None:
        assert changes.watermark.tolist() == sorted(changes.watermark.tolist())
        assert [a.dtype for a in changes] == [np.int32, np.int8, np.int64, np.float64, np.int32, np.int64, np.int32, np.int32]
        self.log.append([a.tolist() for a in changes])

    def _fold(self, changes: Any, active: set[int], times: list[int]) -> None:
        """Apply changes time by time; every list they lead to is compared, until its slot falls due."""
        due = set(changes.due.tolist())
        rows = list(zip(*(a.tolist() for a in changes[:6])))
        assert {row[0] for row in rows} <= active
        assert set(changes.touched.tolist()) == {row[0] for row in rows}
        frozen: set[int] = set()
        i = 0
        for time in times:
            j = i
            while j < len(rows) and rows[j][5] == time:
                j += 1
            touched = self._apply(rows[i:j], time)
            i = j
            for slot in sorted(active - frozen if time == times[-1] else (touched | due) - frozen):
                if slot in due:
                    # It keeps the list from before it ran low; nothing is said about it afterwards.
                    if self._differs(slot, time):
                        assert slot not in touched
                        frozen.add(slot)
                    continue
                assert not self._differs(slot, time), (slot, time, self.folded[slot])
            assert not touched & frozen
        assert i == len(rows), rows[i:]

    def _apply(self, rows: list[tuple[Any, ...]], time: int) -> set[int]:
        by_slot: dict[int, list[tuple[Any, ...]]] = defaultdict(list)
        for row in rows:
            by_slot[row[0]].append(row)
        for slot, mine in by_slot.items():
            gone, new = [r[2] for r in mine if r[1] == 1], [r[2] for r in mine if r[1] == 0]
            assert not set(gone) & set(new) and [r[1] for r in mine] == [1] * len(gone) + [0] * len(new)
            self.folded[slot] = [seq for seq in self.folded[slot] if seq not in gone]
            for _, op, seq, score, rank, _ in mine:
                if op == 0:
                    assert seq not in self.folded[slot] and score == exact_score(self.subscriptions[slot], self.by_seq[seq])
                    self.folded[slot].insert(rank - 1, seq)
                else:
                    assert rank == 0
        return set(by_slot)

    def expected(self, slot: int, watermark: int, count: int | None = None) -> list[tuple[float, int, int]]:
        return self.rankings[slot].topk(watermark, self.engine.extent, self.subscriptions[slot]["k"] if count is None else count)

    def _differs(self, slot: int, watermark: int) -> bool:
        self.checked += 1
        return self.folded[slot] != [seq for _, _, seq in self.expected(slot, watermark)]

    def answer(self, chosen: list[tuple[int, int, int, int]]) -> None:
        """Hand over answers to requests, each as of its own watermark, some as of a later one (then they have messages that
        were collected too); stale ones are dropped, as a bolt does."""
        self.open = [request for request in self.open if request not in chosen]
        chosen = [
            (slot, generation, self.world.rng.choice((watermark, watermark, self.world.rng.randint(watermark, self.engine.watermark))), n)
            for slot, generation, watermark, n in chosen
            if slot in self.subscriptions and self.generation[slot] == generation
        ]
        if not chosen:
            return
        lists = [self.expected(slot, watermark, wanted) for slot, _, watermark, wanted in chosen]
        slots = np.array([r[0] for r in chosen], np.int32)
        offsets = np.cumsum([0, *map(len, lists)]).astype(np.int64)
        flat = [entry for entries in lists for entry in entries]
        changes = self.engine.resolve(
            slots, offsets, np.array([e[2] for e in flat], np.int64), np.array([e[1] for e in flat], np.int64), np.array([e[0] for e in flat], float)
        )
        self._record(changes)
        due, touched = set(changes.due.tolist()), set(changes.touched.tolist())
        assert due | touched == set(slots.tolist()) and not due & touched
        now = self.engine.watermark
        assert set(changes.watermark.tolist()) <= {now} and set(changes.slot.tolist()) <= touched
        self._apply(list(zip(*(a.tolist() for a in changes[:6]))), now)
        self.active |= touched
        self.resolved += len(touched)
        self.ask(sorted(due))
        self.check()

    def check(self) -> None:
        """Compare what the engine publishes with the folded changes and the oracle."""
        engine = self.engine
        engine._check()
        slots = np.array(sorted(self.subscriptions), np.int32)
        assert engine.slots.tolist() == slots.tolist() and len(engine) == len(slots)
        offsets, seqs, positions, scores = engine.topk(slots)
        waiting = engine.pending(slots).tolist()
        for i, slot in enumerate(slots.tolist()):
            found = list(zip(*(column[offsets[i] : offsets[i + 1]].tolist() for column in (scores, positions, seqs))))
            assert [seq for _, _, seq in found] == self.folded[slot]
            assert waiting[i] == (slot not in self.active)
            if not waiting[i]:
                assert found == self.expected(slot, engine.watermark)
