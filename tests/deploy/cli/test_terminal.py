"""Texts, ids and errors are data: nothing of them steers a terminal, and nothing is markup."""

import io
import json
import sys
from types import SimpleNamespace

import pytest
from rich.console import Console

from dskype.deploy.cli import local_screen
from dskype.deploy.cli import main as cli
from dskype.deploy.cli.result_lines import result_line, topk_lines
from dskype.deploy.client.records import Result, TopK
from dskype.deploy.demo import screen
from dskype.deploy.machine import cluster
from dskype.deploy.machine.terminal import clean, plain, pointed, say
from dskype.deploy.metrics import tables
from dskype.deploy.verification.report import Report

HOSTILE = "\x1b[31mred\x1b[0m \x1b]0;title\x07 \x9b2J \r over \x7f\x08 \u202etxt\u2066 [red]markup[/red] :smile: \ud800"
"""Colours, the window's title, a cleared screen, writing over the line, another direction, markup."""


def steers(text: str) -> set[str]:
    return {
        c
        for c in text
        if c not in "\n\t" and (ord(c) < 32 or 127 <= ord(c) < 160 or c in "\u2028\u2029" or 0x202A <= ord(c) <= 0x202E or 0x2066 <= ord(c) <= 0x2069)
    }


def rendered(what) -> str:
    console = Console(file=io.StringIO(), width=400, color_system=None, force_terminal=False)
    console.print(what)
    return console.file.getvalue()


def test_what_steers_is_shown_and_nothing_else_changes():
    assert plain("\x1b[31mred") == "\\u001b[31mred"
    assert plain("Späti ☕ 東京\n\tnext") == "Späti ☕ 東京\n\tnext"
    assert not steers(plain(HOSTILE)) and "[red]markup[/red] :smile:" in plain(HOSTILE)
    for value in (HOSTILE, "\x9b", {"a": ["\u202e", "\x7f"]}):
        assert json.loads(plain(json.dumps(value, ensure_ascii=False))) == value
    for code in [*range(0x3000), *range(0xD7F0, 0xE010), 0xFEFF, 0xFFFF, 0x1F600, 0xE0001]:
        character = chr(code)
        assert not steers(plain(character)) and not steers(clean(character))


def test_lines_of_tail_have_no_escapes():
    result = Result.from_record(
        SimpleNamespace(
            value=json.dumps({"v": 1, "op": HOSTILE, "subscription": HOSTILE, "message": HOSTILE, "watermark": 1}).encode(),
            key=b"k",
            timestamp=0,
            headers=[],
            partition=0,
            offset=0,
        )
    )
    line = result_line(result, clean(HOSTILE))
    assert not steers(line) and "\n" not in line and "[red]markup[/red]" in line


def test_with_a_half_life_lines_show_what_is_left_of_scores():
    def line(**fields):
        value = {"v": 1, "subscription": "s", "message": "m", "watermark": 1_700_000_000_000, **fields}
        return result_line(
            Result.from_record(SimpleNamespace(value=json.dumps(value).encode(), key=b"s", timestamp=0, headers=[], partition=0, offset=0)), None, 2000.0
        )

    assert " 0.250000  s" in line(op="add", score=850_000_000 - 2.0, rank=1)
    assert " 0.750000  s" in line(op="match", score=0.75)
    state = TopK.from_json(json.dumps({"v": 1, "subscription": "s", "watermark": 4000, "topk": [{"message": 7, "score": 1.0}]}).encode(), 0)
    assert topk_lines(state, {}, 2000.0) == ["   1  0.500000  7"] and topk_lines(state, {}) == ["   1  1.000000  7"]


def test_a_line_of_tail_ends_with_what_is_new_in_a_result():
    value = {"v": 1, "op": "match", "subscription": "s", "message": "m", "watermark": 1, "meta": 1, "note": HOSTILE, "count": 2, "object": "o", "initial": True}
    result = Result.from_record(SimpleNamespace(value=json.dumps(value).encode(), timestamp=0, headers=[]))
    line = result_line(result, "tea")
    assert "  s  o  m  tea  note=" in line and line.endswith(" count=2") and not steers(line)
    assert result_line(result, None).endswith(line.partition("  tea")[2])


def test_notes_and_errors_have_no_escapes(capsys):
    say(f"error: there is no subscription {HOSTILE}")
    assert not steers(capsys.readouterr().err)


def test_errors_of_a_topology_have_no_escapes(monkeypatch, capsys):
    monkeypatch.setattr(cluster, "client", lambda target: SimpleNamespace(errors=lambda name: {"bolt": [{"error": HOSTILE[:-1]}]}))
    assert cli.main(["get-errors", "t"]) == 0
    out = capsys.readouterr().out
    assert not steers(out) and json.loads(out)["Comp-Errors"]["bolt"] == HOSTILE[:-1]


def test_codes_of_dead_letters_have_no_escapes_and_are_no_markup():
    measured = {
        "topology": "t",
        "id": "t-1",
        "status": "ACTIVE",
        "driver_alive": True,
        "uptime_s": 1,
        "window_s": 1,
        "streams": [],
        "components": [],
        "dead_letters": [{"count": 1, "component": "c", "stage": "translate", "code": HOSTILE}],
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tables, "_headlines", lambda m: [])
        out = rendered(tables.as_text(measured, tasks=False))
    assert not steers(out) and "[red]markup[/red] :smile:" in out


def test_words_of_a_topology_have_no_escapes_and_are_no_markup():
    info = {"name": "t", "status": "ACTIVE", "uptime_secs": 1, "components": {}, "errors": {}}
    words = {"words": 1, "distinct": 1, "top": [[HOSTILE, 3]]}
    for out in (rendered(local_screen._tables(info, words)), local_screen._line(info, words)):
        assert not steers(out) and "[red]markup[/red] :smile:" in out


def test_results_in_words_have_no_escapes_and_are_no_markup():
    console = Console(file=io.StringIO(), width=400, color_system=None, force_terminal=False)
    shown = screen.Screen(lambda word: HOSTILE, console)
    shown._line_at = 0
    moment = object()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(screen, "line", lambda m: "line")
        shown.show(moment, [SimpleNamespace(op="add")])
    out = console.file.getvalue()
    assert not steers(out) and "[red]markup[/red] :smile:" in out


def test_a_report_of_differences_has_no_escapes(monkeypatch, capsys):
    from dskype.deploy.cli.commands import verify

    report = Report(topology="t")
    report.differ("state", f"the list of {HOSTILE} differs", where="t.topk/0 offset 0", subscription=HOSTILE, details=(HOSTILE,))
    monkeypatch.setattr("dskype.deploy.verification.verify", lambda *args, **options: report)
    monkeypatch.setattr(verify, "_settings", lambda *args: None)
    monkeypatch.setattr("dskype.deploy.verification.topics.read_inputs", lambda *args: SimpleNamespace(counts=lambda: {"t.topk": 1}))
    monkeypatch.setattr("dskype.topology.runtime.nimbus.nimbus_topic.load_states", lambda kafka: {})
    args = SimpleNamespace(final=True, wait=None, since=None, sample=None, seed=0, output="text", show=5, inputs=None, messages=["t.messages"])
    assert verify._run(args, None, None, "t") == 1
    out = capsys.readouterr().out
    assert not steers(out) and "[red]markup[/red]" in out and sys.stdout


@pytest.mark.parametrize(
    ("text", "position", "lines"),
    [
        ("coffee AND", 11, ["coffee AND", "          ^"]),
        ("日本 -x", 4, ["日本 -x", "     ^"]),
        ("e\u0301e\t-x", 5, ["e\u0301e -x", "   ^"]),
        ("a\u202e -b", 4, ["a -b", "  ^"]),
        ("\x1b -b", 3, ["  -b", "  ^"]),
        ("x" * 50 + " -tea " + "y" * 50, 52, ["..." + "x" * 10 + " -tea " + "y" * 7 + "...", " " * 14 + "^"]),
        ("x" * 50, 51, ["..." + "x" * 22, " " * 25 + "^"]),
        ("-" + "y" * 50, 1, ["-" + "y" * 22 + "...", "^"]),
    ],
)
def test_a_caret_is_below_the_character_that_is_meant(text, position, lines):
    found = pointed(text, position, 30)
    assert found == lines and all(len(line) <= 30 for line in found)
