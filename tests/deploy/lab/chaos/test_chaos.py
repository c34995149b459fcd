"""The fault suite's own parts, without Spark: the schedule, the table, processes, the clock, and whether its checks can fail."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import time

import pytest

from dskype.deploy.lab.chaos import processes, soak
from dskype.deploy.lab.chaos.__main__ import main
from dskype.deploy.lab.chaos.clock import SetClock
from dskype.deploy.lab.chaos.components import expected_sums
from dskype.deploy.lab.chaos.faults import FAULTS, PARTNERS
from dskype.deploy.lab.chaos.report import Outcome, Result, as_table, summary
from dskype.deploy.lab.chaos.schedule import draw
from dskype.deploy.lab.chaos.store import HangingStore
from dskype.deploy.lab.chaos.workloads import WORKLOADS, SumChain
from dskype.topology.flux import load
from dskype.topology.tuples import InRecord

pytestmark = pytest.mark.long

LASTS = {"a": (0, 0), "b": (3, 9), "c": (70, 70)}


def strikes(seed, n, lasts=LASTS, partners=("a", "b")):
    return list(itertools.islice(draw(seed, lasts, partners), n))


# --- schedule ----------------------------------------------------------------------------------------------------------


def test_the_same_seed_gives_the_same_strikes_and_another_one_others():
    assert strikes(7, 50) == strikes(7, 50) != strikes(8, 50)


def test_every_fault_strikes_once_before_any_strikes_again():
    drawn = strikes(1, 30)
    assert [s.number for s in drawn] == list(range(1, 31))
    for i in range(0, 30, 3):
        assert sorted(s.faults[0] for s in drawn[i : i + 3]) == ["a", "b", "c"]


def test_durations_are_within_their_bounds_and_partners_are_others():
    drawn = strikes(3, 300)
    assert all(LASTS[s.faults[0]][0] <= s.lasts_s <= LASTS[s.faults[0]][1] and 0 <= s.choice < 1 and s.pause_s > 0 for s in drawn)
    pairs = {s.faults for s in drawn if len(s.faults) == 2}
    assert {("a", "b"), ("b", "a"), ("c", "a"), ("c", "b")} == pairs
    assert not any(len(s.faults) > 1 for s in strikes(3, 300, partners=()))
    assert list(draw(1, {})) == []


def test_partners_are_faults():
    assert set(PARTNERS) <= set(FAULTS) and all(fault.text and fault.name == name for name, fault in FAULTS.items())


# --- table ------------------------------------------------------------------------------------------------------------


def test_the_table_counts_by_fault_and_says_how_to_run_it_again():
    result = Result(
        "chain", 7, "python -m dskype.deploy.lab.chaos --seed 7", [Outcome("kill-x", 1.0, 2.0), Outcome("kill-x", 3.0, 6.0, drivers=1, repeated=4)], 100, 4
    )
    text = as_table(result)
    assert result.ok and "| kill-x | 2     | 2.0 / 3.0 | 4.0 / 6.0   | 1" in text and "--seed 7" in text and "nothing lost, nothing twice" in text


@pytest.mark.parametrize("outcome", [Outcome("kill-x", 1.0, None), Outcome("kill-x", 1.0, 2.0, problems=["3 sums are missing"])])
def test_whatever_is_wrong_is_in_the_table_and_in_the_verdict(outcome):
    result = Result("chain", 7, "again", [Outcome("kill-y", 1.0, 1.0), outcome])
    text = as_table(result)
    assert not result.ok and "WRONG" in text and ("did not catch up" in text or "3 sums are missing" in text)
    assert not Result("chain", 7, "again", problems=["lost"]).ok


def test_several_runs_have_one_table_with_all_their_strikes():
    right = Result("chain", 7, "again", [Outcome("kill-x", 1.0, 2.0)], 100)
    wrong = Result("chain", 8, "again", [Outcome("kill-x", 3.0, 6.0), Outcome("kill-y", 1.0, None)], 50)
    text = summary([right, right])
    assert "| kill-x | 2 " in text and "2 runs, 2 strikes, 200 records; nothing lost" in text
    text = summary([right, wrong])
    assert "| kill-x | 2     | 2.0 / 3.0 | 4.0 / 6.0 " in text and "WRONG" in text and "wrong: chain with seed 8" in text


def test_unknown_faults_are_refused(capsys):
    with pytest.raises(SystemExit) as caught:
        main(["--faults", "kill-the-cat"])
    assert caught.value.code == 2 and "given: kill-the-cat; legal:" in capsys.readouterr().err


# --- processes and the clock --------------------------------------------------------------------------------------------


def test_processes_are_found_below_their_driver_and_signalled():
    child = subprocess.Popen([sys.executable, "-c", "import time; print('up', flush=True); time.sleep(60)"], stdout=subprocess.PIPE)
    try:
        child.stdout.readline()
        assert child.pid in processes.tree(os.getpid()) and processes.find("driver", child.pid) == [child.pid]
        assert processes.send([child.pid], signal.SIGKILL) == [child.pid]
        child.wait()
        assert processes.send([child.pid], signal.SIGKILL) == [] and processes.find("driver", child.pid) == []
    finally:
        child.kill()
        child.wait()
        child.stdout.close()


def test_the_clock_of_a_process_can_be_set_while_it_runs(tmp_path):
    clock = SetClock(tmp_path / "clock")
    code = "import sys, time\nfor line in sys.stdin: print(time.time_ns(), time.time(), time.monotonic(), flush=True)"
    child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, **clock.environ()})

    def ask():
        child.stdin.write("\n")
        child.stdin.flush()
        ns, seconds, monotonic = map(float, child.stdout.readline().split())
        assert abs(ns / 1e9 - seconds) < 10
        return seconds - time.time(), monotonic

    try:
        first, before = ask()
        clock.step(-3600)
        time.sleep(0.3)
        second, after = ask()
        assert abs(first) < 60 and abs(second + 3600) < 60 and after > before
    finally:
        child.communicate()


# --- soak -------------------------------------------------------------------------------------------------------------


def samples(**series):
    n = len(next(iter(series.values())))
    return [soak.Sample(10.0 * i, {**dict.fromkeys(soak.BOUNDS, 100.0), **{name: float(values[i]) for name, values in series.items()}}) for i in range(n)]


def test_what_is_flat_or_only_begins_low_does_not_grow():
    found = samples(driver_mib=[50, 90, 100, 101, 100, 102, 101, 103, 102])
    assert soak.too_high(found) == [] and "GREW" not in soak.as_table(found)


@pytest.mark.parametrize("name", sorted(soak.BOUNDS))
def test_what_rises_without_end_is_found(name):
    found = samples(**{name: [100 + 100_000 * i for i in range(9)]})
    assert soak.too_high(found) == [name]
    assert [line.split("|")[1].strip() for line in soak.as_table(found).splitlines() if "GREW" in line] == [name]


# --- a store that hangs -------------------------------------------------------------------------------------------------


def test_a_store_that_hangs_takes_connections_and_answers_later(tmp_path):
    import redis

    with HangingStore(tmp_path / "redis") as store, redis.Redis.from_url(store.url, socket_timeout=0.5) as client:
        client.set("a", 1)
        store.hang()
        with pytest.raises(redis.TimeoutError):
            client.get("a")
        store.resume()
        assert client.get("a") == b"1"


# --- workloads ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(WORKLOADS))
def test_the_topologies_can_be_loaded(name, tmp_path):
    import json

    from dskype.deploy.machine.registry import registry

    workload = WORKLOADS[name](100, 60, 1)
    file = tmp_path / "topology.yaml"
    file.write_text(json.dumps(workload.flux(tmp_path)))
    flux = load(str(file), registry=registry(), allow_modules=list(workload.modules))
    assert flux.name == name and workload.out_topic() in workload.topics()
    assert len(workload.records(50)) >= 50


def test_sums_of_sums():
    assert list(expected_sums([1, 2, 3])) == [1, 4, 10]


@pytest.fixture
def chain(monkeypatch):
    """A chain whose topics are lists: it has five inputs of one key and their sums, and generates no numbers itself."""
    load = SumChain(10, 1, 1)
    load._paced = 0
    inputs = [InRecord("chain-in", 0, i, 0, b"fed-1", str(i + 1).encode(), []) for i in range(5)]
    out = [InRecord("chain-out", 0, i, 0, b"fed-1", str(s).encode(), [("record-id", f"1-1-9-{i}".encode())]) for i, s in enumerate(expected_sums(range(1, 6)))]
    topics = {"chain-in": inputs, "chain-out": out, "chain.dead-letters": []}
    monkeypatch.setattr("dskype.deploy.lab.chaos.workloads.read_to_end", lambda _, topic: topics[topic])
    return load, topics


def test_a_right_chain_passes_and_a_cut_one_until_the_end(chain):
    load, topics = chain
    assert load.check(final=True) == (5, 0, [])
    topics["chain-out"] = [*topics["chain-out"][:4], topics["chain-out"][3]._replace(offset=4)]
    assert load.check(final=False) == (4, 1, [])
    assert load.check(final=True).problems == ["key fed-1: 1 of 5 sums are missing at the end"]


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda out: [out[0], *out[2:]], id="a record is lost"),
        pytest.param(lambda out: [*out, out[2]._replace(offset=5, headers=[("record-id", b"1-1-9-5")])], id="a record comes twice, as another one"),
        pytest.param(lambda out: [*out[:4], out[4]._replace(value=b"36")], id="a number was counted twice"),
        pytest.param(lambda out: [*out, out[2]._replace(offset=5, value=b"9")], id="a repetition differs"),
    ],
)
def test_whatever_is_lost_or_counted_twice_is_found(chain, change):
    load, topics = chain
    topics["chain-out"] = change(topics["chain-out"])
    assert load.check(final=True).problems


def test_dead_letters_are_found(chain):
    load, topics = chain
    topics["chain.dead-letters"] = [InRecord("x", 0, 0, 0, None, b"", [("error", b"why")])]
    assert "why" in load.check(final=True).problems[0]
