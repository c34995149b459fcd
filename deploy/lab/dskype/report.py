"""The report of the distribution benchmark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dskype.deploy.lab.report import Report, machine_in_words, messages_in_words
from dskype.deploy.lab.system.throughput_report import machine

__all__ = ["REPORT", "draw_bars", "draw_lines", "machine"]

_MEASURES = {
    "throughput": ("msgs/s", 0),
    "even_per_s": ("if even", 0),
    "distribution_per_s": ("distr./s", 0),
    "communication": ("tuples", 2),
    "replication": ("repl.", 2),
    "balance_subscriptions": ("bal. subs", 2),
    "balance_messages": ("bal. msgs", 2),
    "balance_load": ("bal. load", 2),
    "balance_busy": ("bal. work", 2),
    "route_us": ("route us", 2),
    "distribution_us": ("distr. us", 1),
    "work_us": ("work us", 1),
    "slowest_us": ("slowest us", 1),
    "critical_us": ("critical us", 1),
    "place_us": ("place us", 1),
    "grown": ("grown", 0),
}
"""Measure -> heading, digits."""

_PRINTED = (
    "throughput",
    "even_per_s",
    "distribution_per_s",
    "communication",
    "replication",
    "balance_load",
    "balance_busy",
    "route_us",
    "work_us",
    "slowest_us",
    "place_us",
)
"""The measures that fit on a terminal."""

_OTHERS = (
    "balance_planned",
    "cpu_us",
    "bytes",
    "weigh_us",
    "encode_us",
    "look_up_us",
    "evaluations_per_1000",
    "probes_enough",
    "unbounded",
    "late",
    "memory_mib",
    "largest_mib",
    "learn_s",
    "changes",
    "checked",
    "different",
    "subscriptions",
    "seconds",
)
"""Measures that are only in the CSV file."""

_LONG = {
    "communication": "tuples per message",
    "work_us": "work of all tasks, us per message",
    "balance_load": "load: max / mean of tasks",
    "replication": "tasks per subscription",
}

_LEGEND = (
    "msgs/s: what the busiest subscription task could do; if even: were all equally busy; distr./s: what one distribution task could do (there can be several); tuples: distribution -> subscription bolts, per message; repl.: tasks of a subscription.",
    "bal.: max / mean over tasks of subscriptions, messages, load (their product, the paper's cost), measured work.",
    "distr.: of the distribution task per message, of which *route* is the distributor's part; work: of all subscription tasks; slowest: of the busiest; "
    "critical: distribution and the slowest task of each step; place: per subscription; us of CPU time.",
    "grown: placements that had to grow because a floor fell below their guard.",
)


def _conditions(found: Mapping[str, Any]) -> list[str]:
    s = found["scale"]
    return [
        *(f"{d['name']}: {messages_in_words(d)}" for d in found["data"]),
        f"{s['subscriptions']:,} subscriptions, |W| = {s['window']:,}, N = 32, k = 20 and 1 to 5 keywords unless varied; {s['arrivals']:,} arrivals measured, after "
        f"{s['warm_up']:,}, {s['step']:,} at a time; plans learned from {s['sample']:,} other subscriptions and the window",
        machine_in_words(found, "CPU times, each task for itself", "the least of {} runs of each step", found["repeat"]),
    ]


def _draw(experiment: Mapping[str, Any], left: Any, right: Any) -> None:
    """Draw the throughput on the left, the second measure on the right."""
    rows = experiment["rows"]
    for axes, measure, label in zip((left, right), ("throughput", experiment["second"]), ("messages/s", _LONG[experiment["second"]])):
        if any(isinstance(row["x"], str) for row in rows):
            draw_bars(axes, rows, measure)
        else:
            draw_lines(axes, rows, measure)
            axes.set_xlabel(experiment["x"])
            if experiment["x"] in ("N", "n1"):
                ticks = sorted({row["x"] for row in rows if row["x"] is not None})
                axes.set_xscale("log", base=2)
                axes.set_xticks(ticks, list(map(str, ticks)))
        axes.set_ylabel(label)
        axes.legend(fontsize="small")


def draw_bars(axes: Any, rows: Sequence[Mapping[str, Any]], measure: str) -> None:
    """Draw a group of bars for each word in ``x``, a bar for each series."""
    places, methods = (list(dict.fromkeys(row[key] for row in rows)) for key in ("x", "series"))
    width = 0.8 / len(methods)
    for number, name in enumerate(methods):
        of = [row for row in rows if row["series"] == name]
        axes.bar([places.index(row["x"]) + (number - len(methods) / 2 + 0.5) * width for row in of], [row[measure] for row in of], width, label=name)
    axes.set_xticks(range(len(places)), places)


def draw_lines(axes: Any, rows: Sequence[Mapping[str, Any]], measure: str) -> None:
    """Draw a line for each series; one whose only row has no ``x`` is a level to compare with."""
    for number, name in enumerate(dict.fromkeys(row["series"] for row in rows)):
        of = [row for row in rows if row["series"] == name]
        if of[0]["x"] is None:  # a single value to compare with
            axes.axhline(of[0][measure], color=f"C{number}", linestyle=":", label=name)
        else:
            of.sort(key=lambda row: row["x"])
            axes.plot([row["x"] for row in of], [row[measure] for row in of], color=f"C{number}", marker="o", markersize=3, label=name)


REPORT = Report(
    "Distribution mechanisms",
    "the paper says, or is the goal",
    _MEASURES,
    _PRINTED,
    {name: name for name in ("method", "options", "tasks", "data", "k", "window", "hotspot", "maintained", "index")},
    (*_MEASURES, *_OTHERS),
    _conditions,
    _LEGEND,
    _draw,
    "distribution",
)
