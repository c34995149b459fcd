"""How the supervisor of a Spark executor is found and asked. Drivers import this, and not what executors run."""

from __future__ import annotations

import os
import re
import socket
from pathlib import Path

import msgpack

from dskype.topology.runtime.processes.host import short_address
from dskype.topology.runtime.transport.wire import SUPERVISOR_VARIABLE, receive, send

__all__ = ["SUPERVISOR_FOLDER", "ask_supervisor", "running_supervisor"]

SUPERVISOR_FOLDER = re.compile(r"supervisor-(\d+)-(?:(\d+)-)?\w+")
"""The daemon's process id, and that of its JVM, which older versions did not write."""


def ask_supervisor(request: dict) -> None:
    """Send one request to the supervisor of this Spark executor, and return when it has carried it out.

    :raises OSError: the supervisor has ended.
    """
    if not _answers(os.environ[SUPERVISOR_VARIABLE]):  # perhaps another daemon of this JVM has started one
        own = Path(os.environ[SUPERVISOR_VARIABLE]).parent
        known = SUPERVISOR_FOLDER.fullmatch(own.name)
        if known is not None and known[2] is not None and (found := running_supervisor(own.parent, known[2])) is not None:
            os.environ[SUPERVISOR_VARIABLE] = found
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.connect(short_address(os.environ[SUPERVISOR_VARIABLE]))
        send(connection, msgpack.packb(request))
        receive(connection)


def running_supervisor(folder: Path, jvm: int | str) -> str | None:
    """Return the path of the supervisor that runs for a JVM, if there is one."""
    return next((path for found in folder.glob(f"supervisor-*-{jvm}-*") if _answers(path := str(found / "supervisor"))), None)


def _answers(path: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        try:
            connection.connect(short_address(path))
        except OSError:
            return False
    return True
