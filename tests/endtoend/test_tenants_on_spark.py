"""Quotas of tenants on Spark: an executor is killed between two registrations, and the count goes on."""

from __future__ import annotations

import json

from dskype.deploy.cli import main as cli
from dskype.deploy.client.dead_letters import DeadLetters
from dskype.deploy.client.pubsub import PubSub
from tests.topology.runtime.helpers import executors, kill
from tests.waiting import wait_for

from .harness import topology

MESSAGE = {"text": "coffee by the lake", "lat": 43.0, "lon": -87.9}


def test_a_quota_holds_when_the_executor_that_counts_is_killed(cluster, name, feed_of, monkeypatch, capsys):
    kafka = cluster.environment.kafka
    conf = {
        "topology.acker.executors": 0,
        "topology.emulator.snapshot.interval.ms": 1000,
        "dskype.tenants": {"acme": {"max_subscriptions": 3}, "default": {"max_subscriptions": 1}},
    }
    monkeypatch.setenv("DSKYPE_BOOTSTRAP_SERVERS", kafka.bootstrap_servers)
    feed = feed_of(kafka, name, 1)
    with cluster.submit_topology(name, conf, topology({}, name)), PubSub(kafka, name) as client:

        def statuses():
            return {found.id: found.status for found in client.subscriptions()}

        for id in ("a", "b", "c", "d"):
            client.subscribe_boolean(id, expression="coffee", tenant="acme", wait=True)
        client.subscribe_boolean("free", expression="coffee", wait=True)
        wait_for(lambda: statuses() == {**dict.fromkeys("abc", "active"), "d": "pending", "free": "active"}, 120, "three of acme, and one of nobody")
        kill(lambda: executors("distributio"))  # a name has 15 characters
        client.unsubscribe("b", wait=True)
        for id in ("e", "f"):
            client.subscribe_topk(id, text="coffee", lat=43, lon=-88, tenant="acme", wait=True)
        client.subscribe_boolean("more", expression="lake", tenant="nobody-knows", wait=True)
        expected = {**dict.fromkeys(("a", "c", "e", "free"), "active"), **dict.fromkeys(("d", "f", "more"), "pending")}
        wait_for(lambda: statuses() == expected, 120, "room for one more")
        feed.publish([json.dumps(MESSAGE).encode()])
        feed.wait_for(0)
        with DeadLetters(client) as letters:
            assert [(letter.key, letter.code) for letter in letters.newest()] == [(id.encode(), "over-quota") for id in ("d", "f", "more")]
        assert "3 of 3 subscriptions live" in client.refusal(client.subscription("f").registration)

        assert cli.main(["sub", "list", "-t", name, "--tenant", "acme"]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert "TENANT" in lines[0] and len(lines) == 6 and all(" acme " in line for line in lines[1:])
        assert cli.main(["verify", "-t", name, "--wait", "60"]) == 0
        out = capsys.readouterr()
        assert "beyond a quota" in out.out + out.err
