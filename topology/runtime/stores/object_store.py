"""Snapshots and journals in an object store with the interface of Amazon S3.

The library is fsspec with s3fs. It writes an object as a whole or not at all, also in several parts, works in forks, and knows
writes with a condition (``If-None-Match: *``), on which the journals rely: entry N is created once and never replaced. Not every
server honours that condition, so a store is tried out before it is used, and refused if a second write replaces the first.

Address and credentials come from the environment or the configuration files of each host, as for all programs that use S3
(``AWS_ENDPOINT_URL``, ``AWS_ACCESS_KEY_ID``, ``AWS_SECRET_ACCESS_KEY``, ``AWS_REGION``, ...); they are never part of a URL.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from dskype.topology.core.snapshots import TERMS, SnapshotStore, WriteError, removed
from dskype.topology.errors import TopologyError

__all__ = ["ObjectSnapshotStore"]

_CREATED = "created"


class ObjectSnapshotStore(SnapshotStore):
    """Keeps snapshots, journals and documents as objects below a prefix.

    :param url: ``s3://bucket/prefix``; the bucket must exist.
    :param kept: snapshots kept per task.
    """

    remote = True

    def __init__(self, url: str, kept: int = 3) -> None:
        super().__init__(kept)
        self.url = url.rstrip("/")
        self._root = self.url.partition("://")[2]
        self._pid = 0
        self._connected: Any = None

    def __reduce__(self) -> tuple[type, tuple[str, int]]:
        return type(self), (self.url, self.kept)

    @property
    def _files(self) -> Any:
        """The file system; a fork has its own."""
        if self._pid != os.getpid():
            try:
                from s3fs import S3FileSystem  # imported late: it takes a second, and few topologies need it
            except ImportError as error:
                raise TopologyError("The library for S3 is missing.", given=self.url, hint="pip install '/path/to/dskype[s3]', on every host") from error
            self._connected = S3FileSystem(use_listings_cache=False, skip_instance_cache=True)
            self._pid = os.getpid()
        return self._connected

    def rest(self) -> None:
        self._pid, self._connected = 0, None

    def location(self, task: int) -> str:
        return f"{self.url}/{task}"

    # -- the store --------------------------------------------------------------------------------

    def create(self) -> None:
        """Mark the store as created, and try out whether the server refuses to replace an object.

        :raises TopologyError: it does not, or it cannot be reached.
        """
        trial = f"trial-{uuid.uuid4().hex}"
        try:
            self._put_new(self._path(trial), b"1")
            try:
                self._put_new(self._path(trial), b"2")
            except FileExistsError:
                pass
            else:
                raise TopologyError(
                    "The object store ignores the condition under which journals are written: a second write replaced the first.",
                    given=self.url,
                    legal="a server that honours 'If-None-Match: *', such as Amazon S3",
                    hint="use another server, or keep the state in Kafka (topology.emulator.state.url: kafka:)",
                )
            finally:
                self._remove(trial)
            self._files.pipe_file(self._path(_CREATED), b"")
        except OSError as error:
            raise TopologyError(
                f"The object store cannot be used: {error}.",
                given=self.url,
                hint="the bucket must exist, and AWS_ENDPOINT_URL and the credentials must be set on every host",
            ) from error

    def clear(self) -> None:
        self._remove_all({_CREATED, TERMS})

    def remove(self) -> None:
        self._remove_all(set())

    def _remove_all(self, but: set[str]) -> None:
        for name in self._find():
            if name.partition("/")[0] not in but:
                self._remove(name)

    def holds_state(self) -> bool:
        return any(name[0].isdigit() for name in self._find())

    def _find(self) -> list[str]:
        """Return the names of all objects."""
        root = f"{self._root}/"
        try:
            return [path.removeprefix(root) for path in self._files.find(self._root) if path.startswith(root)]  # some servers list the prefix itself
        except FileNotFoundError:
            return []

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    # -- objects ----------------------------------------------------------------------------------

    def _put_new(self, path: str, data: bytes) -> None:
        """Write an object that must not exist.

        :raises FileExistsError: it does.
        """
        try:
            self._files.pipe_file(path, data, mode="create")
        except OSError as error:
            if isinstance(error, FileExistsError) or "PreconditionFailed" in f"{error} {error.__cause__}":
                raise FileExistsError(path) from error
            raise

    def _check_writable(self, term: int | None) -> None:
        if term is None or not self.newest_term():
            if not self._files.exists(self._path(_CREATED)):
                raise removed(self.url)
        self.check_term(term)

    def _write(self, name: str, data: bytes, term: int | None) -> None:
        self._put(self._files.pipe_file, name, data, term)

    def _create(self, name: str, data: bytes, term: int | None, *, sync: bool) -> None:
        self._put(self._put_new, name, data, term)

    def _put(self, put: Callable[[str, bytes], None], name: str, data: bytes, term: int | None) -> None:
        self._check_writable(term)
        try:
            put(self._path(name), data)
        except FileExistsError:
            raise
        except OSError as error:
            raise WriteError(
                f"{name} cannot be written: {error}.",
                given=f"{len(data)} bytes to write to {self.url}",
                hint="the topology continues by itself when the object store takes objects again",
            ) from error

    def _read(self, name: str) -> bytes:
        return self._files.cat_file(self._path(name))

    def _remove(self, name: str) -> None:
        with suppress(FileNotFoundError):
            self._files.rm_file(self._path(name))

    def _names(self, folder: str) -> Iterable[str]:
        try:
            return [path.rpartition("/")[2] for path in self._files.ls(self._path(folder), detail=False, refresh=True)]
        except FileNotFoundError:
            return []
