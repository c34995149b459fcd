"""The report of the Tornado benchmark."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dskype.deploy.lab.dskype.report import draw_bars, draw_lines
from dskype.deploy.lab.report import Report, machine_in_words, messages_in_words

__all__ = ["REPORT"]

_ROUTING = {
    "throughput": ("msgs/s", 0),
    "distribution_per_s": ("routing unit/s", 0),
    "system_per_s": ("with units", 0),
    "latency_ms": ("latency ms", 2),
    "communication": ("tuples", 3),
    "bytes": ("bytes", 0),
    "replication": ("repl.", 2),
    "balance_busy": ("bal. work", 2),
    "balance_subscriptions": ("bal. subs", 2),
    "route_us": ("route us", 3),
    "distribution_us": ("distr. us", 2),
    "work_us": ("work us", 2),
    "slowest_us": ("slowest us", 3),
    "cpu_us": ("cpu us", 2),
    "place_us": ("place us", 1),
    "matches": ("matches", 2),
    "memory_mib": ("MiB", 1),
    "summary_pairs": ("summaries", 0),
}
"""Measures of the routing simulation -> heading, digits."""

_MEASURES = {
    **_ROUTING,
    "routing_us": ("us", 3),
    "router_bytes": ("memory, bytes", 0),
    "per_load": ("msgs per load", 3),
    "learned": ("balance, learned", 2),
    "settled": ("best within 20 s", 2),
    "later": ("later", 2),
    "granularity": ("one cell", 2),
    "speed_up": ("adaptive : static", 2),
    "sent_bytes": ("sent bytes/s", 0),
    "centralized_bytes": ("centralized bytes/s", 0),
    "sent_less": ("times less", 1),
    "transferred": ("moved/s", 0),
    "operations": ("operations", 0),
    "cells_least": ("smallest, cells", 0),
    "cells_most": ("largest, cells", 0),
}

_HIDDEN = (
    "bytes",
    "balance_subscriptions",
    "distribution_us",
    "slowest_us",
    "cpu_us",
    "place_us",
    "matches",
    "summary_pairs",
    "granularity",
    "transferred",
    "operations",
    "cells_least",
)
"""Measures that are not printed on a terminal."""

_LEGEND = (
    "msgs/s: what the busiest evaluator could do; routing unit/s: what one routing unit could do, and there can be several; with units: what both could do together; "
    "latency: of a step, routing and its slowest evaluator; tuples, bytes: routing units -> evaluators, per message; repl.: evaluators of a subscription.",
    "bal.: max / mean over evaluators. route: the distributor's part of distr.; work: of all evaluators; slowest: of the busiest; cpu: distr. and work; place: per subscription; "
    "us. MiB: all indexes; summaries: pairs of evaluator and word.",
    "msgs per load: messages per unit of the busiest evaluator's load, under hotspots; balance: greatest load by the mean over 5 s; one cell: what it would be if each cell had an evaluator.",
)

_LONG = {
    "throughput": "messages/s of the busiest evaluator",
    "system_per_s": "messages/s",
    "communication": "tuples per message",
    "replication": "evaluators of a subscription",
    "matches": "matches per message",
    "routing_us": "us",
    "router_bytes": "bytes",
    "per_load": "messages per unit of the greatest load",
    "sent_bytes": "bytes/s that balancing sends",
}

_LOGARITHMIC = ("throughput", "routing_us", "router_bytes")


def _conditions(found: Mapping[str, Any]) -> list[str]:
    s, b = found["scale"], found["balancing"]
    return [
        messages_in_words(found),
        f"{s['subscriptions']:,} subscriptions, rectangles with sides of 0.5 % of the space's, 3 keywords and 32 evaluators unless varied; {s['messages']:,} messages, {s['step']:,} at a time; "
        f"partitions learned from {s['sample']:,} other subscriptions and messages; grid of {s['grid']:,} x {s['grid']:,}",
        f"balancing: {b['messages_per_s']:,} messages/s, {b['subscriptions']:,} subscriptions that live {b['lifetime_s']} s, grid of {b['grid']:,} x {b['grid']:,}; {b['moves']} hotspots of {b['hot_s']} s with "
        f"{b['hot_share']:.0%} of the workload",
        machine_in_words(found, "CPU times, each task for itself", "the least of {} runs of each step", s["repeat"]),
    ]


def _draw(experiment: Mapping[str, Any], left: Any, right: Any) -> None:
    """Draw the main measure on the left and the second one on the right; of balancing the throughput over time on the left; of partitions two maps."""
    rows = experiment["rows"]
    if "boxes" in rows[0]:
        for axes, row in zip((left, right), rows):
            _draw_map(axes, row)
        return
    if "timeline" in rows[0]:
        _draw_timeline(left, experiment)
        if experiment["second"] == "sent_bytes":
            _draw_sent(right, experiment)
            return
        plots = [(right, experiment["second"])]
    else:
        first = "system_per_s" if experiment["name"] == "units" else "throughput" if "throughput" in rows[0] else "routing_us"
        plots = [(left, first), (right, experiment["second"])]
    for axes, measure in plots:
        if any(isinstance(row["x"], str) for row in rows):
            _draw_groups(axes, rows, measure)
        else:
            draw_lines(axes, rows, measure)
            axes.set_xlabel(experiment["x"])
            axes.legend(fontsize="small")
        if measure in _LOGARITHMIC:
            axes.set_yscale("log")
        axes.set_ylabel(_LONG[measure])
    if any(isinstance(row["x"], str) for row in rows):
        right.legend(fontsize="x-small", loc="upper left", bbox_to_anchor=(1, 1))


def _draw_groups(axes: Any, rows: Any, measure: str) -> None:
    """Draw bars in more colours than there are by default."""
    from matplotlib import colormaps

    axes.set_prop_cycle(color=colormaps["tab20"].colors)
    draw_bars(axes, rows, measure)


def _draw_sent(axes: Any, experiment: Mapping[str, Any]) -> None:
    """Draw what balancing sends, and what centralized balancing would send."""
    some = sorted((row for row in experiment["rows"] if row["series"] == "adaptive"), key=lambda row: row["x"])
    for measure, label in (("sent_bytes", "distributed"), ("centralized_bytes", "centralized")):
        axes.plot([row["x"] for row in some], [row[measure] for row in some], marker="o", markersize=3, label=label)
    axes.set_yscale("log")
    axes.set_xlabel(experiment["x"])
    axes.set_ylabel(_LONG["sent_bytes"])
    axes.legend(fontsize="small")


def _draw_timeline(axes: Any, experiment: Mapping[str, Any]) -> None:
    """Draw the throughput over time with and without balancing."""
    rows = experiment["rows"]
    xs = sorted({row["x"] for row in rows})
    x = 32 if 32 in xs else xs[0]
    for row in rows:
        if row["x"] == x:
            axes.plot(row["timeline"]["throughput"], label=row["series"])
            phase = row["timeline"]["phase"]
    for second in range(1, len(phase)):
        if phase[second] != phase[second - 1]:
            axes.axvline(second, color="gray", linestyle=":")
    axes.set_xlabel(f"seconds, with {experiment['x']} {x:g}")
    axes.set_ylabel(_LONG["per_load"])
    axes.legend(fontsize="small")


def _draw_map(axes: Any, row: Mapping[str, Any]) -> None:
    """Draw partitions as rectangles over some messages."""
    from matplotlib.patches import Rectangle

    axes.scatter(*zip(*row["places"]), s=1, color="tab:gray", linewidths=0)
    for west, south, east, north in row["boxes"]:
        axes.add_patch(Rectangle((west, south), east - west, north - south, fill=False, edgecolor="tab:blue", linewidth=0.8))
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1)
    axes.set_xlabel("west to east" if not row["x"] else f"west to east, hotspot {row['x']}")


REPORT = Report(
    "Tornado: routing and load balancing",
    "the paper says, or is the goal",
    _MEASURES,
    tuple(name for name in _MEASURES if name not in _HIDDEN),
    {name: name for name in ("method", "options", "index", "evaluators", "world", "units", "router", "partitions", "side", "adaptive", "scale", "phase")},
    (*_MEASURES, "subscriptions", "measured", "different", "equal", "seconds"),
    _conditions,
    _LEGEND,
    _draw,
    "tornado",
)
