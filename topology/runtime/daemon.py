"""The Spark Python daemon of the emulator (``spark.python.daemon.module``).

Spark forks its Python workers from this process. It differs from Spark's own daemon in three ways:

* zips and jars are taken off the path: Spark lets every task call ``importlib.invalidate_caches()``, and
  Python then reads their directories again, 60 to 100 ms each time;
* what workers need is imported before they are forked, and frozen: Spark lets every task collect
  garbage, which walks all imported modules (28 ms a task) unless they are out of the collector's sight;
* it starts the supervisor, from which resident executors are forked.
"""

from __future__ import annotations

import gc
import os
import sys


def _clean_path() -> None:
    def archive(path: str) -> bool:
        return path.endswith((".zip", ".jar"))

    sys.path[:] = [p for p in sys.path if not archive(p)]
    for path in [p for p in sys.path_importer_cache if archive(p)]:
        del sys.path_importer_cache[path]
    kept = [p for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p and not archive(p)]
    os.environ["PYTHONPATH"] = os.pathsep.join(kept)


if __name__ == "__main__":
    _clean_path()
    # Threads of number libraries do not survive a fork, and two executors would fight over the cores.
    for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(variable, "1")
    import pyspark.daemon
    import pyspark.sql.pandas.serializers
    import pyspark.worker  # noqa: F401

    import dskype.topology.runtime.shim  # noqa: F401
    from dskype.topology.runtime.supervisor import start_supervisor

    gc.collect()
    gc.freeze()
    start_supervisor()
    pyspark.daemon.manager()
