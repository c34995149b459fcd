"""The Spark Python daemon of the emulator (``spark.python.daemon.module``).

Spark forks its Python workers from this process. It differs from Spark's own daemon in four ways:

* It removes zips and jars from the path. Spark makes every task call ``importlib.invalidate_caches()``, after which
  Python reads their directories again; that takes 60 to 100 ms each time.
* It imports what workers need before they are forked, if Spark asks for workers, and freezes it. Spark makes every task collect garbage; without
  the freeze, that walks all imported modules (28 ms a task).
* A worker whose connection Spark closes ends quietly.
* It starts the supervisor, from which resident executors are forked, unless another daemon of the JVM has.
"""

from __future__ import annotations

import gc
import os
import sys
import zipimport
from collections.abc import Callable
from typing import Any


def _clean_path() -> None:
    archives = (".zip", ".jar")
    sys.path[:] = [p for p in sys.path if not p.endswith(archives)]
    # By importer, not by name, because folders within a jar have entries, too (".../spark-core.jar/org").
    for path, importer in list(sys.path_importer_cache.items()):
        if isinstance(importer, zipimport.zipimporter):
            del sys.path_importer_cache[path]
    kept = [p for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p and not p.endswith(archives)]
    os.environ["PYTHONPATH"] = os.pathsep.join(kept)


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
    from dskype.topology.runtime.transport.wire import KERNELS_VARIABLE, SAFE_PATH_OF_WORKERS, SAFE_PATH_VARIABLE

    if "NUMBA_CACHE_DIR" not in os.environ and is_ours(os.environ.get(KERNELS_VARIABLE, "")):
        os.environ["NUMBA_CACHE_DIR"] = os.environ[KERNELS_VARIABLE]
    if os.environ.get(SAFE_PATH_VARIABLE) == SAFE_PATH_OF_WORKERS:
        del os.environ[SAFE_PATH_VARIABLE]
    # Threads of numeric libraries do not survive a fork, and those of several executors would compete for the cores.
    for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(variable, "1")
    import pyspark.daemon
    import pyspark.worker

    from dskype.topology.runtime.processes.supervisor import start_supervisor

    if "DSKYPE_SUPERVISOR_FILE" not in os.environ:  # else only the supervisor is wanted, and the one worker ends at once
        import pandas  # noqa: F401
        import pyspark.sql.pandas.serializers
        import pyspark.sql.types

    gc.collect()
    gc.freeze()
    start_supervisor()
    pyspark.worker.main = _quiet_main(pyspark.worker.main)  # a worker looks it up after the fork
    pyspark.daemon.manager()
