"""``dskype bench scoreboard``: how the claims of the papers stand, as a page made of result files."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from dskype.deploy.cli.arguments import UsageError
from dskype.deploy.lab.boolean.experiments import EXPERIMENTS as BOOLEAN
from dskype.deploy.lab.dskype.experiments import experiments as distribution
from dskype.deploy.lab.dskype.workload import LONG, PLACES
from dskype.deploy.lab.experiments import Claim, Experiment, about_named_rows, judged, table_line, two_plots
from dskype.deploy.lab.plots import plots
from dskype.deploy.lab.ps2stream.adjustment_experiments import ADJUSTMENTS
from dskype.deploy.lab.ps2stream.experiments import EXPERIMENTS as PS2STREAM
from dskype.deploy.lab.results import FORMAT, changed_files
from dskype.deploy.lab.skype.experiments import EXPERIMENTS as SKYPE
from dskype.deploy.lab.tornado.experiments import EXPERIMENTS as TORNADO
from dskype.deploy.machine.terminal import say

__all__ = ["PAPERS", "Verdict", "add_arguments", "page", "read_results", "run", "verdicts", "write_plots"]

PAPERS = ("Skype", "DSkype", "LAPS", "Tornado", "PS2Stream")
VERDICTS: Mapping[bool | None, str] = {True: "held", False: "did not hold", None: "cannot be told here"}

_PLOTS = "plots"
"""The folder of the plots, beside the page."""

_ANY = "messages"
"""The data set of claims about a data set, whatever its name is."""
_OURS = re.compile(
    r"Goal|The index of our own|All (workers|evaluators|indexes|routers) |lanes takes|Slack |With the default slack|At every number the A-Grid|On Q3 at least 1.3 times that of the baselines"
)
"""Claims that are no paper's: goals, and that all find the same."""
_SAME = re.compile(r"All (workers|evaluators|indexes|routers) |.*merged lists of all tasks")
_FIGURE = re.compile(r"\((?:[A-Z]\w+, )?((?:journal, )?(?:Figures?|Tables?|sections?) [^);:]*)|\(([\d.]+)\)$")


class Verdict(NamedTuple):
    """How a claim stands.

    :ivar held: as in :func:`~dskype.deploy.lab.experiments.judged`; "" if no result is about it.
    :ivar run: the number of the result, from 1 on; 0: none.
    """

    figure: str
    experiment: str
    claim: str
    held: bool | str | None
    figures: str = ""
    run: int = 0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("folder", metavar="DIR", help="result files, as 'dskype bench skype --folder' writes them, under any names that end with .json")
    parser.add_argument(
        "--page", metavar="FILE", help="write the page there, and the plots of each result into a folder 'plots' beside it; default: print the page"
    )


def run(args: argparse.Namespace) -> int:
    """Make the page, and say which files have changed since runs measured them."""
    results = read_results(Path(args.folder))
    for result in results:
        if files := changed_files(result):
            say(f"{result['file']}: {len(files)} of {len(result['code'])} files have changed since: {', '.join(files)}")
    text = page(results)
    if args.page:
        path = Path(args.page)
        path.write_text(text, encoding="utf-8")
        say(f"written: {path}")
        write_plots(results, path.parent / _PLOTS)
    else:
        print(text, end="")
    return 0


def write_plots(results: Sequence[Mapping[str, Any]], folder: Path) -> None:
    """Write a picture of each result into a folder. Without matplotlib, write none and say so."""
    if two_plots() is None:
        say("no plots: matplotlib is not installed (pip install '/path/to/dskype[bench]')")
        return
    folder.mkdir(exist_ok=True)
    for result in results:
        described = {_of_its_data(one.name, result["data"]): one for _, action, one in _experiments() if action == result["paper"]}
        (folder / _picture(result)).write_text(plots(result, described), encoding="utf-8")


def read_results(folder: Path) -> list[dict[str, Any]]:
    """Return the results of a folder, the newest first, each with its ``file``.

    :raises UsageError: there is none, or a file is no result.
    """
    found = []
    for path in sorted(folder.glob("*.json")):
        try:
            result = json.loads(path.read_text(encoding="utf-8"))
            missing = sorted({"format", "paper", "date", "command", "data", "code", "experiments"} - result.keys())
        except (OSError, ValueError, AttributeError) as ex:
            raise UsageError(f"{path}: expected a result file of a benchmark, as --folder DIR writes it; {type(ex).__name__}: {ex}") from ex
        if result.get("format", FORMAT) != FORMAT:
            raise UsageError(f"{path}: expected a result file of format {FORMAT}, given: {result['format']}; run its command again")
        if missing:
            raise UsageError(f"{path}: expected a result file of a benchmark, as --folder DIR writes it; given: one without {', '.join(missing)}")
        found.append({**result, "file": path.name})
    if not found:
        raise UsageError(f"{folder}: expected result files (*.json), as --folder DIR of a benchmark writes them; given: none")
    return sorted(found, key=lambda result: (result["date"], result["file"]), reverse=True)


def _experiments() -> Iterator[tuple[str, str, Experiment]]:
    """Yield paper, action of ``dskype bench``, and experiment, in the order of the papers."""
    yield from (("Skype", "skype", e) for e in SKYPE)
    yield from (("DSkype", "distribution", e) for e in distribution([_ANY, LONG]))
    for name in ("LAPS", "Tornado", "PS2Stream"):
        yield from ((name, "boolean", e) for e in BOOLEAN if _first_paper(e.title) == name)
        others = {"Tornado": TORNADO, "PS2Stream": (*PS2STREAM, *ADJUSTMENTS)}.get(name, ())
        yield from ((name, name.lower(), e) for e in others)


def _first_paper(title: str) -> str:
    found = re.search("LAPS|Tornado|PS2Stream", title)
    return found[0] if found else ""


def verdicts(results: Sequence[Mapping[str, Any]]) -> dict[str, list[Verdict]]:
    """Return how each paper's claims stand. A claim is judged by the rows of the newest result that has some for it, and by the newest of all that can tell it.

    :param results: the newest first.
    """
    found: dict[str, list[Verdict]] = {paper: [] for paper in PAPERS}
    for paper, action, experiment in _experiments():
        for claim in experiment.claims:
            if not _OURS.match(claim.text):
                found[paper].append(_verdict(claim, experiment, action, results))
    return found


def _verdict(claim: Claim, experiment: Experiment, action: str, results: Sequence[Mapping[str, Any]]) -> Verdict:
    figure = _figure(claim.text) or _figure(experiment.title)
    open_one = Verdict(figure, experiment.name, claim.text, "")
    for number, result in enumerate(results, 1):
        if result["paper"] != action:
            continue
        name = _of_its_data(experiment.name, result["data"])
        for found in (one for one in result["experiments"] if one["name"] == name):
            rows = _of_any(found["rows"], result["data"])
            one = judged(claim if _whole(experiment, found, rows) else about_named_rows(claim), rows)
            if one["figures"] == "rows are missing":
                continue
            verdict = Verdict(figure, experiment.name, claim.text, one["held"], one["figures"] + (f"; {one['why']}" if "why" in one else ""), number)
            if one["held"] is not None:
                return verdict
            open_one = open_one if open_one.run else verdict
    return open_one


def _whole(experiment: Experiment, found: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> bool:
    """Tell whether a result has all rows of an experiment, but for those that it says were left out."""
    there = {(row["series"], row["x"]) for row in rows}
    return all((row.series, row.x) in there or any(note.startswith(f"{row.series} is left out") for note in found["notes"]) for row in experiment.rows)


def _of_its_data(experiment: str, data: Sequence[Mapping[str, Any]]) -> str:
    """Return the name that an experiment about any data set has in a result: that of a result's first data set stands in it, but for the places', of which it is silent."""
    prefix, _, last = experiment.rpartition("-")
    if last != _ANY:
        return experiment
    return prefix if data[0]["name"] == PLACES else f"{prefix}-{data[0]['name']}"


def _of_any(rows: Sequence[Mapping[str, Any]], data: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return rows in which the last data set that is not the long one has the name that claims have for any."""
    names = [one["name"] for one in data if one.get("name", LONG) != LONG]
    return [{**row, "x": _ANY} if names and row["x"] == names[-1] else row for row in rows]


def _figure(text: str) -> str:
    found = _FIGURE.search(text)
    return (found[1] or f"section {found[2]}") if found else ""


def page(results: Sequence[Mapping[str, Any]]) -> str:
    """Return the page in Markdown."""
    found, stale = verdicts(results), [changed_files(result) for result in results]
    lines = [
        "# How the papers' claims stand",
        "",
        "What the five papers say, and whether it held in runs of this code: for those who compare with these systems, or doubt a figure. Made by",
        "`dskype bench scoreboard docs/benchmarks/results` from the result files in that folder, each of which a run with `--folder` has written. Goals of this project are not here.",
        "",
        "- *Held*, *did not hold*: judged by the rows of the run, and by the bounds that the claim names. *Cannot be told here*: the run is smaller than the paper's, and their size decides. *Not run*: no result file is about it.",
        "- *Old code*: a source file that the run had measured has changed since, apart from docstrings, comments on their own lines, empty lines, checks that only tests call, and its place. Those are the modules of `bolts`, `distribution` and `deploy/lab` that the run had loaded, without the",
        "  laboratory's that only read messages, choose experiments or show results: messages have a digest of their own, and rows their settings.",
        "- [Runs](#runs) say how long they took, how much memory their process needed at most, and what they measured, drawn for each experiment. How to repeat one: [Repeat a paper's figures](../guides/reproduce.md).",
        "- Times are ratios within one run. Runs were made on [the machine of these pages](README.md#the-machine), which does other work, too.",
        "",
        table_line(["paper", "claims", "held", "did not hold", "cannot be told here", "not run", "by old code"]),
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for paper, rows in found.items():
        counts = [sum(row.held is held for row in rows) for held in VERDICTS] + [sum(row.held == "" for row in rows)]
        old = sum(bool(row.run and stale[row.run - 1]) for row in rows)
        lines.append(table_line([f"[{paper}](#{paper.lower()})", *map(str, (len(rows), *counts, old))]))
    for paper, rows in found.items():
        lines += ["", f"## {paper}"]
        if told := [_line(row, stale) for row in rows if row.run]:
            lines += ["", table_line(["figure", "experiment", "the paper says", "here", "figures", "run"]), "|---|---|---|---|---|---|", *told]
        if missing := list(dict.fromkeys((row.experiment, row.figure) for row in rows if not row.run)):
            lines += ["", "Not run, or not these rows: " + ", ".join(f"`{name}`" + (f" ({figure})" if figure else "") for name, figure in missing) + "."]
    lines += [
        "",
        "## Runs",
        "",
        table_line(["run", "date", "command", "messages", "minutes", "MiB", "checked", "old code", ""]),
        "|---|---|---|---|---:|---:|---|---|---|",
    ]
    lines += [_run(number, result, stale[number - 1]) for number, result in enumerate(results, 1)]
    return "\n".join(lines) + "\n"


def _line(row: Verdict, stale: Sequence[Sequence[str]]) -> str:
    assert not isinstance(row.held, str)
    shown = VERDICTS[row.held] if row.held else f"**{VERDICTS[row.held]}**"
    return table_line(
        [row.figure, f"`{row.experiment}`", _cell(row.claim), shown + (" (old code)" if stale[row.run - 1] else ""), _cell(row.figures), f"[{row.run}](#runs)"]
    )


def _run(number: int, result: Mapping[str, Any], stale: Sequence[str]) -> str:
    data = ", ".join(f"{one['messages']:,} of {one['source']} ({one['digest']})" for one in result["data"])
    same = [claim["held"] for e in result["experiments"] for claim in e["claims"] if _SAME.match(claim["text"])]
    rows = [row for e in result["experiments"] for row in e["rows"] if "different" in row]
    checked = "not in this run" if not same and not rows else "exact" if False not in same and not any(row["different"] for row in rows) else "**WRONG**"
    where = f"[{number}](results/{result['file']})"
    took = f"{result['seconds'] / 60:.1f}" if "seconds" in result else "-"
    memory = f"{result['peak_mib']:,}" if "peak_mib" in result else "-"
    drawn = f"[plots]({_PLOTS}/{_picture(result)})"
    return table_line([where, result["date"], f"`{_cell(result['command'])}`", _cell(data), took, memory, checked, "yes" if stale else "", drawn])


def _picture(result: Mapping[str, Any]) -> str:
    return f"{Path(result['file']).stem}.svg"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
