"""The balancing simulation on a tiny workload: what it routes and counts is what plain sums give, and what it reports is computed."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from dskype.deploy.lab.corpus import Corpus
from dskype.deploy.lab.tornado.balancing import GOALS, HEADINGS, run_all, table
from dskype.deploy.lab.tornado.balancing_simulation import BalancingSetting, Evaluators, learned_grid, simulate
from dskype.deploy.lab.tornado.balancing_workload import WorkloadSetting, play
from dskype.distribution.agrid.aggregates import Workload
from dskype.distribution.agrid.balancing import Balance, Shift, decide, sized, summarize

TINY = WorkloadSetting(grid=60, subscriptions=200, lifetime_s=20, side=0.05, messages_per_s=500, calm_s=8, moves=2, hot_s=30, hot_scale=0.3)


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    rng = random.Random(1)
    texts = [" ".join(rng.choices([f"w{i}" for i in range(40)], [1 / (i + 1) for i in range(40)], k=rng.randint(0, 6))) for _ in range(800)]
    lat, lon = (np.array([rng.gauss(0, 10) for _ in texts]) for _ in range(2))
    return Corpus.of_texts("words", texts, lat, lon)


def test_a_workload_is_the_same_each_time_and_its_costs_are_plain_counts(corpus):
    setting = replace(TINY, calm_s=2, hot_s=2, hot_share=1.0)
    first, again = list(play(corpus, setting)), list(play(corpus, setting))
    assert [second.phase for second in first] == [0, 0, 1, 1, 2, 2]
    for one, other in zip(first, again, strict=True):
        assert all((a == b).all() for a, b in zip(one[:-1], other[:-1], strict=True))
        assert (one.cost >= 1).all() and len(one.replaced) == 10
    assert sum(second.cost.sum() for second in first) > sum(len(second.x) for second in first), "some messages concern subscriptions"
    calm, hot = (np.std(first[number].places, axis=0).sum() for number in (0, 2))
    assert hot < TINY.hot_scale * calm * 1.2, "a hotspot is the whole workload, condensed"


def test_workloads_stay_those_of_plain_sums_through_operations(corpus):
    seconds = list(play(corpus, replace(TINY, hot_s=6)))
    evaluators = Evaluators(learned_grid(seconds[:2], TINY.grid, 8), seconds[1].boxes)
    received, operations = [], 0
    for second in seconds[2:]:
        loads = evaluators.receive(second)
        received.append(second)
        assert loads.sum() == second.cost.sum()
        boxes = evaluators.grid.partitions()
        for operation in decide(boxes, [summarize(e, w, boxes) for e, w in evaluators.workloads.items()], Balance(beta=0.01)):
            chosen = sized(operation, evaluators.workloads[operation.source], 0.01) if isinstance(operation, Shift) else operation
            if chosen is not None:
                assert all(sent >= 0 for sent in evaluators.sent(chosen).values())
                evaluators.carry_out(chosen)
                operations += 1
        evaluators.grid._check()
        for evaluator, cells in evaluators.grid.partitions().items():
            plain = Workload(cells)
            for past in received:
                inside = (past.x >= cells.x0) & (past.x < cells.x1) & (past.y >= cells.y0) & (past.y < cells.y1)
                plain.record(past.x[inside], past.y[inside], past.cost[inside])
            overlapping = (second.boxes[:, 0] < cells.x1) & (second.boxes[:, 2] > cells.x0) & (second.boxes[:, 1] < cells.y1) & (second.boxes[:, 3] > cells.y0)
            workload = evaluators.workloads[evaluator]
            workload._check()
            assert workload.cost == pytest.approx(plain.cost) and workload.queries == overlapping.sum()
    assert operations > 5


def test_balancing_follows_the_hotspot_and_sends_little(corpus):
    setting = BalancingSetting(8, workload=TINY)
    adaptive, static = simulate(corpus, setting), simulate(corpus, replace(setting, adaptive=False))
    assert static["operations"] == {"shift": 0, "corner shift": 0, "split/merge": 0} and not sum(static["sent_bytes"])
    assert sum(adaptive["operations"].values()) > 5 and sum(adaptive["transferred"]) > 0
    assert np.mean(adaptive["balance"][-15:]) < np.mean(static["balance"][-15:]) / 2
    assert sum(adaptive["sent_bytes"]) < sum(adaptive["centralized_bytes"])


def test_the_table_has_a_row_for_each_number_of_evaluators_and_a_line_for_each_goal(corpus):
    said: list[str] = []
    found = run_all(corpus, [BalancingSetting(n, workload=replace(TINY, hot_s=24)) for n in (4, 8)], said.append)
    assert said == ["4 evaluators", "8 evaluators"] and all(set(row) == set(HEADINGS) for row in found)
    lines = table(found).splitlines()
    assert [line.split("|")[1].strip() for line in lines[2:4]] == ["4", "8"]
    assert sum(line.startswith("- ") for line in lines) == len(GOALS)
    assert found[1]["speed_up"] > 1
