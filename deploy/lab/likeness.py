"""Messages with the statistics of the papers' data sets.

Words follow the law of Zipf and Mandelbrot: the share of the word of rank r is in proportion to 1 / (r + q) ** s. They are drawn by the inverse of its
integral, without a table. Places lie around cities, whose sizes follow Zipf's law. Each region has a topic, and a message takes some of its words from
the topic of its place: within each octave of ranks a topic has a sixteenth of the words, so that the law of all words stays as it is. Time has a daily
rhythm; in bursts many messages come from one city with one topic.

Messages are drawn in blocks, each from its seed and its number. So the first N messages are the same whatever the number that is asked for.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

__all__ = ["BLOCK", "LIKE", "Block", "Likeness", "blocks"]

BLOCK = 1 << 15
"""Messages that are drawn at a time."""

_TOPICS, _SPREAD = 256, 16
_REGION_DEG = 4.0
_RURAL = 0.1
_EARTH_KM_PER_DEG = 111.2
_DAY_MS = 86_400_000
_BEGIN_MS = 1_364_774_400_000
_RHYTHM = 0.6
_BURST_EVERY, _BURST_MESSAGES, _BURST_SHARE = 50_000, 5_000, 0.4


@dataclass(frozen=True)
class Likeness:
    """The statistics of a data set (Skype, section 7.1).

    :ivar vocabulary: V, the number of words.
    :ivar words: mean number of words that are drawn for a message. Some are drawn twice, so that fewer are different.
    :ivar shape: of the gamma distribution of the words per message; the less, the wider it is.
    :ivar exponent: s of the law of words, not 1; ``shift``: its q.
    :ivar box: west, south, east, north in degrees.
    :ivar cities: how many there are; ``radius_km``: the median of how wide one is.
    :ivar topical: the share of the words that the topic decides.
    :ivar per_second: messages per second in the mean of a day.
    """

    vocabulary: int
    words: float
    shape: float
    exponent: float
    shift: float
    box: tuple[float, float, float, float]
    cities: int
    radius_km: float
    topical: float
    per_second: float


_USA = (-124.0, 25.0, -67.0, 49.0)

LIKE: dict[str, Likeness] = {
    "tweets": Likeness(1_700_000, 9.3, 2.5, 1.15, 4.0, _USA, 2_000, 12.0, 0.4, 30.0),
    "gn": Likeness(208_000, 7.1, 2.5, 1.05, 8.0, (-180.0, -56.0, 180.0, 72.0), 20_000, 60.0, 0.4, 10.0),
    "yelp": Likeness(85_000, 39.5, 1.5, 1.05, 8.0, _USA, 12, 15.0, 0.3, 1.0),
}
"""Name -> the data set that it is like: TWEETS, GN and YELP."""


class Block(NamedTuple):
    """Some messages, in the order of their times.

    :ivar first: the number of the first one.
    :ivar ts: int64[n], ms since the epoch.
    :ivar lat: float64[n], degrees; so is ``lon``.
    :ivar offsets: int64[n + 1], into ``ranks``: int64[], the words of each message as ranks from 0, the most frequent first; some may be repeated.
    """

    first: int
    ts: np.ndarray
    lat: np.ndarray
    lon: np.ndarray
    offsets: np.ndarray
    ranks: np.ndarray


def blocks(like: Likeness, n: int, seed: int = 0, drift: int = 0) -> Iterator[Block]:
    """Return an iterator over the blocks of ``n`` messages.

    :param drift: after each so many messages another city is the largest one, and topics have other words; 0: never.
    """
    world = _World(like, seed)
    for number in range(-(-n // BLOCK)):
        first = number * BLOCK
        block = _block(like, world, first, np.random.default_rng([seed, 31, number]), drift)
        if n - first < BLOCK:
            left = n - first
            block = Block(first, *(column[:left] for column in block[1:4]), block.offsets[: left + 1], block.ranks[: block.offsets[left]])
        yield block


class _World:
    """What stays the same from block to block: cities, and the topics of regions."""

    def __init__(self, like: Likeness, seed: int) -> None:
        rng = np.random.default_rng([seed, 37])
        west, south, east, north = like.box
        self.lat = np.degrees(np.arcsin(rng.uniform(math.sin(math.radians(south)), math.sin(math.radians(north)), like.cities)))
        self.lon = rng.uniform(west, east, like.cities)
        self.spread_deg = like.radius_km / _EARTH_KM_PER_DEG * np.exp(rng.normal(0.0, 0.5, like.cities))
        self.share = np.cumsum(1.0 / (np.arange(like.cities) + 2.0))
        self.share /= self.share[-1]


def _block(like: Likeness, world: _World, first: int, rng: np.random.Generator, drift: int) -> Block:
    number = np.arange(first, first + BLOCK)
    epoch = number // drift if drift else np.zeros(BLOCK, np.int64)
    burst = _mixed(number // _BURST_EVERY + 1)
    into = number % _BURST_EVERY - burst % (_BURST_EVERY - _BURST_MESSAGES)
    in_burst = (into >= 0) & (into < _BURST_MESSAGES) & (rng.random(BLOCK) < _BURST_SHARE)
    city = np.searchsorted(world.share, rng.random(BLOCK))
    city = np.where(in_burst, burst % like.cities, city + epoch) % like.cities
    angle, away = rng.uniform(0, 2 * math.pi, BLOCK), world.spread_deg[city] * rng.exponential(1.0, BLOCK)
    west, south, east, north = like.box
    lat = np.clip(world.lat[city] + away * np.sin(angle), south, north)
    lon = np.clip(world.lon[city] + away * np.cos(angle) / np.cos(np.radians(lat)), west, east)
    rural = rng.random(BLOCK) < _RURAL
    lat[rural], lon[rural] = rng.uniform(south, north, rural.sum()), rng.uniform(west, east, rural.sum())
    cell = np.floor((lat + 90) / _REGION_DEG).astype(np.int64) * 256 + np.floor((lon + 180) / _REGION_DEG).astype(np.int64)
    topic = np.where(in_burst, burst, _mixed(cell + epoch * 65_536)) % _TOPICS
    lengths = 1 + rng.poisson(rng.gamma(like.shape, (like.words - 1) / like.shape, BLOCK))
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    ranks = _ranks(like, rng, int(offsets[-1]))
    of_topic = np.flatnonzero(rng.random(len(ranks)) < like.topical)
    owner = np.repeat(np.arange(BLOCK), lengths)[of_topic]
    ranks[of_topic] = _topical(ranks[of_topic], topic[owner] + epoch[owner] * _TOPICS, like.vocabulary)
    return Block(first, _times_ms(like, first, rng), lat, lon, offsets, ranks)


def _ranks(like: Likeness, rng: np.random.Generator, n: int) -> np.ndarray:
    """Draw ranks from 0 by the law of Zipf and Mandelbrot."""
    power = 1.0 - like.exponent
    low, high = (like.shift + 1.0) ** power, (like.shift + 1.0 + like.vocabulary) ** power
    drawn = (low + rng.random(n) * (high - low)) ** (1.0 / power) - (like.shift + 1.0)
    return np.clip(drawn.astype(np.int64), 0, like.vocabulary - 1)


def _topical(ranks: np.ndarray, topic: np.ndarray, vocabulary: int) -> np.ndarray:
    """Return words of topics in place of others of about the same frequency: of each octave of ranks a topic has a sixteenth."""
    octave = np.frexp(ranks.astype(np.float64) + 1.0)[1].astype(np.int64) - 1
    start = (np.int64(1) << octave) - 1
    size = np.minimum(start + 1, vocabulary - start)
    found = start + (_mixed(topic * 64 + octave) + (ranks - start) // _SPREAD) % size
    return np.where(size < _SPREAD, ranks, found)


def _mixed(numbers: np.ndarray) -> np.ndarray:
    """Return a number of 62 bits for each number, which looks random and depends on it alone (the finalizer of splitmix64)."""
    z = numbers.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return ((z ^ (z >> np.uint64(31))) >> np.uint64(2)).astype(np.int64)


def _times_ms(like: Likeness, first: int, rng: np.random.Generator) -> np.ndarray:
    """Return times in order: as many per hour as the daily rhythm says."""
    a_day = like.per_second * _DAY_MS / 1000
    due = (first + np.sort(rng.uniform(0, BLOCK, BLOCK))) / a_day
    days = np.linspace(math.floor(due[0]), math.ceil(due[-1]) + 1, 48 * (math.ceil(due[-1]) + 1 - math.floor(due[0])) + 1)
    passed = days - _RHYTHM / (2 * math.pi) * np.sin(2 * math.pi * days)
    return (_BEGIN_MS + np.interp(due, passed, days) * _DAY_MS).astype(np.int64)
