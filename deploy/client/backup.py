"""A backup of a topology: what its subscribers have registered, its distribution plan, and the messages of its window, in one file.

The file has one JSON object on each line, packed with gzip::

    {"backup": 1, "topology": str, "written_ms": int, "settings": {key: value}}
    {"message": {...}}                                    in DSkype's own form, with its id; by sequence number
    {"plan": {...}, "version": int}                       at most one
    {"subscription": id, "value": {...}, "registered_ms": int}
    {"end": {"messages": int, "plans": int, "subscriptions": int}, "sha256": hex}

The last line's digest is that of all bytes before it, so a file that was cut or changed is refused as a whole. Restored into a topology that has nothing yet, the same
subscriptions have the same lists over the same window. Results that were published before are not in it.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from dskype.deploy.client.plans import plan_in_force
from dskype.deploy.client.pubsub import PubSub
from dskype.deploy.client.sequence import sequence_numbers
from dskype.topology.errors import TopologyError

__all__ = ["BackupError", "differences", "read_backup", "write_backup"]

_VERSION = 1
_TELLING = (
    "space",
    "window.",
    "half.life.s",
    "objects",
    "text.",
    "stop.words",
    "vocabulary",
    "k.max",
    "limits.",
    "keywords.max",
    "expression.",
    "attributes",
    "boolean.prefixes",
    "boolean.wordless",
    "meta.max.bytes",
    "id.max.bytes",
    "tenants",
)
"""The settings, after ``dskype.``, by which records are refused or lists are other ones."""


class BackupError(TopologyError):
    """The file is no backup, or not a whole one."""


def write_backup(client: PubSub, path: Path, *, messages: bool = True) -> dict[str, int]:
    """Write a backup of a topology, which may run meanwhile; return how many records of each kind it has.

    Subscriptions are read before messages, so of what changes meanwhile the backup has what was there at some moment for each record. The file appears when it is complete.

    :param path: of the file.
    :param messages: whether to keep the messages of the window.
    :raises OSError: the file cannot be written.
    :raises TopologyError: the topology does not run; its settings are needed.
    """
    conf = client.running_conf()
    if conf is None:
        raise TopologyError("There is no such topology.", given=client.name, hint="'dskype list' lists those that run")
    registered = client.subscriptions()
    partial = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        with (
            open(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as raw,
            gzip.GzipFile(fileobj=raw, mode="wb", filename="", mtime=0) as file,
        ):
            out = _Lines(file)
            settings = {key: value for key, value in sorted(conf.items()) if key.startswith("dskype.")}
            out.add(None, {"backup": _VERSION, "topology": client.name, "written_ms": time.time_ns() // 1_000_000, "settings": settings})
            # Not those of objects: without the deletions and updates before them they would say what is no longer so. Each object's next update says where it is.
            for message in _window(client) if messages and not client.settings.objects else ():
                out.add("messages", {"message": message})
            version, plan = plan_in_force(client)
            if version:
                out.add("plans", {"plan": plan, "version": version})
            for one in registered:
                if one.fields is not None and one.status != "expired":
                    out.add("subscriptions", {"subscription": one.id, "value": one.fields, "registered_ms": one.registered_ms})
            out.end()
        partial.rename(path)
    finally:
        partial.unlink(missing_ok=True)
    return out.counts


class _Lines:
    """Writes lines, and counts them."""

    def __init__(self, file: Any) -> None:
        self._file, self._digest = file, hashlib.sha256()
        self.counts = {"messages": 0, "plans": 0, "subscriptions": 0}

    def add(self, kind: str | None, line: Mapping[str, Any]) -> None:
        data = json.dumps(line, ensure_ascii=True, separators=(",", ":")).encode() + b"\n"
        self._digest.update(data)
        self._file.write(data)
        if kind is not None:
            self.counts[kind] += 1

    def end(self) -> None:
        self._file.write(json.dumps({"end": self.counts, "sha256": self._digest.hexdigest()}).encode() + b"\n")


def _window(client: PubSub) -> Iterator[dict[str, Any]]:
    """Yield the messages of the window in the order of their sequence numbers."""
    settings, topics = client.settings, client.message_topics
    timed = settings.window_kind == "time"
    runs = [json.loads(record.value) for record in client.scan(client.topics.sequence)]
    newest_ms = max((record.timestamp for topic in topics.names for record in client.scan(topic, 1)), default=0) if timed else 0
    found: list[tuple[int, Any]] = []
    for topic in topics.names:
        first = topic == topics.names[0]
        numbers = {partition: sequence_numbers(runs, partition, None if first else topic) for partition in range(client.partitions(topic))}
        start = client.offsets_at(topic, newest_ms - settings.extent - settings.lateness_ms - settings.ahead_ms) if timed else settings.extent
        # A record without a number has been refused, or not been read yet.
        found += [(number, record) for record in client.scan(topic, start) if (number := numbers[record.partition](record.offset)) is not None]
    found.sort(key=lambda one: one[0])
    for _, record in found if timed else found[-settings.extent :]:
        own = topics.own_form(record.topic, record.value)
        message = json.loads(own) if isinstance(own, bytes) else own
        message.setdefault("id", topics.default_id(record.topic, record.partition, record.offset))
        if timed:
            message.setdefault("ts", record.timestamp)
        yield message


def read_backup(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the lines of a backup but the last one. The whole file is checked before the first line is yielded.

    :raises BackupError: it is no backup, not a whole one, or of another version.
    :raises OSError: the file cannot be read.
    """
    counts = {"messages": 0, "plans": 0, "subscriptions": 0}
    names = {"message": "messages", "plan": "plans", "subscription": "subscriptions"}
    digest, last, first = hashlib.sha256(), b"", None
    try:
        with gzip.open(path) as file:
            for line in file:
                digest.update(last)
                first = first or line
                last = line
                name = names.get(next(iter(json.loads(line)), ""))
                if name is not None:
                    counts[name] += 1
        head, end = dict(json.loads(first or b"{}")), dict(json.loads(last or b"{}"))
    except (EOFError, gzip.BadGzipFile, TypeError, ValueError) as error:
        raise BackupError("This is no backup, or not a whole one.", given=f"{path}: {error}", legal="a file that 'dskype backup' wrote") from None
    if head.get("backup") != _VERSION:
        raise BackupError("This is no backup of this version.", given=f"{path}: {head.get('backup')!r}", legal=str(_VERSION))
    if end.get("sha256") != digest.hexdigest() or end.get("end") != counts:
        raise BackupError("The backup is not whole, or was changed.", given=str(path), hint="its last line has the digest of all others")
    with gzip.open(path) as file:
        for line in file:
            if line != last:
                yield json.loads(line)


def differences(head: Mapping[str, Any], conf: Mapping[str, Any]) -> list[str]:
    """Return in what a topology differs from that of a backup, a sentence each, as far as records may be refused or lists become other ones.

    :param head: the first line of the backup.
    :param conf: of the topology.
    """
    then = head["settings"]
    keys = sorted(key for key in {*then, *conf} if key.startswith("dskype.") and key.removeprefix("dskype.").startswith(_TELLING))
    return [f"{key} was {json.dumps(then.get(key))}, and is {json.dumps(conf.get(key))}" for key in keys if then.get(key) != conf.get(key)]
