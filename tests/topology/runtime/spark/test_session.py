"""The settings of a Spark session."""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from dskype.topology.runtime.spark import session
from dskype.topology.runtime.spark.component_query import ComponentQuery
from dskype.topology.runtime.spark.session import spark_settings


def test_paths_of_the_user_are_seen_from_the_users_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    settings = spark_settings(
        master=None,
        jars=[Path("/ours.jar")],
        conf={"spark.jars": "mine.jar,hdfs://x/y.jar", "spark.files": "a.txt", "spark.x": "a.txt"},
        log_file=tmp_path / "a b" / "spark.log",
        log_handle=7,
    )
    assert settings["spark.jars"] == f"{tmp_path}/mine.jar,hdfs://x/y.jar,/ours.jar"
    assert (settings["spark.files"], settings["spark.x"]) == (f"{tmp_path}/a.txt", "a.txt")
    for option in (f"-Djava.io.tmpdir={tmp_path}/a b/jvm", f"-Duser.dir={tmp_path}/a b/jvm"):
        assert f'"{option}"' in settings["spark.driver.extraJavaOptions"]


@pytest.mark.parametrize("master", [None, "spark://host:7077"])
def test_the_users_java_options_and_classes_come_behind_ours(tmp_path, master):
    user = {"spark.driver.extraJavaOptions": "-Duser.timezone=UTC", "spark.driver.extraClassPath": "/mine.jar"}
    ours, both = (spark_settings(master=master, jars=[Path("/ours.jar")], conf=conf, log_file=tmp_path / "spark.log", log_handle=7) for conf in ({}, user))
    assert both["spark.driver.extraJavaOptions"] == ours["spark.driver.extraJavaOptions"] + " -Duser.timezone=UTC"
    assert both["spark.driver.extraClassPath"] == "/ours.jar:/mine.jar" and {**both, **{key: ours[key] for key in user}} == ours


def test_java_gets_one_garbage_collector(tmp_path):
    for options, ours in (("-XX:+UseG1GC", False), ("-XX:+UseCompressedOops", True)):
        settings = spark_settings(master=None, jars=[], conf={"spark.driver.extraJavaOptions": options}, log_file=tmp_path / "spark.log", log_handle=7)
        assert ("UseSerialGC" in settings["spark.driver.extraJavaOptions"]) == ours


@pytest.mark.parametrize(("master", "only_one"), [(None, True), ("local[*]", True), ("local[4]", True), ("spark://host:7077", False)])
def test_spark_never_gives_up_its_only_executor_because_it_stood_still(tmp_path, master, only_one):
    settings = spark_settings(master=master, jars=[], conf={}, log_file=tmp_path / "spark.log", log_handle=7)
    limit_ms = settings.get("spark.storage.blockManagerHeartbeatTimeoutMs")  # HeartbeatReceiver takes spark.network.timeout without it
    assert (limit_ms is not None) == only_one
    assert not only_one or int(limit_ms) > 10 * 365 * 24 * 3_600_000  # a suspended machine wakes up earlier


def test_components_with_similar_names_have_checkpoints_of_their_own(tmp_path):
    names = ("a.b", "a_b", "a b", "a_x2eb", "é")
    context = SimpleNamespace(scratch=tmp_path, common=SimpleNamespace(epoch=7))
    checkpoints = {ComponentQuery(context, name, {}, real_time=True)._checkpoint for name in names}
    assert len(checkpoints) == len(names) and {checkpoint.parent for checkpoint in checkpoints} == {tmp_path / "7"}


@pytest.mark.long
def test_a_jvm_that_still_writes_while_it_ends_is_no_reason_not_to_start(tmp_path):
    log, over = tmp_path / "logs" / "spark.log", threading.Event()
    left = session.scratch_of(log) / "local"

    def write():
        while not over.is_set():
            with contextlib.suppress(OSError):
                left.mkdir(parents=True, exist_ok=True)
                (left / "block").touch()

    dying = threading.Thread(target=write)
    dying.start()
    try:
        for _ in range(300):
            session._make_scratch(log)
            assert session.scratch_of(log).is_dir()
    finally:
        over.set()
        dying.join()
    session._make_scratch(log)
    assert list(session.scratch_of(log).iterdir()) == []
