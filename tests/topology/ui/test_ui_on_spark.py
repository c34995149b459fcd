"""The UI of a topology on Spark and a real broker: read from Kafka, changed by another process's commands."""

from __future__ import annotations

import json
from urllib.request import Request, urlopen

from dskype.deploy.metrics.ui_server import FollowedCluster, UiServer, UiSettings
from dskype.topology.runtime.kafka.clients import KafkaSettings
from dskype.topology.testing import FeederSpout
from tests.waiting import wait_for

from .simulated_source import letters_of, word_count

WORDS = ["storm", "on", "spark"]


def until(read, condition, secs=40):
    found = None

    def fits():
        nonlocal found
        found = read()
        return condition(found)

    wait_for(fits, secs, lambda: f"{found}")
    return found


def test_a_running_topology_is_shown_and_killed(cluster, bootstrap_servers, name):
    feeder = FeederSpout("word")
    with (
        cluster.submit_topology(name, {"topology.workers": 2}, word_count(feeder)) as topology,
        UiServer(FollowedCluster(KafkaSettings(bootstrap_servers)), UiSettings(port=0, token="t")) as server,
    ):

        def get(path):
            with urlopen(f"{server.url}api/v1/{path}", timeout=20) as answer:
                return json.load(answer)

        def mine():
            return [row for row in get("topology/summary")["topologies"] if row["name"] == name]

        def totals():
            return get(f"topology/{topology.id}")["topologyStats"][-1]

        (row,) = until(mine, bool)
        assert (row["id"], row["status"], row["driverAlive"], row["workersTotal"]) == (topology.id, "ACTIVE", True, 2)
        for word in WORDS:  # the spout is idle: it finds them between two pulses
            feeder.feed([word], word)
        emitted = len(WORDS) + letters_of(WORDS) + len(WORDS)
        # Each process reports its tasks by itself, so those of the spout may be ahead of those of the bolts.
        stats = until(totals, lambda stats: (stats["acked"], stats["emitted"]) == (len(WORDS), emitted))
        assert (stats["transferred"], stats["failed"]) == (emitted, 0)

        def shown():
            return {b["boltId"]: b for b in get(f"topology/{topology.id}?sys=true")["bolts"]}

        bolts = until(shown, lambda bolts: len(bolts) == 4 and bolts["count"]["executed"] == letters_of(WORDS))
        assert {c: b["tasks"] for c, b in bolts.items()} == {"__acker": 2, "count": 3, "split": 2, "sum": 1}
        assert get(f"topology/{topology.id}/visualization")["split"][":inputs"][0][":grouping"] == "shuffle"

        def command(path, body=None):
            data = b"" if body is None else json.dumps(body).encode()
            request = Request(f"{server.url}api/v1/topology/{topology.id}/{path}", data, {"Authorization": "Bearer t"}, method="POST")
            with urlopen(request, timeout=60) as answer:
                assert json.load(answer)["status"] == "success"

        def events():
            with urlopen(f"{server.url}api/ui/topology/{topology.id}/events", timeout=20) as answer:
                return json.load(answer)["events"]

        assert [(event["kind"], event["what"]) for event in events()] == [("health", "running, was starting")]
        command("rebalance/0", {"rebalanceOptions": {"executors": {"count": 1}}})
        happened = until(events, lambda found: {e["component"] for e in found if e["kind"] == "restart"} >= {"words", "split", "count", "sum"})
        assert {e["why"] for e in happened if e["kind"] == "restart"} == {"the topology was rebalanced"}
        assert {e["what"] for e in happened if e["kind"] in ("rebalance", "status")} >= {
            "REBALANCING, was ACTIVE",
            "ACTIVE, was REBALANCING",
            "7 executors, were 9",
        }
        command("kill/0")
        until(mine, lambda rows: not rows)
