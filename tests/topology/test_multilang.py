"""Components in other languages, as real processes on the simulated transport."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from dskype.topology import Fields, IllegalArgumentException, TopologyBuilder
from dskype.topology.flux import load
from dskype.topology.local import LocalCluster
from dskype.topology.multilang import ShellBolt, ShellError, ShellProcess, ShellSpout
from dskype.topology.testing import FeederSpout, TupleCaptureBolt

PROTOCOL = """
import json, os, sys

def read():
    text = ""
    for line in iter(sys.stdin.readline, ""):
        if line == "end\\n":
            return json.loads(text)
        text += line
    sys.exit()

def say(**message):
    print(json.dumps(message), "end", sep="\\n", flush=True)

setup = read()
open(os.path.join(setup["pidDir"], str(os.getpid())), "w").close()
say(pid=os.getpid())
"""

BOLT = (
    PROTOCOL
    + '''
held, waiting = [], []

def task_ids():
    """Storm sends the next tuples without waiting for this one, so they may come first."""
    while not isinstance(message := read(), list):
        waiting.append(message)
    return message

while True:
    tup = waiting.pop(0) if waiting else read()
    if tup["stream"] == "__heartbeat":
        say(command="sync")
    elif tup["stream"] == "__tick":
        say(command="log", msg="a tick", level=3)
    else:
        (word,) = tup["tuple"]
        if word == "die":
            sys.exit(7)
        if word == "hang":
            sys.stdin.read()
        if word == "nonsense":
            print("nonsense", "end", sep="\\n", flush=True)
        if word == "no tuple":
            say(command="emit", tuple="no list")
        if word == "later":
            held.append(tup["id"])
            continue
        say(command="emit", anchors=[tup["id"]], tuple=[word.upper() * (100_000 if word == "long" else 1)])
        tasks = task_ids()
        say(command="emit", anchors=[tup["id"]], tuple=[setup["context"]["task->component"][str(tasks[0])]], stream="to", need_task_ids=False)
        say(command="metrics", name="words", params=len(word))
        say(command="fail" if word == "fail" else "ack", id=tup["id"])
        if word == "fail":
            say(command="error", msg="it failed")
        for id in held:
            say(command="ack", id=id)
'''
)

SPOUT = (
    PROTOCOL
    + """
left = ["c", "b", "a"]
while True:
    message = read()
    if message["command"] == "next" and left:
        word = left.pop()
        say(command="emit", tuple=[word], id=word)
        assert len(read()) == 1
    elif message["command"] == "fail":
        left.append(message["id"].upper())
    elif message["command"] != "next":
        say(command="log", msg=" ".join([message["command"], message.get("id", "")]), level=2)
    say(command="sync")
"""
)

SH = """
next() { message=; while IFS= read -r line; do [ "$line" = end ] && return 0; message="$message$line"; done; return 1; }
next; printf '{"pid": %d}\\nend\\n' $$
while next; do
  case $message in
    *__heartbeat*) printf '{"command": "sync"}\\nend\\n' ;;
    *) id=$(printf %s "$message" | sed 's/.*"id": "\\([0-9]*\\)".*/\\1/'); word=$(printf %s "$message" | sed 's/.*"tuple": \\["\\(.*\\)"\\].*/\\1/')
       printf '{"command": "emit", "anchors": ["%s"], "tuple": ["%s!"], "need_task_ids": false}\\nend\\n' "$id" "$word"
       printf '{"command": "ack", "id": "%s"}\\nend\\n' "$id" ;;
  esac
done
"""


def bolt(script=BOLT, command=None):
    made = ShellBolt([*(command or [sys.executable, "-c"]), script], ["word"])
    made.set_named_stream("to", ["component"])
    return made


def run(shell, words, conf=None, secs=3):
    """Feed words to a shell bolt; return the statistics, and what it emitted."""
    feeder, capture = FeederSpout("word"), TupleCaptureBolt()
    builder = TopologyBuilder()
    builder.set_spout("feeder", feeder)
    builder.set_bolt("shell", shell).shuffle_grouping("feeder")
    builder.set_bolt("capture", capture).shuffle_grouping("shell").shuffle_grouping("shell", "to")
    for word in words:
        feeder.feed([word], word)
    with LocalCluster(simulated=True) as cluster:
        stats = cluster.submit_topology("t", conf, builder.create_topology()).stats
        cluster.advance_cluster_time(secs)
    found: dict[str, list] = {"default": [], "to": []}
    for tup in capture.get_results().get("shell", []):
        found[tup.stream].append(tup.values[0])
    return stats, found


def test_a_bolt_in_another_process_emits_acks_fails_and_reports():
    stats, found = run(bolt(), ["a", "fail", "b"])
    assert found == {"default": ["A", "FAIL", "B"], "to": ["capture"] * 3}
    assert (stats.total("feeder", "acked"), stats.total("feeder", "failed")) == (2, 1)
    assert "it failed" in stats.errors[0]["error"]
    (task,) = (t for t in stats.tasks.values() if t["component"] == "shell")
    assert task["metrics"]["words"] == 1


def test_a_tuple_may_be_acked_with_a_later_one():
    stats, found = run(bolt(), ["later", "later", "a"])
    assert found["default"] == ["A"] and stats.total("feeder", "acked") == 3


def test_long_tuples_go_both_ways():
    stats, found = run(bolt(), ["x" * 300_000, "long"])
    assert [len(word) for word in found["default"]] == [300_000, 400_000]
    assert stats.total("feeder", "acked") == 2


def test_ticks_reach_it(caplog):
    shell = bolt()
    shell.add_component_config("topology.tick.tuple.freq.secs", 1)
    run(shell, [], secs=3)
    assert caplog.text.count("a tick") == 3


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("die", "has ended (exit code 7)"),
        ("hang", "has not answered for 5 s"),
        ("nonsense", "writes something that is no JSON"),
        ("no tuple", "emits something that is no tuple"),
    ],
)
def test_a_process_that_ends_hangs_or_talks_nonsense_is_started_again(word, reason):
    stats, found = run(bolt(), ["a", word, "b"], {"topology.subprocess.timeout.secs": 5 if word == "hang" else 60, "topology.message.timeout.secs": 2}, secs=8)
    assert found["default"] == ["A", "B"] if word in ("die", "hang") else found["default"][0] == "A"
    assert reason in stats.errors[0]["error"]
    assert (stats.total("feeder", "acked"), stats.total("feeder", "failed")) == (2, 1)


def test_a_spout_in_another_process_is_asked_acked_and_failed(caplog):
    capture = TupleCaptureBolt()
    builder = TopologyBuilder()
    builder.set_spout("shell", ShellSpout([sys.executable, "-c", SPOUT], ["word"]))
    builder.set_bolt("capture", capture).shuffle_grouping("shell")
    with LocalCluster(simulated=True) as cluster, caplog.at_level("INFO"):
        stats = cluster.submit_topology("t", {}, builder.create_topology()).stats
        cluster.advance_cluster_time(3)
        cluster.deactivate("t")
        cluster.advance_cluster_time(1)
    assert [tup.values[0] for tup in capture.get_results()["shell"]] == ["a", "b", "c"]
    assert stats.total("shell", "acked") == 3
    assert [word in caplog.text for word in ("ack a", "ack c", "deactivate", "activate")] == [True] * 4


def test_a_failed_tuple_is_told_to_the_spout():
    class Fails(TupleCaptureBolt):
        def execute(self, tup):
            if tup.values[0] == "b":
                self.refuse(tup)
            else:
                super().execute(tup)

        def prepare(self, conf, context, collector):
            super().prepare(conf, context, collector)
            self.refuse = collector.fail

    capture = Fails()
    builder = TopologyBuilder()
    builder.set_spout("shell", ShellSpout([sys.executable, "-c", SPOUT], ["word"]))
    builder.set_bolt("capture", capture).shuffle_grouping("shell")
    with LocalCluster(simulated=True) as cluster:
        cluster.submit_topology("t", {}, builder.create_topology())
        cluster.advance_cluster_time(3)
    assert [tup.values[0] for tup in capture.get_results()["shell"]] == ["a", "c", "B"]


def test_a_shell_script_is_a_bolt_of_a_flux_file(tmp_path: Path, monkeypatch):
    (tmp_path / "resources").mkdir()
    (tmp_path / "resources/shout.sh").write_text(SH)
    monkeypatch.chdir(tmp_path)
    text = """
name: t
spouts: [{id: words, className: org.apache.storm.testing.TestWordSpout}]
bolts: [{id: shout, className: org.apache.storm.flux.wrappers.bolts.FluxShellBolt, constructorArgs: [[sh, shout.sh], [word]]}]
streams: [{from: words, to: shout, grouping: {type: SHUFFLE}}]
"""
    loaded = load(text, allow_commands=True)
    loaded.check_runnable()
    loaded.objects["shout"].set_named_stream("to", ["component"])
    monkeypatch.chdir("/")
    _, found = run(loaded.objects["shout"], ["a", "b c"])
    assert found["default"] == ["a!", "b c!"]


def test_lines_may_end_as_on_windows_even_in_two_pieces():
    pieces = ['{"pid": 1}\r', "\nend\r", '\n{"a": "x\\r\\n"}\r\nend', "\r\n"]
    program = f"import sys, time\nfor piece in {pieces!r}:\n    sys.stdout.buffer.write(piece.encode())\n    sys.stdout.flush()\n    time.sleep(0.05)\nsys.stdin.read()"
    process = ShellProcess([sys.executable, "-c", program], "/", {}, 20)
    try:
        assert [process.read(), process.read()] == [{"pid": 1}, {"a": "x\r\n"}]
    finally:
        process.close()


def test_a_process_that_does_not_shake_hands_is_ended(monkeypatch):
    closed = []
    monkeypatch.setattr(ShellProcess, "close", lambda self, close=ShellProcess.close: closed.append(close(self)))
    builder = TopologyBuilder()
    builder.set_spout("shell", ShellSpout([sys.executable, "-c", "print('{}'); print('end', flush=True); input()"], ["word"]))
    with pytest.raises(Exception, match="does not answer the handshake"), LocalCluster(simulated=True) as cluster:
        cluster.submit_topology("t", {}, builder.create_topology())
        cluster.advance_cluster_time(1)
    assert closed


def test_processes_end_with_their_tasks():
    process = ShellProcess([sys.executable, "-c", BOLT], "/", {"X": "y"}, 20)
    pid = process.shake_hands({"a": 1}, {"taskid": 1})
    os.kill(pid, 0)
    process.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["/no/such/program"], "cannot be started"),
        ([sys.executable, "-c", "raise SystemExit(3)"], "has (ended|closed its input)"),
        ([sys.executable, "-c", "print('{}'); print('end', flush=True); input()"], "does not answer the handshake with its pid"),
        ([sys.executable, "-c", "import time; time.sleep(60)"], "has not answered for 0.2 s"),
    ],
)
def test_what_is_no_component_is_refused(command, words):
    with pytest.raises(ShellError, match=words):
        process = ShellProcess(command, "/", {}, 0.2 if "sleep" in command[-1] else 20)
        try:
            process.shake_hands({}, {})
        finally:
            process.close()


def test_declared_streams_and_configuration():
    shell = bolt()
    shell.add_component_config("k", 1)
    builder = TopologyBuilder()
    builder.set_spout("feeder", FeederSpout("word"))
    builder.set_bolt("shell", shell).shuffle_grouping("feeder")
    spec = builder.create_topology().components["shell"]
    assert spec.conf == {"k": 1} and spec.outputs["to"].fields == Fields("component")


DIRECT = (
    PROTOCOL
    + """
while True:
    tup = read()
    if tup["stream"] == "__heartbeat":
        say(command="sync")
    else:
        task = max(int(task) for task, name in setup["context"]["task->component"].items() if name == "capture")
        say(command="emit", anchors=[tup["id"]], tuple=tup["tuple"], stream="told", task=task)
        say(command="ack", id=tup["id"])
"""
)


def test_a_process_names_the_task_on_a_direct_stream():
    told = ShellBolt([sys.executable, "-c", DIRECT])
    told.set_named_stream("told", True, ["word"])
    feeder, capture = FeederSpout("word"), TupleCaptureBolt()
    builder = TopologyBuilder()
    builder.set_spout("feeder", feeder)
    builder.set_bolt("told", told).shuffle_grouping("feeder")
    builder.set_bolt("capture", capture, 3).direct_grouping("told", "told")
    with LocalCluster(simulated=True) as cluster:
        handle = cluster.submit_topology("t", {}, builder.create_topology())
        assert handle.warnings == []
        feeder.feed(["a"], 1)
        cluster.advance_cluster_time(2)
        last = max(handle.backend.plan.component_tasks("capture"))
        assert handle.stats.tasks[last]["executed"] == {"told/told": 1} and handle.stats.total("feeder", "acked") == 1
        assert not handle.stats.errors
    assert [t.values for t in capture.get_results()["told"]] == [["a"]]


def test_a_stream_without_fields_is_refused():
    with pytest.raises(IllegalArgumentException, match="A stream needs its fields: told"):
        ShellBolt(["x"]).set_named_stream("told", True)
