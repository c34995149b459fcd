"""The rules of ``dskype advise``, as tables of what was seen and what to change."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dskype.deploy.capacity.rules import ComponentLoad, Measures, Processors, recommend, why_nothing
from dskype.deploy.cli.commands.advise import document, lines

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
    load = bolt((0.5, 0.45))
    assert [one.kind for one in recommend(seen(load, processors=Processors(4, 0.5)))] == ["executors"]
    (found,) = recommend(seen(load, processors=Processors(4, 0.97)))
    assert (found.kind, found.when, found.numbers["processors_then"]) == ("hosts", "start", 7) and "4 processors" in found.why and "97 %" in found.why
    assert recommend(seen(bolt((0.5,)), processors=Processors(4, 0.97))) == [], "other work on the host is not ours to judge"


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
