"""The command line: arguments, exit codes, what is printed, and what is asked of the cluster."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kafka.errors import KafkaTimeoutError

from dskype.deploy.cli import local_screen
from dskype.deploy.cli import main as cli
from dskype.deploy.machine import cluster, launch
from dskype.deploy.machine.registry import TOPOLOGIES, registry
from dskype.deploy.machine.versions import installed_version, own_version
from dskype.topology.core.stats import TopologyStats
from dskype.topology.errors import NotAliveException, TopologyError
from dskype.topology.local import LocalCluster
from dskype.topology.planning.validation import CycleWarning
from dskype.topology.runtime.spark import session

WORDS = """
name: wc
config: {topology.workers: 1, spark.executor.memory: 1g}
spouts: [{id: words, className: org.apache.storm.testing.TestWordSpout}]
bolts: [{id: count, className: org.apache.storm.testing.TestWordCounter, parallelism: 2}]
streams: [{from: words, to: count, grouping: {type: FIELDS, args: [word]}}]
"""


class FakeClient:
    """Answers like a cluster with one topology ``wc``."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        self.alive = True
        self.standing_by: dict[str, list[dict[str, Any]]] = {}
        self.emitted = 0

    def topologies(self) -> list[dict[str, Any]]:
        return [
            {
                "name": "wc",
                "id": "wc-1-1700000000",
                "status": "ACTIVE",
                "owner": "ann",
                "num_tasks": 4,
                "num_workers": 1,
                "num_executors": 4,
                "uptime_secs": 61,
                "driver_alive": self.alive,
                "driver": {"host": "h", "pid": 1},
            }
        ]

    def standbys(self) -> dict[str, list[dict[str, Any]]]:
        return self.standing_by

    def _check(self, name: str) -> None:
        if name != "wc":
            raise NotAliveException.for_topology(name)

    def send(self, command: dict[str, Any], timeout_s: float = 60) -> None:
        self._check(command["name"])
        self.sent.append(command)

    def errors(self, name: str) -> dict[str, list[dict[str, Any]]]:
        self._check(name)
        return {"count": [{"error": "old"}, {"error": "newest é"}], "words": []}

    def state(self, name: str) -> Any:
        self._check(name)
        return type("State", (), {"components": ["words", "count"]})()

    def stats(self, name: str) -> TopologyStats:
        self._check(name)
        self.emitted += 8000
        stats = TopologyStats()
        stats.feed(
            json.dumps(
                {
                    "kind": "stats",
                    "tasks": [
                        {"task": 2, "component": "words", "emitted": {"default": self.emitted, "other": 1}},
                        {"task": 3, "component": "words", "emitted": {"default": 0}},
                    ],
                }
            ).encode()
        )
        return stats


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeClient:
    client = FakeClient()
    monkeypatch.setattr(cluster, "client", lambda target: client)
    return client


@pytest.fixture
def words(tmp_path: Path) -> str:
    (tmp_path / "words.yaml").write_text(WORDS)
    return str(tmp_path / "words.yaml")


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Record what would be run."""
    calls: list[dict[str, Any]] = []
    monkeypatch.setattr(launch, "run_local", lambda flux, target, **more: calls.append({"flux": flux, "target": target, **more}))
    monkeypatch.setattr(launch, "submit", lambda flux, target, **more: calls.append({"flux": flux, "target": target, **more}))
    return calls


# --- shape ------------------------------------------------------------------------------------------------------------


def test_help_is_printed_without_spark_or_numpy() -> None:
    code = (
        "import sys; from dskype.deploy.cli.main import main; code = main(['--help']); "
        "print([m for m in ('pyspark', 'numpy', 'kafka', 'numba', 'rich', 'yaml') if m in sys.modules], "
        "[m for m in sys.modules if m.startswith('dskype.') and not m.startswith('dskype.deploy') or '.commands.' in m], code)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("[] [] 0\n")


@pytest.mark.long
def test_the_help_of_a_command_waits_for_nothing_heavy() -> None:
    code = """if True:
        import sys
        from dskype.deploy.cli.main import COMMANDS, main

        light = [c.name for commands in COMMANDS.values() for c in commands if c.name not in ('partition', 'stats', 'demo')]  # their options need more
        codes = {main([command, '-h']) for command in light}
        print(len(light) > 20, [m for m in ('pyspark', 'numpy', 'kafka', 'numba', 'rich', 'yaml') if m in sys.modules], codes)
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("True [] {0}\n")


def test_no_command_prints_the_help_and_fails(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 2
    assert "usage: dskype" in capsys.readouterr().err


@pytest.mark.long
def test_every_verb_has_help_and_takes_config_and_c(capsys: pytest.CaptureFixture[str]) -> None:
    for verb in (
        "local",
        "submit",
        "list",
        "activate",
        "deactivate",
        "rebalance",
        "kill",
        "get-errors",
        "monitor",
        "localconfvalue",
        "version",
        "doctor",
        "jars",
        "help",
    ):
        for arguments in ([verb, "-h"], ["help", verb]):
            assert cli.main(arguments) == 0
            out = capsys.readouterr().out
            assert "--config FILE" in out
            assert "-c KEY=JSON" in out


def test_a_misspelt_command_offers_a_near_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["lst"]) == 2
    assert "'lst' is no command; did you mean 'list'?" in capsys.readouterr().err
    assert cli.main(["help", "kil"]) == 1
    assert "did you mean 'kill'?" in capsys.readouterr().err


@pytest.mark.parametrize(
    "verb",
    [
        "blobstore",
        "upload-credentials",
        "drpc",
        "drpc-client",
        "admin",
        "heartbeats",
        "kill_workers",
        "node-health-check",
        "pacemaker",
        "dev-zookeeper",
        "shell",
        "sql",
        "classpath",
        "nimbus",
    ],
)
def test_verbs_of_storm_that_are_not_served_say_so_and_fail(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in ([verb, "--whatever", "x"], ["help", verb]):
        assert cli.main(arguments) == 1
        assert f"'storm {verb}' is not part of the emulator" in capsys.readouterr().err


# --- local and submit -------------------------------------------------------------------------------------------------


def test_exactly_one_file_is_expected(capsys: pytest.CaptureFixture[str], words: str) -> None:
    for verb in ("local", "submit"):
        for files in ([], [words, words]):
            assert cli.main([verb, *files]) == 1
            err = capsys.readouterr().err
            assert f"expected exactly one FILE, given: {len(files)}" in err
            assert "usage: dskype" in err
        assert cli.main([verb, "words.jar", "com.example.Main"]) == 1
        assert "expected a Flux file or a Python file, given: words.jar; Java does not run here" in capsys.readouterr().err


def test_a_dry_run_prints_the_details_and_runs_nothing(words: str, runs: list, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["local", "-d", words]) == 0
    captured = capsys.readouterr()
    assert "words [1] (org.apache.storm.testing.TestWordSpout)\n" in captured.out
    assert "words --FIELDS--> count\n" in captured.out
    assert f"Parsing file: {words}" in captured.err
    assert runs == []


def test_no_splash_and_no_detail_silence_a_dry_run(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["local", "-d", "-n", "-q", words]) == 0
    assert capsys.readouterr() == ("", "")


def test_a_dry_run_builds_only_and_says_what_a_submission_would_refuse(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bad.yaml").write_text(WORDS.replace("from: words", "from: nobody"))
    assert cli.main(["submit", "--dry-run", str(tmp_path / "bad.yaml")]) == 0
    assert "note: a submission would be refused: Component: [count] subscribes from non-existent component [nobody]" in capsys.readouterr().err


def test_a_bad_topology_is_refused_before_anything_is_started(tmp_path: Path, runs: list, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bad.yaml").write_text(WORDS.replace("from: words", "from: nobody"))
    for verb in ("local", "submit", "jar"):
        assert cli.main([verb, str(tmp_path / "bad.yaml")]) == 1
        assert "error: Component: [count] subscribes from non-existent component [nobody]" in capsys.readouterr().err
    assert runs == []


def test_local_runs_for_its_time_to_live(words: str, runs: list) -> None:
    assert cli.main(["local", words]) == 0
    assert cli.main(["local", words, "--local-ttl", "0", "-i"]) == 0
    assert [(run["ttl_s"], run["active"]) for run in runs] == [(20, True), (0, False)]
    assert runs[0]["flux"].name == "wc"


CONFIG = "{kafka.sasl.jaas.config: canary-secret, spark.ui.enabled: 'false'}"


@pytest.mark.parametrize(
    "setting",
    ["spark.plugins: Evil", "spark.jars: evil.jar", "spark.executorEnv.PYTHONPATH: /x", "kafka.bootstrap.servers: 'evil:1'", "kafka.sasl.jaas.config: x"],
)
def test_a_file_has_no_settings_that_load_code_or_lead_elsewhere_without_a_permission(
    tmp_path: Path, runs: list, capsys: pytest.CaptureFixture[str], setting: str
) -> None:
    (file := tmp_path / "t.yaml").write_text(WORDS.replace("topology.workers: 1", setting))
    assert cli.main(["local", str(file)]) == 1 and not runs
    assert "must be harmless" in (error := capsys.readouterr().err) and "--config" in error and setting.partition(":")[0] in error
    (tmp_path / "more.yaml").write_text(setting)
    assert cli.main(["local", str(file), "--config", str(tmp_path / "more.yaml")]) == 0, capsys.readouterr().err
    assert runs[0]["target"].conf[setting.partition(":")[0]]


def test_a_file_does_not_send_its_state_elsewhere_without_a_permission(tmp_path: Path, runs: list, capsys: pytest.CaptureFixture[str]) -> None:
    setting = "topology.emulator.state.url: s3://evil/prefix"
    (file := tmp_path / "t.yaml").write_text(WORDS.replace("topology.workers: 1", setting))
    assert cli.main(["local", str(file)]) == 1 and not runs
    assert "where its state is written" in (error := capsys.readouterr().err) and "--config" in error and "s3://evil/prefix" in error
    (tmp_path / "more.yaml").write_text(setting)
    for permission in (["--config", str(tmp_path / "more.yaml")], ["-c", "topology.emulator.state.url=kafka:"]):
        assert cli.main(["local", str(file), *permission]) == 0, capsys.readouterr().err


def test_a_spout_of_a_file_has_no_options_that_load_code_without_a_permission(tmp_path: Path, runs: list, capsys: pytest.CaptureFixture[str]) -> None:
    spout = "{id: in, className: dskype.KafkaSpout, constructorArgs: [t], properties: [{name: kafka_options, value: {%s}}]}"
    (file := tmp_path / "t.yaml").write_text(f"name: t\nspouts: [{spout % 'interceptor.classes: Evil'}]\n")
    assert cli.main(["local", str(file)]) == 1 and not runs
    assert "must be harmless" in (error := capsys.readouterr().err) and "kafka.interceptor.classes" in error and "'in'" in error
    file.write_text(f"name: t\nspouts: [{spout % 'group.id: g, fetch.min.bytes: 5'}]\n")
    assert cli.main(["local", str(file)]) == 0 and len(runs) == 1


def test_a_file_starts_programs_with_a_permission(tmp_path: Path, runs: list, capsys: pytest.CaptureFixture[str]) -> None:
    (file := tmp_path / "t.yaml").write_text("name: t\nspouts: [{id: s, className: dskype.ShellSpout, constructorArgs: [[sh, -c, id], [a]]}]\n")
    assert cli.main(["local", str(file)]) == 1 and not runs
    assert "allow it with --allow-commands" in capsys.readouterr().err
    assert cli.main(["local", str(file), "--allow-commands"]) == 0 and len(runs) == 1


def test_submit_takes_servers_master_and_kafka_settings(words: str, runs: list, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(CONFIG)
    assert (
        cli.main(
            [
                "submit",
                words,
                "--config",
                str(tmp_path / "config.yaml"),
                "--bootstrap-servers",
                "k:9092",
                "--master",
                "spark://m:7077",
                "--kafka",
                "security.protocol=SSL",
                "--kafka",
                "kafka.client.id=a=b",
            ]
        )
        == 0
    )
    target = runs[0]["target"]
    assert (target.bootstrap_servers, target.master) == ("k:9092", "spark://m:7077")
    assert target.conf == {
        "kafka.sasl.jaas.config": "canary-secret",
        "spark.ui.enabled": "false",
        "spark.executor.memory": "1g",
        "kafka.security.protocol": "SSL",
        "kafka.client.id": "a=b",
    }


def test_settings_of_spark_and_kafka_do_not_stay_in_the_topologys_configuration(
    words: str, runs: list, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "config.yaml").write_text(CONFIG)
    assert cli.main(["local", words, "--config", str(tmp_path / "config.yaml")]) == 0
    assert runs[0]["flux"].config == {"topology.workers": 1}
    assert "canary" not in repr(runs[0]["target"])
    captured = capsys.readouterr()
    assert "canary" not in captured.out + captured.err


def test_configuration_comes_from_the_file_below_and_from_c_above(tmp_path: Path, words: str, runs: list) -> None:
    (tmp_path / "storm.yaml").write_text("topology.workers: 7\ntopology.debug: true\nmy.list: [1]\nkafka.retries: 3\n")
    assert (
        cli.main(["local", words, "--config", str(tmp_path / "storm.yaml"), "-c", "topology.workers=2", "-c", "my.text=plain words", "-c", 'my.map={"a": 1}'])
        == 0
    )
    assert runs[0]["flux"].config == {"topology.workers": 2, "topology.debug": True, "my.list": [1], "my.text": "plain words", "my.map": {"a": 1}}
    assert runs[0]["target"].conf["kafka.retries"] == 3


def test_a_configuration_of_the_wrong_type_is_refused(tmp_path: Path, words: str, runs: list, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["local", words, "-c", "topology.debug=1"]) == 1
    (tmp_path / "storm.yaml").write_text("[1]")
    assert cli.main(["local", words, "--config", str(tmp_path / "storm.yaml")]) == 1
    err = capsys.readouterr().err
    assert "must be of type class java.lang.Boolean" in err
    assert "must be a map of configuration keys" in err
    assert runs == []


def test_options_of_storm_without_a_meaning_are_accepted_and_said_to_be_ignored(words: str, runs: list, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["local", "-l", "-r", "-s", "500", "-z", "host:2181", "--jars", "a.jar", "--artifacts", "x", words]) == 0
    err = capsys.readouterr().err
    for option in ("-l", "-r", "-s", "-z", "--jars", "--artifacts"):
        assert f"note: {option} is ignored" in err
    assert len(runs) == 1


def test_placeholders_are_filled_from_a_file_and_from_the_environment(
    tmp_path: Path, runs: list, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "t.yaml").write_text(WORDS.replace("name: wc", "name: ${name}-${ENV-WHO}"))
    (tmp_path / "p.properties").write_text("name = words\n")
    monkeypatch.setenv("WHO", "ann")
    assert cli.main(["local", str(tmp_path / "t.yaml"), "-f", str(tmp_path / "p.properties"), "-e"]) == 0
    assert runs[0]["flux"].name == "words-ann"
    assert cli.main(["local", "-d", str(tmp_path / "t.yaml"), "-f", str(tmp_path / "p.properties")]) == 0
    assert "Could not find replacement for property: ENV-WHO" in capsys.readouterr().err


def test_a_packaged_topology_is_a_resource(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["local", "-d", "-R", "wordcount.yaml"]) == 0
    assert "places --SHUFFLE--> split" in capsys.readouterr().out
    assert cli.main(["local", "-d", "-R", "../cli.py"]) == 1
    assert "There is no such resource" in capsys.readouterr().err


def test_a_users_module_beside_the_file_is_used_only_when_allowed(
    tmp_path: Path, runs: list, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "cli_test_components.py").write_text("from dskype.topology.testing import TestWordSpout\nclass Mine(TestWordSpout):\n    pass\n")
    (tmp_path / "t.yaml").write_text(WORDS.replace("org.apache.storm.testing.TestWordSpout", "cli_test_components.Mine"))
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert cli.main(["local", str(tmp_path / "t.yaml")]) == 1
    assert "allow its module: --allow-module cli_test_components" in capsys.readouterr().err
    assert cli.main(["local", str(tmp_path / "t.yaml"), "--allow-module", "cli_test_components"]) == 0
    assert runs[0]["flux"].modules == ["cli_test_components"]
    monkeypatch.setenv("PYTHONPATH", "/already")
    launch.ship_modules(["cli_test_components"], None)
    launch.ship_modules(["cli_test_components"], "local[2]")
    assert os.environ["PYTHONPATH"] == f"/already{os.pathsep}{tmp_path}"


def test_a_package_ships_the_folder_that_holds_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cli_test_package" / "inner").mkdir(parents=True)
    for name in ("__init__.py", "inner/__init__.py", "inner/leaf.py"):
        (tmp_path / "cli_test_package" / name).touch()
    monkeypatch.syspath_prepend(tmp_path)
    __import__("cli_test_package.inner.leaf")
    for name in ("cli_test_package", "cli_test_package.inner", "cli_test_package.inner.leaf"):
        assert launch._root(name) == str(tmp_path)


# --- errors -----------------------------------------------------------------------------------------------------------


def test_a_users_error_has_no_traceback_unless_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["local", str(tmp_path / "nope.yaml"), "-n", "-q"]) == 1
    assert capsys.readouterr().err == f"error: {tmp_path}/nope.yaml is not a file. given: '{tmp_path}/nope.yaml'\n"
    assert cli.main(["local", str(tmp_path / "nope.yaml"), "--verbose"]) == 1
    assert "Traceback" in capsys.readouterr().err


def test_an_unexpected_error_names_its_type_and_the_way_to_see_more(words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("odd")

    monkeypatch.setattr(launch, "run_local", fail)
    assert cli.main(["local", "-n", "-q", words]) == 1
    assert capsys.readouterr().err == "error: RuntimeError: odd\n  --verbose shows where\n"


def test_brokers_that_do_not_answer_in_time_are_named_and_what_to_do(words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Some errors of Kafka's client have no words but their name."""

    def fail(*_: Any, **__: Any) -> None:
        raise KafkaTimeoutError

    monkeypatch.setattr(launch, "run_local", fail)
    assert cli.main(["local", "-n", "-q", words]) == 1
    said = capsys.readouterr().err
    assert said.startswith("error: KafkaTimeoutError: The brokers have not done in time what they were asked.") and "dskype doctor" in said


def test_ctrl_c_ends_with_130(words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(launch, "run_local", interrupt)
    assert cli.main(["local", words]) == 130


def test_a_verb_without_a_cluster_says_how_to_name_one(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("DSKYPE_BOOTSTRAP_SERVERS", raising=False)
    assert cli.main(["list"]) == 1
    assert "error: No cluster is named. hint: use --bootstrap-servers host:port or set DSKYPE_BOOTSTRAP_SERVERS" in capsys.readouterr().err
    assert cli.main(["list", "--bootstrap-servers", "nonsense"]) == 1
    assert "must be host:port" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ["kill", "wc", "-w", "-1"],
        ["kill", "wc", "-w", "soon"],
        ["kill"],
        ["rebalance", "wc", "-n", "0"],
        ["rebalance", "wc", "-e", "count=0"],
        ["rebalance", "wc", "-e", "count"],
        ["local", "x", "--local-ttl", "-5"],
        ["list", "-c", "novalue"],
        ["monitor", "wc", "-i", "0"],
        ["monitor", "wc", "-w", "acked"],
        ["list", "--kafka", "novalue"],
        ["list", "--nope"],
    ],
)
def test_arguments_that_make_no_sense_end_with_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(arguments) == 2
    assert "error:" in capsys.readouterr().err


# --- verbs that talk to a cluster -------------------------------------------------------------------------------------


def test_list_prints_storms_table(fake: FakeClient, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["list"]) == 0
    head, rule, row = capsys.readouterr().out.splitlines()
    assert head == "Topology_name        Status     Num_tasks  Num_workers  Uptime_secs  Topology_Id          Owner               "
    assert rule == "-" * 88
    assert row == "wc                   ACTIVE     4          1            61           wc-1-1700000000      ann                 "


def test_list_says_when_nothing_runs_and_when_a_process_is_gone(fake: FakeClient, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    fake.alive = False
    assert cli.main(["list"]) == 0
    assert "note: the process that ran wc is gone; submit it again to resume it" in capsys.readouterr().err
    fake.standing_by = {"wc": [{"host": "h\x1b2", "pid": 7}], "other": [{"host": "h3", "pid": 8}]}
    assert cli.main(["list"]) == 0
    assert capsys.readouterr().err == "note: the process that ran wc is gone; a standby takes over\nnote: process 7 on h 2 stands by for wc\n"
    monkeypatch.setattr(fake, "topologies", list)
    assert cli.main(["list"]) == 0
    assert capsys.readouterr().out == "No topologies running.\n"


def test_list_prints_json_on_request(fake: FakeClient, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["list", "-o", "json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert found["name"] == "wc" and found["standbys"] == []


def test_activate_and_deactivate_send_storms_events(fake: FakeClient) -> None:
    assert cli.main(["activate", "wc"]) == 0
    assert cli.main(["deactivate", "wc"]) == 0
    assert fake.sent == [{"name": "wc", "event": "ACTIVATE"}, {"name": "wc", "event": "INACTIVATE"}]


def test_rebalance_sends_wait_workers_and_executors(fake: FakeClient, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["rebalance", "wc", "-w", "5", "-n", "2", "-e", "count=4", "-e", "a=b=1", "-r", "{}", "-t", "{}"]) == 0
    assert fake.sent == [{"name": "wc", "event": "REBALANCE", "wait_secs": 5, "workers": 2, "executors": {"count": 4, "a=b": 1}}]
    assert "note: -r is ignored" in capsys.readouterr().err
    assert cli.main(["rebalance", "wc"]) == 0
    assert fake.sent[1] == {"name": "wc", "event": "REBALANCE", "wait_secs": None, "workers": None, "executors": {}}


def test_kill_takes_several_names_and_goes_on_only_when_asked_to(fake: FakeClient, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["kill", "nope", "wc", "-w", "0"]) == 1
    assert fake.sent == []
    assert "error: nope is not alive" in capsys.readouterr().err
    assert cli.main(["kill", "nope", "wc", "-i", "-w", "0.5"]) == 1
    assert fake.sent == [{"name": "wc", "event": "KILL", "wait_secs": 0.5}]


def test_get_errors_prints_the_newest_error_of_each_component(fake: FakeClient, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["get-errors", "wc"]) == 0
    assert json.loads(capsys.readouterr().out) == {"Topology Name": "wc", "Comp-Errors": {"count": "newest é"}}
    assert cli.main(["get-errors", "nope"]) == 1
    assert json.loads(capsys.readouterr().out) == {"Failure": "No topologies running with name nope"}


def test_monitor_lists_the_components_or_prints_the_throughput_of_one(fake: FakeClient, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["monitor", "wc"]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[0] == "Available components for wc :"
    assert "count\nwords\n" in out
    assert cli.main(["monitor", "wc", "-m", "nope"]) == 1
    assert "legal: count, words" in capsys.readouterr().err
    assert cli.main(["monitor", "nope", "-m", "words"]) == 1


def test_monitor_divides_what_was_emitted_by_the_time_between(capsys: pytest.CaptureFixture[str]) -> None:
    from dskype.deploy.cli.commands.monitor import monitor

    times = iter([0.0, 4.0, 8.0])
    assert monitor(FakeClient(), "wc", "words", count=2, clock=lambda: next(times), sleep=lambda _: None) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert head == "topology\tcomponent\tparallelism\tstream\ttime-diff ms\temitted\tthroughput (Kt/s)"
    assert lines == ["wc\twords\t2\tdefault\t4000\t8000\t2.0"] * 2


# --- verbs of this machine --------------------------------------------------------------------------------------------


def test_version_prints_ours_and_sparks(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["version", "-o", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["pyspark"] == installed_version("pyspark", "missing") and found["pyspark"].startswith("4.")
    assert cli.main(["version"]) == 0
    assert f"dskype {found['dskype']}\n" in capsys.readouterr().out


def test_a_configuration_value_is_the_default_unless_set(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "c.yaml").write_text("my.key: [1, x]\n")
    for arguments, line in (
        (["topology.message.timeout.secs"], "topology.message.timeout.secs: 30"),
        (["my.key", "--config", str(tmp_path / "c.yaml")], 'my.key: [1, "x"]'),
        (["ui.title"], "ui.title: Storm UI"),
        (["topology.debug", "-c", "topology.debug=true"], "topology.debug: true"),
        (["nope"], "nope: null"),
    ):
        for verb in ("localconfvalue", "remoteconfvalue"):
            assert cli.main([verb, *arguments]) == 0
            assert capsys.readouterr().out == line + "\n"


def test_doctor_and_jars_call_the_deployment(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from dskype.deploy.machine import doctor, jars

    seen: dict[str, Any] = {}
    monkeypatch.setattr(doctor, "run_checks", lambda bootstrap, **more: seen.update(more) or [doctor.Row("java", doctor.FAIL, "none", "install it")])
    assert cli.main(["doctor", "--no-broker", "--kafka", "security.protocol=SSL"]) == 1
    assert "fix: install it" in capsys.readouterr().out
    assert seen["client_options"] == {"kafka.security.protocol": "SSL"}
    assert seen["start_broker"] is False
    assert cli.main(["doctor", "-o", "json"]) == 1
    assert json.loads(capsys.readouterr().out)["status"] == "fail"
    monkeypatch.setattr(jars, "fetch", lambda **more: {"spark": [Path("/jars/a.jar")]} if more["force"] else {})
    assert cli.main(["jars", "--force"]) == 0
    assert capsys.readouterr().out == "spark: 1 jars in /jars\n"
    monkeypatch.setattr(jars, "verify", lambda **more: ["corrupted jar"])
    assert cli.main(["jars", "--verify"]) == 1


# --- what is shown ----------------------------------------------------------------------------------------------------


def test_a_run_ends_with_a_table_of_its_components(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    from dskype.topology.flux import load

    flux = load(words)
    with LocalCluster(simulated=True) as local:
        local.submit_topology("wc", {}, flux.topology)
        local.advance_cluster_time(2)
        local_screen.show(local, "wc", 0.05)
    out = capsys.readouterr().out
    assert "wc ACTIVE" in out
    assert "words" in out
    assert "count" in out
    assert "\x1b" not in out


def test_a_failed_topology_ends_the_run_with_its_error(words: str) -> None:
    from dskype.topology.flux import load

    with LocalCluster(simulated=True) as local:
        local.submit_topology("wc", {}, load(words).topology)
        local.manager.get("wc").backend.failure = TopologyError("query count failed")
        with pytest.raises(TopologyError, match="query count failed"):
            local_screen.show(local, "wc", 5)


def test_a_killed_topology_ends_the_run(words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from dskype.topology.flux import load

    with LocalCluster(simulated=True) as local:
        local.submit_topology("wc", {}, load(words).topology)
        # The screen looks for a topic first; the topology is killed just after that.
        monkeypatch.setattr(local_screen, "top_words_topic", lambda topology: local.kill_topology("wc", 0))
        local_screen.show(local, "wc", 0)
        assert local.manager.topologies == {}


def test_words_are_shown_as_text_and_never_as_markup() -> None:
    from io import StringIO

    from rich.console import Console

    info = {"name": "x", "status": "ACTIVE", "uptime_secs": 1, "errors": {}, "components": {}}
    out = StringIO()
    Console(file=out, width=120).print(local_screen._tables(info, {"top": [["[red]bold[/red]", 3]], "words": 3, "distinct": 1}))
    assert "[red]bold[/red]" in out.getvalue()


def test_partitions_are_drawn_as_the_newest_plan_says(monkeypatch: pytest.MonkeyPatch) -> None:
    from io import StringIO

    from rich.console import Console

    from dskype.deploy.cli import partition_map
    from dskype.distribution import make_distributor
    from dskype.distribution.agrid.distributor import AGridDistributor

    start = make_distributor("agrid", 2, {"granularity": 8})
    assert isinstance(start, AGridDistributor)
    plans = [{"v": 1, "version": 2, "plan": start.shift(0, 1, 2)}, {"v": 1, "version": 2, "plan": start.shift(0, 1, 1)}]  # the second one is ignored
    plans.append({"v": 1, "version": 3, "plan": make_distributor("agrid", 3).plan()})  # and this one refused
    coming = [[], [SimpleNamespace(value=json.dumps(plan).encode()) for plan in plans], []]
    follower = SimpleNamespace(poll=lambda timeout_s: coming.pop(0), close=lambda: None)
    monkeypatch.setattr(partition_map, "Follower", lambda *_: follower)
    screen = partition_map.PartitionScreen(None, "t", {"dskype.distributor": "agrid", "dskype.distributor.options": {"granularity": 8}}, 2)
    assert screen.lines() == ["0" * 36 + "1" * 36] * 18
    assert screen.lines() == ["0" * 18 + "1" * 54] * 18
    info = {"name": "x", "status": "ACTIVE", "uptime_secs": 1, "errors": {}, "components": {}}
    out = StringIO()
    Console(file=out, width=120).print(local_screen._tables(info, {}, screen))
    assert "plan 2" in out.getvalue() and "0" * 18 + "1" * 54 in out.getvalue()


def test_only_a_topic_of_top_words_is_followed() -> None:
    from dskype.topology.flux import load

    flux = load(TOPOLOGIES / "wordcount.yaml", registry=registry())
    assert local_screen.top_words_topic(flux.topology) == "wordcount.top-words"
    assert local_screen.top_words_topic(load(WORDS).topology) is None


def test_what_is_no_record_of_top_words_is_left_out() -> None:
    class Consumer:
        batches = [[b'{"top": [["a", 1]], "words": 1}', b"junk", b"[]", b'{"top": 3}', b"\xff", None]]

        def partitions_for_topic(self, topic: str) -> set[int]:
            return {0}

        def assign(self, partitions: list) -> None:
            self.partitions = partitions

        def seek_to_end(self, *partitions: Any) -> None:
            pass

        def poll(self, timeout_ms: int) -> dict:
            return {0: [type("Record", (), {"value": v})() for v in self.batches.pop()]} if self.batches else {}

    words = local_screen.TopWords(type("Kafka", (), {"consumer": lambda self: Consumer()})(), "t")
    assert words.poll() == {"top": [["a", 1]], "words": 1}
    assert words.poll() == {"top": [["a", 1]], "words": 1}


# --- a short start ----------------------------------------------------------------------------------------------------


def test_a_start_prints_no_details_of_the_topology_unless_they_are_asked_for(words: str, runs: list, capsys: pytest.CaptureFixture[str]) -> None:
    for command in (["local"], ["submit", "--bootstrap-servers", "b:9092"]):
        assert cli.main([*command, words]) == 0
        shown = capsys.readouterr()
        assert (shown.out, shown.err) == ("", f"dskype {own_version()}: Storm topologies on Spark and Kafka\n")
        assert cli.main([*command, words, "--verbose"]) == 0
        assert "count" in capsys.readouterr().out
        assert cli.main([*command, words, "--dry-run"]) == 0
        assert "count" in capsys.readouterr().out
        assert cli.main([*command, words, "--dry-run", "-q"]) == 0
        assert capsys.readouterr().out == ""


def test_the_cycle_of_dskype_is_no_warning_and_one_of_a_user_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["local", "-R", "dskype.yaml", "--dry-run", "-q"]) == 0
    assert "cycle" not in capsys.readouterr().err
    told: list[str] = []
    of_a_user = SimpleNamespace(components={"a": SimpleNamespace(obj=SimpleNamespace())})
    launch.tell_warnings(of_a_user, [CycleWarning("Topology t contains cycles"), "another"], told.append)
    assert told == ["warning: Topology t contains cycles", "warning: another"]


def test_what_a_jvm_says_is_passed_on_except_its_line_about_modules(capfd: pytest.CaptureFixture[str]) -> None:
    others = set(threading.enumerate())  # this process may have a JVM, which goes on
    with session._read_by("dskype-jvm-errors", session._pass_on) as error:
        subprocess.run(
            ["sh", "-c", "echo 'WARNING: Using incubator modules: jdk.incubator.vector' >&2; echo 'Unrecognized option' >&2"], stderr=error, check=True
        )
    for reader in set(threading.enumerate()) - others:  # none, if it has read everything by now
        if reader.name == "dskype-jvm-errors":
            reader.join(60)
    assert capfd.readouterr().err == "Unrecognized option\n"
