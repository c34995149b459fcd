"""Spark's Python workers as our daemon changes them."""

from __future__ import annotations

import os
import socket
import sys

import pyspark.daemon
import pyspark.worker
import pytest

from dskype.topology.runtime.daemon import _quiet_main


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
