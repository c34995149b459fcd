"""Fetch and check the jars that are not on PyPI: Spark's Kafka connector and the embedded broker.

``jars.sha256``, next to this module, is the lock file: version and checksum of every jar of both sets. Ivy, which PySpark ships, downloads
exactly these jars from its default repository, or from the one that ``DSKYPE_IVY_SETTINGS`` (an ivysettings.xml) or ``DSKYPE_MAVEN_MIRROR``
(the address of a Maven repository) names. Later starts need no network.

After a download, all checksums are compared. Later starts compare size and modification time with a stamp of that check, and read only files
that differ; ``verify(full=True)`` reads all of them.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import re
import select
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import quoteattr

from dskype.deploy.machine import paths
from dskype.deploy.machine.errors import JarsError
from dskype.deploy.machine.java import find_java, proxy_flags
from dskype.topology.extras import how_to_install

KAFKA_VERSION = "4.1.2"
"""Version of the embedded broker. The connector's version is that of the installed PySpark."""

LOG_BINDING = "log4j-slf4j-impl"
"""Connects Kafka's logging API with Log4j; Kafka's dependencies have both, but not this. Its version is that of Kafka's log4j-core."""

SETS = ("spark", "broker")
MANIFEST = Path(__file__).with_name("jars.sha256")
IVY_SETTINGS_VARIABLE = "DSKYPE_IVY_SETTINGS"
MIRROR_VARIABLE = "DSKYPE_MAVEN_MIRROR"

_STAMP = ".verified.json"
_SILENCE_S = 180
"""Ivy prints while it downloads; after this long without output it is stopped."""

_PER_IVY = 16
"""Jars per run of Ivy. Ivy sends one request after the other, so several runs share a set: 46 jars took 31 s in one run, 19 s in three."""


@dataclass(frozen=True)
class Jar:
    """One line of the lock file."""

    group: str
    artifact: str
    version: str
    sha256: str

    @property
    def coordinate(self) -> str:
        """Return ``group:artifact:version``."""
        return f"{self.group}:{self.artifact}:{self.version}"

    @property
    def file_name(self) -> str:
        """Return the file's name in a folder of jars."""
        return f"{self.group}_{self.artifact}-{self.version}.jar"


@dataclass(frozen=True)
class Progress:
    """How far the download of a set of jars is: ``done`` of ``total`` jars, ``size`` bytes so far, and what it is ``doing``."""

    set_name: str
    done: int
    total: int
    size: int
    doing: str

    def __str__(self) -> str:
        return f"{self.set_name} jars: {self.done}/{self.total}, {self.size / 1e6:.1f} MB, {self.doing}"


ProgressCallback = Callable[[Progress], None]


@dataclass(frozen=True)
class Problem:
    """A difference from the lock file: ``kind`` is 'missing', 'corrupted' or 'unknown'."""

    kind: str
    path: Path
    expected: str
    given: str

    def __str__(self) -> str:
        return f"{self.kind} jar {self.path}: expected {self.expected}, given: {self.given}"


# ---------------------------------------------------------------------------------------------------- versions, lock file


def spark_home() -> Path:
    """Return the folder of the Spark to run: ``SPARK_HOME``, else the installed PySpark."""
    given = os.environ.get("SPARK_HOME", "")
    if given:
        return Path(given)
    spec = importlib.util.find_spec("pyspark")
    if spec is None or not spec.origin:
        raise JarsError("expected an installed pyspark, given: none", fix=f"{how_to_install()} (it brings pyspark)")
    return Path(spec.origin).parent


def spark_version() -> str:
    """Return the version of the installed PySpark without importing it, which would take half a second."""
    try:
        return importlib.metadata.version("pyspark")
    except importlib.metadata.PackageNotFoundError as e:
        raise JarsError("expected an installed pyspark, given: none", fix=f"{how_to_install()} (it brings pyspark)") from e


def scala_version() -> str:
    """Return Spark's Scala version as in artifact names ('2.13'), from the library that Spark ships."""
    names = [p.name for p in (spark_home() / "jars").glob("scala-library-*.jar")]
    found = re.match(r"scala-library-(\d+\.\d+)", names[0]) if len(names) == 1 else None
    if not found:
        raise JarsError(f"expected one scala-library jar in {spark_home() / 'jars'}, given: {names}", fix="reinstall pyspark, or unset SPARK_HOME")
    return found.group(1)


def read_manifest(path: Path = MANIFEST) -> dict[str, tuple[Jar, ...]]:
    """Read the lock file: lines ``sha256  group:artifact:version`` below the headings ``# [spark]`` and ``# [broker]``.

    :raises JarsError: a line has another form; the text has its number.
    """
    sets: dict[str, list[Jar]] = {}
    current: list[Jar] | None = None
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        heading = re.match(r"#\s*\[(\w+)\]", line)
        if heading:
            current = sets.setdefault(heading.group(1), [])
        elif line.strip() and not line.startswith("#"):
            found = re.fullmatch(r"([0-9a-f]{64})  (\w[\w.-]*):(\w[\w.-]*):(\w[\w.-]*)", line)
            if not found or current is None:
                raise JarsError(
                    f"{path}:{number}: expected 'sha256  group:artifact:version' below a '# [set]' heading, given: {line!r}",
                    fix="restore the file from the repository",
                )
            current.append(Jar(group=found[2], artifact=found[3], version=found[4], sha256=found[1]))
    return {name: tuple(jars) for name, jars in sets.items()}


def _locked(name: str) -> tuple[Jar, ...]:
    if name not in SETS:
        raise JarsError(f"expected a set of jars out of {list(SETS)}, given: {name!r}")
    jars = read_manifest().get(name, ())
    if not jars:
        raise JarsError(f"{MANIFEST} has no jars below '# [{name}]'", fix="restore the file from the repository")
    if name == "spark":
        wanted = (f"spark-sql-kafka-0-10_{scala_version()}", spark_version())
        given = [(j.artifact, j.version) for j in jars if j.artifact.startswith("spark-sql-kafka")]
        if given != [wanted]:
            raise JarsError(
                f"the checksums in {MANIFEST.name} are for {':'.join(given[0]) if given else 'no connector'}, "
                f"given: pyspark {wanted[1]} with Scala {scala_version()}, which needs {':'.join(wanted)}",
                fix=f"pip install pyspark=={given[0][1] if given else '(the version in setup.cfg)'}",
            )
    return jars


def _set_folder(name: str, jars: Sequence[Jar]) -> str:
    """Return a folder name that depends on the content: another lock file means another folder, so versions never mix."""
    digest = hashlib.sha256("\n".join(sorted(j.sha256 + j.coordinate for j in jars)).encode()).hexdigest()
    version = next(j.version for j in jars if re.match(r"spark-sql-kafka|kafka_", j.artifact))
    return f"{name}-{version}-{digest[:12]}"


# ---------------------------------------------------------------------------------------------------- checking


def verify(*, full: bool = False, names: Iterable[str] = SETS) -> list[Problem]:
    """Compare the fetched jars with the lock file and return all differences.

    :param full: read every byte. Otherwise a file is good if size and time match the stamp of an earlier full check.
    """
    problems = []
    for name in names:
        jars = _locked(name)
        problems += _check(_existing(name, jars) or paths.jars_dir() / _set_folder(name, jars), jars, full=full)
    return problems


def _existing(name: str, jars: Sequence[Jar]) -> Path | None:
    return next((d for base in paths.readable_jars_dirs() if (d := base / _set_folder(name, jars)).is_dir()), None)


def _check(folder: Path, jars: Sequence[Jar], *, full: bool) -> list[Problem]:
    """Return the differences of a folder from the lock file; stamp the folder if there are none."""
    known: dict[str, list[int]] = {}
    if not full:
        with contextlib.suppress(OSError, ValueError, TypeError):
            known = dict(json.loads((folder / _STAMP).read_text()))
    try:
        found = {e.name: e.stat() for e in os.scandir(folder) if e.name != _STAMP}
    except OSError:
        found = {}
    problems, stamp, read_any = [], {}, False
    for jar in jars:
        info = found.pop(jar.file_name, None)
        if info is None:
            problems.append(Problem("missing", folder / jar.file_name, f"sha256 {jar.sha256} ({jar.coordinate})", "no such file"))
            continue
        mark = [info.st_size, info.st_mtime_ns]
        if known.get(jar.file_name) != mark:
            read_any = True
            given = _sha256(folder / jar.file_name)
            if given != jar.sha256:
                problems.append(
                    Problem("corrupted", folder / jar.file_name, f"sha256 {jar.sha256} ({jar.coordinate})", f"sha256 {given}, {info.st_size} bytes")
                )
        stamp[jar.file_name] = mark
    problems.extend(
        Problem("unknown", folder / name, f"only the {len(jars)} jars listed in {MANIFEST.name}", f"a file {name!r} of {found[name].st_size} bytes")
        for name in sorted(found)
    )
    if read_any and not problems:
        with contextlib.suppress(OSError):  # a read-only cache has no stamp, and is read in full every time
            paths.write_whole(folder / _STAMP, json.dumps(stamp), 0o644)  # a cache may be shared
    return problems


def _sha256(path: Path) -> str:
    try:
        with open(path, "rb") as f:
            return hashlib.file_digest(f, "sha256").hexdigest()
    except OSError as e:
        return f"unreadable ({e.strerror})"


def _raise_on(problems: Sequence[Problem], folder: Path) -> None:
    if problems:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        raise JarsError(f"{problems[0]}{more}", fix=f"remove the folder and start again to download it: rm -r {folder}")


# ---------------------------------------------------------------------------------------------------- fetching


def spark_jars(progress: ProgressCallback | None = None) -> list[Path]:
    """Return the connector's jars for ``spark.jars``, checked; fetch them if they are missing."""
    return fetch(["spark"], progress)["spark"]


def broker_jars(progress: ProgressCallback | None = None) -> list[Path]:
    """Return the broker's class path, checked; fetch the jars if they are missing."""
    return fetch(["broker"], progress)["broker"]


def fetch(names: Iterable[str] = SETS, progress: ProgressCallback | None = None, *, force: bool = False) -> dict[str, list[Path]]:
    """Fetch the named sets if they are missing, check them, and return their files in the lock file's order.

    Sets are fetched in parallel. If several processes need the same set, one fetches it and the others wait.

    :param force: download even if the set is present.
    :raises JarsError: the repository does not deliver, or a file differs from the lock file.
    """
    names = list(dict.fromkeys(names))
    calls = threading.Lock()

    def tell(p: Progress) -> None:
        if progress is not None:
            with calls:
                progress(p)

    locked = {name: _locked(name) for name in names}
    missing = [n for n in names if force or _existing(n, locked[n]) is None]
    if len(missing) > 1:
        with ThreadPoolExecutor(len(missing)) as pool:  # they mostly wait for answers
            list(pool.map(lambda n: _fetch_set(n, locked[n], tell, force), missing))
    elif missing:
        _fetch_set(missing[0], locked[missing[0]], tell, force)
    result = {}
    for name in names:
        folder = _existing(name, locked[name]) or paths.jars_dir() / _set_folder(name, locked[name])
        _raise_on(_check(folder, locked[name], full=False), folder)
        result[name] = [folder / j.file_name for j in locked[name]]
    return result


def _fetch_set(name: str, jars: Sequence[Jar], tell: ProgressCallback, force: bool) -> None:
    base = paths.jars_dir()
    final = base / _set_folder(name, jars)
    with _file_lock(base / f"{name}.lock", lambda: tell(Progress(name, 0, len(jars), 0, "waiting for another process that fetches them"))):
        if final.is_dir() and not force:
            return
        for stale in base.glob(f"{name}-*.tmp"):  # left by a process that was killed; the lock is ours
            shutil.rmtree(stale, ignore_errors=True)
        work = Path(tempfile.mkdtemp(prefix=f"{name}-", suffix=".tmp", dir=base))
        try:
            tally = _Tally(name, len(jars), tell)
            runs = -(-len(jars) // _PER_IVY)
            with ThreadPoolExecutor(runs) as pool:
                list(
                    pool.map(
                        lambda i: _run_ivy(
                            [(j.group, j.artifact, j.version) for j in jars[i::runs]], work / str(i), work / "lib", transitive=False, tally=tally
                        ),
                        range(runs),
                    )
                )
            problems = _check(work / "lib", jars, full=True)
            if problems:
                raise JarsError(
                    f"downloaded {problems[0]}",
                    fix="the repository or mirror served another file than the one that this version was tested "
                    f"with; try again, then check {MIRROR_VARIABLE}, {IVY_SETTINGS_VARIABLE} and any proxy on the way",
                )
            (work / "lib").chmod(0o755)
            if final.exists():
                final.rename(work / "old")
            (work / "lib").rename(final)
            tell(Progress(name, len(jars), len(jars), sum((final / j.file_name).stat().st_size for j in jars), "ready"))
        finally:
            shutil.rmtree(work, ignore_errors=True)


@contextlib.contextmanager
def _file_lock(path: Path, on_wait: Callable[[], None]) -> Iterator[None]:
    """Hold an exclusive lock. The system frees it when the process dies in any way."""
    with open(path, "a") as f:
        try:
            fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            on_wait()
            fcntl.flock(f, fcntl.LOCK_EX)
        yield


# ---------------------------------------------------------------------------------------------------- Ivy


def _ivy_settings(environ: Mapping[str, str], work: Path) -> list[str]:
    given = environ.get(IVY_SETTINGS_VARIABLE, "")
    if given:
        if not os.path.isfile(os.path.expanduser(given)):
            raise JarsError(
                f"{IVY_SETTINGS_VARIABLE} must name an ivysettings.xml, given: {given!r}, which is no file", fix=f"correct or unset {IVY_SETTINGS_VARIABLE}"
            )
        return ["-settings", os.path.expanduser(given)]
    mirror = environ.get(MIRROR_VARIABLE, "")
    if not mirror:
        return []
    if not re.match(r"(https?|file):", mirror):
        raise JarsError(
            f"{MIRROR_VARIABLE} must be a http:, https: or file: address of a Maven repository, given: {redact_url(mirror)!r}",
            fix=f"correct or unset {MIRROR_VARIABLE}",
        )
    settings = work / "ivysettings.xml"
    settings.write_text(
        '<ivysettings><settings defaultResolver="mirror"/><resolvers>'
        f'<ibiblio name="mirror" m2compatible="true" root={quoteattr(mirror)}/></resolvers></ivysettings>',
        encoding="utf-8",
    )
    return ["-settings", str(settings)]


def redact_url(text: str) -> str:
    """Replace user and password in every URL of a text by ``***``."""
    return re.sub(r"://[^/@\s]+@", "://***@", text)


class _Tally:
    """Adds up the progress of several runs of Ivy for one set of jars."""

    def __init__(self, name: str, total: int, tell: ProgressCallback) -> None:
        self.name, self._total, self._tell = name, total, tell
        self._lock = threading.Lock()
        self._found = self._done = self._size = 0

    def add(self, doing: str = "", *, found: int = 0, done: int = 0, size: int = 0) -> None:
        with self._lock:
            self._found, self._done, self._size = self._found + found, self._done + done, self._size + size
            if found or done or doing:
                self._tell(Progress(self.name, self._done, self._total, self._size, doing or f"found {self._found} in the repository"))


def _run_ivy(coordinates: Sequence[tuple[str, str, str]], work: Path, lib: Path, *, transitive: bool, tally: _Tally) -> None:
    """Download the coordinates to ``lib``; try twice, because repositories sometimes fail for a moment."""
    ivy_jars = sorted((spark_home() / "jars").glob("ivy-*.jar"))
    if not ivy_jars:
        raise JarsError(f"expected an ivy-*.jar in {spark_home() / 'jars'}, given: none", fix="reinstall pyspark, or unset SPARK_HOME")
    java = find_java()
    work.mkdir()
    conf = "default" if transitive else "master"  # 'master' is the module's own jar alone
    dependencies = "\n".join(f"<dependency org={quoteattr(g)} name={quoteattr(a)} rev={quoteattr(v)} conf='default->{conf}'/>" for g, a, v in coordinates)
    (work / "ivy.xml").write_text(
        f"<ivy-module version='2.0'><info organisation='dskype' module={quoteattr(tally.name)}/>"
        f"<configurations><conf name='default'/></configurations><dependencies>\n{dependencies}\n</dependencies></ivy-module>",
        encoding="utf-8",
    )
    # Set Ivy's user folder: its default is in the home, which may be missing or read-only.
    command = [
        str(java.path),
        "-Xmx256m",
        "-XX:TieredStopAtLevel=1",
        "-XX:+UseSerialGC",
        *proxy_flags(),
        f"-Divy.default.ivy.user.dir={work / 'user'}",
        "-cp",
        str(ivy_jars[-1]),
        "org.apache.ivy.Main",
        *_ivy_settings(os.environ, work),
        "-cache",
        str(work / "cache"),
        "-ivy",
        str(work / "ivy.xml"),
        "-confs",
        "default",
        "-retrieve",
        str(lib / "[organisation]_[artifact]-[revision](-[classifier]).[ext]"),
    ]
    for attempt in (1, 2):
        code, output = _follow_ivy(command, tally)
        if code == 0:
            return
        if attempt == 1:
            tally.add("failed, trying once more")
            time.sleep(2)
    lines = [x.strip() for x in redact_url(output).splitlines() if re.search(r"UNRESOLVED|not found|FAILED|error|Exception|denied|impossible", x)]
    raise JarsError(
        f"Ivy could not fetch the {tally.name} jars (exit code {code}):\n    " + "\n    ".join(lines[:8] or output.splitlines()[-8:]),
        fix=f"check the network; behind a proxy set HTTPS_PROXY; for a mirror set {MIRROR_VARIABLE} or {IVY_SETTINGS_VARIABLE}; "
        f"without a network copy {paths.jars_dir()} from a machine that has it",
    )


def _follow_ivy(command: Sequence[str], tally: _Tally) -> tuple[int, str]:
    """Run Ivy, report progress from its output, and return exit code and output."""
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert process.stdout is not None
    output, partial = [], b""
    try:
        while True:
            if not select.select([process.stdout], [], [], _SILENCE_S)[0]:
                process.kill()
                output.append(f"error: no output from Ivy for {_SILENCE_S} s")
                break
            block = os.read(process.stdout.fileno(), 65536)
            if not block:
                break
            *lines, partial = (partial + block).split(b"\n")
            for raw in lines:
                line = raw.decode(errors="replace")
                output.append(line)
                if re.match(r"\s*found ", line):
                    tally.add(found=1)
                elif "SUCCESSFUL" in line:
                    tally.add(line.split("#")[-1].split("!")[0].replace(";", " "), done=1)
                elif kilobytes := re.search(r"\((\d+)kB\)", line):
                    tally.add(size=int(kilobytes.group(1)) * 1000)
        return process.wait(), "\n".join(output)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        process.stdout.close()


# ---------------------------------------------------------------------------------------------------- for maintainers


def relock(path: Path = MANIFEST, progress: ProgressCallback | None = None) -> None:
    """Resolve the dependencies of both sets and write the lock file. Maintainers call this for a new Spark or Kafka version, and review the changes.

    Jars that Spark ships (the same file name in its ``jars`` folder) are left out of the connector's set.
    """
    report = progress or (lambda p: None)
    scala = scala_version()
    shipped = {p.name for p in (spark_home() / "jars").glob("*.jar")}
    text = ["# Checksums of the jars that are fetched: sha256  group:artifact:version. Written by dskype.deploy.machine.jars.relock()."]
    with tempfile.TemporaryDirectory() as temp:
        closures = {}
        for name, roots in (
            ("spark", [("org.apache.spark", f"spark-sql-kafka-0-10_{scala}", spark_version())]),
            ("broker", [("org.apache.kafka", f"kafka_{scala}", KAFKA_VERSION)]),
        ):
            closures[name] = _resolve(name, roots, Path(temp) / name, report)
        log4j = next(v for g, a, v in closures["broker"] if a == "log4j-core")
        binding = ("org.apache.logging.log4j", LOG_BINDING, log4j)
        closures["broker"].update(_resolve("binding", [binding], Path(temp) / "binding", report, only={binding}))
        for name in SETS:
            text.append(f"\n# [{name}]")
            for (group, artifact, version), file in sorted(closures[name].items()):
                if name == "broker" or f"{artifact}-{version}.jar" not in shipped:
                    text.append(f"{_sha256(file)}  {group}:{artifact}:{version}")
    path.write_text("\n".join(text) + "\n", encoding="utf-8")


def _resolve(
    name: str, roots: list[tuple[str, str, str]], work: Path, tell: ProgressCallback, only: set[tuple[str, str, str]] | None = None
) -> dict[tuple[str, str, str], Path]:
    _run_ivy(roots, work, work / "lib", transitive=only is None, tally=_Tally(name, len(roots), tell))
    result = {}
    cached = {p.stem: p for p in (work / "cache").rglob("jars/*.jar")} | {p.stem: p for p in (work / "cache").rglob("bundles/*.jar")}
    for stem, p in cached.items():
        group, artifact = p.parent.parent.parent.name, p.parent.parent.name
        key = (group, artifact, stem.removeprefix(artifact + "-"))
        kept = work / "lib" / f"{group}_{stem}.jar"
        if kept.exists() and (only is None or key in only):
            result[key] = kept
    return result
