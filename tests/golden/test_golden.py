"""State that this and earlier versions left is restored, and topologies continue from it with exact results."""

from __future__ import annotations

import importlib.metadata

import pytest

from dskype.bolts.topk.engine import BUFFERS, INDEXES
from dskype.bolts.window.base import WINDOWS
from dskype.distribution import DISTRIBUTORS
from dskype.topology.core.snapshots import SnapshotError, decode_snapshot
from tests.endtoend import harness
from tests.endtoend.harness import TOPICS
from tests.topology.simulated import test_faults as plain

from .scenes import UNRELEASED, dskype_scenes, files, go_on_dskype, go_on_plain, language_scenes, log_of, opened, plain_plan

pytestmark = pytest.mark.long

FILES = [pytest.param(path, id=f"{version}/{path.stem}") for version, path in files()]
PLAIN, DSKYPE = ([p for p in FILES if p.values[0].stem.startswith("dskype") is kind] for kind in (False, True))


def test_this_version_has_left_its_state():
    own = [path.stem for version, path in files() if version in (importlib.metadata.version("dskype"), UNRELEASED)]
    assert sorted(own) == sorted([*plain.TOPOLOGIES, *dskype_scenes(), *language_scenes()]), "run: python -m tests.golden.make, see there"


def test_the_whole_language_is_in_it():
    for path in (p.values[0] for p in DSKYPE if p.values[0].stem.endswith("-language")):
        records = [
            record[2] or b"" for topic, _, records in opened(path)["log"] if topic in (TOPICS.messages, TOPICS.subscriptions) for record in records if record
        ]
        for what in (b'"where"', b'"region"', b'"attributes"', b'"title"', b'"keywords"'):
            assert sum(what in record for record in records) > 1, f"{path.stem}: {what!r}"


def test_every_kind_of_every_part_is_in_it():
    confs = [conf for conf, _, _ in dskype_scenes().values()]
    for key, kinds in (("index", INDEXES), ("buffer", BUFFERS), ("window.index", WINDOWS), ("distributor", DISTRIBUTORS)):
        assert {conf[f"dskype.{key}"] for conf in confs} == set(kinds)


@pytest.mark.parametrize("seed", [None, 3])
@pytest.mark.parametrize("path", PLAIN)
def test_plain_topologies_go_on(path, seed):
    left = opened(path)
    assert {kind.partition("/")[2].partition("-")[0] for kind in left["files"]} >= {"snapshot", "journal"}
    before = sum(len(records) for topic, _, records in left["log"] if topic == "out")
    assert 0 < before < sum(plain.expected(path.stem)[0].values()), "it had begun, and was not done"
    sim = go_on_plain(path.stem, path, seed)
    assert plain.result(path.stem, sim) == plain.expected(path.stem), f"faults {sim.fault_counts}"
    assert not sim.dead_letters() and not sim.store.problems


@pytest.mark.parametrize("seed", [None, 3])
@pytest.mark.parametrize("path", DSKYPE)
def test_dskype_goes_on(path, seed):
    left = opened(path)
    tasks = {name.partition("/")[0] for name in left["files"]}
    assert len(tasks) >= 6, "bolts and spouts of all kinds have left something"
    simulation, timed = go_on_dskype(path, seed)
    compared = harness.check(simulation, timed, f"state of {path.parent.name}")
    assert compared["state"] > 20 and compared["match"] > 5 and compared["final"] > 5, compared


def test_state_of_an_unknown_format_is_refused_by_name(tmp_path):
    path = next(p.values[0] for p in PLAIN if p.values[0].stem == "chain")
    name, data = next((n, d) for n, d in opened(path)["files"].items() if "snapshot" in n)
    with pytest.raises(SnapshotError, match=r"has another format; expected \d+; given: 99; hint: start over or use the version that wrote it") as caught:
        decode_snapshot(data[:4] + b"\x63\0" + data[6:], name)
    assert name in str(caught.value)


@pytest.mark.parametrize("path", FILES)
def test_without_its_snapshots_a_topology_could_not_go_on(path):
    left = opened(path)
    assert any(record is None for _, _, records in left["log"] for record in records), "what was needed for the snapshots only is gone"


def test_the_log_is_what_it_was():
    path = next(p.values[0] for p in PLAIN if p.values[0].stem == "chain")
    log = log_of(opened(path), lambda: 0)
    plan = plain_plan("chain")
    assert log.end("t.first", 0) > 0 and log.partitions("t.first") == len(plan.component_tasks("first"))
