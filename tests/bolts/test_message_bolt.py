"""The message bolt: alone, and between others on a transport that crashes, repeats and delays."""

import json
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

from dskype.bolts.message_bolt import MessageBolt
from dskype.distribution.subscriptions import TopkSubscription
from dskype.spouts import streams
from dskype.spouts.columns import lists_to_csr
from dskype.topology import TopologyBuilder
from dskype.topology.core.values import pack_state, unpack_state
from dskype.topology.errors import IllegalArgumentException, InvalidTopologyException
from dskype.topology.simulated.faults import Faults
from dskype.topology.testing import TestWordSpout as WordSpout
from dskype.topology.tuples import StreamMeta, TupleBatch

from .window.play import CONF, Play, request_columns, window_columns
from .window.scenes import draw_messages, draw_queries, exact_topk

DISTRIBUTORS, ASKERS = (1, 2), (5, 6)


class Context:
    """What the bolt asks of its context."""

    def __init__(self):
        self.gauges, self.counters, self.plan = {}, {}, SimpleNamespace(name="dskype")

    def get_this_task_id(self):
        return 7

    def get_this_component_id(self):
        return "message-bolt"

    def get_component_tasks(self, component):
        return {"subscription-bolt": list(ASKERS)}.get(component, [])

    def register_gauge(self, name, function):
        self.gauges[name] = function

    def register_counter(self, name):
        context = self

        class Count:
            def inc(self, n=1):
                context.counters[name] = context.counters.get(name, 0) + n

        return Count()


class Collector:
    """Keeps what is emitted."""

    def __init__(self):
        self.rows, self.errors, self.records = [], [], []

    def send_record(self, topic, key, value):
        assert topic == "dskype.answers"
        self.records.append(json.loads(value))

    def emit_batch(self, columns, stream):
        assert stream == "partials"
        assert all(isinstance(columns[i], pa.ListArray) for i in (4, 5, 6))
        self.rows += list(zip(*(c.to_pylist() if isinstance(c, pa.Array) else c.tolist() if isinstance(c, np.ndarray) else c for c in columns), strict=True))

    def report_error(self, error):
        self.errors.append(error)


class Alone:
    """One message bolt, fed by hand."""

    def __init__(self, extent=10, kind="messages"):
        self.conf = {**CONF, f"dskype.window.{kind}": extent, "dskype.window.index.options": {"capacity": 3}}
        self.extent, self.sent = extent, []
        self.prepare()

    def prepare(self):
        self.bolt, self.context, self.collector = MessageBolt(), Context(), Collector()
        self.bolt.prepare(self.conf, self.context, self.collector)

    def crash(self):
        state, rows, records = pack_state(self.bolt.snapshot()), self.collector.rows, self.collector.records
        self.prepare()
        self.bolt.restore(unpack_state(state))
        self.collector.rows, self.collector.records = rows, records

    def _run(self, component, task, stream, columns):
        self.bolt.execute_batch(TupleBatch(columns, StreamMeta(component, task, stream, streams.STREAMS[stream].fields), len(columns[0])))

    def messages(self, messages, task=DISTRIBUTORS[0]):
        self.sent += messages
        self._run("distribution-bolt", task, streams.Window.name, window_columns(messages))

    def ask(self, numbers, queries, task=ASKERS[0], arrow=True):
        self._run("subscription-bolt", task, streams.Requests.name, request_columns(numbers, queries, arrow=arrow))

    def progress(self, watermark, task):
        self._run("subscription-bolt", task, streams.Progress.name, [[watermark]])

    def search(self, name, watermark, k=100):
        record = TopkSubscription(k, 0.5, 0.0, 0.0, np.array([1]), np.array([1.0]), None).encode()
        self._run("distribution-bolt", DISTRIBUTORS[0], streams.Lookups.name, [[name], [watermark], [record]])

    def answered(self):
        return {(row[2], row[0]) for row in self.collector.rows}


def plain(watermark, k=100, terms=(1,)):
    return {"watermark": watermark, "k": k, "alpha": 0.5, "lat": 0.0, "lon": 0.0, "weights": dict.fromkeys(terms, 1.0)}


def message(seq, position=None):
    return {"seq": seq, "position": seq if position is None else position, "lat": 0.0, "lon": 0.0, "weights": {1: 1.0}, "id": str(seq)}


def test_a_request_waits_until_its_watermark_is_reached():
    alone = Alone()
    alone.messages([message(s) for s in range(6)])
    alone.ask([7, 8], [plain(4), plain(3)])
    alone.bolt.on_watermark(2)
    assert not alone.collector.rows and alone.context.gauges["pending_requests"]() == 2
    alone.bolt.on_watermark(3)
    assert alone.answered() == {(5, 8)}
    alone.crash()
    alone.bolt.on_watermark(5)
    assert alone.answered() == {(5, 8), (5, 7)}
    first, second = alone.collector.rows
    assert first[4] == [3, 2, 1, 0] and first[7] == ["3", "2", "1", "0"]
    assert second[:5] == (7, "s7", 5, 100, [4, 3, 2, 1, 0])
    alone.ask([9], [plain(1)])  # a request for a past watermark is answered at once
    assert alone.collector.rows[-1][4] == [1, 0]
    assert alone.context.gauges["pending_requests"]() == 0 and alone.context.gauges["window_messages"]() == 6


def test_messages_of_several_tasks_are_applied_in_order_of_position_and_number():
    alone = Alone(kind="span.ms")
    alone.messages([message(2, 7), message(5, 5), message(9, 12)], task=1)  # in order of seq, as one task sends them
    alone.messages([message(1, 7), message(3, 4), message(4, 30)], task=2)
    alone.crash()
    alone.bolt.on_watermark(12)
    alone.ask([1, 2], [plain(12), plain(7)])
    assert [row[4] for row in alone.collector.rows] == [[9, 2, 1, 5, 3], [2, 1, 5, 3]]
    alone.bolt.on_watermark(30)
    alone.ask([3], [plain(30)])
    assert alone.collector.rows[-1][4] == [4]


def test_requests_before_the_first_message_are_answered_empty_at_once():
    alone = Alone()
    alone.ask([1], [plain(-1)])
    assert alone.collector.rows == [(1, "s1", 5, 100, [], [], [], [])]
    alone.messages([message(s) for s in range(40)])
    for task in ASKERS:
        alone.progress(35, task)
    alone.bolt.on_watermark(39)
    alone.ask([2, 3, 4], [plain(36), plain(-1), plain(37, k=1)])
    assert [row[4] for row in alone.collector.rows[1:]] == [list(range(36, 26, -1)), [], [37]]


def test_everything_is_kept_until_every_subscription_task_has_announced():
    alone = Alone(extent=5)
    alone.messages([message(s) for s in range(60)])
    alone.bolt.on_watermark(59)
    alone.progress(50, ASKERS[0])
    alone.ask([1], [plain(4)], task=ASKERS[1])
    assert alone.collector.rows[-1][4] == [4, 3, 2, 1, 0]
    alone.progress(20, ASKERS[1])
    alone.crash()
    assert 60 - 16 <= len(alone.bolt._window) <= 60 - 16 + 3  # chunks of 3
    alone.ask([2], [plain(20)], task=ASKERS[1])
    assert alone.collector.rows[-1][4] == [20, 19, 18, 17, 16]


def test_waiting_requests_hold_the_messages_that_they_need():
    alone = Alone(extent=5)
    alone.messages([message(s) for s in range(30)])
    alone.bolt.on_watermark(5)
    alone.ask([1], [plain(8)])
    for task in ASKERS:  # far ahead of this bolt
        alone.progress(25, task)
    alone.bolt.on_watermark(29)
    assert alone.collector.rows[-1][4] == [8, 7, 6, 5, 4]
    assert alone.bolt._freed == 20
    alone.ask([2], [plain(25)])
    assert alone.collector.rows[-1][4] == [25, 24, 23, 22, 21]


def test_a_search_finds_its_window_however_far_the_subscription_tasks_are():
    alone = Alone(extent=5)
    alone.messages([message(s) for s in range(30)])
    for task in ASKERS:
        alone.progress(25, task)
    alone.bolt.on_watermark(12)
    alone.search("now", 12, 3)
    alone.search("later", 14)
    alone.search("newest", 29)
    alone.crash()
    assert [entry["seq"] for entry in alone.collector.records[-1]["results"]] == [12, 11, 10]
    for task in ASKERS:
        alone.progress(28, task)
    records = alone.collector.records
    alone.bolt.on_watermark(29)
    found = {record["search"]: record for record in alone.collector.records}
    assert [entry["seq"] for entry in found["later"]["results"]] == [14, 13, 12, 11, 10] and found["later"]["watermark"] == 14
    assert [entry["seq"] for entry in found["newest"]["results"]] == [29, 28, 27, 26, 25] and len(records) == 3
    assert alone.bolt._freed == 9
    alone.bolt.on_watermark(30)
    assert alone.bolt._freed == 23
    alone.search("gone", 20)
    assert alone.collector.records[-1]["code"] == "gone"


def test_messages_that_no_request_can_need_are_not_inserted():
    alone = Alone(extent=5)
    alone.messages([message(s) for s in range(30)])
    for task in ASKERS:
        alone.progress(25, task)
    alone.bolt.on_watermark(29)
    assert len(alone.bolt._window) == 9
    alone.ask([2], [plain(25)])
    assert alone.collector.rows[-1][4] == [25, 24, 23, 22, 21]


def test_a_request_below_what_was_announced_is_reported_and_never_answered_wrongly():
    alone = Alone(extent=5)
    alone.messages([message(s) for s in range(30)])
    alone.bolt.on_watermark(29)
    for task in ASKERS:
        alone.progress(25, task)
    alone.ask([1, 2], [plain(20), plain(26)])
    assert alone.answered() == {(5, 2)}
    assert len(alone.collector.errors) == 1 and "below the watermark that was announced" in alone.collector.errors[0]


def test_messages_behind_the_watermark_are_reported_and_left_out():
    alone = Alone()
    alone.messages([message(s) for s in range(5)])
    alone.bolt.on_watermark(6)
    alone.messages([message(6), message(7)])
    assert "given: position 6" in alone.collector.errors[0].replace("'", "")
    alone.bolt.on_watermark(7)
    alone.ask([1], [plain(7)])
    assert alone.collector.rows[-1][4] == [7, 4, 3, 2, 1, 0]


def test_lists_may_come_as_arrow_columns_or_as_plain_lists():
    messages = draw_messages(np.random.default_rng(1), 40)
    queries = draw_queries(np.random.default_rng(2), 300, -1, 39, filtered=0.3)
    results = []
    for arrow in (True, False):
        alone = Alone()
        columns = window_columns(messages)
        if not arrow:
            columns = [c.tolist() if isinstance(c, np.ndarray) else c.to_pylist() if isinstance(c, pa.Array) else c for c in columns]
        else:
            columns[2] = pa.array(columns[2]).dictionary_encode()
        alone._run("distribution-bolt", 1, streams.Window.name, columns)
        alone.bolt.on_watermark(39)
        alone.ask(list(range(300)), queries, arrow=arrow)
        results.append(alone.collector.rows)
        assert alone.context.counters["requests_answered"] == 300
    assert results[0] == results[1]
    for row, query in zip(results[0], queries):
        assert list(zip(*row[4:7])) == exact_topk(query, messages, 10)


def test_columns_of_lists_survive_the_way_to_arrays():
    for column in (
        [[1, 2], [], [3]],
        [np.array([1, 2]), (), [3]],
        pa.array([[1, 2], [], [3]]),
        pa.array([[9], [1, 2], [], [3]]).slice(1),
        pa.chunked_array([pa.array([[1, 2], []]), pa.array([[3]])]),
        pa.array([[1, 2], None, [3]]),
        pa.array([[1, 2], [], [3]], pa.large_list(pa.int32())),
    ):
        offsets, values = lists_to_csr(column, np.int64)
        assert offsets.dtype == values.dtype == np.int64
        assert offsets.tolist() == [0, 2, 2, 3] and values.tolist() == [1, 2, 3]
    for empty in ([], pa.array([], pa.list_(pa.int64())), [[], []], pa.array([[], []], pa.list_(pa.null()))):
        offsets, values = lists_to_csr(empty, np.float64)
        assert offsets.tolist() == [0] * (len(empty) + 1) and values.dtype == np.float64 and not len(values)
    for wrong in ([["a"]], [1, 2], pa.array([["a"]]), pa.array([[1, None]]), [[[1]]]):
        with pytest.raises(IllegalArgumentException, match="lists of numbers"):
            lists_to_csr(wrong, np.int64)


def test_a_topology_without_its_parts_is_refused():
    builder = TopologyBuilder()
    builder.set_spout("words", WordSpout())
    topology = builder.create_topology()
    with pytest.raises(InvalidTopologyException, match="subscription bolt is not there.*legal: .*words"):
        MessageBolt().check_topology("message-bolt", {}, topology)
    with pytest.raises(IllegalArgumentException, match="message window is not known.*'tree'"):
        MessageBolt("tree", subscription_bolt="words").check_topology("message-bolt", {}, topology)
    MessageBolt(subscription_bolt="words").check_topology("message-bolt", {}, topology)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["count", "time"])
@pytest.mark.parametrize("tasks", [(1, 1, 1, 1), (2, 2, 3, 2), (3, 1, 2, 1)], ids=str)
def test_every_request_is_answered_as_the_oracle_does(kind, tasks):
    assert Play(kind, tasks=tasks).check() > 20 * tasks[1]


@pytest.mark.long
@pytest.mark.parametrize("kind", ["count", "time"])
@pytest.mark.parametrize("seed", range(8))
def test_faults_change_no_answer(kind, seed):
    play = Play(kind, data_seed=seed, extent=(1, 10, 25, 60)[seed % 4], seed=seed, faults=Faults.heavy())
    assert play.check() > 20
    assert len(play.simulated.fault_counts) > 5
