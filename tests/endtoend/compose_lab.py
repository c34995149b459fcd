"""The compose file on a private engine, where no registry of images can be reached: stand-ins for the images are made here.

Their processes are real. Programs, Python packages and jars are those of this machine, mounted read-only; a stand-in has little more than users, folders
and the start of the program. Like the image of Apache Kafka, its stand-in makes the broker's settings from the environment with Kafka's own class for it.
Grafana is left out.

Run a command where the project's containers and published ports are::

    python -m tests.endtoend.compose_lab [KEY=VALUE...] make compose-demo
"""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dskype.deploy.machine import broker as brokers
from dskype.deploy.machine import jars, paths
from dskype.deploy.machine.java import find_java
from dskype.deploy.machine.spark_archive import existing_archive
from dskype.deploy.machine.spark_classes import spark_class_path
from tests.needs import install

from .private_engine import PrivateEngine

ROOT = Path(__file__).parents[2]
COMPOSE = ROOT / "deploy" / "compose"
_USER = 1000
_FOLDER = "/var/tmp"  # on a disk, with a short name: sockets are below it
_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

_KAFKA_START = """#!/bin/bash
# A broker that is started again has its folder already: the setup fails then, after it has written the settings.
said=$(java -cp "$KAFKA_CLASSES" kafka.docker.KafkaDockerWrapper setup --default-configs-dir /etc/kafka/docker \
    --mounted-configs-dir /mnt/shared/config --final-configs-dir /opt/kafka/config 2>&1) || grep -qi "already formatted" <<< "$said" || { echo "$said"; exit 1; }
exec java $KAFKA_HEAP_OPTS -Dlog4j2.configurationFile=/opt/kafka/config/log4j2.yaml -cp "$KAFKA_CLASSES" kafka.Kafka /opt/kafka/config/server.properties
"""

# Asks the broker for the versions of its requests: length, key 18, version 0, number of the request, no name of a client.
_API_VERSIONS = """#!/usr/bin/env python3
import re, socket, ssl, struct, sys
host, port = sys.argv[sys.argv.index("--bootstrap-server") + 1].split(":")
connection = socket.create_connection((host, int(port)), 5)
if "--command-config" in sys.argv:  # a broker with TLS answers this request before anybody logs in
    settings = open(sys.argv[sys.argv.index("--command-config") + 1]).read()
    authority = re.search("^ssl.truststore.location=(.*)$", settings, re.MULTILINE)[1]
    connection = ssl.create_default_context(cafile=authority).wrap_socket(connection, server_hostname=host)
with connection:
    connection.sendall(struct.pack(">ihhih", 10, 18, 0, 7, -1))
    connection.settimeout(5)
    size, number, error = struct.unpack(">iih", connection.recv(10))
    print(host, port, size)
    sys.exit(number != 7 or error != 0)
"""

_LOG4J = """Configuration:
  Appenders:
    Console: {name: STDOUT, PatternLayout: {pattern: "[%d] %p %m (%c)%n"}}
  Loggers:
    Root: {level: WARN, AppenderRef: [{ref: STDOUT}]}
"""

_FOLDERS = {  # path -> (owner, mode)
    **dict.fromkeys(("dev", "etc", "proc", "run", "sbin", "sys", "usr", "root", "mnt/shared/config", "etc/prometheus"), (0, 493)),
    **dict.fromkeys(("opt/dskype/deploy/compose", "opt/kafka/logs"), (0, 493)),
    **dict.fromkeys(("opt/kafka/config", "var/lib/kafka/data", "var/spark", "home/dskype", "prometheus", "secrets"), (_USER, 493)),
    "tmp": (0, 0o1777),
    "home/dskype/.dskype": (_USER, 0o700),
    "home/dskype/.dskype/topologies": (_USER, 0o700),
    "opt/dskype/.home": (_USER, 0o700),
    **dict.fromkeys(("opt/dskype/.home/part", "opt/dskype/.home/jars"), (_USER, 0o755)),
}
_FILES = {  # path -> (content, mode)
    "etc/passwd": (f"root:x:0:0::/root:/bin/sh\ndskype:x:{_USER}:{_USER}::/home/dskype:/bin/sh\n", 0o644),
    "etc/group": (f"root:x:0:\ndskype:x:{_USER}:\n", 0o644),
    "etc/nsswitch.conf": ("hosts: files dns\n", 0o644),
    "opt/dskype/.home/part/of-the-image": ("", 0o644),
    "etc/kafka/docker/run": (_KAFKA_START, 0o755),
    "etc/kafka/docker/server.properties": ("", 0o644),
    "etc/kafka/docker/log4j2.yaml": (_LOG4J, 0o644),
    "etc/kafka/docker/tools-log4j2.yaml": (_LOG4J, 0o644),
    "opt/kafka/bin/kafka-broker-api-versions.sh": (_API_VERSIONS, 0o755),
}
_LINKS = {"bin": "usr/bin", "lib": "usr/lib", "lib64": "usr/lib64"}  # /sbin is a folder: the engine puts its init there


class _Classes:
    """The jars and class archives of this machine, which containers have in the same places: an archive fits only a JVM with the same jars in the same places.

    :param folder: for copies of the archives that the user of containers can read.
    :ivar mounts: of containers.
    :ivar links: path in the home of the image -> where it is.
    :ivar broker: the broker's jars, as a class path.
    :ivar spark: those that come first in Spark's class path.
    """

    def __init__(self, folder: Path) -> None:
        broker, spark = jars.fetch(jars.SETS)["broker"], spark_class_path()
        connector, classes, archives = spark[0].parent, spark[-1].parent, paths.class_archives_dir()
        self.broker, self.spark = (os.pathsep.join(map(str, files)) for files in (broker, spark))
        self.mounts = [f"{place}:{place}:ro" for place in (connector, broker[0].parent, classes)] + [f"{folder}:{archives}:ro"]
        self.links = {f"jars/{place.name}": str(place) for place in (connector, broker[0].parent)} | {classes.name: str(classes), archives.name: str(archives)}
        folder.mkdir()
        self._archives = {"broker": brokers.existing_archive(find_java(), broker), "spark": existing_archive(spark)}
        for archive in filter(None, self._archives.values()):
            shutil.copyfile(archive, folder / archive.name)
            (folder / archive.name).chmod(0o444)

    def options(self, of: str) -> str:
        """Return the options of the JVMs of ``broker`` or ``spark``. Those whose class path is another one do without the archive."""
        archive = self._archives[of]
        return _JVM if archive is None else f"{_JVM} -Xshare:auto -XX:SharedArchiveFile={archive} -Xlog:cds*=error"


def _root_file_system(classes: _Classes) -> bytes:
    """Return a tar archive of folders, users and starts of programs."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:

        def add(name: str, kind: bytes, owner: int, mode: int, data: bytes = b"", link: str = "") -> None:
            info = tarfile.TarInfo(name)
            info.type, info.uid, info.gid, info.mode, info.size, info.linkname = kind, owner, owner, mode, len(data), link
            archive.addfile(info, io.BytesIO(data))

        for name, (owner, mode) in _FOLDERS.items():
            add(name, tarfile.DIRTYPE, owner, mode)
        for name, (text, mode) in _FILES.items():
            add(name, tarfile.REGTYPE, 0, mode, text.encode())
        for name, target in (_LINKS | {f"opt/dskype/.home/{name}": target for name, target in classes.links.items()}).items():
            add(name, tarfile.SYMTYPE, 0, 0o777, link=target)
    return content.getvalue()


def _names(environment: dict[str, str]) -> dict[str, str]:
    """Return the variables of the project's ``.env`` that name images, without the digests, which no stand-in has; those of the environment win."""
    found = dict(re.findall(r"^(\w+_IMAGE)=([^@\n]+)", (COMPOSE / ".env").read_text(), re.MULTILINE))
    return found | {k: v for k, v in environment.items() if k in found}


def _changes(image: str, java: str, prefix: str) -> list[str]:
    """Return the configuration of a stand-in."""
    path = f"ENV PATH={prefix}:{java}/bin:/usr/bin:/usr/sbin"
    user = f"USER {_USER}:{_USER}"
    return {
        "dskype": [path, user, f"ENV JAVA_HOME={java} SPARK_NO_DAEMONIZE=1", "WORKDIR /var/spark"],
        "kafka": [path, user, 'CMD ["/etc/kafka/docker/run"]'],
        "prometheus": [
            path,
            user,
            'ENTRYPOINT ["/usr/bin/prometheus"]',
            'CMD ["--config.file=/etc/prometheus/prometheus.yml", "--storage.tsdb.path=/prometheus"]',
        ],
    }[image]


def _make_images(engine: PrivateEngine, names: dict[str, str], java: str, classes: _Classes) -> None:
    content = _root_file_system(classes)
    prefix = str(Path(sys.executable).parent)
    for image in ("dskype", "kafka", "prometheus"):
        changes = [argument for change in _changes(image, java, prefix) for argument in ("--change", change)]
        engine.run("import", *changes, "-", names[f"{image.upper()}_IMAGE"], stdin=content)


def _mounts(java: Path) -> list[str]:
    """Return the read-only mounts that all containers have."""
    etc = [Path("/etc/alternatives"), Path("/etc/ssl"), Path("/etc/ld.so.cache"), *Path("/etc").glob("java-*")]
    own = [Path(sys.base_prefix), ROOT, Path(sys.prefix), java, *([Path(sys.pycache_prefix)] if sys.pycache_prefix else [])]
    wanted = [Path("/usr"), *etc, *(p for p in own if not p.is_relative_to("/usr"))]
    return [f"{p}:{p}:ro" for p in dict.fromkeys(wanted) if p.exists()]


def _override(engine: PrivateEngine, java: Path, classes: _Classes, without: Sequence[str], secure: bool) -> str:
    """Return what is different from the compose file, as YAML: nothing is built, and containers have this machine's programs."""
    mounts = _mounts(java)
    home = "/home/dskype/.dskype"
    variables = {"PYSPARK_PYTHON": sys.executable, "DSKYPE_HOME": home, "NUMBA_CACHE_DIR": f"{home}/numba"}
    # Executors have the jars on their class path, too, which the driver sends them as well.
    executors = f"--conf spark.executor.extraClassPath={classes.spark} pyspark-shell"
    variables |= {"JAVA_TOOL_OPTIONS": classes.options("spark"), "SPARK_DAEMON_CLASSPATH": classes.spark, "PYSPARK_SUBMIT_ARGS": executors}
    if sys.pycache_prefix:  # each process would compile all modules again
        variables["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix
    scripts = f"{COMPOSE}:/opt/dskype/deploy/compose:ro"
    ours = {"environment": variables, "volumes": [*mounts, *classes.mounts, scripts, f"{engine.writable}:{home}/numba"], "build": None}
    kafka = {"environment": {"JAVA_TOOL_OPTIONS": classes.options("broker"), "KAFKA_CLASSES": classes.broker}, "volumes": [*mounts, *classes.mounts]}
    services: dict[str, Any] = dict.fromkeys(("spark-master", "spark-worker-1", "spark-worker-2", "topology", "standby", "metrics", "ui"), ours)
    if secure:
        services["secrets"] = {"volumes": [*mounts, scripts]}
    services |= dict.fromkeys(("kafka-1", "kafka-2", "kafka-3"), kafka) | {"prometheus": {"volumes": mounts}}
    services |= dict.fromkeys(without)
    return json.dumps({"services": services}).replace(": null", ": !reset null")


@contextmanager
def lab(values: Mapping[str, str] | None = None, without: Sequence[str] = ("grafana",), secure: bool = False) -> Iterator[PrivateEngine]:
    """Yield an engine that has stand-ins for the images of the compose file.

    :param values: for variables of the compose file, in place of those in ``.env``.
    :param without: services that are left out.
    :param secure: for commands with ``SECURE=1``.
    """
    if "prometheus" not in without:
        install({"prometheus": "prometheus", "wget": "wget"}, "containers")
    folder = Path(tempfile.mkdtemp(prefix="dskype-", dir=_FOLDER))
    cache = paths.export_numba_cache()
    java = find_java().path.resolve().parents[1]
    with PrivateEngine(folder, cache, sorted(p.name for p in cache.iterdir() if p.is_dir())) as engine:
        engine.variables |= values or {}
        engine.variables |= (names := _names(engine.environ))
        classes = _Classes(folder / "archives")
        _make_images(engine, names, str(java), classes)
        override = folder / "stand-ins.yaml"
        override.write_text(_override(engine, java, classes, without, secure))
        engine.variables["COMPOSE_FILE"] = f"{COMPOSE / 'compose.yaml'}:{override}"
        yield engine


def main(arguments: list[str]) -> int:
    """Run a command in a lab; return its exit code."""
    values = {}
    while arguments and re.match(r"\w+=", arguments[0]):
        name, _, values[name] = arguments.pop(0).partition("=")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # clean up, as after Ctrl-C
    with lab(values) as engine:
        return subprocess.run(engine.inside(*arguments), env=engine.environ, cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
