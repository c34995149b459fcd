"""The message spout reads several topics, each with the mapping of its records."""

import json

import pytest

from dskype.spouts.kafka import MessageSpout
from dskype.topology import TopologyBuilder
from dskype.topology.errors import InvalidTopologyException
from dskype.topology.planning.plan import TopologyPlan
from dskype.topology.tuples import InRecord

CONF = {
    "dskype.input.text": "$.body",
    "dskype.input.topics": {"places": {"format": "csv", "csv": {"columns": ["name", "y", "x"]}, "id": None, "text": "name", "place": {"lat": "y", "lon": "x"}}},
}
TOPICS = ["t.messages", "tweets", "places"]


class Collector:
    """Keeps what a spout emits."""

    def __init__(self):
        self.ids, self.texts, self.runs, self.seq = [], [], [], []

    def emit_batch(self, columns, stream):
        found = dict(zip(MessageSpout("m").outputs[stream], columns))
        self.ids += found["id"].to_pylist()
        self.texts += found["text"].to_pylist()
        self.seq += found["seq"].tolist()

    def emit_watermark(self, watermark):
        pass

    def send_record(self, topic, key, value):
        assert topic == "t.sequence"
        self.runs.append(json.loads(value))


class Context:
    def __init__(self, plan):
        self.plan = plan

    def get_this_task_id(self):
        return 1

    def get_this_component_id(self):
        return "message-spout"

    def get_component_tasks(self, component):
        return [1]

    def get_this_task_index(self):
        return 0


def plan(spout, conf):
    builder = TopologyBuilder()
    builder.set_spout("message-spout", spout)
    return TopologyPlan.build("t", "t-1-0", {"topology.acker.executors": 0, **conf}, builder.create_topology())


def opened(topics=TOPICS, conf=CONF):
    spout, collector = MessageSpout(topics), Collector()
    spout.open(conf, Context(plan(spout, conf)), collector)
    return spout, collector


def records(topic, *values):
    return [
        InRecord(topic, 0, offset, 1_700_000_000_000, None, value if isinstance(value, bytes) else json.dumps(value).encode(), [])
        for offset, value in enumerate(values)
    ]


def test_each_topic_has_its_mapping_and_the_own_topic_has_the_own_form():
    spout, collector = opened()
    assert not spout.emit_records(records("t.messages", {"text": "own", "body": "wrong", "lat": 1, "lon": 2}))
    assert not spout.emit_records(records("tweets", {"body": "tweet", "lat": 1, "lon": 2}, {"body": "named", "id": 7, "lat": 1, "lon": 2}))
    assert not spout.emit_records(records("places", b"Lake,1,2"))
    assert collector.texts == ["own", "tweet", "named", "Lake"]
    assert collector.ids == ['"0-0"', '"tweets-0-0"', "7", '"places-0-0"']
    assert collector.seq == [0, 1, 2, 3]


def test_the_sequence_names_the_topics_after_the_first():
    spout, collector = opened()
    spout.emit_records(records("t.messages", {"text": "own", "lat": 1, "lon": 2}))
    spout.emit_records(records("tweets", {"body": "tweet", "lat": 1, "lon": 2}))
    assert collector.runs == [
        {"v": 1, "task": 1, "first": 0, "partition": 0, "offset": 0, "n": 1},
        {"v": 1, "task": 1, "first": 1, "partition": 0, "offset": 0, "n": 1, "topic": "tweets"},
    ]


def test_a_record_that_does_not_fit_is_refused_with_its_path_and_the_others_go_on():
    spout, collector = opened()
    good, bad = {"body": "tweet", "lat": 1, "lon": 2}, {"text": "own", "lat": 1, "lon": 2}
    ((record, error),) = spout.emit_records(records("tweets", good, bad, good))
    assert record.offset == 1 and error.code == "invalid-text" and "$.body" in error.reason
    assert collector.texts == ["tweet", "tweet"]


def test_a_mapping_of_a_topic_that_is_not_read_is_refused():
    builder = TopologyBuilder()
    builder.set_spout("message-spout", MessageSpout(["t.messages", "tweets"]))
    with pytest.raises(InvalidTopologyException, match="given: 'places'.*component: 'message-spout'; legal: t.messages, tweets"):
        builder.create_topology().components["message-spout"].obj.check_topology("message-spout", CONF, builder.create_topology())


def test_a_mapping_of_the_own_topic_is_refused():
    conf = {"dskype.input.topics": {"t.messages": {"text": "$.body"}}}
    with pytest.raises(InvalidTopologyException, match="own form.*given.*t.messages.*hint"):
        MessageSpout(TOPICS).external_topics("t", conf)
    assert MessageSpout(TOPICS).external_topics("t", CONF).keys() >= set(TOPICS)
