"""The states of a topology, checked against the table of transitions."""

from __future__ import annotations

import json

import pytest

from dskype.topology.errors import AlreadyAliveException, IllegalArgumentException, InvalidTopologyException, NotAliveException, TransitionException
from dskype.topology.nimbus.states import Action, Nimbus, Rebalance, TopologyState, topology_id

T0 = 1_700_000_000_000
COMPONENTS = ["words", "count"]


def submitted(status: str = "ACTIVE", **conf) -> TopologyState:
    state, _ = Nimbus().submit("wc", conf, COMPONENTS, T0, active=status != "INACTIVE")
    if status == "REBALANCING":
        state.transition("REBALANCE", T0)
    elif status == "KILLED":
        state.transition("KILL", T0)
    return state


def kinds(actions: list[Action]) -> list[str]:
    return [a.kind for a in actions]


def test_the_topology_id_is_name_counter_and_epoch_seconds() -> None:
    assert topology_id("word count", 7, 1_700_000_000_999) == "word count-7-1700000000"


def test_a_topology_submitted_inactive_starts_nothing_until_activated() -> None:
    state, actions = Nimbus().submit("wc", {}, COMPONENTS, T0, active=False)
    assert (state.status, actions) == ("INACTIVE", [])
    assert kinds(state.transition("ACTIVATE", T0)) == ["activate spouts"]
    assert state.status == "ACTIVE"


def test_activate_and_deactivate_are_idempotent() -> None:
    state = submitted()
    assert state.transition("ACTIVATE", T0) == []
    assert kinds(state.transition("INACTIVATE", T0)) == ["deactivate spouts"]
    assert state.transition("INACTIVATE", T0) == []
    assert state.status == "INACTIVE"


LEGAL = {
    ("ACTIVE", "ACTIVATE"),
    ("ACTIVE", "INACTIVATE"),
    ("ACTIVE", "REBALANCE"),
    ("ACTIVE", "KILL"),
    ("INACTIVE", "ACTIVATE"),
    ("INACTIVE", "INACTIVATE"),
    ("INACTIVE", "REBALANCE"),
    ("INACTIVE", "KILL"),
    ("REBALANCING", "KILL"),
    ("REBALANCING", "DO_REBALANCE"),
    ("KILLED", "KILL"),
    ("KILLED", "REMOVE"),
}


@pytest.mark.parametrize("status", ["ACTIVE", "INACTIVE", "REBALANCING", "KILLED"])
@pytest.mark.parametrize("event", ["ACTIVATE", "INACTIVATE", "REBALANCE", "KILL", "DO_REBALANCE", "REMOVE"])
def test_each_state_allows_exactly_the_events_of_the_table(status: str, event: str) -> None:
    state = submitted(status)
    if (status, event) in LEGAL:
        state.transition(event, T0)
        return
    before = state.to_json()
    with pytest.raises(TransitionException) as caught:
        state.transition(event, T0)
    assert str(caught.value) == f"No transition for event: {event}, status: {status} storm-id: {state.id}"
    assert state.to_json() == before


def test_kill_switches_the_spouts_off_waits_the_message_timeout_and_removes() -> None:
    state = submitted(**{"topology.message.timeout.secs": 12})
    actions = state.transition("KILL", T0)
    assert kinds(actions) == ["deactivate spouts", "wait"]
    assert (state.status, actions[1].until_ms) == ("KILLED", T0 + 12_000)
    assert state.due_event(T0 + 11_999) is None
    assert state.due_event(T0 + 12_000) == "REMOVE"
    assert kinds(state.transition("REMOVE", T0 + 12_000)) == ["remove"]


def test_the_wait_given_with_kill_beats_the_message_timeout() -> None:
    state = submitted()
    assert state.transition("KILL", T0, wait_secs=0)[-1] == Action("wait", until_ms=T0)
    assert state.due_event(T0) == "REMOVE"


def test_a_second_kill_arms_the_wait_again() -> None:
    state = submitted()
    state.transition("KILL", T0, wait_secs=10)
    assert state.transition("KILL", T0 + 9_000, wait_secs=5) == [Action("wait", until_ms=T0 + 14_000)]


def test_the_default_wait_is_storms_message_timeout_of_30_seconds() -> None:
    assert submitted().transition("KILL", T0)[-1].until_ms == T0 + 30_000


@pytest.mark.parametrize("wait", [-1, float("nan"), float("inf"), "5", True])
def test_a_wait_that_is_no_number_of_seconds_is_refused(wait) -> None:
    state = submitted()
    with pytest.raises(IllegalArgumentException, match="The wait must be a number of seconds. given:"):
        state.transition("KILL", T0, wait_secs=wait)
    assert state.status == "ACTIVE"


@pytest.mark.parametrize("status", ["ACTIVE", "INACTIVE"])
def test_rebalance_waits_applies_and_returns_to_the_status_before(status: str) -> None:
    state = submitted(status)
    actions = state.transition("REBALANCE", T0, wait_secs=3, rebalance=Rebalance(2, {"count": 4}))
    assert kinds(actions) == (["deactivate spouts"] if status == "ACTIVE" else []) + ["wait"]
    assert (state.status, state.previous) == ("REBALANCING", status)
    assert state.due_event(T0 + 3_000) == "DO_REBALANCE"
    actions = state.transition("DO_REBALANCE", T0 + 3_000)
    assert actions[0] == Action("apply rebalance", workers=2, executors={"count": 4})
    assert kinds(actions[1:]) == (["activate spouts"] if status == "ACTIVE" else [])
    assert state.status == status
    assert state.conf["topology.workers"] == 2
    assert state.executors == {"count": 4}
    assert state.due_event(T0 + 10**9) is None


def test_executors_of_several_rebalances_add_up() -> None:
    state = submitted()
    for executors in ({"count": 4, "words": 2}, {"count": 1}):
        state.transition("REBALANCE", T0, wait_secs=0, rebalance=Rebalance(None, executors))
        state.transition("DO_REBALANCE", T0)
    assert state.executors == {"count": 1, "words": 2}
    assert "topology.workers" not in state.conf


def test_a_kill_during_a_rebalance_is_legal_and_drops_the_rebalance() -> None:
    state = submitted("REBALANCING")
    assert kinds(state.transition("KILL", T0, wait_secs=1)) == ["wait"]
    assert (state.status, state.rebalance, state.previous) == ("KILLED", None, None)
    assert state.due_event(T0 + 1000) == "REMOVE"


def test_rebalancing_an_unknown_component_names_the_valid_ones() -> None:
    with pytest.raises(InvalidTopologyException) as caught:
        submitted().transition("REBALANCE", T0, rebalance=Rebalance(None, {"cuont": 2}))
    assert str(caught.value).startswith("Invalid component cuont for topology wc, valid values are count,words")


@pytest.mark.parametrize("executors", [0, -1, 1.5, True])
def test_executors_below_one_are_refused_and_nothing_changes(executors) -> None:
    state = submitted()
    with pytest.raises(InvalidTopologyException, match="^Number of executors must be greater than 0; given: "):
        state.transition("REBALANCE", T0, rebalance=Rebalance(None, {"count": executors}))
    assert state.status == "ACTIVE"


def test_workers_below_one_are_refused() -> None:
    with pytest.raises(InvalidTopologyException, match="^Number of workers must be greater than 0"):
        submitted().transition("REBALANCE", T0, rebalance=Rebalance(0))


def test_an_event_that_is_none_is_refused_with_the_legal_ones() -> None:
    with pytest.raises(IllegalArgumentException, match="given: 'SWAP'; legal: ACTIVATE, INACTIVATE"):
        submitted().transition("SWAP", T0)


@pytest.mark.parametrize("status", ["ACTIVE", "INACTIVE", "REBALANCING", "KILLED"])
def test_a_state_survives_a_trip_through_json(status: str) -> None:
    state = submitted(status)
    if status == "REBALANCING":
        state.rebalance = Rebalance(3, {"count": 2})
    again = TopologyState.from_json(json.loads(json.dumps(state.to_json())))
    assert again == state


def test_a_state_of_another_format_or_with_missing_keys_is_refused() -> None:
    with pytest.raises(IllegalArgumentException, match="of this version. given: 99"):
        TopologyState.from_json(submitted().to_json() | {"v": 99})
    with pytest.raises(IllegalArgumentException, match="Not a whole topology state"):
        TopologyState.from_json({"v": 1, "name": "wc"})


def test_a_restart_arms_the_waits_anew_and_activates_the_active_ones() -> None:
    nimbus = Nimbus()
    for name in ("a", "b", "c", "d"):
        nimbus.submit(name, {}, COMPONENTS, T0, active=name != "b")
    nimbus.transition("c", "REBALANCE", T0, wait_secs=5)
    nimbus.transition("d", "KILL", T0, wait_secs=7)
    again = Nimbus(TopologyState.from_json(s.to_json()) for s in nimbus)
    later = T0 + 3_600_000
    actions = {state.name: acts for state, acts in again.startup(later)}
    assert kinds(actions["a"]) == ["activate spouts"]
    assert actions["b"] == []
    assert actions["c"] == [Action("wait", until_ms=later + 5_000)]
    assert actions["d"] == [Action("wait", until_ms=later + 7_000)]


def test_ids_go_on_counting_after_a_restart() -> None:
    nimbus = Nimbus()
    nimbus.submit("a-b", {}, COMPONENTS, T0)
    nimbus.submit("c", {}, COMPONENTS, T0)
    again = Nimbus(list(nimbus))
    assert again.submit("d", {}, COMPONENTS, T0)[0].id == "d-3-1700000000"


def test_a_name_in_use_is_refused_even_while_the_killed_topology_waits() -> None:
    nimbus = Nimbus()
    nimbus.submit("wc", {}, COMPONENTS, T0)
    nimbus.transition("wc", "KILL", T0, wait_secs=10)
    with pytest.raises(AlreadyAliveException, match="^wc is already alive$"):
        nimbus.submit("wc", {}, COMPONENTS, T0)
    assert [(s.name, kinds(a)) for s, a in nimbus.due(T0 + 10_000)] == [("wc", ["remove"])]
    assert nimbus.names == []
    nimbus.submit("wc", {}, COMPONENTS, T0 + 10_000)


def test_an_unknown_name_is_not_alive() -> None:
    with pytest.raises(NotAliveException, match="^nope is not alive$"):
        Nimbus().transition("nope", "KILL", T0)


def test_due_applies_rebalances_and_leaves_the_rest_alone() -> None:
    nimbus = Nimbus()
    nimbus.submit("a", {}, COMPONENTS, T0)
    nimbus.submit("b", {}, COMPONENTS, T0)
    nimbus.transition("a", "REBALANCE", T0, wait_secs=1, rebalance=Rebalance(2))
    assert nimbus.due(T0 + 999) == []
    assert [(s.name, kinds(a)) for s, a in nimbus.due(T0 + 1000)] == [("a", ["apply rebalance", "activate spouts"])]
    assert nimbus.get("a").status == "ACTIVE"
