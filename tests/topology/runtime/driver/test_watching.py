"""Restarts, stalls and liveness: what the driver and other shells conclude from what they see."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from dskype.topology.config import Config
from dskype.topology.core.stats import TopologyStats
from dskype.topology.nimbus.observing import BROKERS_SILENT_AFTER_S, GONE, Contact, ContactWatch, seen_health, started_ms
from dskype.topology.runtime.driver import watch as watch_module
from dskype.topology.runtime.driver.query_keeper import Restarts
from dskype.topology.runtime.driver.reports import DriverReports
from dskype.topology.runtime.driver.watch import StallWatch, Watch
from dskype.topology.runtime.kafka.clients import KafkaSettings
from dskype.topology.runtime.nimbus.liveness import DEAD_AFTER_S, SILENT_AFTER_S, HeartbeatWatch, alive_on_this_machine, describe_driver
from tests.waiting import wait_for

# -- restarts -------------------------------------------------------------------------------------


def test_restarts_come_later_and_later_and_end():
    counter = Restarts(most=10)
    assert [counter.record_failure("c", {1: 5}, {1}) for _ in range(10)] == [0, 0.5, 1, 2, 4, 8, 16, 30, 30, None]
    assert counter.in_a_row("c") == 10


def test_a_task_that_gets_on_begins_anew():
    counter = Restarts(most=2)
    assert [counter.record_failure("c", {1: version}, {1}) for version in range(20)] == [0] * 20


def test_others_that_get_on_do_not_hide_the_one_that_does_not():
    counter = Restarts(most=3)
    assert [counter.record_failure("c", {1: 5, 2: version}, {1, 2}) for version in (1, 2, 3)] == [0, 0.5, None]


def test_components_count_for_themselves():
    counter = Restarts(most=2)
    assert [counter.record_failure(c, {}, set()) for c in "abab"] == [0, 0, None, None]


# -- stalls ---------------------------------------------------------------------------------------


def test_a_task_without_input_or_with_progress_does_not_stall():
    watch, tasks = StallWatch(after_s=10, gap_s=60), {1: "a", 2: "b", 3: "c"}
    watch.find(tasks, {1: 5, 2: 5}, {2: 3, 3: 1}, 0, tasks)
    found = watch.find(tasks, {1: 5, 2: 6}, {2: 3, 3: 1}, 11, tasks)
    assert [(s.component, s.task) for s in found] == [("c", 3)]  # it has never reported, but tuples wait for it
    assert "'c'" in found[0].as_text() and "11 s" in found[0].as_text()


def test_a_driver_that_stood_still_takes_no_task_for_stalled():
    watch, tasks, now_s = StallWatch(after_s=30, gap_s=5), {1: "a"}, 100.0
    watch.find(tasks, {1: 5}, {1: 3}, now_s, tasks)
    now_s += 160  # the driver stands still, and with it all that it knows of the task
    assert watch.find(tasks, {1: 5}, {1: 3}, now_s, tasks) == []
    for step in range(1, 51):
        found = watch.find(tasks, {1: 5}, {1: 3}, now_s + step / 2, tasks)
    assert [stall.seconds for stall in found] == [30]  # it really does nothing


def test_a_task_that_has_not_run_its_first_batch_starts_and_is_not_stalled_for_ten_minutes():
    watch, tasks = StallWatch(after_s=10, gap_s=600), {1: "a", 2: "b"}
    found = [watch.find(tasks, {2: 5}, {1: 3, 2: 3}, now_s, begun={2}) for now_s in (0, 11, 599, 601)]
    assert [[s.task for s in stalls] for stalls in found] == [[], [2], [2], [1, 2]]


def watch_of(reports: DriverReports, stats, waiting: dict[int, int]) -> tuple[Watch, SimpleNamespace]:
    """Return the watch over a topology with the task 1, whose queries run, and what it knows of its driver."""
    state = SimpleNamespace(
        brokers_away=False,
        versions=lambda: {1: 5},
        reports=reports,
        plan=SimpleNamespace(task_component={1: "a"}, conf={Config.TOPOLOGY_EMULATOR_STALL_SECS: 30}),
        stats=stats,
        tenure=SimpleNamespace(term=1),
        kafka=KafkaSettings("127.0.0.1:1"),
    )
    return Watch(state, SimpleNamespace(obstacles=dict, failing=dict), lambda: waiting), state


def test_no_task_is_stalled_because_the_brokers_were_away(monkeypatch):
    now, told = [100.0], []
    monkeypatch.setattr(watch_module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    reports = DriverReports("t-1-0", TopologyStats(), lambda: 0, lambda text: None)
    monkeypatch.setattr(reports, "set_health", lambda state, why: told.append(state))
    watch, state = watch_of(reports, SimpleNamespace(reported=lambda term: {1}, compiling={}), {1: 3})

    def look(seconds: float) -> None:
        for _ in range(round(2 * seconds)):
            now[0] += 0.5
            watch.report_health()

    look(29)  # the brokers do not answer, and the driver does not know it yet
    state.brokers_away = True
    look(131)
    state.brokers_away = False
    look(29)
    assert list(dict.fromkeys(told)) == ["running", "waiting"]
    look(2)
    assert told[-1] == "stalled"  # it really does nothing


# -- liveness -------------------------------------------------------------------------------------


def remote(heartbeat: int) -> dict:
    return {"driver": {"host": "elsewhere", "pid": 1, "machine": "elsewhere/x/y", "started": 1}, "heartbeat": heartbeat}


def watch_for(watched: HeartbeatWatch, now: list[float], seconds: float, step: float = 0.5) -> None:
    """Look at a topic in which nothing happens, as long as the brokers answer."""
    for _ in range(round(seconds / step)):
        now[0] += step
        watched.looked()


def test_a_driver_elsewhere_is_alive_when_its_heartbeat_changes_whatever_the_clocks_say():
    now = [0.0]
    watched = HeartbeatWatch(lambda: now[0])
    watched.update("t", remote(7))
    assert watched.verdict("t", remote(7)) is None
    watch_for(watched, now, 2)
    watched.update("t", remote(8))
    assert watched.verdict("t", remote(8)) is True
    watch_for(watched, now, DEAD_AFTER_S - 0.5)
    watched.update("t", remote(8))
    assert watched.verdict("t", remote(8)) is True
    watch_for(watched, now, 1)
    assert watched.verdict("t", remote(8)) is False


@pytest.mark.parametrize("seconds", [5, 45, 160])
def test_whoever_stood_still_or_got_no_answer_takes_nobody_for_dead(seconds):
    now = [0.0]
    watched = HeartbeatWatch(lambda: now[0])
    watched.update("t", remote(7))
    watch_for(watched, now, 2)
    watched.update("t", remote(8))
    now[0] += seconds  # nobody looks: the watching process stands still, or the brokers do
    assert watched.verdict("t", remote(8)) is True
    watched.looked()  # the driver's next heartbeat is not there yet
    assert watched.verdict("t", remote(8)) is True
    watch_for(watched, now, DEAD_AFTER_S)
    assert watched.verdict("t", remote(8)) is False  # it really is silent


def test_a_driver_here_is_alive_while_its_process_is_and_no_other_has_its_number():
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        driver = {**describe_driver(), "pid": other.pid, "started": None}
        assert alive_on_this_machine(describe_driver()) is True
        assert alive_on_this_machine(driver) is True
        assert alive_on_this_machine({**driver, "started": 1}) is False  # the number was given to another process since
        assert alive_on_this_machine({**driver, "pid": 1 << 80}) is False
        other.kill()
        wait_for(lambda: alive_on_this_machine(driver) is False, 10, "the end of a process whose parent does not ask how it ended")
        other.wait()
        assert alive_on_this_machine(driver) is False
    assert alive_on_this_machine(remote(1)["driver"]) is None
    assert alive_on_this_machine({**describe_driver(), "machine": "other boot"}) is None
    assert describe_driver()["pid"] == os.getpid()


def here(heartbeat: int) -> dict:
    return {"driver": describe_driver(), "heartbeat": heartbeat}


def test_a_driver_here_that_writes_nothing_more_is_silent_although_its_process_is_there():
    now = [0.0]
    watched = HeartbeatWatch(lambda: now[0])
    written_ms = time.time_ns() // 1_000_000
    watched.update("t", here(7), written_ms)
    assert watched.verdict("t", here(7)) is True and watched.silent_s("t") is None and watched.is_settled("t", here(7))
    watch_for(watched, now, SILENT_AFTER_S - 0.5)
    assert watched.silent_s("t") is None
    watch_for(watched, now, 1)
    assert watched.verdict("t", here(7)) is True and watched.silent_s("t") == pytest.approx(SILENT_AFTER_S + 0.5, abs=1)
    watched.update("t", here(8), written_ms)
    assert watched.silent_s("t") is None


def test_an_old_heartbeat_has_to_be_watched_before_its_driver_is_called_silent():
    now = [0.0]
    watched = HeartbeatWatch(lambda: now[0])
    watched.update("t", here(7), time.time_ns() // 1_000_000 - 160_000)  # its brokers were away, perhaps
    assert watched.silent_s("t") is None and not watched.is_settled("t", here(7))
    watch_for(watched, now, SILENT_AFTER_S)
    assert watched.silent_s("t") == pytest.approx(160 + SILENT_AFTER_S, abs=1) and watched.is_settled("t", here(7))


def test_the_timestamp_of_a_heartbeat_from_another_machine_counts_for_nothing():
    watched = HeartbeatWatch(lambda: 0.0)
    watched.update("t", remote(7), 1)
    assert watched.silent_s("t") is None and watched.verdict("t", remote(7)) is None


def test_no_driver_is_silent_because_its_brokers_were_away():
    now = [0.0]
    watched = HeartbeatWatch(lambda: now[0])
    watched.update("t", here(7))
    watched.update("elsewhere", remote(7))
    now[0] = 100.0
    watched.looked()
    assert watched.silent_s("t") is None and watched.verdict("elsewhere", remote(7)) is None
    watch_for(watched, now, SILENT_AFTER_S)
    assert watched.silent_s("t") == pytest.approx(100 + SILENT_AFTER_S)


def test_the_brokers_answer_only_if_they_have_just_done_so():
    now = [50.0]
    watch = ContactWatch(lambda: now[0])
    assert watch.contact() == (None, None, 0.0, "")
    now[0] += BROKERS_SILENT_AFTER_S
    watch.note_error(TimeoutError("no answer"))
    assert watch.contact() == (False, None, BROKERS_SILENT_AFTER_S, "no answer")
    assert watch.note_answer() is True and watch.contact()[:1] == (True,) and watch.contact().heard_ms is not None and watch.contact().why == ""
    now[0] += BROKERS_SILENT_AFTER_S - 0.1
    assert watch.contact().answer is True and watch.note_answer() is False
    now[0] += BROKERS_SILENT_AFTER_S
    assert watch.contact().answer is False and watch.note_answer() is True


def test_the_health_that_is_shown_is_the_one_that_was_told_only_while_the_driver_is_heard():
    told = {"state": "running", "why": [], "restarts": 3}
    assert seen_health(told, True) == seen_health(told, None) == told
    assert seen_health(told, True, None, Contact(True, 1, 0.2)) == told
    silent = seen_health(told, True, 31.0)
    assert silent["state"] == "silent" and "written nothing for 31 s" in silent["why"][0] and "running" in silent["why"][0] and silent["restarts"] == 3
    away = seen_health(told, True, 31.0, Contact(False, 1, 12.0))
    assert away["state"] == "unknown" and "the brokers have not answered for 12 s" in away["why"][0]
    assert seen_health({**told, "state": "stalled", "why": ["task 2 waits"]}, False)["why"] == [GONE, "task 2 waits"]
    assert seen_health(told, False)["state"] == "failed" and seen_health(None, True)["state"] == "unknown"


def test_a_topology_runs_since_its_present_process_has_started_it():
    record = {"state": {"submitted_ms": 1000}, "summary": {}}
    assert started_ms(record) == 1000 and started_ms({**record, "summary": {"started_ms": 5000}}) == 5000


# -- reports --------------------------------------------------------------------------------------


def test_reports_are_written_again_until_they_are():
    from kafka.errors import KafkaConnectionError

    told, written = [], []
    stats = TopologyStats()
    reports = DriverReports("t-1-1", stats, lambda: 5, told.append)

    def broken(key, value):
        raise KafkaConnectionError

    reports.add_error("count", "it broke")
    reports.count_restart("count")
    with pytest.raises(KafkaConnectionError):
        reports.write(broken)
    reports.write(lambda key, value: written.append((key, value)))
    reader = TopologyStats()
    for _, value in written:
        reader.feed(value)
    assert [e["error"] for e in reader.errors] == [e["error"] for e in stats.errors] == ["it broke"]
    assert reader.driver["restarts"] == {"count": 1} and reader.driver["problems"] == {"query": 1}
    reports.write(lambda key, value: written.append("again"))
    assert "again" not in written
    reports.set_health("stalled", ["task 1 does nothing"])
    reports.set_health("stalled", ["task 1 does nothing, still"])
    assert len(told) == 1 and "stalled" in told[0] and "task 1" in told[0]


def test_what_an_executor_compiles_is_shown_until_its_next_report():
    told, stats = [], TopologyStats()
    reports = DriverReports("t-1-1", stats, lambda: 5, told.append)
    watch, _ = watch_of(reports, stats, {})

    def judge(begun):
        stats.tasks.update({1: {"term": 1}} if begun else {})
        watch.report_health()
        return reports.summary()["state"], reports.summary()["why"]

    assert judge(begun=False) == ("starting", []) and not told
    stats.feed(b'{"kind": "compiling", "component": "bolt", "executor": 1, "kernel": "bolts.boolean.x_kernels.f", "time_ms": 1}', {1: "bolt"})
    why = "component 'bolt' compiles the kernel bolts.boolean.x_kernels.f; the next start finds it compiled"
    assert judge(begun=False) == ("starting", [why]) and judge(begun=True) == ("running", [why])
    assert [why in text for text in told] == [True, True], "it is said at once, and once for each state"
    report = b'{"kind": "stats", "component": "bolt", "executor": %d, "tasks": []}'
    stats.feed(report % 0)
    assert judge(begun=True) == ("running", [why])
    stats.feed(report % 1)
    assert judge(begun=True) == ("running", []) and len(told) == 2


# -- arbitrary records in the metrics topic ------------------------------------------------------


def test_a_record_of_an_unknown_task_or_of_no_shape_is_left_out_and_counted():
    stats, tasks = TopologyStats(), {1: "spout", 2: "bolt"}
    good = b'{"kind": "stats", "component": "bolt", "tasks": [{"task": 2, "component": "bolt", "emitted": {}, "received": {"1": 3}, "sent": {}, "version": 4}]}'
    bad = [
        None,
        b"",
        b"[]",
        b"no json",
        b'{"kind": "stats", "component": "bolt"}',
        b'{"kind": "stats", "component": "bolt", "tasks": [{"task": 9}]}',
        good.replace(b'"task": 2', b'"task": 9'),
        good.replace(b'"1": 3', b'"77": 3'),
        good.replace(b'"1": 3', b'"1": "x"'),
        good.replace(b'"version": 4', b'"version": -4'),
        good.replace(b'"component": "bolt", "tasks"', b'"component": "spout", "tasks"'),
        b'{"kind": "compiling", "component": "nobody", "executor": 0, "kernel": "bolts.k.f", "time_ms": 1}',
        b'{"kind": "compiling", "component": "bolt", "executor": 0, "kernel": "a kernel", "time_ms": 1}',
        b'{"kind": "compiling", "component": "bolt", "executor": 0, "kernel": "\\u001b[2J", "time_ms": 1}',
        b'{"kind": "compiling", "component": "bolt", "executor": 0, "kernel": 7, "time_ms": 1}',
        b"[" * 100_000,
    ]
    for value in bad:
        assert stats.feed(value, tasks) is None
    assert stats.unreadable == len(bad) and not stats.tasks
    assert stats.feed(good, tasks) == "bolt" and stats.tasks[2]["version"] == 4
