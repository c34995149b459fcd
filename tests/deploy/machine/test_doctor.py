"""The doctor: it finds what is wrong with a machine and says how to put it right."""

from __future__ import annotations

import json
import os
import shutil
import socket
import sys
from pathlib import Path

import pytest

from dskype.deploy.machine import doctor, jars, java, paths
from dskype.deploy.machine.broker import EmbeddedBroker
from dskype.deploy.machine.cluster_check import check_cluster
from dskype.deploy.machine.connection import Bootstrap
from dskype.deploy.machine.doctor import FAIL, OK, WARN, Row
from dskype.deploy.machine.errors import JavaError

CONNECTOR = "spark-sql-kafka-0-10_2.13"
OURS = {jar.artifact: jar.version for jar in jars.read_manifest()["spark"]}


def fake_java(folder: Path, version: str) -> Path:
    """Make a folder that looks like a Java of that version."""
    (folder / "bin").mkdir(parents=True)
    program = folder / "bin" / "java"
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    program.chmod(0o755)
    return folder


def by_check(rows: list[Row], check: str) -> Row:
    return next(r for r in rows if r.check == check)


@pytest.mark.product
def test_a_working_machine_gets_no_failure_and_its_embedded_broker_is_tried() -> None:
    jars.fetch()
    rows = doctor.run_checks(Bootstrap(None, "default"))
    assert [r for r in rows if r.status == FAIL] == []
    assert doctor.exit_code(rows) == 0
    assert "the embedded broker answered" in by_check(rows, "broker").detail
    assert {"python", "packages", "java", "spark", "jars", "duplicate jars", "home folder", "scratch folder", "numba cache", "ports", "broker"} <= {
        r.check for r in rows
    }


def test_every_row_that_is_not_ok_says_how_to_fix_it_and_the_report_is_json(tmp_home: Path, tmp_path: Path) -> None:
    env = {**os.environ, "JAVA_HOME": str(fake_java(tmp_path / "old", "11.0.2")), "NUMBA_DISABLE_JIT": "1"}
    rows = doctor.run_checks(Bootstrap(None, "default"), environ=env)
    assert [r.check for r in rows if r.status != OK and not r.fix] == []
    assert by_check(rows, "java").status == FAIL and "given: 11.0.2" in by_check(rows, "java").detail
    assert by_check(rows, "jars").status == WARN and "not in" in by_check(rows, "jars").detail
    assert by_check(rows, "numba cache").status == WARN
    assert by_check(rows, "broker").status == WARN and "was not tried, because of 'java'" in by_check(rows, "broker").detail
    assert doctor.exit_code(rows) == 1
    report = json.loads(json.dumps(doctor.as_json(rows)))
    assert report["status"] == "fail" and set(report["checks"][0]) == {"check", "status", "detail", "fix"}
    assert "FAIL  java" in doctor.as_text(rows)


def test_warnings_alone_do_not_fail() -> None:
    rows = [Row("a", OK, ""), Row("b", WARN, "", "do")]
    assert doctor.exit_code(rows) == 0 and doctor.as_json(rows)["status"] == "warn"


@pytest.mark.parametrize(
    ("version", "major", "status"), [("1.8.0_402", 8, FAIL), ("11.0.2", 11, FAIL), ("17.0.15", 17, OK), ("21", 21, OK), ("25.0.3", 25, OK), ("26-ea", 26, WARN)]
)
def test_javas_of_all_ages_are_told_apart(tmp_path: Path, version: str, major: int, status: str) -> None:
    env = {"JAVA_HOME": str(fake_java(tmp_path / "java", version))}
    assert java.locate_java(env).major == major
    rows = doctor.run_checks(Bootstrap(None, "default"), environ=env, start_broker=False)
    assert by_check(rows, "java").status == status


def test_a_java_home_without_java_and_a_path_without_java_are_named(tmp_path: Path) -> None:
    with pytest.raises(JavaError, match="JAVA_HOME must be the folder that holds bin/java, given: '/nowhere'"):
        java.locate_java({"JAVA_HOME": "/nowhere"})
    with pytest.raises(JavaError, match="given: no java on PATH and no JAVA_HOME"):
        java.locate_java({"PATH": str(tmp_path)})


def test_proxy_settings_reach_java() -> None:
    flags = java.proxy_flags({"HTTPS_PROXY": "http://u:p@proxy.example:3128", "no_proxy": "localhost,.example.org"})
    assert flags == ["-Dhttps.proxyHost=proxy.example", "-Dhttps.proxyPort=3128", "-Dhttp.nonProxyHosts=localhost|*.example.org"]
    assert java.proxy_flags({}) == []


@pytest.mark.parametrize(
    ("name", "status"),
    [
        (f"kafka-clients-{OURS['kafka-clients']}.jar", WARN),
        ("kafka-clients-2.8.0.jar", FAIL),
        ("spark-sql-kafka-0-10_2.12-3.5.0.jar", FAIL),
        (f"{CONNECTOR}-{OURS[CONNECTOR]}.jar", WARN),
        ("my-own-1.0.jar", OK),
    ],
)
def test_a_second_connector_in_sparks_own_folder_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, status: str) -> None:
    (tmp_path / "jars").mkdir()
    for original in (jars.spark_home() / "jars").glob("s*-[cl]*_2.13-*.jar"):
        (tmp_path / "jars" / original.name).touch()
    (tmp_path / "jars" / next((jars.spark_home() / "jars").glob("scala-library-*.jar")).name).touch()
    (tmp_path / "jars" / name).touch()
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    row = by_check(doctor.run_checks(Bootstrap(None, "default"), start_broker=False), "duplicate jars")
    assert row.status == status
    assert status == OK or (name in row.detail and name in row.fix)


def test_another_spark_in_spark_home_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "jars").mkdir()
    for name in ("spark-core_2.13-3.5.0.jar", "scala-library-2.13.8.jar"):
        (tmp_path / "jars" / name).touch()
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    row = by_check(doctor.run_checks(Bootstrap(None, "default"), start_broker=False), "spark")
    assert row.status == FAIL and "spark-core_2.13-3.5.0.jar" in row.detail and "unset SPARK_HOME" in row.fix


def test_a_damaged_jar_fails_and_keeps_the_broker_from_being_tried(tmp_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(paths.HOME_VARIABLE)
    found = jars.fetch()
    monkeypatch.setenv(paths.HOME_VARIABLE, str(tmp_home))
    for files in found.values():
        shutil.copytree(files[0].parent, tmp_home / "jars" / files[0].parent.name)
    victim = tmp_home / "jars" / found["broker"][0].parent.name / found["broker"][0].name
    os.truncate(victim, 100)
    rows = doctor.run_checks(Bootstrap(None, "default"))
    assert by_check(rows, "jars").status == FAIL and str(victim) in by_check(rows, "jars").detail
    assert "was not tried, because of 'jars'" in by_check(rows, "broker").detail


def test_little_disk_is_told(tmp_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage("/")
    for free, status in ((500 * 2**20, FAIL), (2 * 2**30, WARN), (50 * 2**30, OK)):
        monkeypatch.setattr(doctor.shutil, "disk_usage", lambda p, free=free: usage._replace(free=free))
        assert by_check(doctor.run_checks(Bootstrap(None, "default"), start_broker=False), "home folder").status == status


def test_a_home_that_cannot_be_written_is_a_warning_that_names_the_stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocked = tmp_path / "file"
    blocked.touch()
    monkeypatch.setenv(paths.HOME_VARIABLE, str(blocked / "home"))
    monkeypatch.setattr(paths.tempfile, "tempdir", str(tmp_path))
    with pytest.warns(paths.HomeNotWritableWarning):
        rows = doctor.run_checks(Bootstrap(None, "default"), start_broker=False)
    assert [r.status for r in rows if r.check == "home folder"] == [OK, WARN]
    assert str(blocked / "home") in [r for r in rows if r.check == "home folder"][1].detail


def test_a_check_that_breaks_becomes_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_memory", lambda: 1 // 0)
    row = by_check(doctor.run_checks(Bootstrap(None, "default"), start_broker=False), "memory")
    assert row.status == FAIL and "ZeroDivisionError" in row.detail


# ---------------------------------------------------------------------------------------------------- given brokers


def test_a_given_broker_that_answers_is_fine_and_a_second_address_that_does_not_is_a_warning(bootstrap_servers: str) -> None:
    rows = doctor.check_brokers(Bootstrap(f"{bootstrap_servers},127.0.0.1:1", "--bootstrap-servers"))
    assert [r.status for r in rows] == [WARN, OK, OK]
    assert "127.0.0.1:1 of --bootstrap-servers: connection refused" in rows[0].detail
    assert "1 of 1 nodes live" in rows[2].detail


def test_a_given_broker_that_is_not_there_fails() -> None:
    [row] = doctor.check_brokers(Bootstrap("127.0.0.1:1", "DSKYPE_BOOTSTRAP_SERVERS"))
    assert row.status == FAIL and "connection refused" in row.detail and "DSKYPE_BOOTSTRAP_SERVERS" in row.detail


def test_something_else_on_the_port_is_told_apart_from_a_broker() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        [row] = doctor.check_brokers(Bootstrap(f"127.0.0.1:{silent.getsockname()[1]}", "x"), timeout_ms=1_000)
    assert row.status == FAIL and "does not answer as Kafka" in row.detail and "kafka.security.protocol" in row.fix


def test_a_broker_that_advertises_an_address_out_of_reach_is_found(broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """The usual fault with brokers in containers: the first connection works, every later one goes to a name from inside the container."""
    errors = iter(["", "the host name has no address"])
    monkeypatch.setattr(doctor, "_connect_error", lambda host, port: next(errors))
    [row] = doctor.check_brokers(Bootstrap(broker.bootstrap_servers, "x"))
    assert row.check == "advertised listeners" and row.status == FAIL and "advertised.listeners" in row.fix


def test_unreachable_advertised_addresses_are_listed_one_by_one() -> None:
    rows = doctor.advertised_rows([("127.0.0.1", 1), ("kafka.invalid", 9092)], [("127.0.0.1", 9092)])
    assert [r.status for r in rows] == [FAIL, FAIL]
    assert "127.0.0.1:9092 answers, but tells clients to connect to 127.0.0.1:1: connection refused" in rows[0].detail
    assert "kafka.invalid:9092: the host name has no address" in rows[1].detail


def test_the_python_that_runs_is_named() -> None:
    assert sys.executable in by_check(doctor.run_checks(Bootstrap(None, "default"), start_broker=False), "python").detail


def test_a_python_that_is_newer_than_pyspark_knows_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    for given, status in (((3, 14, 0), OK), ((3, 15, 0), WARN)):
        monkeypatch.setattr(sys, "version_info", given)
        row = by_check(doctor.run_checks(Bootstrap(None, "default"), start_broker=False), "python")
        assert row.status == status
    assert f"PySpark {jars.spark_version()} was made for (up to 3.14)" in row.detail


def topology(state: str = "running", why: tuple[str, ...] = (), alive: bool = True) -> dict:
    return {"name": "wc", "driver_alive": alive, "driver": {"host": "h", "pid": 7}, "health": {"state": state, "why": list(why), "restarts": 0}}


def test_topologies_that_do_not_get_on_are_named_with_the_reason() -> None:
    assert [r.status for r in doctor.topology_rows([topology(), topology()])] == [OK]
    (stalled,) = doctor.topology_rows([topology(), topology("stalled", ("task 3 has done nothing for 40 s",))])
    assert (stalled.check, stalled.status) == ("topology wc", WARN) and "task 3 has done nothing" in stalled.detail
    (failed,) = doctor.topology_rows([topology("failed", ("input is gone",))])
    assert failed.status == FAIL and "input is gone" in failed.detail
    (dead,) = doctor.topology_rows([topology("failed", ("input is gone",), alive=False)])
    assert dead.status == FAIL and "pid 7 on h" in dead.detail and "input is gone" in dead.detail and "kill wc" in dead.fix


def test_a_cluster_without_named_brokers_or_with_a_wrong_master_is_a_failed_check() -> None:
    [row] = check_cluster("spark://nowhere:1", Bootstrap(None, "default"), {})
    assert row.status == FAIL and "--bootstrap-servers" in row.fix
