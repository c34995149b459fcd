"""Show a running DSkype topology: its results, its latency, its streams.

:class:`ResultsWatcher` reads the results topic, :class:`Figures` the topology's statistics. :class:`Screen` redraws both on a terminal, or
prints a line every few seconds elsewhere.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from array import array
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from rich.console import Console, Group
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from dskype.deploy.client.follower import Follower, Once
from dskype.deploy.client.records import Result
from dskype.deploy.machine.terminal import plain
from dskype.spouts import streams

if TYPE_CHECKING:
    from dskype.topology.core.stats import TopologyStats
    from dskype.topology.runtime.kafka.clients import KafkaSettings

__all__ = ["Arrivals", "Counts", "Figures", "Moment", "Quantiles", "ResultsWatcher", "Screen", "Word", "draw", "line", "milliseconds"]

_SAMPLED_PER_POLL = 40
_RECENT_S = 10.0
_RATE_S = 5.0
_WORDS_KEPT = 1000
_WORDS_SHOWN = 9
_LINE_EVERY_S = 5.0
_WIDE, _WIDTH = 116, 120

STREAMS = (
    (1, streams.Messages.name, "message-spout", "distribution-bolt"),
    (2, streams.Subscriptions.name, "subscription-spout", "distribution-bolt"),
    (3, streams.Matching.name, "distribution-bolt", "subscription-bolt"),
    (3, streams.Placements.name, "distribution-bolt", "subscription-bolt"),
    (4, streams.Window.name, "distribution-bolt", "message-bolt"),
    (5, streams.Requests.name, "subscription-bolt", "message-bolt"),
    (5, streams.Progress.name, "subscription-bolt", "message-bolt"),
    (6, streams.Partials.name, "message-bolt", "aggregation-bolt"),
    (7, streams.Answers.name, "aggregation-bolt", "subscription-bolt"),
    (8, streams.Results.name, "subscription-bolt", "result-bolt"),
)
"""(number, stream, from, to) as in Table 1 of the journal paper."""


class Arrivals:
    """When messages arrived in Kafka, by sequence number.

    :param size: how many sequence numbers there will be.
    """

    def __init__(self, size: int) -> None:
        self._ms = np.zeros(size, np.int64)

    def note(self, seq: int, time_ms: int) -> None:
        """Remember a message's timestamp."""
        if 0 <= seq < len(self._ms):
            self._ms[seq] = time_ms

    def at(self, seq: int) -> int | None:
        """Return when a message arrived, epoch ms; None if that is not known."""
        return int(self._ms[seq]) or None if 0 <= seq < len(self._ms) else None


class Quantiles(NamedTuple):
    """Latencies in milliseconds; None if there are none."""

    p50: float | None
    p99: float | None

    @classmethod
    def of(cls, values: Any) -> Quantiles:
        """Return the quantiles of latencies in milliseconds."""
        if not len(values):
            return cls(None, None)
        p50, p99 = np.quantile(np.asarray(values, np.float64), [0.5, 0.99]).tolist()
        return cls(p50, p99)


_NO_QUANTILES = Quantiles(None, None)


@dataclass
class Counts:
    """Results read so far."""

    adds: int = 0
    removes: int = 0
    matches: int = 0

    @property
    def all(self) -> int:
        """The number of results of all kinds."""
        return self.adds + self.removes + self.matches


class Word(NamedTuple):
    """A result of a subscription that is shown in words."""

    time_ms: int
    subscription: str
    op: str
    message: str
    score: float | None
    rank: int | None
    object: str | None = None


class ResultsWatcher(threading.Thread):
    """Reads all results of a topology: counts each once, samples their latency, and keeps those of a few subscriptions.

    A result's latency is the time from the arrival of the message that caused it (its watermark) in Kafka to its own arrival there, by Kafka's
    timestamps. Only a sample of the results is parsed as JSON.

    :param kafka: the brokers.
    :param topic: the results.
    :param shown: ids of the subscriptions whose results are kept, and whose lists :meth:`topk` returns.
    :param arrivals: of the messages.
    """

    def __init__(self, kafka: KafkaSettings, topic: str, shown: set[str], arrivals: Arrivals) -> None:
        super().__init__(name="results", daemon=True)
        self._kafka, self._topic, self._arrivals = kafka, topic, arrivals
        self._shown = {id.encode(): id for id in shown}
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._lists: dict[str, dict[str, tuple[float, int]]] = {id: {} for id in shown}
        self._matched: dict[str, list[str]] = {id: [] for id in shown}
        self._all_ms = array("d")
        self._recent: deque[tuple[float, float]] = deque()
        self.counts = Counts()
        self._words: deque[Word] = deque(maxlen=_WORDS_KEPT)
        self._noted = 0
        self.failure: BaseException | None = None
        self.heard = time.monotonic()

    def run(self) -> None:
        """Read until :meth:`close`."""
        try:
            follower = Follower(self._kafka, [self._topic], "beginning")
            once = Once()
            try:
                while not self._over.is_set():
                    if records := follower.poll(0.2):
                        self.add_records(records, once)
            finally:
                follower.close()
        except Exception as error:
            if not self._over.is_set():
                self.failure = error

    def add_records(self, records: list[Any], once: Once) -> None:
        """Add records of the results topic. Repetitions count once."""
        records = [record for record in records if record.value and once.first(_identity(record))]
        values = [record.value for record in records]
        adds, removes = (sum(mark in value for value in values) for mark in (b'"op":"add"', b'"op":"remove"'))
        sample = self._latencies(records[:: max(1, len(records) // _SAMPLED_PER_POLL)])
        words = [result for record in records if record.key in self._shown and (result := Result.from_record(record))]
        now = time.monotonic()
        with self._lock:
            self.counts = Counts(self.counts.adds + adds, self.counts.removes + removes, self.counts.matches + len(values) - adds - removes)
            self._all_ms.extend(sample)
            self._recent.extend((now, ms) for ms in sample)
            while self._recent and now - self._recent[0][0] > _RECENT_S:
                self._recent.popleft()
            for result in words:
                self._add_word(result)
        self.heard = now

    def _latencies(self, records: list[Any]) -> list[float]:
        found = []
        for record in records:
            try:
                arrived = self._arrivals.at(json.loads(record.value)["watermark"])
            except (ValueError, KeyError, TypeError):
                continue
            if arrived is not None:
                found.append(float(record.timestamp - arrived))
        return found

    def _add_word(self, result: Any) -> None:
        message = json.dumps(result.message, ensure_ascii=False)
        if result.op == "add":
            self._lists[result.subscription][message] = (result.score, result.watermark)
        elif result.op == "remove":
            self._lists[result.subscription].pop(message, None)
        else:
            self._matched[result.subscription].append(message)
        self._noted += 1
        self._words.append(Word(result.time_ms, result.subscription, result.op, message, result.score, result.rank, result.object))

    def latency(self) -> tuple[Quantiles, Quantiles]:
        """Return the latencies of the last ten seconds, and of the whole run."""
        with self._lock:
            recent, everything = [ms for _, ms in self._recent], np.array(self._all_ms)
        return Quantiles.of(recent), Quantiles.of(everything)

    def topk(self, id: str) -> list[tuple[str, float]]:
        """Return (message, score) of a shown subscription's list, as its results give it, best first."""
        with self._lock:
            entries = list(self._lists[id].items())
        return [(message, score) for message, (score, _) in sorted(entries, key=lambda e: (e[1][0], e[1][1]), reverse=True)]

    def matched(self, id: str) -> list[str]:
        """Return the messages that matched a shown boolean subscription, oldest first."""
        with self._lock:
            return list(self._matched[id])

    def words(self, since: int) -> tuple[int, list[Word]]:
        """Return the results of the shown subscriptions after the first ``since``, oldest first.

        :returns: (how many there have been in all, the results).
        """
        with self._lock:
            new = min(self._noted - since, len(self._words))
            return self._noted, list(self._words)[len(self._words) - new :] if new > 0 else []

    def close(self) -> None:
        """Stop reading."""
        self._over.set()
        if self.is_alive():
            self.join(timeout=10)


def _identity(record: Any) -> Any:
    """Return a value that all repetitions of a result share: its id, else the whole record."""
    return next((value for name, value in record.headers or () if name == "result-id"), record.value)


class _Rate:
    """The growth of a counter per second, over the last seconds."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()

    def __call__(self, value: int, now: float) -> float:
        seen = self._seen
        seen.append((now, value))
        while len(seen) > 2 and now - seen[1][0] >= _RATE_S:
            seen.popleft()
        elapsed = now - seen[0][0]
        return max(0.0, (value - seen[0][1]) / elapsed) if elapsed > 0 else 0.0


class StreamRow(NamedTuple):
    """A row of the table of streams."""

    number: int
    name: str
    source: str
    target: str
    tuples: int
    per_s: float


class ComponentRow(NamedTuple):
    """A row of the table of components."""

    name: str
    tasks: int
    executed: int
    out_bytes: int
    bytes_per_s: float
    busy: float


@dataclass
class Moment:
    """Everything that the screen shows at one moment.

    :ivar lag: messages in Kafka that not all tasks of the subscription bolt have matched yet.
    :ivar pending: evaluations of the window that subscriptions wait for.
    """

    phase: str = ""
    elapsed_s: float = 0.0
    published: int = 0
    messages: int = 0
    registered: int = 0
    subscriptions: int = 0
    published_per_s: float = 0.0
    matched: int = 0
    matched_per_s: float = 0.0
    lag: int = 0
    pending: int = 0
    evaluations: int = 0
    results: Counts = field(default_factory=Counts)
    results_per_s: float = 0.0
    recent: Quantiles = _NO_QUANTILES
    overall: Quantiles = _NO_QUANTILES
    dead_letters: int = 0
    errors: int = 0
    streams: list[StreamRow] = field(default_factory=list)
    components: list[ComponentRow] = field(default_factory=list)


class Figures:
    """Turns a topology's statistics into a :class:`Moment`.

    :param tasks: component -> its task ids.
    """

    def __init__(self, tasks: Mapping[str, tuple[int, ...]]) -> None:
        self._tasks = dict(tasks)
        self._rates: dict[Any, _Rate] = {}

    def _rate(self, name: Any, value: int, now: float) -> float:
        return self._rates.setdefault(name, _Rate())(value, now)

    def watermark(self, stats: TopologyStats) -> int:
        """Return the last sequence number that all tasks of the subscription bolt have matched; -1: none."""
        marks = [(stats.tasks.get(task) or {}).get("watermark") for task in self._tasks["subscription-bolt"]]
        return min((-1 if mark is None else mark for mark in marks), default=-1)

    def metric(self, stats: TopologyStats, name: str) -> int:
        """Sum a metric over the subscription bolts' tasks."""
        values = [((stats.tasks.get(task) or {}).get("metrics") or {}).get(name, 0) for task in self._tasks["subscription-bolt"]]
        return sum(v for v in values if isinstance(v, int))

    def read(self, stats: TopologyStats, moment: Moment, now: float) -> Moment:
        """Complete a moment from the statistics; ``published`` and ``results`` must be set."""
        moment.matched = self.watermark(stats) + 1
        moment.lag = max(0, moment.published - moment.matched)
        moment.pending = self.metric(stats, "pending_evaluations")
        moment.evaluations = stats.total("subscription-bolt", "emitted", streams.Requests.name)
        moment.published_per_s = self._rate("messages published", moment.published, now)
        moment.matched_per_s = self._rate("messages matched", moment.matched, now)
        moment.results_per_s = self._rate("records of results", moment.results.all, now)
        moment.errors = len(stats.errors)
        moment.dead_letters = sum(stats.total(name, "dead_letters") for name in self._tasks)
        for number, stream, source, target in STREAMS:
            tuples = stats.total(source, "transferred", stream) if source in self._tasks and target in self._tasks else 0
            if stream == streams.Results.name and not tuples:  # there are no replicas to merge, so results go straight to their topics
                target, tuples = "Kafka", moment.results.all
            moment.streams.append(StreamRow(number, stream, source, target, tuples, self._rate((source, stream), tuples, now)))
        for name, tasks in self._tasks.items():
            out = stats.total(name, "out_bytes")
            busy = self._rate((name, "busy"), stats.total(name, "busy_ns"), now) / 1e9
            moment.components.append(ComponentRow(name, len(tasks), stats.total(name, "executed"), out, self._rate((name, "bytes"), out, now), busy))
        return moment


def milliseconds(ms: float | None) -> str:
    """Return a duration in words: ``640 ms``, ``1.4 s``; a dash for None."""
    return "–" if ms is None else f"{ms:,.0f} ms" if ms < 1000 else f"{ms / 1000:,.1f} s"


# --- the screen -------------------------------------------------------------------------------------------------------


class Screen:
    """Shows moments: redraws a terminal, or prints a line every few seconds elsewhere.

    :param describe: returns a result of a shown subscription in words.
    :param console: a rich console; default: standard output.
    """

    def __init__(self, describe: Callable[[Word], str], console: Any = None) -> None:
        self._describe = describe
        self.console = console or Console(highlight=False, width=None if sys.stdout.isatty() else _WIDTH)
        self._live: Any = None
        self._words: deque[str] = deque(maxlen=_WORDS_SHOWN)
        self._fresh: list[str] = []
        self._line_at = time.monotonic() + _LINE_EVERY_S
        if self.console.is_terminal:
            from rich.live import Live

            self._live = Live(console=self.console, auto_refresh=False, transient=True)

    def __enter__(self) -> Screen:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *exc: object) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, moment: Moment, words: list[Word]) -> None:
        """Show a moment and the newest results.

        :param words: new results of the shown subscriptions; removals are not shown.
        """
        texts = [plain(self._describe(word)) for word in words if word.op != "remove"]
        self._words.extend(texts)
        self._fresh = [*self._fresh, *texts][-3:]
        if self._live is not None:
            self._live.update(draw(moment, list(self._words), self.console.width, self.console.height), refresh=True)
        elif time.monotonic() >= self._line_at:
            self._line_at = time.monotonic() + _LINE_EVERY_S
            self.console.print(line(moment), markup=False, emoji=False, soft_wrap=True)
            for text in self._fresh:
                self.console.print(f"        {text}", markup=False, emoji=False, soft_wrap=True)
            self._fresh = []


def line(m: Moment) -> str:
    """Return a moment as one line."""
    return (
        f"{m.elapsed_s:4.0f} s  {m.published:,} messages, {m.registered:,} subscriptions; {m.matched_per_s:,.0f} messages/s matched, "
        f"lag {m.lag:,}, {m.pending:,} pending; {m.results.all:,} results ({m.results_per_s:,.0f}/s), "
        f"latency p50 {milliseconds(m.recent.p50)}, p99 {milliseconds(m.recent.p99)}"
    )


def draw(m: Moment, words: list[str], width: int, height: int = 30) -> Any:
    """Return a moment as an object that rich can print, of at most ``width`` x ``height`` characters."""
    wide = width >= _WIDE
    head = Table.grid(padding=(0, 2))
    parts = [Text("DSkype", style="bold cyan"), Text(f"{m.elapsed_s:.0f} s"), Text(m.phase)]
    parts += [ProgressBar(max(1, m.messages), m.published, width=20)] if wide else []
    head.add_row(*parts, Text(f"{m.published:,} of {m.messages:,} messages"), Text(f"{m.registered:,} subscriptions"))
    flows = _table(("", "stream", "from → to", "tuples", "per s"), left=(1, 2))
    for row in m.streams:
        flows.add_row(
            str(row.number), row.name, f"{_short(row.source)} → {_short(row.target)}", f"{row.tuples:,}", f"{row.per_s:,.0f}", style="" if row.tuples else "dim"
        )
    now = Table.grid(padding=(0, 2))
    now.add_column(style="dim")
    for name, value in _now(m):
        now.add_row(name, Text(value, style="bold"))
    if wide:
        sent = _table(("component", "tasks", "sent MB", "MB/s", "busy"), left=(0,))
        for c in m.components:
            sent.add_row(c.name, str(c.tasks), f"{c.out_bytes / 1e6:,.1f}", f"{c.bytes_per_s / 1e6:.2f}", f"{c.busy:.0%}")
        middle = Table.grid(padding=(0, 4))
        middle.add_row(flows, Group(now, Text(), sent))
        used = max(1 + len(m.streams), 2 + len(_now(m)) + len(m.components))
    else:
        middle = Group(flows, Text(), now)
        used = 2 + len(m.streams) + len(_now(m))
    room = max(1, min(_WORDS_SHOWN, height - used - 5))
    said = [Text(text, no_wrap=True, overflow="ellipsis") for text in words[-room:]]
    return Group(head, Text(), middle, Text(), Text("results in words", style="bold"), *said, *[Text()] * (room - len(said)))


def _table(columns: tuple[str, ...], left: tuple[int, ...]) -> Any:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for i, name in enumerate(columns):
        table.add_column(name, justify="left" if i in left else "right", no_wrap=True)
    return table


def _now(m: Moment) -> list[tuple[str, str]]:
    return [
        ("matched", f"{m.matched_per_s:,.0f} messages/s"),
        ("results", f"{m.results_per_s:,.0f}/s; {m.results.all:,} so far"),
        ("arrival to result", f"p50 {milliseconds(m.recent.p50)}, p99 {milliseconds(m.recent.p99)}"),
        ("lag", f"{m.lag:,} messages"),
        ("evaluations", f"{m.pending:,} pending of {m.evaluations:,}"),
    ]


def _short(component: str) -> str:
    return component.removesuffix("-bolt").removesuffix("-spout") + (" spout" if component.endswith("-spout") else "")
