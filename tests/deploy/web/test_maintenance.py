"""The example of maintenance over HTTP: what it decides, and that its requests do what they say."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from dskype.deploy.metrics.ui_server import UiServer, UiSettings
from dskype.deploy.web.extension import make_extension
from dskype.deploy.web.trend import WatchedReports
from dskype.topology.testing import FeederSpout
from tests.topology.ui.simulated_source import SimulatedSource, word_count

from .memory_kafka import MemoryKafka
from .scene import report, run_plan, watched
from .server import TOKEN, OneTopology, get, post, view


@pytest.fixture(scope="module")
def maintain():
    spec = importlib.util.spec_from_file_location("maintain", Path(__file__).parents[3] / "docs" / "examples" / "maintain.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["maintain"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["maintain"]


def component(executors, tasks, capacity):
    return {"executors": executors, "tasks": tasks, "capacity": capacity}


def test_overloaded_components_get_an_executor_and_idle_ones_give_one_up(maintain):
    limits = maintain.Limits(overloaded=0.8, idle=0.1)
    now = {"a": component(1, 4, 0.9), "b": component(2, 2, 0.9), "c": component(3, 4, 0.05), "d": component(1, 4, 0.0), "e": component(2, 4, 0.5)}
    assert set(maintain.rescaled(now, limits).values()) == {("executors", "a", 2), ("executors", "c", 2)}


def test_uneven_tasks_are_relieved_by_a_split_or_a_partition_that_goes_whole(maintain):
    limits = maintain.Limits()
    assert maintain.uneven([0.9, 0.1], limits) and not maintain.uneven([0.5, 0.4], limits) and not maintain.uneven([0.05, 0.0], limits)
    assert not maintain.uneven([], limits) and not maintain.uneven([0.9], limits)
    one = [{"number": 0, "tasks": [0], "load": 5}, {"number": 1, "tasks": [1], "load": 1}]
    assert maintain.move(one, [0.9, 0.1]) == ("split", {"partition": 0, "task": 1})
    several = [*one, {"number": 2, "tasks": [0], "load": 2}, {"number": 3, "tasks": [0], "load": 1}]
    assert maintain.move(several, [0.9, 0.1]) == ("merge", {"one": 1, "other": 2})
    assert maintain.move([{"number": 0, "tasks": [0, 1], "load": 5}], [0.9, 0.1]) is None


def test_it_rebalances_a_topology_over_storms_api(maintain, monkeypatch):
    source, feeder = SimulatedSource(), FeederSpout("word")
    source.cluster.submit_topology("words", {}, word_count(feeder))
    source.cluster.advance_cluster_time(90)
    with UiServer(source, UiSettings(port=0, token=TOKEN)) as server:
        one = maintain.Maintenance(server.url, "words", TOKEN, maintain.Limits(patience=2, wait_secs=0))
        monkeypatch.setattr(one, "_get", lambda path, get=one._get: {"components": []} if "measures" in path else get(path))
        assert one.poll() == []
        assert sorted(one.poll()) == ["count: 2 executors", "split: 1 executors"]  # both are idle
        assert [c["executors"] for c in source.sent] == [{"count": 2}, {"split": 1}]
        assert [one.poll() for _ in range(2)] == [[], []]  # what was done takes effect first
    source.cluster.shutdown()


def test_it_splits_a_partition_of_the_busiest_task_over_dskypes_api(maintain):
    kafka, source = MemoryKafka(), OneTopology()
    topics = kafka.topology()
    conf = {"dskype.distributor": "agrid"}
    run_plan(kafka, conf, 2)
    source.views = [watched(view("dskype"), **conf)]
    reports: WatchedReports = source.views[0].reports
    clock = [0.0]
    with UiServer(source, UiSettings(port=0, token=TOKEN), [make_extension(kafka, source)]) as server:
        before = get(server, "partitions")
        one = maintain.Maintenance(server.url, "dskype", TOKEN, maintain.Limits(patience=1, idle=-1), lambda: clock[0])
        for secs, done in ((0, []), (10, ["split"])):
            clock[0] = secs
            reports.feed(report("subscription-bolt", 1000 * secs, *({"task": t, "busy_ns": int(secs * busy * 1e9)} for t, busy in ((2, 0.2), (3, 0.9)))))
            assert [text.split()[0] for text in one.poll()] == done
        after = get(server, "partitions")
    assert (before["version"], after["version"]) == (1, 2) and len(after["partitions"]) == len(before["partitions"]) + 1
    stored = json.loads(kafka.broker.logs[topics.plans, 0][-1].value)
    assert stored["version"] == 2 and sum(p["tasks"] == [0] for p in after["partitions"]) == sum(p["tasks"] == [0] for p in before["partitions"]) + 1


@pytest.mark.parametrize(
    ("topology", "said"), [("other", "no topology other runs; those that do: dskype"), ("dskype", "/api/dskype/measures?topology=dskype: {")]
)
def test_it_says_what_is_wrong_and_goes_on(maintain, served, monkeypatch, capsys, topology, said):
    polls = []

    def pause(secs):
        polls.append(secs)
        if len(polls) == 3:
            raise KeyboardInterrupt

    monkeypatch.setenv("UI_TOKEN", TOKEN)
    monkeypatch.setattr(sys, "argv", ["maintain.py", served.url, topology])
    monkeypatch.setattr(maintain, "time", SimpleNamespace(sleep=pause))
    with pytest.raises(KeyboardInterrupt):
        maintain.main()
    assert capsys.readouterr().err.count(said) == 3  # the server has no measurements of the topology


def test_it_says_how_it_is_used(maintain, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["maintain.py"])
    with pytest.raises(SystemExit, match="usage: UI_TOKEN"):
        maintain.main()


def test_a_change_of_the_plan_is_refused_without_token_or_for_another_version(kafka, served):
    run_plan(kafka, {"dskype.distributor": "agrid"}, 2)
    change = {"partition": 0, "task": 1, "version": 1}
    assert post(served, "partitions/split", change, token=None)[0] == 401
    for body, why in (
        ({**change, "version": 0}, "another one by now"),
        ({"partition": 0, "task": 1}, "Expected numbers"),
        ({**change, "task": True}, "Expected numbers"),
        ({**change, "task": 9}, "split"),
    ):
        status, answer = post(served, "partitions/split", body)
        assert status == 400 and why in answer["errorMessage"], answer
    status, answer = post(served, "partitions/split", change)
    assert status == 200 and answer["version"] == 2
    number = len(answer["partitions"])
    status, answer = post(served, "partitions/merge", {"one": 0, "other": number - 1, "version": 2})
    assert status == 200 and answer["version"] == 3 and len(answer["partitions"]) == number - 1, answer
