"""Plain connections to servers, for requests that no client of HTTP would send."""

from __future__ import annotations

import socket


def opened(address: tuple[str, int], data: bytes = b"", source: str = "127.0.0.1") -> socket.socket:
    """Open a connection and send some bytes."""
    found = socket.create_connection(address, timeout=30, source_address=(source, 0))
    found.sendall(data)
    return found


def rest(connection: socket.socket) -> bytes:
    """Return what comes until the server closes the connection."""
    found = b""
    try:
        while part := connection.recv(65536):
            found += part
    except ConnectionResetError:
        pass
    connection.close()
    return found
