"""The texts of errors."""

from __future__ import annotations

import pickle

import pytest

from dskype.topology.errors import FailedException, IllegalArgumentException, InvalidTopologyException, TopologyError, explain


@pytest.mark.parametrize("kind", [TopologyError, IllegalArgumentException, InvalidTopologyException])
def test_an_error_says_what_was_given_what_is_legal_and_what_to_do(kind):
    facts = {"given": None, "component": "split", "legal": "an integer >= 1", "hint": "leave it out"}
    error = kind("Parallelism must be positive.", **facts)
    assert str(error) == explain("Parallelism must be positive.", **facts)
    assert str(error) == "Parallelism must be positive. given: None; component: 'split'; legal: an integer >= 1; hint: leave it out"
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind and again.args == error.args


def test_an_error_without_facts_keeps_what_it_was_made_of():
    for args in ((), ("text",), ("text", 1), (7,), (None,)):
        assert FailedException(*args).args == args
    assert str(TopologyError("nothing follows", hint=None)) == "nothing follows"
