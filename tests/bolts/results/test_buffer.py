import itertools
import random

import pytest

from dskype.bolts.results.base import Outcome, Removal, ResultStore, State, Stored, StoreUnavailable, supersedes
from dskype.bolts.results.buffer import StateBuffer
from dskype.topology.core.values import pack_state, unpack_state


class Shelf(ResultStore):
    """A store in memory that can be away."""

    name = "shelf"

    def __init__(self):
        super().__init__()
        self.kept, self.away, self.refused, self.calls = {}, False, set(), 0

    def open(self, opening):
        pass

    def put(self, states):
        return self._write([(s.subscription, Stored(s.registration, s.watermark, s.value, 1)) for s in states])

    def remove(self, removals):
        return self._write([(r.subscription, Stored(r.registration, r.watermark, None, 1)) for r in removals])

    def _write(self, items):
        self.calls += 1
        if self.away:
            raise StoreUnavailable("the shelf is away")
        written = 0
        for name, new in items:
            if name not in self.refused and (name not in self.kept or supersedes(new, self.kept[name])):
                self.kept[name] = new
                written += 1
        failed = [(name, "refused") for name, _ in items if name in self.refused]
        return Outcome(written, len(items) - written - len(failed), failed)

    def get(self, subscription):
        return self.kept.get(subscription)

    def close(self):
        pass


class Clock:
    now = 1000.0

    def __call__(self):
        return self.now


def made(**kwargs):
    shelf, reports, clock = Shelf(), [], Clock()
    return StateBuffer(shelf, 1, reports.append, clock, **kwargs), shelf, reports, clock


def state(name, watermark=1, registration="0-1"):
    return State(name, registration, watermark, str(watermark).encode())


def test_what_is_added_is_written_at_the_next_flush():
    buffer, shelf, reports, _ = made()
    buffer.enqueue([state("a", 1), state("b", 1), state("a", 2), Removal("b", "0-1", 2)])
    assert len(buffer) == 2
    buffer.flush()
    assert len(buffer) == 0
    assert shelf.kept == {"a": Stored("0-1", 2, b"2", 1), "b": Stored("0-1", 2, None, 1)}
    assert (buffer.written, buffer.replaced, buffer.failures, reports) == (2, 2, 0, [])
    buffer.flush()
    assert shelf.calls == 2


def test_an_older_state_does_not_replace_a_newer_one_that_waits():
    buffer, _, _, _ = made()
    buffer.enqueue([state("a", 5, "0-7"), state("a", 9, "0-6"), state("a", 4, "0-7")])
    assert buffer.snapshot() == [["a", "0-7", 5, b"5"]]
    assert buffer.stale == 2


def test_during_an_outage_the_newest_state_of_each_subscription_waits_and_it_is_reported_once():
    buffer, shelf, reports, clock = made()
    shelf.away = True
    for watermark in range(100):
        buffer.enqueue([state(f"s{watermark % 7}", watermark)])
        buffer.flush()
    assert len(buffer) == 7 and buffer.away
    assert shelf.calls == 1, "not asked again at once"
    clock.now += 60
    buffer.flush()
    assert len(reports) == 1 and "the shelf is away (1 states wait" in reports[0]
    shelf.away = False
    clock.now += 60
    buffer.flush()
    assert not len(buffer) and not buffer.away
    assert {name: s.watermark for name, s in shelf.kept.items()} == {f"s{w % 7}": w for w in range(93, 100)}
    shelf.away = True
    buffer.enqueue([state("a")])
    buffer.flush()
    assert len(reports) == 2, "another outage"


def test_attempts_are_spaced_out():
    buffer, shelf, _, clock = made(first_wait_s=0.2, last_wait_s=5)
    shelf.away = True
    buffer.enqueue([state("a")])
    times = []
    for _ in range(3000):
        before = shelf.calls
        buffer.flush()
        if shelf.calls > before:
            times.append(clock.now - 1000)
        clock.now += 0.01
    gaps = [b - a for a, b in itertools.pairwise(times)]
    assert gaps == pytest.approx([0.2, 0.4, 0.8, 1.6, 3.2, 5, 5, 5, 5], abs=0.02)


def test_a_clock_that_is_set_back_does_not_stop_attempts():
    buffer, shelf, _, clock = made()
    shelf.away = True
    buffer.enqueue([state("a")])
    buffer.flush()
    clock.now -= 3600
    shelf.away = False
    buffer.flush()
    assert len(buffer) == 0


def test_a_subscription_that_the_store_refuses_waits_and_is_reported_and_the_others_go_on():
    buffer, shelf, reports, _ = made()
    shelf.refused = {"b"}
    buffer.enqueue([state("a"), state("b"), state("c")])
    buffer.flush()
    assert set(shelf.kept) == {"a", "c"} and len(buffer) == 1
    assert reports == ["the state of subscription 'b' cannot be written: refused"]
    shelf.refused = set()
    buffer.flush()
    assert set(shelf.kept) == {"a", "b", "c"} and len(buffer) == 0


def test_a_long_backlog_is_written_in_parts():
    buffer, shelf, _, clock = made(budget_s=1.0)
    buffer.enqueue([state(f"s{i}") for i in range(3500)])

    def slow(items, write=shelf._write):
        clock.now += 0.6
        return write(items)

    shelf._write = slow
    buffer.flush()
    assert len(shelf.kept) == 2000
    buffer.flush()
    assert len(shelf.kept) == 3500 and len(buffer) == 0


def test_what_waits_survives_in_a_snapshot():
    buffer, shelf, _, _ = made()
    shelf.away = True
    buffer.enqueue([state("ü", 3), Removal("b", "2-5", 4)])
    buffer.flush()
    again, other, _, _ = made()
    again.restore(unpack_state(pack_state(buffer.snapshot())))
    again.flush()
    assert other.kept == {"ü": Stored("0-1", 3, b"3", 1), "b": Stored("2-5", 4, None, 1)}


@pytest.mark.parametrize("seed", range(20))
def test_outages_crashes_and_replays_leave_the_newest(seed):
    rng = random.Random(seed)
    buffer, shelf, _, clock = made()
    history, position, saved = [], 0, (0, [])
    for step in range(200):
        name = f"s{rng.randrange(5)}"
        history.append(Removal(name, f"0-{step // 20}", step) if rng.random() < 0.05 else state(name, step, f"0-{step // 20}"))
    while position < len(history):
        shelf.away = rng.random() < 0.4
        step = rng.randrange(1, 5)
        buffer.enqueue(history[position : position + step])
        position += step
        buffer.flush()
        clock.now += rng.random() * 3
        if rng.random() < 0.2:
            saved = position, buffer.snapshot()
        if rng.random() < 0.1:  # a crash: back to the snapshot
            position = saved[0]
            buffer = StateBuffer(shelf, 1, lambda text: None, clock)
            buffer.restore(saved[1])
    shelf.away = False
    clock.now += 60
    buffer.flush()
    newest = {}
    for item in history:
        new = Stored(item.registration, item.watermark, getattr(item, "value", None), 1)
        if item.subscription not in newest or supersedes(new, newest[item.subscription]):
            newest[item.subscription] = new
    assert shelf.kept == newest


def held(buffer, clock, seconds):
    """Run a bolt that has something to write every 10 ms; return the share of its time that it spends on the store."""
    began, spent, n = clock.now, 0.0, 0
    while clock.now - began < seconds:
        n += 1
        buffer.enqueue([state(f"s{n % 50}", n)])
        before = clock.now
        buffer.flush()
        spent += clock.now - before
        clock.now += 0.01
    return spent / (clock.now - began)


@pytest.mark.long
def test_a_store_that_hangs_hardly_holds_its_bolt():
    buffer, shelf, reports, clock = made()

    def hang(items):
        clock.now += 2.0
        raise StoreUnavailable("no answer")

    shelf._write, answers = hang, shelf._write
    assert held(buffer, clock, 600) < 0.08
    assert len(buffer) == 50 and len(reports) == 1 and buffer.failures < 25
    shelf._write = answers
    held(buffer, clock, 61)
    assert not buffer.away and len(buffer) <= 1
    assert held(buffer, clock, 10) == 0
