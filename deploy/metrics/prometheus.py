"""Serve measurements of running topologies to Prometheus: ``dskype metrics``, and ``dskype local --metrics-port``.

The endpoint reads the metrics topics, as ``dskype stats`` does; no topology waits for it. Labels are names of topologies, components, streams and
topics, numbers of tasks, and kinds of errors, never ids of subscriptions or messages. Ratios (communication per message, replication, balance) are
not exported: queries compute them (docs/guides/metrics.md).

Counters cover the topology's whole life, through crashes and resumes of its tasks. A counter that a crash sets back (processor time) is
held at its highest value.
"""

from __future__ import annotations

import math
import platform
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, InfoMetricFamily
from prometheus_client.utils import floatToGoString

from dskype.deploy.machine.addresses import is_loopback, own_names, url_host
from dskype.deploy.machine.versions import own_version
from dskype.deploy.metrics.following import Following
from dskype.deploy.metrics.meter import (
    BATCH_BUCKETS_S,
    BUCKETS_S,
    Meter,
    checkpoint_age_ms,
    consumer_lag,
    in_flight,
    placements,
    registered_subscriptions,
    rejected,
    report_age_s,
    tenants,
)
from dskype.deploy.metrics.reader import describe
from dskype.deploy.metrics.scrape_server import TOKEN, ScrapeServer, cannot_be_served, token_given
from dskype.topology.errors import TopologyError
from dskype.topology.runtime.driver.reports import PARTS
from dskype.topology.ui.budget import Budget, Usage
from dskype.topology.ui.reader_metrics import REFUSALS

__all__ = ["METRICS", "Collector", "Exporter", "Metric", "serve"]


class Metric(NamedTuple):
    """One metric: its name as scraped, its type, its labels, and its help text."""

    name: str
    type: str
    labels: tuple[str, ...]
    help: str


_FRESH_S = 1.0
_T = "topology"
_EDGE = (_T, "source", "stream", "target", "task")

METRICS = tuple(
    Metric(*row)
    for row in (
        ("dskype_build_info", "info", ("version", "python"), "Version of the process that serves these numbers; always 1."),
        ("dskype_topology_active", "gauge", (_T,), "1 while the topology is active and its process is there, else 0."),
        (
            "dskype_topology_healthy",
            "gauge",
            (_T,),
            "1 while the topology starts or runs, 0 while it waits for its brokers, is stalled or silent, has failed, or nothing is known of it because the "
            "brokers do not answer; `dskype list` says why.",
        ),
        ("dskype_brokers_answer", "gauge", (), "1 while the brokers answer the process that serves these numbers, else 0: then all others are as they were."),
        (REFUSALS[0], "counter", ("limit",), REFUSALS[1]),
        ("dskype_report_age_seconds", "gauge", (_T,), "How long ago the newest report of a task was made, which is what all numbers of the topology are from."),
        (
            "dskype_query_restarts_total",
            "counter",
            (_T, "component"),
            "Times that the query of a component failed and was started again, by the driver that runs now.",
        ),
        (
            "dskype_driver_problems_total",
            "counter",
            (_T, "part"),
            "Errors that the driver met in its clock, its watch, its janitor, its commits, a query, or that ended the topology, by the driver that runs now.",
        ),
        ("dskype_comm_tuples_total", "counter", _EDGE, "Tuples of a stream that a task has received."),
        ("dskype_comm_frames_total", "counter", _EDGE, "Frames (Kafka records) that brought tuples of a stream to a task, repetitions included."),
        ("dskype_comm_bytes_total", "counter", _EDGE, "Bytes of these frames that belong to the stream."),
        ("dskype_tuples_emitted_total", "counter", (_T, "component", "stream"), "Tuples that were emitted, before they were sent to one task, many or none."),
        ("dskype_tuples_sent_total", "counter", (_T, "component", "stream"), "Tuples that were sent: one per task that gets it."),
        ("dskype_tuples_failed_total", "counter", (_T, "component"), "Tuples that bolts failed, and trees of spouts that failed or timed out."),
        ("dskype_tuples_in_flight", "gauge", (_T, "component"), "Tuples that were sent to the component and that it has not received."),
        ("dskype_duplicate_tuples_total", "counter", (_T, "component"), "Tuples that came again after a retry and were dropped."),
        ("dskype_task_busy_seconds_total", "counter", (_T, "component", "task"), "Time that the task spent in its component's code."),
        (
            "dskype_batch_duration_seconds",
            "histogram",
            (_T, "component"),
            "Time that a micro-batch took in an executor of the component, without Spark; from the start of this endpoint on.",
        ),
        (
            "dskype_checkpoint_age_seconds",
            "gauge",
            (_T, "component"),
            "How much time of its inbox a bolt would read again after a crash: from its newest snapshot to its last micro-batch, of the task that lags most.",
        ),
        (
            "dskype_task_watermark",
            "gauge",
            (_T, "component", "task"),
            "Position up to which the task has seen everything: a message number, or ms since the epoch.",
        ),
        ("dskype_task_errors_total", "counter", (_T, "component"), "Errors that tasks reported."),
        ("dskype_dead_letters_total", "counter", (_T, "component"), "Dead letters of a component, from 0 on."),
        ("dskype_records_rejected_total", "counter", (_T, "component", "stage", "code"), "Dead letters by kind; a kind appears with its first dead letter."),
        (
            "dskype_records_lost_total",
            "counter",
            (_T, "component"),
            "Records of input topics that were gone before a spout had emitted them, with topology.emulator.on.data.loss: skip.",
        ),
        (
            "dskype_records_expired_total",
            "counter",
            (_T, "topic"),
            "Records that Kafka has dropped from a topic that the topology writes, by age or size (results, matches, registrations, sequence, dead letters).",
        ),
        (
            "dskype_consumer_lag_records",
            "gauge",
            (_T, "topic"),
            "Records of an input topic that no spout has emitted yet; 0 where only markers of transactions are left.",
        ),
        (
            "dskype_end_to_end_latency_seconds",
            "histogram",
            (_T, "component"),
            "Time from a record's arrival in Kafka until all tasks of the component had passed it; from the start of this endpoint on.",
        ),
        ("dskype_messages_processed_total", "counter", (_T,), "Messages that were distributed to subscriptions."),
        (
            "dskype_results_emitted_total",
            "counter",
            (_T, "kind"),
            "Results of subscription bolts by kind: deltas and whole lists (states) of top-k, matches of boolean subscriptions; before replicas are merged.",
        ),
        ("dskype_evaluations_total", "counter", (_T,), "Lists that were looked up again in the window of messages."),
        ("dskype_subscriptions", "gauge", (_T,), "Subscriptions that are registered; absent where they are replicated and not counted."),
        ("dskype_placements", "gauge", (_T, "task"), "Subscriptions that live on a task of the subscription bolt."),
        ("dskype_tenant_subscriptions", "gauge", (_T, "tenant"), "Subscriptions of a tenant of dskype.tenants that live."),
        ("dskype_tenant_registrations_total", "counter", (_T, "tenant"), "Registrations of a tenant that were taken."),
        ("dskype_tenant_refused_total", "counter", (_T, "tenant", "quota"), "Registrations of a tenant that were refused beyond a quota."),
        ("dskype_tenant_quota", "gauge", (_T, "tenant", "quota"), "What a quota of a tenant allows; absent where it has no bound."),
        ("dskype_component_metric", "gauge", (_T, "component", "task", "name"), "Metrics that components register themselves, by name."),
    )
)
"""Every metric that is served. docs/guides/metrics.md has the same table."""

_FAMILIES: dict[str, Any] = {"counter": CounterMetricFamily, "gauge": GaugeMetricFamily, "histogram": HistogramMetricFamily, "info": InfoMetricFamily}
_RESULTS = ("deltas", "states", "matches")


class _Families:
    """The families of one scrape.

    :param highest: the highest value of each counter so far, by the topology's id, the metric and its labels.
    """

    def __init__(self, highest: dict[tuple[Any, ...], float]) -> None:
        self._highest = highest
        self._families = {m.name: _FAMILIES[m.type](m.name.removesuffix("_info"), m.help, labels=m.labels if m.type != "info" else ()) for m in METRICS}
        self._counters = {m.name for m in METRICS if m.type == "counter"}
        self._added: set[tuple[Any, ...]] = set()

    def add(self, name: str, labels: tuple[Any, ...], value: float, identity: str | None = None) -> None:
        """Add a sample.

        :param identity: the topology's id; another topology's counters start over.
        """
        texts = [str(label) for label in labels]
        if name in self._counters:
            key = (identity, name, *texts)
            value = self._highest[key] = max(value, self._highest.get(key, 0))
            self._added.add(key)
        self._families[name].add_metric(texts, value)

    def add_held(self) -> None:
        """Add counters of earlier scrapes that are missing in this one: a restored task has not counted them again yet."""
        for key in self._highest.keys() - self._added:
            self._families[key[1]].add_metric(list(key[2:]), self._highest[key])

    def __iter__(self) -> Iterator[Any]:
        return iter(self._families.values())

    def __getitem__(self, name: str) -> Any:
        return self._families[name]


class Collector:
    """Turns the measurements of topologies into metric families for prometheus_client.

    :param topologies: returns (about, meter, next offsets of input topics) of each known topology.
    :param lock: held during a scrape, so that no meter changes meanwhile.
    :param brokers_answer: whether the brokers have just answered.
    :param usage: what the readers of the server that serves these numbers use.
    """

    def __init__(
        self,
        topologies: Callable[[], list[tuple[Mapping[str, Any], Meter, Mapping[tuple[str, int], int]]]],
        lock: Any = None,
        brokers_answer: Callable[[], bool] = lambda: True,
        usage: Usage | None = None,
    ) -> None:
        self._topologies, self._brokers_answer, self._usage = topologies, brokers_answer, usage or Usage()
        self._highest: dict[tuple[Any, ...], float] = {}
        self._lock = lock or threading.Lock()

    def describe(self) -> list[Any]:
        """Return nothing: the families are known only at the first scrape."""
        return []

    def collect(self) -> list[Any]:
        """Return all families."""
        with self._lock:
            found = self._topologies()
            alive = {about["id"] for about, _, _ in found}
            self._highest = {key: value for key, value in self._highest.items() if key[0] in alive}
            families = _Families(self._highest)
            families["dskype_build_info"].add_metric([], {"version": own_version(), "python": platform.python_version()})
            families["dskype_brokers_answer"].add_metric([], int(self._brokers_answer()))
            for limit, number in self._usage.refusals().items():
                families[REFUSALS[0]].add_metric([limit], number)
            for about, meter, ends in found:
                _add_topology(families, about, meter, ends)
            families.add_held()
            return list(families)


def _add_topology(families: _Families, about: Mapping[str, Any], meter: Meter, ends: Mapping[tuple[str, int], int]) -> None:
    name, identity = about["name"], about["id"]
    families.add("dskype_topology_active", (name,), int(about["status"] == "ACTIVE" and about["driver_alive"] is not False))
    families.add("dskype_topology_healthy", (name,), int(about["health"]["state"] in ("starting", "running")))
    if meter.stats.topology_id not in (None, identity):
        return  # the reports are of an earlier topology of that name

    def count(metric: str, value: float, *labels: Any) -> None:
        families.add(metric, (name, *labels), value, identity)

    if (age_s := report_age_s(meter)) is not None:
        count("dskype_report_age_seconds", age_s)
    # From 0 on: where a counter begins with 1, Prometheus sees no increase.
    for component, n in (dict.fromkeys(meter.components, 0) | (meter.stats.driver.get("restarts") or {})).items():
        count("dskype_query_restarts_total", n, component)
    for part, n in (dict.fromkeys(PARTS, 0) | (meter.stats.driver.get("problems") or {})).items():
        count("dskype_driver_problems_total", n, part)
    for source, stream, target in meter.edges():
        key = f"{source}/{stream}"
        for task, report in meter.tasks(target).items():
            count("dskype_comm_tuples_total", report["executed"].get(key, 0), source, stream, target, task)
            count("dskype_comm_frames_total", report.get("stream_frames", {}).get(key, 0), source, stream, target, task)
            count("dskype_comm_bytes_total", report.get("stream_bytes", {}).get(key, 0), source, stream, target, task)
    waiting = in_flight(meter)
    for component in meter.components:
        _add_component(count, meter, component)
        count("dskype_tuples_in_flight", waiting[component], component)
    for (component, stage, code), n in rejected(meter).items():
        count("dskype_records_rejected_total", n, component, stage, code)
    for topic, n in meter.expired.items():
        count("dskype_records_expired_total", n, topic)
    for topic, n in consumer_lag(meter, ends).items():
        count("dskype_consumer_lag_records", n, topic)
    for metric, bounds_s, observed in (
        ("dskype_end_to_end_latency_seconds", BUCKETS_S, meter.passages),
        ("dskype_batch_duration_seconds", BATCH_BUCKETS_S, meter.batches),
    ):
        bounds = [floatToGoString(bound) for bound in (*bounds_s, float("inf"))]
        for component, buckets in sorted(observed.buckets.items()):
            if not component.startswith("__"):
                families[metric].add_metric([name, component], list(zip(bounds, buckets)), observed.sums_ms.get(component, 0) / 1000)
    _add_dskype(count, about, meter)
    _add_tenants(count, about, meter)


def _add_component(count: Callable[..., None], meter: Meter, component: str) -> None:
    stats, tasks = meter.stats, meter.tasks(component)
    if any("kafka" in task for task in tasks.values()):
        count("dskype_records_lost_total", stats.total(component, "lost"), component)
    for counter, metric in (("emitted", "dskype_tuples_emitted_total"), ("transferred", "dskype_tuples_sent_total")):
        for stream in sorted({s for task in tasks.values() for s in task.get(counter, ()) if not s.startswith("__")}):
            count(metric, stats.total(component, counter, stream), component, stream)
    for counter, metric in (
        ("failed", "dskype_tuples_failed_total"),
        ("duplicates", "dskype_duplicate_tuples_total"),
        ("errors", "dskype_task_errors_total"),
        ("dead_letters", "dskype_dead_letters_total"),
    ):
        count(metric, stats.total(component, counter), component)
    age_ms = checkpoint_age_ms(meter, component)
    if age_ms is not None:
        count("dskype_checkpoint_age_seconds", age_ms / 1000, component)
    for id, task in tasks.items():
        count("dskype_task_busy_seconds_total", task.get("busy_ns", 0) / 1e9, component, id)
        if task.get("watermark") is not None:
            count("dskype_task_watermark", task["watermark"], component, id)
        for metric, value in (task.get("metrics") or {}).items():
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                count("dskype_component_metric", value, component, id, metric)


def _add_dskype(count: Callable[..., None], about: Mapping[str, Any], meter: Meter) -> None:
    roles = meter.distribution()
    if roles is None:
        return
    source, target = roles
    tasks = meter.tasks(target)
    count(
        "dskype_messages_processed_total", sum(n for task in meter.tasks(source).values() for key, n in task["executed"].items() if key.endswith("/messages"))
    )
    metrics = [task.get("metrics") or {} for task in tasks.values()]
    for kind in _RESULTS:
        count("dskype_results_emitted_total", sum(m.get(kind, 0) for m in metrics), kind)
    count("dskype_evaluations_total", sum(m.get("evaluations", 0) for m in metrics))
    for id, task in tasks.items():
        count("dskype_placements", (task.get("metrics") or {}).get("subscriptions", 0), id)
    placed = placements(meter, target)
    registered = registered_subscriptions(meter, about.get("conf") or {})
    if registered is not None and placed >= 0:
        count("dskype_subscriptions", registered)


def _add_tenants(count: Callable[..., None], about: Mapping[str, Any], meter: Meter) -> None:
    for tenant, row in tenants(meter, about.get("conf") or {}).items():
        count("dskype_tenant_subscriptions", row["subscriptions"], tenant)
        count("dskype_tenant_registrations_total", row["registrations"], tenant)
        for quota, most in row["quotas"].items():
            if most is not None:
                count("dskype_tenant_quota", most, tenant, quota)
                if quota != "max_results_per_s":  # what is beyond it waits
                    count("dskype_tenant_refused_total", row["refused"][quota], tenant, quota)


# --- serving ----------------------------------------------------------------------------------------------------------


class _Shared:
    """A collector whose families several scrapes share: however often they are asked for, they are made once a second."""

    def __init__(self, collector: Collector) -> None:
        self._collector, self._lock = collector, threading.Lock()
        self._found: list[Any] = []
        self._found_s = -math.inf

    def describe(self) -> list[Any]:
        """Return nothing; see :meth:`Collector.describe`."""
        return []

    def collect(self) -> list[Any]:
        """Return all families."""
        with self._lock:
            if time.monotonic() - self._found_s > _FRESH_S:
                self._found, self._found_s = self._collector.collect(), time.monotonic()
            return self._found


class Exporter:
    """Follows the metrics of topologies in a thread, and serves them to Prometheus.

    :param kafka: how to reach the brokers.
    :param names: only these topologies; None: all, including those that start later.
    :param port: 0: a free one.
    :param host: an address of this machine. Other machines can connect unless it is a loopback address.
    :param allow_hosts: further names by which requests may name the server; on all addresses it goes by any name without this.
    :param budget: what readers may use; default: :meth:`~dskype.topology.ui.budget.Budget.given`.
    :param token: what every request has to show; None: nothing.
    :ivar url: the address of the metrics.
    :ivar usage: what readers use.
    :raises OSError: the port is taken.
    """

    def __init__(
        self,
        kafka: Any,
        *,
        names: list[str] | None = None,
        port: int = 0,
        host: str = "127.0.0.1",
        allow_hosts: Sequence[str] = (),
        budget: Budget | None = None,
        token: str | None = None,
    ) -> None:
        self._following: Following[Meter] = Following(kafka, _new_meter(time.time_ns() // 1_000_000), names=names)
        registry = CollectorRegistry(auto_describe=False)
        self.usage = Usage(budget or Budget.given())
        registry.register(_Shared(Collector(self._known, self._following.lock, lambda: self._following.contact().answer is True, self.usage)))
        self._server = ScrapeServer(make_wsgi_app(registry), (host, port), own_names(host, allow_hosts), self.usage, token)
        self.url = f"http://{url_host(host)}:{self._server.address[1]}/metrics"
        self._following.start()

    def _known(self) -> list[tuple[Mapping[str, Any], Meter, Mapping[tuple[str, int], int]]]:
        contact = self._following.contact()
        # How far the topics have grown meanwhile is not known while the brokers do not answer.
        return [(describe(f.record, f.alive, f.silent_s, contact), f.sink, f.ends if contact.answer else {}) for f in self._following.known()]

    def __enter__(self) -> Exporter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop serving and reading."""
        self._server.close()
        self._following.close()


def _new_meter(since_ms: int) -> Callable[[Mapping[str, Any]], Meter]:
    """Return what makes a meter whose histograms count from a time on."""

    def make(record: Mapping[str, Any]) -> Meter:
        meter = Meter()
        meter.observe_from(since_ms)
        return meter

    return make


def serve(kafka: Any, *, port: int, host: str = "127.0.0.1", say: Callable[[str], None], allow_remote: bool = False, **more: Any) -> Exporter:
    """Start serving, and print the address.

    :param allow_remote: allow an address that other machines can reach.
    :param more: see :class:`Exporter`.
    :raises TopologyError: the port is taken, the address is not one of this machine, or other machines can reach it.
    """
    if not is_loopback(host) and not allow_remote:
        raise TopologyError(
            "The metrics are served without encryption, so only to this machine.",
            given=host,
            legal="127.0.0.1, ::1, localhost",
            hint=f"--allow-remote serves everyone who can reach that address, or with ${TOKEN} everyone who has the token",
        )
    token = token_given()
    try:
        exporter = Exporter(kafka, port=port, host=host, token=token, **more)
    except OSError as error:
        raise cannot_be_served(error, host, port) from None
    say(f"metrics: {exporter.url}")
    if not is_loopback(host):
        open_to_all = f"everyone who can reach {host} can read them: there is no password"
        say("warning: " + (open_to_all if token is None else f"the token and the numbers reach {host} without encryption"))
    return exporter
