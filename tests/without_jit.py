"""Small cases of all kernels of indexes, buffers, windows, distribution, texts and the acker; ``test_without_jit.py`` runs them in a process of their own.

Without compilation an index out of bounds is an error, and arithmetic is Python's.
"""

from __future__ import annotations

import random

import numpy as np
from numba.core import config

from dskype.bolts import boolean
from dskype.bolts.topk.engine import BUFFERS, INDEXES
from dskype.bolts.window.base import WINDOWS, make_window
from dskype.distribution import DISTRIBUTORS, distributor_class, make_distributor
from dskype.distribution.agrid.grid import AGrid
from dskype.spouts.text import Tokenizer
from dskype.spouts.vocabulary import Vocabulary
from tests import naive
from tests.bolts.boolean import oracle
from tests.bolts.topk.test_engine import run
from tests.bolts.window import scenes
from tests.distribution import test_aggregates, test_agrid, test_interest, worlds
from tests.topology.planning import test_acker

INDEX_OPTIONS = {"cones": {"short": 1, "flat": 0, "least": 2}, "igpt": {"cell_capacity": 3, "groups": 2}, "ipt": {"cell_capacity": 3}, "ciq": {}, "taat": {}}

BOOLEAN_OPTIONS: dict[str, dict[str, object]] = {
    "fast": {"cells": 8, "frequent": 2, "spill": 2, "vacuum": 1},
    "gi2": {"cells": 4, "vacuum": 1, "box": [-90, -45, 120, 45]},
    "table": {"cell_deg": 60.0, "most_cells": 3},
    **{name: {"node_capacity": 4} for name in ("rt", "rt+", "rt++", "spatial-first", "ir-tree")},
}


def play_window(name: str, kind: str) -> None:
    """Insert, ask, free and restore; every answer is compared with the oracle."""
    options = {"chunks": {"capacity": 4}, "irtree": {"node_capacity": 3}}[name]
    rng = np.random.default_rng(5)
    checked = scenes.Checked(make_window(name, options), 9)
    messages = scenes.draw_messages(rng, 24, kind=kind)
    for first in range(0, 24, 6):
        checked.insert(messages[first : first + 6])
        last = messages[first + 5]["position"]
        checked.ask(scenes.draw_queries(rng, 4, max(checked.freed + 9, last - 3), last))
        checked.free(last - 12)
        if first == 12:
            state = checked.window.snapshot()
            checked.window = make_window(name, options)
            checked.window.restore(state)


def play_boolean(name: str) -> None:
    """Insert and remove; every batch of matches is compared with the oracle."""
    rng, live, index = random.Random(3), {}, boolean.make_index(name, BOOLEAN_OPTIONS.get(name))
    for _ in range(8):
        for slot in rng.sample(range(12), 4):
            if slot in live:
                index.remove(slot)
                del live[slot]
            else:
                live[slot] = oracle.any_subscription(rng, 8)
                index.insert(slot, *live[slot])
        index._check()
        for draw in (oracle.any_message, oracle.any_place_message):
            rows = [draw(rng, 8) for _ in range(6)]
            assert oracle.pairs(index.match(oracle.messages_of(rows))) == oracle.expected(live, rows)


def play_distributor(name: str, options: dict[str, object]) -> None:
    """Learn, place and route; a message that misses all tasks of a subscription must not score above its guard."""
    sample = worlds.sample(np.random.default_rng(4), 30, 20, 40)
    if "granularity" in getattr(distributor_class(name), "legal_options", ()):
        options = {"granularity": 512, **options}  # by default they have 64 times as many cells; play_agrid() has tiles of that size
    distributor = make_distributor(name, 4, options, distributor_class(name).learn(4, sample, options))
    routes = distributor.message_tasks(sample.messages)
    for i in range(sample.n):
        placed = distributor.place(f"s{i}", worlds.subscription(sample, i), float(sample.thresholds[i]))
        for j, score in enumerate(worlds.scores(sample, i, sample.messages)):
            reached = routes is None or set(routes.tasks[routes.rows == j].tolist()) & set(placed.tasks)
            assert score is None or reached or score <= placed.guard
    if hasattr(distributor, "place_all"):
        distributor.place_all(sample, sample.thresholds)


def play_agrid() -> None:
    """Shift, split and merge partitions; the A-Grid and the routers of its baselines are compared with a plain search."""
    rng = np.random.default_rng(6)
    for grid in (AGrid(700, 40), AGrid(4096, 17)):
        for _ in range(2):
            test_agrid.random_changes(rng, grid, 20)
            grid._check()
            test_agrid.assert_finds(grid, rng, 12)


def play_vocabulary() -> None:
    """Cut and weigh texts; the weights are compared with the oracle."""
    texts = ["old lake, old park", "Straße am See", "the lake \u00e9t\u00e9", "", "unknown " * 3, " ".join(f"w{n}" for n in range(40)) + "\x1flake"]
    tokenizer = Tokenizer(["the"])
    vocabulary = Vocabulary.build(texts[:3], tokenizer)
    offsets, terms, weights, order_offsets, order = vocabulary.analyze(texts, tokenizer)
    for i, text in enumerate(texts):
        tokens = tokenizer.tokens(text)
        ids = dict(zip(tokens, vocabulary.ids(tokens).tolist()))
        df = {token: int(vocabulary.df([id_])[0]) for token, id_ in ids.items()}
        expected = naive.norm_weights({t: tokens.count(t) for t in ids}, df, vocabulary.documents) if ids else {}
        found = dict(zip(terms[offsets[i] : offsets[i + 1]].tolist(), weights[offsets[i] : offsets[i + 1]].tolist()))
        assert found.keys() == set(ids.values()) and all(abs(found[ids[t]] - w) < 1e-12 for t, w in expected.items())
        words = [place for place in order[order_offsets[i] : order_offsets[i + 1]].tolist() if place >= 0]
        assert [int(terms[offsets[i] + place]) for place in words] == [ids[token] for token in tokens]


def main() -> None:
    """Play everything."""
    assert config.DISABLE_JIT
    # All indexes with one buffer, all buffers with one index, in windows by count and by time.
    pairs = [*((index, "kmax") for index in sorted(INDEXES)), *(("cones", buffer) for buffer in sorted(BUFFERS) if buffer != "kmax")]
    for seed, (index, buffer) in enumerate(pairs):
        for timed in (False, True):
            options = INDEX_OPTIONS[index]
            ending = buffer == "kmax"
            caller = run(seed, index, buffer, extent=6, steps=9, tight=timed, delay=1, timed=timed, restore=True, index_options=options, ending=ending)
            assert caller.checked > 20
    for name in sorted(WINDOWS):
        for kind in ("count", "time"):
            play_window(name, kind)
    for name in sorted(boolean.INDEXES):
        play_boolean(name)
    for name, options in worlds.EVERY:
        play_distributor(name, options)
    assert {name for name, _ in worlds.EVERY} == set(DISTRIBUTORS)
    play_agrid()
    test_interest.play(65, 4)
    test_aggregates.test_strips_and_cuts_are_those_of_plain_sums(3)
    play_vocabulary()
    test_acker.play(0, 120, 5, 6)


if __name__ == "__main__":
    main()
