"""Workloads of boolean subscriptions and messages, drawn from a corpus by a seed.

The first, ``q1``: squares of 1 to 50 km around the places of messages, with 1 to 5 of their words. The others are each hard in one way. ``laps-*`` are the four groups of
messages of LAPS (section 6), ``ps2stream-*`` the three groups of subscriptions of PS2Stream (section VI).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from dskype.deploy.lab.boolean.subscriptions import (
    ALL,
    ANY,
    KM_PER_DEG,
    PAIRS,
    REQUIRED_AND_ANY,
    BooleanSubscriptions,
    boxes_around,
    shared_sides_km,
    sides_km,
    some_terms,
)
from dskype.deploy.lab.corpus import Corpus
from dskype.spouts.areas import centres
from dskype.spouts.batch import MessageBatch

__all__ = [
    "WORKLOADS",
    "BooleanIndexWorkload",
    "Kind",
    "crowded",
    "draw",
    "draw_lifetimes",
    "draw_messages",
    "draw_regional",
    "draw_subscriptions",
    "with_expressions",
    "with_uniform_words",
]

_FREQUENT = 200
_HOTSPOT_KM = 20.0
_CELLS_PER_DEG = 4
_WIDTHS = (1, 16, 64)
_WIDEST = 256
_REGIONS, _RARE = 10, 0.99


class BooleanIndexWorkload(NamedTuple):
    """Subscriptions, and messages to match them with."""

    name: str
    subscriptions: BooleanSubscriptions
    messages: MessageBatch


@dataclass(frozen=True)
class Kind:
    """A kind of workload.

    :ivar title: what it is, in one line.
    :ivar subscriptions: how many there are by default.
    :ivar draw: makes it from corpus, number of subscriptions, number of messages and a random generator.
    """

    title: str
    subscriptions: int
    draw: Callable[[Corpus, int, int, np.random.Generator], tuple[BooleanSubscriptions, MessageBatch]]


def draw(name: str, corpus: Corpus, subscriptions: int, messages: int, seed: int = 0) -> BooleanIndexWorkload:
    """Draw a workload of :data:`WORKLOADS`; the same arguments give the same one."""
    rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
    return BooleanIndexWorkload(name, *WORKLOADS[name].draw(corpus, subscriptions, messages, rng))


# -- parts --------------------------------------------------------------------------------------------------------------


def draw_subscriptions(
    corpus: Corpus,
    n: int,
    rng: np.random.Generator,
    *,
    km: tuple[float, float] = (1, 50),
    log: bool = False,
    space_share: float | None = None,
    keywords: tuple[int, int] = (1, 5),
    rarest_share: float | None = None,
) -> BooleanSubscriptions:
    """Draw rectangles around the places of random messages, with some of their words, all of which must be there.

    :param km: least and greatest side of a square, uniform between, or their logarithm with ``log``.
    :param space_share: the sides are this share of the sides of the rectangle around all messages instead (Tornado, Table 1).
    :param keywords: fewest and most, uniform between.
    :param rarest_share: the keywords are drawn from the messages' words without the most frequent ones instead: this share of the vocabulary is
        left (Tornado, section 5, *textually-selective*).
    """
    rows = _rows(corpus, n, rng)
    width_km = height_km = sides_km(rng, n, *km, log)
    wanted = rng.integers(keywords[0], keywords[1] + 1, n)
    offsets, terms = some_terms(rng, corpus, rows, wanted) if rarest_share is None else _rare_terms(rng, corpus, wanted, rarest_share)
    lat, lon = corpus.lat[rows], corpus.lon[rows]
    if space_share is not None:
        width_km, height_km = shared_sides_km(space_share, lat, corpus.lat, corpus.lon)
    return BooleanSubscriptions(boxes_around(lat, lon, width_km, height_km), offsets, terms, np.full(n, ALL, np.int8))


def _rare_terms(rng: np.random.Generator, corpus: Corpus, wanted: np.ndarray, share: float) -> tuple[np.ndarray, np.ndarray]:
    """Draw words as often as they occur, but none of the most frequent ones."""
    pool = corpus.terms[corpus.terms < max(1, share * len(corpus.vocabulary))]
    owner = np.repeat(np.arange(len(wanted)), wanted)
    drawn = pool[rng.integers(0, len(pool), len(owner))]
    order = np.lexsort((drawn, owner))
    owner, drawn = owner[order], drawn[order]
    first = np.r_[True, (np.diff(owner) != 0) | (np.diff(drawn) != 0)]
    offsets = np.zeros(len(wanted) + 1, np.int64)
    np.cumsum(np.bincount(owner[first], minlength=len(wanted)), out=offsets[1:])
    return offsets, drawn[first].astype(np.int32)


def draw_messages(
    corpus: Corpus, n: int, rng: np.random.Generator, *, words: tuple[int, int] | None = None, area_km: tuple[float, float, bool] | None = None
) -> MessageBatch:
    """Draw messages: places and words of random messages of the corpus.

    :param words: fewest and most, uniform between. A message with more words loses some; one with fewer gets words of other messages.
    :param area_km: least and greatest width and height of rectangles around the places, and whether their logarithm is uniform; None: points. Messages of a corpus with areas have their own.
    """
    rows = _rows(corpus, n, rng)
    lists = [_terms(corpus, row) for row in rows] if words is None else _bundles(corpus, rows, rng.integers(words[0], words[1] + 1, n), rng)
    areas = None if area_km is None else boxes_around(corpus.lat[rows], corpus.lon[rows], sides_km(rng, n, *area_km), sides_km(rng, n, *area_km))
    if areas is not None and corpus.areas is not None:
        areas = corpus.areas[rows]
    return _messages(corpus.lat[rows], corpus.lon[rows], lists, areas)


def with_expressions(subscriptions: BooleanSubscriptions, rng: np.random.Generator) -> BooleanSubscriptions:
    """Return subscriptions with AND and OR between the same words, in all shapes."""
    return subscriptions._replace(shapes=rng.integers(ALL, PAIRS + 1, subscriptions.n).astype(np.int8))


def crowded(corpus: Corpus, regions: slice, times: int, regions_seed: int = 0) -> Corpus:
    """Return a corpus in which some of the 100 regions of ``q3`` have ``times`` times as many messages.

    :param regions: which ones, in the order in which :func:`draw_regional` switches them.
    """
    cells = _regions_of(corpus.lat, corpus.lon)
    rows = np.flatnonzero(np.isin(cells, _switched(regions_seed, _REGIONS**2)[regions]))
    rows = np.concatenate((np.arange(len(corpus)), np.repeat(rows, times - 1)))
    return corpus.of_rows(rows)


def with_uniform_words(corpus: Corpus, seed: int = 0) -> Corpus:
    """Return a corpus of the same places with other random words, all equally frequent."""
    rng = np.random.default_rng([seed, 13])
    drawn = rng.integers(0, len(corpus.vocabulary), len(corpus.terms))
    owner = np.repeat(np.arange(len(corpus)), np.diff(corpus.offsets))
    order = np.lexsort((drawn, owner))
    owner, drawn = owner[order], drawn[order]
    first = np.r_[True, (np.diff(owner) != 0) | (np.diff(drawn) != 0)][: len(owner)]
    offsets = np.zeros(len(corpus) + 1, np.int64)
    np.cumsum(np.bincount(owner[first], minlength=len(corpus)), out=offsets[1:])
    return replace(corpus, offsets=offsets, terms=drawn[first], weights=np.zeros(int(first.sum())))


def _rows(corpus: Corpus, n: int, rng: np.random.Generator) -> np.ndarray:
    return rng.choice(np.flatnonzero(np.diff(corpus.offsets)), n)


def _terms(corpus: Corpus, row: int) -> np.ndarray:
    return corpus.terms[corpus.offsets[row] : corpus.offsets[row + 1]]


def _bundles(corpus: Corpus, rows: np.ndarray, wanted: np.ndarray, rng: np.random.Generator) -> list[np.ndarray]:
    """Return as many words as wanted for each row: first its own, then those of random messages."""
    bundles = []
    for row, most in zip(rows.tolist(), wanted.tolist()):
        found = dict.fromkeys(rng.permutation(_terms(corpus, row)).tolist())
        for _ in range(20):  # a corpus with few words gives fewer
            if len(found) >= most:
                break
            for other in rng.integers(0, len(corpus), 1 + (most - len(found)) // 6).tolist():
                found.update(dict.fromkeys(_terms(corpus, other).tolist()))
        bundles.append(np.array(list(found)[:most], np.int64))
    return bundles


def _messages(lat: np.ndarray, lon: np.ndarray, lists: list[np.ndarray], areas: np.ndarray | None = None) -> MessageBatch:
    n = len(lists)
    offsets = np.zeros(n + 1, np.int64)
    np.cumsum([len(terms) for terms in lists], out=offsets[1:])
    terms = np.concatenate([np.sort(terms) for terms in lists]).astype(np.int64)
    order = np.arange(n, dtype=np.int64)
    lat, lon = (lat.astype(np.float64), lon.astype(np.float64)) if areas is None else centres(areas)
    return MessageBatch(order, order, lat, lon, offsets, terms, np.zeros(len(terms)), areas)


def _crowd(corpus: Corpus) -> tuple[float, float]:
    """Return the middle of the cell of a quarter of a degree with the most messages."""
    cells = np.floor(np.stack([corpus.lat, corpus.lon], axis=1) * _CELLS_PER_DEG).astype(np.int64)
    _, inverse, counts = np.unique(cells, axis=0, return_inverse=True, return_counts=True)
    within = inverse.ravel() == counts.argmax()
    return float(np.median(corpus.lat[within])), float(np.median(corpus.lon[within]))


def _near(corpus: Corpus, n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return points, uniform within the radius of the hotspot."""
    lat, lon = _crowd(corpus)
    away, angle = _HOTSPOT_KM / KM_PER_DEG * np.sqrt(rng.random(n)), rng.uniform(0, 2 * np.pi, n)
    return lat + away * np.sin(angle), lon + away * np.cos(angle) / np.cos(np.radians(lat))


# -- PS2Stream (section VI-A) -------------------------------------------------------------------------------------------


def draw_regional(corpus: Corpus, n: int, rng: np.random.Generator, group: str, regions_seed: int = 0, switched: int = 0) -> BooleanSubscriptions:
    """Draw subscriptions of PS2Stream: squares around the places of random messages, with 1 to 3 words connected by AND or by OR, which are drawn by their frequency.

    :param group: ``q1``: sides of 1 to 50 km; ``q2``: sides of 1 to 100 km, and one of the words is not among the most frequent 1 % of the vocabulary; ``q3``: the space of the
        messages has 10 x 10 regions of equal size, and a subscription is of one or the other group by the region of its centre.
    :param regions_seed: decides the groups of the regions of ``q3``.
    :param switched: how many of the 100 regions of ``q3`` have changed to the other group.
    """
    rows = _rows(corpus, n, rng)
    lat, lon = corpus.lat[rows], corpus.lon[rows]
    second = np.full(n, group == "q2")
    if group == "q3":
        groups = np.random.default_rng([regions_seed, 17]).permutation(_REGIONS**2) % 2 == 1
        groups[_switched(regions_seed, switched)] ^= True
        second = groups[_regions_of(lat, lon)]
    wanted = rng.integers(1, 4, n)
    owner = np.repeat(np.arange(n), wanted)
    terms = corpus.terms[rng.integers(0, len(corpus.terms), len(owner))]
    rare = corpus.terms[corpus.terms < max(1, int(_RARE * len(corpus.vocabulary)))]
    first = np.cumsum(wanted) - wanted
    terms[first[second]] = rare[rng.integers(0, len(rare), int(second.sum()))]
    order = np.lexsort((terms, owner))
    owner, terms = owner[order], terms[order]
    new = np.r_[True, (np.diff(owner) != 0) | (np.diff(terms) != 0)]
    offsets = np.concatenate([[0], np.cumsum(np.bincount(owner[new], minlength=n))])
    side_km = np.where(second, sides_km(rng, n, 1, 100), sides_km(rng, n, 1, 50))
    return BooleanSubscriptions(boxes_around(lat, lon, side_km, side_km), offsets, terms[new].astype(np.int32), rng.integers(ALL, ANY + 1, n).astype(np.int8))


def _regions_of(lat: np.ndarray, lon: np.ndarray) -> np.ndarray:
    """Return the region of each place, int64[n]."""
    column, row = (np.clip(((at - at.min()) / (np.ptp(at) or 1.0) * _REGIONS).astype(np.int64), 0, _REGIONS - 1) for at in (lon, lat))
    found: np.ndarray = row * _REGIONS + column
    return found


def _switched(regions_seed: int, regions: int) -> np.ndarray:
    """Return the regions that switch, int64[regions]; more regions have those of fewer among them."""
    return np.random.default_rng([regions_seed, 18]).permutation(_REGIONS**2)[:regions]


def draw_lifetimes(n: int, mu: float, rng: np.random.Generator) -> np.ndarray:
    """Draw for each subscription how many others are registered before it is unregistered, int64[n]: a normal distribution with the mean ``mu`` and the deviation 0.2 ``mu``."""
    return np.maximum(1, np.round(rng.normal(mu, 0.2 * mu, n))).astype(np.int64)


def _regional(group: str) -> Callable[[Corpus, int, int, np.random.Generator], tuple[BooleanSubscriptions, MessageBatch]]:
    return lambda corpus, n, m, rng: (draw_regional(corpus, n, rng, group), draw_messages(corpus, m, rng))


# -- kinds --------------------------------------------------------------------------------------------------------------


def _plain(**options: Any) -> Callable[[Corpus, int, int, np.random.Generator], tuple[BooleanSubscriptions, MessageBatch]]:
    """Return what draws subscriptions with options, and messages of the corpus as they are."""
    return lambda corpus, n, m, rng: (draw_subscriptions(corpus, n, rng, **options), draw_messages(corpus, m, rng))


def _with_messages(**options: Any) -> Callable[[Corpus, int, int, np.random.Generator], tuple[BooleanSubscriptions, MessageBatch]]:
    """Return what draws subscriptions of ``q1``, and messages with options."""
    return lambda corpus, n, m, rng: (draw_subscriptions(corpus, n, rng), draw_messages(corpus, m, rng, **options))


def _hot_keyword(corpus: Corpus, n: int, m: int, rng: np.random.Generator) -> tuple[BooleanSubscriptions, MessageBatch]:
    hot = len(corpus.vocabulary) - 1
    boxes = draw_subscriptions(corpus, n, rng, keywords=(1, 1)).boxes
    rows = _rows(corpus, m, rng)
    messages = _messages(corpus.lat[rows], corpus.lon[rows], [np.union1d(_terms(corpus, row), [hot]) for row in rows])
    return BooleanSubscriptions(boxes, np.arange(n + 1), np.full(n, hot, np.int32), np.full(n, ALL, np.int8)), messages


def _hotspot(corpus: Corpus, n: int, m: int, rng: np.random.Generator) -> tuple[BooleanSubscriptions, MessageBatch]:
    subscriptions, messages = draw_subscriptions(corpus, n, rng), draw_messages(corpus, m, rng)
    inside = np.flatnonzero(rng.random(n) < 0.5)
    side_km = sides_km(rng, len(inside), 1, 50)
    subscriptions.boxes[inside] = boxes_around(*_near(corpus, len(inside), rng), side_km, side_km)
    inside = np.flatnonzero(rng.random(m) < 0.5)
    messages.lat[inside], messages.lon[inside] = _near(corpus, len(inside), rng)
    return subscriptions, messages


def _many_keywords(corpus: Corpus, n: int, m: int, rng: np.random.Generator) -> tuple[BooleanSubscriptions, MessageBatch]:
    """20 of the about 40 words of a bundle; a message has all words of its bundle, about ten subscriptions come from one."""
    rows = _rows(corpus, max(1, n // 10), rng)
    bundles = _bundles(corpus, rows, rng.integers(30, 51, len(rows)), rng)
    of, side_km = rng.integers(0, len(rows), n), sides_km(rng, n, 1, 50)
    terms = np.concatenate([np.sort(rng.permutation(bundles[b])[:20]) for b in of.tolist()]).astype(np.int32)
    lengths = np.minimum(20, np.array([len(b) for b in bundles]))[of]
    boxes = boxes_around(corpus.lat[rows][of], corpus.lon[rows][of], side_km, side_km)
    sent = rng.integers(0, len(rows), m)
    messages = _messages(corpus.lat[rows][sent], corpus.lon[rows][sent], [bundles[b] for b in sent.tolist()])
    return BooleanSubscriptions(boxes, np.concatenate([[0], np.cumsum(lengths)]), terms, np.full(n, ALL, np.int8)), messages


def _frequent_pairs(corpus: Corpus, n: int, m: int, rng: np.random.Generator) -> tuple[BooleanSubscriptions, MessageBatch]:
    top = np.arange(max(0, len(corpus.vocabulary) - _FREQUENT), len(corpus.vocabulary))
    chance = corpus.vocabulary.df(top).astype(np.float64)
    first = rng.choice(len(top), n, p=chance / chance.sum())
    second = rng.choice(len(top), n, p=chance / chance.sum())
    second = np.where(second == first, (second + 1) % len(top), second)
    terms = top[np.sort(np.stack([first, second], axis=1), axis=1)].ravel().astype(np.int32)
    boxes = draw_subscriptions(corpus, n, rng, keywords=(1, 1)).boxes
    return BooleanSubscriptions(boxes, np.arange(0, 2 * n + 1, 2), terms, np.full(n, ALL, np.int8)), draw_messages(corpus, m, rng)


def _expressions(corpus: Corpus, n: int, m: int, rng: np.random.Generator) -> tuple[BooleanSubscriptions, MessageBatch]:
    return with_expressions(draw_subscriptions(corpus, n, rng, keywords=(2, 6)), rng), draw_messages(corpus, m, rng)


def _wide(width: int) -> Callable[[Corpus, int, int, np.random.Generator], tuple[BooleanSubscriptions, MessageBatch]]:
    """Return what draws alternatives of so many words: one of the place, the others of the rarer three quarters of the vocabulary. Half of the subscriptions need the word of the place as well."""

    def draw_wide(corpus: Corpus, n: int, m: int, rng: np.random.Generator) -> tuple[BooleanSubscriptions, MessageBatch]:
        rows = _rows(corpus, n, rng)
        most = min(width, max(2, len(corpus.vocabulary) // 4))
        lists, shapes = [], np.where(rng.random(n) < 0.5, ANY, REQUIRED_AND_ANY).astype(np.int8)
        for row in rows.tolist():
            own = rng.choice(_terms(corpus, row))
            others = np.unique(rng.integers(0, max(2, 3 * len(corpus.vocabulary) // 4), most - 1))
            lists.append(np.concatenate([[own], others[others != own]]))
        side_km = sides_km(rng, n, 1, 50)
        offsets = np.concatenate([[0], np.cumsum([len(terms) for terms in lists])])
        boxes = boxes_around(corpus.lat[rows], corpus.lon[rows], side_km, side_km)
        return BooleanSubscriptions(boxes, offsets, np.concatenate(lists).astype(np.int32), shapes), draw_messages(corpus, m, rng)

    return draw_wide


WORKLOADS: dict[str, Kind] = {
    "q1": Kind("squares of 1 to 50 km, 1 to 5 keywords", 1_000_000, _plain()),
    "hot-keyword": Kind("all on one keyword, which every message has", 1_000_000, _hot_keyword),
    "country": Kind("squares of 500 to 3,000 km", 300_000, _plain(km=(500, 3000))),
    "hotspot": Kind("half of everything within 20 km", 1_000_000, _hotspot),
    "long-messages": Kind("messages of about 400 words", 1_000_000, _with_messages(words=(350, 450))),
    "many-keywords": Kind("20 keywords each, messages of 30 to 50 words", 200_000, _many_keywords),
    "small": Kind("squares of 50 to 500 m", 1_000_000, _plain(km=(0.05, 0.5))),
    "mixed-sizes": Kind("squares of 50 m to 2,000 km", 1_000_000, _plain(km=(0.05, 2000), log=True)),
    "frequent-pairs": Kind("two of the 200 most frequent words", 1_000_000, _frequent_pairs),
    "laps-short-points": Kind("LAPS: points, 6 to 20 words", 1_000_000, _with_messages(words=(6, 20))),
    "laps-long-points": Kind("LAPS: points, 100 to 1,000 words", 1_000_000, _with_messages(words=(100, 1000))),
    "laps-short-areas": Kind("LAPS: rectangles of 1 to 50 km, 6 to 20 words", 1_000_000, _with_messages(words=(6, 20), area_km=(1, 50))),
    "laps-long-areas": Kind("LAPS: rectangles of 1 to 50 km, 100 to 1,000 words", 1_000_000, _with_messages(words=(100, 1000), area_km=(1, 50))),
    "expressions": Kind("and, or, and of or, or of and over 2 to 6 words", 300_000, _expressions),
    **{f"wide-or-{width}": Kind(f"alternatives of {width} words", 20_000, _wide(width)) for width in _WIDTHS},
    "wide-or": Kind(f"alternatives of {_WIDEST} words", 20_000, _wide(_WIDEST)),
    "ps2stream-q1": Kind("PS2Stream: squares of 1 to 50 km, 1 to 3 words by their frequency", 1_000_000, _regional("q1")),
    "ps2stream-q2": Kind("PS2Stream: squares of 1 to 100 km, one word not of the most frequent 1 %", 1_000_000, _regional("q2")),
    "ps2stream-q3": Kind("PS2Stream: one or the other in each of 100 regions", 1_000_000, _regional("q3")),
}
"""Name -> kind of workload."""
