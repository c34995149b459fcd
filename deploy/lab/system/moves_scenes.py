"""The scenes of ``dskype bench moves``: a topology whose partitions move, by hand and by load, under full load and at a steady rate; and what is measured meanwhile."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dskype.deploy.client.balancing import balance
from dskype.deploy.client.plans import parse_record, read_current, send_plan, with_partitions
from dskype.deploy.client.pubsub import PubSub
from dskype.deploy.demo.places import places
from dskype.deploy.lab.boolean.learning import sample_of_records
from dskype.deploy.lab.system import throughput
from dskype.deploy.lab.system.latencies import Latencies
from dskype.deploy.machine.terminal import say
from dskype.distribution.agrid.distributor import AGridDistributor
from dskype.distribution.base import Sample
from dskype.distribution.hybrid.distributor import HybridDistributor
from dskype.spouts.settings import DEFAULTS, Settings
from dskype.spouts.vocabulary import Vocabulary

__all__ = ["EVALUATORS", "ROUTING_UNITS", "ByHand", "ByLoad", "Scene", "cell_bytes", "changed_partitions", "shifted"]

EVALUATORS, ROUTING_UNITS = "subscription-bolt", "distribution-bolt"

_STEP_S = 0.1
_PACED_S = 0.25
"""Messages at a steady rate are written for so long at a time."""

_NEAR, _FAR = 0.35, 0.65
"""The border goes back and forth between these quantiles of the messages in both partitions, so that a move concerns a third of the subscriptions."""

_HOTSPOTS = (
    (-125.0, 25.0, -65.0, 55.0),  # North America
    (68.0, 5.0, 125.0, 45.0),  # China and India
    (-12.0, 36.0, 40.0, 60.0),  # Europe
    (-82.0, -56.0, -34.0, 13.0),  # South America
    (-18.0, -35.0, 52.0, 34.0),  # Africa
    (95.0, -45.0, 180.0, 20.0),  # the south-east of Asia, and Australia
    (40.0, 45.0, 180.0, 75.0),  # the north of Asia
    (-118.0, 7.0, -60.0, 24.0),  # Central America
)
_HOTSPOTS_BY_LOAD = 2
"""The scenes by load use the first of them, the one by hand all."""
_HOT_SHARE = 0.8
_CELL_BYTES = 12
_STREAMS = {
    "transfers": (EVALUATORS, EVALUATORS),
    "placements": (ROUTING_UNITS, EVALUATORS),
    "shortages": (EVALUATORS, ROUTING_UNITS),
    "interest": (ROUTING_UNITS, ROUTING_UNITS),
    "balance": (EVALUATORS, ROUTING_UNITS),
}
"""Stream -> the component that sends it, and the one that receives and counts it."""

_SAMPLED = int(DEFAULTS["dskype.balance.sample"])
"""The most recent messages, and the most subscriptions, that an adjustment by hand looks at: as many as load balancing does."""

_DECIDING_MS, _REPORTING_MS = 1000, 1000
"""A distribution task that decides handles nothing else, so latencies count from a second before the plan on. Tasks report once in a while, so what a move sent is counted until a second after it."""

_LIMITS_MS = (100, 1000)

_Span = tuple[float, float]
"""Beginning and end, epoch ms."""


class Change(NamedTuple):
    """A plan that came.

    :ivar span: from the moment at which it was sent until no distribution task had routes of the plan before it.
    :ivar partitions: how many it has; ``changed``: how many of them the plan before did not have.
    """

    span: _Span
    partitions: int
    changed: int


class Scene(throughput.Run):
    """A topology whose partitions move.

    :ivar options: of this benchmark.
    :ivar folder: for files of samples.
    :ivar pace: messages per second of the part at a steady rate; None: a share of what the warm-up has shown.
    """

    options: argparse.Namespace
    folder: Path
    pace: float | None = None
    _steady = False

    def _throughput(self) -> None:
        rate = self._warm_up()
        self.result["warm_up_per_s"] = rate
        self.result["pace_per_s"] = self.pace = self.pace or rate * self.options.latency_load
        with closing(PubSub(self.kafka, self.name)) as client:
            self._play(client, rate)
        self._wait_applied(self.feeder.written)

    def _play(self, client: PubSub, rate: float) -> None:
        raise NotImplementedError

    def _ways(self) -> Iterator[bool]:
        """Yield False while the topology gets more than it can apply, then True while it gets messages at a steady rate, unless that is 0."""
        yield False
        if self.pace:
            self._wait_applied(self.feeder.written)
            self._steady = True
            self.result["steady_ms"] = _now_ms()
            self._begun = self.feeder.written, {name: self._end(getattr(self.topics, name)) for name in ("results", "matches")}
            yield True

    def _keep_busy(self, rate: float, least_s: float) -> None:
        if self._steady:
            assert self.pace is not None
            self.feeder.paced(self.pace, _PACED_S)
        else:
            self._keep_backlog(rate, least_s + 4)
            time.sleep(_STEP_S)

    def _rest(self, rate: float, seconds: float) -> _Span:
        """Keep the topology busy; return the beginning and the end."""
        start_ms = _now_ms()
        while (left_s := seconds - (_now_ms() - start_ms) / 1000) > 0:
            self._keep_busy(rate, left_s)
        return start_ms, _now_ms()

    def _hotspot(self, number: int) -> None:
        """Move the hotspot; messages from before are applied first."""
        self.feeder.hotspot(_HOTSPOTS[number % len(_HOTSPOTS)], _HOT_SHARE)
        self._wait_applied(self.feeder.written)

    def _settle(self, rate: float) -> None:
        """Wait until the reports cover everything so far, and all messages are applied. Tasks that stand still report nothing, so the topology is kept busy meanwhile."""
        now_ms, deadline = _now_ms(), time.monotonic() + self.args.timeout
        while min(self.history.last_ms(c) for c in (EVALUATORS, ROUTING_UNITS)) < now_ms and time.monotonic() < deadline:
            self._keep_busy(rate, _STEP_S)
        self._wait_applied(self.feeder.written)

    # -- what happened ------------------------------------------------------------------------------------------------

    def _per_s(self, span: _Span) -> float:
        start_ms, stop_ms = span
        return (self._applied(stop_ms) - self._applied(start_ms)) * 1000 / max(1.0, stop_ms - start_ms)

    def _sent(self, span: _Span) -> dict[str, float]:
        """Return the bytes of each stream of :data:`_STREAMS` in a span of time."""
        return {stream: self.history.growth(to, f"stream_bytes/{source}/{stream}", *span) for stream, (source, to) in _STREAMS.items()}

    def _busy(self, span: _Span) -> float:
        """Return the greatest busy time of an evaluator by the mean."""
        start, stop = ([self.history.value_at(task, "busy_ns", at) or 0 for task in self.history.tasks(EVALUATORS)] for at in span)
        return balance(np.array(stop) - np.array(start))

    def _changes(self, plan: Mapping[str, Any]) -> list[Change]:
        """Return all plans that came after ``plan``, with which the topology started. Of several with one version the first one counts."""
        newest, found, before = 0, [], plan
        for record in self._read(self.topics.plans):
            version, after = parse_record(record.value)
            if after is not None and version > newest:
                newest = version
                rows = with_partitions(after).partitions()
                found.append(Change((record.timestamp, self._ended_ms(version, record.timestamp)), len(rows), changed_partitions(before, after)))
                before = after
        return found

    def _ended_ms(self, version: int, start_ms: float) -> float:
        """Return when all distribution tasks routed by a plan alone; the last report's time if that has not come."""
        tasks, last_ms = self.history.tasks(ROUTING_UNITS), self.history.last_ms(ROUTING_UNITS)
        for at in np.arange(start_ms, last_ms, 1000 * _STEP_S).tolist():
            values = [(self.history.value_at(task, "metrics/plan_version", at), self.history.value_at(task, "metrics/plan_changing", at)) for task in tasks]
            if all((one or 0) >= version and changing == 0 for one, changing in values):
                return at
        return last_ms

    def _rows(self, plan: Mapping[str, Any], latencies: Latencies | None) -> list[dict[str, Any]]:
        """Return a row for each plan that came. Before and after are as long as a rest, but do not reach into another change.

        :param plan: with which the topology started.
        :param latencies: of the messages that came at a steady rate.
        """
        changes, found = self._changes(plan), []
        steady_ms = self.result.get("steady_ms", np.inf)
        for number, (span, partitions, changed) in enumerate(changes):
            start_ms, stop_ms = span
            least_ms = changes[number - 1].span[1] if number else 0
            most_ms = changes[number + 1].span[0] if number + 1 < len(changes) else np.inf
            rest_ms = 1000 * self.options.seconds
            before, after = (max(least_ms, start_ms - rest_ms), start_ms), (stop_ms, min(most_ms, stop_ms + rest_ms))
            counted = start_ms, min(most_ms, stop_ms + _REPORTING_MS)
            steady = start_ms >= steady_ms
            row: dict[str, Any] = {
                "load": "steady" if steady else "full",
                "partitions": partitions,
                "changed": changed,
                "moved": round(self.history.growth(EVALUATORS, "metrics/transferred", *counted)),
                "seconds": (stop_ms - start_ms) / 1000,
                **{f"{stream}_bytes": size for stream, size in self._sent(counted).items()},
            }
            if steady and latencies is not None:
                row |= _shares(latencies, (start_ms - _DECIDING_MS, stop_ms))
            elif not steady:
                row |= {name: self._per_s(one) for name, one in (("before", before), ("during", span), ("after", after))}
            found.append(row)
        return found

    def _steady_latencies(self) -> Latencies | None:
        """Return the latencies of the messages that came at a steady rate; None: none did."""
        if not self._steady:
            return None
        first, begin = self._begun
        time.sleep(2)  # for the last results
        return self._read_latencies(first, self.feeder.written, begin)


class ByHand(Scene):
    """Moves by hand: of an A-Grid a border goes back and forth; of hybrid partitioning the plan is adjusted after each move of a hotspot, as ``dskype partition adjust --publish`` does."""

    def _play(self, client: PubSub, rate: float) -> None:
        seconds, began, selected = self.options.seconds, read_current(client)[1], []
        for steady in self._ways():
            self._rest(rate, seconds)
            for number in range(self.options.moves * steady, self.options.moves * (1 + steady)):
                version, plan = read_current(client)
                new = self._next(plan, number, rate)
                if isinstance(with_partitions(plan), HybridDistributor):
                    selected.append(self._select_ms)
                if new is None:
                    say(f"  move {number + 1}: nothing to gain")
                    continue
                sent, deadline = send_plan(client, version, new), time.monotonic() + self.args.timeout
                while not self._is_over(sent) and time.monotonic() < deadline:
                    self._keep_busy(rate, _STEP_S)
                say(f"  move {number + 1}: done")
                self._rest(rate, seconds)
        self._settle(rate)
        self.result["select_ms"] = selected
        self.result["moves"] = self._rows(began, self._steady_latencies())
        for row in self.result["moves"]:
            if "during" in row:
                say(f"  {row['before']:,.0f}, {row['during']:,.0f}, {row['after']:,.0f} messages/s before, during and after a move of {row['seconds']:.1f} s")

    def _is_over(self, version: int) -> bool:
        total = self.history.total
        return total(ROUTING_UNITS, "metrics/plan_version") >= self.options.routing_units * version and not total(ROUTING_UNITS, "metrics/plan_changing")

    def _next(self, plan: Mapping[str, Any], number: int, rate: float) -> dict[str, Any] | None:
        """Return the next plan; None: there is nothing to move."""
        distributor = with_partitions(plan)
        if not isinstance(distributor, HybridDistributor):
            sample = places(self.options.seed)
            return shifted(plan, sample.lat, sample.lon, (_FAR, _NEAR)[number % 2])
        self._hotspot(number)
        self._rest(rate, self.options.seconds)
        sample = self._recent()
        self._keep_busy(rate, self.options.seconds)  # it goes on meanwhile
        began = time.perf_counter()
        new, found = distributor.adjusted(sample, self.options.selection, {"subscriptions": self.n})
        self._select_ms = (time.perf_counter() - began) * 1000
        return new if found.rounds else None

    def _recent(self) -> Sample:
        """Return a sample of the newest messages, and of the subscriptions."""
        end = self._end(self.topics.messages)
        messages = [record.value for record in self._read(self.topics.messages, max(0, end - _SAMPLED), end)]
        subscriptions = [(record.key, record.value) for record in self._read(self.topics.subscriptions, 0, min(_SAMPLED, self._end(self.topics.subscriptions)))]
        settings = Settings.from_conf(self.handle.backend.plan.conf)
        return sample_of_records(messages, subscriptions, Vocabulary.load(settings.vocabulary), settings, self.folder)


class ByLoad(Scene):
    """Moves a hotspot."""

    def _play(self, client: PubSub, rate: float) -> None:
        began, first, phases = read_current(client)[1], self.feeder.written, []
        for steady in self._ways():
            if not steady:
                phases.append(self._phase("no hotspot", rate))
            for number in range(_HOTSPOTS_BY_LOAD):
                self._hotspot(number)
                phases.append(self._phase(f"hotspot {number + 1}" + (", steady rate" if steady else ""), rate))
        self._settle(rate)
        latencies = self._steady_latencies()
        self.result["phases"] = [{"phase": name, **self._row(span, latencies)} for name, span in phases]
        self.result["moves"] = self._rows(began, latencies)
        self.result["balancing"] = self._balancing(
            (phases[0][1][0], phases[-1][1][1]), with_partitions(began), (first, first + int(rate * self.options.period / 1000))
        )

    def _phase(self, name: str, rate: float) -> tuple[str, _Span]:
        span = self._rest(rate, self.options.hot_seconds)
        say(f"  {name}: {self._per_s(span):,.0f} messages/s")
        return name, span

    def _balancing(self, span: _Span, distributor: Any, period: tuple[int, int]) -> dict[str, float]:
        """Return what balancing has done and sent.

        :param distributor: that of the first plan.
        :param period: the first message of a period, and the one after its last one.
        """
        seconds, plans = (span[1] - span[0]) / 1000, sum(len(record.value or b"") for record in self._read(self.topics.plans))
        found = {
            "seconds": seconds,
            "decisions": round(self.history.growth(ROUTING_UNITS, "metrics/balance_decisions", *span)),
            "refusals": round(self.history.growth(ROUTING_UNITS, "metrics/balance_refusals", *span)),
            "transferred": round(self.history.growth(EVALUATORS, "metrics/transferred", *span)),
            "reports_bytes_per_s": self._sent(span)["balance"] / seconds,
            "plans_bytes_per_s": plans * (1 + self.options.evaluators) / seconds,  # to their topic, and to each evaluator
        }
        if isinstance(distributor, AGridDistributor):
            rows = [json.loads(record.value) for record in self._read(self.topics.messages, *period)]
            size = cell_bytes(distributor, np.array([r["lat"] for r in rows]), np.array([r["lon"] for r in rows]))
            found |= {"cells_per_period": size // _CELL_BYTES, "centralized_bytes_per_s": size * 1000 / self.options.period}
        return found

    def _row(self, span: _Span, latencies: Latencies | None) -> dict[str, Any]:
        later = (span[0] + span[1]) / 2, span[1]
        return {
            "per_s": self._per_s(span),
            "later_per_s": self._per_s(later),
            "busy": self._busy(span),
            "later_busy": self._busy(later),
            "decisions": round(self.history.growth(ROUTING_UNITS, "metrics/balance_decisions", *span)),
            "transferred": round(self.history.growth(EVALUATORS, "metrics/transferred", *span)),
            **(_shares(latencies, span) if latencies is not None and span[0] >= self.result["steady_ms"] else {}),
        }


def _shares(latencies: Latencies, span: _Span) -> dict[str, float]:
    """Return which shares of the messages of a span waited how long for their first match; {} if none has a match."""
    some = np.array(latencies.first_between(*span))
    if not len(some):
        return {}
    below = [float(np.mean(some < limit)) for limit in _LIMITS_MS]
    return {"below_100_ms": below[0], "to_1_s": below[1] - below[0], "above_1_s": 1 - below[1]}


def changed_partitions(before: Mapping[str, Any], after: Mapping[str, Any]) -> int:
    """Return how many partitions of a plan another one does not have: the same cells and words on the same tasks."""

    def rows(plan: Mapping[str, Any]) -> set[str]:
        return {repr([row["cells"], row["tasks"], row.get("named"), row.get("share")]) for row in with_partitions(plan).partitions()}

    return len(rows(after) - rows(before))


def shifted(plan: Mapping[str, Any], lat: np.ndarray, lon: np.ndarray, quantile: float) -> dict[str, Any]:
    """Return the plan in which the border of partitions 0 and 1 is at a quantile of the places in both; they share a whole side.

    :param lat, lon: float64[n], places in degrees.
    """
    distributor = with_partitions(plan)
    assert isinstance(distributor, AGridDistributor)
    one, other = (distributor.grid.cells(number) for number in (0, 1))
    x, y = distributor.grid.cells_of(lat, lon)
    both = one.union(other)
    assert both is not None
    inside = (x >= both.x0) & (x < both.x1) & (y >= both.y0) & (y < both.y1)
    east = one.y0 == other.y0
    at = int(np.quantile((x if east else y)[inside], quantile))
    low = (0, 1) if (one.x0, one.y0) < (other.x0, other.y0) else (1, 0)
    border = distributor.grid.cells(low[1]).x0 if east else distributor.grid.cells(low[1]).y0
    giver, taker = low if at < border else low[::-1]
    return distributor.shift(giver, taker, at)


def cell_bytes(distributor: AGridDistributor, lat: np.ndarray, lon: np.ndarray) -> int:
    """Return what centralized balancing sends at least for some messages: 12 bytes for each cell that has one."""
    x, y = distributor.grid.cells_of(lat, lon)
    return _CELL_BYTES * len(np.unique(x * distributor.grid.rows + y))


def _now_ms() -> float:
    return time.time_ns() // 1_000_000
