"""The demo's parts: feeding, following, showing, folders. Nothing here starts Kafka or Spark."""

from __future__ import annotations

import io
import json
import os
import signal
import time
from collections import namedtuple
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from rich.console import Console

from dskype.deploy.cli import main as cli
from dskype.deploy.client.follower import Once
from dskype.deploy.demo import command
from dskype.deploy.demo.feeder import SHOWN, Feeder, Plan, Shown, subscriptions_of
from dskype.deploy.demo.places import places
from dskype.deploy.demo.run import open_folder
from dskype.deploy.demo.screen import STREAMS, Arrivals, Counts, Figures, Moment, Quantiles, ResultsWatcher, Screen, Word, draw, line, milliseconds
from dskype.deploy.machine.registry import TOPOLOGIES, registry
from dskype.deploy.machine.signals import hold_interrupts
from dskype.spouts import streams
from dskype.spouts.records import Limits, parse_subscription
from dskype.spouts.text import Tokenizer
from dskype.topology.core.stats import TopologyStats
from dskype.topology.errors import TopologyError
from dskype.topology.flux import load

Record = namedtuple("Record", "key value timestamp headers")


@pytest.fixture(scope="module")
def world():
    return places(seed=1, count=400)


# --- feeding ----------------------------------------------------------------------------------------------------------


class FakePubSub:
    """Takes what is sent; every record is in Kafka at once, record i at 1000 + i ms."""

    def __init__(self, failing_at: int | None = None):
        self.messages, self.subscriptions, self.flushed, self.failing_at = [], [], 0, failing_at

    def send_message(self, value):
        if len(self.messages) == self.failing_at:
            raise TopologyError("the broker is gone")
        self.messages.append(value)
        return SimpleNamespace(done=lambda: True, failed=lambda: False, get=lambda stored=SimpleNamespace(timestamp=999 + len(self.messages)): stored)

    def send_subscription(self, key, value):
        self.subscriptions.append((key, value))

    def flush(self):
        self.flushed += 1


def feed(world, pubsub, rate=1e9, done=(0, 0), subscriptions=50, registering_s=0.05, monkeypatch=None):
    monkeypatch.setattr("dskype.deploy.demo.feeder._REGISTERING_S", registering_s)
    plan = Plan(messages=len(world), subscriptions=subscriptions)
    arrivals = Arrivals(len(world))
    feeder = Feeder(pubsub, world, subscriptions_of(plan, world), subscriptions + len(SHOWN), rate, arrivals, done)
    feeder.start()
    feeder.go()
    feeder.join(timeout=10)
    return feeder, arrivals


@pytest.mark.long
def test_all_messages_and_subscriptions_are_published_in_order(world, monkeypatch):
    pubsub = FakePubSub()
    feeder, arrivals = feed(world, pubsub, monkeypatch=monkeypatch)
    assert feeder.finished and feeder.failure is None and pubsub.flushed == 2
    assert pubsub.messages == world.records()
    assert pubsub.subscriptions == [(id.encode(), value) for id, value in subscriptions_of(Plan(400, 50), world)]
    assert [arrivals.at(i) for i in (0, 399, 400, -1)] == [1000, 1399, None, None]


def test_the_rate_is_kept(world, monkeypatch):
    began = time.monotonic()
    feeder, _ = feed(world, FakePubSub(), rate=800, monkeypatch=monkeypatch)
    assert feeder.finished and time.monotonic() - began >= 0.49


def test_a_feeder_keeps_to_its_limit(world):
    pubsub = FakePubSub()
    feeder = Feeder(pubsub, world, subscriptions_of(Plan(400, 50), world), 56, 1e6, Arrivals(400))
    feeder.limit = 30
    feeder.start()
    feeder.go()
    time.sleep(0.2)
    assert pubsub.messages == world.records(0, 30) and feeder.held
    feeder.limit = 100
    time.sleep(0.2)
    assert pubsub.messages == world.records(0, 100) and feeder.held
    feeder.close()


def test_what_was_held_back_is_not_made_up_for(world):
    pubsub = FakePubSub()
    feeder = Feeder(pubsub, world, subscriptions_of(Plan(400, 50), world), 56, 100.0, Arrivals(400))
    feeder.limit = 5
    feeder.start()
    feeder.go()
    time.sleep(1.0)
    feeder.limit = 400
    time.sleep(0.2)
    assert 5 < len(pubsub.messages) < 80 and not feeder.held
    feeder.close()


def test_a_feeder_goes_on_where_an_earlier_one_ended(world, monkeypatch):
    pubsub = FakePubSub()
    feeder, arrivals = feed(world, pubsub, done=(150, 20), monkeypatch=monkeypatch)
    assert pubsub.messages == world.records(150) and len(pubsub.subscriptions) == 50 + len(SHOWN) - 20
    assert pubsub.subscriptions[0] == (lambda pair: (pair[0].encode(), pair[1]))(list(subscriptions_of(Plan(400, 50), world))[20])
    assert arrivals.at(149) is None and arrivals.at(150) == 1000
    again, _ = feed(world, pubsub := FakePubSub(), done=(400, 56), monkeypatch=monkeypatch)
    assert again.finished and not pubsub.messages and not pubsub.subscriptions


def test_what_stops_a_feeder_is_known(world, monkeypatch):
    feeder, _ = feed(world, FakePubSub(failing_at=7), monkeypatch=monkeypatch)
    assert not feeder.finished and "broker is gone" in str(feeder.failure)


def test_little_is_published_before_it_may_go(world):
    pubsub = FakePubSub()
    feeder = Feeder(pubsub, world, subscriptions_of(Plan(400, 50), world), 56, 1.0, Arrivals(400))
    feeder.start()
    time.sleep(0.1)
    assert pubsub.messages == world.records(0, 1) and len(pubsub.subscriptions) == len(SHOWN) and pubsub.flushed == 1
    feeder.close()
    assert not feeder.is_alive() and not feeder.finished


def test_subscriptions_are_registered_in_half_of_the_time_of_the_messages_at_most(world):
    pubsub = FakePubSub()
    feeder = Feeder(pubsub, world, subscriptions_of(Plan(400, 50), world), 56, 800.0, Arrivals(400))
    feeder.start()
    feeder.go()
    feeder.join(timeout=10)
    assert feeder.finished and len(pubsub.subscriptions) == 56  # in half a second, not in half a minute


def test_a_feeder_can_be_closed(world):
    pubsub = FakePubSub()
    feeder = Feeder(pubsub, world, subscriptions_of(Plan(400, 50), world), 56, 1.0, Arrivals(400))
    feeder.start()
    feeder.go()
    feeder.close()
    assert not feeder.is_alive() and not feeder.finished and feeder.failure is None and len(pubsub.messages) < 100


# --- subscriptions ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shown", SHOWN, ids=lambda shown: shown.id)
def test_the_readable_subscriptions_are_legal(shown: Shown):
    parsed = parse_subscription(shown.id.encode(), json.dumps(shown.record).encode(), tokenizer=Tokenizer(), limits=Limits())
    assert parsed.id == shown.id and (shown.record["type"] == "boolean" or parsed.k == 10)


def test_the_demos_topology_can_be_loaded():
    loaded = load(TOPOLOGIES / "dskype.yaml", registry=registry(), config={"dskype.window.messages": 5})
    loaded.check_runnable()
    components = set(loaded.topology.components)
    assert {c for _, _, source, target in STREAMS for c in (source, target)} <= components
    declared = {(source, stream) for _, stream, source, _ in STREAMS}
    assert {(source, s) for source in components for s in streams.STREAMS if (source, s) in declared} == declared


# --- following --------------------------------------------------------------------------------------------------------


def delta(subscription, watermark, op, message, score=None, rank=None, time_ms=5000, repeated=""):
    value = {"v": 1, "subscription": subscription, "watermark": watermark, "op": op, "message": message}
    value |= {} if score is None else {"score": score, "rank": rank}
    text = json.dumps(value, separators=(",", ":")).encode()
    return Record(subscription.encode(), text, time_ms, [("result-id", f"{subscription}/{watermark}/{op}/{message}".encode())])


def watcher(arrived=()):
    arrivals = Arrivals(1000)
    for seq, ms in arrived:
        arrivals.note(seq, ms)
    return ResultsWatcher(None, "t.results", {"a", "b"}, arrivals)


def test_results_are_counted_and_lists_are_kept():
    w, once = watcher(), Once()
    w.add_records([delta("a", 1, "add", 11, 0.5, 1), delta("a", 2, "add", "x", 0.75, 1), delta("other", 2, "add", 9, 0.5, 1)], once)
    w.add_records([delta("a", 3, "remove", 11), delta("a", 3, "add", 12, 0.75, 1), delta("b", 3, "match", 12), delta("b", 4, "match", 13)], once)
    w.add_records([delta("a", 3, "remove", 11), delta("b", 4, "match", 13)], once)  # written a second time
    assert w.counts == Counts(adds=4, removes=1, matches=2) and w.counts.all == 7
    assert w.topk("a") == [("12", 0.75), ('"x"', 0.75)]
    assert w.matched("b") == ["12", "13"]
    seen, words = w.words(0)
    assert seen == 6 and [(x.op, x.message) for x in words] == [
        ("add", "11"),
        ("add", '"x"'),
        ("remove", "11"),
        ("add", "12"),
        ("match", "12"),
        ("match", "13"),
    ]
    assert w.words(5)[1] == words[-1:] and w.words(6) == (6, [])


def test_more_words_than_are_kept_lose_the_oldest():
    w, once = watcher(), Once()
    w.add_records([delta("b", i, "match", i) for i in range(1500)], once)
    seen, words = w.words(0)
    assert seen == 1500 and len(words) == 1000 and words[-1].message == "1499"
    assert [x.message for x in w.words(1490)[1]] == [str(i) for i in range(1490, 1500)]


def test_latency_is_from_a_messages_arrival_to_its_result():
    w = watcher([(i, 1000 + i) for i in range(100)])
    w.add_records([delta("other", i, "add", 1, 0.5, 1, time_ms=1000 + i + 50) for i in range(100)], Once())
    w.add_records([delta("other", 99, "match", 1, time_ms=1000 + 99 + 450)], Once())
    recent, overall = w.latency()
    assert recent == overall and recent.p50 == 50 and 50 < recent.p99 <= 450


def test_results_without_a_known_arrival_have_no_latency():
    w = watcher()
    w.add_records([delta("other", 5, "add", 1, 0.5, 1), Record(b"x", b"no json", 1, []), Record(b"x", None, 1, None), Record(b"a", b"[]", 1, None)], Once())
    assert w.latency() == (Quantiles(None, None), Quantiles(None, None)) and w.counts.all == 3


# --- figures ----------------------------------------------------------------------------------------------------------


def task(component, id, watermark=None, transferred=None, metrics=None, **more):
    empty = {
        "executed": {},
        "acked": {},
        "failed": {},
        "execute": [0, 0],
        "process": [0, 0],
        "complete": [0, 0],
        "dead_letters": 0,
        "errors": 0,
        "gaps": 0,
        "duplicates": 0,
        "busy_ns": 0,
        "frames": 0,
        "out_bytes": 0,
        "in_bytes": 0,
        "version": 1,
        "emitted": {},
        "sent": {},
        "received": {},
    }
    return {
        **empty,
        "component": component,
        "task": id,
        "watermark": watermark,
        "transferred": transferred or {},
        **({"metrics": metrics} if metrics else {}),
        **more,
    }


def stats_of(*tasks):
    stats = TopologyStats()
    for t in tasks:
        stats.feed(json.dumps({"v": 1, "kind": "stats", "component": t["component"], "executor": 0, "pid": 1, "time_ms": 1, "tasks": [t]}).encode())
    return stats


TASKS = {"message-spout": (1,), "distribution-bolt": (2,), "subscription-bolt": (3, 4), "message-bolt": (5,)}


def test_lag_is_behind_the_slowest_subscription_bolt():
    figures = Figures(TASKS)
    stats = stats_of(task("subscription-bolt", 3, 79, metrics={"pending_evaluations": 2}, emitted={"requests": 10, "results": 5}))
    moment = figures.read(stats, Moment(published=100), 1.0)
    assert (moment.matched, moment.lag, moment.pending, moment.evaluations) == (0, 100, 2, 10)
    stats = stats_of(
        task("subscription-bolt", 3, 79, metrics={"pending_evaluations": 2}, emitted={"requests": 10, "results": 5}),
        task("subscription-bolt", 4, 49, metrics={"pending_evaluations": "RuntimeError: no"}),
    )
    moment = figures.read(stats, Moment(published=100), 2.0)
    assert (moment.matched, moment.lag, moment.pending, moment.evaluations) == (50, 50, 2, 10)


def test_streams_and_bytes_have_rates():
    figures = Figures(TASKS)
    for now, tuples in ((0.0, 0), (1.0, 100), (2.0, 200), (9.0, 900)):
        stats = stats_of(task("distribution-bolt", 2, transferred={"matching": tuples, "window": tuples // 2}, out_bytes=tuples * 1000, busy_ns=int(now * 5e8)))
        moment = figures.read(stats, Moment(), now)
    rows = {row.name: row for row in moment.streams}
    assert rows["matching"].tuples == 900 and rows["matching"].per_s == pytest.approx(100) and rows["window"].per_s == pytest.approx(50)
    assert (rows["results"].tuples, rows["results"].target) == (0, "Kafka")
    part = next(c for c in moment.components if c.name == "distribution-bolt")
    assert (part.out_bytes, part.bytes_per_s, part.busy) == (900_000, pytest.approx(1e5), pytest.approx(0.5))


@pytest.mark.parametrize(("ms", "text"), [(None, "–"), (12.4, "12 ms"), (999.4, "999 ms"), (1400, "1.4 s"), (61_000, "61.0 s")])
def test_durations_are_readable(ms, text):
    assert milliseconds(ms) == text


# --- showing ----------------------------------------------------------------------------------------------------------


def a_moment() -> Moment:
    return Figures(TASKS).read(
        stats_of(task("subscription-bolt", 3, 9), task("subscription-bolt", 4, 9)),
        Moment("matching", 31.0, 38_000, 100_000, 20_006, 20_006, results=Counts(5, 4, 3), recent=Quantiles(640, 1400)),
        1.0,
    )


@pytest.mark.parametrize(("width", "height"), [(80, 24), (100, 30), (120, 40), (200, 50)])
def test_the_screen_is_not_overfull(width, height):
    out = io.StringIO()
    words = [f"“lake park” near Chicago  + A very long name of a place in [brackets] {i} " + "x" * 150 for i in range(9)]
    Console(file=out, width=width).print(draw(a_moment(), words, width, height))
    lines = out.getvalue().rstrip("\n").split("\n")
    assert len(lines) < height and all(len(text) <= width for text in lines)
    assert "38,000" in lines[0] and any("in [brackets] 8" in text for text in lines)
    assert sum("→" in text for text in lines) == 1 + len(STREAMS)


def test_without_a_terminal_lines_are_printed_now_and_then(monkeypatch):
    out = io.StringIO()
    clock = [100.0]
    monkeypatch.setattr("dskype.deploy.demo.screen.time", SimpleNamespace(monotonic=lambda: clock[0]))
    with Screen(lambda word: f"{word.subscription} {word.message} [bold]", Console(file=out, width=60)) as screen:
        for i in range(12):
            clock[0] += 1
            screen.show(a_moment(), [Word(1, "a", "remove" if i == 1 else "add", str(i), 0.5, 1)])
    text = out.getvalue()
    assert text.count("38,000 messages") == 2 and line(a_moment()) in text
    assert "a 4 [bold]" in text and "a 1 " not in text and "a 2 [bold]" in text and "a 0 " not in text


def test_on_a_terminal_it_is_drawn_in_place():
    out = io.StringIO()
    with Screen(lambda word: f"told {word.message}", Console(file=out, width=120, height=40, force_terminal=True)) as screen:
        screen.show(a_moment(), [Word(1, "a", "add", "77", 0.5, 1)])
    assert "told 77" in out.getvalue() and "streams" not in out.getvalue().splitlines()[0]


# --- folders ----------------------------------------------------------------------------------------------------------


def opened(folder: Path | None, resume: bool = False, **given):
    told: list[str] = []
    return (*open_folder(folder, resume, given, told.append), told)


def leave_something(folder: Path) -> None:
    for name in ("broker/data", "topologies/dskype", "logs"):
        (folder / name).mkdir(parents=True)
    (folder / "vocabulary.tsv").write_text("x")


def test_without_a_folder_nothing_is_kept():
    assert opened(None, messages=10) == (None, Plan(messages=10, window=5), False, [])


def test_a_new_folder_remembers_the_plan(tmp_path):
    folder, plan, resumed, told = opened(tmp_path / "new", messages=1000, seed=5)
    assert folder == (tmp_path / "new").resolve() and plan == Plan(messages=1000, window=500, seed=5) and not resumed and not told
    assert opened(folder, resume=True)[1:3] == (plan, True)


def test_a_second_start_begins_anew_and_says_so(tmp_path):
    opened(tmp_path, messages=1000)
    leave_something(tmp_path)
    _, plan, resumed, [told] = opened(tmp_path, messages=700)
    assert "starting over" in told and plan.messages == 700 and not resumed
    assert {p.name for p in tmp_path.iterdir()} <= {"demo.json", "owner.lock"}


def test_a_resumed_start_keeps_everything_and_says_so(tmp_path):
    opened(tmp_path, messages=1000, rate=10.0)
    leave_something(tmp_path)
    _, plan, resumed, [told] = opened(tmp_path, resume=True, messages=2000)
    assert "continuing" in told and resumed and plan == Plan(messages=2000, rate=10.0, window=500)
    assert (tmp_path / "broker" / "data").is_dir() and (tmp_path / "vocabulary.tsv").is_file()


def test_there_may_be_nothing_to_resume(tmp_path):
    _, _, resumed, [told] = opened(tmp_path, resume=True)
    assert "no earlier run" in told and not resumed


def test_what_a_run_depends_on_cannot_change_when_it_is_resumed(tmp_path):
    opened(tmp_path, seed=1)
    with pytest.raises(TopologyError, match="given: {'seed': 2}; legal: {'seed': 1}"):
        opened(tmp_path, resume=True, seed=2)


def test_a_folder_with_other_things_is_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(TopologyError, match="contains other files"):
        opened(tmp_path)
    assert (tmp_path / "thesis.tex").exists()


def test_a_folder_in_use_is_refused(tmp_path):
    from dskype.deploy.machine.folders import FolderInUseError, OwnedFolder

    owned = OwnedFolder.take(tmp_path)
    try:
        with pytest.raises(FolderInUseError):
            opened(tmp_path)
    finally:
        owned.release()


# --- arguments --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        ["--messages", "0"],
        ["--messages", "x"],
        ["--rate", "0"],
        ["--rate", "inf"],
        ["--subscriptions", "-1"],
        ["--resume"],
        ["--window", "0.5"],
        ["--bootstrap-servers", "127.0.0.1:1", "--window", "5"],
        ["--bootstrap-servers", "127.0.0.1:1", "--transport", "real-time"],
        ["--nonsense"],
    ],
)
def test_arguments_that_make_no_sense_are_refused(arguments, capsys):
    assert cli.main(["demo", *arguments]) == 2
    assert "expected" in capsys.readouterr().err or arguments == ["--nonsense"]


def test_a_map_that_cannot_be_written_is_refused_before_anything_starts(tmp_path, capsys):
    assert cli.main(["demo", "--picture", str(tmp_path / "missing" / "map.svg")]) == 1
    assert "map cannot be written" in capsys.readouterr().err


def test_without_a_writable_folder_the_map_goes_to_the_temp_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert command._writable(None) == tmp_path / "dskype-map.svg"
    monkeypatch.setattr(os, "access", lambda *_: False)
    monkeypatch.setenv("TMPDIR", str(tmp_path / "t"))
    monkeypatch.setattr(command.tempfile, "gettempdir", lambda: str(tmp_path / "t"))
    assert command._writable(None) == tmp_path / "t" / "dskype-map.svg"


def test_an_interrupt_is_held_back_until_the_end_of_a_block():
    told, steps = [], []
    for number in (signal.SIGINT, signal.SIGTERM):
        before = signal.getsignal(number)
        with pytest.raises(KeyboardInterrupt), hold_interrupts(told.append):
            os.kill(os.getpid(), number)
            time.sleep(0.01)
            steps.append(number)
        assert signal.getsignal(number) is before
    assert steps == [signal.SIGINT, signal.SIGTERM] and len(told) == 2
    with hold_interrupts(told.append):
        steps.append("quiet")
    assert steps[-1] == "quiet"


def test_what_an_interrupt_makes_fail_is_no_failure():
    with pytest.raises(KeyboardInterrupt), hold_interrupts(lambda text: None):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.01)
        raise OSError("the broker was interrupted as well")
    with pytest.raises(OSError, match="full"), hold_interrupts(lambda text: None):
        raise OSError("the disk is full")


def test_a_second_interrupt_is_not_held_back():
    before, steps = signal.getsignal(signal.SIGINT), []
    with pytest.raises(KeyboardInterrupt), hold_interrupts(lambda text: None):
        for _ in range(3):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.01)
            steps.append("on")
    assert steps == ["on"] and signal.getsignal(signal.SIGINT) is before


def test_alphas_and_rates_make_sense():
    assert Plan().messages >= 2 * Plan().window and np.isfinite(Plan().rate)
