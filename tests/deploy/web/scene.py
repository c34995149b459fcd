"""A DSkype topology that looks as if it ran: metrics over some minutes, a distribution plan, messages and results. For tests of pages, and their pictures."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from dskype.deploy.web.trend import WatchedReports
from dskype.distribution import start_distributor
from dskype.spouts.settings import Settings
from dskype.spouts.topics import Topics
from dskype.spouts.vocabulary import Vocabulary
from dskype.topology.runtime.nimbus.nimbus_topic import NIMBUS_TOPIC
from dskype.topology.ui.view import TopologyView

from .memory_kafka import MemoryKafka

HALF_LIFE = {"dskype.window.messages": None, "dskype.window.span.ms": 3_600_000, "dskype.half.life.s": 60}
"""Configuration of a topology whose lists rank by time scores."""
_EMPTY: dict[str, Any] = {"transferred": {}, "emitted": {}, "executed": {}, "sent": {}, "received": {}, "busy_ns": 0}


def report(component: str, time_ms: int, *tasks: dict[str, Any]) -> bytes:
    """Return a record of the metrics topic; a task is its id as ``task`` and what it reports."""
    rows = [{**_EMPTY, "component": component, **task} for task in tasks]
    return json.dumps(
        {
            "v": 1,
            "kind": "stats",
            "topology": "dskype-1-1",
            "component": component,
            "executor": 0,
            "pid": 1,
            "time_ms": time_ms,
            "batch_ms": 30.0,
            "tasks": rows,
        }
    ).encode()


def run_for(reports: WatchedReports, secs: int, end_ms: int, shares: Sequence[float] = (0.6, 0.4), per_second: float = 900, version: int = 1) -> None:
    """Feed reports of every second: a distribution bolt (task 1), and subscription bolts that get these shares of ``per_second`` tuples, by a version of the plan."""
    messages = 0
    received, busy = [0] * len(shares), [0.0] * len(shares)
    for second in range(secs + 1):
        time_ms = end_ms - (secs - second) * 1000
        wave = 1 + 0.25 * math.sin(second / 23) + 0.1 * math.sin(second / 7)
        messages += round(per_second * wave)
        for i, share in enumerate(shares):
            received[i] += round(per_second * wave * share)
            busy[i] += min(0.95, 0.5 * share * wave) * 1e9
        subscriptions = {"registered": 20_000, "plan_version": version, "plan_changing": 0}
        reports.feed(
            report(
                "distribution-bolt",
                time_ms,
                {
                    "task": 1,
                    "executed": {"message-spout/messages": messages},
                    "transferred": {"matching": sum(received)},
                    "metrics": subscriptions,
                    "watermark": messages,
                },
            )
        )
        tasks = [
            {
                "task": i + 2,
                "executed": {"distribution-bolt/matching": received[i]},
                "received": {"1": received[i]},
                "stream_bytes": {"distribution-bolt/matching": received[i] * 120},
                "busy_ns": int(busy[i]),
                "watermark": messages,
                "metrics": {"subscriptions": int(20_000 * 1.2 * share)},
            }
            for i, share in enumerate(shares)
        ]
        reports.feed(report("subscription-bolt", time_ms, *tasks))


def run_plan(kafka: MemoryKafka, conf: dict[str, Any], tasks: int = 2) -> dict[str, Any]:
    """Let the topology ``dskype`` run with a configuration, and follow a plan of its distributor; return the plan."""
    plan = start_distributor(Settings.from_conf(conf), tasks, Vocabulary.empty()).plan()
    record = {
        "v": 1,
        "state": {"id": "dskype-1-1", "name": "dskype", "submitted_ms": 1, "components": [], "conf": conf},
        "summary": {"status": "ACTIVE", "name": "dskype"},
        "driver": {"host": "here", "pid": 1},
    }
    kafka.broker.write(NIMBUS_TOPIC, "topology:dskype", json.dumps(record).encode())
    kafka.broker.write(Topics.for_topology("dskype").plans, "plan", json.dumps({"v": 1, "version": 1, "plan": plan}).encode())
    return plan


def watched(view: TopologyView, **conf: Any) -> TopologyView:
    """Return a view with reports that DSkype's pages read."""
    record = {**view.record, "state": {**view.record["state"], "conf": conf}}
    return replace(view, record=record, reports=WatchedReports({"state": {"conf": conf}}))


CITIES = [
    (40.7, -74.0),
    (51.5, -0.1),
    (48.9, 2.3),
    (35.7, 139.7),
    (28.6, 77.2),
    (-23.5, -46.6),
    (30.0, 31.2),
    (19.4, -99.1),
    (37.8, -122.4),
    (-33.9, 151.2),
    (6.5, 3.4),
    (55.8, 37.6),
    (1.3, 103.8),
    (43.04, -87.9),
]
WORDS = ["coffee", "lake", "park", "museum", "station", "market", "bridge", "harbour", "garden", "library"]


def messages(n: int, seed: int = 0) -> list[dict[str, Any]]:
    """Return messages around some cities."""
    draw = random.Random(seed)
    found = []
    for i in range(n):
        lat, lon = draw.choice(CITIES)
        text = " ".join(draw.sample(WORDS, 3))
        found.append({"id": f"m{i}", "text": text, "lat": round(lat + draw.gauss(0, 4), 3), "lon": round((lon + draw.gauss(0, 6) + 180) % 360 - 180, 3)})
    return found
