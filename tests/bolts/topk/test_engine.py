"""The engine against oracles that compute every list from scratch."""

from __future__ import annotations

import random
from functools import cache
from typing import Any

import numpy as np
import pytest

from dskype.bolts.topk.engine import BUFFERS, INDEXES, TopkEngine
from dskype.spouts.batch import MessageBatch
from dskype.topology.core.values import pack_state, unpack_state
from dskype.topology.errors import IllegalArgumentException
from tests.bolts.topk.world import DIAGONAL_DEG, Caller, Ranking, World, batch, columns

pytestmark = pytest.mark.long

PAIRS = [("taat", buffer) for buffer in BUFFERS] + [(index, "kmax") for index in INDEXES if index != "taat"]
TIGHT = {  # buffers that run low often
    "kmax": {"factor": 1.0, "extra": 1},
    "skyband": {"ratio": 1.0, "reach": 2.0},
    "cskyband": {"reevaluation": 0.0, "match": 0.0},
}


def run(
    seed: int,
    index: str,
    buffer: str,
    *,
    extent: int,
    steps: int,
    tight: bool,
    delay: int,
    timed: bool = False,
    restore: bool = False,
    index_options=None,
    filtered: float = 0.0,
    metres: float = 0.0,
    ending: bool = False,
    half_life_ms: float | None = None,
    start_ms: int = -1,
) -> Caller:
    """Let a caller do random things for some steps; answers take up to ``delay`` batches. With ``ending`` some messages end early."""
    rng = random.Random(seed)
    world = World(seed, timed=timed, filtered=filtered, metres=metres, half_life_ms=half_life_ms)
    world.position = start_ms
    options = TIGHT.get(buffer, {}) if tight else {}
    caller = Caller(TopkEngine(extent, DIAGONAL_DEG, index, buffer, index_options, options, ending=ending, half_life_ms=half_life_ms), world)
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
        watermark = max(world.position, caller.engine.watermark)
        caller.advance(messages, watermark, caller.draw_ends(messages, watermark) if ending else None)
        ready = [request for request in caller.open if rng.random() < 1 / (1 + delay)]
        if ready and rng.random() < 0.8:
            caller.answer(rng.sample(ready, len(ready)))
        if restore and step % 7 == 3:
            state = unpack_state(pack_state(caller.engine.snapshot()))
            engine = TopkEngine(extent, DIAGONAL_DEG, index, buffer, index_options, options, ending=ending, half_life_ms=half_life_ms)
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


@pytest.mark.parametrize("index", INDEXES)
@pytest.mark.parametrize("tight", [False, True])
@pytest.mark.parametrize("timed", [False, True])
def test_messages_that_end_leave_every_list_there(index, tight, timed):
    for extent, delay in ((3, 2), (12, 8), (50, 3)):
        seed = 400 + extent + tight
        caller = run(seed, index, "kmax", extent=extent, steps=60, tight=tight, delay=delay, timed=timed, restore=True, filtered=0.3, ending=True)
        assert caller.resolved > 15 and caller.checked > 300 and len(caller.ends) > 50


def test_a_skyband_refuses_messages_that_end():
    with pytest.raises(IllegalArgumentException, match=r"(?s)dskype.objects needs.*cskyband.*kmax.*dskype.buffer"):
        TopkEngine(10, DIAGONAL_DEG, "cones", "cskyband", ending=True)


DECAYING = [(index, buffer) for index, buffer in PAIRS if BUFFERS[buffer].decays]


@pytest.mark.parametrize(("index", "buffer"), DECAYING)
@pytest.mark.parametrize("tight", [False, True])
@pytest.mark.parametrize("half_life_ms", [0.7, 5.0, 60.0, 1e6])
def test_with_a_half_life_lists_rank_by_what_is_left_of_scores(index, buffer, tight, half_life_ms):
    for extent, start_ms in ((8, -1), (40, 1_700_000_000_000), (400, 1_700_000_000_000)):
        own = {"timed": True, "half_life_ms": half_life_ms * (100 if start_ms > 0 and half_life_ms < 1e3 else 1), "start_ms": start_ms}
        caller = run(500 + extent + tight, index, buffer, extent=extent, steps=50, tight=tight, delay=3, metres=0.3, filtered=0.2, restore=tight, **own)
        assert caller.resolved > 10 and caller.checked > 300


@pytest.mark.parametrize(("index", "buffer"), DECAYING)
def test_an_engine_with_a_half_life_goes_on_from_a_snapshot(index, buffer):
    plain, restored = (run(24, index, buffer, timed=True, extent=12, steps=50, tight=True, delay=3, half_life_ms=4.0, restore=one) for one in (False, True))
    assert restored.log == plain.log
    assert pack_state(restored.engine.snapshot()) == pack_state(plain.engine.snapshot())
    with pytest.raises(IllegalArgumentException, match="another half_life_ms"):
        TopkEngine(12, DIAGONAL_DEG, index, buffer).restore(plain.engine.snapshot())


def test_a_skyband_by_a_share_of_a_score_refuses_a_half_life():
    with pytest.raises(IllegalArgumentException, match=r"(?s)dskype.half.life.s needs.*skyband.*kmax.*dskype.buffer"):
        TopkEngine(10, DIAGONAL_DEG, "cones", "skyband", half_life_ms=1000.0)


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
@pytest.mark.parametrize("timed", [False, True])
def test_lists_of_subscriptions_with_filters_are_the_best_of_what_satisfies_them(index, buffer, timed):
    for extent in (3, 10, 50):
        caller = run(300 + extent, index, buffer, extent=extent, steps=50, tight=True, delay=2, timed=timed, restore=extent == 10, filtered=0.7)
        assert caller.resolved > 10 and caller.checked > 300


@pytest.mark.parametrize(("index", "buffer"), PAIRS)
@pytest.mark.parametrize("timed", [False, True])
def test_lists_of_subscriptions_with_distances_in_metres_are_exact_on_the_whole_globe(index, buffer, timed):
    for extent, metres in ((3, 0.5), (10, 0.9), (50, 1.0)):
        caller = run(400 + extent, index, buffer, extent=extent, steps=50, tight=True, delay=2, timed=timed, restore=extent == 10, filtered=0.2, metres=metres)
        assert caller.resolved > 10 and caller.checked > 300
        assert caller.engine.metres.candidates > 50


@pytest.mark.parametrize(("index", "buffer"), PAIRS)
def test_an_engine_with_distances_in_metres_goes_on_from_a_snapshot(index, buffer):
    plain, restored = (run(23, index, buffer, extent=12, steps=50, tight=True, delay=3, metres=0.5, restore=restore) for restore in (False, True))
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
            piece = messages[start : start + size]
            caller._record(caller.engine.advance(batch(piece), piece[-1]["position"]))
        logs.append([row for changes in caller.log for row in zip(*changes[:6])])
        caller.engine._check()
    assert logs[0] == logs[1] == logs[2] and len(logs[0]) > 300


@cache
def hundreds() -> tuple[list[Any], list[Any], list[Ranking]]:
    """Messages, subscriptions, and what the oracle says of each: the same for all engines."""
    world = World(11, terms=60, places=40)
    messages = world.messages(1500)
    subscriptions = [world.subscription(k=1000 if i % 7 == 0 else None) for i in range(200)]
    return messages, subscriptions, [Ranking(subscription, messages) for subscription in subscriptions]


@pytest.mark.parametrize(("index", "buffer"), PAIRS)
def test_hundreds_of_subscriptions_while_the_window_moves_on(index, buffer):
    """Some want more than the window has; batches are larger than a chunk; every answer comes a batch late."""
    messages, subscriptions, rankings = hundreds()
    engine = TopkEngine(450, DIAGONAL_DEG, index, buffer)
    engine.advance(batch(messages[:300]), 299)
    slots = engine.insert(*columns(subscriptions), False)
    waiting = [(slots, 299, engine.wanted(slots))]
    for start in range(300, 1500, 300):
        changes = engine.advance(batch(messages[start : start + 300]), start + 299)
        for asked, watermark, wanted in waiting:
            lists = [rankings[slot].topk(watermark, 450, n) for slot, n in zip(asked.tolist(), wanted.tolist())]
            flat = [entry for entries in lists for entry in entries]
            again = engine.resolve(asked, np.cumsum([0, *map(len, lists)]), *(np.array([e[i] for e in flat]) for i in (2, 1, 0)))
            assert not len(again.due)
        waiting = [(changes.due, start + 299, engine.wanted(changes.due))]
        engine._check()
        offsets, seqs, _, _ = engine.topk(slots)
        for slot in slots[~engine.pending(slots)].tolist():
            expected = rankings[slot].topk(engine.watermark, 450, subscriptions[slot]["k"])
            assert seqs[offsets[slot] : offsets[slot + 1]].tolist() == [seq for _, _, seq in expected]
    assert not engine.pending(slots).all()


def refusal(call, *arguments) -> str:
    with pytest.raises(IllegalArgumentException) as error:
        call(*arguments)
    return str(error.value)


def test_what_cannot_be_is_refused_with_a_reason():
    world = World(1)
    assert refusal(TopkEngine, 0, 40.0) == "The extent of the window is not usable. given: 0; legal: extent >= 1"
    assert refusal(TopkEngine, 5, 0.0) == "The diagonal of the data space is not usable. given: 0.0; legal: degrees > 0"
    assert refusal(TopkEngine, 5, 40.0, "nothing").startswith("There is no such index. given: 'nothing'; legal: ")
    assert refusal(TopkEngine, 5, 40.0, "taat", "nothing").startswith("There is no such buffer. given: 'nothing'; legal: ")
    assert "does not take these options. given: {'size': 3}; hint: " in refusal(TopkEngine, 5, 40.0, "taat", "kmax", {}, {"size": 3})
    engine = TopkEngine(5, DIAGONAL_DEG)
    given = list(columns([world.subscription(k=2) for _ in range(3)]))
    for place, values, text in (
        (0, [1, 0, 2], "wants at least one message. given: 0; legal: k >= 1"),
        (1, [0.5, 1.5, 0.1], "given: 1.5; legal: alpha in 0..1"),
        (2, [0.0, np.nan, 0.0], "needs a place"),
        (3, [0.0, 0.0], "equally long. given: [3, 3, 3, 2, 3]"),
    ):
        assert text in refusal(engine.insert, *given[:place], np.array(values), *given[place + 1 :], True)
    weights = np.ones(4)
    assert "given: [5, 3]" in refusal(engine.insert, *given[:4], np.array([0, 1, 3, 4]), np.array([1, 5, 3, 2]), weights, True)
    assert "given: -1.0; legal: >= 0" in refusal(engine.insert, *given[:4], np.array([0, 1, 3, 4]), np.array([1, 2, 3, 2]), -weights, True)
    assert len(engine) == 0 and not len(engine.insert(*columns([]), True))
    slots = engine.insert(*given, False)
    assert "no subscription in a slot. given: 3" in refusal(engine.remove, np.array([0, 3]))
    assert "named twice. given: [1, 1]" in refusal(engine.remove, np.array([1, 1]))
    nothing = (np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0))
    assert "one answer. given: 1; legal: 3" in refusal(engine.resolve, slots, np.array([0, 0]), *nothing)
    assert "rank order. given: [(0.5, 1, 1), (0.7, 2, 2)]" in refusal(
        engine.resolve, slots[:1], np.array([0, 2]), np.array([1, 2]), np.array([1, 2]), np.array([0.5, 0.7])
    )
    engine.resolve(slots[:1], np.array([0, 0]), *nothing)
    assert "pending subscriptions take answers. given: [0]" in refusal(engine.resolve, slots, np.array([0, 0, 0, 0]), *nothing)
    messages = batch(world.messages(4))
    assert "given: [0, 3]; legal: positions in 0..2" in refusal(engine.advance, messages, 2)
    assert "rising order of (position, seq). given: [(2, 2), (1, 1)]" in refusal(engine.advance, messages.select(np.array([0, 2, 1, 3])), 3)
    engine.advance(messages, 3)
    assert "must not fall. given: 2; legal: >= 3" in refusal(engine.advance, MessageBatch.empty(), 2)
    assert "given: [0, 3]; legal: positions in 4..9" in refusal(engine.advance, messages, 9)
    state = engine.snapshot()
    assert refusal(TopkEngine(6, DIAGONAL_DEG).restore, state) == "The snapshot has another extent. given: 5; legal: 6"
    assert "Only a new engine takes a snapshot" in refusal(engine.restore, state)
    engine._check()


def test_a_first_list_is_published_even_when_it_is_empty():
    world = World(2)
    engine = TopkEngine(5, DIAGONAL_DEG)
    slots = engine.insert(*columns([world.subscription(), world.subscription()]), False)
    changes = engine.resolve(slots[::-1], np.zeros(3, np.int64), np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0))
    assert changes.touched.tolist() == [0, 1] and not len(changes.slot) and not len(changes.due)
    assert not engine.pending(slots).any() and engine.topk(slots).offsets.tolist() == [0, 0, 0]
    assert engine.memory_bytes > 0


def test_slots_are_given_out_again_lowest_first():
    world = World(3)
    engine = TopkEngine(5, DIAGONAL_DEG)
    assert engine.insert(*columns([world.subscription() for _ in range(6)]), True).tolist() == [0, 1, 2, 3, 4, 5]
    engine.remove(np.array([4, 1, 2]))
    assert engine.insert(*columns([world.subscription() for _ in range(2)]), False).tolist() == [1, 2]
    assert engine.insert(*columns([world.subscription() for _ in range(2)]), False).tolist() == [4, 6]
    assert engine.slots.tolist() == [0, 1, 2, 3, 4, 5, 6] and len(engine) == 7
