"""Another version and another configuration, without a pause: a standby of the new version waits until the driver of the old one ends."""

from __future__ import annotations

import json
import re
import shutil
from contextlib import closing
from functools import partial
from importlib.metadata import distribution, metadata
from pathlib import Path

import pytest

from dskype.deploy.demo import places
from dskype.deploy.machine.cluster import Target
from dskype.deploy.machine.launch import check_standby
from dskype.topology.flux.loader import FluxTopology
from dskype.topology.runtime.kafka.clients import KafkaSettings
from dskype.topology.runtime.stores.control_files import ResumeRefusedError

from .feed import FILTER, Feed
from .harness import topology
from .test_on_cluster import Publisher
from .test_on_spark import ROOT, driver

pytestmark = pytest.mark.product(seconds=60)

NEXT = "99.1"
TASKS = {"subscription-bolt": 2, "message-bolt": 2}


def installed_again(folder: Path) -> Path:
    """Install the package in a folder once more, as a later version; what a host has that is upgraded while a topology runs there."""
    found = re.findall(r"^    (dskype[\w.]*) = ([\w/]+)$", (ROOT / "setup.cfg").read_text(), re.MULTILINE)
    for package, source in found:  # deploy/api is a package of its own
        shutil.copytree(ROOT / source, folder.joinpath(*package.split(".")), dirs_exist_ok=True, ignore=shutil.ignore_patterns("api"))
    about = folder / f"dskype-{NEXT}.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(re.sub(r"^Version: .*$", f"Version: {NEXT}", str(metadata("dskype")), count=1, flags=re.MULTILINE))
    (about / "entry_points.txt").write_text(distribution("dskype").read_text("entry_points.txt"))
    return folder


def test_a_standby_of_the_next_version_goes_on_exactly_with_another_configuration(bootstrap_servers, tmp_path, name):
    kafka, messages = KafkaSettings(bootstrap_servers), places.places(seed=7, count=6_000)
    state = tmp_path / "state"
    conf = {
        "topology.acker.executors": 0,
        "dskype.window.messages": 1_500,
        "topology.emulator.snapshot.interval.ms": 2_000,
        "topology.emulator.state.url": "kafka:",
    }
    changed = {**conf, "dskype.search.per.second": 7}
    arguments = {"servers": bootstrap_servers, "folder": str(state / "one"), "name": name, "conf": conf, "tasks": TASKS}
    after = {**arguments, "folder": str(state / "two"), "conf": changed, "host": "two", "standby": True}
    with closing(Feed(kafka, name)) as feed:
        feed.subscribe([*places.subscriptions(messages, 300, seed=7), ("west", FILTER)])
        with driver(**arguments) as first:
            publisher = Publisher(feed, messages.records())
            feed.wait_for(200)
            flux, target = partial(FluxTopology, name, topology=topology(TASKS, name), definition=None), Target(bootstrap_servers)
            check_standby(flux(config=changed), target)
            with pytest.raises(ResumeRefusedError, match=r"\n  dskype.window.messages: 1500 -> 7\n"):
                check_standby(flux(config={**conf, "dskype.window.messages": 7}), target)
            with driver("standing by", source=installed_again(tmp_path / "next"), **after) as second:
                feed.wait_for(feed.watermark() + 100)
                first.communicate("stop\n", timeout=60)
                assert first.returncode == 0 and second.stdout.readline().strip() == "running"
                feed.wait_for(feed.watermark() + 300)
                feed.wait_for(publisher.end() - 1)
                report = feed.verify(changed)
                assert report.compared["deltas"] > 100
                (manifest,) = state.glob("two/topologies/*/manifest.json")
                told = json.loads(manifest.read_text())
                assert (told["version"], told["conf"]["dskype.search.per.second"]) == (NEXT, 7)
                second.communicate("end\n", timeout=60)
        assert second.returncode == 0
