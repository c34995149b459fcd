"""Spark's class path: the Kafka connector, and our classes for real-time queries, which are compiled here once for each version of their sources and of Spark."""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

from dskype.deploy.machine import jars, paths
from dskype.topology.runtime import spark

__all__ = ["spark_class_path"]

SOURCES = tuple(sorted(Path(spark.__file__).parent.glob("*.java")))
_MOST = 5
"""Jars that are kept, for other checkouts."""


def spark_class_path(report: Callable[[str], None] = lambda text: None) -> list[Path]:
    """Return the jars for ``spark.jars``, checked; fetch and compile what is missing.

    :param report: gets one line of text per step.
    """
    connector = jars.spark_jars(lambda p: report(str(p)))
    return [*connector, _own_jar(connector, report)]


def _own_jar(connector: Sequence[Path], report: Callable[[str], None]) -> Path:
    """Return the jar of our classes. Its name has a checksum of the sources and Spark's version."""
    sources = [file.read_bytes() for file in SOURCES]
    folder = paths.spark_classes_dir()
    jar = folder / f"{hashlib.sha256(b''.join(sources) + jars.spark_version().encode()).hexdigest()[:16]}.jar"
    if jar.exists():
        return jar
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not jar.exists():
            report("compiling source and sink of Spark's queries, once")
            classes = _compile([source.decode() for source in sources], connector)
            part = folder / f"{jar.name}.part"
            with zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED) as out:
                for name, code in classes.items():
                    out.writestr(name.replace(".", "/") + ".class", code)
            os.replace(part, jar)
            for old in sorted(folder.glob("*.jar"), key=lambda file: file.stat().st_mtime)[:-_MOST]:
                old.unlink(missing_ok=True)
    return jar


def _compile(sources: Sequence[str], connector: Sequence[Path]) -> dict[str, bytes]:
    """Return the classes of some sources, by name. Janino compiles them, which Spark has among its jars for its own plans: no JDK is needed."""
    from pyspark import SparkConf
    from pyspark.java_gateway import launch_gateway

    conf = SparkConf(loadDefaults=False).set("spark.driver.extraClassPath", os.pathsep.join(map(str, connector)))
    gateway = launch_gateway(conf, {"stderr": subprocess.DEVNULL, "stdout": subprocess.DEVNULL})
    classes: dict[str, bytes] = {}
    try:
        for source in sources:
            compiler = gateway.jvm.org.codehaus.janino.SimpleCompiler()
            compiler.cook(source)
            found = compiler.getBytecodes()
            classes |= {str(name): bytes(found[name]) for name in found}
    finally:
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait()
    return classes
