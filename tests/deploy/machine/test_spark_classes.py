"""Our classes for Spark's real-time queries: compiled once for each version of their sources and of Spark, without a JDK."""

from __future__ import annotations

import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from dskype.deploy.machine import jars, spark_classes

JARS = [Path("/jars/spark-1/a.jar")]


@pytest.fixture
def compiler(tmp_home: Path, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Stand in for the compiler, and count what it does."""
    found = SimpleNamespace(runs=0)

    def compiled(sources: list[str], connector: list[Path]) -> dict[str, bytes]:
        assert connector == JARS
        found.runs += 1
        return {"a.B": sources[0].encode(), "a.B$C": b"c"}

    monkeypatch.setattr(spark_classes, "_compile", compiled)
    monkeypatch.setattr(spark_classes.jars, "spark_jars", lambda progress: JARS)
    return found


def test_it_is_compiled_once_for_each_source_and_version_of_spark(compiler, tmp_path, monkeypatch):
    said: list[str] = []
    first, again = spark_classes.spark_class_path(said.append), spark_classes.spark_class_path(said.append)
    assert first == again and first[:-1] == JARS and compiler.runs == len(said) == 1
    with zipfile.ZipFile(first[-1]) as jar:
        assert sorted(jar.namelist()) == ["a/B$C.class", "a/B.class"]
    source = tmp_path / "B.java"
    source.write_text("class B {}")
    monkeypatch.setattr(spark_classes, "SOURCES", [source])
    assert spark_classes.spark_class_path()[-1] != first[-1] and compiler.runs == 2
    monkeypatch.setattr(spark_classes.jars, "spark_version", lambda: "another")
    assert spark_classes.spark_class_path()[-1].exists() and compiler.runs == 3


def test_few_are_kept(compiler, monkeypatch):
    for n in range(8):
        monkeypatch.setattr(spark_classes.jars, "spark_version", lambda n=n: str(n))
        newest = spark_classes.spark_class_path()[-1]
    assert len(list(newest.parent.glob("*.jar"))) == 5 and newest.exists()


@pytest.mark.product
def test_sparks_own_compiler_takes_the_sources():
    found = spark_classes._compile([file.read_text() for file in spark_classes.SOURCES], jars.spark_jars())
    own = {"dskype.spark.ExecutorWriter", "dskype.spark.PlacedKafka"}
    assert own < set(found) and {name.partition("$")[0] for name in found} == own
