"""What a Flux file may not do unless it is allowed by name."""

import json
from pathlib import Path

import pytest

from dskype.topology.flux import FluxException, load

WORDS = "name: t\nspouts: [{id: words, className: dskype.TestWordSpout}]\n"


def test_a_file_reads_environment_variables_only_with_permission() -> None:
    text = f"{WORDS}config: {{dskype.store: redis, dskype.store.options: {{url: 'redis://evil:1', password.env: HOME}}}}\n"
    with pytest.raises(FluxException, match=r"reads an environment variable. given: 'password.env: HOME'; hint: .*-e"):
        load(text)
    assert load(text, environ={}).config["dskype.store"] == "redis"
    assert load(WORDS, config={"dskype.store.options": {"password.env": "HOME"}}).config["dskype.store.options"] == {"password.env": "HOME"}


@pytest.mark.parametrize(
    "setting",
    [
        {"spark.plugins": "Evil"},
        {"spark.jars": "evil.jar"},
        {"kafka.bootstrap.servers": "evil:1"},
        {"kafka.sasl.jaas.config": "x"},
        {"spark.executor.memory": "2g -Dx=y"},
        {"spark.executor.memory": ["2g"]},
        {"kafka.linger.ms": "5\nspark.plugins=Evil"},
        {"kafka.retries": True},
        {"spark.app.name": "x\nspark.plugins=Evil"},
        {"kafka.client.id": {"a": 1}},
        {"topology.emulator.state.url": "s3://evil/prefix"},
        {"topology.emulator.state.url": "file:///home/somebody"},
    ],
)
def test_a_file_has_no_settings_that_load_code_or_lead_elsewhere_unless_the_caller_has_them_too(setting: dict) -> None:
    """A program that uses the library is protected as the command line is."""
    text = f"{WORDS}config: {json.dumps(setting)}\n"
    ((key, value),) = setting.items()
    with pytest.raises(FluxException, match="trusted= in load") as refused:
        load(text)
    assert key in str(refused.value)
    with pytest.raises(FluxException):
        load(text, trusted={key: "another"})
    assert load(text, trusted=setting).config[key] == value
    if not isinstance(value, (list, dict)):
        assert load(text, config={key: "8"}).config[key] == "8"  # what the file says does not count


def test_a_file_has_sizes_times_counts_and_its_state_with_its_topology() -> None:
    config = {
        "spark.executor.memory": "2g",
        "spark.executor.instances": 4,
        "spark.memory.fraction": 0.6,
        "spark.network.timeout": "120s",
        "spark.app.name": "My topology: no. 7",
        "kafka.linger.ms": 5,
        "kafka.acks": "all",
        "kafka.compression.type": "zstd",
        "topology.emulator.state.url": "kafka:",
    }
    assert load(f"{WORDS}config: {json.dumps(config)}\n").config == config


def test_a_spout_of_a_file_has_no_options_that_load_code() -> None:
    spout = "name: t\nspouts: [{id: in, className: dskype.KafkaSpout, constructorArgs: [t], properties: [{name: kafka_options, value: {%s}}]}]\n"
    with pytest.raises(FluxException, match=r"kafka\.interceptor\.classes.*'in'"):
        load(spout % "interceptor.classes: Evil")
    assert load(spout % "group.id: g, fetch.min.bytes: 5").name == "t"


def test_a_file_starts_no_program_while_it_is_loaded(tmp_path):
    """Neither through an object that is no component of the topology, nor through the context of another, nor through what a component does when it runs."""
    text = """name: t
components: [{id: x, className: %s, constructorArgs: %s, configMethods: [{name: %s, args: %s}]}]
spouts: [{id: a, className: dskype.TestWordSpout}]
"""
    command = json.dumps(["sh", "-c", f"touch {tmp_path}/started"])
    for name, method in (("dskype.ShellBolt", "prepare"), ("dskype.ShellSpout", "open")):
        shell = text % (name, f"[{command}, [a]]", method, "[{}, null, null]")
        with pytest.raises(FluxException, match="component of the file starts a program.*'x'"):
            load(shell)
        with pytest.raises(FluxException, match="the topology calls this method"):
            load(shell, allow_commands=True)
    for method, arguments in (("open", "[{}, null, null]"), ("nextTuple", "[]"), ("next_tuple", "[]"), ("close", "[]")):
        with pytest.raises(FluxException, match="the topology calls this method"):
            load(text % ("dskype.KafkaSpout", "[topic]", method, arguments))
    assert not (tmp_path / "started").exists()


@pytest.mark.parametrize("name", ["starts_processes", "startsProcesses"])
@pytest.mark.parametrize("value", ["false", "0", "null", "[]"])
def test_a_file_cannot_say_that_its_class_starts_no_program(name, value):
    spout = "className: dskype.ShellSpout, constructorArgs: [[sh, -c, id], [a]]"
    with pytest.raises(FluxException, match="starts a program"):
        load(f"name: t\nspouts: [{{id: s, {spout}, properties: [{{name: {name}, value: {value}}}]}}]\n")


@pytest.mark.parametrize("named", ["{operator}/own.yaml", "../operator/own.yaml", "link.yaml"])
def test_a_file_includes_no_files_that_lie_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str) -> None:
    """Its components could write what another file has: settings with secrets."""
    for name in ("strange", "operator", "working"):
        (tmp_path / name).mkdir()
    (tmp_path / "operator" / "own.yaml").write_text("config: {my.password: open-sesame}\n")
    (tmp_path / "strange" / "link.yaml").symlink_to(tmp_path / "operator" / "own.yaml")
    file = tmp_path / "strange" / "t.yaml"
    file.write_text(f"{WORDS}includes: [{{file: '{named.format(operator=tmp_path / 'operator')}'}}]\n")
    monkeypatch.chdir(tmp_path / "working")
    with pytest.raises(FluxException, match="A file is included that is elsewhere.*call the program in a folder that holds both"):
        load(file)
    monkeypatch.chdir(tmp_path)  # where Storm looks
    assert load(file).config["my.password"] == "open-sesame"
