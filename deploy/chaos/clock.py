"""A clock that can be set, for a process and all that it starts: libfaketime where it is installed."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["SetClock", "library"]

_PLACES = ("/usr/lib/x86_64-linux-gnu/faketime", "/usr/lib/aarch64-linux-gnu/faketime", "/usr/local/lib/faketime", "/usr/lib/faketime")


def library() -> Path | None:
    """Return libfaketime for programs with threads; None: it is not installed (Debian: ``apt-get install faketime``)."""
    return next((path for place in _PLACES if (path := Path(place) / "libfaketimeMT.so.1").is_file()), None)


class SetClock:
    """The wall clock of the processes that run with :meth:`environ`; their monotonic clocks go on as they are.

    :param file: where the offset is kept; the processes look at it once a second.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self.set(0)

    def set(self, offset_s: int) -> None:
        """Set the clock ahead (or back), in seconds from the true time."""
        partial = self._file.with_name(f".{self._file.name}")
        partial.write_text(f"{offset_s:+d}\n")
        os.replace(partial, self._file)

    def environ(self) -> dict[str, str]:
        """Return variables for a process that shall have this clock."""
        return {"LD_PRELOAD": str(library()), "FAKETIME_TIMESTAMP_FILE": str(self._file), "FAKETIME_CACHE_DURATION": "1",
                "DONT_FAKE_MONOTONIC": "1", "FAKETIME_DONT_FAKE_MONOTONIC": "1", "NO_FAKE_STAT": "1"}
