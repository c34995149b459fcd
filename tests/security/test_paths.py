"""Names and folders that point elsewhere lead nowhere else."""

from __future__ import annotations

import json
import os
import stat
from dataclasses import asdict
from pathlib import Path

import pytest

from dskype.deploy.cli import main as cli
from dskype.deploy.demo.run import Plan, open_folder
from dskype.deploy.machine import paths
from dskype.deploy.machine.broker import EmbeddedBroker
from dskype.deploy.machine.folders import OwnedFolder
from dskype.deploy.machine.jars import JarsError, read_manifest
from dskype.topology.core.file_store import FileSnapshotStore
from dskype.topology.core.snapshots import encode_snapshot
from dskype.topology.errors import InvalidTopologyException
from dskype.topology.planning.plan import dead_letters_topic, inbox_topic, metrics_topic
from dskype.topology.planning.validation import validate_name

NAMES = [
    "..",
    ".",
    "../x",
    "/etc/x",
    "a/../b",
    "..%2f..%2fx",
    "%2e%2e/x",
    "..\\x",
    "C:\\x",
    "a\x00b",
    "a\nb",
    "~",
    "~root",
    "-rf",
    "．．／x",
    "é/..",
    "x" * 300,
    "CON",
    " ",
]


@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_the_folder_and_topics_of_a_name_stay_in_their_place(name: str, tmp_home: Path) -> None:
    for component in (metrics_topic(name), inbox_topic("t", name), inbox_topic(name, name), dead_letters_topic(name), inbox_topic("x", name)[2:]):
        assert "/" not in component and "\\" not in component and "\0" not in component and component not in ("", ".", "..")
        assert len(component) <= 249 and (tmp_home / component).resolve().parent == tmp_home.resolve()


@pytest.mark.parametrize("name", [n for n in NAMES if set(n) & set("/.:\\")], ids=ascii)
def test_a_topology_has_no_path_for_a_name(name: str) -> None:
    with pytest.raises(InvalidTopologyException, match="is not valid"):
        validate_name(name)


def test_a_demo_removes_links_and_not_what_they_point_to(tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "thesis.tex").write_text("x")
    folder = tmp_path / "demo"
    folder.mkdir()
    (folder / "demo.json").write_text(json.dumps(asdict(Plan())))
    (folder / "topologies").symlink_to(tmp_path / "precious")
    (folder / "vocabulary.tsv").symlink_to(tmp_path / "precious" / "thesis.tex")
    open_folder(folder, False, {}, lambda _: None)
    assert (tmp_path / "precious" / "thesis.tex").read_text() == "x"
    assert not (folder / "topologies").exists()


def test_a_private_file_replaces_a_link_and_does_not_follow_it(tmp_path: Path) -> None:
    (tmp_path / "other").write_text("x")
    (tmp_path / "secret").symlink_to(tmp_path / "other")
    (tmp_path / ".secret.partial").symlink_to(tmp_path / "other")
    paths.write_whole(tmp_path / "secret", b"hush", 0o600)
    assert (tmp_path / "other").read_text() == "x"
    assert (tmp_path / "secret").read_bytes() == b"hush"
    assert stat.S_IMODE(os.lstat(tmp_path / "secret").st_mode) == 0o600


@pytest.mark.parametrize("line", ["0" * 64 + "  g:../../x:1", "0" * 64 + "  g:a:../../1", "0" * 64 + "  ../g:a:1", "0" * 64 + "  g:a/b:1"])
def test_a_jar_cannot_be_named_out_of_its_folder(line: str, tmp_path: Path) -> None:
    (tmp_path / "jars").write_text(f"# [spark]\n{line}\n")
    with pytest.raises(JarsError, match=r"jars:2: expected 'sha256  group:artifact:version'"):
        read_manifest(tmp_path / "jars")


@pytest.mark.product
def test_folders_are_their_owners_alone_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        OwnedFolder.take(tmp_path / "run").release()
        store = FileSnapshotStore(tmp_path / "snapshots")
        store.create()
        store.save(3, 1, encode_snapshot({"a": 1}))
        store.save_journal(3, 1, encode_snapshot({"a": 1}))
        broker = EmbeddedBroker()
        broker._make_folder()
        broker._ports = (1, 2)
        broker._write_settings()
        seen = {
            name: stat.S_IMODE(os.stat(path).st_mode)
            for name, path in {
                "run": tmp_path / "run",
                "snapshots": tmp_path / "snapshots",
                "task": tmp_path / "snapshots" / "3",
                "broker": broker.folder,
                "properties": broker.folder / "server.properties",
            }.items()
        }
        broker._release()
    finally:
        os.umask(before)
    assert seen == {"run": 0o700, "snapshots": 0o700, "task": 0o700, "broker": 0o700, "properties": 0o600}


@pytest.mark.parametrize(
    "text", ["!!python/object/apply:os.mkdir [pwned]", "a: &a [x]\nb: [*a, *a]\n" * 2, "[" * 5_000, "a: 1\na: 2"], ids=["tag", "double", "deep", "key"]
)
@pytest.mark.parametrize("option", ["--config", "file"])
def test_every_file_of_settings_is_read_as_strictly_as_a_topology(
    option: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "c.yaml").write_text(text)
    arguments = ["localconfvalue", "x", "--config", "c.yaml"] if option == "--config" else ["local", "c.yaml", "--dry-run"]
    assert cli.main(arguments) == 1
    told = capsys.readouterr().err
    assert "error: c.yaml" in told and "Traceback" not in told
    assert not (tmp_path / "pwned").exists()
