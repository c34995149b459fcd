"""The engine of one machine, with every index, buffer and window, against oracles that compute every list from scratch."""

from __future__ import annotations

import doctest
import json
import math
import os
import random
import subprocess
import sys
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dskype.bolts import skype as module
from dskype.bolts.skype import Skype, TextSkype
from dskype.bolts.topk.engine import BUFFERS, INDEXES
from dskype.bolts.window.base import WINDOWS
from dskype.spouts.batch import MessageBatch
from dskype.spouts.space import Space
from dskype.topology.core.values import pack_state, unpack_state
from dskype.topology.errors import IllegalArgumentException
from tests import naive, naive_where
from tests.bolts.topk.world import DIAGONAL_DEG, World, batch, columns, exact_score, programs, weigh

pytestmark = pytest.mark.long(seconds=40)

TIGHT: dict[str, dict[str, Any]] = {"kmax": {"factor": 1.0, "extra": 1}}
"""Options with which buffers run low often."""
ALL = list(product(INDEXES, BUFFERS, WINDOWS, (False, True)))
PAIRS = list(product(INDEXES, BUFFERS))
ROOT = Path(__file__).parents[2]


class Player:
    """Does random things with a Skype, and compares all that it says with the oracle."""

    def __init__(self, skype: Skype, seed: int, *, timed: bool = False, places: int = 6, filtered: float = 0.0) -> None:
        self.skype, self.rng, self.timed = skype, random.Random(seed), timed
        self.world = World(seed, timed=timed, places=places, terms=8, filtered=filtered)
        self.messages: list[dict[str, Any]] = []
        self.subscriptions: dict[int, dict[str, Any]] = {}
        self.scores: dict[int, dict[int, float | None]] = {}
        self.folded: dict[int, list[int]] = {}
        self.said = 0

    def register(self, subscriptions: list[dict[str, Any]]) -> None:
        slots = self.skype.register(*columns(subscriptions), programs=programs(subscriptions)).tolist()
        for slot, subscription in zip(slots, subscriptions, strict=True):
            assert slot not in self.subscriptions
            self.subscriptions[slot] = subscription
            self.scores[slot] = {m["seq"]: exact_score(subscription, m) for m in self.messages}
            self.folded[slot] = [seq for _, _, seq in self.expected(slot)]

    def unregister(self, slots: list[int]) -> None:
        self.skype.unregister(slots)
        for slot in slots:
            del self.subscriptions[slot], self.folded[slot]

    def expected(self, slot: int) -> list[tuple[float, int, int]]:
        now, scores = self.skype.watermark, self.scores[slot]
        found = [(s, m["position"], m["seq"]) for m in self.messages if now - self.skype.extent < m["position"] <= now and (s := scores[m["seq"]]) is not None]
        return sorted(found, reverse=True)[: self.subscriptions[slot]["k"]]

    def advance(self, messages: list[dict[str, Any]], watermark: int) -> None:
        self.messages += messages
        for slot, subscription in self.subscriptions.items():
            self.scores[slot].update((m["seq"], exact_score(subscription, m)) for m in messages)
        before = {slot: list(rows) for slot, rows in self.folded.items()}
        changes = self.skype.advance(batch(messages), [f"m{m['seq']}" for m in messages], watermark, naive_where.details(messages))
        rows = list(zip(*(column.tolist() for column in changes[:6])))
        assert not len(changes.due) and changes.touched.tolist() == sorted(set(changes.touched.tolist()))
        assert rows == sorted(rows, key=lambda row: (row[5], row[0], -row[1], row[4] if row[1] == 0 else 0))
        for slot, op, seq, score, rank, _ in rows:
            if op:
                self.folded[slot].remove(seq)
            else:
                self.folded[slot].insert(rank - 1, seq)
                assert score == self.scores[slot][seq]
        assert {slot for slot, seqs in self.folded.items() if seqs != before[slot]} <= set(changes.touched.tolist())
        self.said += len(rows)

    def check(self) -> None:
        skype, slots = self.skype, sorted(self.subscriptions)
        skype._check()
        assert skype.engine.slots.tolist() == slots and len(skype) == len(slots)
        offsets, seqs, positions, scores = skype.topk(slots)
        for i, slot in enumerate(slots):
            found = list(zip(*(column[offsets[i] : offsets[i + 1]].tolist() for column in (scores, positions, seqs))))
            assert found == self.expected(slot), (slot, self.subscriptions[slot])
            assert self.folded[slot] == [seq for _, _, seq in found]
        if slots:
            slot = self.rng.choice(slots)
            assert skype.top(slot) == [(f"m{seq}", score) for score, _, seq in self.expected(slot)]
            satisfying = [m for m in self.messages if naive_where.counts(self.subscriptions[slot], m)]
            plain = naive.topk(self.subscriptions[slot], satisfying, skype.watermark, skype.extent, DIAGONAL_DEG)
            everything = {m["seq"]: naive.score(self.subscriptions[slot], m, DIAGONAL_DEG) for m in self.messages}
            assert naive.same_topk([(seq, score) for score, _, seq in self.expected(slot)], plain, everything)

    def special(self) -> list[dict[str, Any]]:
        """Subscriptions that are easily got wrong: without keywords, with 64, with more wanted than there can be."""
        wide = weigh(sorted({*self.world.terms, *range(200, 264)})[:64], self.rng)
        return [
            {**self.world.subscription(3), "weights": {}},
            {**self.world.subscription(2), "weights": wide},
            {**self.world.subscription(500), "alpha": 0.0},
            {**self.world.subscription(1), "alpha": 1.0},
        ]

    def step(self) -> None:
        rng, world = self.rng, self.world
        draw = rng.random()
        if draw < 0.3:
            self.register([world.subscription() for _ in range(rng.randint(1, 3))])
        elif draw < 0.45 and len(self.subscriptions) > 4:
            self.unregister(rng.sample(sorted(self.subscriptions), rng.randint(1, 3)))
        messages = world.messages(rng.choice((0, 1, 1, 2, 6)))
        for message in messages:
            if rng.random() < 0.05:
                message["weights"] = weigh(sorted({*world.terms, *range(210, 274)})[:64], rng)
        if self.timed:
            world.position += rng.choice((0, 0, 3, self.skype.extent if rng.random() < 0.2 else 0))
        self.advance(messages, max(world.position, self.skype.watermark))
        self.check()

    def play(self, steps: int) -> None:
        for _ in range(steps):
            self.step()


def make(index: str, buffer: str, window: str, extent: int, *, tight: bool = True) -> Skype:
    options = {"chunks": {"capacity": 7}, "irtree": {"node_capacity": 4}}
    return Skype(
        extent,
        DIAGONAL_DEG,
        index=index,
        buffer=buffer,
        window_index=window,
        buffer_options=TIGHT.get(buffer) if tight else None,
        window_options=options.get(window),
    )


def begin(index: str, buffer: str, window: str, seed: int, *, extent: int = 9, timed: bool = False, places: int = 6, filtered: float = 0.0) -> Player:
    player = Player(make(index, buffer, window, extent), seed, timed=timed, places=places, filtered=filtered)
    player.register([*player.special(), *(player.world.subscription() for _ in range(6))])
    return player


@pytest.mark.parametrize(("index", "buffer", "window", "timed"), ALL)
def test_every_list_is_the_oracles_at_every_step(index, buffer, window, timed):
    for extent, places in ((1, 2), (9, 6), (30, 1)):
        player = begin(index, buffer, window, extent, extent=extent, timed=timed, places=places)
        player.play(12)
        player.register(player.special())
        player.play(6)
        assert player.said > 10 and player.skype.evaluations > 5


@pytest.mark.parametrize(("index", "buffer", "window", "timed"), ALL)
def test_only_messages_that_satisfy_a_filter_count(index, buffer, window, timed):
    """Lists refill from the window, through filters that few messages satisfy, too; a snapshot keeps the filters, and what they look at."""
    player = begin(index, buffer, window, 40, extent=40, timed=timed, filtered=0.7)
    player.play(10)
    skype = make(index, buffer, window, 40)
    skype.restore(unpack_state(pack_state(player.skype.snapshot())))
    player.skype = skype
    player.play(10)
    assert player.said > 10 and skype.evaluations > 5 and skype.window.asked > 20


@pytest.mark.parametrize(("index", "buffer"), PAIRS)
def test_the_same_calls_say_the_same_with_every_index_and_window(index, buffer):
    rows = []
    for chosen, window in ((index, "chunks"), (index, "irtree"), ("taat", "chunks")):
        player = begin(chosen, buffer, window, 5, extent=20)
        log = []
        for _ in range(10):
            player.step()
            log.append([column.tolist() for column in player.skype.topk(player.skype.engine.slots)])
        rows.append(log)
    assert rows[0] == rows[1] == rows[2]


def test_answers_that_are_known_need_not_be_looked_up():
    player = begin("taat", "kmax", "chunks", 3, extent=20)
    player.play(10)
    twin = make("taat", "kmax", "chunks", 20)
    window = [m for m in player.messages if m["position"] > player.skype.watermark - 20]
    twin.advance(batch(window), [f"m{m['seq']}" for m in window])
    slots = player.skype.engine.slots
    lists = player.skype
    player.subscriptions = {i: player.subscriptions[slot] for i, slot in enumerate(slots.tolist())}
    player.scores = {i: player.scores[slot] for i, slot in enumerate(slots.tolist())}
    new = twin.register(*columns(list(player.subscriptions.values())), known=lambda wanted: lists.look_up(slots, wanted))
    assert new.tolist() == sorted(player.subscriptions) and twin.evaluations == 0
    player.folded = {slot: [seq for _, _, seq in player.expected(slot)] for slot in new.tolist()}
    player.skype = twin
    player.play(10)


def test_one_subscription_may_be_given_by_plain_numbers():
    skype = Skype(10, 5.0)
    slot = skype.register(2, 0.0, 1.0, 1.0, None, [4], [1.0])
    one = MessageBatch(*(np.zeros(1, dtype) for dtype in (np.int64, np.int64, float, float)), np.array([0, 1]), np.array([4]), np.ones(1))
    changes = skype.advance(one)
    assert skype.top(int(slot[0])) == [("0", 1.0)] and changes.touched.tolist() == slot.tolist()
    skype.unregister(int(slot[0]))
    assert len(skype) == 0


def test_what_cannot_be_is_refused():
    with pytest.raises(IllegalArgumentException, match="message window is not known"):
        Skype(10, 5.0, window_index="tree")
    with pytest.raises(IllegalArgumentException, match="no such index"):
        Skype(10, 5.0, index="tree")
    skype = Skype(10, 5.0)
    with pytest.raises(IllegalArgumentException, match="another window"):
        skype.restore(Skype(10, 5.0, window_index="irtree").snapshot())
    with pytest.raises(IllegalArgumentException, match="must not fall"):
        skype.advance(watermark=-5)


# -- other processes ------------------------------------------------------------------------------


def python(code: str, *arguments: str, **environment: str) -> str:
    run = subprocess.run([sys.executable, "-c", code, *arguments], cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return run.stdout


def played_on(folder: Path, restored: bool) -> list[Any]:
    """Run every engine for some more steps, from a snapshot or as it was; return all lists at the end."""
    lists = []
    for number, (index, buffer) in enumerate(PAIRS):
        window, timed = list(WINDOWS)[number % 2], number % 3 == 0
        player = begin(index, buffer, window, number, extent=12, timed=timed)
        player.play(8)
        file = folder / f"{index}-{buffer}"
        if restored:
            player.skype = make(index, buffer, window, 12)
            player.skype.restore(unpack_state(file.read_bytes()))
        else:
            file.write_bytes(pack_state(player.skype.snapshot()))
        player.play(8)
        lists.append([column.tolist() for column in player.skype.topk(player.skype.engine.slots)])
    return lists


def test_a_snapshot_goes_on_in_another_process(tmp_path):
    mine = played_on(tmp_path, restored=False)
    code = (
        "import json, sys; from pathlib import Path; from tests.bolts import test_skype as t;print(json.dumps(t.played_on(Path(sys.argv[1]), restored=True)))"
    )
    assert json.loads(python(code, str(tmp_path))) == mine


def tiny_worlds() -> list[Any]:
    """Play a little with every index, buffer and window; return all lists."""
    lists = []
    for number, (index, buffer) in enumerate(PAIRS):
        player = begin(index, buffer, list(WINDOWS)[number % 2], number, extent=5)
        player.play(5)
        lists.append([column.tolist() for column in player.skype.topk(player.skype.engine.slots)])
    return lists


def test_everything_works_without_compilation_too():
    code = "import json; from tests.bolts import test_skype as t; print(json.dumps(t.tiny_worlds()))"
    assert json.loads(python(code, NUMBA_DISABLE_JIT="1")) == tiny_worlds()


# -- texts ----------------------------------------------------------------------------------------


def test_the_examples_in_the_docstrings_are_true():
    found = doctest.testmod(module)
    assert found.attempted > 8 and not found.failed


def cities() -> TextSkype:
    return Skype.from_texts(["red fox", "brown fox", "lazy dog"], 2, space=Space(0, 0, 10, 10), stop_words=["the"])


def test_subscriptions_to_texts_come_and_go_by_name():
    skype = cities()
    skype.subscribe("foxes", ["Fox"], lat=1, lon=1, k=5, alpha=0.0)
    skype.subscribe("cats", "the cat", lat=1, lon=1)
    assert skype.publish([("a", "The FOX!", 1, 1), ("b", "a dog", 2, 2)]) == {"foxes": [("a", 1.0)]}
    skype.subscribe("foxes", "dog fox", lat=2, lon=2, k=1, alpha=1.0)
    assert skype.results("foxes") == [("b", 1.0)] and skype.results("cats") == []
    assert skype.publish([]) == {}
    skype.unsubscribe("foxes")
    assert len(skype) == 1
    for name in ("foxes", "nobody"):
        with pytest.raises(IllegalArgumentException, match="no such subscription"):
            skype.results(name)
    with pytest.raises(IllegalArgumentException, match="outside the data space"):
        skype.publish([("c", "x", 11, 0)])
    with pytest.raises(IllegalArgumentException, match="wrong number of fields"):
        skype.publish([("c", "x", 1, 1, 1)])


def test_repeated_words_of_a_subscription_count():
    """The message that says what the subscription says is the best one, by the formula of docs/concepts/pubsub.md at alpha 0."""
    texts = ["lake park", "lake", "park", "lake lake park"]  # both words are in three of them, so they weigh the same
    for text in ("lake lake park", ["lake", "lake", "park"], ["Lake park", "ＬＡＫＥ"]):
        skype = Skype.from_texts(texts, window=10)
        skype.subscribe("s", text, lat=0, lon=0, k=4, alpha=0.0)
        skype.publish([(str(i), text, 0.0, 0.0) for i, text in enumerate(texts)])
        assert [(id, pytest.approx(score)) for id, score in skype.results("s")] == [
            ("3", 1.0),
            ("0", 3 / math.sqrt(10)),
            ("1", 2 / math.sqrt(5)),
            ("2", 1 / math.sqrt(5)),
        ]


@pytest.mark.parametrize("words", ["", "☕ ❤️", [], ["\u00ad"], "the"])
def test_a_subscription_without_a_word_is_refused(words):
    skype = Skype.from_texts(["tea"], window=3, stop_words=["the"])
    with pytest.raises(
        IllegalArgumentException, match="Subscription 'ann' has no word, so nothing would match it; given: .*legal: words with letters or digits"
    ):
        skype.subscribe("ann", words, lat=0, lon=0)
    assert len(skype) == 0


def test_a_snapshot_of_texts_with_words_by_other_rules_is_refused():
    skype = Skype.from_texts(["tea"], window=3)
    state = skype.snapshot()
    Skype.from_texts(["tea"], window=3).restore(state)
    del state["words"]
    with pytest.raises(
        IllegalArgumentException, match="The snapshot was made with other rules for words.*expected rule 2; given: 1; hint: subscribe and publish again"
    ):
        skype.restore(state)


def test_time_passes_for_texts():
    skype = Skype.from_texts([], 1000, timed=True)
    skype.subscribe("dogs", "dog", lat=0, lon=0, k=3, alpha=0.5)
    assert list(skype.publish([(1, "dog", 0, 0, 5000), (2, "hot dog", 0, 0, 5400)])) == ["dogs"]
    assert [id for id, _ in skype.results("dogs")] == ["1", "2"]
    assert [id for id, _ in skype.pass_time(6000)["dogs"]] == ["2"]
    assert skype.pass_time(6399) == {}
    twin = Skype.from_texts([], 1000, timed=True)
    twin.restore(unpack_state(pack_state(skype.snapshot())))
    assert twin.results("dogs") == skype.results("dogs")
    assert twin.publish([(3, "dog", 0, 0, 7000)]) == skype.publish([(3, "dog", 0, 0, 7000)]) == {"dogs": [("3", 1.0)]}
