"""The Flux files that come with the product."""

import pytest

from dskype.bolts.boolean import make_index
from dskype.bolts.dskype_topology import dskype_topology
from dskype.bolts.topk.engine import BUFFERS, INDEXES, TopkEngine
from dskype.bolts.window.base import WINDOWS, make_window
from dskype.deploy.machine.registry import TOPOLOGIES, registry
from dskype.distribution import check_distributor
from dskype.spouts import streams
from dskype.spouts.settings import Settings
from dskype.topology.errors import IllegalArgumentException
from dskype.topology.flux import load
from dskype.topology.planning.plan import TopologyPlan


@pytest.mark.parametrize(
    ("file", "distributor", "balanced"),
    [
        ("dskype.yaml", "hashing", False),
        ("laps.yaml", "hashing", False),
        ("ps2stream.yaml", "hybrid", True),
        ("skype.yaml", "hashing", False),
        ("tornado.yaml", "agrid", True),
    ],
)
def test_a_file_is_a_topology_that_can_be_submitted(file, distributor, balanced):
    found = load(file, registry=registry(), resources=[TOPOLOGIES], resource=True)
    settings = Settings.from_conf(found.config)
    check_distributor(settings)
    plan = TopologyPlan.build(found.name, f"{found.name}-1-0", dict(found.config), found.topology)
    assert settings.distributor == distributor and (settings.balance is not None) is balanced
    assert "subscription-bolt" in plan.component_ids


@pytest.mark.parametrize("file", ["dskype.yaml", "laps.yaml", "ps2stream.yaml", "skype.yaml", "tornado.yaml"])
def test_a_file_has_the_components_and_streams_of_the_python_function(file):
    found = load(file, registry=registry(), resources=[TOPOLOGIES], resource=True)
    assert found.name == "dskype"
    theirs, ours = found.topology.components, dskype_topology(found.name).create_topology().components
    assert theirs.keys() == ours.keys()
    for name, spec in ours.items():
        other = theirs[name]
        assert (type(other.obj), vars(other.obj)) == (type(spec.obj), vars(spec.obj)), name
        assert (other.inputs, other.outputs) == (spec.inputs, spec.outputs), name


@pytest.mark.parametrize(
    ("file", "parts"),
    [
        ("laps.yaml", {"boolean.index": "rt++"}),
        ("ps2stream.yaml", {"boolean.index": "gi2", "balance.selection": "greedy"}),
        ("skype.yaml", {"index": "igpt", "buffer": "cskyband", "window.index": "irtree"}),
        ("tornado.yaml", {"boolean.index": "fast"}),
    ],
)
def test_the_file_of_a_paper_has_its_parts(file, parts):
    conf = load(file, registry=registry(), resources=[TOPOLOGIES], resource=True).config
    assert {name: conf[f"dskype.{name}"] for name in parts} == parts
    settings = Settings.from_conf(conf)
    engine = TopkEngine(
        100,
        1.0,
        index=conf["dskype.index"],
        index_options=conf["dskype.index.options"],
        buffer=conf["dskype.buffer"],
        buffer_options=conf["dskype.buffer.options"],
    )
    assert type(engine.index) is INDEXES[conf["dskype.index"]] and type(engine.buffers) is BUFFERS[conf["dskype.buffer"]]
    assert make_index(conf["dskype.boolean.index"], conf["dskype.boolean.index.options"]).name == conf["dskype.boolean.index"]
    assert type(make_window(conf["dskype.window.index"], conf["dskype.window.index.options"])) is WINDOWS[conf["dskype.window.index"]]
    if "balance.selection" in parts:
        assert settings.balance.selection == parts["balance.selection"]


def test_the_python_function_wires_every_stream_once():
    components = dskype_topology().create_topology().components
    wired = [stream for spec in components.values() for _, stream in spec.inputs]
    assert sorted(wired) == sorted(streams.STREAMS) == sorted(stream for spec in components.values() for stream in spec.outputs)
    assert all(info.fields == streams.STREAMS[stream].fields for spec in components.values() for stream, info in spec.outputs.items())
    for target, spec in components.items():
        for (source, stream), grouping in spec.inputs.items():
            assert (grouping.kind == "direct") is components[source].outputs[stream].direct, (source, stream, target)


def test_the_python_function_takes_numbers_of_tasks():
    components = dskype_topology("mine", {"subscription-bolt": 4}).create_topology().components
    assert components["subscription-bolt"].parallelism_hint == 4 and components["message-bolt"].parallelism_hint in (None, 1)
    assert components["subscription-spout"].obj.topics == ["mine.subscriptions", "mine.plans", "mine.searches"]
    with pytest.raises(IllegalArgumentException, match="DSkype does not have this component. given: 'bolt'; legal: message-spout, "):
        dskype_topology(tasks={"bolt": 1})


def test_every_file_of_dskype_is_tested():
    (marks,) = test_a_file_is_a_topology_that_can_be_submitted.pytestmark
    assert {row[0] for row in marks.args[1]} == {file.name for file in TOPOLOGIES.glob("*.yaml")} - {"wordcount.yaml"}
