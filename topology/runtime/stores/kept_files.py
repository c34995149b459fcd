"""Kept files: copies of the files that tasks read, made in the topology's folder at its first start.

If a file were changed in place, a restarted task would behave differently from before. Components declare which files they read
(:meth:`~dskype.topology.components.Component.files`). The copies are in ``<folder>/files``::

    index.json                      {"v": 1, "files": [{"component", "key", "path", "copy", "sha256"}, ...]}
    <16 hex digits>-<name>          a copy, named by its SHA-256

The index is written last: if it exists, all copies exist.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import os
import shutil
from collections.abc import Mapping
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any

from dskype.topology.core.atomic_files import replace_file
from dskype.topology.errors import TopologyError
from dskype.topology.planning.plan import TopologyPlan
from dskype.topology.runtime.stores.control_files import read_json, write_json

__all__ = ["INDEX", "declared_files", "keep_files", "kept_copies", "same_names", "with_copies", "with_paths"]

Key = tuple[str, ...]

_FOLDER, _INDEX = "files", "index.json"
INDEX = f"{_FOLDER}/{_INDEX}"
"""The index, within a topology's folder."""


def declared_files(plan: TopologyPlan) -> dict[tuple[str, Key], str]:
    """Return the files that tasks of a topology read: (component, key of its configuration) -> path."""
    return {
        (component, tuple(key)): os.fspath(path)
        for component in plan.component_ids
        for key, path in plan.spec(component).obj.files(plan.component_conf(component)).items()
    }


def keep_files(plan: TopologyPlan, folder: Path, resume: bool) -> TopologyPlan:
    """Return the plan with a configuration that names copies of the files, which the first start makes.

    :param folder: the topology's own folder; the copies are in ``folder/files``.
    :param resume: whether to use the copies of an earlier run. The original files may be missing then.
    :raises TopologyError: a file cannot be read; or, on a resume, a file has changed since the topology was started, the configuration names
        another file, or a copy is damaged.
    """
    declared, files = declared_files(plan), Path(folder) / _FOLDER
    index = _read_index(files) if resume else None
    if index is None:  # also on the first resume of a topology that an earlier version started
        shutil.rmtree(files, ignore_errors=True)
        if not declared:
            return plan
        index = {at: _copy(at, path, files) for at, path in declared.items()}
        write_json(files / _INDEX, {"v": 1, "files": [{"component": component, "key": key, **entry} for (component, key), entry in index.items()]})
    else:
        _check(plan.name, declared, index, files)
    return with_copies(plan, {at: str(files / entry["copy"]) for at, entry in index.items()})


def kept_copies(folder: Path) -> list[Path]:
    """Return the paths that the copies in a topology's folder have, whether they are there or not."""
    files = folder / _FOLDER
    return [files / entry["copy"] for entry in (_read_index(files) or {}).values()]


def same_names(plan: TopologyPlan, conf: Mapping[str, Any], component: str | None = None) -> dict[str, Any]:
    """Return a configuration with the names of the copies in the place of their paths, to compare those of two hosts.

    :param plan: one that :func:`keep_files` returned.
    :param conf: the topology's configuration, or with ``component`` the component's own.
    """
    found: Any = dict(conf)
    for at, key in declared_files(plan):
        own = key[0] in plan.spec(at).conf
        if (own and at == component) or (not own and component is None):
            with contextlib.suppress(KeyError, TypeError):  # it names no file there
                found = with_paths(found, {key: os.path.basename(reduce(getitem, key, found))})
    return found


def with_paths(conf: Mapping[str, Any], paths: Mapping[Key, str]) -> dict[str, Any]:
    """Return a configuration with these paths.

    >>> with_paths({"a": 1, "b": {"c": "old", "d": 2}}, {("b", "c"): "new"})
    {'a': 1, 'b': {'c': 'new', 'd': 2}}
    """
    conf = dict(conf)
    for (first, *rest), path in paths.items():
        conf[first] = with_paths(conf[first], {tuple(rest): path}) if rest else path
    return conf


def with_copies(plan: TopologyPlan, copies: Mapping[tuple[str, Key], str]) -> TopologyPlan:
    """Return the plan with a configuration that names these copies: (component, key of its configuration) -> path."""
    conf, components = plan.conf, dict(plan.topology.components)
    for (component, key), copy in copies.items():
        spec = components[component]
        if key[0] in spec.conf:
            components[component] = dataclasses.replace(spec, conf=with_paths(spec.conf, {key: copy}))
        else:
            conf = with_paths(conf, {key: copy})
    return dataclasses.replace(plan, conf=conf, topology=dataclasses.replace(plan.topology, components=components))


# -- copies ---------------------------------------------------------------------------------------


def _copy(at: tuple[str, Key], path: str, files: Path) -> dict[str, str]:
    """Copy a file, and return its entry in the index."""
    files.mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        source = open(path, "rb")  # noqa: SIM115 - closed below
    except OSError as error:
        raise TopologyError(
            f"A file that {' / '.join(at[1])} names cannot be read.",
            given=path,
            component=at[0],
            legal="a file that can be read where the topology is started",
            hint=error.strerror,
        ) from error
    partial = files / ".partial"
    with source, replace_file(partial) as target:
        shutil.copyfileobj(source, target)
    with open(partial, "rb") as written:
        digest = hashlib.file_digest(written, "sha256").hexdigest()
    copy = f"{digest[:16]}-{Path(path).name[-100:]}"
    os.replace(partial, files / copy)
    return {"path": os.path.abspath(path), "copy": copy, "sha256": digest}


def _digest(path: str | Path) -> str | None:
    """Return the SHA-256 of a file, or None if it cannot be read."""
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None


# -- a resume -------------------------------------------------------------------------------------


def _read_index(files: Path) -> dict[tuple[str, Key], dict[str, str]] | None:
    """Return the index of kept files, or None if there is none."""

    def parse(document: Any) -> dict[tuple[str, Key], dict[str, str]]:
        return {(e["component"], tuple(e["key"])): {name: str(e[name]) for name in ("path", "copy", "sha256")} for e in document["files"]}

    return read_json(files / _INDEX, "the index of the files that a topology keeps", parse)


def _check(name: str, declared: Mapping[tuple[str, Key], str], index: Mapping[tuple[str, Key], dict[str, str]], files: Path) -> None:
    """Refuse files that differ from the kept ones; restore a missing copy if its file is unchanged."""
    for component, key in declared.keys() ^ index.keys():
        path, entry = declared.get((component, key)), index.get((component, key))
        before = f"with {entry['path']}" if entry else "without one"
        raise TopologyError(
            f"Topology {name!r} cannot be resumed with other files: it was started {before} as {' / '.join(key)}.",
            given=path,
            component=component,
            hint="set it as it was, or start the topology afresh with --fresh",
        )
    for at, entry in index.items():
        given = _digest(declared[at])
        if given is not None and given != entry["sha256"]:
            raise TopologyError(
                f"The file that {' / '.join(at[1])} names has changed since topology {name!r} was started: SHA-256 {entry['sha256']} was expected of {declared[at]}.",
                given=given,
                component=at[0],
                hint=f"to continue as before, restore the file (cp {files / entry['copy']} {declared[at]}); to use the changed one, start the topology afresh "
                "with --fresh; to switch without a gap, run another topology beside this one (docs/guides/data.md)",
            )
        if _digest(files / entry["copy"]) != entry["sha256"]:
            if given is None:
                raise TopologyError(
                    f"The copy of a file that topology {name!r} was started with is damaged or gone: SHA-256 {entry['sha256']} was expected.",
                    given=str(files / entry["copy"]),
                    component=at[0],
                    hint=f"put the file back to {declared[at]}, or start the topology afresh with --fresh",
                )
            _copy(at, declared[at], files)
