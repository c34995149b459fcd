"""The command line with everything it starts: Spark, Kafka, a user's module, and Ctrl-C."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dskype.deploy.cli.main import main
from dskype.topology.planning.plan import inbox_topic
from dskype.topology.runtime.kafka.clients import KafkaSettings
from dskype.topology.runtime.kafka.topic_admin import TopicAdmin

MODULE = """
from dskype.topology.components import BasicBolt

class Shout(BasicBolt):
    def __init__(self, suffix: str) -> None:
        self.suffix = suffix

    def execute(self, tup, collector):
        collector.emit([tup["word"], tup["word"].upper() + self.suffix])

    def declare_output_fields(self, declarer):
        declarer.declare(["key", "message"])
"""

FILE = """
name: cli loud
spouts: [{id: words, className: dskype.TestWordSpout}]
bolts:
  - {id: shout, className: cli_shout_module.Shout, constructorArgs: ["!"], parallelism: 2}
  - {id: out, className: dskype.KafkaBolt, constructorArgs: [cli-loud-out]}
streams:
  - {from: words, to: shout, grouping: {type: SHUFFLE}}
  - {from: shout, to: out, grouping: {type: SHUFFLE}}
"""


@pytest.mark.product(seconds=50)
def test_local_runs_a_users_bolt_on_spark_until_ctrl_c_and_leaves_only_its_results(tmp_path: Path, bootstrap_servers: str) -> None:
    (tmp_path / "cli_shout_module.py").write_text(MODULE)
    (tmp_path / "loud.yaml").write_text(FILE)
    command = [
        sys.executable,
        "-m",
        "dskype.deploy",
        "local",
        "loud.yaml",
        "--allow-module",
        "cli_shout_module",
        "--bootstrap-servers",
        bootstrap_servers,
        "--local-ttl",
        "0",
        "-q",
        "-c",
        "topology.message.timeout.secs=20",
    ]
    running = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True)
    seen: list[str] = []
    try:
        for line in running.stdout:
            seen.append(line)
            if re.search(r"ACTIVE: out [1-9]", line):
                os.killpg(running.pid, signal.SIGINT)  # as a terminal does
                break
        rest, _ = running.communicate(timeout=60)
    finally:
        if running.poll() is None:
            os.killpg(running.pid, signal.SIGKILL)
            running.wait()
    output = "".join(seen) + rest
    assert running.returncode == 0, output
    assert "Traceback" not in output
    assert re.search(r"shout .* 2 ", rest), output
    kafka = KafkaSettings(bootstrap_servers)
    consumer = kafka.consumer()
    try:
        consumer.subscribe(["cli-loud-out"])
        records = [r for batch in consumer.poll(timeout_ms=10_000).values() for r in batch]
    finally:
        consumer.close()
    assert records
    assert {(r.key.decode().upper() + "!").encode() == r.value for r in records} == {True}
    admin = TopicAdmin(kafka)
    try:
        left = admin.existing([*(inbox_topic("cli loud", c) for c in ("words", "shout", "out")), "cli-loud-out"])
    finally:
        admin.close()
    assert set(left) == {"cli-loud-out"}


SUBMITTED = """
name: cli submitted
config: {topology.message.timeout.secs: 20}
spouts: [{id: words, className: dskype.TestWordSpout}]
bolts: [{id: count, className: dskype.TestWordCounter, parallelism: 2}]
streams: [{from: words, to: count, grouping: {type: FIELDS, args: [word]}}]
"""


def test_the_verbs_command_a_topology_that_another_process_runs(
    tmp_path: Path, bootstrap_servers: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "t.yaml").write_text(SUBMITTED)
    monkeypatch.setenv("DSKYPE_BOOTSTRAP_SERVERS", bootstrap_servers)
    monkeypatch.setenv("DSKYPE_HOME", "")

    def dskype(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main([*arguments])
        return code, *capsys.readouterr()

    def state() -> dict[str, Any]:
        return next(t for t in json.loads(dskype("list", "-o", "json")[1]) if t["name"] == "cli submitted")

    running = subprocess.Popen(
        [sys.executable, "-m", "dskype.deploy", "submit", "t.yaml", "-q"],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert any("runs as" in line for line in running.stderr)
        assert (state()["status"], state()["num_tasks"]) == ("ACTIVE", 4)
        assert dskype("deactivate", "cli submitted")[0] == 0
        assert state()["status"] == "INACTIVE"
        assert dskype("activate", "cli submitted")[0] == 0
        code, _, why = dskype("rebalance", "cli submitted", "-e", "nope=1")
        assert code == 1
        assert "Invalid component nope for topology cli submitted, valid values are count,words" in why
        assert "Traceback" not in why
        lines = dskype("monitor", "cli submitted", "-m", "words", "-i", "1", "--count", "2")[1].splitlines()
        assert len(lines) == 3
        assert lines[1].startswith("cli submitted\twords\t1\tdefault\t")
        assert json.loads(dskype("get-errors", "cli submitted")[1]) == {"Topology Name": "cli submitted", "Comp-Errors": {}}
        assert dskype("kill", "cli submitted", "-w", "0")[0] == 0
        assert running.wait(timeout=60) == 0
        code, _, why = dskype("kill", "cli submitted")
        assert (code, why) == (1, "error: cli submitted is not alive\n")
    finally:
        if running.poll() is None:
            os.killpg(running.pid, signal.SIGKILL)
            running.wait()
