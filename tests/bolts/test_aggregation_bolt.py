"""The aggregation bolt: merges partial answers, in whatever order they come, and keeps nothing behind."""

import itertools

import numpy as np
import pytest

from dskype.bolts.aggregation_bolt import AggregationBolt
from dskype.spouts import streams
from dskype.spouts.columns import csr_to_lists, lists_to_csr
from dskype.topology import TopologyBuilder
from dskype.topology.core.values import pack_state, unpack_state
from dskype.topology.errors import InvalidTopologyException
from dskype.topology.testing import TestWordSpout as WordSpout
from dskype.topology.tuples import StreamMeta, TupleBatch


class Context:
    def __init__(self, tasks):
        self.tasks, self.answered = tasks, 0

    def get_component_tasks(self, component):
        return list(range(20, 20 + self.tasks)) if component == "message-bolt" else []

    def register_gauge(self, name, function):
        assert name == "pending_requests"
        self.pending = function

    def register_counter(self, name):
        assert name == "requests_answered"
        context = self

        class Count:
            def inc(self, n=1):
                context.answered += n

        return Count()


class Collector:
    def __init__(self):
        self.sent, self.calls = [], 0

    def emit_direct_batch(self, task, columns, stream):
        assert stream == "answers"
        self.calls += 1
        requests, subscriptions, *lists, ids = columns
        self.sent += [(task, *row) for row in zip(requests.tolist(), subscriptions, *(column.to_pylist() for column in lists), ids, strict=True)]


def bolt(tasks):
    made, context, collector = AggregationBolt(), Context(tasks), Collector()
    made.prepare({}, context, collector)
    return made, context, collector


def partial(request, asker, count, rows):
    """One partial answer; rows are (score, position, seq)."""
    return [request, f"s{request}", asker, count, [r[2] for r in rows], [r[1] for r in rows], [r[0] for r in rows], [f'"{r[2]}"' for r in rows]]


def give(made, task, partials, arrow=True):
    columns = [list(column) for column in zip(*partials)]
    if arrow:
        columns[0], columns[2], columns[3] = (np.array(columns[i]) for i in (0, 2, 3))
        for i, dtype in ((4, np.int64), (5, np.int64), (6, np.float64)):
            columns[i] = csr_to_lists(*lists_to_csr(columns[i], dtype))
    made.execute_batch(TupleBatch(columns, StreamMeta("message-bolt", task, streams.Partials.name, streams.Partials.fields), len(partials)))


def answer(request, asker, rows):
    task = partial(request, asker, 0, rows)
    return (asker, request, f"s{request}", *task[4:])


def test_the_best_of_all_message_tasks_are_sent_in_rank_order():
    made, context, collector = bolt(3)
    parts = [[(0.9, 5, 5), (0.5, 9, 9)], [(0.9, 7, 7), (0.4, 1, 1)], [(0.5, 9, 11), (0.5, 9, 10)]]
    for task, rows in enumerate(parts[:2]):
        give(made, 20 + task, [partial(3, 8, 5, rows)])
    assert not collector.sent and context.pending() == 1
    give(made, 22, [partial(3, 8, 5, parts[2])])
    assert collector.sent == [answer(3, 8, [(0.9, 7, 7), (0.9, 5, 5), (0.5, 9, 11), (0.5, 9, 10), (0.5, 9, 9)])]
    assert context.pending() == 0 and context.answered == 1


def test_the_order_of_the_partials_makes_no_difference():
    rng = np.random.default_rng(4)
    parts = [sorted(((float(rng.integers(0, 3)) / 2, int(rng.integers(0, 4)), seq) for seq in range(task, 40, 4)), reverse=True)[:6] for task in range(4)]
    sent = []
    for order in itertools.permutations(range(4)):
        made, _, collector = bolt(4)
        for task in order:
            give(made, 20 + task, [partial(1, 8, 6, parts[task])], arrow=task % 2 == 0)
        sent.append(collector.sent)
    assert all(s == sent[0] for s in sent)
    assert sent[0] == [answer(1, 8, sorted(sum(parts, []), reverse=True)[:6])]


def test_the_same_number_asked_by_two_tasks_is_two_requests():
    made, _, collector = bolt(2)
    give(made, 20, [partial(1, 8, 2, [(0.5, 1, 1)]), partial(1, 9, 2, [(0.7, 2, 2)])])
    give(made, 21, [partial(1, 9, 2, []), partial(1, 8, 2, [(0.6, 3, 3)])])
    assert collector.sent == [answer(1, 8, [(0.6, 3, 3), (0.5, 1, 1)]), answer(1, 9, [(0.7, 2, 2)])]


def test_empty_answers_are_answers():
    made, context, collector = bolt(2)
    for task in (20, 21):
        give(made, task, [partial(1, 8, 4, []), partial(2, 8, 0, [])], arrow=task == 20)
    assert collector.sent == [answer(1, 8, []), answer(2, 8, [])]
    assert context.pending() == 0


def test_answers_that_are_complete_at_once_travel_together():
    made, _, collector = bolt(2)
    partials = [partial(n, 8 + n % 3, 3, [(n / 100, n, n)]) for n in range(60)]
    give(made, 20, partials)
    give(made, 21, partials[:30])
    assert collector.calls == 3
    give(made, 21, partials[30:])
    assert collector.calls == 6 and len(collector.sent) == 60
    for task in (8, 9, 10):
        assert [row[1] for row in collector.sent if row[0] == task] == [n for n in range(60) if 8 + n % 3 == task]


def test_with_one_message_task_every_partial_is_the_answer():
    made, context, collector = bolt(1)
    give(made, 20, [partial(1, 8, 1, [(0.5, 1, 1)]), partial(2, 9, 3, [])])
    assert collector.sent == [answer(1, 8, [(0.5, 1, 1)]), answer(2, 9, [])] and context.pending() == 0


@pytest.mark.parametrize("seed", range(5))
def test_answers_equal_a_sort_of_everything_over_crashes(seed):
    rng = np.random.default_rng(seed)
    tasks = int(rng.integers(1, 5))
    made, context, collector = bolt(tasks)
    expected, inbox = [], [[] for _ in range(tasks)]
    for request in range(50):
        asker, count = int(rng.integers(8, 11)), int(rng.integers(0, 7))
        seqs = rng.permutation(30)
        rows = sorted(((float(rng.integers(0, 4)) / 4, int(seq) // 3, int(seq)) for seq in seqs), reverse=True)
        for task in range(tasks):
            inbox[task].append(partial(request, asker, count, [r for r in rows if r[2] % tasks == task][:count]))
        expected.append(answer(request, asker, rows[:count]))
    while any(inbox):
        task = int(rng.choice([t for t in range(tasks) if inbox[t]]))
        n = int(rng.integers(1, 9))
        give(made, 20 + task, inbox[task][:n], arrow=bool(rng.random() < 0.5))
        del inbox[task][:n]
        if rng.random() < 0.4:
            state, sent = pack_state(made.snapshot()), collector.sent
            pending = context.pending()
            made, context, collector = bolt(tasks)
            made.restore(unpack_state(state))
            collector.sent = sent
            assert context.pending() == pending
    assert sorted(collector.sent, key=lambda row: row[1]) == expected
    assert context.pending() == 0 and not made.snapshot()["ids"]


def test_a_topology_without_the_message_bolt_is_refused():
    builder = TopologyBuilder()
    builder.set_spout("words", WordSpout())
    with pytest.raises(InvalidTopologyException, match="message bolt is not there.*legal: .*words"):
        AggregationBolt().check_topology("aggregation-bolt", {}, builder.create_topology())
    AggregationBolt("words").check_topology("aggregation-bolt", {}, builder.create_topology())
