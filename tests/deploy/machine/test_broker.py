"""The embedded broker: it serves, it comes back after a crash, and it never outlives its owner."""

from __future__ import annotations

import os
import queue
import signal
import socket
import ssl
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka.admin import NewTopic
from kafka.errors import KafkaError

from dskype.deploy.machine import broker as broker_module
from dskype.deploy.machine import connection, paths
from dskype.deploy.machine.broker import EmbeddedBroker, free_ports, live_cluster
from dskype.deploy.machine.broker_settings import MESSAGE_MAX_BYTES
from dskype.deploy.machine.connection import client_arguments, kafka_options, resolve_bootstrap
from dskype.deploy.machine.errors import BrokerError, OptionError
from dskype.deploy.machine.folders import FolderInUseError, sweep_stale
from dskype.deploy.machine.processes import command_line, spawn_tied
from dskype.topology.core.redaction import redact
from tests.waiting import Limit, wait_for

pytestmark = pytest.mark.product(seconds=30)

REPOSITORY = Path(__file__).parents[3]


def create(servers: str, topic: str, partitions: int = 1) -> None:
    admin = KafkaAdminClient(bootstrap_servers=servers)
    try:
        admin.create_topics([NewTopic(topic, partitions, 1)])
    finally:
        admin.close()


def write(servers: str, topic: str, *values: bytes) -> None:
    producer = KafkaProducer(bootstrap_servers=servers, acks="all", max_request_size=MESSAGE_MAX_BYTES)
    try:
        for value in values:
            producer.send(topic, value).get(timeout=60)
    finally:
        producer.close()


def read(servers: str, topic: str, count: int, group: str | None = None) -> list[bytes]:
    consumer = KafkaConsumer(topic, bootstrap_servers=servers, group_id=group, auto_offset_reset="earliest", max_partition_fetch_bytes=32 * 2**20)
    try:
        found: list[bytes] = []
        limit = Limit(60)
        while len(found) < count and not limit.over:
            for records in consumer.poll(timeout_ms=500).values():
                found += [r.value for r in records]
        return found
    finally:
        consumer.close()


def test_records_larger_than_kafkas_usual_mebibyte_are_written_and_read_by_a_group(bootstrap_servers: str) -> None:
    create(bootstrap_servers, "broker-test.large")
    values = [b"small", b"x" * (3 * 2**20)]
    write(bootstrap_servers, "broker-test.large", *values)
    assert read(bootstrap_servers, "broker-test.large", 2, group="broker-test") == values


def test_topics_are_not_made_by_accident(bootstrap_servers: str) -> None:
    producer = KafkaProducer(bootstrap_servers=bootstrap_servers, max_block_ms=1_000)
    try:
        with pytest.raises(KafkaError):
            producer.send("broker-test.no-such-topic", b"x").get(timeout=10)
    finally:
        producer.close()
    admin = KafkaAdminClient(bootstrap_servers=bootstrap_servers)
    try:
        assert "broker-test.no-such-topic" not in admin.list_topics()
    finally:
        admin.close()


def test_it_listens_on_the_loopback_address_alone(broker: EmbeddedBroker) -> None:
    inodes = {os.readlink(f"/proc/{broker.pid}/fd/{fd}") for fd in os.listdir(f"/proc/{broker.pid}/fd") if os.path.islink(f"/proc/{broker.pid}/fd/{fd}")}
    listening = set()
    for table in ("tcp", "tcp6"):
        path = Path("/proc/net") / table
        for line in path.read_text().splitlines()[1:] if path.exists() else []:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in inodes:
                listening.add(fields[1].rsplit(":", 1)[0])
    assert listening == {"0100007F"}


def test_a_killed_broker_comes_back_on_the_same_port_with_its_data_and_a_stopped_one_leaves_nothing() -> None:
    broker = EmbeddedBroker().start()
    servers, folder = broker.bootstrap_servers, broker.folder
    assert folder is not None
    try:
        create(servers, "t")
        write(servers, "t", b"before")
        first = broker.pid
        broker.kill()
        assert not broker.is_running() and broker.pid is None and live_cluster(servers, 500) is None
        broker.restart()
        assert broker.bootstrap_servers == servers and broker.pid != first
        write(servers, "t", b"between")
        broker.restart()  # an orderly one
        assert read(servers, "t", 2) == [b"before", b"between"]
    finally:
        broker.stop()
    assert not folder.exists() and broker.folder is None
    with pytest.raises(BrokerError, match="restart needs a broker that was started"):
        broker.restart()


def test_a_given_data_folder_is_kept_and_has_one_owner(tmp_path: Path) -> None:
    data = tmp_path / "kept, with blank and ä"
    with EmbeddedBroker(data) as broker:
        create(broker.bootstrap_servers, "t")
        write(broker.bootstrap_servers, "t", b"kept")
        with pytest.raises(FolderInUseError, match="must not be in use"):
            EmbeddedBroker(data).start()
        other = subprocess.run(
            [sys.executable, "-c", f"from dskype.deploy.machine.broker import EmbeddedBroker; EmbeddedBroker({str(data)!r}).start()"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert other.returncode == 1 and "FolderInUseError" in other.stderr
    with EmbeddedBroker(data) as broker:
        assert read(broker.bootstrap_servers, "t", 1) == [b"kept"]


_OWNER = """
import os, sys, threading
from dskype.deploy.machine.broker import EmbeddedBroker
broker = EmbeddedBroker()
starter = threading.Thread(target=broker.start)     # a thread that ends must not take the broker along
starter.start()
starter.join()
print(broker.pid, broker.folder, broker.bootstrap_servers, flush=True)
sys.stdin.read()
"""


def test_the_broker_dies_with_an_owner_that_is_killed_and_the_next_start_removes_its_folder() -> None:
    owner = subprocess.Popen([sys.executable, "-c", _OWNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None and owner.stdin is not None
    pid_text, folder_text, servers = owner.stdout.readline().split()
    pid, folder = int(pid_text), Path(folder_text)
    assert live_cluster(servers)
    sweep_stale()
    assert folder.is_dir(), "a sweep must not take the folder of a living owner"
    owner.kill()
    owner.wait()
    wait_for(lambda: "kafka.Kafka" not in command_line(pid), 60, "the end of the broker")
    owner.stdin.close()
    owner.stdout.close()
    assert folder.is_dir()
    assert sweep_stale() >= 1
    assert not folder.exists()


def test_an_owner_that_ends_in_order_stops_its_broker_and_removes_the_folder() -> None:
    owner = subprocess.run([sys.executable, "-c", _OWNER], input="", capture_output=True, text=True, check=True)
    pid, folder, _ = owner.stdout.split()
    assert "kafka.Kafka" not in command_line(int(pid)) and not Path(folder).exists()


def test_a_forked_copy_of_the_owner_leaves_the_broker_alone(broker: EmbeddedBroker) -> None:
    child = os.fork()
    if child == 0:
        try:
            broker.stop()
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert broker.is_running() and live_cluster(broker.bootstrap_servers)


def test_a_left_over_broker_is_killed_by_the_sweep_when_only_its_owner_died(tmp_home: Path) -> None:
    """So it is where the kernel cannot tie a child to its parent."""
    folder = paths.scratch_dir() / "broker-left"
    folder.mkdir()
    (folder / "owner.lock").touch()
    stray = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", f"{folder}/server.properties"])
    innocent = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        (folder / "child.pid").write_text(str(innocent.pid))
        assert sweep_stale() == 1
        assert innocent.poll() is None, "a process id that was given to another program since must be left alone"
        folder.mkdir()
        (folder / "owner.lock").touch()
        (folder / "child.pid").write_text(str(stray.pid))
        assert sweep_stale() == 1
        assert stray.wait(30) == -signal.SIGKILL
    finally:
        for process in (stray, innocent):
            process.kill()
            process.wait()


def test_a_tied_child_is_found_by_its_own_process_id_and_a_missing_program_is_an_error(tmp_path: Path) -> None:
    child = spawn_tied([sys.executable, "-c", "import os; print(os.getpid())"], stdout=subprocess.PIPE)
    assert child.communicate()[0].strip() == str(child.pid).encode() and child.returncode == 0
    missing = spawn_tied([str(tmp_path / "no-such-program")], stderr=subprocess.PIPE)
    assert b"FileNotFoundError" in missing.communicate()[1] and missing.returncode != 0


def test_a_taken_port_is_given_up_for_another(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        offers = [[taken.getsockname()[1], *free_ports(1)]]
        monkeypatch.setattr(broker_module, "free_ports", lambda n: offers.pop() if offers else free_ports(n))
        told: list[str] = []
        with EmbeddedBroker(progress=told.append) as broker:
            assert broker.port != taken.getsockname()[1]
        assert any("port taken" in t for t in told)


def test_a_broker_that_cannot_start_shows_the_end_of_its_log_and_leaves_nothing(tmp_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_module.jars, "broker_jars", lambda progress=None: [Path("/no/such.jar")])
    with pytest.raises(BrokerError, match=r"(?s)could not format.*kafka\.tools\.StorageTool.*fix:"):
        EmbeddedBroker().start()
    assert [p.name for p in paths.scratch_dir().iterdir()] == ["sweep.lock"]


def test_a_start_that_fails_later_shows_kafkas_own_log() -> None:
    with pytest.raises(BrokerError, match=r"(?s)ended with exit code 1 while starting; the end of its log:.*no\.such\.Reporter"):
        EmbeddedBroker(properties={"metric.reporters": "no.such.Reporter"}).start()


def test_a_heap_that_is_too_small_is_refused() -> None:
    with pytest.raises(BrokerError, match="heap_mb must be at least 128 MiB, given: 1"):
        EmbeddedBroker(heap_mb=1)


def test_free_ports_are_distinct_and_can_be_bound() -> None:
    ports = free_ports(20)
    assert len(set(ports)) == 20
    for port in ports[:3]:
        with socket.socket() as s:
            s.bind(("127.0.0.1", port))


# ---------------------------------------------------------------------------------------------------- which broker, which settings


def test_the_option_wins_over_the_environment_and_without_both_the_broker_is_embedded() -> None:
    env = {"DSKYPE_BOOTSTRAP_SERVERS": "b:2"}
    assert resolve_bootstrap("a:1, [::1]:9", env).servers == "a:1,[::1]:9"
    assert resolve_bootstrap(None, env).servers == "b:2"
    assert resolve_bootstrap(None, env).source == "DSKYPE_BOOTSTRAP_SERVERS"
    assert resolve_bootstrap("embedded", env).embedded
    assert resolve_bootstrap(None, {}).embedded and resolve_bootstrap("", {"DSKYPE_BOOTSTRAP_SERVERS": " "}).embedded


@pytest.mark.parametrize("value", ["kafka", "kafka:", "kafka:99999", "kafka:0", "a:1,,b:2", "http://kafka:9092", "a b:1"])
def test_malformed_servers_are_refused(value: str) -> None:
    with pytest.raises(OptionError, match=r"must be host:port\[,host:port\.\.\.\], given: "):
        resolve_bootstrap(value, {})


def test_a_broker_that_is_not_there_yet_is_waited_for_and_told_of() -> None:
    port, told = free_ports(1)[0], []
    listener = socket.socket()

    def answer() -> None:
        with listener.accept()[0] as one:
            assert one.recv(100)[4:8] == bytes([0, 18, 0, 0]), "ApiVersions, version 0"
            one.sendall(bytes(10))

    broker = threading.Thread(target=answer)

    def open_later(text: str) -> None:
        told.append(text)
        listener.bind(("127.0.0.1", port))
        listener.listen()
        broker.start()

    try:
        connection.await_brokers(f"127.0.0.1:{port}", open_later, {"DSKYPE_BROKER_WAIT_S": "30"})
        broker.join()
    finally:
        listener.close()
    assert len(told) == 1 and f"waiting for Kafka: 127.0.0.1:{port}: Connection refused; giving up 30 s after the start (DSKYPE_BROKER_WAIT_S)" in told[0]


def test_a_broker_that_stands_still_is_waited_for_and_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "_CONNECT_S", 0.2)
    told: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:  # takes connections, as the kernel does for a stopped process
        servers = f"127.0.0.1:{listener.getsockname()[1]}"
        with pytest.raises(BrokerError, match=f"given: {servers}: it takes the connection, but has not answered for 0.2 s\n  fix: start the broker"):
            connection.await_brokers(servers, told.append, {"DSKYPE_BROKER_WAIT_S": "1"})
    assert len(told) == 1 and told[0].startswith(f"waiting for Kafka: {servers}: it takes the connection")


def test_without_a_broker_the_start_ends_with_the_name_of_the_timeout_and_before_spark_is_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dskype.deploy.machine import environment

    monkeypatch.setenv("DSKYPE_BROKER_WAIT_S", "0.6")
    monkeypatch.setattr(environment, "start_session", lambda **_: pytest.fail("Spark was started"))
    told: list[str] = []
    servers = f"127.0.0.1:{free_ports(1)[0]}"
    with pytest.raises(BrokerError, match=r"within 0.6 s \(DSKYPE_BROKER_WAIT_S\), given: 127.0.0.1:\d+: Connection refused\n  fix: start the broker"):
        environment.Environment(bootstrap_servers=servers, folder=tmp_path / "folder", progress=told.append)
    assert any(text.startswith("waiting for Kafka") for text in told)
    assert not (tmp_path / "folder" / "child.pid").exists()


@pytest.mark.parametrize("value", ["soon", "-1", "1e3", "nan"])
def test_a_time_to_wait_that_is_none_is_refused(value: str) -> None:
    with pytest.raises(OptionError, match="DSKYPE_BROKER_WAIT_S must be a number of seconds"):
        connection.await_brokers("127.0.0.1:9", lambda _: None, {"DSKYPE_BROKER_WAIT_S": value})


def test_kafka_settings_pass_through_untouched_and_secrets_are_never_shown() -> None:
    conf = {
        "kafka.sasl.jaas.config": 'x username="u" password="p";',
        "kafka.ssl.key.password": "p",
        "kafka.ssl.truststore.location": "/t.pem",
        "kafka.enable.x": True,
        "topology.workers": 2,
        "kafka.none": None,
    }
    options = kafka_options(conf)
    assert options == {
        "kafka.sasl.jaas.config": 'x username="u" password="p";',
        "kafka.ssl.key.password": "p",
        "kafka.ssl.truststore.location": "/t.pem",
        "kafka.enable.x": "true",
    }
    assert redact(options) == {**options, "kafka.sasl.jaas.config": "******", "kafka.ssl.key.password": "******"}


def test_java_client_settings_become_arguments_that_all_python_clients_accept() -> None:
    arguments = client_arguments(
        {
            "kafka.bootstrap.servers": "a:1,b:2",
            "kafka.security.protocol": "sasl_ssl",
            "kafka.sasl.mechanism": "SCRAM-SHA-512",
            "kafka.sasl.jaas.config": 'org.apache.kafka.common.security.scram.ScramLoginModule required username="me" password="s;e=c ret";',
            "kafka.ssl.enabled.protocols": "TLSv1.3",
            "kafka.ssl.endpoint.identification.algorithm": "",
            "kafka.request.timeout.ms": "5000",
            "kafka.fetch.max.wait.ms": 20,
        }
    )
    context = arguments["ssl_context"]
    assert (context.check_hostname, context.verify_mode, context.minimum_version) == (False, ssl.CERT_REQUIRED, ssl.TLSVersion.TLSv1_3)
    assert arguments == {
        "bootstrap_servers": ["a:1", "b:2"],
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": "me",
        "sasl_plain_password": "s;e=c ret",
        "ssl_context": context,
        "request_timeout_ms": 5000,
    }
    for client in (KafkaAdminClient, KafkaConsumer, KafkaProducer):
        assert set(arguments) <= set(client.DEFAULT_CONFIG)


def test_brokers_in_the_configuration_are_refused_because_all_clients_get_them_from_one_place() -> None:
    with pytest.raises(OptionError, match=r"--bootstrap-servers or DSKYPE_BOOTSTRAP_SERVERS, given: kafka.bootstrap.servers 'a:1'"):
        kafka_options({"kafka.bootstrap.servers": "a:1", "kafka.client.id": "x"})
    assert kafka_options({"kafka.bootstrap.servers": None, "kafka.client.id": "x", "topology.debug": True}) == {"kafka.client.id": "x"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kafka.sasl.jaas.config": 'PlainLoginModule required username="u";'}, "must give username and password"),
        ({"kafka.sasl.jaas.config": 'my.Module required secret="hunter2";'}, "must name PlainLoginModule"),
        ({"kafka.request.timeout.ms": "soon"}, "kafka.request.timeout.ms must be a whole number, given: 'soon'"),
        ({"kafka.ssl.keystore.type": "PEM", "kafka.ssl.keystore.key": "hunter2"}, "kafka.ssl.keystore.key must be PEM key"),
        ({"kafka.ssl.truststore.type": "PEM", "kafka.ssl.truststore.certificates": "no certificate"}, "must be PEM certificates"),
    ],
)
def test_security_settings_that_python_cannot_follow_are_refused_without_showing_secrets(options: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message) as e:
        client_arguments(options)
    assert "hunter2" not in str(e.value)


# ---------------------------------------------------------------------------------------------------- watched


def test_a_broker_that_dies_by_itself_is_started_again_with_ports_and_data_until_it_dies_too_often(monkeypatch):
    monkeypatch.setattr(broker_module, "_MOST_FAST_DEATHS", 1)
    monkeypatch.setattr(broker_module, "_FAST_S", 3600.0)  # (however slow this machine is)
    events: queue.Queue = queue.Queue()

    def next_event(kind):
        event = events.get(timeout=120)
        assert event.kind == kind, event
        return event

    with EmbeddedBroker() as broker:
        address, folder = broker.bootstrap_servers, broker.folder
        broker.watch(events.put)
        _write(address, "kept", b"value")
        os.kill(broker.pid, signal.SIGKILL)
        assert "ended by itself (exit code -9)" in next_event("died").text
        assert next_event("restarted").restarts == broker.restarts == 1
        assert (broker.bootstrap_servers, broker.folder) == (address, folder)
        assert _read(address, "kept") == [b"value"]
        os.kill(broker.pid, signal.SIGKILL)
        next_event("died")
        gave_up = next_event("gave-up")
        assert "died 2 times in a row" in gave_up.text and gave_up.restarts == 1


def test_a_broker_that_was_killed_on_purpose_stays_down(monkeypatch):
    monkeypatch.setattr(broker_module, "_WATCH_S", 0.001)
    broker, events, looks = EmbeddedBroker(), [], []
    monkeypatch.setattr(broker, "_unwatched", SimpleNamespace(wait=lambda seconds: looks.append(seconds) or len(looks) > 20, is_set=lambda: False))
    broker._process = None  # as kill and stop leave it
    broker._watch(events.append)
    assert len(looks) > 20 and not events


def test_a_broker_waits_for_room_before_it_is_started_again(monkeypatch, tmp_path):
    broker, events, free = EmbeddedBroker(), [], [1 << 20]
    broker._owned = SimpleNamespace(path=tmp_path, is_ours=lambda: True, release=lambda: None)
    monkeypatch.setattr(broker_module, "_WATCH_S", 0.01)
    monkeypatch.setattr(broker_module.shutil, "disk_usage", lambda path: SimpleNamespace(free=free[0]))

    def note(event):
        events.append(event)
        free[0] = 1 << 30

    assert broker._wait_for_room(note)
    [event] = events
    assert event.kind == "waits" and f"64 MiB free in {tmp_path}, given: 1 MiB; make room there" in event.text


def _write(address, topic, value):
    create(address, topic)
    producer = KafkaProducer(bootstrap_servers=address)
    producer.send(topic, value).get(timeout=60)
    producer.close()


def _read(address, topic):
    consumer = KafkaConsumer(topic, bootstrap_servers=address, auto_offset_reset="earliest", consumer_timeout_ms=5_000)
    found = [record.value for record in consumer]
    consumer.close()
    return found


def test_a_broker_that_stood_still_is_not_fenced_by_itself(broker):
    """Clients that ask for brokers in that moment would get none, and would not ask again."""
    settings = dict(line.split("=", 1) for line in (broker.folder / "server.properties").read_text().splitlines())
    assert int(settings["broker.session.timeout.ms"]) >= 3_600_000
