"""A picture of messages beside generated ones: how frequent words are, how many a message has, where they are, and which words occur together."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from dskype.deploy.cli.arguments import UsageError
from dskype.deploy.lab.corpus import read_file
from dskype.deploy.lab.likeness import Likeness, blocks
from dskype.deploy.machine.terminal import say

__all__ = ["Statistics", "draw", "statistics"]

_MOST = 200_000
_PAIRED = 2_000


class Statistics:
    """What the picture shows of some messages.

    :param ranks: int64[], the words of each message as numbers, each once in a message.
    :ivar counts: how many messages have a word, falling.
    :ivar lengths: different words of each message.
    :ivar lifts: of pairs of the most frequent 2,000 words that occur together five times or more: how much more often than by chance, falling.
    """

    def __init__(self, lat: np.ndarray, lon: np.ndarray, offsets: np.ndarray, ranks: np.ndarray) -> None:
        self.lat, self.lon, self.lengths = lat, lon, np.diff(offsets)
        n = len(lat)
        counts = np.bincount(ranks)
        self.counts = np.sort(counts[counts > 0])[::-1]
        common = np.argsort(-counts, kind="stable")[:_PAIRED]
        place = np.full(len(counts), -1)
        place[common] = np.arange(len(common))
        owner, known = np.repeat(np.arange(n), self.lengths), place[ranks]
        owner, known = owner[known >= 0], known[known >= 0]
        pairs: list[np.ndarray] = []
        for gap in range(1, 12):  # words of a message have no order here, so their neighbours are some of its pairs
            same = np.flatnonzero(owner[gap:] == owner[:-gap])
            pairs.append(np.minimum(known[same], known[same + gap]) * _PAIRED + np.maximum(known[same], known[same + gap]))
        found, together = np.unique(np.concatenate(pairs), return_counts=True)
        found, together = found[together >= 5], together[together >= 5]
        chance = counts[common[found // _PAIRED]] * counts[common[found % _PAIRED]] / n
        self.lifts = np.sort(together / chance)[::-1]


def statistics(like: Likeness, n: int, seed: int, drift: int = 0) -> Statistics:
    """Return those of generated messages."""
    made = list(blocks(like, n, seed, drift))
    lengths = np.concatenate([np.diff(block.offsets) for block in made])
    ranks = np.concatenate([block.ranks for block in made])
    pairs = np.unique(np.repeat(np.arange(n), lengths) * like.vocabulary + ranks)
    owner, ranks = pairs // like.vocabulary, pairs % like.vocabulary
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.bincount(owner, minlength=n))])
    return Statistics(np.concatenate([block.lat for block in made]), np.concatenate([block.lon for block in made]), offsets, ranks)


def draw(args: argparse.Namespace, like: Likeness) -> None:
    """Draw the picture, of as many generated messages as real ones where there are some.

    :raises UsageError: matplotlib is missing, or a file cannot be read or written.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise UsageError("--picture needs matplotlib: pip install '/path/to/dskype[bench]'") from None
    n, sets = min(args.count, _MOST), {}
    if args.beside:
        real = read_file(Path(args.beside))
        if len(real) > _MOST:
            real = real.of_rows(np.sort(np.random.default_rng(args.seed).choice(len(real), _MOST, replace=False)))
        n = len(real)
        sets[real.source] = Statistics(real.lat, real.lon, real.offsets, real.terms)
    sets[f"like {args.like}"] = statistics(like, n, args.seed, args.drift)
    figure: Any = Figure(figsize=(11, 8), layout="constrained")
    words, lengths, together, places = figure.subplots(2, 2).ravel()
    for (name, found), colour, size in zip(sets.items(), ("tab:orange", "tab:blue"), (1.0, 0.3)):
        words.loglog(np.arange(1, len(found.counts) + 1), found.counts, color=colour, label=name)
        lengths.plot(np.bincount(found.lengths)[:120] / n, color=colour, label=name)
        together.semilogy(np.linspace(0, 1, len(found.lifts)), found.lifts, color=colour, label=name)
        places.plot(found.lon[:20_000], found.lat[:20_000], ".", color=colour, markersize=size, label=name)
        say(f"{name}: {n:,} messages, {found.lengths.mean():.1f} different words each, {len(found.counts):,} words")
    words.set(title="How frequent words are", xlabel="rank of a word", ylabel="messages with it")
    lengths.set(title="Different words of a message", xlabel="words", ylabel="share of the messages")
    together.set(title="Words that occur together", xlabel="pairs of the 2,000 most frequent words, as a share", ylabel="times as often as by chance")
    places.set(title="Places", xlabel="longitude", ylabel="latitude")
    words.legend()
    try:
        figure.savefig(args.picture, dpi=110)
    except (OSError, ValueError) as ex:
        raise UsageError(f"--picture: {args.picture} cannot be written: {ex}") from ex
