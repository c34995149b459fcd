"""The README's examples are run as they stand there, topologies on the simulated transport."""

import json
import re
from pathlib import Path
from types import SimpleNamespace

from dskype.bolts.results.base import Stored
from dskype.deploy.client import pubsub
from dskype.topology.local import LocalCluster
from tests.endtoend.harness import Simulation


def example(word: str) -> dict:
    """Run the one example that has this word in it."""
    text = (Path(__file__).parent.parent / "README.md").read_text()
    [code] = [code for code in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if word in code]
    names = {"__name__": "readme_example"}
    exec(compile(code, "README.md", "exec"), names)
    return names


def test_the_library_keeps_the_lists_of_the_readme(capsys):
    skype = example("from_texts")["skype"]
    assert [id for id, _ in skype.results("ann")] == ["m2", "m3"]
    *changes, last = capsys.readouterr().out.splitlines()
    assert len(changes) == 4 and changes[1] == "{}" and last.startswith("[('m2', ")


def test_the_example_of_the_readme_counts_words():
    names = example("class Sentences")
    with LocalCluster(simulated=True) as cluster, cluster.submit_topology("words", {}, names["word_count"]()) as topology:
        cluster.advance_cluster_time(10)
        counts = [c.counts for c in topology.backend.components("count")]
        assert topology.stats.total("count", "executed") == 6000
        assert {word: n for part in counts for word, n in part.items()} == {"the": 2000, "cow": 1000, "jumped": 1000, "over": 1000, "moon": 1000}


def test_the_ten_lines_of_the_readme_run(capsys):
    names = example("TestWordSpout")
    assert int(capsys.readouterr().out) == names["topology"].stats.total("count", "executed") > 100


class _Kafka:
    """Stands in for Kafka: what the client sends reaches a simulated DSkype, what that publishes is read; seconds pass while nothing comes."""

    def __init__(self):
        self.simulation = Simulation({"dskype.space": [-180.0, -90.0, 180.0, 90.0], "dskype.window.messages": 1000})
        self.seconds = 0

    def send(self, topic, key, value):
        self.simulation.log.append(topic, 0, key, value)
        self.simulation.step()

    def follower(self, settings, topics, start):
        self.simulation.drain()
        records = [SimpleNamespace(value=r.value, headers=r.headers, timestamp=r.timestamp_ms) for topic in topics for r in self.simulation.records(topic)]
        return SimpleNamespace(poll=lambda timeout_s: self.poll(records), close=lambda: None)

    def poll(self, records):
        found = records[:]
        records.clear()
        self.seconds += not found
        return found

    def store(self, name, options):
        def get(id):
            value = [value for key, value, _ in self.simulation.json("dskype.topk") if key == id][-1]
            return Stored(value["registration"], value["watermark"], json.dumps(value).encode(), 1)

        return SimpleNamespace(in_log=False, open=lambda opening: None, get=get, close=lambda: None)


def test_the_client_of_the_readme_gets_the_results_of_a_topology(monkeypatch, capsys):
    kafka = _Kafka()
    monkeypatch.setattr(pubsub, "Follower", kafka.follower)
    monkeypatch.setattr(pubsub, "make_store", kafka.store)
    monkeypatch.setattr(pubsub, "time", SimpleNamespace(monotonic=lambda: kafka.seconds))
    monkeypatch.setattr(pubsub.PubSub, "_send", lambda client, *record: kafka.send(*record))
    monkeypatch.setattr(pubsub.PubSub, "require", lambda client, *topics: None)
    monkeypatch.setattr(pubsub.PubSub, "_exists", lambda client, *topics: True)
    monkeypatch.setattr(pubsub.PubSub, "running_conf", lambda client: kafka.simulation.conf)
    example("PubSub")
    *changes, entries = capsys.readouterr().out.splitlines()
    assert [change.split()[:2] for change in changes] == [["add", "a"], ["add", "b"], ["remove", "a"], ["add", "c"]]
    assert entries.startswith("[('c', ")
