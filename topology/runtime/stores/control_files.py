"""The small files that describe a topology's folder.

======================  ==============================================================================================
``manifest.json``       what was started: topology id, tasks, configuration, version; written once, before the first tuple
``first-offsets.json``  the first offsets read from external partitions, so that "latest" keeps its meaning after a restart
======================  ==============================================================================================

They are written and replaced as a whole. A file that is missing or unreadable where it is needed is an error that names
it. State is removed only on the user's request.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dskype.topology.config import CHANGEABLE
from dskype.topology.core.atomic_files import replace_file
from dskype.topology.core.redaction import redact
from dskype.topology.errors import TopologyError
from dskype.topology.planning.plan import TopologyPlan

__all__ = ["FIRST_OFFSETS", "MANIFEST", "ControlFileError", "Manifest", "ResumeRefusedError", "differences", "read_json", "write_json"]

_FORMAT = 1
MANIFEST = "manifest.json"
FIRST_OFFSETS = "first-offsets.json"


class ControlFileError(TopologyError):
    """A control file is missing or damaged."""


class ResumeRefusedError(TopologyError):
    """The submitted topology differs from the one that was started, so that it cannot use its state."""


def write_json(path: Path, document: Any) -> None:
    """Write a document; even after a crash or a power cut, the file holds the old document or the new one."""
    with replace_file(path) as file:
        file.write(json.dumps(document, ensure_ascii=False, indent=1).encode())


def read_json(path: Path, expected: str, parse: Callable[[Any], Any]) -> Any:
    """Return ``parse`` of a file's document, or None if there is no such file.

    :param expected: what the file should hold, for the error.
    :raises ControlFileError: the file cannot be read; the text says which, and what to do.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise _damaged(path, expected, str(error)) from error
    try:
        return parse(json.loads(text))
    except (ValueError, KeyError, TypeError, AttributeError, TopologyError) as error:
        raise _damaged(path, expected, f"{type(error).__name__}: {error}; its first bytes: {text[:40]!r}") from error


def _damaged(path: Path, expected: str, given: str) -> ControlFileError:
    return ControlFileError(
        f"{path} is damaged; expected {expected}; given: {given}; hint: put the file back from a copy, or start the topology afresh "
        "('dskype submit --fresh'), which removes its snapshots"
    )


@dataclass(frozen=True)
class Manifest:
    """Describes the topology that was started.

    :ivar tasks: component id -> number of tasks.
    :ivar conf: the topology's configuration, with secrets redacted.
    :ivar component_confs: component id -> its own configuration, with secrets redacted.
    :ivar version: version of dskype that started it.
    """

    topology_id: str
    tasks: dict[str, int]
    conf: dict[str, Any]
    component_confs: dict[str, dict[str, Any]]
    version: str

    @classmethod
    def describe(cls, plan: TopologyPlan, version: str) -> Manifest:
        """Return the manifest of a plan."""
        specs = plan.topology.components
        plain = json.loads(json.dumps({"conf": redact(plan.conf), "own": {c: redact(specs[c].conf) for c in plan.component_ids}}, default=repr))
        return cls(plan.topology_id, {c: len(plan.component_tasks(c)) for c in plan.component_ids}, plain["conf"], plain["own"], version)

    @classmethod
    def read(cls, folder: Path) -> Manifest | None:
        """Return the manifest in a topology's folder, or None if nothing was started there.

        :raises ControlFileError: it is damaged.
        """

        def parse(document: Any) -> Manifest:
            if document.pop("v") != _FORMAT:
                msg = f"expected format {_FORMAT}"
                raise ValueError(msg)
            return cls(**document)

        return read_json(folder / MANIFEST, "the manifest of a topology", parse)

    def write(self, folder: Path) -> None:
        """Write the manifest: when the topology is first started, and when a resume has changed settings that may change."""
        write_json(folder / MANIFEST, {"v": _FORMAT, **asdict(self)})


def differences(
    started: Manifest, given: Manifest, changeable: Iterable[str] = (), defaults: Mapping[str, Any] | None = None, from_start: Collection[str] = ()
) -> tuple[list[str], list[str]]:
    """Compare the topology that was started with the one submitted to resume it.

    :param changeable: keys of components that may change, besides :data:`~dskype.topology.config.CHANGEABLE`.
    :param defaults: the values of keys that are not set.
    :param from_start: those of the changeable keys that cannot be set where they were null.
    :returns: a line for each difference that prevents a resume, and one for each that takes effect.
    """
    allowed, defaults = {*CHANGEABLE, *changeable}, defaults or {}
    refused: list[str] = []
    accepted: list[str] = []
    for component in sorted({*started.tasks, *given.tasks}):
        before, now = started.tasks.get(component), given.tasks.get(component)
        if before is None:
            refused.append(f"component {component!r} is new")
        elif now is None:
            refused.append(f"component {component!r} is missing; it had {before} tasks")
        elif before != now:
            refused.append(f"component {component!r}: tasks {before} -> {now} (tasks never change; 'dskype rebalance' changes executors and workers)")
    for where, old, new in [
        ("", started.conf, given.conf),
        *(
            (f" of component {c!r}", started.component_confs[c], given.component_confs[c])
            for c in sorted(started.component_confs.keys() & given.component_confs.keys())
        ),
    ]:
        for key in sorted(old.keys() | new.keys()):
            if old.get(key, defaults.get(key)) != new.get(key, defaults.get(key)):
                line = f"{key}{where}: {_short(old.get(key))} -> {_short(new.get(key))}"
                begins = key in from_start and old.get(key, defaults.get(key)) is None
                (accepted if key in allowed and not begins else refused).append(line)
    if started.version != given.version:  # snapshots have a format version of their own
        accepted.append(f"dskype {started.version} -> {given.version}")
    return refused, accepted


def _short(value: Any) -> str:
    text = "(not set)" if value is None else json.dumps(value, ensure_ascii=False, default=repr)
    return text if len(text) <= 80 else text[:77] + "..."
