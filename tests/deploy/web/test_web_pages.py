"""DSkype's pages in a real browser: what is done in them happens, numbers are those of the API, and text stays text."""

from __future__ import annotations

import json

import pytest

from dskype.bolts.dskype_topology import dskype_topology
from dskype.deploy.metrics.ui_server import UiServer, UiSettings
from dskype.topology.core.steady_clock import now_ms
from dskype.topology.nimbus.observing import Contact
from tests.topology.ui.browser import Browser
from tests.topology.ui.simulated_source import SimulatedSource

from .pages import choose, fill, publish, put, type_into
from .scene import HALF_LIFE, messages, run_for, run_plan, watched
from .server import TOKEN, get, post, view
from .test_result_feed import write_result


def test_a_subscription_made_in_the_form_shows_its_results(browser, kafka, served):
    topics = kafka.topology()
    browser.open(f"{served.url}")
    browser.click("//button[@name='register']")
    assert browser.run("return document.querySelectorAll(':invalid').length") > 0  # the browser asks for what is missing
    fill(browser, {"text": "lake park", "lat": "43.04", "lon": "-87.9", "k": "2", "id": "park"})
    browser.click("//button[@name='register']")
    browser.wait("document.querySelector('#answer').innerText.includes('it has a token')")
    browser.open(f"{served.url}#token={TOKEN}")
    browser.wait("location.hash === '' && document.body.dataset.state === 'shown' && sessionStorage.getItem('token')")
    fill(browser, {"text": "lake park", "lat": "43.04", "lon": "-87.9", "k": "2", "id": "park"})
    browser.click("//button[@name='register']")
    browser.wait("document.querySelector('#answer').innerText === 'Registered.'")
    (stored,) = kafka.broker.logs[topics.subscriptions, 0]
    assert stored.key == b"park" and json.loads(stored.value) == {"type": "topk", "text": "lake park", "lat": 43.04, "lon": -87.9, "k": 2, "alpha": 0.5}
    publish(kafka, topics, "m1", "<img src=x onerror=alert(1)> in the park")
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
    browser.wait("document.querySelector('#state').innerText.includes('active since watermark 0')")
    limited = {**active, "event": "limited", "limit": "dskype.results.meta.bytes.per.second"}
    kafka.broker.write(topics.registrations, b"\xffpark", json.dumps(limited).encode())
    browser.wait("document.querySelector('#state').innerText.includes('more bytes than dskype.results.meta.bytes.per.second allows')")
    assert "active since watermark 0" in browser.text("#state")
    assert "<img src=x" in browser.text("#changes") and browser.run("return document.querySelectorAll('img').length") == 0
    assert browser.run("return location.hash") == "#sub=park"
    browser.click("//button[text()='Remove the subscription']")
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
    browser.open(f"{served.url}#sub=park")
    browser.wait("document.querySelectorAll('#list tbody tr').length === 2")  # the records are years old, so only what comes from now on is read
    write_result(kafka, topics, "park", 7, score=0.45)
    write_result(kafka, topics, "park", 8, score=0.45, note="<b>new</b>")
    browser.wait("document.querySelectorAll('#list tbody tr').length === 4")
    assert [r["Text"] for r in browser.rows("#changes")] == ["note: <b>new</b>", ""]  # what a newer topology says of a result
    assert [r["Message"] for r in browser.rows("#list")] == ["m1", "m8", "m7", "m2"]  # of equal scores the newer first
    browser.open(f"{served.url}#sub=nothing")
    browser.wait("document.querySelector('#answer').innerText.includes('There is no subscription nothing')")
    assert browser.problems() == []


def test_with_a_half_life_a_list_shows_what_is_left_of_scores_at_its_newest_watermark(browser, kafka, served):
    topics = kafka.topology()
    run_plan(kafka, HALF_LIFE)
    value = {"type": "topk", "text": "park", "lat": 43.0, "lon": -87.9, "k": 3, "alpha": 0.5}
    kafka.broker.write(topics.subscriptions, "park", json.dumps(value).encode())
    listed = {
        "v": 1,
        "subscription": "park",
        "registration": "0-0",
        "watermark": 600_000,
        "topk": [{"message": "m1", "score": 9.0}, {"message": "m2", "score": 8.0}],
    }
    kafka.broker.write(topics.topk, "park", json.dumps(listed).encode(), headers=[("version", "1 0-0 600000")])
    kafka.broker.time_ms += 10_000
    browser.open(f"{served.url}#sub=park")
    browser.wait("document.querySelectorAll('#list tbody tr').length === 2")
    assert [(r["Score"], r["Message"]) for r in browser.rows("#list")] == [("0.500000", "m1"), ("0.250000", "m2")]
    write_result(kafka, topics, "park", 660_000, score=10.5)  # a half-life later
    browser.wait("document.querySelectorAll('#list tbody tr').length === 3")
    assert [(r["Score"], r["Message"]) for r in browser.rows("#list")] == [("0.707107", "m660000"), ("0.250000", "m1"), ("0.125000", "m2")]
    said = browser.run("return document.querySelector('#list abbr').title")
    assert said == "what is left of the score at watermark 660000; the time score is 10.500000" and browser.problems() == []


def test_a_refusal_is_shown(browser, kafka, served):
    topics = kafka.topology()
    browser.open(f"{served.url}#token={TOKEN}")
    browser.open(f"{served.url}")
    put(browser, "bbox")
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


LANGUAGE = {"dskype.attributes": {"price": "number", "tags": "strings", "open": "boolean", "since": "time"}, "dskype.boolean.wordless": True}


def test_a_draft_is_checked_and_tried_while_it_is_typed(browser, kafka, served):
    topics = kafka.topology()
    run_plan(kafka, LANGUAGE)
    for i in range(5):
        message = {"id": f"m{i}", "text": "<b>Coffee</b> late at night" if i % 2 else "tea", "lat": 43.0, "lon": -87.9, "attributes": {"price": i}}
        kafka.broker.write(topics.messages, None, json.dumps(message).encode())
    browser.open(f"{served.url}#token={TOKEN}")
    browser.open(f"{served.url}")
    browser.click("//input[@value='boolean']")
    type_into(browser, "expression", "coffee and (late night)")
    browser.wait("document.querySelector('#draft mark')?.innerText === 'n'")
    assert "Expected AND or OR after 'late' at position 18" in browser.text("#draft") and browser.text("#draft pre") == "coffee and (late night)"
    assert browser.run("return document.querySelector('[name=expression]').getAttribute('aria-invalid')") == "true"
    type_into(browser, "expression", "coffee and late")
    browser.wait("document.querySelector('#draft').innerText.includes('2 of the 5 newest messages would have matched')")
    assert "It is read as coffee AND late" in browser.text("#draft") and "m3: <b>Coffee</b> late at night" in browser.text("#draft")
    assert browser.run("return document.querySelectorAll('#draft b').length") == 0
    assert browser.run("return document.querySelector('[name=expression]').getAttribute('aria-invalid')") is None
    options = "return [...document.querySelectorAll(`[name=${arguments[0]}] option`)].filter((option) => !option.hidden).map((option) => option.textContent)"
    assert browser.run(options, "attribute") == ["price (number)", "tags (strings)", "open (boolean)", "since (time)"]
    assert browser.run(options, "sign") == ["<", "<=", "=", "!=", ">=", ">", "IN", "exists"]
    choose(browser, "sign", "<=")
    browser.click("//button[@name='compare']")
    browser.wait("document.querySelector('#answer').innerText.includes('enter a value')")
    type_into(browser, "value", "1")
    browser.click("//button[@name='compare']")
    browser.wait("document.querySelector('#draft').innerText.includes('1 of the 5 newest messages')")
    for name, sign, value in (
        ("tags", "HAS", "late night"),
        ("tags", "IN", "a, b"),
        ("open", "=", "true"),
        ("since", "<", "2026-01-31"),
        ("since", ">", "5"),
        ("price", "exists", ""),
    ):
        choose(browser, "attribute", name)
        choose(browser, "sign", sign)
        type_into(browser, "value", value)
        browser.click("//button[@name='compare']")
    expression = 'coffee and late AND price <= 1 AND tags HAS "late night" AND tags IN ("a", "b") AND open = true AND since < "2026-01-31" AND since > 5 AND exists(price)'
    assert browser.run("return document.querySelector('[name=expression]').value") == expression
    browser.wait("document.querySelector('#draft').innerText.includes('0 of the 5 newest messages')")
    type_into(browser, "expression", "tea or late")
    choose(browser, "attribute", "price")
    choose(browser, "sign", ">")
    type_into(browser, "value", "2")
    browser.click("//button[@name='compare']")
    browser.wait("document.querySelector('#draft').innerText.includes('2 of the 5 newest messages')")
    browser.click("//button[@name='register']")
    browser.wait("document.querySelector('#answer').innerText === 'Registered.'")
    (stored,) = kafka.broker.logs[topics.subscriptions, 0]
    assert json.loads(stored.value) == {"type": "boolean", "expression": "(tea or late) AND price > 2"}
    browser.wait("document.querySelector('#state').innerText.includes('everywhere')")
    browser.open(f"{served.url}index.html")
    browser.open(f"{served.url}#sub={stored.key.decode()}")
    browser.wait("document.querySelector('#state')?.innerText.includes('pending')")
    assert browser.problems() == []


def test_the_filter_of_a_list_is_checked_and_tried(browser, kafka, served):
    topics = kafka.topology()
    run_plan(kafka, LANGUAGE)
    for i in range(4):
        message = {"id": f"m{i}", "text": "lake" if i else "tea", "lat": 43.0, "lon": -87.9, "attributes": {"price": i}}
        kafka.broker.write(topics.messages, None, json.dumps(message).encode())
    browser.open(f"{served.url}#token={TOKEN}")
    browser.open(f"{served.url}")
    fill(browser, {"text": "lake park", "lat": "43.04", "lon": "-87.9", "k": "2", "id": "park"})
    type_into(browser, "where", "price <")
    browser.wait("document.querySelector('#draft').innerText.includes('Expected a value for')")
    assert browser.run("return document.querySelector('[name=where]').getAttribute('aria-invalid')") == "true"
    type_into(browser, "where", "")
    browser.wait("document.querySelector('#draft').innerText.includes('3 of the 4 newest messages could have entered the list')")
    choose(browser, "attribute", "price")
    choose(browser, "sign", ">=")
    type_into(browser, "value", "2")
    browser.click("//button[@name='compare']")
    browser.wait("document.querySelector('#draft').innerText.includes('2 of the 4 newest messages could have entered the list')")
    browser.click("//button[@name='register']")
    browser.wait("document.querySelector('#answer').innerText === 'Registered.'")
    (stored,) = kafka.broker.logs[topics.subscriptions, 0]
    assert json.loads(stored.value)["where"] == "price >= 2"
    browser.wait("document.querySelector('#state').innerText.includes('where price >= 2')")
    assert browser.problems() == []


@pytest.fixture
def silent(source):
    """Brokers that do not answer the server, during the test."""
    yield lambda: setattr(source, "answer", Contact(False, 1_700_000_000_000, 21.0))
    source.answer = Contact(True, 1, 0.0)


@pytest.mark.parametrize("page", ["#sub=b", "dskype/subscriptions.html", "dskype/load.html"])
def test_every_page_shows_that_the_brokers_do_not_answer(browser, kafka, served, source, silent, page):
    topics = kafka.topology()
    kafka.broker.write(topics.subscriptions, "b", json.dumps({"type": "boolean", "bbox": [0, 0, 1, 1], "expression": "x"}).encode())
    source.views = [watched(view("dskype"))]
    run_plan(kafka, {"dskype.distributor": "hashing"})
    browser.open(f"{served.url}{page}")
    browser.wait("document.body.dataset.numbers === 'new'")
    silent()
    browser.wait("document.querySelector('#health').innerText.includes('The brokers have not answered for 21 s')", 10)
    assert browser.run("return document.body.dataset.numbers") == "old"
    if "sub=" in page:
        browser.wait("document.querySelector('#state').innerText.includes('the brokers do not answer')")
        assert "live" not in browser.text("#state")
        browser.wait("document.querySelector('#counts').innerText.includes('no data') && document.querySelector('#state').innerText.includes('do not answer')")
    source.answer = Contact(True, 1, 0.0)
    browser.wait("document.querySelector('#health').innerText.startsWith('Running dskype')", 10)
    browser.problems()


def test_a_refused_registration_leaves_nothing_that_looks_registered(browser, kafka, served):
    kafka.topology()
    browser.open(f"{served.url}#token={TOKEN}")
    browser.open(f"{served.url}")
    put(browser, "bbox")
    fill(browser, {"expression": "coffee AND", "west": "-88", "south": "42", "east": "-87", "north": "44"})
    browser.click("//button[@name='register']")
    browser.wait("document.querySelector('#answer .problem')")
    assert browser.run("return document.querySelector('#watched').hidden") is True and "sub=" not in browser.run("return location.href")
    browser.problems()


def test_ids_of_64_bits_stay_exact_and_apart(browser, kafka, served):
    topics = kafka.topology()
    ids = [1588987262754234368, 1588987262754234369, 1588987262754234370]
    value = {"type": "topk", "text": "park", "lat": 43.0, "lon": -87.9, "k": 5, "alpha": 0.5}
    kafka.broker.write(topics.subscriptions, "park", json.dumps(value).encode())
    listed = {"v": 1, "subscription": "park", "registration": "0-0", "watermark": 1, "topk": [{"message": ids[0], "score": 0.7}]}
    kafka.broker.write(topics.topk, "park", json.dumps(listed).encode(), headers=[("version", "1 0-0 1")])
    kafka.broker.time_ms += 10_000
    browser.open(f"{served.url}#sub=park")
    browser.wait("document.querySelectorAll('#list tbody tr').length === 1")

    def change(number, op, id):
        delta = {"v": 1, "subscription": "park", "watermark": number, "op": op, "message": id, **({"score": 0.7 - number / 100} if op == "add" else {})}
        kafka.broker.write(topics.results, "park", json.dumps(delta).encode(), headers=[("result-id", str(number))])

    for number, id in ((2, ids[1]), (3, ids[2]), (4, "7"), (5, 7)):
        change(number, "add", id)
    browser.wait("document.querySelectorAll('#list tbody tr').length === 5")
    assert [row["Message"] for row in browser.rows("#list")] == [*map(str, ids), "7", "7"]
    change(6, "remove", ids[0])
    change(7, "remove", 7)
    browser.wait("document.querySelectorAll('#list tbody tr').length === 3")
    assert [row["Message"] for row in browser.rows("#list")] == [str(ids[1]), str(ids[2]), "7"]
    assert [row["Message"] for row in browser.rows("#changes")][:2] == ["7", str(ids[0])] and browser.problems() == []


def test_the_rate_on_the_map_counts_only_what_comes_and_falls_when_nothing_does(browser, kafka, served):
    topics = kafka.topology()
    for number in range(300):
        publish(kafka, topics, f"old{number}", "x")
    browser.open(f"{served.url}")
    browser.wait("document.querySelector('#counts').innerText.startsWith('300 messages, 0/s')")
    for number in range(20):
        publish(kafka, topics, f"new{number}", "x")
    browser.wait("/^320 messages, [1-9]/.test(document.querySelector('#counts').innerText)")
    browser.wait("document.querySelector('#counts').innerText.startsWith('320 messages, 0/s')")
    assert browser.problems() == []


def test_the_list_of_subscriptions_has_pages_and_links(browser, kafka, served):
    topics = kafka.topology()
    for number in range(60):
        fields = {"type": "boolean", "bbox": [0, 0, 1, 1], "expression": f"coffee AND <b>{number}</b>"}
        kafka.broker.write(topics.subscriptions, f"b{number:02}", json.dumps(fields).encode())
    park = {"type": "topk", "text": "lake park", "lat": 43.04, "lon": -87.9, "k": 2, "alpha": 0.5}
    kafka.broker.write(topics.subscriptions, "park", json.dumps(park).encode())
    browser.open(f"{served.url}#token={TOKEN}")
    browser.open(f"{served.url}dskype/subscriptions.html")
    rows = browser.rows("#list")
    assert len(rows) == 50 and browser.text("#total") == "61 subscriptions"
    assert (rows[0]["Id"], rows[0]["Kind"], rows[0]["Words"], rows[0]["Where"]) == ("b00", "boolean", "coffee AND <b>0</b>", "in 0, 0, 1, 1")
    assert rows[0]["Status"] == "pending"
    browser.click("//a[text()='next page']")
    browser.wait("document.querySelectorAll('#list tbody tr').length === 11")
    assert browser.rows("#list")[-1]["Where"] == "near 43.04, -87.9, k 2, alpha 0.5"
    fill(browser, {"prefix": "pa"})
    browser.click("//button[text()='Show']")
    browser.wait("document.querySelectorAll('#list tbody tr').length === 1")
    assert browser.text("#total") == "1 subscription whose ids begin with pa"
    browser.click("//button[text()='remove']")
    assert browser.accept() == "Remove the subscription park?"
    browser.wait("document.querySelector('#list').innerText === 'none'")
    assert kafka.broker.logs[topics.subscriptions, 0][-1].value is None
    browser.open(f"{served.url}dskype/subscriptions.html?prefix=b59")
    browser.click("//a[text()='b59']")
    browser.wait("document.querySelector('#state')?.innerText.includes('coffee AND <b>59</b>')")
    assert browser.problems() == []


def test_a_plan_without_partitions_has_no_picture_to_ask_for(browser, kafka, served, source):
    run_plan(kafka, {"dskype.distributor": "hashing"})
    source.views = [watched(view("dskype"))]
    run_for(source.views[0].reports, 30, now_ms())
    browser.open(f"{served.url}dskype/load.html")
    browser.wait("document.querySelector('#plan').innerText.includes('hashing')")
    assert browser.problems() == []


def test_boolean_results_have_no_columns_for_ranks_and_scores(browser, kafka, served):
    topics = kafka.topology()
    kafka.broker.write(topics.subscriptions, "b", json.dumps({"type": "boolean", "bbox": [0, 0, 1, 1], "expression": "x"}).encode())
    browser.open(f"{served.url}#sub=b")
    browser.wait("document.querySelector('#state')?.innerText.includes('live')")
    write_result(kafka, topics, "b", 1, op="match")
    browser.wait("document.querySelectorAll('#changes tbody tr').length === 1")
    assert list(browser.rows("#changes")[0]) == ["Time", "What", "Message", "Text"] and browser.problems() == []


def test_a_page_goes_on_after_the_brokers_were_away(browser, kafka, served):
    topics = kafka.topology()
    kafka.broker.write(topics.subscriptions, "b", json.dumps({"type": "boolean", "bbox": [0, 0, 1, 1], "expression": "x"}).encode())
    browser.open(f"{served.url}#sub=b")
    browser.wait("document.querySelector('#state')?.innerText.includes('live')")
    kafka.broker.away = True
    browser.wait("document.querySelector('#state').innerText.includes('connecting')")
    write_result(kafka, topics, "b", 1, op="match")
    kafka.broker.away = False
    browser.wait("document.querySelectorAll('#changes tbody tr').length === 1")
    browser.problems()


def test_the_map_shows_messages_partitions_and_the_results_of_a_subscription(browser, kafka, served):
    topics = kafka.topology()
    plan = run_plan(kafka, {"dskype.distributor": "agrid"}, 3)
    texts = messages(300)
    for one in texts:
        kafka.broker.write(topics.messages, None, json.dumps(one).encode())
    kafka.broker.write(topics.messages, None, json.dumps({"id": "area", "text": "<i>storm</i>", "bbox": [170, -10, -170, 10]}).encode())
    kafka.broker.write(topics.subscriptions, "park", json.dumps({"type": "topk", "text": "park", "lat": 43.04, "lon": -87.9, "k": 5, "alpha": 0.5}).encode())
    browser.open(f"{served.url}#sub=park&partitions=true")
    browser.wait("document.querySelector('#counts').innerText.startsWith('301 messages')")
    number = len(get(served, "partitions")["partitions"])
    assert number > 1 and browser.run("return document.querySelectorAll('#map path.partition').length") == number
    assert f"agrid, version 1: {number} partitions, {number} with a place" in browser.text("#legend")
    assert browser.run("return document.querySelectorAll('#legend .swatch').length") == 3 == plan["tasks"]
    for number, one in enumerate(texts[:3]):
        write_result(kafka, topics, "park", number, score=0.5 - number / 10, rank=number + 1)
    browser.wait("document.querySelectorAll('#list tbody tr').length === 3")
    assert [row["Text"] for row in browser.rows("#list")] == [one["text"] for one in texts[:3]]
    assert "3 of 3 in the list have a known place" in browser.text("#placed")
    assert browser.run("return location.hash") == "#sub=park&partitions=true"
    browser.click("//input[@name='partitions']")
    browser.wait("document.querySelectorAll('#map path.partition').length === 0")
    assert browser.run("return location.hash") == "#sub=park"
    browser.click("//input[@name='messages']")
    assert browser.text("#counts") == "messages are off"
    assert browser.run("return document.querySelectorAll('#map path.pin').length") == 3
    assert browser.problems() == []


def test_the_page_of_loads_has_the_numbers_of_the_api(browser, kafka, served, source):
    run_plan(kafka, {"dskype.distributor": "keyword"})
    source.views = [watched(view("dskype"), **{"dskype.distributor": "keyword"})]
    run_for(source.views[0].reports, 120, now_ms())
    browser.open(f"{served.url}dskype/load.html")
    measures, trend = get(served, "measures"), get(served, "trend")
    tasks = next(c["tasks"] for c in measures["components"] if c["component"] == "subscription-bolt")
    shown = browser.rows("#tasks")
    assert [(r["Task"], r["Subscriptions"].replace(",", "")) for r in shown] == [(str(t["task"]), str(int(t["subscriptions"]))) for t in tasks]
    assert f"{measures['messages']['processed']:,}" in browser.text("#now") and f"{measures['replication']['ratio']:.2f}" in browser.text("#now")
    assert measures["replication"] == {"placements": 24_000, "subscriptions": 20_000, "ratio": 1.2}
    assert browser.run("return document.querySelectorAll('#charts canvas').length") == 6
    newest = "[...document.querySelectorAll('#charts .u-value')].map((one) => one.innerText)"
    browser.wait(f"{newest}.some((text) => text !== '--' && text !== '–')")
    told = browser.run(f"return {newest}")
    assert told[0][2] == told[0][5] == ":" and f"{trend['messages_per_second'][-1]:.3g}".rstrip("0").rstrip(".") in told[1]
    assert browser.run("return [...document.querySelectorAll('#now dt')].every((term) => term.querySelector('abbr').title.length > 10)")
    assert len(trend["time_s"]) >= 20 and {len(column) for name, column in trend.items() if name != "tasks"} == {len(trend["time_s"])}
    browser.wait("document.querySelector('#plan img')?.naturalWidth > 0")
    assert browser.problems() == []


def test_the_page_of_loads_shows_a_topology_that_starts_later_and_its_new_plans(browser, kafka, served, source):
    source.views = []
    browser.open(f"{served.url}dskype/load.html")
    browser.wait("document.querySelector('#problem').innerText.includes('No DSkype topology runs.')")
    conf = {"dskype.distributor": "agrid"}
    run_plan(kafka, conf)
    source.views = [watched(view("dskype"), **conf)]
    browser.wait("document.querySelector('#plan img')?.src.endsWith('version=1')")
    plan = get(served, "partitions")
    assert post(served, "partitions/split", {"partition": 0, "task": 1, "version": plan["version"]})[0] == 200
    browser.wait("document.querySelector('#plan img').src.endsWith('version=2')")
    assert f"{len(plan['partitions']) + 1}" in browser.text("#plan") and browser.problems() == []


def test_in_the_graph_no_label_covers_another_one_or_a_component(browser):
    source = SimulatedSource()
    source.cluster.submit_topology("dskype", {"dskype.window.messages": 100, "topology.acker.executors": 0}, dskype_topology().create_topology())
    script = """
        const box = (node) => (({ left, top, right, bottom }) => [left, top, right, bottom])(node.getBoundingClientRect());
        return [[...document.querySelectorAll('#graph .edge')].map((edge) => [...edge.querySelectorAll('text')].map(box)), [...document.querySelectorAll('#graph .node > rect:first-of-type')].map(box)];
    """
    with UiServer(source, UiSettings(port=0, token=TOKEN)) as server:
        browser.open(f"{server.url}topology.html?id={source.topologies()[0].id}")
        labels, nodes = browser.run(script)
        problems = browser.problems()
    source.cluster.shutdown()
    assert len(nodes) == 7 and len(labels) >= 12 and problems == []

    def apart(a, b):
        return a[2] <= b[0] + 1 or b[2] <= a[0] + 1 or a[3] <= b[1] + 1 or b[3] <= a[1] + 1

    for i, lines in enumerate(labels):
        others = [*nodes, *(line for other in labels[:i] for line in other)]
        assert [(line, other) for line in lines for other in others if not apart(line, other)] == []


def test_that_nothing_runs_is_said(browser, served, source):
    source.views = []
    for page in ("#sub=park", "dskype/map.html?sub=park", "dskype/subscribe.html"):
        browser.open(f"{served.url}{page}")
        browser.wait("document.body.dataset.state === 'shown'")
        assert browser.text("#answer") == "No DSkype topology runs.", page


def test_a_page_that_is_hidden_lets_go_of_its_connections_and_misses_nothing(browser, kafka, served):
    topics = kafka.topology()
    kafka.broker.write(topics.subscriptions, "b", json.dumps({"type": "boolean", "bbox": [0, 0, 1, 1], "expression": "x"}).encode())
    hide = "Object.defineProperty(document, 'hidden', {value: %s, configurable: true}); document.dispatchEvent(new Event('visibilitychange'))"
    browser.open(f"{served.url}#sub=b")
    browser.wait("document.querySelector('#state').innerText.includes('live')")
    write_result(kafka, topics, "b", 1, op="match")
    browser.wait("document.querySelectorAll('#changes tbody tr').length === 1")
    browser.run(hide % "true")
    write_result(kafka, topics, "b", 2, op="match")
    browser.run(hide % "false")
    browser.wait("document.querySelectorAll('#changes tbody tr').length === 2")
    assert [row["Message"] for row in browser.rows("#changes")] == ["m2", "m1"] and browser.problems() == []


def test_lines_of_results_stay_while_newer_ones_come_and_fifty_are_shown(browser, kafka, served):
    topics = kafka.topology()
    kafka.broker.write(topics.subscriptions, "b", json.dumps({"type": "boolean", "bbox": [0, 0, 1, 1], "expression": "x"}).encode())
    browser.open(f"{served.url}#sub=b")
    browser.wait("document.querySelector('#state').innerText.includes('live')")
    for so_far, newest in ((0, 48), (48, 53), (53, 200)):  # the last time none of the lines has a result that is still shown
        before = browser.run("return (window.kept = [...document.querySelectorAll('#changes tbody tr')]).length")
        for number in range(so_far, newest):
            write_result(kafka, topics, "b", number + 1, op="match")
        browser.wait(f"document.querySelector('#changes tbody tr')?.innerText.includes('m{newest}')")
        shown = min(50, newest)
        assert [row["Message"] for row in browser.rows("#changes")] == [f"m{newest - i}" for i in range(shown)]
        assert browser.run("return kept.filter((line) => line.isConnected).length") == before
        assert browser.run("return document.querySelector('#changes [role=group]').ariaLabel") == f"table of {shown} rows"
    assert browser.problems() == []


@pytest.mark.product
def test_a_phone_can_use_the_pages_and_everything_comes_from_their_server(served, kafka, source, tmp_path):
    conf = {"dskype.distributor": "location"}
    run_plan(kafka, conf)
    source.views = [watched(view("dskype"), **conf)]
    run_for(source.views[0].reports, 30, now_ms())
    phone = Browser(tmp_path, (390, 800))
    try:
        long = "x" * 300
        kafka.broker.write(kafka.topology().subscriptions, long, json.dumps({"type": "boolean", "bbox": [0, 0, 1, 1], "expression": long}).encode())
        for page in ("", "dskype/subscriptions.html", f"#sub={long}", "dskype/load.html"):
            phone.open(served.url + page)
            phone.wait("document.querySelectorAll('header a').length > 1")
            assert phone.run("return document.documentElement.scrollWidth <= window.innerWidth"), page
            taken = phone.run("return performance.getEntriesByType('resource').map((entry) => entry.name)")
            assert taken and all(url.startswith((served.url, "data:")) for url in taken), page
            assert phone.problems() == []
    finally:
        phone.close()


def test_a_score_and_what_is_wanted_seldom_are_fields_of_the_form(browser, kafka, served):
    topics = kafka.topology()
    run_plan(kafka, {"dskype.boolean.wordless": True})
    publish(kafka, topics, "m1", "a park")
    browser.open(f"{served.url}#token={TOKEN}")
    browser.open(f"{served.url}")
    shown = "return [...document.querySelectorAll('#form [name]')].filter((field) => field.checkVisibility()).map(({ name }) => name)"
    assert "k" in browser.run(shown) and not {"min_score", "initial", "meta"} & set(browser.run(shown))
    browser.click("//input[@name='kind'][@value='threshold']")
    assert "min_score" in browser.run(shown) and "k" not in browser.run(shown)
    fill(browser, {"lat": "43.04", "lon": "-87.9", "id": "near", "min_score": "0.75", "ttl_s": "60"})
    type_into(browser, "text", "park")
    browser.wait("document.querySelector('#draft').innerText.includes('1 of the 1 newest messages could have reached the score')")
    browser.click("//details[@id='more']/summary")
    assert "meta" in browser.run(shown) and not {"initial", "inside"} & set(browser.run(shown))
    type_into(browser, "meta", "{user}")
    assert browser.run("return document.querySelectorAll('#form [name=meta]:invalid').length") == 1
    type_into(browser, "meta", '{"user": 7}')
    browser.click("//button[@name='register']")
    browser.wait("document.querySelector('#answer').innerText === 'Registered.'")
    (stored,) = kafka.broker.logs[topics.subscriptions, 0]
    fields = {"type": "threshold", "text": "park", "lat": 43.04, "lon": -87.9, "min_score": 0.75, "alpha": 0.5, "ttl_s": 60, "meta": {"user": 7}}
    assert json.loads(stored.value) == fields
    write_result(kafka, topics, "near", 1, op="match", score=0.875)
    browser.wait("document.querySelectorAll('#changes tbody tr').length === 1")
    assert browser.rows("#changes")[0]["Score"] == "0.875000" and "near 43.04, -87.9, score 0.75 or more, alpha 0.5" in browser.text("#state")
    browser.open(f"{served.url}dskype/subscriptions.html")
    assert browser.rows("#list")[0]["Where"] == "near 43.04, -87.9, score 0.75 or more, alpha 0.5"
    browser.open(f"{served.url}#sub=near")
    browser.wait("document.querySelector('#actions button')?.innerText === 'Edit'")
    browser.click("//div[@id='actions']/button[text()='Edit']")
    browser.click("//button[@name='register']")
    browser.wait("document.querySelector('#answer').innerText === 'Registered.'")
    assert [json.loads(record.value) for record in kafka.broker.logs[topics.subscriptions, 0]] == [fields, fields] and browser.problems() == []


def test_an_operator_says_whose_a_subscription_is(browser, kafka, served):
    topics = kafka.topology()
    run_plan(kafka, {"dskype.boolean.wordless": True, "dskype.tenants": {"acme": {"max_subscriptions": 9}, "default": {}}})
    browser.open(f"{served.url}#token={TOKEN}")
    browser.open(f"{served.url}")
    browser.click("//details[@id='more']/summary")
    browser.wait("document.querySelector('[name=tenant]').checkVisibility()")
    assert browser.run("return [...document.querySelectorAll('#tenants option')].map(({ value }) => value)") == ["acme", "default"]
    browser.click("//input[@name='kind'][@value='boolean']")
    for name, text in (("expression", "park"), ("id", "b"), ("tenant", "acme")):
        type_into(browser, name, text)
    fields = {"type": "boolean", "expression": "park", "tenant": "acme"}
    for times in (1, 2):
        browser.click("//button[@name='register']")
        browser.wait("document.querySelector('#answer').innerText === 'Registered.'")
        assert [json.loads(record.value) for record in kafka.broker.logs[topics.subscriptions, 0]] == [fields] * times
        browser.open(f"{served.url}#sub=b")
        browser.wait("document.querySelector('#actions button')?.innerText === 'Edit'")
        browser.click("//div[@id='actions']/button[text()='Edit']")
    assert browser.problems() == []


@pytest.mark.parametrize(("objects", "asked", "offered"), [(False, "initial", "inside"), (True, "inside", "initial")])
def test_a_box_asks_for_what_matches_already_or_for_what_stays_in(browser, kafka, served, objects, asked, offered):
    topics = kafka.topology()
    run_plan(kafka, {"dskype.boolean.wordless": True, "dskype.objects": objects})
    browser.open(f"{served.url}#token={TOKEN}")
    browser.open(f"{served.url}")
    browser.click("//details[@id='more']/summary")
    browser.click("//input[@name='kind'][@value='boolean']")
    browser.wait(f"document.querySelector('[name={asked}]').checkVisibility() && !document.querySelector('[name={offered}]').checkVisibility()")
    assert browser.run("return document.querySelector('[value=threshold]').checkVisibility()") is not objects
    type_into(browser, "expression", "park")
    type_into(browser, "id", "b")
    browser.click(f"//input[@name='{asked}']")
    browser.click("//button[@name='register']")
    browser.wait("document.querySelector('#answer').innerText === 'Registered.'")
    fields = {"type": "boolean", "expression": "park"}
    assert json.loads(kafka.broker.logs[topics.subscriptions, 0][-1].value) == {**fields, asked: True}
    more = {"inside": True} if objects else {"initial": 7}
    kafka.broker.write(topics.subscriptions, "c", json.dumps({**fields, **more}).encode())
    if not objects:
        write_result(kafka, topics, "b", 1, op="match", initial=True)
        browser.wait("document.querySelectorAll('#changes tbody tr').length === 1")
        assert browser.rows("#changes")[0]["What"] == "match, was there"
    browser.open(f"{served.url}index.html")
    browser.open(f"{served.url}#sub=c")
    browser.wait("document.querySelector('#actions button')?.innerText === 'Edit'")
    browser.click("//div[@id='actions']/button[text()='Edit']")
    if objects:
        browser.click("//input[@name='inside']")
    browser.click("//button[@name='register']")
    browser.wait("document.querySelector('#answer').innerText === 'Registered.'")
    assert json.loads(kafka.broker.logs[topics.subscriptions, 0][-1].value) == (fields if objects else {**fields, "initial": 7})
    assert browser.problems() == []
