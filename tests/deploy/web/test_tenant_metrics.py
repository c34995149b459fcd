"""How many results tenants were sent, as metrics: counted where they are delivered, and named to those alone who have a right to know."""

from __future__ import annotations

import json
import re
import threading
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

from dskype.deploy.cli.main import main
from dskype.deploy.metrics.scrape_server import serve_collectors
from dskype.deploy.web.result_rates import ResultRates, TenantResults
from dskype.deploy.web.webhook_settings import Webhook
from dskype.deploy.web.webhooks import Webhooks
from dskype.spouts.settings import Settings
from dskype.spouts.tenants import Quota
from dskype.topology.errors import TopologyError
from tests.deploy.metrics.prometheus_server import prometheus, promtool
from tests.waiting import wait_for

from .server import TOKEN, Events
from .test_tenants import FILTER, auth, register, result, shared, status
from .test_webhooks import Receiver

__all__ = ["shared"]

DASHBOARDS = Path(__file__).parents[3] / "deploy" / "dashboards"
LONG = "a-token-with-more-than-16-characters"


def scraped(url, **headers):
    """Return what a server tells Prometheus."""
    with urlopen(Request(url, headers=headers), timeout=30) as answer:
        return answer.read().decode()


def counted(text):
    """Return the numbers of tenants: (metric, topology, tenant) -> results."""
    families = [family for family in text_string_to_metric_families(text) if family.name.startswith("dskype_tenant")]
    return {(s.name.removeprefix("dskype_tenant_"), s.labels["topology"], s.labels["tenant"]): s.value for family in families for s in family.samples}


def test_results_count_for_the_tenant_whose_quota_it_is():
    quotas, results = {"acme": Quota(max_results_per_s=10), "default": Quota()}, TenantResults()
    rates = ResultRates(lambda: quotas, "dskype", results, lambda: 50.0)
    acme, other, another = (rates.of(tenant) for tenant in ("acme", "other", "another"))
    for rate, number in ((acme, 10), (acme, 3), (other, 5), (another, 7), (other, 0)):
        rate.note(number, rate.wait_s(number))
    families = results.collect()
    found = {(family.name, *sample.labels.values()): sample.value for family in families for sample in family.samples}
    sent, delayed = "dskype_tenant_results", "dskype_tenant_results_delayed"
    assert found == {(sent, "dskype", "acme"): 13, (sent, "dskype", "default"): 12, (delayed, "dskype", "acme"): 3, (delayed, "dskype", "default"): 0}
    quotas.clear()
    other.note(1, 0.0)
    assert any(sample.labels["tenant"] == "other" for sample in results.collect()[0].samples), "without quotas each has its own name"


@pytest.mark.long
def test_prometheus_reads_with_the_operators_token_what_tenants_were_sent_and_strangers_read_no_name(shared, kafka, tmp_path):
    server, topics = shared
    feed = server._extensions[0].running[0].of("dskype")
    feed.client._settings = Settings.from_conf({"dskype.tenants": {"acme": {"max_results_per_s": 1}}})
    feed.is_current = lambda: True
    register(server, "acme", "a1")
    events = Events(server, "results", headers=auth("acme"))
    assert events.next()[0] == "following"
    for number in range(3):
        result(kafka, topics, "a1", "0-0", f"m{number}")
        assert events.next()[2]["message"] == f"m{number}"
    metrics = f"{server.url}metrics"
    wait_for(lambda: counted(scraped(metrics, **auth("operator"))).get(("results_total", "dskype", "acme")) == 3)
    text = scraped(metrics, **auth("operator"))
    assert counted(text)["results_delayed_total", "dskype", "acme"] == 2 and "dskype_reader_refusals_total" in text
    assert promtool("check", "metrics", text=text).returncode == 0
    assert "tenant" not in scraped(metrics) and "acme" not in scraped(metrics)
    assert status(server, "metrics", auth("acme")) == 403 and status(server, "metrics", {"Authorization": "Bearer wrong-wrong-wrong"}) == 401
    with prometheus(tmp_path / "prometheus", urlsplit(server.url).netloc, DASHBOARDS / "alerts.yml", token=TOKEN) as running:
        queries = [target["expr"] for panel in json.loads((DASHBOARDS / "dskype.json").read_text())["panels"] for target in panel["targets"]]
        plain = [query.replace("$topology", "dskype").replace("$__rate_interval", "30s") for query in queries if "dskype_tenant_results" in query]
        assert len(plain) == 2
        wait_for(lambda: all(running.query(query) for query in plain), 60, "data for the panel")
        assert {row["metric"]["tenant"] for query in plain for row in running.query(query)} == {"acme"}
    events.close()


def test_webhooks_count_what_arrived_and_other_machines_need_a_token_to_read_it(kafka, tmp_path, monkeypatch):
    topics, receiver = kafka.topology(), Receiver()
    kafka.broker.write(topics.subscriptions, "mine", json.dumps({**FILTER, "tenant": "bolt"}).encode())
    for number in range(3):
        result(kafka, topics, "mine", "0-0", f"m{number}")
    lines = []
    running = Webhooks(kafka, "dskype", [], lines.append, tmp_path)
    delivery = running._delivery(Webhook("w", receiver.url, (b"0123456789abcdef",), start="beginning", tenant="bolt"))
    thread = threading.Thread(target=delivery.run, daemon=True)
    thread.start()
    wait_for(lambda: delivery.counts().results == 3)
    with closing(serve_collectors([running.sent], "127.0.0.1", 0, lines.append)):
        (url,) = re.findall(r"^metrics: (http://127\.0\.0\.1:\d+/metrics)$", lines[0])
        assert counted(scraped(url)) == {("results_total", "dskype", "bolt"): 3, ("results_delayed_total", "dskype", "bolt"): 0}
    running._stop.set()
    thread.join(60)
    receiver.close()
    with pytest.raises(TopologyError, match=r"other machines need a token.*DSKYPE_METRICS_TOKEN"):
        serve_collectors([running.sent], "0.0.0.0", 0, lines.append)
    monkeypatch.setenv("DSKYPE_METRICS_TOKEN", "short")
    with pytest.raises(TopologyError, match="DSKYPE_METRICS_TOKEN is too short.*5 characters"):
        serve_collectors([running.sent], "0.0.0.0", 0, lines.append)
    monkeypatch.setenv("DSKYPE_METRICS_TOKEN", LONG)
    with closing(serve_collectors([running.sent], "0.0.0.0", 0, lines.append)) as server:
        url = f"http://127.0.0.1:{server.address[1]}/metrics"
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": LONG}):
            with pytest.raises(HTTPError) as error:
                scraped(url, **headers)
            assert error.value.code == 401 and b"bolt" not in error.value.read()
        text = scraped(url, Authorization=f"Bearer {LONG}")
        assert counted(text)["results_total", "dskype", "bolt"] == 3 and 'dskype_reader_refusals_total{limit="wrong-token"} 2.0' in text
        with pytest.raises(TopologyError, match="The metrics cannot be served"):
            serve_collectors([running.sent], "127.0.0.1", server.address[1], lines.append)


def test_the_command_serves_metrics_while_it_delivers(kafka, tmp_path, monkeypatch, capsys):
    kafka.topology()
    file = tmp_path / "webhooks.yaml"
    file.write_text("webhooks:\n  - {name: w, url: 'https://a.example/', secret: 0123456789abcdef, tenant: acme}\n")
    served = []

    def wait():
        (url,) = re.findall(r"metrics: (\S+)", capsys.readouterr().err)
        served.append(scraped(url))

    monkeypatch.setattr("dskype.deploy.web.webhooks.Webhooks.__enter__", lambda self: self)
    monkeypatch.setattr("dskype.deploy.web.webhooks.Webhooks.__exit__", lambda self, *_: None)
    monkeypatch.setattr("dskype.deploy.cli.commands.webhooks.threading", SimpleNamespace(Event=lambda: SimpleNamespace(wait=wait)))
    assert main(["webhooks", str(file), "--bootstrap-servers", "127.0.0.1:1", "--metrics-port", "0"]) == 0
    assert "dskype_tenant_results_total" in served[0]
