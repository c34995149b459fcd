import json
import random
from types import SimpleNamespace

import numpy as np
import pytest

from dskype.bolts.results.deltas import DeltaBatch
from dskype.bolts.results.formats import ADD, MATCH, REMOVE
from dskype.bolts.results.publisher import ResultPublisher
from dskype.topology import IllegalArgumentException
from dskype.topology.core.frames import OutRecords
from dskype.topology.tuples import column_to_list


class Collector:
    """Keeps what is sent."""

    def __init__(self):
        self.records, self.tuples = [], []

    def send_record(self, topic, key, value, headers=(), partition=None):
        self.records.append((topic, key, value, dict(headers)))

    def send_records(self, topic, keys, values, headers=()):
        for record in OutRecords(topic, keys, values, headers).records():
            self.records.append((topic, record.key, record.value, dict(record.headers)))

    def emit_batch(self, columns, stream="default", parents=None):
        assert stream in ("results", "lists")
        assert len({len(c) for c in columns}) == 1
        self.tuples += zip(*(column_to_list(c) for c in columns))


def made(results="both", store="kafka", **kwargs):
    collector = Collector()
    return ResultPublisher(collector, "t", SimpleNamespace(results=results, store=store), **kwargs), collector


def mixed(n, seed):
    """Deltas of a few registrations, as columns."""
    rng = random.Random(seed)
    which = [rng.randrange(7) for _ in range(n)]
    return dict(
        subscriptions=[f"s{w}" for w in which],
        registrations=[f"0-{w}" for w in which],
        ops=np.array([rng.randrange(3) for _ in range(n)], np.int8),
        messages=[json.dumps(rng.choice([i, f"m{i}"])) for i in range(n)],
        scores=np.array([rng.random() for _ in range(n)]),
        ranks=np.array([rng.randrange(1, 9) for _ in range(n)], np.int32),
        watermarks=np.arange(n, dtype=np.int64),
        metas=[None if w % 2 else f'{{"w":{w}}}' for w in which],
    )


def test_deltas_go_to_the_results_topic_in_order():
    publisher, collector = made()
    columns = mixed(300, 1)
    assert publisher.deltas(DeltaBatch(**columns)) == 300
    assert {topic for topic, *_ in collector.records} == {"t.results"}
    values = [json.loads(value) for _, _, value, _ in collector.records]
    assert [v["watermark"] for v in values] == list(range(300))
    assert [v["subscription"] for v in values] == columns["subscriptions"]
    assert [v.get("meta") for v in values] == [m and json.loads(m) for m in columns["metas"]]
    assert [v.get("score") for v in values] == [s if op == ADD else None for s, op in zip(columns["scores"].tolist(), columns["ops"])]
    assert [key for _, key, _, _ in collector.records] == [s.encode() for s in columns["subscriptions"]]
    assert len({headers["result-id"] for *_, headers in collector.records}) == 300


def test_a_registration_that_appears_under_two_subscriptions_is_not_mixed_up():
    publisher, collector = made()
    for name in "abab":
        publisher.deltas(DeltaBatch([name], ["0-1"], [REMOVE], [1], ["1"]))
    assert [json.loads(v)["subscription"] for _, _, v, _ in collector.records] == list("abab")
    publisher, collector = made(via_bolt=True)
    publisher.deltas(DeltaBatch(list("abab"), ["0-1"] * 4, [REMOVE] * 4, [1, 2, 3, 4], ["1"] * 4))
    assert [(name, watermark) for name, _, _, watermark, *_ in collector.tuples] == [("a", 1), ("b", 2), ("a", 3), ("b", 4)]


def test_without_deltas_matches_are_published_all_the_same():
    publisher, collector = made("topk")
    columns = mixed(100, 3)
    assert not publisher.wants_deltas
    assert publisher.deltas(DeltaBatch(**columns)) == len(collector.records) == int((columns["ops"] == MATCH).sum())
    expected = [i for i in range(100) if columns["ops"][i] == MATCH]
    assert [json.loads(v)["watermark"] for _, _, v, _ in collector.records] == expected
    assert [json.loads(v).get("meta") for _, _, v, _ in collector.records] == [columns["metas"][i] and json.loads(columns["metas"][i]) for i in expected]


def test_states_go_to_the_compacted_topic_and_only_if_they_are_wanted():
    arguments = (["a", "b"], ["0-1", "0-2"], [5, 6], np.array([0, 2, 2]), ["1", '"x"'], np.array([0.75, 0.5]))
    publisher, collector = made(run=9)
    assert publisher.states(*arguments) == 2
    assert [(t, k, json.loads(v)) for t, k, v, _ in collector.records] == [
        (
            "t.topk",
            b"a",
            {"v": 1, "subscription": "a", "registration": "0-1", "watermark": 5, "topk": [{"message": 1, "score": 0.75}, {"message": "x", "score": 0.5}]},
        ),
        ("t.topk", b"b", {"v": 1, "subscription": "b", "registration": "0-2", "watermark": 6, "topk": []}),
    ]
    assert [h for *_, h in collector.records] == [{"version": b"9 0-1 5"}, {"version": b"9 0-2 6"}]
    for via_bolt in (False, True):
        publisher, collector = made("deltas", via_bolt=via_bolt)
        assert publisher.states(*arguments) == 0
        assert not publisher.wants_states
        assert not collector.records and not collector.tuples


def test_a_removal_is_an_event_and_a_null_state():
    publisher, collector = made()
    assert publisher.events(["a"], ["0-1"], ["active"], [-1]) == 1
    assert publisher.removed(["a", "b"], ["0-1", "0-2"], np.array([7, 8])) == 2
    assert [(t, k, v and json.loads(v).get("event")) for t, k, v, _ in collector.records] == [
        ("t.registrations", b"a", "active"),
        ("t.registrations", b"a", "removed"),
        ("t.registrations", b"b", "removed"),
        ("t.topk", b"a", None),
        ("t.topk", b"b", None),
    ]
    boolean, collector = made()
    boolean.removed(["c"], ["0-3"], [9], states=False)
    assert [t for t, *_ in collector.records] == ["t.registrations"]


def test_nothing_at_all_is_no_record():
    for via_bolt in (False, True):
        publisher, collector = made(via_bolt=via_bolt)
        assert publisher.deltas(DeltaBatch([], [], [], [], [], [], [])) == 0
        assert publisher.states([], [], [], [0], [], []) == 0
        assert publisher.events([], [], [], []) == 0
        assert publisher.removed([], [], []) == 0
        assert not collector.records and not collector.tuples


def test_by_way_of_the_result_bolt_deltas_travel_as_columns():
    publisher, collector = made(via_bolt=True)
    columns = mixed(500, 4)
    publisher.deltas(DeltaBatch(**columns))
    assert not collector.records
    assert collector.tuples == [
        (subscription, registration, op, watermark, message, score, rank, meta or "", 0, 0)
        for subscription, registration, op, watermark, message, score, rank, meta in zip(
            columns["subscriptions"],
            columns["registrations"],
            columns["ops"].tolist(),
            columns["watermarks"].tolist(),
            columns["messages"],
            columns["scores"].tolist(),
            columns["ranks"].tolist(),
            columns["metas"],
        )
    ]


def test_what_is_not_given_of_deltas_is_empty_on_the_way():
    publisher, collector = made(via_bolt=True)
    publisher.deltas(DeltaBatch(["s", "t"], ["0-1", "0-2"], [REMOVE, MATCH], np.array([3, 4]), ["1", '"x"']))
    assert collector.tuples == [("s", "0-1", REMOVE, 3, "1", 0.0, 0, "", 0, 0), ("t", "0-2", MATCH, 4, '"x"', 0.0, 0, "", 0, 0)]


def test_bad_input_is_refused_where_it_is_given():
    for via_bolt in (False, True):
        publisher, collector = made(via_bolt=via_bolt)
        with pytest.raises(IllegalArgumentException, match="add need scores and ranks"):
            publisher.deltas(DeltaBatch(["s"], ["0-1"], [ADD], [1], ["1"]))
        with pytest.raises(IllegalArgumentException, match="event is not known"):
            publisher.events(["s"], ["0-1"], ["gone"], [1])
        with pytest.raises(IllegalArgumentException, match="A registration is"):
            publisher.events(["s"], ["here"], ["active"], [1])
        with pytest.raises(ValueError):
            publisher.deltas(DeltaBatch(["s"], ["0-1"], [REMOVE, REMOVE], [1], ["1"]))
        assert not collector.records and not collector.tuples


def test_a_store_outside_kafka_needs_the_result_bolt():
    with pytest.raises(IllegalArgumentException, match="written by the result bolt.*given: 'redis'.*add the result bolt"):
        made(store="redis")
    made(store="redis", via_bolt=True)
