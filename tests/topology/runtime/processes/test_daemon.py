"""Spark's Python workers as our daemon changes them."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pyspark.daemon
import pyspark.worker
import pytest

from dskype.topology.runtime.processes.daemon import _quiet_main
from dskype.topology.runtime.transport.wire import SUPERVISOR_VARIABLE
from tests.waiting import wait_for


def end_of_input(infile, outfile):
    outfile.write(b"what Spark will not read")
    raise EOFError


def failure(infile, outfile):
    outfile.write(b"what Spark will not read")
    sys.exit(-1)


@pytest.mark.parametrize("main", [end_of_input, failure, lambda infile, outfile: outfile.write(b"what Spark will not read")])
def test_a_worker_whose_connection_spark_has_closed_ends_without_a_word(main, monkeypatch, capfd):
    ours, theirs = socket.socketpair()
    theirs.close()
    monkeypatch.setattr(pyspark.worker, "main", _quiet_main(main))
    pid = os.fork()
    if not pid:
        try:
            pyspark.daemon.worker(ours, True)
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    ours.close()
    assert capfd.readouterr().err == ""


@pytest.mark.long
@pytest.mark.parametrize("supervisor_alone", [False, True])
def test_a_daemon_that_starts_a_supervisor_alone_imports_nothing_for_workers(tmp_path, supervisor_alone):
    told = tmp_path / "told"
    environ = {k: v for k, v in os.environ.items() if k != SUPERVISOR_VARIABLE} | ({"DSKYPE_SUPERVISOR_FILE": str(told)} if supervisor_alone else {})
    command = [sys.executable, "-P", "-m", "dskype.topology.runtime.processes.daemon", "pyspark.worker"]
    with subprocess.Popen(command, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as daemon:
        try:
            daemon.stdout.read(4)  # its port, which it tells when it has imported everything
            imported = Path(f"/proc/{daemon.pid}/maps").read_text()
        finally:
            daemon.stdin.close()  # as when Spark ends
    assert ("/pandas/_libs/" in imported) != supervisor_alone and "/pyarrow/" in imported
    if supervisor_alone:
        wait_for(told.read_text, 10, "the place of the supervisor")
