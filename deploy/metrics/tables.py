"""Show what :mod:`~dskype.deploy.metrics.meter` measures of a running topology, as tables."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from dskype.deploy.machine.terminal import plain

__all__ = ["Screen", "as_text"]

_OLD_S = 10
"""Reports of a topology that runs come every second; how old the numbers are is said if none has come for so long."""


def _count(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}"


def _figure(value: float | None, digits: int = 2) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"


def _rate(value: float | None) -> str:
    return "-" if value is None else f"{value:,.1f}" if value < 10 else f"{value:,.0f}"


def _size(value: float | None) -> str:
    if value is None:
        return "-"
    for unit in ("B", "KB", "MB", "GB"):
        if value < 1000:
            return f"{value:,.0f} {unit}" if unit == "B" else f"{value:,.1f} {unit}"
        value /= 1000
    return f"{value:,.1f} TB"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value * 100:.0f} %"


def _headlines(m: Mapping[str, Any]) -> list[tuple[str, str]]:
    lines = []
    if m["messages"] is not None:
        messages, communication, replication, balance = m["messages"], m["communication"], m["replication"], m["balance"]
        lines.append(("messages", f"{_count(messages['processed'])}, {_rate(messages['per_second'])}/s"))
        now = "" if communication["tuples_per_message_now"] is None else f" ({_figure(communication['tuples_per_message_now'])} now)"
        lines.append(
            (
                "communication",
                f"{_figure(communication['tuples_per_message'])} tuples per message{now}, {_size(communication['bytes_per_message'])} per message",
            )
        )
        lines.append(
            (
                "replication",
                f"{_figure(replication['ratio'])}: {_count(replication['placements'])} placements of {_count(replication['subscriptions'])} subscriptions",
            )
        )
        over = "in the window" if balance["over"] == "window" else "since the start"
        lines.append(
            (
                "balance (max/mean)",
                f"subscriptions {_figure(balance['subscriptions'])}, messages {_figure(balance['messages'])}, busy {_figure(balance['busy'])} {over}",
            )
        )
    total = m["total"]
    lines.append(
        (
            "between tasks",
            f"{_count(total['tuples'])} tuples in {_count(total['frames'])} frames of {_size(total['bytes'])}; "
            f"{_rate(total['tuples_per_second'])} tuples/s, {_size(total['bytes_per_second'])}/s",
        )
    )
    lines.extend(
        (f"latency to {row['component']}", f"p50 {row['p50_ms']:,} ms, p99 {row['p99_ms']:,} ms of {row['records']:,} records") for row in m["latency"]
    )
    lag = [f"{n:,} of {topic}" for topic, n in sorted(m["lag"]["records"].items())]
    lag += [f"{n:,} tuples to {component}" for component, n in sorted(m["lag"]["in_flight"].items())]
    if m["store"] is not None:
        store = m["store"]
        lines.append(("result store", f"{_count(store['written'])} lists written, {_count(store['waiting'])} wait, {_count(store['failures'])} failures"))
    lines.append(("waiting", ", ".join(lag) or "nothing"))
    return lines


def _dead_letters(rows: Sequence[Mapping[str, Any]]) -> Table:
    letters = Table(title="dead letters", title_justify="left")
    for column, justify in (("count", "right"), ("component", "left"), ("stage", "left"), ("code", "left")):
        letters.add_column(column, justify=justify)
    for row in sorted(rows, key=lambda row: -row["count"]):
        letters.add_row(_count(row["count"]), *(Text(plain(row[name])) for name in ("component", "stage", "code")))
    return letters


def _tenants(rows: Mapping[str, Mapping[str, Any]]) -> Table:
    tenants = Table(title="tenants", title_justify="left")
    tenants.add_column("tenant")
    for column in ("subscriptions", "of", "registrations", "per second at most", "refused"):
        tenants.add_column(column, justify="right")
    for name, row in rows.items():
        quotas = row["quotas"]
        numbers = row["subscriptions"], quotas["max_subscriptions"], row["registrations"], quotas["max_registrations_per_s"], sum(row["refused"].values())
        tenants.add_row(Text(plain(name)), *map(_count, numbers))
    return tenants


def as_text(m: Mapping[str, Any], *, tasks: bool = False) -> Any:
    """Return measurements as an object that rich can print.

    :param tasks: add a line for every task.
    """
    gone = "" if m["driver_alive"] in (None, True) else ", its process is gone"
    age_s = m.get("report_age_s")
    old = f"; the newest report of a task is {_figure(age_s, 0)} s old" if age_s is not None and age_s > _OLD_S else ""
    title = f"{m['topology']} ({m['id']}) {m['status'] or ''}{gone}, up {_count(m['uptime_s'])} s; rates over {_figure(m['window_s'], 0)} s{old}"
    heads = Table.grid(padding=(0, 2))
    for name, value in _headlines(m):
        heads.add_row(Text(name), Text(value))
    flows = Table(title="streams", title_justify="left")
    for column, justify in (
        ("stream", "left"),
        ("from", "left"),
        ("to", "left"),
        ("tuples", "right"),
        ("/s", "right"),
        ("frames", "right"),
        ("bytes", "right"),
        ("bytes/s", "right"),
    ):
        flows.add_column(column, justify=justify)
    for s in m["streams"]:
        flows.add_row(
            *(
                Text(x)
                for x in (
                    s["stream"],
                    s["source"],
                    s["target"],
                    _count(s["tuples"]),
                    _rate(s["tuples_per_second"]),
                    _count(s["frames"]),
                    _size(s["bytes"]),
                    _size(s["bytes_per_second"]),
                )
            )
        )
        for t in s["tasks"] if tasks else ():
            flows.add_row("", "", f"task {t['task']}", _count(t["tuples"]), "", _count(t["frames"]), _size(t["bytes"]), "", style="dim")
    parts = Table(title="components", title_justify="left")
    parts.add_column("component")
    for column in ("tasks", "executed", "emitted", "busy s", "busy", "batch ms", "checkpoint s", "watermark", "errors", "dead letters"):
        parts.add_column(column, justify="right")
    for c in m["components"]:
        parts.add_row(
            Text(c["component"]),
            str(len(c["tasks"])),
            _count(c["executed"]),
            _count(c["emitted"]),
            _figure(c["busy_s"], 1),
            _share(c["busy"]),
            "-" if not c["batches"]["count"] else f"{c['batches']['p50_ms']:,.0f} / {c['batches']['p99_ms']:,.0f}",
            _figure(c["checkpoint_age_s"], 1),
            _count(c["watermark"]),
            _count(c["errors"]),
            _count(c["dead_letters"]),
        )
        for t in c["tasks"] if tasks else ():
            subscriptions = "" if t["subscriptions"] is None else f", {_count(t['subscriptions'])} subscriptions"
            parts.add_row(
                f"  task {t['task']}{subscriptions}",
                "",
                _count(t["executed"]),
                "",
                _figure(t["busy_s"], 1),
                _share(t["busy"]),
                "",
                "",
                _count(t["watermark"]),
                "",
                "",
                style="dim",
            )
    more = [*([_tenants(m["tenants"])] if m.get("tenants") else ()), *([_dead_letters(m["dead_letters"])] if m["dead_letters"] else ())]
    return Group(Text(title), heads, flows, parts, *more)


class Screen:
    """Prints measurements as JSON, or as tables, which a terminal redraws in place.

    :param as_json: print one JSON object per call; with ``watch`` on one line.
    :param watch: :meth:`show` will be called repeatedly.
    :param tasks: add a line for every task.
    """

    def __init__(self, as_json: bool, watch: bool, tasks: bool) -> None:
        self._json, self._watch, self._tasks = as_json, watch, tasks
        self._console = Console() if Console().is_terminal else Console(width=140)
        self._live: Any = None

    def __enter__(self) -> Screen:
        if self._watch and not self._json and self._console.is_terminal:
            self._live = Live(console=self._console, auto_refresh=False)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, measured: Mapping[str, Any]) -> None:
        """Show measurements."""
        if self._json:
            print(json.dumps(measured, ensure_ascii=False, indent=None if self._watch else 2), flush=True)
        elif self._live is not None:
            self._live.update(as_text(measured, tasks=self._tasks), refresh=True)
        else:
            self._console.print(as_text(measured, tasks=self._tasks))
