"""A small topology around the message and aggregation bolts: others play the distribution and subscription bolts."""

from __future__ import annotations

from typing import Any

import numpy as np

from dskype.bolts.aggregation_bolt import AggregationBolt
from dskype.bolts.message_bolt import MessageBolt
from dskype.spouts import streams
from dskype.spouts.columns import csr_to_lists, lists_to_csr
from dskype.topology import Fields, Spout, TopologyBuilder
from dskype.topology.components import BatchBolt
from dskype.topology.planning.plan import TopologyPlan
from dskype.topology.simulated.faults import Faults
from dskype.topology.simulated.faulty import simulate
from dskype.topology.simulated.log import MemoryLog
from tests import naive_where

from .scenes import draw_messages, draw_queries, exact_topk, message_batch, programs_of

N = 90
CONF: dict[str, Any] = {"topology.acker.executors": 0, "topology.emulator.snapshot.interval.ms": 300, "dskype.space": [0, 0, 20, 15]}  # diagonal 25 degrees


def window_columns(messages: list[dict[str, Any]]) -> list[Any]:
    """Return messages as the columns of the stream ``window``."""
    batch, details = message_batch(messages), naive_where.details(messages)
    return [
        batch.seq,
        batch.position,
        [m["id"] for m in messages],
        batch.lat,
        batch.lon,
        csr_to_lists(batch.offsets, batch.terms),
        csr_to_lists(batch.offsets, batch.weights),
        csr_to_lists(*details[:2]),
        csr_to_lists(*details[2:4]),
        csr_to_lists(*details[4:6]),
    ]


def request_columns(numbers: list[int], queries: list[dict[str, Any]], *, arrow: bool = True) -> list[Any]:
    """Return queries as the columns of the stream ``requests``."""
    terms = [sorted(q["weights"]) for q in queries]
    weights = [[q["weights"][t] for t in ts] for q, ts in zip(queries, terms)]
    if arrow:
        terms, weights = csr_to_lists(*lists_to_csr(terms, np.int64)), csr_to_lists(*lists_to_csr(weights, np.float64))
    asked = [[q[key] for q in queries] for key in ("watermark", "k", "alpha", "lat", "lon")]
    more = [q.get("scale_m") or 0.0 for q in queries], [None] * len(queries)
    return [numbers, [f"s{n % 17}" for n in numbers], *asked, terms, weights, programs_of(queries).column(), *more]


class Distributor(Spout):
    """Sends each message to one message task, some at a time; its tasks share the messages and are not in step."""

    emits_watermarks = True

    def __init__(self, messages):
        self.messages = messages

    def open(self, conf, context, collector):
        self.collector = collector
        self.targets = context.get_component_tasks("message-bolt")
        index, tasks = context.get_this_task_index(), len(context.get_component_tasks(context.get_this_component_id()))
        self.own = sorted((m for m in self.messages if m["seq"] * 7 % 5 % tasks == index), key=lambda m: m["seq"])
        self.clock_ms = context.clock_ms
        self.sent = self.steps = self.last_ms = 0

    def next_tuple(self):
        if self.clock_ms() == self.last_ms:  # one step a pulse
            return
        self.last_ms = self.clock_ms()
        self.steps += 1
        random = np.random.default_rng([self.steps, len(self.own)])
        part = self.own[self.sent : self.sent + int(random.choice([0, 1, 3, 11]))]
        self.sent += len(part)
        for target in self.targets:
            there = [m for m in part if m["seq"] % len(self.targets) == target % len(self.targets)]
            if there:
                self._send(target, there)
        left = min((m["position"] for m in self.own[self.sent :]), default=max(m["position"] for m in self.messages) + 1)
        self.collector.emit((self.steps,), stream="step")
        self.collector.emit_watermark(left - 1)

    def _send(self, target, messages):
        for row in zip(*(column if isinstance(column, list) else column.tolist() for column in window_columns(messages))):
            self.collector.emit_direct(target, row, stream=streams.Window.name)

    def snapshot(self):
        return [self.sent, self.steps, self.last_ms]

    def restore(self, state):
        self.sent, self.steps, self.last_ms = state

    def declare_output_fields(self, declarer):
        declarer.declare_stream(streams.Window.name, streams.Window.fields, direct=True)
        declarer.declare_stream("step", Fields("step"))


class Asker(BatchBolt):
    """Asks at present, past and future watermarks, announces its progress, and keeps the answers."""

    def __init__(self, extent, last):
        self.extent, self.last = extent, last

    def prepare(self, conf, context, collector):
        self.collector, self.task = collector, context.get_this_task_id()
        self.now, self.announced, self.calls = -1, -1, 0
        self.asked, self.answers = [], []

    def execute_batch(self, batch):
        if batch.get_source_stream_id() != streams.Answers.name:
            self._ask(batch.n, 0)
            return
        columns = [column.to_pylist() if hasattr(column, "to_pylist") else list(column) for column in batch.columns]
        for request, subscription, seqs, positions, scores, ids in zip(*columns):
            assert subscription == f"s{request % 17}"
            self.answers.append([int(request), list(map(list, zip(seqs, positions, scores))), list(ids)])

    def on_watermark(self, watermark):
        self.now = watermark
        self._ask(0, 1)

    def _ask(self, *salt):
        watermark, self.calls = self.now, self.calls + 1
        random = np.random.default_rng([self.task, self.calls, watermark + 5, *salt])
        n = int(random.choice([0, 1, 4]))
        queries = draw_queries(random, n, self.announced, min(watermark + 6, self.last), filtered=0.4)
        if self.calls == 1:
            queries.append({**draw_queries(random, 1, -1, -1)[0], "watermark": -1})
        if queries:
            numbers = list(range(len(self.asked), len(self.asked) + len(queries)))
            self.asked += queries
            self.collector.emit_batch(request_columns(numbers, queries, arrow=bool(random.random() < 0.5)), streams.Requests.name)
        if watermark > self.announced and (random.random() < 0.5 or watermark == self.last):
            self.announced = watermark if watermark == self.last else int(random.integers(self.announced, watermark + 1))
            self.collector.emit((self.announced,), streams.Progress.name)

    def snapshot(self):
        return [self.now, self.announced, self.calls, self.asked, self.answers]

    def restore(self, state):
        self.now, self.announced, self.calls, self.asked, self.answers = (list(s) if isinstance(s, list) else s for s in state)

    def declare_output_fields(self, declarer):
        declarer.declare_stream(streams.Requests.name, streams.Requests.fields)
        declarer.declare_stream(streams.Progress.name, streams.Progress.fields)


class Play:
    """The topology, run to its end on the simulated transport.

    :param kind: ``count`` or ``time``.
    :param tasks: how many tasks the played distribution and subscription bolts, the message and the aggregation bolt have.
    """

    def __init__(self, kind="count", *, data_seed=0, extent=25, tasks=(2, 2, 3, 2), seed=None, faults=Faults(), capacity=4):
        self.extent = extent
        self.messages = draw_messages(np.random.default_rng(data_seed), N, kind=kind)
        self.last = max(m["position"] for m in self.messages)
        builder = TopologyBuilder()
        builder.set_spout("distribution-bolt", Distributor(self.messages), tasks[0])
        asker = builder.set_bolt("subscription-bolt", Asker(extent, self.last), tasks[1])
        asker.all_grouping("distribution-bolt", "step").direct_grouping("aggregation-bolt", streams.Answers.name)
        message = builder.set_bolt("message-bolt", MessageBolt("chunks", {"capacity": capacity}), 2).set_num_tasks(tasks[2])
        message.direct_grouping("distribution-bolt", streams.Window.name).all_grouping("subscription-bolt", streams.Requests.name).all_grouping(
            "subscription-bolt", streams.Progress.name
        )
        builder.set_bolt("aggregation-bolt", AggregationBolt(), tasks[3]).fields_grouping("message-bolt", Fields("subscription"), "partials")
        conf = {**CONF, "dskype.window.messages" if kind == "count" else "dskype.window.span.ms": extent}
        self.time_ms = 1_000_000
        plan = TopologyPlan.build("t", "t-1-0", conf, builder.create_topology())
        self.simulated = simulate(plan, MemoryLog(lambda: self.time_ms), lambda: self.time_ms, seed=seed, faults=faults)
        self.simulated.activate()
        for _ in range(2 * N):
            self.simulated.tick_clock()
            self.simulated.run_until_quiet()
            self.time_ms += 200
            if all(a.now == self.last for a in self.simulated.components("subscription-bolt")):
                break

    def check(self):
        """Compare every answer with the oracle; nothing may be left, and nothing be kept too long."""
        id_of = {m["seq"]: m["id"] for m in self.messages}
        hint = f"seed {self.simulated.seed}, faults {self.simulated.fault_counts}"
        asked = 0
        for asker in self.simulated.components("subscription-bolt"):
            assert asker.now == self.last, hint
            assert sorted(request for request, _, _ in asker.answers) == list(range(len(asker.asked))), hint
            for request, rows, ids in asker.answers:
                assert list(map(tuple, rows)) == exact_topk(asker.asked[request], self.messages, self.extent), (asker.asked[request], hint)
                assert ids == [id_of[seq] for seq, _, _ in rows], hint
            asked += len(asker.asked)
        assert not self.simulated.dead_letters(), hint
        for bolt in self.simulated.components("message-bolt"):
            bolt._window._check()
            assert not bolt._waiting and not bolt._ahead, hint
            assert bolt._freed == self.last - self.extent, hint
            assert all(position > self.last - self.extent for position in bolt._window.window._position.view[bolt._window.window._capacity :].tolist()), hint
        assert not any(bolt._collected for bolt in self.simulated.components("aggregation-bolt")), hint
        return asked
