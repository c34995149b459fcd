"""Asks Spark's executors, a line at a time: ``python -m tests.topology.runtime.driver.preflight_program MASTER FOLDER BROKERS``.

For every line of standard input, ``folder`` or ``kafka`` and the seconds to wait, it prints ``hosts: [...]`` or the error. For ``taken`` it does so while
another job has all cores, and adds what became of that job; for ``hanging`` while the executors begin their answers and never end them. For ``doctor`` and an
interpreter it prints what ``dskype doctor --master`` says of the cluster, as JSON with its exit code and the names of all checks that failed; the doctor starts
Spark itself, in the same JVM, so these lines come last.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
from pyspark.sql import SparkSession

from dskype.deploy.cli.main import main as dskype
from dskype.deploy.machine.spark_archive import existing_archive
from dskype.deploy.machine.spark_classes import spark_class_path
from dskype.topology.core.file_store import FileSnapshotStore
from dskype.topology.core.snapshots import SnapshotStore
from dskype.topology.runtime.driver import preflight
from dskype.topology.runtime.kafka.clients import KafkaSettings
from dskype.topology.runtime.spark.session import start_session
from dskype.topology.runtime.stores.kafka_store import KafkaSnapshotStore
from tests.waiting import wait_for

from ..standalone import executors_of_minutes

_SPARK = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1", "spark.executor.memory": "512m", **executors_of_minutes()}


def main(master: str, folder: str, servers: str) -> None:
    """Answer until standard input ends."""
    jars = spark_class_path()
    spark = start_session(master=master, jars=jars, class_archive=existing_archive(jars), log_file=Path(folder).parent / "logs" / "spark.log", conf=_SPARK)
    print("ready", flush=True)
    kafka = KafkaSettings(servers)
    stores = {"folder": FileSnapshotStore(folder), "kafka": KafkaSnapshotStore(kafka, Path(folder).parent.name, 3)}
    stores["kafka"].create()
    for kind, argument in map(str.split, sys.stdin):
        if kind == "doctor":
            spark.stop()
            print(json.dumps(_diagnosis(master, servers, argument)), flush=True)
            continue
        if kind == "taken":
            end = Path(folder).parent / "end"
            with ThreadPool(1) as beside:
                other = beside.apply_async(lambda: spark.range(0, 2, 1, 2).mapInArrow(_until(str(end)), "id long").collect())
                wait_for(lambda: _active_tasks(spark) == 2, 120, "another job on all cores")
                said = _ask(spark, stores["folder"], kafka, float(argument))
                end.touch()
                print(said, "; the other job:", sorted(row.id for row in other.get()), flush=True)
        elif kind == "hanging":
            with patch.object(preflight, "_probe", lambda *_: _until(folder + "-never")):
                print(_ask(spark, stores["folder"], kafka, float(argument)), flush=True)
        else:
            print(_ask(spark, stores[kind], kafka, float(argument)), flush=True)
    stores["kafka"].remove()
    spark.stop()


def _ask(spark: SparkSession, store: SnapshotStore, kafka: KafkaSettings, timeout_s: float) -> str:
    """Return the hosts or the error, in one line."""
    try:
        return f"hosts: {preflight.check_executors(spark, store, kafka, timeout_s)}"
    except preflight.PreflightError as error:
        return str(error).replace("\n", " ")


def _until(file: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return a function of tasks that passes rows on when there is a file."""

    def wait(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        while not os.path.exists(file):
            time.sleep(0.1)
        yield from batches

    return wait


def _active_tasks(spark: SparkSession) -> int:
    tracker = spark.sparkContext.statusTracker()
    return sum(stage.numActiveTasks for stage in map(tracker.getStageInfo, tracker.getActiveStageIds()) if stage)


def _diagnosis(master: str, servers: str, python: str) -> dict[str, Any]:
    """Return the doctor's row about the cluster, its exit code, and which checks failed."""
    os.environ["PYSPARK_PYTHON"] = python
    conf = [word for key, value in _SPARK.items() for word in ("-c", f"{key}={json.dumps(value)}")]
    with contextlib.redirect_stdout(io.StringIO()) as said:
        code = dskype(["doctor", "--master", master, "--bootstrap-servers", servers, "-o", "json", *conf])
    rows = json.loads(said.getvalue())["checks"]
    (row,) = (row for row in rows if row["check"] == "cluster")
    return {**row, "code": code, "failed": [row["check"] for row in rows if row["status"] == "fail"]}


if __name__ == "__main__":
    main(*sys.argv[1:])
