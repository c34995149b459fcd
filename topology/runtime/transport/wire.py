"""The protocol between Spark's tasks, supervisor and resident executors, over Unix sockets of one machine.

Every message is a length (u64 little endian) and a body. Requests to the supervisor are msgpack (see ``supervisor``); what an executor gets, ``spark_input`` describes.
"""

from __future__ import annotations

import socket
import struct

__all__ = ["KERNELS_VARIABLE", "SAFE_PATH_OF_WORKERS", "SAFE_PATH_VARIABLE", "SUPERVISOR_VARIABLE", "receive", "send"]

KERNELS_VARIABLE = "DSKYPE_KERNELS"
"""Names, on other hosts, the folder of the driver's compiled kernels; most likely they are in the same place there."""

SAFE_PATH_VARIABLE = "PYTHONSAFEPATH"
"""If it is set, Python does not import modules from the working folder."""
SAFE_PATH_OF_WORKERS = "workers"
"""Its value for Spark's Python workers. The daemon removes this value, because a program that a component starts may import modules from its own folder."""

SUPERVISOR_VARIABLE = "DSKYPE_SUPERVISOR"
"""Environment variable with the path of the supervisor's socket; the daemon sets it, and its workers inherit it."""

_LENGTH = struct.Struct("<Q")


def send(connection: socket.socket, body: bytes) -> None:
    """Send one message."""
    connection.sendall(_LENGTH.pack(len(body)) + body)


def receive(connection: socket.socket) -> bytearray:
    """Return the body of one message.

    :raises ConnectionError: the other process has closed the connection.
    """
    (length,) = _LENGTH.unpack(_exactly(connection, _LENGTH.size))
    return _exactly(connection, length)


def _exactly(connection: socket.socket, n: int) -> bytearray:
    body = bytearray(n)
    view = memoryview(body)
    while n:
        got = connection.recv_into(view, n)
        if not got:
            msg = "the other side has closed the connection"
            raise ConnectionError(msg)
        view, n = view[got:], n - got
    return body
