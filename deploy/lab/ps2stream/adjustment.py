"""Load adjustment in the simulation of PS2Stream (ICDE 2017, section VI-D): what is selected, what is moved, what that costs, and what it gains.

The workload is Q3. In a *drift* ten of its 100 regions after another change from one group of subscriptions to the other, and the last ten have several times as many messages and subscriptions as before.
Plans are learned before it, and adjusted by as many recent messages and subscriptions as ``dskype.balance: auto`` samples. What is moved is counted over all subscriptions, and the time of moving them is
measured on an index.

The throughput is measured, and also computed by the load model from all messages and subscriptions. The latter is the same on every machine, however busy, so claims are checked with it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from dskype.bolts.boolean import make_index
from dskype.deploy.lab.boolean.workloads import crowded
from dskype.deploy.lab.corpus import Corpus
from dskype.deploy.lab.ps2stream.simulation import Method, RegionalWorkload, UpdatedSimulation, draw_group, learn
from dskype.deploy.lab.tornado.simulation import RoutingScale
from dskype.distribution.base import Sample
from dskype.distribution.hybrid.distributor import HybridDistributor
from dskype.distribution.hybrid.kdt_tree import divide_space
from dskype.distribution.hybrid.migration import SELECTIONS, Movable, loads_of_zones
from dskype.distribution.learning.recent_sample import sample_of
from dskype.distribution.subscriptions import BooleanSubscription, decode_subscription
from dskype.spouts.settings import DEFAULTS
from dskype.topology.core.values import pack_state, unpack_state

__all__ = ["AdjustmentBench", "DriftRun", "MigrationRun", "SelectionRun", "delays", "sampled"]

_HYBRID = Method("hybrid")
_CROWDED, _TIMES = 10, 4
"""How many regions have more messages than before, and how many times as many."""

_PORTION = 512
"""Subscriptions that move at a time."""

_LOAD = 0.7
"""What share of its capacity the busiest worker gets while subscriptions move."""

_SECONDS = 10.0
"""How long latencies are observed from the beginning of a migration on."""

_MOVED_TO_MEASURE = 2_000

_SAMPLED = int(DEFAULTS["dskype.balance.sample"])
"""The size of the samples that load balancing makes by itself."""

_SELECTED_FROM = 8
"""The most loaded workers, from which a quarter of the load is to be moved."""


@dataclass(frozen=True)
class SelectionRun:
    """Selections of a quarter of the load of one worker: how long they take, and what they move. The mean of the most loaded workers.

    :ivar cells: how many small rectangles the zones of a worker are cut into.
    :ivar share: of the subscriptions.
    """

    selection: str
    cells: int
    share: float = 1.0
    workers: int = 32
    method: Method = _HYBRID


@dataclass(frozen=True)
class MigrationRun:
    """One local adjustment after a drift.

    :ivar switched: regions that have changed, of 100.
    """

    selection: str
    switched: int = 30
    share: float = 1.0
    workers: int = 32
    method: Method = _HYBRID


@dataclass(frozen=True)
class DriftRun:
    """The throughput while regions change, 10 more in each interval.

    :ivar way: ``none``: the plan stays; ``local``: it is adjusted in each interval; ``scratch``: it is learned again.
    :ivar switched: regions that have changed, of 100.
    """

    way: str
    switched: int
    workers: int = 32
    method: Method = _HYBRID


def sampled(sample: Sample, most: int) -> Sample:
    """Return a sample of at most ``most`` messages and subscriptions of another one, the first ones."""
    n = min(most, sample.n)
    messages = sample.messages.slice(0, min(most, sample.messages.n))
    return sample_of(messages, sample.rectangles()[:n], sample.offsets[: n + 1], sample.terms[: sample.offsets[n]])


def delays(work: tuple[float, int], arrivals: np.ndarray, service_s: float) -> np.ndarray:
    """Return the latency of each message at a worker that takes part in a migration from time 0 on, in seconds.

    The worker does a portion of the migration, then handles all messages that have come meanwhile, and so on.

    :param work: seconds of a portion, and how many portions there are.
    :param arrivals: float64[n], rising, seconds; ``service_s``: of each message.
    """
    portion_s, portions = work
    found, now, at = np.zeros(len(arrivals)), 0.0, 0
    while at < len(arrivals):
        if portions:
            now, portions = now + portion_s, portions - 1
            end = max(int(np.searchsorted(arrivals, now, side="right")), at)
        else:
            end = len(arrivals)
        steps = np.arange(1, end - at + 1) * service_s
        done = np.maximum.accumulate(np.maximum(arrivals[at:end], now) - steps + service_s) + steps
        found[at:end] = done - arrivals[at:end]
        now, at = float(done[-1]) if end > at else now, end
    return found


class AdjustmentBench:
    """Runs the settings of this module.

    :param index: name of the index of each worker.
    """

    def __init__(self, corpus: Corpus, scale: RoutingScale, index: str) -> None:
        self._corpus, self._scale, self._index = corpus, scale, index
        self._workloads: dict[tuple[int, float], RegionalWorkload] = {}
        self._throughputs: dict[tuple[int, str], dict[str, Any]] = {}
        self._plans: dict[Any, dict[str, Any]] = {}

    def run(self, setting: SelectionRun | MigrationRun | DriftRun) -> dict[str, Any]:
        """Measure a setting."""
        if isinstance(setting, SelectionRun):
            return self._selection(setting)
        return self._migration(setting) if isinstance(setting, MigrationRun) else self._drift(setting)

    # -- workloads and plans ------------------------------------------------------------------------------------------

    def _workload(self, switched: int, share: float = 1.0) -> RegionalWorkload:
        key = switched, share
        if key not in self._workloads:
            self._workloads.clear()  # one at a time in memory
            scale = replace(self._scale, subscriptions=max(1, round(share * self._scale.subscriptions)))
            hot = slice(max(0, switched - _CROWDED), switched)
            self._workloads[key] = draw_group(crowded(self._corpus, hot, _TIMES, scale.seed), "q3", scale, switched=switched)
        return self._workloads[key]

    def _distributor(self, plan: dict[str, Any], workload: RegionalWorkload) -> HybridDistributor:
        return HybridDistributor(plan["tasks"], {"subscriptions": workload.subscriptions.n}, plan)

    def _learned(self, workers: int, switched: int, share: float = 1.0) -> dict[str, Any]:
        key = workers, switched, share
        if key not in self._plans:
            self._plans[key] = learn(_HYBRID, workers, self._workload(switched, share), self._scale.grid).plan()
        return self._plans[key]

    def _throughput(self, distributor: HybridDistributor, workload: RegionalWorkload) -> tuple[dict[str, Any], UpdatedSimulation]:
        simulation = UpdatedSimulation(workload, distributor, True, self._index, self._scale.step, self._scale.repeat)
        found = simulation.run()
        kept = ("throughput", "communication", "replication", "ratio_load", "ratio_busy", "balance_busy", "dispatcher_mib", "different", "matches")
        loads = self._loads(distributor, workload)
        modelled = {"modelled": 1e6 / float(loads.max()), "ratio_modelled": float(loads.max() / max(1e-9, loads.min()))}
        return {name: found[name] for name in kept} | modelled | {"measured": self._scale.messages}, simulation

    def _loads(self, distributor: HybridDistributor, workload: RegionalWorkload) -> np.ndarray:
        """Return the load of each worker by the load model, for all messages and subscriptions, in us for a message."""
        return loads_of_zones(
            distributor.root_of(sample_of(workload.messages, workload.subscriptions.boxes, workload.offsets, workload.terms)),
            distributor.gridt.zones,
            distributor.tasks,
        ) / max(1, workload.messages.n)

    # -- Figures 12a and 13 -------------------------------------------------------------------------------------------

    def _selection(self, setting: SelectionRun) -> dict[str, Any]:
        plan = self._learned(setting.workers, 0, setting.share)
        workload = self._workload(0, setting.share)
        distributor = self._distributor(plan, workload)
        root = distributor.root_of(sampled(workload.sample, _SAMPLED))
        select, found = SELECTIONS[setting.selection], []
        for worker in np.argsort(-distributor.loads(), kind="stable")[:_SELECTED_FROM].tolist():
            own = [root.inside(zone.cells) for zone in distributor.gridt.zones if worker in {part.task for part in zone.parts}]
            leaves = []
            for leaf in own:
                *_, pieces = divide_space(leaf, max(1, setting.cells // len(own)))
                leaves += [piece for piece in pieces if piece.load > 0]
            movable = Movable(np.array([leaf.load for leaf in leaves]), [leaf.subscriptions for leaf in leaves], np.zeros(root.loads.sample.n, np.bool_))
            chosen, us = _timed(partial(select, movable, float(movable.loads.sum()) / 4), 1)
            found.append((us / 1e3, len(leaves), int(movable.sizes[chosen].sum()), movable.moved(chosen)))
        ms, cells, sizes, moved = (float(np.mean(one)) for one in zip(*found))
        scale = workload.subscriptions.n / max(1, root.loads.sample.n)
        return {"select_ms": ms, "cells": cells, "sizes": round(scale * sizes), "moved": round(scale * moved), "subscriptions": workload.subscriptions.n}

    # -- Figures 12b, 12c, 14 and 15 ----------------------------------------------------------------------------------

    def _migration(self, setting: MigrationRun) -> dict[str, Any]:
        plan = self._learned(setting.workers, 0, setting.share)
        workload = self._workload(setting.switched, setting.share)
        before = self._distributor(plan, workload)
        recent = sampled(workload.sample, _SAMPLED)
        (new, adjusted), adjust_us = _timed(lambda: before.adjusted(recent, setting.selection), 1, 2)
        adjust_s = adjust_us / 1e6
        after = self._distributor(new, workload)
        given, taken = self._moves(before, after, workload)
        give_us, take_us, size_bytes = self._moving_us(workload)
        work_s = (given * give_us + taken * take_us) / 1e6
        found, simulation = self._throughput(after, workload)
        late = self._latencies(simulation, work_s, given + taken, adjust_s, found["throughput"])
        moved = int(taken.sum())
        described = {"moved": moved, "moved_mib": moved * size_bytes / 2**20, "move_s": float(work_s.max()), "adjust_s": adjust_s, "rounds": adjusted.rounds}
        greatest = {"greatest_before_us": adjusted.before, "greatest_after_us": adjusted.after}
        return {**found, **described, **greatest, **late, "subscriptions": workload.subscriptions.n}

    def _moves(self, before: HybridDistributor, after: HybridDistributor, workload: RegionalWorkload) -> tuple[np.ndarray, np.ndarray]:
        """Return how many subscriptions each worker gives away, and how many it gets, int64[workers]."""
        held = []
        for distributor in (before, after):
            offsets, tasks, _ = distributor.place_all(workload.places)
            held.append(np.repeat(np.arange(len(offsets) - 1), np.diff(offsets)) * distributor.tasks + tasks)
        gone, new = np.setdiff1d(held[0], held[1]), np.setdiff1d(held[1], held[0])
        return np.bincount(gone % before.tasks, minlength=before.tasks), np.bincount(new % before.tasks, minlength=before.tasks)

    def _moving_us(self, workload: RegionalWorkload) -> tuple[float, float, float]:
        """Return what it takes to give a subscription away, and to get one, in us; and its bytes."""
        s = workload.subscriptions
        rows = np.arange(min(_MOVED_TO_MEASURE, s.n))
        index, boxes, expressions = make_index(self._index), s.boxes[rows], s.expressions(rows)
        some = [BooleanSubscription(box, expression, None, None) for box, expression in zip(boxes.tolist(), expressions)]
        packed, encode_us = _timed(lambda: [pack_state(one.encode()) for one in some], len(rows))
        _, decode_us = _timed(lambda: [decode_subscription(unpack_state(one)) for one in packed], len(rows))
        turns = [
            (_timed(lambda: index.insert_many(rows, boxes, expressions), len(rows), 1)[1], _timed(lambda: index.remove_many(rows), len(rows), 1)[1])
            for _ in range(3)
        ]
        insert_us, remove_us = map(min, zip(*turns))
        return encode_us + remove_us, decode_us + insert_us, float(np.mean([len(one) for one in packed]))

    def _latencies(self, simulation: UpdatedSimulation, work_s: np.ndarray, moved: np.ndarray, blocked_s: float, throughput: float) -> dict[str, float]:
        """Return the latency of messages while subscriptions move, and which shares of them wait how long.

        :param work_s: of each worker; ``moved``: subscriptions that it gives or gets.
        :param blocked_s: how long the dispatcher that adjusts the plan handles nothing.
        """
        rng = np.random.default_rng(19)
        received = sum(frames.received for frames in simulation.frames)
        busy, found = simulation.busy.sum(axis=0), []
        per_s = _LOAD * throughput * received / self._scale.messages
        for worker in range(simulation.tasks):
            n = int(per_s[worker] * _SECONDS)
            arrivals = np.sort(rng.uniform(0, _SECONDS, n))
            held_until = np.maximum(arrivals, blocked_s)  # by the dispatcher
            portions = -(-int(moved[worker]) // _PORTION)
            portion_s = float(work_s[worker]) / portions if portions else 0.0
            if n:
                found.append(delays((portion_s, portions), held_until, float(busy[worker] / max(1, received[worker]))) + held_until - arrivals)
        late = np.concatenate(found) * 1e3
        return {
            "p50_ms": float(np.percentile(late, 50)),
            "p99_ms": float(np.percentile(late, 99)),
            "below_100_ms": float(np.mean(late < 100)),
            "above_1_s": float(np.mean(late > 1000)),
        }

    # -- Figure 16 ----------------------------------------------------------------------------------------------------

    def _drift(self, setting: DriftRun) -> dict[str, Any]:
        workers, switched = setting.workers, setting.switched
        if setting.way == "local":
            plan = self._followed(workers, switched)
        else:
            plan = self._learned(workers, switched if setting.way == "scratch" else 0)
        key = switched, repr(plan["zones"])
        if key not in self._throughputs:
            workload = self._workload(switched)
            self._throughputs[key] = self._throughput(self._distributor(plan, workload), workload)[0]
        return {**self._throughputs[key], "zones": len(plan["zones"])}

    def _followed(self, workers: int, switched: int) -> dict[str, Any]:
        """Return the plan that is adjusted in each interval."""
        if not switched:
            return self._learned(workers, 0)
        key = "followed", workers, switched
        if key not in self._plans:
            plan = self._followed(workers, switched - 10)
            workload = self._workload(switched)
            self._plans[key] = self._distributor(plan, workload).adjusted(sampled(workload.sample, _SAMPLED))[0]
        return self._plans[key]


def _timed(function: Callable[[], Any], n: int, turns: int = 3) -> tuple[Any, float]:
    """Return what a function returns, and its least time in us for each of ``n``."""
    spent, found = [], None
    for _ in range(turns):
        began = time.perf_counter()
        found = function()
        spent.append(time.perf_counter() - began)
    return found, min(spent) / n * 1e6
