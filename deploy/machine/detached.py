"""Commands in the background: start one, show what it says until it runs, and leave it running; or let systemd run it."""

from __future__ import annotations

import contextlib
import os
import select
import shlex
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from dskype.deploy.machine import paths
from dskype.deploy.machine.errors import DeployError
from dskype.deploy.machine.processes import module_command

__all__ = ["report_ready", "start", "systemd_unit"]

_READY = "DSKYPE_READY_FD"
"""Environment variable with the number of a pipe's handle; the command writes a byte when it runs."""
_NOTIFY = "NOTIFY_SOCKET"
"""Environment variable by which systemd names the socket for the same message."""
_LOOK_S = 0.1
_KEPT_VARIABLES = ("JAVA_HOME", paths.HOME_VARIABLE, "XDG_CACHE_HOME")


def start(arguments: Sequence[str], log: Path, show: Callable[[str], None], *, cwd: Path | None = None) -> int:
    """Start ``dskype ARGUMENTS`` in a session of its own, and wait until it says that it runs.

    Ctrl-C meanwhile ends the command as well; a second one leaves it to end by itself.

    :param log: the file that its output is added to.
    :param show: gets the lines of its output until it runs.
    :param cwd: its working folder; default: the present one.
    :returns: its process id.
    :raises DeployError: it ended before it said so.
    """
    log.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    read, write = os.pipe()
    try:
        with open(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab") as output, open(log, "rb") as said:
            said.seek(0, os.SEEK_END)
            process = subprocess.Popen(
                module_command("dskype.deploy", *arguments),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=cwd,
                env={**os.environ, _READY: str(write), "PYTHONUNBUFFERED": "1"},
                pass_fds=[write],
                start_new_session=True,
            )
            os.close(write)
            write = -1
            try:
                while not select.select([read], [], [], _LOOK_S)[0]:
                    _relay(said.readlines(), show)
            except KeyboardInterrupt:
                with contextlib.suppress(ProcessLookupError):
                    process.send_signal(signal.SIGTERM)
                show(f"stopping process {process.pid}, which ends what it has started; that takes up to a minute")
                while process.poll() is None:
                    _relay(said.readlines(), show)
                    time.sleep(_LOOK_S)
                _relay(said.readlines(), show)
                raise
            ready = os.read(read, 1) == b"1"
            if not ready:
                process.wait()
            _relay(said.readlines(), show)
    finally:
        os.close(read)
        if write >= 0:
            os.close(write)
    if not ready and process.returncode == 130:
        raise DeployError("the command was expected to keep running, given: it was stopped before it ran", fix="start it again")
    if not ready:
        raise DeployError(f"the command was expected to keep running, given: it has ended with exit code {process.returncode}", fix=f"its output is in {log}")
    return process.pid


def _relay(lines: list[bytes], show: Callable[[str], None]) -> None:
    for line in lines:
        show(line.decode(errors="replace").rstrip())


def report_ready() -> None:
    """Tell the process that started this command in the background, or systemd, that it runs; the first call counts."""
    if (handle := os.environ.pop(_READY, None)) is not None:
        with contextlib.suppress(OSError, ValueError):  # nobody waits any more
            os.write(int(handle), b"1")
            os.close(int(handle))
    if (address := os.environ.pop(_NOTIFY, None)) is not None:
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
            notify.sendto(b"READY=1", f"\0{address[1:]}" if address.startswith("@") else address)


def systemd_unit(description: str, arguments: Sequence[str], *, cwd: Path, as_root: bool, variables: Sequence[str] = ()) -> str:
    """Return a unit of systemd that runs ``dskype ARGUMENTS``, restarts it after a failure, and starts it with the machine.

    :param cwd: the working folder.
    :param as_root: make a unit of the system, else one of a user (``systemctl --user``).
    :param variables: environment variables that the command needs, too; the unit has their present values.
    """
    command = " ".join(_quoted(a).replace("$", "$$") for a in module_command("dskype.deploy", *arguments))
    lines = [
        "[Unit]",
        f"Description={description.replace('%', '%%')}",
        *(["Wants=network-online.target", "After=network-online.target"] if as_root else ()),
        "# What it waits for (a broker, room on the disk) may take long: try for ever.",
        "StartLimitIntervalSec=0",
        "",
        "[Service]",
        "Type=notify",
        f"ExecStart={command}",
        f"WorkingDirectory={str(cwd).replace('%', '%%')}",
        *(f"Environment={_quoted(f'{name}={os.environ[name]}')}" for name in (*_KEPT_VARIABLES, *variables) if os.environ.get(name)),
        "# The main process stops the topology, Spark and the broker in this order; only what is left then is killed.",
        "KillMode=mixed",
        "TimeoutStartSec=600",
        "TimeoutStopSec=90",
        "SuccessExitStatus=130",
        "Restart=on-failure",
        "RestartSec=10",
        "",
        "[Install]",
        f"WantedBy={'multi-user' if as_root else 'default'}.target",
    ]
    return "\n".join(lines) + "\n"


def _quoted(word: str) -> str:
    """Return a word as systemd reads it in a list of words."""
    word = word.replace("%", "%%")
    if word and word == shlex.quote(word):
        return word
    return '"' + word.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
