"""What every message window must do; runs over all implementations, with tiny chunks or nodes."""

import numpy as np
import pytest

from dskype.bolts.window import _kernels
from dskype.bolts.window.base import WINDOWS, QueryBatch, make_window
from dskype.deploy.lab.skype import irtree_kernels, irtree_search_kernels
from dskype.spouts.batch import MessageBatch
from dskype.spouts.streams import Requests
from dskype.topology.core.values import pack_state, unpack_state
from dskype.topology.errors import IllegalArgumentException

from .scenes import DIAGONAL, Checked, draw_messages, draw_queries, message_batch, query_batch, rows

pytestmark = pytest.mark.long

OPTIONS = {
    "chunks": [{"capacity": 1}, {"capacity": 7}, {"capacity": 64}, {}],
    "irtree": [{"node_capacity": 2}, {"node_capacity": 5}, {"node_capacity": 16}, {}],
}
"""Options to test an implementation with: the smallest ones, and its defaults."""
CASES = [
    pytest.param((name, options), id=f"{name}-{'-'.join(map(str, options.values())) or 'default'}")
    for name in sorted(WINDOWS)
    for options in OPTIONS.get(name, [{}])
]


@pytest.fixture(params=CASES)
def window(request):
    return make_window(*request.param)


def after_a_crash(window):
    """Return a window that has the state of another, as it comes out of a snapshot."""
    twin = type(window)()
    twin.restore(unpack_state(pack_state(window.snapshot())))
    twin._check()
    return twin


def simple(seq, terms=(1,), lat=0.0, lon=0.0, position=None):
    weight = 1 / np.sqrt(len(terms)) if terms else 0.0
    return {"seq": seq, "position": seq if position is None else position, "lat": lat, "lon": lon, "weights": {t: float(weight) for t in terms}, "id": str(seq)}


def ask(watermark, k=10, terms=(1,), alpha=0.5, lat=0.0, lon=0.0):
    return {"watermark": watermark, "k": k, "alpha": alpha, "lat": lat, "lon": lon, "weights": {t: 1 / np.sqrt(len(terms)) for t in terms}}


def seqs(window, query, extent):
    answers = window.topk(query_batch([query]), extent, DIAGONAL)
    return answers.seqs.tolist()


@pytest.mark.parametrize("kind", ["count", "time"])
@pytest.mark.parametrize("seed", range(4))
def test_answers_equal_the_oracle_at_every_watermark_that_is_not_freed(window, kind, seed):
    rng = np.random.default_rng([seed, len(kind)])
    extent = int(rng.choice([1, 5, 12, 40]))
    checked = Checked(window, extent)
    todo = draw_messages(rng, 150, kind=kind)
    asked = -1
    while todo:
        n = int(rng.choice([0, 1, 2, 9, 30]))
        checked.insert(todo[:n])
        todo = todo[n:]
        newest = checked.messages[-1]["position"] if checked.messages else 0
        checked.ask(draw_queries(rng, 6, max(asked, checked.freed + extent), newest + 3))
        if rng.random() < 0.5:
            asked = int(rng.integers(asked, newest + 1)) if newest > asked else asked
            checked.free(asked - extent)
        if rng.random() < 0.3:
            checked.window = after_a_crash(checked.window)


@pytest.mark.parametrize("capacity", [1, 7, 64, 4096])
@pytest.mark.parametrize("seed", range(4))
def test_messages_that_end_count_at_watermarks_before_their_end(capacity, seed):
    rng = np.random.default_rng([seed, capacity])
    extent = int(rng.choice([5, 12, 40]))
    checked = Checked(make_window("chunks", {"capacity": capacity}), extent)
    todo, asked = draw_messages(rng, 150, kind="time"), -1
    while todo:
        checked.insert(todo[: (n := int(rng.choice([1, 2, 9, 30])))])
        todo, newest = todo[n:], checked.messages[-1]["position"]
        open_ones = [m for m in checked.messages if "end" not in m and rng.random() < 0.2]
        checked.end({m["seq"]: int(rng.integers(max(m["position"], newest - 3), newest + 1)) for m in open_ones})
        checked.ask(draw_queries(rng, 6, max(asked, checked.freed + extent), newest + 3))
        there = {m["seq"] for m in checked.messages if newest >= m.get("end", np.inf)}
        assert len(checked.window) >= checked.window.ended(newest).sum() and (checked.freed > -(10**9) or checked.window.ended(newest).sum() == len(there))
        if rng.random() < 0.5:
            asked = int(rng.integers(asked, newest + 1)) if newest > asked else asked
            checked.free(asked - extent)
        if rng.random() < 0.3:
            checked.window = after_a_crash(checked.window)


def test_equal_scores_rank_newer_messages_first(window):
    window.insert(message_batch([simple(s) for s in range(10)]), [str(s) for s in range(10)])
    assert seqs(window, ask(9, k=4), 100) == [9, 8, 7, 6]
    assert seqs(window, ask(6, k=4), 3) == [6, 5, 4]


def test_equal_positions_rank_the_higher_sequence_number_first(window):
    window.insert(message_batch([simple(5, position=7), simple(8, position=7), simple(2, position=9)]), ["5", "8", "2"])
    assert seqs(window, ask(9), 100) == [2, 8, 5]
    assert seqs(window, ask(8), 100) == [8, 5]


def test_what_has_expired_is_never_returned_for_a_later_watermark(window):
    window.insert(message_batch([simple(s) for s in range(20)]), [str(s) for s in range(20)])
    assert len(window) == 20
    assert seqs(window, ask(19, k=50), 5) == [19, 18, 17, 16, 15]
    assert seqs(window, ask(12, k=50), 5) == [12, 11, 10, 9, 8]
    assert seqs(window, ask(24, k=50), 5) == []
    assert seqs(window, ask(22, k=50), 5) == [19, 18]


def test_an_empty_window_has_no_answers(window):
    answers = window.topk(query_batch([ask(5), ask(-1)]), 10, DIAGONAL)
    assert answers.offsets.tolist() == [0, 0, 0] and len(answers.seqs) == len(answers.scores) == 0
    assert window.ids(answers.seqs, answers.positions) == []
    none = window.topk(QueryBatch.concat([]), 10, DIAGONAL)
    assert none.offsets.tolist() == [0]
    window.insert(MessageBatch.empty(), [])
    window._check()
    assert len(window) == 0


def test_alpha_one_ranks_by_distance_and_alpha_zero_by_text_alone(window):
    messages = [simple(0, (1,), lon=10.0), simple(1, (1, 2), lon=1.0), simple(2, (1, 2, 3), lon=2.0), simple(3, (4,), lon=0.0)]
    window.insert(message_batch(messages), [m["id"] for m in messages])
    assert seqs(window, ask(3, alpha=1.0), 10) == [1, 2, 0]
    assert seqs(window, ask(3, alpha=0.0), 10) == [0, 1, 2]


def test_terms_that_the_vocabulary_does_not_know_match_like_others(window):
    messages = [simple(0, (-(2**62), 3)), simple(1, (-9,)), simple(2, (0,))]
    window.insert(message_batch(messages), ["0", "1", "2"])
    assert seqs(window, ask(2, terms=(-(2**62), -9)), 10) == [1, 0]


def test_all_of_a_window_that_is_smaller_than_the_count_is_returned(window):
    window.insert(message_batch([simple(s, (s % 3,)) for s in range(12)]), [str(s) for s in range(12)])
    assert seqs(window, ask(11, k=10**15, terms=(1, 2)), 10**15) == [11, 10, 8, 7, 5, 4, 2, 1]


def test_messages_out_of_order_are_refused(window):
    window.insert(message_batch([simple(4, position=4)]), ["4"])
    for wrong in ([simple(3)], [simple(4)], [simple(6), simple(5)], [simple(4, position=9), simple(3, position=9)]):
        with pytest.raises(IllegalArgumentException, match="rising order"):
            window.insert(message_batch(wrong), [m["id"] for m in wrong])
    window._check()
    assert len(window) == 1


def test_freed_messages_cannot_be_asked_for_and_do_not_come_back(window):
    window.insert(message_batch([simple(s) for s in range(10)]), [str(s) for s in range(10)])
    window.free(4)
    window.free(2)
    assert seqs(window, ask(9, k=50), 5) == [9, 8, 7, 6, 5]
    with pytest.raises(IllegalArgumentException, match="have been freed"):
        seqs(window, ask(8), 5)
    window.free(50)
    window._check()
    with pytest.raises(IllegalArgumentException, match="have been freed"):
        window.insert(message_batch([simple(50)]), ["50"])
    window.insert(message_batch([simple(51)]), ["51"])
    assert seqs(window, ask(55), 5) == [51]


def test_freed_messages_do_not_pile_up(window):
    for start in range(0, 20_000, 500):
        window.insert(message_batch([simple(s, (s % 50,)) for s in range(start, start + 500)]), list(map(str, range(start, start + 500))))
        window.free(start - 500)
        if start == 9_000:
            early = window.memory_bytes
    assert len(window) < 10_000
    assert window.memory_bytes < 3 * early
    window._check()


def test_ids_are_found_in_any_order_and_unknown_ones_refused(window):
    rng = np.random.default_rng(3)
    messages = draw_messages(rng, 60, kind="time", first_seq=100)
    window.insert(message_batch(messages), [m["id"] for m in messages])
    wanted = [messages[i] for i in rng.integers(0, 60, 200)]
    seqs, positions = (np.array([m[name] for m in wanted]) for name in ("seq", "position"))
    assert window.ids(seqs, positions) == [m["id"] for m in wanted]
    for seq, position in ((seqs[0], 0), (99, positions[0]), (160, positions[0]), (-1, -1)):
        with pytest.raises(IllegalArgumentException, match="not in the window"):
            window.ids(np.array([seqs[1], seq]), np.array([positions[1], position]))


def test_a_message_without_an_id_is_refused(window):
    for ids in ([], ["0", "1"], [None]):
        with pytest.raises(IllegalArgumentException, match="needs an id"):
            window.insert(message_batch([simple(0)]), ids)
    window.insert(message_batch([simple(0), simple(1)]), ["", '"\U0001f600"'])
    assert window.ids(np.array([1, 0]), np.array([1, 0])) == ['"\U0001f600"', ""]


def test_a_snapshot_holds_the_same_messages_in_another_process(window):
    rng = np.random.default_rng(11)
    checked = Checked(window, 25)
    checked.insert(draw_messages(rng, 50))
    checked.free(10)
    data = pack_state(window.snapshot())
    checked.insert(draw_messages(rng, 5, first_seq=50))  # the snapshot does not follow
    twin = Checked(type(window)(), 25, checked.messages[:50], 10)
    twin.window.restore(unpack_state(data))
    assert len(twin.window) <= 50
    twin.ask(draw_queries(rng, 20, 35, 50))
    twin.insert(draw_messages(rng, 40, first_seq=50))
    twin.free(30)
    twin.ask(draw_queries(rng, 20, 55, 90))


def test_a_snapshot_of_an_empty_window_is_an_empty_window(window):
    twin = after_a_crash(window)
    assert len(twin) == 0
    window.insert(message_batch([simple(1)]), ["1"])
    window.free(3)
    twin = after_a_crash(window)
    with pytest.raises(IllegalArgumentException, match="have been freed"):
        twin.insert(message_batch([simple(2)]), ["2"])


def test_many_queries_at_once_are_answered_as_one_by_one(window):
    rng = np.random.default_rng(5)
    messages = draw_messages(rng, 80)
    window.insert(message_batch(messages), [m["id"] for m in messages])
    queries = draw_queries(rng, 60, -1, 85)
    together = window.topk(query_batch(queries), 30, DIAGONAL)
    for i, query in enumerate(queries):
        assert rows(window.topk(query_batch([query]), 30, DIAGONAL), 0) == rows(together, i)
    parts = query_batch(queries)
    mixed = QueryBatch.concat([parts.select(np.arange(20, 60)), parts.select(np.arange(20))])
    again = window.topk(mixed, 30, DIAGONAL)
    assert [rows(again, i) for i in range(60)] == [rows(together, i) for i in (*range(20, 60), *range(20))]


@pytest.mark.parametrize("k", [1, 20])
def test_lists_of_common_keywords_are_left_out_only_where_they_bring_nothing(window, k):
    rng = np.random.default_rng(k)
    odds = 1 / np.arange(1, 121)
    odds /= odds.sum()
    messages = []
    for seq in range(600):
        terms = 119 - rng.choice(120, size=rng.integers(1, 7), replace=False, p=odds)  # the higher, the more common
        weights = 1 / (1.0 + terms) ** 0.5
        messages.append(
            {
                "seq": seq,
                "position": seq,
                "lat": float(rng.random() * 15),
                "lon": float(rng.random() * 20),
                "weights": dict(zip(terms.tolist(), (weights / np.sqrt((weights * weights).sum())).tolist())),
                "id": str(seq),
            }
        )
    checked = Checked(window, 450)
    for start in range(0, 600, 150):
        checked.insert(messages[start : start + 150])
    queries = []
    for _ in range(60):
        like = messages[rng.integers(600)]
        queries.append(
            {"watermark": int(rng.integers(400, 600)), "k": k, "alpha": float(rng.random()), "lat": like["lat"], "lon": like["lon"], "weights": like["weights"]}
        )
    checked.ask(queries)


def test_a_message_may_have_thousands_of_keywords(window):
    everything = [simple(0, tuple(range(-3000, 3000))), simple(1, (5,)), simple(2, tuple(range(0, 6000, 2)))]
    window.insert(message_batch(everything), ["0", "1", "2"])
    window._check()
    assert seqs(window, ask(2, terms=(5,)), 10) == [1, 0]
    assert seqs(window, ask(2, terms=(-3000, 5998)), 10) == [2, 0]


@pytest.mark.parametrize("places", ["one", "a line", "two and their borders"])
def test_messages_may_all_be_at_the_same_places(window, places):
    rng = np.random.default_rng(len(places))
    checked = Checked(window, 50)
    for step in range(30):
        messages = draw_messages(rng, int(rng.integers(1, 12)), first_seq=len(checked.messages))
        for m in messages:
            m["lat"] = 0.0 if places != "two and their borders" else m["lat"] // 5 * 5
            m["lon"] = 3.0 if places == "one" else m["lon"] if places == "a line" else m["lon"] // 6 * 6
        checked.insert(messages)
        newest = len(checked.messages) - 1
        checked.free(newest - 50 - int(rng.integers(0, 4)))
        if step % 6 == 5:
            checked.ask(draw_queries(rng, 6, newest, newest + 1))


def test_what_comes_and_goes_one_by_one_leaves_nothing_behind(window):
    rng = np.random.default_rng(12)
    checked = Checked(window, 12)
    for n, message in enumerate(draw_messages(rng, 120, kind="time")):
        checked.insert([message])
        if n % 40 < 30:  # it grows a little, and shrinks again
            checked.free(message["position"] - 12)
        if n % 20 == 19:
            checked.ask(draw_queries(rng, 4, message["position"], message["position"] + 5))
    checked.free(10**6)
    assert len(window) == 0


def test_the_tree_shrinks_with_its_messages_and_grows_again():
    rng = np.random.default_rng(2)
    checked = Checked(make_window("irtree", {"node_capacity": 8}), 1000)
    for round_ in range(3):
        messages = draw_messages(rng, 300, first_seq=300 * round_)
        for m in messages:
            m["lat"], m["lon"] = float(rng.random() * 15), float(rng.random() * 20)
        checked.insert(messages)
        tree = checked.window._tree
        assert tree.node[tree.meta[irtree_kernels.ROOT], irtree_kernels.LEVEL] >= 2
        checked.ask(draw_queries(rng, 5, 300 * round_ + 299, 300 * round_ + 299) if round_ == 0 else [])
        for position in [*range(300 * round_, 300 * round_ + 298, 13), 300 * round_ + 298]:
            checked.free(position)
        tree = checked.window._tree
        assert tree.node[tree.meta[irtree_kernels.ROOT], irtree_kernels.LEVEL] == 0
        assert tree.meta[irtree_kernels.SPARE_NODES] == tree.meta[irtree_kernels.NODES] - 1


def test_chunks_of_another_capacity_are_taken_over():
    rng = np.random.default_rng(8)
    checked = Checked(make_window("chunks", {"capacity": 40}), 60)
    checked.insert(draw_messages(rng, 70))
    for capacity in (3, 100, 1):
        state = pack_state(checked.window.snapshot())
        checked.window = make_window("chunks", {"capacity": capacity})
        checked.window.restore(unpack_state(state))
        checked.window._check()
        checked.insert(draw_messages(rng, 10, first_seq=len(checked.messages)))
        checked.ask(draw_queries(rng, 20, 40, len(checked.messages)))


def unaligned(array):
    """Return an equal array as a frame holds it: read-only, and at an odd address."""
    return np.frombuffer(b"x" + array.tobytes(), array.dtype, offset=1)


def test_kernels_are_compiled_once_whatever_arrays_come(window):
    messages = [simple(s, (1, 2)) for s in range(30)]
    plain = [message_batch([m]) for m in messages]
    window.insert(plain[0], ["0"])
    seqs(window, ask(0), 10)
    window.ids(np.array([0]), np.array([0]))
    kernels = [k for module in (_kernels, irtree_kernels, irtree_search_kernels) for k in vars(module).values() if hasattr(k, "signatures")]
    before = [len(k.signatures) for k in kernels]
    batch = MessageBatch.concat(plain)
    window.insert(MessageBatch(*map(unaligned, batch.columns())).slice(1, 10), list(map(str, range(1, 10))))
    window.insert(MessageBatch(*(np.repeat(column, 2)[::2] for column in batch.columns())).slice(10, 30), list(map(str, range(10, 30))))
    query = query_batch([ask(29, terms=(1, 2))])
    found = window.topk(query, 10, DIAGONAL)
    assert found.seqs.tolist() == list(range(29, 19, -1))
    assert rows(window.topk(QueryBatch(*map(unaligned, query)), 10, int(DIAGONAL)), 0) == rows(found, 0)
    assert window.ids(unaligned(found.seqs), unaligned(found.positions)) == list(map(str, range(29, 19, -1)))
    window = after_a_crash(window)
    assert rows(window.topk(query, 10, DIAGONAL), 0) == rows(found, 0)
    assert [len(k.signatures) for k in kernels] == before


def test_unknown_names_and_options_are_refused():
    with pytest.raises(IllegalArgumentException, match="legal: .*chunks"):
        make_window("hash")
    with pytest.raises(IllegalArgumentException, match="capacitty.*legal: capacity"):
        make_window("chunks", {"capacitty": 5})
    for wrong in (0, 65_537, 2.5, True):
        with pytest.raises(IllegalArgumentException, match="1 to 65536"):
            make_window("chunks", {"capacity": wrong})
    for wrong in (1, 4097, 8.0, False):
        with pytest.raises(IllegalArgumentException, match="2 to 4096"):
            make_window("irtree", {"node_capacity": wrong})


def test_queries_in_frames_of_earlier_versions_have_distances_in_degrees():
    columns = dict(request=[1, 2], subscription=["a", "b"], watermark=[5, 5], count=[1, 1], alpha=[0.5, 0.5], lat=[0.0, 0.0], lon=[0.0, 0.0])
    for scale_m, expected in (([None, None], None), (None, None), ([0.0, 0.0], None), (np.array([0.0, 500.0]), [0.0, 500.0])):
        found = QueryBatch.of(Requests(**columns, terms=[[1], [2]], weights=[[1.0], [1.0]], programs=None, scale_m=scale_m, filter=[None, None]))
        assert (None if found.scale_m is None else found.scale_m.tolist()) == expected
        assert QueryBatch.concat([found, found]).select(np.array([3])).scales_m().tolist() == [(expected or [0.0, 0.0])[1]]
