"""``dskype advise --apply`` on Spark and Kafka: a crowd loads one task, and gets a plan that is made from what the topology has just received."""

from __future__ import annotations

import json

import pytest

from dskype.deploy.capacity import rules, watching
from dskype.deploy.demo import places
from dskype.deploy.lab.boolean.records import boolean_records
from dskype.spouts.text import Tokenizer
from dskype.spouts.vocabulary import Vocabulary
from tests.deploy.capacity.asking import asker
from tests.waiting import wait_for

from .harness import topology
from .test_moves_on_spark import Crowd, metric

pytestmark = pytest.mark.product(seconds=60)

TASKS = {"subscription-bolt": 3, "distribution-bolt": 2}
BOOLEAN, TOPK = 2_500, 50


def evenness(measured: dict) -> float:
    """Return the share of the busiest task over the mean."""
    (found,) = [one for one in measured["components"] if one["component"] == "subscription-bolt"]
    shares = [share for executor in found["executors"] for share in executor["tasks"]]
    return max(shares) * len(shares) / sum(shares)


def test_a_plan_for_a_crowd_is_made_of_what_has_come_and_results_stay_exact(cluster, name, feed_of, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(watching, "hosts_between", lambda before, after: {})  # other tests run on this machine, too
    monkeypatch.setattr(rules, "LEAST_SHARE", 0.01)  # the crowd of a test fills no task
    monkeypatch.setattr(rules, "UNEVEN", 1.2)
    messages = places.places(seed=9, count=40_000)
    vocabulary = tmp_path / "vocabulary"
    Vocabulary.build(messages.slice(0, 10_000).texts.to_pylist(), Tokenizer()).save(vocabulary)
    conf = {
        "topology.acker.executors": 0,
        "dskype.vocabulary": str(vocabulary),
        "dskype.window.messages": 1_000,
        "dskype.distributor": "agrid",
        "dskype.distributor.options": {"granularity": 200},
    }
    kafka = cluster.environment.kafka
    feed = feed_of(kafka, name, TASKS["subscription-bolt"])
    feed.subscribe(
        [*boolean_records(messages, BOOLEAN, seed=9, km=(100, 2_000), keywords=(1, 1), prefix="b"), *places.subscriptions(messages, TOPK, seed=9, k=10)]
    )

    advise = asker(name, kafka, capsys)
    with cluster.submit_topology(name, conf, topology(TASKS, name)) as handle:
        feed.publish(messages.slice(0, 10).records())
        feed.wait_for(9)
        crowd = Crowd(feed, messages.slice(10, len(messages)))
        crowd.move_to("America")
        with crowd:
            advised = wait_for(lambda: next((one for one in advise()["advice"] if one["kind"] == "plan"), None), 120, "advice")
            assert advised["command"] == f"dskype advise {name} --apply" and advised["numbers"]["slowest_us_then"] < advised["numbers"]["slowest_us"]
            assert feed.read(feed.topics.plans) == [], "nothing is changed without --apply"
            file = tmp_path / "plan.json"
            done = wait_for(lambda: (found := advise("--apply", "--plan", str(file))).get("applied_plan") and found, 120, "the change")
            after = done["after"] or wait_for(lambda: (found := advise()).get("components") and found, 120, "figures")
        assert (done["applied_plan"], done["plans"]["version"]) == (1, 0)
        assert metric(handle, "distribution-bolt", "plan_version") == {1} and metric(handle, "distribution-bolt", "plan_changing") == {0}
        (sent,) = feed.read(feed.topics.plans)
        assert json.loads(sent.value)["plan"] == json.loads(file.read_text())
        print({"before": evenness(done), "after": evenness(after), "plans": done["plans"]["candidates"]})
        assert evenness(done) > rules.UNEVEN and evenness(after) < evenness(done)
        feed.wait_for(10 + crowd.published - 1)
        wait_for(
            lambda: metric(handle, "distribution-bolt", "plan_changing") == {0} == metric(handle, "subscription-bolt", "arriving"), 120, "the end of all moves"
        )
        feed.verify(conf, matches=500, lists=TOPK)
        assert handle.backend.failure is None
