"""Kernels are compiled once, by a small DSkype."""

import numba

from dskype.deploy.cli import warmup
from dskype.deploy.machine import paths


def test_the_small_topology_takes_everything_it_is_given():
    warmup._run_small_topology()  # raises where there is a dead letter or a wrong result


def test_what_the_second_process_compiles_runs():
    warmup._compile_part()


def test_kernels_are_compiled_when_they_or_their_compiler_changed(tmp_home, monkeypatch):
    runs, said = [], []
    monkeypatch.setattr(warmup, "_compile_all", lambda: runs.append(1))
    assert [warmup.compile_kernels(said.append) for _ in range(2)] == [True, False]
    monkeypatch.setattr(warmup, "_state", lambda: "other")
    assert warmup.compile_kernels(said.append)
    assert len(runs) == 2 and said == ["compiling kernels (once)"] * 2
    assert (paths.numba_cache_dir() / "compiled").read_text() == "other"


def test_another_kind_of_processor_needs_other_kernels(monkeypatch):
    here = warmup._state()
    assert warmup._state() == here
    monkeypatch.setattr(numba.config, "CPU_NAME", "another")
    other_name = warmup._state()
    monkeypatch.setattr(numba.config, "CPU_FEATURES", "")
    assert len({here, other_name, warmup._state()}) == 3
