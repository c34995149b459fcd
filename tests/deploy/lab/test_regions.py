"""The benchmark of regions, on tiny tables: what it measures and prints."""

import json

from dskype.deploy.cli.main import main


def test_every_kind_is_measured_and_printed(tmp_path, capsys):
    out = tmp_path / "found.json"
    assert main(["bench", "regions", "--subscriptions", "10", "20", "--corners", "5", "300000", "--pairs", "500", "--rounds", "1", "--json", str(out)]) == 0
    rows = json.loads(out.read_text())["rows"]
    # Polygons of so many corners are left out where all of them would have too many.
    assert [(row["subscriptions"], row["kind"]) for row in rows] == [
        *((10, kind) for kind in ("rectangle", "circle", "polygon of 5 corners", "polygon of 300,000 corners")),
        *((20, kind) for kind in ("rectangle", "circle", "polygon of 5 corners")),
    ]
    assert all(row["pair_ns"] > 0 and row["put_ns"] > 0 and row["bytes"] > 64 for row in rows)
    inside = {row["kind"]: row["inside"] for row in rows}
    assert inside["rectangle"] == 1 and 0.7 < inside["circle"] < 0.86 and inside["polygon of 5 corners"] < 0.7
    shown = capsys.readouterr().out
    assert "polygon of 5 corners" in shown and "Regions of 1000 m" in shown
