"""All distributors on boolean subscriptions, at tiny sizes: all of them find what one index finds."""

from __future__ import annotations

import pytest

from dskype.deploy.cli import main as cli
from dskype.deploy.lab.dskype.boolean import METHODS, experiments
from dskype.distribution import DISTRIBUTORS
from tests.deploy.lab.reported import assert_runs_on_a_file


def test_every_distributor_takes_part_with_every_group():
    (one,) = experiments([4])
    assert {row.setting.method.distributor for row in one.rows} == DISTRIBUTORS.keys() - {"uniform-space", "replicate-all"}
    assert {(row.series, row.x) for row in one.rows} == {(name, group) for name in METHODS for group in ("q1", "q2", "q3")}


def test_the_command_line_compares_all_distributors(tmp_path, capsys):
    assert_runs_on_a_file("distribution", ["--boolean", "--tasks", "2,3"], ["boolean-2", "boolean-3"], tmp_path, capsys)


@pytest.mark.parametrize("more", [["--spark", "--window", "10"], ["a", "b"], ["--only", "tasks"]])
def test_what_is_for_the_other_comparison_is_refused(capsys, more):
    assert cli.main(["bench", "distribution", "--boolean", *more]) == 1
    assert "--boolean" in capsys.readouterr().err
