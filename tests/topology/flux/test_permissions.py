"""What a Flux file may not do unless it is allowed by name."""

import sys
from pathlib import Path
from typing import Any

import pytest

from dskype.deploy.cli import main as cli
from dskype.deploy.machine import launch
from dskype.deploy.machine.registry import registry
from dskype.topology.components import BasicBolt
from dskype.topology.flux import FluxException, load
from dskype.topology.flux.permissions import HARMLESS_SETTINGS, refuse_commands
from dskype.topology.multilang import ShellBolt

WORDS = "name: t\nspouts: [{id: words, className: dskype.TestWordSpout}]\n"
TO_WORDS = "streams: [{from: words, to: b, grouping: {type: SHUFFLE}}]\n"
COMMANDS = [
    "spouts: [{id: s, className: dskype.ShellSpout, constructorArgs: [[sh, -c, id], [a]]}]\n",
    "spouts: [{id: s, className: org.apache.storm.flux.wrappers.spouts.FluxShellSpout, constructorArgs: [[sh, -c, id], [a]]}]\n",
    f"{WORDS}bolts: [{{id: b, className: dskype.ShellBolt, constructorArgs: [[sh, -c, id], [a]]}}]\n{TO_WORDS}",
    f"{WORDS}bolts: [{{id: b, className: org.apache.storm.flux.wrappers.bolts.FluxShellBolt, constructorArgs: [[sh, -c, id], [a]]}}]\n{TO_WORDS}",
    "components: [{id: c, className: dskype.ShellBolt, constructorArgs: [[sh, -c, id], [a]]}]\nspouts: [{id: words, className: dskype.TestWordSpout}]\n",
    f"{WORDS}bolts: [{{id: b, className: {__name__}.Own, constructorArgs: [[sh, -c, id], [a]]}}]\n{TO_WORDS}",
    "name: t\ntopologySource: {className: org.apache.storm.flux.test.SimpleTopology}\n",  # runs resources/randomsentence.js
]


class Own(ShellBolt):
    """A user's subclass, to which a file may give any command."""


class Quiet(BasicBolt):
    pass


@pytest.mark.parametrize("text", COMMANDS)
def test_a_file_starts_commands_only_with_permission(text: str) -> None:
    with pytest.raises(FluxException, match="A Flux file may start no command, .*--allow-commands"):
        load(text, allow_modules=[__name__])
    load(text, allow_modules=[__name__], allow_commands=True)


def test_an_included_file_needs_the_permission_too(tmp_path: Path) -> None:
    (tmp_path / "inner.yaml").write_text(COMMANDS[0] + "config: {}\n")
    (tmp_path / "outer.yaml").write_text("name: t\nincludes: [{file: inner.yaml}]\n")
    with pytest.raises(FluxException, match="--allow-commands"):
        load(tmp_path / "outer.yaml")
    (tmp_path / "inner.yaml").write_text(f"{WORDS}config: {{spark.plugins: Evil}}\n")
    with pytest.raises(FluxException, match=r"given: 'spark.plugins'.*--config"):
        load(tmp_path / "outer.yaml")


def test_no_other_class_that_a_file_may_name_can_start_a_process() -> None:
    names = registry()
    for name in names:
        cls = names.resolve(name, "test")
        try:
            refuse_commands(cls, "test", False)
        except FluxException:
            continue
        reached = {module for base in cls.__mro__ for module in vars(sys.modules[base.__module__])}
        assert not reached & {"subprocess", "multiprocessing", "pty", "popen"}, name


@pytest.mark.parametrize(
    "setting",
    [
        "spark.plugins: Evil",
        "spark.jars: evil.jar",
        "spark.executorEnv.PYTHONPATH: /tmp",
        "spark.pyspark.python: ./evil",
        "spark.driver.extraJavaOptions: -javaagent:evil.jar",
        "spark.master: 'spark://evil:7077'",
        "spark.ui.enabled: true",
        "spark.local.dir: /tmp/x",
        "spark.executor.memory: '1g -javaagent:evil.jar'",
        "spark.executor.memory: [1g]",
        "kafka.bootstrap.servers: 'evil:9092'",
        "kafka.sasl.jaas.config: hush",
        "kafka.security.protocol: PLAINTEXT",
        "kafka.ssl.endpoint.identification.algorithm: ''",
        "kafka.interceptor.classes: Evil",
        "kafka.metric.reporters: Evil",
        "kafka.client.id: 'a b'",
        "topology.emulator.state.url: 's3://evil/x'",
        "topology.emulator.state.url: 'file:///tmp/x'",
    ],
)
def test_a_file_makes_no_setting_that_loads_code_or_leads_elsewhere(setting: str) -> None:
    key, _, value = setting.partition(": ")
    for text, where in (
        (f"{WORDS}config: {{{setting}}}\n", "The topology"),
        (f"name: t\nspouts: [{{id: words, className: dskype.TestWordSpout, config: {{{setting}}}}}]\n", "Component words"),
    ):
        with pytest.raises(
            FluxException, match=f"{where} makes a setting that a Flux file may not make.*given: '{key}'.*--config FILE or -c KEY=VALUE"
        ) as refused:
            load(text)
        assert value not in str(refused.value).partition("legal:")[0]
    assert load(WORDS, config={key: value}).config[key] == value


def test_harmless_settings_stay_comfortable() -> None:
    made = dict.fromkeys(HARMLESS_SETTINGS, "2g") | {"kafka.retries": 3, "spark.memory.offHeap.enabled": True, "spark.memory.fraction": 0.5}
    text = "".join(f"  {key}: {str(value).lower() if isinstance(value, bool) else value}\n" for key, value in made.items())
    assert load(f"{WORDS}config:\n  topology.emulator.state.url: 'kafka:'\n{text}").config == {**made, "topology.emulator.state.url": "kafka:"}


def test_options_of_a_kafka_spout_are_as_harmless_as_settings() -> None:
    text = "name: t\nspouts: [{id: s, className: dskype.KafkaSpout, constructorArgs: {topics: a, kafka_options: {%s}}}]\n"
    load(text % "group.id: g, isolation.level: read_committed, max.poll.records: 5, auto.offset.reset: latest")
    with pytest.raises(FluxException, match="Component s makes a setting that a Flux file may not make.*given: 'kafka.interceptor.classes'"):
        load(text % "interceptor.classes: Evil")


def test_a_file_reads_environment_variables_only_with_permission() -> None:
    text = f"{WORDS}config: {{dskype.store: redis, dskype.store.options: {{url: 'redis://evil:1', password.env: HOME}}}}\n"
    with pytest.raises(FluxException, match=r"reads an environment variable. given: 'password.env in dskype.store.options'; hint: .*-e"):
        load(text)
    assert load(text, environ={}).config["dskype.store"] == "redis"


def test_the_commands_ask_for_the_permission_and_pass_it_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    runs: list[Any] = []
    monkeypatch.setattr(launch, "run_local", lambda flux, target, **more: runs.append(target))
    monkeypatch.setattr(launch, "submit", lambda flux, target, **more: runs.append(target))
    file = tmp_path / "evil.yaml"
    file.write_text("name: t\n" + COMMANDS[0])
    for command in ("local", "submit"):
        assert cli.main([command, str(file)]) == 1
        assert "--allow-commands" in capsys.readouterr().err
    assert cli.main(["up", str(file), "--dry-run"]) == 1
    assert "--allow-commands" in capsys.readouterr().err
    assert cli.main(["up", str(file), "--dry-run", "--allow-commands"]) == 0
    assert runs == []
    for command in ("local", "submit"):
        assert cli.main([command, str(file), "--allow-commands"]) == 0
    file.write_text(f"{WORDS}config: {{spark.plugins: Evil}}\n")
    assert cli.main(["local", str(file)]) == 1
    file.write_text(WORDS)
    assert cli.main(["local", str(file), "-c", "spark.plugins=Mine"]) == 0
    assert [run.conf for run in runs] == [{}, {}, {"spark.plugins": "Mine"}]
