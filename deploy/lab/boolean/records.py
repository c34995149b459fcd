"""Boolean subscriptions as records, drawn from places: what the throughput benchmark registers."""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np

from dskype.deploy.demo.places import Places
from dskype.deploy.lab.boolean.subscriptions import boxes_around, shared_sides_km, sides_km
from dskype.spouts.text import Tokenizer
from dskype.topology.errors import IllegalArgumentException, explain

__all__ = ["boolean_records"]

_CHUNK = 1 << 12


def boolean_records(
    messages: Places,
    n: int,
    seed: int = 0,
    *,
    km: tuple[float, float] = (1, 50),
    space_share: float | None = None,
    keywords: tuple[int, int] = (1, 5),
    prefix: str = "s",
) -> Iterator[tuple[str, bytes]]:
    """Yield (id, JSON value) of boolean subscriptions: a rectangle around a random message, with some of its words, all of which must be there.

    The first *m* of *n* are those that are drawn with *n = m*.

    :param km: least and greatest side of a square, uniform between.
    :param space_share: the sides are this share of the sides of the rectangle around all messages instead.
    :param keywords: fewest and most, uniform between; a message with fewer gives all of its own.
    :param prefix: of the ids ``s0``, ``s1``, ...
    :raises IllegalArgumentException: no message has a keyword.
    """
    texts, tokenizer = messages.texts.to_pylist(), Tokenizer()
    words: dict[int, list[str]] = {}
    for number, start in enumerate(range(0, n, _CHUNK)):
        rng, pick = np.random.default_rng([seed, 3, number]), random.Random(f"{seed}/{number}")
        rows = rng.integers(0, max(1, len(messages)), _CHUNK)
        counts = rng.integers(keywords[0], keywords[1] + 1, _CHUNK).tolist()
        width_km = height_km = sides_km(rng, _CHUNK, *km)
        for i, row in enumerate(rows.tolist()):
            if row not in words:
                words[row] = list(dict.fromkeys(tokenizer.tokens(texts[row]))) if row < len(texts) else []
            if not words[row]:
                rows[i] = _next_with_words(row, texts, tokenizer, words)
        lat = messages.lat[rows]
        if space_share is not None:
            width_km, height_km = shared_sides_km(space_share, lat, messages.lat, messages.lon)
        boxes = boxes_around(lat, messages.lon[rows], width_km, height_km).round(6).tolist()
        for i, row in enumerate(rows[: n - start].tolist()):
            chosen = '","'.join(pick.sample(words[row], min(counts[i], len(words[row]))))  # letters, marks and digits: nothing to escape
            west, south, east, north = boxes[i]
            yield f"{prefix}{start + i}", f'{{"type":"boolean","keywords":["{chosen}"],"bbox":[{west},{south},{east},{north}]}}'.encode()


def _next_with_words(row: int, texts: list[str], tokenizer: Tokenizer, words: dict[int, list[str]]) -> int:
    for candidate in [*range(row, len(texts)), *range(row)]:
        if candidate not in words:
            words[candidate] = list(dict.fromkeys(tokenizer.tokens(texts[candidate])))
        if words[candidate]:
            return candidate
    raise IllegalArgumentException(explain("There is no message with keywords to draw subscriptions from.", given=f"{len(texts)} messages"))
