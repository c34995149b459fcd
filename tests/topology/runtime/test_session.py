"""The settings of a Spark session."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

from dskype.topology.runtime.queries import ComponentQuery
from dskype.topology.runtime.session import spark_settings


def test_paths_of_the_user_are_seen_from_the_users_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    settings = spark_settings(
        master=None,
        jars=[Path("/ours.jar")],
        conf={"spark.jars": "mine.jar,hdfs://x/y.jar", "spark.files": "a.txt", "spark.x": "a.txt"},
        log_file=tmp_path / "a b" / "spark.log",
    )
    assert settings["spark.jars"] == f"{tmp_path}/mine.jar,hdfs://x/y.jar,/ours.jar"
    assert (settings["spark.files"], settings["spark.x"]) == (f"{tmp_path}/a.txt", "a.txt")
    for option in (f"-Djava.io.tmpdir={tmp_path}/a b/jvm", f"-Ddskype.spark.log={tmp_path}/a b/spark.log"):
        assert f'"{option}"' in settings["spark.driver.extraJavaOptions"]


def test_components_with_similar_names_have_checkpoints_of_their_own(tmp_path):
    names = ("a.b", "a_b", "a b", "a_x2eb", "é")
    context = SimpleNamespace(scratch=tmp_path, epoch=7)
    assert len({ComponentQuery(context, name, {})._checkpoint for name in names}) == len(names)
    assert {ComponentQuery(context, name, {})._checkpoint.parent for name in names} == {tmp_path / "7"}
