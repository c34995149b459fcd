"""The service of ``dskype up`` without a broker: its folder and file, ports, what the commands say, and units of systemd."""

from __future__ import annotations

import configparser
import json
import os
import shlex
import shutil
import socket
import stat
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kafka.errors import KafkaTimeoutError

from dskype.deploy.cli import main as cli
from dskype.deploy.cli.commands import status
from dskype.deploy.machine import detached, service
from dskype.deploy.machine.broker import BrokerEvent
from dskype.deploy.machine.environment import Environment
from dskype.deploy.machine.errors import DeployError
from dskype.topology.runtime.nimbus.liveness import describe_driver


@pytest.fixture
def started(monkeypatch) -> list[dict[str, Any]]:
    """What would have been started in the background."""
    found: list[dict[str, Any]] = []
    monkeypatch.setattr(detached, "start", lambda arguments, log, show, *, cwd=None: (found.append({"arguments": arguments, "log": log, "cwd": cwd}), 7)[1])
    return found


def test_a_service_keeps_the_ports_that_it_was_given(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        given = taken.getsockname()[1]
    first = service.prepare(tmp_path / "s", port=0, metrics_port=given)
    assert first.port and first.metrics_port == given
    assert service.prepare(tmp_path / "s", port=None, metrics_port=None) == first == service.read(tmp_path / "s")
    assert service.prepare(tmp_path / "s", port=9, metrics_port=None) == replace(first, port=9)
    assert stat.S_IMODE((tmp_path / "s" / "service.json").stat().st_mode) == 0o600


def test_a_folder_with_other_files_is_not_taken(tmp_path):
    (tmp_path / "letters.txt").touch()
    with pytest.raises(DeployError, match=r"must be empty at its first start.*letters\.txt"):
        service.prepare(tmp_path, port=None, metrics_port=None)
    assert os.listdir(tmp_path) == ["letters.txt"]


@pytest.mark.parametrize("text", ["", "[]", "1", "{}", '{"v": 2}', '{"v": 1, "other": 1}'])
def test_a_damaged_file_names_itself(tmp_path, text):
    (tmp_path / "service.json").write_text(text)
    with pytest.raises(DeployError, match=r"service\.json must describe a service"):
        service.read(tmp_path)


def test_up_starts_the_usual_topology_in_the_background_and_the_next_time_what_ran_last(tmp_path, started, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    folder = str(tmp_path / "s")
    assert cli.main(["up", "--folder", folder, "--port", "0", "--fresh"]) == 0
    assert started[0]["arguments"] == ["up", "--folder", folder, "--foreground", "--fresh"]
    assert "export DSKYPE_BOOTSTRAP_SERVERS=127.0.0.1:" in capsys.readouterr().err
    service._write(Path(folder), replace(service.read(Path(folder)), arguments=["mine.yaml", "-c", "a.b=1"], cwd="/"))
    assert cli.main(["up", "--folder", folder]) == 0
    assert (started[1]["arguments"][-3:], started[1]["cwd"]) == (["mine.yaml", "-c", "a.b=1"], Path("/"))
    assert cli.main(["up", "--folder", folder, "other.yaml"]) == 0
    assert (started[2]["arguments"][-1], started[2]["cwd"]) == ("other.yaml", tmp_path)
    assert cli.main(["up", "--folder", folder, "-q", "--verbose"]) == 0
    assert started[3]["arguments"][-5:] == ["mine.yaml", "-c", "a.b=1", "-q", "--verbose"], "what ran last, printed in another way"


def test_what_runs_is_not_started_again_and_not_with_other_arguments(tmp_path, started, capsys):
    service._write(tmp_path, service.Service(state="running", process=describe_driver()))
    assert cli.main(["up", "--folder", str(tmp_path)]) == 0
    service._write(tmp_path, service.Service(state="running", process=describe_driver(), arguments=["-c", "a.b=1", "-q"]))
    for same in (["-q", "-n"], ["--verbose"], ["-n", "-c", "a.b=1"]):
        assert cli.main(["up", "--folder", str(tmp_path), *same]) == 0, "only what is printed differs"
    for other in (["other.yaml"], ["--fresh"], ["--port", "1"], ["--metrics-port", "1"]):
        assert cli.main(["up", "--folder", str(tmp_path), *other]) == 1
    assert not started and service.read(tmp_path).port == service.BROKER_PORT
    assert capsys.readouterr().err.count("stop it first: dskype down") == 4
    assert cli.main(["up", "--folder", str(tmp_path), "--systemd"]) == 0
    assert "ExecStart=" in capsys.readouterr().out, "a unit may be made while the service runs"


def _writable(folder: Path, name: str) -> None:
    (folder / name).chmod(0o666 if (folder / name).is_file() else 0o777)


def _of_another(folder: Path, name: str) -> None:
    os.chown(folder / name, os.getuid() + 1, -1)


@pytest.mark.parametrize(
    ("spoil", "name", "given"),
    [(_writable, "", "can be written by others"), (_writable, "service.json", "service.json can be written by others")]
    + [(_of_another, name, "belongs to user 1") for name in ("", "service.json") if os.getuid() == 0]
    + [(_of_another, "broker/server.properties", "server.properties belongs to user 1") for _ in range(os.getuid() == 0)],
)
def test_what_another_user_may_have_written_does_not_decide_what_runs(tmp_path, started, capsys, spoil, name, given):
    folder = tmp_path / "s"
    (folder / "broker").mkdir(parents=True)
    (folder / "broker" / "server.properties").write_text("")
    service._write(folder, service.Service(arguments=["theirs.py"], process={**describe_driver(), "started": 1}))
    spoil(folder, name)
    refused = ["up", "down", "status"] if "broker" not in name else ["up"]
    for command in refused:
        assert cli.main([command, "--folder", str(folder)]) == 1
        assert "must belong to user" in (text := capsys.readouterr().err) and given in text
    if name != "service.json":
        with pytest.raises(DeployError, match=given):
            Environment(folder=folder)
    assert not started


def test_an_empty_folder_is_closed_to_others_and_used(tmp_path, started):
    (tmp_path / "s").mkdir()
    (tmp_path / "s").chmod(0o775)  # as with umask 002
    assert cli.main(["up", "--folder", str(tmp_path / "s"), "--port", "0"]) == 0
    assert stat.S_IMODE((tmp_path / "s").stat().st_mode) == 0o755 and started


def test_up_has_a_broker_of_its_own(tmp_path, capsys):
    assert cli.main(["up", "--folder", str(tmp_path / "s"), "--bootstrap-servers", "127.0.0.1:1"]) == 2
    assert not (tmp_path / "s").exists()


def test_status_and_down_of_what_does_not_run(tmp_path, capsys):
    assert cli.main(["status", "--folder", str(tmp_path)]) == 1
    assert cli.main(["down", "--folder", str(tmp_path)]) == 1
    assert capsys.readouterr().err.count("expected the folder of a service") == 2
    service._write(tmp_path, service.Service(state="running", process={**describe_driver(), "started": 1}))
    assert cli.main(["status", "--folder", str(tmp_path)]) == 1
    assert f"{tmp_path}: ended without being stopped" in capsys.readouterr().out
    assert cli.main(["down", "--folder", str(tmp_path)]) == 0
    assert "nothing runs" in capsys.readouterr().err


@pytest.mark.long
def test_down_stops_the_process_and_waits_for_its_end(tmp_path):
    told: list[str] = []
    program = f"""
import signal, sys, time
from pathlib import Path
from dataclasses import replace
from dskype.deploy.machine import service
from dskype.topology.runtime.nimbus.liveness import describe_driver
def end(*_):
    time.sleep(0.3)
    sys.exit()
signal.signal(signal.SIGTERM, end)
service._write(Path({str(tmp_path)!r}), service.Service(process=describe_driver()))
print("ready", flush=True)
while True:
    time.sleep(0.05)  # a signal that comes right before a sleep starts is seen only after it
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout.readline() == "ready\n"
        with pytest.raises(DeployError, match="expected to stop within"):
            service.stop(tmp_path, 0.01, told.append)
        running.wait(timeout=60)
    assert told == [f"process {running.pid} stops the topology, Spark and the broker; that takes up to a minute"]
    assert service.stop(tmp_path, 60, told.append) is False and len(told) == 1


@pytest.mark.parametrize("command", ["down", "up"])
def test_a_service_that_is_stopping_gets_no_second_signal_and_is_waited_for(tmp_path, started, capsys, command):
    program = "import json, sys; from dskype.topology.runtime.nimbus.liveness import describe_driver; print(json.dumps(describe_driver()), flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as running:
        service._write(tmp_path, service.Service(state="stopping", process=json.loads(running.stdout.readline())))
        assert cli.main(["status", "--folder", str(tmp_path)]) == 1
        assert f"{tmp_path}: stopping, process {running.pid}\n" in capsys.readouterr().out
        end = threading.Timer(0.2, running.stdin.close)
        end.start()
        assert cli.main([command, "--folder", str(tmp_path)]) == 0
        assert running.wait(timeout=60) == 0, "not by a signal"
    assert "the service is stopping already: process" in capsys.readouterr().err
    assert len(started) == (command == "up")


def test_the_status_says_that_the_service_was_stopped_while_it_asked_the_broker(tmp_path, monkeypatch, capsys):
    service._write(tmp_path, service.Service(state="running", process=describe_driver()))

    def stop_meanwhile(*_):
        service._write(tmp_path, service.Service(state=after, process=describe_driver()))
        raise KafkaTimeoutError("Unable to bootstrap")

    monkeypatch.setattr(status, "_measured", stop_meanwhile)
    after = "stopping"
    assert cli.main(["status", "--folder", str(tmp_path)]) == 1
    shown = capsys.readouterr()
    assert f"{tmp_path}: stopping, process" in shown.out and "error" not in shown.err
    after = "running"
    service._write(tmp_path, service.Service(state="running", process=describe_driver()))
    assert cli.main(["status", "--folder", str(tmp_path)]) == 1
    assert ": does not answer within 5 s (" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["up", "status", "down"])
def test_a_file_in_place_of_the_folder_is_named(tmp_path, started, capsys, command):
    (tmp_path / "afile").write_text("letters")
    for folder in (tmp_path / "afile", tmp_path / "afile" / "below"):
        assert cli.main([command, "--folder", str(folder)]) == 1
        assert capsys.readouterr().err == f"error: expected a folder, given the file '{tmp_path / 'afile'}'\n"
    assert not started


def test_the_status_says_what_a_start_waits_for(tmp_path, capsys):
    service._write(tmp_path, service.Service(state="starting", doing="compiling kernels, once: 7 kernels so far", process=describe_driver()))
    assert cli.main(["status", "--folder", str(tmp_path)]) == 1
    assert capsys.readouterr().out == f"service   {tmp_path}: starting, process {os.getpid()}\n          compiling kernels, once: 7 kernels so far\n"


def test_the_status_says_what_runs_and_why_it_does_not_get_on():
    topology = {
        "name": "dskype",
        "status": "ACTIVE",
        "uptime_s": 90_061,
        "health": {"state": "stalled", "why": ["task 2 waits"]},
        "messages": {"processed": 1_234, "per_second": 5.25},
        "tuples_per_second": None,
        "waiting_records": 3,
        "dead_letters": 1,
    }
    text = status.as_text(
        {
            "folder": "/d",
            "state": "running",
            "pid": 7,
            "bootstrap_servers": "127.0.0.1:9092",
            "metrics": "http://127.0.0.1:9464/metrics",
            "topologies": [topology],
        }
    )
    assert text == (
        "service   /d: running, process 7\n"
        "broker    127.0.0.1:9092\n"
        "metrics   http://127.0.0.1:9464/metrics\n"
        "topology  dskype: ACTIVE, stalled, for 1 day 01:01:01\n"
        "          task 2 waits\n"
        "          1,234 messages, 5.2/s; -/s between tasks; 3 records wait; 1 dead letter"
    )


def test_the_status_claims_nothing_about_topologies_while_the_broker_does_not_answer():
    broker = {"bootstrap_servers": "127.0.0.1:9092", "metrics": "http://127.0.0.1:9464/metrics", "broker_silence": "does not answer within 5 s (away)"}
    text = status.as_text({"folder": "/d", "state": "running", "pid": 7, **broker, "topologies": []})
    assert text.splitlines()[1:] == [
        "broker    127.0.0.1:9092: does not answer within 5 s (away)",
        "metrics   http://127.0.0.1:9464/metrics",
        "topology  not known: the broker does not answer",
    ]


def test_that_the_broker_is_back_is_said_and_is_no_error():
    said, noted = [], []
    own = object.__new__(Environment)
    own._progress = said.append
    own._manager = SimpleNamespace(topologies={"t": SimpleNamespace(backend=SimpleNamespace(note_broker=lambda text, gone: noted.append((text, gone))))})
    for event in (BrokerEvent("died", "it has ended", 0), BrokerEvent("restarted", "it is back", 1), BrokerEvent("gave-up", "no more", 1)):
        own._on_broker_event(event)
    assert said == ["it has ended", "it is back", "no more"] and noted == [("it has ended", False), ("no more", True)]


# -- in the background ---------------------------------------------------------------------------------


def test_a_command_that_ends_before_it_runs_has_failed_and_its_words_are_shown(tmp_path):
    shown: list[str] = []
    with pytest.raises(DeployError, match="ended with exit code 2"):
        detached.start(["no-such-command"], tmp_path / "log", shown.append)
    assert any("no-such-command" in line for line in shown)
    assert "no-such-command" in (tmp_path / "log").read_text()


def test_a_start_that_somebody_else_stops_says_so(tmp_path, monkeypatch):
    real = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", lambda command, **options: real([sys.executable, "-c", "raise SystemExit(130)"], **options))
    with pytest.raises(DeployError, match="it was stopped before it ran"):
        detached.start(["up"], tmp_path / "log", lambda line: None)


def test_ctrl_c_during_the_start_says_what_is_waited_for_and_shows_what_the_command_says_meanwhile(tmp_path, monkeypatch):
    shown: list[str] = []
    program = """
import signal, sys, time
def end(*_):
    print("stopping: topology, Spark, broker", flush=True)
    sys.exit(130)
signal.signal(signal.SIGTERM, end)
print("starting", flush=True)
while True:
    time.sleep(0.05)
"""
    real = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", lambda command, **options: real([sys.executable, "-c", program], **options))

    def show(line: str) -> None:
        shown.append(line)
        if line == "starting":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        detached.start(["up"], tmp_path / "log", show)
    assert shown[0] == "starting" and "which ends what it has started" in shown[1] and shown[2:] == ["stopping: topology, Spark, broker"]


def test_being_ready_is_said_once_to_who_waits(tmp_path, monkeypatch):
    read, write = os.pipe()
    monkeypatch.setenv("DSKYPE_READY_FD", str(write))
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notified:
        notified.bind(str(tmp_path / "notify"))
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        detached.report_ready()
        detached.report_ready()
        assert notified.recv(100) == b"READY=1"
    assert os.read(read, 10) == b"1" and os.read(read, 10) == b"", "the handle is closed"
    os.close(read)


# -- systemd -------------------------------------------------------------------------------------------


def unit_of(text: str) -> configparser.ConfigParser:
    found = configparser.ConfigParser(interpolation=None, strict=False)
    found.optionxform = str
    found.read_string(text)
    return found


def test_a_unit_starts_the_service_with_the_machine(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("JAVA_HOME", "/opt/a b")
    folder = tmp_path / "s p%c$"
    assert cli.main(["up", "--folder", str(folder), "--systemd", "-c", 'dskype.stop.words=["a"]']) == 0
    text = capsys.readouterr().out
    unit = unit_of(text)
    assert shlex.split(unit["Service"]["ExecStart"].replace("%%", "%").replace("$$", "$"))[1:] == [
        *("-P", "-m", "dskype.deploy", "up", "--folder", str(folder), "--foreground", "-c", 'dskype.stop.words=["a"]')
    ]
    assert unit["Service"]["Type"] == "notify" and unit["Service"]["KillMode"] == "mixed"
    assert unit["Install"]["WantedBy"] == ("multi-user.target" if os.geteuid() == 0 else "default.target")
    if shutil.which("systemd-analyze"):
        (tmp_path / "dskype.service").write_text(text)
        checked = subprocess.run(["systemd-analyze", "verify", str(tmp_path / "dskype.service")], capture_output=True, text=True, check=False)
        assert "dskype.service" not in checked.stderr, checked.stderr


def test_a_unit_of_a_submission_repeats_its_command_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["submit", "-R", "wordcount.yaml", "--bootstrap-servers", "b:9092", "--standby", "--systemd"]) == 0
    unit = unit_of(capsys.readouterr().out)
    assert unit["Service"]["ExecStart"].endswith("dskype.deploy submit -R wordcount.yaml --bootstrap-servers b:9092 --standby")
    assert unit["Service"]["WorkingDirectory"] == str(tmp_path)


def test_a_unit_of_a_submission_knows_the_brokers_that_the_environment_names(monkeypatch, capsys):
    assert cli.main(["submit", "-R", "wordcount.yaml", "--systemd"]) == 1
    assert "No cluster is named" in capsys.readouterr().err
    monkeypatch.setenv("DSKYPE_BOOTSTRAP_SERVERS", "b:9092")
    assert cli.main(["submit", "-R", "wordcount.yaml", "--systemd"]) == 0
    assert "Environment=DSKYPE_BOOTSTRAP_SERVERS=b:9092\n" in capsys.readouterr().out


def test_a_standby_needs_state_that_other_hosts_reach(tmp_path, capsys):
    arguments = ["submit", "-R", "wordcount.yaml", "--bootstrap-servers", "127.0.0.1:1", "--standby", "-q"]
    assert cli.main(arguments) == 1
    assert "A standby needs a topology whose state other hosts reach" in capsys.readouterr().err
    assert cli.main([*arguments, "-c", "topology.emulator.state.url=kafka:", "--fresh"]) == 1
    assert "A standby continues what another process has begun" in capsys.readouterr().err
