"""What a running topology moves, costs and waits for, measured from its metrics topic.

The tasks only count; the reader computes everything here. Counts cover the topology's whole life; rates, latencies and balance cover the last
seconds (the *window*). A reader needs no Spark, and the topology never waits for it.

Latency needs no marks on tuples. A spout that reads Kafka reports with each batch when its records arrived, and its watermark after them. When
all tasks of a bolt have passed that watermark, they have processed these records. The records of one batch are assumed to have arrived evenly
between the first and the last. With a time window the watermark follows the records after the ``lateness``.
"""

from __future__ import annotations

import json
import math
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from dskype.deploy.metrics.history import History
from dskype.spouts import streams
from dskype.spouts.tenants import TENANTS, Quota, read_tenants
from dskype.topology.core.stats import TopologyStats

__all__ = [
    "BATCH_BUCKETS_S",
    "BUCKETS_S",
    "WINDOW_S",
    "Batches",
    "Meter",
    "Passage",
    "Passages",
    "checkpoint_age_ms",
    "consumer_lag",
    "in_flight",
    "measure",
    "placements",
    "registered_subscriptions",
    "rejected",
    "report_age_s",
    "tenants",
]

WINDOW_S = 60.0
BUCKETS_S = (0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1, 1.5, 2, 3, 5, 10, 30, 60, 300)
"""Upper bounds of the latency histogram."""
BATCH_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
"""Upper bounds of the histogram of micro-batches."""
_STORE = {"waiting": "states-waiting", "written": "states-written", "stale": "states-stale", "failures": "store-failures"}
_ORDER = {stream: i for i, stream in enumerate(streams.STREAMS)}
_REGISTERED = ("subscriptions_registered", "registered")
ONE_PLACE = "hashing"
"""The only distributor that never has a subscription on several tasks. By name, because whoever only measures need not have the packages of distributors."""
_POINTS = 64
_NEEDED = {"component", "executor", "pid", "tasks", "time_ms"}


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


# --- latency ----------------------------------------------------------------------------------------------------------


class Passage(NamedTuple):
    """``n`` records that a component had processed at ``time_ms``, between ``low_ms`` and ``high_ms`` after their arrival."""

    time_ms: int
    low_ms: int
    high_ms: int
    n: int

    def within(self, ms: float) -> int:
        """Return how many of the records took at most ``ms``."""
        if ms >= self.high_ms:
            return self.n
        return 0 if ms < self.low_ms else int(self.n * (ms - self.low_ms) / (self.high_ms - self.low_ms))


class Passages:
    """Finds from watermarks how long Kafka records took to reach each bolt; the module's docstring says how.

    :param window_ms: how long passages are kept.
    """

    def __init__(self, window_ms: float) -> None:
        self._window_ms = window_ms
        self._open: dict[str, deque[tuple[int, int, int, int]]] = {}  # bolt -> (watermark, oldest, newest, records)
        self._marks: dict[str, dict[int, int | None]] = {}
        self._reached: dict[str, tuple[int, int]] = {}  # bolt -> its watermark, and when it first reported it
        self._sent: dict[int, int] = {}  # task of a spout -> its watermark
        self._recent: deque[tuple[int, int, int, int]] = deque(maxlen=1000)
        self.passed: dict[str, deque[Passage]] = {}
        self.buckets: dict[str, list[int]] = {}
        """Bolt -> how many records took at most each of :data:`BUCKETS_S`, then how many there were in all."""
        self.sums_ms: dict[str, float] = {}
        self.observe_from_ms = 0
        """Passages before this time are not counted in ``buckets``."""

    def add_report(self, record: Mapping[str, Any]) -> None:
        """Add a statistics record. That of a spout may come behind those of bolts which have passed its watermark already."""
        arrived = False
        for task in record["tasks"]:
            mark, is_spout = task.get("watermark"), "pulse" in task
            if not is_spout:
                self._marks.setdefault(record["component"], {})[task["task"]] = mark
            elif mark is not None and mark > self._sent.get(task["task"], mark - 1):
                self._sent[task["task"]] = mark
                if task.get("arrivals"):
                    entry = (mark, *task["arrivals"])
                    self._recent.append(entry)
                    arrived = True
                    for waiting in self._open.values():
                        waiting.append(entry)
        if record["component"] in self._marks:
            self._reach(record["component"], record["time_ms"])
        elif arrived:
            for component in self._open:
                self._pass(component)

    def _reach(self, component: str, time_ms: int) -> None:
        marks = self._marks[component].values()
        if any(mark is None for mark in marks):
            return
        low = min(marks)
        if component not in self._reached or self._reached[component][0] != low:
            self._reached[component] = low, time_ms
        if component in self._open:
            self._pass(component)
        else:  # when it passed earlier watermarks is not known
            self._open[component] = deque(entry for entry in self._recent if entry[0] > low)

    def _pass(self, component: str) -> None:
        low, time_ms = self._reached[component]
        waiting, passed = self._open[component], self.passed.setdefault(component, deque())
        while waiting and waiting[0][0] <= low:
            _, oldest, newest, n = waiting.popleft()
            passage = Passage(time_ms, max(0, time_ms - newest), max(0, time_ms - oldest), n)
            passed.append(passage)
            if time_ms >= self.observe_from_ms:
                self._observe(component, passage)
        while passed and passed[0].time_ms < time_ms - self._window_ms:
            passed.popleft()

    def _observe(self, component: str, passage: Passage) -> None:
        buckets = self.buckets.setdefault(component, [0] * (len(BUCKETS_S) + 1))
        for i, bound in enumerate(BUCKETS_S):
            buckets[i] += passage.within(bound * 1000)
        buckets[-1] += passage.n
        self.sums_ms[component] = self.sums_ms.get(component, 0.0) + passage.n * (passage.low_ms + passage.high_ms) / 2

    def quantiles(self, component: str, since_ms: float, qs: Sequence[float] = (0.5, 0.99)) -> tuple[int, list[float | None]]:
        """Return how many records a component has processed since a time, and quantiles of how long they took, in ms."""
        points: list[tuple[float, float]] = []
        total = 0
        for p in list(self.passed.get(component, ())):
            if p.time_ms >= since_ms:
                total += p.n
                m = min(p.n, _POINTS)
                points += [(p.low_ms + (p.high_ms - p.low_ms) * (i + 0.5) / m, p.n / m) for i in range(m)]
        if not points:
            return 0, [None for _ in qs]
        points.sort()
        found = []
        for q in qs:
            weight = 0.0
            for ms, w in points:  # noqa: B007 - the last ms is the quantile
                weight += w
                if weight >= q * total - 1e-9:
                    break
            found.append(ms)
        return total, found


# --- micro-batches ----------------------------------------------------------------------------------------------------


class Batches:
    """How long micro-batches took in the executors of each component: its code, frames in and out, the journal of a spout, but not Spark.

    :param window_ms: how long single micro-batches are kept.
    """

    def __init__(self, window_ms: float) -> None:
        self._window_ms = window_ms
        self._recent: dict[str, deque[tuple[int, float]]] = {}
        self._heard: dict[tuple[str, Any], tuple[int, list[Any]]] = {}  # executor -> time and versions of its newest record
        self.buckets: dict[str, list[int]] = {}
        """Component -> how many took at most each of :data:`BATCH_BUCKETS_S`, then how many there were in all."""
        self.sums_ms: dict[str, float] = {}
        self.observe_from_ms = 0
        """Micro-batches that ended before this time are not counted in ``buckets``."""

    def add_report(self, record: Mapping[str, Any]) -> None:
        """Add a statistics record. A repetition counts once."""
        component, ms, time_ms = record["component"], record.get("batch_ms"), record["time_ms"]
        executor, mark = (component, record["executor"]), (time_ms, [task.get("version") for task in record["tasks"]])
        heard = self._heard.get(executor)
        if ms is None or (heard is not None and (time_ms < heard[0] or mark == heard)):
            return
        self._heard[executor] = mark
        recent = self._recent.setdefault(component, deque())
        recent.append((time_ms, ms))
        while recent[0][0] < time_ms - self._window_ms:
            recent.popleft()
        if time_ms >= self.observe_from_ms:
            buckets = self.buckets.setdefault(component, [0] * (len(BATCH_BUCKETS_S) + 1))
            for i in range(bisect_left(BATCH_BUCKETS_S, ms / 1000), len(buckets)):
                buckets[i] += 1
            self.sums_ms[component] = self.sums_ms.get(component, 0.0) + ms

    def quantiles(self, component: str, since_ms: float, qs: Sequence[float] = (0.5, 0.99)) -> tuple[int, list[float | None]]:
        """Return how many micro-batches of a component have ended since a time, and quantiles of how long they took, in ms."""
        found = sorted(ms for time_ms, ms in list(self._recent.get(component, ())) if time_ms >= since_ms)
        return len(found), [found[max(0, math.ceil(q * len(found)) - 1)] if found else None for q in qs]


# --- what a topology's records say ------------------------------------------------------------------------------------


class Meter:
    """The newest statistics of a topology, what they were over the last seconds, and its latencies.

    :param window_s: how many seconds are remembered.
    :ivar stats: the newest statistics.
    :ivar expired: topic -> records that Kafka has dropped by age or size; the reader sets it.
    """

    def __init__(self, window_s: float = WINDOW_S) -> None:
        self.window_s = window_s
        self.expired: dict[str, int] = {}
        self._observe_from_ms = 0
        self._begin()

    def _begin(self) -> None:
        self.stats, self.history = TopologyStats(), History()
        self.passages, self.batches = Passages(self.window_s * 1000), Batches(self.window_s * 1000)
        self.passages.observe_from_ms = self.batches.observe_from_ms = self._observe_from_ms
        self._fed = 0

    def observe_from(self, time_ms: int) -> None:
        """Let the histograms count only from this time on."""
        self._observe_from_ms = self.passages.observe_from_ms = self.batches.observe_from_ms = time_ms

    def feed(self, value: bytes | None) -> None:
        """Add a record of the metrics topic; ignore unreadable ones."""
        try:
            self.feed_record(json.loads(value or b""))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):  # anyone may write to the topic
            self.stats.unreadable += 1

    def feed_record(self, record: dict[str, Any]) -> None:
        """Add a parsed record; raise one of several errors if it is no record of metrics."""
        if record.get("kind") == "stats":
            if not _NEEDED <= record.keys():  # of another version
                return
            if self.stats.topology_id not in (None, record.get("topology")):
                self._begin()  # another topology of the same name
            self.history.add_record(record)
            self.passages.add_report(record)
            self.batches.add_report(record)
            self._fed += 1
            if self._fed % 500 == 0:
                self.history.forget(record["time_ms"] - int(self.window_s * 1000))
        self.stats.feed_record(record)

    def positions(self) -> dict[str, dict[tuple[str, int], int]]:
        """Return where the topology's Kafka spouts are; see :meth:`TopologyStats.positions`."""
        return self.stats.positions()

    @property
    def components(self) -> list[str]:
        """Ids of the components that have reported, without system components."""
        return sorted({t["component"] for t in list(self.stats.tasks.values()) if not t["component"].startswith("__")})

    def tasks(self, component: str) -> dict[int, dict[str, Any]]:
        """Return task id -> newest report."""
        return {id: t for id, t in sorted(self.stats.tasks.items()) if t["component"] == component}

    def edges(self) -> list[tuple[str, str, str]]:
        """Return (source, stream, target) of every stream that has carried tuples, without system streams, DSkype's by their numbers."""
        found = {(*key.rpartition("/")[::2], task["component"]) for task in list(self.stats.tasks.values()) for key in task.get("executed", ()) if "/" in key}
        return sorted(
            (edge for edge in found if not edge[0].startswith("__") and not edge[1].startswith("__")), key=lambda edge: (_ORDER.get(edge[1], len(_ORDER)), edge)
        )

    def distribution(self) -> tuple[str, str] | None:
        """Return the components that distribute and that match messages, the ends of stream ``matching``; None if there is no such stream."""
        return next(((source, target) for source, stream, target in self.edges() if stream == streams.Matching.name), None)


def _ratio(a: float, b: float) -> float | None:
    return a / b if b else None


def _balance(loads: Iterable[float]) -> float | None:
    """Return the largest over the mean; None without any load."""
    loads = list(loads)
    return max(loads) * len(loads) / sum(loads) if loads and sum(loads) > 0 else None


def _metric(task: Mapping[str, Any], name: str) -> float | None:
    value = (task.get("metrics") or {}).get(name)
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def registered_subscriptions(meter: Meter, conf: Mapping[str, Any]) -> int | None:
    """Return how many subscriptions are registered; None if that is not known.

    Distribution bolts count them where a subscription may live on several tasks; otherwise every placement is a subscription.
    """
    roles = meter.distribution()
    if roles is None:
        return None
    for name in _REGISTERED:
        known = [n for task in meter.tasks(roles[0]).values() if (n := _metric(task, name)) is not None]
        if known:
            return int(sum(known))

    return placements(meter, roles[1]) if conf.get("dskype.distributor", ONE_PLACE) == ONE_PLACE else None


def placements(meter: Meter, component: str) -> int:
    """Return how many placements of subscriptions live on the tasks of the subscription bolt."""
    return int(sum(_metric(task, "subscriptions") or 0 for task in meter.tasks(component).values()))


class _Rates:
    """Growth of counters over the window."""

    def __init__(self, meter: Meter, now_ms: int) -> None:
        self._history, self.stop_ms = meter.history, now_ms
        first = meter.history.since_ms()
        self.start_ms = max(now_ms - meter.window_s * 1000, now_ms if first is None else first)
        self.seconds = max(0.0, (now_ms - self.start_ms) / 1000)
        newest = meter.stats.newest_ms()
        self._heard = newest is not None and newest > now_ms - meter.window_s * 1000

    def growth(self, component: str, key: str) -> float:
        return max(0.0, self._history.growth(component, key, self.start_ms, self.stop_ms))

    def task_growth(self, task: int, key: str) -> float:
        return max(0.0, (self._history.value_at(task, key, self.stop_ms) or 0) - (self._history.value_at(task, key, self.start_ms) or 0))

    def per_second(self, amount: float) -> float | None:
        """Return a rate; None if the time is too short for one, or no task has reported within it."""
        return amount / self.seconds if self.seconds >= 1 and self._heard else None


def report_age_s(meter: Meter, now_ms: int | None = None) -> float | None:
    """Return how old the newest report of a task is; None without any. The clocks of two hosts may differ by some of it."""
    newest = meter.stats.newest_ms()
    return None if newest is None else max(0.0, ((_now_ms() if now_ms is None else now_ms) - newest) / 1000)


def measure(meter: Meter, about: Mapping[str, Any], *, ends: Mapping[tuple[str, int], int] | None = None, now_ms: int | None = None) -> dict[str, Any]:
    """Return all measurements of a topology as JSON-able data; unknown values are None.

    :param about: ``{"name", "id", "status", "uptime_secs", "conf", "driver_alive"}``, as far as known.
    :param ends: (topic, partition) -> next offset, for the topics that Kafka spouts read.
    :param now_ms: the end of the window; default: now.
    """
    now_ms = _now_ms() if now_ms is None else now_ms
    rates, stats, conf = _Rates(meter, now_ms), meter.stats, about.get("conf") or {}
    roles = meter.distribution()
    found: dict[str, Any] = {
        "v": 1,
        "topology": about.get("name"),
        "id": about.get("id", stats.topology_id),
        "status": about.get("status"),
        "driver_alive": about.get("driver_alive"),
        "uptime_s": about.get("uptime_secs"),
        "time_ms": now_ms,
        "report_age_s": report_age_s(meter, now_ms),
        "window_s": round(rates.seconds, 3),
        "messages": None,
        "communication": None,
        "replication": None,
        "balance": None,
    }
    if roles is not None:
        found.update(_dskype(meter, rates, conf, *roles))
    found["latency"] = _latency(meter, rates)
    found["lag"] = _lag(meter, ends)
    found["store"] = _store(meter)
    found["tenants"] = tenants(meter, conf) or None
    found["plan"] = None if roles is None else _plan(meter, roles[0])
    found["streams"] = [_stream(meter, rates, *edge) for edge in meter.edges()]
    found["total"] = {name: sum(s[name] for s in found["streams"]) for name in ("tuples", "frames", "bytes")}
    for name in ("tuples_per_second", "bytes_per_second"):
        found["total"][name] = None if any(s[name] is None for s in found["streams"]) else sum(s[name] for s in found["streams"])
    found["components"] = [_component(meter, rates, component) for component in meter.components]
    found["dead_letters"] = [{"component": c, "stage": stage, "code": code, "count": n} for (c, stage, code), n in sorted(rejected(meter).items())]
    return found


def _dskype(meter: Meter, rates: _Rates, conf: Mapping[str, Any], source: str, target: str) -> dict[str, Any]:
    stats = meter.stats
    sources = [s for s, stream, t in meter.edges() if (stream, t) == (streams.Messages.name, source)]
    messages = sum(stats.total(source, "executed", f"{s}/{streams.Messages.name}") for s in sources)
    recent = sum(rates.growth(source, f"executed/{s}/{streams.Messages.name}") for s in sources)
    sent, sent_recently = stats.total(source, "transferred", streams.Matching.name), rates.growth(source, f"transferred/{streams.Matching.name}")
    matching = f"{source}/{streams.Matching.name}"
    size = stats.total(target, "stream_bytes", matching)
    living, registered = placements(meter, target), registered_subscriptions(meter, conf)
    over_window = recent > 0
    tasks = meter.tasks(target)

    def loads(counter: str, life: Callable[[Mapping[str, Any]], float]) -> list[float]:
        return [rates.task_growth(id, counter) if over_window else life(task) for id, task in tasks.items()]

    return {
        "messages": {"processed": messages, "per_second": rates.per_second(recent)},
        "communication": {
            "tuples": sent,
            "tuples_per_message": _ratio(sent, messages),
            "tuples_per_message_now": _ratio(sent_recently, recent),
            "bytes": size,
            "bytes_per_message": _ratio(size, messages),
        },
        "replication": {"placements": living, "subscriptions": registered, "ratio": _ratio(living, registered) if registered else None},
        "balance": {
            "over": "window" if over_window else "life",
            "subscriptions": _balance(_metric(task, "subscriptions") or 0 for task in tasks.values()),
            "messages": _balance(loads(f"executed/{matching}", lambda task: task["executed"].get(matching, 0))),
            "busy": _balance(loads("busy_ns", lambda task: task["busy_ns"])),
        },
    }


def _latency(meter: Meter, rates: _Rates) -> list[dict[str, Any]]:
    """Return what each component's latency was, in the order in which tuples reach the components: noise may order two quantiles otherwise."""
    found, hops = [], _hops(meter.edges())
    for component in sorted(meter.passages.passed, key=lambda component: (hops.get(component, len(hops)), component)):
        n, (p50, p99) = meter.passages.quantiles(component, rates.start_ms)
        if n:
            found.append({"component": component, "records": n, "p50_ms": round(p50), "p99_ms": round(p99)})
    return found


def _hops(edges: Iterable[tuple[str, str, str]]) -> dict[str, int]:
    """Return component -> the fewest streams from a component that receives nothing."""
    edges = list(edges)
    hops = dict.fromkeys({source for source, _, _ in edges} - {target for _, _, target in edges}, 0)
    reached = set(hops)
    while reached:
        reached = {target for source, _, target in edges if source in reached} - hops.keys()
        hops.update(dict.fromkeys(reached, 1 + max(hops.values())))
    return hops


def consumer_lag(meter: Meter, ends: Mapping[tuple[str, int], int]) -> dict[str, int]:
    """Return topic -> records that no spout has emitted yet.

    :param ends: (topic, partition) -> next offset.
    """
    positions = {(topic, partition): position for task in list(meter.stats.tasks.values()) for topic, partition, position, _ in task.get("kafka", ())}
    lag: dict[str, int] = {}
    for where, position in positions.items():
        if where in ends:
            lag[where[0]] = lag.get(where[0], 0) + max(0, ends[where] - position)
    return lag


def in_flight(meter: Meter) -> dict[str, int]:
    """Return component -> tuples that were sent to it and that it has not received."""
    found = dict.fromkeys(meter.components, 0)
    for task, n in meter.stats.undelivered_by_task().items():
        component = (meter.stats.tasks.get(task) or {}).get("component")
        if component in found:
            found[component] += n
    return found


def _lag(meter: Meter, ends: Mapping[tuple[str, int], int] | None) -> dict[str, Any]:
    return {"records": consumer_lag(meter, ends or {}), "in_flight": {c: n for c, n in in_flight(meter).items() if n}}


def _stream(meter: Meter, rates: _Rates, source: str, stream: str, target: str) -> dict[str, Any]:
    key = f"{source}/{stream}"
    tuples = rates.growth(target, f"executed/{key}")
    size = rates.growth(target, f"stream_bytes/{key}")
    tasks = [
        {"task": id, "tuples": t["executed"].get(key, 0), "frames": t.get("stream_frames", {}).get(key, 0), "bytes": t.get("stream_bytes", {}).get(key, 0)}
        for id, t in meter.tasks(target).items()
    ]
    return {
        "source": source,
        "stream": stream,
        "target": target,
        **{name: sum(t[name] for t in tasks) for name in ("tuples", "frames", "bytes")},
        "tuples_per_second": rates.per_second(tuples),
        "bytes_per_second": rates.per_second(size),
        "tasks": tasks,
    }


def _store(meter: Meter) -> dict[str, int] | None:
    """Return the counters of result bolts about a store outside Kafka; None without such a store, or before anything was written."""
    found = {name: int(sum(_metric(task, metric) or 0 for task in list(meter.stats.tasks.values()))) for name, metric in _STORE.items()}
    return found if any(found.values()) else None


def _plan(meter: Meter, component: str) -> dict[str, Any]:
    """Return the ``version`` of the distribution plan that all distribution tasks follow, 0 for the one at the start, and whether it is ``changing``."""
    tasks = [task for task in meter.tasks(component).values() if _metric(task, "plan_version") is not None]  # not where nothing can move
    return {
        "version": int(min((_metric(task, "plan_version") or 0 for task in tasks), default=0)),
        "changing": any(_metric(task, "plan_changing") for task in tasks),
    }


def tenants(meter: Meter, conf: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return tenant -> ``subscriptions`` that live, ``registrations`` that were taken, ``refused`` ones by quota, and its ``quotas``; {}: there are no tenants.

    Tenants that the configuration does not have any more are one, ``other``.
    """
    quotas = read_tenants("dskype.tenants", conf.get("dskype.tenants"))
    names = [*quotas, *(() if "other" in quotas else ("other",))] if quotas else []
    found: dict[str, dict[str, Any]] = {
        name: {"subscriptions": 0, "registrations": 0, "refused": dict.fromkeys(Quota._fields, 0), "quotas": quotas.get(name, Quota())._asdict()}
        for name in names
    }
    for task in list(meter.stats.tasks.values()) if quotas else ():
        told = (task.get("metrics") or {}).get(TENANTS)
        for tenant, numbers in told.items() if isinstance(told, dict) else ():
            row = found[tenant if tenant in quotas else "other"]
            row["subscriptions"] += numbers["subscriptions"]
            row["registrations"] += numbers["registrations"]
            for quota, number in numbers["refused"].items():
                row["refused"][quota] = row["refused"].get(quota, 0) + number
    if "other" not in quotas and found and not (found["other"]["subscriptions"] or found["other"]["registrations"] or any(found["other"]["refused"].values())):
        del found["other"]
    return found


def checkpoint_age_ms(meter: Meter, component: str) -> int | None:
    """Return how much time of its inbox the task of a component that lags most would read again after a crash; None for spouts."""
    return max((task["checkpoint_age_ms"] for task in meter.tasks(component).values() if "checkpoint_age_ms" in task), default=None)


def _component(meter: Meter, rates: _Rates, component: str) -> dict[str, Any]:
    stats, tasks = meter.stats, meter.tasks(component)
    metrics: dict[str, float] = {}
    for task in tasks.values():
        for name in task.get("metrics") or ():
            if (value := _metric(task, name)) is not None:
                metrics[name] = metrics.get(name, 0) + value
    totals = {name: stats.total(component, name) for name in ("emitted", "transferred", "executed", "failed", "errors", "dead_letters", "duplicates", "gaps")}
    marks = [task["watermark"] for task in tasks.values() if task.get("watermark") is not None]
    batches, (p50, p99) = meter.batches.quantiles(component, rates.start_ms)
    age_ms = checkpoint_age_ms(meter, component)
    return {
        "component": component,
        **totals,
        "batches": {"count": batches, "p50_ms": p50, "p99_ms": p99},
        "checkpoint_age_s": None if age_ms is None else age_ms / 1000,
        "in_bytes": stats.total(component, "in_bytes"),
        "out_bytes": stats.total(component, "out_bytes"),
        "busy_s": round(stats.total(component, "busy_ns") / 1e9, 3),
        "busy": rates.per_second(rates.growth(component, "busy_ns") / 1e9),
        "watermark": min(marks, default=None),
        "metrics": metrics,
        "tasks": [
            {
                "task": id,
                "executed": sum(n for key, n in task["executed"].items() if not key.rpartition("/")[2].startswith("__")),
                "busy_s": round(task["busy_ns"] / 1e9, 3),
                "busy": rates.per_second(rates.task_growth(id, "busy_ns") / 1e9),
                "watermark": task.get("watermark"),
                "subscriptions": _metric(task, "subscriptions"),
            }
            for id, task in tasks.items()
        ],
    }


def rejected(meter: Meter) -> dict[tuple[str, str, str], int]:
    """Return (component, stage, code) -> dead letters."""
    found: dict[tuple[str, str, str], int] = {}
    for task in list(meter.stats.tasks.values()):
        for key, n in (task.get("rejected") or {}).items():
            stage, _, code = key.partition("/")
            at = task["component"], stage, code
            found[at] = found.get(at, 0) + n
    return found
