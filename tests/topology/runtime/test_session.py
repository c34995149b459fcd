"""What Spark's JVM leaves behind when it is killed, and its settings."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

from dskype.topology.runtime.queries import ComponentQuery
from dskype.topology.runtime.session import scratch_of, spark_settings

from .helpers import alive, descendants, wait_for

REPOSITORY = Path(__file__).parents[3]


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_a_killed_jvm_leaves_its_files_in_its_folder_alone_and_the_next_start_there_removes_them(tmp_path):
    temp, work, folder = (tmp_path / name for name in ("temp", "work", "folder"))
    for path in (temp, work):
        path.mkdir()
    environment = {**os.environ, "TMPDIR": str(temp), "PYTHONPATH": os.pathsep.join([str(REPOSITORY), os.environ.get("PYTHONPATH", "")])}
    program = subprocess.Popen(
        [sys.executable, "-m", "tests.topology.runtime.session_program", str(folder)], cwd=work, env=environment, stdout=subprocess.PIPE, text=True
    )
    try:
        jvm = int(program.stdout.readline())
        tree = descendants(program.pid)
        assert jvm in tree
        os.kill(jvm, signal.SIGKILL)
        program.kill()
        program.wait()
        wait_for(lambda: not alive(tree), 120, f"the end of all processes of {tree}")
    finally:
        program.kill()
        program.stdout.close()
    assert names(work) == set()
    assert not {name for name in names(temp) if name.startswith(("blockmgr", "spark", "liblz4", "artifacts", "hsperf"))}, names(temp)
    scratch = scratch_of(folder / "logs" / "spark.log")
    assert names(scratch), "(Spark needs some such files)"
    assert folder in scratch.parents


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
    assert f'"-Djava.io.tmpdir={tmp_path}/a b/jvm"' in settings["spark.driver.extraJavaOptions"]


def test_components_with_similar_names_have_checkpoints_of_their_own(tmp_path):
    names = ("a.b", "a_b", "a b", "a_x2eb", "é")
    context = SimpleNamespace(scratch=tmp_path, epoch=7)
    assert len({ComponentQuery(context, name, {})._checkpoint for name in names}) == len(names)
    assert {ComponentQuery(context, name, {})._checkpoint.parent for name in names} == {tmp_path / "7"}
