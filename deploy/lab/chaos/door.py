"""A door: a port of this process that leads to a server, and can hang. Then connections are taken and stay, but no byte passes, as in a network that drops packets."""

from __future__ import annotations

import contextlib
import socket
import threading

__all__ = ["Door"]

_PIECE_BYTES = 1 << 16


class Door:
    """A port on 127.0.0.1 that passes everything on to another one.

    :param port: its own port.
    :param target: the server's port.
    """

    def __init__(self, port: int, target: int) -> None:
        self.port, self._target = port, target
        self._open = threading.Event()
        self._open.set()
        self._closing = False

    def hang(self) -> None:
        """Stop passing data; connections are still accepted."""
        self._open.clear()

    def resume(self) -> None:
        """Pass all data, including what waits."""
        self._open.set()

    def start(self) -> Door:
        """Take connections from now on; return this door."""
        self._listener = socket.create_server(("127.0.0.1", self.port), backlog=200)
        threading.Thread(target=self._accept, name="chaos-door", daemon=True).start()
        return self

    def close(self) -> None:
        """Take no more connections."""
        self._closing = True
        self._open.set()
        self._listener.close()

    def _accept(self) -> None:
        while not self._closing:
            try:
                client, _ = self._listener.accept()
            except OSError:
                continue
            threading.Thread(target=self._connect, args=(client,), daemon=True).start()

    def _connect(self, client: socket.socket) -> None:
        try:
            server = socket.create_connection(("127.0.0.1", self._target), 5)
        except OSError:
            client.close()
            return
        server.settimeout(None)
        threading.Thread(target=self._pass_on, args=(client, server), daemon=True).start()
        self._pass_on(server, client)

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(_PIECE_BYTES):
                self._open.wait()
                target.sendall(data)
        self._open.wait()  # nobody hears of an end meanwhile
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
