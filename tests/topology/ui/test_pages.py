"""The pages in a real browser: no errors in its console, the numbers of the API, and text that stays text."""

from __future__ import annotations

import json
from urllib.request import urlopen

import pytest

from dskype.deploy.metrics.ui_server import UiServer, UiSettings
from dskype.topology.nimbus.observing import Contact
from dskype.topology.testing import FeederSpout

from .browser import Browser
from .simulated_source import TOKEN, SimulatedSource, word_count

ID = "words-1-1000000000"


@pytest.fixture
def served():
    """A server with a topology that has done something; its time stands still."""
    source, feeder = SimulatedSource(), FeederSpout("word")
    source.cluster.submit_topology("words", {"topology.workers": 2}, word_count(feeder))
    for word in ("storm", "on", "spark!"):
        feeder.feed([word], word)
    source.cluster.advance_cluster_time(90)
    with UiServer(source, UiSettings(port=0, token=TOKEN)) as server:
        yield server, source
    source.cluster.shutdown()


def api(server, path):
    with urlopen(f"{server.url}api/v1/{path}", timeout=10) as answer:
        return json.load(answer)


def plain(text):
    return text.replace(",", "")


def test_the_page_of_the_cluster(browser, served):
    server, _ = served
    browser.open(server.url)
    assert browser.text("body").count("words") >= 1 and browser.problems() == []
    (row,) = browser.rows("#topologies")
    (given,) = api(server, "topology/summary")["topologies"]
    assert (row["Name"], row["Status"], row["Tasks"], row["Workers"], row["Id"]) == ("words", "ACTIVE", str(given["tasksTotal"]), "2", ID)
    assert browser.rows("#machines") == [{"Host": "here", "Uptime": "1m 30s", "Workers": "2"}]
    browser.click("//section[@id='topologies']//a[text()='words']")
    browser.wait("document.querySelector('#name')?.textContent === 'words'")
    assert browser.problems() == []


@pytest.mark.parametrize("query", ["", "&window=600&sys=true"])
def test_the_page_of_a_topology_has_the_numbers_of_the_api(browser, served, query):
    server, _ = served
    browser.open(f"{server.url}topology.html?id={ID}{query}")
    page = api(server, f"topology/{ID}?{query}")
    for section, rows, key in (("#spouts", page["spouts"], "spoutId"), ("#bolts", page["bolts"], "boltId")):
        shown = browser.rows(section)
        assert [row[section[1:-1].capitalize()] for row in shown] == [row[key] for row in rows]
        for ours, theirs in zip(shown, rows, strict=True):
            for heading, field in (("Emitted", "emitted"), ("Transferred", "transferred"), ("Acked", "acked"), ("Failed", "failed"), ("Tasks", "tasks")):
                assert plain(ours[heading]) == str(theirs[field])
    shown = browser.rows("#stats")
    assert [plain(row["Emitted"]) for row in shown] == [str(s["emitted"]) for s in page["topologyStats"]]
    assert [row["Window"] for row in shown] == [s["windowPretty"] for s in page["topologyStats"]]
    assert len(browser.rows("#workers")) == 2
    assert browser.problems() == []


def test_the_graph_has_every_component_and_the_rate_of_every_stream(browser, served):
    server, _ = served
    browser.open(f"{server.url}topology.html?id={ID}")
    shown = browser.run("return [...document.querySelectorAll('#graph .node text:first-of-type')].map((node) => node.textContent)")
    assert sorted(shown) == ["count", "split", "sum", "words"]
    edges = browser.run("return [...document.querySelectorAll('#graph .edge text')].map((node) => node.lastChild.textContent)")
    # 3 words, 13 letters and 3 lengths in 90 s
    assert sorted(edges) == ["default 0.0333/s", "default 0.144/s", "length 1 0.0333/s"]
    titles = browser.run("return [...document.querySelectorAll('#graph .edge title')].map((node) => node.textContent)")
    assert sorted(titles) == [
        "split to count\ndefault, fields grouping: 0.144/s, 13 in all",
        "split to sum\nlength 1, fields grouping: 0.0333/s, 3 in all",
        "words to split\ndefault, shuffle grouping: 0.0333/s, 3 in all",
    ]
    across = browser.run(
        "return [...document.querySelectorAll('#graph .node')].map((n) => [n.querySelector('text').textContent, n.querySelector('rect').x.baseVal.value])"
    )
    at = dict(across)
    assert at["words"] < at["split"] < at["count"] == at["sum"]
    sizes = "const { width, height } = document.querySelector('#graph svg').getBoundingClientRect(); return [width, height]"
    width, height = browser.run(sizes)
    browser.click("//button[@aria-label='larger']")
    assert browser.run(sizes) == [pytest.approx(width * 1.4, abs=1), pytest.approx(height * 1.4, abs=1)]


def test_the_page_of_a_component_shows_errors_as_text(browser, served):
    server, _ = served
    browser.open(f"{server.url}component.html?id=count&topology_id={ID}")
    page = api(server, f"topology/{ID}/component/count")
    assert "<img src=x onerror=alert(1)>" in browser.text("#errors")
    assert browser.run("return document.querySelectorAll('img').length") == 0
    assert [plain(row["Executed"]) for row in browser.rows("#windows")] == [str(s["executed"]) for s in page["boltStats"]]
    assert [(row["Component"], row["Stream"], plain(row["Executed"])) for row in browser.rows("#inputs")] == [
        (i["component"], i["stream"], str(i["executed"])) for i in page["inputStats"]
    ]
    assert [row["Tasks"] for row in browser.rows("#executors")] == [e["id"] for e in page["executorStats"]]
    browser.open(f"{server.url}component.html?id=words&topology_id={ID}")
    assert [row["Acked"] for row in browser.rows("#windows")] == ["2"] * 4
    assert browser.problems() == []


def test_a_topology_is_changed_only_from_a_page_with_the_token(browser, served):
    server, source = served
    browser.open(f"{server.url}topology.html?id={ID}")
    assert browser.text("#actions").startswith("To change the topology from here")
    browser.open(f"{server.url}#token={TOKEN}")
    assert browser.run("return location.hash") == ""
    browser.open(f"{server.url}topology.html?id={ID}")
    browser.click("//button[text()='deactivate']")
    browser.wait("document.querySelector('#summary').innerText.includes('INACTIVE')")
    assert [c["event"] for c in source.sent] == ["INACTIVATE"]
    browser.click("//button[text()='kill']")
    assert browser.accept() == "Kill words, 30 s from now?"
    browser.wait("document.querySelector('#summary').innerText.includes('KILLED')")
    assert source.sent[-1] == {"name": "words", "event": "KILL", "wait_secs": 30}
    browser.wait("document.querySelector('#events').innerText.includes('KILLED, was INACTIVE')")
    assert browser.problems() == []


def test_events_are_shown_newest_first_as_text_and_since_when(browser, served):
    server, source = served
    browser.open(f"{server.url}topology.html?id={ID}")
    (error,) = [row for row in browser.rows("#events") if row["Kind"] == "error"]
    assert error["Component"] == "count" and error["Why"].startswith("ValueError: <img src=x onerror=alert(1)> password=***")
    assert browser.text("#events").rstrip().endswith("only from reports of the ten minutes before.") and "Watched since 20" in browser.text("#events")
    source.send({"name": "words", "event": "INACTIVATE"})
    browser.wait("document.querySelector('#events tbody tr').innerText.includes('INACTIVE, was ACTIVE')")
    row = browser.run("return (window.kept = document.querySelector('#events tbody tr')).innerText")
    asked = "performance.getEntriesByType('resource').filter((entry) => entry.name.endsWith('/events')).length"
    browser.wait(f"{asked} >= {browser.run('return ' + asked) + 1}")
    assert browser.run("return kept.isConnected && kept.innerText") == row, "what is shown stays where nothing happens"
    assert browser.run("return document.querySelectorAll('img').length") == 0 and browser.problems() == []


def test_the_page_of_logs_shows_the_end_of_one_and_earlier_lines_on_demand(browser, served, tmp_path):
    server, source = served
    browser.open(f"{server.url}logs.html?id={ID}")
    assert "not on this machine" in browser.text("#files")
    source.logs = tmp_path
    lines = [f"{i} <img src=x onerror=alert(1)> {'x' * 70}\n" for i in range(1000)]
    (tmp_path / "count-0.log").write_text("".join(lines))
    browser.open(f"{server.url}topology.html?id={ID}")
    browser.click("//a[text()='of its executors']")
    browser.wait("document.querySelector('#files a')")
    browser.click("//a[text()='count-0.log']")
    browser.wait("document.querySelector('#text')?.textContent.includes('999 <img')")
    assert "".join(lines).endswith(browser.run("return document.querySelector('#text').textContent"))
    browser.click("//button[text()='earlier lines']")
    browser.wait("document.querySelector('#text').textContent.startsWith('0 <img')")
    (tmp_path / "count-0.log").write_text("".join(lines) + "the end\n")
    browser.wait("document.querySelector('#text').textContent.endsWith('the end\\n')")
    assert browser.run("return document.querySelector('#text').textContent") == "".join(lines) + "the end\n"
    assert browser.run("return document.querySelectorAll('img').length") == 0 and browser.problems() == []


def test_what_is_not_there_is_said_on_the_page(browser, served):
    server, _ = served
    browser.open(f"{server.url}topology.html?id=nothing-1-1")
    assert "nothing-1-1 is not alive" in browser.text("#problem")
    assert browser.run("return document.querySelector('main').offsetHeight") == 0  # no headings of nothing
    assert "UI has no answer" not in browser.text("#problem")
    assert all("500" in problem for problem in browser.problems())
    for page, text in (("topology.html", "names no topology"), ("component.html?id=count", "names no component"), ("logs.html", "names no topology")):
        browser.open(server.url + page)
        assert text in browser.text("#problem") and browser.problems() == []
    assert browser.run("return document.body.dataset.state") == "gone"


def test_a_page_asks_no_more_for_what_is_gone(browser, served):
    server, _ = served
    browser.open(f"{server.url}topology.html?id=nothing-1-1")
    asked = "return performance.getEntriesByType('resource').filter((entry) => entry.name.includes('/api/v1/')).length"
    health = "performance.getEntriesByType('resource').filter((entry) => entry.name.includes('/api/ui/health')).length"
    browser.wait(f"{health} >= {browser.run('return ' + health) + 2}")  # what the page asks for when it opens has been asked
    before = browser.run(asked)
    browser.wait(f"{health} >= {browser.run('return ' + health) + 3}")  # more than five seconds later
    assert browser.run(asked) == before
    browser.problems()


@pytest.mark.parametrize("page", ["", f"logs.html?id={ID}"])
def test_every_page_says_within_ten_seconds_that_something_is_wrong_and_when_it_is_over(browser, served, page):
    server, source = served
    browser.open(server.url + page)
    browser.wait("document.body.dataset.numbers === 'new'")
    browser.wait("document.querySelector('#health').innerText.startsWith('Running words. Seen at ')", 10)
    source.silent_s = 33.0
    browser.wait("document.querySelector('#health').innerText.includes('written nothing for 33 s')", 10)
    source.answer = Contact(False, 1_700_000_000_000, 21.0)
    browser.wait("document.querySelector('#health').innerText.includes('The brokers have not answered for 21 s')", 10)
    assert "Since 2023-11-1" in browser.text("#health") and browser.run("return document.body.dataset.numbers") == "old"
    source.answer, source.silent_s = Contact(True, 1, 0.0), None
    browser.wait("document.querySelector('#health').innerText.startsWith('Running words') && document.body.dataset.numbers === 'new'", 10)
    assert browser.problems() == []


def test_a_page_says_that_its_server_is_gone(browser):
    source = SimulatedSource()
    with UiServer(source, UiSettings(port=0, token=TOKEN)) as server:
        browser.open(server.url)
        browser.wait("document.body.dataset.numbers === 'new'")
    browser.wait("document.querySelector('#health').innerText.includes('The web server of this page does not answer')", 10)
    assert browser.run("return document.body.dataset.numbers") == "old"
    source.cluster.shutdown()
    browser.open("about:blank")
    browser.problems()


def test_what_was_not_measured_is_a_dash_and_an_error_has_its_time(browser, served):
    server, source = served
    browser.open(f"{server.url}topology.html?id={ID}")
    (spout,) = browser.rows("#spouts")
    assert spout["Complete latency (ms)"] not in ("", "–") and spout["Acked"] == "2"  # this one has ackers
    count = next(row for row in browser.rows("#bolts") if row["Bolt"] == "count")
    assert count["Last error"][:2] == "20" and "ValueError" in count["Last error"]
    source.cluster.submit_topology("bare", {"topology.acker.executors": 0}, word_count(FeederSpout("word")))
    source.cluster.advance_cluster_time(5)
    bare = next(view.id for view in source.topologies() if view.name == "bare")
    browser.open(f"{server.url}topology.html?id={bare}")
    (spout,) = browser.rows("#spouts")
    assert (spout["Complete latency (ms)"], spout["Acked"], spout["Failed"]) == ("–", "–", "–")
    assert {(row["Execute latency (ms)"], row["Process latency (ms)"]) for row in browser.rows("#bolts")} == {("–", "–")}
    browser.open(f"{server.url}component.html?id=words&topology_id={bare}")
    assert {(row["Complete latency (ms)"], row["Acked"]) for row in browser.rows("#windows")} == {("–", "–")}
    assert browser.problems() == []


def test_pages_take_everything_from_their_own_server(browser, served):
    server, _ = served
    for page in ("", f"topology.html?id={ID}", f"component.html?id=count&topology_id={ID}"):
        browser.open(server.url + page)
        taken = browser.run("return performance.getEntriesByType('resource').map((entry) => entry.name)")
        assert taken and all(url.startswith(server.url) for url in taken)


@pytest.mark.product
def test_a_phone_can_read_the_pages(served, tmp_path):
    server, _ = served
    phone = Browser(tmp_path, (390, 800))
    try:
        for page in ("", f"topology.html?id={ID}", f"component.html?id=count&topology_id={ID}"):
            phone.open(server.url + page)
            assert phone.run("return document.documentElement.scrollWidth <= window.innerWidth")
    finally:
        phone.close()
