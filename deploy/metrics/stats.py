"""``dskype stats``: tables, or JSON, of what :mod:`~dskype.deploy.metrics.meter` finds out about a running topology."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping
from typing import Any

from dskype.deploy.cli.arguments import plain
from dskype.deploy.metrics.meter import WINDOW_S, Source, describe, measure
from dskype.topology.errors import NotAliveException, TopologyError, explain

__all__ = ["add_options", "as_text", "find", "run"]


def find(kafka: Any, topology: str | None) -> dict[str, Any]:
    """Return what is known about a topology; None: about the only one.

    :raises NotAliveException: there is none of that name.
    :raises TopologyError: none or several run, and no name is given.
    """
    from dskype.topology.runtime.nimbus_topic import load_states, watch_drivers

    states = load_states(kafka)
    if topology is None and len(states) == 1:
        topology = next(iter(states))
    if topology is None:
        raise TopologyError(
            explain("Expected the name of a topology: not exactly one runs.", given=len(states), legal=", ".join(sorted(states)) or "none runs")
        )
    if topology not in states:
        raise NotAliveException.of(topology)
    return describe(states[topology], watch_drivers(kafka, {topology: states[topology]})[topology])


# --- text -------------------------------------------------------------------------------------------------------------


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
    for row in m["latency"]:
        lines.append((f"latency to {row['component']}", f"p50 {row['p50_ms']:,} ms, p99 {row['p99_ms']:,} ms of {row['records']:,} records"))
    lag = [f"{n:,} of {topic}" for topic, n in sorted(m["lag"]["records"].items())]
    lag += [f"{n:,} tuples to {component}" for component, n in sorted(m["lag"]["in_flight"].items())]
    if m["store"] is not None:
        store = m["store"]
        lines.append(("result store", f"{_count(store['written'])} lists written, {_count(store['waiting'])} wait, {_count(store['failures'])} failures"))
    lines.append(("waiting", ", ".join(lag) or "nothing"))
    return lines


def as_text(m: Mapping[str, Any], *, tasks: bool = False) -> Any:
    """Return measurements as something that rich can print.

    :param tasks: with a line for every task.
    """
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    gone = "" if m["driver_alive"] in (None, True) else ", its process is gone"
    title = f"{m['topology']} ({m['id']}) {m['status'] or ''}{gone}, up {_count(m['uptime_s'])} s; rates over {_figure(m['window_s'], 0)} s"
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
    found: list[Any] = [Text(title), heads, flows, parts]
    if m["dead_letters"]:
        letters = Table(title="dead letters", title_justify="left")
        for column, justify in (("count", "right"), ("component", "left"), ("stage", "left"), ("reason", "left")):
            letters.add_column(column, justify=justify)
        for row in sorted(m["dead_letters"], key=lambda row: -row["count"]):
            letters.add_row(_count(row["count"]), *(Text(plain(row[name])) for name in ("component", "stage", "reason")))
        found.append(letters)
    return Group(*found)


# --- the verb ---------------------------------------------------------------------------------------------------------


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``dskype stats``."""
    from dskype.deploy.cli.arguments import output, positive, positive_seconds

    parser.add_argument("name", metavar="TOPOLOGY", nargs="?", help="default: the only one that runs")
    parser.add_argument(
        "--window", metavar="SECS", type=positive_seconds, default=WINDOW_S, help=f"rates, latency and balance over so long; default: {WINDOW_S:g}"
    )
    parser.add_argument("--tasks", action="store_true", help="a line for every task (JSON always has them)")
    parser.add_argument("--watch", action="store_true", help="again and again, until Ctrl-C; with -o json an object a line")
    parser.add_argument("-i", "--interval", metavar="SECS", type=positive_seconds, default=2, help="of --watch; default: 2")
    parser.add_argument("--count", metavar="N", type=positive, help="end --watch after so many")
    output(parser)


def run(args: argparse.Namespace, kafka: Any) -> int:
    """Print what a topology does.

    :param kafka: how to reach the brokers.
    :returns: the exit code.
    """
    about = find(kafka, args.name)
    source = Source(kafka, about["name"], args.window)
    try:
        source.catch_up()
        shown = 0
        with _Screen(args.output == "json", args.watch, args.tasks) as screen:
            while True:
                screen.show(measure(source.meter, about, ends=source.ends()))
                shown += 1
                if not args.watch or shown == args.count:
                    return 0
                deadline = time.monotonic() + args.interval
                while (left := deadline - time.monotonic()) > 0:
                    source.poll(max(1, min(500, int(left * 1000))))
                about = find(kafka, about["name"])
    finally:
        source.close()


class _Screen:
    """Prints measurements: JSON, or tables, which a terminal draws over themselves."""

    def __init__(self, as_json: bool, watch: bool, tasks: bool) -> None:
        from rich.console import Console

        self._json, self._watch, self._tasks = as_json, watch, tasks
        self._console = Console() if Console().is_terminal else Console(width=140)
        self._live: Any = None

    def __enter__(self) -> _Screen:
        if self._watch and not self._json and self._console.is_terminal:
            from rich.live import Live

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
