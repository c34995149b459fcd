"""The comparison with an earlier state: its parts run, two processes take turns, and what is slower fails."""

from __future__ import annotations

import os
import subprocess

import pytest

from dskype.deploy.lab import guard, guard_parts
from dskype.deploy.lab.guard_parts import PARTS, GuardWorkload


@pytest.fixture(scope="module")
def workload():
    """Return a workload of a few hundred places."""
    with pytest.MonkeyPatch.context() as patch:
        for name, size in {
            "_BATCH": 50,
            "_MESSAGES": 200,
            "_LANES": 300,
            "_PLAIN": 100,
            "_TOPK": 100,
            "_WINDOW": 200,
            "_QUERIES": 20,
            "_SIMULATED": 100,
            "_SUBSCRIPTIONS": 40,
        }.items():
            patch.setattr(guard_parts, name, size)
        yield GuardWorkload()


@pytest.mark.parametrize("part", PARTS)
def test_a_part_runs_more_than_once(workload, part):
    run = PARTS[part](workload)
    run()
    run()


def test_two_checkouts_are_measured_in_turn():
    found = guard.compare(guard._ROOT, guard._ROOT, ["fixed"], 2)
    before, now, ratio = found["fixed"]
    assert before > 0 and now > 0 and ratio == before / now


def test_what_cannot_be_measured_is_told():
    side = guard.Side(guard._ROOT)
    with pytest.raises(RuntimeError, match="'nothing' cannot be measured"):
        side.measure("nothing")
    side.close()


@pytest.mark.parametrize(("ratios", "code"), [({"fixed": 0.5, "lanes": 0.91}, 0), ({"fixed": 1.0, "lanes": 0.89}, 1)])
def test_a_slower_part_fails_but_not_the_one_that_shows_the_noise(monkeypatch, tmp_path, capsys, ratios, code):
    monkeypatch.setattr(guard, "earlier", lambda revision: (revision, tmp_path))
    monkeypatch.setattr(guard, "compare", lambda now, before, parts, rounds: {part: (ratios[part], 1.0, ratios[part]) for part in parts})
    assert guard.main(["--against", "v1", "--only", "fixed,lanes"]) == code
    assert ("slower" in capsys.readouterr().out.partition("lanes")[2]) == bool(code)


def test_what_is_compared_with_by_default_is_the_beginning_of_the_present_version(monkeypatch, tmp_path):
    def git(*arguments):
        environment = {**os.environ, **{f"GIT_{who}_{what}": "a@b" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}}
        return subprocess.run(["git", *arguments], cwd=tmp_path, env=environment, check=True, capture_output=True, text=True).stdout.strip()

    git("init", "-q")
    for text in ("version = 0.1.0\n", "version = 0.2.0\n", "version = 0.2.0\nname = dskype\n"):
        (tmp_path / "setup.cfg").write_text(text)
        git("add", ".")
        git("commit", "-q", "-m", "a change")
    monkeypatch.setattr(guard, "_ROOT", tmp_path)
    name, folder = guard.earlier(None)
    assert name == git("rev-parse", "--short", "HEAD~1") and (folder / "setup.cfg").read_text() == "version = 0.2.0\n"


def test_a_revision_that_is_not_there_is_refused(capsys):
    assert guard.main(["--against", "no-such-revision", "--only", "fixed"]) == 2
    assert "There is nothing to compare with" in capsys.readouterr().err
