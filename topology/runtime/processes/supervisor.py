"""The supervisor: a zygote per Spark executor that forks resident executors on request.

It is forked from the Spark Python daemon, has everything imported and the emulator's kernels compiled, and only forks. A task of Spark
asks it for the socket of a Storm executor; if that executor does not run, it is forked. An executor of a higher *epoch* (its
query was restarted) replaces one of a lower.

No process outlives its parent, by the kernel's parent-death signal: JVM -> daemon -> supervisor -> executors. The
supervisor removes its folder of sockets when it ends; if it was killed, the next supervisor does so when it starts.
"""

from __future__ import annotations

import os
import selectors
import shutil
import signal
import socket
import sys
import tempfile
import time
import traceback
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import msgpack

from dskype.topology.runtime.processes import resident
from dskype.topology.runtime.processes.host import Stop, StopSignal, die_with_parent, runtime_folder, set_name, short_address
from dskype.topology.runtime.processes.supervisor_client import SUPERVISOR_FOLDER, running_supervisor
from dskype.topology.runtime.transport.wire import SUPERVISOR_VARIABLE, receive, send

__all__ = ["start_supervisor"]

_GRACE_S = 5.0

Key = tuple[str, str, int]
"""Topology id, component, executor index."""


@dataclass
class _Child:
    pid: int
    epoch: int
    path: str


def _sweep(root: Path) -> None:
    """Remove the folders of supervisors that have ended; ignore everything else."""
    for folder in root.iterdir():
        if (name := SUPERVISOR_FOLDER.fullmatch(folder.name)) is None:
            continue
        try:
            os.kill(int(name[1]), 0)
        except ProcessLookupError:
            with suppress(RecursionError):  # too deep to be a supervisor's folder
                shutil.rmtree(folder, ignore_errors=True)
        except (OverflowError, PermissionError):
            continue


def start_supervisor() -> int:
    """Fork the supervisor, and set the path of its socket in the environment of the calling process (the daemon).

    Daemons of one JVM share a supervisor: Spark starts another daemon for each environment of its Python workers.

    :returns: the supervisor's process id; 0 if another daemon has started it.
    """
    folder, shared = runtime_folder()
    jvm = os.getppid()
    if shared:
        _sweep(folder)
        if (found := running_supervisor(folder, jvm)) is not None:
            _tell(found)
            return 0
        # The name has the daemon's pid, for _sweep: the supervisor ends with the daemon.
        folder = Path(tempfile.mkdtemp(prefix=f"supervisor-{os.getpid()}-{jvm}-", dir=folder))
    path = str(folder / "supervisor")
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(short_address(path))
    listener.listen(64)
    _tell(path)
    parent = os.getpid()
    pid = os.fork()
    if pid:
        listener.close()
        return pid
    try:
        os.setsid()
        die_with_parent(parent, signal.SIGTERM)
        set_name("dskype-superv")
        quiet = os.open(os.devnull, os.O_RDWR)
        os.dup2(quiet, 0)
        os.dup2(2, 1)  # the daemon's stdout is Spark's
        _Supervisor(listener, folder, parent).run()
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(0)


def _tell(path: str) -> None:
    """Tell workers and the JVM where the supervisor is."""
    os.environ[SUPERVISOR_VARIABLE] = path
    if (told := os.environ.pop("DSKYPE_SUPERVISOR_FILE", None)) is not None:
        Path(told).write_text(short_address(path))


class _Supervisor:
    def __init__(self, listener: socket.socket, folder: Path, parent: int) -> None:
        self._listener, self._folder, self._parent = listener, folder, parent
        self._children: dict[Key, _Child] = {}
        self._payloads: dict[tuple[str, int, str], bytes] = {}  # topology id, epoch and component
        self._stopped: dict[str, int] = {}
        self._selector = selectors.DefaultSelector()
        self._serial = 0

    def run(self) -> None:
        stop = StopSignal()
        stop.install()
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        try:
            resident.warm_up()
            self._selector.register(self._listener, selectors.EVENT_READ)
            while os.getppid() == self._parent:
                with stop.waiting():
                    ready = self._selector.select(timeout=5)
                for key, _ in ready:
                    if key.fileobj is self._listener:
                        connection, _ = self._listener.accept()
                        self._selector.register(connection, selectors.EVENT_READ)
                    else:
                        self._serve(cast("socket.socket", key.fileobj))
                for executor, child in list(self._children.items()):
                    if _ended(child.pid):
                        self._forget(executor)
        except Stop:
            pass
        finally:
            stop.ignore()
            self._listener.close()  # who asks now finds another supervisor, or starts one
            self._stop_children(list(self._children))
            shutil.rmtree(self._folder, ignore_errors=True)

    def _forget(self, key: Key) -> None:
        child = self._children.pop(key)
        Path(child.path).unlink(missing_ok=True)

    def _serve(self, connection: socket.socket) -> None:
        try:
            send(connection, self._answer(msgpack.unpackb(receive(connection))))
        except Exception as error:  # an error of a client must not end the zygote
            if not isinstance(error, ConnectionError):
                traceback.print_exc()
            self._selector.unregister(connection)
            connection.close()

    def _answer(self, request: dict) -> bytes:
        """Carry out a request. Who asks for an executor does not know msgpack: it gets ``P`` and a path, ``N`` (the payload is needed), or ``E`` and an error."""
        topology, epoch = request["topology"], request["epoch"]
        if request["op"] == "stop":
            self._stop_children([k for k, c in self._children.items() if k[0] == topology and c.epoch <= epoch])
            # A Spark task that has not ended yet must not start its executor again.
            self._stopped[topology] = max(epoch, self._stopped.get(topology, 0))
            self._payloads = {k: v for k, v in self._payloads.items() if k[0] != topology}
            return b""
        if epoch <= self._stopped.get(topology, -1):
            return b"E" + f"topology {topology!r} was stopped in epoch {self._stopped[topology]}; given: {epoch}".encode()
        key = (topology, request["component"], request["index"])
        child = self._children.get(key)
        if child is not None and (_ended(child.pid) or child.epoch < epoch):
            self._stop_children([key])
            child = None
        if child is not None and child.epoch > epoch:
            return b"E" + f"executor {key} runs in epoch {child.epoch}; given: {epoch}; a newer query has replaced this one".encode()
        if child is None:
            payload_key = topology, epoch, request["component"]
            if (payload := request.get("payload")) is not None:
                self._payloads = {k: v for k, v in self._payloads.items() if k[0] != topology or k[1] == epoch}
                self._payloads[payload_key] = payload
                resident.import_components(payload)
            elif payload_key not in self._payloads:
                return b"N"
            child = self._children[key] = self._fork(key, epoch, self._payloads[payload_key])
        return f"P{short_address(child.path)}".encode()

    def _fork(self, key: Key, epoch: int, payload: bytes) -> _Child:
        self._serial += 1
        path = str(self._folder / f"executor-{self._serial}")
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(short_address(path))
        listener.listen(64)
        parent = os.getpid()
        pid = os.fork()
        if pid:
            listener.close()
            return _Child(pid, epoch, path)
        try:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            die_with_parent(parent)
            self._selector.close()
            self._listener.close()
            resident.main(listener, key, payload)
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
        finally:
            os._exit(0)

    def _stop_children(self, keys: list[Key]) -> None:
        """End executors by SIGTERM, upon which they call ``cleanup``, and by SIGKILL if they take too long."""
        for sign, seconds in ((signal.SIGTERM, _GRACE_S), (signal.SIGKILL, _GRACE_S)):
            for key in keys:
                if not _ended(self._children[key].pid):
                    os.kill(self._children[key].pid, sign)
            deadline = time.monotonic() + seconds
            while time.monotonic() < deadline and not all(_ended(self._children[k].pid) for k in keys):
                time.sleep(0.01)
        for key in keys:
            self._forget(key)


def _ended(pid: int) -> bool:
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return True
