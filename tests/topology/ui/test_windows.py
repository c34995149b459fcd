import random

import pytest

from dskype.topology.ui.windows import ALL_TIME, WINDOWS, CounterHistory, Counts

TEN, THREE_HOURS, DAY = (WINDOWS[key] for key in ("600", "10800", "86400"))


def report(task, emitted, executed=0, execute=(0, 0)):
    return {"task": task, "emitted": {"default": emitted, "__ack_ack": 2 * emitted}, "executed": {"a/default": executed}, "execute": list(execute)}


def feed(history, secs, *reports):
    history.add_record({"time_ms": secs * 1000, "tasks": list(reports)})


def emitted(history, window, now_s, born_s=0, tasks=(1,)):
    return history.counts(tasks, window, now_s * 1000, born_s * 1000).emitted.get("default", 0)


def test_counts_of_a_young_topology_are_those_of_all_windows():
    history = CounterHistory()
    for secs in range(10, 300, 10):
        feed(history, secs, report(1, secs))
    assert [emitted(history, w, 300) for w in WINDOWS.values()] == [290] * 4


def test_a_window_begins_a_tenth_of_a_part_to_a_part_before_its_start():
    """One tuple per second: a window holds its own length, and at most a twentieth more."""
    history, rng = CounterHistory(), random.Random(3)
    at = 0
    while at < 200_000:
        at += rng.randrange(1, 60)
        feed(history, at, report(1, at))
    for window in (TEN, THREE_HOURS, DAY):
        assert window.secs <= emitted(history, window, at) <= window.secs * 1.05 + 60
    assert emitted(history, ALL_TIME, at) == at


def test_an_idle_task_has_done_nothing_in_a_window():
    history = CounterHistory()
    feed(history, 100, report(1, 7))
    feed(history, 1000, report(1, 9))
    assert emitted(history, TEN, 1200) == 2
    assert emitted(history, TEN, 5000) == 0
    assert emitted(history, THREE_HOURS, 5000) == 9


def test_what_was_before_the_first_report_that_was_read_is_not_in_a_window():
    history = CounterHistory()
    feed(history, 90_000, report(1, 1_000_000))
    feed(history, 90_100, report(1, 1_000_050))
    assert emitted(history, TEN, 90_100) == 50
    assert emitted(history, DAY, 90_100) == 50
    assert emitted(history, ALL_TIME, 90_100) == 1_000_050


def test_a_record_that_is_written_again_changes_nothing():
    history = CounterHistory()
    feed(history, 100, report(1, 5))
    feed(history, 110, report(1, 8))
    feed(history, 100, report(1, 5))
    assert emitted(history, TEN, 120) == 8


def test_tasks_are_summed_and_latencies_weighed():
    history = CounterHistory()
    feed(history, 100, report(1, 5, 10, (10, 10_000_000)), report(2, 7, 30, (30, 90_000_000)))
    counts = history.counts((1, 2, 99), ALL_TIME, 100_000, 0)
    assert counts.n("executed") == 40 and counts.mean_ms("execute") == 2.5 and counts.mean_ms("complete") == 0
    assert counts.n("emitted") == 36 and counts.user().n("emitted") == 12


@pytest.mark.long
def test_samples_are_few():
    history = CounterHistory()
    for secs in range(0, 200_000, 5):
        feed(history, secs, report(1, secs))
    task = history._tasks[1]
    assert sum(map(len, task._samples.values())) <= 66


@pytest.mark.long
def test_counts_of_nothing_are_zero():
    assert Counts.total(()).n("acked") == 0
