"""The Spark Python daemon of the emulator (``spark.python.daemon.module``).

Spark forks its Python workers from this process. It differs from Spark's own daemon in five ways:

* It removes zips and jars from the path. Spark makes every task call ``importlib.invalidate_caches()``, after which
  Python reads their directories again; that takes 60 to 100 ms each time.
* It imports what workers need before they are forked, if Spark asks for workers, and freezes it. Spark makes every task collect garbage; without
  the freeze, that walks all imported modules (28 ms a task).
* Its workers acknowledge TCP segments at once. JVM and worker exchange small pieces over TCP, and a delayed
  acknowledgement holds the next piece back for up to 40 ms.
* A worker whose connection Spark closes ends quietly.
* It starts the supervisor, from which resident executors are forked, unless another daemon of the JVM has.
"""

from __future__ import annotations

import gc
import io
import os
import socket
import stat
import sys
import zipimport
from collections.abc import Callable
from typing import Any


def _clean_path() -> None:
    def archive(path: str) -> bool:
        return path.endswith((".zip", ".jar"))

    sys.path[:] = [p for p in sys.path if not archive(p)]
    # By importer, not by name, because folders within a jar have entries, too (".../spark-core.jar/org").
    for path, importer in list(sys.path_importer_cache.items()):
        if isinstance(importer, zipimport.zipimporter):
            del sys.path_importer_cache[path]
    kept = [p for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p and not archive(p)]
    os.environ["PYTHONPATH"] = os.pathsep.join(kept)


class _QuickSocket(io.RawIOBase):
    """The reading side of a worker's socket; the option has to be set again after every read."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def readable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._connection.fileno()

    def readinto(self, buffer) -> int:
        n = self._connection.recv_into(buffer)
        self._connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
        return n


def _quick_fdopen(fdopen: Callable[..., Any]) -> Callable[..., Any]:
    """Return an ``os.fdopen`` for ``pyspark.daemon`` that reads sockets through :class:`_QuickSocket`."""

    def open_descriptor(descriptor: int, mode: str = "r", buffering: int = -1) -> Any:
        if mode == "rb" and hasattr(socket, "TCP_QUICKACK") and stat.S_ISSOCK(os.fstat(descriptor).st_mode):
            connection = socket.socket(fileno=descriptor)
            if connection.family in (socket.AF_INET, socket.AF_INET6):
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                return io.BufferedReader(_QuickSocket(connection), buffering)
            connection.detach()
        return fdopen(descriptor, mode, buffering)

    return open_descriptor


def _quiet_main(main: Callable[..., None]) -> Callable[..., None]:
    """Return a worker's ``main`` that ends without a traceback when Spark closes the connection, as it does when it stops a query."""

    def run(infile: Any, outfile: Any) -> None:
        try:
            main(infile, outfile)
        except EOFError:
            sys.exit(1)
        finally:
            try:
                outfile.flush()
            except OSError:  # nobody reads any more; Spark's daemon would try once more, and print the error
                os._exit(1)

    return run


if __name__ == "__main__":
    _clean_path()
    # Compiled kernels that are on this host where they are on the driver's; if they are not, or another user may have written them, numba looks in its usual places.
    from dskype.topology.core.ownership import is_ours
    from dskype.topology.runtime.wire import KERNELS_VARIABLE, SAFE_PATH_OF_WORKERS, SAFE_PATH_VARIABLE

    if "NUMBA_CACHE_DIR" not in os.environ and is_ours(os.environ.get(KERNELS_VARIABLE, "")):
        os.environ["NUMBA_CACHE_DIR"] = os.environ[KERNELS_VARIABLE]
    if os.environ.get(SAFE_PATH_VARIABLE) == SAFE_PATH_OF_WORKERS:
        del os.environ[SAFE_PATH_VARIABLE]
    # Threads of numeric libraries do not survive a fork, and those of several executors would compete for the cores.
    for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(variable, "1")
    import pyspark.daemon
    import pyspark.worker

    from dskype.topology.runtime.supervisor import start_supervisor

    if "DSKYPE_SUPERVISOR_FILE" not in os.environ:  # else only the supervisor is wanted, and the one worker ends at once
        import pandas  # noqa: F401
        import pyspark.sql.pandas.serializers
        import pyspark.sql.types

        import dskype.topology.runtime.micro_batch.shim  # noqa: F401

    gc.collect()
    gc.freeze()
    start_supervisor()
    os.fdopen = _quick_fdopen(os.fdopen)  # how pyspark.daemon opens its workers' sockets
    pyspark.worker.main = _quiet_main(pyspark.worker.main)  # a worker looks it up after the fork
    pyspark.daemon.manager()
