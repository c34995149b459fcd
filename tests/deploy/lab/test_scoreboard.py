"""The scoreboard: it is what its generator makes of the result files, judges every claim by their rows, and says which code has changed."""

from __future__ import annotations

import argparse
import json
from html import unescape
from pathlib import Path

import pytest

from dskype.deploy.cli import main as cli
from dskype.deploy.lab import results, scoreboard
from dskype.deploy.lab.dskype.experiments import experiments as distribution
from dskype.deploy.lab.dskype.workload import PLACES
from dskype.deploy.lab.experiments import Claim, about_named_rows, add_only_argument, judged, series
from dskype.deploy.lab.results import changed_files, code_digests, result_text
from dskype.deploy.lab.scoreboard import PAPERS, page, read_results, verdicts
from dskype.deploy.lab.tornado.experiments import EXPERIMENTS

BENCHMARKS = Path(__file__).parents[3] / "docs/benchmarks"
FILE = "distribution/routing/interest.py"


def ran(paper="tornado", experiment="alternatives", rows=(), date="2026-11-28", code=None):
    rows = [{"subscriptions": 100, **row} for row in rows]
    data = [{"source": "pois.csv.gz", "messages": 9, "digest": "d1", **({"name": "pois"} if paper == "distribution" else {})}]
    experiments = [{"name": experiment, "title": "", "notes": [], "claims": [], "rows": rows}]
    code = code_digests([FILE]) if code is None else code
    return {"format": 1, "paper": paper, "command": "dskype bench x|y", "date": date, "data": data, "code": code, "experiments": experiments, "file": "r.json"}


def row(series, x, **measures):
    return {"series": series, "x": x, **measures}


FAST = [row("A-Grid", "fast", throughput=30.0), row("A-Grid", "gi2", throughput=10.0)]
SLOW = [row("A-Grid", "fast", throughput=11.0), row("A-Grid", "gi2", throughput=10.0)]


def verdict(found, paper, beginning):
    (one,) = [one for one in found[paper] if one.claim.startswith(beginning)]
    return one


def test_the_page_is_what_the_generator_makes():
    assert (BENCHMARKS / "scoreboard.md").read_text(encoding="utf-8") == page(read_results(BENCHMARKS / "results")), (
        "make it again: dskype bench scoreboard docs/benchmarks/results --page docs/benchmarks/scoreboard.md"
    )


def test_every_result_has_its_plots_in_which_all_experiments_stand():
    found = {path.stem: path.read_text(encoding="utf-8") for path in (BENCHMARKS / "plots").iterdir()}
    for result in read_results(BENCHMARKS / "results"):
        text = unescape(found.pop(Path(result["file"]).stem))
        assert [e["title"] for e in result["experiments"] if e["rows"] and e["title"] not in text] == []
    assert not found, "plots of results that are gone"


def test_every_paper_has_claims_each_once_and_with_a_figure_where_the_paper_has_one():
    found = verdicts([])
    assert list(found) == list(PAPERS)
    for rows in found.values():
        assert len(rows) > 10 and all(one.held == "" for one in rows)
        assert len({(one.claim, one.experiment) for one in rows}) == len(rows)
        assert sum(bool(one.figure) for one in rows) > 0.7 * len(rows)
        assert not [one.claim for one in rows if one.claim.startswith(("Goal", "All evaluators", "All indexes"))]


def test_claims_are_judged_by_the_rows_and_the_newest_run_that_can_tell_counts():
    beginning = "More than 2 times the throughput of GI2"
    assert verdict(verdicts([ran(rows=FAST)]), "Tornado", beginning)[3:] == (True, "30.0 : 10.0 = 3.00", 1)
    small = verdict(verdicts([ran(rows=SLOW)]), "Tornado", beginning)
    assert small.held is None and "the paper has 10,000,000 subscriptions, this run 100" in small.figures
    large = [{**one, "subscriptions": 10_000_000} for one in SLOW]
    assert verdict(verdicts([ran(rows=large)]), "Tornado", beginning).held is False
    assert verdict(verdicts([ran(rows=SLOW), ran(rows=FAST, date="2026-11-01")]), "Tornado", beginning)[3:] == (True, "30.0 : 10.0 = 3.00", 2)
    assert verdict(verdicts([ran(rows=FAST, experiment="units")]), "Tornado", beginning).held == ""


def test_claims_about_a_data_set_are_judged_whatever_its_name_is():
    rows = [row(name, "pois", throughput=value) for name, value in (("hashing", 1.0), ("location", 2.0), ("keyword", 3.0), ("prefix", 4.0))]
    found = verdicts([ran("distribution", "igpt", rows)])
    assert verdict(found, "DSkype", "messages: with IGPT, location").held is True
    assert verdict(found, "DSkype", "messages: with IGPT, keyword").held is False


@pytest.mark.parametrize(("data", "experiment"), [("pois", "tasks-pois"), ("places", "tasks")])
def test_an_experiment_that_names_its_data_set_counts_whatever_that_is(data, experiment):
    (tasks,) = [one for one in distribution([PLACES]) if one.name == "tasks"]
    rows = [row(one.series, one.x, throughput=float(one.x)) for one in tasks.rows]
    result = ran("distribution", experiment, rows)
    result["data"][0]["name"] = data
    found = [one for one in verdicts([result])["DSkype"] if one.claim == "hashing scales with the number of tasks"]
    assert [(one.experiment, one.held) for one in found] == [("tasks-messages", True), ("tasks-long", "")]


def test_code_is_old_when_it_says_something_else_or_is_gone(tmp_path, monkeypatch):
    monkeypatch.setattr(results, "ROOT", tmp_path)
    file = tmp_path / "bolts/a.py"
    file.parent.mkdir()
    file.write_text(
        '"""What it is."""\nfrom dskype.bolts.filters import (\n    g,\n    h,\n)\n\ndef f(x):\n    """Return one more."""\n    # because\n    return g(x) + h(1)\n\n    def _check(self):\n        assert self\n'
    )
    result = {"code": code_digests(["bolts/a.py"])}
    file.write_text(
        '# a note\n"""Something else,\n\non several lines."""\n\nfrom dskype.bolts.quotas import h\nfrom dskype.bolts.filters import _g as g\n\ndef f(x):\n    return g(x) + h(1)\n    def _check(self):\n        assert all(self)\n'
    )
    assert changed_files(result) == [], "docstrings, comments, empty lines, checks and places of imports do not count"
    file = file.rename(tmp_path / "bolts/moved.py")
    assert changed_files(result) == [], "a file that was moved is the same code"
    for other in (
        "from dskype.bolts.filters import g, i\n\ndef f(x):\n    return g(x) + h(1)\n",
        "from dskype.bolts.filters import g, h\n\ndef f(x):\n    return g(x) + h(2)\n",
    ):
        file.write_text(other)
        assert changed_files(result) == ["bolts/a.py"]
    file.unlink()
    assert changed_files(result) == ["bolts/a.py"]


def test_a_file_that_was_written_while_the_benchmark_ran_makes_its_result_one_of_old_code(monkeypatch):
    found = {"machine": {}, "data": [], "scale": {}, "seconds": 1.0, "experiments": []}
    assert changed_files(results.result_of(found, "skype", [])) == []
    monkeypatch.setattr(results, "_BEGAN_S", 0.0)
    result = results.result_of(found, "skype", [])
    assert set(result["code"].values()) == {"changed while it ran"} and changed_files(result) == list(result["code"])


def test_old_code_and_wrong_results_are_marked():
    text = page([ran(rows=[{**one, "different": 1} for one in FAST], code={FILE: "old", "gone.py": "old"})])
    assert "| held (old code) |" in text and "**WRONG**" in text and "| yes |" in text
    assert "(old code)" not in page([ran(rows=FAST)]) and "`dskype bench x\\|y`" in text


def test_a_claim_that_fails_with_fewer_subscriptions_than_the_papers_cannot_be_told():
    claim = Claim("It is fast", lambda found: (found["a", 1]["rate"] > 5, "5"), "it is slow", least=1000)

    def judge(rate, n):
        return judged(claim, [row("a", 1, rate=rate, subscriptions=n)])

    assert [judge(*given)["held"] for given in ((9, 10), (1, 10), (1, 1000))] == [True, None, False]
    assert judge(1, 1000)["why"] == "it is slow" and judged(claim, [])["figures"] == "rows are missing"


def test_of_some_rows_only_claims_about_named_rows_can_be_told():
    ran_rows = [row("a", 1, rate=9.0), row("a", 2, rate=5.0)]
    named = Claim("Faster", lambda found: (found["a", 1]["rate"] > found["a", 2]["rate"], "9 : 5"))
    line = Claim("It falls", lambda found: (series(found, "a", "rate") == [(1, 9.0), (2, 5.0)], ""))
    everything = Claim("All are fast", lambda found: (all(one["rate"] > 1 for one in found.values()), ""))
    assert [judged(claim, ran_rows)["held"] for claim in (named, line, everything)] == [True, True, True]
    assert [judged(about_named_rows(claim), ran_rows)["held"] for claim in (named, line, everything)] == [True, None, None]


def test_rows_of_an_experiment_can_be_chosen():
    def chosen(text):
        parser = argparse.ArgumentParser(exit_on_error=False)
        add_only_argument(parser, EXPERIMENTS)
        return {e.name: [(found.series, found.x) for found in e.rows] for e in parser.parse_args(["--only", text]).only}

    assert chosen("units:A-Grid/10;A-Grid/64, adapt") == {"units": [("A-Grid", 10), ("A-Grid", 64)], "adaptivity": chosen("adaptivity")["adaptivity"]}
    assert {name for name, _ in chosen("alternatives:A-Grid;R-tree")["alternatives"]} == {"A-Grid", "R-tree"}
    with pytest.raises(argparse.ArgumentError, match=r"units: expected rows of A-Grid, .*, or SERIES/X; given: A-Grid/11, B"):
        chosen("units:A-Grid;B;A-Grid/11")


def test_a_result_with_some_rows_is_not_judged_by_what_its_lines_lack():
    some = [row("A-Grid", n, system_per_s=rate, throughput=rate) for n, rate in ((10, 9.0), (64, 9.5))]
    found = verdicts([ran(rows=some, experiment="units")])
    assert [verdict(found, "Tornado", text).held for text in ("A single routing unit is a bottleneck", "The throughput saturates at 10 routing units")] == [
        "",
        True,
    ]


def test_a_result_is_the_same_after_it_was_written_and_read():
    one = ran(rows=[row("a", None, rate=1.25, setting={"k": [1, 2]})])
    assert json.loads(result_text(one)) == one


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{}", "expected a result file"),
        ("[1", "expected a result file"),
        ('{"format": 9}', "format 1, given: 9"),
        ('{"format": 1}', "one without code, command"),
    ],
)
def test_a_file_that_is_no_result_is_refused(tmp_path, capsys, text, told):
    assert cli.main(["bench", "scoreboard", str(tmp_path)]) == 1 and "given: none" in capsys.readouterr().err
    (tmp_path / "a.json").write_text(text)
    assert cli.main(["bench", "scoreboard", str(tmp_path)]) == 1
    assert told in capsys.readouterr().err


def test_the_command_names_the_files_that_have_changed(tmp_path, capsys):
    (tmp_path / "a.json").write_text(result_text(ran(rows=FAST, code={FILE: "old", "gone.py": "old"})))
    assert cli.main(["bench", "scoreboard", str(tmp_path)]) == 0
    assert f"a.json: 2 of 2 files have changed since: {FILE}, gone.py" in capsys.readouterr().err


def test_the_command_writes_the_page(tmp_path, capsys):
    (tmp_path / "a.json").write_text(result_text(ran(rows=FAST)))
    assert cli.main(["bench", "scoreboard", str(tmp_path)]) == 0
    told = capsys.readouterr()
    printed = told.out
    assert not told.err
    assert cli.main(["bench", "scoreboard", str(tmp_path), "--page", str(tmp_path / "page.md")]) == 0
    assert "not drawn, its rows lack some measures" in (tmp_path / "plots" / "a.svg").read_text(), "as those of an earlier version"
    assert (tmp_path / "page.md").read_text() == printed and "results/a.json" in printed and scoreboard.VERDICTS[True] in printed


def test_plots_of_a_result_are_the_same_each_time(tmp_path):
    measures = dict.fromkeys(("throughput", "communication", "replication", "matches", "routing_us"), 2.0)
    results = [ran(rows=[{**row(series, x), **measures} for series in ("A-Grid", "grid") for x in ("fast", "gi2")])]
    pictures = []
    for folder in (tmp_path / "a", tmp_path / "b"):
        scoreboard.write_plots(results, folder)
        pictures.append((folder / "r.svg").read_text(encoding="utf-8"))
    assert pictures[0] == pictures[1] and pictures[0].startswith("<svg") and ">A-Grid<" in pictures[0].replace("\n", "")
