"""Tornado on Spark and Kafka: throughput before, during and after moves of partitions, and what load balancing sends.

Two scenes, each with a topology of its own, boolean subscriptions, and always more messages in Kafka than can be applied:

1. *By hand.* The border of two partitions is shifted back and forth. A move lasts from the moment at which its plan is sent until no distribution task
   has routes of the plan before it. Its throughput is compared with that of the rests before and after it.
2. *By load.* A hotspot moves twice, with ``dskype.balance: auto`` and without. What balancing sends is the stream ``balance``, and the plans and
   partition maps. It is compared with centralized balancing, which sends 12 bytes for each cell with messages once in a period.

All tasks share the cores of this machine. So balanced tasks show in their busy times, and hardly in the throughput.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from dskype.deploy.benchmarks import throughput, throughput_report
from dskype.deploy.benchmarks.emulator.measure import print_table
from dskype.deploy.benchmarks.papers.experiments import HELD
from dskype.deploy.cli.arguments import output, positive, positive_seconds, seconds, target
from dskype.deploy.client.balancing import balance
from dskype.deploy.client.plans import read_current, send_plan, with_partitions
from dskype.deploy.client.pubsub import PubSub
from dskype.deploy.demo.places import places
from dskype.deploy.machine.signals import end_on_sigterm
from dskype.deploy.machine.terminal import say
from dskype.distribution import AGridDistributor
from dskype.topology.local import LocalCluster

__all__ = ["add_arguments", "cell_bytes", "claims", "run", "shifted"]

_STEP_S = 0.1
_ROUTING_UNITS, _EVALUATORS = "distribution-bolt", "subscription-bolt"
_NEAR, _FAR = 0.35, 0.65
"""The border goes back and forth between these quantiles of the messages in both partitions, so that a move concerns a third of the subscriptions."""
_HOTSPOTS = ((-125.0, 25.0, -65.0, 55.0), (68.0, 5.0, 125.0, 45.0))
_HOT_SHARE = 0.8
_CELL_BYTES = 12
_STREAMS = {
    "transfers": (_EVALUATORS, _EVALUATORS),
    "placements": (_ROUTING_UNITS, _EVALUATORS),
    "shortages": (_EVALUATORS, _ROUTING_UNITS),
    "interest": (_ROUTING_UNITS, _ROUTING_UNITS),
    "balance": (_EVALUATORS, _ROUTING_UNITS),
}
"""Stream -> the component that sends it, and the one that receives and counts it."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the benchmark's own options, besides those of ``arguments.common``."""
    parser.add_argument("--subscriptions", type=positive, metavar="N", default=20_000, help="boolean subscriptions; default: 20000")
    parser.add_argument("--evaluators", type=positive, metavar="N", default=2, help="tasks of the subscription bolt; default: 2")
    parser.add_argument("--routing-units", type=positive, metavar="N", default=2, help="tasks of the distribution bolt; default: 2")
    parser.add_argument("--moves", type=positive, metavar="N", default=4, help="moves by hand; default: 4")
    parser.add_argument("--warm-up", type=seconds, metavar="SECS", default=30, help="full load before each scene; default: 30")
    parser.add_argument("--seconds", type=positive_seconds, metavar="SECS", default=10, help="rest before and after a move; default: 10")
    parser.add_argument("--hot-seconds", type=seconds, metavar="SECS", default=30, help="how long each hotspot lasts; 0: no scene by load; default: 30")
    parser.add_argument("--period", type=positive, metavar="MS", default=1000, help="dskype.balance.period.ms; default: 1000")
    parser.add_argument("--seed", type=int, default=0, help="default: 0")
    output(parser)


def run(args: argparse.Namespace) -> int:
    """Run all scenes; print tables or JSON.

    :returns: 0; 1 if components reported errors or messages were refused, so that the figures cannot be trusted.
    """
    where = target(args)
    end_on_sigterm()
    scenes: list[tuple[str, type[_Scene], dict[str, Any]]] = [("by hand", _ByHand, {})]
    if args.hot_seconds:
        scenes += [("without balancing", _ByLoad, {}), ("with balancing", _ByLoad, {"dskype.balance": "auto", "dskype.balance.period.ms": args.period})]
    found: dict[str, Any] = {"machine": throughput_report.machine(), "subscriptions": args.subscriptions, "scenes": {}}
    with tempfile.TemporaryDirectory(prefix="dskype-moves-") as folder:
        asked = _throughput_arguments(args)
        vocabulary = throughput.build_vocabulary(asked, Path(folder))
        for name, kind, more in scenes:
            say(name)
            conf = throughput.configuration(asked, vocabulary) | {"dskype.distributor": "agrid"} | more
            with LocalCluster(bootstrap_servers=where.bootstrap_servers, master=where.master, conf=where.conf, progress=say) as cluster:
                scene = kind(cluster, asked, args.subscriptions, conf)
                scene.options = args
                found["scenes"][name] = scene.measure()
    found["claims"] = claims(found["scenes"])
    return throughput.finish(args.output, found, _print, found["scenes"])


def _throughput_arguments(args: argparse.Namespace) -> argparse.Namespace:
    """Return the arguments of the throughput benchmark, whose topology, feeder and warm-up are used."""
    options = ["--boolean", "--subscriptions", args.subscriptions, "--warm-up", args.warm_up, "--seconds", args.seconds, "--latency-seconds", 0]
    options += ["--seed", args.seed, "--tasks", f"{_EVALUATORS}={args.evaluators}", "--tasks", f"{_ROUTING_UNITS}={args.routing_units}"]
    return throughput.arguments_for(args, *options)


# --- scenes -----------------------------------------------------------------------------------------------------------


class _Scene(throughput.Run):
    """A topology under full load.

    :ivar options: of this benchmark.
    """

    options: argparse.Namespace

    def _throughput(self) -> None:
        rate = self._warm_up()
        self.result["warm_up_per_s"] = rate
        with closing(PubSub(self.kafka, self.name)) as client:
            self._play(client, rate)
        self._wait_applied(self.feeder.written)

    def _play(self, client: PubSub, rate: float) -> None:
        raise NotImplementedError

    def _keep_busy(self, rate: float, least_s: float) -> None:
        self._keep_backlog(rate, least_s + 4)
        time.sleep(_STEP_S)

    def _rest(self, rate: float, seconds: float) -> tuple[float, float]:
        """Keep the topology busy; return the beginning and the end, epoch ms."""
        start_ms = _now_ms()
        while (left_s := seconds - (_now_ms() - start_ms) / 1000) > 0:
            self._keep_busy(rate, left_s)
        return start_ms, _now_ms()

    def _settle(self) -> None:
        """Wait until the reports cover everything so far."""
        now_ms = _now_ms()
        self._wait(lambda: min(self.history.last_ms(c) for c in (_EVALUATORS, _ROUTING_UNITS)) >= now_ms, "reports")

    def _per_s(self, span: tuple[float, float]) -> float:
        start_ms, stop_ms = span
        return (self._applied(stop_ms) - self._applied(start_ms)) * 1000 / max(1.0, stop_ms - start_ms)

    def _sent(self, span: tuple[float, float]) -> dict[str, float]:
        """Return the bytes of each stream of :data:`_STREAMS` in a span of time."""
        return {stream: self.history.growth(to, f"stream_bytes/{source}/{stream}", *span) for stream, (source, to) in _STREAMS.items()}

    def _busy(self, span: tuple[float, float]) -> float:
        """Return the greatest busy time of an evaluator by the mean."""
        start, stop = ([self.history.value_at(task, "busy_ns", at) or 0 for task in self.history.tasks(_EVALUATORS)] for at in span)
        return balance(np.array(stop) - np.array(start))


class _ByHand(_Scene):
    """Shifts a border back and forth."""

    def _play(self, client: PubSub, rate: float) -> None:
        options, units = self.options, self.options.routing_units
        sample = places(options.seed)
        spans: list[dict[str, tuple[float, float]]] = []
        before = self._rest(rate, options.seconds)
        for number in range(options.moves):
            version, plan = read_current(client)
            quantile = (_FAR, _NEAR)[number % 2]
            began_ms = _now_ms()
            send_plan(client, version + 1, shifted(plan, sample.lat, sample.lon, quantile))
            deadline = time.monotonic() + self.args.timeout
            while not self._is_over(version + 1, units) and time.monotonic() < deadline:
                self._keep_busy(rate, _STEP_S)
            during = began_ms, _now_ms()
            after = self._rest(rate, options.seconds)
            spans.append({"before": before, "during": during, "after": after})
            before = after
        self._settle()
        self.result["moves"] = [self._row(one) for one in spans]
        for row in self.result["moves"]:
            say(f"  {row['before']:,.0f}, {row['during']:,.0f}, {row['after']:,.0f} messages/s before, during and after a move of {row['seconds']:.1f} s")

    def _is_over(self, version: int, units: int) -> bool:
        total = self.history.total
        return total(_ROUTING_UNITS, "metrics/plan_version") >= units * version and not total(_ROUTING_UNITS, "metrics/plan_changing")

    def _row(self, spans: Mapping[str, tuple[float, float]]) -> dict[str, float]:
        during = spans["during"]
        return {
            **{name: self._per_s(span) for name, span in spans.items()},
            "seconds": (during[1] - during[0]) / 1000,
            "moved": self.history.growth(_EVALUATORS, "metrics/transferred", *during),
            **{f"{stream}_bytes": size for stream, size in self._sent(during).items()},
        }


class _ByLoad(_Scene):
    """Moves a hotspot."""

    def _play(self, client: PubSub, rate: float) -> None:
        spans, grid = [self._rest(rate, self.options.hot_seconds)], with_partitions(read_current(client)[1])
        assert isinstance(grid, AGridDistributor)
        first = self.feeder.written
        for box in _HOTSPOTS:
            self.feeder.hotspot(box, _HOT_SHARE)
            self._wait_applied(self.feeder.written)  # messages from before it
            spans.append(self._rest(rate, self.options.hot_seconds))
        self._settle()
        rows = [json.loads(record.value) for record in self._read(self.topics.messages, first, first + int(rate * self.options.period / 1000))]
        self.result["cells_per_period"] = cell_bytes(grid, np.array([r["lat"] for r in rows]), np.array([r["lon"] for r in rows])) // _CELL_BYTES
        self.result["phases"] = [self._row(span) for span in spans]
        total = spans[0][0], spans[-1][1]
        plans = sum(len(record.value or b"") for record in self._read(self.topics.plans))
        seconds = (total[1] - total[0]) / 1000
        self.result["balancing"] = {
            "seconds": seconds,
            "decisions": self.history.growth(_ROUTING_UNITS, "metrics/balance_decisions", *total),
            "transferred": self.history.growth(_EVALUATORS, "metrics/transferred", *total),
            "reports_bytes_per_s": self._sent(total)["balance"] / seconds,
            "plans_bytes_per_s": plans * (1 + self.options.evaluators) / seconds,  # to their topic, and as a map to each evaluator
            "centralized_bytes_per_s": self.result["cells_per_period"] * _CELL_BYTES * 1000 / self.options.period,
        }

    def _row(self, span: tuple[float, float]) -> dict[str, float]:
        later = (span[0] + span[1]) / 2, span[1]
        return {
            "per_s": self._per_s(span),
            "later_per_s": self._per_s(later),
            "busy": self._busy(span),
            "later_busy": self._busy(later),
            "decisions": self.history.growth(_ROUTING_UNITS, "metrics/balance_decisions", *span),
            "transferred": self.history.growth(_EVALUATORS, "metrics/transferred", *span),
        }


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


# --- what was found ---------------------------------------------------------------------------------------------------


def claims(scenes: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, bool, str]]:
    """Return (claim, whether it held, the figures) for our goals."""
    found = []
    moves = scenes.get("by hand", {}).get("moves", [])
    if moves:
        shares = [row["during"] / max(1.0, row["before"]) for row in moves]
        mean = float(np.mean(shares))
        found.append(("throughput during a move >= 70 % of that before", mean >= 0.7, ", ".join(f"{share:.0%}" for share in shares) + f": mean {mean:.0%}"))
    sent = scenes.get("with balancing", {}).get("balancing")
    if sent:
        own = sent["reports_bytes_per_s"] + sent["plans_bytes_per_s"]
        times = sent["centralized_bytes_per_s"] / max(1.0, own)
        text = f"{own:,.0f} bytes/s against {sent['centralized_bytes_per_s']:,.0f}: 1/{times:.0f}"
        found.append(("balancing sends <= 1/20 of what centralized balancing sends", times >= 20, text))
    return found


_MOVES = {
    "moved": "subscriptions",
    "seconds": "seconds",
    "before": "messages/s before",
    "during": "during",
    "after": "after",
    "transfers_bytes": "bytes of transfers",
    "placements_bytes": "of placements",
    "shortages_bytes": "of reports",
    "interest_bytes": "of interest",
}
_PHASES = {
    "per_s": "messages/s",
    "later_per_s": "in the second half",
    "busy": "busiest / mean",
    "later_busy": "in the second half",
    "decisions": "decisions",
    "transferred": "subscriptions moved",
}


def _print(found: Mapping[str, Any]) -> None:
    scenes = found["scenes"]
    if moves := scenes.get("by hand", {}).get("moves"):
        print_table(
            f"Moves by hand, {found['subscriptions']:,} boolean subscriptions",
            ["move", *_MOVES.values()],
            [[str(number), *_cells(row, _MOVES)] for number, row in enumerate(moves, 1)],
        )
    phases = [
        [f"{name}, {'no hotspot' if not number else f'hotspot {number}'}", *_cells(row, _PHASES)]
        for name, scene in scenes.items()
        for number, row in enumerate(scene.get("phases", ()))
    ]
    if phases:
        print_table("A hotspot that moves", ["", *_PHASES.values()], phases)
    if sent := scenes.get("with balancing", {}).get("balancing"):
        print_table("What balancing sends", list(sent), [_cells(sent, sent)])
    for claim, held, text in found["claims"]:
        print(f"{claim}: {HELD[held]}: {text}")


def _cells(row: Mapping[str, float], columns: Mapping[str, Any] | Sequence[str]) -> list[str]:
    return [f"{row[key]:,.2f}" if row[key] < 100 and row[key] != int(row[key]) else f"{row[key]:,.0f}" for key in columns]


def _now_ms() -> float:
    return time.time_ns() // 1_000_000
