"""The engine against oracles that compute every list from scratch."""

from __future__ import annotations

import random

import numpy as np
import pytest

from dskype.bolts.topk.engine import BUFFERS, INDEXES, TopkEngine
from dskype.topology.core.frames import pack_state, unpack_state
from tests.bolts.topk.world import DIAGONAL_DEG, Caller, World, batch

PAIRS = [(index, buffer) for index in INDEXES for buffer in BUFFERS]
TIGHT = {"kmax": {"factor": 1.0, "extra": 1}}      # buffers that run low often


def run(seed: int, index: str, buffer: str, *, timed: bool = False, extent: int, steps: int, tight: bool, delay: int, restore: bool = False) -> Caller:
    """Let a caller do random things for some steps; answers take up to ``delay`` batches."""
    rng = random.Random(seed)
    world = World(seed, timed=timed)
    options = TIGHT.get(buffer, {}) if tight else {}
    caller = Caller(TopkEngine(extent, DIAGONAL_DEG, index, buffer, buffer_options=options), world)
    caller.insert([world.subscription() for _ in range(12)], complete=True)
    for step in range(steps):
        draw = rng.random()
        if draw < 0.25:
            caller.insert([world.subscription() for _ in range(rng.randint(1, 4))])
        elif draw < 0.4 and len(caller.subscriptions) > 5:
            caller.remove(rng.sample(sorted(caller.subscriptions), rng.randint(1, 3)))
        messages = world.messages(rng.choice((0, 1, 2, 5, 12)))
        if timed:
            world.position += rng.choice((0, 0, 3, extent // 2, 2 * extent if rng.random() < 0.1 else 0))
        caller.advance(messages, max(world.position, caller.engine.watermark))
        ready = [request for request in caller.open if rng.random() < 1 / (1 + delay)]
        if ready and rng.random() < 0.8:
            caller.answer(rng.sample(ready, len(ready)))
        if restore and step % 7 == 3:
            state = unpack_state(pack_state(caller.engine.snapshot()))
            engine = TopkEngine(extent, DIAGONAL_DEG, index, buffer, buffer_options=options)
            engine.restore(state)
            caller.engine = engine
            caller.check()
    return caller


@pytest.mark.parametrize(("index", "buffer"), PAIRS)
@pytest.mark.parametrize("tight", [False, True])
@pytest.mark.parametrize("extent", [3, 10, 50])
def test_every_list_is_the_oracles_at_every_watermark(index, buffer, tight, extent):
    caller = run(extent + tight, index, buffer, extent=extent, steps=60, tight=tight, delay=2)
    assert caller.resolved > 20 and caller.checked > 300


@pytest.mark.parametrize(("index", "buffer"), PAIRS)
@pytest.mark.parametrize("tight", [False, True])
@pytest.mark.parametrize("extent", [1, 8, 40])
def test_time_windows_expire_between_messages(index, buffer, tight, extent):
    caller = run(100 + extent + tight, index, buffer, timed=True, extent=extent, steps=60, tight=tight, delay=2)
    assert caller.resolved > 20 and caller.checked > 300


@pytest.mark.parametrize(("index", "buffer"), PAIRS)
def test_answers_may_take_longer_than_the_window_is_wide(index, buffer):
    caller = run(7, index, buffer, extent=5, steps=120, tight=True, delay=8)
    assert caller.resolved > 20


@pytest.mark.parametrize(("index", "buffer"), PAIRS)
@pytest.mark.parametrize("timed", [False, True])
def test_a_restored_engine_goes_on_as_if_nothing_had_happened(index, buffer, timed):
    plain = run(21, index, buffer, timed=timed, extent=12, steps=50, tight=True, delay=3)
    restored = run(21, index, buffer, timed=timed, extent=12, steps=50, tight=True, delay=3, restore=True)
    assert restored.log == plain.log
    assert pack_state(restored.engine.snapshot()) == pack_state(plain.engine.snapshot())


@pytest.mark.parametrize(("index", "buffer"), PAIRS)
def test_the_cut_of_batches_does_not_matter(index, buffer):
    """One large batch and many small ones give the same changes, but for the time at which a slot runs low."""
    world = World(5)
    messages = world.messages(700)
    subscriptions = [world.subscription(k=3) for _ in range(30)]
    logs = []
    for size in (1, 33, 700):
        caller = Caller(TopkEngine(2000, DIAGONAL_DEG, index, buffer), world)
        caller.insert(subscriptions, complete=True)
        for start in range(0, 700, size):
            piece = messages[start:start + size]
            caller._record(caller.engine.advance(batch(piece), piece[-1]["position"]))
        logs.append([row for changes in caller.log for row in zip(*changes[:6])])
        caller.engine._check()
    assert logs[0] == logs[1] == logs[2] and len(logs[0]) > 300
