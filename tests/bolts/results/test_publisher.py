import json
import random
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

from dskype.bolts.results import formats
from dskype.bolts.results.events import ADD, MATCH, REMOVE
from dskype.bolts.results.formats import MessageKeys, json_names, names_of
from dskype.bolts.results.publisher import ResultPublisher
from dskype.spouts.result_fields import ResultFields
from dskype.topology import IllegalArgumentException
from dskype.topology.core.frames import OutRecords
from dskype.topology.tuples import column_to_list
from tests.bolts.results.batches import batch


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


def made(results="both", store="kafka", matches="each", fields=None, **kwargs):
    collector = Collector()
    return ResultPublisher(collector, "t", SimpleNamespace(results=results, store=store, matches=matches, result_fields=fields), **kwargs), collector


def mixed(n, seed):
    """Deltas of a few registrations, as columns."""
    rng = random.Random(seed)
    which = [rng.randrange(7) for _ in range(n)]
    return dict(
        subscription=[f"s{w}" for w in which],
        registration=[f"0-{w}" for w in which],
        kind=np.array([rng.randrange(3) for _ in range(n)], np.int8),
        message=[json.dumps(rng.choice([i, f"m{i}"])) for i in range(n)],
        score=np.array([rng.random() for _ in range(n)]),
        rank=np.array([rng.randrange(1, 9) for _ in range(n)], np.int32),
        watermark=np.arange(n, dtype=np.int64),
        meta=[None if w % 2 else f'{{"w":{w}}}' for w in which],
    )


def test_deltas_go_to_the_results_topic_in_order():
    publisher, collector = made()
    columns = mixed(300, 1)
    assert publisher.deltas(batch(**columns)) == 300
    assert {topic for topic, *_ in collector.records} == {"t.results"}
    values = [json.loads(value) for _, _, value, _ in collector.records]
    assert [v["watermark"] for v in values] == list(range(300))
    assert [v["subscription"] for v in values] == columns["subscription"]
    assert [v.get("meta") for v in values] == [m and json.loads(m) for m in columns["meta"]]
    assert [v.get("score") for v in values] == [s if op == ADD else None for s, op in zip(columns["score"].tolist(), columns["kind"])]
    assert [key for _, key, _, _ in collector.records] == [s.encode() for s in columns["subscription"]]
    assert len({headers["result-id"] for *_, headers in collector.records}) == 300


def test_a_registration_that_appears_under_two_subscriptions_is_not_mixed_up():
    publisher, collector = made()
    for name in "abab":
        publisher.deltas(batch([name], ["0-1"], [REMOVE], [1], ["1"]))
    assert [json.loads(v)["subscription"] for _, _, v, _ in collector.records] == list("abab")
    publisher, collector = made(via_bolt=True)
    publisher.deltas(batch(list("abab"), ["0-1"] * 4, [REMOVE] * 4, [1, 2, 3, 4], ["1"] * 4))
    assert [(name, watermark) for name, _, _, watermark, *_ in collector.tuples] == [("a", 1), ("b", 2), ("a", 3), ("b", 4)]


def test_without_deltas_matches_are_published_all_the_same():
    publisher, collector = made("topk")
    columns = mixed(100, 3)
    assert not publisher.wants_deltas
    assert publisher.deltas(batch(**columns)) == len(collector.records) == int((columns["kind"] == MATCH).sum())
    expected = [i for i in range(100) if columns["kind"][i] == MATCH]
    assert [json.loads(v)["watermark"] for _, _, v, _ in collector.records] == expected
    assert [json.loads(v).get("meta") for _, _, v, _ in collector.records] == [columns["meta"][i] and json.loads(columns["meta"][i]) for i in expected]


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
        assert publisher.deltas(batch([], [], [], [], [], [], [])) == 0
        assert publisher.states([], [], [], [0], [], []) == 0
        assert publisher.events([], [], [], []) == 0
        assert publisher.removed([], [], []) == 0
        assert not collector.records and not collector.tuples


def test_by_way_of_the_result_bolt_deltas_travel_as_columns():
    publisher, collector = made(via_bolt=True)
    columns = mixed(500, 4)
    publisher.deltas(batch(**columns))
    assert not collector.records
    assert collector.tuples == [
        (subscription, registration, op, watermark, message, score, rank, meta or "", 0, 0)
        for subscription, registration, op, watermark, message, score, rank, meta in zip(
            columns["subscription"],
            columns["registration"],
            columns["kind"].tolist(),
            columns["watermark"].tolist(),
            columns["message"],
            columns["score"].tolist(),
            columns["rank"].tolist(),
            columns["meta"],
        )
    ]


def test_what_is_not_given_of_deltas_is_empty_on_the_way():
    publisher, collector = made(via_bolt=True)
    publisher.deltas(batch(["s", "t"], ["0-1", "0-2"], [REMOVE, MATCH], np.array([3, 4]), ["1", '"x"']))
    assert collector.tuples == [("s", "0-1", REMOVE, 3, "1", 0.0, 0, "", 0, 0), ("t", "0-2", MATCH, 4, '"x"', 0.0, 0, "", 0, 0)]


def test_bad_input_is_refused_where_it_is_given():
    for via_bolt in (False, True):
        publisher, collector = made(via_bolt=via_bolt)
        with pytest.raises(IllegalArgumentException, match="add need scores and ranks"):
            publisher.deltas(batch(["s"], ["0-1"], [ADD], [1], ["1"]))
        with pytest.raises(IllegalArgumentException, match="event is not known"):
            publisher.events(["s"], ["0-1"], ["gone"], [1])
        with pytest.raises(IllegalArgumentException, match="A registration is"):
            publisher.events(["s"], ["here"], ["active"], [1])
        with pytest.raises(ValueError):
            publisher.deltas(batch(["s"], ["0-1"], [REMOVE, REMOVE], [1], ["1"]))
        assert not collector.records and not collector.tuples


def test_a_store_outside_kafka_needs_the_result_bolt():
    with pytest.raises(IllegalArgumentException, match="written by the result bolt.*given: 'redis'.*add the result bolt"):
        made(store="redis")
    made(store="redis", via_bolt=True)


# -- grouped matches ------------------------------------------------------------------------------


def texts_of(names):
    """Return names of subscriptions as the publisher takes them."""
    return names_of(json_names(names))


def message_keys(ids, watermarks, seqs=None):
    return MessageKeys(pa.array(ids, pa.string()), np.array(watermarks, np.int64), np.array(watermarks if seqs is None else seqs, np.int64))


def test_grouped_matches_have_the_fields_of_their_message_once():
    publisher, collector = made(matches="grouped", fields=ResultFields((("x", "text"),)))
    publisher.matches(message_keys(['"q","fields":{"x":"t"}'], [3]), np.zeros(2, np.int32), np.array([0, 1], np.int32), texts_of(["a", "b"]))
    ((_, key, value, headers),) = collector.records
    assert key == b"q" and value == b'{"v":1,"message":"q","fields":{"x":"t"},"watermark":3,"task":0,"subscriptions":["a","b"]}'
    assert headers["result-id"] == b'"q"/3/0/0'


@pytest.mark.parametrize("rows", [1, 2, 3, 100])
def test_lists_with_fields_are_put_together_some_at_a_time(rows):
    publisher, _ = made(store="redis", via_bolt=True, fields=ResultFields((("x", "text"),)))
    publisher.rows_at_once = rows
    offsets = np.array([0, 2, 2, 5, 6])
    messages = pa.chunked_array([['1,"fields":{}', "2", "3"], ["4", "5", "6"]], pa.string())
    states = publisher.encode_states([*"abcd"], ["0-1"] * 4, [7] * 4, offsets, messages, np.arange(6) / 8)
    plain = made(store="redis", via_bolt=True)[0].encode_states([*"abcd"], ["0-1"] * 4, [7] * 4, offsets, messages, np.arange(6) / 8)
    assert states == plain and [state.subscription for state in states] == [*"abcd"]
    assert json.loads(states[0].value)["topk"] == [{"message": 1, "fields": {}, "score": 0.0}, {"message": 2, "score": 0.125}]
    assert [part.stop - part.start for part in publisher.lists_at_once(offsets)] == {1: [1, 1, 1, 1], 2: [2, 1, 1], 3: [2, 1, 1], 100: [4]}[rows]


def test_the_matches_of_a_message_are_one_record():
    publisher, collector = made(matches="grouped", task=7)
    assert publisher.groups_matches and not made()[0].groups_matches
    names = texts_of(["a", "b", 'quo"te', "été"])
    messages = message_keys(["17", '"x"', '"quo\\"te"', '"\\u00e9\u6771"'], [3, 4, 5, 6], [30, 40, 50, 60])
    publisher.matches(messages, np.array([0, 0, 2, 3, 3], np.int32), np.array([1, 3, 2, 0, 1], np.int32), names)
    assert [(topic, key, value) for topic, key, value, _ in collector.records] == [
        ("t.matches", b"17", b'{"v":1,"message":17,"watermark":3,"task":7,"subscriptions":["b","\\u00e9t\\u00e9"]}'),
        ("t.matches", b'quo"te', b'{"v":1,"message":"quo\\"te","watermark":5,"task":7,"subscriptions":["quo\\"te"]}'),
        ("t.matches", "é東".encode(), '{"v":1,"message":"\\u00e9東","watermark":6,"task":7,"subscriptions":["a","b"]}'.encode()),
    ]
    assert [headers["result-id"].decode() for *_, headers in collector.records] == ["17/30/7/0", '"quo\\"te"/50/7/0', '"\\u00e9東"/60/7/0']
    publisher.matches(messages, np.zeros(0, np.int32), np.zeros(0, np.int32), names)
    assert len(collector.records) == 3


@pytest.mark.parametrize("seed", range(6))
def test_grouped_matches_say_what_they_are_made_of_and_are_cut_below_the_limit(seed):
    rng = random.Random(seed)
    names = ["".join(rng.choices('abc é"', k=rng.choice([1, 5, 60]))) for _ in range(rng.choice([3, 400]))]
    limit = rng.choice([300, 2000, 1 << 20])
    publisher, collector = made(matches="grouped", task=seed, record_bytes=2 * limit)
    n = 40
    ids = [json.dumps(rng.choice([i, f"m{i}", f"é{i}"]), ensure_ascii=False) for i in range(n)]
    pairs = sorted((rng.randrange(n), rng.randrange(len(names))) for _ in range(rng.choice([5, 4000])))
    columns = np.array(pairs, np.int32).reshape(-1, 2)
    publisher.matches(message_keys(ids, range(100, 100 + n)), columns[:, 0].copy(), columns[:, 1].copy(), texts_of(names))
    found, parts = [], Counter()
    for topic, key, value, headers in collector.records:
        record = json.loads(value)
        message = record["watermark"] - 100
        assert list(record) == ["v", "message", "watermark", "task", "subscriptions"] and record["v"] == 1 and record["task"] == seed
        assert record["message"] == json.loads(ids[message]) and key == str(record["message"]).encode()
        assert headers["result-id"].decode() == f"{ids[message]}/{record['watermark']}/{seed}/{parts[message]}"
        assert len(value) <= limit or len(record["subscriptions"]) == 1
        parts[message] += 1
        found += [(message, name) for name in record["subscriptions"]]
    assert found == [(message, names[number]) for message, number in pairs]
    assert (max(parts.values()) > 1) == (limit < 1 << 20 and len(pairs) > 5), "so much has been cut"


def test_many_matches_are_written_in_parts(monkeypatch):
    monkeypatch.setattr(formats, "_AT_ONCE_BYTES", 500)
    publisher, collector = made(matches="grouped", record_bytes=300)
    rows = np.repeat(np.arange(30, dtype=np.int32), 20)
    names = [f"s{i}" for i in range(20)]
    publisher.matches(message_keys([str(i) for i in range(30)], range(30)), rows, np.tile(np.arange(20, dtype=np.int32), 30), texts_of(names))
    found = [(r["message"], name) for _, _, value, _ in collector.records for r in [json.loads(value)] for name in r["subscriptions"]]
    assert found == [(i, name) for i in range(30) for name in names]
    assert len({headers["result-id"] for *_, headers in collector.records}) == len(collector.records) > 30


def test_merged_matches_are_grouped_by_message_whatever_their_order():
    publisher, collector = made(matches="grouped", task=9, via_bolt=True)
    given = batch(
        pa.array(["b", "a", "a", "c", "b"]),
        pa.array(["0-1"] * 5),
        np.full(5, MATCH, np.int8),
        np.array([5, 5, 4, 5, 4]),
        pa.array(["1", "2", "3", "1", "3"]),
        seq=np.array([8, 7, 6, 8, 6]),
    )
    publisher.merged_matches(given)
    assert [json.loads(value) for _, _, value, _ in collector.records] == [
        {"v": 1, "message": message, "watermark": watermark, "task": 9, "subscriptions": names}
        for message, watermark, names in ((3, 4, ["a", "b"]), (2, 5, ["a"]), (1, 5, ["b", "c"]))
    ]
    assert [headers["result-id"] for *_, headers in collector.records] == [b"3/6/9/0", b"2/7/9/0", b"1/8/9/0"]
