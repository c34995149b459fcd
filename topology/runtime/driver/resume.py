"""Resuming a topology: what an earlier driver started, what may have changed since, and the next term."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.metadata
import logging
import os
import platform
import tempfile
import time
from pathlib import Path

from dskype.topology.config import Config
from dskype.topology.core.snapshots import SnapshotStore, TermTakenError
from dskype.topology.core.steady_clock import now_ms
from dskype.topology.planning.plan import TopologyPlan
from dskype.topology.runtime.kafka.clients import KafkaSettings
from dskype.topology.runtime.stores.choice import open_store
from dskype.topology.runtime.stores.control_files import MANIFEST, ControlFileError, Manifest, ResumeRefusedError, differences
from dskype.topology.runtime.stores.kept_files import keep_files, same_names
from dskype.topology.runtime.stores.shared_files import SharedFiles

__all__ = ["SNAPSHOTS", "Tenure", "check_changes", "check_resumable", "installed_version", "read_started"]

log = logging.getLogger(__name__)

_ASK_EVERY_S = 0.25
SNAPSHOTS = "snapshots"
"""The folder of snapshots and journals within the topology's folder."""


def read_started(plan: TopologyPlan, folder: Path, store: SnapshotStore) -> Manifest | None:
    """Return the manifest of the topology to resume; None if it was never completely started.

    :raises ControlFileError: there are snapshots without a manifest, or the manifest belongs to another topology.
    """
    started = Manifest.read(folder)
    if started is None:
        if store.holds_state():
            raise ControlFileError(
                f"Topology {plan.name!r} cannot be resumed: {'its store' if store.remote else folder} holds snapshots, but no {MANIFEST} that describes them.",
                given=f"{MANIFEST} is missing in {folder}",
                hint=f"put {MANIFEST} back from a copy, or start afresh ('dskype submit --fresh'), which removes the snapshots",
            )
    elif started.topology_id != plan.topology_id:
        raise ControlFileError(
            f"The files of {folder} belong to two topologies.",
            given=f"{MANIFEST} of {started.topology_id}",
            legal=plan.topology_id,
            hint="put the files back from one copy, or start afresh ('dskype submit --fresh'), which removes the snapshots",
        )
    return started


def check_resumable(plan: TopologyPlan, kafka: KafkaSettings) -> None:
    """Refuse a plan with which a running topology could not go on, as its driver would when it takes over. Nothing of the topology is changed.

    :param plan: with the URL of the topology's store, which is not a folder of its driver.
    :raises ResumeRefusedError: the plan differs too much from what was started.
    :raises TopologyError: a file that tasks read has changed.
    """
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        store = open_store(plan.conf[Config.TOPOLOGY_EMULATOR_STATE_URL], plan, kafka, folder / SNAPSHOTS)
        SharedFiles(plan, folder, store).fetch()
        if (started := read_started(plan, folder, store)) is not None:
            plan = keep_files(plan, folder, resume=True)
            check_changes(plan, started, Manifest.describe(plan, installed_version()))


def check_changes(plan: TopologyPlan, started: Manifest, given: Manifest) -> bool:
    """Refuse changes with which the topology cannot use its state; tell whether there are other changes.

    :raises ResumeRefusedError: there is such a change.
    """
    changeable = {key for spec in plan.topology.components.values() for key in spec.obj.changeable_settings}
    from_start = {key for spec in plan.topology.components.values() for key in spec.obj.settings_from_start}
    defaults = {key: value for spec in plan.topology.components.values() for key, value in spec.obj.default_settings.items()}
    refused, accepted = differences(_portable(plan, started), _portable(plan, given), changeable, defaults, from_start)
    if refused:
        lines = "\n".join(f"  {line}" for line in refused)
        raise ResumeRefusedError(
            f"topology {plan.name!r} cannot be resumed, because it differs from what was started; expected {started.topology_id} as it was; given:\n{lines}\n"
            f"legal: changes of {', '.join(sorted(changeable)) or 'nothing'} and of the emulator's own intervals and limits; "
            "hint: submit it as it was started, or start it afresh ('dskype submit --fresh'), which removes its state"
        )
    for line in accepted:
        log.info("topology %s is resumed with %s", plan.name, line)
    return bool(accepted)


def _portable(plan: TopologyPlan, manifest: Manifest) -> Manifest:
    """Return a manifest that is equal on all hosts, wherever they keep their copies of files."""
    own = {component: same_names(plan, conf, component) if component in plan.component_ids else conf for component, conf in manifest.component_confs.items()}
    return dataclasses.replace(manifest, conf=same_names(plan, manifest.conf), component_confs=own)


class Tenure:
    """The term of a driver, and whether another driver has taken a later one.

    :ivar term: the driver's term; 0 before :meth:`take`.
    """

    def __init__(self, store: SnapshotStore) -> None:
        self._store, self.term, self._ask_at = store, 0, 0.0

    def take(self) -> None:
        """Take the next term, once. From then on, processes of drivers with lower terms cannot write."""
        while not self.term:
            # The first term is the time in seconds, so that in a recreated folder it is above all terms that the folder ever had.
            newest, time_ms = self._store.newest_term(), now_ms()
            term = newest + 1 if newest else time_ms // 1000
            with contextlib.suppress(TermTakenError):
                self._store.take_term(term, {"host": platform.node(), "pid": os.getpid(), "time_ms": time_ms})
                self.term = term

    def is_over(self) -> bool:
        """Tell whether another driver has taken the topology over, or has removed it.

        A remote store is asked every quarter of a second; after a time in which this process stood still, at once.
        """
        if not self.term or (self._store.remote and time.monotonic() < self._ask_at):
            return False
        self._ask_at = time.monotonic() + _ASK_EVERY_S
        return self._store.newest_term() != self.term


def installed_version() -> str:
    """Return the version of dskype; "unknown" where it is not installed."""
    try:
        return importlib.metadata.version("dskype")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"
