"""Check this machine: what keeps a topology from running here, and how to fix it."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dskype.deploy.machine import jars, paths
from dskype.deploy.machine.broker import EmbeddedBroker, free_ports
from dskype.deploy.machine.connection import Bootstrap, client_arguments, parse_servers, resolve_bootstrap
from dskype.deploy.machine.errors import DeployError
from dskype.deploy.machine.java import MINIMUM, locate_java

OK, WARN, FAIL = "ok", "warn", "fail"

_GIB = 1024**3
_MIN_DISK, _GOOD_DISK = 1 * _GIB, 5 * _GIB
_MIN_MEMORY, _GOOD_MEMORY = 1 * _GIB, 3 * _GIB
_NEWEST_JAVA = 25
"""Newest Java that Spark 4.2 officially supports; its documentation says so, and nothing in the package."""


@dataclass(frozen=True)
class Row:
    """One line of the report.

    :ivar status: ``ok``, ``warn`` or ``fail``.
    :ivar fix: what to do; empty if the status is ``ok``.
    """

    check: str
    status: str
    detail: str
    fix: str = ""


def run_checks(
    bootstrap: Bootstrap | None = None,
    *,
    client_options: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] | None = None,
    start_broker: bool = True,
    more: Sequence[tuple[str, Callable[[], list[Row]]]] = (),
    progress: Callable[[str], None] | None = None,
) -> list[Row]:
    """Run all checks and return their rows; no check raises.

    :param bootstrap: the brokers to check; default: those of ``resolve_bootstrap()``.
    :param client_options: ``kafka.*`` settings (TLS, SASL) for named brokers.
    :param start_broker: start the embedded broker once (2 s).
    :param more: names and functions of further checks.
    :param progress: called with one line of text per check.
    """
    env = os.environ if environ is None else environ
    report = progress or (lambda text: None)
    rows: list[Row] = []
    checks: list[tuple[str, Callable[[], list[Row]]]] = [
        ("python", _python),
        ("packages", _packages),
        ("java", lambda: _java(env)),
        ("spark", lambda: _spark(env)),
        ("jars", _jars),
        ("duplicate jars", _duplicates),
        ("folders", _folders),
        ("numba cache", lambda: _numba(env)),
        ("memory", _memory),
        ("host name", lambda: _host_name(env)),
        ("ports", _ports),
        ("broker", lambda: _broker(bootstrap or resolve_bootstrap(None, env), client_options or {}, start_broker, rows)),
        ("topologies", lambda: _topologies(bootstrap or resolve_bootstrap(None, env), client_options or {}, rows)),
        *more,
    ]
    for name, check in checks:
        report(f"checking {name}")
        try:
            rows += check()
        except DeployError as e:
            rows.append(Row(name, FAIL, e.message, e.fix))
        except Exception as e:  # a report with one odd row is more useful than a traceback
            rows.append(Row(name, FAIL, f"the check itself failed: {e!r}", "report this with the output of 'dskype doctor -o json'"))
    return rows


def exit_code(rows: Sequence[Row]) -> int:
    """Return 1 if a check failed, else 0: warnings do not keep a topology from running."""
    return int(any(r.status == FAIL for r in rows))


def as_json(rows: Sequence[Row]) -> dict[str, Any]:
    """Return the report as a JSON-able object: ``{"status": worst, "checks": [{"check", "status", "detail", "fix"}]}``."""
    worst = next((s for s in (FAIL, WARN) if any(r.status == s for r in rows)), OK)
    return {"status": worst, "checks": [asdict(r) for r in rows]}


def as_text(rows: Sequence[Row]) -> str:
    """Return the report as aligned lines, each fix below its row."""
    width = max((len(r.check) for r in rows), default=0)
    lines = []
    for r in rows:
        lines.append(f"{r.status.upper():<4}  {r.check:<{width}}  {r.detail}")
        if r.fix:
            lines.append(f"{'':<{6 + width}}  fix: {r.fix}")
    return "\n".join(lines)


# ---------------------------------------------------------------------------------------------------- the checks


def _python() -> list[Row]:
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info < (3, 11):  # noqa: UP036 - a Python that is too old has to hear of it
        return [Row("python", FAIL, f"expected Python 3.11 or newer, given: {version}", "make a virtual environment with a newer Python")]
    newest = _newest_python()
    if sys.version_info[:2] > newest:
        made_for = ".".join(map(str, newest))
        return [
            Row(
                "python",
                WARN,
                f"Python {version} is newer than those that PySpark {jars.spark_version()} was made for (up to {made_for})",
                f"use Python 3.11 to {made_for} if Spark's workers fail",
            )
        ]
    return [Row("python", OK, f"{version} at {sys.executable}")]


def _newest_python() -> tuple[int, int]:
    """Return the newest version of Python for which the installed PySpark says that it was made."""
    try:
        classifiers = importlib.metadata.metadata("pyspark").get_all("Classifier") or []
    except importlib.metadata.PackageNotFoundError:
        classifiers = []  # another check says that it is missing
    return max((int(found[1]), int(found[2])) for c in (*classifiers, "Python :: 3.11") if (found := re.search(r"Python :: (\d+)\.(\d+)$", c)))


def _packages() -> list[Row]:
    """Check that the packages of topologies are installed. Versions are pip's task, except for two common mistakes."""
    try:
        required = importlib.metadata.requires("dskype") or []
    except importlib.metadata.PackageNotFoundError:
        return [Row("packages", WARN, "dskype itself is not installed, only found on the path", "pip install -e .")]
    versions: dict[str, str] = {}
    missing = []
    for line in required:
        if (extra := re.search(r"extra\s*==\s*['\"](\w+)", line)) and extra[1] != "spark":
            continue
        name = re.split(r"[^\w.-]", line, maxsplit=1)[0]
        try:
            versions[name.lower()] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            missing.append(name)
    rows = []
    if missing:
        rows.append(Row("packages", FAIL, f"missing: {', '.join(missing)}", "pip install '/path/to/dskype[spark]' in this environment"))
    major = {name: int(v.partition(".")[0]) for name, v in versions.items() if v.partition(".")[0].isdecimal()}
    if major.get("kafka-python", 3) < 3:
        rows.append(Row("packages", FAIL, f"expected kafka-python 3, given: {versions['kafka-python']}", "pip install 'kafka-python>=3,<4'"))
    if major.get("pandas", 2) >= 3:
        rows.append(
            Row("packages", WARN, f"PySpark {versions.get('pyspark', '4')} was made for pandas 2, given: {versions['pandas']}", "pip install 'pandas<3'")
        )
    return rows or [Row("packages", OK, ", ".join(f"{n} {versions[n]}" for n in ("pyspark", "kafka-python", "numba", "pyarrow") if n in versions))]


def _java(env: Mapping[str, str]) -> list[Row]:
    java = locate_java(env)
    detail = f"{java.version} at {java.path} (by {java.found_by})"
    if java.major < MINIMUM:
        return [Row("java", FAIL, f"expected Java {MINIMUM} or newer, given: {detail}", f"install Java {MINIMUM} and set JAVA_HOME to it")]
    if java.major > _NEWEST_JAVA:
        return [
            Row(
                "java",
                WARN,
                f"expected Java {MINIMUM} to {_NEWEST_JAVA}, which Spark supports, given: {detail}",
                f"set JAVA_HOME to a Java {MINIMUM} if Spark fails to start",
            )
        ]
    return [Row("java", OK, detail)]


def _spark(env: Mapping[str, str]) -> list[Row]:
    version, home = jars.spark_version(), jars.spark_home()
    cores = [p.name for p in (home / "jars").glob("spark-core_*.jar")]
    wanted = f"spark-core_{jars.scala_version()}-{version}.jar"
    if cores != [wanted]:
        hint = "unset SPARK_HOME: it points to another Spark than the installed PySpark" if env.get("SPARK_HOME") else "pip install --force-reinstall pyspark"
        return [Row("spark", FAIL, f"expected {wanted} in {home / 'jars'}, given: {cores}", hint)]
    rows = [Row("spark", OK, f"{version}, Scala {jars.scala_version()}, at {home}")]
    defaults = Path(env.get("SPARK_CONF_DIR") or home / "conf") / "spark-defaults.conf"
    if defaults.is_file():
        lines = [x.split()[0] for x in defaults.read_text(errors="replace").splitlines() if re.match(r"\s*spark\.jars(\.packages)?\s.*kafka", x)]
        if lines:
            rows.append(Row("spark", WARN, f"{defaults} names Kafka jars ({', '.join(lines)})", "remove them there: the connector would be loaded twice"))
    return rows


def _jars() -> list[Row]:
    problems = jars.verify(full=True)
    if not problems:
        count = sum(len(v) for v in jars.read_manifest().values())
        return [Row("jars", OK, f"{count} jars in {paths.jars_dir()}, all checksums as in {jars.MANIFEST.name}")]
    if all(p.kind == "missing" for p in problems):
        whole = len(problems) in {len(v) for v in jars.read_manifest().values()} | {sum(len(v) for v in jars.read_manifest().values())}
        if whole:
            return [
                Row(
                    "jars",
                    WARN,
                    f"{len(problems)} jars are not in {paths.jars_dir()} yet (55 MB at most)",
                    "they are fetched at the first start; or run 'dskype jars' now",
                )
            ]
    return [Row("jars", FAIL, str(p), f"rm -r {p.path.parent} and run 'dskype jars'") for p in problems[:5]]


def _duplicates() -> list[Row]:
    """Look in Spark's own folder for additional connector jars, and for jars of another Scala version."""
    folder = jars.spark_home() / "jars"
    ours = {j.artifact.rsplit("_2.", 1)[0]: j for j in jars.read_manifest()["spark"]}
    rows = []
    for path in sorted(folder.glob("*.jar")):
        # 'spark-sql-kafka-0-10_2.13-4.2.0.jar': with a Scala suffix the name ends there, else at the first number after a dash
        found = re.fullmatch(r"(.+)_(2\.\d+)-(\d[\w.-]*)\.jar", path.name) or re.fullmatch(r"(.+?)()-(\d[\w.-]*)\.jar", path.name)
        if not found:
            continue
        artifact, scala, version = found.groups()
        if scala and scala != jars.scala_version():
            rows.append(Row("duplicate jars", FAIL, f"{path} is for Scala {scala}, but this Spark is for {jars.scala_version()}", f"rm {path}"))
        elif artifact in ours:
            same = version == ours[artifact].version
            rows.append(Row("duplicate jars", WARN if same else FAIL, f"{path} duplicates our {ours[artifact].coordinate}", f"rm {path}"))
    return rows or [Row("duplicate jars", OK, f"none in {folder}")]


def _folders() -> list[Row]:
    rows = []
    for name, folder in (("home", paths.home()), ("scratch", paths.scratch_dir())):
        if not paths.make_writable(folder):
            rows.append(Row(f"{name} folder", FAIL, f"{folder} cannot be written", f"set {paths.HOME_VARIABLE} to a writable folder"))
            continue
        free = shutil.disk_usage(folder).free
        detail = f"{folder}, {free / _GIB:.1f} GiB free"
        if free < _MIN_DISK:
            rows.append(
                Row(
                    f"{name} folder",
                    FAIL,
                    f"expected {_MIN_DISK // _GIB} GiB free disk, given: {detail}",
                    f"make room, or set {paths.HOME_VARIABLE} to a folder on another disk",
                )
            )
        elif free < _GOOD_DISK:
            rows.append(
                Row(
                    f"{name} folder",
                    WARN,
                    f"less than {_GOOD_DISK // _GIB} GiB free disk: {detail}",
                    "long runs fill it; shorten the retention of the topics or make room",
                )
            )
        else:
            rows.append(Row(f"{name} folder", OK, detail))
    configured = paths.configured_home()
    if paths.home() != configured:
        rows.append(
            Row(
                "home folder",
                WARN,
                f"{configured} cannot be written, so {paths.home()} is used: caches may be lost at a reboot",
                f"set {paths.HOME_VARIABLE} to a writable folder",
            )
        )
    return rows


def _numba(env: Mapping[str, str]) -> list[Row]:
    if env.get("NUMBA_DISABLE_JIT", "0") not in ("", "0"):
        return [Row("numba cache", WARN, "NUMBA_DISABLE_JIT is set: kernels run as plain Python, a hundred times slower", "unset NUMBA_DISABLE_JIT")]
    folder = Path(env.get("NUMBA_CACHE_DIR") or paths.numba_cache_dir())
    if not paths.make_writable(folder):
        return [Row("numba cache", WARN, f"{folder} cannot be written: kernels are compiled again at every start", "set NUMBA_CACHE_DIR to a writable folder")]
    compiled = sum(1 for _ in folder.rglob("*.nbc"))
    return [Row("numba cache", OK, f"{folder}, {compiled} compiled kernels")]


def _memory() -> list[Row]:
    try:
        text = Path("/proc/meminfo").read_text()
    except OSError:
        return []
    if (found := re.search(r"MemAvailable:\s+(\d+) kB", text)) is None:  # an old kernel
        return []
    free = int(found[1]) * 1024
    detail = f"{free / _GIB:.1f} GiB available"
    if free < _MIN_MEMORY:
        return [Row("memory", FAIL, f"expected {_MIN_MEMORY // _GIB} GiB of memory for Spark and a broker, given: {detail}", "end other programs")]
    if free < _GOOD_MEMORY:
        return [Row("memory", WARN, f"less than {_GOOD_MEMORY // _GIB} GiB: {detail}", "end other programs, or use a broker on another machine")]
    return [Row("memory", OK, detail)]


def _host_name(env: Mapping[str, str]) -> list[Row]:
    """Check that the machine's own name has an address: Spark's driver resolves it, and containers and VPNs often break that."""
    name = socket.gethostname()
    if env.get("SPARK_LOCAL_IP"):
        return [Row("host name", OK, f"SPARK_LOCAL_IP={env['SPARK_LOCAL_IP']}")]
    try:
        return [Row("host name", OK, f"{name} is {socket.gethostbyname(name)}")]
    except OSError as e:
        return [Row("host name", WARN, f"this machine's name {name!r} has no address ({e})", "export SPARK_LOCAL_IP=127.0.0.1")]


def _ports() -> list[Row]:
    return [Row("ports", OK, f"free on 127.0.0.1, for example {', '.join(map(str, free_ports(3)))}")]


# ---------------------------------------------------------------------------------------------------- brokers


def _broker(bootstrap: Bootstrap, options: Mapping[str, Any], start: bool, rows: Sequence[Row]) -> list[Row]:
    if bootstrap.servers is not None:
        return check_brokers(bootstrap, options)
    blockers = [
        r for r in rows if r.check in ("java", "jars", "home folder", "scratch folder") and (r.status == FAIL or (r.check == "jars" and r.status != OK))
    ]
    if blockers or not start:
        why = f"because of '{blockers[0].check}' above" if blockers else "on request"
        return [Row("broker", WARN, f"the embedded broker was not tried, {why}", blockers[0].fix if blockers else "")]
    began = time.monotonic()
    with EmbeddedBroker() as broker:
        return [Row("broker", OK, f"the embedded broker answered at {broker.bootstrap_servers} after {time.monotonic() - began:.1f} s ({bootstrap.source})")]


def check_brokers(bootstrap: Bootstrap, options: Mapping[str, Any] | None = None, timeout_ms: int = 8_000) -> list[Row]:
    """Check named brokers: addresses accept connections, an admin request is answered, and advertised addresses can be reached from here."""
    from kafka import KafkaAdminClient
    from kafka.errors import KafkaError

    assert bootstrap.servers is not None
    servers = parse_servers(bootstrap.servers, bootstrap.source)
    errors = {f"{h}:{p}": e for h, p in servers if (e := _connect_error(h, p))}
    if len(errors) == len(servers):
        return [
            Row(
                "broker",
                FAIL,
                "; ".join(f"{a}: {e}" for a, e in errors.items()) + f" (given by {bootstrap.source})",
                "start the broker, correct the address, or leave it out to use the embedded broker",
            )
        ]
    rows = [Row("broker", WARN, f"{a} of {bootstrap.source}: {e}", "remove it or start that broker") for a, e in errors.items()]
    admin = None
    try:
        admin = KafkaAdminClient(
            **{
                **client_arguments(options or {}),
                "bootstrap_servers": [f"{h}:{p}" for h, p in servers],
                "client_id": "dskype-doctor",
                "bootstrap_timeout_ms": timeout_ms,
                "request_timeout_ms": timeout_ms,
            }
        )
        # The first answer has the advertised addresses, even if none of them can be reached.
        advertised = sorted((b.host, b.port) for b in admin._manager.cluster.brokers())
        rows += advertised_rows(advertised, servers)
        if not any(r.status == FAIL for r in rows):
            answer = admin.describe_cluster()
            live = [n for n in answer["brokers"] if not n.get("is_fenced")]
            rows.append(Row("broker", OK, f"{len(live)} of {len(answer['brokers'])} nodes live, cluster {answer.get('cluster_id')} ({bootstrap.source})"))
    except (KafkaError, OSError) as e:
        rows.append(
            Row(
                "broker",
                FAIL,
                f"{bootstrap.servers} accepts connections but does not answer as Kafka: {type(e).__name__}: {e}",
                "is it a Kafka listener, and do kafka.security.protocol, kafka.sasl.* and kafka.ssl.* match it?",
            )
        )
    finally:
        if admin is not None:
            admin.close()
    return rows


def _topologies(bootstrap: Bootstrap, options: Mapping[str, Any], rows: Sequence[Row]) -> list[Row]:
    """Check the topologies of a named cluster. Those with an embedded broker cannot be seen from another shell."""
    if bootstrap.servers is None or any(r.check == "broker" and r.status == FAIL for r in rows):
        return []
    from dskype.topology.runtime.kafka.clients import KafkaSettings
    from dskype.topology.runtime.nimbus.nimbus_topic import ClusterClient

    return topology_rows(ClusterClient(KafkaSettings(bootstrap.servers, options, client_arguments(options))).topologies())


def topology_rows(topologies: Sequence[Mapping[str, Any]]) -> list[Row]:
    """Return a row for every topology with a problem, or one row if there is none.

    :param topologies: as ``ClusterClient.topologies`` returns them.
    """
    from dskype.topology.nimbus.observing import GONE

    found = []
    for t in topologies:
        name, health = f"topology {t['name']}", t.get("health") or {"state": "running", "why": []}
        why = "; ".join(reason for reason in health["why"] if reason != GONE)
        if not t["driver_alive"]:
            last = f"; its last report: {why}" if why else ""
            found.append(
                Row(
                    name,
                    FAIL,
                    f"its process is gone (pid {t['driver']['pid']} on {t['driver']['host']}){last}",
                    f"submit it again to resume it, or remove it with 'dskype kill {t['name']}'",
                )
            )
        elif health["state"] not in ("starting", "running"):
            found.append(Row(name, FAIL if health["state"] == "failed" else WARN, f"{health['state']}: {why}", f"see 'dskype get-errors {t['name']}'"))
    n = len(topologies)
    return found or [Row("topologies", OK, f"{n} of {n} run without problems" if n else "none runs")]


def advertised_rows(advertised: Sequence[tuple[str, int]], servers: Sequence[tuple[str, int]]) -> list[Row]:
    """Return a row for each advertised address that cannot be reached from here: the usual fault of brokers in containers."""
    bad = {f"{h}:{p}": e for h, p in advertised if (e := _connect_error(h, p))}
    if not bad:
        return [Row("advertised listeners", OK, ", ".join(f"{h}:{p}" for h, p in advertised) or "none")]
    asked = ", ".join(f"{h}:{p}" for h, p in servers)
    return [
        Row(
            "advertised listeners",
            FAIL,
            f"{asked} answers, but tells clients to connect to {a}: {e}",
            "set the broker's advertised.listeners to an address that this machine reaches (for a container with a published port: 127.0.0.1:<that port>)",
        )
        for a, e in bad.items()
    ]


def _connect_error(host: str, port: int, timeout_s: float = 3) -> str:
    try:
        socket.create_connection((host.strip("[]"), port), timeout_s).close()
        return ""
    except socket.gaierror:
        return "the host name has no address"
    except TimeoutError:
        return f"no answer within {timeout_s:g} s"
    except OSError as e:
        return (e.strerror or str(e)).lower()
