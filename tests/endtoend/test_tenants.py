"""Quotas of tenants: what is refused is what the plain oracle says, whatever crashes, and refused registrations do not take part."""

import io
import json
import os
import random

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from rich.console import Console

from dskype.deploy.metrics.meter import Meter, measure
from dskype.deploy.metrics.prometheus import Collector
from dskype.deploy.metrics.tables import as_text
from dskype.deploy.verification import Inputs, verify
from dskype.spouts.settings import Settings
from dskype.topology.errors import IllegalArgumentException, InvalidTopologyException
from dskype.topology.planning.plan import TopologyPlan, metrics_topic
from dskype.topology.planning.validation import validate_submission
from dskype.topology.simulated.faults import Faults
from tests import naive

from .harness import TOPICS, Simulation, check, metric, random_message, random_subscription, topology

pytestmark = pytest.mark.long(seconds=30)

QUOTAS = {
    "acme": {"max_subscriptions": 3},
    "bolt": {"max_subscriptions": 2, "max_registrations_per_s": 2},
    "slow": {"max_registrations_per_s": 1},
    "shut": {"max_subscriptions": 0},
    "default": {"max_subscriptions": 4},
}
TOPK = {"type": "topk", "keywords": ["lake"], "lat": 0, "lon": 0, "k": 2, "alpha": 0.5}
FILTER = {"type": "boolean", "expression": "lake"}
SEEDS = int(os.environ.get("DSKYPE_SEEDS", "24"))


def letters(simulation):
    """Return (partition, offset) -> headers of each dead letter of a subscription, as text."""
    found = {}
    for record in simulation.sim.dead_letters():
        headers = {name: value.decode() for name, value in record.headers}
        assert headers["topic"] == TOPICS.subscriptions and record.value is None
        found[int(headers["partition"]), int(headers["offset"])] = headers
    return found


def refused(simulation):
    """Return offset -> (tenant, quota, what is used) of what was refused beyond a quota."""
    return {place[1]: (h["tenant"], h["quota"], int(h["used"])) for place, h in letters(simulation).items() if h["code"] == "over-quota"}


def expected(simulation, quotas):
    records = [
        {"id": r.key, "at_ms": r.timestamp_ms, "record": None if r.value is None else json.loads(r.value)} for r in simulation.records(TOPICS.subscriptions)
    ]
    return naive.over_quota(records, {"default": {}} | quotas)


def report_of(simulation, records=None, **settings):
    return verify(Inputs.read("dskype", records or simulation.log.records), Settings.from_conf(simulation.conf | settings), final=True)


@pytest.mark.parametrize("distributor", ["hashing", "prefix", "agrid"])
def test_a_tenant_at_its_quota_may_replace_and_remove_and_is_told_why_it_may_not_add(distributor):
    simulation = Simulation({"dskype.distributor": distributor, "dskype.tenants": {"acme": {"max_subscriptions": 2}}})
    for id in ("a", "b", "c"):
        simulation.subscription(id, TOPK | {"tenant": "acme"})
    simulation.subscription("other", FILTER)
    simulation.subscription("a", FILTER | {"tenant": "acme"})
    simulation.step()
    simulation.message({"text": "lake", "lat": 0, "lon": 0, "id": "m"})
    simulation.step()
    simulation.subscription("b", None)
    simulation.subscription("d", TOPK | {"tenant": "acme"})
    simulation.subscription("e", TOPK | {"tenant": "acme"})
    simulation.subscription("nobody", None)
    simulation.drain(16)
    assert refused(simulation) == {2: ("acme", "max_subscriptions", 2), 7: ("acme", "max_subscriptions", 2)}
    headers = letters(simulation)[0, 2]
    assert (headers["stage"], headers["most"], headers["component"]) == ("limit", "2", "distribution-bolt")
    for words in (
        "quota max_subscriptions of the tenant acme",
        "2 of 2 subscriptions live",
        "given: 'c'",
        "hint: remove some, or raise the quota (dskype.tenants)",
    ):
        assert words in headers["error"]
    assert metric(simulation, "over_quota_subscriptions") == 2 and metric(simulation, "refused_subscriptions") == 0
    assert {id for id, _, _ in simulation.json(TOPICS.registrations)} == {"a", "b", "d", "other"}
    check(simulation)
    report = report_of(simulation)
    assert report.ok, report.as_text(5)
    assert report.notes["subscriptions that were refused beyond a quota"] == 2 and report.compared["registrations with quotas"] == 9


def test_a_tenant_that_is_not_known_shares_the_quotas_of_the_default_one():
    simulation = Simulation({"dskype.tenants": {"default": {"max_subscriptions": 2}, "acme": {}}})
    for number, tenant in enumerate(("x", "y", None, "acme", "default")):
        simulation.subscription(f"s{number}", FILTER | ({} if tenant is None else {"tenant": tenant}))
    simulation.drain()
    assert refused(simulation) == {2: ("default", "max_subscriptions", 2), 4: ("default", "max_subscriptions", 2)}


def test_a_subscription_whose_time_is_over_makes_room_and_one_that_changes_its_tenant_moves():
    simulation = Simulation({"dskype.tenants": {"acme": {"max_subscriptions": 1}, "bolt": {"max_subscriptions": 1}}})
    simulation.subscription("a", FILTER | {"tenant": "acme", "ttl_s": 2})
    simulation.step(ms=1900)
    simulation.subscription("early", FILTER | {"tenant": "acme"})
    simulation.step(ms=100)
    simulation.subscription("b", FILTER | {"tenant": "acme"})
    simulation.subscription("b", FILTER | {"tenant": "bolt"})
    simulation.subscription("c", FILTER | {"tenant": "acme"})
    simulation.subscription("b", TOPK | {"tenant": "acme"})
    simulation.drain()
    assert refused(simulation) == {1: ("acme", "max_subscriptions", 1), 5: ("acme", "max_subscriptions", 1)}
    assert expected(simulation, {"acme": {"max_subscriptions": 1}, "bolt": {"max_subscriptions": 1}}) == refused(simulation)
    assert report_of(simulation).ok


def test_registrations_beyond_the_rate_are_refused_and_removals_are_not():
    simulation = Simulation({"dskype.tenants": {"acme": {"max_registrations_per_s": 2}}})
    simulation.step(ms=-simulation.time_ms % 1000)
    for id in ("a", "b", "c"):
        simulation.subscription(id, FILTER | {"tenant": "acme"})
    simulation.subscription("a", None)
    simulation.subscription("a", FILTER | {"tenant": "acme"})
    simulation.step(ms=999)
    simulation.subscription("d", FILTER | {"tenant": "acme"})
    simulation.step(ms=1)
    simulation.subscription("e", FILTER | {"tenant": "acme"})
    simulation.drain()
    assert refused(simulation) == dict.fromkeys((2, 4, 5), ("acme", "max_registrations_per_s", 2))
    assert "try again in a second" in letters(simulation)[0, 2]["error"]
    assert report_of(simulation).ok


def play(seed):
    """Play a world with heavy faults; return the simulation."""
    rng = random.Random(seed)
    conf = {"dskype.tenants": QUOTAS, "dskype.distributor": rng.choice(["hashing", "hashing", "prefix", "agrid"])}
    tasks = {"subscription-bolt": rng.randint(1, 3), "message-bolt": rng.randint(1, 2)}
    simulation = Simulation(conf, tasks, seed=seed, faults=Faults.drawn(seed))
    for number in range(30):
        for _ in range(rng.randint(0, 3)):
            name = f"s{rng.randint(0, 14)}"
            if rng.random() < 0.2:
                simulation.subscription(name, None)
                continue
            tenant = rng.choice([*QUOTAS, "unknown", None])
            simulation.subscription(name, random_subscription(rng, lives_s=(0.5, 1, 2)) | ({} if tenant is None else {"tenant": tenant}))
        simulation.message(random_message(rng, number))
        simulation.step(rng.choice([1, 5, 100_000]), ms=rng.choice([50, 200, 400]))
    simulation.drain(30)
    return simulation


@pytest.mark.parametrize("chunk", range(3))
def test_what_is_refused_is_what_the_oracle_says_whatever_crashes(chunk):
    only, quotas = os.environ.get("DSKYPE_SEED"), set()
    for seed in range(chunk, SEEDS, 3) if only is None else [int(only)] if chunk == 0 else []:
        simulation, hint = play(seed), f"reproduce with DSKYPE_SEED={seed}"
        found = refused(simulation)
        assert found == expected(simulation, QUOTAS), hint
        quotas |= {quota for _, quota, _ in found.values()}
        check(simulation, hint=hint)
        report = report_of(simulation)
        assert report.ok and not any("quota" in what for what in report.unchecked), f"{report.as_text(5)}; {hint}"
    assert only is not None or len(quotas) == 2, "both quotas are met"


def test_verification_sees_a_registration_that_was_wrongly_refused_or_taken():
    simulation = play(3)
    (last, *_), offsets = sorted(refused(simulation), reverse=True), sorted(refused(simulation))
    tenant, quota, used = refused(simulation)[offsets[0]]

    def with_letters(change):
        def records(topic):
            found = list(simulation.log.records(topic))
            return [changed for record in found if (changed := change(record)) is not None] if topic == TOPICS.dead_letters else found

        return report_of(simulation, records)

    def about(record, offset):
        return (b"offset", str(offset).encode()) in [(name.encode(), value) for name, value in record.headers]

    def saying(name, value):
        return lambda r: r._replace(headers=[(n, str(value).encode() if n == name else v) for n, v in r.headers]) if about(r, offsets[0]) else r

    assert not report_of(simulation).counts
    for change in (saying("used", used + 1), saying("most", used + 1), saying("tenant", "acme" if tenant != "acme" else "bolt"), saying("quota", "x")):
        report = with_letters(change)
        assert report.counts["dead-letter"] >= 1, report.as_text(5)
    # A letter that is missing: the registration seems to have been taken, and is compared like all others.
    report = with_letters(lambda r: None if about(r, last) else r)
    assert not report.ok


def test_quotas_may_change_when_a_topology_is_resumed_and_only_for_what_arrives_then():
    simulation = Simulation({"dskype.tenants": {"acme": {"max_subscriptions": 1}}})
    for id in ("a", "b"):
        simulation.subscription(id, FILTER | {"tenant": "acme"})
    simulation.drain(3)
    for most, more in ((3, ("c", "d", "e")), (2, ("f",))):
        conf = simulation.conf | {"dskype.tenants": {"acme": {"max_subscriptions": most}}}
        plan = TopologyPlan.build("dskype", "dskype-1-0", conf, topology({}))
        simulation.sim.rebalance(plan)
        simulation.conf = conf
        for id in more:
            simulation.subscription(id, FILTER | {"tenant": "acme"})
        simulation.drain(4)
    assert {offset: used for offset, (_, _, used) in refused(simulation).items()} == {1: 1, 4: 3, 5: 3}
    assert {h["most"] for h in letters(simulation).values()} == {"1", "3", "2"}
    assert report_of(simulation).ok


def test_a_topology_that_has_not_counted_so_far_is_not_continued_with_quotas():
    simulation = Simulation()
    simulation.subscription("a", FILTER)
    simulation.drain(4)
    plan = TopologyPlan.build("dskype", "dskype-1-0", simulation.conf | {"dskype.tenants": {"acme": {}}}, topology({}))
    with pytest.raises(IllegalArgumentException, match="dskype.tenants is set now.*state without quotas.*distribution-bolt.*--fresh"):
        simulation.sim.rebalance(plan)
        simulation.message({"text": "lake", "lat": 0, "lon": 0})
        simulation.drain(2)


def test_several_tasks_that_each_see_some_subscriptions_are_refused():
    conf = {"topology.acker.executors": 0, "dskype.tenants": {"acme": {"max_subscriptions": 1}}}
    with pytest.raises(InvalidTopologyException, match=r"only one task sees all of them.*given: '2 tasks'.*1 task of the distribution bolt"):
        validate_submission("dskype", conf, topology({"distribution-bolt": 2}))
    validate_submission("dskype", conf, topology({}))


def test_what_tenants_use_is_measured_and_served_and_goes_on_after_a_crash():
    conf = {"dskype.tenants": {"acme": {"max_subscriptions": 2}, "slow": {"max_registrations_per_s": 1}, "free": {}}}
    simulation = Simulation(conf, seed=2, faults=Faults(restarted=0.3, snapshot=0.5))
    simulation.step(ms=-simulation.time_ms % 1000)
    for number, tenant in enumerate(["acme", "acme", "slow", "acme", "slow", "unknown", "slow"]):
        simulation.subscription(f"s{number}", FILTER | {"tenant": tenant})
        if number % 3 == 0:
            simulation.step(ms=50)
    simulation.subscription("s0", None)
    simulation.subscription("s3", FILTER | {"tenant": "acme"})
    simulation.drain()
    assert simulation.sim.fault_counts["restarted"] > 2 and report_of(simulation).ok
    meter, topic = Meter(), metrics_topic("dskype")
    for record in simulation.log.records(topic):
        meter.feed(record.value)
    about = {"name": "dskype", "id": "dskype-1-0", "status": "ACTIVE", "driver_alive": True, "health": {"state": "running"}, "conf": simulation.conf}
    rows = measure(meter, about)["tenants"]
    assert {name: (row["subscriptions"], row["registrations"], sum(row["refused"].values())) for name, row in rows.items()} == {
        "acme": (2, 3, 1),
        "slow": (1, 1, 2),
        "free": (0, 0, 0),
        "default": (1, 1, 0),
    }
    registry = CollectorRegistry()
    registry.register(Collector(lambda: [(about, meter, {})]))
    text = generate_latest(registry).decode()
    for line in (
        'dskype_tenant_subscriptions{tenant="acme",topology="dskype"} 2.0',
        'dskype_tenant_registrations_total{tenant="acme",topology="dskype"} 3.0',
        'dskype_tenant_refused_total{quota="max_subscriptions",tenant="acme",topology="dskype"} 1.0',
        'dskype_tenant_refused_total{quota="max_registrations_per_s",tenant="slow",topology="dskype"} 2.0',
        'dskype_tenant_quota{quota="max_registrations_per_s",tenant="slow",topology="dskype"} 1.0',
        'dskype_tenant_subscriptions{tenant="free",topology="dskype"} 0.0',
    ):
        assert line in text
    assert text.count("dskype_tenant_quota{") == 2 and 'tenant="other"' not in text
    table = Console(width=140, file=io.StringIO())
    table.print(as_text(measure(meter, about)))
    assert "per second at most" in table.file.getvalue() and "acme" in table.file.getvalue()
    # Those that the configuration does not have any more are one, whatever their names.
    about["conf"] = conf | {"dskype.tenants": {"slow": {}}}
    rows = measure(meter, about)["tenants"]
    assert rows["other"]["subscriptions"] == 2 and set(rows) == {"slow", "default", "other"}
    about["conf"] = {}
    assert measure(meter, about)["tenants"] is None


def test_a_topology_without_tenants_carries_and_reports_nothing_of_them():
    simulation = Simulation()
    simulation.subscription("a", FILTER)
    simulation.drain()
    assert not any(
        b"tenant" in (record.value or b"") or b"quota" in (record.value or b"") for topic in simulation.log.topics() for record in simulation.log.records(topic)
    )
