"""The rules of ``dskype advise``, as tables of what was seen and what to change."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import replace
from types import SimpleNamespace

import pytest

from dskype.deploy.capacity import watching
from dskype.deploy.capacity.replanning import Plans
from dskype.deploy.capacity.rules import ComponentLoad, Measures, Processors, recommend, why_no_plan, why_nothing
from dskype.deploy.cli.commands import advise
from dskype.deploy.cli.commands.advise import compared, document, lines
from dskype.deploy.client.advice import Advice, Candidate

QUIET = ComponentLoad("spout", "spout", ((0.2,),), taken_per_s=1000.0)
GROWING = (0, 3000, 6000)


def bolt(*executors: tuple[float, ...], **more) -> ComponentLoad:
    return ComponentLoad("bolt", "bolt", executors, **{"taken_per_s": 1000.0, "groupings": ("shuffle",), **more})


def seen(*components: ComponentLoad, **more) -> Measures:
    return Measures("t", 10.0, (QUIET, *components), **more)


@pytest.mark.parametrize(
    ("load", "expected"),
    [
        (bolt((0.5,)), []),
        (bolt((0.79,)), []),
        # Full, with fewer executors than tasks: as many as bring the greatest share to 60 %.
        (bolt((0.24, 0.24, 0.24, 0.24)), [("executors", 2)]),
        (bolt((0.4, 0.4, 0.1)), [("executors", 3)]),
        (bolt((0.1, 0.5, 0.4)), [("executors", 2)]),
        (bolt((0.3, 0.3), (0.5, 0.4)), [("executors", 3)]),
        # What comes is twice what is taken, so the need is twice what was seen.
        (bolt((0.4, 0.4), waiting=GROWING, taken_per_s=600.0), [("executors", 2), ("tasks", 3)]),
        (bolt((0.2, 0.2), waiting=GROWING, taken_per_s=600.0), [("executors", 2)]),
        # An executor for each task: more tasks.
        (bolt((0.9,)), [("tasks", 2)]),
        (bolt((0.9,), (0.95,)), [("tasks", 4)]),
        # One task is full by itself, so another executor would not relieve it.
        (bolt((0.95,), (0.9, 0.05)), [("tasks", 4)]),
        (bolt((0.95,), groupings=("global",)), [("grouping", None)]),
        (bolt((0.95,), (0.1,), (0.1,), groupings=("fields",)), [("grouping", None)]),
        # Almost idle.
        (bolt((0.05,), (0.02,)), [("executors", 1)]),
        (bolt((0.1,), (0.1,), (0.1,), (0.1,)), [("executors", 2)]),
        (bolt((0.05,), (0.02,), taken_per_s=0.0), []),
        (bolt((0.05,)), []),
    ],
)
def test_a_component_gets_what_its_load_needs(load, expected) -> None:
    found = recommend(seen(load))
    assert [(one.kind, one.executors.get("bolt") if one.kind == "executors" else one.numbers.get("tasks_then")) for one in found] == expected
    for one in found:
        assert one.why and one.effect and one.component == "bolt" and one.numbers["busiest"] == round(load.busiest, 3)
        assert (one.when == "now") == (one.kind == "executors") and (
            one.command == f"dskype rebalance t -e bolt={one.executors['bolt']}" if one.executors else True
        )
        assert one.settings == ({"bolts[id=bolt].parallelism": one.numbers["tasks_then"]} if one.kind == "tasks" else {})


def test_more_executors_are_expected_to_be_as_busy_as_a_rebalance_divides_the_tasks() -> None:
    (found,) = recommend(seen(bolt((0.4, 0.1, 0.4))))
    assert found.numbers["executors_then"] == 2 and found.numbers["busiest_then"] == 0.5 and "50 % of the time instead of 90 %" in found.effect


@pytest.mark.parametrize(
    ("waiting", "growth"), [((0, 0, 0), 0), ((0, 500, 900), 0), ((0, 3000, 2900), 0), (GROWING, 600), ((9000, 6000, 3000), 0), ((5, 50, 100), 0)]
)
def test_what_waits_grows_only_if_it_does_so_steadily_and_by_a_tenth_of_what_is_taken(waiting, growth) -> None:
    assert bolt((0.5,), waiting=waiting).growth(10) == growth


def test_full_executors_on_full_processors_need_a_host_and_not_more_executors() -> None:
    load = bolt((0.5, 0.45), hosts=("a",))
    assert [one.kind for one in recommend(seen(load, hosts={"a": Processors(4, 0.5)}))] == ["executors"]
    (found,) = recommend(seen(load, hosts={"a": Processors(4, 0.97)}))
    assert (found.kind, found.when, found.numbers["processors_then"]) == ("hosts", "start", 7) and "4 processors of a" in found.why and "97 %" in found.why
    assert recommend(seen(bolt((0.5,), hosts=("a",)), hosts={"a": Processors(4, 0.97)})) == [], "other work on the host is not ours to judge"


def test_a_full_host_beside_one_with_room_needs_a_rebalance() -> None:
    load = bolt((0.3,), (0.5, 0.45), hosts=("b", "a"))
    hosts = {"a": Processors(4, 0.95), "b": Processors(12, 0.15)}
    (found,) = recommend(seen(load, hosts=hosts))
    assert (found.kind, found.when, found.command, found.executors) == ("hosts", "now", "dskype rebalance t", {})
    assert "b 15 %" in found.why and "about 35 % of the time" in found.effect
    (found,) = recommend(seen(load, hosts={**hosts, "b": Processors(12, 0.7)}))
    assert found.when == "start" and "in place of a" in found.what
    assert [one.kind for one in recommend(seen(load, hosts={"a": Processors(4, 0.2), "b": Processors(12, 0.99)}))] == ["executors"], "the full executor is on a"
    other = replace(load, component="other", executors=((0.9,),), hosts=("a",))
    assert [(one.kind, one.component) for one in recommend(seen(load, other, hosts=hosts))] == [("hosts", "bolt")], "a host is advised once"


def test_hosts_are_told_by_what_their_executors_have_said_twice() -> None:
    def said(used: float, had: float, name: str = "a") -> watching._Host:
        return watching._Host(name, 4, used, had)

    before = {("x", 0): said(100, 1000), ("x", 1): said(100, 1000), ("y", 0): said(5, 10, "b"), ("z", 0): said(5, 10, "c")}
    after = {("x", 0): said(150, 1100), ("x", 1): said(180, 1200), ("y", 0): said(5, 10, "b"), ("z", 0): said(50, 60, "d"), ("new", 0): said(1, 2, "e")}
    assert watching.hosts_between(before, after) == {"a": Processors(4, 0.4)}


def test_a_spout_that_has_a_task_for_each_partition_needs_partitions_first() -> None:
    spout = ComponentLoad("in", "spout", ((0.9,),), taken_per_s=10.0, partitions=1)
    (found,) = recommend(Measures("t", 10.0, (spout,)))
    assert (found.kind, found.settings) == ("partitions", {"spouts[id=in].parallelism": 2})
    (found,) = recommend(Measures("t", 10.0, (replace(spout, partitions=4),)))
    assert found.kind == "tasks"


def test_what_waits_for_nobody_who_is_busy_is_looked_into() -> None:
    (found,) = recommend(seen(bolt((0.1,), waiting=GROWING)))
    assert (found.kind, found.command) == ("look", "dskype get-errors t") and "600/s more come than are taken" in found.why
    (found,) = recommend(seen(bolt((0.0,), waiting=(500, 500, 500), taken_per_s=0.0)))
    assert found.kind == "look" and "none was taken" in found.why


def test_uneven_tasks_of_subscriptions_need_another_plan_or_distributor() -> None:
    load = bolt((0.7,), (0.1,), (0.1,))
    own = {"subscription_bolt": "bolt", "distributor": "prefix"}
    (found,) = recommend(seen(load, **own))
    assert (found.kind, found.command) == ("distributor", "dskype partition advise") and "2.3 times the mean" in found.why and "70 %" in found.why
    assert recommend(seen(load, **own, balances_itself=True)) == [] and "dskype.balance: auto" in why_nothing(seen(load, **own, balances_itself=True))
    assert recommend(seen(bolt((0.2,), (0.01,), (0.01,)), **own)) == [], "a task that is far from full may carry more than the others"


def judged(name: str, slowest_us: float, balance: float = 1.0, copies: float = 1.0) -> Candidate:
    return Candidate(name, copies, 1.5, balance, 0.0, 0.0, 0.0, slowest_us, 0, tasks_us=(slowest_us, slowest_us / 2))


def plans(present: Candidate, new: Candidate | None, best: Candidate, then_us: float | None = None) -> Plans:
    other = {"distributor": best.distributor, "tasks": 3}
    return Plans(
        4, present, new, None if new is None else {"distributor": "agrid", "tasks": 3}, 0.25, Advice(3, [best], best, other), 900, 800, 8000, lambda n: then_us
    )


UNEVEN = {"subscription_bolt": "bolt", "distributor": "agrid"}


@pytest.mark.parametrize(
    ("new", "best", "expected"),
    [
        (judged("agrid", 4.0), judged("agrid", 4.0), ["plan"]),
        (judged("agrid", 9.0), judged("agrid", 9.0), ["plan"]),
        (judged("agrid", 9.1), judged("agrid", 9.1), []),
        (judged("agrid", 4.0), judged("hybrid", 3.6), ["plan", "distributor"]),
        (judged("agrid", 4.0), judged("hybrid", 3.7), ["plan"]),
        (judged("agrid", 12.0), judged("hybrid", 8.0), ["distributor"]),
        (None, judged("hybrid", 8.0), ["distributor"]),
        (None, judged("hybrid", 9.5), []),
    ],
)
def test_uneven_tasks_get_a_plan_or_a_distributor_with_which_the_busiest_one_has_less_to_do(new, best, expected) -> None:
    measures = seen(bolt((0.6,), (0.1,), (0.1,)), **UNEVEN)
    model = plans(judged("agrid", 10.0, 2.3), new, best)
    found = recommend(measures, model)
    assert measures.asks_for_plans and [one.kind for one in found] == expected
    for one in found:
        then = new if one.kind == "plan" else best
        assert f"about {0.6 * then.slowest_us / 10:.0%}".replace("%", " %") in one.effect and "60 %" in one.effect and "2.3 times the mean" in one.why
        assert (one.numbers["slowest_us"], one.numbers["slowest_us_then"]) == (10.0, then.slowest_us)
        assert (one.when, one.command) == (("now", "dskype advise t --apply") if one.kind == "plan" else ("start", "dskype advise t --plan FILE"))
    assert (why_no_plan(measures, model) is None) == ("plan" in expected)
    data, text = document("t-1", measures, found, model), "\n".join(lines(measures, found, model))
    assert [one["plan"] for one in data["plans"]["candidates"]] == ["in force", *(["new"] if new else []), *(["other"] if best.distributor != "agrid" else [])]
    assert (data["plans"]["why_not"] or "") in text and ("No new plan." in text) == (data["plans"]["why_not"] is not None)


def test_a_topology_that_balances_itself_gets_a_plan_only_where_the_load_model_has_a_better_one() -> None:
    measures = seen(bolt((0.6,), (0.1,), (0.1,)), **UNEVEN, balances_itself=True)
    assert recommend(measures) == []
    assert [one.kind for one in recommend(measures, plans(judged("agrid", 10.0), judged("agrid", 4.0), judged("agrid", 4.0)))] == ["plan"]
    assert recommend(measures, plans(judged("agrid", 10.0), judged("agrid", 9.9), judged("agrid", 9.9))) == []


def test_more_tasks_are_expected_to_do_what_the_load_model_says() -> None:
    measures = seen(bolt((0.9,), (0.9,)), **UNEVEN)
    assert measures.asks_for_plans and measures.uneven() is None
    (found,) = recommend(measures, plans(judged("agrid", 10.0), judged("agrid", 10.0), judged("agrid", 10.0), then_us=8.0))
    assert (found.kind, found.numbers["busiest_task_then"]) == ("tasks", 0.72) and "about 72 % of the time instead of 90 %" in found.effect
    (found,) = recommend(measures, plans(judged("agrid", 10.0), judged("agrid", 10.0), judged("agrid", 10.0)))
    assert "about 60 %" in found.effect, "the distributor cannot have so many tasks, so the load model does not say"
    assert not seen(bolt((0.5,), (0.5,)), **UNEVEN).asks_for_plans


def test_what_was_changed_is_measured_before_and_after() -> None:
    before, after = seen(bolt((0.8,), (0.1,), (0.3,))), seen(bolt((0.4,), (0.4,), (0.4,), taken_per_s=2000.0))
    (line,) = compared(before, after, ["bolt", None])
    assert line == (
        "bolt: busiest executor 80% before, 40% after; busiest task 80% before, 40% after; busiest task / mean 2.00 before, 1.00 after; "
        "1,000/s before, 2,000/s after"
    )


def test_nothing_to_do_says_why() -> None:
    assert "50 % of the time, and full is 80 %" in why_nothing(seen(bolt((0.5,))))
    assert "took nothing" in why_nothing(Measures("t", 10.0, (replace(QUIET, taken_per_s=0.0),)))
    assert list(lines(seen(bolt((0.5,))), []))[-1].startswith("Nothing to change. The busiest executor is one of bolt")


def test_text_and_json_say_the_same() -> None:
    measures = seen(bolt((0.5, 0.45)), silent={"other": "task 9 has not reported yet"})
    found = recommend(measures)
    text, data = "\n".join(lines(measures, found)), document("t-1-1", measures, found)
    assert data["unknown"] == {"other": "task 9 has not reported yet"} and "unknown: task 9 has not reported yet" in text
    assert data["advice"][0]["what"] in text and data["advice"][0]["command"] in text and data["nothing"] is None
    assert document("t-1-1", seen(), [])["nothing"]


def test_what_was_changed_is_told_even_if_nobody_reports_afterwards(monkeypatch, capsys) -> None:
    def silent(*_: object) -> None:
        raise watching.NotRunningError("No task of t has reported within 6 s.")

    done: list[dict[str, int]] = []
    monkeypatch.setattr(watching, "watch", silent)
    monkeypatch.setattr(advise, "_rebalance", lambda kafka, topology, executors: done.append(executors))
    measures = seen(bolt((0.4, 0.4, 0.1)))
    told = advise._apply(SimpleNamespace(kafka=None), measures, recommend(measures), None, Namespace(seconds=6, output="json"))
    assert told == {"applied": {"bolt": 3}, "after": None} and done == [{"bolt": 3}]
    assert "No task of t has reported within 6 s." in capsys.readouterr().err
