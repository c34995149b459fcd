"""Projects of streamparse on the command line."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from dskype.deploy.cli import main as cli
from dskype.deploy.cli.streamparse_file import is_topology_file

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
    return cli.main(["local", str(project / "topologies" / file), "--dry-run", "--no-splash", *options])


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
        ("sp_wordcount.py:Other", (), "Expected one class of a topology. given: 'Other'; legal: WordCount"),
        ("sp_nothing.py", (), "is not a file"),
        ("sp_broken.py", (), "cannot be imported: ZeroDivisionError"),
        ("sp_empty.py", (), "the file has none"),
        ("json.py", (), "has the name of a module that is installed"),
    ],
)
def test_what_cannot_be_loaded_is_explained(project, capsys, file, options, words):
    (project / "topologies/sp_broken.py").write_text("1 / 0")
    for name in ("sp_empty.py", "json.py"):
        (project / "topologies" / name).write_text("")
    assert run(project, file, *options) == 1
    assert words in capsys.readouterr().err


def test_only_python_files_are_taken_for_topologies_of_streamparse():
    assert is_topology_file("a/b.py") and is_topology_file("a/b.py:Class")
    assert not is_topology_file("a/b.yaml") and not is_topology_file("b.pyx.yaml")
