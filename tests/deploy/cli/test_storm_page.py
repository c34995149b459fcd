"""What docs/guides/storm.md shows for someone who comes from Storm or streamparse runs as it stands there, topologies on the simulated transport."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from dskype.deploy.cli import main as cli
from dskype.deploy.cli.python_file import load
from dskype.topology import Fields, TopologyBuilder, flux
from dskype.topology.local import LocalCluster
from dskype.topology.testing import TestWordCounter, TestWordSpout

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/guides/storm.md").read_text()


def example(language: str, word: str) -> str:
    """Return the one piece of code that has this word in it."""
    [found] = [code for code in re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL) if word in code]
    return found


def executed(loaded, component: str) -> int:
    """Run a topology for some seconds; return how many tuples a component has executed."""
    with LocalCluster(simulated=True) as cluster, cluster.submit_topology(loaded.name, loaded.config, loaded.topology) as topology:
        cluster.advance_cluster_time(10)
        errors = [error["error"] for error in topology.stats.errors]
        assert not errors
        return topology.stats.total(component, "executed")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty working folder; what is imported from it is forgotten."""
    known = set(sys.modules)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    for name in set(sys.modules) - known:
        if str(getattr(sys.modules[name], "__file__", None)).startswith(str(tmp_path)):
            del sys.modules[name]


def test_a_flux_file_with_a_class_of_mybolts(folder, capsys):
    spouts = 'name: t\nspouts:\n  - id: "words"\n    className: "org.apache.storm.testing.TestWordSpout"\n'
    streams = 'streams:\n  - {from: "words", to: "exclaim", grouping: {type: SHUFFLE}}\n'
    (folder / "topology.yaml").write_text(spouts + example("yaml", "ExclaimBolt") + streams)
    (folder / "mybolts.py").write_text(example("python", "class ExclaimBolt"))
    assert cli.main(["local", "topology.yaml", "--dry-run"]) == 1
    assert "if it is yours, allow its module: --allow-module mybolts" in capsys.readouterr().err
    assert cli.main(["local", "topology.yaml", "--allow-module", "mybolts", "--dry-run"]) == 0
    assert "exclaim [1] (mybolts.ExclaimBolt)" in capsys.readouterr().out
    assert executed(flux.load("topology.yaml", allow_modules=["mybolts"]), "exclaim") > 50


def test_the_java_topology(folder):
    (folder / "exclaim.py").write_text(example("python", "class Exclaim(Bolt)"))
    loaded = load("exclaim.py", None, {}, ["mine"])
    assert loaded.flux.name == "mine" and loaded.flux.config["topology.workers"] == 2
    assert executed(loaded.flux, "exclaim") > 50


def names_of(word: str) -> dict:
    """Run the one Python example with this word; return what it defines."""
    names = {"__name__": "storm_page_example"}
    exec(compile(example("python", word), "storm.md", "exec"), names)
    return names


def test_the_topology_that_reads_and_writes_kafka():
    totals = names_of("class Orders(KafkaSpout)")["totals"]()
    with LocalCluster(simulated=True) as cluster, cluster.submit_topology("shop", {}, totals) as topology:
        log = topology.backend.log
        for order in (b'{"customer": "ann", "price": 3}', b'{"customer": "ann", "price": 4}', b'{"customer": "ann"}'):
            log.append("orders", 0, None, order)
        cluster.advance_cluster_time(10)
        assert [(record.key, record.value) for record in log.records("totals")] == [(b"ann", b"3"), (b"ann", b"7")]
        assert [dict(record.headers)["code"] for record in log.records("shop.dead-letters")] == [b"no-price"]


def test_the_batch_bolt():
    builder = TopologyBuilder()
    builder.set_spout("words", TestWordSpout())
    builder.set_bolt("lengths", names_of("class Lengths(BatchBolt)")["Lengths"]()).shuffle_grouping("words")
    builder.set_bolt("count", TestWordCounter()).fields_grouping("lengths", Fields("word", "length"))
    with LocalCluster(simulated=True) as cluster, cluster.submit_topology("words", {}, builder.create_topology()) as topology:
        cluster.advance_cluster_time(10)
        assert topology.stats.total("count", "executed") == topology.stats.total("lengths", "executed") > 50
        assert not list(topology.stats.errors)


STREAMPARSE = {
    "src/storm_page_bolts/__init__.py": "",
    "src/storm_page_bolts/wordcount.py": """
from collections import Counter

from streamparse.bolt import Bolt


class WordCountBolt(Bolt):
    outputs = ["word", "count"]

    def initialize(self, conf, ctx):
        self.counter = Counter()

    def process(self, tup):
        word = tup.values[0]
        self.counter[word] += 1
        if self.counter[word] % 1000 == 0:
            self.logger.info("%s: %d", word, self.counter[word])
        self.emit([word, self.counter[word]])
""",
    "src/storm_page_spouts/__init__.py": "",
    "src/storm_page_spouts/words.py": """
from itertools import cycle

from streamparse import Spout


class WordSpout(Spout):
    outputs = ["word"]

    def initialize(self, stormconf, context):
        self.words = cycle(["dog", "cat", "zebra", "elephant"])

    def next_tuple(self):
        self.emit([next(self.words)])
""",
    "topologies/storm_page_wordcount.py": """
from streamparse import Grouping, Topology

from storm_page_bolts.wordcount import WordCountBolt
from storm_page_spouts.words import WordSpout


class WordCount(Topology):
    config = {"topology.max.spout.pending": 100}
    word_spout = WordSpout.spec()
    count_bolt = WordCountBolt.spec(inputs={word_spout: Grouping.fields("word")}, par={"prod": 2})
""",
}


@pytest.mark.long
def test_a_project_of_streamparse_with_the_imports_replaced(folder, capsys):
    for name, text in STREAMPARSE.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    topology = "topologies/storm_page_wordcount.py"
    assert cli.main(["local", topology, "--dry-run"]) == 1
    assert "from dskype.topology.streamparse import ..." in capsys.readouterr().err
    (replace,) = re.findall(r"^sed .*$", PAGE, re.MULTILINE)
    subprocess.run(["sh", "-c", replace], check=True, cwd=folder)
    assert cli.main(["local", topology, "--environment", "prod", "--dry-run"]) == 0
    assert "count_bolt [2] (WordCountBolt)" in capsys.readouterr().out
    assert executed(load(topology, "prod", {}).flux, "count_bolt") > 50
