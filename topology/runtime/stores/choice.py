"""Where a topology's snapshots and journals are: a store chosen by URL.

=======================  ==================================================================================================
``folder:``              the topology's own folder; the default where Spark runs on this machine
``file:///some/folder``  a folder that all hosts reach by this path
``kafka:``               two topics of the topology's brokers; the default on other masters
``s3://bucket/prefix``   objects of a store with the interface of Amazon S3; needs ``pip install '/path/to/dskype[s3]'``
=======================  ==================================================================================================

Only the first one is fit for a folder that one host sees alone.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from dskype.topology.config import Config
from dskype.topology.core.atomic_files import replace_file
from dskype.topology.core.file_store import FileSnapshotStore
from dskype.topology.core.snapshots import SnapshotStore
from dskype.topology.errors import TopologyError
from dskype.topology.planning.plan import TopologyPlan, metrics_topic
from dskype.topology.runtime.kafka.clients import KafkaSettings
from dskype.topology.runtime.stores.kafka_store import KafkaSnapshotStore
from dskype.topology.runtime.stores.kept_files import declared_files, with_copies
from dskype.topology.runtime.stores.object_store import ObjectSnapshotStore

__all__ = ["FOLDER_URL", "KAFKA_URL", "choose_store", "default_url", "fetch_copy", "fetch_files", "is_shared", "open_store", "ship_files"]

FOLDER_URL, KAFKA_URL = "folder:", "kafka:"
_LEGAL = f"{FOLDER_URL}, file:///some/folder, {KAFKA_URL}, s3://bucket/prefix"


def default_url(master: str) -> str:
    """Return where a topology's state is unless ``topology.emulator.state.url`` says something else.

    :param master: URL of Spark's master.
    """
    return FOLDER_URL if master.startswith("local") else KAFKA_URL


def choose_store(plan: TopologyPlan, spark: Any, kafka: KafkaSettings, folder: Path) -> tuple[TopologyPlan, SnapshotStore]:
    """Return a topology's store, and the plan with its URL, unless it is the topology's own folder: a resume with another store is refused.

    :param spark: the session; None counts as one on this machine.
    :param folder: the folder of snapshots within the topology's own folder.
    """
    key = Config.TOPOLOGY_EMULATOR_STATE_URL
    url = plan.conf.get(key) or default_url("local" if spark is None else spark.sparkContext.master)
    conf = {**plan.conf, key: None if url == FOLDER_URL else url}
    return dataclasses.replace(plan, conf=conf), open_store(url, plan, kafka, folder)


def is_shared(plan: TopologyPlan) -> bool:
    """Tell whether a topology's store is another one than its own folder.

    :param plan: the plan that :func:`choose_store` returned.
    """
    return plan.conf.get(Config.TOPOLOGY_EMULATOR_STATE_URL) is not None


def open_store(url: str, plan: TopologyPlan, kafka: KafkaSettings, folder: Path) -> SnapshotStore:
    """Return the store at a URL; nothing is created or connected yet.

    :param folder: the folder of snapshots within the topology's own folder.
    :raises TopologyError: there is no store of that kind.
    """
    kept = plan.conf[Config.TOPOLOGY_EMULATOR_SNAPSHOTS_KEPT]
    if url == FOLDER_URL:
        return FileSnapshotStore(folder, kept)
    parts = urlsplit(url)
    if parts.scheme == "file" and parts.netloc in ("", "localhost") and parts.path.startswith("/"):
        return FileSnapshotStore(Path(unquote(parts.path)) / metrics_topic(plan.name).removesuffix(".metrics"), kept)
    if parts.scheme == "s3" and parts.netloc and "@" not in parts.netloc:
        return ObjectSnapshotStore(f"{url.rstrip('/')}/{metrics_topic(plan.name).removesuffix('.metrics')}", kept)
    if url == KAFKA_URL:
        return KafkaSnapshotStore(kafka, plan.name, max(plan.task_component), kept)
    raise TopologyError("There is no store of that kind for a topology's state.", given=url, legal=_LEGAL, hint=Config.TOPOLOGY_EMULATOR_STATE_URL)


# -- kept files -----------------------------------------------------------------------------------


def ship_files(plan: TopologyPlan, store: SnapshotStore) -> None:
    """Write the files that tasks read to the store, for hosts that do not reach the driver's folder.

    :param plan: the plan that :func:`~dskype.topology.runtime.stores.kept_files.keep_files` returned.
    """
    for path in set(declared_files(plan).values()) if is_shared(plan) else ():
        if store.read_document(_document(path)) is None:
            store.write_document(_document(path), Path(path).read_bytes())


def fetch_files(plan: TopologyPlan, store: SnapshotStore, folder: Path) -> TopologyPlan:
    """Return the plan with paths of files that this host has; those that it lacks are fetched from the store.

    :param folder: where to put them.
    :raises TopologyError: a file is neither here nor in the store, or is damaged.
    """
    lacking = {at: folder / Path(path).name for at, path in declared_files(plan).items() if not os.access(path, os.R_OK)}
    for (component, _), copy in lacking.items():
        fetch_copy(store, copy, component)
    return with_copies(plan, {at: str(copy) for at, copy in lacking.items()})


def fetch_copy(store: SnapshotStore, copy: Path, component: str | None = None) -> None:
    """Write the copy of a file that tasks read from the store to its place, unless it is there.

    :param copy: its name begins with digits of its SHA-256.
    :raises TopologyError: it is not in the store, or is damaged there.
    """
    if copy.exists():
        return
    data = store.read_document(_document(str(copy)))
    if data is None or hashlib.sha256(data).hexdigest()[:16] != copy.name[:16]:
        raise TopologyError(
            "A file that tasks read is neither on this host nor in the topology's store.",
            given=str(copy),
            component=component,
            hint="submit the topology again: its driver puts the file there",
        )
    copy.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with replace_file(copy) as whole:
        whole.write(data)


def _document(path: str) -> str:
    return f"files-{hashlib.sha256(Path(path).name.encode()).hexdigest()[:32]}"
