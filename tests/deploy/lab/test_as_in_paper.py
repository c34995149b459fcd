"""The settings of the papers: what ``--as-in-paper`` sets, what wins over it, and what it leaves as an experiment has it."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from dskype.deploy.lab.as_in_paper import AS_IN_PAPER, add_preset_argument, with_settings
from dskype.deploy.lab.dskype.experiments import experiments
from dskype.deploy.lab.ps2stream.experiments import EXPERIMENTS as PS2STREAM
from dskype.deploy.lab.tornado.experiments import EXPERIMENTS as TORNADO
from tests.deploy.lab.reported import parsed

GUIDE = Path(__file__).parents[3] / "docs/guides/reproduce.md"


def arguments(name: str, *words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    for size in AS_IN_PAPER[name].sizes:
        parser.add_argument(f"--{size.replace('_', '-')}", type=int, default=7)
    parser.add_argument("--index", default="lanes")
    add_preset_argument(parser, name)
    return parser.parse_args(words)


@pytest.mark.parametrize("name", AS_IN_PAPER)
def test_sizes_are_the_papers_or_a_share_of_them(name):
    preset = AS_IN_PAPER[name]
    whole, part, none = arguments(name, "--as-in-paper"), arguments(name, "--as-in-paper", "0.01"), arguments(name)
    for size, number in preset.sizes.items():
        assert (getattr(whole, size), getattr(part, size), getattr(none, size)) == (number, number // 100, 7)
    assert whole.index == preset.options.get("index", "lanes") and none.index == "lanes"


def test_options_behind_it_win():
    assert arguments("skype", "--as-in-paper", "0.5", "--warm-up", "9").warm_up == 9
    assert arguments("ps2stream", "--as-in-paper", "--index", "plain").index == "plain"


@pytest.mark.parametrize("given", ["0", "2", "nan", "pois.csv"])
def test_a_share_that_is_none_is_refused(given, capsys):
    with pytest.raises(SystemExit):
        arguments("skype", "--as-in-paper", given)
    assert f"a share of the paper's sizes, above 0, at most 1; given: {given!r}" in capsys.readouterr().err


def test_rows_get_the_papers_settings_where_an_experiment_does_not_vary_them():
    tornado = {e.name: e for e in with_settings(TORNADO, arguments("tornado", "--as-in-paper"))}
    assert {row.setting.units for row in tornado["alternatives"].rows} == {10}
    assert [row.setting.units for row in tornado["units"].rows] == [row.x for row in tornado["units"].rows]
    assert tornado["points"].rows == next(e for e in TORNADO if e.name == "points").rows, "they have no routing units"
    ps2stream = {e.name: e for e in with_settings(PS2STREAM, arguments("ps2stream", "--as-in-paper"))}
    assert {row.setting.workers for row in ps2stream["throughput"].rows} == {8}
    assert {row.setting.workers for row in ps2stream["workers"].rows} == {8, 16, 32}
    ours = with_settings(experiments(["places"], ["methods", "k"]), arguments("distribution", "--as-in-paper"))
    assert {row.setting.index for e in ours for row in e.rows} == {"igpt"}
    assert with_settings(TORNADO, arguments("tornado")) == list(TORNADO)


@pytest.mark.parametrize("name", ["skype", "boolean", "tornado", "ps2stream", "distribution"])
def test_every_benchmark_has_it_and_the_guide_names_it(name):
    from dskype.deploy.lab.command import _load

    module = _load("dskype.run" if name == "distribution" else f"{name}.run")
    args = parsed(module, "--as-in-paper", "0.001")
    assert all(getattr(args, size) == number // 1000 for size, number in AS_IN_PAPER[name].sizes.items())
    assert f"| `{name}` | " in GUIDE.read_text(encoding="utf-8")
