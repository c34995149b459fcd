"""Reports of the benchmarks that repeat a paper's experiments: tables on the terminal; a Markdown page, a CSV file and plots in a folder."""

from __future__ import annotations

import argparse
import csv
import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dskype.deploy.lab.corpus import Corpus
from dskype.deploy.lab.emulator.measure import print_table
from dskype.deploy.lab.experiments import HELD, table_line, two_plots
from dskype.deploy.lab.results import data_digest, result_of, result_text
from dskype.deploy.lab.system.throughput_report import machine
from dskype.deploy.machine.terminal import say

__all__ = ["Report", "Results", "machine_in_words", "messages_in_words"]

Results = Sequence[Mapping[str, Any]]
"""What :func:`~dskype.deploy.lab.experiments.run_experiment` returns, of each experiment."""


def messages_in_words(found: Mapping[str, Any]) -> str:
    """Return a line about the messages of a benchmark, or of one of its data sets."""
    return f"{found['messages']:,} messages of {found['source']}, {found['keywords_per_message']:.1f} keywords each, vocabulary of {found['vocabulary']:,}"


def machine_in_words(found: Mapping[str, Any], times: str = "CPU times", repeated: str = "the fastest of {} runs", repeat: int = 1) -> str:
    """Return a line about the machine and the time that a benchmark took.

    :param times: what the times are.
    :param repeated: which of ``{}`` repetitions counts; shown only if ``repeat`` is above 1.
    """
    m = found["machine"]
    which = f", {repeated.format(repeat)}" if repeat > 1 else ""
    versions = f"Python {m['python']}, numpy {m['numpy']}, numba {m['numba']}"
    return f"one core of: {m['processor']}, {m['memory_gib']} GiB, {versions}; {times}{which}; took {found['seconds']:.0f} s"


@dataclass(frozen=True)
class Report:
    """How to show the results of one benchmark.

    :ivar title: of the page.
    :ivar claims: heading of the column of claims.
    :ivar measures: measure -> (heading, digits), of all tables. An experiment may have some of them.
    :ivar printed: the measures that fit on a terminal.
    :ivar settings: column of the CSV file -> name in a row's setting.
    :ivar values: measures in the CSV file.
    :ivar conditions: returns lines that describe machine, data and sizes.
    :ivar legend: lines that explain the headings.
    :ivar draw: draws an experiment into two axes.
    :ivar paper: the action of ``dskype bench`` whose results are kept in a file beside the report; empty: none.
    """

    title: str
    claims: str
    measures: Mapping[str, tuple[str, int]]
    printed: Sequence[str]
    settings: Mapping[str, str]
    values: Sequence[str]
    conditions: Callable[[Mapping[str, Any]], list[str]]
    legend: Sequence[str]
    draw: Callable[[Mapping[str, Any], Any, Any], None]
    paper: str = ""

    def _cells(self, row: Mapping[str, Any], measures: Iterable[str]) -> list[str]:
        x = row["x"]
        place = "-" if x is None else f"{x:g}" if isinstance(x, (int, float)) else x
        return [row["series"], place, *(f"{row[name]:,.{self.measures[name][1]}f}" if name in row else "-" for name in measures)]

    def _headings(self, experiment: Mapping[str, Any], measures: Iterable[str]) -> list[str]:
        return ["", experiment["x"], *(self.measures[name][0] for name in measures)]

    def _table(self, experiment: Mapping[str, Any], measures: Iterable[str]) -> tuple[list[str], list[list[str]]]:
        """Return headings and rows, without measures that no row of the experiment has."""
        some = [name for name in measures if any(name in row for row in experiment["rows"])]
        return self._headings(experiment, some), [self._cells(row, some) for row in experiment["rows"]]

    def print_tables(self, found: Mapping[str, Any]) -> None:
        """Print a table of each experiment, with the claims below it."""
        for line in self.conditions(found):
            print(line)
        for e in found["experiments"]:
            print_table(f"{e['name']}: {e['title']}", *self._table(e, self.printed))
            for note in e["notes"]:
                print(f"  note: {note}")
            for claim in e["claims"]:
                print(f"  {HELD[claim['held']]}: {claim['text']}\n      {_figures(claim)}")

    def run(self, args: argparse.Namespace, corpus: Corpus, scale: Any, experiments: Callable[[], Results], **described: Any) -> Results:
        """Run experiments, and show their results with machine, messages, sizes and the time that they took.

        :param scale: a dataclass with the sizes.
        :param experiments: runs them all.
        :param described: what else the report says about the run.
        """
        began = time.perf_counter()
        results = experiments()
        seconds = time.perf_counter() - began
        data = {**corpus.described(), "digest": data_digest(corpus)}
        self.show({"machine": machine(), **data, "scale": vars(scale), **described, "seconds": seconds, "experiments": results}, args)
        return results

    def show(self, found: Mapping[str, Any], args: argparse.Namespace) -> None:
        """Print the results as ``args.output`` says (tables or JSON), and write the report to ``args.folder`` if there is one."""
        if args.output == "json":
            print(json.dumps(found, indent=1))
        else:
            self.print_tables(found)
        if args.folder:
            say(f"written: {self.write(found, Path(args.folder))}")
            if self.paper:
                given = [args.messages] if isinstance(args.messages, str) else args.messages or []
                (Path(args.folder) / "result.json").write_text(result_text(result_of(found, self.paper, given)), encoding="utf-8")

    def write(self, found: Mapping[str, Any], folder: Path) -> Path:
        """Write ``report.md``, ``results.csv`` and, if matplotlib is installed, a plot of each experiment; return the page's path."""
        folder.mkdir(parents=True, exist_ok=True)
        with open(folder / "results.csv", "w", newline="", encoding="utf-8") as file:
            table = csv.writer(file)
            table.writerow(["experiment", "series", "x", *self.settings, *self.values])
            for e in found["experiments"]:
                for row in e["rows"]:
                    table.writerow(
                        [
                            e["name"],
                            row["series"],
                            row["x"],
                            *(row["setting"].get(name) for name in self.settings.values()),
                            *(row.get(name) for name in self.values),
                        ]
                    )
        plots = {e["name"]: name for e in found["experiments"] if e["rows"] and (name := self._plot(e, folder))}
        page = folder / "report.md"
        page.write_text(self._markdown(found, plots), encoding="utf-8")
        return page

    def _markdown(self, found: Mapping[str, Any], plots: Mapping[str, str]) -> str:
        lines = [f"# {self.title}", "", *(f"- {line}" for line in self.conditions(found)), *(f"- {line}" for line in self.legend), ""]
        if not plots:
            lines += ["No plots: matplotlib is not installed (`pip install '/path/to/dskype[bench]'`).", ""]
        lines += [
            f"| {self.claims} | here | figures |",
            "|---|---|---|",
            *(
                table_line([f"{e['name']}: {claim['text']}", f"**{HELD[claim['held']]}**", _figures(claim)])
                for e in found["experiments"]
                for claim in e["claims"]
            ),
            "",
        ]
        for e in found["experiments"]:
            headings, cells = self._table(e, self.measures)
            lines += [f"## {e['title']}", "", table_line(headings), table_line(["---"] + ["---:"] * (len(headings) - 1)), *map(table_line, cells), ""]
            if e["name"] in plots:
                lines += [f"![{e['title']}]({plots[e['name']]})", ""]
            lines += [f"- Note: {note}." for note in e["notes"]]
            lines += [f"- {claim['text']}: **{HELD[claim['held']]}** ({_figures(claim)})." for claim in e["claims"]]
            lines.append("")
        return "\n".join(lines)

    def _plot(self, experiment: Mapping[str, Any], folder: Path) -> str | None:
        """Draw an experiment; return the file's name, None without matplotlib."""
        drawn = two_plots()
        if drawn is None:
            return None
        figure, left, right = drawn
        self.draw_into(experiment, figure, left, right)
        name = f"{experiment['name']}.png"
        figure.savefig(folder / name, dpi=110)
        return name

    def draw_into(self, experiment: Mapping[str, Any], figure: Any, left: Any, right: Any) -> None:
        """Draw an experiment into two axes, and write its title above them."""
        self.draw(experiment, left, right)
        for axes in (left, right):
            if axes.get_yscale() == "linear":
                axes.set_ylim(bottom=0)
        figure.suptitle(experiment["title"])


def _figures(claim: Mapping[str, Any]) -> str:
    """Return the figures of a claim, and why it did not hold."""
    return claim["figures"] + (f"; why: {claim['why']}" if "why" in claim else "")
