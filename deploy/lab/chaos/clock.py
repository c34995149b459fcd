"""A wall clock that can be set, for a Python process and all Python processes below it: driver, supervisor, executors, workers.

The JVM and the broker keep the real time, as other machines would.
"""

from __future__ import annotations

import os
from pathlib import Path

from dskype.deploy.machine import paths

__all__ = ["SetClock"]

_FILE_VARIABLE = "DSKYPE_CHAOS_CLOCK"
_SITECUSTOMIZE = f"""
import os, time

def _install(file, true_ns, monotonic):
    state = [0, 0.0]

    def time_ns():
        now = monotonic()
        if now - state[1] > 0.2:
            state[1] = now
            try:
                with open(file) as f:
                    state[0] = int(f.read()) * 10**9
            except (OSError, ValueError):
                pass
        return true_ns() + state[0]

    time.time_ns = time_ns
    time.time = lambda: time_ns() / 1e9

if os.environ.get("{_FILE_VARIABLE}"):
    _install(os.environ["{_FILE_VARIABLE}"], time.time_ns, time.monotonic)
"""


class SetClock:
    """The clock of the processes that run with :meth:`environ`; their monotonic clocks do not change.

    :param folder: an empty or missing folder, which the processes read five times a second.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self._folder, self._file = folder, folder / "offset"
        (folder / "sitecustomize.py").write_text(_SITECUSTOMIZE)
        self._offset_s = 0
        self.step(0)

    def step(self, seconds: int) -> None:
        """Move the clock forward, or back."""
        self._offset_s += seconds
        paths.write_whole(self._file, str(self._offset_s))

    def environ(self) -> dict[str, str]:
        """Return the environment variables of a process with this clock."""
        path = [str(self._folder), *filter(None, [os.environ.get("PYTHONPATH")])]
        return {_FILE_VARIABLE: str(self._file), "PYTHONPATH": os.pathsep.join(path)}
