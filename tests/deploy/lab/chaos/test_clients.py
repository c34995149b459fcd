"""The clients of the fault suite, without Spark and Kafka: who is asked when, and what counts as working."""

from __future__ import annotations

import socket
import threading
import time
from types import SimpleNamespace

import pytest

from dskype.deploy.lab.chaos import clients as clients_module
from dskype.deploy.lab.chaos.clients import CLIENTS, Client, Clients, Command
from dskype.deploy.lab.chaos.door import Door
from dskype.deploy.lab.chaos.faults import FAULTS, usable
from dskype.deploy.machine.broker import free_ports
from dskype.topology.errors import DskypeError
from tests.waiting import wait_for

pytestmark = pytest.mark.long


class Plays(Client):
    """Answers with what it is given, one after the other; the last answer stays."""

    def __init__(self, name, *answers):
        self.name, self.text, self._answers, self.asked_at = name, f"the client {name}", list(answers), []

    def begin(self, scene):
        self.began = True

    def tries(self):
        def once():
            self.asked_at.append(time.monotonic())
            answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
            if isinstance(answer, Exception):
                raise answer
            return answer

        return once

    def close(self):
        self.began = False


class PlaysCommand(Plays, Command):
    pass


@pytest.fixture
def play(tmp_path, monkeypatch):
    """Return a function that lets clients be watched after a fault, and returns the outcome; the output catches up when ``caught_up`` says so."""
    monkeypatch.setattr(clients_module, "_TRY_S", 0.01)

    def watch(*played, caught_up=lambda: None, within_s=0.3):
        monkeypatch.setattr(clients_module, "_all", lambda: list(played))
        with Clients(SimpleNamespace(kafka=None, name="t"), tmp_path / "clients", within_s) as clients:
            assert all(client.began for client in played)
            ready = threading.Event()
            outcome = clients.watch(time.monotonic(), ready)
            caught_up()
            ready.set()
            found = outcome()
        assert not any(client.began for client in played)
        return found

    return watch


def test_a_client_may_fail_for_a_while_and_the_slowest_one_is_named(play):
    found = play(Plays("quick", True), Plays("slow", False, DskypeError("not yet"), OSError("refused"), True))
    assert found.problems == [] and found.slowest[1] == "slow" and 0 < found.slowest[0] < 10
    assert "quick 0.0 s" in found.as_text()


@pytest.mark.parametrize(("answer", "why"), [(False, "no result"), (DskypeError("the brokers do not answer"), "the brokers do not answer")])
def test_a_client_that_does_not_come_back_is_a_problem_with_its_reason(play, answer, why):
    found = play(Plays("quick", True), Plays("dumb", answer))
    assert found.slowest == (None, "dumb") and "dumb never" in found.as_text()
    (problem,) = found.problems
    assert "the client dumb does not work 0.3 s after the end of the fault" in problem and why in problem


def test_commands_wait_until_the_output_has_caught_up_because_they_switch_the_topology_off(play):
    moments = []
    first, second = PlaysCommand("one", True), PlaysCommand("two", True)
    found = play(first, second, caught_up=lambda: moments.append(time.monotonic()), within_s=60)
    assert moments[0] <= first.asked_at[0] <= second.asked_at[0] and set(found.seconds) == {"one", "two"}


def test_clients_are_used_while_a_fault_lasts_and_their_failures_then_do_not_count(tmp_path, monkeypatch):
    dumb, command = Plays("dumb", OSError("refused")), PlaysCommand("one", True)
    monkeypatch.setattr(clients_module, "_all", lambda: [dumb, command])
    with Clients(SimpleNamespace(kafka=None, name="t"), tmp_path / "clients") as clients:
        clients.use()
        wait_for(lambda: dumb.asked_at, 10, "the attempt")
    assert len(dumb.asked_at) == 1 and command.asked_at == []


def test_there_is_a_client_for_everything_that_users_have():
    assert CLIENTS == ["publisher", "subscriptions", "results", "metrics", "ui", "ui-results", "webhooks", "list", "deactivate"]


def test_a_door_that_hangs_keeps_connections_and_passes_everything_on_later():
    own, target = free_ports(2)
    with socket.create_server(("127.0.0.1", target)) as server:
        door = Door(own, target).start()
        try:
            with socket.create_connection(("127.0.0.1", own), 5) as client, server.accept()[0] as other:
                client.sendall(b"before")
                other.settimeout(5)
                assert other.recv(10) == b"before"
                door.hang()
                client.sendall(b"meanwhile")
                with socket.create_connection(("127.0.0.1", own), 5):  # connections are still taken
                    other.settimeout(0.2)
                    with pytest.raises(TimeoutError):
                        other.recv(10)
                    door.resume()
                other.settimeout(5)
                assert other.recv(10) == b"meanwhile"
                other.sendall(b"answer")
                assert client.recv(10) == b"answer"
        finally:
            door.close()


def test_faults_of_standing_still_are_those_that_a_pause_lengthens():
    assert {name for name, fault in FAULTS.items() if fault.still} == {name for name in FAULTS if name.startswith("pause-")} | {"cut-network"}
    system, workload = SimpleNamespace(door=None, clock=None), SimpleNamespace(store=None, followed=False)
    assert {"pause-clients", "cut-network"}.isdisjoint(usable(system, workload, None, long=True))
    system.door = workload.followed = True
    assert {"pause-clients", "cut-network"} <= set(usable(system, workload, None, long=True))
