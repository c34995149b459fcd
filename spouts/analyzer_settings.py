"""The settings ``dskype.text.analyzer`` and ``dskype.text.fields``, checked, and the analyzers that they name."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from dskype.spouts.analyzers import LANGUAGES, FieldAnalyzers, LanguageAnalyzer, read_synonyms, stop_list, with_stop_list
from dskype.spouts.segmenters import SEGMENTERS
from dskype.spouts.text import PLAIN, Tokenizer
from dskype.topology.errors import IllegalArgumentException

__all__ = ["AnalyzerSettings", "make_analyzer", "read_analyzer", "read_fields", "synonym_files"]


class AnalyzerSettings(NamedTuple):
    """What becomes of words, see :mod:`dskype.spouts.analyzers`. The defaults are the plain analyzer.

    :ivar language: whose stemmer is applied; None: none.
    :ivar stop: whether the language's stop words are left out, or these words.
    :ivar fold_accents: whether Latin and Greek letters lose their accents.
    :ivar synonyms: the path of a file, or rules.
    :ivar segmenter: cuts a script without spaces.
    """

    language: str | None = None
    stop: bool | tuple[str, ...] = False
    fold_accents: bool = False
    synonyms: str | tuple[str, ...] = ()
    segmenter: str | None = None


def _refuse(key: str, given: Any, legal: str, hint: str | None = None) -> IllegalArgumentException:
    return IllegalArgumentException(f"The configuration key {key} is not usable.", given=given, legal=legal, hint=hint)


def _near(value: Any, legal: Iterable[str]) -> str | None:
    near = difflib.get_close_matches(str(value), list(legal), 1)
    return f"did you mean {near[0]}?" if near else None


def _is_texts(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and all(isinstance(word, str) for word in value)


def read_analyzer(key: str, value: Any) -> AnalyzerSettings:
    """Read and check a setting that names an analyzer.

    :param key: names it in errors.
    :raises IllegalArgumentException: it makes no sense.
    """
    names = AnalyzerSettings._fields
    if value == PLAIN:
        return AnalyzerSettings()
    if not isinstance(value, Mapping):
        raise _refuse(key, value, f"plain, or a map with some of {', '.join(names)}")
    for name in value:
        if name not in names:
            raise _refuse(f"{key}: {name}", value[name], f"a map with some of {', '.join(names)}", _near(name, names))
    for name, legal in (("language", LANGUAGES), ("segmenter", SEGMENTERS)):
        if (given := value.get(name)) is not None and given not in list(legal):
            raise _refuse(f"{key}: {name}", given, ", ".join(sorted(legal)), _near(given, legal))
    language, stop, synonyms = value.get("language"), value.get("stop", False), value.get("synonyms") or ()
    if not isinstance(stop, bool) and not _is_texts(stop):
        raise _refuse(f"{key}: stop", stop, "true (the language's stop words), a list of words, or false")
    if stop is True and language not in with_stop_list():
        raise _refuse(f"{key}: stop", stop, "a list of words, or false", f"there are lists for {', '.join(with_stop_list())}")
    if type(value.get("fold_accents", False)) is not bool:
        raise _refuse(f"{key}: fold_accents", value["fold_accents"], "true or false")
    if not isinstance(synonyms, str) and not _is_texts(synonyms):
        raise _refuse(f"{key}: synonyms", synonyms, "the path of a file, or a list of rules")
    return AnalyzerSettings(
        language,
        stop if isinstance(stop, bool) else tuple(stop),
        value.get("fold_accents", False),
        synonyms if isinstance(synonyms, str) else tuple(synonyms),
        value.get("segmenter"),
    )


def read_fields(key: str, value: Any, default: AnalyzerSettings) -> tuple[tuple[str, AnalyzerSettings], ...]:
    """Read and check the setting of the text fields of a message: (name, analyzer) of each, in order; nothing if a text has no fields.

    :param value: a list of names, or a map of names to analyzers; null among them is the default.
    :param default: of fields without an analyzer of their own.
    :raises IllegalArgumentException: it makes no sense.
    """
    if value in (None, []):
        return ()
    legal = "a list of names, or a map from names to analyzers, e.g. {title: {language: english}, body: plain}"
    if not isinstance(value, (list, tuple, Mapping)) or not value:
        raise _refuse(key, value, legal)
    names = list(value)
    for name in names:
        if not isinstance(name, str) or not name.isascii() or not name.isidentifier():
            raise _refuse(key, name, "names of ASCII letters, digits and _, that begin with a letter")
    if len(set(names)) < len(names):
        raise _refuse(key, value, "each name once")
    given = value if isinstance(value, Mapping) else {}
    return tuple((name, default if given.get(name) is None else read_analyzer(f"{key}: {name}", given[name])) for name in names)


def make_analyzer(settings: AnalyzerSettings, fields: Iterable[tuple[str, AnalyzerSettings]], stop_words: Iterable[str]) -> Tokenizer:
    """Return the analyzer for texts; its files are read.

    :param fields: names and analyzers of the fields of a text; nothing if it has none.
    :param stop_words: words that every analyzer leaves out, beside its own.
    :raises IllegalArgumentException: a file of synonyms cannot be used.
    :raises TopologyError: a package is not installed.
    """
    stop_words = tuple(stop_words)
    found = {name: _make(one, stop_words) for name, one in fields}
    if len(set(found.values())) > 1:
        return FieldAnalyzers(found)
    return next(iter(found.values()), None) or _make(settings, stop_words)


def _make(settings: AnalyzerSettings, stop_words: tuple[str, ...]) -> Tokenizer:
    if settings == AnalyzerSettings():
        return Tokenizer(stop_words)
    language, stop, fold_accents, synonyms, segmenter = settings
    own = (stop_list(language) if language else ()) if stop is True else stop or ()
    rules = synonyms if isinstance(synonyms, tuple) else read_synonyms(synonyms)
    return LanguageAnalyzer(language, (*own, *stop_words), fold_accents, rules, segmenter)


def synonym_files(conf: Mapping[str, Any]) -> dict[tuple[str, ...], str]:
    """Return the files of synonyms that a checked configuration names, by their place in it."""
    places: dict[tuple[str, ...], Any] = {("dskype.text.analyzer",): conf.get("dskype.text.analyzer")}
    if isinstance(fields := conf.get("dskype.text.fields"), Mapping):
        places |= {("dskype.text.fields", name): one for name, one in fields.items()}
    named = {(*place, "synonyms"): one.get("synonyms") for place, one in places.items() if isinstance(one, Mapping)}
    return {place: path for place, path in named.items() if isinstance(path, str) and path}
