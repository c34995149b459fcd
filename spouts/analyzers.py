"""Analyzers: what else becomes of the words that :class:`~dskype.spouts.text.Tokenizer` cuts. ``dskype.text.analyzer`` chooses one.

A word passes these steps, each if it is set: accents are folded; a run of a script without spaces is cut into words; a stop word is left out;
the word is replaced by its stem; a synonym is replaced by the word that it stands for. Every word that comes out and goes in again gives
itself, so words of subscriptions and of vocabularies may be analyzed any number of times.
"""

from __future__ import annotations

import json
import re
import threading
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar, final

from dskype.spouts.segmenters import SEGMENTERS, library_of, segment
from dskype.spouts.text import BORDER, LEFT_OUT, Tokenizer, cut
from dskype.topology.errors import IllegalArgumentException, TopologyError

__all__ = ["LANGUAGES", "FieldAnalyzers", "LanguageAnalyzer", "read_synonyms", "stop_list", "with_stop_list"]

LANGUAGES = frozenset(
    """
    arabic armenian basque catalan czech danish dutch english esperanto estonian finnish french german greek hindi hungarian indonesian irish italian
    lithuanian nepali norwegian persian polish portuguese romanian russian serbian sesotho spanish swedish tamil turkish yiddish
    """.split()
)
"""The languages that Snowball has stemmers for."""

_MOST_KNOWN = 200_000
"""Words that an analyzer remembers. Then it begins again: a stream has any number of different words."""

_ACCENTS = re.compile("(?<=[a-z\u00df-\u02af\u0370-\u03ff])[\u0300-\u036f]+")
"""Combining marks after Latin and Greek letters. In other scripts marks make letters: a Cyrillic short i, Indian vowels, Japanese voiced sounds."""


_STEM_MARK = "\u02b9"
"""A letter (modifier prime) that no stemmer knows. Without it ``coffee`` would be ``coffe`` in a message, and ``coff`` where that is analyzed again."""


@final
class LanguageAnalyzer(Tokenizer):
    """Makes words of texts by the rules of a language; see the module for the steps.

    Safe to use from several threads.

    :param language: one of :data:`LANGUAGES`, whose stemmer is applied; None: words keep their forms.
    :param stop_words: words that are left out, see :class:`~dskype.spouts.text.Tokenizer`. A word whose stem is one of them keeps its form.
    :param fold_accents: whether Latin and Greek letters lose their accents: ``café`` is ``cafe``.
    :param synonyms: rules ``coffee, espresso`` (all become the first) or ``cappuccino, mocha => coffee`` (those become the last), of one word each.
    :param segmenter: one of :data:`~dskype.spouts.segmenters.SEGMENTERS`.
    :raises IllegalArgumentException: a rule cannot be used; its number is named, from 1.
    :raises TopologyError: a package is not installed.

    >>> english = LanguageAnalyzer("english", ["the", "of"], fold_accents=True, synonyms=["coffee, espresso"])
    >>> english.tokens("The Espressos of the cafés")
    ['coffeʹ', 'cafe']
    >>> english.positions("houses of the rising sun")
    [('hous', 0), ('rise', 3), ('sun', 4)]
    """

    __slots__ = ("_known", "_lock", "_options", "_stemmer", "_synonyms", "fold_accents", "identity", "language", "segmenter")

    plain: ClassVar[bool] = False

    def __init__(
        self,
        language: str | None = None,
        stop_words: Iterable[str] = (),
        fold_accents: bool = False,
        synonyms: Iterable[str] = (),
        segmenter: str | None = None,
    ) -> None:
        rules = tuple(synonyms)
        super().__init__(stop_words)
        if fold_accents:
            self.stop_words = frozenset(map(_fold, self.stop_words))
        self.language, self.fold_accents, self.segmenter = language, fold_accents, segmenter
        self._options = (language, tuple(sorted(self.stop_words)), fold_accents, rules, segmenter)
        self._lock = threading.Lock()
        self._known = _Known(self._analyze)
        self._stemmer = _make_stemmer(language) if language else None
        self._synonyms: dict[str, str] = {}
        self._synonyms = self._read_rules(rules)
        self._known.clear()  # from before there were synonyms
        self.identity: str = self._describe()

    def tokens(self, text: str) -> list[str]:
        """Return the words of ``text`` in order, with repetitions, without stop words. O(length)."""
        return [word for word in self.spaced(text).split() if word != LEFT_OUT]

    def spaced(self, text: str) -> str:
        """Return the words of ``text``, see :meth:`Tokenizer.spaced`."""
        known = self._known.__getitem__
        if BORDER not in text:
            return " ".join(map(known, cut(text)))
        return BORDER.join(" ".join(map(known, cut(part))) for part in text.split(BORDER))

    def written(self, text: str) -> list[str]:
        """Return the words of ``text`` as they are written, see :meth:`Tokenizer.written`."""
        return [word for word in cut(text) if self.tokens(word)]

    def __repr__(self) -> str:
        return f"LanguageAnalyzer({self.identity})"

    def __reduce__(self) -> tuple[Any, ...]:
        return LanguageAnalyzer, self._options

    def _analyze(self, token: str) -> str:
        """Return the words of a token with spaces between them."""
        folded = _fold(token) if self.fold_accents else token
        with self._lock:  # a stemmer is for one thread at a time
            return " ".join(map(self._form, segment(self.segmenter, folded) if self.segmenter else (folded,)))

    def _form(self, word: str) -> str:
        if word in self.stop_words:
            return LEFT_OUT
        stem = self._stem(word)
        if stem in self.stop_words:  # it would be left out if it were analyzed again
            stem = word
        return self._synonyms.get(stem, stem)

    def _stem(self, word: str) -> str:
        """Return the stem of a word. One that Snowball would shorten again gets a mark, by which it is known as a stem from then on."""
        if self._stemmer is None or word.endswith(_STEM_MARK) or (self.segmenter and SEGMENTERS[self.segmenter].script.search(word)):
            return word
        stem = self._shorten(word)
        return stem if self._shorten(stem) == stem else stem + _STEM_MARK

    def _shorten(self, word: str) -> str:
        assert self._stemmer is not None
        stem = _fold(self._stemmer(word)) if self.fold_accents else self._stemmer(word)
        return stem if cut(stem) == [stem] else word  # some stemmers leave nothing of a short word

    def _read_rules(self, rules: Iterable[str]) -> dict[str, str]:
        """Return what each synonym becomes."""
        becomes: dict[str, str] = {}
        origin: dict[str, int] = {}
        for number, rule in enumerate(rules, 1):
            left, arrow, right = rule.partition("=>")
            words = [self._word_of_rule(word, number) for word in left.split(",")]
            target = self._word_of_rule(right, number) if arrow else words[0]
            if not arrow and len(words) < 2:
                raise _rule_error(number, "two words or more, or '=>'", rule)
            for word in words:
                if word == target:
                    continue
                if becomes.setdefault(word, target) != target:
                    raise _rule_error(number, f"{word!r} to stand for one word, and rule {origin[word]} says {becomes[word]!r}", rule)
                origin.setdefault(word, number)
        for word in becomes:
            passed, target = {word}, becomes[word]
            while target in becomes:
                if target in passed:
                    raise _rule_error(origin[target], "rules without a circle", f"{target} => {becomes[target]}")
                passed.add(target)
                target = becomes[target]
            becomes[word] = target
        return becomes

    def _word_of_rule(self, text: str, number: int) -> str:
        words = self.tokens(text)
        if len(words) != 1:
            raise _rule_error(number, "one word on each side of a comma or '=>', that is not a stop word", text.strip())
        return words[0]

    def _describe(self) -> str:
        about: dict[str, Any] = {}
        if self.language:
            about |= {"language": self.language, "stemmer": f"PyStemmer {version('PyStemmer')}"}
        if self.stop_words:
            about["stop"] = _digest(sorted(self.stop_words))
        if self.fold_accents:
            about["fold_accents"] = True
        if self._synonyms:
            about["synonyms"] = _digest(sorted(self._synonyms.items()))
        if self.segmenter:
            about |= {"segmenter": self.segmenter, "dictionary": library_of(self.segmenter)}
        return json.dumps(about)


@final
class FieldAnalyzers(Tokenizer):
    r"""Analyzes each field of a text by an analyzer of its own.

    :param fields: name of the field -> its analyzer, in the order in which texts have them; :data:`~dskype.spouts.text.BORDER` is between them.

    >>> analyzer = FieldAnalyzers({"title": LanguageAnalyzer("english"), "body": Tokenizer()})
    >>> analyzer.tokens("Old mills\x1fold mills"), analyzer.keywords("mills")
    (['old', 'mill', 'old', 'mills'], ['mill', 'mills'])
    """

    __slots__ = ("fields", "identity")

    plain: ClassVar[bool] = False

    def __init__(self, fields: Mapping[str, Tokenizer]) -> None:
        super().__init__()
        self.fields = dict(fields)
        named = {name: [json.loads(a.identity) if not a.plain else a.identity, _digest(sorted(a.stop_words))] for name, a in fields.items()}
        self.identity: str = json.dumps({"fields": named})

    def tokens(self, text: str) -> list[str]:
        """Return the words of ``text`` in order, with repetitions, without stop words. A text without a border is the first field. O(length)."""
        return [word for word in self.spaced(text).split() if word != LEFT_OUT]

    def spaced(self, text: str) -> str:
        """Return the words of ``text``, see :meth:`Tokenizer.spaced`."""
        analyzers = list(self.fields.values())
        parts = text.split(BORDER, len(analyzers) - 1)
        return BORDER.join(analyzer.spaced(part) for analyzer, part in zip(analyzers, parts))

    def keywords(self, text: str) -> list[str]:
        """Return the keywords of a top-k subscription for ``text``: its words as one field has them, then those that only other fields have."""
        found: list[str] = []
        for analyzer in dict.fromkeys(self.fields.values()):
            before = set(found)
            found += [word for word in analyzer.tokens(text) if word not in before]
        return found

    def by_field(self, name: str | None) -> list[tuple[str | None, Tokenizer]]:
        """Return the analyzers for words of a subscription, see :meth:`Tokenizer.by_field`."""
        return list(self.fields.items()) if name is None else [(name, self.fields[name])]

    def __repr__(self) -> str:
        return f"FieldAnalyzers({self.fields})"

    def __reduce__(self) -> tuple[Any, ...]:
        return FieldAnalyzers, (self.fields,)


class _Known(dict[str, str]):
    """What has become of words; a word that is not known yet is analyzed."""

    def __init__(self, analyze: Callable[[str], str]) -> None:
        self._analyze = analyze

    def __missing__(self, word: str) -> str:
        if len(self) >= _MOST_KNOWN:
            self.clear()
        found = self[word] = self._analyze(word)
        return found


def _fold(word: str) -> str:
    return word if word.isascii() else unicodedata.normalize("NFC", _ACCENTS.sub("", unicodedata.normalize("NFD", word)))


def _digest(value: Any) -> str:
    return sha256(json.dumps(value).encode()).hexdigest()[:16]


def _make_stemmer(language: str) -> Callable[[str], str]:
    try:
        import Stemmer
    except ModuleNotFoundError as error:
        words = "A language needs a package that is not installed: PyStemmer"
        raise TopologyError(words, given=language, hint="pip install '/path/to/dskype[languages]'") from error
    stem: Callable[[str], str] = Stemmer.Stemmer(language, 0).stemWord  # it need not remember words: analyzers do
    return stem


def _rule_error(number: int, expected: str, given: str) -> IllegalArgumentException:
    return IllegalArgumentException(f"Expected {expected} in synonym rule {number}", given=given)


def read_synonyms(path: str) -> list[str]:
    """Read a file of synonyms: UTF-8, one rule in a line, see :class:`LanguageAnalyzer`; empty lines and those that begin with ``#`` are none.

    :raises IllegalArgumentException: it cannot be read.
    """
    try:
        lines = Path(path).read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise IllegalArgumentException("Cannot read the file of synonyms", given=path, legal="a text in UTF-8", hint=str(error)) from error
    return [line for line in map(str.strip, lines) if line and not line.startswith("#")]


@cache
def _stop_lists() -> dict[str, str]:
    found: dict[str, str] = json.loads(Path(__file__).with_name("stop_lists.json").read_text(encoding="utf-8"))["lists"]
    return found


def with_stop_list() -> list[str]:
    """Return the languages that have a list of stop words."""
    return sorted(_stop_lists())


def stop_list(language: str) -> list[str]:
    """Return the stop words of a language, Snowball's."""
    return _stop_lists()[language].split()
