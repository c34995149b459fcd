"""Segmenters: they cut runs of a script that has no spaces between words, each by a library of the extra ``languages``."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterable
from functools import cache, lru_cache
from importlib.metadata import version
from typing import NamedTuple

from dskype.spouts.text import begins_word, cut
from dskype.topology.errors import TopologyError

__all__ = ["SEGMENTERS", "count_segmented_words", "library_of", "segment"]

Cut = Callable[[str], Iterable[str]]


class _Segmenter(NamedTuple):
    """A script, and what cuts it.

    :ivar package: the distribution whose version decides how words are cut.
    :ivar script: matches a character of the script.
    :ivar load: returns the function that cuts a run of letters.
    """

    package: str
    script: re.Pattern[str]
    load: Callable[[], Cut]


_HAN = "\u3005-\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"


def _chinese() -> Cut:
    import rjieba

    return lambda run: rjieba.cut(run, hmm=False)


def _japanese() -> Cut:
    from sudachipy import SplitMode, dictionary

    tokenizer = dictionary.Dictionary(dict="small").tokenizer(mode=SplitMode.A)
    return lambda run: [morpheme.surface() for morpheme in tokenizer.tokenize(run)]


def _thai() -> Cut:
    os.environ.setdefault("PYTHAINLP_READ_ONLY", "1")  # it makes a folder in the user's home otherwise
    from pythainlp.tokenize.newmm import segment

    return lambda run: segment(run, safe_mode=True)


SEGMENTERS = {
    "chinese": _Segmenter("rjieba", re.compile(f"[{_HAN}]"), _chinese),
    "japanese": _Segmenter("sudachidict-small", re.compile(f"[{_HAN}\u3041-\u309f\u30a0-\u30ff\u31f0-\u31ff]"), _japanese),
    "thai": _Segmenter("pythainlp", re.compile("[\u0e01-\u0e4e]"), _thai),
}
"""Every segmenter by its name in ``dskype.text.analyzer``."""

_LONGEST_RUN = 4096
"""A longer run is divided into pieces of this length first, so that no text takes long: some algorithms are not linear."""

_SHORT = 16
"""The pieces of runs up to this length are remembered."""

_LOCK = threading.Lock()


@cache
def _loaded(name: str) -> Cut:
    """Return the function of a segmenter, once per process: dictionaries are large."""
    try:
        return SEGMENTERS[name].load()
    except ModuleNotFoundError as error:
        words = f"The segmenter {name!r} needs a package that is not installed: {error.name}"
        raise TopologyError(words, given=name, hint="pip install '/path/to/dskype[languages]'") from error


def library_of(name: str) -> str:
    """Return name and version of the package that a segmenter cuts by. Another version may cut other words."""
    _loaded(name)
    package = SEGMENTERS[name].package
    return f"{package} {version(package)}"


def segment(name: str, run: str) -> list[str]:
    """Cut a token into words; what has no character of the segmenter's script stays whole.

    Each word that is cut again gives itself: what the library cuts further on its own is cut further here, too. O(length).
    """
    found: list[str] = []
    left = [run]
    while left:
        word = left.pop()
        pieces = _pieces(name, word) if len(word) > _SHORT else _known_pieces(name, word)
        if len(pieces) == 1:
            found.append(word)
        else:
            left.extend(reversed(pieces))
    return found


@lru_cache(1 << 16)
def _known_pieces(name: str, word: str) -> list[str]:
    """Return what :func:`_pieces` does; words come again and again."""
    return _pieces(name, word)


def _pieces(name: str, word: str) -> list[str]:
    """Return the pieces of a token. Each is a token: one that begins with a mark belongs to the piece before it."""
    if len(word) == 1 or not SEGMENTERS[name].script.search(word):
        return [word]
    if len(word) > _LONGEST_RUN:
        parts: Iterable[str] = [word[i : i + _LONGEST_RUN] for i in range(0, len(word), _LONGEST_RUN)]
    else:
        with _LOCK:  # libraries do not say that threads may share them
            parts = _loaded(name)(word)
    pieces: list[str] = []
    for piece in parts:
        if pieces and not begins_word(piece[0]):
            pieces[-1] += piece
        else:
            pieces.append(piece)
    return pieces


def count_segmented_words(text: str) -> int:
    """Return the most words that a text can have with any segmenter: each character of a token that has some of their scripts may be one."""
    scripts = [segmenter.script for segmenter in SEGMENTERS.values()]
    return sum(len(token) if any(script.search(token) for script in scripts) else 1 for token in cut(text))
