"""The embedded broker: a real Apache Kafka, one node in KRaft mode on 127.0.0.1, that ends with the program."""

from __future__ import annotations

import atexit
import base64
import contextlib
import hashlib
import os
import random
import re
import shutil
import socket
import subprocess
import tempfile
import threading
import time
import uuid
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Self

from dskype.deploy.machine import jars, paths
from dskype.deploy.machine.broker_settings import AFTER_CRASH, HOST, JVM_FLAGS, LOG4J, SETTINGS
from dskype.deploy.machine.errors import BrokerError
from dskype.deploy.machine.folders import OwnedFolder
from dskype.deploy.machine.java import Java, find_java
from dskype.deploy.machine.processes import spawn_tied

__all__ = ["BrokerEvent", "EmbeddedBroker", "existing_archive", "free_ports", "live_cluster", "port_is_free", "prepare"]

_WATCH_S = 0.5
_FAST_S = 60.0
_MOST_FAST_DEATHS = 5
_LEAST_FREE_BYTES = 64 << 20
"""With less free space the broker would end again at once: a log segment is this large."""


class BrokerEvent(NamedTuple):
    """What happened to a watched broker.

    :ivar kind: ``died``, ``waits`` (for disk space), ``restarted`` or ``gave-up``.
    :ivar text: what happened and what to do.
    :ivar restarts: how often it has been restarted so far.
    """

    kind: str
    text: str
    restarts: int


_running: weakref.WeakSet[EmbeddedBroker] = weakref.WeakSet()


class EmbeddedBroker:
    """A Kafka broker of our own: ``with EmbeddedBroker() as broker: ... broker.bootstrap_servers``.

    It is bound to 127.0.0.1, on free ports below the range of outgoing connections, so that ``restart`` finds them free again.

    :param data_dir: folder to keep the data in; None: a temporary folder that is removed with the broker (after a crash, at the next start).
    :param heap_mb: Java heap in MiB.
    :param port: the port to listen on; None: a free one.
    :param properties: settings of server.properties to add or replace.
    :param listeners: further listeners, name -> security protocol, e.g. {"SASL_SSL": "SASL_SSL"}; ``servers`` returns their addresses. Their own
        settings (key store, users) belong in ``properties``.
    :param progress: called with one short sentence per step.
    """

    def __init__(
        self,
        data_dir: str | os.PathLike[str] | None = None,
        heap_mb: int = 512,
        *,
        port: int | None = None,
        properties: Mapping[str, Any] | None = None,
        listeners: Mapping[str, str] | None = None,
        progress: Callable[[str], None] | None = None,
    ) -> None:
        if heap_mb < 128:
            raise BrokerError(f"heap_mb must be at least 128 MiB, given: {heap_mb!r}", fix="use the default of 512")
        self._given_dir = None if data_dir is None else Path(data_dir).absolute()
        self._heap_mb = heap_mb
        self._given_port = port
        self._properties = dict(properties or {})
        self._listeners = dict(listeners or {})
        self._progress = progress or (lambda text: None)
        self._owned: OwnedFolder | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._ports: tuple[int, ...] | None = None
        self._ready_once = False
        self._watcher: threading.Thread | None = None
        self._unwatched = threading.Event()
        self.restarts = 0  # by the watcher
        self._train: Path | None = None  # where this broker writes a class archive when it ends

    # ------------------------------------------------------------------ life

    def start(self, timeout_s: float = 90) -> Self:
        """Start the broker, and return when it has answered an admin request.

        :raises BrokerError: it does not answer within ``timeout_s``; the text has the end of its log.
        :raises JarsError: its jars are missing or wrong.
        :raises JavaError: there is no usable Java.
        """
        if self.is_running():
            return self
        java = find_java()
        classpath = jars.broker_jars(lambda p: self._progress(str(p)))
        began = time.monotonic()
        if self._owned is None:
            self._make_folder()
        try:
            keep_ports = self._ports is not None
            if not keep_ports and self._given_port is not None and not port_is_free(self._given_port):
                raise BrokerError(
                    f"the broker's port must be free, given: {self._given_port}, which another process has", fix="end that process, or choose another port"
                )
            for attempt in range(1, 6):
                if not keep_ports:
                    first = () if self._given_port is None else (self._given_port,)
                    self._ports = (*first, *free_ports(2 + len(self._listeners) - len(first)))
                self._progress(f"starting Kafka {jars.KAFKA_VERSION} at {self.bootstrap_servers}")
                self._write_settings()
                self._launch(java, classpath)
                if self._await_ready(began + timeout_s):
                    break
                self._progress(f"port taken by another process, attempt {attempt} of 5")
                if keep_ports:
                    time.sleep(1)
            else:
                raise self._failure("found no free port in 5 attempts")
        except BaseException:
            self._end(graceful=False)
            if not self._ready_once:
                self._release()
            raise
        self._ready_once = True
        self._progress(f"Kafka is ready at {self.bootstrap_servers} after {time.monotonic() - began:.1f} s")
        return self

    def stop(self, timeout_s: float = 15) -> None:
        """Stop the broker, by force if it takes longer than ``timeout_s``, and remove temporary data."""
        self._unwatched.set()
        self._end(graceful=True, timeout_s=timeout_s)
        if self._watcher is not None and self._owned is not None and self._owned.is_ours():
            self._watcher.join()  # it may just be starting the broker
            self._watcher = None
            self._end(graceful=True, timeout_s=timeout_s)
        self._release()

    def kill(self) -> None:
        """Kill the broker as a crash would. Data and ports are kept for ``restart``."""
        self._end(graceful=False)

    def restart(self, timeout_s: float = 90) -> Self:
        """Stop the broker if it runs, and start it with the same ports and data."""
        if self._owned is None:
            raise BrokerError("restart needs a broker that was started, given: one never started or already stopped", fix="call start()")
        self._end(graceful=True)
        return self.start(timeout_s)

    def watch(self, on_event: Callable[[BrokerEvent], None]) -> None:
        """Restart the broker with the same ports and data whenever it dies by itself, until ``stop``.

        The delay grows from one death to the next, and a full disk is waited for. After five deaths in a row, each within a minute of its
        start, it gives up.

        :param on_event: called by the watching thread.
        """
        if self._watcher is None:
            self._unwatched.clear()
            self._watcher = threading.Thread(target=self._watch, args=(on_event,), name="broker-watch", daemon=True)
            self._watcher.start()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *exc: object) -> None:
        self.stop()

    # ------------------------------------------------------------------ watching

    def _watch(self, on_event: Callable[[BrokerEvent], None]) -> None:
        deaths, since = 0, time.monotonic()
        while not self._unwatched.wait(_WATCH_S):
            process = self._process
            if process is None or process.poll() is None or self._process is not process:
                continue  # it runs, or was stopped on purpose
            deaths = 1 if time.monotonic() - since > _FAST_S else deaths + 1
            on_event(BrokerEvent("died", f"{self._failure(f'has ended by itself (exit code {process.returncode})')}", self.restarts))
            if not self._wait_for_room(on_event):
                return
            try:
                if deaths > _MOST_FAST_DEATHS:
                    raise self._failure(f"has died {deaths} times in a row, each time soon after its start; it is not started again")
                if self._unwatched.wait(min(30.0, 0.5 * 2 ** (deaths - 1))):
                    return
                if self._process is not process:  # the owner has started or stopped it meanwhile
                    continue
                self.start()
            except Exception as error:  # report everything to the topology's owner
                if self._unwatched.is_set():
                    return
                if deaths > _MOST_FAST_DEATHS:
                    on_event(BrokerEvent("gave-up", str(error), self.restarts))
                    return
                self._process = process  # it is dead, so the loop tries again
            else:
                self.restarts += 1
                on_event(BrokerEvent("restarted", f"the embedded broker is back at {self.bootstrap_servers}", self.restarts))
            since = time.monotonic()

    def _wait_for_room(self, on_event: Callable[[BrokerEvent], None]) -> bool:
        """Wait while the disk is full; return False if the watch ends meanwhile."""
        said = False
        while self.folder is not None and (free := shutil.disk_usage(self.folder).free) < _LEAST_FREE_BYTES:
            if not said:
                said = True
                on_event(
                    BrokerEvent(
                        "waits",
                        f"the embedded broker is started again when there are {_LEAST_FREE_BYTES >> 20} MiB free in {self.folder}, given: "
                        f"{free >> 20} MiB; make room there",
                        self.restarts,
                    )
                )
            if self._unwatched.wait(2 * _WATCH_S):
                return False
        return self.folder is not None

    # ------------------------------------------------------------------ state

    def is_running(self) -> bool:
        """Tell whether the broker's process runs."""
        return self._process is not None and self._process.poll() is None

    @property
    def bootstrap_servers(self) -> str:
        """'127.0.0.1:port'; the port stays the same over restarts."""
        return f"{HOST}:{self.port}"

    @property
    def port(self) -> int:
        """Return the port of the broker; it stays the same over restarts."""
        if self._ports is None:
            raise BrokerError("the broker has no port before start()", fix="call start(), or use it in a with statement")
        return self._ports[0]

    def servers(self, listener: str) -> str:
        """Return '127.0.0.1:port' of one of ``listeners``."""
        if self._ports is None:
            raise BrokerError("the broker has no port before start()", fix="call start(), or use it in a with statement")
        return f"{HOST}:{self._ports[2 + list(self._listeners).index(listener)]}"

    @property
    def pid(self) -> int | None:
        """Process id of the broker's JVM while it runs."""
        return self._process.pid if self._process is not None and self.is_running() else None

    @property
    def folder(self) -> Path | None:
        """Folder of data, settings and logs; None before start and after stop."""
        return None if self._owned is None else self._owned.path

    def log_tail(self, lines: int = 20) -> str:
        """Return the last lines of the broker's output and log."""
        if self.folder is None:
            return ""
        text: list[str] = []
        for path in (self.folder / "logs" / "console.log", self.folder / "logs" / "server.log"):
            with contextlib.suppress(OSError), open(path, "rb") as f:
                f.seek(max(0, os.fstat(f.fileno()).st_size - 64 * 1024))
                read = f.read().decode(errors="replace").splitlines()
                # Leave out stack frames: they would push out the line that says what happened.
                text += [line for line in read if not line.startswith("\tat ")][-lines:]
        return "\n".join(text)

    # ------------------------------------------------------------------ steps

    def _make_folder(self) -> None:
        self._owned = OwnedFolder.temporary("broker-") if self._given_dir is None else OwnedFolder.take(self._given_dir)
        for name in ("logs", "data", "tmp"):
            (self._owned.path / name).mkdir(exist_ok=True)

    def _write_settings(self) -> None:
        assert self.folder is not None and self._ports is not None
        controller_port = self._ports[1]
        advertised = ",".join([f"PLAINTEXT://{self.bootstrap_servers}", *(f"{name}://{self.servers(name)}" for name in self._listeners)])
        protocols = {"PLAINTEXT": "PLAINTEXT", "CONTROLLER": "PLAINTEXT", **self._listeners}
        settings = {
            **SETTINGS,
            "listeners": f"{advertised},CONTROLLER://{HOST}:{controller_port}",
            "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in protocols.items()),
            "inter.broker.listener.name": "PLAINTEXT",
            "advertised.listeners": advertised,
            "controller.quorum.voters": f"1@{HOST}:{controller_port}",
            "log.dirs": "data",
        }  # relative to the working folder: a path could hold characters that the format splits at
        if self._crashed():
            settings.update(AFTER_CRASH)
        settings.update(self._properties)
        text = "".join(f"{key}={value}\n" for key, value in settings.items())
        paths.write_whole(self.folder / "server.properties", text.encode("latin-1"), 0o600)  # may hold passwords
        (self.folder / "log4j2.properties").write_text(LOG4J, encoding="latin-1")

    def _crashed(self) -> bool:
        """Tell whether the broker that used the data before has crashed: at a clean end Kafka leaves a mark."""
        assert self.folder is not None and self._owned is not None
        data = self.folder / "data"
        return (data / "__cluster_metadata-0").exists() and not (data / ".kafka_cleanshutdown").exists()

    def _launch(self, java: Java, classpath: list[Path]) -> None:
        assert self.folder is not None and self._owned is not None
        folder = self.folder
        joined = os.pathsep.join(map(str, classpath))
        common = [str(java.path), *JVM_FLAGS, f"-Djava.io.tmpdir={folder / 'tmp'}"]
        archive = None if self._train is not None else existing_archive(java, classpath)
        if archive is not None:
            common.append(f"-XX:SharedArchiveFile={archive}")
        console = folder / "logs" / "console.log"
        if not (folder / "data" / "meta.properties").exists():
            cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
            done = subprocess.run(
                [*common, "-Xmx128m", "-cp", joined, "kafka.tools.StorageTool", "format", "-t", "C" + cluster[1:], "-c", str(folder / "server.properties")],
                cwd=folder,
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode:
                console.write_text(done.stdout + done.stderr)
                if done.returncode < 0 and archive is not None:  # the JVM crashed; maybe because of the class archive
                    _discard_archive(archive)
                raise self._failure(f"could not format its data folder (exit code {done.returncode})")
        with contextlib.suppress(OSError):
            os.replace(folder / "logs" / "server.log", folder / "logs" / "server.log.previous")  # the new log then belongs to this start alone
        with open(console, "wb") as output:
            training = [f"-XX:ArchiveClassesAtExit={self._train}"] if self._train else []
            self._process = spawn_tied(
                [
                    *common,
                    *training,
                    f"-Xmx{self._heap_mb}m",
                    f"-Dlog4j2.configurationFile={folder / 'log4j2.properties'}",
                    "-cp",
                    joined,
                    "kafka.Kafka",
                    str(folder / "server.properties"),
                ],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=folder,
                start_new_session=True,
            )
        self._owned.note_process(self._process.pid)
        _running.add(self)

    def _await_ready(self, deadline: float) -> bool:
        """Return True when an admin request has been answered, False if another process has taken a port meanwhile."""
        assert self._process is not None
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                code, tail = self._process.returncode, self.log_tail(1_000)
                self._process = None
                if "Address already in use" in tail or "BindException" in tail:
                    return False
                if code < 0:
                    _discard_archive(_class_archive(find_java(), jars.broker_jars()))
                raise self._failure(f"ended with exit code {code} while starting")
            if _listening(self.port) and live_cluster(self.bootstrap_servers) == self._cluster_id():  # otherwise another broker has this port
                return True
            time.sleep(0.03)
        raise self._failure("did not answer in time")

    def _cluster_id(self) -> str:
        assert self.folder is not None
        found = re.search(r"^cluster\.id=(.+)$", (self.folder / "data" / "meta.properties").read_text(), re.M)
        return found.group(1).replace("\\", "") if found else "(none)"

    def _failure(self, what: str) -> BrokerError:
        tail = self.log_tail()
        return BrokerError(
            f"the embedded broker {what}; the end of its log:\n{tail or '(empty)'}",
            fix="run 'dskype doctor', or name your own broker with --bootstrap-servers or DSKYPE_BOOTSTRAP_SERVERS",
        )

    def _end(self, *, graceful: bool, timeout_s: float = 15) -> None:
        process, self._process = self._process, None
        if process is None or self._owned is None or not self._owned.is_ours():  # a forked copy of this process does not own the broker
            return
        if process.poll() is None:
            if graceful:
                process.terminate()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(timeout_s)
            if process.poll() is None:
                process.kill()
        process.wait()
        _running.discard(self)

    def _release(self) -> None:
        """Give up the folder; a temporary one is removed."""
        if self._owned is not None:
            self._owned.release()
            self._owned, self._ports, self._ready_once = None, None, False


# ---------------------------------------------------------------------------------------------------- preparation


def prepare(progress: Callable[[str], None] | None = None) -> None:
    """Fetch the jars and write the broker's class archive (50 MB), so that later starts are fast. Later calls return at once.

    With the archive, the JVM maps the broker's classes instead of parsing them. That saves half of the processor time of a start.
    """
    report = progress or (lambda text: None)
    found = jars.fetch(progress=lambda p: report(str(p)))
    archive = _class_archive(find_java(), found["broker"])
    if archive.exists():
        return
    report("writing the broker's class archive, once")
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="training-", dir=archive.parent) as temp:
        broker = EmbeddedBroker()
        broker._train = Path(temp) / archive.name
        try:
            broker.start()
            _exercise(broker.bootstrap_servers)
        finally:
            broker.stop(timeout_s=120)  # the JVM writes the archive while it ends
        if broker._train.exists():
            for old in archive.parent.glob("broker-*.jsa"):
                _discard_archive(old)
            os.replace(broker._train, archive)
            report("the class archive is written")
        else:  # not every JVM can do it; without it starts are slower
            report("this Java wrote no class archive; the broker starts without it")


def _exercise(bootstrap_servers: str) -> None:
    """Create a topic, write, read and delete it, so that the broker loads the classes of ordinary work."""
    from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
    from kafka.admin import NewTopic

    admin = KafkaAdminClient(bootstrap_servers=bootstrap_servers)
    try:
        admin.create_topics([NewTopic("training", 2, 1)])
        producer = KafkaProducer(bootstrap_servers=bootstrap_servers)
        for i in range(10):
            producer.send("training", b"value", key=b"key", partition=i % 2).get(timeout=30)
        producer.close()
        consumer = KafkaConsumer("training", bootstrap_servers=bootstrap_servers, group_id="training", auto_offset_reset="earliest", consumer_timeout_ms=1_000)
        for _ in consumer:
            pass
        consumer.close()
        admin.delete_topics(["training"])
    finally:
        admin.close()


def existing_archive(java: Java, classpath: list[Path]) -> Path | None:
    """Return the class archive of a broker's JVM with these jars; None if there is none."""
    archive = _class_archive(java, classpath)
    return archive if archive.exists() else None


def _class_archive(java: Java, classpath: list[Path]) -> Path:
    """Return the archive's path. Its name depends on Java, on the jars (their folder's name is a digest of them) and on their place."""
    key = hashlib.sha256(f"{java.path.resolve()} {java.version} {classpath[0].parent}".encode()).hexdigest()[:12]
    return paths.class_archives_dir() / f"broker-{key}.jsa"


def _discard_archive(archive: Path) -> None:
    with contextlib.suppress(OSError):
        archive.unlink()


# ---------------------------------------------------------------------------------------------------- helpers


def live_cluster(bootstrap_servers: str, timeout_ms: int = 5_000, **client: Any) -> str | None:
    """Send an admin request, and return the cluster's id if it has a live node; None without such an answer.

    :param client: further arguments of kafka-python's clients, as ``connection.client_arguments`` returns them.
    """
    from kafka import KafkaAdminClient  # imported late: it takes 0.2 s, and most commands do not need it
    from kafka.errors import KafkaError

    try:
        admin = KafkaAdminClient(
            **{
                "client_id": "dskype-probe",
                **client,
                "bootstrap_servers": bootstrap_servers.split(","),
                "bootstrap_timeout_ms": timeout_ms,
                "request_timeout_ms": timeout_ms,
            }
        )
    except (KafkaError, OSError):
        return None
    try:
        answer = admin.describe_cluster()
        return answer["cluster_id"] if any(not node.get("is_fenced") for node in answer["brokers"]) else None
    except (KafkaError, OSError):
        return None
    finally:
        admin.close()


def _listening(port: int) -> bool:
    with socket.socket() as s:
        s.settimeout(1)
        return s.connect_ex((HOST, port)) == 0


def port_is_free(port: int) -> bool:
    """Tell whether a server could listen on this port of 127.0.0.1."""
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            s.bind((HOST, port))
        except OSError:
            return False
        return True


def free_ports(count: int) -> list[int]:
    """Return free ports on 127.0.0.1 below the system's range for outgoing connections.

    Within that range any client could take the port while the broker is down, and a restart on the same port would fail.
    """
    low, high = 20_000, 32_000
    with contextlib.suppress(OSError, ValueError):
        high = max(low + 1_000, min(high, int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])))
    held: list[socket.socket] = []
    try:
        for port in random.SystemRandom().sample(range(low, high), 1_000):
            if len(held) == count:
                break
            s = socket.socket()
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                s.bind((HOST, port))
                held.append(s)
            except OSError:
                s.close()
        if len(held) < count:
            raise BrokerError(
                f"expected {count} free ports on {HOST} between {low} and {high}, given: {len(held)} in 1000 tries", fix="end programs that hold many ports"
            )
        return [s.getsockname()[1] for s in held]
    finally:
        for s in held:
            s.close()


@atexit.register
def _stop_all() -> None:
    for broker in list(_running):
        broker.stop(timeout_s=5)
