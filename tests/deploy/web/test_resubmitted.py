"""The server notices a topology that was submitted again with other settings or other topics of messages, and its results may carry fields."""

import json
from dataclasses import replace

import pytest

from dskype.deploy.web import tail
from dskype.topology.planning.outline import ComponentOutline, ExecutorOutline, PlanOutline

from .server import Events, get

TWEETS = {"dskype.input.topics": {"tweets": {"text": "$.body", "place": {"lat": "$.y", "lon": "$.x"}}}}


def submit(kafka, source, conf, topics=("dskype.messages",), number=1):
    """Let the server see the topology with a configuration."""
    spout = ComponentOutline("spout", (ExecutorOutline(9, 9, 6700),), (), ("messages",), topics)
    (view,) = source.views
    bolts = PlanOutline.from_json(view.record["plan"]).components
    record = {
        **view.record,
        "state": {"id": f"dskype-{number}-1", "name": "dskype", "submitted_ms": number, "components": [], "conf": conf},
        "plan": PlanOutline({**bolts, "message-spout": spout}).to_json(),
    }
    source.views = [replace(view, record=record)]


def test_another_submission_counts_from_the_next_question_on(kafka, served, source):
    submit(kafka, source, {})
    assert get(served, "language")["attributes"] == []
    submit(kafka, source, {"dskype.attributes": {"price": "number"}}, number=2)
    assert [attribute["name"] for attribute in get(served, "language")["attributes"]] == ["price"]


def test_whoever_follows_is_told_to_come_back_even_if_nobody_asks(kafka, served, source, monkeypatch):
    monkeypatch.setattr(tail, "_CHECK_EVERY_S", 0.1)
    kafka.broker.partitions["tweets"] = 1
    submit(kafka, source, {})
    events = Events(served, "messages")
    assert events.next()[0] == "following"
    submit(kafka, source, TWEETS, ("tweets", "dskype.messages"), number=2)
    with pytest.raises(AssertionError, match="the stream has ended"):
        events.next()
    events = Events(served, "messages")
    assert events.next()[0] == "following"
    kafka.broker.write("tweets", None, b'{"body": "Late coffee", "y": 47.0, "x": 8.5}')
    kafka.broker.write("dskype.messages", None, b'{"text": "tea", "lat": 46.0, "lon": 8.0}')
    found = []
    while len(found) < 2:
        name, _, data = events.next()
        found += data["messages"] if name == "messages" else []
    assert sorted((m["text"], m["id"], m["lat"]) for m in found) == [("Late coffee", "0-0", 47.0), ("tea", "dskype.messages-0-0", 46.0)]
    events.close()


def test_results_show_the_fields_of_their_messages(kafka, served):
    topics = kafka.topology()
    kafka.broker.write(topics.subscriptions, "s", json.dumps({"type": "topk", "text": "tea", "lat": 1, "lon": 2, "k": 2, "alpha": 0.5}).encode())
    entry = {"message": 7, "fields": {"text": "tea", "who": "<b>ann</b>"}, "score": 0.5}
    state = {"v": 1, "subscription": "s", "registration": "0-0", "watermark": 1, "topk": [entry, {"message": 8, "fields_omitted": True, "score": 0.25}]}
    kafka.broker.write(topics.topk, "s", json.dumps(state).encode(), headers=[("version", "1 0-0 1")])
    first, second = get(served, "subscription?id=s")["topk"]["topk"]
    assert first["fields"] == entry["fields"] and second["fields_omitted"] and "fields" not in second
    events = Events(served, "results?sub=s")
    assert events.next()[0] == "following"
    kafka.broker.write(
        topics.results, "s", json.dumps({"v": 1, "subscription": "s", "watermark": 2, "op": "add", **entry, "rank": 1}).encode(), headers=[("result-id", "x")]
    )
    assert events.next()[2]["fields"] == entry["fields"]
    events.close()
