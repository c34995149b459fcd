"""The flow between tasks: what receivers count of each sender, over the window and in all."""

from __future__ import annotations

import json

from dskype.deploy.metrics.flows import flows
from dskype.deploy.metrics.meter import Meter


def feed(meter, time_ms, component, *tasks):
    empty = {"emitted": {}, "transferred": {}, "executed": {}, "sent": {}, "received": {}, "busy_ns": 0}
    head = {"kind": "stats", "topology": "t-1-1", "component": component, "executor": 0, "pid": 1, "time_ms": time_ms}
    meter.feed(json.dumps({**head, "tasks": [{**empty, "component": component, **task} for task in tasks]}).encode())


def test_rates_are_of_the_window_and_the_pair_that_carries_most_is_first():
    meter = Meter(10)
    assert flows(meter, 1000) == []
    for second in range(21):
        n = 5 * second if second < 11 else 50 + 20 * (second - 10)
        feed(meter, 1000 * second, "a", {"task": 1}, {"task": 2})
        feed(meter, 1000 * second, "b", *({"task": t, "executed": {"a/x": n, "a/y": n}, "received": {"1": n * t, "2": 7}} for t in (3, 4)))
        feed(meter, 1000 * second, "c", {"task": 5, "executed": {"b/z": 1}, "received": {"3": 1}})
    first, second = flows(meter, 20_000)
    assert first == {
        "source": "a",
        "target": "b",
        "senders": [1, 2],
        "receivers": [3, 4],
        "of_senders": 2,
        "of_receivers": 2,
        "tuples": [[750, 1000], [7, 7]],
        "tuples_per_second": [[60.0, 80.0], [0, 0]],
    }
    assert (second["source"], second["target"], second["senders"], second["tuples"]) == ("b", "c", [3, 4], [[1], [0]])


def test_of_many_tasks_the_busiest_are_told_apart_and_a_short_time_has_no_rates():
    meter = Meter(10)
    feed(meter, 1, "a", *({"task": t} for t in range(50)))
    feed(meter, 2, "b", *({"task": 100 + t, "executed": {"a/x": 1}, "received": {str(s): s + t for s in range(50)}} for t in range(40)))
    (found,) = flows(meter, 500)
    assert (found["senders"], found["receivers"]) == (list(range(18, 50)), list(range(108, 140)))
    assert (found["of_senders"], found["of_receivers"], found["tuples_per_second"]) == (50, 40, None)
    assert found["tuples"][0][0] == 26 and found["tuples"][-1][-1] == 88
