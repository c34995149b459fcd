"""DSkype's pages in a real browser: what is done in them happens, numbers are those of the API, and text stays text."""

from __future__ import annotations

import json

import pytest

from tests.topology.ui.browser import Browser

from .server import TOKEN
from .test_result_feed import until, write_result


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    opened = Browser(tmp_path_factory.mktemp("browser"))
    yield opened
    opened.close()


def fill(browser, values):
    script = "for (const [name, value] of Object.entries(JSON.parse(arguments[0]))) document.getElementById('form').elements.namedItem(name).value = value"
    browser.run(script, json.dumps(values))


def message(kafka, topics, id, text, lat=43.05, lon=-87.9):
    kafka.broker.write(topics.messages, None, json.dumps({"id": id, "text": text, "lat": lat, "lon": lon}).encode())


def test_a_subscription_made_in_the_form_shows_its_results(browser, kafka, served):
    topics = kafka.topology()
    browser.open(f"{served.url}dskype/subscribe.html")
    browser.run("sessionStorage.clear()")
    browser.click("//button[@name='register']")
    assert browser.run("return document.querySelectorAll(':invalid').length") > 0  # the browser asks for what is missing
    fill(browser, {"text": "lake park", "lat": "43.04", "lon": "-87.9", "k": "2", "id": "park"})
    browser.click("//button[@name='register']")
    browser.wait("document.querySelector('#answer').innerText.includes('it has a token')")
    browser.open(f"{served.url}dskype/subscribe.html#token={TOKEN}")
    browser.wait("location.hash === '' && document.body.dataset.state === 'shown' && sessionStorage.getItem('token')")
    fill(browser, {"text": "lake park", "lat": "43.04", "lon": "-87.9", "k": "2", "id": "park"})
    browser.click("//button[@name='register']")
    browser.wait("document.querySelector('#answer').innerText === 'Registered.'")
    (stored,) = kafka.broker.logs[topics.subscriptions, 0]
    assert stored.key == b"park" and json.loads(stored.value) == {"type": "topk", "text": "lake park", "lat": 43.04, "lon": -87.9, "k": 2, "alpha": 0.5}
    message(kafka, topics, "m1", "<img src=x onerror=alert(1)> in the park")
    active = {"v": 1, "subscription": "park", "registration": "0-0", "event": "active", "watermark": 0}
    kafka.broker.write(topics.registrations, "park", json.dumps(active).encode())
    write_result(kafka, topics, "park", 1, score=0.5, rank=1)
    write_result(kafka, topics, "park", 2, score=0.75, rank=1)
    write_result(kafka, topics, "other", 3, score=1.0, rank=1)
    write_result(kafka, topics, "park", 4, score=0.25, rank=2)
    kafka.broker.write(topics.results, "park", json.dumps({"v": 1, "subscription": "park", "watermark": 4, "op": "remove", "message": "m1"}).encode())
    browser.wait("document.querySelectorAll('#changes tbody tr').length === 4")
    assert [(r["Rank"], r["Score"], r["Message"]) for r in browser.rows("#list")] == [("1", "0.750000", "m2"), ("2", "0.250000", "m4")]
    shown = browser.rows("#changes")
    assert [(r["What"], r["Message"]) for r in shown] == [("remove", "m1"), ("add", "m4"), ("add", "m2"), ("add", "m1")]
    assert "active since watermark 0" in browser.text("#state")
    assert "<img src=x" in browser.text("#changes") and browser.run("return document.querySelectorAll('img').length") == 0
    assert browser.run("return location.search") == "?topology=dskype&sub=park"
    browser.click("//button[text()='remove the subscription']")
    browser.wait("document.querySelector('#answer').innerText === 'Removed.'")
    assert kafka.broker.logs[topics.subscriptions, 0][-1].value is None and browser.problems() == []


def test_one_that_is_there_is_followed_from_its_published_list_on(browser, kafka, served):
    topics = kafka.topology()
    value = {"type": "topk", "text": "park", "lat": 43.0, "lon": -87.9, "k": 3, "alpha": 0.5}
    kafka.broker.write(topics.subscriptions, "park", json.dumps(value).encode())
    for number, score in ((1, 0.5), (2, 0.4), (5, 0.45), (6, 0.45)):
        write_result(kafka, topics, "park", number, score=score)
    listed = {"v": 1, "subscription": "park", "registration": "0-0", "watermark": 3, "topk": [{"message": "m1", "score": 0.5}, {"message": "m2", "score": 0.4}]}
    kafka.broker.write(topics.topk, "park", json.dumps(listed).encode(), headers=[("version", "1 0-0 3")])
    kafka.broker.time_ms += 10_000
    browser.open(f"{served.url}dskype/subscribe.html?sub=park")
    browser.wait("document.querySelectorAll('#list tbody tr').length === 2")  # the records are years old, so only what comes from now on is read
    write_result(kafka, topics, "park", 7, score=0.45)
    write_result(kafka, topics, "park", 8, score=0.45)
    browser.wait("document.querySelectorAll('#list tbody tr').length === 4")
    assert [r["Message"] for r in browser.rows("#list")] == ["m1", "m8", "m7", "m2"]  # of equal scores the newer first
    browser.open(f"{served.url}dskype/subscribe.html?sub=nothing")
    browser.wait("document.querySelector('#answer').innerText.includes('There is no subscription nothing')")
    assert browser.problems() == []


def test_a_refusal_is_shown(browser, kafka, served):
    topics = kafka.topology()
    browser.open(f"{served.url}#token={TOKEN}")
    browser.open(f"{served.url}dskype/subscribe.html")
    browser.click("//input[@value='boolean']")
    fill(browser, {"expression": "coffee AND", "west": "-88", "south": "42", "east": "-87", "north": "44", "id": "c"})
    browser.click("//button[@name='register']")
    browser.wait("document.querySelector('#answer .problem')")
    assert "expression" in browser.text("#answer").lower()
    fill(browser, {"expression": "coffee AND wifi", "ttl_s": "60"})
    browser.click("//button[@name='register']")
    browser.wait("document.querySelector('#answer').innerText === 'Registered.'")
    (stored,) = kafka.broker.logs[topics.subscriptions, 0]
    assert json.loads(stored.value) == {"type": "boolean", "bbox": [-88, 42, -87, 44], "expression": "coffee AND wifi", "ttl_s": 60}
    refused = [("topic", topics.subscriptions), ("partition", "0"), ("offset", "0"), ("error", "<b>no room</b>"), ("code", "no-room")]
    kafka.broker.write(topics.dead_letters, "c", None, headers=refused)
    browser.wait("document.querySelector('#state').innerText.includes('refused: <b>no room</b>')")
    problems = browser.problems()
    assert all("400" in problem for problem in problems), problems


def test_a_page_goes_on_after_the_brokers_were_away(browser, kafka, served):
    topics = kafka.topology()
    kafka.broker.write(topics.subscriptions, "b", json.dumps({"type": "boolean", "bbox": [0, 0, 1, 1], "expression": "x"}).encode())
    browser.open(f"{served.url}dskype/subscribe.html?sub=b")
    browser.wait("document.querySelector('#state')?.innerText.includes('live')")
    kafka.broker.away = True
    browser.wait("document.querySelector('#state').innerText.includes('connecting')")
    write_result(kafka, topics, "b", 1, op="match")
    kafka.broker.away = False
    browser.wait("document.querySelectorAll('#changes tbody tr').length === 1")
    browser.open("about:blank")
    until(lambda: kafka.broker.open_consumers <= 2)
    browser.problems()


def test_a_phone_can_use_the_pages_and_everything_comes_from_their_server(served, kafka, tmp_path):
    phone = Browser(tmp_path, (390, 800))
    try:
        for page in ("dskype/subscribe.html",):
            phone.open(served.url + page)
            phone.wait("document.querySelectorAll('header a').length > 1")
            assert phone.run("return document.documentElement.scrollWidth <= window.innerWidth"), page
            taken = phone.run("return performance.getEntriesByType('resource').map((entry) => entry.name)")
            assert taken and all(url.startswith((served.url, "data:")) for url in taken), page
            assert phone.problems() == []
    finally:
        phone.close()
