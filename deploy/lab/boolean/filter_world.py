"""Subscriptions with filters, and messages for them: what `dskype bench filters` and `dskype bench monitor` measure with."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import numpy as np

from dskype.bolts.filters import Filters
from dskype.deploy.lab.boolean.subscriptions import ALL, BooleanSubscriptions, boxes_around, sides_km
from dskype.spouts.attributes import Attributes
from dskype.spouts.batch import Details, MessageBatch
from dskype.spouts.filters import compile_filter
from dskype.spouts.region_table import RegionTable
from dskype.spouts.regions import parse_region
from dskype.spouts.text import Tokenizer
from dskype.spouts.vocabulary import Vocabulary

__all__ = ["ABSENT", "CATEGORIES", "FilterWorld", "Line", "lines"]

CATEGORIES = ("cafe", "bar", "shop", "museum", "park", "hotel", "station", "school", "church", "office")
ABSENT = "zythum"
"""A word that no message has."""
_ATTRIBUTES = Attributes.from_conf({"price": "number", "category": "string"})
_PRICES = 200
_CORNERS = 30
_M_PER_DEG = 111_195.0
_CHUNK = 1 << 14


@dataclass(frozen=True)
class Line:
    """Subscriptions of one kind.

    :ivar expression: words of a subscription, and a number below ``choices`` that is drawn for it -> its expression; None: words and rectangle only.
    :ivar choices: how many filters there are.
    :ivar by_words: whether the program depends on the words.
    :ivar region: rectangles float64[n, 4] -> encoded regions in them, float64[n, length]; None: none.
    """

    name: str
    expression: Callable[[list[str], int], Any] | None = None
    choices: int = 1
    by_words: bool = False
    region: Callable[[np.ndarray], np.ndarray] | None = None


def lines() -> list[Line]:
    """Return the kinds that are compared; the first has no filter."""
    return [
        Line("words and rectangle"),
        Line("NOT", lambda words, drawn: ["and", *words, ["not", ABSENT]]),
        Line("attribute", lambda words, drawn: ["and", *words, ["attribute", "price", "<", float(drawn + 1)]], _PRICES - 1),
        Line("attribute that holds", lambda words, drawn: ["and", *words, ["attribute", "price", "<", float(_PRICES)]]),
        Line("string", lambda words, drawn: ["and", *words, ["attribute", "category", "=", CATEGORIES[drawn]]], len(CATEGORIES)),
        Line("phrase", lambda words, drawn: ["phrase", 0, list(range(len(words))), words], by_words=True),
        Line("circle", region=circles),
        Line("polygon", region=polygons),
    ]


def circles(boxes: np.ndarray) -> np.ndarray:
    """Return the circles that touch the southern and northern edges of rectangles, encoded (:mod:`dskype.spouts.regions`)."""
    lon, lat, _, half_lat = _middles(boxes)
    radius_m = np.maximum(1.0, half_lat * _M_PER_DEG)
    one = parse_region({"center": {"lat": float(lat[0]), "lon": float(lon[0])}, "radius_m": float(radius_m[0])})
    return np.concatenate((_repeated(one[:-3], len(boxes)), np.stack((lat, lon, radius_m), axis=1)), axis=1)


def polygons(boxes: np.ndarray) -> np.ndarray:
    """Return stars of 30 corners in rectangles, none of which crosses the antimeridian, encoded."""
    lon, lat, half_lon, half_lat = _middles(boxes)
    angles = np.linspace(0, 2 * np.pi, _CORNERS, endpoint=False)
    reach = np.where(np.arange(_CORNERS) % 2, 1.0, 0.8)
    corners = np.stack((lon[:, None] + half_lon[:, None] * reach * np.cos(angles), lat[:, None] + half_lat[:, None] * reach * np.sin(angles)), axis=2)
    ring = corners[0].tolist()
    one = parse_region({"type": "Polygon", "coordinates": [[*ring, ring[0]]]})
    return np.concatenate((_repeated(one[: -2 * _CORNERS], len(boxes)), corners.reshape(len(boxes), -1)), axis=1)


def _middles(boxes: np.ndarray) -> tuple[np.ndarray, ...]:
    west, south, east, north = boxes.T
    return (west + east) / 2, (south + north) / 2, (east - west) / 2, (north - south) / 2


def _repeated(head: np.ndarray, n: int) -> np.ndarray:
    return np.broadcast_to(head, (n, len(head)))


class FilterWorld:
    """Messages with words in reading order and attributes, and subscriptions with two neighbouring words of a message, around its place.

    :param texts, lat, lon: of a corpus.
    :ivar words: the two words of each subscription, in reading order; ``subscriptions`` has their ids.
    :ivar texts, prices, categories: of the messages; ``vocabulary`` is that of all texts.
    """

    def __init__(self, texts: list[str], lat: np.ndarray, lon: np.ndarray, subscriptions: int, messages: int, rng: np.random.Generator) -> None:
        tokenizer = Tokenizer()
        self.vocabulary = Vocabulary.build(texts, tokenizer)
        rows = rng.integers(0, len(texts), messages)
        self.texts = [texts[row] for row in rows.tolist()]
        self.prices = rng.integers(0, _PRICES, messages).astype(np.float64)
        self.categories = [CATEGORIES[i] for i in rng.integers(0, len(CATEGORIES), messages).tolist()]
        words = self.vocabulary.analyze(self.texts, tokenizer)
        pairs = [_ATTRIBUTES.encode({"price": price, "category": category}) for price, category in zip(self.prices.tolist(), self.categories)]
        numbers, none = np.arange(messages), np.zeros(messages + 1, np.int64)
        self.messages = MessageBatch(numbers, numbers, lat[rows], lon[rows], words.offsets, words.terms, words.weights)
        attributes = np.arange(0, 4 * messages + 1, 4), np.array(pairs, np.int64).ravel()
        self.details = Details(words.order_offsets, words.order, *attributes, none, none[:0], none, np.zeros(0))
        origins, self.words = _neighbours([tokenizer.tokens(text) for text in texts], subscriptions, rng)
        sides = sides_km(rng, subscriptions, 1, 50, False)
        boxes = boxes_around(lat[origins], lon[origins], sides, sides)
        self._ids = self.vocabulary.ids([word for pair in self.words for word in pair]).reshape(-1, 2)
        ids = np.sort(self._ids, axis=1).ravel().astype(np.int32)
        self.subscriptions = BooleanSubscriptions(boxes, np.arange(0, 2 * subscriptions + 1, 2), ids, np.full(subscriptions, ALL, np.int8))

    def batches(self, n: int) -> list[tuple[MessageBatch, Details]]:
        """Return the messages in ``n`` batches of one size."""
        return [(self.messages.select(rows), self.details.select(rows)) for rows in np.split(np.arange(self.messages.n), n)]

    def drawn(self, line: Line, seed: int) -> list[int]:
        """Return the numbers that are drawn for the subscriptions of a line."""
        return np.random.default_rng([seed, 61]).integers(0, line.choices, len(self.words)).tolist()

    def programs(self, line: Line, seed: int) -> Iterator[list[int] | None]:
        """Yield the program of each subscription of a line in turn; None: it has none."""
        if line.expression is None:
            yield from repeat(None, len(self.words))
            return
        programs: dict[Any, list[int]] = {}
        absent = self.vocabulary.ids_of([ABSENT])
        for words, ids, drawn in zip(self.words, self._ids.tolist(), self.drawn(line, seed)):
            key = (*words, drawn) if line.by_words else drawn
            if key not in programs:
                compiled = compile_filter(line.expression(words, drawn), {**absent, **dict(zip(words, ids))})
                assert compiled.program is not None, "without a program the line would measure nothing"
                programs[key] = compiled.program
            yield programs[key]

    def regions(self, line: Line, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        """Return which of the subscriptions from ``start`` up to ``stop`` have a region, and these regions, encoded, float64[n, length]."""
        boxes = self.subscriptions.boxes[start:stop]
        within = np.flatnonzero(boxes[:, 0] < boxes[:, 2])
        if line.region is None or not len(within):
            return np.zeros(0, np.int64), np.zeros((0, 1))
        return start + within, line.region(boxes[within])

    def tables(self, line: Line, seed: int, tell: Callable[[float], None] = lambda share: None) -> tuple[Filters, RegionTable]:
        """Return the filters and regions of a line.

        :param tell: called with the share that is done.
        """
        filters, regions, n = Filters(), RegionTable(), len(self.words)
        programs = self.programs(line, seed)
        for start in range(0, n, _CHUNK):
            slots, encoded = self.regions(line, start, start + _CHUNK)
            regions.put_many(slots, np.arange(len(slots) + 1) * encoded.shape[1], encoded.ravel())
            for slot, program in zip(range(start, min(n, start + _CHUNK)), programs):
                if program is not None:
                    filters.set(slot, program)
            tell(start / n)
        tell(1.0)
        return filters, regions


def _neighbours(tokens: list[list[str]], wanted: int, rng: np.random.Generator) -> tuple[np.ndarray, list[list[str]]]:
    """Draw texts and two different words of each that are next to each other; return the rows of the texts, and the words."""
    lengths = np.fromiter(map(len, tokens), np.int64, len(tokens))
    long_enough = np.flatnonzero(np.fromiter((len(set(found)) > 1 for found in tokens), np.bool_, len(tokens)))
    origins: list[int] = []
    words: list[list[str]] = []
    while len(words) < wanted:
        rows = long_enough[rng.integers(0, len(long_enough), wanted - len(words))]
        places = np.floor(rng.random(len(rows)) * (lengths[rows] - 1)).astype(np.int64)
        for row, at in zip(rows.tolist(), places.tolist()):
            pair = tokens[row][at : at + 2]
            if pair[0] != pair[1]:
                origins.append(row)
                words.append(pair)
    return np.array(origins), words
