"""Tests on Spark's executors before a topology starts on other hosts.

Without them, a folder that some host cannot reach, an interpreter that is missing there, or a master without free cores
would only show as a topology that is ACTIVE and does nothing.
"""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from dskype.topology.errors import TopologyError, explain

__all__ = ["PreflightError", "check_executors"]

_TASKS_PER_SLOT = 4
"""Spark assigns tasks to free slots. With several tasks per slot, every executor most likely gets one."""


class PreflightError(TopologyError):
    """Spark's executors cannot run a topology."""


def check_executors(spark: Any, folder: Path, timeout_s: float) -> list[str]:
    """Let Spark's executors read and write the topology's state folder.

    :param folder: the folder, which must exist.
    :param timeout_s: how long Spark may take to provide the first slots.
    :returns: the hosts that took part.
    :raises PreflightError: the test failed; the message says where and why.
    """
    token = uuid.uuid4().hex
    mark = folder / f".probe-{token}"
    mark.write_text(token)
    try:
        rows = _run(spark, _probe(str(folder), token), timeout_s)
        lost = sorted({host for host, name, error in rows if not error and not (folder / name).is_file()})
        wrong = sorted({f"{host}: {error}" for host, _, error in rows if error} | {f"{host}: the file that it wrote is not visible here" for host in lost})
        if wrong:
            raise PreflightError(
                explain(
                    "The state folder is not one and the same folder on all hosts.",
                    given="; ".join(wrong),
                    legal=f"{folder}, shared by all hosts",
                    hint="let DSKYPE_HOME name a folder that the driver and every Spark executor reach by the same path, such as a network file system",
                )
            )
        return sorted({host for host, _, _ in rows})
    finally:
        for probe in folder.glob(f".probe-{token}*"):
            probe.unlink(missing_ok=True)


def _probe(folder: str, token: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return a function for ``mapInArrow`` that reads the driver's file and writes another one."""

    def probe(_: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        host, name, error = os.uname().nodename, f".probe-{token}-{uuid.uuid4().hex}", ""
        try:
            with open(os.path.join(folder, f".probe-{token}")) as file:
                if file.read() != token:
                    error = "the driver's file is damaged"
            with open(os.path.join(folder, name), "w") as file:
                file.write(host)
        except OSError as problem:
            error = f"{problem.strerror}: {problem.filename}"
        yield pa.RecordBatch.from_pydict({"host": [host], "name": [name], "error": [error]})

    return probe


def _run(spark: Any, probe: Callable[..., Any], timeout_s: float) -> list[tuple[str, str, str]]:
    """Run the probe as one job, with a timeout, because a job without a slot never ends by itself."""
    context = spark.sparkContext
    n = _TASKS_PER_SLOT * max(1, context.defaultParallelism)
    found: list[Any] = []

    def collect() -> None:
        try:
            # With SQL, like the queries: RDDs would get Python daemons, and with them supervisors, of their own.
            found.append([tuple(row) for row in spark.range(0, n, 1, n).mapInArrow(probe, "host string, name string, error string").collect()])
        except Exception as error:
            found.append(error)

    thread = threading.Thread(target=collect, name="preflight", daemon=True)
    thread.start()
    thread.join(timeout_s)
    if thread.is_alive():
        executors = max(0, len(context._jsc.sc().statusTracker().getExecutorInfos()) - 1)
        context.cancelAllJobs()
        thread.join(10)
        raise PreflightError(
            explain(
                f"Spark's master has provided no task slot within {timeout_s:g} s.",
                given=f"{executors} executors at {context.master}",
                legal="at least one executor with free cores",
                hint="check on the master's page whether workers are registered, and whether another application holds their cores and memory",
            )
        )
    if isinstance(found[0], Exception):
        lines = [line.strip() for line in str(found[0]).splitlines() if "Cannot run program" in line or "Error" in line or "Exception" in line]
        raise PreflightError(
            explain(
                "Spark's executors cannot run this topology's Python.",
                given=(lines[0] if lines else str(found[0]))[:500],
                hint="every host needs the same Python and the same dskype at the same path, or PYSPARK_PYTHON to name it",
            )
        ) from found[0]
    return found[0]
