"""Objects on the map in a real browser: they move with a tail that ends, enter and leave are seen, and their names stay text."""

from __future__ import annotations

import json

import pytest

from .scene import run_plan
from .server import TOKEN, Events

BAD = "<img src=x onerror=alert(1)>"
OBJECTS = {"dskype.objects": True, "dskype.boolean.wordless": True}


def say(kafka, object, lat, lon, text="line 100", **more):
    """Publish a state of an object."""
    record = {"object": object, "text": text, "lat": lat, "lon": lon, **more}
    return kafka.broker.write(kafka.topology().messages, str(object), json.dumps(record).encode())


def tell(kafka, op, object, number, subscription="station"):
    """Publish what a subscription reports of an update."""
    topics = kafka.topology()
    value = {"v": 1, "subscription": subscription, "watermark": number, "op": op, "message": f"0-{number}", "object": object}
    kafka.broker.write(topics.results, subscription, json.dumps(value).encode(), headers=[("result-id", f"{subscription}/{number}")])


def follow_station(kafka):
    """Let a topology with objects run, with the active subscription ``station``."""
    run_plan(kafka, OBJECTS)
    topics = kafka.topology()
    fields = {"type": "boolean", "region": {"center": {"lat": 48.14, "lon": 11.56}, "radius_m": 500}}
    kafka.broker.write(topics.subscriptions, "station", json.dumps(fields).encode())
    active = {"v": 1, "subscription": "station", "registration": "0-0", "event": "active", "watermark": 0}
    kafka.broker.write(topics.registrations, "station", json.dumps(active).encode())


@pytest.fixture
def page(browser, kafka, served):
    """The page, following the subscription ``station``."""
    follow_station(kafka)
    browser.open(f"{served.url}#token={TOKEN}")
    browser.open(f"{served.url}index.html")
    browser.open(f"{served.url}#sub=station")
    browser.wait("document.querySelector('#state').innerText.includes('live')")
    browser.wait("document.querySelector('#counts').innerText.includes('messages')")
    yield browser
    assert browser.problems() == []


def thing(browser, object):
    """Return what the map has of an object, None if it is not there."""
    return browser.run("return dskype.things.things.get(arguments[0]) ?? null", object)


def test_an_object_moves_and_leaves_a_tail_that_ends(page, kafka):
    assert page.run("return document.querySelector('#key .thing').hidden") is True
    for step in range(15):
        say(kafka, "bus-7", 48.0 + step / 100, 11.5)
    page.wait("dskype.things.things.get('bus-7')?.lat === 48.14")
    assert len(thing(page, "bus-7")["places"]) == 9 and page.run("return dskype.dots.messages.length") == 0
    page.wait("document.querySelector('#counts').innerText.includes('1 objects on the map')")
    assert page.run("return document.querySelector('#key .thing').hidden") is False
    say(kafka, 7, 48.2, 11.5)
    page.wait("dskype.things.things.get('7')?.lat === 48.2")
    say(kafka, "bus-7", 0, 0, deleted=True)
    kafka.broker.write(kafka.topology().messages, "7", None)
    page.wait("dskype.things.things.size === 0")


def test_enter_and_leave_are_on_the_map_and_in_the_list(page, kafka):
    tell(kafka, "enter", "bus-7", say(kafka, "bus-7", 48.1405, 11.56))
    page.wait("dskype.things.inside.has('bus-7')")
    page.wait("document.querySelector('#changes .move.enter')")
    assert page.rows("#changes")[0]["Object"] == "bus-7" and page.rows("#changes")[0]["Text"] == "line 100"
    page.wait("document.querySelector('#state').innerText.includes('1: bus-7')")
    tell(kafka, "enter", BAD, say(kafka, BAD, 48.1405, 11.56, text=BAD))
    page.wait("document.querySelector('#state').innerText.includes('2: <img')")
    tell(kafka, "leave", "bus-7", say(kafka, "bus-7", 48.2, 11.56))
    page.wait("!dskype.things.inside.has('bus-7') && document.querySelector('#changes .move.leave')")
    assert page.run("return document.querySelectorAll('#map path.pin, img').length") == 0, "objects are where they are now, and text is text"
    mark = "dskype.things.mark({ object: 'bus-7', op: 'enter', lat: 1, lon: 2, time_ms: Date.now() - arguments[0] }); return dskype.things.pulses.length"
    assert page.run(mark, 0) == 1 and page.run(mark, 60_000) == 1, "what is old has no pulse"
    page.wait("dskype.things.pulses.length === 0")
    page.click("//div[@id='actions']/button[text()='Close']")
    assert page.run("return dskype.things.inside.size") == 0


def test_of_what_was_inside_before_a_subscription_moved_nothing_is_known(page, kafka):
    for name in ("bus-7", "bus-8"):
        tell(kafka, "enter", name, say(kafka, name, 48.1405, 11.56))
    page.wait("document.querySelector('#state').innerText.includes('2: bus-8, bus-7')")
    updated = {"v": 1, "subscription": "station", "registration": "0-1", "event": "updated", "watermark": 0}
    kafka.broker.write(kafka.topology().registrations, "station", json.dumps(updated).encode())
    page.wait("document.querySelector('#state').innerText.includes('1: bus-8')")
    assert page.run("return [...dskype.things.inside]") == ["bus-8"] and "active since watermark 0" in page.text("#state")


def test_only_so_many_objects_stay_and_they_cost_one_drawing_a_frame(page):
    script = """
        const { things } = dskype, before = things.frames;
        for (let step = 0; step < 3; step++) for (let start = 0; start < 5000; start += 100) {
          things.add(Array.from({ length: 100 }, (_, i) => ({ object: `v${start + i}`, lat: (start + i) % 80, lon: (start + i) % 170 + step / 10, text: "x", message_id: "m" })));
        }
        return new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(() => resolve([things.frames - before, things.things.size]))));
    """
    frames, kept = page.run(script)
    assert frames <= 3 and kept == 2000
    page.run("dskype.things.forget(performance.now() + 1e6)")
    assert page.run("return dskype.things.things.size") == 0


def test_what_has_ended_has_no_place_in_the_sample(kafka, served):
    run_plan(kafka, OBJECTS)
    events = Events(served, "messages")
    say(kafka, "bus-7", 48.0, 11.5)
    kafka.broker.write(kafka.topology().messages, "bus-7", None)
    found = []
    while len(found) < 2:
        name, _, data = events.next()
        found += data["messages"] if name == "messages" else []
    assert found[0] == {"id": "0-0", "message_id": "0-0", "object": "bus-7", "text": "line 100", "lat": 48.0, "lon": 11.5}
    assert found[1] == {"id": "0-1", "message_id": "0-1", "object": "bus-7", "gone": True}
