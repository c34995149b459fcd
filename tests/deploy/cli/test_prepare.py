"""Set-up does several things at the same time, and says how long each took."""

import threading

import pytest

from dskype.deploy.cli import prepare
from dskype.deploy.machine.errors import DeployError


@pytest.fixture
def steps(monkeypatch):
    """Steps that do nothing; a test may replace them by their names."""
    steps = {name: lambda tell: None for name in ("compile_kernels", "fetch", "prepare", "write_archive")}
    for name in ("prepare", "write_archive"):
        monkeypatch.setattr(prepare, name, lambda tell, name=name: steps[name](tell))
    monkeypatch.setattr(prepare, "compile_kernels", lambda tell, first: steps["compile_kernels"](tell) or steps["stages"].append(first))
    steps["stages"] = []
    monkeypatch.setattr(prepare.jars, "fetch", lambda progress: steps["fetch"](progress))
    return steps


def test_kernels_are_compiled_while_jars_are_fetched_and_archives_written(steps):
    compiling, others_done = threading.Event(), threading.Event()

    def compile_kernels(tell):
        compiling.set()
        assert others_done.wait(60), "the others wait for the kernels"

    def fetch(tell):
        assert compiling.wait(60), "the kernels wait for the jars"

    steps.update(compile_kernels=compile_kernels, fetch=fetch, write_archive=lambda tell: others_done.set())
    assert prepare.main() == 0


@pytest.mark.parametrize("first", [True, False])
def test_a_first_run_waits_for_what_it_needs_only(steps, first):
    written = []
    steps["write_archive"] = written.append
    assert prepare.main(first) == 0
    assert (len(written), steps["stages"]) == (0 if first else 1, [first])


@pytest.mark.parametrize("name", ["compile_kernels", "fetch", "write_archive"])
def test_a_step_that_fails_is_told_and_nothing_waits_for_ever(steps, capsys, name):
    def fail(tell):
        raise DeployError("expected a network, given: none", fix="connect")

    steps[name] = fail
    if name == "fetch":
        steps["compile_kernels"] = lambda tell: threading.Event().wait(300)
    assert prepare.main() == 1
    assert "error: expected a network, given: none\n  fix: connect" in capsys.readouterr().err


def test_a_defect_of_the_step_beside_the_others_is_not_hidden(steps):
    def fail(tell):
        raise LookupError("a defect")

    steps["compile_kernels"] = fail
    with pytest.raises(LookupError, match="a defect"):
        prepare.main()


def test_what_runs_at_the_same_time_is_shown_on_one_line():
    shown = []
    steps = prepare.Steps(shown.append)

    def outer(tell):
        tell("compiling")
        steps.run("jars", lambda tell: tell("1 of 2 jars"))
        tell("still compiling")

    steps.run("kernels", outer)
    assert shown == ["compiling", "compiling; 1 of 2 jars", "still compiling"]


def test_the_steps_that_took_time_are_named_in_the_end(monkeypatch):
    now = iter([0.0, 10.0, 52.4, 100.0, 200.0, 200.2])
    monkeypatch.setattr(prepare.time, "monotonic", lambda: next(now))
    steps = prepare.Steps(lambda text: None)
    steps.run("kernels", lambda tell: steps.run("jars", lambda tell: None))
    steps.run("class archive of Spark", lambda tell: None)
    assert steps.summary() == "jars 42 s, kernels 100 s"
