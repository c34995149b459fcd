"""The load model against what was measured, and as a plain sum; ``dskype plan`` and the table of its costs."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path

import pytest

from dskype.deploy.capacity.costs import COSTS, DISTRIBUTORS, cost
from dskype.deploy.capacity.model import Load, Site, bottlenecks, choose, need
from dskype.deploy.cli import main as cli

ROUTINGS = {routing.name: routing for routing in DISTRIBUTORS}
ONE = Site(cores=2, memory_bytes=24e9, full=1.0, copies=1)
"""The machine of docs/benchmarks."""


@pytest.mark.parametrize(
    ("subscriptions", "window", "rate", "deltas", "measured_us"),
    [(100_000, 200_000, 17_671, None, 112), (1_000_000, 200_000, 2_068, None, 979), (10_000, 20_000, 21_539, 10.6, 85)],
)
def test_the_model_is_near_what_whole_topologies_took(subscriptions, window, rate, deltas, measured_us):
    found = need(Load(subscriptions, rate, window_s=window / rate, results_per_message=deltas), ONE, ROUTINGS["hashing"])
    assert (found.worker_cores + found.broker_cores) / rate * 1e6 == pytest.approx(measured_us, rel=0.1)
    assert found.subscription_tasks <= 2 and found.hosts <= 2


@pytest.mark.parametrize(
    ("name", "subscriptions", "measured_us"), [("hashing", 40_000, 47), ("prefix", 40_000, 22), ("hashing", 10**6, 228), ("prefix", 10**6, 307)]
)
def test_the_work_of_32_tasks_is_near_the_routing_simulation(name, subscriptions, measured_us):
    routing, changes = ROUTINGS[name], cost("delta_share") * 2 * 20 / 50_000 * subscriptions
    tuples = 32 if routing.tuples is None else routing.tuples
    batches = 5.5  # the 32 tasks' own share of a batch of 1,000 messages, whatever it holds; in a topology it is a part of topk_message
    assert batches + tuples * cost("tuple") + changes * routing.repeats * 0.25 == pytest.approx(measured_us, rel=0.12)


def test_the_cores_of_hashing_are_a_plain_sum():
    load, site = Load(2_000_000, 5_000, window_s=600), Site()
    found = need(load, site, ROUTINGS["hashing"])
    results = 0.87 * 2 * 20 / (5_000 * 600) * 2_000_000
    message = 29 - 6.6 + (found.subscription_tasks - 1) * (1.08 + 0.23)
    assert load.results == pytest.approx(results)
    assert found.worker_cores == pytest.approx(5_000 * (message + results * (2.6 + 1.5)) / 1e6)
    assert found.broker_cores == pytest.approx(3 * 5_000 * (6.6 + results * 0.8) / 1e6)


@pytest.mark.parametrize(("name", "merge_us"), [("hashing", None), ("location", 0.0), ("prefix", 2.8)])
def test_the_tasks_that_write_results_have_room_for_that(name, merge_us):
    """With all distributors but hashing results pass the result bolt, which writes them."""
    load, site = Load(1, 100.0, results_per_message=100_000), Site()
    found, routing, results = need(load, site, ROUTINGS[name]), ROUTINGS[name], 100 * 100_000
    matching = results * routing.repeats * 2.6 * routing.balance
    if merge_us is None:
        assert found.result_tasks == 1 and found.subscription_tasks >= (matching + results * 1.5) / 1e6 / site.full
    else:
        assert found.result_tasks == math.ceil(results * (1.5 + merge_us) / 1e6 / site.full)
        assert found.subscription_tasks == pytest.approx(matching / 1e6 / site.full, rel=0.05)


@pytest.mark.parametrize("kind", ["topk", "boolean"])
def test_more_of_anything_never_needs_less(kind):
    load, site = Load(1_000_000, 10_000, kind), Site()
    for more in (replace(load, subscriptions=3_000_000), replace(load, rate=40_000)):
        for before, after in zip(*(sorted(choose(each, site), key=lambda n: n.distributor) for each in (load, more))):
            assert after.hosts >= before.hosts and after.brokers >= before.brokers and after.memory_bytes >= before.memory_bytes
    assert choose(load, replace(site, full=0.3))[0].hosts >= choose(load, site)[0].hosts


@pytest.mark.parametrize("name", ["agrid", "hybrid"])
def test_who_divides_by_place_needs_a_little_memory_and_carries_any_rate(name):
    load = Load(100_000_000, 1_000_000, "boolean", results_per_message=1.0)
    hashing, placed = (need(load, Site(), ROUTINGS[each]) for each in ("hashing", name))
    assert math.isinf(hashing.hosts) and math.isfinite(placed.hosts) and placed.tuples < 1
    small = replace(load, rate=1_000)
    assert 1.2 < need(small, Site(), ROUTINGS[name]).memory_bytes / need(small, Site(), ROUTINGS["hashing"]).memory_bytes < 1.3


def test_no_number_of_tasks_is_enough_where_messages_alone_fill_each():
    load = Load(1_000_000, 1_000_000)
    found = need(load, Site(), ROUTINGS["hashing"])
    assert math.isinf(found.subscription_tasks) and math.isinf(found.hosts)
    assert choose(load, Site())[0].distributor in ("keyword", "prefix")


def test_the_first_bottleneck_is_the_one_that_is_full_at_the_lowest_rate():
    load, site = Load(100_000_000, 100_000), Site()
    rates = [b.rate for b in bottlenecks(load, site, choose(load, site)[0])]
    assert rates == sorted(rates) and len(rates) >= 4


def test_every_cost_says_where_it_comes_from_and_the_page_has_the_same_table():
    page = (Path(__file__).parents[3] / "docs" / "guides" / "scale.md").read_text(encoding="utf-8")
    rows = {name: (value, what, source) for name, value, what, source in re.findall(r"^\| `(\w+)` \| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", page, re.MULTILINE)}
    assert rows == {name: (f"{c.value:,.7g} {c.unit}".strip(), c.what, c.source) for name, c in COSTS.items()}
    assert all(re.search(r"20\d\d-\d\d-\d\d", c.source) for c in COSTS.values())


def test_the_worked_example_of_the_page_is_what_the_command_prints(capsys):
    page = (Path(__file__).parents[3] / "docs" / "guides" / "scale.md").read_text(encoding="utf-8")
    for arguments, shown in re.findall(r"^```\n\$ dskype (plan .*)\n((?:.*\n)+?)```$", page, re.MULTILINE):
        assert cli.main(arguments.split()) == 0
        assert capsys.readouterr().out == shown
    assert "plan --subscriptions 100000000 --rate 100000" in page


def test_the_command_refuses_what_is_no_load_and_prints_json(capsys):
    assert cli.main(["plan", "--subscriptions", "0", "--rate", "1"]) == 2
    assert cli.main(["plan", "--subscriptions", "5", "--rate", "1", "--full", "1.5"]) == 2
    capsys.readouterr()
    assert cli.main(["plan", "--subscriptions", "5", "--rate", "1e6", "-o", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {n["distributor"] for n in found["distributors"]} == {"hashing", "location", "keyword", "prefix"}
    assert cli.main(["plan", "--subscriptions", "5", "--rate", "1e6", "--kind", "boolean", "-o", "json"]) == 0
    assert {n["distributor"] for n in json.loads(capsys.readouterr().out)["distributors"]} == {"hashing", "agrid", "hybrid"}
    with pytest.raises(ValueError, match="numbers above 0"):
        need(Load(0, 1), Site(), ROUTINGS["hashing"])
