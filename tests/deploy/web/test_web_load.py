"""The page of loads in a real browser: each number is explained, and is compared with what it was a day ago, as far as that is known."""

from __future__ import annotations

import json
import time

import pytest

from dskype.distribution import make_distributor
from dskype.spouts.topics import Topics
from dskype.topology.core.steady_clock import now_ms

from .scene import run_for, run_plan, watched
from .server import get, view

DAY_MS = 86_400_000


@pytest.fixture
def reports(kafka, source):
    """The reports of the only topology, which has an A-Grid."""
    run_plan(kafka, {"dskype.distributor": "agrid"}, 3)
    source.views = [watched(view("dskype", 3), **{"dskype.distributor": "agrid"})]
    return source.views[0].reports


def open_load(browser, served):
    browser.open(f"{served.url}dskype/load.html")
    browser.wait(
        "document.querySelectorAll('#charts canvas').length === 6 && document.querySelector('#plan dl') && document.querySelectorAll('#tasks tbody tr').length === 2"
    )


def numbers(browser):
    """Return the number of cells that have digits, by what they are called, and those whose name or picture says nothing when the mouse is on it."""
    script = """
        const cells = [...document.querySelectorAll('main dd, main td')].filter((cell) => /[0-9]/.test(cell.innerText) && !cell.closest('.u-legend'));
        const nameOf = (cell) => cell.tagName === 'DD' ? cell.previousElementSibling : cell.closest('table').tHead.rows[0].cells[cell.cellIndex];
        const captions = [...document.querySelectorAll('main figcaption')];
        const silent = [...cells.map(nameOf), ...captions].filter((name) => !(name.querySelector('abbr[title][tabindex]')?.title.length > 10));
        return [cells.length, captions.length, silent.map(({ textContent }) => textContent)];
    """
    return browser.run(script)


def test_every_number_is_explained(browser, served, reports):
    run_for(reports, 60, now_ms())
    open_load(browser, served)
    cells, captions, silent = numbers(browser)
    assert silent == [] and captions == 6 and cells > 25
    assert "topic" in browser.run("return document.querySelector('#health .state').title")
    assert browser.problems() == []


def test_the_flow_between_tasks_is_drawn_and_told_in_numbers(browser, served, reports):
    run_for(reports, 60, now_ms())
    open_load(browser, served)
    (pair,) = get(served, "flows")["flows"]
    assert (pair["source"], pair["target"], pair["senders"], pair["receivers"]) == ("distribution-bolt", "subscription-bolt", [1], [2, 3])
    curves = browser.run(
        "return [...document.querySelectorAll('#flow [data-flow]')].map((curve) => [curve.dataset.flow, Number(curve.lastChild.getAttribute('stroke-width'))])"
    )
    (to_2, to_3) = pair["tuples_per_second"][0]
    assert [name for name, _ in curves] == ["1 2", "1 3"] and [width for _, width in curves] == [12.0, pytest.approx(1 + 11 * to_3 / to_2, abs=0.3)]
    browser.click("//*[@id='flow']//summary")
    (row,) = browser.rows("#flow")
    assert row["Task"] == "1" and [300 < float(row[f"to {id}"]) < 700 for id in (2, 3)] == [True, True]
    cells = browser.run("return [...document.querySelectorAll('#flow td [title]')].map((cell) => cell.title)")
    assert cells == [f"{pair['tuples'][0][0]:,} in all", f"{pair['tuples'][0][1]:,} in all"]
    assert browser.run("return document.querySelector('[name=pair]').value") == "distribution-bolt to subscription-bolt" and browser.problems() == []


def test_without_history_nothing_is_compared(browser, served, reports):
    run_for(reports, 60, now_ms())
    open_load(browser, served)
    assert browser.run("return document.getElementById('compare').checkVisibility()") is False and "was" not in browser.text("main")
    assert get(served, "measures?ago_s=86400") is None


def test_every_number_is_compared_with_the_same_time_one_day_ago(browser, served, reports):
    end_ms = now_ms()
    run_for(reports, 60, end_ms - DAY_MS, (0.5, 0.5), per_second=450)
    run_for(reports, 60, end_ms)
    then = get(served, "measures?ago_s=86400")
    assert abs(end_ms - DAY_MS - then["time_ms"]) <= 60_000
    open_load(browser, served)
    assert "was" not in browser.text("main")
    at = time.strftime("%Y-%m-%d %H:%M", time.localtime(then["time_ms"] / 1000))
    assert browser.text("#compare").strip() == f"compare with a day ago, {at}"
    browser.click("//input[@name='compare']")
    browser.wait("document.querySelector('#now .then')")
    facts = dict(browser.run("return [...document.querySelectorAll('#now dt')].map((name) => [name.innerText, name.nextElementSibling.innerText])"))
    assert all("\nwas " in value for value in facts.values()), facts
    assert f"was {then['messages']['processed']:,}, +" in facts["Messages"]
    assert f"was {then['balance']['busy']:.2f}, +" in facts["Balance of busy time"]
    tasks, streams = browser.rows("#tasks"), browser.rows("#streams")
    received = next(stream for stream in then["streams"] if stream["stream"] == "matching")["tasks"]
    assert [f"was {task['tuples']:,}, " in row["Messages received"] for row, task in zip(tasks, received, strict=True)] == [True, True]
    assert all("was" in row[name] for row in tasks for name in ("Subscriptions", "Busy (s)", "Busy now", "Watermark"))
    assert all("was" in row[name] for row in streams for name in ("Tuples", "Per second", "Bytes", "Bytes per second"))
    assert numbers(browser)[2] == []
    browser.click("//input[@name='compare']")
    browser.wait("!document.querySelector('.then')")
    assert browser.problems() == []


def plan_facts(browser):
    return dict(browser.run("return [...document.querySelectorAll('#plan dt')].map((name) => [name.innerText, name.nextElementSibling.innerText])"))


def test_the_plan_is_compared_with_the_one_that_was_in_force_as_far_as_kafka_has_it(browser, served, reports, kafka):
    end_ms, plans = now_ms(), Topics.for_topology("dskype").plans
    run_for(reports, 60, end_ms - DAY_MS, version=1)
    run_for(reports, 60, end_ms, version=4)
    new = make_distributor("agrid", 3, {"granularity": 8}).split(0, 1)
    kafka.broker.write(plans, "plan", json.dumps({"v": 1, "version": 4, "plan": new}).encode())
    before, after = get(served, "measures?ago_s=86400")["plan"], get(served, "measures")["plan"]
    assert before == {"version": 1, "changing": False, "partitions": 3, "balance": 1.0} and after == {"version": 4, "changing": False}
    open_load(browser, served)
    assert "was" not in browser.text("#plan")
    browser.click("//input[@name='compare']")
    browser.wait("document.querySelector('#plan .then')")
    facts = plan_facts(browser)
    assert facts["Version"] == "4\nwas 1" and facts["Partitions"].startswith("4\nwas 3, +33.3") and "\nwas 1.00, +" in facts["Greatest load / mean, expected"]
    assert numbers(browser)[2] == []
    browser.click("//input[@name='compare']")
    browser.wait("!document.querySelector('#plan .then')")
    assert browser.problems() == []


def test_a_plan_that_kafka_has_no_more_is_not_compared_and_the_page_says_so(browser, served, reports):
    run_for(reports, 60, now_ms() - DAY_MS, version=3)
    run_for(reports, 60, now_ms(), version=7)
    assert get(served, "measures?ago_s=86400")["plan"] == {"version": 3, "changing": False, "partitions": None, "balance": None}
    open_load(browser, served)
    browser.click("//input[@name='compare']")
    browser.wait("document.querySelector('#plan .then')")
    assert "Kafka no longer has version 3, which was in force then" in browser.text("#plan") and "was" not in plan_facts(browser)["Partitions"]
    assert browser.problems() == []


def test_a_shorter_history_says_that_it_is_the_oldest(browser, served, reports):
    end_ms = now_ms()
    run_for(reports, 60, end_ms - 3_600_000)
    run_for(reports, 60, end_ms)
    open_load(browser, served)
    at = time.strftime("%Y-%m-%d %H:%M", time.localtime(get(served, "measures?ago_s=86400")["time_ms"] / 1000))
    assert browser.text("#compare").strip() == f"compare with {at}, the oldest that is kept"
    assert browser.problems() == []
