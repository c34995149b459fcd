"""Every alert fires on series that should fire it, no sooner than its rule says, and stays quiet on healthy ones: ``promtool test rules``."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from .prometheus_server import promtool

pytestmark = pytest.mark.long  # runs promtool

ALERTS = Path(__file__).parents[3] / "deploy" / "dashboards" / "alerts.yml"
RULES: dict[str, dict[str, Any]] = {rule["alert"]: rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]}
RUNBOOK = Path(__file__).parents[3] / "docs" / "guides" / "runbook.md"
END_M = 90
BUSY = "dskype_task_busy_seconds_total"
WAITING = "dskype_component_metric"


@dataclass(frozen=True)
class Case:
    """Series that fire an alert.

    :ivar series: what is not healthy, in promtool's notation with one value a minute.
    :ivar quiet_m: a minute at which the alert does not fire yet.
    :ivar fires_m: a minute at which it does.
    :ivar labels: of the alert, besides its severity.
    :ivar value: of the alert, as its text has it.
    :ivar healthy: whether healthy topologies are there as well.
    """

    alert: str
    series: dict[str, str]
    quiet_m: float
    fires_m: float
    labels: dict[str, str] = field(default_factory=dict)
    value: str = ""
    healthy: bool = True


BAD = {"topology": "bad"}
CASES = [
    Case("DskypeMetricsMissing", {}, 1, 3, healthy=False),
    Case("DskypeMetricsMissing", {"dskype_build_info": f"1x10 _x{END_M}"}, 15, 20, healthy=False),  # a series counts for five minutes after its last value
    Case("DskypeBrokersAway", {"dskype_brokers_answer": f"1x10 0x{END_M}"}, 10, 13, healthy=False),
    Case(
        "DskypeReportsOld",
        {'dskype_report_age_seconds{topology="bad"}': f"1x10 0+60x{END_M}", 'dskype_topology_active{topology="bad"}': f"1x{END_M}"},
        12,
        15,
        BAD,
        "4m 0s",
    ),
    Case("DskypeTopologyGone", {'dskype_topology_active{topology="bad"}': f"1x10 0x{END_M}"}, 11, 13, BAD),
    Case("DskypeNoProgress", {'dskype_topology_healthy{topology="bad"}': f"1x10 0x{END_M}"}, 11, 13, BAD),
    Case("DskypeLagGrows", {'dskype_consumer_lag_records{topology="bad",topic="m"}': f"0x10 2000+100x{END_M}"}, 20, 25, {**BAD, "topic": "m"}, "3400"),
    Case("DskypeRestarts", {'dskype_query_restarts_total{topology="bad",component="b"}': f"0x10 1 2 3x{END_M}"}, 12, 14, {**BAD, "component": "b"}),
    Case("DskypeDriverProblems", {'dskype_driver_problems_total{topology="bad",part="clock"}': f"0x10 1x{END_M}"}, 10, 12, {**BAD, "part": "clock"}),
    Case("DskypeDeadLetters", {'dskype_dead_letters_total{topology="bad",component="s"}': f"7x10 8x{END_M}"}, 10, 12, {**BAD, "component": "s"}),
    Case(
        "DskypeTenantAtQuota",
        {'dskype_tenant_refused_total{topology="bad",tenant="acme",quota="max_subscriptions"}': f"0x10 1x{END_M}"},
        10,
        12,
        {**BAD, "tenant": "acme", "quota": "max_subscriptions"},
    ),
    Case("DskypeRecordsLost", {'dskype_records_lost_total{topology="bad",component="s"}': f"0x10 1x{END_M}"}, 10, 40, {**BAD, "component": "s"}),
    Case(
        "DskypeUnbalanced",
        {f'{BUSY}{{topology="bad",component="subscription-bolt",task="{task}"}}': f"0+{54 if task == 3 else 6}x{END_M}" for task in (3, 4, 5, 6)},
        15,
        18,
        BAD,
    ),
    Case(
        "DskypeCheckpointsOld",
        {'dskype_checkpoint_age_seconds{topology="bad",component="b"}': f"1x10 400x{END_M}"},
        14,
        17,
        {**BAD, "component": "b"},
        "6m 40s",
    ),
    Case("DskypeResultStoreBehind", {f'{WAITING}{{topology="bad",component="r",task="9",name="states-waiting"}}': f"0x10 3x{END_M}"}, 14, 17, BAD, "3"),
]

HEALTHY = {
    "dskype_build_info": f"1x{END_M}",
    # Away for less than a minute.
    "dskype_brokers_answer": f"1x5 0 1x{END_M}",
    'dskype_topology_active{topology="good"}': f"1x{END_M}",
    'dskype_report_age_seconds{topology="good"}': f"1x20 90 1x{END_M}",
    # Switched off: nothing is reported.
    'dskype_report_age_seconds{topology="off"}': f"0+60x{END_M}",
    # Away for less than a minute, as while its brokers fail over.
    'dskype_topology_healthy{topology="good"}': f"1x5 0 1x{END_M}",
    'dskype_consumer_lag_records{topology="good",topic="falls"}': f"90000-100x{END_M}",
    'dskype_consumer_lag_records{topology="good",topic="stays"}': f"5000x{END_M}",
    'dskype_consumer_lag_records{topology="good",topic="small"}': f"0+10x{END_M}",
    # A burst that is over within ten minutes.
    'dskype_consumer_lag_records{topology="good",topic="burst"}': f"0x20 2000+1000x3 5000-1000x4 0x{END_M}",
    # Two restarts within 15 minutes, and a third one later.
    'dskype_query_restarts_total{topology="good",component="b"}': f"0x10 1x3 2x30 3x{END_M}",
    'dskype_driver_problems_total{topology="good",part="clock"}': f"0x{END_M}",
    'dskype_dead_letters_total{topology="good",component="s"}': f"12x{END_M}",
    'dskype_records_lost_total{topology="good",component="s"}': f"3x{END_M}",
    'dskype_tenant_refused_total{topology="good",tenant="acme",quota="max_subscriptions"}': f"7x{END_M}",
    **{f'{BUSY}{{topology="good",component="subscription-bolt",task="{task}"}}': f"0+{45 + task}x{END_M}" for task in (3, 4, 5, 6)},
    # Not balanced, but with little to do.
    **{f'{BUSY}{{topology="idle",component="subscription-bolt",task="{task}"}}': f"0+{18 if task == 3 else 1}x{END_M}" for task in (3, 4, 5, 6)},
    # One other component is the busiest.
    f'{BUSY}{{topology="good",component="distribution-bolt",task="2"}}': f"0+59x{END_M}",
    'dskype_checkpoint_age_seconds{topology="good",component="b"}': f"0+10x25 0x3 400x3 0x{END_M}",
    f'{WAITING}{{topology="good",component="r",task="9",name="states-waiting"}}': f"0x10 40x3 0x{END_M}",
    f'{WAITING}{{topology="good",component="r",task="9",name="states-written"}}': f"0+40x{END_M}",
}


def text(template: str, case: Case) -> str:
    """Return a text of an alert with its labels and its value."""
    filled = re.sub(r"\{\{ \$labels\.(\w+) \}\}", lambda found: case.labels[found[1]], template)
    return re.sub(r"\{\{ \$value[^}]*\}\}", case.value, filled)


def expected(case: Case) -> list[dict[str, Any]]:
    """Return the one alert of a case as promtool expects it."""
    rule = RULES[case.alert]
    return [
        {"exp_labels": {**case.labels, **rule["labels"]}, "exp_annotations": {name: text(template, case) for name, template in rule["annotations"].items()}}
    ]


def check(folder: Path, tests: Sequence[dict[str, Any]], rules: Path = ALERTS) -> str:
    """Return what promtool finds wrong; empty if nothing is."""
    file = folder / "tests.yml"
    file.write_text(json.dumps({"rule_files": [str(rules)], "evaluation_interval": "10s", "tests": list(tests)}))
    done = promtool("test", "rules", str(file))
    return "" if done.returncode == 0 else done.stdout + done.stderr


def as_test(name: str, series: dict[str, str], wanted: dict[float, list[tuple[str, list[dict[str, Any]]]]], interval: str = "1m") -> dict[str, Any]:
    """Return a test: at which minute which alerts fire."""
    at = [
        {"eval_time": f"{round(minute * 60)}s", "alertname": alert, "exp_alerts": alerts} for minute, pairs in sorted(wanted.items()) for alert, alerts in pairs
    ]
    return {"name": name, "interval": interval, "input_series": [{"series": k, "values": v} for k, v in series.items()], "alert_rule_test": at}


def of_case(case: Case) -> dict[str, Any]:
    """Return the test of a case: its alert alone fires, and not before its time."""
    others = [(alert, []) for alert in RULES if alert != case.alert and case.healthy]
    wanted = {case.quiet_m: [(case.alert, [])], case.fires_m: [(case.alert, expected(case)), *others]}
    return as_test(case.alert, {**(HEALTHY if case.healthy else {}), **case.series}, wanted)


def test_every_alert_has_a_case():
    assert {case.alert for case in CASES} == RULES.keys()


def test_alerts_fire_when_they_should_and_alone(tmp_path):
    assert check(tmp_path, [of_case(case) for case in CASES]) == ""


def test_healthy_topologies_fire_none(tmp_path):
    wanted = {float(minute): [(alert, []) for alert in RULES] for minute in range(1, END_M)}
    assert check(tmp_path, [as_test("healthy", HEALTHY, wanted)]) == ""


def test_two_restarts_fire_nothing_at_whatever_moment_their_counter_is_scraped(tmp_path):
    """Prometheus extrapolates an increase to the whole range, so that two may become 2.01 or, with few samples, 2.1."""
    name = 'dskype_query_restarts_total{topology="good",component="b"}'
    tests = [
        as_test(f"scraped every {secs} s", {name: "0x20 1x5 2x300"}, {minute / 6: [("DskypeRestarts", [])] for minute in range(6, 150)}, f"{secs}s")
        for secs in (5, 7, 13, 29, 61)
    ]
    assert check(tmp_path, tests) == ""


@pytest.mark.parametrize("expression", ["vector(0) > 1", "dskype_topology_active >= 0"])
def test_rules_that_never_fire_or_always_do_are_found_out(tmp_path, expression):
    document = yaml.safe_load(ALERTS.read_text())
    for group in document["groups"]:
        group["rules"] = [rule | {"expr": expression} for rule in group["rules"]]
    (tmp_path / "changed.yml").write_text(yaml.safe_dump(document))
    found = check(tmp_path, [of_case(case) for case in CASES], tmp_path / "changed.yml")
    assert set(re.findall(r"alertname: (\w+)", found)) == RULES.keys()


NAMED = "dskype_component_metric"


def test_panels_of_what_components_count_themselves_have_data_where_they_do(tmp_path):
    """A topology has only some of them: those of its distributor, and of its settings."""
    page = (RUNBOOK.parent / "metrics.md").read_text(encoding="utf-8")
    dashboard = json.loads((ALERTS.parent / "dskype.json").read_text(encoding="utf-8"))
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"] if NAMED in target["expr"]]
    names = {name for query in queries for alternatives in re.findall(r'name=~"([^"]+)"', query) for name in alternatives.split("|")}
    assert len(queries) >= 9 and [name for name in sorted(names) if f"`{name}`" not in page] == []
    series = {f'{NAMED}{{topology="good",component="c",task="3",name="{name}"}}': f"0+60x{END_M}" for name in names}
    plain = [query.replace("$topology", "good").replace("$__rate_interval", "5m") for query in queries]
    wanted = [{"expr": f"clamp_max(count({query}), 1)", "eval_time": "30m", "exp_samples": [{"labels": "{}", "value": 1}]} for query in plain]
    assert check(tmp_path, [{**as_test("panels", series, {}), "promql_expr_test": wanted}]) == ""


def test_every_alert_names_its_section_of_the_runbook_which_says_what_it_means_how_to_see_it_and_what_to_do():
    sections = re.split(r"(?m)^## ", RUNBOOK.read_text(encoding="utf-8"))[1:]
    told = {section.split("\n", 1)[0]: section for section in sections}
    assert list(told) == list(RULES)
    for alert, rule in RULES.items():
        assert rule["annotations"]["runbook"] == f"docs/guides/runbook.md#{alert.lower()}"
        assert re.findall(r"(?m)^\*\*(\w+)\.\*\* ", told[alert]) == ["Means", "Look", "Do"]
