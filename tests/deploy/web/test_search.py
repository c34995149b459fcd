"""``GET search`` and the search on the map: what is asked, what an answer becomes, and what is said when none comes."""

from __future__ import annotations

import json
import math
from concurrent.futures import ThreadPoolExecutor
from urllib.error import HTTPError
from urllib.parse import quote

import pytest

from dskype.deploy.web import answers
from tests.waiting import wait_for

from .pages import fill
from .scene import HALF_LIFE, run_plan
from .server import get

FIELDS = {"text": "lake park", "lat": 43.04, "lon": -87.9, "k": 2, "alpha": 0.5}
FOUND = [
    {"message": "m1", "fields": {"text": "<img src=x onerror=alert(1)> park"}, "score": 0.75, "lat": 43.05, "lon": -87.88, "position": 4, "seq": 4},
    {"message": 9007199254740993, "score": 0.5, "lat": 43.0, "lon": -87.9, "position": 3, "seq": 3},
]


def with_topics(kafka):
    """Return the topics of a topology that takes searches."""
    topics = kafka.topology()
    kafka.broker.partitions |= {topics.searches: 1, topics.answers: 1}
    return topics


def answer(kafka, topics, asked, **more):
    """Write the answers of two tasks to the search with a number, as soon as it comes; return the search."""
    log = kafka.broker.logs[topics.searches, 0]
    wait_for(lambda: len(log) > asked)
    for task, results in ((4, FOUND[:1]), (5, FOUND[1:])):
        part = {"v": 1, "search": log[asked].key.decode(), "task": task, "tasks": [4, 5], "watermark": 7, **more, "results": results}
        kafka.broker.write(topics.answers, log[asked].key, json.dumps(part).encode())
    return json.loads(log[asked].value)


def test_a_search_is_answered(kafka, served):
    topics = with_topics(kafka)
    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(get, served, f"search?fields={quote(json.dumps(FIELDS))}")
        assert answer(kafka, topics, 0) == {"type": "topk", **FIELDS, "timeout_ms": 5000}
        found = found.result(30)
        assert found["watermark"] == 7 and "total" not in found
        assert [(m["message_id"], m["rank"], m["score"], m["lat"], m["lon"]) for m in found["matches"]] == [
            ("m1", 1, 0.75, 43.05, -87.88),
            ("9007199254740993", 2, 0.5, 43.0, -87.9),
        ]
        newest = pool.submit(get, served, f"search?fields={quote(json.dumps({'expression': 'park', 'bbox': [0, 0, 1, 1]}))}")
        assert answer(kafka, topics, 1, count=3)["type"] == "boolean"
        assert newest.result(30)["total"] == 6
    assert not kafka.broker.logs[topics.subscriptions, 0]


@pytest.mark.parametrize(
    ("fields", "status", "words"),
    [
        ({**FIELDS, "k": 1000}, 400, "'k'"),
        ({**FIELDS, "k": "many"}, 400, "'k'"),
        ({**FIELDS, "text": 7}, 400, "'text'"),
        ({**FIELDS, "timeout_s": 900}, 400, "a field that is unknown"),
        ({**FIELDS, "lat": None}, 400, "'lat'"),
        ([], 400, "must be a JSON object"),
        (FIELDS, 503, "No topology 'dskype' runs"),
    ],
)
def test_what_cannot_be_answered_is_refused(kafka, served, monkeypatch, fields, status, words):
    topics = with_topics(kafka)
    monkeypatch.setattr(answers, "_SEARCH_S", 0.2)
    with pytest.raises(HTTPError) as refused:
        get(served, f"search?fields={quote(json.dumps(fields))}")
    assert refused.value.code == status and words in json.load(refused.value)["errorMessage"]
    assert status == 503 or not kafka.broker.logs[topics.searches, 0]


def test_a_topology_that_takes_no_searches_says_so(kafka, served):
    kafka.topology()
    with pytest.raises(HTTPError) as refused:
        get(served, f"search?fields={quote(json.dumps(FIELDS))}")
    assert "dskype.searches" in json.load(refused.value)["errorMessage"]


def test_the_map_shows_what_a_search_has_found(browser, kafka, served):
    topics = with_topics(kafka)
    browser.open(served.url)
    browser.wait("document.body.dataset.state === 'shown'")
    browser.click("//button[@name='search']")
    assert browser.run("return document.querySelectorAll('#form :invalid').length") > 0 and not kafka.broker.logs[topics.searches, 0]
    fill(browser, {"text": "lake park", "lat": "43.04", "lon": "-87.9", "k": "2"})
    browser.click("//button[@name='search']")
    assert answer(kafka, topics, 0)["text"] == "lake park"
    browser.wait("document.querySelectorAll('#matches tbody tr').length === 2")
    assert [(r["Rank"], r["Score"], r["Message"]) for r in browser.rows("#matches")] == [("1", "0.750000", "m1"), ("2", "0.500000", "9007199254740993")]
    assert "<img src=x" in browser.text("#matches") and browser.run("return document.querySelectorAll('img').length") == 0
    assert "the best 2, as of watermark 7" in browser.text("#asked")
    assert browser.run("return document.querySelectorAll('#map path.found').length") == 2
    browser.click("//button[@id='forget']")
    assert browser.run("return document.getElementById('found').hidden && document.querySelectorAll('#map path.found').length === 0")
    assert browser.problems() == []


def test_with_a_half_life_the_map_shows_what_is_left_of_scores(browser, kafka, served, monkeypatch):
    run_plan(kafka, HALF_LIFE)
    watermark, topics = 1_772_499_600_000, with_topics(kafka)
    scores = [math.log2(0.75) + watermark / 60_000, math.log2(0.125) + watermark / 60_000]
    monkeypatch.setitem(globals(), "FOUND", [{**one, "score": score} for one, score in zip(FOUND, scores)])
    browser.open(served.url)
    browser.wait("document.body.dataset.state === 'shown'")
    fill(browser, {"text": "lake park", "lat": "43.04", "lon": "-87.9", "k": "2"})
    browser.click("//button[@name='search']")
    answer(kafka, topics, 0, watermark=watermark)
    browser.wait("document.querySelectorAll('#matches tbody tr').length === 2")
    assert [r["Score"] for r in browser.rows("#matches")] == ["0.750000", "0.125000"]
    said = browser.run("return [...document.querySelectorAll('#matches abbr')].map(({ title }) => title)")
    assert said == [f"what is left of the score at watermark {watermark}; the time score is {score:.6f}" for score in scores]
    assert browser.problems() == []
