"""Limits of waits on a quiet machine, on a busy one, and where something hangs."""

import os
import time

import pytest

from .waiting import Limit, crowding, wait_for


@pytest.fixture
def machine(monkeypatch):
    """A machine with two processors and a clock that moves only when somebody sleeps."""

    class Machine:
        load = 0.0
        now_s = 100.0

        def sleep(self, seconds):
            self.now_s += seconds

    found = Machine()
    monkeypatch.setattr(os, "getloadavg", lambda: (found.load, 0.0, 0.0))
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1})
    monkeypatch.setattr(time, "monotonic", lambda: found.now_s)
    monkeypatch.setattr(time, "sleep", found.sleep)
    return found


@pytest.mark.parametrize(("load", "crowded"), [(0, 1), (2, 1), (9, 4.5), (1000, 20)])
def test_a_limit_is_as_much_longer_as_the_machine_is_busy(machine, load, crowded):
    machine.load = load
    limit = Limit(10)
    machine.sleep(10 * crowded - 0.1)
    assert crowding() == crowded and not limit.over
    machine.sleep(0.2)
    assert limit.over


def test_only_the_busy_time_counts_less(machine):
    limit = Limit(10)
    machine.sleep(6)
    assert not limit.over
    machine.load = 8
    machine.sleep(12)  # counts as three seconds
    assert not limit.over
    machine.load = 0
    machine.sleep(1.5)
    assert limit.over


def test_what_is_found_is_returned_and_a_hang_is_told(machine):
    assert wait_for(lambda: machine.now_s > 105 and "found", 10, "a result") == "found"
    machine.load = 4
    with pytest.raises(AssertionError, match=r"^3 of 4 records did not come about within 10 s \(20 s on this busy machine\)$"):
        wait_for(lambda: None, 10, lambda: "3 of 4 records")
