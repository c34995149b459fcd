"""What tests of benchmarks have in common: their arguments, and the reports of those that repeat a paper's experiments."""

from __future__ import annotations

import argparse
import csv
import json
import random
import sys
from collections.abc import Callable, Iterable
from typing import Any

from dskype.deploy.cli import main as cli
from dskype.deploy.cli.arguments import common
from dskype.deploy.lab.results import changed_files


def parsed(benchmark: Any, *words: str) -> argparse.Namespace:
    """Return the arguments of a benchmark as the command line would."""
    parser = argparse.ArgumentParser()
    common(parser)
    benchmark.add_arguments(parser)
    return parser.parse_args(words)


def assert_reported(report: Any, found: Any, folder: Any, capsys: Any) -> list[dict[str, str]]:
    """Assert that page, plots and printed tables have every experiment and claim; return the rows of the CSV file."""
    page = report.write(found, folder / "new" / "folder")
    text = page.read_text()
    for e in found["experiments"]:
        assert f"## {e['title']}" in text and f"({e['name']}.png)" in text
        assert (page.parent / f"{e['name']}.png").read_bytes().startswith(b"\x89PNG")
        assert all(claim["text"] in text and claim["figures"] in text for claim in e["claims"])
    with open(page.parent / "results.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == sum(len(e["rows"]) for e in found["experiments"])
    report.print_tables(found)
    printed = capsys.readouterr().out
    assert all(e["title"] in printed for e in found["experiments"]) and "held" in printed
    return rows


def assert_reported_without_plots(report: Any, found: Any, folder: Any, monkeypatch: Any) -> None:
    """Assert that without matplotlib the page is written, and says so."""
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert "dskype[bench]" in report.write(found, folder).read_text() and not list(folder.glob("*.png"))


def assert_claims_follow(experiments: Iterable[Any], make_up: Callable[[Any], dict[Any, Any]], trials: int = 6000) -> None:
    """Assert that every claim can hold and fail.

    :param make_up: returns made-up figures of an experiment's rows: (series, x) -> measures; called until both outcomes of each claim have been seen.
    """
    for experiment in experiments:
        seen: dict[str, set[bool]] = {claim.text: set() for claim in experiment.claims}
        for _ in range(trials):
            made_up = make_up(experiment)
            for claim in experiment.claims:
                held, figures = claim.check(made_up)
                assert figures
                seen[claim.text].add(bool(held))
            if all(len(outcomes) == 2 for outcomes in seen.values()):
                break
        undecided = [text for text, outcomes in seen.items() if len(outcomes) < 2]
        assert not undecided, (experiment.name, undecided)


def assert_runs_on_a_file(command: str, options: list[str], experiments: list[str], folder: Any, capsys: Any) -> None:
    """Assert that a benchmark reads messages from a file, runs the experiments with these names, prints JSON and writes its report.

    :param options: of the command line, besides tiny sizes.
    """
    rng = random.Random(2)
    file = folder / "messages.jsonl"
    file.write_text("".join(json.dumps({"text": " ".join(rng.choices("abcdefgh", k=3)), "lat": rng.random(), "lon": rng.random()}) + "\n" for _ in range(50)))
    sizes = ["--subscriptions", "40", "--messages" if command != "distribution" else "--arrivals", "10", "--sample", "20", "--repeat", "1"]
    assert cli.main(["bench", command, str(file), *options, *sizes, "-o", "json", "--folder", str(folder / "out")]) == 0
    result = json.loads(capsys.readouterr().out)
    assert [e["name"] for e in result["experiments"]] == experiments and (folder / "out" / "report.md").is_file()
    kept = json.loads((folder / "out" / "result.json").read_text())
    paper = "ps2stream" if "--boolean" in options else command
    assert kept["paper"] == paper and [e["name"] for e in kept["experiments"]] == experiments and not changed_files(kept)
    assert str(folder) not in json.dumps(kept) and all(data["digest"] for data in kept["data"])
