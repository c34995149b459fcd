"""One topology on Spark and a broker with TLS, passwords and the rights of SECURITY.md: it works, and its secrets are nowhere to be seen."""

from __future__ import annotations

import contextlib
import ipaddress
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from dskype.deploy.cli import main as cli
from dskype.deploy.machine import paths
from dskype.deploy.machine.cluster import Target
from dskype.deploy.machine.connection import client_arguments
from dskype.deploy.machine.launch import folder_of
from dskype.deploy.metrics.prometheus import Exporter
from dskype.topology.runtime.kafka.clients import KafkaSettings
from dskype.topology.runtime.kafka.topic_admin import TopicAdmin
from tests.security.conftest import PASSWORD, SCRAM, Secured
from tests.waiting import Limit

pytestmark = pytest.mark.product

HUSH = "open-sesame-58"
"""Part of every secret of this test."""
NAME = "hushed"

MODULE = (
    """
import os
import subprocess

from dskype.topology.components import BasicBolt

class Count(BasicBolt):
    def prepare(self, conf, context):
        assert conf["dskype.store.options"]["password"] == "%s"     # bolts do get it
        options = conf["dskype.store.options"]
        print("from Python:", options["url"], flush=True)
        os.write(2, b"from C: password=" + options["password"].encode() + b"\\n")
        subprocess.run(["cat"], input=b"from a child: api_key: " + options["password"].encode() + b"\\n", stdout=2, check=True)
        self.counts = {}

    def execute(self, tup, collector):
        word = tup["value"].decode()
        self.counts[word] = self.counts.get(word, 0) + 1
        collector.emit([word, str(self.counts[word])])

    def snapshot(self):
        return self.counts

    def restore(self, state):
        self.counts = state

    def declare_output_fields(self, declarer):
        declarer.declare(["key", "message"])
"""
    % f"{HUSH}-store"
)

FILE = f"""
name: {NAME}
config:
  topology.message.timeout.secs: 20
  dskype.store.options: {{url: "redis://ann:{HUSH}-url@127.0.0.1/0", password: {HUSH}-store}}
spouts: [{{id: words, className: dskype.KafkaSpout, constructorArgs: [hushed.arrived]}}]
bolts:
  - {{id: count, className: hushed_module.Count, parallelism: 2}}
  - {{id: out, className: dskype.KafkaBolt, constructorArgs: [hushed.counted]}}
streams:
  - {{from: words, to: count, grouping: {{type: FIELDS, args: [value]}}}}
  - {{from: count, to: out, grouping: {{type: SHUFFLE}}}}
"""


@dataclass
class Run:
    """A topology that runs in a process of its own, started by ``dskype submit``."""

    secured: Secured
    process: subprocess.Popen[bytes]
    folder: Path
    log: Path
    config: Path
    kafka: KafkaSettings
    seen: dict[int, tuple[str, bytes, bytes]] = field(default_factory=dict)
    """Process id -> name, command line, environment of everything that was seen below the process."""

    def tree(self) -> list[psutil.Process]:
        try:
            own = psutil.Process(self.process.pid)
            return [own, *own.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def look(self) -> None:
        for process in self.tree():
            with contextlib.suppress(psutil.Error, OSError):
                proc = Path(f"/proc/{process.pid}")
                self.seen[process.pid] = process.name(), (proc / "cmdline").read_bytes(), (proc / "environ").read_bytes()

    def wait(self, condition: Callable[[], object], what: str, seconds: float = 120) -> None:
        limit = Limit(seconds)
        while not condition():
            self.look()
            if self.process.poll() is not None or limit.over:
                pytest.fail(f"expected: {what}; log:\n{self.log.read_text()}")
            time.sleep(0.05)

    def produce(self, words: list[str]) -> None:
        producer = KafkaProducer(bootstrap_servers=self.secured.broker.bootstrap_servers)
        for word in words:
            producer.send("hushed.arrived", word.encode())
        producer.close()

    def counts(self) -> dict[str, int]:
        """Return the highest count of every word that came out."""
        found: dict[str, int] = {}
        for record in records(self.secured, "hushed.counted"):
            word = record.key.decode()
            found[word] = max(found.get(word, 0), int(record.value))
        return found

    def verb(self, capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
        capsys.readouterr()
        code = cli.main([*arguments, "--bootstrap-servers", self.kafka.bootstrap_servers, "--config", str(self.config)])
        shown = capsys.readouterr()
        assert code == 0, shown.err
        return shown.out + shown.err


def records(secured: Secured, topic: str) -> list[Any]:
    consumer = KafkaConsumer(bootstrap_servers=secured.broker.bootstrap_servers)
    try:
        parts = [TopicPartition(topic, p) for p in consumer.partitions_for_topic(topic) or ()]
        consumer.assign(parts)
        consumer.seek_to_beginning(*parts)
        ends = consumer.end_offsets(parts)
        found: list[Any] = []
        while any(consumer.position(p) < ends[p] for p in parts):
            found += [r for batch in consumer.poll(timeout_ms=500).values() for r in batch]
        return found
    finally:
        consumer.close()


@pytest.fixture(scope="module")
def run(secured: Secured) -> Iterator[Run]:
    kafka = {
        "kafka.security.protocol": "SASL_SSL",
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.certificates": secured.authority.pem,
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": secured.jaas(SCRAM),
    }
    settings = KafkaSettings(secured.broker.servers("SASL_SSL"), kafka, client_arguments(kafka))
    secured.grant(NAME=NAME, PRODUCT="ann", GATEWAY="bob")
    admin = TopicAdmin(settings)
    admin.create({"hushed.arrived": 1, "hushed.counted": 1}, {})
    admin.close()
    with tempfile.TemporaryDirectory(prefix="hushed") as temporary:
        work = Path(temporary)
        (work / "tmp").mkdir()
        (work / "hushed_module.py").write_text(MODULE)
        (work / "hushed.yaml").write_text(FILE)
        config = work / "config.yaml"
        paths.write_whole(
            config,
            yaml.safe_dump({**kafka, "spark.hushed.secret": f"{HUSH}-spark", "spark.ssl.keyPassword": f"{HUSH}-key", "spark.local.dir": str(work / "tmp")}),
            0o600,
        )
        log = work / "submit.log"
        with open(log, "wb") as output:
            process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "dskype.deploy",
                    "submit",
                    "hushed.yaml",
                    "--verbose",
                    "--allow-module",
                    "hushed_module",
                    "--bootstrap-servers",
                    settings.bootstrap_servers,
                    "--config",
                    str(config),
                ],
                cwd=work,
                env={**os.environ, "DSKYPE_HOME": "", "TMPDIR": str(work / "tmp")},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        running = Run(secured, process, folder_of(NAME, Target(settings.bootstrap_servers)), log, config, settings)
        try:
            running.wait(lambda: b"runs as" in log.read_bytes(), "a running topology")
            assert running.folder.is_dir()
            yield running
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            shutil.rmtree(running.folder if running.folder.name else work, ignore_errors=True)


def executor_of(run: Run, component: str) -> psutil.Process | None:
    return next((p for p in run.tree() if p.name().startswith(f"dsk:{component}")), None)


def test_a_topology_counts_exactly_through_tls_and_the_death_of_an_executor(run: Run) -> None:
    run.produce(["lake", "park"] * 50)
    run.wait(lambda: run.counts() == {"lake": 50, "park": 50}, "all words counted")
    run.wait(lambda: executor_of(run, "count"), "an executor to kill")
    executor_of(run, "count").kill()  # its successor reads its inbox again
    run.produce(["lake", "park"] * 50)
    run.wait(lambda: run.counts() == {"lake": 100, "park": 100}, "all words counted, each once")


def test_no_process_shows_a_secret(run: Run) -> None:
    run.look()
    assert {"java", "dsk:count"} <= {name for name, _, _ in run.seen.values()}
    shown = {name for name, command_line, environ in run.seen.values() for part in (command_line, environ) if HUSH.encode() in part or b"canary-broker" in part}
    assert shown == set()


def test_no_file_and_no_topic_holds_a_secret(run: Run) -> None:
    places = [run.folder, run.config.parent]
    files = [p for place in places for p in place.rglob("*") if p.is_file() and p.suffix != ".yaml" and p.name != "hushed_module.py" and p.suffix != ".pyc"]
    assert {"state.json", "spark.log", "submit.log"} <= {p.name for p in files}
    assert [p for p in files for data in (p.read_bytes(),) if HUSH.encode() in data or PASSWORD[:13].encode() in data] == []
    (log,) = (p for p in files if p.name == "count-0.log")
    said = log.read_text()
    assert "from Python: redis://ann:******@127.0.0.1/0\n" in said and "from C: password=******\n" in said and "from a child: api_key: ******\n" in said
    consumer = KafkaConsumer(bootstrap_servers=run.secured.broker.bootstrap_servers)
    topics = consumer.topics()
    consumer.close()
    assert {"__dskype-nimbus", "hushed.count", "hushed.metrics"} <= topics
    for topic in topics:
        for record in records(run.secured, topic):
            data = b"".join([record.key or b"", record.value or b"", *(v for _, v in record.headers or ())])
            assert HUSH.encode() not in data and b"canary-broker" not in data, topic


def test_what_it_writes_is_for_its_owner_alone(run: Run) -> None:
    everything = [run.folder, *run.folder.rglob("*"), *(p for p in (run.config.parent / "tmp").rglob("*"))]
    checkpoints = run.folder / "topologies" / NAME / "spark"  # Hadoop sets modes itself: offsets, in a folder that is closed
    mine = [p for p in everything if p.exists() and p != checkpoints and checkpoints not in p.parents]
    assert {checkpoints.parent, run.folder / "logs" / "spark.log", checkpoints.parent / "state.json"} <= set(mine)
    modes = {}
    for path in mine:
        with contextlib.suppress(FileNotFoundError):  # the topology runs, and removes old journal entries
            modes[path] = path.lstat().st_mode
    # Spark makes jars executable for all users, and readable for their owner only.
    assert {str(path): oct(mode & 0o777) for path, mode in modes.items() if mode & (0o077 if stat.S_ISDIR(mode) else 0o066)} == {}


def test_only_this_machine_reaches_its_ports(run: Run) -> None:
    broker = psutil.Process(run.secured.broker.pid)
    listening = {(p.name(), c.laddr.ip, c.laddr.port) for p in [broker, *run.tree()] for c in p.net_connections(kind="inet") if c.status == psutil.CONN_LISTEN}
    assert run.secured.broker.port in {port for _, _, port in listening}
    assert len({name for name, _, _ in listening}) >= 2  # the JVM's and Python's
    assert [x for x in listening if not getattr(ipaddress.ip_address(x[1]), "ipv4_mapped", None) and not ipaddress.ip_address(x[1]).is_loopback] == []
    assert [x for x in listening if (mapped := getattr(ipaddress.ip_address(x[1]), "ipv4_mapped", None)) and not mapped.is_loopback] == []


def test_the_verbs_reach_it_and_show_no_secret(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    shown = [
        run.verb(capsys, "list", "-o", "json"),
        run.verb(capsys, "stats", NAME, "-o", "json"),
        run.verb(capsys, "stats", NAME),
        run.verb(capsys, "get-errors", NAME),
        run.verb(capsys, "monitor", NAME, "-m", "words", "-i", "1", "--count", "1"),
    ]
    assert NAME in shown[0] and json.loads(shown[1])
    with Exporter(run.kafka, names=[NAME]) as exporter:

        def metrics() -> str:
            with urllib.request.urlopen(exporter.url, timeout=10) as answer:
                return answer.read().decode()

        run.wait(lambda: 'topology="hushed"' in metrics(), "metrics of the topology")
        shown.append(metrics())
    text = "".join(shown)
    assert HUSH not in text and "canary-broker" not in text
    run.verb(capsys, "kill", NAME, "-w", "0")
    assert run.process.wait(timeout=60) == 0
    assert not list(run.folder.rglob("*.properties"))
