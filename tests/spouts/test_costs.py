"""What subscriptions cost, and what happens to those above the ceiling."""

import json
import random

import pytest

from dskype.deploy.client.content import Content
from dskype.deploy.verification import Inputs
from dskype.deploy.verification.replay import parse_subscriptions
from dskype.spouts.costs import CostCeiling, subscription_cost
from dskype.spouts.kafka import SubscriptionSpout
from dskype.spouts.records import Message
from dskype.spouts.settings import Settings
from dskype.spouts.subscriptions import BooleanSubscription, TopkSubscription
from dskype.spouts.text import Tokenizer
from dskype.spouts.vocabulary import Vocabulary
from dskype.topology.tuples import InRecord

WORLD = (-180.0, -90.0, 180.0, 90.0)


def topk(words, k=10):
    return TopkSubscription("t", words.split(), 0.5, 0.0, 0.0, k=k)


def boolean(expression, bbox=WORLD):
    return BooleanSubscription("b", bbox, expression)


@pytest.mark.long
def test_the_cost_of_a_boolean_subscription_is_the_share_of_the_messages_that_it_may_match():
    rng = random.Random(2)
    words = ["the", "lake", "park", "wifi", "tea"]
    texts = [" ".join(w for w, often in zip(words, (0.9, 0.5, 0.2, 0.1, 0.02)) if rng.random() < often) for _ in range(2000)]
    vocabulary, settings = Vocabulary.build(texts, Tokenizer()), Settings.from_conf({"dskype.attributes": {"price": "number"}})
    messages = [Message(None, text, 0.0, 0.0, None, None, {"price": rng.randrange(9)}) for text in texts]
    contents = [Content(message, Tokenizer(), settings.language) for message in messages]

    def expression(depth):
        if depth == 0 or rng.random() < 0.3:
            leaves = [["phrase", rng.randrange(3), [0, 1], rng.sample(words, 2)], ["prefix", "la"], ["attribute", "price", "<", 5.0], ["all"]]
            return rng.choice([*words, *words, *leaves])
        inside = [expression(depth - 1) for _ in range(rng.randint(2, 4))]
        return rng.choice([["and", *inside], ["or", *inside], ["atleast", rng.randint(1, len(inside)), *inside], ["not", inside[0]]])

    tight = 0
    for _ in range(400):
        e = expression(3)
        found = sum(content.satisfies(e) for content in contents) / len(texts)
        bound = subscription_cost(boolean(e), settings, vocabulary)
        assert found <= bound + 1e-12 <= 1 + 1e-9
        tight += found < bound < 0.9
    assert tight > 50, "not every bound is 1"
    rare = subscription_cost(boolean("tea"), settings, vocabulary)
    assert subscription_cost(boolean(["phrase", 0, [0, 1], ["the", "tea"]]), settings, vocabulary) == rare
    assert subscription_cost(boolean(["and", "tea", ["not", "the"], ["attribute", "price", "exists"]]), settings, vocabulary) == rare
    assert subscription_cost(boolean(["in", "title", "tea"]), settings, vocabulary) == rare
    three = ["atleast", 2, "tea", "wifi", "park"]
    assert subscription_cost(boolean(three), settings, vocabulary) == pytest.approx(subscription_cost(boolean(["or", *three[2:]]), settings, vocabulary) / 2)
    half = subscription_cost(boolean("the", (0, -90, 180, 90)), settings, vocabulary)
    assert half == pytest.approx(subscription_cost(boolean("the"), settings, vocabulary) / 2)
    assert subscription_cost(boolean("the", (170, -90, -170, 90)), settings, vocabulary) == pytest.approx(half / 9), "across the antimeridian"
    europe = Settings.from_conf({"dskype.space": [-10, 35, 30, 60]})
    assert subscription_cost(boolean("the", (-180, -90, 10, 90)), europe, vocabulary) == pytest.approx(half)
    assert subscription_cost(boolean("the", (100, 0, 120, 10)), europe, vocabulary) == 0


def test_the_cost_of_a_top_k_subscription_is_how_often_its_list_may_change():
    vocabulary = Vocabulary.build(["lake"] * 3 + ["the lake"] * 7 + ["the"] * 90, Tokenizer())
    count, timed = Settings.from_conf({"dskype.window.messages": 1000}), Settings.from_conf({"dskype.window.span.ms": 1000})
    assert subscription_cost(topk("the"), count, vocabulary) == pytest.approx(0.02)
    assert subscription_cost(topk("lake", k=1000), count, vocabulary) == pytest.approx(0.2)
    assert subscription_cost(topk("the lake", k=1000), count, vocabulary) == 2
    assert subscription_cost(topk("lake"), timed, vocabulary) == pytest.approx(0.2)
    assert subscription_cost(topk("zythum"), timed, vocabulary) == pytest.approx(0.02)
    assert subscription_cost(topk("zythum"), timed, None) == 2, "without a vocabulary every word counts as certain"


class Collector:
    def __init__(self):
        self.rows, self.errors = [], []

    def emit(self, row, stream):
        self.rows.append(row[0])

    def report_error(self, text):
        self.errors.append(text)


def emitted(conf, *records):
    spout, collector = SubscriptionSpout("dskype.subscriptions"), Collector()
    spout.open(conf, None, collector)
    refused = spout.emit_records([InRecord("dskype.subscriptions", 0, i, 0, key, json.dumps(value).encode(), []) for i, (key, value) in enumerate(records)])
    return collector, {record.key: error.reason for record, error in refused}


@pytest.mark.parametrize("action", ["refuse", "warn"])
def test_a_subscription_above_the_ceiling_is_refused_or_named(tmp_path, action):
    Vocabulary.build(["the lake"] * 9 + ["lake st"], Tokenizer()).save(tmp_path / "words")
    conf = {
        "dskype.window.messages": 100,
        "dskype.vocabulary": str(tmp_path / "words"),
        "dskype.limits.subscription.cost": 0.5,
        "dskype.limits.subscription.cost.action": action,
    }
    world = {"type": "boolean", "bbox": [-180, -90, 180, 90]}
    near = {"type": "topk", "lat": 0, "lon": 0, "alpha": 0.5, "keywords": ["lake"]}
    records = [
        (b"good", {**near, "k": 25}),
        (b"poison", {**world, "expression": "the OR lake"}),
        (b"deep", {**near, "k": 26}),
        (b"fine", {**world, "expression": "lake AND st"}),
    ]
    collector, refused = emitted(conf, *records)
    told = refused if action == "refuse" else dict(zip((b"poison", b"deep"), collector.errors, strict=True))
    assert collector.rows == (["good", "fine"] if action == "refuse" else ["good", "poison", "deep", "fine"]) and set(told) == {b"poison", b"deep"}
    assert told[b"poison"] == (
        "Subscription 'poison' is expected to make too many results; given: 1.0; legal: up to 0.5 per message (dskype.limits.subscription.cost); "
        "hint: rarer words, more of them joined by AND, or a smaller bbox"
    )
    assert "given: 0.52" in told[b"deep"] and "a smaller k" in told[b"deep"]
    assert not (collector.errors if action == "refuse" else refused)
    inputs = Inputs(subscriptions=[(0, i, 0, key, json.dumps(value).encode(), ()) for i, (key, value) in enumerate(records)])
    found = parse_subscriptions(inputs, Settings.from_conf(conf))
    assert [isinstance(s, str) for s in found.values()] == [False, action == "refuse", action == "refuse", False], "who verifies decides the same"


def test_without_a_ceiling_no_vocabulary_is_read():
    assert CostCeiling(Settings.from_conf({"dskype.vocabulary": "/nowhere"})).check(topk("the")) is None
    spout = SubscriptionSpout("s")
    assert spout.files({"dskype.vocabulary": "v"}) == {} and spout.files({"dskype.vocabulary": "v", "dskype.limits.subscription.cost": 1}) == {
        ("dskype.vocabulary",): "v"
    }
