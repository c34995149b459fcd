"""Work in a fork: its result, its failures, its end with its parent, and what it does not share."""

import os
import signal
import subprocess
import sys
import time

import pytest

from dskype.topology.background import BackgroundError
from dskype.topology.errors import FatalError
from dskype.topology.runtime.processes.background import ForkedWork
from tests.waiting import wait_for

from ..helpers import alive

LARGE = 3_000_000
"""Bytes: more than fit into a pipe."""


def result(work):
    while (found := work()) is None:
        time.sleep(0.01)
    return found


def test_the_result_comes_while_this_process_goes_on():
    seen = [1]
    work = ForkedWork(lambda: time.sleep(0.3) or bytes(seen) + b"x" * LARGE, lambda: None)
    seen[0] = 2
    assert work() is None, "it runs still"
    assert result(work) == b"\1" + b"x" * LARGE, "it sees what there was when it began"


def test_what_it_does_changes_nothing_here():
    seen = []
    assert result(ForkedWork(lambda: str(seen.append(1) or len(seen)).encode(), lambda: seen.append(0))) == b"2" and not seen


@pytest.mark.parametrize("end", ["raises", "killed", "exits"])
def test_a_failure_says_why(end):
    def work():
        if end == "raises":
            raise ValueError("no plan")
        os.kill(os.getpid(), signal.SIGKILL) if end == "killed" else sys.exit("enough")

    with pytest.raises(BackgroundError, match={"raises": "ValueError: no plan", "killed": "status 9", "exits": "SystemExit: enough"}[end]):
        result(ForkedWork(work, lambda: None))


def test_an_error_that_no_retry_can_mend_stays_one():
    def work():
        raise FatalError("another driver has taken over")

    forked = ForkedWork(work, lambda: None)
    with pytest.raises(FatalError, match="another driver has taken over"):
        result(forked)


@pytest.mark.long
def test_what_it_has_cost_is_known_when_it_has_ended():
    def work():
        while time.process_time() < 0.2:  # a fork begins to count anew
            pass
        return b"done"

    forked = ForkedWork(work, lambda: None)
    assert forked.cpu_ms == 0 and result(forked) == b"done" and forked.cpu_ms >= 150


def test_it_ends_with_its_parent():
    code = """
import os, time
from dskype.topology.runtime.processes.background import ForkedWork
work = ForkedWork(lambda: time.sleep(60), lambda: None)
print(work._pid, flush=True)
os.kill(os.getpid(), 9)
"""
    pid = int(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False).stdout)
    wait_for(lambda: not alive({pid}), 20, f"the end of process {pid}")


def test_it_ends_when_nobody_asks_for_its_result_any_more_and_not_when_a_fork_forgets_it():
    work = ForkedWork(lambda: time.sleep(60) or b"", lambda: None)
    pid = work._pid
    forgetting = ForkedWork(lambda: work.__del__() or b"forgotten", lambda: None)
    assert result(forgetting) == b"forgotten" and work() is None
    os.kill(pid, signal.SIGSTOP)  # even one that stands still
    work = forgetting = None
    assert not os.path.exists(f"/proc/{pid}")


def test_without_room_for_a_process_it_says_so(monkeypatch):
    def fork():
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", fork)
    with pytest.raises(BackgroundError, match="Resource temporarily unavailable"):
        ForkedWork(bytes, lambda: None)
