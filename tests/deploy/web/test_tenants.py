"""Tokens of tenants: everything needs a token then, and a tenant sees and changes its own subscriptions alone, whatever an id was or becomes."""

from __future__ import annotations

import argparse
import asyncio
import json
import threading
from functools import partial
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from dskype.deploy.cli.commands import ui
from dskype.deploy.metrics.ui_server import UiServer, UiSettings, check_tokens
from dskype.deploy.web import own_results
from dskype.deploy.web.deliveries import Delivery
from dskype.deploy.web.directory import Directory
from dskype.deploy.web.extension import make_extension
from dskype.deploy.web.pace import parse_pace
from dskype.deploy.web.paced_delivery import PacedDelivery
from dskype.deploy.web.result_rates import ResultRates, TenantRate, TenantResults
from dskype.deploy.web.webhook_settings import Webhook, parse_webhooks
from dskype.deploy.web.webhooks import PresentQuotas, Webhooks
from dskype.spouts.settings import Settings
from dskype.spouts.tenants import Quota
from dskype.topology.errors import IllegalArgumentException, TopologyError
from dskype.topology.ui.events import Event
from tests.waiting import wait_for

from .memory_kafka import client_of
from .server import TOKEN, Events, get, post
from .test_webhooks import Receiver

TENANTS = {"acme": "token-of-acme-0123456789", "bolt": "token-of-bolt-0123456789"}
FILTER = {"type": "boolean", "expression": "lake"}


@pytest.fixture
def shared(kafka, source):
    """A server with tenants, and its topology's topics."""
    topics = kafka.topology()
    with UiServer(source, UiSettings(port=0, token=TOKEN, tenants=TENANTS), [make_extension(kafka, source, tenants=True)]) as server:
        yield server, topics


def auth(who):
    return {"Authorization": f"Bearer {TENANTS.get(who, TOKEN)}"}


def status(server, path, headers=None):
    try:
        with urlopen(Request(f"{server.url}{path}", headers=headers or {}), timeout=30) as answer:
            return answer.status
    except HTTPError as error:
        return error.code


def ids(server, who, more=""):
    return [row["id"] for row in get(server, f"subscriptions?{more}", **auth(who))["subscriptions"]]


def register(server, who, id, **fields):
    return post(server, "subscriptions", {"id": id, **FILTER, **fields}, TENANTS.get(who, TOKEN))


def test_without_tenants_nothing_needs_a_token_to_be_read(served):
    assert status(served, "api/dskype/subscriptions") == 200 and status(served, "api/ui/pages") == 200


def test_with_tenants_all_data_needs_a_token_and_what_is_not_of_subscriptions_that_of_the_operator(shared):
    server, _ = shared
    open_to_all = ["", "dskype/subscriptions.html", "static/api.js", "api/ui/pages", "api/ui/health", "metrics"]
    for_tenants = ["topologies", "subscription?id=x", "subscriptions", "language", "draft?fields=%7B%22expression%22%3A%22lake%22%7D"]
    for_operators = [
        "api/v1/topology/summary",
        "api/v1/cluster/configuration",
        "api/dskype/measures",
        "api/dskype/partitions",
        "api/dskype/trend",
        "api/dskype/plan.svg",
    ]
    assert [status(server, path) for path in open_to_all] == [200] * len(open_to_all)
    for path in [*(f"api/dskype/{path}" for path in for_tenants), *for_operators, "api/dskype/results", "api/dskype/messages", "api/ui/topology/x/logs"]:
        assert status(server, path) == 401, path
        assert status(server, path, {"Authorization": "Bearer wrong-wrong-wrong"}) in (401, 429), path
    assert [status(server, f"api/dskype/{path}", auth("acme")) for path in for_tenants] == [200] * len(for_tenants)
    assert [status(server, path, auth("acme")) for path in for_operators] == [403] * len(for_operators)
    assert 403 not in [status(server, path, auth("operator")) for path in for_operators]
    assert [get(server, "language", **auth(who))["tenants"] for who in ("operator", "acme")] == [[], None]
    for path in ("messages", "partitions/split", "partitions/merge"):
        code, said = post(server, path, {"text": "lake", "lat": 0, "lon": 0}, TENANTS["acme"])
        assert code == 403 and "operator alone" in said["errorMessage"] and "tenant acme" in said["errorMessage"]
    with pytest.raises(HTTPError) as error:
        urlopen(Request(f"{server.url}api/v1/topology/dskype-1-1/kill/0", b"", auth("acme"), method="POST"))
    assert error.value.code == 403


def test_a_tenant_sees_and_changes_only_its_own_subscriptions(shared, kafka):
    server, topics = shared
    assert register(server, "acme", "a1") == (200, {"subscription": "a1"})
    assert (
        register(server, "bolt", "b1", tenant="bolt")[0] == register(server, "operator", "o1")[0] == register(server, "operator", "a2", tenant="acme")[0] == 200
    )
    assert json.loads(kafka.broker.logs[topics.subscriptions, 0][0].value) == {**FILTER, "tenant": "acme"}
    assert (ids(server, "acme"), ids(server, "bolt"), ids(server, "operator")) == (["a1", "a2"], ["b1"], ["a1", "a2", "b1", "o1"])
    assert (
        ids(server, "operator", "tenant=acme") == ["a1", "a2"]
        and ids(server, "acme", "tenant=bolt") == ["a1", "a2"]
        and ids(server, "operator", "tenant=default") == ["o1"]
    )
    assert ids(server, "bolt", "id=a1&id=b1") == ["b1"]
    page = get(server, "subscriptions?limit=1", **auth("acme"))
    assert (page["total"], page["after"]) == (2, "a1") and ids(server, "acme", "after=a1") == ["a2"]
    assert get(server, "subscription?id=a1", **auth("bolt")) == {"subscription": "a1", "registered": None}
    assert get(server, "subscription?id=a1", **auth("acme"))["registered"]["tenant"] == "acme"
    for who, body in (("bolt", {"id": "a1", **FILTER}), ("bolt", {"id": "o1", **FILTER})):
        code, said = post(server, "subscriptions", body, TENANTS[who])
        assert code == 400 and "belongs to somebody else" in said["errorMessage"]
    code, said = post(server, "subscriptions", {**FILTER, "tenant": "acme"}, TENANTS["bolt"])
    assert code == 400 and "legal: bolt, or no 'tenant'" in said["errorMessage"]
    assert post(server, "subscriptions/remove", {"id": "a1"}, TENANTS["bolt"])[0] == 400 and "a1" in ids(server, "acme")
    assert post(server, "subscriptions/remove", {"id": "a1"}, TENANTS["acme"])[0] == 200 and ids(server, "acme") == ["a2"]
    assert register(server, "bolt", "a1")[0] == 200 and ids(server, "bolt") == ["a1", "b1"], "nobody's any more"
    made = post(server, "subscriptions", FILTER, TENANTS["acme"])[1]["subscription"]
    assert ids(server, "acme") == sorted(["a2", made])


def test_of_two_tenants_that_want_an_id_at_once_one_gets_it(shared):
    server, _ = shared
    for number in range(5):
        found = {}
        threads = [threading.Thread(target=lambda who=who: found.update({who: register(server, who, f"x{number}")[0]})) for who in TENANTS]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        assert sorted(found.values()) == [200, 400]
        winner = next(who for who, code in found.items() if code == 200)
        assert f"x{number}" in ids(server, winner)


def result(kafka, topics, id, registration, message):
    value = {"v": 1, "subscription": id, "watermark": 1, "op": "match", "message": message}
    kafka.broker.write(topics.results, id, json.dumps(value).encode(), headers=[("result-id", f"{registration}/1/match/{json.dumps(message)}")])


def event(kafka, topics, id, registration, name="active"):
    value = {"v": 1, "subscription": id, "registration": registration, "event": name, "watermark": 1}
    kafka.broker.write(topics.registrations, id, json.dumps(value).encode())


@pytest.mark.parametrize("query", ["", "sub=shared&sub=mine&"])
def test_a_tenant_follows_the_results_of_its_own_registrations_though_an_id_changes_hands(shared, kafka, query):
    server, topics = shared
    for id, tenant in (("shared", "acme"), ("mine", "bolt"), ("shared", "acme")):
        kafka.broker.write(topics.subscriptions, id, json.dumps({**FILTER, "tenant": tenant}).encode())
    event(kafka, topics, "shared", "0-0")
    result(kafka, topics, "shared", "0-0", "of-acme")
    result(kafka, topics, "mine", "0-1", "of-bolt")
    followers = {who: Following(server, f"results?{query}start=beginning", who) for who in ("acme", "bolt", "operator")}
    result(kafka, topics, "shared", "0-2", "again-of-acme")
    assert post(server, "subscriptions/remove", {"id": "shared"}, TENANTS["acme"])[0] == 200
    event(kafka, topics, "shared", "0-2", "removed")
    result(kafka, topics, "shared", "0-2", "last-of-acme")
    assert followers["acme"].until("last-of-acme") == ["of-acme", "again-of-acme", "last-of-acme"]
    assert register(server, "bolt", "shared")[0] == 200
    result(kafka, topics, "shared", "0-4", "now-of-bolt")
    result(kafka, topics, "shared", "0-2", "late-of-acme")
    result(kafka, topics, "mine", "0-1", "end")
    assert followers["bolt"].until("end") == ["of-bolt", "now-of-bolt", "end"]
    assert followers["operator"].until("end")[-3:] == ["now-of-bolt", "late-of-acme", "end"]
    again = Following(server, f"results?{query}start=beginning", "bolt")
    assert again.until("end") == ["of-bolt", "now-of-bolt", "end"]
    kafka.broker.write(topics.subscriptions, "other", json.dumps({**FILTER, "tenant": "acme"}).encode())
    for follower in (*followers.values(), again):
        follower.close()


class Following(Events):
    """Events of somebody with a token, of which the ids of messages are kept."""

    def __init__(self, server, path, who):
        self.who = who
        super().__init__(server, path, headers=auth(who))
        self.messages = []

    def until(self, message):
        while message not in self.messages:
            name, _, data = self.next()
            if name == "result":
                self.messages.append(data["message"])
            elif name == "registration":
                assert self.who != "bolt", data
        return self.messages


def test_a_list_that_an_update_took_over_from_somebody_else_is_not_shown(shared, kafka):
    server, topics = shared
    topk = {"type": "topk", "text": "lake", "lat": 0, "lon": 0, "k": 1, "alpha": 0.5}
    kafka.broker.write(topics.subscriptions, "s", json.dumps({**topk, "tenant": "acme"}).encode())
    listed = {"v": 1, "subscription": "s", "registration": "0-0", "watermark": 4, "topk": [{"message": "secret", "score": 0.5}]}
    kafka.broker.write(topics.topk, "s", json.dumps(listed).encode(), headers=[("version", "1 0-0 4")])
    assert get(server, "subscription?id=s", **auth("acme"))["topk"] is not None
    kafka.broker.write(topics.subscriptions, "s", json.dumps({**topk, "tenant": "bolt", "update": True}).encode())
    assert get(server, "subscription?id=s", **auth("bolt"))["topk"] is None
    assert get(server, "subscription?id=s", **auth("operator"))["topk"] is not None


def test_tokens_of_tenants_are_read_from_a_file_that_names_variables_and_no_error_shows_one(tmp_path, monkeypatch):
    file = tmp_path / "tenants.yaml"
    monkeypatch.setenv("ACME", TENANTS["acme"])

    def read(text):
        file.write_text(text)
        return ui._tenants(str(file))

    assert read("acme: ${ENV-ACME}\nbolt: token-of-bolt-0123456789\n") == TENANTS and ui._tenants(None) == {}
    for text, words in (
        ("- a", "tokens of tenants"),
        ("acme: 5", "tokens of tenants"),
        ("{}", "tokens of tenants"),
        ("a b: secret-secret-secret", "names a tenant that can be none"),
    ):
        with pytest.raises(IllegalArgumentException, match=words) as error:
            read(text)
        assert "secret-" not in str(error.value)
    for tenants, words in (
        ({"acme": "short"}, "acme is too short.*5 characters"),
        ({"a": "x" * 16, "b": "x" * 16}, "the same"),
        ({"a": TOKEN + "x" * 16}, "the same"),
    ):
        with pytest.raises(TopologyError, match=words) as error:
            check_tokens(TOKEN + "x" * 16, tenants)
        assert "x" * 16 not in str(error.value)
    parser = argparse.ArgumentParser()
    ui.add_arguments(parser)
    assert parser.parse_args(["--tenants", "f"]).tenants == "f" and "token" not in repr(UiSettings(tenants=TENANTS)).replace("token=", "")


def test_results_beyond_the_rate_of_a_tenant_wait_and_none_is_lost():
    quotas, clock = {"acme": Quota(max_results_per_s=10), "default": Quota(max_results_per_s=100), "free": Quota()}, [50.0]
    rates = ResultRates(lambda: quotas, "dskype", TenantResults(), lambda: clock[0])
    assert [rates.wait_s("acme", n) for n in (5, 0, 10, 1)] == [0, 0, 0.5, 1.5]
    assert rates.wait_s("unknown", 100) == 0 and rates.wait_s("unknown", 1) == 1 and rates.wait_s("free", 1 << 40) == 0
    assert rates.wait_s("unknown-too", 1) == pytest.approx(1.01), "those without quotas of their own share that of the default tenant"
    clock[0] += 1.6
    assert rates.wait_s("acme", 1) == 0
    quotas["acme"] = Quota()
    assert rates.wait_s("acme", 1000) == 0
    quotas.clear()
    assert rates.wait_s("acme", 1000) == 0


class OneRate(TenantRate):
    """A rate that notes what is asked and counted."""

    def __init__(self, secs_per_result=0.0):
        self.secs_per_result, self.asked, self.counted = secs_per_result, [], []

    def wait_s(self, results):
        self.asked.append(results)
        return results * self.secs_per_result

    def note(self, results, waited_s):
        self.counted.append((results, waited_s))


def test_a_stream_of_a_tenant_sleeps_as_its_rate_says(monkeypatch):
    events = [Event("result", {"subscription": "a", "result_id": f"0-0/{n}"}, f"r0:{n}") for n in range(4)] + [Event("following", {}, "r0:4")]

    class Source:
        async def next(self):
            return events

    slept = []

    async def sleep(secs):
        slept.append(secs)

    monkeypatch.setattr(own_results.asyncio, "sleep", sleep)
    rate = OneRate(0.5)
    follower = own_results.OwnResults(Source(), lambda pairs: [n != 1 for n in range(len(pairs))], rate)
    found = asyncio.run(follower.next())
    assert [(event.name, event.id) for event in found] == [("result", "r0:0"), ("", "r0:1"), ("result", "r0:2"), ("result", "r0:3"), ("following", "r0:4")]
    assert found[1].data is None and slept == [1.5] and rate.counted == [(3, 1.5)]


@pytest.mark.parametrize("paced", [False, True])
def test_a_webhook_of_a_tenant_gets_its_results_alone(kafka, tmp_path, paced):
    topics, receiver = kafka.topology(), Receiver()
    for id, tenant in (("shared", "acme"), ("mine", "bolt"), ("shared", "bolt")):
        kafka.broker.write(topics.subscriptions, id, json.dumps({**FILTER, "tenant": tenant}).encode())
    for id, registration, message in (("shared", "0-0", "of-acme"), ("mine", "0-1", "of-bolt"), ("shared", "0-2", "of-bolt-too")):
        result(kafka, topics, id, registration, message)
    pace = parse_pace("pace", {"throttle": {"most": 5, "every_s": 3600}}, "UTC") if paced else None
    webhook = Webhook("w", receiver.url, (b"0123456789abcdef",), start="beginning", tenant="bolt", pace=pace)
    stop, rate, client = threading.Event(), OneRate(), client_of(kafka)
    made = (kafka, client, webhook, stop, lambda line: None)
    delivery = PacedDelivery(*made, tmp_path / "state.sqlite") if paced else Delivery(*made)
    delivery.keep_to(partial(Directory(client, tenants=True, states=False).owned, "bolt"), rate)
    thread = threading.Thread(target=delivery.run, daemon=True)
    thread.start()
    wait_for(lambda: delivery.counts().results == 2)
    result(kafka, topics, "shared", "0-0", "late-of-acme")
    result(kafka, topics, "mine", "0-1", "last")
    wait_for(lambda: delivery.counts().results == 3)
    stop.set()
    thread.join(60)
    assert sum(rate.asked) == sum(results for results, _ in rate.counted) == 3
    assert [one["message"] for _, body, _ in receiver.requests for one in body["results"]] == ["of-bolt", "of-bolt-too", "last"]
    receiver.close()


def test_a_webhook_names_a_tenant_as_it_may_be():
    row = {"name": "w", "url": "https://a", "secret": "0123456789abcdef"}
    assert parse_webhooks({"webhooks": [row | {"tenant": "acme"}]})[1][0].tenant == "acme" and parse_webhooks({"webhooks": [row]})[1][0].tenant is None
    with pytest.raises(IllegalArgumentException, match="The tenant of webhook w can be none.*given: 'a b'"):
        parse_webhooks({"webhooks": [row | {"tenant": "a b"}]})


def test_grouped_matches_cannot_be_followed_by_tenants(shared, kafka, tmp_path):
    server, _ = shared
    assert status(server, "api/dskype/results", auth("operator")) == 200
    feed = server._extensions[0].running[0].of("dskype")
    feed.client._settings = Settings.from_conf({"dskype.results.matches": "grouped"})
    feed.is_current = lambda: True
    with pytest.raises(HTTPError) as error:
        get(server, "results", **auth("acme"))
    assert error.value.code == 400 and "Grouped matches do not say" in json.load(error.value)["errorMessage"]
    webhooks = Webhooks(kafka, "dskype", [], print, tmp_path)
    webhooks._client._settings = feed.client._settings
    with pytest.raises(IllegalArgumentException, match="webhook w cannot keep to a tenant"):
        webhooks._delivery(Webhook("w", "https://a", (b"0123456789abcdef",), tenant="acme"))


def test_pages_show_a_tenant_its_own_and_the_operator_all(browser, shared, kafka):
    server, topics = shared
    register(server, "acme", "a1")
    register(server, "bolt", "b1")
    register(server, "operator", "free")
    browser.open(f"{server.url}dskype/subscriptions.html")
    browser.wait("document.querySelector('#answer').innerText.includes('Reading needs a token')")
    browser.open(f"{server.url}index.html#token={TENANTS['bolt']}")
    browser.open(f"{server.url}dskype/subscriptions.html")
    browser.wait("document.querySelectorAll('#list tbody tr').length === 1")
    assert browser.rows("#list")[0]["Id"] == "b1"
    browser.open(f"{server.url}#sub=b1")
    browser.wait("document.querySelector('#state')?.innerText.includes('live')")
    event(kafka, topics, "b1", "0-1")
    result(kafka, topics, "a1", "0-0", "of-acme")
    result(kafka, topics, "b1", "0-1", "of-bolt")
    browser.wait("document.querySelectorAll('#changes tbody tr').length === 1")
    assert browser.rows("#changes")[0]["Message"] == "of-bolt"
    browser.open(f"{server.url}index.html#token={TOKEN}")
    browser.open(f"{server.url}dskype/subscriptions.html")
    browser.wait("document.querySelectorAll('#list tbody tr').length === 3")
    assert [(row["Id"], row["Tenant"]) for row in browser.rows("#list")] == [("a1", "acme"), ("b1", "bolt"), ("free", "default")]
    browser.run("document.querySelector('input[name=tenant]').value = 'acme'")
    browser.click("//button[text()='Show']")
    browser.wait("document.querySelector('#total').innerText === '1 subscription of acme'")


def test_webhooks_notice_within_a_minute_that_a_resume_has_changed_quotas(kafka):
    kafka.topology()
    clock, client, conf = [100.0], client_of(kafka), {"dskype.tenants": {"acme": {"max_results_per_s": 5}}}
    client.running_conf = lambda: conf
    quotas = PresentQuotas(client, lambda: clock[0])
    assert quotas() == {}
    clock[0] += 59
    assert quotas() == {}
    clock[0] += 1
    assert quotas()["acme"].max_results_per_s == 5
    clock[0] += 60
    kept, client.running_conf = quotas(), lambda: kafka.broker.answer()
    kafka.broker.away = True
    clock[0] += 60
    assert quotas() == kept and kept
