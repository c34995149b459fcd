"""Keep a DSkype topology maintained over HTTP, as section 7.4 of the paper does over Storm's UI.

    UI_TOKEN=... python maintain.py http://127.0.0.1:8080 dskype

Every ten seconds it asks how busy the executors of each component are. A component whose busiest executor is overloaded several times in a row gets one
more executor, one that is idle gives one up; its tasks stay, as in Storm. When the tasks of the subscription bolt are loaded unevenly, a partition of the
busiest one is split, or given away whole if it has several. When the server is away or refuses a change, it says so and goes on. It needs nothing but
Python, and is meant to be read and changed.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import Request, urlopen

SUBSCRIPTION_BOLT = "subscription-bolt"


@dataclass
class Limits:
    """When to act. ``capacity`` is Storm's: the share of the last ten minutes that an executor was in its component's code."""

    overloaded: float = 0.8
    idle: float = 0.1
    uneven: float = 1.5
    """Busiest task of the subscription bolt divided by the mean."""
    least_busy: float = 0.1
    """While no task is busier than this, nothing is moved between tasks."""
    patience: int = 3
    """In so many polls in a row something has to be found before it is acted on; after that, so many polls change nothing."""
    wait_secs: int = 5
    """How long spouts pause before a rebalance."""


@dataclass
class Maintenance:
    """Polls one topology, and acts.

    :param url: of the UI.
    :param topology: its name.
    :param token: for changes.
    """

    url: str
    topology: str
    token: str
    limits: Limits = field(default_factory=Limits)
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._seen: dict[str, int] = {}  # what was found -> how many times in a row
        self._rest = 0
        self._busy: dict[int, float] = {}  # task -> busy seconds at the poll before
        self._at = self.clock()  # of that poll

    def poll(self) -> list[str]:
        """Look once, and return what was done."""
        components, measures = self._components(), self._get(f"/api/dskype/measures?topology={quote(self.topology)}")
        loads = self._loads(measures)
        wanted = {**rescaled(components, self.limits), **uneven(loads, self.limits)}
        self._seen = {what: self._seen.get(what, 0) + 1 for what in wanted}
        if self._rest:
            self._rest -= 1
            return []
        due = [what for what, times in self._seen.items() if times >= self.limits.patience]
        done = [self._act(wanted[what], loads) for what in due]
        if done:
            self._seen, self._rest = {}, self.limits.patience
        return [text for text in done if text]

    # -- what the topology does ------------------------------------------------------------------------------------------

    def _components(self) -> dict[str, dict[str, Any]]:
        """Return component -> executors, tasks and capacity, from Storm's REST API."""
        ids = {row["name"]: row["id"] for row in self._get("/api/v1/topology/summary")["topologies"]}
        if self.topology not in ids:
            raise OSError(f"no topology {self.topology} runs; those that do: {', '.join(ids) or 'none'}")
        self._id = ids[self.topology]
        page = self._get(f"/api/v1/topology/{quote(self._id)}?window=600")
        return {bolt["boltId"]: {name: float(bolt[name]) for name in ("executors", "tasks", "capacity")} for bolt in page["bolts"]}

    def _loads(self, measures: dict[str, Any]) -> list[float]:
        """Return how busy each task of the subscription bolt was since the poll before, by its index; [] at the first poll."""
        rows = next((c["tasks"] for c in measures["components"] if c["component"] == SUBSCRIPTION_BOLT), [])
        before, self._busy = self._busy, {row["task"]: row["busy_s"] for row in rows}
        secs, self._at = self.clock() - self._at, self.clock()
        if secs <= 0 or before.keys() != self._busy.keys():
            return []
        return [max(0.0, busy - before[task]) / secs for task, busy in sorted(self._busy.items())]

    # -- changes -----------------------------------------------------------------------------------------------------------

    def _act(self, change: tuple[Any, ...], loads: list[float]) -> str:
        if change[0] == "executors":
            _, component, number = change
            options = {"rebalanceOptions": {"executors": {component: number}}}
            self._post(f"/api/v1/topology/{quote(self._id)}/rebalance/{self.limits.wait_secs}", options)
            return f"{component}: {number} executors"
        plan = self._get(f"/api/dskype/partitions?topology={quote(self.topology)}")
        found = move(plan["partitions"], loads)
        if found is None:
            return ""
        path, body = found
        self._post(f"/api/dskype/partitions/{path}?topology={quote(self.topology)}", {**body, "version": plan["version"]})
        return f"{path} {body}"

    def _get(self, path: str) -> Any:
        with urlopen(self.url.rstrip("/") + path, timeout=60) as answer:
            return json.load(answer)

    def _post(self, path: str, body: Any) -> Any:
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        with urlopen(Request(self.url.rstrip("/") + path, json.dumps(body).encode(), headers), timeout=120) as answer:
            return json.load(answer)


def rescaled(components: dict[str, dict[str, Any]], limits: Limits) -> dict[str, tuple[Any, ...]]:
    """Return what should happen to the executors of components: one more, or one less, within 1 and the number of tasks."""
    found: dict[str, tuple[Any, ...]] = {}
    for component, now in components.items():
        executors = int(now["executors"])
        if now["capacity"] > limits.overloaded and executors < now["tasks"]:
            found[f"{component} is overloaded"] = ("executors", component, executors + 1)
        elif now["capacity"] < limits.idle and executors > 1:
            found[f"{component} is idle"] = ("executors", component, executors - 1)
    return found


def uneven(loads: list[float], limits: Limits) -> dict[str, tuple[Any, ...]]:
    """Return whether the subscription bolt's tasks are loaded unevenly."""
    if len(loads) > 1 and max(loads) > limits.least_busy and max(loads) * len(loads) > limits.uneven * sum(loads):
        return {"tasks are uneven": ("partitions",)}
    return {}


def move(partitions: list[dict[str, Any]], loads: list[float]) -> tuple[str, dict[str, int]] | None:
    """Return path and body of the change that relieves the busiest task; None if it has no partition of its own.

    Its largest partition is split with the idlest task. If it has several, and the largest one is more than half of its load, another one goes whole.
    """
    busiest, idlest = loads.index(max(loads)), loads.index(min(loads))
    own = sorted((p for p in partitions if p["tasks"] == [busiest]), key=lambda p: -p["load"])
    if not own:
        return None
    total = sum(p["load"] for p in own)
    home = next((p["number"] for p in partitions if p["tasks"] == [idlest]), None)
    if len(own) > 1 and own[0]["load"] * 2 > total and home is not None:
        return "merge", {"one": home, "other": own[1]["number"]}
    return "split", {"partition": own[0]["number"], "task": idlest}


def main() -> None:
    """Maintain a topology until Ctrl-C."""
    if len(sys.argv) != 3 or "UI_TOKEN" not in os.environ:
        sys.exit("usage: UI_TOKEN=... python maintain.py URL TOPOLOGY; 'dskype ui' prints the URL and the token")
    maintenance = Maintenance(sys.argv[1], sys.argv[2], os.environ["UI_TOKEN"])
    while True:
        try:
            for text in maintenance.poll():
                print(text, flush=True)
        except HTTPError as error:  # the answer says why
            print(f"{error.url}: {error.read().decode(errors='replace')}", file=sys.stderr, flush=True)
        except OSError as error:
            print(f"{maintenance.url}: {error}", file=sys.stderr, flush=True)
        time.sleep(10)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main()
