"""The benchmark of routers, on tiny grids: what it measures, and that it notices routers that disagree."""

import json

import numpy as np
import pytest

from dskype.deploy.cli.main import main
from dskype.deploy.lab.tornado import routing


@pytest.fixture(scope="module")
def points():
    rng = np.random.default_rng(1)
    return rng.normal(40, 12, 400).clip(-90, 90), rng.normal(10, 30, 400).clip(-180, 180)


def test_every_router_is_measured_on_every_grid(points, capsys):
    found = routing.compare("points", *points, partitions=6, granularities=[20, 60], rounds=1, seed=0)
    assert found["equal"] and found["points"] == 400 and found["touched"]["touching 4"] == 4.0
    assert [(row["cells"], row["router"]) for row in found["rows"]] == [(n, name) for n in (20, 60) for name in routing.ROUTERS]
    assert all(us > 0 for row in found["rows"] for us in row["us"].values()) and all(row["bytes"] > 0 for row in found["rows"])
    assert found["rows"][1]["bytes"] == 20 * 20 * 4
    routing.show(found)
    shown = capsys.readouterr().out
    assert "60 x 60" in shown and "R-tree" in shown and "find the same" in shown


def test_routers_that_disagree_are_noticed(points, monkeypatch, capsys):
    class Wrong(routing.TreeRouter):
        def overlaps(self, areas):
            rows, partitions = super().overlaps(areas)
            return rows[1:], partitions[1:]

    monkeypatch.setitem(routing.ROUTERS, "R-tree", Wrong)
    found = routing.compare("points", *points, partitions=3, granularities=[10], rounds=1, seed=0)
    routing.show(found)
    assert not found["equal"] and "WRONG" in capsys.readouterr().out


def test_the_command_reads_messages_and_writes_what_it_found(points, tmp_path, capsys):
    messages, out = tmp_path / "m.jsonl", tmp_path / "found.json"
    messages.write_text("".join(json.dumps({"text": "lake", "lat": lat, "lon": lon}) + "\n" for lat, lon in zip(*map(np.ndarray.tolist, points))))
    assert main(["bench", "routing", str(messages), "--partitions", "2", "4", "--cells", "10", "--rounds", "1", "--json", str(out)]) == 0
    assert [found["partitions"] for found in json.loads(out.read_text())["found"]] == [2, 4]
    assert main(["bench", "routing", str(messages), "--cells", "10", "25"]) != 0 and "multiples of 10" in capsys.readouterr().err
