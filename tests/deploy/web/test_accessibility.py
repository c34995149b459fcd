"""The pages keep the rules of WCAG 2.1, levels A and AA, as far as axe-core can tell, in light and dark colours, on a phone too; regions that are read out do not chatter."""

from __future__ import annotations

import json

import pytest

from dskype.topology.core.steady_clock import now_ms
from dskype.topology.nimbus.observing import Contact
from tests.topology.ui.browser import Browser

from .pages import draw, fill, put, take, type_into, violations
from .scene import messages, run_for, run_plan, watched
from .server import TOKEN, view
from .test_result_feed import write_result
from .test_search import answer, with_topics
from .test_web_objects import follow_station, say, tell

pytestmark = pytest.mark.product


@pytest.fixture
def stage(kafka, source, served):
    """A topology with messages, a subscription and measurements."""
    conf = {"dskype.distributor": "agrid", "dskype.attributes": {"price": "number"}}
    run_plan(kafka, conf, 3)
    source.views = [watched(view("dskype", 3), **conf)]
    for end_ms in (now_ms() - 86_400_000, now_ms()):
        run_for(source.views[0].reports, 70, end_ms)
    topics = kafka.topology()
    for one in messages(200):
        kafka.broker.write(topics.messages, None, json.dumps(one).encode())
    kafka.broker.write(topics.subscriptions, "park", json.dumps({"type": "topk", "text": "park", "lat": 43.04, "lon": -87.9, "k": 5, "alpha": 0.5}).encode())
    for number in range(3):
        write_result(kafka, topics, "park", number, score=0.5 - number / 10, rank=number + 1)
    return served


@pytest.mark.parametrize(("scheme", "size"), [("light", (1280, 900)), ("dark", (1280, 900)), ("light", (390, 844))])
def test_the_pages_keep_the_rules(stage, kafka, source, axe, tmp_path, scheme, size):
    topics, browser = with_topics(kafka), Browser(tmp_path, size)
    try:
        browser.prefer(scheme)
        browser.open(f"{stage.url}#token={TOKEN}")
        for page in ("index.html", "topology.html?id=dskype-1-1", "dskype/subscriptions.html", "dskype/load.html"):
            browser.open(stage.url + page)
            browser.wait("document.querySelector('#health').innerText.startsWith('Running')")
            assert violations(browser, axe) == [], page
        browser.click("//input[@name='compare']")
        browser.wait("document.querySelectorAll('.then').length > 20")
        assert violations(browser, axe) == [], "a comparison"
        browser.open(f"{stage.url}#sub=park&partitions=true")
        browser.wait("document.querySelectorAll('#list tbody tr').length === 3")
        assert violations(browser, axe) == [], "a subscription"
        browser.run("document.getElementById('new').open = true")
        fill(browser, {"text": "park", "lat": "43.04", "lon": "-87.9"})
        browser.run("document.querySelector('[name=search]').click()")
        answer(kafka, topics, 0)
        browser.wait("document.querySelectorAll('#matches tbody tr').length === 2")
        assert violations(browser, axe) == [], "a search"
        browser.open(f"{stage.url}index.html")
        browser.open(stage.url)
        browser.run("document.getElementById('more').open = true; document.querySelector('[name=kind][value=threshold]').click()")
        assert violations(browser, axe) == [], "a score"
        for tool in ("bbox", "circle", "polygon"):
            put(browser, tool)
        type_into(browser, "expression", "coffee AND")
        browser.wait("document.querySelector('#draft mark')")
        type_into(browser, "corners", "1")
        browser.run("const f = document.getElementById('place'); f.focus(); f.value = 'par'; f.dispatchEvent(new Event('input', {bubbles: true}))")
        browser.wait("document.querySelectorAll('#places li').length === 8")
        assert violations(browser, axe) == [], "the form"
        take(browser, "polygon")
        draw(browser, (0.4, 0.5), (0.5, 0.45), (0.6, 0.6), clicks=True)
        assert violations(browser, axe) == [], "drawing"
        source.answer = Contact(False, 1_700_000_000_000, 21.0)
        browser.wait("document.querySelector('#health').innerText.startsWith('Not known')")
        assert violations(browser, axe) == [], "without brokers"
        assert browser.run("return document.documentElement.scrollWidth <= window.innerWidth")
    finally:
        source.answer = Contact(True, 1, 0.0)
        browser.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_objects_that_enter_and_leave_keep_the_rules(kafka, served, axe, tmp_path, scheme):
    follow_station(kafka)
    browser = Browser(tmp_path, (1280, 900))
    try:
        browser.prefer(scheme)
        browser.open(f"{served.url}#sub=station")
        browser.wait("document.querySelector('#state').innerText.includes('live')")
        tell(kafka, "enter", "bus-7", say(kafka, "bus-7", 48.14, 11.56))
        tell(kafka, "enter", "bus-8", say(kafka, "bus-8", 48.14, 11.56))
        tell(kafka, "leave", "bus-7", say(kafka, "bus-7", 48.24, 11.56))
        browser.wait("document.querySelectorAll('#changes .move').length === 3 && !document.querySelector('#key .thing').hidden")
        assert violations(browser, axe) == []
    finally:
        browser.close()


def test_what_changes_all_the_time_is_not_read_out(browser, kafka, stage):
    browser.open(f"{stage.url}#sub=park")
    browser.wait("document.querySelector('#counts').innerText.startsWith('200 messages')")
    script = """
        window.changes = [];
        const live = (node) => node.closest?.('[role=status], [role=alert], [aria-live]');
        new MutationObserver((found) => found.forEach(({ target }) => live(target.nodeType === 1 ? target : target.parentElement) && changes.push(target.id)))
          .observe(document.body, { childList: true, characterData: true, subtree: true });
    """
    browser.run(script)
    topics = kafka.topology()
    for one in messages(100, 7):
        kafka.broker.write(topics.messages, None, json.dumps({**one, "id": f"n{one['id']}"}).encode())
    write_result(kafka, topics, "park", 9, score=0.9, rank=1)
    browser.wait("document.querySelector('#counts').innerText.startsWith('300 messages') && document.querySelectorAll('#list tbody tr').length === 4")
    before = browser.text("#health")
    browser.wait(f"document.querySelector('#health').innerText !== {json.dumps(before)}")  # the time has changed
    assert browser.run("return changes") == [] and browser.problems() == []


def test_the_map_can_be_used_with_the_keyboard_alone(browser, stage):
    browser.open(stage.url)
    browser.run("document.getElementById('place').focus()")
    order = []
    for _ in range(12):
        order.append(browser.run("return document.activeElement.id || document.activeElement.dataset.tool || document.activeElement.name"))
        browser.press("\ue004")  # the tab key
    assert order[:5] == ["place", "point", "bbox", "circle", "polygon"] and {"messages", "partitions"} <= set(order)
    outline = browser.run(
        "document.querySelector('[data-tool=bbox]').focus({focusVisible: true}); return getComputedStyle(document.activeElement).outlineStyle"
    )
    assert outline == "solid"
