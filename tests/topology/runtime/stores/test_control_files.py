"""The files that describe a topology's folder, and what may change at a resume."""

from __future__ import annotations

import os

import pytest

from dskype.spouts.settings import CHANGEABLE_SETTINGS, SETTINGS_FROM_START
from dskype.topology import Fields, TopologyBuilder
from dskype.topology.planning.plan import TopologyPlan
from dskype.topology.runtime.driver.inputs import ExternalInputs
from dskype.topology.runtime.kafka.clients import KafkaSettings
from dskype.topology.runtime.stores.control_files import FIRST_OFFSETS, MANIFEST, ControlFileError, Manifest, differences, read_json, write_json

from ..components import PacedNumbers, Recorder, RunningSum


def manifest(conf=None, tasks=2, extra=False, own=None, version="1.0") -> Manifest:
    builder = TopologyBuilder()
    builder.set_spout("numbers", PacedNumbers(10))
    builder.set_bolt("sum", RunningSum(), tasks).fields_grouping("numbers", Fields("key")).add_configurations(own or {})
    if extra:
        builder.set_bolt("sink", Recorder("out")).global_grouping("sum")
    plan = TopologyPlan.build("t", "t-1-1", conf or {}, builder.create_topology())
    return Manifest.describe(plan, version)


def test_an_equal_topology_has_no_differences():
    assert differences(manifest(), manifest()) == ([], [])


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"tasks": 3}, "component 'sum': tasks 2 -> 3"),
        ({"extra": True}, "component 'sink' is new"),
        ({"conf": {"my.setting": 4}}, "my.setting: (not set) -> 4"),
        ({"conf": {"topology.acker.executors": 0}}, "topology.acker.executors"),
        ({"own": {"my.setting": "x"}}, "my.setting of component 'sum': (not set) -> \"x\""),
    ],
)
def test_what_state_depends_on_is_refused_by_name(given, named):
    refused, _ = differences(manifest(), manifest(**given))
    assert any(line.startswith(named) for line in refused), refused


def test_a_component_that_has_gone_is_named():
    assert any("'sink' is missing" in line for line in differences(manifest(extra=True), manifest())[0])


def test_what_state_does_not_depend_on_is_taken_over():
    refused, taken = differences(manifest(), manifest(conf={"topology.emulator.snapshot.interval.ms": 5}, version="1.1"))
    assert not refused
    assert taken == ["topology.emulator.snapshot.interval.ms: 10000 -> 5", "dskype 1.0 -> 1.1"]


def test_a_component_says_what_may_change_of_its_own():
    assert differences(manifest(conf={"my.limit": 1}), manifest(conf={"my.limit": 2}), {"my.limit"}) == ([], ["my.limit: 1 -> 2"])


def test_a_setting_that_is_not_set_is_its_default():
    defaults = {"my.limit": 1}
    for one, other in ((manifest(), manifest(conf={"my.limit": 1})), (manifest(conf={"my.limit": 1}), manifest())):
        assert differences(one, other, (), defaults) == ([], []) != differences(one, other)
    assert differences(manifest(), manifest(conf={"my.limit": 2}), (), defaults)[0] == ["my.limit: (not set) -> 2"]


def test_a_manifest_comes_back_as_it_was_written(tmp_path):
    assert Manifest.read(tmp_path) is None
    manifest(conf={"words": ["é", None]}).write(tmp_path)
    assert Manifest.read(tmp_path) == manifest(conf={"words": ["é", None]})
    assert os.listdir(tmp_path) == [MANIFEST]


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[: len(data) // 2],
        lambda data: data.replace(b'"v": 1', b'"v": 9'),
        lambda data: b"[]",
        lambda data: b"\xff" + data,
        lambda data: data.replace(b"topology_id", b"topology_if"),
    ],
)
def test_a_damaged_file_names_itself_and_the_ways_out(tmp_path, damage):
    manifest().write(tmp_path)
    path = tmp_path / MANIFEST
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ControlFileError, match="damaged; expected the manifest of a topology; given: .*hint: .*--fresh") as error:
        Manifest.read(tmp_path)
    assert str(path) in str(error.value)


@pytest.mark.parametrize("content", ["", "{", '{"a": 1}', "[[1, 2]]", '[["t", 0, "x"]]'])
def test_damaged_first_offsets_are_no_reason_to_begin_elsewhere(tmp_path, content):
    (tmp_path / FIRST_OFFSETS).write_text(content)
    with pytest.raises(ControlFileError, match=FIRST_OFFSETS):
        ExternalInputs(KafkaSettings("127.0.0.1:1"), tmp_path, "t")._first_starts()


def test_a_file_is_replaced_as_a_whole(tmp_path, monkeypatch):
    path = tmp_path / "f.json"
    write_json(path, {"a": 1})

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_json(path, {"a": 2})
    assert read_json(path, "x", dict) == {"a": 1}
    assert os.listdir(tmp_path) == ["f.json"]


def test_what_decides_about_numbers_of_records_must_not_change():
    for key in ("topology.emulator.record.max.bytes", "dskype.results.topk.interval.ms"):
        (line,), _ = differences(manifest(conf={key: 1000}), manifest(conf={key: 2000}), CHANGEABLE_SETTINGS)
        assert line == f"{key}: 1000 -> 2000"


def test_quotas_may_change_and_end_but_not_begin():
    few, more = ({"acme": {"max_subscriptions": most}} for most in (1, 2))
    for before, now, accepted in ((few, more, True), (few, None, True), (None, few, False)):
        found = differences(manifest(conf={"dskype.tenants": before}), manifest(conf={"dskype.tenants": now}), CHANGEABLE_SETTINGS, {}, SETTINGS_FROM_START)
        assert [len(lines) for lines in found] == [0 if accepted else 1, 1 if accepted else 0]
