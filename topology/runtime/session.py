"""The Spark session of the emulator: settings, each with its reason."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dskype.topology.runtime.tuning import exclude_rules

__all__ = ["spark_settings", "start_session"]

_LOCAL_SLOTS = 16
"""Task slots in local mode: tasks wait for executors and brokers most of their time, so more than cores."""

_PATHS = ("spark.jars", "spark.files", "spark.archives", "spark.submit.pyFiles")

_LOG4J = Path(__file__).with_name("log4j2.properties")

_MICRO_BATCH = {
    # Plans are small and change with every batch: interpreting them beats compiling them.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    # What nobody looks at need not be written down.
    "spark.sql.maxPlanStringLength": "0",
    "spark.sql.ui.explainMode": "simple",
    "spark.sql.debug.maxToStringFields": "1",
    "spark.sql.streaming.numRecentProgressUpdates": "1",
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.sql.streaming.kafka.useDeprecatedOffsetFetching": "true",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.eventLog.enabled": "false",
    # Hadoop's default forks chmod for every file.
    "spark.sql.streaming.checkpointFileManagerClass":
        "org.apache.spark.sql.execution.streaming.FileSystemBasedCheckpointFileManager",
    # Two attempts of one task at a time would only make work for each other.
    "spark.speculation": "false",
    # One query's batch must not wait for another's.
    "spark.scheduler.mode": "FAIR",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1000000",
    # Any other value is checked after every row, which takes time proportional to the rows so far where there are lists (headers).
    "spark.sql.execution.arrow.maxBytesPerBatch": "2147483647",
    "spark.python.worker.reuse": "true",
    "spark.python.daemon.module": "dskype.topology.runtime.daemon",
}


def _absolute(path: str) -> str:
    """Return a path as seen from this process' working folder; Spark's JVM has another. Anything with a scheme stays."""
    return path if ":" in path.split("/")[0] else os.path.abspath(path)


def spark_settings(*, master: str | None, jars: Sequence[Path], conf: Mapping[str, str], log_file: Path) -> dict[str, str]:
    """Return the settings of a session; ``conf`` wins over ours, its ``spark.jars`` is added to, not replaced.

    :param master: master URL; None or ``local[*]`` runs Spark in this process' JVM.
    :param jars: the Kafka connector.
    :param conf: the user's ``spark.*`` settings.
    :param log_file: where Spark's own log goes in local mode.
    """
    local = master is None or master.startswith("local")
    settings = dict(_MICRO_BATCH)
    conf = dict(conf) | {key: ",".join(map(_absolute, filter(None, conf[key].split(",")))) for key in _PATHS if key in conf}
    settings["spark.jars"] = ",".join([*filter(None, conf.get("spark.jars", "").split(",")), *map(str, jars)])
    if local:
        settings |= {
            "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1", "spark.driver.memory": "1g",
            # Two cores: a parallel collector does not pay.
            "spark.driver.extraJavaOptions": " ".join((
                "-XX:+UseSerialGC", "-Xshare:auto", f'"-Djava.io.tmpdir={scratch_of(log_file)}"',
                f'"-Duser.dir={scratch_of(log_file)}"',     # where Spark makes its folder "artifacts"
                f"-Dlog4j2.configurationFile={_LOG4J.as_uri()}", f"-Ddskype.spark.log={log_file}")),
            "spark.driver.extraClassPath": os.pathsep.join(map(str, jars)),
            "spark.local.dir": str(scratch_of(log_file) / "local"),
            "spark.sql.warehouse.dir": (scratch_of(log_file) / "warehouse").as_uri(),
        }
    return settings | {k: v for k, v in conf.items() if k != "spark.jars"}


def scratch_of(log_file: Path) -> Path:
    """Return where Spark's JVM keeps what nobody needs after it: beside its log, so that it goes with the folder, or with the next start there."""
    return log_file.absolute().parent / "jvm"


def start_session(*, master: str | None, jars: Sequence[Path], conf: Mapping[str, str], log_file: Path) -> Any:
    """Start Spark and return the session.

    :raises RuntimeError: a session exists in this process already.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    from pyspark.sql import SparkSession

    if SparkSession.getActiveSession() is not None:
        msg = "Spark runs in this process already; hint: use one cluster at a time, and shut it down before the next"
        raise RuntimeError(msg)
    shutil.rmtree(scratch_of(log_file), ignore_errors=True)     # a JVM that was killed removed nothing
    scratch_of(log_file).mkdir(parents=True, mode=0o700)
    url = f"local[{_LOCAL_SLOTS},4]" if master in (None, "local[*]", "local") else master
    builder = SparkSession.builder.master(url).appName("dskype")
    for key, value in spark_settings(master=master, jars=jars, conf=conf, log_file=log_file).items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    exclude_rules(session)
    return session
