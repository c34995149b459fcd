"""``dskype stats``: what is counted, what is computed from it, and how it survives crashes."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterator
from typing import Any

import pytest

from dskype.bolts.subscription_bolt import SubscriptionBolt
from dskype.deploy.cli import main as cli
from dskype.deploy.metrics import reader
from dskype.deploy.metrics.meter import BATCH_BUCKETS_S, ONE_PLACE, Batches, Meter, Passage, Passages, measure
from dskype.deploy.metrics.prometheus import Collector, Exporter
from dskype.deploy.metrics.tables import as_text
from dskype.distribution import DISTRIBUTORS
from dskype.spouts.topics import Topics
from dskype.topology.core.frames import encode_data, encode_segment, encode_watermark, segment_sizes
from dskype.topology.core.stats import TaskStats
from dskype.topology.errors import NotAliveException, TopologyError
from dskype.topology.planning.plan import metrics_topic
from dskype.topology.runtime.kafka.clients import KafkaSettings
from dskype.topology.simulated.faults import Faults
from tests.deploy.metrics.small_topology import small_topology
from tests.endtoend.harness import BAD, Simulation, random_message
from tests.waiting import wait_for

TASKS = {"subscription-bolt": 3, "message-bolt": 2}


# --- counters ---------------------------------------------------------------------------------------------------------


def test_a_task_tells_at_most_32_codes_apart() -> None:
    stats = TaskStats()
    for i in range(100):
        stats.reject("translate", f"code-{i}")
    assert stats.dead_letters == sum(stats.rejected.values()) == 100
    assert len(stats.rejected) <= 33
    assert stats.rejected["translate/other"] >= 67
    stats = TaskStats()
    stats.reject("translate", "")
    stats.reject("translate", "x" * 1000)
    assert set(stats.rejected) == {"translate/other", "translate/" + "x" * 80}


def test_segment_sizes_are_the_bytes_of_each_segment() -> None:
    parts = [encode_segment("a", 2, [[1, 2], ["x", "y" * 300]], None), encode_watermark(7), encode_segment("b", 1, [[3]], None)]
    assert segment_sizes(encode_data(5, 1 << 40, parts)) == [len(part) for part in parts]
    assert segment_sizes(encode_data(5, 0, parts * 10)) == [len(part) for part in parts * 10]


def test_counters_from_snapshots_of_earlier_versions_begin_at_zero() -> None:
    old = TaskStats().to_dict()
    for name in ("stream_bytes", "stream_frames", "rejected"):
        del old[name]
    stats = TaskStats()
    stats.restore(old)
    stats.reject("decode", "x")
    assert stats.rejected == {"decode/x": 1}
    assert stats.stream_bytes["a/b"] == 0


# --- latency ----------------------------------------------------------------------------------------------------------


def _report(component: str, time_ms: int, **tasks: dict[str, Any]) -> dict[str, Any]:
    return {
        "kind": "stats",
        "topology": "t-1-1",
        "component": component,
        "executor": 0,
        "pid": 1,
        "time_ms": time_ms,
        "tasks": [{"task": int(id.strip("t")), "component": component, **task} for id, task in tasks.items()],
    }


def test_records_have_passed_a_bolt_when_all_of_its_tasks_have_their_watermark() -> None:
    passages = Passages(60_000)
    for task in ("t2", "t3"):
        passages.add_report(_report("bolt", 900, **{task: {"watermark": -1}}))
    passages.add_report(_report("spout", 1000, t1={"pulse": 1, "watermark": 9, "arrivals": [600, 800, 10]}))
    passages.add_report(_report("bolt", 1100, t2={"watermark": 9}))
    assert passages.passed["bolt"] == type(passages.passed["bolt"])()
    passages.add_report(_report("bolt", 1500, t3={"watermark": 12}))
    assert list(passages.passed["bolt"]) == [Passage(1500, 700, 900, 10)]
    assert passages.quantiles("bolt", 0) == (10, [pytest.approx(790, abs=1), pytest.approx(890, abs=1)])
    assert passages.buckets["bolt"][-1] == 10
    assert passages.buckets["bolt"] == sorted(passages.buckets["bolt"])
    assert passages.quantiles("bolt", 1501) == (0, [None, None])


def test_a_bolt_may_have_reported_a_watermark_before_the_spout_does() -> None:
    """Latency is known as soon as both have, and is not longer than until the bolt's report."""
    passages = Passages(60_000)
    passages.add_report(_report("bolt", 900, t2={"watermark": -1}))
    passages.add_report(_report("bolt", 1000, t2={"watermark": 9}))
    passages.add_report(_report("bolt", 1050, t2={"watermark": 9}))
    passages.add_report(_report("spout", 1100, t1={"pulse": 1, "watermark": 9, "arrivals": [600, 800, 10]}))
    assert list(passages.passed["bolt"]) == [Passage(1000, 200, 400, 10)]
    passages.add_report(_report("spout", 1200, t1={"pulse": 1, "watermark": 19, "arrivals": [1150, 1150, 10]}))
    passages.add_report(_report("bolt", 1300, t2={"watermark": 19}))
    assert list(passages.passed["bolt"])[1:] == [Passage(1300, 150, 150, 10)]


def test_records_of_a_batch_are_spread_between_the_first_and_the_last() -> None:
    passage = Passage(0, 100, 300, 1000)
    assert [passage.within(ms) for ms in (99, 100, 200, 299.9, 300)] == [0, 0, 500, 999, 1000]
    assert Passage(0, 100, 100, 3).within(100) == 3


def test_a_batch_that_is_reported_again_counts_once_and_what_came_before_the_reader_not_at_all() -> None:
    passages = Passages(60_000)
    passages.add_report(_report("spout", 1000, t1={"pulse": 1, "watermark": 9, "arrivals": [600, 800, 10]}))
    passages.add_report(_report("bolt", 1100, t2={"watermark": 9}))
    passages.add_report(_report("spout", 1200, t1={"pulse": 1, "watermark": 9, "arrivals": [600, 800, 10]}))
    passages.add_report(_report("spout", 1300, t1={"pulse": 1, "watermark": 19, "arrivals": [900, 900, 10]}))
    passages.add_report(_report("bolt", 1400, t2={"watermark": 19}))
    assert list(passages.passed["bolt"]) == [Passage(1400, 500, 500, 10)]


# --- a whole topology, simulated --------------------------------------------------------------------------------------


class Metered:
    """A simulated DSkype and a meter that reads its metrics topic, as a reader of Kafka would."""

    def __init__(self, **more: Any) -> None:
        self.simulation = Simulation(tasks=TASKS, **more)
        self.meter, self._read, self.reports = Meter(), 0, []

    def read(self) -> None:
        topic = metrics_topic("dskype")
        end = self.simulation.log.end(topic, 0)
        for record in self.simulation.log.read(topic, 0, self._read, end):
            self.meter.feed(record.value)
            self.reports.append(json.loads(record.value))
        self._read = end

    def measure(self, **about: Any) -> dict[str, Any]:
        self.read()
        found = measure(self.meter, {"name": "dskype", "status": "ACTIVE", "conf": self.simulation.conf, **about}, now_ms=self.simulation.time_ms)
        assert json.loads(json.dumps(found)) == found
        return found


def _world(metered: Metered, messages: int = 60) -> None:
    rng = random.Random(3)
    for i in range(12):
        metered.simulation.subscription(f"s{i}", {"type": "topk", "keywords": ["lake"], "k": 2, "alpha": 0.5, "lat": 0, "lon": 0})
    metered.simulation.step()
    for number in range(messages):
        metered.simulation.message(random_message(rng, number))
        metered.simulation.step()
    for bad in BAD:
        metered.simulation.message(bad)
    metered.simulation.drain()


@pytest.fixture(scope="module")
def plain() -> Metered:
    metered = Metered()
    _world(metered)
    return metered


@pytest.mark.long
def test_streams_are_counted_where_they_arrive(plain: Metered) -> None:
    found = plain.measure()
    stats = plain.meter.stats
    edges = {(s["stream"], s["target"]): s for s in found["streams"]}
    assert edges["messages", "distribution-bolt"]["tuples"] == 60
    assert edges["matching", "subscription-bolt"]["tuples"] == 60 * 3 == stats.total("distribution-bolt", "transferred", "matching")
    assert [t["tuples"] for t in edges["matching", "subscription-bolt"]["tasks"]] == [60, 60, 60]
    assert edges["window", "message-bolt"]["tuples"] == 60
    assert edges["placements", "subscription-bolt"]["tuples"] == 12
    assert [s["stream"] for s in found["streams"]][:5] == ["messages", "subscriptions", "matching", "placements", "window"]
    for s in found["streams"]:
        assert 0 < s["frames"] <= s["tuples"]
        assert s["bytes"] > 8 * s["frames"]
        for name in ("tuples", "frames", "bytes"):
            assert s[name] == sum(t[name] for t in s["tasks"])
    for name in ("tuples", "frames", "bytes", "tuples_per_second"):
        assert found["total"][name] == pytest.approx(sum(s[name] for s in found["streams"]))
    for component in ("subscription-bolt", "message-bolt", "distribution-bolt"):
        inside = sum(s["bytes"] for s in found["streams"] if s["target"] == component)
        assert 0.5 * stats.total(component, "in_bytes") < inside <= stats.total(component, "in_bytes")


def test_hashing_sends_every_message_to_every_task_and_keeps_every_subscription_once(plain: Metered) -> None:
    found = plain.measure()
    assert found["messages"]["processed"] == 60
    assert found["communication"]["tuples_per_message"] == 3
    assert found["replication"] == {"placements": 12, "subscriptions": 12, "ratio": 1.0}
    assert found["balance"]["messages"] == 1.0
    lives = [t["subscriptions"] for c in found["components"] if c["component"] == "subscription-bolt" for t in c["tasks"]]
    assert found["balance"]["subscriptions"] == pytest.approx(max(lives) / (12 / 3))
    assert found["balance"]["busy"] >= 1
    assert found["lag"]["in_flight"] == {}
    for component in found["components"]:
        assert component["executed"] == sum(t["executed"] for t in component["tasks"])
        assert component["busy_s"] >= 0
    assert plain.meter.stats.total("message-spout", "busy_ns") > 0


def test_rates_and_latency_are_those_of_the_window(plain: Metered) -> None:
    found = plain.measure()
    assert 1 < found["window_s"] <= 60
    assert found["messages"]["per_second"] == pytest.approx(59 / found["window_s"], rel=0.1)
    order = [row["component"] for row in found["latency"]]
    assert order.index("distribution-bolt") < order.index("message-bolt"), "components stand in the order in which tuples reach them"
    assert order.index("distribution-bolt") < order.index("subscription-bolt")
    latency = {row["component"]: row for row in found["latency"]}
    assert {"distribution-bolt", "subscription-bolt", "message-bolt"} <= latency.keys()
    assert 55 <= latency["subscription-bolt"]["records"] <= 60 + len(BAD)
    assert 0 < latency["subscription-bolt"]["p50_ms"] <= latency["subscription-bolt"]["p99_ms"] <= 2000
    later = measure(plain.meter, {"name": "dskype"}, now_ms=plain.simulation.time_ms + 3_600_000)
    assert (later["messages"]["per_second"], later["latency"], later["balance"]["over"]) == (None, [], "life")  # nothing was heard within the window
    assert later["messages"]["processed"] == 60


def test_dead_letters_are_told_by_code(plain: Metered) -> None:
    letters = plain.measure()["dead_letters"]
    assert sum(row["count"] for row in letters) == len(BAD) == len(plain.simulation.sim.dead_letters())
    assert {row["stage"] for row in letters} == {"translate"}
    assert len({row["code"] for row in letters}) > 2


def test_records_that_no_spout_has_emitted_are_the_lag(plain: Metered) -> None:
    plain.read()
    ends = {("dskype.messages", 0): 60 + len(BAD) + 5, ("dskype.subscriptions", 0): 12, ("other", 0): 9}
    assert measure(plain.meter, {}, ends=ends)["lag"]["records"] == {"dskype.messages": 5, "dskype.subscriptions": 0}


def test_only_one_distributor_never_has_a_subscription_on_several_tasks() -> None:
    assert [name for name, kind in DISTRIBUTORS.items() if not kind.replicates] == [ONE_PLACE]


def test_registered_subscriptions_are_asked_for_where_they_may_be_replicated(plain: Metered) -> None:
    plain.read()
    tasks = plain.meter.stats.tasks
    before = dict(tasks)
    try:
        assert plain.measure(conf={"dskype.distributor": "nobody-knows"})["replication"] == {"placements": 12, "subscriptions": None, "ratio": None}
        for id, task in before.items():
            if task["component"] == "distribution-bolt":
                tasks[id] = {**task, "metrics": {"subscriptions_registered": 8}}
        assert plain.measure()["replication"] == {"placements": 12, "subscriptions": 8, "ratio": 1.5}
    finally:
        tasks.update(before)


@pytest.mark.long
@pytest.mark.parametrize("distributor", ["keyword", "prefix"])
def test_replicas_are_measured_where_subscriptions_may_live_on_several_tasks(distributor: str) -> None:
    metered, rng = Metered(conf={"dskype.distributor": distributor}), random.Random(4)
    words = ["lake", "park", "river", "hill", "old", "harbour"]
    for i in range(20):
        metered.simulation.subscription(f"s{i}", {"type": "topk", "keywords": rng.sample(words, 3), "k": 2, "alpha": 0.2, "lat": 0, "lon": 0})
    metered.simulation.step()
    for number in range(60):
        metered.simulation.message(random_message(rng, number))
        metered.simulation.step()
    metered.simulation.subscription("s0", None)
    metered.simulation.drain()
    found = metered.measure()
    replication = found["replication"]
    assert replication["subscriptions"] == 19
    assert 19 <= replication["placements"] <= 19 * 3
    assert replication["ratio"] == replication["placements"] / 19
    assert 0 < found["communication"]["tuples_per_message"] < 3
    assert found["balance"]["messages"] >= 1
    if distributor == "keyword":
        assert replication["ratio"] > 1


def test_a_table_shows_all_of_it(plain: Metered) -> None:
    from rich.console import Console

    console = Console(width=160, record=True, file=open("/dev/null", "w"))
    console.print(as_text(plain.measure(id="dskype-1-0", uptime_secs=5, driver_alive=False), tasks=True))
    text = console.export_text()
    for shown in (
        "dskype (dskype-1-0) ACTIVE, its process is gone, up 5 s",
        "3.00 tuples per message",
        "1.00: 12 placements of 12 subscriptions",
        "latency to subscription-bolt",
        "matching",
        "dead letters",
        "task ",
    ):
        assert shown in text


def test_another_topology_of_the_same_name_begins_anew() -> None:
    meter = Meter()
    meter.feed(json.dumps(_report("a", 1, t1={"executed": {"x/default": 7}, "sent": {}, "received": {}})).encode())
    for unreadable in (b"\xff no JSON", b"[]", b'{"kind": "stats", "tasks": []}', None):
        meter.feed(unreadable)
    meter.feed(json.dumps({**_report("b", 2, t2={"executed": {"x/default": 1}, "sent": {}, "received": {}}), "topology": "t-2-9"}).encode())
    assert list(meter.stats.tasks) == [2]
    assert meter.edges() == [("x", "default", "b")]


def test_what_has_left_the_window_is_forgotten() -> None:
    meter = Meter(window_s=2)
    for i in range(5000):
        meter.feed(json.dumps(_report("a", i * 100, t1={"executed": {"x/default": i}, "sent": {}, "received": {}, "busy_ns": 0})).encode())
    assert len(meter.history._rows[1]) < 600
    found = measure(meter, {}, now_ms=499_900)
    assert found["streams"][0]["tuples_per_second"] == pytest.approx(10, rel=0.01)


# --- crashes ----------------------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
def test_counters_survive_crashes_and_never_fall_at_the_endpoint(seed: int) -> None:
    calm, wild = Metered(), Metered(seed=seed, faults=Faults.heavy())
    series: list[dict[Any, float]] = []
    collector = Collector(
        lambda: [({"name": "dskype", "id": "dskype-1-0", "status": "ACTIVE", "driver_alive": True, "health": {"state": "running"}, "conf": {}}, wild.meter, {})]
    )
    for metered in (calm, wild):
        rng = random.Random(seed)
        for i in range(8):
            metered.simulation.subscription(f"s{i}", {"type": "topk", "keywords": ["lake", "park"], "k": 2, "alpha": 0.5, "lat": 0, "lon": 0})
        for number in range(30):
            metered.simulation.message(random_message(rng, number))
            metered.simulation.step(max_batches=20)
            metered.read()
            if metered is wild:
                series.append(
                    {(s.name, *sorted(s.labels.items())): s.value for family in collector.collect() if family.type == "counter" for s in family.samples}
                )
        metered.simulation.drain(10)
        metered.read()
    assert sum(wild.simulation.sim.fault_counts.values()) > 20
    for before, after in itertools.pairwise(series):
        assert all(after[key] >= value for key, value in before.items())
    quiet, loud = calm.measure(), wild.measure()
    for name in ("messages", "communication"):
        for key in quiet[name].keys() & {"processed", "tuples"}:
            assert loud[name][key] == quiet[name][key]
    assert loud["replication"] == quiet["replication"]


@pytest.mark.long
def test_counters_that_bolts_register_go_on_after_a_crash() -> None:
    metered = Metered(seed=1, faults=Faults(restarted=0.3, snapshot=0.5))
    _world(metered, 30)
    metered.read()
    assert metered.simulation.sim.fault_counts["restarted"] > 3
    deltas = sum(t["metrics"]["deltas"] for t in metered.meter.tasks("subscription-bolt").values())
    written = metered.simulation.json(Topics.for_topology("dskype").results)
    assert deltas == len([value for _, value, _ in written if value["op"] in ("add", "remove")])


@pytest.mark.long
def test_counters_that_bolts_register_go_on_after_an_exception_in_the_bolt(monkeypatch: pytest.MonkeyPatch) -> None:
    plain, disturbed = Metered(), Metered()
    _world(plain, 30)
    execute, calls = SubscriptionBolt.execute_batch, []

    def breaks(self: Any, batch: Any) -> None:
        calls.append(batch.n)
        execute(self, batch)
        if len(calls) == 40:
            raise ValueError("forty")

    monkeypatch.setattr(SubscriptionBolt, "execute_batch", breaks)
    _world(disturbed, 30)
    disturbed.read(), plain.read()
    assert sum(task["errors"] for task in disturbed.meter.tasks("subscription-bolt").values()) == 1
    for name in ("deltas", "evaluations", "subscriptions"):
        one, other = (sum(t["metrics"][name] for t in m.meter.tasks("subscription-bolt").values()) for m in (plain, disturbed))
        assert one == other, name


# --- micro-batches and checkpoints ------------------------------------------------------------------------------------


def _batch(component: str, time_ms: int, ms: float | None, version: int, executor: int = 0, **more: Any) -> dict[str, Any]:
    return _report(component, time_ms, t1={"version": version, **more}) | {"executor": executor, "batch_ms": ms}


def test_micro_batches_are_counted_once_each_by_what_they_took() -> None:
    batches = Batches(10_000)
    for record in (
        _batch("a", 1000, 1.0, 5),
        _batch("a", 1000, 1.0, 5),
        _batch("a", 1000, 4.0, 9),
        _batch("a", 1200, 250.0, 9),
        _batch("a", 1100, 7.0, 3, executor=1),
        _batch("a", 1000, 99.0, 5),
        _batch("b", 1300, 40_000.0, 1),
        _batch("old", 1300, None, 1),
    ):
        batches.add_report(record)
    assert batches.quantiles("a", 0) == (4, [4.0, 250.0]) and batches.quantiles("a", 1150) == (1, [250.0, 250.0])
    assert batches.quantiles("old", 0) == batches.quantiles("nobody", 0) == (0, [None, None])
    assert dict(zip(BATCH_BUCKETS_S, batches.buckets["a"])) | {"all": batches.buckets["a"][-1]} == {
        0.001: 1,
        0.0025: 1,
        0.005: 2,
        0.01: 3,
        0.025: 3,
        0.05: 3,
        0.1: 3,
        0.25: 4,
        0.5: 4,
        1: 4,
        2.5: 4,
        5: 4,
        10: 4,
        30: 4,
        "all": 4,
    }
    assert batches.buckets["b"] == [0] * len(BATCH_BUCKETS_S) + [1] and batches.sums_ms == {"a": 262.0, "b": 40_000.0}


def test_micro_batches_before_the_reader_began_are_not_in_its_histogram() -> None:
    meter = Meter()
    meter.observe_from(1100)
    for time_ms in (1000, 1100, 1200):
        meter.feed(json.dumps(_batch("a", time_ms, 2.0, time_ms)).encode())
    assert meter.batches.buckets["a"][-1] == 2 and meter.batches.quantiles("a", 0)[0] == 3


def test_the_age_of_a_checkpoint_is_what_a_crash_would_have_read_again() -> None:
    simulation = Simulation({"topology.emulator.snapshot.interval.ms": 1000})
    ages, executor = [], simulation.sim._queries["distribution-bolt"].executors[0]
    for number in range(12):
        simulation.message({"text": "lake", "lat": 0, "lon": 0, "id": number})
        simulation.step(ms=250)
        ages.append(simulation.sim.stats.tasks[executor.tasks[0].id]["checkpoint_age_ms"])
    assert ages == [0, 250, 500, *[250, 500, 750, 1000] * 2, 250]  # taken when a batch comes after a second, of the state before it
    (task,) = executor.tasks
    due = executor.pending_snapshots(1 << 40)
    executor.snapshots_failed(due, "no room")
    assert executor._progress(task)["checkpoint_age_ms"] == ages[-1], "what could not be written is no checkpoint"
    simulation.sim._restart(simulation.sim._queries["distribution-bolt"])
    simulation.message({"text": "lake", "lat": 0, "lon": 0})
    simulation.step(ms=250)
    assert simulation.sim.stats.tasks[task.id]["checkpoint_age_ms"] == ages[-1] + 250, "the clock of a snapshot is read back with it"
    assert "checkpoint_age_ms" not in simulation.sim.stats.tasks[simulation.plan.component_tasks("message-spout")[0]]


def test_components_tell_of_their_batches_and_checkpoints(plain: Metered) -> None:
    for component in plain.measure()["components"]:
        assert component["batches"]["count"] > 10 and 0 < component["batches"]["p50_ms"] <= component["batches"]["p99_ms"]
        assert (component["checkpoint_age_s"] is None) == component["component"].endswith("spout")
    assert plain.measure()["store"] is None


def test_a_store_outside_kafka_is_told_of() -> None:
    from rich.console import Console

    plain = {"emitted": {}, "transferred": {}, "executed": {}, "failed": {}, "sent": {}, "received": {}, "busy_ns": 0}
    meter = Meter()
    meter.feed(
        json.dumps(
            _report(
                "result-bolt",
                1000,
                t1={**plain, "metrics": {"states-waiting": 3, "states-written": 40, "states-stale": 0, "store-failures": 2}},
                t2={**plain, "metrics": {"states-waiting": 1, "states-written": 2, "states-stale": 1, "store-failures": 0}},
            )
        ).encode()
    )
    found = measure(meter, {}, now_ms=2000)
    assert found["store"] == {"waiting": 4, "written": 42, "stale": 1, "failures": 2}
    console = Console(width=160, record=True, file=open("/dev/null", "w"))
    console.print(as_text(found))
    assert "42 lists written, 4 wait, 2 failures" in console.export_text()


def test_counting_streams_costs_little_per_frame() -> None:
    """No bound on time: what is done per frame does not depend on how many tuples it carries."""
    metered = Metered()
    _world(metered, 5)
    task = next(iter(metered.simulation.sim._queries["distribution-bolt"].executors.values())).tasks[0]
    before = dict(task.stats.stream_frames)
    rng = random.Random(0)
    for number in range(300):
        metered.simulation.message(random_message(rng, number))
    metered.simulation.drain(2)
    grown = task.stats.stream_frames["message-spout/messages"] - before["message-spout/messages"]
    assert grown <= 3  # 300 messages, counted with their frames


# --- the verb, on Kafka and Spark -------------------------------------------------------------------------------------


def test_what_is_asked_for_must_run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from dskype.topology.runtime.nimbus import nimbus_topic

    monkeypatch.setattr(nimbus_topic, "observe", lambda kafka: {})
    with pytest.raises(NotAliveException):
        reader.find(None, "dskype")
    with pytest.raises(TopologyError, match="none runs"):
        reader.find(None, None)
    monkeypatch.setattr(nimbus_topic, "observe", lambda kafka: {"a": 1, "b": 2})
    with pytest.raises(TopologyError, match="legal: a, b"):
        reader.find(None, None)
    monkeypatch.delenv("DSKYPE_BOOTSTRAP_SERVERS", raising=False)
    assert cli.main(["stats"]) == 1
    assert "No cluster is named" in capsys.readouterr().err


@pytest.fixture
def running(cluster: Any, name: str, bootstrap_servers: str) -> Iterator[str]:
    """A topology on Spark that has had 200 messages and a bad one."""
    topics, kafka, rng = Topics.for_topology(name), KafkaSettings(bootstrap_servers), random.Random(1)
    conf = {"topology.acker.executors": 0, "dskype.window.messages": 50, "topology.message.timeout.secs": 10}
    with cluster.submit_topology(name, conf, small_topology(name)) as handle:
        producer = kafka.producer()
        for number in range(200):
            producer.send(topics.messages, value=json.dumps(random_message(rng, number)).encode())
            if number == 100:  # the others are measured: a bolt's latency is known from its first watermark on
                producer.flush()
                bolts = [task for component in ("relay", "sink") for task in handle.backend.plan.component_tasks(component)]
                handle.backend.wait_until(lambda stats: all(stats.tasks.get(task, {}).get("watermark") is not None for task in bolts), 60)
        producer.send(topics.messages, value=b"{")
        producer.close()
        tasks = [task for component in ("spout", "relay", "sink") for task in handle.backend.plan.component_tasks(component)]
        handle.backend.wait_until(
            lambda stats: stats.total("sink", "executed", "relay/matching") == 400 and len({stats.tasks[task]["watermark"] for task in tasks}) == 1, 60
        )
        yield name


def test_stats_and_the_endpoint_measure_a_topology_on_spark(running: str, bootstrap_servers: str, capsys: pytest.CaptureFixture[str]) -> None:
    from urllib.request import urlopen

    from prometheus_client.parser import text_string_to_metric_families

    servers = ["--bootstrap-servers", bootstrap_servers]
    capsys.readouterr()
    assert cli.main(["stats", running, "-o", "json", "--window", "3600", *servers]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["topology"], found["status"], found["messages"]["processed"]) == (running, "ACTIVE", 200)
    assert found["communication"]["tuples_per_message"] == 2
    assert found["replication"] == {"placements": 8, "subscriptions": 5, "ratio": 1.6}
    assert found["lag"] == {"records": {f"{running}.messages": 0}, "in_flight": {}}
    assert [row["component"] for row in found["latency"]] == ["relay", "sink"]
    assert all(0 < row["p50_ms"] <= row["p99_ms"] < 60_000 for row in found["latency"])
    assert [(row["stage"], row["count"]) for row in found["dead_letters"]] == [("translate", 1)]
    assert cli.main(["stats", running, "--watch", "--count", "2", "-i", "0.2", *servers]) == 0
    assert capsys.readouterr().out.count("2.00 tuples per message") == 2
    with Exporter(KafkaSettings(bootstrap_servers), names=[running]) as exporter:

        def asked():
            text = urlopen(exporter.url, timeout=60).read().decode()
            samples = {(s.name, *sorted(s.labels.items())): s.value for family in text_string_to_metric_families(text) for s in family.samples}
            return samples if samples.get(("dskype_messages_processed_total", ("topology", running))) == 200 else None

        samples = wait_for(asked, 20, "the count of all messages")
    assert samples["dskype_topology_active", ("topology", running)] == 1
    assert sum(v for key, v in samples.items() if key[0] == "dskype_comm_tuples_total" and ("stream", "matching") in key) == 400


def test_arguments_that_make_no_sense_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["stats", "--window", "0"], ["metrics", "--port", "70000"], ["metrics", "--port", "x"], ["local", "--metrics-port", "-1", "f"]):
        assert cli.main(arguments) == 2
    assert "expected a port from 0 to 65535" in capsys.readouterr().err


def test_the_verbs_explain_themselves(capsys: pytest.CaptureFixture[str]) -> None:
    for verb, options in (("stats", ("--watch", "--window SECS", "-o {text,json}")), ("metrics", ("--port N", "--host ADDRESS", "127.0.0.1"))):
        for arguments in ([verb, "-h"], ["help", verb]):
            assert cli.main(arguments) == 0
            text = capsys.readouterr().out
            for shown in (*options, "--bootstrap-servers", "--config FILE", "TOPOLOGY"):
                assert shown in text
