import json
import math
import random
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from dskype.bolts.results.events import ADD, ENTER, INITIAL, INSIDE, LEAVE, MATCH, REMOVE, SCORED_MATCH, event_record, parse_registration
from dskype.bolts.results.formats import delta_records, heads, state_values
from dskype.topology import IllegalArgumentException
from tests.bolts.results.batches import batch

ODD = ["s1", "with space", 'quo"te', "back\\slash", "ünï", "漢字", "new\nline", "a/b", "", "\U0001f600", "\x00"]


def deltas(n, seed):
    rng = random.Random(seed)
    rows = []
    for i in range(n):
        subscription = rng.choice(ODD)
        meta = rng.choice([None, {"a": [1, None, "ü"]}, "x", 0, None])
        message = rng.choice([rng.randrange(10**6), f"m{rng.randrange(99)}", 'q"', "漢"])
        op = rng.randrange(3)
        score = rng.choice([0.0, 1.0, 1 / 3, 5e-324, 1.7976931348623157e308, 1e22, 472222.0, 1.7e10, 17000000003.0, rng.random(), rng.random() * 1e-9])
        rows.append((subscription, f"{rng.randrange(3)}-{i}", meta, op, message, i - 1, score, rng.randrange(1, 1000)))
    return rows


def listed(records):
    """Return records as (key, value, result id)."""
    return [(key, value.encode(), result_id.encode()) for key, value, result_id in zip(*(column.to_pylist() for column in records), strict=True)]


def encode(rows):
    return listed(
        delta_records(
            batch(
                subscription=[r[0] for r in rows],
                registration=[r[1] for r in rows],
                kind=np.array([r[3] for r in rows], np.int8),
                watermark=np.array([r[5] for r in rows], np.int64),
                message=[json.dumps(r[4]) for r in rows],
                score=np.array([r[6] for r in rows]),
                rank=np.array([r[7] for r in rows], np.int32),
                meta=[None if r[2] is None else json.dumps(r[2]) for r in rows],
            )
        )
    )


def test_deltas_read_back_as_what_they_say():
    rows = deltas(2000, 1)
    for (subscription, registration, meta, op, message, watermark, score, rank), (key, value, _) in zip(rows, encode(rows), strict=True):
        expected = {"v": 1, "subscription": subscription, "watermark": watermark, "op": ("add", "remove", "match")[op], "message": message}
        if op == ADD:
            expected |= {"score": score, "rank": rank}
        if meta is not None:
            expected["meta"] = meta
        assert json.loads(value) == expected
        assert list(json.loads(value)) == list(expected), "the order of the fields"
        assert key == subscription.encode()


def test_fields_come_behind_the_id_of_a_message_but_not_in_removals_and_headers():
    given = batch(
        ["s"] * 3, ["0-1"] * 3, [ADD, REMOVE, MATCH], [5, 6, 7], ['"a,","fields":{"x":1}', '18,"fields":{}', '2,"fields_omitted":true'], [0.5, 0, 0], [1, 0, 0]
    )
    assert listed(delta_records(given, fields=True)) == [
        (b"s", b'{"v":1,"subscription":"s","watermark":5,"op":"add","message":"a,","fields":{"x":1},"score":0.5,"rank":1}', b'0-1/"s"/5/add/"a,"'),
        (b"s", b'{"v":1,"subscription":"s","watermark":6,"op":"remove","message":18}', b'0-1/"s"/6/remove/18'),
        (b"s", b'{"v":1,"subscription":"s","watermark":7,"op":"match","message":2,"fields_omitted":true}', b'0-1/"s"/7/match/2'),
    ]


def test_the_text_of_a_delta_is_fixed():
    names, places, metas = ["s1", "s1", "ü"], ["0-17", "0-17", "2-5"], ['{"room": 3}', '{"room": 3}', None]
    given = batch(names, places, [ADD, REMOVE, MATCH], [5, 6, 7], ['"a17"', "18", '"ö"'], [0.125, 0.0, 0.0], [1, 0, 0], metas)
    records = listed(delta_records(given))
    assert records == [
        (b"s1", b'{"v":1,"subscription":"s1","watermark":5,"op":"add","message":"a17","score":0.125,"rank":1,"meta":{"room": 3}}', b'0-17/"s1"/5/add/"a17"'),
        (b"s1", b'{"v":1,"subscription":"s1","watermark":6,"op":"remove","message":18,"meta":{"room": 3}}', b'0-17/"s1"/6/remove/18'),
        ("ü".encode(), '{"v":1,"subscription":"\\u00fc","watermark":7,"op":"match","message":"ö"}'.encode(), '2-5/"\\u00fc"/7/match/"ö"'.encode()),
    ]


def test_result_ids_differ_wherever_results_differ():
    rows = deltas(3000, 2)
    rows += [(s, r, m, (op + 1) % 3, *rest) for s, r, m, op, *rest in rows[:100]]
    rows += [(s, r, m, op, message, w + 10**6, *rest) for s, r, m, op, message, w, *rest in rows[:100]]
    rows += [(s, r, m, op, f"{message}/", w, *rest) for s, r, m, op, message, w, *rest in rows[:100]]
    assert len({result_id for *_, result_id in encode(rows)}) == len({(r[0], r[1], r[3], json.dumps(r[4]), r[5]) for r in rows}) == 3300
    assert encode(rows) == encode(rows)


def test_columns_may_be_arrays_arrow_or_lists_of_numpy_numbers():
    shared = np.array(["s", "s"], object), pa.array(["0-1", "0-1"])
    plain = listed(delta_records(batch(["s"] * 2, ("0-1", "0-1"), [0, 1], [3, 4], ["1", "2"], [0.5, 0.25], [1, 2], [None, None])))
    scores, ranks = [np.float64(0.5), np.float64(0.25)], np.array([1, 2], np.int32)
    assert listed(delta_records(batch(*shared, np.array([0, 1], np.int8), np.array([3, 4]), pa.array(["1", "2"]), scores, ranks))) == plain
    read_only = np.array([0.5, 0.25])
    read_only.flags.writeable = False
    assert listed(delta_records(batch(*shared, pa.array([0, 1]), [3, 4], ("1", "2"), read_only, [1, 2]))) == plain
    assert listed(delta_records(batch([], [], [], [], []))) == []


def test_removes_and_matches_need_no_scores():
    records = listed(delta_records(batch(["s"] * 2, ["0-1"] * 2, [REMOVE, MATCH], [3, 4], ["1", "2"])))
    assert [json.loads(v)["op"] for _, v, _ in records] == ["remove", "match"]


def test_a_match_that_was_there_already_says_so():
    given = batch(
        ["s"] * 4, ["0-1"] * 4, [INITIAL, MATCH, SCORED_MATCH, INITIAL], [5, 6, 7, 5], ["1", "2", "3", "4"], [0, 0, 1.0, 0], None, [None, None, None, "8"]
    )
    values = [value for _, value, _ in listed(delta_records(given))]
    assert [json.loads(value).get("initial") for value in values] == [True, None, None, True] and json.loads(values[2])["score"] == 1.0
    assert values[3] == b'{"v":1,"subscription":"s","watermark":5,"op":"match","message":4,"initial":true,"meta":8}'
    alone = listed(delta_records(replace(given, score=None).take(np.array([0]))))
    assert alone == [(b"s", b'{"v":1,"subscription":"s","watermark":5,"op":"match","message":1,"initial":true}', b'0-1/"s"/5/match/1')]


def test_a_match_has_a_score_where_it_reached_one():
    given = batch(["s"] * 3, ["0-1"] * 3, [ADD, MATCH, SCORED_MATCH], [5, 6, 7], ["1", "2", "3"], [0.5, 0.25, 1.0], [1, 0, 0])
    records = listed(delta_records(given))
    assert [json.loads(value).get("score") for _, value, _ in records] == [0.5, None, 1.0]
    assert records[2][1:] == (b'{"v":1,"subscription":"s","watermark":7,"op":"match","message":3,"score":1.0}', b'0-1/"s"/7/match/3')
    assert listed(delta_records(replace(given.take(np.array([2])), rank=None))) == records[2:]
    with pytest.raises(IllegalArgumentException, match=r"9 \(match, with scores\)"):
        delta_records(replace(given, score=None, kind=[MATCH, MATCH, SCORED_MATCH]))


@pytest.mark.parametrize("op", [4, 5, 11, -1])
def test_an_unknown_op_is_refused(op):
    with pytest.raises(IllegalArgumentException, match=r"cannot be written.*legal: 0 \(add"):
        delta_records(batch(["s"], ["0-1"], [op], [3], ["1"], [0.5], [1]))


def test_an_add_without_scores_is_refused_and_so_are_columns_of_different_lengths():
    with pytest.raises(IllegalArgumentException, match="with scores and ranks"):
        delta_records(batch(["s"], ["0-1"], [ADD], [3], ["1"]))
    with pytest.raises(IllegalArgumentException, match="differ in length"):
        delta_records(batch(["s"], ["0-1"], [ADD], [3], ["1", "2"], [0.5], [1]))


def test_states_read_back_as_what_they_say():
    rng = random.Random(3)
    subscriptions = [rng.choice(ODD) for _ in range(50)]
    lists = [[(rng.choice([rng.randrange(99), "m", "ü"]), rng.random()) for _ in range(rng.randrange(5))] for _ in subscriptions]
    offsets = np.cumsum([0, *map(len, lists)])
    shared = heads(subscriptions, [f"1-{i}" for i in range(50)])
    values = state_values(shared, np.arange(50) - 1, offsets, [json.dumps(m) for ms in lists for m, _ in ms], np.array([s for ms in lists for _, s in ms]))
    assert [json.loads(v) for v in values.to_pylist()] == [
        {"v": 1, "subscription": s, "registration": f"1-{i}", "watermark": i - 1, "topk": [{"message": m, "score": score} for m, score in ms]}
        for i, (s, ms) in enumerate(zip(subscriptions, lists))
    ]
    assert state_values(heads(["s"], ["0-3"]), [4], [0, 1], ['"a"'], [0.5]).to_pylist() == [
        '{"v":1,"subscription":"s","registration":"0-3","watermark":4,"topk":[{"message":"a","score":0.5}]}'
    ]
    assert state_values(heads(["s"], ["0-3"]), [4], [0, 0], [], []).to_pylist() == ['{"v":1,"subscription":"s","registration":"0-3","watermark":4,"topk":[]}']


def test_events_read_back_as_what_they_say():
    shared = 's"1', "2-9"
    assert event_record(*shared, "active", -1) == (
        b's"1',
        b'{"v":1,"subscription":"s\\"1","registration":"2-9","event":"active","watermark":-1}',
        b'2-9/"s\\"1"/-1/active',
    )
    assert json.loads(event_record(*shared, "removed", 7)[1]) == {"v": 1, "subscription": 's"1', "registration": "2-9", "event": "removed", "watermark": 7}
    with pytest.raises(IllegalArgumentException, match=r"given: 'gone'; legal: active \| updated \| removed"):
        event_record(*shared, "gone", 7)


@pytest.mark.parametrize("registration", ["", "1", "1-", "-1", "a-1", "1-b", "1-2-3", "-1-2", "１-2", None, 7])
def test_a_malformed_registration_is_refused(registration):
    with pytest.raises(IllegalArgumentException, match='legal: "<partition>-<offset>"'):
        heads(["s", "s"], ["0-1", registration])
    with pytest.raises(IllegalArgumentException, match='legal: "<partition>-<offset>"'):
        event_record("s", registration, "active", 0)
    assert parse_registration("3-17") == (3, 17)


def test_scores_read_back_bit_for_bit():
    rng = np.random.default_rng(4)
    scores = np.concatenate([rng.random(2000), np.nextafter(rng.random(100), 2), [0.1 + 0.2, math.pi, 1e-300]])
    n = len(scores)
    records = listed(delta_records(batch(["s"] * n, ["0-1"] * n, np.zeros(n, np.int8), np.arange(n), ["1"] * n, scores, np.ones(n, np.int32))))
    assert [json.loads(v)["score"] for _, v, _ in records] == scores.tolist()


def test_a_result_of_an_object_names_it():
    message = '"m1","object":"bus 7"'
    (_, value, result_id), *others = listed(delta_records(batch(["s"] * 3, ["0-1"] * 3, [ENTER, INSIDE, LEAVE], [3, 4, 5], [message] * 3)))
    assert json.loads(value) == {"v": 1, "subscription": "s", "watermark": 3, "op": "enter", "message": "m1", "object": "bus 7"}
    assert result_id == b'0-1/"s"/3/enter/"m1","object":"bus 7"'
    assert [json.loads(v)["op"] for _, v, _ in others] == ["inside", "leave"]
