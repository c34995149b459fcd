"""A vocabulary file that changes under a running topology: term ids are ranks in it, so no task may continue with another one."""

import pytest

from dskype.bolts.distribution_bolt import DistributionBolt
from dskype.spouts.text import Tokenizer
from dskype.spouts.vocabulary import Vocabulary
from dskype.topology.errors import IllegalArgumentException
from dskype.topology.planning.validation import validate_submission

from .harness import TOPICS, Simulation, topology

pytestmark = pytest.mark.long

LAKE = {"type": "topk", "text": "lake", "lat": 0, "lon": 0, "k": 3, "alpha": 0.5}


def write(file, *texts):
    Vocabulary.build(texts, Tokenizer()).save(file)
    return str(file)


def message(simulation, text):
    simulation.message({"text": text, "lat": 0, "lon": 0})


def crash(simulation, component):
    simulation.sim._restart(simulation.sim._queries[component])


@pytest.mark.parametrize("distributor", ["hashing", "prefix"])
def test_after_a_crash_a_vocabulary_that_was_rewritten_in_place_is_refused(tmp_path, distributor):
    file = tmp_path / "words.tsv"
    simulation = Simulation({"dskype.vocabulary": write(file, "lake", "lake st", "st"), "dskype.distributor": distributor})
    simulation.subscription("lake", LAKE)
    for _ in range(2):  # the second one comes when a snapshot is due
        message(simulation, "by the lake")
        simulation.drain()
    before = Vocabulary.load(file).digest
    write(file, "st", "lake st", "lake lake", "lake")  # the other way round: "st" has the id that "lake" had
    message(simulation, "st paul")
    with pytest.raises(IllegalArgumentException) as refused:
        crash(simulation, "distribution-bolt")
        simulation.drain()
    text = str(refused.value)
    assert before in text and Vocabulary.load(file).digest in text and "'distribution-bolt'" in text and "hint: " in text and str(file) in text
    assert [delta["message"] for _, delta, _ in simulation.json(TOPICS.results)] == ["0-0", "0-1"]


def test_after_a_crash_the_same_vocabulary_is_taken_wherever_it_lies_now(tmp_path):
    file = tmp_path / "words.tsv"
    simulation = Simulation({"dskype.vocabulary": write(file, "lake", "lake st", "st")})
    simulation.subscription("lake", LAKE)
    for _ in range(2):  # the second one comes when a snapshot is due
        message(simulation, "by the lake")
        simulation.drain()
    write(file, "lake", "lake st", "st")
    crash(simulation, "distribution-bolt")
    message(simulation, "another lake")
    simulation.drain()
    assert [delta["message"] for _, delta, _ in simulation.json(TOPICS.results)] == ["0-0", "0-1", "0-2"]


def test_the_distribution_bolt_tells_all_files_that_it_reads(tmp_path):
    sample = {"messages": "m.jsonl", "subscriptions": "s.jsonl"}
    for conf, expected in (
        ({}, {}),
        ({"dskype.vocabulary": "v.tsv"}, {("dskype.vocabulary",): "v.tsv"}),
        ({"dskype.distributor": "prefix", "dskype.distributor.options": {"plan": "p.json"}}, {("dskype.distributor.options", "plan"): "p.json"}),
        (
            {"dskype.distributor": "prefix", "dskype.distributor.options": {"sample": sample}},
            {("dskype.distributor.options", "sample", kind): file for kind, file in sample.items()},
        ),
    ):
        assert DistributionBolt().files(conf) == expected
        validate_submission("dskype", {"topology.acker.executors": 0, **conf}, topology({}))  # whether they are there is for the start to say
