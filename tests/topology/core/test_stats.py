import json

from dskype.topology.core.stats import TopologyStats


def line(time_ms, execute_ns, *, executor=0, task=1, component="bolt", sent=None, received=None):
    return json.dumps({"kind": "stats", "component": component, "executor": executor, "pid": 1, "time_ms": time_ms, "tasks": [
        {"component": component, "task": task, "execute": [10, execute_ns], "sent": sent or {}, "received": received or {},
         "executed": {"a/default": 10, "a/__ack_ack": 5}}]}).encode()


def test_capacity_is_the_share_of_time_inside_execute_of_the_busiest_executor():
    stats = TopologyStats()
    for second in range(0, 100):
        stats.feed(line(second * 1000, second * 250_000_000))
        stats.feed(line(second * 1000, second * 700_000_000, executor=1, task=2))
    assert abs(stats.capacity("bolt") - 0.7) < 1e-9
    assert stats.capacity("other") == 0.0


def test_capacity_looks_back_ten_minutes():
    stats = TopologyStats()
    for second in range(0, 3000, 5):
        stats.feed(line(second * 1000, min(second, 1000) * 1_000_000_000))
    assert stats.capacity("bolt") == 0.0


def test_undelivered_tuples_are_what_was_sent_and_not_received():
    stats = TopologyStats()
    stats.feed(line(0, 0, task=1, sent={"2": 100}))
    assert stats.undelivered_tuples() == 100
    stats.feed(line(0, 0, task=2, component="sink", received={"1": 60}))
    assert stats.undelivered_tuples() == 40


def test_totals_leave_system_streams_out():
    stats = TopologyStats()
    stats.feed(line(0, 0))
    assert stats.total("bolt", "executed") == 10
    assert stats.total("bolt", "executed", "a/__ack_ack") == 5


def test_unreadable_records_are_left_out():
    assert TopologyStats().feed(b"\xff{") is None
