import time

import pytest

from dskype.topology import local
from dskype.topology.core import steady_clock
from dskype.topology.runtime.driver import clock_writer
from dskype.topology.runtime.processes import resident


@pytest.mark.parametrize("module", [steady_clock, clock_writer, resident, local])
def test_the_time_of_day_is_read_once(module, monkeypatch):
    """The clocks of the driver, the executors and the manager continue steadily when the machine's clock is set."""
    assert abs(module.now_ms() - time.time_ns() // 1_000_000) < 60_000
    real = time.time_ns
    for hours in (-1, 1):
        before = module.now_ms()
        monkeypatch.setattr(time, "time_ns", lambda: real() + hours * 3_600_000_000_000)
        assert before <= module.now_ms() < before + 60_000
