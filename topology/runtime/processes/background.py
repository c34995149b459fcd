"""Work in a copy of this process, which goes on meanwhile; see :mod:`dskype.topology.background`."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import tempfile
from collections.abc import Callable

from dskype.topology.background import BackgroundError, Work
from dskype.topology.runtime.processes.host import die_with_parent, set_name

__all__ = ["ForkedWork"]

_NICE = 10
"""What has to be done for each message goes first."""
_REASON_CHARACTERS = 2_000


class ForkedWork:
    """Work that runs in a fork until it is done, this process ends, or nobody refers to it any more. Called, it tells the result.

    ::

        running ---- the fork ends ----> done, or failed
           +-------- nobody refers to it ----> killed

    :param work: uses no client of a broker or a store, because those belong to this process.
    :param prepare: called in the fork at first: closes what others would wait for.
    :raises BackgroundError: there is no room for a file or a process.
    """

    def __init__(self, work: Work, prepare: Callable[[], None]) -> None:
        self._parent, self._pid = os.getpid(), -1
        try:
            self._file = tempfile.TemporaryFile()  # noqa: SIM115 - read when the fork has ended
            self._pid = os.fork()
        except OSError as error:
            raise BackgroundError("Work in the background could not begin.", given=str(error)) from error
        if self._pid == 0:
            self._run(work, prepare, self._parent)

    def _run(self, work: Work, prepare: Callable[[], None], parent: int) -> None:
        status = 1
        gc.disable()  # garbage of the parent may hold a client of librdkafka, whose end in a fork crashes it, or waits for threads that are not there
        try:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            die_with_parent(parent)
            set_name("dsk:background")
            prepare()
            os.nice(_NICE)
            self._file.write(work())
            self._file.flush()
            status = 0
        except BaseException as error:
            self._file.write(f"{type(error).__name__}: {error}"[:_REASON_CHARACTERS].encode())
            self._file.flush()
        finally:
            os._exit(status)

    def __call__(self) -> bytes | None:
        """Return the result, once; None as long as the work runs.

        :raises BackgroundError: it has failed.
        """
        pid, status = os.waitpid(self._pid, os.WNOHANG)
        if not pid:
            return None
        self._pid = -1
        with self._file as file:
            file.seek(0)  # the fork shares the position
            found = file.read()
        if status:
            raise BackgroundError("Work in the background failed.", given=found.decode(errors="replace") or f"its process ended with status {status}")
        return found

    def __del__(self) -> None:
        """Kill a fork whose result nobody will ask for."""
        if self._pid > 0 and os.getpid() == self._parent:  # and not where another fork lets go of its copy
            with contextlib.suppress(ProcessLookupError, ChildProcessError):
                os.kill(self._pid, signal.SIGKILL)
                os.waitpid(self._pid, 0)
