"""A full disk: the topology continues as far as it safely can, reports the problem, and recovers when there is room."""

from __future__ import annotations

import errno
import os

import pytest

from dskype.topology.core.snapshots import MemorySnapshotStore, WriteError

from .test_damage import Run


@pytest.fixture
def disk(monkeypatch):
    """A switch: while it is on, nothing can be written."""
    full = set()
    for name in ("_write", "_create"):

        def write(store, file, data, *args, _write=getattr(MemorySnapshotStore, name), **kwargs):
            if any(kind in file for kind in full):
                raise WriteError(f"{file} cannot be written: {os.strerror(errno.ENOSPC)}")
            return _write(store, file, data, *args, **kwargs)

        monkeypatch.setattr(MemorySnapshotStore, name, write)
    return full


def go(run, steps):
    """Run the topology; return the errors of batches, which are run again in new processes, as Spark would do."""
    errors = []
    for _ in range(steps):
        run.sim.tick_clock()
        while True:
            try:
                run.sim.run_until_quiet()
                break
            except WriteError as error:
                errors.append(str(error))
                for query in run.sim._queries.values():
                    query.executors.clear()
                if len(errors) % 3 == 0:
                    break
        run.now_ms += 200
    return errors


def test_a_journal_that_cannot_be_written_stops_emission_until_there_is_room(disk):
    run = Run()
    assert not go(run, 3)
    before = {name: run.log.end(name, 0) for name in ("t.first", "out")}
    disk.add("journal")
    errors = go(run, 6)
    assert len(errors) > 5 and all("journal-" in e and "cannot be written: No space left" in e for e in errors)
    assert {name: run.log.end(name, 0) for name in before} == before  # nothing was released
    disk.clear()
    assert not go(run, 40)
    assert run.is_exact()
