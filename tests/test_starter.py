"""The starter topologies compute what their plain counterparts compute; those with a state do so whatever fails."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import exclamation
import pytest
import rolling_top_words
import single_join
import sliding_windows
import word_count
from paced_spouts import NumberSpout, SentenceSpout

from dskype.deploy.cli.python_file import load
from dskype.topology import Fields, TopologyBuilder
from dskype.topology.local import LocalCluster
from dskype.topology.simulated.faults import Faults
from dskype.topology.testing import AckFailMapTracker, FeederSpout, FixedTupleSpout, TupleCaptureBolt


def watched(topology, component):
    """Add a bolt to a topology that captures what a component emits; return it."""
    capture, name = TupleCaptureBolt(), f"of-{component}"
    builder = TopologyBuilder()
    builder.set_bolt(name, capture).global_grouping(component)
    topology.components[name] = builder.create_topology().components[name]
    return capture


def emitted(capture, component):
    return [tuple(t.values) for t in capture.get_results().get(component, [])]


@pytest.mark.long
@pytest.mark.parametrize("seed", [None, 1])
def test_words_are_counted_exactly(seed):
    topology = word_count.topology(SentenceSpout(interval_ms=1, limit=100))
    capture = watched(topology, "count")
    with LocalCluster(simulated=True, seed=seed, faults=Faults() if seed is None else Faults.heavy()) as cluster:
        handle = cluster.submit_topology("words", {"topology.emulator.snapshot.interval.ms": 200, "topology.message.timeout.secs": 600}, topology)
        cluster.advance_cluster_time(10)
        assert handle.stats.total("spout", "acked") == 200
        counts = Counter()
        spout = SentenceSpout()
        for task in (0, 1):
            spout._task = task
            for number in range(100):
                counts.update(spout.values(number)[0].split())
        assert Counter(emitted(capture, "count")) == Counter((word, n) for word, total in counts.items() for n in range(1, total + 1))
        held = [bolt._counts for bolt in handle.backend.components("count")]
        assert sum(map(Counter, held), Counter()) == counts


def test_words_are_exclaimed_twice_and_acked():
    words = FixedTupleSpout([["hello"], ["storm"]], Fields("word"))
    topology = exclamation.topology(words)
    capture = watched(topology, "exclaim2")
    with LocalCluster(simulated=True) as cluster:
        cluster.submit_topology("exclaim", {}, topology)
        cluster.advance_cluster_time(2)
    assert sorted(emitted(capture, "exclaim2")) == [("hello!!!!!!",), ("storm!!!!!!",)]
    assert words.get_num_acked() == 2


def test_the_top_words_are_those_of_the_last_nine_seconds():
    feeder = FeederSpout(Fields("word"))
    topology = rolling_top_words.topology(feeder, top_n=2)
    capture = watched(topology, "total")
    by_second = {1: "aaab", 4: "bbbbc", 7: "c", 13: "ddd"}
    seen: list[tuple[int, str]] = []
    with LocalCluster(simulated=True) as cluster:
        cluster.submit_topology("top", {"topology.emulator.pulse.idle.interval.ms": 100}, topology)
        for second in range(1, 31):
            for letter in by_second.get(second, ""):
                feeder.feed([letter])
                seen.append((second, letter))
            cluster.advance_cluster_time(1)
    rankings = [ranking for (ranking,) in emitted(capture, "total")]
    expected = []
    for tick in range(3, 31, 3):  # each window has the nine seconds before a tick
        counts = Counter(letter for second, letter in seen if tick - 9 < second <= tick)
        expected.append([[letter, n] for letter, n in sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))][:2])
    shown = [r for i, r in enumerate(rankings) if r and (not i or rankings[i - 1] != r)]
    assert shown == [r for i, r in enumerate(expected) if r and (not i or expected[i - 1] != r)]
    assert rankings[-1] == []


def test_tuples_are_joined_one_to_one_and_fail_without_a_partner():
    genders, ages = FeederSpout(Fields("id", "gender")), FeederSpout(Fields("id", "age"))
    trackers = AckFailMapTracker(), AckFailMapTracker()
    genders.set_ack_fail_delegate(trackers[0])
    ages.set_ack_fail_delegate(trackers[1])
    topology = single_join.topology(genders, ages)
    capture = watched(topology, "join")
    with LocalCluster(simulated=True) as cluster:
        cluster.submit_topology("join", {"topology.message.timeout.secs": 10, "topology.emulator.pulse.idle.interval.ms": 100}, topology)
        for i in range(10):
            genders.feed([i, "male" if i % 2 == 0 else "female"], i)
        for i in range(9, -1, -1):
            if i != 4:
                ages.feed([i, i + 20], i)
        cluster.advance_cluster_time(5)
        assert sorted(emitted(capture, "join")) == [(i, "male" if i % 2 == 0 else "female", i + 20) for i in range(10) if i != 4]
        assert [trackers[0].is_acked(i) for i in range(10)] == [i != 4 for i in range(10)]
        assert not trackers[0].is_failed(4)
        cluster.advance_cluster_time(10)
        assert trackers[0].is_failed(4)


@pytest.mark.long
@pytest.mark.parametrize("seed", [None, 1, 2])
def test_sums_and_averages_are_those_of_the_numbers(seed):
    topology = sliding_windows.topology(NumberSpout(interval_ms=1, limit=100))
    sums, averages = watched(topology, "slidingsum"), watched(topology, "tumblingavg")
    with LocalCluster(simulated=True, seed=seed, faults=Faults() if seed is None else Faults.heavy()) as cluster:
        handle = cluster.submit_topology("windows", {"topology.emulator.snapshot.interval.ms": 200, "topology.message.timeout.secs": 600}, topology)
        cluster.advance_cluster_time(10)
        backend = handle.backend
        spout = NumberSpout()
        spout._task, spout._context = 0, backend
        numbers = [spout.values(i)[0] for i in range(100)]
        expected = [sum(numbers[max(0, stop - 30) : stop]) for stop in range(10, 101, 10)]
        assert [s for (s,) in emitted(sums, "slidingsum")] == expected
        assert [a for (a,) in emitted(averages, "tumblingavg")] == [sum(expected[i : i + 3]) / 3 for i in (0, 3, 6)]


FOLDER = Path(word_count.__file__).parent
PROGRAMS = sorted(path.stem for path in FOLDER.glob("*.py") if path.stem != "paced_spouts")


@pytest.mark.parametrize("name", PROGRAMS)
def test_each_is_a_program_that_the_command_line_runs(name):
    path = FOLDER / f"{name}.py"
    loaded = load(str(path), None, {})
    assert loaded.flux.name == name.replace("_", "-") and loaded.flux.refusals == {}
    assert load(str(path), None, {}, ["other"]).flux.name == "other"
    with LocalCluster(simulated=True) as cluster:
        handle = cluster.submit_topology("t", loaded.flux.config, loaded.flux.topology)
        cluster.advance_cluster_time(12, 0.5)
        assert not handle.stats.errors and any(handle.stats.total(c, "executed") for c in loaded.flux.topology.bolts)


def test_every_program_is_here():
    assert PROGRAMS == ["exclamation", "rolling_top_words", "single_join", "sliding_windows", "word_count"]
