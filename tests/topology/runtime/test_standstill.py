"""A process that has stood still writes nothing of what it did before."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from dskype.topology.runtime.micro_batch import shim as shim_module
from dskype.topology.runtime.micro_batch.shim import ExecutorFailedError, Shim
from dskype.topology.runtime.standstill import StandstillWatch, boot_s, process_watch


class Clock:
    def __init__(self):
        self.now_s = 100.0

    def __call__(self):
        return self.now_s


def test_only_gaps_beyond_the_limit_count():
    clock = Clock()
    watch = StandstillWatch(3.0, clock)
    for _ in range(10):
        clock.now_s += 2.9
        watch.look()
    assert watch.ended_since(0) is None
    clock.now_s += 3.1
    assert watch.ended_since(0) == watch.ended_since(clock.now_s - 0.1) == clock.now_s, "it is noticed even before the thread looks"
    assert watch.ended_since(clock.now_s) is None
    clock.now_s += 1
    assert watch.ended_since(clock.now_s - 2) == clock.now_s - 1


def test_the_thread_keeps_the_watch_awake():
    watch = process_watch(1e6)
    assert process_watch(1e6) is watch
    before_s, waiting = watch._seen_s, True
    while waiting:
        waiting = watch._seen_s <= before_s
    assert boot_s() >= watch._seen_s > before_s


@pytest.fixture
def shim():
    return Shim("t-1", "bolt", 1, "t.bolt", (0,), False, b"", 3.0)


@pytest.fixture
def watch(monkeypatch):
    """A watch on a clock of its own, which a sleep moves on."""
    clock = Clock()
    watch = StandstillWatch(3.0, clock)
    monkeypatch.setattr(shim_module, "boot_s", clock)
    monkeypatch.setattr(shim_module, "process_watch", lambda limit_s: watch)
    monkeypatch.setattr(shim_module, "time", SimpleNamespace(sleep=lambda seconds: setattr(clock, "now_s", clock.now_s + seconds)))
    return watch


@pytest.mark.parametrize("in_the_task", [True, False])
def test_a_task_is_refused_if_its_process_stood_still_in_it_or_shortly_before(shim, watch, in_the_task):
    clock = watch._clock
    started_s = clock.now_s
    shim._check_standstill(started_s)
    clock.now_s += 15
    ended_s = clock.now_s
    if not in_the_task:
        watch.look()
        clock.now_s += 1
        started_s = clock.now_s
    with pytest.raises(ExecutorFailedError, match="stood still for more than 3 s"):
        shim._check_standstill(started_s)
    assert clock.now_s == ended_s + 3, "Spark had time to end the process"
    shim._check_standstill(clock.now_s)


def test_on_one_machine_nobody_else_has_the_task(watch):
    watch._clock.now_s += 1000
    Shim("t-1", "bolt", 1, "t.bolt", (0,), False, b"")._check_standstill(0.0)
