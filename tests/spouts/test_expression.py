"""Expressions against Python's own, evaluated over all sets of terms."""

import doctest
import itertools
import random

import pytest

from dskype.spouts import expression as module
from dskype.spouts.expression import ExpressionError, from_keywords, map_terms, parse, satisfies, terms, to_text
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


@pytest.mark.parametrize("text, expected", [
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
])
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
    parts = ["(", ")", " ", " AND ", " OR ", '"', "a", "the", "NOT ", "-", "é", "&&", "\ud800", "\u0000", "7"]
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
