"""What verification reads by itself against what the topology reads: both must agree, and verification must see it when they do not."""

from __future__ import annotations

import ast
import dataclasses
import doctest
import json
import random
import sys
from pathlib import Path

import numpy as np
import pytest

from dskype.deploy import verification
from dskype.deploy.verification import reading, reading_expressions, reading_words, verify
from dskype.deploy.verification.reading import Weights, attributes_of, check_message, meeting, object_of, read_subscription
from dskype.deploy.verification.reading_analysis import fields_of, words_of_message
from dskype.deploy.verification.reading_expressions import expression_text, needs_word, read_expression
from dskype.deploy.verification.reading_words import UnusableRecord, words_of
from dskype.spouts import expression, expression_parser
from dskype.spouts.expression_parser import ExpressionError
from dskype.spouts.filters import is_wordless
from dskype.spouts.record_values import RecordError
from dskype.spouts.records import encode_attributes, parse_message, parse_subscription
from dskype.spouts.settings import Settings
from dskype.spouts.text import BORDER, LEFT_OUT, Tokenizer
from dskype.spouts.vocabulary import Vocabulary
from dskype.topology.errors import IllegalArgumentException
from tests import languages, naive
from tests.deploy.verification.plain_system import PlainSystem
from tests.spouts.test_expression import REFUSED, REFUSED_OF_ALL
from tests.spouts.test_records import AREA, BOOLEAN, MESSAGE, THRESHOLD, TOPK, WRONG_BOOLEAN, WRONG_MESSAGES, WRONG_THRESHOLD, WRONG_TOPK, changed, damaged
from tests.spouts.test_text import TRICKY, random_text

pytestmark = pytest.mark.long

STOP_WORDS = frozenset({"the"})
SETTINGS = Settings.from_conf({"dskype.stop.words": ["the"]})
MATCHING_PATH = {
    *("dskype.spouts.text", "dskype.spouts.expression", "dskype.spouts.expression_parser", "dskype.spouts.filters", "dskype.spouts.attributes"),
    *("dskype.spouts.vocabulary", "dskype.spouts.kafka", "dskype.spouts.records.encode_attributes"),
    *("dskype.spouts.records.parse_message", "dskype.spouts.records.parse_subscription", "dskype.spouts.records.parse_key"),
    *("dskype.spouts.areas.overlap", "dskype.spouts.areas.centre_of", "dskype.spouts.analyzer_settings.make_analyzer"),
    *("dskype.spouts.analyzers.LanguageAnalyzer", "dskype.spouts.analyzers.FieldAnalyzers", "dskype.spouts.analyzers.read_synonyms"),
}
"""What decides whether a message and a subscription match, and how well."""


def read_message(value, settings):
    return check_message(object_of(value, settings.limits.text_max_bytes), settings)


def test_verification_imports_nothing_of_the_matching_path():
    for path in Path(verification.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, (ast.Import, ast.ImportFrom)) else []
            imported = {f"{node.module}.{name}" for name in names} | {node.module} if isinstance(node, ast.ImportFrom) else set(names)
            assert not imported & MATCHING_PATH, path
            assert not {name for name in imported if name and name.startswith(("dskype.distribution", "dskype.bolts"))} - {
                "dskype.bolts.refusals",
                "dskype.bolts.refusals.LIMIT_STAGE",
            }, path


@pytest.mark.parametrize("text", TRICKY, ids=ascii)
def test_a_tricky_text_has_the_words_that_the_rule_says(text):
    assert words_of(text) == TRICKY[text]


def test_every_character_of_unicode_is_cut_as_the_topology_cuts_it():
    tokens = Tokenizer().tokens
    for first in range(0, sys.maxunicode + 1, 97):
        characters = [chr(c) for c in range(first, min(first + 97, sys.maxunicode + 1))]
        for text in ("a".join(characters), " ".join(characters), "x".join(characters[::-1])):
            assert words_of(text) == tokens(text)


def test_random_texts_are_cut_as_the_topology_cuts_them():
    rng, tokenizer = random.Random(8), Tokenizer(["abc", "é"])
    for _ in range(3000):
        text = random_text(rng, rng.choice([3, 12, 40, 400]))
        assert words_of_message(text, Settings(stop_words=("abc", "é"))) == tokenizer.tokens(text), ascii(text)


def test_a_heap_of_marks_is_cut_in_no_time():
    assert len(words_of("a" + "\u0301\u0327" * 60_000)) == 1  # sorted by insertion it takes half a minute


def both(read, parse):
    """Return what both have read; None where both refuse."""
    try:
        found = read()
    except UnusableRecord:
        found = None
    try:
        return found, parse()
    except (RecordError, ExpressionError):
        return found, None


def test_random_expressions_are_read_or_refused_as_the_topology_does():
    rng, tokenizer = random.Random(9), Tokenizer(["the"])
    settings = Settings.from_conf({"dskype.stop.words": ["the"], "dskype.expression.max.depth": 3, "dskype.expression.max.terms": 8})
    reread = Settings.from_conf({"dskype.expression.max.depth": 16})
    pieces = [
        "(",
        ")",
        "（",
        "）",
        " ",
        " ",
        "\u3000",
        " AND ",
        " OR ",
        " or ",
        " ＡＮＤ ",
        '"',
        "“",
        "»",
        "「",
        "a",
        "tea",
        "the",
        "é",
        "e\u0301",
        "NOT ",
        " not ",
        "ATLEAST 2 OF (",
        ", ",
        " ＡＴＬＥＡＳＴ １ of（",
        "_",
        "~1",
        "～７",
        "exists(",
        " in ",
        "<",
        "≤",
        "-",
        "−",
        "–",
    ]
    pieces += [
        *"!~*?^|&=:+¬\\[]{}【",
        "&&",
        "||",
        "12:30",
        "t:",
        "\u00ad",
        "\u200b",
        "\u200e",
        "☀️",
        "1️⃣",
        "\u0301",
        "C++",
        "⑴",
        "∨",
        "\ud800",
        "\u0000",
        "ﬀ",
        "²:",
    ]
    read = refused = 0
    for number in range(20_000):
        if number % 2:
            text = "".join(rng.choices(pieces, k=rng.randint(0, 12)))
        else:
            text = naive.spelled("tea", number)
            for _ in range(rng.randint(0, 6)):
                text = rng.choice([f"({text})", f"{text} AND {rng.choice('abc')}", f"{rng.choice('abc')} OR {text}", f'"{rng.choice("ab")} c" AND ({text})'])
        found, expected = both(lambda: read_expression(text, settings), lambda: expression_parser.parse(text, tokenizer, settings.language))
        assert found == expected, ascii(text)
        read, refused = read + (found is not None), refused + (found is None)
        if found is not None:
            assert read_expression(expression_text(found), reread) == found
    assert read > 5_000 and refused > 5_000


ALL = {
    "dskype.stop.words": list(languages.STOP_WORDS),
    "dskype.attributes": languages.ATTRIBUTES,
    "dskype.text.fields": list(languages.FIELDS),
    "dskype.boolean.prefixes": True,
}
"""Settings of a topology whose expressions may speak of everything."""


def test_random_expressions_of_the_whole_language_are_read_or_refused_as_the_topology_does():
    rng, settings = random.Random(13), Settings.from_conf(ALL)
    tokenizer, read = Tokenizer(settings.stop_words), 0
    pieces = "price category tags open since tea the AND OR NOT IN HAS ATLEAST 2 OF ( ) , < <= > >= = == === != ≤ ≠ 5 -1e3 1e999 ٣ true 2026-01-31 exists( title: body:".split()
    pieces += [
        "mu*",
        '"a b"',
        '"',
        "~2",
        "_",
        "\u00ad",
        "\u200b",
        "＜",
        "!",
        "＂",
        "é",
        "title:(",
        "100 <= price <= 200",
        "tags HAS ",
        "category = ",
        "price IN (1, ",
        " ",
        " ",
    ]
    for number in range(20_000):
        if number % 3:
            text = rng.choice(["", " "]).join(rng.choices(pieces, k=rng.randint(1, 10)))
        else:
            characters = list(expression.to_text(languages.random_expression(rng, languages.WHOLE, 2)))
            for _ in range(rng.randint(0, 3)):
                characters[rng.randrange(len(characters))] = rng.choice(pieces)
            text = "".join(characters)
        found, expected = both(lambda: read_expression(text, settings), lambda: expression_parser.parse(text, tokenizer, settings.language))
        assert found == expected, ascii(text)
        if found is not None:
            read += 1
            again, _ = both(lambda: read_expression(expression_text(found), settings), lambda: None)
            assert again in (found, None)  # None: more parentheses than there may be
    assert read > 2_000


ENGLISH = {"language": "english", "stop": True, "fold_accents": True, "synonyms": ["tea, coffee, cakes", "night => lates"]}
ANALYSES = {
    "a language": {"dskype.text.analyzer": ENGLISH},
    "fields": {"dskype.text.fields": {"title": ENGLISH, "body": "plain"}},
    "a segmenter": {"dskype.text.analyzer": {"segmenter": "japanese", "language": "german"}},
    "segmenters": {
        "dskype.text.fields": {"title": {"segmenter": "chinese", "fold_accents": True}, "body": {"language": "french", "synonyms": ["muse => museum"]}}
    },
}
LIVELY = [
    *"the The coffees cakes lates loose looses tennessee tennesse\u02b9 muses museums Mü mu\u0308 willing 東京タワー 今日は晴れ ÉTÉ été 24".split(),
    *languages.WORDS,
]


@pytest.mark.parametrize("conf", ANALYSES.values(), ids=ANALYSES)
def test_words_are_analyzed_as_in_the_topology(conf):
    rng, settings = random.Random(15), Settings.from_conf(ALL | conf)
    analyzer, language, read, again = settings.analyzer(), settings.language, 0, 0
    for _ in range(600):
        parts = [rng.choice([" ", "-", "\u00ad"]).join(rng.choices(LIVELY, k=rng.randrange(9))) for _ in range(rng.choice([1, 2, 2]))]
        text = BORDER.join(parts)
        expected = [[None if word == LEFT_OUT else word for word in part.split()] for part in analyzer.spaced(text).split(BORDER)]
        assert fields_of(text, settings) == expected, ascii(text)
        assert words_of_message(text, settings) == analyzer.tokens(text)
        wanted = (
            {"type": "boolean", "bbox": [11, 48, 12, 49], "keywords": rng.choices([*LIVELY, text], k=rng.randint(1, 3))}
            if rng.random() < 0.5
            else TOPK | {"text": text}
        )
        found, parsed = both_records(json.dumps(wanted).encode(), settings, analyzer)
        assert found == parsed, wanted
        words = languages.random_expression(rng, language, 2, [word for word in LIVELY if naive.words(word)])
        pieces = ["AND", "OR", "(", ")", '"the coffees"', '"cakes the _ lates"~3', "mus*", "loose*", "title:muses", "body:(the", *LIVELY]
        text = expression.to_text(words) if rng.random() < 0.5 else " ".join(rng.choices(pieces, k=rng.randint(1, 6)))
        found, expected = both(lambda: read_expression(text, settings), lambda: expression_parser.parse(text, analyzer, language))
        assert found == expected, ascii(text)
        if found is not None:
            read += 1
            repeated, _ = both(lambda: read_expression(expression_text(found), settings), lambda: None)
            assert repeated in (found, None)  # None: more parentheses than there may be
            again += repeated is not None
    assert read > 200 and again > 150


def both_records(value, settings, analyzer):
    """Return what both have read of a subscription; None where both refuse."""
    try:
        found = read_subscription(b"s", value, settings)
    except UnusableRecord:
        found = None
    try:
        return found, parse_subscription(b"s", value, tokenizer=analyzer, limits=settings.limits, language=settings.language)
    except RecordError:
        return found, None


def test_whether_an_expression_needs_a_word_is_found_as_in_the_topology():
    rng, needs = random.Random(14), 0
    for _ in range(5000):
        tree = languages.random_expression(rng)
        assert needs_word(tree) == (not is_wordless(tree)), tree
        needs += needs_word(tree)
    assert 500 < needs < 4500 and not needs_word(["all"]) and is_wordless(["all"])


@pytest.mark.parametrize("text", [text for text, _ in REFUSED], ids=ascii)
def test_what_is_no_expression_is_refused(text):
    with pytest.raises(UnusableRecord):
        read_expression(text, SETTINGS)


@pytest.mark.parametrize("text", [text for text, _ in REFUSED_OF_ALL], ids=ascii)
def test_what_is_no_expression_of_the_whole_language_is_refused(text):
    with pytest.raises(UnusableRecord):
        read_expression(text, Settings.from_conf(ALL | {"dskype.stop.words": ["the"]}))


WRONG_ATTRIBUTES = [
    *({"price": wrong} for wrong in ("5", True, [5], {}, 10**400)),
    *({"category": wrong} for wrong in (5, ["cafe"], "\ud800", "é" * 513)),
    *({"open": wrong} for wrong in (1, "true", 0.0)),
    *({"tags": wrong} for wrong in ("vegan", [5], [None], ["x"] * 257, ["é" * 513])),
    *({"since": wrong} for wrong in ("soon", True, 2**53 + 1, "2026-13-01", "", [])),
    {"needed": None},
    {"needed": "x"},
]
GOOD_ATTRIBUTES = [
    {"price": 5, "category": "é" * 512, "open": False, "tags": ["x"] * 256, "since": 2**53, "needed": 1},
    {"price": None, "category": "", "tags": [], "since": "2026-01-31T00:00:00.001+02:00", "needed": -0.0, "other": [5]},
]


@pytest.mark.parametrize("given", [*WRONG_ATTRIBUTES, *GOOD_ATTRIBUTES], ids=lambda given: ascii(given)[:40])
def test_attributes_are_read_or_refused_as_the_topology_does(given):
    settings = Settings.from_conf({"dskype.attributes": languages.ATTRIBUTES | {"needed": {"type": "number", "required": True}}})
    for attributes in (given, {"needed": 5} | given, None):
        record = MESSAGE if attributes is None else MESSAGE | {"attributes": attributes}
        value = json.dumps(record).encode()

        def parse():
            message = parse_message(value)
            encode_attributes(settings.attributes, message)
            return message

        found, expected = both(lambda: read_message(value, settings), parse)
        assert found == expected
        if attributes is given:
            assert (found is not None) == (given in GOOD_ATTRIBUTES)
        if found is not None:
            for name, value_found in attributes_of(found.attributes, settings).items():
                comparison = ["attribute", name, "in", *value_found] if isinstance(value_found, frozenset) else ["attribute", name, "=", value_found]
                assert naive.holds(comparison, found._asdict())


def records():
    yield from (json.dumps(changed(MESSAGE, **fields)).encode() for fields, *_ in WRONG_MESSAGES)
    for wrong, good in ((WRONG_TOPK, TOPK), (WRONG_THRESHOLD, THRESHOLD), (WRONG_BOOLEAN, BOOLEAN)):
        yield from (json.dumps(changed(good, **fields)).encode() for fields, *_ in wrong)
    rng = random.Random(10)
    for _ in range(8000):
        yield damaged(rng, rng.choice([MESSAGE, TOPK, THRESHOLD, BOOLEAN, AREA]))


def test_records_are_read_or_refused_as_the_topology_does():
    read = refused = 0
    for value in records():
        for found, expected in (
            both(lambda: read_message(value, SETTINGS), lambda: parse_message(value)),
            both(lambda: read_subscription(b"s1", value, SETTINGS), lambda: parse_subscription(b"s1", value, tokenizer=Tokenizer(["the"]))),
        ):
            assert found == expected, value
            read, refused = read + (found is not None), refused + (found is None)
    assert read > 500 and refused > 5_000


def test_texts_of_fields_and_attributes_are_read_alike():
    rng = random.Random(11)
    settings, fields = dataclasses.replace(SETTINGS, text_fields=("title", "body")), ("title", "body")
    read = refused = 0
    for _ in range(3000):
        texts = [rng.choice(["late", "a\x1fb", "", 5, None]) for _ in range(3)]
        text = rng.choice([dict(zip(rng.sample(["title", "body", "author"], rng.randint(0, 3)), texts)), texts[0]])
        record = {"text": text, "lat": 1, "lon": 2} | rng.choice([{}, {"attributes": rng.choice([{}, {"a": 1}, None, 5])}])
        value = json.dumps(record).encode()
        found, expected = both(lambda: read_message(value, settings), lambda: parse_message(value, text_fields=fields))
        assert found == expected, value
        read, refused = read + (found is not None), refused + (found is None)
    assert read > 200 and refused > 200


@pytest.mark.parametrize(
    "fields",
    [
        {"text": "x " * 131_073},
        {"text": "\ufdfa" * 15_888},
        {"text": "\ufdfa" * 15_887},
        {"text": "a " * 16_385},
        {"text": "a " * 16_384},
        {"text": "lake " * 1_025},
        {"text": "lake " * 1_024},
        {"text": " ".join(f"w{i}" for i in range(65))},
        {"keywords": ["tea tea"] * 513},
        {"keywords": ["tea"] * 1_025},
        {"keywords": ["x" * 2_048] * 257},
        {"keywords": ["\u00ad"]},
        {"meta": "x" * 4_095},
        {"meta": {"é": [1, None, 2.5]}},
    ],
    ids=range(14),
)
def test_the_limits_are_the_same(fields):
    for good in (MESSAGE, TOPK, THRESHOLD, BOOLEAN):
        fields = {("expression" if good is BOOLEAN and name == "text" else name): value for name, value in fields.items()}
        record = {name: value for name, value in good.items() if not ("keywords" in fields and name in ("text", "expression"))} | fields
        value = json.dumps(record).encode()
        found, expected = both(lambda: read_message(value, SETTINGS), lambda: parse_message(value))
        assert found == expected
        found, expected = both(lambda: read_subscription(b"s", value, SETTINGS), lambda: parse_subscription(b"s", value, tokenizer=Tokenizer(["the"])))
        assert found == expected


def test_words_weigh_as_they_do_in_the_topology(tmp_path):
    rng, texts = random.Random(11), ["lake park", "lake", "Café ☀️ lake", "東京 café"]
    vocabulary = Vocabulary.build(texts, Tokenizer())
    vocabulary.save(tmp_path / "v.tsv")
    for path, other in ((str(tmp_path / "v.tsv"), vocabulary), (None, Vocabulary.empty())):
        weights = Weights(path)
        for _ in range(200):
            words = rng.choices(["lake", "park", "café", "東京", "zythum", "bar"], k=rng.randrange(1, 9))
            numbers, found = weights.weigh(words)
            ids, expected = other.weigh(words)
            assert np.all(np.diff(numbers) > 0)
            by_word = dict(zip(other.ids(sorted(set(words))).tolist(), sorted(set(words))))
            pairs = {by_word[id]: weight for id, weight in zip(ids.tolist(), expected.tolist())}
            assert {weights.number(word): pytest.approx(weight, rel=1e-14) for word, weight in pairs.items()} == dict(zip(numbers.tolist(), found.tolist()))
    assert weights.weigh([])[1].tolist() == []


def test_a_vocabulary_that_cannot_be_read_is_refused(tmp_path):
    (tmp_path / "v.tsv").write_text('{"documents": 3}\nlake\tmany\n')
    for name in ("v.tsv", "none.tsv"):
        with pytest.raises(IllegalArgumentException, match=f"Cannot read the vocabulary file; given: '.*{name}'"):
            Weights(str(tmp_path / name))


def test_areas_meet_a_rectangle_as_the_plain_oracle_says():
    rng = random.Random(12)
    longitudes = [-180.0, -170.0, -10.0, 0.0, 10.0, 170.0, 180.0]
    for _ in range(300):
        areas = np.array([[rng.choice(longitudes), -rng.randrange(3), rng.choice(longitudes), rng.randrange(3)] for _ in range(20)], np.float64)
        bbox = (rng.choice(longitudes), -1.0, rng.choice(longitudes), rng.randrange(-1, 2))
        assert meeting(areas, bbox).tolist() == [naive.overlapping(area, bbox) for area in areas.tolist()]


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("dskype.spouts.text.without_ignored", lambda text: text),
        ("dskype.spouts.text._token_finder", lambda: str.split),
        ("dskype.spouts.expression_parser._plain", lambda text: (text, range(1, len(text) + 1))),
        ("dskype.spouts.expression_parser.join", lambda operator, parts: expression.join("or", parts)),
    ],
    ids=["invisible characters", "signs", "full-width operators", "AND as OR"],
)
def test_verification_disagrees_with_a_topology_that_reads_words_or_expressions_wrongly(monkeypatch, name, wrong):
    assert verify((right := PlainSystem({"dskype.window.messages": 20}, seed=4).some_traffic()).inputs(), right.settings, final=True).ok
    monkeypatch.setattr(name, wrong)
    system = PlainSystem({"dskype.window.messages": 20}, seed=4).some_traffic()
    report = verify(system.inputs(), system.settings, final=True)
    assert not report.ok and report.counts.keys() & {"match", "state", "delta", "dead-letter"}, report.as_text()


def test_the_examples_run():
    assert not any(doctest.testmod(module).failed for module in (reading, reading_words, reading_expressions))
