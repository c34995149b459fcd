"""Topologies whose words are analyzed: what matches, with fields, phrases and prefixes, and what is refused after a crash."""

import pytest

from dskype.distribution import DISTRIBUTORS
from dskype.topology.errors import IllegalArgumentException
from dskype.topology.simulated.faults import Faults

from .harness import TOPICS, Simulation, options_of

pytestmark = pytest.mark.long

ENGLISH = {"language": "english", "stop": True, "fold_accents": True, "synonyms": ["coffee, espresso"]}
FIELDS = {"dskype.text.fields": {"title": ENGLISH, "body": "plain"}}
TEXTS = [
    {"title": "Two espressos", "body": "at the mills"},
    {"title": "The coffee of the houses", "body": "coffees"},
    {"title": "Cafe\u0301s and a mill", "body": "coffee housing"},
    {"title": "state of the art", "body": "tea house"},
]
EXPECTED = {
    "coffee": {0, 1, 2},
    "title:coffees": {0, 1},
    "body:coffees": {1},
    "mill": {2},
    "mills": {0, 2},
    "cafe OR body:mills": {0, 2},
    "NOT Cafés": {0, 1, 3},
    '"coffee of the house"': {1},
    '"state of any arts"': {3},
    '"coffee house"': set(),
    "title:house": {1},
    "hous*": {1, 2, 3},
    "houses*": {1},
    "coff*": {1, 2},
}
CONF = {"dskype.boolean.prefixes": True, "dskype.boolean.wordless": True, **FIELDS}


@pytest.mark.parametrize("name", sorted(DISTRIBUTORS))
def test_messages_match_what_their_fields_analyzers_make_of_the_words(name):
    conf = {**CONF, "dskype.distributor": name, "dskype.distributor.options": options_of(name, 2)}
    simulation = Simulation(conf, {"subscription-bolt": 2, "distribution-bolt": 2}, seed=1, faults=Faults.heavy())
    for number, expression in enumerate(EXPECTED):
        simulation.subscription(f"s{number}", {"type": "boolean", "bbox": [-9, -9, 9, 9], "expression": expression})
    simulation.subscription("mills", {"type": "boolean", "bbox": [-9, -9, 9, 9], "keywords": ["Coffees", "houses"]})
    simulation.drain(12)
    for number, text in enumerate(TEXTS):
        simulation.message({"id": number, "text": text, "lat": 0, "lon": 0})
        simulation.drain(2)
    simulation.rest()
    found = {id: set() for id in [*(f"s{number}" for number in range(len(EXPECTED))), "mills"]}
    for key, match, _ in simulation.json(TOPICS.results):
        found[key].add(match["message"])
    assert found == {"mills": {1}, **{f"s{number}": expected for number, expected in enumerate(EXPECTED.values())}}


def test_a_topk_subscription_finds_words_of_every_field():
    simulation = Simulation(FIELDS)
    simulation.subscription("mills", {"type": "topk", "text": "Mills", "lat": 0, "lon": 0, "k": 3, "alpha": 0.5})
    simulation.drain()
    for number, text in enumerate(TEXTS):
        simulation.message({"id": number, "text": text, "lat": 0, "lon": 0})
    simulation.rest()
    assert {delta["message"] for _, delta, _ in simulation.json(TOPICS.results)} == {0, 2}


def test_after_a_crash_other_synonyms_are_refused(tmp_path):
    file = tmp_path / "synonyms.txt"
    file.write_text("coffee, espresso\n")
    simulation = Simulation({"dskype.text.analyzer": {"synonyms": str(file)}})
    simulation.subscription("s", {"type": "boolean", "bbox": [-9, -9, 9, 9], "expression": "espresso"})
    for _ in range(2):  # the second one comes when a snapshot is due
        simulation.message({"text": "coffee", "lat": 0, "lon": 0})
        simulation.drain()
    assert len(simulation.json(TOPICS.results)) == 2
    file.write_text("coffee, tea\n")
    simulation.message({"text": "espresso", "lat": 0, "lon": 0})
    with pytest.raises(IllegalArgumentException, match="distribution-bolt: the state was made with another text analyzer.*expected {.*given: '{.*--fresh"):
        simulation.sim._restart(simulation.sim._queries["distribution-bolt"])
        simulation.drain()
