"""The Flux files that come with the product."""

import pytest

from dskype.deploy.machine.registry import TOPOLOGIES, registry
from dskype.distribution import check_distributor
from dskype.spouts.settings import Settings
from dskype.topology.flux import load
from dskype.topology.planning.plan import TopologyPlan


@pytest.mark.parametrize(
    ("file", "distributor", "balanced"), [("dskype.yaml", "hashing", False), ("ps2stream.yaml", "hybrid", False), ("tornado.yaml", "agrid", True)]
)
def test_a_file_is_a_topology_that_can_be_submitted(file, distributor, balanced):
    found = load(file, registry=registry(), resources=[TOPOLOGIES], resource=True)
    settings = Settings.from_conf(found.config)
    check_distributor(settings)
    plan = TopologyPlan.build(found.name, f"{found.name}-1-0", dict(found.config), found.topology)
    assert settings.distributor == distributor and (settings.balance is not None) is balanced
    assert "subscription-bolt" in plan.component_ids


def test_every_file_of_dskype_is_tested():
    (marks,) = test_a_file_is_a_topology_that_can_be_submitted.pytestmark
    assert {row[0] for row in marks.args[1]} == {file.name for file in TOPOLOGIES.glob("*.yaml")} - {"wordcount.yaml"}
