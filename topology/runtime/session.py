"""The Spark session of the emulator: settings, each with its reason."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dskype.topology.errors import TopologyError, explain
from dskype.topology.runtime.tuning import exclude_rules

__all__ = ["SessionError", "jvm_exit_code", "spark_settings", "start_session", "stop_session"]

class SessionError(TopologyError):
    """Spark could not be started."""


_LOCAL_SLOTS = 16
"""Task slots in local mode: tasks wait for executors and brokers most of their time, so more than cores."""

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


def spark_settings(*, master: str | None, jars: Sequence[Path], conf: Mapping[str, str], log_file: Path) -> dict[str, str]:
    """Return the settings of a session; ``conf`` wins over ours, its ``spark.jars`` is added to, not replaced.

    :param master: master URL; None or ``local[*]`` runs Spark in this process' JVM.
    :param jars: the Kafka connector.
    :param conf: the user's ``spark.*`` settings.
    :param log_file: where Spark's own log goes in local mode.
    """
    local = master is None or master.startswith("local")
    settings = dict(_MICRO_BATCH)
    settings["spark.jars"] = ",".join([*filter(None, conf.get("spark.jars", "").split(",")), *map(str, jars)])
    logging = f"-Dlog4j2.configurationFile={_LOG4J.as_uri()} -Ddskype.spark.log={log_file}"
    settings["spark.driver.extraJavaOptions"] = logging
    if local:
        settings |= {
            "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1", "spark.driver.memory": "1g",
            # Two cores: a parallel collector does not pay.
            "spark.driver.extraJavaOptions": " ".join((
                "-XX:+UseSerialGC", "-Xshare:auto", logging)),
            "spark.driver.extraClassPath": os.pathsep.join(map(str, jars)),
        }
    return settings | {k: v for k, v in conf.items() if k != "spark.jars"}


def _java_reason(error: Exception) -> str:
    """Return what Java said, without the ways it took: the innermost cause."""
    java = getattr(error, "java_exception", None)
    if java is None:
        return str(error) or type(error).__name__
    while java.getCause() is not None:
        java = java.getCause()
    return str(java.toString())


def start_session(*, master: str | None, jars: Sequence[Path], conf: Mapping[str, str], log_file: Path) -> Any:
    """Start Spark and return the session.

    :raises RuntimeError: a session exists in this process already.
    :raises SessionError: Spark refuses its settings, or cannot be reached.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    from pyspark.sql import SparkSession

    if SparkSession.getActiveSession() is not None:
        msg = "Spark runs in this process already; hint: use one cluster at a time, and shut it down before the next"
        raise RuntimeError(msg)
    log_file.parent.mkdir(parents=True, exist_ok=True)
    url = f"local[{_LOCAL_SLOTS},4]" if master in (None, "local[*]", "local") else master
    builder = SparkSession.builder.master(url).appName("dskype")
    for key, value in spark_settings(master=master, jars=jars, conf=conf, log_file=log_file).items():
        builder = builder.config(key, value)
    try:
        session = builder.getOrCreate()
    except Exception as error:  # py4j's errors begin with where, and end with what
        raise SessionError(explain("Spark could not be started.", given=_java_reason(error), hint=f"its log is {log_file}")) from error
    exclude_rules(session)
    return session


def jvm_exit_code(session: Any) -> int | None:
    """Return the exit code of Spark's JVM if that has ended; None while it runs, or where another process started it."""
    process = getattr(getattr(session.sparkContext, "_gateway", None), "proc", None)
    return None if process is None else process.poll()


def stop_session(session: Any) -> None:
    """Stop Spark. A JVM that has ended by itself is only forgotten, so that another session can be started: every call to it would fail."""
    if jvm_exit_code(session) is None:
        session.stop()
        return
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    SparkContext._active_spark_context = SparkContext._gateway = SparkContext._jvm = None
    SparkSession._instantiatedSession = None
