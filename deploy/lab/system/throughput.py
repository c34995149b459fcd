"""Sustained throughput and latency of DSkype by the number of subscriptions, and where the time goes.

For each number of subscriptions, on Spark and Kafka on this machine, with the topology of ``deploy/topologies/dskype.yaml``:

1. The window is filled with messages (places of the world). Subscriptions are registered, drawn as in the Skype paper: 1 to 5 keywords of a
   random message, its location, alpha ~ U(0, 1). Each is evaluated over the full window.
2. *Throughput*: Kafka always has more messages than can be applied. What counts is how many the slowest subscription task has applied, by its
   watermark. The rate is the median of windows of some seconds, after a warm-up.
3. *Latency*: messages come at half that rate, or at a given one, however fast they are processed. A message's latency is the time from its
   arrival in Kafka to that of the first delta that it caused, or of the first list with it, both by the broker's clock.

Processor time, counters and memory are those of the throughput phase.

With ``--boolean`` the subscriptions are boolean: squares of 1 to 50 km around places, with 1 to 5 of their words (PS2Stream, Q1). The window is not filled,
as they do not look at it, and latency is the time to the first match.

With ``--move`` a share of the subscriptions moves each second, in both phases, as records with ``"update": true``.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from statistics import median
from typing import Any

from kafka import TopicPartition

from dskype.deploy.cli.arguments import UsageError, target
from dskype.deploy.client.sequence import sequence_numbers
from dskype.deploy.client.topics import ensure_topics
from dskype.deploy.lab.system import throughput_report
from dskype.deploy.lab.system.feeder import Feeder
from dskype.deploy.lab.system.latencies import Latencies, Recorder
from dskype.deploy.lab.system.throughput_arguments import add_arguments, arguments_for, boolean_shape, build_vocabulary, configuration, definition, settings
from dskype.deploy.lab.system.usage import Meter
from dskype.deploy.machine.registry import TOPOLOGIES, registry
from dskype.deploy.machine.signals import end_on_sigterm
from dskype.deploy.machine.terminal import say
from dskype.deploy.verification import Inputs, verify
from dskype.spouts.settings import Settings
from dskype.spouts.topics import Topics, topic_config
from dskype.topology.core.frames import DataFrame, decode_frame, encode_segment
from dskype.topology.core.values import FrameError
from dskype.topology.errors import TopologyError, explain
from dskype.topology.flux import load
from dskype.topology.local import LocalCluster
from dskype.topology.planning.plan import inbox_topic
from dskype.topology.runtime.driver.resume import SNAPSHOTS
from dskype.topology.runtime.kafka.topic_admin import TopicAdmin
from dskype.topology.tuples import InRecord

__all__ = [
    "Run",
    "add_arguments",
    "arguments_for",
    "build_vocabulary",
    "configuration",
    "definition",
    "fewer_matches",
    "finish",
    "measure",
    "problems",
    "run",
    "segment_bytes",
    "settings",
]

_TOPOLOGY = TOPOLOGIES / "dskype.yaml"
_SPOUT, _DISTRIBUTION_BOLT, _SUBSCRIPTION_BOLT = "message-spout", "distribution-bolt", "subscription-bolt"
_STEP_S = 0.25
_LEAST_BACKLOG, _LEAST_BACKLOG_S = 10_000, 4
"""More messages are written when fewer than this wait, or when they last for fewer seconds than this."""
_FASTER = 1.4
"""The backlog is sized for a rate this many times that of the warm-up, so that hardly any messages must be written during the measurement."""
_LARGEST_BATCH = 25_000
_FRAMES = 400
"""How many records of each inbox partition are decoded to measure the sizes of streams."""
_READ_AT_MOST = 3_000_000
"""How many deltas are read for latencies."""

_WARM_UP_S = 5.0
"""Warm-up before latency is measured, at the same rate."""
_LISTS_AT_MOST = 600_000
"""How many lists are read for latencies."""
_READING_S = 15
"""Added to the delay of compaction, so that lists are read before they are compacted."""


# --- one run ----------------------------------------------------------------------------------------------------------


class Run:
    """The measurement of one number of subscriptions, on its own topology.

    :param cluster: a LocalCluster.
    :param n: how many subscriptions.
    :param conf: configuration that overrides the file's.
    :cvar stream: on which messages leave the spout.
    """

    stream = "messages"

    def __init__(self, cluster: Any, args: argparse.Namespace, n: int, conf: dict[str, Any]) -> None:
        self.cluster, self.args, self.n = cluster, args, n
        self.kafka = cluster.environment.kafka
        self.name = f"throughput-{n}"
        self.topics = Topics.for_topology(self.name)
        self.flux = load(definition(_TOPOLOGY.read_text(), self.name, dict(args.tasks)), registry=registry(), config=conf)
        self.result: dict[str, Any] = {"subscriptions": n}
        self._topic_config = topic_config(Settings.from_conf(self.flux.config))

    def measure(self) -> dict[str, Any]:
        """Run all phases, and return the measures."""
        args, result = self.args, self.result
        result["load_average"] = [os.getloadavg()[0]]
        made = self._make_topics()
        try:
            topics = self.topics.messages, self.topics.subscriptions
            with (
                self._feeder(topics) as self.feeder,
                self.cluster.submit_topology(self.name, self.flux.config, self.flux.topology) as self.handle,
                closing(Recorder(self.kafka, self.name)) as self._recorder,
            ):
                self.history = self._recorder.history
                self.tasks = len(self.handle.backend.plan.component_tasks(_SUBSCRIPTION_BOLT))
                result["input"] = self.feeder.ready()
                self._prepare()
                if args.move:
                    self.feeder.move(args.move * self.n)
                self._throughput()
                if args.latency_seconds and result["messages_per_s"]:
                    self._latency()
                if args.move:
                    self._wait_moved(self.feeder.move(0))
                if args.verify:
                    self._verify()
                result["dead_letters"] = sum(self.history.total(c, "dead_letters") for c in self.handle.backend.plan.component_ids)
                result["errors"] = [e["error"] for e in self.history.errors]
                result["restarts"] = self.handle.backend.health()["restarts"]
        finally:
            if self.cluster.environment.broker is None:  # an embedded broker is removed with its data
                self._delete(made)
        result["load_average"].append(os.getloadavg()[0])
        return result

    def _feeder(self, topics: tuple[str, str]) -> Feeder:
        return Feeder(self.kafka, topics, messages=self.args.messages, places=self.args.places, seed=self.args.seed)

    def _make_topics(self) -> list[str]:
        """Create the topics. Results get the broker's time, as messages do, so that latencies are by one clock.

        Lists are compacted as usual, but later: the first list with a message must still exist when it is read. If the warm-up is longer than
        that delay, throughput is measured with compaction, too.
        """
        with closing(TopicAdmin(self.kafka)) as admin:
            if existing := admin.existing(self.topics):
                raise TopologyError(
                    explain(
                        f"Topics of a topology {self.name} exist already.",
                        given=", ".join(existing),
                        hint="delete them, or omit --bootstrap-servers: then the benchmark has its own broker",
                    )
                )
            clock = {"message.timestamp.type": "LogAppendTime"}
            for name in ("results", "matches"):
                admin.create({getattr(self.topics, name): 1}, {**self._topic_config[name], **clock})
            kept_s = _WARM_UP_S + self.args.latency_seconds + _READING_S if self.args.latency_seconds else 0
            admin.create({self.topics.topk: 1}, {**self._topic_config["topk"], **clock, "min.compaction.lag.ms": str(int(kept_s * 1000))})
        ensure_topics(self.kafka, self.name)
        return list(self.topics)

    def _delete(self, topics: list[str]) -> None:
        with closing(TopicAdmin(self.kafka)) as admin:
            admin.delete(topics)

    # -- waiting --------------------------------------------------------------------------------------------------

    def _applied(self, time_ms: float | None = None) -> float:
        return self.history.applied(_SUBSCRIPTION_BOLT, _now_ms() if time_ms is None else time_ms, self.tasks)

    def _wait(self, condition: Callable[[], bool], what: str, state: Callable[[], str] = lambda: "") -> None:
        deadline, told = time.monotonic() + self.args.timeout, time.monotonic()
        while not condition():
            if self._recorder.failure is not None:
                raise TopologyError(f"the metrics of {self.name} cannot be read: {self._recorder.failure}") from self._recorder.failure
            if time.monotonic() > deadline:
                errors = [e["error"][-800:] for e in self.history.errors][-2:]
                raise TopologyError(f"{what} not reached within {self.args.timeout:g} s; {state()}; errors: {errors}")
            if time.monotonic() - told > 10:
                told = time.monotonic()
                say(f"  waiting for {what}: {state()}")
            time.sleep(_STEP_S)

    def _wait_applied(self, n: int) -> None:
        self._wait(lambda: self._applied() >= n, f"{n:,} messages", lambda: f"{self._applied():,.0f} applied")

    def _wait_moved(self, n: int) -> None:
        self._wait(lambda: self._moved() >= n, f"{n:,} moves", lambda: f"{self._moved():,} applied")

    def _moved(self) -> int:
        """Return how many moves of subscriptions have been applied by all tasks: each is an event after those of the registrations."""
        return self._end(self.topics.registrations) - self.n

    # -- phases ---------------------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        """Fill the window, register the subscriptions, and wait until all are active."""
        history, result = self.history, self.result
        self._wait(lambda: len(history.tasks(_SUBSCRIPTION_BOLT)) == self.tasks, "the topology")
        boolean = self.args.boolean
        if self.args.register == "full" and not boolean:
            self._fill()
        started_ms = self._register()["started_ms"]

        def active() -> bool:
            return (
                history.total(_SUBSCRIPTION_BOLT, "metrics/subscriptions") >= self.n
                and not history.total(_SUBSCRIPTION_BOLT, "metrics/pending_evaluations")
                and self._end(self.topics.registrations) >= self.n
            )

        self._wait(
            active,
            f"{self.n:,} active subscriptions",
            lambda: ", ".join(f"{history.total(_SUBSCRIPTION_BOLT, f'metrics/{m}'):,.0f} {m}" for m in ("subscriptions", "pending_evaluations")),
        )
        last = self._read(self.topics.registrations, max(0, self._end(self.topics.registrations) - 1))
        result["all_active_s"] = (next(last).timestamp - started_ms) / 1000
        result["placements"] = history.total(_SUBSCRIPTION_BOLT, "metrics/subscriptions")
        say(f"  {self.n:,} subscriptions: active after {result['all_active_s']:.1f} s")
        if self.args.register == "empty" and not boolean:
            self._fill()

    def _register(self) -> dict[str, Any]:
        if self.args.boolean:
            return self.feeder.boolean_subscriptions(self.n, **boolean_shape(self.args))
        return self.feeder.subscriptions(self.n, self.args.k)

    def _fill(self) -> None:
        started = time.monotonic()
        self.feeder.messages(self.args.window)
        self._wait_applied(self.feeder.written)
        self.result["fill_s"] = time.monotonic() - started
        say(f"  {self.args.window:,} messages: window full after {self.result['fill_s']:.1f} s")

    def _throughput(self) -> None:
        args, result, feeder, history = self.args, self.result, self.feeder, self.history
        # The warm-up shows the rate. Then enough messages are written that hardly any must be written during the measurement.
        rate, backlog = self._warm_up(), []
        self._keep_backlog(_FASTER * rate, args.seconds + _LEAST_BACKLOG_S)
        written, moved, meter = feeder.written, self._moved(), Meter(history.pids)
        start_ms = meter.start_ms
        while _now_ms() < start_ms + args.seconds * 1000:
            backlog.append((_now_ms(), feeder.written))
            self._keep_backlog(rate, _LEAST_BACKLOG_S)
            time.sleep(_STEP_S)
        meter.stop(memory=True)
        stop_ms, moved = meter.stop_ms, self._moved() - moved
        deadline = time.monotonic() + 60
        while history.last_ms(_SUBSCRIPTION_BOLT) < stop_ms and time.monotonic() < deadline:
            time.sleep(_STEP_S)
        rates = history.rates(_SUBSCRIPTION_BOLT, start_ms, stop_ms, args.rate_window * 1000)
        applied = self._applied(stop_ms) - self._applied(start_ms)
        result |= {
            "messages_per_s": median(rates) if rates else 0.0,
            "windows": rates,
            "mean_per_s": applied / meter.seconds,
            "measured_s": meter.seconds,
            "applied": applied,
            "lowest_backlog": min(n - self._applied(at) for at, n in backlog),
            "written_meanwhile": feeder.written - written,
            "moves_per_s": moved / meter.seconds,
            "waiting": self._waiting(backlog),
            "other_cores": meter.others_s / meter.seconds,
        }
        say(f"  {result['messages_per_s']:,.0f} messages/s")
        self._wait_applied(feeder.written)
        if applied:
            result["processes"] = {
                kind: {
                    "cpu_us_per_message": u.cpu_s * 1e6 / applied,
                    "cores": u.cpu_s / meter.seconds,
                    "processes": u.count,
                    "rss_bytes": u.rss,
                    "pss_bytes": u.pss,
                }
                for kind, u in meter.used.items()
            }
            result["components"] = self._components(start_ms, stop_ms, applied)
            result["streams"] = self._streams(start_ms, stop_ms, applied)

    def _warm_up(self) -> float:
        """Keep the topology busy for the time of the warm-up; return the rate, messages per second.

        A micro-batch may take seconds, and its work is reported at its end, so the rate is measured between two such ends.
        """
        first = self.feeder.written
        started_ms, rate = _now_ms(), 0.0
        self.feeder.messages(_LEAST_BACKLOG)
        self._wait_applied(first + 1)
        begun_ms, begun = _now_ms(), self._applied()
        while rate == 0 or _now_ms() < started_ms + self.args.warm_up * 1000:
            self._keep_backlog(rate, max(_LEAST_BACKLOG_S, self.args.warm_up / 2))
            self._wait(lambda: self.history.last_ms(_SUBSCRIPTION_BOLT) > begun_ms, "a report")
            rate = max(rate, (self._applied() - begun) * 1000 / (_now_ms() - begun_ms))
            time.sleep(_STEP_S)
        return rate

    def _keep_backlog(self, rate: float, least_s: float) -> None:
        """Write messages if those that wait last for less than ``least_s`` seconds, or for about two micro-batches, one of which may be running."""
        batch = min(_LARGEST_BATCH, self.history.largest_step(_SUBSCRIPTION_BOLT, "watermark"))
        least, left = max(_LEAST_BACKLOG, rate * least_s, 2.5 * batch), self.feeder.written - self._applied()
        if left < least:
            self.feeder.messages(int(least - left + _LEAST_BACKLOG / 2))

    def _waiting(self, backlog: list[tuple[int, int]]) -> dict[str, float]:
        """Return the median number of messages that waited before each stage; the queue is before the slowest one.

        :param backlog: (time, messages written until then).
        """
        history, found = self.history, defaultdict(list)
        for at, written in backlog:
            numbered = history.value_at(history.tasks(_SPOUT)[0], f"emitted/{self.stream}", at) or 0
            distributed = sum(history.value_at(t, f"executed/{_SPOUT}/{self.stream}", at) or 0 for t in history.tasks(_DISTRIBUTION_BOLT))
            for stage, n in ((_SPOUT, written - numbered), (_DISTRIBUTION_BOLT, numbered - distributed), (_SUBSCRIPTION_BOLT, distributed - self._applied(at))):
                found[stage].append(max(0, n))
        return {stage: median(ns) for stage, ns in found.items()}

    def _components(self, start_ms: int, stop_ms: int, applied: float) -> dict[str, dict[str, Any]]:
        """Return the measures of the components, and the sizes of their newest snapshots."""
        found = {}
        plan, folder = self.handle.backend.plan, self.handle.backend.folder / SNAPSHOTS
        for component in plan.component_ids:
            entry: dict[str, Any] = {
                "tasks": len(plan.component_tasks(component)),
                "busy_us_per_message": self.history.growth(component, "busy_ns", start_ms, stop_ms) / 1000 / applied,
                "busy_cores": self.history.growth(component, "busy_ns", start_ms, stop_ms) / 1e6 / (stop_ms - start_ms),
                **{f"{key}_per_message": self.history.growth(component, key, start_ms, stop_ms) / applied for key in ("in_bytes", "out_bytes", "frames")},
                "batches_per_s": self.history.batches(component, start_ms, stop_ms) * 1000 / (stop_ms - start_ms),
                "snapshot_bytes": sum(_newest_bytes(folder / str(task)) for task in plan.component_tasks(component)),
            }
            entry["metrics_per_message"] = {
                key.partition("/")[2]: self.history.growth(component, key, start_ms, stop_ms) / applied
                for key in sorted(self.history.keys(component, "metrics/"))
            }
            found[component] = entry
        return found

    def _streams(self, start_ms: int, stop_ms: int, applied: float) -> list[dict[str, Any]]:
        """Return tuples and bytes of each stream; bytes per tuple are those of the newest frames."""
        sizes = self._sizes()
        found = []
        for component in self.handle.backend.plan.component_ids:
            for key in sorted(self.history.keys(component, "transferred/")):
                stream = key.partition("/")[2]
                tuples = self.history.growth(component, key, start_ms, stop_ms) / applied
                size = sizes.get((component, stream))
                found.append(
                    {
                        "from": component,
                        "stream": stream,
                        "tuples_per_message": tuples,
                        "bytes_per_tuple": size,
                        "bytes_per_message": None if size is None else size * tuples,
                    }
                )
        return found

    def _sizes(self) -> dict[tuple[str, str], float]:
        plan, totals = self.handle.backend.plan, defaultdict(lambda: [0, 0])
        with closing(TopicAdmin(self.kafka)) as admin:
            for component in plan.component_ids:
                topic = inbox_topic(plan.name, component)
                for partition, (begin, end) in admin.begin_and_end(topic).items():
                    for record in self._read(topic, max(begin, end - _FRAMES), end, partition):
                        try:
                            frame = decode_frame(record.value)
                        except FrameError:
                            continue
                        if isinstance(frame, DataFrame):
                            for stream, tuples, size in segment_bytes(frame):
                                entry = totals[plan.component_of(frame.source_task), stream]
                                entry[0] += tuples
                                entry[1] += size
        return {key: size / tuples for key, (tuples, size) in totals.items() if tuples}

    def _latency(self) -> None:
        args, result = self.args, self.result
        rate = args.latency_rate or result["messages_per_s"] * args.latency_load
        begin = {name: self._end(getattr(self.topics, name)) for name in ("results", "topk", "matches")}
        warm_up = min(_WARM_UP_S, args.latency_seconds / 2)
        self.feeder.paced(rate, warm_up)
        first, meter = self.feeder.written, Meter(self.history.pids)
        self.feeder.paced(rate, args.latency_seconds)
        meter.stop()
        behind = self.feeder.written - self._applied()
        self._wait_applied(self.feeder.written)
        applied = max(1.0, self._applied(meter.stop_ms) - self._applied(meter.start_ms))
        time.sleep(2)  # for the last results
        found = self._read_latencies(first, self.feeder.written, begin)
        result["latency"] = {
            "rate": rate,
            "behind_at_end": behind,
            "cores": {kind: u.cpu_s / meter.seconds for kind, u in meter.used.items()},
            "applied_per_s": applied / meter.seconds,
            "components": self._components(meter.start_ms, meter.stop_ms, applied),
            "other_cores": meter.others_s / meter.seconds,
            **found.summary(),
        }
        if found.records:
            result["delta_bytes"] = found.bytes / found.records

    def _read_latencies(self, first: int, stop: int, begin: Mapping[str, int]) -> Any:
        number = sequence_numbers([json.loads(r.value) for r in self._read(self.topics.sequence)])
        arrived = {}
        for record in self._read(self.topics.messages, first, stop):
            if (watermark := number(record.offset)) is not None:
                id = json.loads(record.value).get("id", f"{record.partition}-{record.offset}")
                arrived[watermark] = record.timestamp, json.dumps(id).encode()
        found = Latencies(arrived, *self._ops())
        reading = {"results": (found.add_delta, _READ_AT_MOST), "topk": (found.add_list, _LISTS_AT_MOST), "matches": (found.add_group, _LISTS_AT_MOST)}
        for name, start in begin.items():
            topic, (add, at_most) = getattr(self.topics, name), reading[name]
            for record in self._read(topic, start, min(self._end(topic), start + at_most)):
                add(record.value, record.timestamp)
        return found

    def _ops(self) -> tuple[str, ...]:
        return ("match",) if self.args.boolean else ("add",)

    def _verify(self) -> None:
        """Compare the results of some subscriptions with a plain computation."""
        settings = Settings.from_conf(self.handle.backend.plan.conf)
        time.sleep(2 + 2 * settings.topk_pause_max_ms / 1000)  # for the last lists
        chosen = {f"s{i}".encode() for i in random.Random(self.args.seed).sample(range(self.n), min(self.args.verify, self.n))}
        keyed = (self.topics.subscriptions, self.topics.registrations, self.topics.results, self.topics.topk)
        grouped = self.topics.matches
        for topic in keyed:  # without its first record, a topic would look as if old records had been dropped
            chosen.update(record.key for record in self._read(topic, 0, min(1, self._end(topic))))
        if self._end(grouped):
            chosen.update(json.loads(record.value)["subscriptions"][0].encode() for record in self._read(grouped, 0, 1))
        say(f"  verifying {len(chosen)} subscriptions")

        def records(topic: str) -> list[Any]:
            if topic != grouped:
                return [_plain(r) for r in self._read(topic) if topic not in keyed or r.key in chosen]
            found = (fewer_matches(_plain(r), chosen) for r in self._read(topic))
            return [record for record in found if record is not None]

        inputs = Inputs.read(self.name, records)
        report = verify(inputs, settings, final=True)
        self.result["verified"] = {
            "ok": report.ok,
            "subscriptions": len(chosen),
            "compared": dict(report.compared),
            "unchecked": dict(report.unchecked),
            "notes": dict(report.notes),
            "differences": [d.as_text() for d in report.differences],
        }

    # -- reading --------------------------------------------------------------------------------------------------

    def _end(self, topic: str) -> int:
        with closing(TopicAdmin(self.kafka)) as admin:
            return admin.begin_and_end(topic)[0][1]

    def _read(self, topic: str, start: int = 0, stop: int | None = None, partition: int = 0) -> Iterator[Any]:
        """Yield the records of a partition from ``start`` to before ``stop`` (default: its present end)."""
        where = TopicPartition(topic, partition)
        consumer = self.kafka.consumer(max_poll_records=10_000, fetch_max_wait_ms=50)
        try:
            consumer.assign([where])
            stop = consumer.end_offsets([where])[where] if stop is None else stop
            consumer.seek(where, start)
            deadline = time.monotonic() + 60
            while consumer.position(where) < stop and time.monotonic() < deadline:
                for record in consumer.poll(timeout_ms=500).get(where, ()):
                    if record.offset >= stop:
                        return
                    deadline = time.monotonic() + 60
                    yield record
        finally:
            consumer.close()


def segment_bytes(frame: Any) -> list[tuple[str, int, int]]:
    """Return (stream, tuples, bytes on the wire) of the segments of a frame, without watermarks."""
    return [(s.stream, s.n, len(encode_segment(s.stream, s.n, s.columns, s.anchors))) for s in frame.segments if s.stream is not None]


def _newest_bytes(folder: Path) -> int:
    """Return the size of a task's newest snapshot or journal entry."""
    for kind in ("snapshot-", "journal-"):
        for path in sorted(folder.glob(f"{kind}*"), reverse=True):
            try:
                return path.stat().st_size
            except FileNotFoundError:  # replaced by a newer one
                continue
    return 0


def _plain(record: Any) -> Any:
    return InRecord(record.topic, record.partition, record.offset, record.timestamp, record.key, record.value, list(record.headers or ()))


def fewer_matches(record: InRecord, chosen: set[bytes]) -> InRecord | None:
    """Return a record of grouped matches with those of the chosen subscriptions; None where it has none of them."""
    found = json.loads(record.value or b"{}")
    found["subscriptions"] = [id for id in found["subscriptions"] if id.encode() in chosen]
    return record._replace(value=json.dumps(found).encode()) if found["subscriptions"] else None


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def measure(cluster: Any, args: argparse.Namespace, n: int, conf: dict[str, Any]) -> dict[str, Any]:
    """Measure one number of subscriptions on its own topology, and return the measures.

    :param cluster: a LocalCluster.
    :param conf: see :func:`configuration`.
    """
    return Run(cluster, args, n, conf).measure()


# --- all runs ---------------------------------------------------------------------------------------------------------


def run(args: argparse.Namespace) -> int:
    """Measure every number of subscriptions; print tables or JSON.

    :returns: 0; 1 if components reported errors or messages were refused, so that the figures cannot be trusted.
    """
    if not 0 < args.latency_load <= 1:
        raise UsageError(f"--latency-load: expected a share above 0, at most 1; given: {args.latency_load:g}")
    where = target(args)
    end_on_sigterm()
    found: dict[str, Any] = {"machine": throughput_report.machine(), "runs": []}
    with tempfile.TemporaryDirectory(prefix="dskype-throughput-") as folder:
        conf = configuration(args, build_vocabulary(args, Path(folder)))
        found["settings"] = settings(args, conf)
        with LocalCluster(bootstrap_servers=where.bootstrap_servers, master=where.master, conf=where.conf, progress=say) as cluster:
            for n in args.subscriptions:
                say(f"{n:,} subscriptions")
                found["runs"].append(measure(cluster, args, n, conf))
    return finish(args.output, found, throughput_report.print_tables, {f"with {r['subscriptions']:,} subscriptions": r for r in found["runs"]})


def finish(output: str, found: Mapping[str, Any], print_tables: Callable[[Mapping[str, Any]], None], runs: Mapping[str, Mapping[str, Any]]) -> int:
    """Print what was found, and why some of it cannot be trusted; return the exit code.

    :param output: ``text`` or ``json``.
    :param runs: what :func:`measure` returned, by a name that tells the user which run it is.
    :returns: 0; 1 if the figures cannot be trusted.
    """
    if output == "json":
        print(json.dumps(found, indent=1))
    else:
        print_tables(found)
    found_problems = [f"{name}: {problem}" for name, r in runs.items() for problem in problems(r)]
    for problem in found_problems:
        say(f"error: {problem}")
    return 1 if found_problems else 0


def problems(r: Mapping[str, Any]) -> list[str]:
    """Return why the figures of a run cannot be trusted; [] if they can."""
    counted = [("errors", len(r["errors"])), ("dead letters", r["dead_letters"]), ("restarts of queries", r["restarts"])]
    found = [f"{n:.0f} {what}" for what, n in counted if n] + r["errors"][-1:]
    if not r.get("verified", {}).get("ok", True):
        found += ["published results differ from a plain computation", *r["verified"]["differences"][:1]]
    return found
