import json

from dskype.topology.core.stats import NewestReports, TopologyStats


def line(time_ms, execute_ns, *, executor=0, task=1, component="bolt", sent=None, received=None):
    return json.dumps(
        {
            "kind": "stats",
            "component": component,
            "executor": executor,
            "pid": 1,
            "time_ms": time_ms,
            "tasks": [
                {
                    "component": component,
                    "task": task,
                    "execute": [10, execute_ns],
                    "sent": sent or {},
                    "received": received or {},
                    "executed": {"a/default": 10, "a/__ack_ack": 5},
                }
            ],
        }
    ).encode()


def test_capacity_is_the_share_of_time_inside_execute_of_the_busiest_executor():
    stats = TopologyStats()
    for second in range(100):
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


def test_a_report_of_an_executor_with_nothing_to_do_is_written_again_before_it_is_dropped():
    reports, stats = NewestReports(300), TopologyStats()

    def hear(key, value, now_s):
        stats.feed(value)
        reports.remember(key, value, now_s)

    idle, busy = line(1000, 5, task=1), line(1000, 7, task=2, executor=1)
    hear(b"bolt/0", idle, 0)
    hear(b"bolt/1", busy, 0)
    hear(None, b'{"kind": "error", "component": "bolt"}', 0)
    hear(b"bolt/1", line(250_000, 9, task=2, executor=1), 249)
    assert reports.due(stats, 299) == []
    assert reports.due(stats, 300) == [(b"bolt/0", idle)]
    hear(b"bolt/0", idle, 301)  # a record that was written again is received again
    assert reports.due(stats, 400) == []


def test_a_report_of_tasks_that_are_elsewhere_now_is_not_written_again():
    reports, stats = NewestReports(300), TopologyStats()
    for key, value in ((b"bolt/1", line(1000, 7, task=2, executor=1)), (b"bolt/0", line(2000, 9, task=2, executor=0))):
        stats.feed(value)
        reports.remember(key, value, 0)
    assert [key for key, _ in reports.due(stats, 300)] == [b"bolt/0"]
    assert [key for key, _ in reports.due(stats, 300)] == [b"bolt/0"]


def test_a_report_that_comes_late_changes_nothing():
    """A replaced process may run for a while, and its records may arrive at any time."""

    def line(term, topology="t-1", **task):
        return json.dumps({"kind": "stats", "topology": topology, "term": term, "component": "in", "tasks": [{"task": 1, **task}]}).encode()

    stats = TopologyStats()
    for newer, older in [
        (line(2, entry=7, version=5), line(2, entry=6, version=5)),
        (line(2, entry=7, version=8), line(2, entry=7, version=7)),
        (line(3, entry=7, version=8), line(2, entry=9, version=9)),
    ]:
        stats.feed(newer)
        stats.feed(older)
        known = stats.tasks[1]
        assert (known["entry"], known["version"]) == (json.loads(newer)["tasks"][0]["entry"], json.loads(newer)["tasks"][0]["version"])
    stats.feed(line(1, "t-2", version=1))  # another topology
    assert stats.tasks[1]["version"] == 1


def test_a_report_of_a_restored_task_is_no_sign_of_a_batch():
    def reported(*reports):
        stats = TopologyStats()
        for term, restored in reports:
            record = json.loads(line(1000, 0)) | {"term": term}
            record["tasks"][0] |= {"restored": True} if restored else {}
            stats.feed_record(record)
        return stats.reported(2)

    assert reported((2, False)) == reported((2, True), (2, False)) == reported((2, False), (2, True)) == {1}
    assert not reported((1, False)) and not reported((2, True)) and not reported((1, False), (2, True), (2, True))
