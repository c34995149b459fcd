"""What tests need of the machine: Debian packages, and what happens to a test where something cannot be had."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from pathlib import Path
from typing import NoReturn

import pytest

__all__ = ["PATH", "InstallationError", "install", "unavailable", "which"]

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_LOCK = Path("/var/tmp/dskype-packages.lock")
_TIMEOUT_S = 600


class InstallationError(RuntimeError):
    """Debian packages are missing and cannot be installed."""


def which(program: str) -> str | None:
    """Return the path of a program, also of one that only root has on its path."""
    return shutil.which(program, path=f"{PATH}:{os.environ.get('PATH', '')}")


def _missing(packages: dict[str, str]) -> list[str]:
    return sorted({package for program, package in packages.items() if not which(program)})


def install(packages: dict[str, str], purpose: str) -> None:
    """Install the Debian packages of programs that are missing. Processes that test at the same time do so one after the other.

    :param packages: program -> the package that brings it.
    :param purpose: what needs them, as the subject of a sentence in the plural.
    :raises InstallationError: they cannot be installed.
    """
    if not _missing(packages):
        return
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    try:
        with open(_LOCK, "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            wanted = _missing(packages)  # another process may have installed them meanwhile
            commands = (["update", "-qq"], ["install", "-y", "-qq", "--no-install-recommends", *wanted])
            for command in commands if wanted else ():
                subprocess.run(["apt-get", *command], check=True, capture_output=True, timeout=_TIMEOUT_S, env=environment, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.SubprocessError) as error:
        said = (getattr(error, "stderr", None) or b"").decode(errors="replace")[-1000:]
        msg = f"{purpose} need packages that cannot be installed: {error} {said}; hint: apt-get install {' '.join(_missing(packages))}"
        raise InstallationError(msg) from error


def unavailable(reason: str) -> NoReturn:
    """End a test that cannot run on this machine: it is skipped, and in CI (variable ``CI``) it fails."""
    if os.environ.get("CI"):
        pytest.fail(f"this has to be tested where CI is set: {reason}")
    pytest.skip(reason)
