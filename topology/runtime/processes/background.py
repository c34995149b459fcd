"""Work in a copy of this process, which goes on meanwhile: an executor's snapshots, and what its tasks ask for (:mod:`dskype.topology.background`)."""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import signal
import tempfile
from collections.abc import Callable

from dskype.topology.background import BackgroundError, Work
from dskype.topology.errors import FatalError
from dskype.topology.runtime.processes.host import die_with_parent, set_name

__all__ = ["ForkedWork"]

log = logging.getLogger(__name__)

_REASON_CHARACTERS = 4_000
_FATAL = 3
"""Exit code of a fork whose work has raised a FatalError."""


class ForkedWork:
    """Work that runs in a fork until it is done, this process ends, or nobody refers to it any more. Called, it tells the result.

    ::

        running ---- the fork ends ----> done, or failed
           +-------- nobody refers to it ----> killed

    :param work: uses no client of a broker or a store that is open now, because it belongs to this process.
    :param prepare: called in the fork at first: closes what others would wait for.
    :param name: of the fork, for ``ps``.
    :param nice: what has to be done for each message goes first.
    :ivar cpu_ms: processor time that it took, when it has ended.
    :ivar reason: why it failed.
    :raises BackgroundError: there is no room for a file or a process.
    """

    cpu_ms, reason = 0.0, ""

    def __init__(self, work: Work, prepare: Callable[[], None], name: str = "dsk:background", nice: int = 10) -> None:
        self._parent, self._pid = os.getpid(), -1
        try:
            # Read when the fork has ended. In memory, where Linux can do that: a full disk is no reason to fail.
            self._file = open(os.memfd_create("work"), "w+b") if hasattr(os, "memfd_create") else tempfile.TemporaryFile()  # noqa: SIM115
            self._pid = os.fork()
        except OSError as error:
            raise BackgroundError("Work in the background could not begin.", given=str(error)) from error
        if self._pid == 0:
            self._run(work, prepare, name, nice)

    def _run(self, work: Work, prepare: Callable[[], None], name: str, nice: int) -> None:
        status = 1
        gc.disable()  # garbage of the parent may hold a client of librdkafka, whose end in a fork crashes it, or waits for threads that are not there
        try:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            die_with_parent(self._parent)
            set_name(name)
            prepare()
            os.nice(nice)
            self._file.write(work())
            self._file.flush()
            status = 0
        except BaseException as error:
            status = _FATAL if isinstance(error, FatalError) else 1
            log.exception("work beside the tasks failed")
            self._file.write(f"{type(error).__name__}: {error}"[:_REASON_CHARACTERS].encode())
            self._file.flush()
        finally:
            os._exit(status)

    def __call__(self) -> bytes | None:
        """Return the result, once; None as long as the work runs.

        :raises FatalError: the work has raised one.
        :raises BackgroundError: it has failed otherwise.
        """
        pid, status, used = os.wait4(self._pid, os.WNOHANG)
        if not pid:
            return None
        self._pid, self.cpu_ms = -1, (used.ru_utime + used.ru_stime) * 1000
        with self._file as file:
            file.seek(0)  # the fork shares the position
            found = file.read()
        if status:
            self.reason = found.decode(errors="replace") or f"its process ended with status {status}"
            if os.waitstatus_to_exitcode(status) == _FATAL:
                raise FatalError(self.reason)
            raise BackgroundError("Work in the background failed.", given=self.reason)
        return found

    def __del__(self) -> None:
        """Kill a fork whose result nobody will ask for."""
        if self._pid > 0 and os.getpid() == self._parent:  # and not where another fork lets go of its copy
            with contextlib.suppress(ProcessLookupError, ChildProcessError):
                os.kill(self._pid, signal.SIGKILL)
                os.waitpid(self._pid, 0)
