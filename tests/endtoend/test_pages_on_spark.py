"""DSkype's pages in a browser, of a topology on Spark and Kafka: a subscription is made in the form, and all that they show is what was published and what the API answers."""

from __future__ import annotations

import re

from dskype.deploy.client.pubsub import PubSub
from dskype.deploy.demo import places
from dskype.deploy.metrics.ui_server import FollowedCluster, UiServer, UiSettings
from dskype.deploy.web.extension import make_extension
from dskype.deploy.web.trend import WatchedReports
from tests.deploy.web.pages import fill, put, type_into
from tests.deploy.web.server import TOKEN, get
from tests.waiting import wait_for

from .feed import FILTER
from .harness import topology

N, LATER = 1_500, 3_000
TASKS = {"subscription-bolt": 2}
CONF = {"topology.acker.executors": 0, "dskype.window.messages": 500, "dskype.distributor": "agrid"}
SHOWN = 50
"""Results that a page keeps."""


def register(browser, server, name, fields):
    """Register a subscription in the form, and wait until the page says that it is active."""
    browser.open(f"{server.url}?topology={name}")
    if "expression" in fields:
        put(browser, "bbox")
    fill(browser, fields)
    if "expression" in fields:  # what the page says of the draft appears above the button and moves it, also away from under a pointer
        type_into(browser, "expression", fields["expression"])
        browser.wait("document.querySelector('#draft').innerText.includes('It is read as')")
    browser.click("//button[@name='register']")
    browser.wait("document.querySelector('#answer').innerText === 'Registered.'")
    browser.wait("document.querySelector('#state')?.innerText.includes('active since watermark')", 240)


def seen(browser):
    """Return how many new messages the map has counted."""
    return int(re.match(r"[\d,]+", browser.text("#counts"))[0].replace(",", ""))


def check_map(browser, server, feed, name, later):
    """Follow the live map while messages come; return how many were published."""
    browser.open(f"{server.url}?topology={name}&again=1#sub=west&partitions=true")
    plan = get(server, f"partitions?topology={name}")
    partitions = plan["partitions"]
    placed = sum(1 for partition in partitions if partition["box"])
    browser.wait(f"document.querySelectorAll('#map path.partition').length === {placed}")
    assert placed > 1 and f"agrid, version {plan['version']}: {len(partitions)} partitions, {placed} with a place" in browser.text("#legend")
    browser.wait("document.querySelector('#state').innerText.includes('live')")
    published = 0

    def is_live():  # the page follows what comes after its connection is there, and only the server knows when that is
        nonlocal published
        feed.publish([later[published]])
        published += 1
        return seen(browser)

    before = wait_for(is_live, 60, "a message on the map")
    feed.publish(rest := later[published : published + 30])
    published += len(rest)
    wait_for(lambda: seen(browser) >= before + len(rest), 60, "all later messages on the map")
    assert seen(browser) <= published and browser.problems() == []
    return published


def check_load(browser, server, feed, name, total, later):
    """Compare the page of loads with the API, when that has the reports of everything that was published."""
    api = f"measures?topology={name}"
    wait_for(lambda: (get(server, api)["messages"] or {}).get("processed") == total, 60, f"reports of {total} messages")
    browser.open(f"{server.url}dskype/load.html?topology={name}")

    def shown_and_answered():
        measures = get(server, api)
        matching = next(s for s in measures["streams"] if s["stream"] == "matching")
        received = {t["task"]: t["tuples"] for t in matching["tasks"]}
        tasks = next(c["tasks"] for c in measures["components"] if c["component"] == "subscription-bolt")
        answered = [tuple(f"{value:,}" for value in (t["task"], int(t["subscriptions"]), received[t["task"]], t["watermark"])) for t in tasks]
        shown = [tuple(row[key] for key in ("Task", "Subscriptions", "Messages received", "Watermark")) for row in browser.rows("#tasks")]
        return measures if shown == answered else None

    measures = wait_for(shown_and_answered, 60, "the page with the numbers of the API")
    cost = measures["communication"]["tuples_per_message"]
    assert cost > 0
    for text in (f"{total:,}", f"{cost:.2f}", f"{measures['replication']['ratio']:.2f}"):
        assert text in browser.text("#now")
    streams = {row["Stream"]: row["Tuples"].replace(",", "") for row in browser.rows("#streams")}
    assert int(streams["messages"]) == total
    assert browser.run("return document.querySelectorAll('#charts canvas').length") == 6
    spare = iter(later)

    def has_a_trend():  # a row is for five seconds and about the time since the row before, so messages go on until there are two
        feed.publish([next(spare)])
        trend = get(server, f"trend?topology={name}")
        return all(any(trend[column]) for column in ("messages_per_second", "tuples_per_message"))

    wait_for(has_a_trend, 60, "throughput and communication over time")
    browser.wait("document.querySelector('#plan img')?.naturalWidth > 0")
    assert browser.problems() == []


def test_pages_of_a_topology_on_spark_show_what_it_publishes_and_what_the_api_answers(cluster, name, feed_of, browser):
    kafka = cluster.environment.kafka
    feed, source = feed_of(kafka, name), FollowedCluster(kafka, WatchedReports)
    records = places.places(seed=5, count=N + LATER).records()
    with (
        cluster.submit_topology(name, CONF, topology(TASKS, name)) as handle,
        UiServer(source, UiSettings(port=0, token=TOKEN), [make_extension(kafka, source)]) as server,
    ):
        wait_for(lambda: name in get(server, "topologies")["topologies"], 60, "the topology in the API")
        browser.open(f"{server.url}#token={TOKEN}")
        register(browser, server, name, {"text": "san new saint lake park", "lat": "43.04", "lon": "-87.9", "k": "5", "id": "near"})
        box = dict(zip(("west", "south", "east", "north"), map(str, FILTER["bbox"])))
        register(browser, server, name, {**box, "expression": FILTER["expression"], "id": "west"})
        feed.publish(records[:N])  # the page of "west" is open, and the subscription active
        feed.wait_for(N - 1)
        feed.verify(CONF, matches=5)
        with PubSub(kafka, name) as client:
            matches = [str(result.message) for result in client.results(subscriptions=["west"])]
            browser.wait(rf"/Results here\s+{len(matches)}\s/.test(document.querySelector('#state').innerText)")
            assert [(row["What"], row["Message"]) for row in browser.rows("#changes")] == [("match", id) for id in matches[: -SHOWN - 1 : -1]]
            assert any(row["Text"] for row in browser.rows("#changes"))
            browser.open(f"{server.url}?topology={name}&again=2#sub=near")
            browser.wait("document.querySelectorAll('#list tbody tr').length === 5")

            def same_list():
                found = client.topk("near")
                shown = [(row["Rank"], row["Score"], row["Message"]) for row in browser.rows("#list")]
                return found is not None and shown == [(str(rank), f"{score:.6f}", str(id)) for rank, (id, score) in enumerate(found.entries, 1)]

            wait_for(same_list, 60, "the page with the published list")
            assert browser.problems() == []
        total = N + check_map(browser, server, feed, name, records[N:])
        feed.wait_for(total - 1)
        check_load(browser, server, feed, name, total, records[total:])
        feed.verify(CONF)
        assert handle.backend.failure is None
