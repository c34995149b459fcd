"""Analyzes words by the letter of ``docs/concepts/words.md``, one step and one word at a time. Only what libraries do is shared with the topology."""

from __future__ import annotations

import functools
import unicodedata
from collections.abc import Iterable
from pathlib import Path

from dskype.deploy.verification.reading_words import words_of
from dskype.spouts.analyzer_settings import AnalyzerSettings
from dskype.spouts.analyzers import stop_list
from dskype.spouts.segmenters import SEGMENTERS, segment
from dskype.spouts.settings import Settings

__all__ = ["Analysis", "analyses_of", "fields_of", "is_as_written", "keywords_of", "words_of_message", "written_fields_of"]

_BORDER = "\x1f"
"""Between two fields of a text."""

_MARK = "\u02b9"
"""At the end of a stem that would be shortened again."""


class Analysis:
    """What becomes of the words of a text.

    :param settings: what is done with words.
    :param more: words that are left out beside those of the settings.
    """

    def __init__(self, settings: AnalyzerSettings, more: Iterable[str] = ()) -> None:
        self._settings = settings
        listed = settings.stop if isinstance(settings.stop, tuple) else stop_list(settings.language or "") if settings.stop else ()
        self._stop_words = {self._folded(word) for entry in (*listed, *more) for word in words_of(entry)}
        self._becomes: dict[str, str] = {}
        rules = settings.synonyms if isinstance(settings.synonyms, tuple) else Path(settings.synonyms).read_text(encoding="utf-8-sig").splitlines()
        for rule in map(str.strip, rules):
            if rule and not rule.startswith("#"):
                left, arrow, right = rule.partition("=>")
                listed = left.split(",")
                (target,) = self.words(right if arrow else listed[0])
                self._becomes |= {str(word): str(target) for entry in listed for word in self.words(entry) if word != target}

    def words(self, text: str) -> list[str | None]:
        """Return the words of a text, in order; None stands for a stop word."""
        return [self._form(piece) for word in words_of(text) for piece in self._pieces(self._folded(word))]

    def written(self, text: str) -> list[str]:
        """Return the words of a text as they are written, without stop words: what prefixes are compared with."""
        return [word for word in words_of(text) if any(form is not None for form in self.words(word))]

    def _pieces(self, word: str) -> list[str]:
        return [word] if self._settings.segmenter is None else segment(self._settings.segmenter, word)

    def _folded(self, word: str) -> str:
        return _without_accents(word) if self._settings.fold_accents else word

    def _form(self, word: str) -> str | None:
        if word in self._stop_words:
            return None
        stem = self._stem(word)
        word = word if stem in self._stop_words else stem
        while word in self._becomes:
            word = self._becomes[word]
        return word

    def _stem(self, word: str) -> str:
        name = self._settings.segmenter
        if self._settings.language is None or word[-1] == _MARK or (name and any(map(SEGMENTERS[name].script.match, word))):
            return word
        once = self._shorter(word)
        return once if self._shorter(once) == once else once + _MARK

    def _shorter(self, word: str) -> str:
        stem = self._folded(_stemmed(self._settings.language or "", word))
        return stem if words_of(stem) == [stem] else word


@functools.lru_cache(100_000)
def _stemmed(language: str, word: str) -> str:
    import Stemmer

    return str(Stemmer.Stemmer(language).stemWord(word))


def _without_accents(word: str) -> str:
    """Return a word without the marks after its Latin and Greek letters."""
    kept, folds = [], False
    for character in unicodedata.normalize("NFD", word):
        if not "\u0300" <= character <= "\u036f":
            folds = ord(character) < 0x400 and unicodedata.name(character, "").startswith(("LATIN SMALL LETTER", "GREEK SMALL LETTER"))
        elif folds:
            continue
        kept.append(character)
    return unicodedata.normalize("NFC", "".join(kept))


def analyses_of(settings: Settings) -> list[tuple[str, Analysis]]:
    """Return the analysis of each field of a text, with its name; one without a name if all fields have the same."""
    return _analyses_of(settings.text_analyzer, settings.field_analyzers, tuple(settings.stop_words))


@functools.lru_cache(16)
def _analyses_of(general: AnalyzerSettings, fields: tuple[tuple[str, AnalyzerSettings], ...], more: tuple[str, ...]) -> list[tuple[str, Analysis]]:
    different = {one for _, one in fields} or {general}
    if len(different) == 1:
        return [("", Analysis(different.pop(), more))]
    return [(name, Analysis(one, more)) for name, one in fields]


def is_as_written(settings: Settings) -> bool:
    """Tell whether all words that count are as they are written."""
    return {settings.text_analyzer, *(one for _, one in settings.field_analyzers)} == {AnalyzerSettings()}


def fields_of(text: str, settings: Settings) -> list[list[str | None]]:
    r"""Return the words of each field of a message's text, in order; None stands for a stop word.

    >>> fields_of("The late\x1f\x1fnight", Settings(stop_words=("the",)))
    [[None, 'late'], [], ['night']]
    """
    return [analysis.words(part) for analysis, part in _parts(text, settings)]


def written_fields_of(text: str, settings: Settings) -> list[list[str]]:
    """Return the words of each field of a message's text as they are written, without stop words."""
    return [analysis.written(part) for analysis, part in _parts(text, settings)]


def _parts(text: str, settings: Settings) -> list[tuple[Analysis, str]]:
    analyses = [analysis for _, analysis in analyses_of(settings)]
    parts = text.split(_BORDER)
    return list(zip(analyses if len(analyses) > 1 else analyses * len(parts), parts))


def words_of_message(text: str, settings: Settings) -> list[str]:
    """Return the words of a message's text, in order, without stop words."""
    return [word for words in fields_of(text, settings) for word in words if word is not None]


def keywords_of(text: str, settings: Settings) -> list[str]:
    """Return the keywords of a subscription for a text: as the first field has them, then what is new in each other field."""
    found: list[str] = []
    for _, analysis in analyses_of(settings):
        known = set(found)
        found += [word for word in analysis.words(text) if word is not None and word not in known]
    return found
