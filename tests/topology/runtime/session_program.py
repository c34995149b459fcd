"""Starts a Spark session, uses it, and waits until a test kills it."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from dskype.deploy.machine import jars
from dskype.topology.runtime.session import start_session

if __name__ == "__main__":
    session = start_session(master=None, jars=jars.spark_jars(lambda p: None), conf={}, log_file=Path(sys.argv[1]) / "logs" / "spark.log")
    session.range(0, 4, 1, 2).mapInArrow(lambda batches: batches, "id long").collect()
    print(session.sparkContext._gateway.proc.pid, flush=True)
    time.sleep(600)
