"""The class archive of Spark's JVM: where it is, when it is written, and that Spark also starts without it (without Spark)."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest
from pyspark.errors import PySparkRuntimeError

from dskype.deploy.machine import spark_archive
from dskype.topology.runtime.spark import session

JARS = [Path("/jars/spark-1/a.jar")]


@pytest.fixture
def training(tmp_home: Path, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Stand in for the process that trains; ``works`` tells whether its JVM can write an archive."""
    found = SimpleNamespace(works=True, runs=0)

    def run(command: list[str], *, env: dict[str, str], **options: object) -> None:
        found.runs += 1
        (written,) = [o.partition("=")[2] for o in shlex.split(env["SPARK_SUBMIT_OPTS"]) if o.startswith("-XX:ArchiveClassesAtExit")]
        assert not Path(written).exists() and Path(written).parent.is_dir()
        if found.works:
            Path(written).write_bytes(b"classes")

    monkeypatch.setattr(spark_archive.subprocess, "run", run)
    monkeypatch.setattr(spark_archive, "spark_class_path", lambda report: JARS)
    return found


def test_it_is_written_once(training: SimpleNamespace) -> None:
    said: list[str] = []
    assert spark_archive.existing_archive(JARS) is None
    assert spark_archive.write_archive(said.append) and spark_archive.write_archive(said.append)
    archive = spark_archive.existing_archive(JARS)
    assert archive is not None and archive.read_bytes() == b"classes"
    assert training.runs == 1 and said == ["writing the class archive of Spark, once"]
    assert list(archive.parent.iterdir()) == [archive]


def test_other_jars_have_another_one_and_the_oldest_are_removed(training: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    written = []
    for n in range(5):
        monkeypatch.setattr(spark_archive, "spark_class_path", lambda report, n=n: [Path(f"/jars/spark-{n}/a.jar")])
        assert spark_archive.write_archive(lambda text: None)
        written.append(spark_archive.archive_path([Path(f"/jars/spark-{n}/a.jar")]))
        os.utime(written[-1], (n, n))
    assert len(set(written)) == 5
    assert sorted(written[0].parent.iterdir()) == sorted(written[2:])


def test_one_that_is_used_is_kept_longer_than_one_that_was_written_later(training: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    jars = [[Path(f"/jars/spark-{n}/a.jar")] for n in range(4)]
    for n, one in enumerate(jars):
        monkeypatch.setattr(spark_archive, "spark_class_path", lambda report, one=one: one)
        if n == 3:
            assert spark_archive.existing_archive(jars[0]) is not None
        assert spark_archive.write_archive(lambda text: None)
        if n < 3:
            os.utime(spark_archive.archive_path(one), (n, n))
    assert [spark_archive.existing_archive(one) is not None for one in jars] == [True, False, True, True]


def test_a_java_that_cannot_write_it_is_no_error(training: SimpleNamespace) -> None:
    training.works, said = False, []
    assert not spark_archive.write_archive(said.append)
    assert "starts without it" in said[-1] and spark_archive.existing_archive(JARS) is None


def test_a_home_with_links_to_the_folders_of_another_has_its_archive(training: SimpleNamespace, tmp_path: Path) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    real.mkdir()
    link.symlink_to(real)
    there, linked = ([folder / "a.jar", folder / "own.jar"] for folder in (real, link))
    assert spark_archive.archive_path(linked) == spark_archive.archive_path(there) != spark_archive.archive_path([tmp_path / "a.jar", tmp_path / "own.jar"])


def test_a_driver_maps_it_wherever_its_workers_are(tmp_path: Path) -> None:
    def options(master: str | None, archive: Path | None) -> str:
        settings = session.spark_settings(master=master, jars=JARS, conf={}, log_file=tmp_path / "spark.log", log_handle=7, class_archive=archive)
        return settings["spark.driver.extraJavaOptions"]

    archive = tmp_path / "a b.jsa"
    for master in (None, "spark://a:7077"):
        assert f"-XX:SharedArchiveFile={archive}" in shlex.split(options(master, archive))
        assert "SharedArchive" not in options(master, None)


def test_one_with_which_the_jvm_ends_at_once_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def launch(*_: object) -> None:
        raise PySparkRuntimeError(errorClass="JAVA_GATEWAY_EXITED", messageParameters={})

    monkeypatch.setattr(session, "_launch", launch)
    monkeypatch.setattr(session.SparkSession, "getActiveSession", lambda: None)
    archive = tmp_path / "a.jsa"
    archive.touch()
    with pytest.raises(PySparkRuntimeError):
        session.start_session(master=None, jars=JARS, conf={}, log_file=tmp_path / "logs" / "spark.log", class_archive=archive)
    assert not archive.exists()


def test_a_training_that_takes_too_long_is_not_blamed_on_java(training: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(command: list[str], **options: object) -> None:
        raise subprocess.TimeoutExpired(command, spark_archive._LONGEST_S)

    monkeypatch.setattr(spark_archive.subprocess, "run", run)
    said: list[str] = []
    assert not spark_archive.write_archive(said.append)
    assert said[-1] == "the class archive of Spark was not written within 900 s; Spark starts without it"
