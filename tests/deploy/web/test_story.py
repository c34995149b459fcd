"""The whole story of a subscription in the pages, on a desktop and on a phone; each step keeps the rules of WCAG 2.1 as far as axe-core can tell."""

from __future__ import annotations

import json

import pytest

from dskype.topology.core.steady_clock import now_ms
from tests.topology.ui.browser import Browser

from .pages import draw, key, publish, take, type_into, violations
from .scene import run_plan
from .server import TOKEN, post
from .test_result_feed import write_result

pytestmark = pytest.mark.product

FIELDS = {"type": "boolean", "expression": '"<i>tea</i>"', "meta": {"user": 7}}


def tell(kafka, id, event, offset):
    """Write an event of a registration."""
    value = {"v": 1, "subscription": id, "registration": f"0-{offset}", "event": event, "watermark": 0}
    kafka.broker.write(kafka.topology().registrations, id, json.dumps(value).encode())


def records(kafka):
    """Return the subscriptions that were registered and removed, in this order."""
    return [record.value and json.loads(record.value) for record in kafka.broker.logs[kafka.topology().subscriptions, 0]]


@pytest.mark.parametrize("size", [(1280, 900), (390, 844)])
def test_a_subscription_is_made_followed_changed_shared_paused_and_removed(kafka, served, axe, tmp_path, size):
    run_plan(kafka, {"dskype.boolean.wordless": True})
    topics, page = kafka.topology(), Browser(tmp_path, size)

    def step(what):
        assert violations(page, axe) == [], what
        assert page.run("return document.documentElement.scrollWidth <= window.innerWidth"), what

    def mine(text):
        page.wait(f"document.querySelector('#mine').innerText.includes({json.dumps(text)})")

    def press(text):
        """Click a button as soon as it is there: some come with the status of the subscription."""
        found = f"[...document.querySelectorAll('#panel button')].find((one) => (one.ariaLabel ?? one.innerText) === {json.dumps(text)})"
        page.wait(found)
        page.run(f"{found}.click()")

    try:
        page.open(f"{served.url}#token={TOKEN}")
        mine("None yet")
        page.run("const f = document.getElementById('place'); f.focus(); f.value = 'paris, fr'; f.dispatchEvent(new Event('input', {bubbles: true}))")
        key(page, "ArrowDown", "#place")
        step("places")
        key(page, "Enter", "#place")
        page.wait("!document.querySelector('.leaflet-zoom-anim') && Math.abs(dskype.map.getCenter().lat - 48.85) < 0.1")

        publish(kafka, topics, "m1", "<b>tea</b> time", 48.85, 2.35)
        publish(kafka, topics, "m2", "<i>tea</i>", 48.85, 2.35)
        publish(kafka, topics, "m3", "<i>tea</i>", 0.0, 0.0)
        take(page, "bbox")
        draw(page, (0.4, 0.6), (0.5, 0.5), (0.6, 0.4))
        type_into(page, "expression", FIELDS["expression"])
        type_into(page, "meta", json.dumps(FIELDS["meta"]))
        type_into(page, "id", "story")
        page.wait("document.querySelector('#draft').innerText.includes('of the 3 newest messages would have matched')")
        step("drawn, with what it would have matched")
        press("Register and follow")
        page.wait("document.querySelector('#answer').innerText === 'Registered.'")
        (made,) = records(kafka)
        west, south, east, north = made["bbox"]
        assert {name: made[name] for name in FIELDS} == FIELDS and west < 2.35 < east and south < 48.85 < north
        mine("sent")
        tell(kafka, "story", "active", 0)
        mine("active")

        write_result(kafka, topics, "story", 1, op="match")
        page.wait("document.querySelectorAll('#changes tbody tr').length === 1")
        mine("<b>tea</b> time")
        assert page.rows("#changes")[0]["Text"] == "<b>tea</b> time"
        step("a result")

        press("Edit")
        type_into(page, "expression", "tea")
        press("Register and follow")
        page.wait("document.querySelector('#mine li').innerText.includes(' tea')")
        assert records(kafka)[1:] == [{**made, "expression": "tea"}]
        press("Share")
        page.wait("document.querySelector('#answer a.share')")
        shared = page.run("return document.querySelector('#answer a.share').href")
        assert shared == f"{served.url}?topology=dskype#sub=story"
        page.open(f"{served.url}index.html")
        page.open(shared)
        page.wait("document.querySelector('#mine li')?.getAttribute('aria-current') === 'true' && document.querySelector('#state').innerText.includes('live')")
        step("shared")

        press("Pause story")
        mine("Paused in this browser alone")
        assert records(kafka)[2:] == [None] and page.run("return document.getElementById('watched').hidden")
        page.open(f"{served.url}index.html")
        page.open(served.url)
        mine("Paused in this browser alone")
        step("paused")
        press("Continue story")
        mine("sent")
        assert records(kafka)[3:] == [{**made, "expression": "tea"}]
        tell(kafka, "story", "active", 3)
        mine("active")

        press("Remove story")
        assert page.accept() == "Remove the subscription story?"
        mine("None yet")
        assert records(kafka)[4:] == [None] and page.run("return document.querySelectorAll('#mine b, #mine i').length") == 0
        step("removed")
        assert page.problems() == []
    finally:
        page.close()


def test_the_page_of_all_subscriptions_shows_those_that_are_paused_and_what_cannot_be_stays(browser, kafka, served):
    topics = kafka.topology()
    kafka.broker.time_ms = now_ms() - 600_000
    kafka.broker.write(topics.subscriptions, "odd", json.dumps({"type": "boolean", "expression": "tea", "odd": 1}).encode())
    fields = {"type": "topk", "text": "<b>tea</b>", "lat": 43.0, "lon": -87.9, "k": 3, "alpha": 0.5, "ttl_s": 5000.0}
    assert post(served, "subscriptions", {"id": "park", **fields})[0] == 200
    browser.open(f"{served.url}#token={TOKEN}")
    browser.open(f"{served.url}dskype/subscriptions.html")
    browser.click("//button[@aria-label='pause odd']")
    browser.wait("document.querySelector('#answer').innerText.includes('unknown')")
    browser.problems()
    browser.click("//button[@aria-label='pause park']")
    browser.wait("document.querySelector('#paused table')")
    assert [row["Id"] for row in browser.rows("#list")] == ["odd"] and [(row["Id"], row["Words"]) for row in browser.rows("#paused")] == [
        ("park", "<b>tea</b>")
    ]
    assert "for everyone else it is removed" in browser.text("#paused") and browser.text("#answer") == "" and records(kafka)[2:] == [None]
    browser.click("//button[@aria-label='continue park']")
    browser.wait("document.querySelectorAll('#list tbody tr').length === 2 && document.querySelector('#paused').innerText === ''")
    again = records(kafka)[3]
    assert {**again, "ttl_s": 5000.0} == fields and 4000 < again["ttl_s"] < 5000, "what is left"
    browser.click("//button[@aria-label='pause park']")
    browser.wait("document.querySelector('#paused table')")
    assert post(served, "subscriptions", {"id": "park", **fields, "k": 9})[0] == 200  # by somebody else
    browser.click("//button[@aria-label='continue park']")
    browser.wait("document.querySelector('#answer').innerText.includes('There is a subscription park again')")
    assert records(kafka)[-1]["k"] == 9 and browser.text("#paused") == "" and browser.problems() == []
