"""Interchangeable classes by name: the product's own, those of packages, and those of this process."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
from collections import OrderedDict

import pytest

from dskype.topology.errors import IllegalArgumentException
from dskype.topology.plugins import Plugins

GROUP = "dskype.test.plugins"


@pytest.fixture
def plugins(monkeypatch):
    """Return plugins of which one is the product's own, and three of packages; one of these has the own one's name."""
    points = [
        importlib.metadata.EntryPoint("ordered", "collections:OrderedDict", GROUP),
        importlib.metadata.EntryPoint("own", "collections:Counter", GROUP),
        importlib.metadata.EntryPoint("broken", "collections:Nothing", GROUP),
    ]
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: points if group == GROUP else [])
    return Plugins(GROUP, {"own": "collections:UserDict"})


def test_own_names_come_first_and_packages_cannot_take_them(plugins):
    assert list(plugins) == ["own", "broken", "ordered"] and len(plugins) == 3
    assert plugins["own"].__name__ == "UserDict" and plugins["ordered"] is OrderedDict
    assert "ordered" in plugins and "other" not in plugins and plugins.get("other") is None
    assert plugins.module("ordered") == "collections"
    for ask in (plugins.__getitem__, plugins.module):
        with pytest.raises(KeyError):
            ask("other")


def test_a_class_that_a_package_lacks_is_named(plugins):
    with pytest.raises(IllegalArgumentException, match=r"'broken' in dskype\.test\.plugins cannot be imported(.|\n)*collections:Nothing"):
        plugins["broken"]


def test_a_process_can_add_its_own(plugins, monkeypatch):
    monkeypatch.setitem(plugins, "mine", dict)
    assert plugins["mine"] is dict and list(plugins) == ["own", "broken", "ordered", "mine"] and plugins.module("mine") == "builtins"
    monkeypatch.undo()
    assert "mine" not in plugins


@pytest.mark.long
def test_bolts_and_clients_import_nothing_of_the_laboratory_until_its_names_are_used():
    program = """
import sys
import dskype.bolts.subscription_bolt, dskype.bolts.distribution_bolt, dskype.bolts.message_bolt, dskype.bolts.skype, dskype.deploy.client.pubsub
from dskype.bolts.boolean import make_index
from dskype.distribution import make_distributor
make_index("lanes"), make_distributor("agrid", 3)
assert not [name for name in sys.modules if name.startswith("dskype.deploy.lab")]
print(type(make_index("rt++")).__module__)
"""
    done = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True, check=False, timeout=300)
    assert done.stdout == "dskype.deploy.lab.laps.rtree.index\n", done.stderr
