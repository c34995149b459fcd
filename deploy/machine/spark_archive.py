"""The class archive of the driver's JVM, which runs Spark: with it, the JVM maps the classes that a topology needs instead of parsing them.

That saves half of the processor time of a start of Spark. The archive is written once, by a JVM that has run a small topology:
``python -m dskype.deploy.machine.spark_archive``.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from dskype.deploy.machine import jars, paths
from dskype.deploy.machine.java import find_java
from dskype.deploy.machine.processes import module_command
from dskype.deploy.machine.spark_classes import spark_class_path

__all__ = ["archive_path", "existing_archive", "write_archive"]

_MOST = 3
"""Archives that are kept, those that were used last. Every environment with a PySpark of its own has one, of 150 MB."""

_LONGEST_S = 900
"""A busy machine compiles kernels meanwhile."""


def archive_path(spark_jars: Sequence[Path]) -> Path:
    """Return where the archive belongs. Its name depends on Java, and on the place of Spark, of the Kafka connector and of the sink; their folders' names have versions.

    :param spark_jars: Spark's class path.
    """
    java, folder, own = find_java(), spark_jars[0].parent.resolve(), spark_jars[-1]
    parts = (java.path.resolve(), java.version, jars.spark_home(), jars.spark_version(), folder, own.parent.resolve() / own.name)
    return paths.class_archives_dir() / f"spark-{hashlib.sha256(' '.join(map(str, parts)).encode()).hexdigest()[:12]}.jsa"


def existing_archive(spark_jars: Sequence[Path]) -> Path | None:
    """Return the archive, or None if it was not written.

    :param spark_jars: Spark's class path.
    """
    archive = archive_path(spark_jars)
    if not archive.exists():
        return None
    with contextlib.suppress(OSError):  # another user's, or gone meanwhile
        os.utime(archive)  # those that are used are kept
    return archive


def write_archive(report: Callable[[str], None]) -> bool:
    """Write the archive unless it exists; return whether there is one. Without it, Spark starts more slowly, and nothing else changes.

    :param report: gets one line of text per step.
    """
    archive = archive_path(spark_class_path(report))
    if archive.exists():
        return True
    report("writing the class archive of Spark, once")
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="training-", dir=archive.parent) as temp:
        written = Path(temp) / archive.name
        options = " ".join([os.environ.get("SPARK_SUBMIT_OPTS", ""), "-XX:TieredStopAtLevel=1", f"-XX:ArchiveClassesAtExit={written}", "-Xlog:cds*=error"])
        environ = {**os.environ, "SPARK_SUBMIT_OPTS": options.strip(), paths.HOME_VARIABLE: str(paths.home())}
        late = False
        try:
            subprocess.run(
                module_command(__name__),
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=_LONGEST_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            late = True
        if not written.exists():  # not every JVM can do it
            why = f"the class archive of Spark was not written within {_LONGEST_S} s" if late else "this Java wrote no class archive"
            report(f"{why}; Spark starts without it")
            return False
        os.replace(written, archive)
    for old in sorted(archive.parent.glob("spark-*.jsa"), key=lambda file: file.stat().st_mtime)[:-_MOST]:
        old.unlink(missing_ok=True)
    return True


def _train() -> None:
    """Run a small topology, and end Spark's JVM in peace: it writes the archive when it ends."""
    from dskype.topology.builder import TopologyBuilder
    from dskype.topology.fields import Fields
    from dskype.topology.local import LocalCluster
    from dskype.topology.runtime.spark.session import end_jvm
    from dskype.topology.testing import TestWordCounter, TestWordSpout

    builder = TopologyBuilder()
    builder.set_spout("words", TestWordSpout())
    builder.set_bolt("count", TestWordCounter()).fields_grouping("words", Fields("word"))
    with LocalCluster() as cluster, cluster.submit_topology("training", {}, builder.create_topology()) as topology:
        topology.backend.wait_until(lambda stats: stats.total("count", "executed") > 0, _LONGEST_S / 2, "the first tuple")
    end_jvm(_LONGEST_S / 2)


if __name__ == "__main__":
    _train()
