import itertools

import pytest

from dskype.bolts.boolean.programs import AND, GENERAL, OR, compile_expression
from dskype.distribution.routing.triggers import normalize, triggers
from dskype.topology import IllegalArgumentException
from tests.naive import satisfies

from .oracle import any_expression, seeded


def run(kind, program, terms):
    """Evaluate a program as its documentation says."""
    if kind != GENERAL:
        return (all if kind == AND else any)(term in terms for term in program)
    literals = program[1 + program[0] :]
    size, at, asked = len(literals) // 2, 0, set()
    while at < size:
        assert at not in asked, "a literal is asked for once at most"
        asked.add(at)
        jumps = literals[2 * at + 1]
        at = jumps >> 32 if literals[2 * at] in terms else jumps & 0xFFFFFFFF
    assert at in (size, size + 1)
    return at == size


@pytest.mark.parametrize("seed", range(5))
def test_programs_say_what_their_expressions_say_for_every_set_of_terms(seed):
    rng = seeded(seed)
    for _ in range(150):
        expression = any_expression(rng, 6, 4)
        kind, program = compile_expression(expression)
        normal = normalize(expression)
        announced = triggers(normal)
        for size in range(5):
            for terms in itertools.combinations([0, 1, 2, 3, 4, 5, -1], size):
                wanted = satisfies(expression, set(terms))
                assert run(kind, program, set(terms)) == wanted
                assert not wanted or announced & set(terms), "a satisfying set without a trigger"
        stored = {AND: program[:1], OR: program, GENERAL: program[1 : 1 + program[0]]}[kind]
        assert list(stored) == sorted(announced)


@pytest.mark.parametrize(
    ("expression", "compiled"),
    [
        (7, (AND, [7])),
        (["and", 9, 3, 5, 3], (AND, [3, 5, 9])),
        (["or", 9, 3, ["or", 5, 3]], (OR, [3, 5, 9])),
        (["and", ["or", 4]], (AND, [4])),
        (["and", -5, 2], (AND, [-5, 2])),
        # (8 or 9) and 5: 5 alone is the trigger and is asked for first; then 9, the more frequent one, then 8.
        (["and", ["or", 8, 9], 5], (GENERAL, [1, 5, 5, 1 << 32 | 4, 9, 3 << 32 | 2, 8, 3 << 32 | 4])),
    ],
)
def test_the_programs_of_some_expressions(expression, compiled):
    kind, program = compile_expression(expression)
    assert (kind, list(program)) == compiled


def test_an_and_is_filed_under_the_child_with_the_fewest_and_rarest_triggers():
    assert triggers(normalize(["and", ["or", 1, 2], 50])) == {50}
    assert triggers(normalize(["and", ["or", 1, 2], ["or", 3, 4]])) == {1, 2}
    assert triggers(normalize(["and", 8, 7, -3])) == {-3}
    assert triggers(normalize(["or", ["and", 8, 7], ["and", 8, 6], 9])) == {6, 7, 9}


@pytest.mark.parametrize("expression", [None, "and", [], ["and"], ["or", []], ["not", 1], ["and", "x"], [1, 2], 1.0, False])
def test_malformed_expressions_are_refused(expression):
    with pytest.raises(IllegalArgumentException, match="cannot be indexed"):
        compile_expression(expression)
