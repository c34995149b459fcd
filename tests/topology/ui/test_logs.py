"""Logs of executors: the lines at the end, without secrets, and never a file that is not a log of the topology."""

from __future__ import annotations

import os

import pytest

from dskype.topology.core.redaction import HIDDEN
from dskype.topology.errors import IllegalArgumentException, NotAliveException
from dskype.topology.ui.logs import check_folder, log_files, log_part


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "manifest.json").write_text("{}")
    logs = tmp_path / "logs"
    logs.mkdir()
    return logs


def test_the_end_is_read_in_whole_lines_and_what_is_before_it_on_demand(folder):
    lines = [f"line {i}\n" for i in range(100)]
    (folder / "count-0.log").write_text("".join(lines))
    last = log_part(folder, "count-0.log", size=100)
    assert last["text"] == "".join(lines[-12:]) and last["end"] == last["size"] == sum(map(len, lines))
    before = log_part(folder, "count-0.log", last["start"], 8)
    assert before["text"] == lines[-13] and before["end"] == last["start"]
    text, end = "", None
    while end != 0:
        part = log_part(folder, "count-0.log", end, 50)
        text, end = part["text"] + text, part["start"]
    assert text == "".join(lines)
    assert log_part(folder, "count-0.log", 10**12)["text"] == text


def test_a_line_that_is_longer_than_the_part_begins_within(folder):
    (folder / "a.log").write_bytes(b"short\n" + b"x" * 1000)
    assert log_part(folder, "a.log", size=10)["text"] == "x" * 10
    (folder / "a.log").write_bytes(b"\xff" * 20 + b"\n")
    assert log_part(folder, "a.log", size=10)["text"].count("\ufffd") == 9
    (folder / "a.log").write_bytes(b"")
    assert log_part(folder, "a.log") == {"file": "a.log", "text": "", "start": 0, "end": 0, "size": 0}


def test_secrets_are_not_shown(folder):
    (folder / "a.log").write_text("connecting with password=open-sesame\n")
    assert "open-sesame" not in log_part(folder, "a.log")["text"]


@pytest.mark.long
def test_a_part_never_shows_what_the_whole_hides(folder):
    key = "-----BEGIN EC PRIVATE KEY-----\nMIICANARYKEYLINE1\nMIICANARYKEYLINE2\n-----END EC PRIVATE KEY-----\n"
    text = f"before\nconnecting with password=LiveCanary4711 to db\n{key}after\n"
    (folder / "a.log").write_text(text)
    for end in range(len(text) + 1):
        for size in (*range(1, 40), len(text)):
            shown = log_part(folder, "a.log", end, size)["text"]
            assert not {s[i : i + 4] for s in ("LiveCanary4711", "MIICANARYKEYLINE1") for i in range(len(s) - 3)} & {
                shown[i : i + 4] for i in range(len(shown) - 3)
            }
    assert log_part(folder, "a.log")["text"].startswith("before\nconnecting with password=****** to db\n") and "after" in log_part(folder, "a.log")["text"]
    (folder / "a.log").write_text("password=" + "x" * 200_000)
    assert log_part(folder, "a.log", None, 100)["text"] == "******"


KEY = "-----BEGIN RSA PRIVATE KEY-----\nMIICANARY1\nMIICANARY2+/=\n-----END RSA PRIVATE KEY-----\n"


@pytest.mark.long
@pytest.mark.parametrize("text", ["a\nconnecting with password=LiveCANARY4711 to db\nb\n", "a\n" + KEY + "b\n", "a\n" + KEY[:-30], KEY * 3])
def test_no_part_of_a_log_shows_what_the_whole_hides(folder, text):
    (folder / "a.log").write_text(text)
    shown = {log_part(folder, "a.log", end, size)["text"] for end in range(len(text) + 1) for size in range(1, len(text) + 1)}
    assert not [part for part in shown if "CANARY" in part or "Live" in part or "MII" in part]
    assert any(HIDDEN in part for part in shown)
    if text.endswith("b\n"):
        assert {"b\n"} < shown and log_part(folder, "a.log")["text"].startswith("a\n")


def test_a_part_within_a_line_whose_beginning_is_far_away_is_not_shown(folder):
    (folder / "a.log").write_text("password=" + "CANARY" * 50_000 + "\nb\n")
    for end in (200_000, 250_000, 300_000):
        part = log_part(folder, "a.log", end, 1000)
        assert (part["text"], part["start"], part["end"]) == (HIDDEN, end - 1000, end)


def test_only_logs_in_the_folder_are_listed_and_read(folder, tmp_path):
    outside = tmp_path / "secret.log"
    outside.write_text("secret")
    (folder / "a.log").write_text("a\n")
    (folder / "a.log.1").write_text("older\n")
    (folder / "spark.properties").write_text("password")
    (folder / "link.log").symlink_to(outside)
    (folder / "folder.log").mkdir()
    os.mkfifo(folder / "pipe.log")
    assert [row["file"] for row in log_files(folder)["logs"]] == ["a.log", "a.log.1"]
    names = [
        "../secret.log",
        "/etc/passwd",
        "link.log",
        "folder.log",
        "pipe.log",
        "spark.properties",
        "..",
        "",
        "a.log/",
        "a.log\x00",
        "b.log",
        "é.log",
        "a" * 300 + ".log",
    ]
    for name in names:
        with pytest.raises(NotAliveException, match="no such log"):
            log_part(folder, name)
    with pytest.raises(NotAliveException):
        log_part(None, "a.log")
    for end, size in ((-1, 1), (0, 0), (0, (1 << 20) + 1)):
        with pytest.raises(IllegalArgumentException):
            log_part(folder, "a.log", end, size)


def test_a_log_that_is_renamed_and_a_folder_that_is_removed_meanwhile_are_left_out(folder, monkeypatch):
    (folder / "a.log").write_text("a\n")
    monkeypatch.setattr(os, "listdir", lambda path: ["a.log", "b.log"])
    assert [row["file"] for row in log_files(folder)["logs"]] == ["a.log"]
    monkeypatch.undo()
    assert log_files(folder.parent / "gone") == {"here": False, "logs": []}


def test_a_folder_that_is_not_one_of_a_topology_is_not_read(folder, tmp_path):
    assert check_folder(str(folder), "manifest.json") == folder
    (tmp_path / "other").mkdir()
    (tmp_path / "away").mkdir()
    (tmp_path / "away" / "logs").symlink_to(folder)
    (tmp_path / "away" / "manifest.json").write_text("{}")
    for given in (
        None,
        7,
        "",
        "logs",
        "/",
        "/etc",
        str(tmp_path / "other"),
        str(tmp_path / "away" / "logs"),
        str(tmp_path / "missing" / "logs"),
        "/a\x00b/logs",
    ):
        assert check_folder(given, "manifest.json") is None, given
    (tmp_path / "manifest.json").unlink()
    assert check_folder(str(folder), "manifest.json") is None
    assert log_files(None) == {"here": False, "logs": []}
