"""What a snapshot of a large state costs: how long its task stands still, and how much is written, with each store.

It does what a resident executor does: a fork writes the snapshot while the task continues to change its state.
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from dskype.deploy.lab.emulator.measure import print_table
from dskype.deploy.machine.broker import EmbeddedBroker
from dskype.topology.core.file_store import FileSnapshotStore
from dskype.topology.core.snapshots import SnapshotStore, encode_snapshot
from dskype.topology.runtime.kafka.clients import KafkaSettings
from dskype.topology.runtime.kafka.topic_admin import TopicAdmin
from dskype.topology.runtime.stores.kafka_store import KafkaSnapshotStore

_ARRAYS, _STEP_S = 64, 0.02


def _work(state: dict[str, np.ndarray], rng: np.random.Generator, hot: int) -> float:
    """Change random places in the first ``hot`` arrays for one batch; return how long that took, in seconds."""
    started = time.perf_counter()
    while time.perf_counter() - started < _STEP_S:
        array = state[f"a{rng.integers(hot)}"]
        array[rng.integers(len(array), size=1000)] += 1
    return time.perf_counter() - started


def _measure(store: SnapshotStore, state: dict[str, np.ndarray], version: int, hot: int) -> tuple[float, float]:
    """Write a snapshot in a fork while the task works; return the longest batch and the time until the snapshot was there, in seconds."""
    rng = np.random.default_rng(version)
    store.rest()
    started, longest = time.perf_counter(), 0.0
    pid = os.fork()
    if not pid:
        code = 1
        try:
            os.nice(5)
            store.save(1, version, encode_snapshot(state))
            code = 0
        finally:
            os._exit(code)
    longest = time.perf_counter() - started
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            break
        longest = max(longest, _work(state, rng, hot))
    if status:
        msg = f"the snapshot failed with status {status}"
        raise RuntimeError(msg)
    return longest, time.perf_counter() - started


def main(arguments: list[str] | None = None) -> None:
    """Print the table."""
    import argparse

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mib", type=int, nargs="*", default=[16, 128, 512], help="sizes of the state")
    parser.add_argument("--changed", type=float, default=0.05, help="share of the state that changes between snapshots (default 0.05)")
    options = parser.parse_args(arguments)
    rows = []
    with tempfile.TemporaryDirectory() as folder, EmbeddedBroker() as broker:
        kafka = KafkaSettings(broker.bootstrap_servers)
        for mib in options.mib:
            stores: dict[str, Any] = {"folder": FileSnapshotStore(Path(folder) / str(mib)), "kafka": KafkaSnapshotStore(kafka, f"state-{mib}", 1)}
            for name, store in stores.items():
                rng = np.random.default_rng(1)
                state = {f"a{i}": rng.integers(0, 1 << 62, (mib << 17) // _ARRAYS) for i in range(_ARRAYS)}
                store.create()
                for version, what in ((1, "first"), (2, "next"), (3, "next")):
                    before = _written(kafka, mib) if name == "kafka" else 0
                    longest, whole = _measure(store, state, version, max(1, int(_ARRAYS * options.changed)))
                    written = _written(kafka, mib) - before if name == "kafka" else mib
                    rows.append([f"{mib} MiB", name, what, f"{longest * 1000:.0f}", f"{whole:.1f}", f"{written:.0f}"])
                started = time.perf_counter()
                number, _ = store.load(1) or (0, None)
                rows.append([f"{mib} MiB", name, "load", "", f"{time.perf_counter() - started:.1f}" if number == 3 else "NOT FOUND", ""])
                store.remove()
    print_table("snapshots in a fork", ["state", "store", "snapshot", "longest batch ms (20 without)", "written after s", "MiB written"], rows)


def _written(kafka: KafkaSettings, mib: int) -> float:
    """Return how much was written to the topic of chunks, in MiB, by the mean length of a chunk."""
    with TopicAdmin(kafka) as admin:
        return admin.begin_and_end(f"state-{mib}.__chunks")[1][1] * 640 / 1024


if __name__ == "__main__":
    main()
