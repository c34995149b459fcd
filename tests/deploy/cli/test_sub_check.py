"""``dskype sub add --dry-run`` without a broker: what may be left out, and where an expression goes wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dskype.deploy.cli import main as cli


@pytest.fixture(autouse=True)
def without_brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DSKYPE_BOOTSTRAP_SERVERS", raising=False)


def checked(*arguments: str) -> int:
    return cli.main(["sub", "add", "--dry-run", *arguments])


@pytest.mark.parametrize(
    "arguments",
    [
        ["--expression", "coffee AND NOT decaf"],
        ["--bbox=-88,42,-87,44"],
        ["--bbox=-88,42,-87,44", "--initial"],
        ["--expression", "tea", "--initial", "20"],
        ["--circle=43.04,-87.9,500"],
        ["--region", '{"type": "Polygon", "coordinates": [[[0, 0], [4, 0], [4, 3], [0, 0]]]}', "--expression", "tea"],
        ["--text", "tea", "--near", "1,2", "--where", "NOT decaf"],
        ["--expression", 'ATLEAST 2 OF (tea, "late night"~2, NOT rain)', "--bbox=-88,42,-87,44", "--ttl", "5"],
        ["--expression", "100 <= price <= 200 AND muse*", "-c", 'dskype.attributes={"price": "number"}', "-c", "dskype.boolean.prefixes=true"],
    ],
)
def test_a_boolean_subscription_needs_an_expression_or_a_rectangle(arguments, capsys):
    assert checked("-c", "dskype.boolean.wordless=true", *arguments) == 0 and "1 subscription would be sent, 0 refused" in capsys.readouterr().err


def test_one_needs_something_and_not_too_much(capsys):
    assert checked("--circle=1,2,3", "--region", "{}") == 1 and "expected --circle or --region; given: both" in capsys.readouterr().err
    assert checked("--region", "[" * 20_000) == 2 and "expected JSON, given: " in capsys.readouterr().err
    assert checked("--circle=1,2") == 2 and "expected LAT,LON,METRES in degrees and metres" in capsys.readouterr().err
    assert checked("--where", "tea", "--bbox", "0,0,1,1") == 1 and "--where are for top-k" in capsys.readouterr().err
    assert checked("--text", "tea", "--near", "1,2", "--where", "tea AND") == 1 and "  tea AND\n         ^" in capsys.readouterr().err
    assert checked("--text", "tea", "--near", "1,2", "--initial") == 1 and "--inside and --initial for boolean" in capsys.readouterr().err
    assert checked("--expression", "tea", "--initial", "0") == 2 and "an integer greater than 0" in capsys.readouterr().err
    assert (
        checked("--expression", "tea", "--initial", "101") == 1
        and "Expected 'initial'; given: 101; legal: true, false, or an integer" in capsys.readouterr().err
    )
    assert checked("--ttl", "5") == 1 and "expected --near LAT,LON for a top-k or threshold subscription, or --expression" in capsys.readouterr().err
    assert (
        checked("--keyword", "x") == 1
        and "expected --near LAT,LON for a top-k or threshold subscription, or --expression, --bbox, --circle or --region" in capsys.readouterr().err
    )


def test_with_objects_it_says_what_the_topology_would_refuse(capsys):
    objects = ("-c", "dskype.objects=true")
    assert checked(*objects, "--text", "tea", "--near", "1,2", "--min-score", "0.5") == 1
    assert "Threshold subscriptions do not work with dskype.objects" in capsys.readouterr().err
    assert checked(*objects, "--expression", "tea", "--initial") == 1 and "'initial' does not work with dskype.objects" in capsys.readouterr().err
    assert checked(*objects, "--expression", "tea", "--inside") == 0 and checked(*objects, "--text", "tea", "--near", "1,2") == 0


def test_a_caret_is_below_the_place_where_an_expression_goes_wrong(tmp_path: Path, capsys):
    assert checked("--expression", 'coffee AND (wifi "late night")') == 1
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "error: Expected AND or OR after 'wifi' at position 18 of the expression; given: '\"late night\"'; hint: a phrase needs quotes"
    assert lines[1:3] == ['  coffee AND (wifi "late night")', "                   ^"]
    records = [{"type": "boolean", "expression": "coffee AND"}, {"type": "boolean", "expression": "tea", "bbox": 5}]
    (tmp_path / "s").write_text("\n".join(map(json.dumps, records)))
    assert checked(str(tmp_path / "s"), "-o", "json") == 1
    out, err = capsys.readouterr()
    assert err.splitlines()[:4] == [
        "error: line 1: Expected a word, a quoted phrase or '(' after 'AND' at position 11 of the expression; given: 'coffee AND'",
        "  coffee AND",
        "            ^",
        "error: line 2: Expected 'bbox' as four numbers; given: 5; legal: [west, south, east, north] in degrees, -180 <= west, east <= 180, "
        "-90 <= south <= north <= 90; west > east crosses the antimeridian",
    ]
    assert [error["line"] for error in json.loads(out)["errors"]] == [1, 2]
