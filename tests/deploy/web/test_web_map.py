"""The first page in a real browser: what is drawn on the map is what the form says, and the other way round; places are found by name."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

from .pages import choose, draw, key, publish, put, take, type_into, value
from .scene import messages, run_plan
from .server import TOKEN, get, post
from .test_result_feed import write_result

LANGUAGE = {"dskype.boolean.wordless": True}


@pytest.fixture
def page(browser, kafka, served):
    """The page, with the token; its topology takes subscriptions without words."""
    run_plan(kafka, LANGUAGE)
    browser.open(f"{served.url}#token={TOKEN}")
    browser.open(f"{served.url}index.html")
    browser.run("localStorage.clear()")
    browser.open(served.url)
    yield browser
    assert browser.problems() == []


def registered(browser, kafka):
    """Register what the form says, and return the fields of its record."""
    topics = kafka.topology()
    before = len(kafka.broker.logs[topics.subscriptions, 0])
    browser.run("document.getElementById('answer').replaceChildren()")
    browser.click("//button[@name='register']")
    browser.wait("document.querySelector('#answer').innerText === 'Registered.'")
    (record,) = kafka.broker.logs[topics.subscriptions, 0][before:]
    return json.loads(record.value)


def at(browser, x, y):
    """Return latitude and longitude of a point of the map, given as shares of its width and height."""
    script = """
        const { map } = dskype, size = map.getSize();
        const { lat, lng } = map.containerPointToLatLng([arguments[0] * size.x, arguments[1] * size.y]);
        return [lat, lng];
    """
    return browser.run(script, x, y)


def near(given, expected, degrees=0.5):
    return all(math.isclose(a, b, abs_tol=degrees) for a, b in zip(given, expected, strict=True))


def shown(browser):
    """Return how many shapes and handles the map shows."""
    return browser.run("return [document.querySelectorAll('#map path.drawn').length, document.querySelectorAll('#map .handle').length]")


def test_a_click_is_the_place_of_a_list(page, kafka):
    take(page, "point")
    assert page.text("#hint") == "Click the place."
    draw(page, (0.5, 0.5))
    lat, lon = float(value(page, "lat")), float(value(page, "lon"))
    assert near((lat, lon), at(page, 0.5, 0.5)) and shown(page) == [1, 1]
    assert page.run("return document.getElementById('hint').hidden") is True
    type_into(page, "text", "tea")
    draw(page, (0.1, 0.1), (0.2, 0.2))
    assert float(value(page, "lat")) == lat, "the mouse moves the map again"
    assert registered(page, kafka) == {"type": "topk", "text": "tea", "lat": lat, "lon": lon, "k": 10, "alpha": 0.5}


def test_nearness_is_in_metres_where_the_form_says_so_and_results_show_the_fields_that_they_carry(page, kafka, served):
    for name, text in (("lat", "43.04"), ("lon", "-87.9"), ("text", "tea"), ("id", "near")):
        type_into(page, name, text)
    assert page.run("return document.getElementById('scale').hidden") is True
    choose(page, "distance", "metres")
    assert page.run("return document.getElementById('scale').hidden") is False
    assert value(page, "scale_m") == "5000"
    type_into(page, "scale_m", "0")
    assert page.run("return document.querySelectorAll('#form [name=scale_m]:invalid').length") == 1  # the browser says what is legal
    type_into(page, "scale_m", "2500")
    record = registered(page, kafka)
    assert (record["distance"], record["scale_m"]) == ("metres", 2500)
    topics = kafka.topology()
    active = {"v": 1, "subscription": "near", "registration": "0-0", "event": "active", "watermark": 0}
    kafka.broker.write(topics.registrations, "near", json.dumps(active).encode())
    write_result(kafka, topics, "near", 1, score=0.5, rank=1, fields={"text": "<i>Tea</i> time", "price": 4.5})
    page.wait("document.querySelectorAll('#list tbody tr').length === 1")
    (row,) = page.rows("#list")
    assert row["Text"] == "<i>Tea</i> time; price: 4.5" and page.run("return document.querySelectorAll('#list i').length") == 0
    assert "scale 2,500 m" in page.text("#watched")
    page.click("//div[@id='actions']/button[text()='Edit']")
    assert (value(page, "distance"), value(page, "scale_m")) == ("metres", "2500")


def test_a_rectangle_is_dragged_and_its_corners_move(page, kafka):
    take(page, "bbox")
    draw(page, (0.4, 0.6), (0.5, 0.45), (0.6, 0.4))
    assert value(page, "kind") == "boolean" and shown(page) == [1, 4]
    west, south, east, north = (float(value(page, name)) for name in ("west", "south", "east", "north"))
    assert near((south, west), at(page, 0.4, 0.6)) and near((north, east), at(page, 0.6, 0.4))
    type_into(page, "west", str(west - 5))
    drawn = page.run("return dskype.drawing.shapes[0].bbox")
    assert drawn == [west - 5, south, east, north]
    handle = "#map .handle[aria-label^='the south-west corner']"
    key(page, "ArrowLeft", handle)
    assert float(value(page, "west")) < west - 5
    type_into(page, "west", "")
    assert shown(page) == [0, 0], "a rectangle without a number is nowhere"
    type_into(page, "west", str(west))
    assert shown(page) == [1, 4]
    assert registered(page, kafka) == {"type": "boolean", "bbox": [west, south, east, north]}


def test_a_circle_is_dragged_from_its_centre_and_counts_at_once(page, kafka):
    topics = kafka.topology()
    publish(kafka, topics, "near", "tea", *(round(x, 2) for x in at(page, 0.5, 0.48)))
    publish(kafka, topics, "far", "tea", 43.0, -87.9)
    take(page, "circle")
    draw(page, (0.5, 0.5), (0.5, 0.45), (0.5, 0.4))
    page.wait("document.querySelector('.count')?.innerText === '1 of the 2 newest' || document.querySelector('.count')?.innerText.startsWith('1 match')")
    page.wait("document.querySelector('#draft').innerText.includes('1 of the 2 newest messages')")
    type_into(page, "expression", "coffee")
    page.wait("document.querySelector('.count')?.innerText === '0 match, 1 there, of the 2 newest'")
    record = registered(page, kafka)
    assert record.keys() == {"type", "expression", "region"} and near(record["region"]["center"].values(), at(page, 0.5, 0.5))
    assert 100_000 < record["region"]["radius_m"] < 5_000_000
    page.wait("document.querySelector('#state').innerText.includes('within ')")
    page.wait("document.querySelector('path.subscription')")


def test_a_polygon_is_clicked_corner_by_corner(page, kafka):
    corners = [(0.4, 0.4), (0.5, 0.35), (0.6, 0.5), (0.5, 0.6)]
    take(page, "polygon")
    assert page.run("return document.querySelector('[name=undo]').hidden") is True
    draw(page, *corners, (0.3, 0.3), clicks=True)
    key(page, "Backspace")  # not the last one
    draw(page, (0.4, 0.4), clicks=True)
    assert shown(page) == [1, 4] and page.text("#shapes legend") == "Polygon 1"
    lines = [[float(x) for x in line.split(",")] for line in value(page, "corners").splitlines()]
    assert all(near(line, at(page, *corner)) for line, corner in zip(lines, corners, strict=True))
    key(page, "Delete", "#map .handle[aria-label^='corner 4']")
    assert shown(page) == [1, 3] and len(value(page, "corners").splitlines()) == 3
    assert page.run("return dskype.drawing.handles.some(({remove}) => remove)") is False, "a triangle keeps its corners"
    type_into(page, "corners", "10, 170\n-10, 170\n0, -170")
    assert page.run("return dskype.drawing.shapes[0].rings") == [[[170, 10], [170, -10], [-170, 0]]]
    assert shown(page) == [2, 3], "both sides of the antimeridian"
    type_into(page, "corners", "10, 170")
    assert page.run("return document.querySelector('[name=corners]').validationMessage").startswith("Expected at least three lines")
    type_into(page, "corners", "10, 170\n-10, 170\n0, -170")
    assert registered(page, kafka) == {"type": "boolean", "region": {"type": "Polygon", "coordinates": [[[170, 10], [170, -10], [-170, 0], [170, 10]]]}}


def test_a_polygon_ends_with_a_double_click_and_escape_leaves_nothing(page):
    take(page, "polygon")
    draw(page, (0.4, 0.4), (0.5, 0.35), (0.6, 0.5), clicks=True)
    key(page, "Escape")
    assert shown(page) == [0, 0] and page.run("return dskype.drawing.tool") is None
    take(page, "polygon")
    draw(page, (0.4, 0.4), (0.5, 0.35), (0.6, 0.5), clicks=True)
    page.click("//button[@name='undo']")
    assert page.run("return [dskype.drawing.corners.length, document.querySelector('[name=done]').hidden]") == [2, True]
    draw(page, (0.6, 0.5), (0.6, 0.5), clicks=True)
    assert shown(page) == [1, 3]


def test_several_shapes_are_one_place_and_each_can_go(page, kafka):
    for tool in ("bbox", "circle", "polygon"):
        put(page, tool)  # with the keyboard
    assert shown(page) == [3, 4 + 2 + 4]
    legends = page.run("return [...document.querySelectorAll('#shapes legend')].map((legend) => legend.innerText)")
    assert legends == ["Rectangle 1", "Circle 2", "Polygon 3"]
    assert page.run("return document.querySelectorAll('#shapes :disabled').length") == 0
    page.click("//button[@aria-label='Remove circle 2']")
    assert shown(page) == [2, 8]
    record = registered(page, kafka)
    assert [sorted(shape) for shape in record["region"]] == [["bbox"], ["coordinates", "type"]]
    page.wait("document.querySelector('#state').innerText.includes(', or in a polygon with 4 corners')")
    assert shown(page) == [0, 0], "what was drawn has become a subscription"
    page.click("//div[@id='actions']/button[text()='Edit']")
    assert shown(page) == [2, 8]
    page.run("document.querySelector('#shapes button').click()")
    assert registered(page, kafka) == {"type": "boolean", "region": record["region"][1]}


def test_an_edited_subscription_keeps_what_the_form_does_not_have(page, kafka, served):
    fields = {"type": "boolean", "bbox": [0, 0, 10, 10], "expression": "tea", "meta": {"for": "<b>me</b>"}}
    assert post(served, "subscriptions", {"id": "kept", **fields})[0] == 200
    page.open(f"{served.url}#sub=kept")
    page.wait("document.querySelector('#actions button')")
    page.click("//div[@id='actions']/button[text()='Edit']")
    type_into(page, "expression", "coffee")
    assert registered(page, kafka) == {**fields, "expression": "coffee"}


def test_an_area_without_words_is_counted_although_the_topology_wants_words(browser, kafka, served):
    run_plan(kafka, {})
    topics = kafka.topology()
    publish(kafka, topics, "m", "tea", 0.0, 0.0)
    browser.open(served.url)
    put(browser, "bbox")
    browser.wait("document.querySelector('#draft').innerText === '1 of the 1 newest messages are there. Which of them are wanted? Enter an expression.'")
    assert browser.text(".count") == "1 there of the 1 newest"
    type_into(browser, "expression", "tea")
    browser.wait("document.querySelector('#draft').innerText.includes('1 of the 1 newest messages would have matched')")
    assert browser.problems() == []


def test_a_place_is_found_by_its_name_with_the_keyboard(page):
    def search(text):
        page.run("const f = document.getElementById('place'); f.focus(); f.value = arguments[0]; f.dispatchEvent(new Event('input', {bubbles: true}))", text)
        return page.run("return [...document.querySelectorAll('#places li')].map((li) => li.textContent)")

    assert search("zurich") == ["Zürich Switzerland"]
    assert search("são p")[0] == search("sao p")[0] == "São Paulo Brazil"
    assert "Paris France" in search("par") and search("paris, fr") == ["Paris France"] and search("york")[0].startswith(("York", "New York"))
    assert search("<img src=x>") == [] and page.run("return document.getElementById('place').getAttribute('aria-expanded')") == "false"
    search("paris, fr")
    key(page, "ArrowDown", "#place")
    assert page.run("return document.getElementById('place').getAttribute('aria-activedescendant')") == "place-0"
    key(page, "Enter", "#place")
    page.wait("!document.querySelector('.leaflet-zoom-anim')")
    page.wait("Math.abs(dskype.map.getCenter().lat - 48.85) < 0.1 && Math.abs(dskype.map.getCenter().lng - 2.35) < 0.1")
    assert search("43.04, -87.91") == ["43.04, -87.91 a place"]
    key(page, "Escape", "#place")
    assert page.run("return document.getElementById('places').hidden") is True


def test_named_subscriptions_are_answered_alone(kafka, served):
    topics = kafka.topology()
    for id in ("a", "b", "c"):
        kafka.broker.write(topics.subscriptions, id, json.dumps({"type": "boolean", "bbox": [0, 0, 1, 1], "expression": "x"}).encode())
    found = get(served, "subscriptions?id=c&id=a&id=c&id=none")
    assert [one["id"] for one in found["subscriptions"]] == ["c", "a"] and (found["total"], found["after"]) == (2, None)


def test_a_thousand_messages_a_second_cost_one_drawing_a_frame(page):
    """What the server sends in a second is drawn with the frames, not with the messages, and only so many stay."""
    some = [{**one, "message_id": one["id"]} for one in messages(6000, 5)]
    script = """
        const [some, done] = [arguments[0], arguments[arguments.length - 1]];
        const { dots } = dskype, before = dots.frames;
        for (let i = 0; i < some.length; i += 100) dots.add(some.slice(i, i + 100));
        return new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(() => resolve([dots.frames - before, dots.messages.length]))));
    """
    frames, kept = page.run(script, some)
    assert frames <= 3 and kept == 4000
    choose(page, "id", "x")


def test_one_line_says_how_far_a_topology_is_behind_and_what_to_do(browser, kafka, served, source):
    view = source.views[0]
    ends, tasks = {("t", 0): 0}, view.reports.stats.tasks
    source.views = [replace(view, ends=ends)]
    tasks[1] = {"component": "message-spout", "kafka": [["t", 0, 0, 0]]}
    browser.open(served.url)
    browser.wait("document.querySelector('#health').innerText.startsWith('Running dskype')")
    ends["t", 0], tasks[1]["kafka"] = 50_000, [["t", 0, 10, 10]]
    browser.wait("document.querySelector('#health').innerText.startsWith('Behind. Topology dskype is behind: 49,990 records wait;')")
    assert "Give it more executors" in browser.text("#health") and "Since 2" not in browser.text("#health").split("Since")[0]
    assert browser.run("return document.querySelectorAll('#health [role=alert]').length") <= 1
    tasks[1]["kafka"] = [["t", 0, 50_000, 50_000]]
    browser.wait("document.querySelector('#health').innerText.startsWith('Running dskype:')")
    assert browser.problems() == []


def test_partitions_that_are_shown_again_leave_nothing_on_the_map(browser, kafka, served):
    run_plan(kafka, {"dskype.distributor": "agrid"}, 4)
    browser.open(served.url)
    nodes = []
    for _ in range(4):
        browser.click("//input[@name='partitions']")
        browser.wait("document.querySelectorAll('#map path.partition').length > 1")
        nodes.append(browser.run("return document.querySelectorAll('#map *').length"))
        assert browser.run("return [...document.querySelectorAll('#map svg')].every((one) => getComputedStyle(one).willChange === 'auto')")
        browser.click("//input[@name='partitions']")
        browser.wait("document.querySelectorAll('#map path.partition').length === 0")
    assert len(set(nodes)) == 1
    assert browser.problems() == []
