"""Find the Java runtime, the same one that Spark uses."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from dskype.deploy.machine.errors import JavaError

MINIMUM = 17
"""Oldest Java feature release that Spark 4 runs on."""

_INSTALL = (
    f"install a Java {MINIMUM} runtime (Debian/Ubuntu: apt-get install openjdk-{MINIMUM}-jre-headless; Fedora: dnf install java-{MINIMUM}-openjdk-headless; "
    f"macOS: brew install openjdk@{MINIMUM}) and put it on PATH or in JAVA_HOME"
)


@dataclass(frozen=True)
class Java:
    """A Java runtime: the program, its feature release (17), its full version ('17.0.15'), and the setting that names it."""

    path: Path
    major: int
    version: str
    found_by: str


def locate_java(environ: Mapping[str, str] | None = None) -> Java:
    """Return the Java that ``JAVA_HOME`` or else ``PATH`` names, of any version. Spark's launcher uses the same one.

    :raises JavaError: there is none, or it does not run.
    """
    env = os.environ if environ is None else environ
    java_home = env.get("JAVA_HOME", "")
    if java_home:
        path, found_by = Path(java_home) / "bin" / "java", "JAVA_HOME"
        if not os.access(path, os.X_OK):
            raise JavaError(
                f"JAVA_HOME must be the folder that holds bin/java, given: {java_home!r}", fix="correct JAVA_HOME, or unset it to use the java on PATH"
            )
    else:
        found = shutil.which("java", path=env.get("PATH"))
        if found is None:
            raise JavaError(f"expected Java {MINIMUM} or newer, given: no java on PATH and no JAVA_HOME", fix=_INSTALL)
        path, found_by = Path(found), "PATH"
    version = _read_release(path) or _ask(path)
    return Java(path, _major(version), version, found_by)


def find_java(environ: Mapping[str, str] | None = None) -> Java:
    """Return ``locate_java()`` if it is new enough.

    :raises JavaError: it is not.
    """
    java = locate_java(environ)
    if java.major < MINIMUM:
        raise JavaError(f"expected Java {MINIMUM} or newer, given: {java.version} at {java.path} (by {java.found_by})", fix=_INSTALL)
    return java


def proxy_flags(environ: Mapping[str, str] | None = None) -> list[str]:
    """Translate ``HTTPS_PROXY``, ``HTTP_PROXY`` and ``NO_PROXY``, which Java ignores, to Java's properties (host and port only)."""
    env = os.environ if environ is None else environ
    flags = []
    for scheme in ("http", "https"):
        value = env.get(f"{scheme}_proxy") or env.get(f"{scheme.upper()}_PROXY") or ""
        parts = urlsplit(value if "//" in value else f"//{value}")
        if parts.hostname:
            flags += [f"-D{scheme}.proxyHost={parts.hostname}", f"-D{scheme}.proxyPort={parts.port or (443 if parts.scheme == 'https' else 80)}"]
    skip = env.get("no_proxy") or env.get("NO_PROXY") or ""
    hosts = [("*" + h if h.startswith(".") else h) for h in (p.strip() for p in skip.split(",")) if h]
    if flags and hosts:
        flags.append("-Dhttp.nonProxyHosts=" + "|".join(hosts))
    return flags


def _read_release(java: Path) -> str:
    """Read the version from the runtime's ``release`` file. Starting the JVM to ask it takes 50 ms and more."""
    try:
        text = (java.resolve().parent.parent / "release").read_text(errors="replace")
    except OSError:
        return ""
    found = re.search(r'^JAVA_VERSION="([^"]+)"', text, re.M)
    return found.group(1) if found else ""


def _ask(java: Path) -> str:
    try:
        done = subprocess.run([str(java), "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as e:
        raise JavaError(f"{java} does not run: {e}", fix=_INSTALL) from e
    found = re.search(r'version "([^"]+)"', done.stderr + done.stdout)
    if done.returncode or not found:
        raise JavaError(f"expected a version from '{java} -version', given: {(done.stderr + done.stdout).strip()[:300]!r}", fix=_INSTALL)
    return found.group(1)


def _major(version: str) -> int:
    parts = [int(n) for n in re.findall(r"\d+", version)]
    if not parts:
        return 0
    return parts[1] if parts[0] == 1 and len(parts) > 1 else parts[0]  # "1.8.0_402" is Java 8
