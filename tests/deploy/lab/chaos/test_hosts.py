"""Faults of containers, without containers and with a broker: what is asked of docker, and how a recovery is measured."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest

from dskype.deploy.lab.chaos import hosts
from dskype.deploy.lab.chaos.hosts import FAULTS, ContainerError, Containers, HostFault, Recovery, as_table, main
from dskype.topology.planning.plan import inbox_topic
from dskype.topology.runtime.kafka.clients import KafkaSettings
from dskype.topology.runtime.kafka.topic_admin import TopicAdmin
from tests.topology.runtime.helpers import make_topic

pytestmark = pytest.mark.long


@pytest.fixture
def docker(tmp_path, monkeypatch):
    """A docker client that notes what it is asked, and has two containers."""
    asked = tmp_path / "asked"
    program = tmp_path / "docker"
    program.write_text(f"""#!/bin/sh
echo "$*" >> {asked}
case "$*" in
    *service=topology) echo 4711;;
    *service=spark-worker-1) echo 4712;;
    *crash*|exec*) exit 137;;
    *unpause*) echo "it is not paused" >&2; exit 1;;
esac
""")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    return lambda: [line for line in asked.read_text().splitlines() if not line.startswith("ps ")]


def test_containers_are_found_by_project_and_service(docker):
    containers = Containers("mine")
    assert containers.has("topology") and not containers.has("kafka-3")
    containers.kill("topology")
    containers.start("topology")
    containers.crash("spark-worker-1")
    containers.disconnect("spark-worker-1")
    containers.connect("spark-worker-1")
    assert docker() == [
        "kill 4711",
        "start 4711",
        "exec 4712 sh -c kill -9 -1",
        "network disconnect mine_default 4712",
        "network connect --alias spark-worker-1 mine_default 4712",
    ]
    with pytest.raises(ContainerError, match="it is not paused"):
        containers.unpause("topology")
    with pytest.raises(ContainerError, match="no container of the service 'kafka-3'"):
        containers.pause("kafka-3")


def test_a_fault_ends_also_if_the_run_does():
    topology, healed = SilentFor(60), []
    fault = HostFault("f", "it stops", "topology", topology.strike, lambda containers, service: healed.append(service))
    topology.matched = lambda wait_ms=0: 1 / 0
    with pytest.raises(ZeroDivisionError):
        hosts._Watch(topology).strike(fault, None, 30, 10)
    assert healed == ["topology"]


def test_faults_whose_containers_are_not_there_are_refused(docker, capsys):
    for name in ("kill-broker", "kill-prometheus"):
        with pytest.raises(SystemExit) as refused:
            main(["--faults", f"{name},kill-worker"])
        assert refused.value.code == 2
        assert f"for {name}; possible: kill-worker, pause-worker, kill-driver, crash-driver, pause-driver, disconnect-driver" in capsys.readouterr().err


def test_without_docker_the_error_says_what_is_missing(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main([]) == 1
    assert "fix: install Docker" in capsys.readouterr().err


class SilentFor:
    """A topology that handles everything at once, but nothing for some time after :meth:`strike`.

    :param delay_s: how long it goes on after it.
    """

    def __init__(self, secs, delay_s=0.0):
        self._secs, self._delay_s, self._from, self._until, self._seen = secs, delay_s, 0.0, 0.0, 0
        self.feeder = SimpleNamespace(published=0)

    def matched(self, wait_ms=0):
        time.sleep(0.01)
        self.feeder.published += 1
        if not self._from <= time.monotonic() < self._until:
            self._seen = self.feeder.published
        return self._seen

    def strike(self, containers, service):
        self._from = time.monotonic() + self._delay_s
        self._until = self._from + self._secs


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(hosts, "_BEHIND_S", 0.05)
    monkeypatch.setattr(hosts, "_SETTLED_S", 0.5)


def test_a_recovery_counts_from_the_fault_to_the_first_message_that_was_published_after_it():
    topology = SilentFor(0.3)
    watch = hosts._Watch(topology)
    assert watch.rest(0.05, 10)
    found = watch.strike(HostFault("f", "it stops", "topology", topology.strike), None, 30, 10)
    assert 0.3 <= found.silent_s <= found.first_s <= found.caught_up_s < 5


def test_a_silence_that_begins_some_time_after_the_fault_counts_as_its_effect():
    topology = SilentFor(0.6, delay_s=0.2)
    found = hosts._Watch(topology).strike(HostFault("f", "it stops later", "topology", topology.strike), None, 30, 10)
    assert found.first_s < 0.2 and found.silent_s >= 0.6 and 0.8 <= found.caught_up_s < 5


def test_whoever_is_back_in_time_may_show_afterwards_that_it_stays_so(monkeypatch):
    monkeypatch.setattr(hosts, "_SETTLED_S", 1.5)
    topology = SilentFor(0.3)
    found = hosts._Watch(topology).strike(HostFault("f", "it stops", "topology", topology.strike), None, 0, 1.0)
    assert 0.3 <= found.caught_up_s < 1.0


def test_whoever_is_not_back_in_time_is_never_back():
    topology, healed = SilentFor(60), []
    fault = HostFault("f", "it stops", "topology", topology.strike, lambda containers, service: healed.append(service))
    found = hosts._Watch(topology).strike(fault, None, 0.1, 0.2)
    assert healed == ["topology"] and found.first_s is found.caught_up_s is None and found.silent_s >= 0.3
    assert not hosts._Watch(topology).rest(0.05, 0.2)


def test_the_table_has_a_line_for_each_fault():
    found = [Recovery(FAULTS["kill-worker"], 7.6, 8.2, 41.0), Recovery(FAULTS["crash-driver"])]
    lines = as_table(found, 30).splitlines()
    assert [cell.strip() for cell in lines[2].split("|")[1:-1]] == ["a worker's host is lost, and back after 30 s", "8", "8", "41"]
    assert [cell.strip() for cell in lines[3].split("|")[2:-1]] == ["0", "never", "never"]


def test_unknown_faults_are_refused(capsys):
    with pytest.raises(SystemExit) as refused:
        main(["--faults", "flood"])
    assert refused.value.code == 2 and "given: flood; legal: kill-worker" in capsys.readouterr().err


def test_the_leader_of_the_busiest_inbox_is_a_service(bootstrap_servers, name):
    kafka = KafkaSettings(bootstrap_servers)
    inbox = make_topic(kafka, inbox_topic(name, "subscription-bolt"), partitions=3)
    with kafka.producer() as producer:
        producer.send(inbox, b"a record", partition=1)
    with TopicAdmin(kafka) as admin:
        assert hosts.busiest_leader(kafka, name) == f"kafka-{admin.leader(inbox, 1)}"
        assert all(admin.leader(inbox, partition) >= 0 for partition in range(3))


def test_faults_of_the_driver_strike_whoever_is_the_driver_now(monkeypatch):
    kafka = KafkaSettings("127.0.0.1:1")
    states = {"dskype": {"driver": {"host": "standby"}}, "other": {"driver": {"host": "topology"}}}
    monkeypatch.setattr(hosts, "load_states", lambda asked: states if asked is kafka else {})
    assert hosts.driver_host(kafka, "dskype") == "standby"
    assert {fault.name for fault in FAULTS.values() if fault.service == hosts._DRIVER} == {f"{how}-driver" for how in ("kill", "crash", "pause", "disconnect")}
