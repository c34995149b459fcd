"""``dskype up`` as a user runs it: a service whose process is killed, that resumes exactly, and whose metrics a real Prometheus scrapes meanwhile."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import urlopen

import pytest
import yaml

from dskype.deploy.cli.main import main
from dskype.deploy.demo import places
from dskype.topology.runtime.kafka.clients import KafkaSettings
from tests.deploy.metrics.prometheus_server import prometheus, promtool
from tests.endtoend.feed import FILTER, Feed
from tests.topology.runtime.helpers import alive, count_records, descendants
from tests.waiting import wait_for

pytestmark = pytest.mark.product(seconds=60)

DASHBOARDS = Path(__file__).parents[3] / "deploy" / "dashboards"
MESSAGES, SUBSCRIPTIONS, WINDOW = 1_500, 300, 400


def dskype(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "dskype.deploy", *arguments], capture_output=True, text=True, check=False, timeout=600, **options)


CONF = {
    "dskype.window.messages": WINDOW,
    "dskype.tenants": {"default": {"max_subscriptions": 100_000}},
    "dskype.results.fields": {"text": "text", "at": "place", "when": "time"},
}
ABSENT = {"Load balancing A", "Load balancing B", "Messages withheld by summaries A", "Objects A", "Objects B", "Results of tenants A", "Results of tenants B"}
"""Of parts that the service's topology has not, or that other processes serve. They are queried as well; tests/deploy/metrics/test_alerts.py and tests/deploy/web/test_tenant_metrics.py give them data."""


def expressions() -> dict[str, str]:
    """Return the expressions of the dashboard, and what the alerts compare, by where they are."""
    found = {}
    dashboard = json.loads((DASHBOARDS / "dskype.json").read_text())
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            found[f"{panel['title']} {target['refId']}"] = target["expr"].replace("$topology", "dskype").replace("$__rate_interval", "30s")
    for group in yaml.safe_load((DASHBOARDS / "alerts.yml").read_text())["groups"]:
        for rule in group["rules"]:
            for i, part in enumerate(re.split(r" and (?:on \([^)]*\) )?", rule["expr"])):
                found[f"{rule['alert']} {i}"] = re.sub(r"absent\((\w+)\)", r"\1", re.sub(r"\s(==|>)\s[\d.]+$", "", part.strip()))
    return found


def test_a_service_resumes_exactly_after_kill_9_and_every_expression_of_the_dashboards_has_data(tmp_path, capsys):
    folder = str(tmp_path / "service")
    messages = places.places(seed=11, count=MESSAGES)
    subscriptions, records = list(places.subscriptions(messages, SUBSCRIPTIONS, seed=11)), messages.records()

    def status() -> dict[str, Any]:
        capsys.readouterr()
        main(["status", "--folder", folder, "-o", "json"])
        return json.loads(capsys.readouterr().out)

    started = dskype(
        "up", "--folder", folder, "--port", "0", "--metrics-port", "0", "-q", *("-c" + f"{key}={json.dumps(value)}" for key, value in CONF.items())
    )
    assert started.returncode == 0, started.stderr
    first = status()
    try:
        assert first["state"] == "running" and first["ok"], first
        kafka = KafkaSettings(first["bootstrap_servers"])
        feed = Feed(kafka, "dskype")
        feed.subscribe([*subscriptions, ("west", FILTER)])
        feed.publish([*records[: MESSAGES // 2], b"no message"])
        feed.wait_for(MESSAGES // 4)
        feed.close()
        tree = {*descendants(first["pid"]), first["pid"]}
        os.kill(first["pid"], signal.SIGKILL)
        wait_for(lambda: not alive(tree), 60, "the end of all its processes")
        ended = dskype("status", "--folder", folder)
        assert ended.returncode == 1 and "ended without being stopped" in ended.stdout, ended

        assert dskype("up", "--folder", folder).returncode == 0, "with the arguments that it had"
        again = status()
        assert (again["bootstrap_servers"], again["metrics"]) == (first["bootstrap_servers"], first["metrics"])
        assert again["pid"] != first["pid"]
        with prometheus(tmp_path / "prometheus", urlsplit(again["metrics"]).netloc, DASHBOARDS / "alerts.yml") as server:
            feed = Feed(kafka, "dskype")
            feed.publish(records[MESSAGES // 2 :])
            feed.wait_for(MESSAGES - 1)
            wait_for(lambda: count_records(feed.kafka, feed.topics.registrations) > SUBSCRIPTIONS, 600, "the registration of all subscriptions")
            feed.verify(CONF, fields=1000)
            feed.close()
            missing = expressions()

            def all_have_data() -> bool:
                for where, expression in list(missing.items()):
                    if server.query(expression):
                        del missing[where]
                return missing.keys() == ABSENT

            try:
                wait_for(all_have_data, 60, "data for every expression")
            except AssertionError:
                raise AssertionError(f"no data: {missing}") from None
            assert {rule["health"] for rule in server.rules()} == {"ok"}
            with urlopen(again["metrics"]) as answer:
                checked = promtool("check", "metrics", text=answer.read().decode())
            assert checked.returncode == 0, checked.stdout + checked.stderr

        (topology,) = status()["topologies"]
        assert topology["health"]["state"] == "running" and topology["messages"]["processed"] == MESSAGES and topology["dead_letters"] == 1
        assert dskype("up", "--folder", folder).stderr.startswith("the service in"), "it runs already"
    finally:
        tree = set(descendants(status()["pid"] or first["pid"]))
        down = dskype("down", "--folder", folder)
    assert down.returncode == 0 and "nothing runs" not in down.stderr, down.stderr
    assert not alive(tree)
    assert status()["state"] == "stopped"
