"""Fetch and check the jars that are not on PyPI: Spark's Kafka connector and the embedded broker.

``jars.sha256``, next to this module, is the lock file: version and checksum of every jar of both sets. Exactly these jars come from
the default repository of Ivy, which PySpark ships, or from the one that ``DSKYPE_MAVEN_MIRROR`` (its address) names. With ``DSKYPE_IVY_SETTINGS`` (an ivysettings.xml),
Ivy itself fetches them from where that file says. Later starts need no network.

Checksums are compared while the jars are downloaded. Later starts compare size and modification time with a stamp of that check, and read only files
that differ; ``verify(full=True)`` reads all of them.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import hashlib
import http.client
import importlib.metadata
import importlib.util
import json
import os
import re
import shutil
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit, urlunsplit
from xml.sax.saxutils import quoteattr

from dskype.deploy.machine import paths
from dskype.deploy.machine.errors import JarsError
from dskype.deploy.machine.java import find_java, proxy_flags

KAFKA_VERSION = "4.1.2"
"""Version of the embedded broker. The connector's version is that of the installed PySpark."""

SETS = ("spark", "broker")
MANIFEST = Path(__file__).with_name("jars.sha256")
IVY_SETTINGS_VARIABLE = "DSKYPE_IVY_SETTINGS"
MIRROR_VARIABLE = "DSKYPE_MAVEN_MIRROR"

_STAMP = ".verified.json"
_SILENCE_S = 60
"""A repository that sends nothing for so long has failed."""
_AT_ONCE = 8
"""Downloads at the same time."""
_TRIES, _PAUSE_S = 3, 2.0
_BLOCK_BYTES = 1 << 18
_IVY_S = 900


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

    @property
    def maven_path(self) -> str:
        """Return where the jar is in a Maven repository."""
        return f"{self.group.replace('.', '/')}/{self.artifact}/{self.version}/{self.artifact}-{self.version}.jar"


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
        raise JarsError("expected an installed pyspark, given: none", fix="pip install '/path/to/dskype[spark]'")
    return Path(spec.origin).parent


def spark_version() -> str:
    """Return the version of the installed PySpark without importing it, which would take half a second."""
    try:
        return importlib.metadata.version("pyspark")
    except importlib.metadata.PackageNotFoundError as e:
        raise JarsError("expected an installed pyspark, given: none", fix="pip install '/path/to/dskype[spark]'") from e


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
    version = next(j.version for j in jars if re.match(r"spark-sql-kafka|kafka_|lucene-core", j.artifact))
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
            given = sha256_of(folder / jar.file_name)
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


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal, or why it cannot be read."""
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
    return {name: _checked(name, locked[name]) for name in names}


def fetch_others(manifest: Path, name: str, progress: ProgressCallback | None = None) -> list[Path]:
    """Fetch a set of another lock file, of what is not part of this product, and return its files as :func:`fetch` does.

    :raises JarsError: see :func:`fetch`.
    """
    jars = read_manifest(manifest)[name]
    if _existing(name, jars) is None:
        _fetch_set(name, jars, progress or (lambda p: None), False)
    return _checked(name, jars)


def _checked(name: str, jars: Sequence[Jar]) -> list[Path]:
    """Return the files of a set that has been fetched."""
    folder = _existing(name, jars) or paths.jars_dir() / _set_folder(name, jars)
    _raise_on(_check(folder, jars, full=False), folder)
    return [folder / j.file_name for j in jars]


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
            lib = work / "lib"
            if os.environ.get(IVY_SETTINGS_VARIABLE):
                tell(Progress(name, 0, len(jars), 0, f"Ivy downloads them as {IVY_SETTINGS_VARIABLE} says"))
                run_ivy(name, [(j.group, j.artifact, j.version) for j in jars], work / "ivy", lib, transitive=False)
            else:
                lib.mkdir()
                _download_all(name, jars, lib, tell)
            problems = _check(lib, jars, full=False)
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


# ---------------------------------------------------------------------------------------------------- downloads


def redact_url(text: str) -> str:
    """Replace user and password in every URL of a text by ``***``."""
    return re.sub(r"://[^/@\s]+@", "://***@", text)


def _repository(environ: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """Return the address of the Maven repository, which ends with a slash, and the headers of requests.

    User and password in the address of a mirror go into a header. Proxies are those of the environment.
    """
    mirror = environ.get(MIRROR_VARIABLE, "") or _default_repository()
    parts = urlsplit(mirror)
    if parts.scheme not in ("http", "https", "file"):
        raise JarsError(
            f"{MIRROR_VARIABLE} must be a http:, https: or file: address of a Maven repository, given: {redact_url(mirror)!r}",
            fix=f"correct or unset {MIRROR_VARIABLE}",
        )
    login, _, host = parts.netloc.rpartition("@")
    headers = {"Authorization": "Basic " + base64.b64encode(unquote(login).encode()).decode()} if login else {}
    return urlunsplit(parts._replace(netloc=host)).rstrip("/") + "/", headers


def _ivy_jar() -> Path:
    found = sorted((spark_home() / "jars").glob("ivy-*.jar"))
    if not found:
        raise JarsError(f"expected an ivy-*.jar in {spark_home() / 'jars'}, given: none", fix="reinstall pyspark, or unset SPARK_HOME")
    return found[-1]


def _default_repository() -> str:
    """Return the address of the repository that Ivy takes if no settings name one: Maven's central one."""
    with zipfile.ZipFile(_ivy_jar()) as ivy:
        properties = ivy.read("org/apache/ivy/core/settings/repository.properties").decode()
    found = re.search(r"^ivy\.ibiblio\.default\.artifact\.root\s*=\s*(\S+)", properties, re.MULTILINE)
    if found is None:
        raise JarsError(f"expected the address of a repository in {_ivy_jar()}, given: {properties[-200:]!r}", fix=f"set {MIRROR_VARIABLE}")
    return found[1]


def _download_all(name: str, jars: Sequence[Jar], lib: Path, tell: ProgressCallback) -> None:
    """Download jars to a folder, several at once, and stamp the folder if all have the checksums of the lock file."""
    repository, headers = _repository(os.environ)
    opener = urllib.request.build_opener()  # with the proxies that the environment names now
    sizes: list[int] = []
    stamp: dict[str, list[int]] = {}

    def fetch_one(jar: Jar) -> None:
        file = lib / jar.file_name
        if _download(opener, repository + jar.maven_path, headers, file) == jar.sha256:
            info = file.stat()
            stamp[jar.file_name] = [info.st_size, info.st_mtime_ns]
        sizes.append(file.stat().st_size)
        tell(Progress(name, len(sizes), len(jars), sum(sizes), jar.artifact))

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        started = [pool.submit(fetch_one, jar) for jar in jars]
        try:
            for download in as_completed(started):
                download.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    paths.write_whole(lib / _STAMP, json.dumps(stamp), 0o644)  # a cache may be shared


def _download(opener: urllib.request.OpenerDirector, address: str, headers: Mapping[str, str], file: Path) -> str:
    """Download a file, and return its SHA-256 in hexadecimal; try again, because repositories sometimes fail for a moment."""
    request = urllib.request.Request(address)
    for header, value in headers.items():
        request.add_unredirected_header(header, value)  # no other server gets the password
    for attempt in range(1, _TRIES + 1):
        digest = hashlib.sha256()
        try:
            with opener.open(request, timeout=_SILENCE_S) as answer, open(file, "wb") as target:
                while block := answer.read(_BLOCK_BYTES):
                    digest.update(block)
                    target.write(block)
                expected = answer.headers.get("Content-Length")
            if expected is None or file.stat().st_size == int(expected):
                return digest.hexdigest()
            error: Exception = OSError(f"the connection ended after {file.stat().st_size} of {expected} bytes")
        except (OSError, http.client.HTTPException) as e:
            error = e
        if isinstance(error, urllib.error.HTTPError) and error.code < 500 and error.code != 429:  # that will not change
            break
        if attempt < _TRIES:
            time.sleep(_PAUSE_S)
    raise JarsError(f"expected the jar at {address}, given: {redact_url(str(error))}", fix=_WAYS_OUT.format(paths.jars_dir())) from error


_WAYS_OUT = (
    f"check the network; behind a proxy set HTTPS_PROXY; for a mirror set {MIRROR_VARIABLE} or {IVY_SETTINGS_VARIABLE}; "
    "without a network copy {} from a machine that has it"
)


def _ivy_settings(environ: Mapping[str, str]) -> list[str]:
    given = environ.get(IVY_SETTINGS_VARIABLE, "")
    if given and not os.path.isfile(os.path.expanduser(given)):
        raise JarsError(
            f"{IVY_SETTINGS_VARIABLE} must name an ivysettings.xml, given: {given!r}, which is no file", fix=f"correct or unset {IVY_SETTINGS_VARIABLE}"
        )
    return ["-settings", os.path.expanduser(given)] if given else []


def run_ivy(name: str, coordinates: Sequence[tuple[str, str, str]], work: Path, lib: Path, *, transitive: bool) -> None:
    """Let Ivy download the coordinates to ``lib``, from the repository of an ivysettings.xml or from its default one.

    :param transitive: what they depend on, too.
    """
    work.mkdir()
    conf = "default" if transitive else "master"  # 'master' is the module's own jar alone
    dependencies = "\n".join(f"<dependency org={quoteattr(g)} name={quoteattr(a)} rev={quoteattr(v)} conf='default->{conf}'/>" for g, a, v in coordinates)
    (work / "ivy.xml").write_text(
        f"<ivy-module version='2.0'><info organisation='dskype' module={quoteattr(name)}/>"
        f"<configurations><conf name='default'/></configurations><dependencies>\n{dependencies}\n</dependencies></ivy-module>",
        encoding="utf-8",
    )
    # Set Ivy's user folder: its default is in the home, which may be missing or read-only.
    command = [str(find_java().path), "-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", *proxy_flags()]
    command += [f"-Divy.default.ivy.user.dir={work / 'user'}", "-cp", str(_ivy_jar()), "org.apache.ivy.Main", *_ivy_settings(os.environ)]
    command += ["-cache", str(work / "cache"), "-ivy", str(work / "ivy.xml"), "-confs", "default"]
    command += ["-retrieve", str(lib / "[organisation]_[artifact]-[revision](-[classifier]).[ext]")]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=_IVY_S, check=False)
    except subprocess.TimeoutExpired as e:
        raise JarsError(f"Ivy was expected to fetch the {name} jars within {_IVY_S} s", fix=_WAYS_OUT.format(paths.jars_dir())) from e
    if done.returncode:
        output = redact_url(done.stdout + done.stderr).splitlines()
        lines = [x.strip() for x in output if re.search(r"UNRESOLVED|not found|FAILED|error|Exception|denied|impossible", x)]
        raise JarsError(
            f"Ivy could not fetch the {name} jars (exit code {done.returncode}):\n    " + "\n    ".join(lines[:8] or output[-8:]),
            fix=_WAYS_OUT.format(paths.jars_dir()),
        )
