"""A Kerberos realm of its own for one test: a key distribution centre of MIT on 127.0.0.1, with everything in one folder."""

from __future__ import annotations

import fcntl
import importlib.metadata
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Self

from dskype.deploy.machine import paths
from dskype.deploy.machine.broker import free_ports
from dskype.deploy.machine.processes import spawn_tied
from tests.needs import InstallationError, install, which

_PACKAGES = {"krb5kdc": "krb5-kdc", "kdb5_util": "krb5-kdc", "kadmin.local": "krb5-admin-server", "krb5-config": "libkrb5-dev", "gcc": "gcc"}
_REALM = "DSKYPE.TEST"
_GSSAPI = "gssapi==1.12.0"
"""There are no wheels of it for Linux, so it is compiled."""
_QUICK = "-O0 -g0"
"""Tests make a few calls: optimizing the code would take twice as long as everything else together. Nobody else gets this package: it is not put into pip's cache."""
_BUILD_S = 900


def unusable() -> str:
    """Return why no realm can be made here; empty if one can, after the installation of Debian packages at most."""
    if missing := [program for program in _PACKAGES if not which(program)]:
        if os.getuid() != 0 or not which("apt-get"):
            return f"Kerberos needs {', '.join(missing)}, which root can install with apt-get"
    return ""


def gssapi_folder() -> str:
    """Return the folder from which the package gssapi can be imported, for PYTHONPATH; empty if Python has it. It is compiled once for a machine.

    :raises InstallationError: it cannot be had.
    """
    try:
        importlib.metadata.version("gssapi")
    except importlib.metadata.PackageNotFoundError:
        built = paths.home() / "test-packages"
        folder = built / f"{sys.implementation.cache_tag}-{_GSSAPI}"
        built.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open(built / "lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not folder.exists():
                half = folder.with_suffix(".half")
                options = ["-q", "--disable-pip-version-check", "--no-cache-dir", "--upgrade", "--target", str(half)]
                command = [sys.executable, "-m", "pip", "install", *options, _GSSAPI]
                environment = {**os.environ, "CFLAGS": f"{os.environ.get('CFLAGS', '')} {_QUICK}".strip()}
                done = subprocess.run(command, capture_output=True, text=True, timeout=_BUILD_S, check=False, stdin=subprocess.DEVNULL, env=environment)
                if done.returncode:
                    msg = f"{_GSSAPI} cannot be compiled: {done.stderr[-1000:]}"
                    raise InstallationError(msg) from None
                half.rename(folder)
        return str(folder)
    return ""


class Realm:
    """A realm with the principals ``kafka/<this machine>`` (brokers) and ``ann`` (clients), and a keytab of each.

    :param folder: for its files.
    """

    def __init__(self, folder: Path) -> None:
        install(_PACKAGES, "tests with Kerberos")
        self.folder = folder
        self.service = f"kafka/{socket.gethostbyaddr('127.0.0.1')[0]}@{_REALM}"  # clients ask for the name that the address has
        self.client = f"ann@{_REALM}"
        (port,) = free_ports(1)
        (folder / "krb5.conf").write_text(
            f"[libdefaults]\ndefault_realm = {_REALM}\ndns_lookup_kdc = false\ndns_lookup_realm = false\nudp_preference_limit = 1\n"
            f"[realms]\n{_REALM} = {{\n kdc = 127.0.0.1:{port}\n}}\n"
        )
        (folder / "kdc.conf").write_text(
            f"[realms]\n{_REALM} = {{\n database_name = {folder}/principal\n key_stash_file = {folder}/stash\n acl_file = {folder}/acl\n"
            f" kdc_listen = 127.0.0.1:{port}\n kdc_tcp_listen = 127.0.0.1:{port}\n}}\n[logging]\nkdc = FILE:{folder}/kdc.log\n"
        )
        self._run("kdb5_util", "create", "-s", "-r", _REALM, "-P", "not-a-secret")
        for principal, keytab in ((self.service, "kafka.keytab"), (self.client, "ann.keytab")):
            self._run("kadmin.local", "-q", f"addprinc -randkey {principal}")
            self._run("kadmin.local", "-q", f"ktadd -k {folder / keytab} {principal}")
        self._kdc = spawn_tied([str(which("krb5kdc")), "-n"], env=self._own(), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def _own(self) -> dict[str, str]:
        return {**os.environ, "KRB5_CONFIG": str(self.folder / "krb5.conf"), "KRB5_KDC_PROFILE": str(self.folder / "kdc.conf")}

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run([str(which(program)), *arguments], env=self._own(), capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
        assert done.returncode == 0, done.stderr

    @property
    def java(self) -> str:
        """The option with which Java finds the realm."""
        return f"-Djava.security.krb5.conf={self.folder / 'krb5.conf'}"

    def login(self, principal: str, keytab: str) -> str:
        """Return the line with which Java's programs log in."""
        return f'com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true keyTab="{self.folder / keytab}" principal="{principal}";'

    def environment(self) -> dict[str, str]:
        """Return the environment of a process that is ``ann``."""
        return {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, (gssapi_folder(), os.environ.get("PYTHONPATH")))),
            "KRB5_CONFIG": str(self.folder / "krb5.conf"),
            "KRB5_CLIENT_KTNAME": f"FILE:{self.folder / 'ann.keytab'}",
            "KRB5CCNAME": f"FILE:{self.folder / 'tickets'}",
            "JAVA_TOOL_OPTIONS": self.java,
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._kdc.kill()
        self._kdc.wait()
