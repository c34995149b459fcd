"""What the Skype benchmark found: tables on the terminal; a Markdown page, a CSV file and plots in a folder."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dskype.deploy.benchmarks.papers import HELD, table_line, two_plots
from dskype.deploy.benchmarks.throughput_report import machine

__all__ = ["machine", "markdown", "plot", "print_tables", "write"]

_MEASURES = {
    "match_us": ("match us", 1), "amp_us": ("AMP us", 1), "emp_us": ("EMP us", 1), "total_us": ("sum us", 1),
    "evaluations_per_1000": ("re-eval. /1000", 1), "changes": ("changes", 1),
    "buffer_mean": ("buffer", 1), "index_mib": ("index MiB", 1), "buffer_mib": ("buffers MiB", 1), "memory_mib": ("all MiB", 1),
}
"""Measure -> heading, digits."""

_LONG = {"buffer_mean": "messages per buffer", "index_mib": "subscription index, MiB", "memory_mib": "indexes and buffers, MiB"}


def _cells(row: Mapping[str, Any]) -> list[str]:
    return ["-" if row["x"] is None else f"{row['x']:g}", *(f"{row[name]:,.{digits}f}" for name, (_, digits) in _MEASURES.items())]


def _headings(experiment: Mapping[str, Any]) -> list[str]:
    return ["", experiment["x"], *(heading for heading, _ in _MEASURES.values())]


def _conditions(found: Mapping[str, Any]) -> list[str]:
    m, s = found["machine"], found["scale"]
    return [f"{found['messages']:,} messages of {found['source']}, {found['keywords_per_message']:.1f} keywords each, vocabulary of {found['vocabulary']:,}",
            f"{s['subscriptions']:,} subscriptions, |W| = {s['window']:,}, k = 20 and 1 to 5 keywords unless varied; "
            f"{s['arrivals']:,} arrivals measured, after {s['warm_up']:,}",
            f"one core of: {m['processor']}, {m['memory_gib']} GiB, Python {m['python']}, numpy {m['numpy']}, numba {m['numba']}; CPU times"
            f"{', the fastest of ' + str(found['repeat']) + ' runs' if found['repeat'] > 1 else ''}; took {found['seconds']:.0f} s"]


def print_tables(found: Mapping[str, Any]) -> None:
    """Print a table of each experiment, and below it what the paper says."""
    from dskype.deploy.benchmarks.measure import print_table

    for line in _conditions(found):
        print(line)
    for e in found["experiments"]:
        print_table(f"{e['name']}: {e['title']}", _headings(e), [[row["series"], *_cells(row)] for row in e["rows"]])
        for note in e["notes"]:
            print(f"  note: {note}")
        for claim in e["claims"]:
            print(f"  {HELD[claim['held']]}: {claim['text']}\n      {claim['figures']}")


def write(found: Mapping[str, Any], folder: Path) -> Path:
    """Write ``report.md``, ``results.csv`` and, where matplotlib is installed, a plot of each experiment; return the page's path."""
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "results.csv", "w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        settings = ["index", "index_options", "buffer", "buffer_options", "window_index", "k", "keywords", "zipf", "timed"]
        measures = ["subscriptions", "window", *_MEASURES, "window_mib", "seconds"]
        table.writerow(["experiment", "series", "x", *(f"setting_{name}" for name in settings), *measures])
        for e in found["experiments"]:
            for row in e["rows"]:
                table.writerow([e["name"], row["series"], row["x"], *(row["setting"][name] for name in settings), *(row[name] for name in measures)])
    plots = {e["name"]: name for e in found["experiments"] if e["rows"] and (name := plot(e, folder))}
    page = folder / "report.md"
    page.write_text(markdown(found, plots), encoding="utf-8")
    return page


def markdown(found: Mapping[str, Any], plots: Mapping[str, str]) -> str:
    """Return the page.

    :param plots: experiment -> file name.
    """
    lines = ["# Skype on one machine", "", *(f"- {line}" for line in _conditions(found)),
             "- AMP: time per arriving message, of which *match* finds the subscriptions; EMP: per expiring one, with re-evaluations; us.",
             "- Buffer: messages held per subscription; changes: of lists, per message; re-eval. / 1000: re-evaluations per 1000 messages.", ""]
    if not plots:
        lines += ["No plots: matplotlib is not installed (`pip install 'dskype[bench]'`).", ""]
    lines += ["| the paper says | here | figures |", "|---|---|---|",
              *(table_line([f"{e['name']}: {claim['text']}", f"**{HELD[claim['held']]}**", claim["figures"]])
                for e in found["experiments"] for claim in e["claims"]), ""]
    for e in found["experiments"]:
        lines += [f"## {e['title']}", "", table_line(_headings(e)), table_line(["---"] + ["---:"] * (len(_MEASURES) + 1)),
                  *(table_line([row["series"], *_cells(row)]) for row in e["rows"]), ""]
        if e["name"] in plots:
            lines += [f"![{e['title']}]({plots[e['name']]})", ""]
        lines += [f"- Note: {note}." for note in e["notes"]]
        lines += [f"- {claim['text']}: **{HELD[claim['held']]}** ({claim['figures']})." for claim in e["claims"]]
        lines.append("")
    return "\n".join(lines)


def plot(experiment: Mapping[str, Any], folder: Path) -> str | None:
    """Draw an experiment: the times on the left, its second measure on the right; return the file's name, None without matplotlib."""
    drawn = two_plots()
    if drawn is None:
        return None
    figure, left, right = drawn
    rows, second = experiment["rows"], experiment["second"]
    if any(row["x"] is not None for row in rows):
        _lines(left, right, rows, second)
        left.set_xlabel(experiment["x"])
        right.set_xlabel(experiment["x"])
    else:
        names = [row["series"] for row in rows]
        amp, emp = ([row[name] for row in rows] for name in ("amp_us", "emp_us"))
        left.bar(names, amp, label="AMP")
        left.bar(names, emp, bottom=amp, label="EMP")
        right.bar(names, [row[second] for row in rows], color="tab:gray")
        for axes in (left, right):
            axes.tick_params(axis="x", rotation=20)
    left.set_ylabel("us per message")
    left.set_ylim(bottom=0)
    left.legend(fontsize="small")
    right.set_ylabel(_LONG[second])
    right.set_ylim(bottom=0)
    figure.suptitle(experiment["title"])
    name = f"{experiment['name']}.png"
    figure.savefig(folder / name, dpi=110)
    return name


def _lines(left: Any, right: Any, rows: Sequence[Mapping[str, Any]], second: str) -> None:
    for number, series in enumerate(dict.fromkeys(row["series"] for row in rows)):
        color, of = f"C{number}", [row for row in rows if row["series"] == series]
        if of[0]["x"] is None:      # a mark to compare with
            left.axhline(of[0]["total_us"], color=color, linestyle="-", label=f"{series}: sum")
            right.axhline(of[0][second], color=color, label=series)
            continue
        of.sort(key=lambda row: row["x"])
        xs = [row["x"] for row in of]
        for measure, style, what in (("amp_us", "--", "AMP"), ("emp_us", ":", "EMP"), ("total_us", "-", "sum")):
            left.plot(xs, [row[measure] for row in of], style, color=color, marker="o", markersize=3, label=f"{series}: {what}")
        right.plot(xs, [row[second] for row in of], color=color, marker="o", markersize=3, label=series)
    right.legend(fontsize="small")
