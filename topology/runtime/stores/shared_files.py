"""Copies of a topology's control files in its store, where other hosts reach it: a driver on another host continues with them.

The files in the driver's folder stay what all code reads and writes. If the store is not the folder's own, a driver that resumes first *fetches* them, and
*shares* each one that it has written. The manifest is shared last: where it is, all others are.
"""

from __future__ import annotations

import threading
from pathlib import Path

from dskype.topology.core.atomic_files import replace_file
from dskype.topology.core.snapshots import SnapshotStore
from dskype.topology.planning.plan import TopologyPlan
from dskype.topology.runtime.stores.choice import fetch_copy, is_shared
from dskype.topology.runtime.stores.control_files import FIRST_OFFSETS, MANIFEST
from dskype.topology.runtime.stores.kept_files import INDEX, kept_copies

__all__ = ["SharedFiles"]

_FILES = {"files-index.json": INDEX, FIRST_OFFSETS: FIRST_OFFSETS, MANIFEST: MANIFEST}
"""Name of the document in the store -> file in the topology's folder, in the order in which they are shared."""


class SharedFiles:
    """The control files of one topology, and their copies.

    :param plan: with the URL of the store.
    """

    def __init__(self, plan: TopologyPlan, folder: Path, store: SnapshotStore) -> None:
        self._folder, self._store, self._is_shared = folder, store, is_shared(plan)
        self._lock = threading.Lock()

    def fetch(self) -> None:
        """Make the folder's control files those of the store, which is created if it is missing.

        A store that holds state, but no control files, was filled by an earlier version: the folder's files stay. If the store is empty, the topology was
        removed or cleared elsewhere: the folder's manifest is removed.
        """
        if not self._is_shared:
            return
        self._store.create()
        if self._store.read_document(MANIFEST) is None:
            if not self._store.holds_state():
                (self._folder / MANIFEST).unlink(missing_ok=True)
            return
        for name, file in _FILES.items():
            path, data = self._folder / file, self._store.read_document(name)
            if data is None:
                path.unlink(missing_ok=True)
            else:
                path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                with replace_file(path) as whole:
                    whole.write(data)
        for copy in kept_copies(self._folder):
            fetch_copy(self._store, copy)

    def share(self) -> None:
        """Write to the store what it lacks of the folder's control files; threads may call this at once."""
        with self._lock:
            for name, file in _FILES.items() if self._is_shared else ():
                path = self._folder / file
                if path.exists() and (data := path.read_bytes()) != self._store.read_document(name):
                    self._store.write_document(name, data)
