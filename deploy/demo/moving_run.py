"""The demo of objects that move: vehicles drive between cities of Europe, and geofences report who enters and leaves, in the terminal and on the map.

``dskype demo --moving`` calls it. Once the jars of Kafka and Spark are there it needs nothing from outside: the cities are those of the web pages.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from dskype.deploy.cli import warmup
from dskype.deploy.client.pubsub import PubSub
from dskype.deploy.client.topics import ensure_topics
from dskype.deploy.demo.check import check_results
from dskype.deploy.demo.feeder import Feeder
from dskype.deploy.demo.moving import ATTRIBUTES, Cities, Fleet, MovingPlan, cities
from dskype.deploy.demo.screen import Arrivals, Figures, ResultsWatcher, Word, milliseconds
from dskype.deploy.machine import jars
from dskype.deploy.machine.launch import tell_warnings
from dskype.deploy.machine.registry import TOPOLOGIES, registry
from dskype.deploy.machine.signals import hold_interrupts
from dskype.deploy.machine.spark_classes import spark_class_path
from dskype.deploy.machine.terminal import plain, say
from dskype.spouts.settings import Settings
from dskype.topology import flux
from dskype.topology.config import Config
from dskype.topology.errors import TopologyError
from dskype.topology.local import LocalCluster

__all__ = ["Trip", "fences", "run"]

_EUROPE = (-11.0, 35.0, 32.0, 60.0)
_STEP_S = 60.0
"""What a vehicle drives between two states, in its own time: more than the real time between them, so that there is something to see."""
_FENCES, _SOME = 36, 6
_RADIUS_M = 15_000
_SHOW_EVERY_S, _LINE_EVERY_S, _LINES = 0.5, 5.0, 4
_QUIET_S, _STUCK_S = 4.0, 180.0


class Trip:
    """The states of a fleet, in which vehicles report in turn; a feeder asks for them in order.

    :param n: how many.
    """

    def __init__(self, fleet: Fleet, n: int) -> None:
        self._fleet, self._n = fleet, n

    def __len__(self) -> int:
        return self._n

    def records(self, start: int, stop: int) -> list[dict[str, bytes]]:
        """Let vehicles drive on; return their states ``start`` to ``stop`` as records for Kafka."""
        found = []
        for at in range(start, min(stop, self._n)):
            row = np.array([at % len(self._fleet)])
            self._fleet.advance(row, _STEP_S)
            found += self._fleet.records(row)
        return found


class _Keyed:
    """A client for the feeder, which sends states under the ids of their objects."""

    def __init__(self, pubsub: PubSub) -> None:
        self._pubsub = pubsub
        self.send_subscription, self.flush = pubsub.send_subscription, pubsub.flush

    def send_message(self, record: dict[str, bytes]) -> Any:
        return self._pubsub.send_message(record["value"], object=record["key"].decode())


def fences(where: Cities) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (id, record) of the geofences: circles around the largest cities; districts for trucks; and places where a tank gets empty."""
    for i, name in enumerate(where.names[:_FENCES]):
        lat, lon = round(float(where.lat[i]), 4), round(float(where.lon[i]), 4)
        circle = {"center": {"lat": lat, "lon": lon}, "radius_m": _RADIUS_M}
        yield name, {"type": "boolean", "region": circle}
        if i < _SOME:
            angles = np.arange(6) * np.pi / 3
            reach_deg = 1.5 * _RADIUS_M / 111_195
            ring = np.stack((lon + reach_deg * np.cos(angles) / np.cos(np.radians(lat)), lat + reach_deg * np.sin(angles)), axis=1).round(4).tolist()
            yield f"trucks near {name}", {"type": "boolean", "region": {"type": "Polygon", "coordinates": [[*ring, ring[0]]]}, "expression": "truck"}
        elif i < 2 * _SOME:
            yield f"empty tanks in {name}", {"type": "boolean", "region": circle, "expression": "fuel < 25"}


def run(plan: MovingPlan, *, verify: bool = True, transport: str | None = None, say: Callable[[str], None] = say, console: Any = None) -> int:
    """Run the demo from its start to its results.

    :param verify: compare the results with a plain computation.
    :param transport: how components get their records; None: the topology's setting.
    :param say: gets one line of text per step; default: standard error.
    :param console: a rich console; default: standard output.
    :returns: the exit code: 0, or 1 if the results differ from the plain computation.
    :raises TopologyError: a part has failed, or there is no progress any more.
    """
    from rich.console import Console

    console = console or Console(highlight=False)
    where = cities().within(*_EUROPE)
    began, trip, geofences = time.monotonic(), Trip(Fleet(where, plan.vehicles, plan.seed), plan.messages), dict(fences(where))
    with contextlib.ExitStack() as parts:
        warmup.compile_kernels(say)
        spark_class_path(say)
        jars.broker_jars(lambda p: say(str(p)))
        with hold_interrupts(say):
            cluster = LocalCluster(progress=say)
            parts.callback(cluster.shutdown, remove=True)
        kafka = cluster.environment.kafka
        handle = _submit(cluster, transport, say)
        pubsub = parts.enter_context(contextlib.closing(PubSub(kafka, handle.name)))
        for id, record in geofences.items():
            pubsub.send_subscription(id.encode(), json.dumps(record).encode())
        arrivals = Arrivals(len(trip))
        feeder: Any = Feeder(_Keyed(pubsub), trip, iter(()), 0, plan.rate, arrivals)  # type: ignore[arg-type]  # it asks for no more
        watcher = ResultsWatcher(kafka, pubsub.topics.results, set(geofences), arrivals)
        for part in (watcher, feeder):
            parts.callback(part.close)
            part.start()
        _serve_map(kafka, plan.port, next(iter(geofences)), parts, say)
        live = _Live(handle, feeder, watcher, plan, console)
        live.until_ready(say, began)
        live.until_done()
        return check_results(kafka, handle.name, Settings.from_conf(handle.backend.plan.conf), console, say) if verify else 0


def _submit(cluster: Any, transport: str | None, say: Any) -> Any:
    config: dict[str, Any] = {"dskype.objects": True, "dskype.attributes": ATTRIBUTES}
    if transport is not None:
        config[Config.TOPOLOGY_EMULATOR_TRANSPORT] = transport
    loaded = flux.load(TOPOLOGIES / "dskype.yaml", registry=registry(), config=config)
    loaded.check_runnable()
    assert loaded.name is not None
    for problem in ensure_topics(cluster.environment.kafka, loaded.name, settings=Settings.from_conf(loaded.config)):
        say(f"warning: {problem}")
    handle = cluster.submit_topology(loaded.name, loaded.config, loaded.topology)
    tell_warnings(loaded.topology, handle.warnings, say)
    return handle


def _serve_map(kafka: Any, port: int, id: str, parts: contextlib.ExitStack, say: Any) -> None:
    """Serve the pages until the end, and print the address of the map that follows a geofence; without the web server, say what is missing."""
    from dskype.deploy.metrics.ui_server import FollowedCluster, UiSettings, require_web_server, serve

    try:
        require_web_server()
    except TopologyError as error:
        say(f"note: there is no map. {error}")
        return
    from dskype.deploy.web.extension import make_extension
    from dskype.deploy.web.trend import WatchedReports

    source, settings = FollowedCluster(kafka, WatchedReports), UiSettings(port=port)
    server = parts.enter_context(serve(source, settings, say, [make_extension(kafka, source, settings.budget)]))
    say(f"the map, with the geofence {id}: {server.url}#sub={id}")


class _Live:
    """The running topology, with feeder and watcher."""

    def __init__(self, handle: Any, feeder: Feeder, watcher: ResultsWatcher, plan: MovingPlan, console: Any) -> None:
        self._handle, self._feeder, self._watcher, self._plan, self._console = handle, feeder, watcher, plan, console
        tasks = handle.backend.plan
        self._figures = Figures({c: tuple(tasks.component_tasks(c)) for c in tasks.component_ids if not c.startswith("__")})
        self._counts: Counter[str] = Counter()

    def _applied(self) -> int:
        for failure in (self._handle.backend.failure, self._feeder.failure, self._watcher.failure):
            if failure is not None:
                raise failure
        return self._figures.watermark(self._handle.stats) + 1

    def until_ready(self, say: Any, began: float) -> None:
        """Wait until the first state has been applied, then let the vehicles drive."""
        deadline = time.monotonic() + _STUCK_S
        while not self._applied():
            self._check(deadline, 0)
            time.sleep(0.1)
        say(f"ready after {time.monotonic() - began:.0f} s: {self._plan.vehicles:,} vehicles drive, {self._plan.rate:g} states per second")
        self._feeder.go()

    def until_done(self) -> None:
        """Show who enters and leaves until every state has been applied and every result read."""
        began = moved = line_at = time.monotonic()
        seen, last = 0, 0
        while True:
            applied, now = self._applied(), time.monotonic()
            seen, words = self._watcher.words(seen)
            self._show(words)
            if now >= line_at:
                line_at = now + _LINE_EVERY_S
                self._line(now - began, applied)
            if applied >= self._plan.messages and now - self._watcher.heard > _QUIET_S:
                self._line(now - began, applied)
                return
            if applied != last:
                last, moved = applied, now
            self._check(moved + _STUCK_S, applied)
            time.sleep(_SHOW_EVERY_S)

    def _check(self, deadline: float, applied: int) -> None:
        if time.monotonic() > deadline:
            errors = [error["error"][-300:] for error in list(self._handle.stats.errors)[-3:]]
            given, hint = f"{applied:,} of {self._feeder.published:,} states applied", f"errors of the topology: {'; '.join(errors) or 'none'}"
            raise TopologyError(f"Nothing has moved for {_STUCK_S:.0f} s.", given=given, hint=hint)

    def _show(self, words: list[Word]) -> None:
        """Count results, and print the newest ones."""
        self._counts.update(word.op for word in words)
        for word in words[-_LINES:]:
            self._print(f"        {time.strftime('%H:%M:%S', time.localtime(word.time_ms / 1000))}  {word.op:<5}  {word.subscription:<24} {word.object}")

    def _line(self, elapsed_s: float, applied: int) -> None:
        recent, _ = self._watcher.latency()
        self._print(
            f"{elapsed_s:4.0f} s  {applied:,} of {self._plan.messages:,} states; {self._counts['enter']:,} entered, {self._counts['leave']:,} left; "
            f"latency p50 {milliseconds(recent.p50)}, p99 {milliseconds(recent.p99)}"
        )

    def _print(self, text: str) -> None:
        self._console.print(plain(text), markup=False, emoji=False, soft_wrap=True)
