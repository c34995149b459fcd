"""The README's examples are run as they stand there, topologies on the simulated transport."""

import json
import re
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

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

    def read(self, topic):
        self.simulation.drain()
        return [
            SimpleNamespace(topic=topic, partition=r.partition, offset=r.offset, key=r.key, value=r.value, headers=r.headers, timestamp=r.timestamp_ms)
            for r in self.simulation.records(topic)
        ]

    def follower(self, settings, topics, start):
        known = {topic: len(self.read(topic)) if start == "now" else 0 for topic in topics}
        return SimpleNamespace(poll=lambda timeout_s: self.poll(known), close=lambda: None)

    def poll(self, known):
        found = []
        for topic, n in known.items():
            new = self.read(topic)[n:]
            known[topic] += len(new)
            found += new
        self.seconds += not found
        return found

    def wait(self, seconds):
        self.seconds += seconds

    def play(self, monkeypatch):
        """Let the client reach this instead of Kafka."""
        monkeypatch.setattr(pubsub, "Follower", self.follower)
        monkeypatch.setattr(pubsub, "make_store", self.store)
        monkeypatch.setattr(pubsub, "time", SimpleNamespace(monotonic=lambda: self.seconds, sleep=self.wait, time_ns=time.time_ns))
        monkeypatch.setattr(pubsub, "AttentiveClock", lambda gap_s: SimpleNamespace(look=lambda: self.seconds))
        monkeypatch.setattr(pubsub.PubSub, "scan", lambda client, topic: self.read(topic))
        monkeypatch.setattr(pubsub.PubSub, "_send", lambda client, *record: self.send(*record[:3]))
        monkeypatch.setattr(pubsub.PubSub, "require", lambda client, *topics: None)
        monkeypatch.setattr(pubsub.PubSub, "_exists", lambda client, *topics: True)
        monkeypatch.setattr(pubsub.PubSub, "running_conf", lambda client: self.simulation.conf)

    def store(self, name, options):
        def get(id):
            value = [value for key, value, _ in self.simulation.json("dskype.topk") if key == id][-1]
            return Stored(value["registration"], value["watermark"], json.dumps(value).encode(), 1)

        return SimpleNamespace(in_log=False, open=lambda opening: None, get=get, close=lambda: None)


def test_the_client_of_the_readme_gets_the_results_of_a_topology(monkeypatch, capsys):
    kafka = _Kafka()
    kafka.play(monkeypatch)
    example("PubSub")
    *changes, entries = capsys.readouterr().out.splitlines()
    assert [change.split()[:2] for change in changes] == [["add", "0-0"], ["add", "0-1"], ["remove", "0-0"], ["add", "0-2"]]
    assert entries.startswith("[('0-2', ")
    example("PubSub")
    *changes, entries = capsys.readouterr().out.splitlines()
    assert [change.split()[:2] for change in changes if change.startswith("add")][-1] == ["add", "0-5"]
    assert entries.startswith("[('0-5', ") and "('0-2', " in entries, "both concerts, each by its own name"


def test_the_client_of_the_readme_says_that_no_topology_answers(monkeypatch):
    kafka = _Kafka()
    kafka.play(monkeypatch)
    monkeypatch.setattr(kafka.simulation, "drain", lambda: None)
    monkeypatch.setattr(kafka, "send", lambda topic, key, value: kafka.simulation.log.append(topic, 0, key, value))
    with pytest.raises(pubsub.PendingError, match="1 of 1 subscriptions are still pending after 600 s. given: 'museum'; hint: 'dskype list'"):
        example("PubSub")
