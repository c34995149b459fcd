"""The Prometheus endpoint: names, types, labels, the table of the docs, the dashboard, and where it listens."""

from __future__ import annotations

import json
import re
import socket
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
import yaml
from kafka import TopicPartition
from kafka.errors import KafkaError
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from dskype.deploy.cli import main as cli
from dskype.deploy.metrics import following, prometheus
from dskype.deploy.metrics import meter as meter_module
from dskype.deploy.metrics.meter import Meter
from dskype.deploy.metrics.prometheus import METRICS, Collector, Exporter, Metric, serve
from dskype.deploy.web.result_rates import DELIVERED
from dskype.topology.errors import TopologyError
from dskype.topology.nimbus.observing import Contact, seen_health
from dskype.topology.planning.plan import metrics_topic
from dskype.topology.runtime.nimbus.liveness import describe_driver
from dskype.topology.runtime.nimbus.nimbus_topic import NIMBUS_TOPIC
from tests.waiting import wait_for

from .prometheus_server import promtool

REPOSITORY = Path(__file__).parents[3]
ALL = [*METRICS, *(Metric(name, "counter", ("topology", "tenant"), help) for name, help in DELIVERED)]
"""With those of ``dskype ui`` and ``dskype webhooks``."""
IDENTIFIERS = {"subscription", "message", "id", "registration", "key", "offset", "host", "pid"}


def _task(component: str, id: int, **more: Any) -> dict[str, Any]:
    return {
        "component": component,
        "task": id,
        "emitted": {},
        "transferred": {},
        "sent": {},
        "received": {},
        "watermark": None,
        "executed": {},
        "failed": {},
        "stream_frames": {},
        "stream_bytes": {},
        "rejected": {},
        "duplicates": 0,
        "errors": 0,
        "busy_ns": 0,
        **more,
    }


def _record(component: str, time_ms: int, *tasks: dict[str, Any], identity: str = "d-1-1") -> bytes:
    return json.dumps(
        {"v": 1, "kind": "stats", "topology": identity, "component": component, "executor": 0, "pid": 1, "time_ms": time_ms, "batch_ms": 30.0, "tasks": tasks}
    ).encode()


def _meter() -> Meter:
    meter = Meter()
    meter.feed(_record("message-spout", 1000, _task("message-spout", 1, pulse=1, watermark=-1, kafka=[["d.messages", 0, 10, 10], ["d.messages", 1, 5, 5]])))
    meter.feed(_record("subscription-bolt", 1000, *(_task("subscription-bolt", id, watermark=-1) for id in (3, 4))))
    meter.feed(
        _record(
            "message-spout",
            1200,
            _task(
                "message-spout",
                1,
                pulse=2,
                watermark=9,
                arrivals=[900, 1100, 10],
                lost={"d.messages/0": 3, "d.messages/1": 4},
                emitted={"messages": 10},
                transferred={"messages": 10},
                rejected={'translate/my "x"\nor y': 2},
                kafka=[["d.messages", 0, 10, 10], ["d.messages", 1, 5, 5]],
            ),
        )
    )
    meter.feed(
        _record(
            "distribution-bolt",
            1300,
            _task(
                "distribution-bolt",
                2,
                executed={"message-spout/messages": 10},
                stream_bytes={"message-spout/messages": 900},
                stream_frames={"message-spout/messages": 1},
                emitted={"matching": 20},
                transferred={"matching": 20},
                sent={"3": 10, "4": 10},
                busy_ns=5_000_000,
                watermark=9,
                checkpoint_age_ms=1500,
                metrics={"tenants": {"acme": {"subscriptions": 3, "registrations": 5, "refused": {"max_subscriptions": 2}}}},
            ),
        )
    )
    for id in (3, 4):
        meter.feed(
            _record(
                "subscription-bolt",
                1400,
                _task(
                    "subscription-bolt",
                    id,
                    watermark=9,
                    received={"2": 10 if id == 3 else 7},
                    executed={"distribution-bolt/matching": 10, "__system/__tick": 4},
                    stream_bytes={"distribution-bolt/matching": 1000},
                    stream_frames={"distribution-bolt/matching": 2},
                    busy_ns=2_000_000_000,
                    metrics={"subscriptions": id, "deltas": 5, "states": 2, "matches": 1, "evaluations": 3, "odd": "text"},
                ),
            )
        )
    meter.feed(
        json.dumps(
            {
                "v": 1,
                "kind": "driver",
                "topology": "d-1-1",
                "time_ms": 1500,
                "state": "running",
                "why": [],
                "restarts": {"message-bolt": 2},
                "problems": {"query": 2},
            }
        ).encode()
    )
    meter.expired = {"d.results": 7}
    return meter


ABOUT = {
    "name": "d",
    "id": "d-1-1",
    "status": "ACTIVE",
    "driver_alive": True,
    "health": {"state": "running"},
    "conf": {"dskype.distributor": "hashing", "dskype.tenants": {"acme": {"max_subscriptions": 3}}},
}
ENDS = {("d.messages", 0): 14, ("d.messages", 1): 6}


def _scrape(meter: Meter, about: dict[str, Any] = ABOUT, collector: Collector | None = None) -> tuple[str, dict[Any, float]]:
    registry = CollectorRegistry()
    registry.register(collector or Collector(lambda: [(about, meter, ENDS)]))
    text = generate_latest(registry).decode()
    return text, {(s.name, *(v for _, v in sorted(s.labels.items()))): s.value for family in text_string_to_metric_families(text) for s in family.samples}


def _sample(text: str, name: str, **labels: str) -> float:
    found = [s.value for family in text_string_to_metric_families(text) for s in family.samples if s.name == name and labels.items() <= s.labels.items()]
    assert len(found) == 1, (name, labels, found)
    return found[0]


def test_every_metric_has_the_type_labels_and_help_of_the_table() -> None:
    text, _ = _scrape(_meter())
    families = {family.name: family for family in text_string_to_metric_families(text)}
    for metric in METRICS:
        family = families[metric.name.removesuffix("_total")]
        assert family.type == {"info": "gauge"}.get(metric.type, metric.type), metric
        assert family.documentation == metric.help
        assert family.samples, f"no sample of {metric.name}: the test's topology should have one"
        for sample in family.samples:
            assert set(sample.labels) - {"le"} == set(metric.labels), metric


def test_names_follow_the_conventions() -> None:
    assert len({m.name for m in ALL}) == len(ALL)
    for m in ALL:
        assert re.fullmatch(r"dskype_[a-z]+(_[a-z]+)*", m.name), m
        assert m.name.endswith("_total") == (m.type == "counter"), m
        assert not re.search(r"_(ms|milliseconds|kb|ns|minutes|percent)(_|$)", m.name), m
        assert not IDENTIFIERS & set(m.labels), m
        assert m.help.endswith((".", "1.", "0.")) and "|" not in m.help, m
        assert m.type == "info" or m.name in ("dskype_brokers_answer", "dskype_reader_refusals_total") or m.labels[0] == "topology", m


def test_the_documentation_has_the_same_table() -> None:
    text = (REPOSITORY / "docs" / "guides" / "metrics.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(dskype_\w+)` \| (\w+) \| ([^|]+) \| (.+) \|$", text, re.MULTILINE)
    assert [Metric(name, kind, () if labels == "-" else tuple(labels.split(", ")), help) for name, kind, labels, help in rows] == ALL


def test_promtool_finds_no_fault_with_metrics_and_rules() -> None:
    text, _ = _scrape(_meter())
    for checked in (promtool("check", "metrics", text=text), promtool("check", "rules", str(REPOSITORY / "deploy" / "dashboards" / "alerts.yml"))):
        assert checked.returncode == 0, checked.stdout + checked.stderr


def _known_names() -> set[str]:
    return {m.name for m in ALL} | {f"{m.name}_{part}" for m in METRICS if m.type == "histogram" for part in ("bucket", "sum", "count")}


@pytest.mark.parametrize("file", ["docs/guides/metrics.md", "deploy/dashboards/dskype.json", "deploy/dashboards/alerts.yml"])
def test_queries_use_metrics_that_exist(file: str) -> None:
    text = (REPOSITORY / file).read_text(encoding="utf-8")
    used = set(re.findall(r"\bdskype_\w+", text))
    assert used
    assert used <= _known_names()


def test_queries_use_labels_that_the_metric_has() -> None:
    labels = {name: set(m.labels) for m in ALL for name in _known_names() if name == m.name or name.startswith(f"{m.name}_")}
    dashboard = json.loads((REPOSITORY / "deploy" / "dashboards" / "dskype.json").read_text(encoding="utf-8"))
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    assert len(queries) > 15
    rules = yaml.safe_load((REPOSITORY / "deploy" / "dashboards" / "alerts.yml").read_text(encoding="utf-8"))
    queries += [rule["expr"] for group in rules["groups"] for rule in group["rules"]]
    for query in queries:
        for name, matchers in re.findall(r"(dskype_\w+)\{([^}]*)\}", query):
            assert set(re.findall(r"(\w+)=", matchers)) <= labels[name], query
        assert query.count("(") == query.count(")")
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])


def test_values_are_those_that_tasks_reported() -> None:
    text, _ = _scrape(_meter())
    assert _sample(text, "dskype_comm_tuples_total", stream="matching", source="distribution-bolt", target="subscription-bolt", task="3") == 10
    assert _sample(text, "dskype_comm_bytes_total", stream="messages") == 900
    assert _sample(text, "dskype_task_busy_seconds_total", task="4") == 2
    assert _sample(text, "dskype_tuples_in_flight", component="subscription-bolt") == 3
    assert _sample(text, "dskype_consumer_lag_records", topic="d.messages") == 5
    assert _sample(text, "dskype_records_rejected_total", stage="translate", code='my "x"\nor y') == 2
    assert _sample(text, "dskype_records_lost_total", component="message-spout") == 7
    assert _sample(text, "dskype_results_emitted_total", kind="deltas") == 10
    assert _sample(text, "dskype_subscriptions") == 7
    assert [_sample(text, f"dskype_tenant_{name}", tenant="acme") for name in ("subscriptions", "quota", "registrations_total", "refused_total")] == [
        3,
        3,
        5,
        2,
    ]
    assert _sample(text, "dskype_tenant_subscriptions", tenant="default") == 0
    assert _sample(text, "dskype_topology_active") == 1
    assert _sample(text, "dskype_build_info") == 1
    assert _sample(text, "dskype_batch_duration_seconds_count", component="subscription-bolt") == 2
    assert _sample(text, "dskype_batch_duration_seconds_bucket", component="subscription-bolt", le="0.025") == 0
    assert _sample(text, "dskype_batch_duration_seconds_bucket", component="subscription-bolt", le="0.05") == 2
    assert _sample(text, "dskype_checkpoint_age_seconds") == 1.5
    assert "__system" not in text and "__tick" not in text
    assert _sample(text, "dskype_end_to_end_latency_seconds_count", component="subscription-bolt") == 10
    assert _sample(text, "dskype_end_to_end_latency_seconds_sum", component="subscription-bolt") == pytest.approx(10 * 0.4)
    assert _sample(text, "dskype_end_to_end_latency_seconds_bucket", component="subscription-bolt", le="0.3") == 0
    assert _sample(text, "dskype_end_to_end_latency_seconds_bucket", component="subscription-bolt", le="0.5") == 10


def test_a_topology_whose_process_is_gone_or_that_is_switched_off_is_not_active() -> None:
    for change in ({"driver_alive": False}, {"status": "INACTIVE"}):
        text, _ = _scrape(_meter(), {**ABOUT, **change})
        assert _sample(text, "dskype_topology_active") == 0


def test_a_topology_is_healthy_only_if_its_driver_has_just_said_so() -> None:
    seen = {"state": "running", "why": [], "restarts": 0}
    away, back = Contact(False, 1, 14.0), Contact(True, 2, 0.1)
    for health, shown in (
        (seen_health(seen, True, None, back), 1),
        (seen_health(seen, None, None, back), 1),
        (seen_health({**seen, "state": "stalled"}, True, None, back), 0),
        (seen_health(seen, False, None, back), 0),
        (seen_health(seen, True, 9.0, back), 0),
        (seen_health(seen, True, None, away), 0),
        (seen_health(None, True, None, back), 0),
    ):
        text, _ = _scrape(_meter(), {**ABOUT, "health": health})
        assert _sample(text, "dskype_topology_healthy") == shown, health


def test_that_the_brokers_do_not_answer_is_a_metric_without_any_topology() -> None:
    for answer in (True, False):
        text, _ = _scrape(_meter(), collector=Collector(list, brokers_answer=lambda answer=answer: answer))
        assert _sample(text, "dskype_brokers_answer") == int(answer)


def test_the_age_of_the_newest_report_is_a_metric(monkeypatch: pytest.MonkeyPatch) -> None:
    newest_ms = max(task["time_ms"] for task in _meter().stats.tasks.values())
    monkeypatch.setattr(meter_module, "_now_ms", lambda: newest_ms + 42_000)
    assert _sample(_scrape(_meter())[0], "dskype_report_age_seconds") == 42


def test_counters_do_not_fall_until_another_topology_takes_the_name() -> None:
    meter = Meter()
    about = dict(ABOUT)
    collector = Collector(lambda: [(about, meter, {})])
    for executed, shown in ((10, 10), (7, 10), (12, 12)):
        meter.feed(_record("b", executed, _task("b", 1, executed={"a/default": executed})))
        assert _sample(_scrape(meter, collector=collector)[0], "dskype_comm_tuples_total") == shown
    about["id"] = "d-2-2"
    assert "dskype_comm_tuples_total{" not in _scrape(meter, collector=collector)[0]  # what was read is the old one's
    meter.feed(_record("b", 20, _task("b", 1, executed={"a/default": 3}), identity="d-2-2"))
    assert _sample(_scrape(meter, collector=collector)[0], "dskype_comm_tuples_total") == 3


def test_subscriptions_are_absent_where_nobody_counts_them() -> None:
    text, _ = _scrape(_meter(), {**ABOUT, "conf": {"dskype.distributor": "of-somebody-else"}})
    assert "dskype_subscriptions{" not in text
    assert _sample(text, "dskype_placements", task="4") == 4


def test_a_plain_topology_has_its_streams_and_nothing_of_dskype() -> None:
    meter = Meter()
    meter.feed(_record("count", 1, _task("count", 2, executed={"split/default": 5})))
    text, _ = _scrape(meter)
    assert _sample(text, "dskype_comm_tuples_total", source="split", target="count") == 5
    assert "dskype_messages_processed_total{" not in text and "dskype_placements{" not in text


class NoBroker:
    """Kafka settings whose clients find nothing."""

    def consumer(self, **_: Any) -> Any:
        return self

    def partitions_for_topic(self, topic: str) -> set[int]:
        return set()

    def close(self) -> None:
        pass


def test_the_endpoint_listens_on_this_machine_alone_unless_told_otherwise(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    with serve(NoBroker(), port=0, say=said.append) as exporter:
        match = re.fullmatch(r"http://127\.0\.0\.1:(\d+)/metrics", exporter.url)
        assert match and int(match[1]) > 0
        assert said == [f"metrics: {exporter.url}"]
        assert exporter._server.address[0] == "127.0.0.1"
        assert _sample(urlopen(exporter.url, timeout=5).read().decode(), "dskype_build_info") == 1
        assert "python_info" not in urlopen(exporter.url, timeout=5).read().decode()
        with pytest.raises(TopologyError, match="0 takes a free port"):
            serve(NoBroker(), port=int(match[1]), say=said.append)
    for everybody in ("0.0.0.0", "::", "", "192.0.2.1", "example.org"):
        with pytest.raises(TopologyError, match="only to this machine.*hint: --allow-remote"):
            serve(NoBroker(), port=0, host=everybody, say=said.append)
    with serve(NoBroker(), port=0, host="0.0.0.0", say=said.append, allow_remote=True):
        assert "warning: everyone who can reach 0.0.0.0 can read them" in said[-1]
    monkeypatch.setenv("DSKYPE_METRICS_TOKEN", "a-token-of-more-than-16")
    with serve(NoBroker(), port=0, host="0.0.0.0", say=said.append, allow_remote=True) as exporter:
        assert said[-1] == "warning: the token and the numbers reach 0.0.0.0 without encryption"
        url = exporter.url.replace("0.0.0.0", "127.0.0.1")
        with pytest.raises(HTTPError, match="401"):
            urlopen(url, timeout=5)
        shown = Request(url, headers={"Authorization": "Bearer a-token-of-more-than-16"})
        assert _sample(urlopen(shown, timeout=5).read().decode(), "dskype_build_info") == 1
    with socket.create_server(("127.0.0.1", int(match[1]))):  # it has let go of the port
        pass


def test_local_serves_while_the_topology_is_shown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "t.yaml").write_text(
        "name: wc\nspouts: [{id: words, className: dskype.TestWordSpout}]\nbolts: [{id: count, className: dskype.TestWordCounter}]\n"
        "streams: [{from: words, to: count, grouping: {type: SHUFFLE}}]\n"
    )
    seen: list[Any] = []

    class FakeCluster:
        environment = type("Environment", (), {"kafka": NoBroker()})()

    def served(kafka: Any, **options: Any) -> Any:
        seen.append(options)
        return Exporter(kafka, names=options["names"], port=options["port"])

    monkeypatch.setattr(prometheus, "serve", served)
    monkeypatch.setattr("dskype.deploy.cli.local_screen.show", lambda cluster, name, ttl_s: seen.append((name, ttl_s)))
    monkeypatch.setattr("dskype.deploy.machine.launch.run_local", lambda flux, where, *, ttl_s, watch, **_: watch(FakeCluster(), flux.name, ttl_s))
    assert cli.main(["local", str(tmp_path / "t.yaml"), "--metrics-port", "0", "--local-ttl", "3"]) == 0
    assert (seen[0]["port"], seen[0]["names"], seen[1]) == (0, ["wc"], ("wc", 3))
    assert cli.main(["local", str(tmp_path / "t.yaml"), "--local-ttl", "3"]) == 0
    assert len(seen) == 3


# --- topologies that come and go --------------------------------------------------------------------------------------


class Log:
    """Kafka settings whose consumers read lists; ``topics``: name -> [(key, value), ...], one partition each."""

    def __init__(self) -> None:
        self.topics: dict[str, list[tuple[bytes | None, bytes | None]]] = {}
        self.open = 0

    def consumer(self, **_: Any) -> LogConsumer:
        self.open += 1
        return LogConsumer(self)

    def say(self, name: str, identity: str, status: str = "ACTIVE") -> None:
        record = {
            "v": 1,
            "state": {"name": name, "id": identity, "submitted_ms": 0, "conf": {}, "components": ["a", "b"]},
            "summary": {"status": status},
            "driver": describe_driver(),
            "heartbeat": time.time_ns(),
        }
        self.topics.setdefault(NIMBUS_TOPIC, []).append((f"topology:{name}".encode(), json.dumps(record).encode()))

    def report(self, name: str, identity: str, executed: int) -> None:
        self.topics.setdefault(metrics_topic(name), []).append(
            (b"b/0", _record("b", executed, _task("b", 1, executed={"a/default": executed}), identity=identity))
        )


class LogConsumer:
    """As much of a consumer as is used."""

    def __init__(self, log: Log) -> None:
        self._log, self._where, self._at = log, None, 0

    def partitions_for_topic(self, topic: str) -> set[int]:
        return {0} if topic in self._log.topics else set()

    def assign(self, partitions: list[TopicPartition]) -> None:
        [self._where] = partitions

    def seek_to_beginning(self, *_: Any) -> None:
        self._at = 0

    def position(self, _: Any) -> int:
        return self._at

    def end_offsets(self, partitions: list[TopicPartition], timeout_ms: int | None = None) -> dict[TopicPartition, int]:
        return {p: len(self._log.topics.get(p.topic, ())) for p in partitions}

    def poll(self, timeout_ms: int = 0) -> dict[TopicPartition, list[Any]]:
        records = self._log.topics.get(self._where.topic, [])[self._at :]
        self._at += len(records)
        return {self._where: [SimpleNamespace(key=key, value=value, timestamp=time.time_ns() // 1_000_000) for key, value in records]} if records else {}

    def close(self) -> None:
        self._log.open -= 1


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_LIST_EVERY_S", "_ENDS_EVERY_S"):
        monkeypatch.setattr(following, name, 0.01)
    monkeypatch.setattr(following, "_STEP_MS", 5)


def _until(exporter: Exporter, condition: Any) -> dict[Any, float]:
    def asked() -> dict[Any, float] | None:
        text = urlopen(exporter.url, timeout=60).read().decode()
        found = {(s.name, s.labels.get("topology")): s.value for family in text_string_to_metric_families(text) for s in family.samples}
        return found if condition(found) else None

    return wait_for(asked, 10, "what the exporter should say")


TUPLES = "dskype_comm_tuples_total"


@pytest.mark.long
def test_topologies_are_followed_from_when_they_come_until_they_go(quick: None) -> None:
    log = Log()
    with Exporter(log) as exporter:
        assert ("dskype_topology_active", "x") not in _until(exporter, lambda found: True)
        for name in ("x", "y"):
            log.say(name, f"{name}-1-1")
            log.report(name, f"{name}-1-1", 5)
        found = _until(exporter, lambda found: (TUPLES, "x") in found and (TUPLES, "y") in found)
        assert found[TUPLES, "x"] == found[TUPLES, "y"] == 5
        log.say("x", "x-1-1", "INACTIVE")
        assert _until(exporter, lambda found: found["dskype_topology_active", "x"] == 0)["dskype_topology_active", "x"] == 0
        del log.topics[metrics_topic("x")]  # submitted again: its topic is made again
        log.report("x", "x-2-9", 2)
        log.say("x", "x-2-9")
        assert _until(exporter, lambda found: found.get((TUPLES, "x")) == 2)[TUPLES, "x"] == 2
        log.topics[NIMBUS_TOPIC].append((b"topology:y", None))
        found = _until(exporter, lambda found: (TUPLES, "y") not in found)
        assert {name for _, name in found if name is not None} == {"x"}
    assert log.open == 0


def test_only_the_topologies_that_are_asked_for_are_followed(quick: None) -> None:
    log = Log()
    for name in ("x", "y"):
        log.say(name, f"{name}-1-1")
        log.report(name, f"{name}-1-1", 5)
    with Exporter(log, names=["y"]) as exporter:
        found = _until(exporter, lambda found: (TUPLES, "y") in found)
    assert {name for _, name in found if name is not None} == {"y"}


def test_every_record_of_a_topology_from_then_on_is_told_with_its_time(quick: None) -> None:
    log, told = Log(), []
    log.say("x", "x-1-1")
    log.say("x", "x-1-1", "INACTIVE")
    followed = following.Following(log, lambda record: Meter(), tell=lambda meter, record, time_ms: told.append((record["summary"]["status"], time_ms)))
    followed.start()
    try:
        for statuses in (["INACTIVE"], ["INACTIVE", "ACTIVE"]):
            wait_for(lambda statuses=statuses: [status for status, _ in told] == statuses, 10, lambda: f"{told}")
            log.say("x", "x-1-1")
    finally:
        followed.close()
    assert all(abs(time_ms / 1000 - time.time()) < 60 for _, time_ms in told)


@pytest.mark.long
def test_a_broker_that_is_away_for_a_while_is_tried_again(quick: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    log, failures = Log(), [KafkaError("away"), KafkaError("away")]
    log.say("x", "x-1-1")
    log.report("x", "x-1-1", 5)
    poll = LogConsumer.poll

    def failing(self: LogConsumer, timeout_ms: int = 0) -> Any:
        if failures:
            raise failures.pop()
        return poll(self, timeout_ms)

    monkeypatch.setattr(LogConsumer, "poll", failing)
    with Exporter(log) as exporter:
        assert _until(exporter, lambda found: (TUPLES, "x") in found)[TUPLES, "x"] == 5
    assert caplog.text.count("trying again") == 2


def test_prometheus_itself_asks_for_open_metrics_and_gets_them(quick: None) -> None:
    from prometheus_client.openmetrics.exposition import generate_latest as open_metrics
    from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_open_metrics

    registry = CollectorRegistry()
    registry.register(Collector(lambda: [(ABOUT, _meter(), ENDS)]))
    families = {family.name: family for family in parse_open_metrics(open_metrics(registry).decode())}
    assert {m.name.removesuffix("_total").removesuffix("_info"): m.type for m in METRICS} == {name: family.type for name, family in families.items()}
    with Exporter(NoBroker()) as exporter:
        asked = Request(exporter.url, headers={"Accept": "application/openmetrics-text;version=1.0.0,text/plain;q=0.5"})
        assert urlopen(asked, timeout=5).headers["Content-Type"].startswith("application/openmetrics-text")
