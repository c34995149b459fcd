"""The logs of executors: whoever prints, secrets are hidden before they are on the disk, and nobody who prints is stopped or cut short."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from dskype.topology.core.redaction import HIDDEN
from dskype.topology.runtime.log_writer import LogFile, print_into, start_log_writer


def printed(path: Path, print_all: Callable[[], object]) -> None:
    """Let a process print and be killed, and wait until the writer has ended."""
    writer, channel = start_log_writer()
    pid = os.fork()
    if not pid:
        try:
            print_into(path, channel)
            channel.close()
            print_all()
        finally:
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)
    channel.close()
    assert os.waitpid(writer, 0)[1] == 0


def test_what_any_code_prints_is_redacted_and_the_last_words_of_a_killed_process_are_kept(tmp_path):
    def prints() -> None:
        print("print: password=Canary1", file=open(1, "w", closefd=False), flush=True)
        os.write(1, b"C: https://u:Canary2@host/\n")
        subprocess.run([sys.executable, "-c", "import sys; print('shell: api_key: Canary3', file=sys.stderr)"], check=True)
        os.write(2, b"part of a line, token=Can")
        os.write(2, b"ary4\n-----BEGIN PRIVATE KEY-----\nMIICanary5\n")
        os.write(2, b"MIICanary6\n-----END PRIVATE KEY-----\n\xff last words, secret=Canary7")

    log = tmp_path / "a-0.log"
    log.write_text("before\n")
    printed(log, prints)
    text = log.read_text(errors="replace")
    assert "Canary" not in text and text.count(HIDDEN) == 6 and text.startswith("before\n") and text.endswith(f"last words, secret={HIDDEN}\n")


def test_the_log_of_an_executor_has_an_end(tmp_path):
    log = LogFile(tmp_path / "a.log", 1000)
    for i in range(100):
        log.take(b"%03d %s\n" % (i, b"x" * 95))
    log.close()
    sizes = {path.name: path.stat().st_size for path in tmp_path.iterdir()}
    assert set(sizes) <= {"a.log", "a.log.1"} and 0 < sum(sizes.values()) <= 2200
    assert any(path.read_text().splitlines()[-1].startswith("099") for path in tmp_path.iterdir())


def test_a_line_without_an_end_takes_no_memory_and_hides_what_is_cut(tmp_path):
    log = LogFile(tmp_path / "a.log")
    log.take(b"password=" + b"Canary" * 20_000)
    for _ in range(100):
        log.take(b"Canary" * 10_000)
    log.take(b"Canary\nnext line\n")
    log.close()
    text = (tmp_path / "a.log").read_text()
    assert text.endswith("\nnext line\n") and len(text) < 70_000 and "Canary" not in text and log._rest == b""


def test_a_log_that_cannot_be_written_stops_nobody_and_says_what_is_lost(tmp_path):
    log = LogFile(tmp_path / "gone" / "a.log")
    log.take(b"1\n2\n")
    assert log.lost == 2
    (tmp_path / "gone").mkdir()
    log.take(b"3\n")
    log.close()
    assert (tmp_path / "gone" / "a.log").read_text() == "(2 lines could not be written)\n3\n" and log.lost == 0
