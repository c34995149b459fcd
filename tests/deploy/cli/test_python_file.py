"""Python files on the command line: projects of streamparse, and programs that submit a topology."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from dskype.deploy.cli import main as cli
from dskype.deploy.cli.python_file import is_python_file, load
from dskype.topology import TopologyError
from dskype.topology.local import LocalCluster
from dskype.topology.submitter import StormSubmitter

SPOUT = """
from dskype.topology.streamparse import Spout

class Words(Spout):
    outputs = ["word"]

    def next_tuple(self):
        self.emit(["a"])
"""
TOPOLOGY = """
from dskype.topology.streamparse import Bolt, Grouping, Topology
from sp_spouts.words import Words

class Count(Bolt):
    outputs = ["word", "count"]

    def process(self, tup):
        self.emit([tup.values.word, 1])

class WordCount(Topology):
    config = {"topology.workers": 2}
    words = Words.spec(par={"prod": 3, "beta": 1})
    count = Count.spec(inputs={words: Grouping.fields("word")}, par=2)
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project in streamparse's layout."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name, text in (("src/sp_spouts/words.py", SPOUT), ("topologies/sp_wordcount.py", TOPOLOGY)):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith("sp_")]:
        del sys.modules[name]


def run(project: Path, file: str, *options: str) -> int:
    return cli.main(["local", str(project / "topologies" / file), *options, "--dry-run", "--no-splash"])


def test_the_topology_of_a_project_is_built_and_described(project, capsys):
    assert run(project, "sp_wordcount.py", "--environment", "prod") == 0
    out = capsys.readouterr().out
    assert "Topology Name: sp_wordcount" in out and "words [3] (Words)" in out and "words --FieldsGrouping--> count" in out
    assert run(project, "sp_wordcount.py:WordCount", "--environment", "beta") == 0
    assert "words [1] (Words)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("file", "options", "words"),
    [
        ("sp_wordcount.py", (), "depends on the environment, given: None; legal: prod, beta"),
        ("sp_wordcount.py:Other", (), "Expected one class of a topology, or a function main. given: 'Other'; legal: WordCount"),
        ("sp_nothing.py", (), "is not a file"),
        ("sp_broken.py", (), "cannot be imported: ZeroDivisionError"),
        ("sp_original.py", (), "No module named 'streamparse'; hint: here these classes are in another module: from dskype.topology.streamparse import ..."),
        ("sp_empty.py", (), "the file has none"),
        ("json.py", (), "has the name of a module that is installed"),
    ],
)
def test_what_cannot_be_loaded_is_explained(project, capsys, file, options, words):
    (project / "topologies/sp_broken.py").write_text("1 / 0")
    (project / "topologies/sp_original.py").write_text("from streamparse.bolt import Bolt")
    for name in ("sp_empty.py", "json.py"):
        (project / "topologies" / name).write_text("")
    assert run(project, file, *options) == 1
    assert words in capsys.readouterr().err


def test_only_python_files_are_taken_for_topologies_of_streamparse():
    assert is_python_file("a/b.py") and is_python_file("a/b.py:Class")
    assert not is_python_file("a/b.yaml") and not is_python_file("b.pyx.yaml")


PROGRAM = """
import sys
from dskype.topology import Config, Fields, TopologyBuilder
from dskype.topology.submitter import StormSubmitter, SubmitOptions
from dskype.topology.testing import TestWordCounter, TestWordSpout

def main(args):
    builder = TopologyBuilder()
    builder.set_spout("words", TestWordSpout(), 2)
    builder.set_bolt("count", TestWordCounter()).fields_grouping("words", Fields("word"))
    conf = Config()
    conf.set_num_workers(3)
    for name in args:
        StormSubmitter.submit_topology(name, conf, builder.create_topology())

def paused():
    builder = TopologyBuilder()
    builder.set_spout("words", TestWordSpout())
    StormSubmitter.submit_topology("paused", {}, builder.create_topology(), SubmitOptions("INACTIVE"))

def odd():
    StormSubmitter.submit_topology("odd", {}, None)

def broken(args):
    1 / 0
"""


@pytest.fixture
def program(project):
    (project / "topologies/sp_program.py").write_text(PROGRAM)
    return project


def test_a_program_submits_the_topology_that_it_builds(program, capsys):
    assert run(program, "sp_program.py", "counted") == 0
    out = capsys.readouterr().out
    assert "Topology Name: counted" in out and "words [2] (TestWordSpout)" in out and "count" in out
    loaded = load(str(program / "topologies/sp_program.py"), None, {"topology.workers": 5}, ["a"])
    assert loaded.flux.config == {"topology.workers": 5} and loaded.active and loaded.flux.modules == ["sp_program"]
    assert not load(str(program / "topologies/sp_program.py:paused"), None, {}).active


@pytest.mark.parametrize(
    ("file", "options", "words"),
    [
        ("sp_program.py", (), "main of"),
        ("sp_program.py", ("a", "b"), "has to submit exactly one topology. given: ['a', 'b']"),
        ("sp_program.py:broken", (), "raised ZeroDivisionError: division by zero"),
        ("sp_program.py:odd", (), "Not a topology"),
        ("sp_program.py:nothing", (), "Expected one class of a topology, or a function main"),
        ("sp_wordcount.py", ("argument",), "Only a program takes arguments"),
    ],
)
def test_what_a_program_does_wrong_is_explained(program, capsys, file, options, words):
    assert run(program, file, *options) == 1
    assert words in capsys.readouterr().err


def test_outside_the_command_nothing_is_submitted():
    with pytest.raises(TopologyError, match="Must submit topologies using the 'dskype' command"):
        StormSubmitter.submit_topology("t", {}, None)


@pytest.fixture
def begun(tmp_path, monkeypatch):
    """The topology of a project that ``dskype quickstart`` has begun."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    assert cli.main(["quickstart", "sp-new"]) == 0
    yield "sp-new/topologies/wordcount.py"
    for name in [name for name in sys.modules if name.startswith("sp_") or name == "wordcount"]:
        del sys.modules[name]


def test_the_project_of_quickstart_runs(begun, capsys):
    assert cli.main(["local", begun, "--dry-run", "--no-splash"]) == 0
    assert "word_spout --FieldsGrouping--> count_bolt" in capsys.readouterr().out
    loaded = load(begun, None, {"topology.emulator.pulse.max.tuples": 40})
    with LocalCluster(simulated=True) as cluster:
        handle = cluster.submit_topology(loaded.flux.name, loaded.flux.config, loaded.flux.topology)
        cluster.advance_cluster_time(1)
        emitted = handle.stats.total("word_spout", "emitted", "default")
        assert emitted >= 40 and handle.stats.total("count_bolt", "emitted", "default") == emitted
        counts = {word: n for bolt in handle.backend.components("count_bolt") for word, n in bolt._user.counter.items()}
        assert sorted(counts) == ["cat", "dog", "elephant", "zebra"] and counts["dog"] == -(-emitted // 4) and sum(counts.values()) == emitted
        assert not handle.stats.errors


@pytest.mark.parametrize(
    ("name", "words"),
    [("sp-new", "sp-new exists"), ("2 words", "Python takes for a package"), ("class", "Python takes for a package"), ("json", "no installed package has")],
)
def test_quickstart_refuses_a_name_that_cannot_be_a_package_of_its_own(begun, capsys, name, words):
    assert cli.main(["quickstart", name]) == 1
    assert words in capsys.readouterr().err and [path.name for path in Path.cwd().iterdir()] == ["sp-new"]


@pytest.mark.parametrize("verb", ["update_virtualenv", "run", "slot_usage"])
def test_commands_of_sparse_without_a_counterpart_are_refused_by_name(verb, capsys):
    assert cli.main([verb]) != 0
    assert f"'sparse {verb}' is not part of the emulator" in capsys.readouterr().err
