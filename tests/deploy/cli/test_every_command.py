"""What no command may do, whichever it is: end with a traceback, wait in silence, or blame the wrong thing."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from dskype.deploy.cli import main as cli
from dskype.deploy.machine import service
from dskype.deploy.machine.versions import own_version

NOBODY = ["--bootstrap-servers", "127.0.0.1:9"]

# --- brokers ----------------------------------------------------------------------------------------------------------

WITH_BROKERS = {
    "activate": ["x"],
    "advise": [],
    "backup": ["kept.gz"],
    "bench cluster": None,  # starts hosts of its own before it looks for brokers
    "bench distribution": None,  # needs a sample of tweets
    "bench moves": [],
    "bench moving": [],
    "bench throughput": [],
    "bench tornado": None,
    "deactivate": ["x"],
    "dead-letters": [],
    "demo": None,  # its output has to be a terminal or a file
    "doctor": None,  # reports brokers in a row of its table
    "explain": ["x", "y"],
    "get-errors": ["x"],
    "inspect": ["a-topic"],
    "jar": ["-R", "wordcount.yaml"],
    "kill": ["x"],
    "list": [],
    "local": ["-R", "wordcount.yaml"],
    "metrics": None,  # the three servers start without brokers, and serve what they know
    "monitor": ["x"],
    "partition adjust": ["--messages", "m", "--subscriptions", "m", "--publish"],
    "partition advise": None,  # reads files first
    "partition divide": ["1", "2", "--publish"],
    "partition finish": [],
    "partition learn": None,
    "partition merge": ["1", "2", "--publish"],
    "partition publish": None,
    "partition shift": ["1", "2", "--publish"],
    "partition show": [],
    "partition split": ["1", "2", "--publish"],
    "partition watch": [],
    "publish": ["--text", "a", "--at", "1,2"],
    "rebalance": ["x"],
    "restore": None,  # reads a file first
    "search": ["lake"],
    "stats": [],
    "sub add": ["--text", "a", "--near", "1,2"],
    "sub list": [],
    "sub move": ["x", "--near", "1,2"],
    "sub rm": ["x"],
    "sub show": ["x"],
    "submit": ["-R", "wordcount.yaml"],
    "tail": [],
    "ui": None,
    "verify": [],
    "vocabulary build": ["--topic", "x", "-o", "words.tsv"],
    "webhooks": None,
}
"""What is called -> the arguments it needs besides the brokers; None: it is not called here, and why."""


def leaves() -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Yield the name and the parser of each command, and of each action of a command with actions."""
    for name, parser in cli._parser().choices().items():
        actions = parser.choices()
        parser.fill()
        for action, own in actions.items():
            own.fill()
            yield f"{name} {action}", own
        if not actions:
            yield name, parser


def test_the_table_has_every_command_that_takes_brokers() -> None:
    assert {name for name, parser in leaves() if any("--bootstrap-servers" in action.option_strings for action in parser._actions)} == set(WITH_BROKERS)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.long] * name.startswith("bench ")) for name, arguments in WITH_BROKERS.items() if arguments is not None]
)
def test_a_broker_that_refuses_connections_is_told_at_once_and_waited_for_as_long_as_the_variable_says(name, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m").write_text('{"text": "a", "lat": 1, "lon": 2}\n')
    monkeypatch.setenv("DSKYPE_BROKER_WAIT_S", "0.3")
    assert cli.main([*name.split(), *WITH_BROKERS[name], *NOBODY]) == 1
    told = capsys.readouterr().err.splitlines()
    assert "waiting for Kafka: 127.0.0.1:9: Connection refused; giving up 0.3 s after the start (DSKYPE_BROKER_WAIT_S)" in told
    assert told[-2:] == [
        "error: expected a broker that answers within 0.3 s (DSKYPE_BROKER_WAIT_S), given: 127.0.0.1:9: Connection refused",
        "  fix: start the broker, name another one with --bootstrap-servers, or wait longer with DSKYPE_BROKER_WAIT_S",
    ]


# --- files and folders ------------------------------------------------------------------------------------------------

LEARN = ["partition", "learn", "--distributor", "location", "--tasks", "2"]
FILES = {
    "config": ["list", "--config", "PATH"],
    "filter": ["local", "words.yaml", "--filter", "PATH"],
    "flux": ["local", "PATH"],
    "subscriptions": ["sub", "add", "PATH", "--dry-run"],
    "messages": ["publish", "PATH", *NOBODY],
    "checked by": ["publish", "m.jsonl", "--file", "PATH", *NOBODY],
    "verified by": ["verify", "--file", "PATH", *NOBODY],
    "webhooks": ["webhooks", "PATH"],
    "sample": ["vocabulary", "build", "PATH", "-o", "new"],
    "vocabulary": ["vocabulary", "show", "PATH"],
    "learn from messages": [*LEARN, "--messages", "PATH", "--subscriptions", "m.jsonl", "-o", "new"],
    "learn from subscriptions": [*LEARN, "--messages", "m.jsonl", "--subscriptions", "PATH", "-o", "new"],
    "plan": ["partition", "show", "PATH"],
    "published plan": ["partition", "publish", "PATH", *NOBODY],
    "corpus": ["bench", "balancing", "PATH"],
}


@pytest.mark.parametrize("what", FILES)
@pytest.mark.parametrize("path", ["afolder", "nothing"])
def test_a_folder_or_nothing_in_place_of_a_file_is_named_before_brokers_are_waited_for(what, path, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "afolder").mkdir()
    (tmp_path / "m.jsonl").write_text('{"text": "a", "lat": 1, "lon": 2}\n')
    (tmp_path / "words.yaml").write_text("name: ${name}\nspouts: [{id: words, className: org.apache.storm.testing.TestWordSpout}]\n")
    assert cli.main([path if word == "PATH" else word for word in FILES[what]]) == 1
    told = capsys.readouterr().err
    error = told[told.index("error: ") :]
    assert path in error and "Error:" not in told and "waiting for Kafka" not in told
    assert any(words in error for words in (["folder", "directory", "not a file"] if path == "afolder" else ["No such file", "not a file"])), error


@pytest.mark.parametrize("command", [["vocabulary", "build", "m.jsonl", "-o"], ["quickstart"]])
@pytest.mark.parametrize("path", ["afile/new", "afolder", "sealed/new"])
def test_what_cannot_be_written_is_named(command, path, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "afile").write_text("letters")
    (tmp_path / "afolder").mkdir()
    (tmp_path / "m.jsonl").write_text('{"text": "a", "lat": 1, "lon": 2}\n')
    if path == "sealed/new":  # root may write anywhere, so modes prove nothing
        refused = PermissionError(13, "Permission denied", path)
        monkeypatch.setattr("builtins.open", lambda *_, **__: (_ for _ in ()).throw(refused))
        assert cli._about_path(refused) == "this user may not use 'sealed/new'\n  fix: change its mode or owner, or name another one"
        return
    assert cli.main([*command, path]) == 1
    told = capsys.readouterr().err
    assert path.split("/")[0] in told and "Error:" not in told and (tmp_path / "afile").read_text() == "letters"


def test_a_file_that_is_no_json_lines_gets_one_hint(tmp_path, capsys) -> None:
    (tmp_path / "places.csv").write_text("id,text,lat,lon\n1,coffee,2,3\n")
    assert cli.main(["sub", "add", "--dry-run", str(tmp_path / "places.csv")]) == 1
    told = capsys.readouterr().err
    assert told.count("hint: the file must have one JSON object on each line; docs/guides/data.md") == 1
    assert told.count("error: line ") == 2


# --- Ctrl-C -----------------------------------------------------------------------------------------------------------

INTERRUPTED = """
import runpy, sys
module = sys.argv.pop(1)
class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == module:
            sys.meta_path.remove(self)
            raise KeyboardInterrupt
for imported in [name for name in sys.modules if name == module or name.startswith(module + ".")]:
    del sys.modules[imported]
sys.meta_path.insert(0, Interrupt())
runpy.run_module("dskype.deploy", run_name="__main__", alter_sys=True)
"""


@pytest.mark.long
@pytest.mark.parametrize(
    "module", ["dskype.deploy.cli.main", "argparse", "dskype.topology.core.redaction", "confluent_kafka", "kafka", "dskype.deploy.client.pubsub"]
)
def test_ctrl_c_while_modules_are_imported_ends_without_a_traceback(module) -> None:
    environ = {**os.environ, "DSKYPE_BROKER_WAIT_S": "0"}
    command = [sys.executable, "-c", INTERRUPTED, module, "sub", "list", *NOBODY]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_ctrl_c_while_an_error_is_printed_ends_without_a_traceback(monkeypatch) -> None:
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "_failed", interrupt)
    assert cli.main(["sub", "list"]) == 130


def test_ctrl_c_during_down_says_that_the_service_stops_all_the_same(tmp_path, monkeypatch, capsys) -> None:
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(service, "stop", interrupt)
    assert cli.main(["down", "--folder", str(tmp_path)]) == 130
    assert f"the service stops all the same; 'dskype status --folder {tmp_path}' says when it has" in capsys.readouterr().err


def test_the_version_is_an_option_as_well(capsys) -> None:
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"dskype {own_version()}\n"
