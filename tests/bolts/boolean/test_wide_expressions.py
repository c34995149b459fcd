"""Wide expressions in the default index: postings and bytes grow in proportion to the number of alternatives."""

import numpy as np
import pytest

from dskype.bolts.boolean import make_index
from dskype.bolts.boolean.lanes import _kernels as kernels
from dskype.bolts.boolean.lanes.checks import _Check
from dskype.spouts.settings import Settings

from .oracle import messages_of, pairs

WIDTHS = (1, 16, 64, 256)
SUBSCRIPTIONS = 64
OTHERS = 1 << 20
"""Terms from here on are more frequent than all alternatives."""


def any_of(terms):
    return ["or", *terms]


def any_pair_of(terms):
    return ["or", *(["and", term, OTHERS + term] for term in terms)]


def one_and_any_of(terms):
    return ["and", OTHERS - 1, ["or", *terms]]


def filled(width, shape):
    """Return an index of subscriptions with expressions of ``width`` alternatives, none of which occurs twice; how many postings it has, and bytes more than without them."""
    index = make_index(Settings().boolean_index)
    empty = index.memory_bytes
    expressions = [shape(range(slot * width, (slot + 1) * width)) for slot in range(SUBSCRIPTIONS)]
    index.insert_many(range(SUBSCRIPTIONS), np.tile([0.0, 0.0, 1.0, 1.0], (SUBSCRIPTIONS, 1)), expressions)
    check = _Check(kernels.views(index._stores))
    check.all(len(index))
    return index, len(check.postings), index.memory_bytes - empty


@pytest.mark.long
@pytest.mark.parametrize(("shape", "postings_each"), [(any_of, None), (any_pair_of, None), (one_and_any_of, 1)])
def test_postings_and_bytes_are_in_proportion_to_the_width_of_an_or(shape, postings_each):
    sizes = {}
    for width in WIDTHS:
        index, postings, sizes[width] = filled(width, shape)
        assert postings == SUBSCRIPTIONS * (postings_each or width), "one for each alternative, unless one term is needed anyway"
        last = width * SUBSCRIPTIONS - 1
        assert pairs(index.match(messages_of([(0.5, 0.5, [last, OTHERS - 1, OTHERS + last])]))) == [(0, SUBSCRIPTIONS - 1)]
    assert sizes[1] <= sizes[16]
    for width in (64, 256):
        assert sizes[width] <= 1.5 * sizes[16] * width / 16
