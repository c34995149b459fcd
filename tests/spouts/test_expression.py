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
from dskype.spouts.expression import ExpressionError, from_keywords, map_terms, parse, satisfies, terms, to_text
from dskype.spouts.records import BooleanSubscription
from dskype.spouts.text import Tokenizer
from dskype.topology.errors import IllegalArgumentException
from tests import naive

WORDS = ["a", "b", "c", "d"]


def random_source(rng, depth):
    """Return (an expression as a user writes it, the same in Python, over a set ``s``)."""
    if depth == 0 or rng.random() < 0.3:
        some = rng.choices(WORDS, k=rng.choice([1, 1, 1, 2]))
        python = " and ".join(f"{w!r} in s" for w in some)
        written = rng.choice(["{}", "{}", " {} "]).format(some[0].upper() if rng.random() < 0.3 else some[0])
        return (written if len(some) == 1 else f'"{rng.choice([" ", ", "]).join(some)}"'), f"({python})"
    parts = [random_source(rng, depth - 1) for _ in range(rng.choice([1, 2, 2, 3]))]
    operators = [rng.choice(["and", "AND", "or", "Or"]) for _ in parts[1:]]
    written = parts[0][0] + "".join(f" {o} {p[0]}" for o, p in zip(operators, parts[1:]))
    python = parts[0][1] + "".join(f" {o.lower()} {p[1]}" for o, p in zip(operators, parts[1:]))
    return f"({written})", f"({python})"


def check_simplified(e, inside=None):
    if isinstance(e, list):
        assert e[0] in ("and", "or") and e[0] != inside and len(e) > 2
        assert all(x != y for x, y in itertools.combinations(e[1:], 2))
        for part in e[1:]:
            check_simplified(part, e[0])


def test_a_random_expression_means_what_the_same_in_python_means():
    rng = random.Random(1)
    sets = [set(s) for n in range(5) for s in itertools.combinations(WORDS, n)]
    for _ in range(1500):
        written, python = random_source(rng, 4)
        found = parse(written, Tokenizer())
        check_simplified(found)
        code = compile(python, "", "eval")
        for s in sets:
            assert satisfies(found, s) == naive.satisfies(found, s) == eval(code, {"s": s}), written


def test_a_written_expression_is_read_back():
    rng = random.Random(2)
    for _ in range(500):
        found = parse(random_source(rng, 4)[0], Tokenizer())
        assert parse(to_text(found), Tokenizer()) == found
    for text in ('"and" OR "Not" AND "or"', '"wi-fi"', "𠀀 or ΐ"):
        found = parse(text, Tokenizer())
        assert parse(to_text(found), Tokenizer()) == found


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
        ('"late night" OR tea', ["or", ["and", "late", "night"], "tea"]),
        ('"late night" AND tea', ["and", "late", "night", "tea"]),
        ('"late late"', "late"),
        ('"the tea (AND) or"', ["and", "tea", "and", "or"]),
        ("wi-fi", ["and", "wi", "fi"]),
        ("Straße", "strasse"),
        ('"AND" and "not"', ["and", "and", "not"]),
        ("android or orchid or nothing", ["or", "android", "orchid", "nothing"]),
        ("東京\u3000AND\tcafé", ["and", "東京", "café"]),
        ("（coffee OR tea） AND wifi", ["and", ["or", "coffee", "tea"], "wifi"]),
        ("coffee ＡＮＤ（tea ｏｒ wifi）", ["and", "coffee", ["or", "tea", "wifi"]]),
        ("“late night” OR «green tea»", ["or", ["and", "late", "night"], ["and", "green", "tea"]]),
        ("「late night」", ["and", "late", "night"]),
        ("\ufeffcoffee A\u00adND kranken\u00adhaus", ["and", "coffee", "krankenhaus"]),
        ("tea\u200bOR\u200bcoffee", ["or", "tea", "coffee"]),
        ('"-tea*" AND "title:[x]"', ["and", "tea", "title", "x"]),
        ("AT&T AND 12:30 AND don’t AND C++", ["and", "at", "t", "12", "30", "don", "c"]),
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
    ("NOT coffee", "no negation at position 1.*given: 'NOT'; legal: .*hint: to search for the word, put it in quotes"),
    ("tea AND not coffee", "no negation at position 9"),
    ("tea AND -coffee", "no negation at position 9.*given: '-coffee'"),
    ("!coffee", "no negation at position 1"),
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
    ("coffee AND −tea", "no negation at position 12 of the expression; given: '−tea'; legal: .*hint: to search for the word"),
    *((f"tea OR {sign}coffee", f"no negation at position 8.*given: '{sign}coffee'") for sign in "–—‐‑－﹣⁻¬!！~～"),
    ("a AND \u200e-tea", "no negation at position 8"),
    ("[coffee OR tea] AND wifi", r"no '\[' in a word at position 1 of the expression; given: '\[coffee'; legal: words.*hint: use \( and \)"),
    ("{coffee}", r"no '\{' in a word at position 1"),
    ("tea OR 【coffee】", "no '【' in a word at position 8"),
    ("coff* AND wifi", r"no '\*' in a word at position 5 of the expression; given: 'coff\*'; legal: .*hint: words are compared whole"),
    ("（coff＊）", r"no '\*' in a word at position 6 of the expression; given: 'coff＊'"),
    ("coff?e", r"no '\?' in a word at position 5"),
    ("coffee~2", "no '~' in a word at position 7"),
    ('"late night"~2', "AND or OR after|no negation"),
    ("coffee^3", r"no '\^' in a word at position 7"),
    ("title:coffee", "no ':' in a word at position 6.*hint: there are no fields"),
    ("tea=green", "no '=' in a word at position 4"),
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


def test_parentheses_may_only_be_so_deep():
    assert parse("(" * 16 + "a" + ")" * 16, Tokenizer()) == "a"
    with pytest.raises(ExpressionError, match="at most 16 open parentheses at position 17 of the expression; given: 17"):
        parse("(" * 17 + "a" + ")" * 17, Tokenizer())
    with pytest.raises(ExpressionError, match="at most 2 open parentheses at position 3"):
        parse("(((a)))", Tokenizer(), max_depth=2)
    with pytest.raises(ExpressionError, match="at most 16"):
        parse("(" * 1_000_000, Tokenizer())


def test_there_may_only_be_so_many_terms():
    assert len(parse(" OR ".join(f"w{i}" for i in range(256)), Tokenizer())) == 257
    with pytest.raises(ExpressionError, match="at most 256 terms at position .* of the expression; given: 257"):
        parse(" OR ".join(f"w{i}" for i in range(257)), Tokenizer())
    with pytest.raises(ExpressionError, match="at most 3 terms at position 6"):
        parse('a OR "b c d"', Tokenizer(), max_terms=3)


def test_random_texts_are_read_or_refused_and_nothing_else():
    rng = random.Random(3)
    parts = ["(", ")", " ", " AND ", " OR ", '"', "a", "the", "NOT ", "-", "é", "&&", "\ud800", "\u0000", "7", "（", "”", "−", "\u00ad", "*", "☀️", "\u0301"]
    read = 0
    for _ in range(5000):
        text = "".join(rng.choices(parts, k=rng.randrange(12)))
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


def test_terms_are_listed_once_and_mapped_everywhere():
    e = ["or", "a", ["and", "b", "a"]]
    assert terms(e) == ["a", "b"] and terms("a") == ["a"]
    assert map_terms(e, {"a": -7, "b": 2}.get) == ["or", -7, ["and", 2, -7]] and map_terms("b", str.upper) == "B"
    assert e == ["or", "a", ["and", "b", "a"]]
    assert satisfies(map_terms(e, {"a": -7, "b": 2}.get), {-7}) and not satisfies(7, {-7})


def test_the_examples_run():
    assert doctest.testmod(module).failed == 0


def depth_of(e):
    return 1 + max(map(depth_of, e[1:])) if isinstance(e, list) else 0


DEEP = "(b OR c AND " * 16 + "d" + ")" * 16
"""As deep as the limit allows."""


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
            text = list(random_source(rng, 3)[0])
            for _ in range(rng.randint(1, 3)):
                text[rng.randrange(len(text))] = rng.choice(pieces)
            text = "".join(text)
        try:
            found = parse(text, Tokenizer(), max_depth=3, max_terms=8)
        except ExpressionError as error:
            refused += 1
            assert 1 <= error.position <= len(text) + 1 and "\n" not in str(error) and len(str(error)) < 600
            continue
        read += 1
        check_simplified(found)
        assert len(terms(found)) <= 8 and depth_of(found) <= 2 * 3 + 2
        assert parse(to_text(found), Tokenizer(), max_depth=8) == found
        kind, program = compile_expression(map_terms(found, {t: i - 1 for i, t in enumerate(terms(found))}.__getitem__))
        assert kind in (1, 2, 3) and len(program) <= 1 + 3 * 8
    assert refused > 1_000 and read > 1_000


def test_the_deepest_and_the_longest_expression_are_handled_on_a_small_stack():
    """Whatever the limits let through must not come near the end of the stack, in any of the functions that recurse."""
    longest = " OR ".join(f"(w{i} AND v{i})" for i in range(128))
    limit, frames = sys.getrecursionlimit(), len(inspect.stack())
    sys.setrecursionlimit(frames + 150)
    try:
        for text in (DEEP, longest, " AND ".join(f"w{i}" for i in range(256)), "(" * 16 + "a" + ")" * 16):
            found = parse(text, Tokenizer())
            numbered = map_terms(found, {t: i for i, t in enumerate(terms(found))}.__getitem__)
            assert satisfies(found, set(terms(found))) and not satisfies(found, set())
            assert len(compile_expression(numbered)[1]) <= 1 + 3 * 256
            assert parse(to_text(found), Tokenizer(), max_depth=64) == found
            BooleanSubscription.from_record(json.loads(json.dumps(BooleanSubscription("s", (0, 0, 1, 1), found).to_record())))
    finally:
        sys.setrecursionlimit(limit)


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
