"""The demo: DSkype on the world's places, live. ``dskype demo`` and ``make run`` call it.

It starts a broker and Spark on this machine, and on them the topology of ``topologies/dskype.yaml``. A feeder publishes places as messages and
registers subscriptions. The results are shown as they come, and compared with a plain computation at the end.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table
from rich.text import Text

from dskype.deploy.cli import warmup
from dskype.deploy.client.pubsub import PubSub
from dskype.deploy.client.topics import ensure_topics
from dskype.deploy.demo import result_map
from dskype.deploy.demo.check import check_results
from dskype.deploy.demo.feeder import SHOWN, Feeder, Plan, subscriptions_of
from dskype.deploy.demo.places import Places, places
from dskype.deploy.demo.screen import Arrivals, Figures, Moment, ResultsWatcher, Screen, Word, milliseconds
from dskype.deploy.machine import connection, jars, paths
from dskype.deploy.machine.folders import OwnedFolder
from dskype.deploy.machine.launch import tell_warnings
from dskype.deploy.machine.registry import TOPOLOGIES, registry
from dskype.deploy.machine.signals import hold_interrupts
from dskype.deploy.machine.spark_classes import spark_class_path
from dskype.deploy.machine.terminal import say
from dskype.spouts.settings import Settings
from dskype.spouts.text import Tokenizer
from dskype.spouts.vocabulary import Vocabulary
from dskype.topology import flux
from dskype.topology.config import Config
from dskype.topology.errors import TopologyError, explain
from dskype.topology.local import LocalCluster
from dskype.topology.runtime.kafka.topic_admin import TopicAdmin

__all__ = ["open_folder", "run"]

_STATE = "demo.json"
_OWN = ("broker", "topologies", "logs", "vocabulary.tsv", _STATE)
"""The files that a run keeps in its folder."""
_SAMPLE = 20_000
_SHOW_EVERY_S = 0.5
_QUIET_S = 4.0
"""After this long without results, everything has been written: whole lists follow a change within a second and a tick."""
_BEHIND_S = 3.0
_STUCK_S = 120.0


# --- folders ----------------------------------------------------------------------------------------------------------


def open_folder(folder: Path | None, resume: bool, given: dict[str, Any], say: Any) -> tuple[Path | None, Plan, bool]:
    """Prepare a run's folder, and say what happens to an earlier run in it.

    :param given: the parts of the plan that the user has named.
    :returns: the folder, the plan, and whether an earlier run continues.
    :raises TopologyError: the folder contains other files, or the plan does not fit the run to resume.
    """
    plan = _sized(Plan(**given), given)
    if folder is None:
        return None, plan, False
    owned = OwnedFolder.take(folder)
    try:
        state = owned.path / _STATE
        earlier = Plan(**json.loads(state.read_text())) if state.is_file() else None
        others = {p.name for p in owned.path.iterdir()} - {*_OWN, "owner.lock", "child.pid"}
        if earlier is None and others:
            raise TopologyError("The folder contains other files than a demo's.", given=str(owned.path), legal="an empty folder, or one of an earlier demo")
        if resume and earlier is not None:
            fixed = {k: v for k, v in given.items() if k in ("window", "seed") and v != getattr(earlier, k)}
            if fixed:
                raise TopologyError(
                    "A run is resumed with the settings it was started with.",
                    given=fixed,
                    legal={k: getattr(earlier, k) for k in fixed},
                    hint="without --resume it starts over",
                )
            plan = replace(earlier, **given)
            say(f"continuing the run in {owned.path}")
        else:
            if earlier is not None:
                say(f"starting over; the earlier run in {owned.path} is removed (--resume continues it)")
            elif resume:
                say(f"there is no earlier run in {owned.path}; starting over")
            for name in _OWN:
                path = owned.path / name
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)
        paths.write_whole(state, json.dumps(asdict(plan)))
        return owned.path, plan, resume and earlier is not None
    finally:
        owned.release()


def _sized(plan: Plan, given: dict[str, Any]) -> Plan:
    """Make the window half of the messages unless it is named, so that messages also leave it."""
    return plan if "window" in given else replace(plan, window=max(1, plan.messages // 2))


# --- the run ----------------------------------------------------------------------------------------------------------


class _Preparation(threading.Thread):
    """Reads the places and builds the vocabulary while Kafka and Spark start."""

    def __init__(self, plan: Plan, vocabulary: Path) -> None:
        super().__init__(name="places", daemon=True)
        self._plan, self._vocabulary = plan, vocabulary
        self._failure: BaseException | None = None
        self.messages: Any = None
        self.rows: dict[str, int] = {}

    def run(self) -> None:
        try:
            whole = places(self._plan.seed, max(self._plan.messages, _SAMPLE))
            if not self._vocabulary.exists():
                sample = np.random.default_rng([self._plan.seed, 3]).choice(len(whole), _SAMPLE, replace=False)
                Vocabulary.build(whole.take(sample).texts.to_pylist(), Tokenizer()).save(self._vocabulary)
            self.messages = whole.slice(0, self._plan.messages)
            self.rows = {id: row for row, id in enumerate(self.messages.ids.to_pylist())}
        except BaseException as error:
            self._failure = error

    def result(self) -> Places:
        """Return the messages."""
        self.join()
        if self._failure is not None:
            raise self._failure
        return self.messages

    def label(self, message: str) -> str:
        """Return a message's place in words."""
        row = self.rows.get(message)
        return message if row is None else self.messages.label(row)


def run(
    plan: Plan,
    *,
    folder: Path | None = None,
    resumed: bool = False,
    picture: Path | None = None,
    verify: bool = True,
    transport: str | None = None,
    say: Callable[[str], None] = say,
    console: Any = None,
) -> int:
    """Run the demo from its start to its results.

    :param folder: where data and snapshots are kept; None: nothing is kept.
    :param resumed: continue the run in ``folder``.
    :param picture: where to write the map; None: draw none.
    :param verify: compare the results with a plain computation.
    :param transport: how components get their records; None: the topology's setting.
    :param say: gets one line of text per step; default: standard error.
    :param console: a rich console; default: standard output.
    :returns: the exit code: 0, or 1 if the results differ from the plain computation.
    """
    if os.environ.pop(connection.BOOTSTRAP_VARIABLE, None):
        say(f"note: the demo has its own broker; {connection.BOOTSTRAP_VARIABLE} is not used")
    began = time.monotonic()
    with contextlib.ExitStack() as parts:
        home = folder
        if home is None:
            owned = OwnedFolder.temporary("demo-")
            parts.callback(owned.release)
            home = owned.path
        warmup.compile_kernels(say, first=True)
        vocabulary = home / "vocabulary.tsv"
        preparation = _Preparation(plan, vocabulary)
        preparation.start()
        # Downloads may be interrupted. The start of Spark may not: it would leave its JVM behind.
        spark_class_path(say)
        jars.broker_jars(lambda p: say(str(p)))
        with hold_interrupts(say):
            cluster = LocalCluster(folder=folder, resume=resumed, progress=say)
            parts.callback(cluster.shutdown, remove=folder is None)
        handle = _submit(cluster, plan, vocabulary, transport, preparation, say)
        live = _Live(cluster, handle, plan, preparation, parts)
        live.until_ready()
        say(f"ready after {time.monotonic() - began:.0f} s")
        with Screen(live.describe, console) as screen:
            live.until_done(screen)
        final = live.moment("")
        _summary(screen.console, plan, final, live, preparation)
        if picture is not None:
            _draw(picture, plan, live, preparation)
            screen.console.print(f"\nmap       {picture}", soft_wrap=True)
        code = 0
        if verify:
            settings = Settings.from_conf(live.handle.backend.plan.conf)
            code = check_results(live.cluster.environment.kafka, live.handle.name, settings, screen.console, say)
    if folder is not None:
        say(f"kept in {folder}; to continue with more messages: dskype demo --folder {folder} --resume --messages N")
    return code


def _submit(cluster: Any, plan: Plan, vocabulary: Path, transport: str | None, preparation: _Preparation, say: Any) -> Any:
    config = {"dskype.vocabulary": str(vocabulary), "dskype.window.messages": plan.window}
    if transport is not None:
        config[Config.TOPOLOGY_EMULATOR_TRANSPORT] = transport
    loaded = flux.load(TOPOLOGIES / "dskype.yaml", registry=registry(), config=config)
    loaded.check_runnable()
    for problem in ensure_topics(cluster.environment.kafka, loaded.name, settings=Settings.from_conf(loaded.config)):
        say(f"warning: {problem}")
    preparation.result()  # waits for the vocabulary
    handle = cluster.submit_topology(loaded.name, loaded.config, loaded.topology)
    tell_warnings(loaded.topology, handle.warnings, say)
    return handle


class _Live:
    """The running topology, with feeder and watcher.

    :param parts: closes them at the end.
    """

    def __init__(self, cluster: Any, handle: Any, plan: Plan, preparation: _Preparation, parts: contextlib.ExitStack) -> None:
        messages = preparation.result()
        self.plan, self.handle, self.cluster, self._preparation = plan, handle, cluster, preparation
        kafka = cluster.environment.kafka
        pubsub = parts.enter_context(contextlib.closing(PubSub(kafka, handle.name)))
        self.topics = pubsub.topics
        done = tuple(_end(kafka, topic) for topic in (self.topics.messages, self.topics.subscriptions))
        arrivals = Arrivals(len(messages))
        self.total = plan.subscriptions + len(SHOWN)
        self.feeder = Feeder(pubsub, messages, subscriptions_of(plan, messages), self.total, plan.rate, arrivals, done)
        self.watcher = ResultsWatcher(kafka, self.topics.results, {s.id for s in SHOWN}, arrivals)
        parts.callback(self.watcher.close)
        parts.callback(self.feeder.close)
        tasks = handle.backend.plan
        self.figures = Figures({c: tuple(tasks.component_tasks(c)) for c in tasks.component_ids if not c.startswith("__")})
        self._titles = {s.id: s.title for s in SHOWN}
        self._width = max(len(title) for title in self._titles.values())
        self._before = self.feeder.published
        self.began, self.fed_s, self.ended_s = time.monotonic(), 0.0, 0.0
        self.watcher.start()
        self.feeder.start()

    def moment(self, phase: str) -> Moment:
        """Return the present state of the run."""
        now = time.monotonic()
        recent, overall = self.watcher.latency()
        moment = Moment(
            phase=phase,
            elapsed_s=now - self.began,
            published=self.feeder.published,
            messages=self.plan.messages,
            registered=self.feeder.registered,
            subscriptions=self.total,
            results=self.watcher.counts,
            recent=recent,
            overall=overall,
        )
        return self.figures.read(self.handle.stats, moment, now)

    def until_ready(self) -> None:
        """Wait until the first message has been matched, then let the feeder begin.

        :raises TopologyError: a part has failed, or it takes too long.
        """
        deadline = time.monotonic() + _STUCK_S
        while self.figures.watermark(self.handle.stats) < 0:
            self._check()
            if time.monotonic() > deadline:
                raise TopologyError(self._stuck("The first message was not matched", self.moment("starting")))
            time.sleep(0.1)
        self.began = time.monotonic()
        self.feeder.go()

    def _stuck(self, what: str, moment: Moment) -> str:
        errors = [error["error"][-300:] for error in list(self.handle.stats.errors)[-3:]]
        return explain(
            f"{what} within {_STUCK_S:.0f} s.",
            given=f"{moment.matched:,} of {moment.published:,} messages matched",
            hint=f"errors of the topology: {'; '.join(errors) or 'none'}",
        )

    def until_done(self, screen: Screen) -> None:
        """Show the run until every message has been matched and every result read.

        :raises TopologyError: a part has failed, or there is no progress any more.
        """
        seen, moved, last = 0, time.monotonic(), (-1, -1)
        while True:
            held = "published as fast as it is matched" if self.feeder.held else "matching"
            moment = self.moment("all is published" if self.feeder.finished else held)
            # On a machine that is slower than the rate, messages wait here instead of in Kafka.
            self.feeder.limit = moment.matched + _BEHIND_S * self.plan.rate
            self._check()
            seen, words = self.watcher.words(seen)
            screen.show(moment, words)
            now = time.monotonic()
            if self.feeder.finished and not self.fed_s:
                self.fed_s = now - self.began
            at_rest = moment.matched >= self.plan.messages and not moment.pending
            if self.feeder.finished and at_rest:
                self.ended_s = self.ended_s or now - self.began
                if now - self.watcher.heard > _QUIET_S:
                    return
            if (progress := (moment.matched, moment.results.all)) != last:
                last, moved = progress, now
            elif now - moved > _STUCK_S:
                raise TopologyError(self._stuck("Nothing has moved", moment))
            time.sleep(_SHOW_EVERY_S)

    @property
    def published_per_s(self) -> float:
        """Messages published per second, on average."""
        return (self.feeder.published - self._before) / max(self.fed_s, 0.001)

    def _check(self) -> None:
        for failure in (self.handle.backend.failure, self.feeder.failure, self.watcher.failure):
            if failure is not None:
                raise failure

    def describe(self, word: Word) -> str:
        """Return a result in words."""
        place = self._preparation.label(word.message)
        rank = f"  score {word.score:.3f}, rank {word.rank}" if word.op == "add" else ""
        return f"{self._titles[word.subscription]:<{self._width}}  {'-' if word.op == 'remove' else '+'} {place}{rank}"


def _end(kafka: Any, topic: str) -> int:
    """Return how many records a topic with one partition has received so far."""
    with contextlib.closing(TopicAdmin(kafka)) as admin:
        return admin.begin_and_end(topic)[0][1]


# --- results ----------------------------------------------------------------------------------------------------------


def _summary(console: Any, plan: Plan, m: Moment, live: _Live, preparation: _Preparation) -> None:
    console.print()
    facts = Table.grid(padding=(0, 3))
    for name, value in _facts(plan, m, live):
        facts.add_row(Text(name, style="dim"), Text(value))
    console.print(facts)
    console.print()
    flows = Table(title="streams", title_justify="left", box=None, padding=(0, 3, 0, 0), pad_edge=False)
    for name, justify in (("", "left"), ("stream", "left"), ("from → to", "left"), ("tuples", "right"), ("per message", "right")):
        flows.add_column(name, justify=justify)
    for row in m.streams:
        flows.add_row(str(row.number), row.name, f"{row.source} → {row.target}", f"{row.tuples:,}", f"{row.tuples / max(1, m.matched):,.2f}")
    console.print(flows)
    console.print()
    best = Table(title="results", title_justify="left", box=None, padding=(0, 3, 0, 0), pad_edge=False)
    for name, justify in (("subscription", "left"), ("", "right"), ("place", "left"), ("score", "right")):
        best.add_column(name, justify=justify)
    for shown in SHOWN:
        if shown.record["type"] == "topk":
            for rank, (message, score) in enumerate(live.watcher.topk(shown.id)[:3], 1):
                best.add_row(Text(shown.title if rank == 1 else ""), str(rank), Text(preparation.label(message)), f"{score:.3f}")
        else:
            found = live.watcher.matched(shown.id)
            best.add_row(Text(shown.title), f"{len(found):,}", Text("; ".join(preparation.label(message) for message in found[-2:])), "")
    console.print(best)


def _facts(plan: Plan, m: Moment, live: _Live) -> list[tuple[str, str]]:
    sent = sum(c.out_bytes for c in m.components)
    return [
        ("messages", f"{m.matched:,} places, {live.published_per_s:,.0f}/s; the window holds the last {plan.window:,}"),
        ("subscriptions", f"{m.registered:,}, registered while messages came"),
        ("results", f"{m.results.all:,}: {m.results.adds:,} entered a list, {m.results.removes:,} left one, {m.results.matches:,} met a boolean subscription"),
        ("arrival to result", f"p50 {milliseconds(m.overall.p50)}, p99 {milliseconds(m.overall.p99)}"),
        ("all matched", f"{live.ended_s - live.fed_s:.1f} s after the last message"),
        ("evaluations", f"{m.evaluations:,} of the window"),
        ("sent", f"{sent / 1e6:,.0f} MB between components; {sent / max(1, m.matched):,.0f} bytes per message"),
        ("errors", f"{m.errors}, dead letters {m.dead_letters}"),
    ]


def _draw(path: Path, plan: Plan, live: _Live, preparation: _Preparation) -> None:
    """Draw the results of the first of :data:`SHOWN`."""
    shown, messages = SHOWN[0], preparation.messages
    pins = []
    for message, score in live.watcher.topk(shown.id):
        row = preparation.rows[message]
        pins.append(result_map.Pin(float(messages.lat[row]), float(messages.lon[row]), messages.names[row].as_py(), messages.region(row), score))
    r = shown.record
    svg = result_map.draw(
        messages.lat,
        messages.lon,
        here=(r["lat"], r["lon"]),
        name=shown.place,
        pins=pins,
        title=shown.title,
        subtitle=f"top {r['k']} of the last {min(plan.window, plan.messages):,} places, alpha {r['alpha']:g}; every dot is a message",
        cell_px=2.3,
    )
    result_map.write(path, svg)
