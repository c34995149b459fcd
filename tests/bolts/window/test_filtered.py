"""Filters of queries over every window, against the oracle."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dskype.bolts.window import filtered
from dskype.bolts.window.base import WINDOWS, make_window
from dskype.bolts.window.filtered import FilteredWindow
from dskype.spouts.batch import Details, MessageBatch
from dskype.spouts.filters import compile_program
from dskype.topology.core.values import pack_state, unpack_state
from tests import naive, naive_where

from .scenes import DIAGONAL, draw_messages, draw_queries, exact_topk, message_batch, programs_of, query_batch, rows

SMALL: dict[str, dict[str, Any]] = {"chunks": {"capacity": 16}, "irtree": {"node_capacity": 4}}


def make(name: str) -> FilteredWindow:
    return FilteredWindow(make_window(name, SMALL.get(name)))


def insert(window: FilteredWindow, messages: list[dict[str, Any]]) -> None:
    window.insert(message_batch(messages), [m["id"] for m in messages], naive_where.details(messages))
    window._check()


def check(window: FilteredWindow, queries: list[dict[str, Any]], messages: list[dict[str, Any]], extent: int) -> None:
    answers = window.topk(query_batch(queries), extent, DIAGONAL, programs=programs_of(queries))
    for i, query in enumerate(queries):
        assert rows(answers, i) == exact_topk(query, messages, extent), query


@pytest.mark.long
@pytest.mark.parametrize("name", WINDOWS)
@pytest.mark.parametrize("kind", ["count", "time"])
def test_the_best_messages_that_satisfy_a_filter_are_found(name, kind, monkeypatch):
    monkeypatch.setattr(filtered, "_ASKED_AT_ONCE", 100)
    rng = np.random.default_rng(7)
    messages = draw_messages(rng, 400, kind=kind)
    window, first, extent = make(name), 0, 90
    for stop in range(40, 401, 40):
        insert(window, messages[first:stop])
        first, last = stop, messages[stop - 1]["position"]
        window.free(last - extent - 20)
        window._check()
        check(window, draw_queries(rng, 12, last - 20, last + 2, filtered=0.8), messages[:stop], extent)
    assert window.asked > 1000
    assert [len(queue) for queue in window._keys] == [sum(m["position"] > last - extent - 20 for m in messages)] * 2


@pytest.mark.parametrize("name", WINDOWS)
def test_a_least_score_goes_together_with_a_filter(name):
    rng = np.random.default_rng(8)
    messages = draw_messages(rng, 150)
    window = make(name)
    insert(window, messages)
    queries = draw_queries(rng, 40, 149, 149, filtered=0.6)
    least = rng.choice([-np.inf, 0.3, 0.6, 0.9], len(queries))
    answers = window.topk(query_batch(queries), 100, DIAGONAL, least, programs_of(queries))
    for i, query in enumerate(queries):
        assert rows(answers, i) == [row for row in exact_topk({**query, "k": 1000}, messages, 100) if row[2] >= least[i]][: query["k"]]


@pytest.mark.parametrize("name", WINDOWS)
def test_a_snapshot_keeps_what_filters_look_at(name):
    rng = np.random.default_rng(9)
    messages = draw_messages(rng, 120)
    window, twin = make(name), make(name)
    insert(window, messages[:80])
    window.free(30)
    twin.restore(unpack_state(pack_state(window.snapshot())))
    insert(twin, messages[80:])
    check(twin, draw_queries(rng, 60, 110, 119, filtered=0.8), messages, 60)
    assert twin.memory_bytes > twin.window.memory_bytes


@pytest.mark.parametrize("name", WINDOWS)
def test_messages_in_snapshots_of_earlier_versions_satisfy_no_filter(name):
    rng = np.random.default_rng(10)
    messages = draw_messages(rng, 100)
    earlier, window = make_window(name, SMALL.get(name)), make(name)
    earlier.insert(message_batch(messages[:50]), [m["id"] for m in messages[:50]])
    window.restore(unpack_state(pack_state(earlier.snapshot())))
    insert(window, messages[50:])
    for query in draw_queries(rng, 60, 99, 99, filtered=0.7):
        check(window, [query], messages if query["where"] is None else messages[50:], 80)
    window.free(70)
    window._check()
    check(window, draw_queries(rng, 20, 99, 99, filtered=0.7), messages, 29)


@pytest.mark.parametrize("name", WINDOWS)
def test_prefixes_are_for_filters_only(name):
    """No query finds a message by the term of a prefix, but a filter does."""
    window, prefix, word, n = make(name), -9, 5, 30
    seqs, nowhere = np.arange(n), np.zeros(n)
    has = (seqs % 3 > 0).astype(np.int64)
    details = Details.empty(n)._replace(prefix_offsets=np.concatenate(([0], np.cumsum(has))), prefixes=np.full(has.sum(), prefix))
    messages = MessageBatch(seqs, seqs, nowhere, nowhere, np.arange(n + 1), np.full(n, word), np.ones(n))
    window.insert(messages, [str(i) for i in range(n)], details)
    window._check()
    base = {"watermark": n - 1, "k": n, "alpha": 0.0, "lat": 0.0, "lon": 0.0}
    queries = [{**base, "weights": {word: 1.0}}, {**base, "weights": {prefix: 1.0}}, {**base, "weights": {word: 1.0}, "where": str(prefix)}]
    answers = window.topk(query_batch(queries), n, DIAGONAL, programs=programs_of(queries))
    found = [[seq for seq, _, _ in rows(answers, i)] for i in range(3)]
    assert found == [list(range(n))[::-1], [], [i for i in reversed(range(n)) if i % 3]]


def test_few_looks_are_enough_for_a_filter_that_few_messages_satisfy():
    """How many more messages are asked for follows from the share that satisfied the filter."""
    n, word = 20_000, 5
    window = FilteredWindow(make_window("chunks"))
    seqs, nowhere = np.arange(n), np.zeros(n)
    flat = np.where(np.arange(2 * n) % 2, word, np.repeat(np.where(seqs % 100 == 0, 3, 4), 2))
    window.insert(MessageBatch(seqs, seqs, nowhere, nowhere, np.arange(0, 2 * n + 1, 2), flat, np.ones(2 * n)), [str(i) for i in range(n)])
    query = {"watermark": n - 1, "k": 10, "alpha": 0.0, "lat": 0.0, "lon": 0.0, "weights": {word: 1.0}, "where": "3"}
    answers = window.topk(query_batch([query]), n, DIAGONAL, programs=programs_of([query]))
    assert [seq for seq, _, _ in rows(answers, 0)] == list(range(n - 100, n - 1001, -100))
    assert window.asked < 3000


@pytest.mark.long
@pytest.mark.parametrize("name", WINDOWS)
@pytest.mark.parametrize(("few", "many"), [(32, 16), (10_000, 0), (10_000, 16)])
def test_the_messages_that_match_are_found(name, few, many, monkeypatch):
    """Words are looked for in all messages, or not at all where places leave few."""
    for constant, value in (("_TRIED_AT_ONCE", 7), ("_FEW", few), ("_MANY_TERMS", many), ("_NEWEST", 5)):
        monkeypatch.setattr(filtered, constant, value)
    rng, extent, found = np.random.default_rng(11), 90, 0
    messages = draw_messages(rng, 300)
    window = make(name)
    for first in range(0, 300, 60):
        insert(window, messages[first : first + 60])
        last = messages[first + 59]["position"]
        window.free(last - extent - 20)
        window = restored(window, name) if first == 120 else window
        for query in draw_queries(rng, 12, last - 20, last, filtered=0.6):
            west, south, east, north = (float(x) for x in (rng.integers(0, 7), rng.integers(0, 5), rng.integers(5, 13), rng.integers(5, 11)))
            terms = sorted(query["weights"]) or None
            positions = query["watermark"] - extent, query["watermark"]
            program = compile_program(["or", *map(str, terms)], {str(t): t for t in terms}) if terms else naive_where.program(query["where"])
            seqs, at = window.matching(positions, [west, south, east, north], None, program, terms)
            expected = [
                (m["seq"], m["position"])
                for m in messages[: first + 60]
                if positions[0] < m["position"] <= positions[1]
                and naive.in_bbox([west, south, east, north], m["lat"], m["lon"])
                and (not set(terms).isdisjoint(m["weights"]) if terms else naive_where.counts(query, m))
            ]
            assert list(zip(seqs.tolist(), at.tolist())) == expected
            for most in (1, 4, 100):
                some = window.matching(positions, [west, south, east, north], None, program, terms, most)
                assert list(zip(*(column.tolist() for column in some))) == expected[-most:]
            lat, lon = window.places_of(seqs, at)
            places = {m["seq"]: (m["lat"], m["lon"]) for m in messages}
            assert list(zip(lat.tolist(), lon.tolist())) == [places[seq] for seq in seqs.tolist()]
            found += len(seqs)
    assert found > 100


def test_older_messages_are_not_looked_at_where_the_newest_ones_are_enough(monkeypatch):
    n, looked = 200_000, []
    window = FilteredWindow(make_window("chunks"))
    seqs, nowhere = np.arange(n), np.zeros(n)
    window.insert(MessageBatch(seqs, seqs, nowhere, nowhere, np.arange(n + 1), np.full(n, 5), np.ones(n)), [str(i) for i in range(n)])
    inner = window._matching_rows
    monkeypatch.setattr(window, "_matching_rows", lambda first, stop, *rest: looked.append(stop - first) or inner(first, stop, *rest))
    found, _ = window.matching((-1, n - 1), [-1, -1, 1, 1], None, None, [5], 20_000)
    assert found.tolist() == list(range(n - 20_000, n)) and looked == [1 << 14, 1 << 15]
    assert not len(window.matching((-1, n - 1), [-1, -1, 1, 1], None, None, [6], 1)[0]) and sum(looked[2:]) == n


def restored(window: FilteredWindow, name: str) -> FilteredWindow:
    again = make(name)
    again.restore(unpack_state(pack_state(window.snapshot())))
    return again
