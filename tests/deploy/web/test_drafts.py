"""What is offered for expressions, and drafts of subscriptions: checked, and tried on the newest messages."""

from __future__ import annotations

import json
import random
from types import SimpleNamespace
from urllib.error import HTTPError
from urllib.parse import quote

import pytest

from dskype.deploy.client.pubsub import PubSub
from dskype.deploy.web import drafts
from dskype.deploy.web.drafts import Newest, checked, tried
from dskype.spouts.expression_parser import parse
from dskype.spouts.text import Tokenizer
from tests import naive
from tests.waiting import wait_for

from .scene import run_plan
from .server import get

CONF = {
    "dskype.attributes": {"price": "number", "tags": {"type": "strings", "required": True}},
    "dskype.boolean.prefixes": True,
    "dskype.boolean.wordless": True,
    "dskype.stop.words": ["the"],
}


def draft(served, **fields):
    return get(served, f"draft?fields={quote(json.dumps(fields))}")


def write(kafka, topics, **message):
    kafka.broker.write(topics.messages, None, json.dumps({"lat": 43.0, "lon": -87.9, **message}).encode())


def test_what_expressions_may_speak_of_is_told(kafka, served):
    nothing = {"attributes": [], "fields": [], "prefixes": False, "wordless": False, "objects": False, "half_life_ms": None, "tenants": None}
    assert get(served, "language") == nothing


def test_attributes_are_offered_with_their_types_and_comparisons(kafka, served):
    run_plan(kafka, CONF)
    found = get(served, "language")
    assert found["prefixes"] and found["attributes"] == [
        {"name": "price", "type": "number", "required": False, "comparisons": ["<", "<=", "=", "!=", ">=", ">", "IN", "exists"]},
        {"name": "tags", "type": "strings", "required": True, "comparisons": ["HAS", "IN", "exists"]},
    ]
    client = PubSub(kafka, conf=CONF)
    for attribute in found["attributes"]:
        for comparison in attribute["comparisons"]:
            value = '"x"' if attribute["name"] == "tags" else "5"
            texts = {"exists": f"exists({attribute['name']})", "IN": f"{attribute['name']} IN ({value}, {value})"}
            parse(texts.get(comparison, f"{attribute['name']} {comparison} {value}"), Tokenizer(), client.settings.language)


def test_a_draft_says_how_many_of_the_newest_messages_it_would_have_matched(kafka, served):
    topics = kafka.topology()
    run_plan(kafka, CONF)
    write(kafka, topics, id="m1", text="Coffee late at night", attributes={"price": 3, "tags": ["vegan"]})
    write(kafka, topics, id=1 << 62, text="Coffee in the late night", attributes={"price": 5, "tags": []})
    write(kafka, topics, text="museums", attributes={"tags": []}, lat=10.0)
    write(kafka, topics, id="refused", text="coffee", attributes={"price": 3})  # tags are required
    kafka.broker.write(topics.messages, None, b"junk")
    found = draft(served, expression='coffee AND NOT "late night"')
    assert found["examples"] == [{"message_id": "m1", "text": "Coffee late at night"}]
    assert (found["matched"], found["looked"], found["text"]) == (1, 3, 'coffee AND NOT "late night"') and found["since_ms"] < kafka.broker.time_ms
    assert draft(served, expression="price <= 5 AND NOT tags HAS vegan")["examples"] == [{"message_id": str(1 << 62), "text": "Coffee in the late night"}]
    assert draft(served, expression="muse*")["examples"] == [{"message_id": "0-2", "text": "museums"}]
    assert draft(served, bbox=[-90, 40, -80, 45])["matched"] == 2 and draft(served, bbox=[-90, 40, -80, 45])["text"] == "(everything)"
    assert draft(served, expression="NOT zebra")["matched"] == 3
    near = {"lat": 43.0, "lon": -87.9, "k": 3, "alpha": 0.5}
    assert draft(served, text="the night", **near)["matched"] == 2 and draft(served, text="the night", **near)["text"] is None
    assert draft(served, text="the night", where="price > 3", **near)["matched"] == 1
    circle = {"center": {"lat": 10.01, "lon": -87.9}, "radius_m": 2000}
    assert draft(served, region=circle)["examples"] == [{"message_id": "0-2", "text": "museums"}]
    assert draft(served, region={**circle, "radius_m": 1000})["matched"] == 0
    write(kafka, topics, text="one more for coffee", attributes={"tags": []})
    wait_for(lambda: draft(served, expression="one AND more")["matched"] == 1)


def test_a_draft_that_would_be_refused_says_why_and_where(kafka, served):
    found = draft(served, expression="coffee AND price < 5")
    assert found == {
        "error": "Expected the name of an attribute to compare at position 12 of the expression; given: 'price'; "
        "hint: dskype.attributes declares none; to search for words, put them in quotes",
        "position": 12,
    }
    assert draft(served, expression="coffee", bbox=[1, 2])["position"] is None
    assert "Expected 'expression', 'keywords', 'bbox' or 'region'" in draft(served, type="boolean")["error"]


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ("draft", "The parameter fields must be a JSON object"),
        ("draft?fields=[]", "must be a JSON object"),
        ("draft?fields=" + "[" * 9000, "must be a JSON object"),
        ("draft?fields=" + quote('{"wait": true}'), "a field that is unknown. given: 'wait'"),
    ],
)
def test_what_is_no_draft_is_refused(kafka, served, query, why):
    with pytest.raises(HTTPError) as error:
        get(served, query)
    assert error.value.code == 400 and why in json.load(error.value)["errorMessage"]


def test_many_records_are_not_kept(monkeypatch):
    monkeypatch.setattr(drafts, "_KEPT", 10)
    monkeypatch.setattr(drafts, "_KEPT_BYTES", 100)

    def records(first, last, size):
        return [SimpleNamespace(topic="m", partition=0, offset=i, timestamp=i, value=b"x" * size) for i in range(first, last)]

    newest = Newest()
    newest.add(records(0, 25, 1))
    assert [r.time_ms for r in newest.records()] == list(range(24, 14, -1))
    newest.add(records(20, 26, 1))
    assert [r.time_ms for r in newest.records()] == list(range(25, 15, -1)), "those that are read again count once"
    newest.add(records(26, 30, 30))
    assert [r.time_ms for r in newest.records()] == [29, 28, 27]


def test_looking_at_messages_takes_a_bounded_time_and_begins_with_the_newest(kafka, monkeypatch):
    topics, client, clock = kafka.topology(), PubSub(kafka, conf={}), iter(range(1000))
    monkeypatch.setattr(drafts.time, "monotonic", lambda: next(clock))
    newest = Newest()
    for i in range(20):
        write(kafka, topics, id=f"m{i}", text="coffee" if i % 2 else "tea")
    newest.add(kafka.broker.logs[topics.messages, 0])
    found = tried(client, checked(client, {"expression": "coffee"}), newest.records(), 4500)
    assert (found["looked"], found["matched"]) == (4, 2) and [e["message_id"] for e in found["examples"]] == ["m19", "m17"]


def test_the_ends_of_objects_are_no_messages(kafka):
    topics, client, newest = kafka.topology(), PubSub(kafka, conf={"dskype.objects": True, "dskype.boolean.wordless": True}), Newest()
    for record in ({"object": "bus-7", "text": "line 100", "lat": 0, "lon": 0}, {"object": "bus-7", "deleted": True}, {"text": "tea", "lat": 1, "lon": 0}):
        kafka.broker.write(topics.messages, "bus-7", json.dumps(record).encode())
    kafka.broker.write(topics.messages, "bus-7", None)
    newest.add(kafka.broker.logs[topics.messages, 0])
    found = tried(client, checked(client, {"bbox": [-1, -1, 1, 0.5]}), newest.records(), 60_000)
    assert (found["matched"], found["inside"], found["looked"]) == (1, 1, 2) and [example["text"] for example in found["examples"]] == ["line 100"]


def test_texts_of_fields_are_shown_one_after_the_other(kafka):
    topics, client, newest = kafka.topology(), PubSub(kafka, conf={"dskype.text.fields": ["title", "body"]}), Newest()
    write(kafka, topics, text={"title": "Coffee", "body": "by the lake"})
    newest.add(kafka.broker.logs[topics.messages, 0])
    assert tried(client, checked(client, {"expression": "lake"}), newest.records(), 60_000)["examples"][0]["text"] == "Coffee  by the lake"


def test_counts_are_those_of_the_oracle(kafka):
    topics, client, draw = kafka.topology(), PubSub(kafka, conf={}), random.Random(3)
    words, newest, messages = ["coffee", "tea", "cake", "wifi"], Newest(), []
    for _ in range(300):
        box = [draw.uniform(-180, 180), *sorted(draw.uniform(-90, 90) for _ in range(2)), draw.uniform(-180, 180)]
        messages.append({"text": " ".join(draw.sample(words, draw.randrange(4))), "bbox": [box[0], box[1], box[3], box[2]]})
        kafka.broker.write(topics.messages, None, json.dumps(messages[-1]).encode())
    newest.add(kafka.broker.logs[topics.messages, 0])
    for bbox in ([-10, -10, 60, 60], [170, -50, -170, 50], [-180, -90, 180, 90]):
        for text, tree in (("coffee", "coffee"), ("coffee OR tea AND cake", ["or", "coffee", ["and", "tea", "cake"]])):
            found = tried(client, checked(client, {"expression": text, "bbox": bbox}), newest.records(), 60_000)
            expected = sum(naive.overlapping(bbox, m["bbox"]) and naive.satisfies(tree, set(m["text"].split())) for m in messages)
            assert (found["matched"], found["looked"]) == (expected, 300)
