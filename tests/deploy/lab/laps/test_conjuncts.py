import itertools

import pytest

from dskype.deploy.lab.laps.conjuncts import GROWTH, decompose
from dskype.topology import IllegalArgumentException
from tests.bolts.boolean.oracle import any_expression, seeded
from tests.naive import satisfies


def size_of(expression):
    return sum(map(size_of, expression[1:])) if isinstance(expression, list) else 1


def says(decomposed, terms):
    """Evaluate a decomposed expression as its documentation says."""
    if not any(set(conjunct) <= terms for conjunct in decomposed.conjuncts):
        return False
    if decomposed.program is None:
        return True
    size, at = len(decomposed.program) // 3, 0
    while at < size:
        term, there, missing = decomposed.program[3 * at : 3 * at + 3]
        at = there if term in terms else missing
    return at == size


@pytest.mark.parametrize("seed", range(5))
def test_conjuncts_say_what_their_expression_says_for_every_set_of_terms(seed):
    rng = seeded(seed)
    for _ in range(200):
        expression = any_expression(rng, 6, 4)
        found = decompose(expression)
        assert all(list(conjunct) == sorted(set(conjunct)) and len(conjunct) for conjunct in found.conjuncts)
        assert len({tuple(conjunct) for conjunct in found.conjuncts}) == len(found.conjuncts)
        for size in range(6):
            for terms in itertools.combinations([0, 1, 2, 3, 4, 5, -1], size):
                assert says(found, set(terms)) == satisfies(expression, set(terms))


@pytest.mark.parametrize(
    ("expression", "conjuncts"),
    [
        (7, [[7]]),
        (["and", 9, 3, 9], [[3, 9]]),
        (["or", 9, 3, 9], [[9], [3]]),
        (["and", ["or", 1, 2], 3], [[1, 3], [2, 3]]),  # the example of LAPS, section 2.1
        (["or", 1, ["and", 1, 2]], [[1]]),
        (["and", ["or", 1, 2], ["or", 1, 3]], [[1], [2, 3]]),
    ],
)
def test_the_conjuncts_of_some_expressions(expression, conjuncts):
    assert decompose(expression) == (conjuncts, None)


def test_an_expression_that_would_blow_up_is_filed_under_its_triggers():
    expression = ["and", *(["or", 2 * i, 2 * i + 1] for i in range(100))]
    conjuncts, program = decompose(expression)
    assert conjuncts == [[0], [1]]
    assert program is not None and len(program) == 3 * 200


@pytest.mark.parametrize("seed", range(3))
def test_what_comes_out_is_in_proportion_to_what_goes_in(seed):
    rng = seeded(30 + seed)
    for _ in range(300):
        expression = any_expression(rng, 200, 5)
        conjuncts, program = decompose(expression)
        most = size_of(expression) * (GROWTH if program is None else 1)
        assert sum(map(len, conjuncts)) <= most and len(program or []) <= 3 * size_of(expression)


def test_a_wide_or_has_a_conjunct_for_each_child():
    assert len(decompose(["or", *range(256)]).conjuncts) == 256
    assert len(decompose(["or", *(["and", 3 * i, 3 * i + 1, 3 * i + 2] for i in range(100))]).conjuncts) == 100


@pytest.mark.parametrize("expression", [None, [], ["and"], ["or", []], ["not", 1], ["and", "x"], [1, 2], 1.0, False, ["and", True]])
def test_malformed_expressions_are_refused(expression):
    with pytest.raises(IllegalArgumentException, match="cannot be indexed"):
        decompose(expression)
