"""The classes that a Flux file may name.

Storm's Flux creates objects of any class that a file names. Here a ``className`` must be one of these:

1. a name in a :class:`Registry`: the Storm name of a class that has a Python replacement, or a short ``dskype.`` name;
2. the name of an entry point in the group ``dskype.components`` of an installed package;
3. a class in a module that the caller allows (``allow_modules``, ``--allow-module``), defined there, not only imported.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.metadata
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from dskype.topology.flux.errors import ClassNotFoundException, FluxException

__all__ = ["ENTRY_POINT_GROUP", "Registry", "default_registry"]

ENTRY_POINT_GROUP = "dskype.components"

_TESTING = (
    "FeederSpout",
    "FixedTupleSpout",
    "FixedTuple",
    "IdentityBolt",
    "NGrouping",
    "TestAggregatesCounter",
    "TestConfBolt",
    "TestEventLogSpout",
    "TestEventOrderCheckBolt",
    "TestGlobalCount",
    "TestPlannerBolt",
    "TestPlannerSpout",
    "TestWordBytesCounter",
    "TestWordCounter",
    "TestWordSpout",
    "TupleCaptureBolt",
    "AckTracker",
    "AckFailMapTracker",
)
_COMPAT = "dskype.topology.flux.storm_compat"
_STORM = "org.apache.storm."

_BUILTIN: dict[str, str] = {
    **{f"{_STORM}testing.{name}": f"dskype.topology.testing:{name}" for name in _TESTING},
    **{f"dskype.{name}": f"dskype.topology.testing:{name}" for name in _TESTING},
    f"{_STORM}tuple.Fields": "dskype.topology.fields:Fields",
    "dskype.Fields": "dskype.topology.fields:Fields",
    "dskype.KafkaSpout": "dskype.topology.components:KafkaSpout",
    "dskype.KafkaBolt": "dskype.topology.components:KafkaBolt",
    "dskype.ShellSpout": "dskype.topology.multilang:ShellSpout",
    "dskype.ShellBolt": "dskype.topology.multilang:ShellBolt",
    "dskype.LogInfoBolt": "dskype.topology.testing:LogInfoBolt",
    "dskype.PartialKeyGrouping": "dskype.topology.groupings:PartialKeyGrouping",
    f"{_STORM}grouping.PartialKeyGrouping": "dskype.topology.groupings:PartialKeyGrouping",
    f"{_STORM}flux.wrappers.bolts.LogInfoBolt": "dskype.topology.testing:LogInfoBolt",
    f"{_STORM}flux.wrappers.bolts.FluxShellBolt": "dskype.topology.multilang:ShellBolt",
    f"{_STORM}flux.wrappers.spouts.FluxShellSpout": "dskype.topology.multilang:ShellSpout",
    f"{_STORM}bolt.JoinBolt": f"{_COMPAT}:StormJoinBolt",
    f"{_STORM}topology.base.BaseWindowedBolt$Count": "dskype.topology.windows:Count",
    f"{_STORM}topology.base.BaseWindowedBolt$Duration": f"{_COMPAT}:StormDuration",
    "dskype.JoinBolt": "dskype.topology.joins:JoinBolt",
    f"{_STORM}hooks.BaseWorkerHook": f"{_COMPAT}:BaseWorkerHook",
    f"{_STORM}flux.test.TestBolt": f"{_COMPAT}:TestBolt",
    f"{_STORM}flux.test.TestBolt$TestClass": f"{_COMPAT}:TestClass",
    f"{_STORM}flux.test.SimpleTopology": f"{_COMPAT}:SimpleTopology",
    f"{_STORM}flux.test.SimpleTopologySource": f"{_COMPAT}:SimpleTopology",
    f"{_STORM}flux.test.SimpleTopologyWithConfigParam": f"{_COMPAT}:SimpleTopology",
    f"{_STORM}flux.test.OnlyValueRecordTranslator": f"{_COMPAT}:OnlyValueRecordTranslator",
    f"{_STORM}flux.examples.OnlyValueRecordTranslator": f"{_COMPAT}:OnlyValueRecordTranslator",
    f"{_STORM}kafka.spout.KafkaSpout": f"{_COMPAT}:StormKafkaSpout",
    f"{_STORM}kafka.spout.KafkaSpoutConfig": f"{_COMPAT}:KafkaSpoutConfig",
    f"{_STORM}kafka.spout.KafkaSpoutConfig$Builder": f"{_COMPAT}:KafkaSpoutConfigBuilder",
    "java.time.Duration": f"{_COMPAT}:Duration",
    f"{_STORM}hdfs.bolt.HdfsBolt": f"{_COMPAT}:HdfsBolt",
    f"{_STORM}hdfs.bolt.format.DefaultFileNameFormat": f"{_COMPAT}:HdfsPart",
    f"{_STORM}hdfs.bolt.format.DelimitedRecordFormat": f"{_COMPAT}:HdfsPart",
    f"{_STORM}hdfs.bolt.sync.CountSyncPolicy": f"{_COMPAT}:HdfsPart",
    f"{_STORM}hdfs.bolt.rotation.TimedRotationPolicy": f"{_COMPAT}:HdfsPart",
    f"{_STORM}hdfs.bolt.rotation.FileSizeRotationPolicy": f"{_COMPAT}:HdfsPart",
    f"{_STORM}hdfs.common.rotation.MoveFileAction": f"{_COMPAT}:HdfsPart",
}

_OUT_OF_SCOPE = {
    "trident": "Trident is not part of the emulator",
    "drpc": "DRPC is not part of the emulator",
    "storm.sql": "Storm SQL is not part of the emulator",
}


class Registry:
    """Maps names to classes.

    :param classes: name -> class, or ``"module:attribute"``, which is imported on first use.
    """

    def __init__(self, classes: Mapping[str, type | str] | None = None) -> None:
        self._classes: dict[str, type | str] = dict(classes or {})

    def register(self, name: str, target: type | str) -> None:
        """Map ``name`` to a class, or to ``"module:attribute"``."""
        self._classes[name] = target

    def extended(self, classes: Mapping[str, type | str]) -> Registry:
        """Return a registry with these names added."""
        return Registry({**self._classes, **classes})

    def __contains__(self, name: object) -> bool:
        return name in self._classes

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._classes))

    def resolve(self, name: str, where: str, allow_modules: Iterable[str] = ()) -> type:
        """Return the class with this name.

        :param name: the ``className``.
        :param where: the definition with that name, e.g. ``bolt 'count'``, for messages.
        :param allow_modules: modules whose classes may be named by their full names, including modules below them.
        :raises ClassNotFoundException: the name is unknown or not allowed; the message says how to allow it.
        """
        target = self._classes.get(name) or _from_entry_point(name)
        if target is not None:
            return _load(target) if isinstance(target, str) else target
        allowed = tuple(allow_modules)
        if within(name, allowed):
            return _from_module(name, where, allowed)
        raise ClassNotFoundException(f"Class not found: {name}, named by {where}.", given=name, hint=self._near(name) or _hint(name))

    def _near(self, name: str) -> str | None:
        by_last: dict[str, list[str]] = {}
        for full in self._classes:
            by_last.setdefault(full.rsplit(".", 1)[-1].lower(), []).append(full)
        near = difflib.get_close_matches(name.rsplit(".", 1)[-1].lower(), by_last, 2, 0.75)
        return "did you mean " + " or ".join(full for n in near for full in by_last[n]) + "?" if near else None


def default_registry() -> Registry:
    """Return a registry with the replacements of Storm's classes and the short ``dskype.`` names."""
    return Registry(_BUILTIN)


def _hint(name: str) -> str:
    for part, words in _OUT_OF_SCOPE.items():
        if name.startswith("org.apache.storm.") and part in name.lower():
            return words
    if name.startswith(("org.", "com.", "java.", "backtype.")):
        last = name.rpartition(".")[2]
        return f"a Java class needs one in Python: write it, name that as className ('mybolts.{last}'), and allow its module: --allow-module mybolts"
    module = name.rpartition(".")[0]
    if not module:
        return "write module.Class, and allow the module with --allow-module (allow_modules= in load)"
    return f"if it is yours, allow its module: --allow-module {module.split('.')[0]} (allow_modules= in load)"


def _near(name: str, names: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(names), 2, 0.6)
    return f"; did you mean {' or '.join(near)}?" if near else ""


def within(name: str, modules: tuple[str, ...]) -> bool:
    """Tell whether a name is one of the modules, or lies in one."""
    return any(name == module or name.startswith(module + ".") for module in modules)


def _from_entry_point(name: str) -> type | None:
    for point in importlib.metadata.entry_points(group=ENTRY_POINT_GROUP, name=name):
        return point.load()
    return None


def _load(target: str) -> type:
    module, _, attribute = target.partition(":")
    found: Any = importlib.import_module(module)
    for part in attribute.split("."):
        found = getattr(found, part)
    return found


def _from_module(name: str, where: str, allowed: tuple[str, ...]) -> type:
    parts = name.replace("$", ".").split(".")
    if not all(part.isidentifier() and not part.startswith("__") for part in parts):
        raise ClassNotFoundException(f"Class not found: {name}, named by {where}.", given=name, legal="module.Class")
    found: Any = None
    rest: list[str] = []
    hint = "its module is looked for in PYTHONPATH, in the working folder and beside the file"
    for i in range(len(parts) - 1, 0, -1):
        module = ".".join(parts[:i])
        if not within(module, allowed):
            break
        try:
            found, rest = importlib.import_module(module), parts[i:]
            break
        except ModuleNotFoundError as ex:
            if ex.name is None or not (module == ex.name or module.startswith(ex.name + ".")):
                raise FluxException(f"{where}: module {module} cannot be imported: {ex}", given=name) from ex
        except Exception as ex:  # the user's module: whatever its import raises
            raise FluxException(f"{where}: module {module} cannot be imported: {type(ex).__name__}: {ex}", given=name) from ex
    for part in rest:
        holder, found = found, getattr(found, part, None)
        if found is None:
            hint = f"{getattr(holder, '__name__', holder)} has no {part}" + _near(part, vars(holder) if hasattr(holder, "__dict__") else ())
            break
    if found is None:
        raise ClassNotFoundException(f"Class not found: {name}, named by {where}.", given=name, hint=hint)
    if not isinstance(found, type):
        raise ClassNotFoundException(f"{name}, named by {where}, is not a class.", given=type(found).__name__)
    if not within(found.__module__, allowed):
        raise ClassNotFoundException(
            f"{name}, named by {where}, is defined in a module that is not allowed.",
            given=found.__module__,
            hint=f"allow it with --allow-module {found.__module__}",
        )
    return found
