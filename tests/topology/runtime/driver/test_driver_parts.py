"""The parts of a driver, without Spark and without brokers: threads, the clock's commands, and what becomes of failed queries."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from kafka.errors import KafkaTimeoutError

from dskype.topology import TopologyBuilder
from dskype.topology.core.frames import Control, decode_frame
from dskype.topology.core.snapshots import FencedError
from dskype.topology.errors import FATAL_MARK, RETRIABLE_MARK, FatalError, TopologyError
from dskype.topology.planning.plan import TopologyPlan, inbox_topic
from dskype.topology.runtime.driver import query_keeper
from dskype.topology.runtime.driver.clock_writer import ClockWriter
from dskype.topology.runtime.driver.driver import DriverThreads
from dskype.topology.runtime.driver.query_keeper import QueryKeeper
from dskype.topology.runtime.driver.state import DriverState, TopologyFailedError
from dskype.topology.runtime.kafka.clients import KafkaSettings
from dskype.topology.runtime.spark.component_query import PartitionsAddedError
from tests.waiting import wait_for

from ..components import PacedNumbers, RunningSum


class Producer:
    """Keeps what is sent, while the brokers are there."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, bytes]] = []
        self.away = False

    def send(self, topic, value, key=None, partition=None):
        def get(timeout_s: float | None = None) -> None:
            if self.away:
                raise KafkaTimeoutError("no broker answers")
            self.sent.append((topic, value))

        return SimpleNamespace(get=get)

    def commands(self, topic: str) -> list[str]:
        """Return the commands that a topic has got."""
        frames = [decode_frame(value) for where, value in self.sent if where == topic]
        return [frame.command for frame in frames if isinstance(frame, Control)]


@pytest.fixture
def state(tmp_path) -> DriverState:
    builder = TopologyBuilder()
    builder.set_spout("numbers", PacedNumbers(10))
    builder.set_bolt("sum", RunningSum(), 2).shuffle_grouping("numbers")
    plan = TopologyPlan.build("t", "t-1-0", {"topology.emulator.restarts.max": 3}, builder.create_topology())
    made = DriverState(plan, None, KafkaSettings("127.0.0.1:1"), tmp_path, lambda text: None)
    made.producer = Producer()
    return made


# -- state ----------------------------------------------------------------------------------------


def test_the_first_error_ends_the_topology_for_good_and_is_written(state):
    state.active = True
    for text in ("first", "second"):
        state.fail(TopologyFailedError(text))
    assert str(state.failure) == "first" and not state.active
    assert state.reports.summary()["state"] == "failed"
    assert b'"first"' in state.producer.sent[-1][1] and not any(b"second" in value for _, value in state.producer.sent)


def test_a_driver_that_was_replaced_writes_nothing(state):
    state.fail(FencedError("another driver has taken it over"))
    assert state.failure is not None and not state.producer.sent


# -- threads --------------------------------------------------------------------------------------


def test_no_error_ends_a_thread_and_each_kind_is_told_in_its_way(state, monkeypatch):
    monkeypatch.setattr("dskype.topology.runtime.driver.driver._AFTER_ERROR_S", 0.0)
    errors = [KafkaTimeoutError("away"), ValueError("odd"), FatalError("the end"), TopologyError("later")]

    def step() -> float:
        if errors:
            raise errors.pop(0)
        return 0.01

    threads = DriverThreads(state)
    threads.start({"clock": (step, 0.0)})
    wait_for(lambda: not errors, 20, "all errors")
    assert threads.dead() == [] and threads.stop(10) and threads.dead() == []
    assert state.brokers_away and str(state.failure) == "the end"
    assert state.reports.problems == {"clock": 2, "failure": 1}


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_that_has_ended_by_itself_is_dead(state):
    def ends() -> float:
        raise SystemExit

    threads = DriverThreads(state)
    threads.start({"watch": (ends, 0.0)})
    wait_for(threads.dead, 20, "the end of the thread")
    assert threads.dead() == ["t-watch"]


# -- commands -------------------------------------------------------------------------------------


def test_the_last_command_is_sent_when_the_brokers_are_back(state):
    clock, inbox = ClockWriter(state), inbox_topic("t", "numbers")
    state.producer.away = True
    clock.control("activate")
    clock.control("deactivate")
    with pytest.raises(KafkaTimeoutError):
        clock.step()
    assert state.producer.commands(inbox) == []
    state.producer.away = False
    for _ in range(2):
        clock.step()
    assert state.producer.commands(inbox) == ["deactivate"]


def test_nothing_is_written_after_another_driver_has_taken_over(state, monkeypatch):
    monkeypatch.setattr(state.tenure, "is_over", lambda: True)
    with pytest.raises(FencedError, match="another driver"):
        ClockWriter(state).control("activate")
    assert not state.producer.sent


# -- queries --------------------------------------------------------------------------------------


@pytest.fixture
def judge(state, monkeypatch):
    """Return a keeper whose query "sum" fails with an error, and how long it then waits; None: it does not fall due."""
    now = [1000.0]
    monkeypatch.setattr(query_keeper, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(query_keeper, "jvm_exit_code", lambda spark: None)
    monkeypatch.setattr(query_keeper, "brokers_answer", lambda kafka: not state.producer.away)
    keeper = QueryKeeper(state, None, None, lambda: {2: 1}, lambda: False)

    def fail(error: Exception | str) -> float | None:
        keeper._due.clear()
        keeper._queries["sum"] = SimpleNamespace(failure=lambda: RuntimeError(error) if isinstance(error, str) else error, stop=lambda: None)
        monkeypatch.setattr(keeper, "_restart", lambda component: None)
        keeper.look()
        assert "sum" not in keeper._queries
        return keeper._due["sum"] - now[0] if "sum" in keeper._due else None

    return keeper, fail


def test_failures_without_progress_come_later_and_later_and_the_last_ends_the_topology(state, judge):
    keeper, fail = judge
    assert [fail("ValueError: odd") for _ in range(3)] == [0.0, 0.5, None]
    assert "has failed 3 times in a row" in str(state.failure) and "given: 'ValueError: odd'" in str(state.failure)
    assert state.reports.restarts == {"sum": 2} and [error["component"] for error in state.stats.errors] == ["sum", "sum", "sum", "__driver"]


def test_what_may_pass_is_tried_again_without_an_end(state, judge):
    keeper, fail = judge
    assert {fail(f"x {RETRIABLE_MARK} no room") for _ in range(9)} == {2.0}
    assert keeper.obstacles() == {"sum": "no room"}
    assert {fail(PartitionsAddedError("more")) for _ in range(9)} == {0.5}
    assert not keeper.obstacles(), "there is room now"
    state.producer.away = True
    assert {fail("no broker") for _ in range(9)} == {2.0}
    assert state.brokers_away and state.failure is None and not state.reports.restarts and not keeper.failing()


def test_what_a_retry_cannot_help_ends_the_topology_at_once(state, judge):
    _, fail = judge
    assert fail(f"x {FATAL_MARK} input is lost") is None
    assert str(state.failure) == "component 'sum' cannot continue: input is lost"
