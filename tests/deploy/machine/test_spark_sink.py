"""The sink of Spark's real-time queries: compiled once for each source and version of Spark, without a JDK."""

from __future__ import annotations

import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from dskype.deploy.machine import spark_sink

JARS = [Path("/jars/spark-1/a.jar")]


@pytest.fixture
def compiler(tmp_home: Path, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Stand in for the compiler, and count what it does."""
    found = SimpleNamespace(runs=0)

    def compiled(source: str) -> dict[str, bytes]:
        found.runs += 1
        return {"a.B": source.encode(), "a.B$C": b"c"}

    monkeypatch.setattr(spark_sink, "_compile", compiled)
    monkeypatch.setattr(spark_sink.jars, "spark_jars", lambda progress: JARS)
    return found


def test_it_is_compiled_once_for_each_source_and_version_of_spark(compiler, tmp_path, monkeypatch):
    said: list[str] = []
    first, again = spark_sink.spark_class_path(said.append), spark_sink.spark_class_path(said.append)
    assert first == again and first[:-1] == JARS and compiler.runs == len(said) == 1
    with zipfile.ZipFile(first[-1]) as jar:
        assert sorted(jar.namelist()) == ["a/B$C.class", "a/B.class"]
    source = tmp_path / "B.java"
    source.write_text("class B {}")
    monkeypatch.setattr(spark_sink, "SOURCE", source)
    assert spark_sink.spark_class_path()[-1] != first[-1] and compiler.runs == 2
    monkeypatch.setattr(spark_sink.jars, "spark_version", lambda: "another")
    assert spark_sink.spark_class_path()[-1].exists() and compiler.runs == 3


def test_few_are_kept(compiler, monkeypatch):
    for n in range(8):
        monkeypatch.setattr(spark_sink.jars, "spark_version", lambda n=n: str(n))
        newest = spark_sink.spark_class_path()[-1]
    assert len(list(newest.parent.glob("*.jar"))) == 5 and newest.exists()


@pytest.mark.product
def test_sparks_own_compiler_takes_the_source():
    assert set(spark_sink._compile(spark_sink.SOURCE.read_text())) == {"dskype.spark.ExecutorWriter", "dskype.spark.ExecutorWriter$Watcher"}
