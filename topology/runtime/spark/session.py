"""The Spark session of the emulator: how it is started, and its settings with their reasons."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shlex
import shutil
import subprocess
import sys
import threading
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from pyspark import SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from dskype.topology.core.redaction import SPARK_KEYS, redact_text
from dskype.topology.errors import TopologyError
from dskype.topology.runtime.processes.executor_log import write_log
from dskype.topology.runtime.transport.wire import KERNELS_VARIABLE, SAFE_PATH_OF_WORKERS, SAFE_PATH_VARIABLE

__all__ = ["SessionError", "archive_options", "end_jvm", "jvm_exit_code", "jvm_process", "network_warning", "spark_settings", "start_session", "stop_session"]


log = logging.getLogger(__name__)


class SessionError(TopologyError):
    """Spark could not be started."""


_LOCAL_SLOTS = 512
"""Task slots in local mode; more than cores, because tasks mostly wait for records. A real-time query has one for each partition."""

_NEVER_MS = 100 * 365 * 24 * 3_600_000

_JAVA_OPTIONS, _CLASS_PATH = "spark.driver.extraJavaOptions", "spark.driver.extraClassPath"
_COLLECTOR = re.compile(r"-XX:\+Use\w*GC\b")
_PATHS = ("spark.jars", "spark.files", "spark.archives", "spark.submit.pyFiles")

_MODULES = b"WARNING: Using incubator modules"

_LOG4J = Path(__file__).with_name("log4j2.properties")

_SETTINGS = {
    # Plans are small and change with every batch, so interpreting them is faster than compiling them.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    # No user interface shows them, so they are not recorded.
    "spark.sql.maxPlanStringLength": "0",
    "spark.sql.ui.explainMode": "simple",
    "spark.sql.debug.maxToStringFields": "1",
    "spark.sql.streaming.numRecentProgressUpdates": "20",
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.sql.streaming.kafka.useDeprecatedOffsetFetching": "true",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.eventLog.enabled": "false",
    # Options of Kafka's clients are part of plans: Spark must redact the same keys in them as we do.
    "spark.redaction.regex": SPARK_KEYS,
    # Hadoop's default forks chmod for every file.
    "spark.sql.streaming.checkpointFileManagerClass": "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager",
    # Two simultaneous attempts of one task would only make work for each other.
    "spark.speculation": "false",
    # Idle queries in micro-batches look for records so often; they look at once after a batch.
    "spark.sql.streaming.pollingDelay": "20ms",
    # On a cluster, a task that runs elsewhere than at its executor's place fails.
    "spark.locality.wait": "30s",
    # One query's batch must not wait for another's.
    "spark.scheduler.mode": "FAIR",
    "spark.sql.session.timeZone": "UTC",
    "spark.python.worker.reuse": "true",
    # It also starts the supervisor of its host.
    "spark.python.daemon.module": "dskype.topology.runtime.processes.daemon",
}


def _absolute(path: str) -> str:
    """Return a path relative to this process's working folder as an absolute path, because Spark's JVM has another; URLs stay."""
    return path if ":" in path.split("/")[0] else os.path.abspath(path)


def archive_options(class_archive: Path | None) -> list[str]:
    """Return the options with which a JVM maps the classes of an archive.

    An archive that does not fit (other jars, another Java) is not used; nobody has to read that on a screen.
    """
    return ["-Xshare:auto"] if class_archive is None else ["-Xshare:auto", f'"-XX:SharedArchiveFile={class_archive}"', "-Xlog:cds*=error"]


def spark_settings(
    *, master: str | None, jars: Sequence[Path], conf: Mapping[str, str], log_file: Path, log_handle: int, class_archive: Path | None = None
) -> dict[str, str]:
    """Return the settings of a session. ``conf`` overrides our settings, but jars, and the driver's class path and Java options, are its and ours.

    :param master: master URL; None or ``local[*]`` runs Spark in a JVM of this process.
    :param jars: the Kafka connector.
    :param conf: the user's ``spark.*`` settings.
    :param log_file: Spark's own log; files that only the JVM needs are beside it.
    :param log_handle: of what writes the log.
    :param class_archive: classes that the JVM maps instead of parsing them; None: without.
    """
    own_java, own_classes = conf.get(_JAVA_OPTIONS, ""), conf.get(_CLASS_PATH, "")
    local = master is None or master.startswith("local")
    settings = dict(_SETTINGS)
    conf = dict(conf) | {key: ",".join(map(_absolute, filter(None, conf[key].split(",")))) for key in _PATHS if key in conf}
    settings["spark.jars"] = ",".join([*filter(None, conf.get("spark.jars", "").split(",")), *map(str, jars)])
    java = [*archive_options(class_archive), f"-Dlog4j2.configurationFile={_LOG4J.as_uri()}", f"-Ddskype.spark.log=/dev/fd/{log_handle}"]
    # Python workers start in a folder that may be anybody's (that of the caller, of a Spark worker): modules that lie there are not imported.
    settings[f"spark.executorEnv.{SAFE_PATH_VARIABLE}"] = os.environ.get(SAFE_PATH_VARIABLE) or SAFE_PATH_OF_WORKERS
    if not local and (kernels := os.environ.get("NUMBA_CACHE_DIR")):
        settings[f"spark.executorEnv.{KERNELS_VARIABLE}"] = kernels
    if local:
        if not _COLLECTOR.search(own_java):
            java.append("-XX:+UseSerialGC")  # on two cores, a parallel collector is not worth it
        # Spark creates its folder "artifacts" in the second one. A folder may have a space in its name.
        java += [f'"-D{name}={scratch_of(log_file)}"' for name in ("java.io.tmpdir", "user.dir")]
        settings |= {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.memory": "1g",
            # This JVM is the only executor. If it stands still for longer than spark.network.timeout, Spark would give it up, and end it ten minutes later.
            "spark.storage.blockManagerHeartbeatTimeoutMs": str(_NEVER_MS),
            "spark.local.dir": str(scratch_of(log_file) / "local"),
            "spark.sql.warehouse.dir": (scratch_of(log_file) / "warehouse").as_uri(),
        }
    settings |= {k: v for k, v in conf.items() if k != "spark.jars"}
    settings[_JAVA_OPTIONS] = " ".join(filter(None, [*java, own_java]))  # of two options of the same name Java takes the last one
    settings[_CLASS_PATH] = os.pathsep.join(filter(None, [*map(str, jars), own_classes]))  # it must begin with that of the archive
    return settings


def _java_reason(error: Exception) -> str:
    """Return the innermost cause of a Java exception as text."""
    java = getattr(error, "java_exception", None)
    if java is None:
        return str(error) or type(error).__name__
    while java.getCause() is not None:
        java = java.getCause()
    return str(java.toString())


def scratch_of(log_file: Path) -> Path:
    """Return the folder for files that only Spark's running JVM needs. It is beside the log, and is removed with that folder, or at the next start there."""
    return log_file.absolute().parent / "jvm"


def _make_scratch(log_file: Path) -> None:
    """Make an empty scratch folder. A JVM that was killed leaves files there, and may still write some while it ends."""
    shutil.rmtree(scratch_of(log_file), ignore_errors=True)
    scratch_of(log_file).mkdir(parents=True, mode=0o700, exist_ok=True)


def start_session(
    *,
    master: str | None,
    jars: Sequence[Path],
    conf: Mapping[str, str],
    log_file: Path,
    class_archive: Path | None = None,
    meanwhile: Callable[[], None] = lambda: None,
) -> Any:
    """Start Spark and return the session. The other parameters are those of :func:`spark_settings`.

    :param meanwhile: called while the JVM starts, which takes a second or two of waiting: for imports.
    :raises RuntimeError: a session exists in this process already.
    :raises SessionError: Spark refuses its settings, or cannot be reached.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if SparkSession.getActiveSession() is not None:
        msg = "Spark already runs in this process; hint: use one cluster at a time, and shut it down before the next"
        raise RuntimeError(msg)
    _make_scratch(log_file)
    url = f"local[{_LOCAL_SLOTS},4]" if master in (None, "local[*]", "local") else master
    try:
        # The log is written without secrets; Spark's own redaction knows fewer of them.
        with _read_by("dskype-spark-log", lambda end: write_log(end, log_file)) as handle, ThreadPoolExecutor(1, "dskype-jvm") as beside:
            settings: dict[str, Any] = {
                "spark.master": url,
                "spark.app.name": "dskype",
                **spark_settings(master=master, jars=jars, conf=conf, log_file=log_file, class_archive=class_archive, log_handle=handle),
            }
            launched = beside.submit(_launch, settings, log_file.parent, handle)
            meanwhile()
            launched.result()
    except PySparkRuntimeError:  # the JVM ended at once, perhaps because of a damaged archive: the next start does without
        if class_archive is not None:
            class_archive.unlink(missing_ok=True)
        raise
    try:
        session = SparkSession.builder.config(map=settings).getOrCreate()
    except Exception as error:  # py4j raises errors of many kinds
        raise SessionError("Spark could not be started.", given=redact_text(_java_reason(error)), hint=f"its log is {log_file}") from error
    if url.startswith("local"):
        threading.Thread(target=_start_supervisor, args=(session.sparkContext,), name="first supervisor", daemon=True).start()
    return session


def _start_supervisor(context: Any) -> None:
    """Let Spark's Python daemon and the supervisor of this host start while the driver makes topics and queries, which would wait for them."""
    try:
        context._jvm.dskype.spark.ExecutorWriter.supervisorPath(context.pythonExec, context.environment, None)
    except Exception as error:  # py4j raises errors of many kinds; the first executor tries again, and tells what is wrong
        log.info("no supervisor was started ahead: %s", error)


def jvm_process(session: Any) -> Any:
    """Return the process of Spark's JVM; None if another process started it."""
    return getattr(getattr(session.sparkContext, "_gateway", None), "proc", None)


def jvm_exit_code(session: Any) -> int | None:
    """Return the exit code of Spark's JVM if it has ended; None while it runs, or if another process started it."""
    process = jvm_process(session)
    return None if process is None else process.poll()


def stop_session(session: Any) -> None:
    """Stop Spark. If the JVM has already ended, every call to it would fail, so only forget it; another session can then be started."""
    if jvm_exit_code(session) is None:
        session.stop()
    else:
        _forget_jvm()


def end_jvm(timeout_s: float = 10) -> None:
    """End Spark's JVM after the last session, and wait for it; without this it ends some time after this process."""
    process = getattr(SparkContext._gateway, "proc", None)
    _forget_jvm()
    if process is not None:
        process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout_s)


def _forget_jvm() -> None:
    """Let another JVM be started."""
    SparkContext._active_spark_context = SparkContext._gateway = SparkContext._jvm = None
    SparkSession._instantiatedSession = None


def _launch(settings: Mapping[str, str], folder: Path, log_handle: int) -> None:
    """Start Spark's JVM, if this process has none, with its settings in a file that only its owner can read.

    PySpark would put them on the command line, where every user of the machine can see them. The file is removed once the JVM has read it.
    Its name stays on the command line, which identifies the JVM if this process is killed.
    """
    if SparkContext._gateway is not None or "PYSPARK_GATEWAY_PORT" in os.environ:
        return
    for key in ("spark.driver.extraJavaOptions", "spark.driver.defaultJavaOptions", "spark.executor.extraJavaOptions", "spark.executor.defaultJavaOptions"):
        if redact_text(settings.get(key, "")) != settings.get(key, ""):
            raise TopologyError(
                "Options of a JVM are on its command line, which every user of the machine can see, so they must not hold a secret.",
                given=key,
                hint="set them in the environment variable JDK_JAVA_OPTIONS",
            )
    file = folder / "spark.properties"
    file.unlink(missing_ok=True)
    try:
        with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as out:
            out.writelines(f"{_escaped(k)}={_escaped(v)}\n" for k, v in settings.items())
        with _submit_arguments("--properties-file", str(file), "--load-spark-defaults"), _read_by("dskype-jvm-errors", _pass_on) as error:
            # Only the owner may read what the JVM and its Python workers write: snapshots, checkpoints, logs.
            SparkContext._ensure_initialized(gateway=launch_gateway(None, {"umask": 0o077, "stderr": error, "pass_fds": [log_handle]}))
    finally:
        file.unlink(missing_ok=True)


@contextlib.contextmanager
def _read_by(name: str, read: Callable[[int], None]) -> Iterator[int]:
    """Yield a handle for a JVM to write to; a thread of this name reads it to its end."""
    end, write = os.pipe()

    def run() -> None:
        try:
            read(end)
        finally:
            os.close(end)

    reader = threading.Thread(target=run, name=name, daemon=True)
    reader.start()
    try:
        yield write
    except BaseException:
        os.close(write)
        reader.join(timeout=1)  # what a JVM says that has ended at once comes before our own words
        raise
    os.close(write)


def _pass_on(end: int) -> None:
    """Pass on a JVM's standard error, except for the line about modules that Spark's JVM always begins with."""
    with open(end, "rb", closefd=False) as lines:
        for line in lines:
            if not line.startswith(_MODULES):
                with contextlib.suppress(OSError):  # nobody reads our output any more; the JVM must not wait for that
                    os.write(2, redact_text(line.decode(errors="backslashreplace")).encode())


@contextlib.contextmanager
def _submit_arguments(*ours: str) -> Iterator[None]:
    """Insert arguments into PYSPARK_SUBMIT_ARGS, behind the user's and before the last one."""
    before = os.environ.get("PYSPARK_SUBMIT_ARGS") or "pyspark-shell"  # as in PySpark
    users = shlex.split(before)
    os.environ["PYSPARK_SUBMIT_ARGS"] = shlex.join([*users[:-1], *ours, *users[-1:]])
    try:
        yield
    finally:
        os.environ["PYSPARK_SUBMIT_ARGS"] = before


def _escaped(text: str) -> str:
    """Return a key or value in the syntax of Java's ``.properties`` files."""
    units = array("H", text.encode(f"utf-16-{sys.byteorder[0]}e"))  # as in Java
    return "".join(chr(unit) if unit < 128 and chr(unit).isalnum() else f"\\u{unit:04x}" for unit in units)


def network_warning(master: str | None, spark: Mapping[str, Any], kafka: Mapping[str, Any]) -> str | None:
    """Return a warning if the connection to Kafka is secured and those between Spark's processes are not; otherwise None.

    :param spark: the ``spark.*`` settings.
    :param kafka: the ``kafka.*`` settings.
    """
    protocol = str(kafka.get("kafka.security.protocol", "PLAINTEXT")).upper()
    if protocol == "PLAINTEXT" or master is None or master.startswith("local"):
        return None

    def on(key: str) -> bool:
        return str(spark.get(key, "false")).lower() == "true"

    missing = [] if on("spark.authenticate") else ["spark.authenticate=true (who may join)"]
    if protocol.endswith("SSL") and not (on("spark.network.crypto.enabled") or on("spark.ssl.rpc.enabled")):
        missing.append("spark.network.crypto.enabled=true or spark.ssl.rpc.enabled=true (who may read)")
    if not missing:
        return None
    return (
        f"the connection to Kafka is secured by {protocol}, but those between Spark's processes, which carry Kafka's passwords, are not; "
        f"hint: set {' and '.join(missing)}"
    )
