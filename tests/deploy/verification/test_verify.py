"""The verification: what a plain system writes passes, and every kind of mistake in it is found and described."""

from __future__ import annotations

import contextlib
import itertools
import json
import random
import threading
import uuid
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from kafka import KafkaProducer

from dskype.deploy.cli.main import main
from dskype.deploy.verification import Inputs, Record, Report, verify
from dskype.deploy.verification.inputs import header
from dskype.deploy.verification.oracle import Oracle
from dskype.deploy.verification.topics import _last_time_ms, count_pending
from dskype.spouts.settings import Settings
from dskype.spouts.topics import Topics
from dskype.topology.runtime.kafka.clients import KafkaSettings
from dskype.topology.runtime.kafka.topic_admin import TopicAdmin
from tests import languages, naive
from tests.deploy.verification.plain_system import TOPICS, PlainSystem

pytestmark = pytest.mark.long

COUNT = {"dskype.window.messages": 20}
TIME = {"dskype.window.span.ms": 700, "dskype.window.lateness.ms": 100}


def small(**more: Any) -> PlainSystem:
    """A few messages and subscriptions, nothing random: lists and matches that a reader can follow."""
    system = PlainSystem({"dskype.window.messages": 5, "dskype.space": [-10, -10, 10, 10], **more}, hesitant=False)
    system.subscribe("near", {"type": "topk", "keywords": ["coffee"], "lat": 0, "lon": 0, "k": 2, "alpha": 1, "meta": {"team": 1}})
    system.subscribe("all", {"type": "boolean", "bbox": [-9, -9, 9, 9], "expression": "coffee AND (wifi OR tea)"})
    for i, (words, lat) in enumerate(
        [
            ("coffee", 3),
            ("coffee wifi", 1),
            ("tea", 0),
            ("coffee tea", 2),
            ("coffee wifi", 0),
            ("lake", 0),
            ("coffee tea", 5),
            ("coffee", 6),
            ("coffee", 7),
            ("tea coffee", 8),
        ]
    ):
        system.publish({"id": f"m{i}", "text": words, "lat": lat, "lon": 0})
        system.work()
    system.subscribe("late", {"type": "topk", "keywords": ["tea"], "lat": 0, "lon": 0, "k": 3, "alpha": 0.5})
    system.publish({"text": "coffee tea wifi", "lat": 1, "lon": 1})
    system.settle()
    return system


def check(system: PlainSystem, **more: Any) -> Report:
    return verify(system.inputs(), system.settings, **{"final": True, **more})


def value(record: Record) -> Any:
    return json.loads(record.value or b"null")


def change(system: PlainSystem, topic: str, which: Callable[[Any], bool], how: Callable[[Any], Any], nth: int = 0) -> Record:
    """Change one published record; ``how`` returns its new value, or None to drop it."""
    records = system.topics[topic]
    places = [i for i, r in enumerate(records) if r.value is not None and which(value(r))]
    at = places[nth]
    old = records[at]
    new = how(value(old))
    if new is None:
        del records[at]  # a hole in the offsets is no difference
    else:
        records[at] = old._replace(value=json.dumps(new, separators=system.separators).encode())
    return old


def first(report: Report, kind: str) -> Any:
    assert kind in report.counts, report.as_text()
    found = next(d for d in report.differences if d.kind == kind)
    assert found.as_text() in report.as_text(100)
    json.dumps(report.as_json())
    return found


# --- what is right passes ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(24))
def test_what_a_right_system_writes_passes_whatever_it_was_asked(seed):
    texts = ["coffee tea", "coffee", "late night museum", "coffee lake"]
    conf = {**(TIME if seed % 2 else COUNT), "dskype.results": ("both", "deltas", "topk")[seed % 3 if seed > 12 else 0]}
    conf["dskype.results.matches"] = ("each", "grouped")[seed // 2 % 2]
    system = PlainSystem(conf, seed=seed, partitions=1 + seed % 4, areas=(0, 0.5)[seed // 4 % 2]).some_traffic()
    for final in (True, False):
        report = check(system, final=final)
        assert report.ok, report.as_text(3)
    assert report.compared["messages"] > 30
    assert texts


WHOLE = {
    **COUNT,
    "dskype.attributes": languages.ATTRIBUTES,
    "dskype.text.fields": list(languages.FIELDS),
    "dskype.boolean.prefixes": True,
    "dskype.boolean.wordless": True,
    "dskype.stop.words": ["the", "bar"],
}


@pytest.mark.parametrize("seed", range(12))
def test_a_right_system_passes_with_the_whole_language_of_expressions(seed):
    conf = [WHOLE, {**WHOLE, "dskype.text.fields": []}, {**WHOLE, "dskype.boolean.wordless": False}, {**COUNT, "dskype.boolean.wordless": True}][seed % 4]
    system = PlainSystem(conf, seed=seed, partitions=1 + seed % 3, areas=0.2, whole=True).some_traffic(40)
    report = check(system)
    assert report.ok, report.as_text(3)
    assert report.compared["matches"] > 20 and report.compared["dead letters"] > 10


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("_has_phrase", lambda found, within, places, wanted: set(wanted) <= set(found)),
        ("_has_phrase", lambda found, within, places, wanted: right_phrase(found, within + 1, places, wanted)),
        ("_has_phrase", lambda found, within, places, wanted: right_phrase([word for word in found if word is not None], within, places, wanted)),
        ("_compares", lambda value, comparison, *operands: comparison == "!=" if value is None else right_comparison(value, comparison, *operands)),
        ("_compares", lambda value, comparison, *operands: right_comparison(value, {"<=": "<", ">=": ">"}.get(comparison, comparison), *operands)),
        ("_holds", lambda expression, *rest: expression[0] != "not" and right_holds(expression, *rest)),
    ],
    ids=["phrases without order", "phrases too wide", "stop words without a place", "absent attributes that differ", "borders left out", "NOT never holds"],
)
def test_a_system_that_evaluates_expressions_wrongly_is_found_out(monkeypatch, name, wrong):
    monkeypatch.setattr(naive, name, wrong)
    conf = {**WHOLE, "dskype.text.fields": []}
    reports = (check(PlainSystem(conf, seed=seed, areas=0.2, whole=True).some_traffic(60)) for seed in range(10))
    report = next(report for report in reports if "match" in report.counts)
    assert report.counts.keys() <= {"match", "state", "delta"} and "boolean subscription" in first(report, "match").as_text()


right_phrase, right_comparison, right_holds = naive._has_phrase, naive._compares, naive._holds


FIELDS = {"dskype.results.fields": {"words": "text", "where": "place", "at": "time", "raw": "$.lat", "tag": "$.attributes.tags[0]"}}


@pytest.mark.parametrize("seed", range(8))
def test_a_right_system_passes_with_fields_in_results(seed):
    conf = {
        **(WHOLE if seed % 2 else TIME),
        **FIELDS,
        "dskype.results.fields.max.bytes": (90, 1024)[seed // 2 % 2],
        "dskype.results.matches": ("each", "grouped")[seed // 4],
    }
    if seed % 2:
        conf["dskype.results.fields"] = FIELDS["dskype.results.fields"] | {"cost": "price", "title": "title"}
    system = PlainSystem(conf, seed=seed, partitions=1 + seed % 3, areas=0.3, whole=bool(seed % 2)).some_traffic(40)
    report = check(system)
    assert report.ok, report.as_text(3)
    assert report.compared["fields"] > 50


@pytest.mark.parametrize(
    ("topic", "which", "how"),
    [
        ("results", lambda v: v["op"] == "add", lambda v: v | {"fields": v["fields"] | {"words": "tea"}}),
        ("results", lambda v: v["op"] == "match", lambda v: {name: entry for name, entry in v.items() if name != "fields"}),
        ("results", lambda v: v["op"] == "remove", lambda v: v | {"fields": {}}),
        ("results", lambda v: v["op"] == "add", lambda v: {**v, "fields_omitted": True}),
        ("results", lambda v: v["op"] == "add", lambda v: v | {"fields": v["fields"] | {"raw": float(v["fields"]["raw"])}}),
        ("topk", lambda v: len(v["topk"]) > 1, lambda v: v | {"topk": [v["topk"][0] | {"fields": v["topk"][1]["fields"]}, *v["topk"][1:]]}),
        ("matches", lambda v: True, lambda v: v | {"fields": v["fields"] | {"more": 1}}),
    ],
    ids=range(7),
)
def test_wrong_fields_in_results_are_found(topic, which, how):
    system = small(**FIELDS, **({"dskype.results.matches": "grouped"} if topic == "matches" else {}))
    assert check(system).ok
    change(system, topic, which, how)
    report = check(system)
    assert report.counts == {"format": 1} and "has other fields of message" in first(report, "format").text


def test_fields_that_nobody_asked_for_are_found():
    system = small()
    change(system, "results", match, lambda v: v | {"fields": {}})
    assert "has other fields" in first(check(system), "format").text


def test_everything_is_looked_at():
    report = check(PlainSystem(COUNT, seed=5).some_traffic(60))
    assert report.ok
    for what in ("messages", "subscriptions", "registration events", "dead letters", "lists", "final lists", "deltas", "watermarks with deltas", "matches"):
        assert report.compared[what] > 2, report.as_text()
    for what in (
        "repeated deltas",
        "repeated records of the sequence",
        "repeated dead letters",
        "repeated registration events",
        "changes of lists that were not published one by one, but in a jump",
    ):
        assert report.notes[what] > 0, report.as_text()
    assert report.read["dskype.messages"] > report.compared["messages"]


def test_a_system_that_never_hesitates_publishes_every_change_one_by_one():
    report = check(small())
    assert report.ok and not report.unchecked
    assert not report.notes["changes of lists that were not published one by one, but in a jump"]
    assert report.as_text().splitlines()[-1].startswith("equal")


def test_weights_come_from_the_vocabulary(tmp_path):
    from dskype.spouts.text import Tokenizer
    from dskype.spouts.vocabulary import Vocabulary

    texts = ["coffee tea", "coffee", "coffee museum", "late night lake museum"] * 3
    Vocabulary.build(texts, Tokenizer(["late"])).save(tmp_path / "v.tsv")
    conf = {**COUNT, "dskype.vocabulary": str(tmp_path / "v.tsv"), "dskype.stop.words": ["late"]}
    system = PlainSystem(conf, seed=3, texts=texts).some_traffic()
    assert check(system).ok
    report = verify(system.inputs(), Settings.from_conf({**conf, "dskype.vocabulary": None}), final=True)
    assert "state" in report.counts and "delta" in report.counts


def test_the_order_of_the_records_does_not_matter():
    system = PlainSystem(COUNT, seed=9, partitions=3).some_traffic()
    for records in system.topics.values():
        random.Random(1).shuffle(records)
    assert check(system).ok
    plain = Inputs(**{name: [tuple(r) for r in records] for name, records in system.topics.items()})
    assert verify(plain, system.settings, final=True).ok


def test_inputs_are_read_topic_by_topic_effects_before_causes():
    from dskype.topology.tuples import InRecord

    system, asked = small(), []

    def read(topic: str) -> list[InRecord]:
        asked.append(topic)
        name = topic.removeprefix("dskype.").replace("-", "_")
        return [InRecord(topic, *r) for r in system.topics.get(name, ())]

    assert verify(Inputs.read("dskype", read), system.settings, final=True).ok
    assert asked[0] == "dskype.results" and asked[-1] == "dskype.messages" and len(asked) == 10
    assert asked.index("dskype.answers") < asked.index("dskype.searches")


@pytest.mark.parametrize("wrong", [False, True])
def test_records_read_at_once_and_one_by_one_are_the_same(monkeypatch, wrong):
    from dskype.deploy.verification import results

    read: list[bool] = []
    original = results.read_table
    for seed in range(4):
        system = PlainSystem(COUNT, seed=seed, partitions=2).some_traffic()
        grouped = PlainSystem({**COUNT, "dskype.results.matches": "grouped"}, seed=seed, partitions=2, areas=0.3).some_traffic()
        if wrong:
            change(grouped, "matches", lambda v: True, lambda v: v | {"message": [1]})
            change(grouped, "matches", lambda v: True, lambda v: v | {"subscriptions": [*v["subscriptions"], None]}, 2)
            change(grouped, "matches", lambda v: True, lambda v: v | {"task": "x"}, 3)
            change(system, "results", match, lambda v: v | {"message": [1]})
            change(system, "results", match, lambda v: v | {"message": 17}, 1)
            change(system, "topk", lambda v: v["topk"], lambda v: v | {"topk": [{"message": "m", "score": "0"}]})
            change(system, "topk", lambda v: v["topk"], lambda v: v | {"topk": [*v["topk"], {"message": True, "score": 0}]}, 3)
        reports = []
        for table in (lambda values, schema: read.append(True) or original(values, schema), lambda values, schema: None):
            monkeypatch.setattr(results, "read_table", table)
            reports.append([check(either).as_json() | {"seconds": 0} for either in (system, grouped)])
        assert reports[0] == reports[1] and all(report["ok"] is not wrong for report in reports[0])
    assert read


def test_nothing_at_all_is_no_difference():
    for conf in (COUNT, TIME):
        for final in (True, False):
            assert verify(Inputs(), Settings.from_conf(conf), final=final).ok


# --- lists ------------------------------------------------------------------------------------------------------------


def near(v: Any) -> bool:
    return v["subscription"] == "near" and len(v.get("topk", (1, 2))) == 2


def test_a_wrong_score_in_a_list_is_found_and_shown_side_by_side():
    system = small()
    change(system, "topk", near, lambda v: v | {"topk": [v["topk"][0], v["topk"][1] | {"score": v["topk"][1]["score"] + 1e-6}]})
    found = first(check(system), "state")
    text = found.as_text()
    assert found.subscription == "near" and found.registration == "0-0" and found.watermark == 1 and "dskype.topk/0 offset" in found.where
    assert "words coffee; lat 0.0, lon 0.0, k 2, alpha 1.0" in text and "active from -1" in text
    assert "rank  expected" in text and '2     "m0"      0.893933982822  "m0"       0.893934982822  <- coffee' in text and text.count("coffee wifi") == 1
    assert found.expected[0]["message"] == "m1" and found.published[1]["score"] - found.expected[1]["score"] == pytest.approx(1e-6)


def test_a_score_that_differs_by_less_than_the_tolerance_passes():
    system = small()
    change(system, "topk", near, lambda v: v | {"topk": [v["topk"][0], v["topk"][1] | {"score": v["topk"][1]["score"] + 5e-10}]})
    assert check(system).ok


@pytest.mark.parametrize(
    "how",
    [
        lambda v: v | {"topk": v["topk"][:1]},  # an entry is missing
        lambda v: v | {"topk": v["topk"][::-1]},  # in wrong order
        lambda v: v | {"topk": [v["topk"][0]] * 2},  # one twice
        lambda v: v | {"topk": [v["topk"][0], v["topk"][1] | {"message": "m2"}]},  # another message
        lambda v: v | {"topk": [v["topk"][0], v["topk"][1] | {"message": "unheard"}]},  # no message
        lambda v: v | {"topk": [v["topk"][0], v["topk"][1] | {"score": float("nan")}]},
        lambda v: v | {"topk": [*v["topk"], {"message": "m4", "score": 0.1}]},
        lambda v: v | {"watermark": v["watermark"] + 3},  # of another time
        lambda v: v | {"topk": []},
    ],
    ids=range(9),
)
def test_a_wrong_list_is_found(how):
    system = small()
    old = change(system, "topk", near, how)
    report = check(system)
    assert report.counts == {"state": 1}
    assert first(report, "state").where == f"dskype.topk/0 offset {old.offset}"


def test_messages_of_equal_score_may_change_places_and_only_they():
    system = PlainSystem({"dskype.window.messages": 10}, hesitant=False)
    system.subscribe("s", {"type": "topk", "keywords": ["tea"], "lat": 0, "lon": 0, "k": 2, "alpha": 0.5})
    for name in "abc":
        system.publish({"id": name, "text": "tea", "lat": 1, "lon": 1})
        system.work()
    system.settle()
    assert not check(system).notes
    change(system, "topk", lambda v: v["watermark"] == 2, lambda v: v | {"topk": v["topk"][::-1]})
    report = check(system)
    assert report.ok and report.notes["places where messages of equal score stand in another order"] == 2
    change(system, "topk", lambda v: v["watermark"] == 2, lambda v: v | {"topk": [v["topk"][0]] * 2})
    assert check(system).counts == {"state": 1}


def test_a_list_that_was_not_replaced_at_the_end_is_stale():
    system = small()
    states = [i for i, r in enumerate(system.topics["topk"]) if value(r)["subscription"] == "near"]
    stale = value(system.topics["topk"][states[-2]])["watermark"]
    del system.topics["topk"][states[-1]]
    assert check(system, final=False).ok
    found = first(check(system), "state")
    assert f"is of watermark {stale}, but the list at watermark" in found.text


def test_a_subscription_without_its_last_list_is_found():
    system = small()
    system.topics["topk"] = [r for r in system.topics["topk"] if value(r)["subscription"] != "late"]
    assert check(system, final=False).ok
    assert "'late' has no list" in first(check(system), "state").text


def test_an_unregistered_subscription_must_have_no_list():
    system = small()
    system.subscribe("near", None)
    assert check(system).ok
    system.topics["topk"].pop()
    assert "is not a top-k subscription any more" in first(check(system), "state").text


def test_a_list_outside_the_life_of_its_registration_is_found():
    system = small()
    change(system, "topk", lambda v: v["subscription"] == "late", lambda v: v | {"watermark": 3})
    assert "outside its life from 10 to now" in first(check(system), "state").text
    system = small()
    change(system, "topk", near, lambda v: v | {"watermark": 300})
    assert "the newest message is at 10" in first(check(system), "state").text


def test_the_first_difference_is_the_earliest():
    system = small()
    for nth in (3, 2, 1):
        change(system, "topk", near, lambda v: v | {"topk": v["topk"][:1]}, nth)
    report = check(system)
    assert report.counts == {"state": 3}
    assert report.differences[0].watermark == min(d.watermark for d in report.differences)
    assert report.as_text().splitlines()[-1].startswith("DIFFERENT 3 differences")


# --- deltas -----------------------------------------------------------------------------------------------------------


def add(v: Any) -> bool:
    return v["op"] == "add" and v["subscription"] == "near"


def rename(system: PlainSystem, topic: str = "results") -> None:
    """Give each record the result-id that fits its value, so that only the value is wrong."""
    for i, r in enumerate(system.topics[topic]):
        v = value(r)
        registration = header(r, "result-id").split("/")[0]
        identity = f"{registration}/{json.dumps(v['subscription'])}/{v['watermark']}/{v['op']}/{json.dumps(v['message'])}"
        system.topics[topic][i] = r._replace(headers=[h if h[0] != "result-id" else ("result-id", identity.encode()) for h in r.headers])


@pytest.mark.parametrize(
    "how, text",
    [
        (lambda v: v | {"score": v["score"] + 1e-6}, "that its deltas give differs"),
        (lambda v: v | {"rank": v["rank"] + 1}, "wrong rank or score"),
        (lambda v: v | {"rank": 0}, "wrong rank or score"),
        (lambda v: v | {"message": "m2"}, "that its deltas give differs"),
        (lambda v: None, "that its deltas give differs"),
        (lambda v: v | {"watermark": v["watermark"] + 1}, "that its deltas give differs"),
    ],
    ids=range(6),
)
def test_a_wrong_delta_is_found(how, text):
    system = small()
    change(system, "results", add, how, 3)
    rename(system)
    report = check(system)
    assert set(report.counts) == {"delta"}
    found = first(report, "delta")
    assert text in found.text and found.subscription == "near"
    assert any(line.startswith("deltas: ") for line in found.details)


def test_a_remove_that_is_missing_is_found():
    system = small()
    change(system, "results", lambda v: v["op"] == "remove" and v["subscription"] == "near", lambda v: None)
    assert "that its deltas give differs" in first(check(system), "delta").text


def test_a_message_that_is_added_or_removed_twice_is_found():
    for op, text in (("add", "adds a message that is in the list"), ("remove", "removes a message that is not in the list")):
        system = small()
        at, record = next((i, r) for i, r in enumerate(system.topics["results"]) if value(r)["op"] == op and value(r)["watermark"] > 2)
        identity = ("result-id", b"0-0/again")
        system.topics["results"].insert(at + 1, record._replace(headers=[record.headers[0], identity], offset=record.offset))
        found = first(check(system), "delta")
        assert text in found.text


def test_the_last_deltas_must_give_the_last_list():
    system = small()
    newest = max(value(r)["watermark"] for r in system.topics["results"] if value(r)["subscription"] == "near")
    system.topics["results"] = [r for r in system.topics["results"] if (value(r)["subscription"], value(r)["watermark"]) != ("near", newest)]
    assert check(system, final=False).ok
    assert "after all its deltas" in first(check(system), "delta").text


def test_deltas_that_go_back_in_time_are_found():
    system = small()
    change(system, "results", add, lambda v: v | {"watermark": 0}, -1)
    rename(system)
    assert "go back from watermark" in first(check(system), "delta").text


def test_the_list_of_a_removed_registration_must_be_taken_back():
    system = small()
    system.subscribe("near", None)
    assert check(system).ok
    change(system, "results", lambda v: v["op"] == "remove" and v["subscription"] == "near", lambda v: None, -1)
    assert "was not emptied" in first(check(system), "delta").text


def test_repeated_deltas_count_once_and_must_be_equal():
    system = small()
    again = system.topics["results"][3]
    system.topics["results"].append(again._replace(offset=1000))
    report = check(system)
    assert report.ok and report.notes["repeated deltas"] == 1
    system.topics["results"][-1] = again._replace(offset=1000, value=again.value.replace(b'"v":1', b'"v": 1'))
    assert "differ" in first(check(system), "format").text


def test_while_the_topology_works_the_end_of_the_log_may_cut_deltas_apart():
    system = PlainSystem(COUNT, seed=11)
    system.crashes = False
    system.some_traffic()
    whole = len(system.topics["results"])
    for cut in range(whole - 40, whole):
        inputs = system.inputs()
        inputs.results = inputs.results[:cut]
        report = verify(inputs, system.settings)
        assert report.ok, report.as_text(3)


def test_jumps_are_counted():
    system = small()
    before, after = 1, 4
    entry = system.topk["near"]
    between = PlainSystem({"dskype.window.messages": 5, "dskype.space": [-10, -10, 10, 10]}, hesitant=False)
    between.subscribe("near", value(system.topics["subscriptions"][0]))
    for i, record in enumerate(system.topics["messages"][:8]):
        if i == before + 1:
            between.topk["near"].pending = after - before
        between.publish(value(record))
        between.work()
    between.settle()
    report = check(between)
    assert report.ok and entry
    assert report.notes["changes of lists that were not published one by one, but in a jump"] == 1


def test_two_messages_with_one_id_in_a_list_cannot_be_told_apart_by_deltas():
    system = PlainSystem({"dskype.window.messages": 3}, hesitant=False)
    system.subscribe("s", {"type": "topk", "keywords": ["tea"], "lat": 0, "lon": 0, "k": 2, "alpha": 1})
    for lat in (1, 2, 3, 4, 5, 6):
        system.publish({"id": "same", "text": "tea", "lat": lat, "lon": 0})
        system.work()
    system.settle()
    report = check(system)
    assert report.ok, report.as_text()
    assert report.unchecked["deltas after a list with two messages of one id"] > 0
    assert report.compared["lists"] == 5
    change(system, "topk", lambda v: v["watermark"] == 4, lambda v: v | {"topk": v["topk"][:1]})
    assert check(system).counts == {"state": 1}


def test_deltas_of_two_messages_with_one_id_have_one_result_id():
    """Both are in the list with which a subscription begins, so they are added at one watermark."""
    system = PlainSystem({"dskype.window.messages": 5}, hesitant=False)
    for lat in (1, 2):
        system.publish({"id": "same", "text": "tea", "lat": lat, "lon": 0})
    system.work()
    system.subscribe("s", {"type": "topk", "keywords": ["tea"], "lat": 0, "lon": 0, "k": 2, "alpha": 1})
    system.work()
    system.publish({"id": "other", "text": "coffee", "lat": 1, "lon": 0})
    system.settle()
    report = check(system)
    assert report.ok, report.as_text()
    assert report.unchecked["deltas of two messages with one id, which have one result-id"] > 0
    change(system, "messages", lambda v: v["id"] == "same", lambda v: v | {"id": "its own"})
    assert not check(system).ok


def test_a_delta_that_was_written_again_differently_is_found_even_if_two_messages_have_its_id():
    system = PlainSystem({"dskype.window.messages": 5}, hesitant=False)
    system.subscribe("s", {"type": "topk", "keywords": ["tea"], "lat": 0, "lon": 0, "k": 2, "alpha": 1})
    for lat in (1, 2):
        system.publish({"id": "same", "text": "tea", "lat": lat, "lon": 0})
        system.work()
    system.settle()
    assert check(system).ok
    added = next(r for r in system.topics["results"] if value(r)["op"] == "add")
    again = json.dumps(value(added) | {"rank": 2}).encode()
    system.topics["results"].append(added._replace(offset=len(system.topics["results"]), value=again))
    report = check(system)
    assert report.counts == {"format": 1} and not report.unchecked["deltas of two messages with one id, which have one result-id"]


# --- matches ----------------------------------------------------------------------------------------------------------


def match(v: Any) -> bool:
    return v["op"] == "match"


@pytest.mark.parametrize(
    "how, text",
    [
        (lambda v: None, "but that was not published"),
        (lambda v: v | {"message": "m2"}, "is wrong"),
        (lambda v: v | {"message": "unheard"}, "is wrong"),
        (lambda v: v | {"watermark": v["watermark"] + 1}, "is wrong"),
        (lambda v: v | {"watermark": 7}, "comes after one of a later message"),
        (lambda v: v | {"watermark": -1}, "is outside its life"),
    ],
    ids=range(6),
)
def test_a_wrong_match_is_found(how, text):
    system = small()
    change(system, "results", match, how, 1)
    rename(system)
    report = check(system)
    assert set(report.counts) == {"match"}
    assert any(text in d.text for d in report.differences), report.as_text(10)
    assert "coffee AND" in first(report, "match").as_text()


def test_a_match_that_was_published_twice_is_found():
    system = small()
    record = next(r for r in system.topics["results"] if match(value(r)))
    system.topics["results"].insert(system.topics["results"].index(record) + 1, record._replace(headers=[record.headers[0], ("result-id", b"0-1/again")]))
    assert "was published twice" in first(check(system), "match").text


def test_a_match_that_is_missing_is_found_before_the_end_if_a_later_one_is_there():
    system = small()
    change(system, "results", match, lambda v: None, 1)
    assert check(system, final=False).counts == {"match": 1}
    system = small()
    change(system, "results", match, lambda v: None, -1)
    assert check(system, final=False).ok and not check(system).ok


def grouped(**more: Any) -> PlainSystem:
    """A few messages and boolean subscriptions whose matches are grouped."""
    system = PlainSystem({**COUNT, "dskype.results.matches": "grouped", **more}, hesitant=False, partitions=2)
    for i, words in enumerate(("coffee", "tea", "coffee OR tea", "coffee AND tea")):
        system.subscribe(f"s{i}", {"type": "boolean", "bbox": [-9, -9, 9, 9], "expression": words})
    for i in range(20):
        system.publish({"id": i if i % 2 else f"m{i}", "text": ("coffee", "tea", "coffee tea")[i % 3], "lat": 0, "lon": 0})
        system.work()
    system.settle()
    return system


def test_grouped_matches_are_compared_like_others():
    report = check(grouped())
    assert report.ok and report.compared["matches"] == 13 + 13 + 20 + 6, report.as_text()
    assert report.read["dskype.matches"] > 20
    assert check(grouped(), final=False).ok
    replaced = grouped()
    for i in range(4):
        replaced.subscribe(f"s{i}", {"type": "boolean", "bbox": [-9, -9, 9, 9], "expression": "lake"} if i % 2 else None)
    replaced.subscribe("s0", {"type": "topk", "keywords": ["lake"], "lat": 0, "lon": 0, "k": 1, "alpha": 0.5})
    replaced.publish({"text": "coffee lake", "lat": 0, "lon": 0})
    replaced.settle()
    report = check(replaced)
    assert report.ok and report.compared["matches"] == 52 + 2, report.as_text()


@pytest.mark.parametrize(
    "how, kind, text",
    [
        (lambda v: None, "match", "but that was not published"),
        (lambda v: v | {"subscriptions": v["subscriptions"][1:] or ["s3"]}, "match", "but that was not published"),
        (lambda v: v | {"subscriptions": v["subscriptions"] * 2}, "match", "was published twice"),
        (lambda v: v | {"subscriptions": [*v["subscriptions"], "s3"]}, "match", "is wrong"),
        (lambda v: v | {"watermark": v["watermark"] + 1}, "match", "is wrong"),
        (lambda v: v | {"watermark": 90}, "match", "is wrong"),
        (lambda v: v | {"watermark": -1}, "match", "is outside its life"),
        (lambda v: v | {"subscriptions": ["nobody"]}, "format", "names 'nobody', which is no boolean or threshold subscription"),
        (lambda v: v | {"subscriptions": []}, "format", "cannot be used"),
        (lambda v: v | {"message": "m0"}, "format", "its key is not its message"),
        (lambda v: v | {"task": 12}, "format", "cannot be used"),
        (lambda v: v | {"v": 2}, "format", "cannot be used"),
        (lambda v: [], "format", "cannot be used"),
    ],
    ids=range(13),
)
def test_wrong_grouped_matches_are_found(how, kind, text):
    system = grouped()
    old = change(system, "matches", lambda v: v["message"] == 3, how)
    report = check(system)
    assert kind in report.counts
    assert any(text in d.text for d in report.differences), report.as_text(10)
    if kind == "format":
        assert first(report, kind).where == f"dskype.matches/{old.partition} offset {old.offset}"


def test_repeated_records_of_grouped_matches_count_once_and_must_be_equal():
    system = grouped()
    records = system.topics["matches"]
    ends = {r.partition: r.offset for r in records}
    records.append(records[3]._replace(offset=ends[records[3].partition] + 1))
    report = check(system)
    assert report.ok and report.notes["repeated records of grouped matches"] == 1
    records[-1] = records[-1]._replace(value=records[-1].value.replace(b'"s', b'"t'))
    assert "differ" in first(check(system), "format").text
    records[-1] = records[-1]._replace(headers=[])
    assert "no header result-id" in first(check(system), "format").text


def test_grouped_matches_that_the_log_has_dropped_are_not_missed():
    for seed in range(6):
        system = PlainSystem({**COUNT, "dskype.results.matches": "grouped"}, seed=seed, partitions=1 + seed % 3, areas=0.2).some_traffic(40)
        inputs = system.inputs()
        inputs.matches = inputs.matches[len(inputs.matches) // 3 :]
        for final in (True, False):
            report = verify(inputs, system.settings, final=final)
            assert report.ok, report.as_text(3)
        if seed % 3 == 0:
            assert report.compared["matches"] > 3 and report.unchecked["matches of messages that are not looked at or that the log has dropped"]
            change(system, "matches", lambda v: True, lambda v: v | {"subscriptions": v["subscriptions"] * 2}, -1)
            inputs = system.inputs()
            inputs.matches = inputs.matches[len(inputs.matches) // 3 :]
            assert not verify(inputs, system.settings, final=True).ok


def test_areas_are_compared_by_their_rectangles():
    system = PlainSystem(COUNT, hesitant=False)
    system.subscribe("f", {"type": "boolean", "bbox": [170, -10, -170, 10], "expression": "tea"})
    system.subscribe("g", {"type": "topk", "keywords": ["tea"], "lat": 0, "lon": 0, "k": 3, "alpha": 1})
    for bbox in ([160, 0, 170, 1], [160, 0, 169, 1], [-170, 10, -160, 20], [-169, 0, -160, 1], [175, 11, 176, 12], [100, 0, 90, 1], [180, 0, 180, 0]):
        system.publish({"text": "tea", "bbox": bbox})
    system.publish({"text": "tea", "lat": 0, "lon": 170})
    system.settle()
    report = check(system)
    assert report.ok and report.compared["matches"] == 5, report.as_text()
    change(system, "results", match, lambda v: None, 1)
    assert "bbox [-170.0, 10.0, -160.0, 20.0] around lat 15.0, lon -165.0" in first(check(system), "match").as_text()


def test_matches_end_with_the_ttl_and_with_the_removal():
    def run(**filter: Any) -> PlainSystem:
        system = PlainSystem(COUNT, hesitant=False)
        system.subscribe("f", {"type": "boolean", "bbox": [-9, -9, 9, 9], "expression": "tea", **filter})
        for i in range(20):
            system.now_ms += 100
            if i == 12 and not filter:
                system.subscribe("f", None)
            system.publish({"id": i, "text": "tea", "lat": 1, "lon": 1})
            system.work()
        system.settle()
        return system

    for system in (run(), run(ttl_s=1.0)):
        report = check(system)
        assert report.ok and 6 < report.compared["matches"] < 13
        last = next(r for r in reversed(system.topics["results"]))
        number = value(last)["message"] + 1
        late = value(last) | {"message": number, "watermark": number}
        system.topics["results"].append(last._replace(offset=1000, value=json.dumps(late).encode()))
        rename(system)
        assert check(system).counts["match"] == 1
        change(system, "results", lambda v: v["message"] == number, lambda v: None)
        change(system, "results", lambda v: v["message"] == number - 1, lambda v: None)
        assert "was not published" in first(check(system), "match").text


def test_bboxes_may_cross_the_antimeridian():
    system = PlainSystem(COUNT, hesitant=False)
    system.subscribe("f", {"type": "boolean", "bbox": [170, -10, -170, 10], "expression": "tea OR lake"})
    for lon in (169, 170, 175, 180, -180, -175, -170, -169, 0):
        system.publish({"text": "tea lake", "lat": 10, "lon": lon})
    system.settle()
    report = check(system)
    assert report.ok and report.compared["matches"] == 6


# --- sequence and dead letters ----------------------------------------------------------------------------------------


def test_a_gap_in_the_sequence_is_found():
    system = small()
    change(system, "sequence", lambda v: v["first"] == 4, lambda v: None)
    report = check(system)
    assert "numbers 4 to 4 were given to no message" in first(report, "sequence").text
    assert any("neither numbered nor refused" in d.text for d in report.differences)
    assert report.differences[0].kind == "sequence"


@pytest.mark.parametrize(
    "how, text",
    [
        (lambda v: v | {"first": 3}, "number 3 was given twice"),
        (lambda v: v | {"first": 3, "task": 2}, "numbers 3 to 3 were given twice"),
        (lambda v: v | {"offset": 2}, "was numbered twice"),
        (lambda v: v | {"offset": 700}, "are not in dskype.messages"),
        (lambda v: v | {"n": "x"}, "cannot be read"),
    ],
    ids=range(5),
)
def test_a_wrong_run_of_numbers_is_found(how, text):
    system = small()
    change(system, "sequence", lambda v: v["first"] == 4, how)
    report = check(system)
    assert any(text in d.text for d in report.differences), report.as_text(10)


def test_the_first_number_is_zero():
    system = small()
    system.topics["sequence"] = [r._replace(offset=i) for i, r in enumerate(system.topics["sequence"][2:])]
    assert "numbers 0 to 1 were given to no message" in first(check(system), "sequence").text


def test_records_of_a_partition_are_numbered_in_their_order():
    system = small()
    change(system, "sequence", lambda v: v["first"] == 4, lambda v: v | {"offset": 5})
    change(system, "sequence", lambda v: v["first"] == 5, lambda v: v | {"offset": 4})
    assert "but the later record" in first(check(system), "sequence").text


def test_numbers_of_records_of_another_topic_are_found():
    system = PlainSystem(TIME, hesitant=False)
    for i in range(3):
        system.publish({"id": i, "text": "tea", "lat": 1, "lon": 0, "ts": 1_000_000 + i})
        system.work()
    change(system, "sequence", lambda v: v["first"] == 1, lambda v: v | {"topic": "tweets"})
    assert "is about tweets, which is none of the topics of messages: dskype.messages" in first(check(system), "sequence").text


def test_several_tasks_may_number_in_turns():
    system = PlainSystem(TIME, hesitant=False)
    system.subscribe("s", {"type": "topk", "keywords": ["tea"], "lat": 0, "lon": 0, "k": 2, "alpha": 1})
    for i in range(6):
        system.publish({"id": i, "text": "tea", "lat": i, "lon": 0, "ts": 1_000_000 + 10 * (i // 2)})
        system.work()
    system.settle()
    for i, r in enumerate(system.topics["sequence"]):
        system.topics["sequence"][i] = r._replace(value=json.dumps(value(r) | {"task": i % 2, "step": 2}).encode())
    report = check(system)
    assert report.ok and report.watermark == 1_000_020
    change(system, "sequence", lambda v: v["first"] == 4, lambda v: v | {"first": 5})
    assert check(system).counts["sequence"] >= 1
    # A task that has fallen behind, or has read nothing, holds the watermark back.
    for left, watermark in ((5, 1_000_010), (1, -1)):
        assert (
            verify(
                Inputs(messages=system.topics["messages"][:left], sequence=[r for r in system.topics["sequence"] if value(r)["first"] < left]), system.settings
            ).watermark
            == watermark
        )


def test_without_a_sequence_one_partition_has_its_own_order():
    system = PlainSystem(COUNT, seed=4).some_traffic()
    system.topics["sequence"] = []
    assert check(system).ok
    system = PlainSystem(COUNT, seed=4, partitions=3).some_traffic()
    system.topics["sequence"] = []
    assert "so the order of" in first(check(system), "sequence").text


def bad_system() -> PlainSystem:
    system = small()
    system.publish({"text": "tea", "lat": 95, "lon": 0})
    system.publish(b"not json")
    system.publish({"text": "tea", "lat": 5, "lon": 0})
    system.subscribe("bad", {"type": "topk", "keywords": [], "lat": 0, "lon": 0, "k": 2, "alpha": 1})
    system.settle()
    return system


def test_dead_letters_must_be_bad_and_bad_records_must_be_dead_letters():
    system = bad_system()
    assert check(system).ok and check(system).compared["dead letters"] == 3
    letters = system.topics["dead_letters"]
    system.topics["dead_letters"] = letters[1:]
    assert "is not one of the two" not in first(check(system), "dead-letter").text
    system.topics["dead_letters"] = [r for r in letters if header(r, "topic") != "dskype.subscriptions"]
    assert "a bad subscription was not refused" in first(check(system), "dead-letter").text
    system.topics["dead_letters"] = [*letters, letters[0]._replace(offset=1000)]
    assert check(system).ok and check(system).notes["repeated dead letters"] == 1
    system.topics["dead_letters"] = [letters[0]._replace(value=b"other"), *letters[1:]]
    assert "has other bytes" in first(check(system), "dead-letter").text
    system.topics["dead_letters"] = [letters[0]._replace(headers=[]), *letters[1:]]
    assert "does not say what record" in first(check(system), "format").text


@pytest.mark.parametrize("which", ["messages", "subscriptions"])
def test_a_dead_letter_that_was_cut_must_be_the_beginning_of_its_record(which):
    system = bad_system()
    letters = system.topics["dead_letters"]
    index = next(i for i, r in enumerate(letters) if header(r, "topic") == f"dskype.{which}" and r.value)
    letter = letters[index]
    for kept, size, right in ((letter.value[:-2], len(letter.value), True), (letter.value[:-2], 7000, False), (b"x", len(letter.value), False)):
        cut = letter._replace(value=kept, headers=[*letter.headers, ("truncated", b"true"), ("size", str(size).encode())])
        system.topics["dead_letters"] = [*letters[:index], cut, *letters[index + 1 :]]
        assert check(system).ok is right
        if not right:
            assert "has other bytes" in first(check(system), "dead-letter").text


def test_a_good_record_that_was_refused_is_found():
    for topic, text in (("messages", "a good message was refused"), ("subscriptions", "a good subscription was refused")):
        system = small()
        system.refuse(topic, system.topics[topic][0], "because")
        found = [d for d in check(system).differences if d.kind == "dead-letter"]
        assert text in found[0].text and "because" in found[0].as_text()


def test_a_record_that_the_topology_itself_wrote_and_refused_is_found():
    system = small()
    system.refuse("subscription-bolt", Record(0, 0, 0, None, b"frame"), "decode")
    assert "which only the topology writes" in first(check(system), "dead-letter").text


@pytest.mark.parametrize("which", ["plans", "searches"])
def test_a_plan_or_a_search_that_was_refused_is_no_difference(which):
    system = small()
    system.refuse(which, Record(0, 0, 0, None, b"{"), "because")
    assert check(system).ok and check(system).notes[f"dead letters about dskype.{which}"] == 1


def test_messages_that_came_late_may_be_refused_with_time_windows():
    system = PlainSystem(TIME, seed=1, hesitant=False)
    for i in range(30):
        system.now_ms += 60
        system.publish({"text": "tea", "lat": 0, "lon": 0, "ts": system.now_ms - 400 * (i % 5 == 4) + 10**6 * (i == 20)})
        system.work()
    system.settle()
    assert len(system.topics["dead_letters"]) == 7
    report = check(system)
    assert report.ok, report.as_text()
    refused = next(r for r in system.topics["dead_letters"] if b"100" in (r.value or b""))
    assert refused


def test_a_message_that_came_in_time_and_was_refused_is_found_with_time_windows():
    """It is older than the newest one, and came within the lateness of its own time, while others came without a pause."""
    system = PlainSystem(TIME, seed=1, hesitant=False, partitions=2)
    for i in range(30):
        system.now_ms += 20
        if i == 20:
            refused = system.write("messages", None, {"text": "tea", "lat": 0, "lon": 0, "ts": system.now_ms - 90}, partition=1)
            system.refuse("messages", refused, "the message is late")
        system.publish({"text": "tea", "lat": 0, "lon": 0}, partition=i % 2)
        system.work()
    system.settle()
    (found,) = check(system).differences
    assert f"a good message was refused: dskype.messages/1 offset {refused.offset}" in found.text
    assert "90 ms after its own time; the lateness is 100 ms" in found.as_text()


# --- registrations ----------------------------------------------------------------------------------------------------


def test_wrong_events_are_found():
    def events(how: Callable[[list[Record]], Any]) -> str:
        system = small()
        system.subscribe("near", {"type": "topk", "keywords": ["tea"], "lat": 0, "lon": 0, "k": 2, "alpha": 1})
        system.publish({"text": "tea", "lat": 1, "lon": 1})
        system.settle()
        assert check(system).ok
        how(system.topics["registrations"])
        report = check(system)
        assert "registration" in report.counts
        return report.as_text(100)

    def put(records: list[Record], i: int, **more: Any) -> None:
        records.append(records[i]._replace(offset=1000, value=json.dumps(value(records[i]) | more).encode()))

    names = [value(r)["subscription"] + " " + value(r)["event"] for r in small().topics["registrations"]]
    assert names == ["near active", "all active", "late active"]
    assert "became active twice" in events(lambda records: put(records, 0, watermark=3))
    assert "has results, but never became active" in events(lambda records: records.pop(0))
    assert "never became active" in events(lambda records: records.pop())
    assert "but not unregistered" in events(lambda records: put(records, 2, event="removed"))
    assert "before it became active" in events(lambda records: put(records, 2, event="removed", watermark=3))
    assert "unknown event" in events(lambda records: put(records, 2, event="paused"))
    assert "was not removed" in events(lambda records: records.pop(3))
    assert "but the newest message is at" in events(lambda records: put(records, 1, event="removed", watermark=90))


def test_what_limits_do_is_not_wrong_unless_they_left_out_what_was_not_there():
    system = small()
    first_event = system.topics["registrations"][0]
    limited = value(first_event) | {"event": "limited", "limit": "dskype.results.meta.bytes.per.second"}
    for offset in (1000, 1001):
        system.topics["registrations"].append(first_event._replace(offset=offset, key=b"\xff" + first_event.key, value=json.dumps(limited).encode()))
    change(system, "results", lambda v: "meta" in v, lambda v: {k: v[k] for k in v if k != "meta"} | {"meta_omitted": True})
    report = check(system)
    assert report.ok and report.notes["results whose meta a limit has left out"] == 1 and report.notes["events that a limit has cut in"] >= 1
    change(system, "results", lambda v: "meta" not in v and "meta_omitted" not in v, lambda v: v | {"meta_omitted": True})
    assert "results" in first(check(system), "format").text


def test_results_of_what_is_no_registration_are_found():
    for registration, text in (("0-77", "which is not a registration"), ("nonsense", "which is not a registration"), ("0-1", "which is 'all'")):
        system = small()
        change(system, "topk", near, lambda v: v | {"registration": registration})
        assert text in first(check(system), "format").text


# --- format -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "topic, how",
    [
        ("topk", lambda v: 5),
        ("topk", lambda v: v | {"v": 2}),
        ("topk", lambda v: v | {"watermark": "1"}),
        ("topk", lambda v: v | {"topk": [1]}),
        ("topk", lambda v: v | {"subscription": "other"}),
        ("results", lambda v: v | {"op": "replace"}),
        ("results", lambda v: v | {"score": None}),
        ("results", lambda v: v | {"meta": {"team": 2}}),
        ("results", lambda v: v | {"message": [1]}),
        ("registrations", lambda v: {}),
    ],
    ids=range(10),
)
def test_records_that_cannot_be_read_are_found(topic, how):
    system = small()
    change(system, topic, lambda v: v["subscription"] == "near", how)
    assert topic in first(check(system), "format").text


def test_a_delta_needs_its_result_id():
    system = small()
    system.topics["results"][2] = system.topics["results"][2]._replace(headers=[])
    assert "no header result-id" in first(check(system), "format").text


# --- logs that have lost their beginning ------------------------------------------------------------------------------


def test_what_rests_on_messages_that_are_gone_is_not_compared():
    system = PlainSystem(COUNT, seed=2, hesitant=False).some_traffic(40)
    half = len(system.topics["messages"]) // 2
    whole = check(system).compared["lists"]
    for topics in (["messages"], ["sequence"], ["messages", "sequence"], ["results"], ["messages", "sequence", "results"]):
        inputs = system.inputs()
        for topic in topics:
            records = getattr(inputs, topic)
            setattr(inputs, topic, records[half if topic == "messages" else len(records) // 2 :])
        report = verify(inputs, system.settings, final=True)
        assert report.ok, (topics, report.as_text(3))
        assert sum(report.unchecked.values()) > 0
        if topics == ["messages"]:
            assert 5 < report.compared["lists"] < whole


def test_a_wrong_list_behind_the_lost_beginning_is_still_found():
    system = PlainSystem(COUNT, seed=2, hesitant=False).some_traffic(40)
    system.topics["messages"] = system.topics["messages"][len(system.topics["messages"]) // 2 :]
    old = change(system, "topk", lambda v: v["topk"], lambda v: v | {"topk": []}, -1)
    assert first(check(system), "state").where.endswith(f"offset {old.offset}")


def test_registrations_that_were_compacted_away_are_not_compared():
    system = PlainSystem(COUNT, seed=6).some_traffic(40)
    newest = {r.key: r for r in system.topics["subscriptions"]}
    system.topics["subscriptions"] = sorted(newest.values(), key=lambda r: r.offset)
    lists = {r.key: r for r in system.topics["topk"]}
    system.topics["topk"] = sorted(lists.values(), key=lambda r: r.offset)
    report = check(system)
    assert report.ok, report.as_text(3)
    assert report.unchecked["results of registrations whose record has been compacted away"] > 0
    assert report.compared["final lists"] > 0


def test_only_the_newest_run_counts():
    system, later = PlainSystem(COUNT, seed=7), PlainSystem(COUNT, seed=7)
    later.run = "2-2000"
    system.some_traffic()
    later.some_traffic()
    change(system, "topk", lambda v: v["topk"], lambda v: v | {"topk": []})
    for name, records in later.topics.items():
        if name not in ("messages", "subscriptions"):
            old = system.topics[name]
            ends = {r.partition: r.offset + 1 for r in old}
            old += [r._replace(offset=r.offset + ends.get(r.partition, 0)) for r in records]
    report = check(system)
    assert report.ok and report.run == "2-2000" and report.notes["records of former runs were passed over"] > 50


# --- options ----------------------------------------------------------------------------------------------------------


def test_a_sample_is_drawn_by_its_seed():
    system = PlainSystem(COUNT, seed=8).some_traffic()
    whole = check(system)
    reports = [check(system, sample=3, seed=seed) for seed in (1, 1, 2, 3, 4)]
    assert all(r.ok and r.compared["subscriptions"] == 3 for r in reports)
    assert reports[0].compared == reports[1].compared
    assert len({r.compared["deltas"] for r in reports}) > 1
    assert all(r.compared["deltas"] < whole.compared["deltas"] and r.compared["messages"] == whole.compared["messages"] for r in reports)
    assert check(system, sample=100).compared == whole.compared


def test_only_what_is_of_a_watermark_or_later_is_compared():
    system = small()
    change(system, "topk", near, lambda v: v | {"topk": []}, 0)
    change(system, "results", match, lambda v: None, 0)
    assert not check(system).ok
    report = check(system, since=5)
    assert report.ok, report.as_text()
    assert 0 < report.compared["lists"] < check(system).compared["lists"]
    change(system, "topk", near, lambda v: v | {"topk": []}, -1)
    assert check(system, since=5).counts == {"state": 1}


def test_lists_in_another_store_are_not_missed():
    system = small(**{"dskype.store": "redis"})
    system.topics["topk"] = []
    report = check(system)
    assert report.ok and report.unchecked["last lists, which are kept in redis"] == 1
    assert not verify(system.inputs(), small().settings, final=True).ok


def test_progress_is_told():
    told: list[str] = []
    check(small(), progress=told.append)
    assert any("comparing" in text for text in told)


# --- the kernels and the plain oracle agree ---------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_the_sweep_finds_the_plain_top_k_at_every_watermark(seed):
    """Every list at every watermark, made by the plain oracle, with ties and a large k; then one score off."""
    rng = random.Random(seed)
    conf = {"dskype.window.messages": rng.choice([1, 3, 17, 60])} if seed % 2 else {"dskype.window.span.ms": rng.choice([25, 60, 300])}
    system = PlainSystem(conf, seed=seed, hesitant=False)
    for i in range(8):
        system.subscribe(
            f"s{i}",
            {
                "type": "topk",
                "keywords": rng.sample(["tea", "coffee", "lake", "bar"], rng.randint(1, 3)),
                "lat": rng.randrange(3),
                "lon": rng.randrange(3),
                "k": rng.choice([1, 2, 4, 30]),
                "alpha": rng.choice([0, 0.5, 1]),
            },
        )
    for _ in range(150):
        system.now_ms += rng.randrange(20)
        system.publish({"text": " ".join(rng.choices(["tea", "coffee", "lake", "bar", "zoo"], k=3)), "lat": rng.randrange(3), "lon": rng.randrange(3)})
        system.work()
        for entry in system.topk.values():
            entry.dirty = True
        system.write_states()
    system.settle()
    report = check(system)
    assert report.ok, report.as_text(3)
    assert report.compared["lists"] > 1100
    change(
        system,
        "topk",
        lambda v: v["topk"],
        lambda v: v | {"topk": [v["topk"][0] | {"score": v["topk"][0]["score"] - 1e-8}, *v["topk"][1:]]},
        rng.randrange(400),
    )
    assert check(system).counts == {"state": 1}


def test_kernels_take_arrays_that_are_read_only(monkeypatch):
    made: list[Oracle] = []
    original = Oracle.__init__
    monkeypatch.setattr(Oracle, "__init__", lambda self, *args: made.append(self) or original(self, *args))
    assert check(small()).ok
    assert made and not any(array.flags.writeable for oracle in made for array in oracle.rows if isinstance(array, np.ndarray))


# --- on a broker ------------------------------------------------------------------------------------------------------


def store(kafka: KafkaSettings, system: PlainSystem, only: Sequence[str] = TOPICS) -> None:
    """Write a system's records to Kafka, with their times."""
    topics = Topics.for_topology(system.name)
    admin = TopicAdmin(kafka)
    admin.create({getattr(topics, name): system.partitions for name in TOPICS}, {"retention.ms": "-1"})  # the records are of 1970
    admin.close()
    producer = KafkaProducer(**kafka.arguments(), acks="all")
    for name in only:
        for r in system.topics[name]:
            producer.send(getattr(topics, name), key=r.key, value=r.value, headers=list(r.headers), partition=r.partition, timestamp_ms=r.timestamp_ms)
    producer.flush()
    producer.close()


def verb(kafka: KafkaSettings, name: str, *options: str) -> int:
    return main(["verify", "-t", name, "--bootstrap-servers", kafka.bootstrap_servers, *options])


@pytest.fixture(scope="module")
def kafka(bootstrap_servers: str) -> KafkaSettings:
    return KafkaSettings(bootstrap_servers)


@pytest.fixture
def name() -> str:
    return f"verify-{uuid.uuid4().hex[:8]}"


def test_the_verb_reads_the_topics_and_compares(kafka, name, tmp_path, capsys):
    system = PlainSystem(TIME, seed=3, partitions=2, name=name).some_traffic()
    store(kafka, system)
    file = tmp_path / "topology.yaml"
    file.write_text(json.dumps({"name": name, "config": TIME}))
    assert verb(kafka, name, "--file", str(file), "--final") == 0
    out = capsys.readouterr().out
    assert f"{len(system.topics['results'])} {name}.results" in out and "equal     watermark" in out and "written records" in out
    assert verb(kafka, name, "--file", str(file), "--final", "-o", "json", "--sample", "3", "--since", "1000100", "--seed", "5") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["ok"] and found["compared"]["subscriptions"] == 3 and found["read"][f"{name}.messages"] == len(system.topics["messages"])
    assert verb(kafka, name, "-c", "dskype.window.span.ms=300") == 1  # without a file: the keys alone; and a wrong window
    out = capsys.readouterr().out
    assert "DIFFERENT" in out and out.count("rank") >= 1 and "expected" in out


def test_the_verb_misses_records_that_nothing_else_needs(kafka, name, capsys):
    system = small()
    system.name = name
    system.write("registrations", b"late", {"v": 1}, task=99)
    system.topics["registrations"].pop()
    system.write("registrations", b"late", value(system.topics["registrations"][-1]), [("result-id", b"again")], task=99)
    conf = ["-c", "dskype.window.messages=5", "-c", "dskype.space=[-10,-10,10,10]", "-c", "dskype.results.topk.interval.ms=0"]
    store(kafka, system)
    assert verb(kafka, name, *conf, "--final") == 1
    assert "write: 1 records were lost" in capsys.readouterr().out


def test_the_verb_waits_until_all_is_handled(kafka, name, capsys):
    system = small()
    system.name = name
    conf = ["-c", "dskype.window.messages=5", "-c", "dskype.space=[-10,-10,10,10]", "-c", "dskype.results.topk.interval.ms=0"]
    store(kafka, system, [t for t in TOPICS if t != "sequence"])
    assert verb(kafka, name, *conf, "--wait", "0.5") == 1
    assert "still at work after 0.5 s: its topics change; its last lists" in capsys.readouterr().err
    store(kafka, system, ["sequence"])
    assert verb(kafka, name, *conf, "--wait", "30", "-o", "json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["final"] and found["rested"] and found["compared"]["final lists"] == 2


def reports(kafka, name, received, stopped=None):
    """Report of two tasks what a running topology does: the second one gets ticks; until ``stopped`` is set, or once."""
    none = {"executed": {}, "sent": {}, "received": {}}
    sender = {**none, "task": 1, "component": "distribution-bolt", "version": 7, "sent": {"2": 5}}
    with contextlib.closing(kafka.producer()) as producer:
        for number in itertools.count():
            bolt = {
                **none,
                "task": 2,
                "component": "subscription-bolt",
                "version": number,
                "executed": {"__system/__tick": number},
                "received": {"1": received},
            }
            for task in (sender, bolt):
                record = {"kind": "stats", "topology": "x", "component": task["component"], "executor": 0, "pid": 1, "time_ms": number, "tasks": [task]}
                producer.send(f"{name}.metrics", json.dumps(record).encode(), partition=0).get()
            if stopped is None or stopped.wait(0.2):
                return


def test_a_topology_with_a_task_whose_process_is_gone_is_not_at_rest(kafka, name, capsys, monkeypatch):
    monkeypatch.setattr("dskype.deploy.verification.topics.is_alive", lambda *_: True)
    system = small()
    system.name = name
    conf = ["-c", "dskype.window.messages=5", "-c", "dskype.space=[-10,-10,10,10]", "-c", "dskype.results.topk.interval.ms=0", "-o", "json"]
    store(kafka, system)
    with TopicAdmin(kafka) as admin:
        admin.create({f"{name}.metrics": 1}, {})
    reports(kafka, name, received=2)
    assert verb(kafka, name, *conf, "--wait", "8") == 1
    assert json.loads(capsys.readouterr().out)["left"] == "3 tuples wait for tasks"
    reports(kafka, name, received=5)
    assert verb(kafka, name, *conf, "--wait", "8") == 1
    assert json.loads(capsys.readouterr().out)["left"] == "task 2 of component 'subscription-bolt' has done nothing for some seconds"
    stopped = threading.Event()
    living = threading.Thread(target=reports, args=(kafka, name, 5, stopped))
    living.start()
    try:
        assert verb(kafka, name, *conf, "--wait", "30") == 0
    finally:
        stopped.set()
        living.join()


def test_subscriptions_that_the_topology_has_yet_to_register_or_remove_are_pending_and_no_difference(kafka, name, capsys, monkeypatch):
    monkeypatch.setattr("dskype.deploy.verification.topics._REST_S", 0)
    monkeypatch.setattr("dskype.deploy.cli.warmup.are_compiled", lambda: False)
    system = small()
    system.name = name
    conf = ["-c", "dskype.window.messages=5", "-c", "dskype.space=[-10,-10,10,10]", "-c", "dskype.results.topk.interval.ms=0"]
    store(kafka, system)
    assert count_pending(kafka, name) == 0
    new = {"type": "topk", "text": "lake", "lat": 0, "lon": 0, "k": 1, "alpha": 0.5}
    expired = {"type": "boolean", "bbox": [0, 0, 1, 1], "keywords": ["tea"], "ttl_s": 0.001}
    producer = kafka.producer()
    for key, record in (("new", new), ("expired", expired), ("near", None)):
        producer.send(f"{name}.subscriptions", key=key.encode(), value=None if record is None else json.dumps(record).encode())
    producer.flush()
    producer.close()
    assert count_pending(kafka, name) == 2, "one to register, one to remove"
    assert verb(kafka, name, *conf, "--wait", "6", "-o", "json") == 1
    shown = capsys.readouterr()
    found = json.loads(shown.out)
    assert found["ok"] and not found["rested"] and not found["final"] and found["left"] == "2 subscriptions are pending"
    assert "still at work after 6 s: 2 subscriptions are pending; its last lists were not compared" in shown.err
    assert shown.err.count("note: the kernels are not compiled yet; the comparison compiles those that it needs") == 1
    producer = kafka.producer()
    moved = producer.send(f"{name}.subscriptions", key=b"new", value=json.dumps({**new, "update": True}).encode()).get()
    for event, registration in (("active", "0-99"), ("updated", f"{moved.partition}-{moved.offset}")):
        value = {"v": 1, "subscription": "new", "registration": registration, "event": event, "watermark": 4}
        producer.send(f"{name}.registrations", key=b"new", value=json.dumps(value).encode()).get()
    assert count_pending(kafka, name) == 1, "one that has moved is registered"
    producer.send(f"{name}.subscriptions", key=b"new", value=None).get()
    value = {"v": 1, "subscription": "new", "registration": f"{moved.partition}-{moved.offset}", "event": "removed", "watermark": 4}
    producer.send(f"{name}.registrations", key=b"new", value=json.dumps(value).encode()).get()
    producer.close()
    assert count_pending(kafka, name) == 1, "and removed with its last registration"


def test_a_topology_that_reads_the_inputs_of_another_one_is_compared_with_those(kafka, name, capsys):
    system = PlainSystem(COUNT, seed=4, name=f"{name}-in").some_traffic(30)
    store(kafka, system, ["messages", "subscriptions"])
    system.name = name
    store(kafka, system, [t for t in TOPICS if t not in ("messages", "subscriptions")])
    conf = [option for key, value in COUNT.items() for option in ("-c", f"{key}={json.dumps(value)}")]
    assert verb(kafka, name, *conf, "--inputs", f"{name}-in", "--wait", "30", "-o", "json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["final"] and found["compared"]["messages"] > 10 and found["read"][f"{name}-in.messages"] and found["read"][f"{name}.results"]
    assert verb(kafka, name, *conf, "--final") != 0, "it has no messages of its own"


def test_a_topology_with_a_message_ahead_of_its_arrival_is_not_at_rest_before_its_time(monkeypatch):
    def records(*times: int | None) -> list[Record]:
        return [Record(0, i, 1000, None, json.dumps({"text": "", "lat": 0, "lon": 0} | ({} if t is None else {"ts": t})).encode()) for i, t in enumerate(times)]

    for given, conf, expected in (
        (records(900, None, 5000, 61_001), TIME, 5000),
        (records(None), TIME, 0),
        (records(5000), COUNT, 0),
        ([*records(3000), Record(0, 1, 1000, None, b"{")], TIME, 3000),
    ):
        monkeypatch.setattr("dskype.deploy.verification.topics.read_to_end", lambda kafka, topic, given=given: given)
        assert _last_time_ms(None, "t.messages", Settings.from_conf(conf), "t") == expected


def test_arguments_that_make_no_sense_are_refused(kafka, name, capsys):
    assert verb(kafka, name) == 2
    assert "is not running" in capsys.readouterr().err
    assert verb(kafka, name, "-c", "dskype.window.messages=5") == 2
    assert "has no records" in capsys.readouterr().err
    for options in (["--sample", "0"], ["--since", "x"], ["--wait", "-1"], ["--nonsense"]):
        assert verb(kafka, name, *options) == 2
    assert verb(kafka, name, "--file", "/nowhere.yaml") in (1, 2)


# --- size -------------------------------------------------------------------------------------------------------------


def test_many_subscriptions_are_compared_at_once():
    """5,000 messages, 1,000 subscriptions, 10,000 lists, most of them wrong."""
    rng = np.random.default_rng(1)
    active = b'{"v":1,"subscription":"s%d","registration":"0-%d","event":"active","watermark":-1}'
    state = b'{"v":1,"subscription":"s%d","registration":"0-%d","watermark":%d,"topk":[]}'
    words = [f"w{i}" for i in range(500)]
    inputs = Inputs(
        messages=[
            Record(
                0,
                i,
                i,
                None,
                json.dumps(
                    {"text": " ".join(words[j] for j in rng.zipf(1.3, 6) % 500), "lat": float(rng.uniform(-9, 9)), "lon": float(rng.uniform(-9, 9))}
                ).encode(),
            )
            for i in range(5000)
        ],
        subscriptions=[
            Record(
                0,
                i,
                i,
                b"s%d" % i,
                json.dumps(
                    {"type": "topk", "keywords": [words[j] for j in set((rng.zipf(1.3, 3) % 500).tolist())], "lat": 0, "lon": 0, "k": 10, "alpha": 0.5}
                ).encode(),
            )
            for i in range(1000)
        ],
        sequence=[Record(0, 0, 0, None, b'{"v":1,"task":1,"first":0,"partition":0,"offset":0,"n":5000}')],
        registrations=[Record(0, i, i, b"s%d" % i, active % (i, i)) for i in range(1000)],
        topk=[Record(0, i, i, b"s%d" % (i % 1000), state % (i % 1000, i % 1000, i // 2)) for i in range(10_000)],
    )
    report = verify(inputs, Settings.from_conf({"dskype.window.messages": 1000}))
    assert report.compared["lists"] == 10_000 and report.counts["state"] > 5_000
