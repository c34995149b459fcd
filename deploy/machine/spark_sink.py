"""Spark's class path: the Kafka connector, and the sink of real-time queries, which is compiled here once for each version of its source and of Spark."""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path

from dskype.deploy.machine import jars, paths
from dskype.topology.runtime import real_time

__all__ = ["spark_class_path"]

SOURCE = Path(real_time.__file__).with_name("ExecutorWriter.java")
_MOST = 5
"""Compiled sinks that are kept, for other checkouts."""


def spark_class_path(report: Callable[[str], None] = lambda text: None) -> list[Path]:
    """Return the jars for ``spark.jars``, checked; fetch and compile what is missing.

    :param report: gets one line of text per step.
    """
    return [*jars.spark_jars(lambda p: report(str(p))), _sink(report)]


def _sink(report: Callable[[str], None]) -> Path:
    """Return the jar of the sink. Its name has a checksum of the source and Spark's version."""
    source = SOURCE.read_bytes()
    folder = paths.home() / "sink"
    jar = folder / f"{hashlib.sha256(source + jars.spark_version().encode()).hexdigest()[:16]}.jar"
    if jar.exists():
        return jar
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not jar.exists():
            report("compiling the sink of Spark's queries, once")
            classes = _compile(source.decode())
            part = folder / f"{jar.name}.part"
            with zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED) as out:
                for name, code in classes.items():
                    out.writestr(name.replace(".", "/") + ".class", code)
            os.replace(part, jar)
            for old in sorted(folder.glob("*.jar"), key=lambda file: file.stat().st_mtime)[:-_MOST]:
                old.unlink(missing_ok=True)
    return jar


def _compile(source: str) -> dict[str, bytes]:
    """Return the classes of a source, by name. Janino compiles it, which Spark has among its jars for its own plans: no JDK is needed."""
    from pyspark.java_gateway import launch_gateway

    gateway = launch_gateway(None, {"stderr": subprocess.DEVNULL, "stdout": subprocess.DEVNULL})
    try:
        compiler = gateway.jvm.org.codehaus.janino.SimpleCompiler()
        compiler.cook(source)
        found = compiler.getBytecodes()
        return {str(name): bytes(found[name]) for name in found}
    finally:
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait()
