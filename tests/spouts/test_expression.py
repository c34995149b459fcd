"""Expressions against Python's own, evaluated over all sets of terms."""

import doctest
import inspect
import itertools
import json
import random
import re
import sys

import pytest

from dskype.bolts.boolean.programs import compile_expression
from dskype.spouts import expression as module
from dskype.spouts import expression_parser
from dskype.spouts.attributes import Attributes
from dskype.spouts.expression import as_lists, from_keywords, map_words, parts, to_text, words
from dskype.spouts.expression_parser import WORDS_ONLY, ExpressionError, Language, parse
from dskype.spouts.filters import compile_filter, is_wordless
from dskype.spouts.subscriptions import BooleanSubscription
from dskype.spouts.text import Tokenizer
from dskype.topology.errors import IllegalArgumentException
from tests import languages, naive

WORDS = ["a", "b", "c", "d"]
DEEP_LANGUAGE = WORDS_ONLY._replace(max_depth=64)


def random_source(rng, depth):
    """Return (an expression as a user writes it, the same in Python, over a text ``s`` with a space around each word)."""
    if depth == 0 or rng.random() < 0.3:
        some = rng.choices(WORDS, k=rng.choice([1, 1, 1, 2]))
        python = f"{' '.join(['', *some, ''])!r} in s"
        if rng.random() < 0.3:
            some[0] = some[0].upper()
        return (some[0] if len(some) == 1 else f'"{rng.choice([" ", ", "]).join(some)}"'), f"({python})"
    inside = [random_source(rng, depth - 1) for _ in range(rng.choice([1, 2, 2, 3]))]
    if rng.random() < 0.15:
        n = rng.randint(1, len(inside))
        return f"AtLeast {n} of ({' , '.join(w for w, _ in inside)})", f"(sum([{', '.join(p for _, p in inside)}]) >= {n})"
    operators = [rng.choice(["and", "AND", "or", "Or"]) for _ in inside[1:]]
    negated = [rng.choice(["", "", "", "not ", "NOT NOT "]) for _ in inside]
    written = negated[0] + inside[0][0] + "".join(f" {o} {n}{w}" for o, n, (w, _) in zip(operators, negated[1:], inside[1:]))
    python = negated[0].lower() + inside[0][1] + "".join(f" {o.lower()} {n.lower()}{p}" for o, n, (_, p) in zip(operators, negated[1:], inside[1:]))
    return f"({written})", f"({python})"


def check_simplified(e, inside=None):
    if not isinstance(e, list):
        return
    if e[0] in ("and", "or"):
        assert e[0] != inside and len(e) > 2
        assert all(x != y for x, y in itertools.combinations(e[1:], 2))
    elif e[0] == "not":
        assert e[0] != inside and len(e) == 2
    elif e[0] == "atleast":
        assert 1 < e[1] < len(e) - 2
    else:
        assert e[0] in ("phrase", "prefix", "in", "attribute")
    for part in parts(e):
        check_simplified(part, e[0])


@pytest.mark.long
def test_a_random_expression_means_what_the_same_in_python_means():
    rng = random.Random(1)
    texts = [" ".join(text) for n in range(5) for text in itertools.product(WORDS, repeat=n)]
    for _ in range(1500):
        written, python = random_source(rng, 4)
        found = parse(written, Tokenizer(), DEEP_LANGUAGE)
        check_simplified(found)
        code = compile(python, "", "eval")
        for text in rng.sample(texts, 30):
            assert naive.holds(found, {"text": text}) == eval(code, {"s": f" {text} "}), written


@pytest.mark.long
def test_a_written_expression_is_read_back():
    rng = random.Random(2)
    for _ in range(500):
        found = parse(random_source(rng, 4)[0], Tokenizer(), DEEP_LANGUAGE)
        assert parse(to_text(found), Tokenizer(), DEEP_LANGUAGE) == found
    for text in ('"and" OR "Not" AND "or"', '"wi-fi"', "𠀀 or ΐ", '"the late and _ _ night"~100', '"in" AND has'):
        found = parse(text, Tokenizer(["the"]))
        assert parse(to_text(found), Tokenizer(["the"])) == found


@pytest.mark.long
@pytest.mark.parametrize("language", [languages.PLAIN._replace(max_depth=64), languages.WHOLE], ids=["words", "whole language"])
def test_a_random_tree_is_written_and_read_back(language):
    rng, tokenizer = random.Random(4), Tokenizer(languages.STOP_WORDS)
    for _ in range(3000):
        tree = languages.random_expression(rng, language)
        assert parse(to_text(tree), tokenizer, language) == tree, to_text(tree)
        assert as_lists(json.loads(json.dumps(tree))) == tree


@pytest.mark.parametrize(
    "text, expected",
    [
        ("coffee", "coffee"),
        ("(coffee)", "coffee"),
        ("((Coffee))", "coffee"),
        ("a AND b OR c AND d", ["or", ["and", "a", "b"], ["and", "c", "d"]]),
        ("a and (b or c)and d", ["and", "a", ["or", "b", "c"], "d"]),
        ("a AND (b AND (c AND d))", ["and", "a", "b", "c", "d"]),
        ("a OR (b OR c) OR a", ["or", "a", "b", "c"]),
        ("(a OR b) AND (b OR a)", ["or", "a", "b"]),
        ("a AND a", "a"),
        ('"late night" OR tea', ["or", ["phrase", 0, [0, 1], ["late", "night"]], "tea"]),
        ('"late night"~3 AND tea', ["and", ["phrase", 3, [0, 1], ["late", "night"]], "tea"]),
        ('"late night" OR "night late" OR "late, NIGHT"', ["or", ["phrase", 0, [0, 1], ["late", "night"]], ["phrase", 0, [0, 1], ["night", "late"]]]),
        ('"late late"', ["phrase", 0, [0, 1], ["late", "late"]]),
        ('"the tea (AND) the or the"', ["phrase", 0, [0, 1, 3], ["tea", "and", "or"]]),
        ('"and tea or" OR "and or tea"', ["or", ["phrase", 0, [0, 1, 2], ["and", "tea", "or"]], ["phrase", 0, [0, 1, 2], ["and", "or", "tea"]]]),
        ('"_ late _ _ night _"~100', ["phrase", 100, [0, 3], ["late", "night"]]),
        ('"late"~2 or "the late"~7', "late"),
        ('"late_night __"', ["phrase", 0, [0, 1], ["late", "night"]]),
        ("wi-fi", ["phrase", 0, [0, 1], ["wi", "fi"]]),
        ("state-of-the-art", ["phrase", 0, [0, 1, 3], ["state", "of", "art"]]),
        ("Straße", "strasse"),
        ('"AND" and "not"', ["and", "and", "not"]),
        ("NOT coffee", ["not", "coffee"]),
        ("tea AND not coffee or NOT NOT cake", ["or", ["and", "tea", ["not", "coffee"]], "cake"]),
        ("not (not (NOT tea))", ["not", "tea"]),
        ("NOT (a OR b) OR not (b or a)", ["not", ["or", "a", "b"]]),
        ('"not" AND nothing', ["and", "not", "nothing"]),
        ("ATLEAST 2 OF (a, b AND c, (d))", ["atleast", 2, "a", ["and", "b", "c"], "d"]),
        ("atleast 1 of (a, b) AND AtLeast 2 Of(c,d)", ["and", ["or", "a", "b"], "c", "d"]),
        ("ATLEAST 2 OF (a, a, b)", ["atleast", 2, "a", "a", "b"]),
        ("atleast AND of AND in OR exists OR has", ["or", ["and", "atleast", "of", "in"], "exists", "has"]),
        ("android or orchid or nothing", ["or", "android", "orchid", "nothing"]),
        ("東京\u3000AND\tcafé", ["and", "東京", "café"]),
        ("（coffee OR tea） AND wifi", ["and", ["or", "coffee", "tea"], "wifi"]),
        ("coffee ＡＮＤ（tea ｏｒ wifi）", ["and", "coffee", ["or", "tea", "wifi"]]),
        ("“late night” OR «green tea»", ["or", ["phrase", 0, [0, 1], ["late", "night"]], ["phrase", 0, [0, 1], ["green", "tea"]]]),
        ("「late night」～２", ["phrase", 2, [0, 1], ["late", "night"]]),
        ("\ufeffcoffee A\u00adND kranken\u00adhaus", ["and", "coffee", "krankenhaus"]),
        ("tea\u200bOR\u200bcoffee", ["or", "tea", "coffee"]),
        ('"-tea*" AND "title:[x]"', ["and", "tea", ["phrase", 0, [0, 1], ["title", "x"]]]),
        ("AT&T AND 12:30 AND don’t AND C++", ["and", *(["phrase", 0, [0, 1], two] for two in (["at", "t"], ["12", "30"], ["don", "t"])), "c"]),
    ],
)
def test_an_expression_is_read_as_a_simple_tree(text, expected):
    assert parse(text, Tokenizer(["the"])) == expected


REFUSED = [
    ("", "Expected a word or a quoted phrase at position 1 of the expression"),
    ("   ", "a word or a quoted phrase at position 4"),
    ("AND", r"a word, a quoted phrase or '\(' at position 1.*given: 'AND'.*in quotes"),
    ("coffee AND", "after 'AND' at position 11"),
    ("coffee OR OR tea", "after 'OR' at position 11"),
    ("coffee tea", "AND or OR after 'coffee' at position 8 of the expression; given: 'tea'; hint: a phrase needs quotes"),
    ('coffee "tea"', "AND or OR after 'coffee' at position 8"),
    ("(a) (b)", r"AND or OR after '\)' at position 5"),
    ("a (b)", "AND or OR after 'a' at position 3"),
    ("NOT", r"a word, a quoted phrase or '\(' after 'NOT' at position 4"),
    ("tea NOT coffee", "AND or OR after 'tea' at position 5.*given: 'NOT'; hint: write AND NOT"),
    ("NOT AND tea", "after 'NOT' at position 5"),
    ("tea AND -coffee", "no sign for negation at position 9.*given: '-coffee'.*hint: write NOT"),
    ("tea -coffee", "no sign for negation at position 5"),
    ("!coffee", "no sign for negation at position 1"),
    ("ATLEAST 0 OF (a, b)", "a number from 1 to 2 after ATLEAST, for a list of 2 at position 9.*given: '0'"),
    ("ATLEAST 3 OF (a, b)", "a number from 1 to 2 after ATLEAST, for a list of 2 at position 9.*given: '3'"),
    (f"ATLEAST {'9' * 5000} OF (a, b)", "a number from 1 to 2 after ATLEAST, for a list of 2 at position 9"),
    ("ATLEAST 2 OF a, b", r"'\(' after 'OF' at position 14"),
    ("ATLEAST 2 OF (a, b", r"a '\)' for the '\(' at position 14"),
    ("ATLEAST 2 OF (a, )", "after ',' at position 18"),
    ("a, b", "AND or OR after 'a' at position 2.*hint: a comma separates the parts of a list only"),
    ("(a, b)", "AND or OR after 'a' at position 3"),
    (", a", "a word, a quoted phrase or '\\(' at position 1"),
    ('"late night"~', "how many other words may stand between those of the phrase at position 13.*legal: ~0 to ~100"),
    ('"late night"~101', "how many other words may stand between those of the phrase at position 13"),
    ('"late night"~x', "how many other words may stand between those of the phrase at position 13"),
    ('"late night" ~2', "no sign for negation at position 14"),
    ('"_ the _"', "that is not a stop word at position 1"),
    ("_", "that is not a stop word at position 1"),
    ("price < 200", "the name of an attribute to compare at position 1.*given: 'price'.*dskype.attributes declares none"),
    ("200 > price", "the name of an attribute to compare at position 7.*given: 'price'"),
    ("category IN (cafe)", "the name of an attribute to compare at position 1"),
    ("exists(price)", "the name of an attribute to compare at position 8"),
    ("tags HAS vegan", "AND or OR after 'tags' at position 6"),
    ("a < ", "the name of an attribute to compare at position 1"),
    ("< a", r"a word, a quoted phrase or '\(' at position 1"),
    ("muse*", r"no '\*' in a word at position 5 .*hint: words are compared whole: dskype.boolean.prefixes is off"),
    ("a && b", "AND or OR in letters at position 3.*hint: write AND"),
    ("a || b", "AND or OR in letters at position 3.*hint: write OR"),
    ("(a", r"a '\)' for the '\(' at position 1"),
    ("a OR (b AND (c)", r"a '\)' for the '\(' at position 6"),
    ("a)", r"no '\)' without a '\(' at position 2"),
    (")", "a word, a quoted phrase or '\\(' at position 1"),
    ("()", r"after '\(' at position 2"),
    ("(a OR )", "after 'OR' at position 7"),
    ('a AND "late', "a closing quote for the one at position 7"),
    ('"', "a closing quote for the one at position 1"),
    ('a AND ""', "a word with letters or digits that is not a stop word at position 7"),
    ("a AND the", "that is not a stop word at position 7 of the expression; given: 'the'"),
    ('a AND "the The"', "that is not a stop word at position 7"),
    ("coffee AND −tea", "no sign for negation at position 12 of the expression; given: '−tea'; legal: .*hint: write NOT"),
    *((f"tea OR {sign}coffee", f"no sign for negation at position 8.*given: '{sign}coffee'") for sign in "–—‐‑－﹣⁻¬!！~～"),
    ("a AND \u200e-tea", "no sign for negation at position 8"),
    ("[coffee OR tea] AND wifi", r"no '\[' in a word at position 1 of the expression; given: '\[coffee'; legal: words.*hint: use \( and \)"),
    ("{coffee}", r"no '\{' in a word at position 1"),
    ("tea OR 【coffee】", "no '【' in a word at position 8"),
    ("coff* AND wifi", r"no '\*' in a word at position 5 of the expression; given: 'coff\*'; legal: .*hint: words are compared whole"),
    ("（coff＊）", r"no '\*' in a word at position 6 of the expression; given: 'coff＊'"),
    ("coff?e", r"no '\?' in a word at position 5"),
    ("coffee~2", "no '~' in a word at position 7"),
    ("coffee^3", r"no '\^' in a word at position 7"),
    ("title:coffee", "no ':' in a word at position 6.*hint: there are no fields"),
    ("tea=green", "the name of an attribute to compare at position 1.*given: 'tea'"),
    ("a AND tea==green", "the name of an attribute to compare at position 7"),
    ("tea===green", "AND or OR after 'tea' at position 4"),
    ("coffee||tea", r"no '\|' in a word at position 7.*hint: write OR"),
    ("coffee&&tea", "no '&&' in a word at position 7.*hint: write AND"),
    ("coffee∨tea", "no '∨' in a word at position 7.*hint: write OR"),
    ("coffee ∧ tea", "AND or OR in letters at position 8.*hint: write AND"),
    ("+coffee", r"no '\+' in a word at position 1.*hint: join words that must all occur by AND"),
    (
        "☀️ AND beach",
        "a word with letters or digits that is not a stop word at position 1 of the expression; given: '☀'; hint: emoji and other signs are no words",
    ),
    ("beach OR ❤", "position 10.*hint: emoji"),
    ("“late", "a closing quote for the one at position 1"),
    ("a OR ???", "a word with letters or digits that is not a stop word at position 6"),
]


@pytest.mark.parametrize("text, words", REFUSED, ids=[t or "empty" for t, _ in REFUSED])
def test_what_is_no_expression_is_refused_with_its_position(text, words):
    with pytest.raises(ExpressionError, match=words) as e:
        parse(text, Tokenizer(["the"]))
    assert f"at position {e.value.position} of the expression" in str(e.value) and isinstance(e.value, IllegalArgumentException)


@pytest.mark.long
def test_parentheses_may_only_be_so_deep():
    assert parse("(" * 16 + "a" + ")" * 16, Tokenizer()) == "a"
    with pytest.raises(ExpressionError, match="at most 16 open parentheses at position 17 of the expression; given: 17"):
        parse("(" * 17 + "a" + ")" * 17, Tokenizer())
    with pytest.raises(ExpressionError, match="at most 2 open parentheses at position 3"):
        parse("(((a)))", Tokenizer(), Language(max_depth=2))
    with pytest.raises(ExpressionError, match="at most 16"):
        parse("(" * 1_000_000, Tokenizer())


def test_there_may_only_be_so_many_terms():
    assert len(parse(" OR ".join(f"w{i}" for i in range(256)), Tokenizer())) == 257
    with pytest.raises(ExpressionError, match="at most 256 terms at position .* of the expression; given: 257"):
        parse(" OR ".join(f"w{i}" for i in range(257)), Tokenizer())
    with pytest.raises(ExpressionError, match="at most 3 terms at position 6"):
        parse('a OR "b c d"', Tokenizer(), Language(max_terms=3))


@pytest.mark.long
def test_random_texts_are_read_or_refused_and_nothing_else():
    rng = random.Random(3)
    pieces = [
        "(",
        ")",
        " ",
        " AND ",
        " OR ",
        '"',
        "a",
        "the",
        "NOT ",
        " ATLEAST 1 OF (",
        ", ",
        "_",
        "~1",
        "=",
        "<",
        "in ",
        "-",
        "é",
        "&&",
        "\ud800",
        "\u0000",
        "7",
        "（",
        "”",
        "−",
        "\u00ad",
        "*",
        "☀️",
        "\u0301",
    ]
    read = 0
    for _ in range(5000):
        text = "".join(rng.choices(pieces, k=rng.randrange(12)))
        try:
            check_simplified(parse(text, Tokenizer(["the"])))
            read += 1
        except ExpressionError as e:
            assert 1 <= e.position <= len(text) + 1
    assert read > 100


def test_keywords_are_an_expression_that_asks_for_all():
    assert from_keywords(["a"]) == from_keywords(["a", "a"]) == "a"
    assert from_keywords(["a", "b", "a"]) == ["and", "a", "b"]
    with pytest.raises(IllegalArgumentException, match="Expected at least one keyword"):
        from_keywords([])


def test_words_are_listed_once_and_mapped_everywhere():
    e = [
        "or",
        "a",
        ["and", "b", "a"],
        ["not", ["phrase", 1, [0, 2], ["a", "c"]]],
        ["in", "t", "d"],
        ["atleast", 2, "e", ["prefix", "f"], ["attribute", "g", "in", "h"]],
    ]
    before = json.dumps(e)
    assert words(e) == ["a", "b", "c", "d", "e"] and words("a") == ["a"]
    numbers = {word: i for i, word in enumerate(words(e))}
    assert map_words(e, numbers.get) == [
        "or", 0, ["and", 1, 0], ["not", ["phrase", 1, [0, 2], [0, 2]]], ["in", "t", 3], ["atleast", 2, 4, ["prefix", "f"], ["attribute", "g", "in", "h"]]
    ]  # fmt: skip
    assert map_words("b", str.upper) == "B" and json.dumps(e) == before


def test_the_examples_run():
    assert doctest.testmod(module).failed == doctest.testmod(expression_parser).failed == 0


def depth_of(e):
    return 1 + max(map(depth_of, parts(e))) if parts(e) else 0


DEEP = "(b OR c AND " * 16 + "d" + ")" * 16
"""As deep as the limit allows."""

DEEP_OF_ALL = "ATLEAST 2 OF (a, b, c AND NOT (NOT x OR NOT (" * 3 + "d OR e" + ")))" * 3
"""Also as deep, of all operators."""


@pytest.mark.long
def test_any_text_is_an_expression_within_the_limits_or_refused_with_a_position():
    rng = random.Random(7)
    pieces = [
        "a",
        "b",
        "wi-fi",
        "AND",
        "or",
        "And",
        "NOT",
        "not ",
        "ATLEAST",
        "2",
        " of (",
        ",",
        "~3",
        '"a _ the b"~2',
        "<",
        "=",
        "-a",
        "!",
        "(",
        "(",
        ")",
        '"',
        '"x y"',
        " ",
        "\t",
        "\n",
        "&&",
        "|",
        "é",
        "東京",
        "\u0301",
        "\x00",
        "\x1b[31m",
        "\ud800",
        "\ufdfa",
        "\u202e",
        "\U0001f600",
        "'",
        "\\",
        "{",
        "[red]",
        "${jndi:x}",
        "%s",
        "0",
        "٣",
    ]
    refused = read = 0
    for number in range(20_000):
        text = " ".join(rng.choices(pieces, k=rng.randint(0, 12))) if number % 2 else "".join(rng.choices(pieces, k=rng.randint(0, 30)))
        if number % 5 == 0:  # a good one with a few characters changed
            text = list(random_source(rng, rng.choice([1, 1, 2]))[0])
            for _ in range(rng.randint(1, 3)):
                text[rng.randrange(len(text))] = rng.choice(pieces)
            text = "".join(text)
        try:
            found = parse(text, Tokenizer(), Language(max_depth=3, max_terms=8))
        except ExpressionError as error:
            refused += 1
            assert 1 <= error.position <= len(text) + 1 and "\n" not in str(error) and len(str(error)) < 600
            continue
        read += 1
        check_simplified(found)
        assert len(words(found)) <= 8 and depth_of(found) <= 3 * 3 + 2
        assert parse(to_text(found), Tokenizer(), Language(max_depth=16)) == found
        condition, _ = compile_filter(found, {word: i - 1 for i, word in enumerate(words(found))})
        kind, program = compile_expression(condition)
        assert kind in (1, 2, 3) and len(program) <= 1 + 3 * 8
    assert refused > 1_000 and read > 1_000


@pytest.mark.long
def test_the_deepest_and_the_longest_expression_are_handled_on_a_small_stack():
    """Whatever the limits let through must not come near the end of the stack, in any of the functions that recurse."""
    longest = " OR ".join(f"(w{i} AND v{i})" for i in range(128))
    limit, frames = sys.getrecursionlimit(), len(inspect.stack())
    sys.setrecursionlimit(frames + 150)
    try:
        for text in (DEEP, DEEP_OF_ALL, longest, " AND ".join(f"w{i}" for i in range(256)), "(" * 16 + "a" + ")" * 16):
            found = parse(text, Tokenizer())
            numbers = {word: i for i, word in enumerate(words(found))}
            assert naive.holds(found, {"text": " ".join(words(found))}) and not naive.holds(found, {"text": ""})
            assert map_words(map_words(found, numbers.get), list(numbers).__getitem__) == found
            assert not is_wordless(found) and len(compile_expression(compile_filter(found, numbers).condition)[1]) <= 1 + 3 * 256
            assert parse(to_text(found), Tokenizer(), DEEP_LANGUAGE) == found
            BooleanSubscription.from_record(json.loads(json.dumps(BooleanSubscription("s", (0, 0, 1, 1), found).to_record())))
    finally:
        sys.setrecursionlimit(limit)


@pytest.mark.long
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("(" * 1_000_000 + "a", "at most 16 open parentheses"),
        ("a OR " * 50_000 + "a", "at most 256 terms"),
        ("(" + ")(" * 50_000, "a word"),
        ('"' + "a " * 130_000 + '"', "at most 256 terms"),
        ('"' * 131_071, "a word with letters"),
        ("a " * 100_000, "AND or OR after"),
        (" " * 250_000, "a word or a quoted phrase"),
        (")" * 100_000, "a word"),
        ("AND " * 60_000, "a word"),
        ("a AND (" * 40_000, "at most 16 open parentheses"),
    ],
    ids=range(10),
)
def test_hostile_expressions_are_refused(text, expected):
    with pytest.raises(ExpressionError, match=re.escape(expected)):
        parse(text, Tokenizer())


# -- attributes, fields and prefixes --------------------------------------------------------------

LANGUAGE = Language(Attributes.from_conf(languages.ATTRIBUTES), languages.FIELDS, prefixes=True)


@pytest.mark.parametrize(
    "text, expected",
    [
        ("price < 200", ["attribute", "price", "<", 200.0]),
        ("price<=-2.5e2", ["attribute", "price", "<=", -250.0]),
        ("price == ٣", ["attribute", "price", "=", 3.0]),
        ("price ＝ ５", ["attribute", "price", "=", 5.0]),
        ("price ≥ 5 OR price ≠ 7", ["or", ["attribute", "price", ">=", 5.0], ["attribute", "price", "!=", 7.0]]),
        ("200 > price", ["attribute", "price", "<", 200.0]),
        ("100 <= price < 200", ["and", ["attribute", "price", ">=", 100.0], ["attribute", "price", "<", 200.0]]),
        ("tea OR 200 > price >= 100", ["or", "tea", ["and", ["attribute", "price", "<", 200.0], ["attribute", "price", ">=", 100.0]]]),
        ("price IN (1, 2,1.0)", ["attribute", "price", "in", 1.0, 2.0]),
        ('category = "a b" AND "A\u00ad B" = category', ["and", ["attribute", "category", "=", "a b"], ["attribute", "category", "=", "A\u00ad B"]]),
        ("category = Cafe", ["attribute", "category", "=", "Cafe"]),
        ("category = ＡＮＤ", ["attribute", "category", "=", "ＡＮＤ"]),
        ('category != ""', ["attribute", "category", "!=", ""]),
        ("category IN (cafe, bar)", ["attribute", "category", "in", "cafe", "bar"]),
        ("tags HAS vegan and not tags in (a, b)", ["and", ["attribute", "tags", "has", "vegan"], ["not", ["attribute", "tags", "in", "a", "b"]]]),
        ("open = TRUE or open != false", ["or", ["attribute", "open", "=", True], ["attribute", "open", "!=", False]]),
        ("since >= 2026-01-31", ["attribute", "since", ">=", 1769817600000.0]),
        ("since < 2026-01-31T01:00:00.0015+01:00", ["attribute", "since", "<", 1769817600001.5]),
        ('since < "2026-01-31 00:00"', ["attribute", "since", "<", 1769817600000.0]),
        ("since = 5", ["attribute", "since", "=", 5.0]),
        ("exists(price) AND NOT Exists ( tags )", ["and", ["attribute", "price", "exists"], ["not", ["attribute", "tags", "exists"]]]),
        ('price OR "price" OR exists OR in', ["or", "price", "exists", "in"]),
        ("title:coffee", ["in", "title", "coffee"]),
        ("title:wi-fi", ["in", "title", ["phrase", 0, [0, 1], ["wi", "fi"]]]),
        ('title:"late night"~2 OR body:"and"', ["or", ["in", "title", ["phrase", 2, [0, 1], ["late", "night"]]], ["in", "body", "and"]]),
        ("title:(coffee AND NOT mu*) AND tea", ["and", ["in", "title", "coffee"], ["not", ["in", "title", ["prefix", "mu"]]], "tea"]),
        ("body:MUSE* or mu*", ["or", ["in", "body", ["prefix", "muse"]], ["prefix", "mu"]]),
        ("title:ATLEAST OR title", ["or", ["in", "title", "atleast"], "title"]),
        ("abcdefghijklmnop*", ["prefix", "abcdefghijklmnop"]),
        ("the* OR title:the*", ["or", ["prefix", "the"], ["in", "title", ["prefix", "the"]]]),  # theatre
    ],
)
def test_attributes_fields_and_prefixes_are_read(text, expected):
    found = parse(text, Tokenizer(["the"]), LANGUAGE)
    assert found == expected and parse(to_text(found), Tokenizer(["the"]), LANGUAGE) == found


REFUSED_OF_ALL = [
    ("price HAS 5", "another comparison for 'price', which is a number at position 7.*given: 'HAS'; legal: =, !=, <, <=, >, >=, IN"),
    ("category < cafe", "another comparison for 'category', which is a string at position 10.*legal: =, !=, IN"),
    ("open > true", "another comparison for 'open', which is a boolean at position 6"),
    ("tags = vegan", "another comparison for 'tags', which is a strings at position 6.*legal: HAS, IN"),
    ("price < cheap", "a value for 'price', which is a number at position 9.*given: 'cheap'; legal: a number"),
    ('price < "5"', "a value for 'price', which is a number at position 9"),
    ("price < 1e999", "a value for 'price', which is a number at position 9"),
    (f"price < {'9' * 5000}", "a value for 'price', which is a number at position 9"),
    ("price < .5", "a value for 'price', which is a number at position 9"),
    ("open = 1", "a value for 'open', which is a boolean at position 8.*legal: true or false"),
    ("since < soon", "a value for 'since', which is a time at position 9.*legal: ms since 1970, or ISO 8601"),
    ("since < 9007199254740994", "a value for 'since', which is a time at position 9"),
    ("price <", "a value for 'price' after '<' at position 8"),
    ("price < AND tea", "a value for 'price', which is a number at position 9"),
    ("price < (5)", r"a value for 'price' after '<' at position 9.*given: '\('"),
    ("price < 5 6", "AND or OR after '5' at position 11"),
    ("price < 5 < 6", "the name of an attribute to compare at position 11"),
    ("1 < price > 5", "a comparison in the same direction as '<' at position 11.*legal: <, <="),
    ("1 = price = 1", "a comparison in the same direction as '=' at position 11.*given: '='; hint: a range has < or > on both sides: 1 < price <= 5$"),
    ("1 != price != 2", "a comparison in the same direction as '!=' at position 12.*given: '!='; hint: a range has < or > on both sides"),
    ("price IN 5", r"'\(' after 'IN' at position 10"),
    ("price IN ()", r"a value for 'price' after '\(' at position 11"),
    ("price IN (5, 6", r"a '\)' for the '\(' at position 10"),
    ("price IN (5 6)", r"',' or '\)' after '5' at position 13"),
    ('category = "cafe', "a closing quote for the one at position 12"),
    ("Price < 5", "the name of an attribute to compare at position 1.*given: 'Price'; legal: price, category, open, tags, since"),
    ("5 < 6", "the name of an attribute to compare at position 5"),
    ("&& = category", "AND or OR in letters at position 1"),
    ('"price" < 5', "the name of an attribute to compare at position 11"),
    ("exists(cost)", "the name of an attribute to compare at position 8.*given: 'cost'"),
    ("exists(", "the name of an attribute to compare at position 7"),
    ("exists(price", r"'\)' after 'price' at position 13"),
    ("author:me", "no ':' in a word at position 7.*legal: the fields title, body.*hint: another field, or a word in quotes"),
    ("title:", "a word, a quoted phrase or .* right after 'title:' at position 7"),
    ("title: tea", "a word, a quoted phrase or .* right after 'title:' at position 8"),
    ("title:body:tea", "one field at a time at position 7"),
    ("title:(a OR body:b)", "one field at a time at position 13"),
    ("title:-tea", "no sign for negation at position 7"),
    ("title:te*a", r"no '\*' in a word at position 9"),
    ("title:the", "that is not a stop word at position 7"),
    ("m*", r"one word of 2 to 16 letters before '\*' at position 1"),
    ("abcdefghijklmnopq*", r"one word of 2 to 16 letters before '\*' at position 1"),
    ("wi-fi*", r"one word of 2 to 16 letters before '\*' at position 1"),
    ("*", r"one word of 2 to 16 letters before '\*' at position 1"),
    ("mus**", r"no '\*' in a word at position 4"),
    ("mu*se", r"no '\*' in a word at position 3.*hint: an asterisk stands at the end of a word only"),
]


@pytest.mark.parametrize("text, message", REFUSED_OF_ALL, ids=[text[:30] for text, _ in REFUSED_OF_ALL])
def test_what_is_no_expression_of_attributes_fields_and_prefixes_is_refused_with_its_position(text, message):
    with pytest.raises(ExpressionError, match=message) as e:
        parse(text, Tokenizer(["the"]), LANGUAGE)
    assert f"at position {e.value.position} of the expression" in str(e.value)


def test_values_and_prefixes_count_as_terms():
    tight = LANGUAGE._replace(max_terms=3)
    assert parse("price IN (1, 2, 3)", Tokenizer(), tight) and parse("mu* AND 1 < price < 3", Tokenizer(), tight)
    for text, position in (("price IN (1, 2, 3, 4)", 20), ("a AND mu* AND 1 < price < 3", 27), ('"a b c" AND ta*', 13)):
        with pytest.raises(ExpressionError, match=f"at most 3 terms at position {position}"):
            parse(text, Tokenizer(), tight)


def test_exists_counts_as_a_term():
    exists = ", ".join(["exists(price)"] * 4)
    with pytest.raises(ExpressionError, match="at most 3 terms at position 67"):
        parse(f"ATLEAST 2 OF ({exists})", Tokenizer(), LANGUAGE._replace(max_terms=3))


def test_with_one_field_or_none_there_are_no_fields():
    for fields in ((), ("title",)):
        with pytest.raises(ExpressionError, match="hint: there are no fields: an expression is about the whole text"):
            parse("title:tea", Tokenizer(), Language(fields=fields))


@pytest.mark.long
def test_any_text_about_attributes_is_an_expression_or_refused_with_a_position():
    rng, tokenizer = random.Random(8), Tokenizer(["the"])
    pieces = "price category tags open since tea the AND OR NOT IN HAS ATLEAST 2 OF ( ) , < <= > >= = == != ≤ ≠ 5 -1e3 1e999 ٣ true 2026-01-31 exists( title: body:".split()
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
        "\ud800",
        "100 <= price <= 200",
        "tags HAS ",
        "category = ",
        "price IN (1, ",
        " ",
        " ",
    ]
    read = refused = 0
    for number in range(20_000):
        if number % 3:
            text = rng.choice(["", " "]).join(rng.choices(pieces, k=rng.randint(1, 10)))
        else:
            characters = list(to_text(languages.random_expression(rng, LANGUAGE, 2)))
            for _ in range(rng.randint(1, 3)):
                characters[rng.randrange(len(characters))] = rng.choice(pieces)
            text = "".join(characters)
        try:
            found = parse(text, tokenizer, LANGUAGE)
        except ExpressionError as error:
            refused += 1
            assert 1 <= error.position <= len(text) + 1 and len(str(error)) < 900
            continue
        read += 1
        check_simplified(found)
        assert parse(to_text(found), tokenizer, LANGUAGE._replace(max_depth=64)) == found, text
    assert read > 2_000 and refused > 5_000
