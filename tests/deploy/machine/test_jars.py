"""The jars: the lock file, the checks, and the ways that a download can go wrong."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import multiprocessing
import os
import re
import stat
import threading
import zipfile
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import pytest

from dskype.deploy.machine import jars, paths
from dskype.deploy.machine.errors import JarsError, OptionError
from dskype.topology.core import ownership


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A Maven repository in a folder, with two jars."""
    root = tmp_path / "repository"
    for artifact in ("kafka_2.13", "other"):
        folder = root / "org" / "example" / artifact / "1.0"
        folder.mkdir(parents=True)
        with zipfile.ZipFile(folder / f"{artifact}-1.0.jar", "w") as z:
            z.writestr(f"{artifact}.txt", artifact * 100)
        (folder / f"{artifact}-1.0.pom").write_text(
            f"<project><modelVersion>4.0.0</modelVersion><groupId>org.example</groupId><artifactId>{artifact}</artifactId><version>1.0</version></project>"
        )
    return root


def _sha(repository: Path, artifact: str) -> str:
    return hashlib.sha256((repository / "org" / "example" / artifact / "1.0" / f"{artifact}-1.0.jar").read_bytes()).hexdigest()


@pytest.fixture
def small_set(repository: Path, tmp_path: Path, tmp_home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A lock file whose broker set is the two small jars, and a mirror that has them; returns the lock file."""
    manifest = tmp_path / "jars.sha256"
    manifest.write_text("# [broker]\n" + "".join(f"{_sha(repository, a)}  org.example:{a}:1.0\n" for a in ("kafka_2.13", "other")))
    monkeypatch.setattr(jars, "MANIFEST", manifest)
    monkeypatch.setattr(jars.read_manifest, "__defaults__", (manifest,))
    monkeypatch.setenv(jars.MIRROR_VARIABLE, repository.as_uri())
    monkeypatch.delenv(jars.IVY_SETTINGS_VARIABLE, raising=False)
    return manifest


def test_the_lock_file_names_the_connector_of_the_installed_pyspark_and_one_version_of_every_artifact() -> None:
    sets = jars.read_manifest()
    assert set(sets) == set(jars.SETS)
    spark = {j.artifact: j.version for j in sets["spark"]}
    assert spark[f"spark-sql-kafka-0-10_{jars.scala_version()}"] == jars.spark_version()
    assert spark[f"spark-token-provider-kafka-0-10_{jars.scala_version()}"] == jars.spark_version()
    assert {"kafka-clients", "commons-pool2"} <= set(spark)
    assert {j.version for j in sets["broker"] if j.artifact.startswith("kafka")} == {jars.KAFKA_VERSION}
    for members in sets.values():
        assert len({(j.group, j.artifact) for j in members}) == len(members)


def test_jars_are_fetched_from_a_mirror_with_progress_and_are_there_offline_afterwards(small_set: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[jars.Progress] = []
    found = jars.broker_jars(seen.append)
    assert [p.name for p in found] == ["org.example_kafka_2.13-1.0.jar", "org.example_other-1.0.jar"]
    assert seen[-1].done == seen[-1].total == 2 and seen[-1].size == sum(p.stat().st_size for p in found)
    monkeypatch.setenv(jars.MIRROR_VARIABLE, "file:///nowhere")
    assert jars.broker_jars() == found
    assert jars.verify(full=True, names=["broker"]) == []


def test_nothing_is_left_beside_the_jars_and_the_users_home_is_not_touched(
    small_set: Path, tmp_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "no" / "such" / "home"))
    jars.broker_jars()
    assert not (tmp_path / "no").exists()
    assert {p.name.split("-")[0] for p in (tmp_home / "jars").iterdir()} == {"broker", "broker.lock"}
    assert len(list((tmp_home / "jars").iterdir())) == 2


def test_a_served_jar_with_another_checksum_is_refused_and_not_kept(small_set: Path, repository: Path, tmp_home: Path) -> None:
    expected = _sha(repository, "other")
    path = repository / "org" / "example" / "other" / "1.0" / "other-1.0.jar"
    path.write_bytes(path.read_bytes() + b"x")
    with pytest.raises(JarsError) as e:
        jars.broker_jars()
    text = str(e.value)
    assert "org.example_other-1.0.jar" in text and expected in text and _sha(repository, "other") in text and "fix:" in text
    assert not [p for p in (tmp_home / "jars").iterdir() if p.is_dir()]


@pytest.mark.parametrize(("damage", "kind"), [("flip", "corrupted"), ("truncate", "corrupted"), ("remove", "missing"), ("add", "unknown")])
def test_a_damaged_cache_is_an_error_that_names_file_and_fix(small_set: Path, damage: str, kind: str) -> None:
    victim = jars.broker_jars()[1]
    if damage == "flip":
        data = bytearray(victim.read_bytes())
        data[10] ^= 1
        victim.write_bytes(data)
    elif damage == "truncate":
        os.truncate(victim, 5)
    elif damage == "remove":
        victim.unlink()
    else:
        victim = victim.with_name("stranger-1.0.jar")
        victim.write_bytes(b"stranger")
    with pytest.raises(JarsError) as e:
        jars.broker_jars()
    text = str(e.value)
    assert text.startswith(kind) and str(victim) in text and "expected" in text and "given:" in text and f"rm -r {victim.parent}" in text
    assert [p.kind for p in jars.verify(names=["broker"])] == [kind]


def test_a_cheap_check_trusts_the_stamp_and_a_full_one_reads_every_byte(small_set: Path) -> None:
    victim = jars.broker_jars()[0]
    before = victim.stat()
    data = bytearray(victim.read_bytes())
    data[10] ^= 1
    victim.write_bytes(data)
    os.utime(victim, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert jars.verify(names=["broker"]) == []
    assert [(p.kind, p.path) for p in jars.verify(full=True, names=["broker"])] == [("corrupted", victim)]


def test_force_downloads_again_over_a_damaged_set(small_set: Path) -> None:
    victim = jars.broker_jars()[0]
    os.truncate(victim, 5)
    jars.fetch(["broker"], force=True)
    assert jars.verify(full=True, names=["broker"]) == []


def test_an_unreachable_repository_is_reported_with_ways_out_and_without_secrets(small_set: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jars, "time", SimpleNamespace(sleep=lambda s: None))
    monkeypatch.setenv(jars.MIRROR_VARIABLE, "http://someone:hunter2@127.0.0.1:9/maven")
    with pytest.raises(JarsError) as e:
        jars.broker_jars()
    text = str(e.value)
    assert "hunter2" not in text
    assert "HTTPS_PROXY" in text and jars.MIRROR_VARIABLE in text and str(paths.jars_dir()) in text


class _Served(ThreadingHTTPServer):
    """A Maven repository over HTTP; remembers paths and authorizations of requests, and answers as ``answers`` says before it serves files.

    :ivar answers: for each path, what comes first: a status, an address to redirect to, or "short" for half of the file.
    """

    def __init__(self, root: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.root, self.seen, self.answers = root, list[tuple[str, str | None]](), dict[str, list[int | str]]()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: _Served

    def do_GET(self) -> None:
        self.server.seen.append((self.path, self.headers["Authorization"]))
        path = self.path.split("/maven/")[-1]
        first = self.server.answers.get(path, [])
        answer = first.pop(0) if first else 200
        if isinstance(answer, str) and answer != "short":
            self.send_response(302)
            self.send_header("Location", answer + path)
            self.end_headers()
            return
        data = (self.server.root / path).read_bytes()
        self.send_response(answer if isinstance(answer, int) else 200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data[: len(data) // 2] if answer == "short" else data)

    def log_message(self, *args: object) -> None:
        """Stay silent."""


@pytest.fixture
def served(repository: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], _Served]]:
    monkeypatch.setattr(jars, "time", SimpleNamespace(sleep=lambda s: None))
    for name in ("http_proxy", "HTTP_PROXY", "no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with contextlib.ExitStack() as servers:

        def start() -> _Served:
            server = _Served(repository)
            servers.callback(server.server_close)
            servers.callback(server.shutdown)
            return server

        yield start


_JAR = "org/example/other/1.0/other-1.0.jar"


def test_the_default_repository_is_ivys() -> None:
    assert re.fullmatch(r"https://\S+/", jars._repository({})[0])


def test_jars_are_fetched_without_java(small_set: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jars, "find_java", lambda: pytest.fail("a JVM was looked for"))
    assert len(jars.broker_jars()) == 2


def test_a_downloaded_jar_is_read_once(small_set: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jars, "sha256_of", lambda path: pytest.fail(f"{path} was read again"))
    assert len(jars.broker_jars()) == 2


def test_the_password_in_a_mirrors_address_goes_to_that_server_only(small_set: Path, served: Callable[[], _Served], monkeypatch: pytest.MonkeyPatch) -> None:
    mirror, other = served(), served()
    mirror.answers[_JAR] = [f"http://{other.address}/maven/"]
    monkeypatch.setenv(jars.MIRROR_VARIABLE, f"http://some%40one:hunter2@{mirror.address}/maven")
    assert len(jars.broker_jars()) == 2
    basic = "Basic " + base64.b64encode(b"some@one:hunter2").decode()
    assert {given for _, given in mirror.seen} == {basic}
    assert other.seen == [("/maven/" + _JAR, None)]


@pytest.mark.parametrize("fault", [503, 429, "short"])
def test_a_download_that_fails_for_a_moment_is_tried_again(
    small_set: Path, served: Callable[[], _Served], monkeypatch: pytest.MonkeyPatch, fault: int | str
) -> None:
    mirror = served()
    mirror.answers[_JAR] = [fault]
    monkeypatch.setenv(jars.MIRROR_VARIABLE, f"http://{mirror.address}/maven/")
    assert len(jars.broker_jars()) == 2
    assert [path for path, _ in mirror.seen].count("/maven/" + _JAR) == 2


def test_a_jar_that_the_repository_does_not_have_is_named_and_asked_for_once(
    small_set: Path, served: Callable[[], _Served], monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror = served()
    mirror.answers[_JAR] = [404] * 3
    monkeypatch.setenv(jars.MIRROR_VARIABLE, f"http://{mirror.address}/maven/")
    with pytest.raises(JarsError, match=f"expected the jar at http://{mirror.address}/maven/{_JAR}, given: HTTP Error 404"):
        jars.broker_jars()
    assert [path for path, _ in mirror.seen].count("/maven/" + _JAR) == 1


def test_the_environments_proxy_is_used(small_set: Path, served: Callable[[], _Served], monkeypatch: pytest.MonkeyPatch) -> None:
    proxy = served()
    monkeypatch.setenv("http_proxy", f"http://{proxy.address}")
    monkeypatch.setenv(jars.MIRROR_VARIABLE, "http://no.such.host.invalid/maven/")
    assert len(jars.broker_jars()) == 2
    assert "http://no.such.host.invalid/maven/" + _JAR in [path for path, _ in proxy.seen]


@pytest.mark.parametrize(("variable", "value"), [("DSKYPE_MAVEN_MIRROR", "not an address"), ("DSKYPE_IVY_SETTINGS", "/no/such/settings.xml")])
def test_a_bad_repository_setting_is_named(small_set: Path, monkeypatch: pytest.MonkeyPatch, variable: str, value: str) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(JarsError, match=f"{variable} must .*given: '{value}'"):
        jars.broker_jars()


@pytest.mark.long
def test_an_ivysettings_file_of_the_user_decides_where_jars_come_from(
    small_set: Path, repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = tmp_path / "ivysettings.xml"
    settings.write_text(
        f'<ivysettings><settings defaultResolver="r"/><resolvers><ibiblio name="r" m2compatible="true" root="{repository.as_uri()}"/></resolvers></ivysettings>'
    )
    monkeypatch.setenv(jars.MIRROR_VARIABLE, "file:///nowhere")
    monkeypatch.setenv(jars.IVY_SETTINGS_VARIABLE, str(settings))
    assert len(jars.broker_jars()) == 2


def _fetch_in_child(answers: multiprocessing.Queue[object]) -> None:
    try:
        answers.put(len(jars.broker_jars()))
    except BaseException as e:
        answers.put(repr(e))


def test_two_processes_that_fetch_at_the_same_time_both_get_a_whole_set(small_set: Path, tmp_home: Path) -> None:
    context = multiprocessing.get_context("fork")  # the patched lock file has to reach the children
    answers = context.Queue()
    children = [context.Process(target=_fetch_in_child, args=(answers,)) for _ in range(2)]
    for child in children:
        child.start()
    assert [answers.get(timeout=120) for _ in children] == [2, 2]
    for child in children:
        child.join(30)
    assert len([p for p in (tmp_home / "jars").iterdir() if p.is_dir()]) == 1


def test_jars_baked_into_a_read_only_home_are_used(small_set: Path, tmp_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = jars.broker_jars()
    (found[0].parent / ".verified.json").unlink()
    real = paths.make_writable
    monkeypatch.setattr(paths, "make_writable", lambda p: False if p == tmp_home else real(p))  # root may write anywhere, so modes prove nothing
    monkeypatch.setattr(paths.tempfile, "tempdir", str(tmp_home.parent))
    with pytest.warns(paths.HomeNotWritableWarning, match=str(tmp_home)):
        assert paths.home() != tmp_home
    monkeypatch.setenv(jars.MIRROR_VARIABLE, "file:///nowhere")
    assert jars.broker_jars() == found


def test_a_lock_file_with_a_broken_line_is_refused_with_its_number(tmp_path: Path) -> None:
    bad = tmp_path / "jars.sha256"
    bad.write_text("# [spark]\nabc  org.example:a:1\n")
    with pytest.raises(JarsError, match=r"jars\.sha256:2: expected 'sha256  group:artifact:version'.*given: 'abc"):
        jars.read_manifest(bad)


def test_another_pyspark_than_the_locked_one_is_refused_with_the_right_one(monkeypatch: pytest.MonkeyPatch) -> None:
    locked = jars.spark_version()
    monkeypatch.setattr(jars, "spark_version", lambda: "9.9.9")
    with pytest.raises(JarsError, match=rf"given: pyspark 9\.9\.9(.|\n)*pip install pyspark=={locked}"):
        jars.spark_jars()


def test_a_relative_home_is_refused_because_it_means_another_folder_in_every_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(paths.HOME_VARIABLE, "cache")
    with pytest.raises(OptionError, match="DSKYPE_HOME must be an absolute path, given: 'cache'"):
        paths.home()


def test_a_home_of_another_user_is_refused_and_ours_is_closed_to_others(tmp_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tmp_home.mkdir()
    tmp_home.chmod(0o777)
    assert paths.home() == tmp_home
    assert tmp_home.stat().st_mode & 0o777 == 0o755
    (tmp_home / "jars").mkdir()
    tmp_home.chmod(0o777)
    with pytest.raises(OptionError, match="must belong to user .*given: .* can be written by others, mode drwxrwxrwx"):
        paths.home()  # somebody may have put jars there
    tmp_home.chmod(0o755)
    real = os.lstat

    def of_another(path: object) -> os.stat_result:
        found = real(path)
        return os.stat_result([*found[:4], os.getuid() + 1, *found[5:]]) if path == tmp_home else found

    monkeypatch.setattr(ownership.os, "lstat", of_another)
    with pytest.raises(OptionError, match=f"must belong to user {os.getuid()}.*given: .* belongs to user {os.getuid() + 1}, mode drwxr-xr-x"):
        paths.home()


def test_a_temp_folder_of_somebody_else_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(paths.HOME_VARIABLE, raising=False)
    monkeypatch.setattr(paths.tempfile, "tempdir", str(tmp_path))
    assert stat.S_IMODE(paths.scratch_dir().stat().st_mode) == 0o700
    trap = tmp_path / f"dskype-{os.getuid()}"
    trap.rmdir()
    (tmp_path / "elsewhere").mkdir()
    trap.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OptionError, match="must be a folder owned by user"):
        paths.scratch_dir()
