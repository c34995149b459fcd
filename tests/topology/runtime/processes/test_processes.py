"""Sockets and folders of the supervisor in a temp folder that all users share."""

from __future__ import annotations

import os
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from dskype.topology.runtime.processes import host as processes
from dskype.topology.runtime.processes.host import Stop, StopSignal, runtime_folder, short_address
from dskype.topology.runtime.processes.supervisor import _sweep


@pytest.fixture
def temp(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def deep(folder: Path, depth: int) -> None:
    """Make a folder too deep for a walk that calls itself."""
    before = os.getcwd()
    folder.mkdir()
    os.chdir(folder)
    try:
        for _ in range(depth):
            os.mkdir("d")
            os.chdir("d")
    finally:
        os.chdir(before)


def undo(folder: Path) -> None:
    os.system(f"rm -rf {folder}")


@pytest.mark.long
def test_only_folders_of_supervisors_that_are_gone_are_swept(temp):
    root, shared = runtime_folder()
    assert shared and root == temp / f"dskype-{os.getuid()}" / "run"
    gone, alive = root / "supervisor-999999999-abc", root / f"supervisor-{os.getpid()}-abc"
    others = [root / name for name in ("supervisor-", "supervisor-x-y", "supervisor-1", "dskype-supervisor-0-7-a", "supervisor-99999999999999999999-a")]
    for folder in (gone, alive, *others):
        folder.mkdir()
    deep(root / "supervisor-999999998-deep", 3000)
    try:
        _sweep(root)
        left = {path.name for path in root.iterdir()}
        assert {alive.name, *(o.name for o in others)} <= left and gone.name not in left
    finally:
        undo(root)


@pytest.mark.parametrize("trap", ["file", "link", "other user"])
def test_a_folder_that_is_not_ours_is_not_used(temp, monkeypatch, trap):
    name = temp / f"dskype-{os.getuid()}"
    if trap == "file":
        name.write_text("")
    elif trap == "link":
        (temp / "elsewhere").mkdir()
        name.symlink_to(temp / "elsewhere")
    else:
        name.mkdir()
        real = os.lstat
        monkeypatch.setattr(processes.os, "lstat", lambda path: os.stat_result([*real(path)[:4], os.getuid() + 1, *real(path)[5:]]))
    folder, shared = runtime_folder()
    assert not shared and folder.parent == temp and folder.name.startswith("dskype-run-")
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_folder_of_ours_that_others_can_write_is_closed_to_them(temp):
    root, _ = runtime_folder()
    root.chmod(0o777)
    root.parent.chmod(0o777)
    runtime_folder()
    assert stat.S_IMODE(root.stat().st_mode) == stat.S_IMODE(root.parent.stat().st_mode) == 0o700


def test_sockets_work_in_a_deep_folder(tmp_path):
    folder = tmp_path / ("a" * 100) / ("b" * 100)
    folder.mkdir(parents=True)
    path = str(folder / "supervisor")
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as client:
        listener.bind(short_address(path))
        listener.listen()
        client.connect(short_address(path))
        client.sendall(b"x")
        accepted, _ = listener.accept()
        assert accepted.recv(1) == b"x" and os.path.exists(path)
        accepted.close()


def test_nothing_interrupts_the_end_after_work_that_has_ended_by_itself():
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGALRM)}
    stop = StopSignal(patience_s=0.1)
    stop.install()
    try:
        os.kill(os.getpid(), signal.SIGTERM)  # in the middle of work
        with pytest.raises(Stop), stop.waiting():
            pass
        time.sleep(0.3)  # of the patience nothing is left
        stop.ignore()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in before.items():
            signal.signal(number, handler)


def test_a_socket_in_a_deep_folder_has_a_short_address_for_clients_in_other_languages(tmp_path):
    folder = tmp_path / ("x" * 100)
    folder.mkdir()
    path = str(folder / "s")
    short = short_address(path)
    assert short_address("/short/s") == "/short/s" and len(short) < 100
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(short_address(path))
        listener.listen()
        program = "import socket, sys\nsocket.socket(socket.AF_UNIX).connect(sys.argv[1])"
        subprocess.run([sys.executable, "-c", program, short], check=True, timeout=60)
