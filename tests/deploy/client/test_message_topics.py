"""A client reads each topic of messages in its form, and knows where a message without an id is."""

import json
from types import SimpleNamespace

import pytest

from dskype.deploy.cli.result_lines import topk_lines
from dskype.deploy.client.message_topics import MessageTopics, message_topics
from dskype.deploy.client.records import Result, TopK, changed_fields
from dskype.deploy.client.sequence import sequence_numbers
from dskype.spouts.kafka import MessageSpout
from dskype.spouts.record_values import RecordError
from dskype.spouts.settings import Settings
from dskype.topology import TopologyBuilder
from dskype.topology.planning.outline import PlanOutline
from dskype.topology.planning.plan import TopologyPlan

SETTINGS = Settings.from_conf({"dskype.input.topics": {"tweets": {"text": "$.body"}, "x-1-2": {"text": "$.note"}}})
TOPICS = MessageTopics(["tweets", "t.messages", "x-1-2"], SETTINGS, "t.messages")


def test_the_topics_are_those_that_the_spout_names():
    builder = TopologyBuilder()
    builder.set_spout("words", MessageSpout(["tweets", "t.messages"]))
    plan = TopologyPlan.build("t", "t-1-0", {"topology.acker.executors": 0, "dskype.input.topics": {"tweets": {}}}, builder.create_topology())
    record = {"plan": json.loads(json.dumps(PlanOutline.of(plan).to_json()))}
    assert message_topics(record, "t", SETTINGS) == ("tweets", "t.messages")
    for component in record["plan"].values():  # as earlier versions wrote it
        del component["topics"]
    for old in (record, None, {"plan": 5}, {}):
        assert message_topics(old, "t", SETTINGS) == ("t.messages", "tweets", "x-1-2")
    assert message_topics(None, "t", Settings(), "other") == ("other.messages",)


def test_each_topic_has_its_form():
    assert TOPICS.read("tweets", b'{"body": "tea", "lat": 1, "lon": 2}').text == "tea"
    assert TOPICS.read("t.messages", b'{"text": "tea", "lat": 1, "lon": 2}').text == "tea"
    with pytest.raises(RecordError, match=r"at \$.body"):
        TOPICS.read("tweets", b'{"text": "tea", "lat": 1, "lon": 2}')
    assert TOPICS.is_mapped("tweets") and not TOPICS.is_mapped("t.messages")


def test_a_default_id_says_where_a_message_is():
    for place in (("tweets", 0, 7), ("t.messages", 3, 0), ("x-1-2", 4, 5)):
        assert TOPICS.place_of(TOPICS.default_id(*place)) == place
    for other in ("x", 7, "1-", "unknown-1-2", "0-0-x", "tweets-0-7"):
        assert TOPICS.place_of(other) is None


def test_numbers_are_those_of_the_topic():
    runs = [{"partition": 0, "offset": 0, "first": 0, "n": 2}, {"partition": 0, "offset": 0, "first": 2, "n": 3, "topic": "tweets"}]
    assert [sequence_numbers(runs)(1), sequence_numbers(runs, 0, "tweets")(1), sequence_numbers(runs, 0, "x")(1)] == [1, 3, None]


def test_results_and_lists_have_the_fields_of_their_messages():
    value = {"v": 1, "subscription": "s", "watermark": 1, "op": "match", "message": 7, "fields": {"text": "tea"}}

    def record(value):
        return SimpleNamespace(value=json.dumps(value).encode(), timestamp=5, headers=[])

    assert Result.from_record(record(value)).fields == {"text": "tea"} and Result.from_record(record(value)).value == value
    grouped = {"v": 1, "message": 7, "fields": {"text": "tea"}, "watermark": 1, "task": 3, "subscriptions": ["s", "u"]}
    found = Result.all_of(record(grouped))
    assert [one.fields for one in found] == [{"text": "tea"}] * 2 and found[0].value == value
    for said in ({}, {"fields_omitted": True}):
        plain = {name: entry for name, entry in value.items() if name != "fields"} | said
        one = Result.from_record(record(plain))
        assert one.fields is None and one.value == plain
    topk = {
        "subscription": "s",
        "watermark": 1,
        "registration": "0-0",
        "topk": [{"message": 1, "fields": {"a": 1}, "score": 0.5}, {"message": 2, "fields_omitted": True, "score": 0.25}],
    }
    state = TopK.from_json(json.dumps(topk).encode())
    assert state.fields == [{"a": 1}, None] and state.as_json() == topk and state.entries == [(1, 0.5), (2, 0.25)] and state.objects == ()


def test_a_result_keeps_what_a_newer_topology_says_of_it():
    known = {"v": 1, "subscription": "s", "watermark": 1, "op": "match", "message": 7, "score": 0.5, "rank": 1, "meta": {"a": 1}, "object": "o", "fields": {}}
    known |= {"initial": True, "meta_omitted": True, "fields_omitted": True}
    for more in ({}, {"note": "x", "count": 2}):
        one = Result.from_record(SimpleNamespace(value=json.dumps(known | more).encode(), timestamp=5, headers=[]))
        assert one.more == more and one.value == known | more


def test_a_move_to_degrees_takes_the_scale_away():
    fields = {"type": "topk", "text": "tea", "lat": 1, "lon": 2, "k": 3, "alpha": 0.5, "distance": "metres", "scale_m": 500}
    plain = {name: value for name, value in fields.items() if name not in ("distance", "scale_m")}
    assert changed_fields(fields, {"distance": "degrees"}) == {**plain, "distance": "degrees", "update": True}
    assert changed_fields(fields, {"distance": None}) == {**plain, "update": True}
    assert changed_fields(fields, {"distance": "metres"}) == changed_fields(fields, {}) == {**fields, "update": True}
    assert changed_fields(plain, {"distance": "metres", "scale_m": 5}) == {**plain, "distance": "metres", "scale_m": 5, "update": True}


def test_entries_of_lists_name_their_objects():
    entries = [{"message": "0-3", "object": "bus-7", "fields": {"a": 1}, "score": 0.5}, {"message": "0-1", "score": 0.25}]
    topk = {"subscription": "s", "watermark": 3, "registration": "0-0", "topk": entries}
    state = TopK.from_json(json.dumps(topk).encode())
    assert state.objects == ("bus-7", None) and json.dumps(state.as_json()) == json.dumps(topk), "and in the same order"
    assert topk_lines(state, {}) == ["   1  0.500000  bus-7  0-3  a=1", "   2  0.250000  0-1"]
    assert TopK.from_json(b'{"subscription": "s", "watermark": 3, "topk": [5]}') is None
