"""The small files that say what a topology's folder holds: read whole, written whole, never guessed at.

==================  ==================================================================================================
``manifest.json``   what was started: topology id, tasks, configuration, version. Written once, before the first tuple.
``first-offsets.json``  where the topology began in partitions of external topics, so that "latest" keeps its meaning.
==================  ==================================================================================================

A file that is missing where it must be, or that cannot be read, is an error that names it. State is removed only where
the user asked for it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
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
    """What is to be resumed differs from what was started in a way that its state cannot bear."""


def write_json(path: Path, document: Any) -> None:
    """Replace a file as a whole: after a crash or a power cut it holds the old document or the new one."""
    with replace_file(path) as file:
        file.write(json.dumps(document, ensure_ascii=False, indent=1).encode())


def read_json(path: Path, what: str, read: Callable[[Any], Any]) -> Any:
    """Return what ``read`` makes of a file's document, or None if there is no such file.

    :param what: what the file holds, for the error.
    :raises ControlFileError: it cannot be read; the text names the file and the ways out.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise _damaged(path, what, str(error)) from error
    try:
        return read(json.loads(text))
    except (ValueError, KeyError, TypeError, AttributeError, TopologyError) as error:
        raise _damaged(path, what, f"{type(error).__name__}: {error}; its first bytes: {text[:40]!r}") from error


def _damaged(path: Path, what: str, given: str) -> ControlFileError:
    return ControlFileError(
        f"{path} is damaged; expected {what}; given: {given}; hint: put the file back from a copy, or start the topology afresh "
        "('dskype submit --fresh'), which removes its snapshots"
    )


@dataclass(frozen=True)
class Manifest:
    """What was started.

    :ivar tasks: component id -> number of tasks.
    :ivar conf: the topology's configuration, secrets left out.
    :ivar component_confs: component id -> what its own configuration adds.
    :ivar version: version of dskype that started it.
    """

    topology_id: str
    tasks: dict[str, int]
    conf: dict[str, Any]
    component_confs: dict[str, dict[str, Any]]
    version: str

    @classmethod
    def describe(cls, plan: TopologyPlan, version: str) -> Manifest:
        """Describe a plan."""
        specs = plan.topology.components
        plain = json.loads(json.dumps({"conf": redact(plan.conf), "own": {c: redact(specs[c].conf) for c in plan.component_ids}}, default=repr))
        return cls(plan.topology_id, {c: len(plan.component_tasks(c)) for c in plan.component_ids}, plain["conf"], plain["own"], version)

    @classmethod
    def read(cls, folder: Path) -> Manifest | None:
        """Return the manifest of a topology's folder, or None where nothing was started.

        :raises ControlFileError: it is damaged.
        """

        def parse(document: Any) -> Manifest:
            if document.pop("v") != _FORMAT:
                msg = f"expected format {_FORMAT}"
                raise ValueError(msg)
            return cls(**document)

        return read_json(folder / MANIFEST, "the manifest of a topology", parse)

    def write(self, folder: Path) -> None:
        """Write it; once in the life of a topology, and again when a resume has changed what may change."""
        write_json(folder / MANIFEST, {"v": _FORMAT, **asdict(self)})


def differences(started: Manifest, given: Manifest, changeable: Iterable[str] = ()) -> tuple[list[str], list[str]]:
    """Compare what was started with what is to be resumed.

    :param changeable: keys of components that may change, beside :data:`~dskype.topology.config.CHANGEABLE`.
    :returns: a line for each difference that a resume cannot bear, and one for each that it takes over.
    """
    allowed = {*CHANGEABLE, *changeable}
    refused: list[str] = []
    taken: list[str] = []
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
            if old.get(key) != new.get(key):
                line = f"{key}{where}: {_short(old.get(key))} -> {_short(new.get(key))}"
                (taken if key in allowed else refused).append(line)
    if started.version != given.version:  # whether its snapshots can be read, their own format says
        taken.append(f"dskype {started.version} -> {given.version}")
    return refused, taken


def _short(value: Any) -> str:
    text = "(not set)" if value is None else json.dumps(value, ensure_ascii=False, default=repr)
    return text if len(text) <= 80 else text[:77] + "..."
