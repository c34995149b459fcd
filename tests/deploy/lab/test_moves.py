"""The benchmark of moves: which cells move, what centralized balancing would send, and what is claimed."""

import json
import time
from types import SimpleNamespace

import numpy as np
import pytest

from dskype.deploy.cli.main import main
from dskype.deploy.demo import places
from dskype.deploy.lab.system import feeder, moves, moves_scenes, throughput
from dskype.deploy.lab.system.latencies import Latencies
from dskype.distribution import make_distributor, read_plan
from dskype.topology.errors import TopologyError

from .reported import parsed

LAT, LON = (axis.ravel() for axis in np.meshgrid(np.linspace(-89, 89, 40), np.linspace(-179, 179, 40)))


@pytest.mark.parametrize("tasks", [2, 3, 4, 5, 7])
def test_a_border_goes_to_and_fro_between_two_quantiles(tasks):
    plan = make_distributor("agrid", tasks, {"granularity": 60}).plan()
    for quantile in (0.65, 0.35, 0.65, 0.35):
        before = make_distributor("agrid", tasks, None, plan).partitions()
        plan = moves_scenes.shifted(plan, LAT, LON, quantile)
        after = make_distributor("agrid", tasks, None, plan)
        cells = [part["cells"] for part in after.partitions()]
        assert cells[:2] != [part["cells"] for part in before[:2]] and cells[2:] == [part["cells"] for part in before[2:]]
        found = np.bincount(after.grid.locate(LAT, LON), minlength=tasks)[:2]
        assert found[0] / found.sum() == pytest.approx(quantile, abs=0.05)


def test_centralized_balancing_sends_a_cell_once():
    distributor = make_distributor("agrid", 2, {"granularity": 10})
    assert moves_scenes.cell_bytes(distributor, np.array([0.0, 0.1, 50, -50]), np.array([0.0, 0.1, 100, 100])) == 3 * 12


def test_a_claim_is_told_with_its_figures():
    rows = [{"before": 100.0, "during": 90.0}, {"before": 100.0, "during": 60.0}]
    sent = {"reports_bytes_per_s": 30.0, "plans_bytes_per_s": 20.0, "centralized_bytes_per_s": 900.0}
    found = moves.claims({"by hand": {"moves": rows}, "with balancing": {"balancing": sent}})
    assert [held for _, held, _ in found] == [True, False]
    assert found[0][2] == "90%, 60%: mean 75%" and found[1][2] == "50 bytes/s against 900: 1/18"
    assert moves.claims({}) == []


def test_hybrid_partitioning_is_judged_by_the_figures_of_ps2stream():
    late = [{"below_100_ms": 0.9, "above_1_s": 0.01}, {"below_100_ms": 0.8, "above_1_s": 0.03}]
    phases = [{"phase": "hotspot 2", "later_per_s": 100.0}, {"phase": "hotspot 1, steady rate", "later_per_s": 50.0}]
    better = [{**phases[0], "later_per_s": 130.0}, phases[1]]
    scenes = {"by hand": {"moves": late}, "without balancing": {"phases": phases}, "with balancing": {"phases": better, "moves": []}}
    found = moves.claims(scenes, "hybrid")
    assert [held for _, held, _ in found] == [True, True]
    assert found[0][2] == "85.0%, 2.0% above 1 s, mean of 2 adjustments" and found[1][2] == "130 : 100 = 1.30"
    late[0]["above_1_s"], better[0]["later_per_s"] = 0.2, 120.0
    assert [held for _, held, _ in moves.claims(scenes, "hybrid")] == [False, False]
    assert moves.claims({}, "hybrid") == moves.claims(scenes) == []


def test_messages_of_a_span_are_told_by_how_long_they_waited():
    latencies = Latencies({number: (1000 + number, b"1") for number in range(6)}, "match")
    latencies.first = {0: 5, 1: 99, 2: 100, 3: 1000, 4: 7}
    assert latencies.first_between(1000, 1004) == [5, 99, 100, 1000]
    assert moves_scenes._shares(latencies, (1000, 1004)) == {"below_100_ms": 0.5, "to_1_s": 0.25, "above_1_s": 0.25}
    assert moves_scenes._shares(latencies, (1005, 1006)) == {}


@pytest.mark.parametrize("name", ["agrid", "hybrid"])
def test_partitions_that_another_plan_does_not_have_are_counted(name):
    distributor = make_distributor(name, 3, {"granularity": 60})
    plan = distributor.plan()
    halved = distributor.split(0, 1) if name == "hybrid" else moves_scenes.shifted(plan, LAT, LON, 0.65)
    assert moves_scenes.changed_partitions(plan, plan) == 0 and moves_scenes.changed_partitions(plan, halved) == 2
    if name == "hybrid":
        assert moves_scenes.changed_partitions(plan, distributor.divide(0, 2)) == 2


class Reports:
    """Two distribution tasks that route by plan 1 from 3000 and 4000 on, and by plan 2 from 9000 on; a report comes every second."""

    def tasks(self, component):
        return [1, 2]

    def last_ms(self, component):
        return 10_000

    def value_at(self, task, key, at):
        over = (3000 if task == 1 else 4000, 9000)
        return sum(at >= one for one in over) if key.endswith("version") else int(not any(one <= at < one + 4500 for one in over))

    def growth(self, component, key, start_ms, stop_ms):
        return stop_ms - start_ms


def scene_with(plans, monkeypatch):
    """Return a scene that has measured plans, (time in ms, version, plan) each."""
    scene = object.__new__(moves_scenes.Scene)
    scene.options, scene.result, scene.history, scene.topics = SimpleNamespace(seconds=2), {"steady_ms": 8000}, Reports(), SimpleNamespace(plans="plans")
    records = [SimpleNamespace(timestamp=at, value=json.dumps({"v": 1, "version": version, "plan": plan}).encode()) for at, version, plan in plans]
    monkeypatch.setattr(scene, "_read", lambda topic: records, raising=False)
    monkeypatch.setattr(scene, "_applied", lambda at: 2 * at, raising=False)
    return scene


def test_each_plan_that_came_has_a_row(monkeypatch):
    distributor = make_distributor("hybrid", 2, {"granularity": 60})
    plan, one = distributor.plan(), distributor.split(0, 1)
    latencies = Latencies({1: (8_300, b"1")}, "match")
    latencies.first = {1: 20}
    scene = scene_with([(2000, 1, one), (2500, 1, plan), (8500, 2, plan)], monkeypatch)
    first, second = scene._rows(plan, latencies)
    assert first["load"] == "full" and first["seconds"] == 2 and first["changed"] == first["partitions"] - 1 == 2 and first["moved"] == 3000
    assert first["before"] == first["during"] == first["after"] == 2000 and first["transfers_bytes"] == 3000
    assert second["load"] == "steady" and second["seconds"] == 0.5 and second["changed"] == 1 and second["below_100_ms"] == 1.0 and "during" not in second


def test_its_tables_are_printed(capsys):
    row = dict.fromkeys([*moves._MOVED, *moves._RATES, *moves._BYTES, *moves._PHASES], 1234.5)
    full, steady = {"load": "full", **row}, {"load": "steady", **row, **dict.fromkeys(moves._SHARES, 0.25)}
    phases = [{"phase": "hotspot 1", **row}, {"phase": "hotspot 1, steady rate", **row, **dict.fromkeys(moves._SHARES, 0.5)}]
    sent = {"reports_bytes_per_s": 30.0, "plans_bytes_per_s": 20.0, "centralized_bytes_per_s": 9000.0}
    scenes = {
        "by hand": {"moves": [full, steady], "select_ms": [7.0, 8.0], "verified": {"ok": True, "subscriptions": 5}},
        "without balancing": {"phases": phases},
        "with balancing": {"phases": phases, "balancing": sent},
    }
    found = {"distributor": "agrid", "selection": "moves", "subscriptions": 7, "scenes": scenes, "claims": moves.claims(scenes)}
    moves._print(found)
    shown = capsys.readouterr().out
    assert "agrid, 7 boolean" in shown and "Moves by hand, under full load" in shown and "7, 8 ms" in shown and "25.0%" in shown
    assert "with balancing, hotspot 1" in shown and "1/180" in shown and "held" in shown and "by hand: 5 subscriptions verified: all equal" in shown


def test_it_asks_for_the_topology_that_it_needs():
    args = moves._throughput_arguments(parsed(moves, "--subscriptions", "300", "--evaluators", "3", "-c", "x=1"))
    assert dict(args.tasks) == {"subscription-bolt": 3, "distribution-bolt": 2} and args.boolean and args.subscriptions == [300] and args.conf == [("x", 1)]
    assert args.verify is None and moves._throughput_arguments(parsed(moves, "--verify")).verify == 100


def test_a_share_of_the_messages_lies_in_the_hotspot():
    sent = []

    class Producer:
        def __len__(self):
            return 0

        def produce_batch(self, topic, records):
            sent.extend(json.loads(record["value"]) for record in records)
            return len(records)

        def flush(self):
            pass

    writer = feeder._Writer({"seed": 1, "messages": 2_000, "places": None, "topics": ("m", "s"), "servers": "localhost:1", "options": {}})
    writer._producer = Producer()
    box = (-12.0, 36.0, 40.0, 60.0)

    def share(n):
        sent.clear()
        assert writer.do({"do": "messages", "n": n})["written"] == writer._next
        return sum(box[0] <= m["lon"] <= box[2] and box[1] <= m["lat"] <= box[3] for m in sent) / n

    usual = share(1_000)
    writer.do({"do": "hotspot", "box": list(box), "share": 0.8})
    assert share(1_000) == pytest.approx(0.8 + 0.2 * usual, abs=0.03) and usual < 0.6
    writer.do({"do": "hotspot", "box": [0, 0, 0, 0], "share": 0.8})  # nothing is there
    assert share(1_000) == pytest.approx(usual, abs=0.1)


def test_vehicles_report_in_turn_and_geofences_are_registered():
    sent = []

    class Producer:
        def __len__(self):
            return 0

        def produce_batch(self, topic, records):
            sent.extend((topic, record["key"].decode(), json.loads(record["value"])) for record in records)
            return len(records)

        def flush(self):
            pass

    config = {"seed": 1, "topics": ("m", "s"), "servers": "localhost:1", "options": {}, "fleet": {"vehicles": 30, "step_s": 10}}
    writer = feeder._FleetWriter(config)
    writer._producer = Producer()
    assert writer.describe()["messages"] == 30 and 60 < writer.describe()["message_bytes"] < 160
    writer.do({"do": "messages", "n": 70})
    assert writer.do({"do": "messages", "n": 5})["written"] == len(sent) == 75
    names = [key for _, key, _ in sent]
    assert len(set(names)) == 30 and names[:30] == names[30:60] and names[60:] == names[:15]
    assert all(topic == "m" and value["object"] == key for topic, key, value in sent)
    first, second = sent[0][2], sent[30][2]
    assert 0 < abs(first["lat"] - second["lat"]) + abs(first["lon"] - second["lon"]) < 0.05
    sent.clear()
    writer.do({"do": "geofences", "n": 3})
    assert [(topic, key, value["type"]) for topic, key, value in sent] == [("s", f"g{i}", "boolean") for i in range(3)]
    before = [value for _, _, value in sent]
    sent.clear()
    writer.do({"do": "move", "rate": 100})
    while len(sent) < 7:
        time.sleep(0.01)
    assert writer.do({"do": "move", "rate": 0})["moved"] == len(sent)
    assert [key for _, key, _ in sent[:6]] == ["g0", "g1", "g2"] * 2 and all(value["update"] for _, _, value in sent)
    assert [value | {"update": True} for value in before] == [value for _, _, value in sent[3:6]]  # back after a lap
    assert all(value["region"] != was["region"] for was, (_, _, value) in zip(before, sent))


def test_subscriptions_of_all_kinds_move_a_little():
    def after(**record):
        return json.loads(feeder.moved(json.dumps(record).encode(), 1))

    assert after(type="topk", lat=1, lon=2) == {"type": "topk", "lat": 1.01, "lon": 2.01, "update": True}
    assert after(bbox=[1, 2, 3, 4])["bbox"] == [1.01, 2.01, 3.01, 4.01]
    assert after(bbox=[179.5, 89.5, -179, 90])["bbox"] == [179.5, 89.5, -178.99, 90]
    assert after(region={"center": {"lat": -1.0, "lon": 0.0}, "radius_m": 5})["region"] == {"center": {"lat": -0.99, "lon": 0.01}, "radius_m": 5}
    assert after(region={"type": "Polygon", "coordinates": [[[0, 0], [1, 0], [0, 1], [0, 0]]]})["region"]["coordinates"] == [
        [[0.01, 0.01], [1.01, 0.01], [0.01, 1.01], [0.01, 0.01]]
    ]


def test_a_record_that_is_refused_ends_the_feeder():
    class Full(list):
        def produce_batch(self, topic, records):
            return len(records) - 1

    with pytest.raises(TopologyError, match="1 of 2 records for topic m were refused"):
        feeder._write(Full(), "m", [{"value": b"1"}, {"value": b"2"}])
    error = SimpleNamespace(str=lambda: "too large")
    with pytest.raises(TopologyError, match="a record for topic m was refused: too large"):
        feeder._stop_at_error(error, SimpleNamespace(topic=lambda: "m"))


def test_hybrid_partitioning_begins_with_a_learned_plan(tmp_path, monkeypatch):
    whole = places.load()
    monkeypatch.setattr(places, "load", lambda file=None: whole.slice(0, 300))
    args = parsed(moves, "--distributor", "hybrid", "--subscriptions", "200", "--evaluators", "3", "--selection", "greedy")
    asked = moves._throughput_arguments(args)
    conf = moves._distributor(args, asked, throughput.build_vocabulary(asked, tmp_path), tmp_path)
    assert conf["dskype.distributor"] == "hybrid" and read_plan(conf["dskype.distributor.options"]["plan"])["tasks"] == 3
    assert moves._balancing(args)["dskype.balance.selection"] == "greedy" and moves._distributor(parsed(moves), asked, tmp_path, tmp_path) == {
        "dskype.distributor": "agrid"
    }


def test_wrong_arguments_are_refused():
    assert main(["bench", "moves", "--moves", "0"]) in (1, 2)
