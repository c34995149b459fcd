"""The benchmark of moves: which cells move, what centralized balancing would send, and what is claimed."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from dskype.deploy.benchmarks import feeder, moves
from dskype.deploy.cli.main import main
from dskype.distribution import make_distributor

from .reported import parsed

LAT, LON = (axis.ravel() for axis in np.meshgrid(np.linspace(-89, 89, 40), np.linspace(-179, 179, 40)))


@pytest.mark.parametrize("tasks", [2, 3, 4, 5, 7])
def test_a_border_goes_to_and_fro_between_two_quantiles(tasks):
    plan = make_distributor("agrid", tasks, {"granularity": 60}).plan()
    for quantile in (0.65, 0.35, 0.65, 0.35):
        before = make_distributor("agrid", tasks, None, plan).partitions()
        plan = moves.shifted(plan, LAT, LON, quantile)
        after = make_distributor("agrid", tasks, None, plan)
        cells = [part["cells"] for part in after.partitions()]
        assert cells[:2] != [part["cells"] for part in before[:2]] and cells[2:] == [part["cells"] for part in before[2:]]
        found = np.bincount(after.grid.locate(LAT, LON), minlength=tasks)[:2]
        assert found[0] / found.sum() == pytest.approx(quantile, abs=0.05)


def test_centralized_balancing_sends_a_cell_once():
    distributor = make_distributor("agrid", 2, {"granularity": 10})
    assert moves.cell_bytes(distributor, np.array([0.0, 0.1, 50, -50]), np.array([0.0, 0.1, 100, 100])) == 3 * 12


def test_a_claim_is_told_with_its_figures():
    rows = [{"before": 100.0, "during": 90.0}, {"before": 100.0, "during": 60.0}]
    sent = {"reports_bytes_per_s": 30.0, "plans_bytes_per_s": 20.0, "centralized_bytes_per_s": 900.0}
    found = moves.claims({"by hand": {"moves": rows}, "with balancing": {"balancing": sent}})
    assert [held for _, held, _ in found] == [True, False]
    assert found[0][2] == "90%, 60%: mean 75%" and found[1][2] == "50 bytes/s against 900: 1/18"
    assert moves.claims({}) == []


def test_its_tables_are_printed(capsys):
    row = dict.fromkeys([*moves._MOVES, *moves._PHASES], 1234.5)
    sent = {"reports_bytes_per_s": 30.0, "plans_bytes_per_s": 20.0, "centralized_bytes_per_s": 9000.0}
    scenes = {"by hand": {"moves": [row]}, "without balancing": {"phases": [row]}, "with balancing": {"phases": [row, row], "balancing": sent}}
    moves._print({"subscriptions": 7, "scenes": scenes, "claims": moves.claims(scenes)})
    shown = capsys.readouterr().out
    assert "Moves by hand, 7 boolean" in shown and "with balancing, hotspot 1" in shown and "1/180" in shown and "held" in shown


def test_it_asks_for_the_topology_that_it_needs():
    args = moves._throughput_arguments(parsed(moves, "--subscriptions", "300", "--evaluators", "3", "-c", "x=1"))
    assert dict(args.tasks) == {"subscription-bolt": 3, "distribution-bolt": 2} and args.boolean and args.subscriptions == [300] and args.conf == [("x", 1)]


def test_a_share_of_the_messages_lies_in_the_hotspot():
    sent = []
    writer = feeder._Writer({"seed": 1, "messages": 2_000, "places": None, "topics": ("m", "s"), "servers": "localhost:1", "options": {}})
    writer._producer = SimpleNamespace(send=lambda topic, value: sent.append(json.loads(value)), flush=lambda: None)
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


def test_wrong_arguments_are_refused():
    assert main(["bench", "moves", "--moves", "0"]) in (1, 2)
