"""Tables of the throughput benchmark."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["machine", "print_machine", "print_runs", "print_tables"]

_SUBSCRIPTION_BOLT = "subscription-bolt"


def machine() -> dict[str, Any]:
    """Return the machine's cores and memory, and the versions that matter."""
    from importlib.metadata import version

    return {
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "processor": _processor(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "system": platform.system(),
        "python": platform.python_version(),
        "spark": version("pyspark"),
        "numpy": version("numpy"),
        "numba": version("numba"),
    }


def _processor() -> str:
    try:
        with open("/proc/cpuinfo") as file:
            return next((line.partition(":")[2].strip() for line in file if line.startswith("model name")), platform.machine())
    except OSError:
        return platform.machine()


def print_tables(found: Mapping[str, Any]) -> None:
    """Print a table of all runs, then tables of each run: where the time goes, and what travels."""
    s = found["settings"]
    print_machine(found["machine"])
    print(
        (
            f"boolean subscriptions: {_rectangles(s['side_percent'])}, {_between(*s['keywords'])} keywords, "
            if s.get("boolean")
            else f"window {s['window']:,} messages, k = {s['k']}, subscriptions registered with the window {s['register']}, "
        )
        + f"vocabulary of {s['vocabulary_sample']:,} messages; "
        + "; ".join(f"{k}={v}" for k, v in {**s["conf"], **{f"{c} tasks": n for c, n in s["tasks"].items()}}.items())
    )
    print_runs(found["runs"])


def print_machine(m: Mapping[str, Any]) -> None:
    """Print what :func:`machine` returned."""
    print(
        f"machine: {m['cores']} cores ({m['processor']}), {m['memory_gib']} GiB, {m['system']}, Python {m['python']}, Spark {m['spark']}; "
        "broker, Spark, executors, driver and producer all on it"
    )


def print_runs(runs: Sequence[Mapping[str, Any]]) -> None:
    """Print the tables of runs, without what they were asked for."""
    from dskype.deploy.lab.emulator.measure import print_table

    summaries = [_summary(r) for r in runs]
    print_table(
        "Throughput and latency",
        ["subscriptions", *(f"{r['subscriptions']:,}" for r in runs)],
        [[what, *(summary.get(what, "-") for summary in summaries)] for what in max(summaries, key=len, default=())],
    )
    for r in runs:
        if "processes" in r:
            print_table(
                f"{r['subscriptions']:,} subscriptions: where the time goes (us, bytes, frames per message applied; memory in MiB)",
                ["part", "cores", "CPU us", "share", "busy us", "in B", "out B", "frames", "batches/s", "RSS", "PSS", "snapshot"],
                _process_rows(r),
            )
            print_table(
                f"{r['subscriptions']:,} subscriptions: what travels (per message applied)",
                ["stream", "from", "tuples", "bytes/tuple", "bytes"],
                _stream_rows(r),
            )
        if latency := r.get("latency"):
            print_table(
                f"{r['subscriptions']:,} subscriptions: while latency is measured, {latency['applied_per_s']:,.0f} messages/s applied",
                ["part", "cores", "CPU us/message", "busy us/message", "batches/s"],
                _latency_rows(latency),
            )


def _rectangles(side_percent: float | None) -> str:
    return "squares of 1 to 50 km" if side_percent is None else f"rectangles with sides of {side_percent:g} % of the space's"


def _between(least: int, most: int) -> str:
    return str(least) if least == most else f"{least} to {most}"


def _summary(r: Mapping[str, Any]) -> dict[str, str]:
    """Return a run's column of the first table."""
    latency, metrics = r.get("latency"), r.get("components", {}).get(_SUBSCRIPTION_BOLT, {}).get("metrics_per_message", {})
    processes, windows = r.get("processes", {}).values(), r["windows"] or [0]
    found = {
        "all active after s": f"{r['all_active_s']:.1f}",
        "messages/s": f"{r['messages_per_s']:,.0f}",
        "of all the time": f"{r['mean_per_s']:,.0f}",
        "slowest - fastest window": f"{min(windows):,.0f} - {max(windows):,.0f}",
        "lowest backlog, messages": f"{r['lowest_backlog']:,.0f}",
        **{f"waiting before {stage}": f"{n:,.0f}" for stage, n in r["waiting"].items()},
        "cores - taken by others": f"{sum(p['cores'] for p in processes):.2f} - {r['other_cores']:.2f}",
        "messages per CPU second": _figure(1e6 / whole if (whole := sum(p["cpu_us_per_message"] for p in processes)) else None),
        "deltas/message": _figure(metrics.get("deltas"), 1),
        "matches/message": _figure(metrics.get("matches"), 1),
        "states/message": _figure(metrics.get("states"), 1),
        "evaluations/message": _figure(metrics.get("evaluations"), 4),
        "moves of subscriptions/s": _figure(r.get("moves_per_s") or None, 0),
        "memory GiB (PSS)": f"{sum(p['pss_bytes'] or p['rss_bytes'] for p in processes) / 2**30:.1f}",
    }
    if latency:
        found |= {
            "latency at messages/s": f"{latency['rate']:,.0f}",
            "p50 ms": _figure(latency["first_p50_ms"]),
            "p99 ms": _figure(latency["first_p99_ms"]),
            "messages with results": f"{latency['messages_with_results'] / max(1, latency['messages']):.0%}",
            "of all deltas, p50 - p99 ms": f"{_figure(latency['deltas_p50_ms'])} - {_figure(latency['deltas_p99_ms'])}",
            "of messages in lists, p50 - p99 ms": f"{_figure(latency['lists_p50_ms'])} - {_figure(latency['lists_p99_ms'])}",
            "states/message, then": _figure(latency["components"].get(_SUBSCRIPTION_BOLT, {}).get("metrics_per_message", {}).get("states"), 1),
            "cores - taken by others, then": f"{sum(latency['cores'].values()):.2f} - {latency['other_cores']:.2f}",
            "messages behind at the end": f"{latency['behind_at_end']:,.0f}",
        }
    if verified := r.get("verified"):
        found["verified"] = f"{verified['subscriptions']:,} subscriptions: {'all equal' if verified['ok'] else 'DIFFERENT'}"
    return found | {"load average before - after": " - ".join(f"{x:.1f}" for x in r["load_average"])}


def _process_rows(r: Mapping[str, Any]) -> list[list[str]]:
    processes, components = r["processes"], r["components"]
    whole = sum(p["cpu_us_per_message"] for p in processes.values())
    columns = (("busy_us_per_message", 1), ("in_bytes_per_message", 0), ("out_bytes_per_message", 0), ("frames_per_message", 3), ("batches_per_s", 1))
    rows = []
    for kind, p in sorted(processes.items(), key=lambda item: -item[1]["cpu_us_per_message"]):
        c = components.get(kind, {})
        rows.append(
            [
                kind,
                f"{p['cores']:.2f}",
                f"{p['cpu_us_per_message']:,.1f}",
                f"{p['cpu_us_per_message'] / whole:.0%}" if whole else "-",
                *(_figure(c.get(key), digits) for key, digits in columns),
                *(f"{p[key] / 2**20:,.0f}" for key in ("rss_bytes", "pss_bytes")),
                f"{c['snapshot_bytes'] / 2**20:,.1f}" if c else "-",
            ]
        )
    rows.append(
        [
            "all",
            f"{sum(p['cores'] for p in processes.values()):.2f}",
            f"{whole:,.1f}",
            "100%",
            "",
            "",
            "",
            "",
            f"{sum(c['batches_per_s'] for c in components.values()):.1f}",
            *(f"{sum(p[key] for p in processes.values()) / 2**20:,.0f}" for key in ("rss_bytes", "pss_bytes")),
            f"{sum(c['snapshot_bytes'] for c in components.values()) / 2**20:,.1f}",
        ]
    )
    return rows


def _latency_rows(latency: Mapping[str, Any]) -> list[list[str]]:
    components, rate, cores = latency["components"], latency["applied_per_s"], latency["cores"]
    rows = [
        [kind, f"{used:.2f}", f"{used * 1e6 / rate:,.1f}", *(_figure(components.get(kind, {}).get(key), 1) for key in ("busy_us_per_message", "batches_per_s"))]
        for kind, used in sorted(cores.items(), key=lambda item: -item[1])
    ]
    whole = sum(cores.values())
    return [*rows, ["all", f"{whole:.2f}", f"{whole * 1e6 / rate:,.1f}", "", f"{sum(c['batches_per_s'] for c in components.values()):.1f}"]]


def _stream_rows(r: Mapping[str, Any]) -> list[list[str]]:
    rows = [[s["stream"], s["from"], f"{s['tuples_per_message']:,.3f}", _figure(s["bytes_per_tuple"]), _figure(s["bytes_per_message"])] for s in r["streams"]]
    size, deltas = r.get("delta_bytes"), r["components"][_SUBSCRIPTION_BOLT]["metrics_per_message"].get("deltas", 0)
    return [
        ["(messages)", "producer", "1.000", *[f"{r['input']['message_bytes']:,.0f}"] * 2],
        *rows,
        ["(results)", _SUBSCRIPTION_BOLT, f"{deltas:,.3f}", _figure(size), _figure(None if size is None else size * deltas)],
    ]


def _figure(value: float | None, digits: int = 0) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"
