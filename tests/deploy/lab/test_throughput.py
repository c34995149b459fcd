"""The throughput benchmark: what it computes from reports, records and processes. Running it is not tested here."""

from __future__ import annotations

import argparse
import json
import os
import random
import time

import numpy as np
import pytest
import yaml

from dskype.deploy.cli.arguments import UsageError, common
from dskype.deploy.client.sequence import sequence_numbers
from dskype.deploy.lab.system import throughput, throughput_report
from dskype.deploy.lab.system.feeder import due
from dskype.deploy.lab.system.latencies import Latencies, quantile
from dskype.deploy.lab.system.throughput_arguments import boolean_shape
from dskype.deploy.lab.system.usage import (
    BENCHMARK,
    BROKER,
    PRODUCER,
    PYTHON,
    SNAPSHOTS,
    SPARK,
    SUPERVISOR,
    Meter,
    Process,
    busy_seconds,
    by_kind,
    kinds,
    usage,
)
from dskype.deploy.metrics.history import History
from dskype.topology.core.frames import DataFrame, Segment, decode_frame, encode_data, encode_segment, encode_watermark
from dskype.topology.tuples import InRecord

BOLT = "subscription-bolt"


def report(time_ms, component, *tasks, pid=1):
    return json.dumps({"v": 1, "kind": "stats", "component": component, "executor": 0, "pid": pid, "time_ms": time_ms, "tasks": list(tasks)}).encode()


def watermark(task, w, **more):
    return {"task": task, "component": BOLT, "watermark": w, **more}


# --- reports over time ------------------------------------------------------------------------------------------------


def test_the_slowest_task_counts_and_progress_is_even_between_reports():
    history = History()
    history.feed(report(1000, BOLT, watermark(4, None), watermark(5, None)))
    assert history.applied(BOLT, 1000, 2) == 0
    history.feed(report(2000, BOLT, watermark(4, 99)))
    assert history.applied(BOLT, 2000, 2) == 0
    history.feed(report(2000, BOLT, watermark(5, 199)))
    history.feed(report(4000, BOLT, watermark(4, 499), watermark(5, 299)))
    assert history.applied(BOLT, 2000, 2) == 100
    assert history.applied(BOLT, 2500, 2) == 200  # task 4
    assert history.applied(BOLT, 3500, 2) == 275 + 0  # task 5
    assert history.applied(BOLT, 9000, 2) == 300
    assert history.applied(BOLT, 4000, 3) == 0  # a third task has not reported


def test_rates_are_those_of_whole_windows():
    history = History()
    for second in range(10):
        history.feed(report(second * 1000, BOLT, watermark(1, second * (200 if second < 5 else 100) + (0 if second < 5 else 500) - 1)))
    assert history.rates(BOLT, 0, 9500, 2000) == [200.0, 200.0, pytest.approx(150.0), 100.0]
    assert history.rates(BOLT, 0, 1500, 2000) == []


def test_numbers_are_interpolated_as_by_numpy():
    rng = random.Random(5)
    history, times, counts, t, n = History(), [], [], 0, 0
    for _ in range(50):
        t, n = t + rng.randrange(100, 900), n + rng.randrange(0, 100)
        times.append(t)
        counts.append(n)
        history.feed(report(t, "bolt", {"task": 3, "emitted": {"x": n, "y": 1}, "busy_ns": 2 * n, "active": True}))
    for at in [0, times[0], times[-1], times[-1] + 1000, *(rng.randrange(0, t) for _ in range(200))]:
        assert history.value_at(3, "emitted/x", at) == pytest.approx(np.interp(at, times, counts))
    assert history.growth("bolt", "busy_ns", times[3], times[7]) == 2 * (counts[7] - counts[3])
    assert history.total("bolt", "emitted/x") == n and history.last_ms("bolt") == t
    assert history.keys("bolt", "emitted/") == {"emitted/x", "emitted/y"}
    assert history.value_at(3, "unknown", 500) is None and history.value_at(4, "busy_ns", 500) is None and history.growth("other", "busy_ns", 0, 1) == 0


def test_the_largest_step_is_that_of_one_task_between_two_reports():
    history = History()
    assert history.largest_step(BOLT, "watermark") == 0
    for t, marks in ((1000, (None, 9)), (2000, (None, 59)), (3000, (99, 60)), (4000, (129, 61))):
        history.feed(report(t, BOLT, watermark(4, marks[0]), watermark(5, marks[1])))
    assert history.largest_step(BOLT, "watermark") == 50


def test_reports_that_are_close_together_are_thinned_out_and_the_newest_stays():
    history = History()
    for t in range(0, 1000, 7):
        history.feed(report(t, "bolt", {"task": 3, "n": t}))
        assert history.total("bolt", "n") == t
    assert len(history._times[3]) < 30
    assert all(history.value_at(3, "n", t) == pytest.approx(t) for t in range(0, 990, 13))


def test_executors_and_errors_are_remembered():
    history = History()
    history.feed(report(1, "a", {"task": 1}, pid=17))
    history.feed(report(1, "b", {"task": 2}, pid=18))
    history.feed(json.dumps({"kind": "error", "component": "a", "error": "no"}).encode())
    history.feed(report(5, "a", {"task": 1}, pid=17))
    history.feed(json.dumps({"kind": "stats", "component": "a", "executor": 1, "pid": 19, "time_ms": 5, "tasks": [{"task": 3}]}).encode())
    assert history.batches("a", 0, 10) == 2 and history.batches("a", 1, 5) == 1 and history.batches("b", 2, 9) == history.batches("c", 0, 9) == 0
    assert history.pids == {17: "a", 18: "b", 19: "a"} and [e["error"] for e in history.errors] == ["no"]


# --- latencies --------------------------------------------------------------------------------------------------------


def delta(watermark, message, op="add", subscription="s1"):
    rest = ',"score":0.5,"rank":1' if op == "add" else ""
    return f'{{"v":1,"subscription":"{subscription}","watermark":{watermark},"op":"{op}","message":{message}{rest}}}'.encode()


def test_a_messages_latency_is_that_of_its_first_delta():
    found = Latencies({7: (1000, b"17"), 8: (1010, b'"a,b"'), 9: (1020, b"19"), 10: (1030, b"20")})
    found.add_delta(delta(7, 17), 1500)
    found.add_delta(delta(7, 17), 1400)
    found.add_delta(delta(7, 3, "remove"), 1100)
    found.add_delta(delta(8, '"a,b"'), 1210)
    found.add_delta(delta(9, 17), 1300)  # an older message: the subscription was pending
    found.add_delta(delta(6, 16), 1300)  # not one of those that are looked at
    found.add_delta(delta(10, 20, "match"), 1300)
    assert found.first == {7: 400, 8: 200} and sorted(found.all) == [200, 400, 500]
    summary = found.summary()
    assert summary["messages"] == 4 and summary["messages_with_results"] == 2 and summary["deltas"] == 7
    assert summary["first_p50_ms"] == 300 and summary["first_p99_ms"] == summary["first_max_ms"] == 400 and summary["deltas_p50_ms"] == 400
    assert Latencies({}).summary()["first_p50_ms"] is None


def test_enter_and_leave_count_and_what_is_inside_does_not():
    found = Latencies({7: (1000, b'"0-7"'), 8: (1010, b'"0-8"'), 9: (1020, b'"0-9"')}, "enter", "leave")
    for watermark, op, at in ((7, "leave", 1030), (7, "enter", 1040), (8, "inside", 1050), (9, "enter", 1060)):
        found.add_delta(f'{{"v":1,"subscription":"s","watermark":{watermark},"op":"{op}","message":"0-{watermark}","object":"bus"}}'.encode(), at)
    assert found.first == {7: 30, 9: 40} and sorted(found.all) == [30, 40, 40]


def test_lists_count_with_the_messages_that_came_after_the_last_one():
    from dskype.bolts.results.formats import heads, state_values

    def state(watermark, *messages, subscription='s1,"topk":['):
        texts = [json.dumps(m) for m in messages]
        (value,) = state_values(heads([subscription], ["0-1"]), [watermark], [0, len(texts)], texts, [0.5] * len(texts)).to_pylist()
        return value.encode()

    odd = 'a",b{"message":"c'
    found = Latencies({7: (1000, b"17"), 8: (1010, json.dumps(odd).encode()), 9: (1020, b"19")})
    found.add_list(state(7, 17, 3, 19), 1400)  # not this 19: it is still to come
    found.add_list(state(9, odd, 17), 2010)
    found.add_list(state(20, odd, 19), 9000)  # 19 was there at 9 already: it has moved up
    found.add_list(state(8, 17, subscription="s2"), 2000)
    found.add_list(state(10, subscription="s3"), 2000)
    found.add_list(None, 2000)
    summary = found.summary()
    assert found.first == {7: 400, 8: 1000} and summary["lists"] == 6 and summary["lists_p50_ms"] == 1000 and summary["deltas_p50_ms"] is None


def test_deltas_of_the_product_are_read():
    from dskype.bolts.results.events import ADD
    from dskype.bolts.results.formats import delta_records
    from tests.bolts.results.batches import batch

    found = Latencies({70: (100, b'"x"'), 71: (100, b"18")})
    names, metas = ['we"ird,"op":"add"', "s2"], ['{"op":"add"}', None]
    given = batch(names, ["0-1", "0-2"], [ADD, ADD], [70, 71], ['"x"', "18"], [0.25, 1e-9], [1, 2], metas)
    for value in delta_records(given).values.to_pylist():
        found.add_delta(value.encode(), 150)
    assert found.first == {70: 50, 71: 50}


def test_the_latency_to_a_match_is_that_of_the_first_match():
    found = Latencies({7: (1000, b"17"), 8: (1010, b'"a,b"'), 9: (1020, b"1")}, "match")
    found.add_delta(delta(7, 17, "match"), 1500)
    found.add_delta(delta(7, 17, "match", "s2")[:-1] + b',"meta":{"op":"match"}}', 1400)
    found.add_delta(delta(8, '"a,b"', "match"), 1210)
    found.add_delta(delta(8, '"a,b"', "add"), 1100)
    found.add_delta(delta(9, 17, "match"), 1300)
    assert found.first == {7: 400, 8: 200} and sorted(found.all) == [200, 400, 500] and found.records == 5


def test_a_group_of_matches_counts_once_with_its_size():
    found = Latencies({7: (1000, b"17")}, "match")
    found.add_group(b'{"v":1,"message":17,"watermark":7,"task":3,"subscriptions":["a","b"]}', 1300)
    found.add_group(b'{"v":1,"message":18,"watermark":8,"task":3,"subscriptions":["a"]}', 1400)
    assert found.first == {7: 300} and found.matches == 3 and found.all == [300]


def test_groups_are_cut_to_the_subscriptions_that_are_looked_at():
    record = InRecord("t", 0, 7, 1, b"17", b'{"v":1,"message":17,"watermark":7,"task":3,"subscriptions":["a","\xc3\xa9","c"]}', [("x", b"y")])
    cut = throughput.fewer_matches(record, {"é".encode(), b"a"})
    assert (
        json.loads(cut.value) == {"v": 1, "message": 17, "watermark": 7, "task": 3, "subscriptions": ["a", "é"]} and cut._replace(value=record.value) == record
    )
    assert throughput.fewer_matches(record, {b"b"}) is None


def test_quantiles_are_values_that_occurred():
    values = [5, 1, 4, 2, 3]
    assert quantile(values, 0.5) == 3 and quantile(values, 0.99) == 5 and quantile(values, 0.2) == 1 and quantile(values, 0.21) == 2
    assert quantile(range(1, 1001), 0.99) == 990 and quantile([], 0.5) is None


def test_sequence_numbers_follow_the_recorded_runs():
    runs = [
        {"partition": 0, "offset": 5, "first": 4, "n": 3},
        {"partition": 0, "offset": 0, "first": 0, "n": 4},
        {"partition": 1, "offset": 9, "first": 100, "n": 4},
        {"partition": 0, "offset": 20, "first": 8, "n": 3, "step": 2},
    ]
    number = sequence_numbers(runs)
    assert [number(o) for o in range(9)] == [0, 1, 2, 3, None, 4, 5, 6, None]
    assert [number(o) for o in (19, 20, 21, 22, 23)] == [None, 8, 10, 12, None]


# --- processes --------------------------------------------------------------------------------------------------------


def tree():
    rows = [
        (1, 0, "init", b""),
        (10, 1, "python", b"python -m bench"),
        (11, 10, "java", b"java kafka.Kafka server.properties"),
        (12, 10, "java", b"java spark"),
        (13, 10, "python", b"python -m dskype.deploy.lab.system.feeder"),
        (14, 12, "python", b"python -m dskype.topology.runtime.processes.daemon"),
        (15, 14, "dskype-superv", b"python -m dskype.topology.runtime.processes.daemon"),
        (16, 14, "python", b"python -m dskype.topology.runtime.processes.daemon"),
        (17, 15, "dsk:subscriptio", b"python -m dskype.topology.runtime.processes.daemon"),
        (18, 15, "dsk:message-bol", b"python -m dskype.topology.runtime.processes.daemon"),
        (19, 17, "dsk:subscriptio", b"python -m dskype.topology.runtime.processes.daemon"),
        (20, 12, "chmod", b"chmod"),
        (30, 1, "java", b"java kafka.Kafka"),
    ]
    return {pid: Process(pid, parent, name, command, float(pid), 0.5, pid * 100) for pid, parent, name, command in rows}


def test_every_process_belongs_to_a_part():
    found = kinds(tree(), 10, {17: "subscription-bolt", 18: "message-bolt"})
    assert found == {
        10: BENCHMARK,
        11: BROKER,
        12: SPARK,
        13: PRODUCER,
        14: PYTHON,
        15: SUPERVISOR,
        16: PYTHON,
        17: "subscription-bolt",
        18: "message-bolt",
        19: SNAPSHOTS,
        20: SPARK,
    }


def test_ended_snapshot_writers_do_not_count_for_the_component():
    components = {17: "subscription-bolt", 18: "message-bolt"}
    table = tree()
    found = by_kind(table, kinds(table, 10, components), components)
    assert found["subscription-bolt"].cpu_s == 17 and found["message-bolt"].cpu_s == 18
    assert found[SNAPSHOTS].cpu_s == 19 + 0.5 + 0.5 + 0.5 and found[SNAPSHOTS].count == 1
    assert found[SPARK].cpu_s == 12 + 20 + 1 and found[SPARK].rss == 3200 and found[SPARK].count == 2
    whole = sum(p.cpu_s + p.reaped_s for pid, p in table.items() if pid not in (1, 30))
    assert sum(u.cpu_s for u in found.values()) == pytest.approx(whole)


def test_this_process_is_found_with_its_memory():
    found = usage({}, memory=True)[BENCHMARK]
    assert found.cpu_s > 0 and found.count >= 1 and found.rss > 1 << 20 and 0 <= found.pss <= found.rss
    assert usage({os.getpid(): "x"})[BENCHMARK].rss > 0  # the root stays what it is


def test_a_machines_work_is_all_but_waiting():
    ticks = os.sysconf("SC_CLK_TCK")
    assert busy_seconds("cpu  100 20 30 100000 5000 4 3 2 50 0") * ticks == pytest.approx(159)
    assert busy_seconds() > 0


def test_a_meter_takes_what_is_spent_between():
    meter = Meter({})
    until = time.process_time() + 0.05
    while time.process_time() < until:
        pass
    meter.stop(memory=True)
    assert 0.02 <= meter.used[BENCHMARK].cpu_s < 30 and meter.used[BENCHMARK].rss > 0
    assert meter.cpu_s == pytest.approx(sum(entry.cpu_s for entry in meter.used.values()))  # a broker of other tests may run below this process
    assert meter.stop_ms >= meter.start_ms and meter.seconds > 0 and meter.others_s >= 0


# --- topology, options, sizes ---------------------------------------------------------------------------------------------


def test_the_topology_gets_its_name_topics_and_tasks():
    found = yaml.safe_load(throughput.definition(throughput._TOPOLOGY.read_text(), "bench-7", {BOLT: 3, "message-spout": 2}))
    assert found["name"] == "bench-7"
    assert [s["constructorArgs"] for s in found["spouts"]] == [["bench-7.messages"], ["bench-7.subscriptions", {}, "bench-7.plans", "bench-7.searches"]]
    counts = {c["id"]: c["parallelism"] for c in [*found["spouts"], *found["bolts"]]}
    assert counts[BOLT] == 3 and counts["message-spout"] == 2 and counts["message-bolt"] == 1
    with pytest.raises(UsageError, match="--tasks: expected one of message-spout, .*; given: no-bolt"):
        throughput.definition(throughput._TOPOLOGY.read_text(), "b", {"no-bolt": 2})


def test_the_topology_is_what_flux_builds():
    from dskype.deploy.machine.registry import registry
    from dskype.topology.flux import load

    flux = load(throughput.definition(throughput._TOPOLOGY.read_text(), "bench-7", {BOLT: 3}), registry=registry(), config={"dskype.window.messages": 9})
    assert flux.name == "bench-7" and flux.config["dskype.window.messages"] == 9
    assert flux.topology.components["message-spout"].obj.topics == ["bench-7.messages"]
    assert flux.topology.components[BOLT].parallelism_hint == 3


def arguments(*given):
    parser = argparse.ArgumentParser(allow_abbrev=False)
    common(parser)
    throughput.add_arguments(parser)
    return parser.parse_args(given)


def test_options_lie_over_the_file_and_conf_over_the_options(tmp_path):
    args = arguments(
        "--subscriptions",
        "10_000,5",
        "--results",
        "topk",
        "--index",
        "igpt",
        "--tasks",
        "subscription-bolt=4",
        "--conf",
        "dskype.index=taat",
        "-c",
        "dskype.buffer=skyband",
        "-c",
        "spark.x=1",
    )
    assert args.subscriptions == [10000, 5] and args.tasks == [(BOLT, 4)]
    conf = throughput.configuration(args, tmp_path / "v.tsv")
    assert conf == {
        "dskype.window.messages": 20000,
        "dskype.vocabulary": str(tmp_path / "v.tsv"),
        "dskype.results": "topk",
        "dskype.index": "taat",
        "dskype.buffer": "skyband",
    }
    assert str(tmp_path) not in json.dumps(throughput.settings(args, conf))
    assert arguments().subscriptions == [10_000, 100_000]


def test_boolean_subscriptions_have_an_index_and_a_way_to_publish_of_their_own(tmp_path, capsys):
    args = arguments("--boolean", "--index", "plain", "--matches", "grouped")
    conf = throughput.configuration(args, tmp_path / "v.tsv")
    assert conf["dskype.boolean.index"] == "plain" and conf["dskype.results.matches"] == "grouped" and "dskype.index" not in conf
    assert throughput.settings(args, conf)["boolean"] is True
    throughput_report.print_tables({"machine": throughput_report.machine(), "settings": throughput.settings(args, {}), "runs": [one_run()]})
    assert "squares of 1 to 50 km, 1 to 5 keywords" in capsys.readouterr().out
    shaped = arguments("--boolean", "--side", "0.5", "--keywords", "3")
    throughput_report.print_tables({"machine": throughput_report.machine(), "settings": throughput.settings(shaped, {}), "runs": [one_run()]})
    assert "sides of 0.5 % of the space's, 3 keywords" in capsys.readouterr().out
    assert boolean_shape(shaped) == {"space_share": 0.005, "keywords": (3, 3)} and boolean_shape(args) == {"space_share": None, "keywords": (1, 5)}
    with pytest.raises(SystemExit):
        arguments("--keywords", "5,1")


def test_boolean_subscriptions_are_drawn_from_places():
    import pyarrow as pa

    from dskype.deploy.demo.places import Places
    from dskype.deploy.lab.boolean.records import boolean_records
    from dskype.spouts.records import parse_subscription
    from dskype.spouts.text import Tokenizer
    from dskype.topology.errors import IllegalArgumentException

    texts = ["New York, New York", "!!!", 'Limón "Costa" Rica', "São Tomé"]
    names = pa.array(texts)
    whole = Places(pa.array(["1", "2", "3", "4"]), names, np.array([40.7, 0.0, 10.0, 89.99]), np.array([-74.0, 0.0, 179.99, 6.7]), names, names)
    drawn = list(boolean_records(whole, 5000, 3))
    assert drawn == list(boolean_records(whole, 5000, 3, **boolean_shape(arguments())))
    shaped = [json.loads(value) for _, value in boolean_records(whole, 50, 3, space_share=0.01, keywords=(1, 1))]
    assert all(len(one["keywords"]) == 1 for one in shaped)
    width, height = 0.01 * np.ptp(whole.lon), 0.01 * np.ptp(whole.lat)
    for west, south, east, north in (one["bbox"] for one in shaped if one["bbox"][3] < 90):
        assert (east - west) % 360 == pytest.approx(width, abs=1e-5) and north - south == pytest.approx(height, abs=1e-5)
    assert drawn[:7] == list(boolean_records(whole, 7, 3)) and drawn[:7] != list(boolean_records(whole, 7, 4))
    assert [id for id, _ in drawn[:3]] == ["s0", "s1", "s2"] and len({id for id, _ in drawn}) == 5000
    tokens = [set(Tokenizer().tokens(text)) for text in texts]
    crossing = 0
    for id, value in drawn:
        found = parse_subscription(id.encode(), value, tokenizer=Tokenizer())
        words = set(found.expression[1:] if isinstance(found.expression, list) else [found.expression])
        assert any(words <= own for own in tokens) and len(words) <= 5
        west, south, east, north = found.bbox
        crossing += west > east
        assert 1 <= (north - south) * 111.195 <= 50.001 or north == 90
    assert crossing > 500
    with pytest.raises(IllegalArgumentException, match="no message with keywords"):
        list(boolean_records(whole.slice(1, 2), 1))


@pytest.mark.parametrize("given", [["--subscriptions", "0"], ["--subscriptions", "1,x"], ["--results", "all"], ["--tasks", "a"], ["--seconds", "0"]])
def test_options_that_make_no_sense_are_refused(given, capsys):
    with pytest.raises(SystemExit):
        arguments(*given)
    assert given[0] in capsys.readouterr().err


@pytest.mark.parametrize("share", [0.0, 1.5, float("nan")])
def test_a_load_for_latencies_is_a_share(share):
    with pytest.raises(UsageError, match="--latency-load"):
        throughput.run(arguments("--latency-load", str(share)))


def test_messages_are_due_evenly_and_all_of_them_in_the_end():
    assert [due(100, t, 2) for t in (0, 0.005, 0.01, 1.995, 2.0, 2.7)] == [0, 0, 1, 199, 200, 200]


def test_the_bytes_of_a_frames_segments_are_those_on_the_wire():
    columns = [np.arange(5), ["a", None, "é", "", "x" * 300], np.zeros(5)]
    segments = [encode_segment("a", 5, columns, None), encode_watermark(17), encode_segment("b", 1, [[1]], None), encode_segment("a", 1, None, None)]
    frame = decode_frame(encode_data(3, 0, segments))
    assert throughput.segment_bytes(frame) == [("a", 5, len(segments[0])), ("b", 1, len(segments[2])), ("a", 1, len(segments[3]))]
    assert throughput.segment_bytes(DataFrame(3, 0, [Segment(None, watermark=4)])) == []


def test_the_newest_snapshot_counts(tmp_path):
    assert throughput._newest_bytes(tmp_path / "none") == 0
    for name, size in (
        ("journal-00000000000000000009", 7),
        ("snapshot-00000000000000000010", 3),
        ("snapshot-00000000000000000002", 5),
        (".snapshot-00000000000000000011.77", 9),
    ):
        (tmp_path / name).write_bytes(b"x" * size)
    assert throughput._newest_bytes(tmp_path) == 3


# --- tables -----------------------------------------------------------------------------------------------------------


def one_run(**more):
    process = {"cpu_us_per_message": 10.0, "cores": 0.5, "processes": 1, "rss_bytes": 3 << 20, "pss_bytes": 2 << 20}
    component = {
        "tasks": 2,
        "busy_us_per_message": 4.0,
        "busy_cores": 0.2,
        "in_bytes_per_message": 300.0,
        "out_bytes_per_message": 10.0,
        "frames_per_message": 0.01,
        "batches_per_s": 7.5,
        "snapshot_bytes": 1 << 20,
        "metrics_per_message": {"deltas": 12.5, "states": 2.0, "evaluations": 0.01},
    }
    return {
        "subscriptions": 10_000,
        "load_average": [0.5, 1.9],
        "input": {"messages": 5, "message_bytes": 120.0},
        "all_active_s": 3.2,
        "messages_per_s": 4321.0,
        "mean_per_s": 4333.0,
        "windows": [4000.0, 4321.0, 5000.0],
        "measured_s": 6.0,
        "applied": 26000.0,
        "lowest_backlog": 9000,
        "other_cores": 0.75,
        "waiting": {"message-spout": 8000.0, BOLT: 512.0},
        "errors": [],
        "dead_letters": 0,
        "restarts": 0,
        "processes": {"Spark (JVM)": process, BOLT: {**process, "cpu_us_per_message": 30.0}},
        "components": {BOLT: component},
        "streams": [{"from": "message-spout", "stream": "messages", "tuples_per_message": 1.0, "bytes_per_tuple": 130.0, "bytes_per_message": 130.0}],
        **more,
    }


def test_the_tables_say_what_was_measured(capsys):
    latency = {
        "rate": 2160.5,
        "behind_at_end": 40,
        "cores": {"broker": 0.25},
        "other_cores": 0.5,
        "messages": 100,
        "messages_with_results": 75,
        "first_p50_ms": 240,
        "first_p99_ms": 410.0,
        "first_max_ms": 500,
        "deltas": 900,
        "deltas_p50_ms": 260,
        "deltas_p99_ms": 430,
        "lists": 80,
        "lists_p50_ms": 700,
        "lists_p99_ms": 1400,
        "applied_per_s": 2150.0,
        "components": one_run()["components"],
    }
    args = arguments()
    found = {
        "machine": throughput_report.machine(),
        "settings": throughput.settings(args, {"dskype.window.messages": 20000}),
        "runs": [one_run(latency=latency, delta_bytes=100.0), one_run(subscriptions=100_000, messages_per_s=0.0, windows=[])],
    }
    throughput_report.print_tables(found)
    printed = capsys.readouterr().out
    for text in (
        "machine: ",
        "window 20,000 messages, k = 20",
        "4,321",
        "4,000 - 5,000",
        "100,000",
        "12.5",
        "240",
        "410",
        "75%",
        "2,160",
        "0.5 - 1.9",
        "Spark (JVM)",
        "25%",
        "1,250",
    ):
        assert text in printed, text
    assert max(map(len, printed.splitlines()[2:])) <= 140
    json.dumps(found)


def test_figures_that_are_not_to_be_trusted_are_named(capsys):
    assert throughput.problems(one_run()) == []
    assert throughput.problems(one_run(errors=["a", "b"], dead_letters=2.0, restarts=1)) == ["2 errors", "2 dead letters", "1 restarts of queries", "b"]
    verified = {"ok": False, "subscriptions": 100, "differences": ["state: x", "state: y"]}
    assert throughput.problems(one_run(verified=verified)) == ["published results differ from a plain computation", "state: x"]
    run = one_run(verified={**verified, "ok": True})
    assert throughput.problems(run) == []
    throughput_report.print_tables({"machine": throughput_report.machine(), "settings": throughput.settings(arguments("--verify"), {}), "runs": [run]})
    assert "100 subscriptions: all equal" in capsys.readouterr().out


def test_nothing_applied_is_no_error_of_the_tables(capsys):
    run = one_run(messages_per_s=0.0, windows=[], lowest_backlog=float("inf"))
    for part in ("processes", "components", "streams"):
        del run[part]
    throughput_report.print_tables({"machine": throughput_report.machine(), "settings": throughput.settings(arguments(), {}), "runs": [run]})
    assert "messages/s" in capsys.readouterr().out
