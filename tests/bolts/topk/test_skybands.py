"""What is special about skyband buffers: dominance, ties, the limit, and what the cost model says."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from dskype.bolts.topk.base import Matches
from dskype.bolts.topk.buffers.cost import LEAST_RHO, MOST_RHO, CostModel, Pace
from dskype.bolts.topk.buffers.skyband import CostSkybandBuffers
from dskype.deploy.lab.skype.skybands import KSkybandBuffers, SkybandBuffers
from dskype.topology.core.values import pack_state, unpack_state
from dskype.topology.errors import IllegalArgumentException
from tests.bolts.topk.test_buffers import Stream, as_lists, bare_messages

pytestmark = pytest.mark.long

ONE = np.array([0], np.int32)
SKYBANDS = [SkybandBuffers, KSkybandBuffers, CostSkybandBuffers]


def skyband(entries, k):
    """Those with fewer than k others that rank before them and expire no sooner, in rank order."""
    return [e for e in sorted(entries, reverse=True) if sum(o > e and o[1] >= e[1] for o in entries) < k]


def entries_of(buffers):
    state = buffers.snapshot()
    return list(zip(state["scores"].tolist(), state["positions"].tolist(), state["seqs"].tolist()))


def arrive(buffers, entries, watermark):
    """Let (score, position, seq) arrive at slot 0; those below theta are no matches."""
    theta = buffers.thresholds(ONE)[0]
    rows = [(i, score) for i, (score, _, _) in enumerate(entries) if score >= theta]
    return buffers.apply(
        bare_messages([e[2] for e in entries], [e[1] for e in entries]),
        Matches(np.array([r[0] for r in rows], np.int32), np.zeros(len(rows), np.int32), np.array([r[1] for r in rows])),
        watermark,
    )


def opened(buffers, k, complete=True):
    buffers.open(ONE, np.array([k], np.int32), complete)
    return buffers


@pytest.mark.parametrize("seed", range(6))
def test_an_answer_becomes_the_skyband_at_or_above_theta(seed):
    """Also with many equal scores and positions, and with arrivals that came while the answer was on its way."""
    rng = random.Random(seed)
    for _ in range(40):
        k, levels = rng.choice((1, 2, 5)), rng.choice((3, 10, 1000))
        buffers = opened(SkybandBuffers(200, ratio=rng.choice((0.5, 0.9, 1.0)), reach=8), k, complete=False)
        position, window, later = 0, [], []
        for seq in range(rng.randrange(90)):
            position += rng.choice((0, 0, 1, 3))
            window.append((rng.randrange(1, levels + 1) / levels, position, seq))
        arrive(buffers, [], position)
        wanted = int(buffers.wanted(ONE)[0])
        answer = sorted(window, reverse=True)[:wanted]
        now = position + 1
        for i in range(rng.randrange(30)):
            now += rng.choice((0, 0, 2))
            later.append((rng.randrange(1, levels + 1) / levels, now, len(window) + i))
        arrive(buffers, later, now)
        step = buffers.resolve(ONE, as_lists([answer]), now)
        assert not len(step.due)
        alive = sorted((e for e in window + later if e[1] > now - 200), reverse=True)
        theta = float(buffers.thresholds(ONE)[0])
        above = [e for e in alive if e[0] >= theta]
        if len(answer) == wanted:  # of the messages with theta itself, old ones may have been cut off
            above = [e for e in above if e[0] > theta or e in answer or e in later]
        if len(alive) >= k:
            assert theta <= alive[k - 1][0]
        limit = int(buffers.limits(np.array([k]))[0])
        expected = skyband(above, k)
        assert entries_of(buffers) == expected or len(expected) == limit * 2 // 3 + len(expected) - len(entries_of(buffers))
        buffers._check(now)


def test_newer_messages_with_the_same_score_dominate_older_ones():
    buffers = opened(KSkybandBuffers(1000), 2)
    arrive(buffers, [(0.5, p, p) for p in range(200)], 199)
    held = entries_of(buffers)
    assert held[:2] == [(0.5, 199, 199), (0.5, 198, 198)]
    assert skyband(held, 2) == held[:2]
    assert buffers.sizes(ONE)[0] <= buffers.limits(np.array([2]))[0]
    assert buffers.thresholds(ONE)[0] == -np.inf  # two are enough: nothing had to be given up


@pytest.mark.parametrize("kind", SKYBANDS)
@pytest.mark.parametrize("at_once", [1, 7, 60])
def test_beyond_the_limit_theta_rises_and_no_list_is_wrong(kind, at_once):
    """Falling scores: nothing dominates anything, so all would have to be kept."""
    buffers = opened(kind(10_000), 5)
    limit = int(buffers.limits(np.array([5]))[0])
    seen, last = [], -np.inf
    for start in range(0, 420, at_once):
        position = start
        new = [(1.0 - (start + i) / 1000, position, start + i) for i in range(at_once)]
        seen += new
        step = arrive(buffers, new, position)
        theta = buffers.thresholds(ONE)[0]
        assert buffers.sizes(ONE)[0] <= limit and theta >= last and bool(len(step.retuned)) == (theta > last)
        last = theta
        assert entries_of(buffers)[:5] == sorted(seen, reverse=True)[:5]
        buffers._check(position)
    assert last > -np.inf


@pytest.mark.parametrize("kind", SKYBANDS)
def test_theta_stays_from_one_reevaluation_to_the_next(kind):
    rng = random.Random(3)
    buffers = opened(kind(2000), 5, complete=False)
    window = [(rng.random(), p, p) for p in range(2000)]
    arrive(buffers, [], 1999)
    buffers.resolve(ONE, as_lists([sorted(window, reverse=True)[: int(buffers.wanted(ONE)[0])]]), 1999)
    theta = buffers.thresholds(ONE)[0]
    due = 0
    for p in range(2000, 5000):
        window.append((rng.random(), p, p))
        step = arrive(buffers, window[-1:], p)
        due = len(step.due)
        if due:
            break
        assert buffers.thresholds(ONE)[0] == theta and not len(step.retuned)
    alive = [e for e in window if e[1] > p - 2000 and e[0] >= theta]
    assert (len(alive) < 5) == bool(due)  # exactly when too little of it is left (theorem 6)
    assert due or kind is not KSkybandBuffers


@pytest.mark.parametrize("kind", SKYBANDS)
@pytest.mark.parametrize("gaps", [False, True])
def test_lists_stay_right_while_the_window_passes_many_times(kind, gaps):
    options = {CostSkybandBuffers: {"reevaluation": 0.0, "match": 0.0}, SkybandBuffers: {"ratio": 1.0, "reach": 2.0}}.get(kind, {})
    stream = Stream(8, kind(100, **options), [1, 2, 5, 10, 20], gaps=gaps, levels=1000, chance=1.0)
    rng = random.Random(8)
    resolved = 0
    for step in range(150):
        stream.step(rng.choice((0, 1, 5)))
        slot = rng.randrange(5)
        if step % 4 == 0 and slot not in stream.open:
            one = np.array([slot], np.int32)
            stream.buffers.close(one)
            stream.buffers.open(one, np.array([stream.ks[slot]], np.int32), complete=False)
            stream.folded[slot] = []
            stream.ask(one)
        if stream.open and rng.random() < 0.6:
            resolved += len(stream.open)
            stream.answer(list(stream.open))
        stream.check()
    assert resolved > 20


def test_the_capacities_of_blocks_are_part_of_the_state():
    """When a block is full decides when theta rises, so a restored slot must be as full as it was."""
    rng = random.Random(5)
    first = opened(KSkybandBuffers(500), 3)
    second = opened(KSkybandBuffers(500), 3)
    thetas, score = [-np.inf], 1.0
    for p in range(400):
        score -= 0.02 * rng.random() / (1 + p / 10)
        score = score if score >= thetas[-1] else 1.0
        entry = [(score, p, p)]
        arrive(first, entry, p)
        arrive(second, entry, p)
        state = pack_state(second.snapshot())
        assert state == pack_state(first.snapshot())
        second = KSkybandBuffers(500)
        second.restore(unpack_state(state))
        thetas.append(first.thresholds(ONE)[0])
    assert len(set(thetas)) > 3


# -- the cost model


def walked(n: int, k: int, rho: float) -> float:
    """Expected number of steps to k - 1, from the linear equations of the walk."""
    up, down = rho / (1 + rho), 1 / (1 + rho)
    states = 2 * n - k + 1  # distances 1..2n - k + 1
    matrix = np.eye(states)
    for i in range(states):
        if i + 1 < states:
            matrix[i, i + 1] -= up
        else:
            matrix[i, i] -= up  # reflected
        if i:
            matrix[i, i - 1] -= down
    return float(np.linalg.solve(matrix, np.ones(states))[n - k])


@pytest.mark.parametrize("rho", [LEAST_RHO, 0.99, 1.0, 1.02, MOST_RHO])
def test_the_closed_form_is_the_expectation_of_the_walk(rho):
    model = CostModel(1.0, 0.0)
    for n, k in ((1, 1), (5, 1), (20, 20), (33, 20), (60, 20)):
        assert model.lasting(n, k, rho) == pytest.approx(walked(n, k, rho), rel=1e-6)


def test_without_drift_it_is_equation_15():
    model = CostModel(1.0, 0.0)
    for n, k in ((20, 20), (50, 20), (90, 7)):
        assert model.lasting(n, k) == 2 * (n - k + 1) * n + (n - k + 1) * (n - k + 2)


@pytest.mark.parametrize("rho", [LEAST_RHO, 1.0, MOST_RHO])
def test_the_descent_stops_at_the_least_cost_of_all(rho):
    for reevaluation, match in ((1e4, 0.0), (1e6, 0.0), (1e6, 500.0), (0.0, 0.0)):
        model = CostModel(reevaluation, match)
        for k in (1, 3, 20, 100):

            def plain(n):
                return n * (k * math.log(n / k) + match) + reevaluation * n / walked(n, k, rho)

            best = model.best(k, rho)
            near = range(k, best + 12) if best < 60 else range(max(k, best - 2), best + 3)
            assert plain(best) <= min(map(plain, near)) * (1 + 1e-9)
            assert model.best(k, rho) == best


def test_the_dearer_a_reevaluation_the_lower_is_theta():
    thetas = []
    for reevaluation in (0.0, 1e4, 1e6, 1e8):
        buffers = opened(CostSkybandBuffers(10_000, reevaluation=reevaluation, match=0.0), 20, complete=False)
        arrive(buffers, [], 9_999)
        wanted = int(buffers.wanted(ONE)[0])
        buffers.resolve(
            ONE,
            as_lists(
                [
                    [(1 - i / 10_000, 9_000 + i % 999, 9_000 + i % 999 + 1000 * 0) for i in range(wanted)]
                    if wanted < 999
                    else [(1 - i / 10_000, i, i) for i in range(wanted)]
                ]
            ),
            9_999,
        )
        thetas.append(float(buffers.thresholds(ONE)[0]))
    assert thetas == sorted(thetas, reverse=True) and len(set(thetas)) == 4 and thetas[0] == 1 - 19 / 10_000


def test_the_pace_tells_how_arrivals_compare_with_expiries():
    pace = Pace(3200)
    assert pace.rho(-1) == 1.0
    positions = np.arange(0, 6400, 1)
    for part in np.array_split(positions, 13):
        pace.count(part)
    assert pace.rho(6399) == pytest.approx(1.0, abs=0.15)
    slower = Pace(3200)
    slower.count(np.arange(0, 6400))
    slower.count(np.arange(6400, 7400, 3))
    assert slower.rho(7399) == LEAST_RHO
    faster = Pace(3200)
    faster.count(np.arange(0, 6400, 3))
    faster.count(np.arange(6400, 7400))
    assert faster.rho(7399) == MOST_RHO
    copy = Pace(3200)
    copy.restore(unpack_state(pack_state(faster.snapshot())))
    copy.count(np.arange(7400, 9000, 5))
    faster.count(np.arange(7400, 9000, 5))
    assert copy.rho(9000) == faster.rho(9000)
    assert faster.rho(10**9) == 1.0  # nothing came, nothing went


def test_options_out_of_range_are_refused():
    with pytest.raises(IllegalArgumentException, match="given: 1.5; legal: buffer option ratio in 0..1"):
        SkybandBuffers(10, ratio=1.5)
    with pytest.raises(IllegalArgumentException, match="given: 1; legal: buffer option reach >= 2"):
        SkybandBuffers(10, reach=1)
    with pytest.raises(IllegalArgumentException, match="given: -1; legal: buffer option match >= 0"):
        CostSkybandBuffers(10, match=-1)
