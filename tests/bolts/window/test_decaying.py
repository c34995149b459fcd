"""Windows that rank with a half-life, over every implementation, against the oracle."""

import numpy as np
import pytest

from dskype.bolts.window.base import WINDOWS, make_window
from dskype.bolts.window.decaying import DecayingWindow
from dskype.bolts.window.filtered import FilteredWindow
from tests import naive_where

from .scenes import DIAGONAL, Checked, draw_messages, draw_queries, exact_topk, message_batch, programs_of, query_batch, rows

pytestmark = pytest.mark.long

SMALL = {"chunks": {"capacity": 16}, "irtree": {"node_capacity": 4}}


@pytest.mark.parametrize("name", WINDOWS)
@pytest.mark.parametrize("half_life_ms", [0.5, 3.0, 40.0, 1e6])
@pytest.mark.parametrize("seed", range(3))
def test_answers_equal_the_oracle_at_every_watermark_that_is_not_freed(name, half_life_ms, seed):
    rng = np.random.default_rng([seed, int(half_life_ms)])
    extent = int(rng.choice([1, 12, 40, 300]))
    checked = Checked(DecayingWindow(make_window(name, SMALL.get(name)), half_life_ms), extent, half_life_ms=half_life_ms)
    todo, asked = draw_messages(rng, 200, kind="time", first_ms=(1000, 1_700_000_000_000)[seed % 2] if half_life_ms > 1 else 1000), -1
    while todo:
        n = int(rng.choice([1, 9, 30]))
        checked.insert(todo[:n])
        todo, newest = todo[n:], checked.messages[-1]["position"]
        asked = max(asked, newest - 500)
        checked.ask(draw_queries(rng, 6, max(asked, checked.freed + extent), newest + 3))
        if rng.random() < 0.5:
            asked = int(rng.integers(asked, newest + 1)) if newest > asked else asked
            checked.free(asked - extent)
    assert len(checked.window) and checked.window.memory_bytes == checked.window.window.memory_bytes


@pytest.mark.parametrize("name", WINDOWS)
@pytest.mark.parametrize("half_life_ms", [2.0, 100.0])
def test_filters_and_a_half_life_go_together(name, half_life_ms):
    rng = np.random.default_rng(7)
    messages = draw_messages(rng, 400, kind="time")
    window = FilteredWindow(DecayingWindow(make_window(name, SMALL.get(name)), half_life_ms))
    window.insert(message_batch(messages), [m["id"] for m in messages], naive_where.details(messages))
    last = messages[-1]["position"]
    queries = draw_queries(rng, 60, last - 50, last + 2, filtered=0.8)
    answers = window.topk(query_batch(queries), 200, DIAGONAL, programs=programs_of(queries))
    for i, query in enumerate(queries):
        assert rows(answers, i) == exact_topk(query, messages, 200, half_life_ms), query


def test_slices_far_from_now_are_not_looked_at():
    """With many messages near now, a list is full long before the oldest slice."""
    messages = draw_messages(np.random.default_rng(1), 3000, kind="time")
    inner = make_window("chunks")
    window = DecayingWindow(inner, 10.0)
    window.insert(message_batch(messages), [m["id"] for m in messages])
    extents, last = [], messages[-1]["position"]
    inner.topk = lambda queries, extent, *more: extents.append((extent, queries.n)) or type(inner).topk(inner, queries, extent, *more)
    query = {"watermark": last, "k": 3, "alpha": 0.5, "lat": 2.5, "lon": 3.0, "weights": {1: 0.6, 2: 0.6, 5: 0.53}}
    answers = window.topk(query_batch([query]), last, DIAGONAL)
    assert rows(answers, 0) == exact_topk(query, messages, last, 10.0)
    assert sum(extent for extent, _ in extents) < last // 4
