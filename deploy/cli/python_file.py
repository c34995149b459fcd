"""A topology in a Python file: a class of streamparse, or a function ``main`` that submits with ``StormSubmitter``."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from dskype.topology.errors import TopologyError
from dskype.topology.flux import FluxException, FluxTopology
from dskype.topology.flux.model import TopologyDef, TopologySourceDef
from dskype.topology.streamparse import Topology
from dskype.topology.submitter import collecting

__all__ = ["Loaded", "is_python_file", "load"]


class Loaded(NamedTuple):
    """A topology in a Python file.

    :ivar active: whether the program wants it to start active.
    """

    flux: FluxTopology
    active: bool = True


def is_python_file(file: str) -> bool:
    """Tell whether an argument names a Python file."""
    return file.partition(".py:")[0].removesuffix(".py") != file


def load(file: str, environment: str | None, config: Mapping[str, Any], arguments: Sequence[str] = ()) -> Loaded:
    """Load the topology in a Python file.

    The folders of a streamparse project, ``src`` beside the file's folder, and the file's own, are added at the end of the import path.

    :param file: path, optionally followed by ``:`` and the name of a class or function; default: the only topology of streamparse, or ``main``.
    :param environment: chooses the parallelism of a topology of streamparse where it depends on it.
    :param config: configuration that overrides that of the class or the program.
    :param arguments: those of the function.
    :raises FluxException: there is no such file, class or function, or the topology cannot be built.
    :raises TopologyError: what the program raises of that kind.
    """
    path, _, wanted = file.partition(".py:")
    source = Path(path if wanted else file.removesuffix(".py")).with_suffix(".py").resolve()
    module = _imported(source, file)
    classes = {
        n: v for n, v in vars(module).items() if isinstance(v, type) and issubclass(v, Topology) and v is not Topology and v.__module__ == module.__name__
    }
    function = getattr(module, wanted or "main", None)
    if inspect.isfunction(function) and (wanted or not classes):
        return _run_program(function, source, config, arguments)
    if arguments:
        raise FluxException("Only a program takes arguments.", given=list(arguments), hint=f"{source} has no function {wanted or 'main'}")
    if wanted not in classes and not (not wanted and len(classes) == 1):
        raise FluxException(
            "Expected one class of a topology, or a function main.", given=wanted or sorted(classes), legal=", ".join(sorted(classes)) or "the file has none"
        )
    return Loaded(_build(classes[wanted] if wanted else next(iter(classes.values())), source, environment, config))


def _imported(source: Path, file: str) -> ModuleType:
    """Import the module in a file."""
    if not source.is_file():
        raise FluxException(f"{source} is not a file.", given=file)
    sys.path += [p for p in (str(source.parent.parent / "src"), str(source.parent)) if p not in sys.path]
    try:
        module = importlib.import_module(source.stem)
    except Exception as error:  # the user's code
        original = isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] in ("streamparse", "pystorm")
        hint = "here these classes are in another module: from dskype.topology.streamparse import ..." if original else None
        raise FluxException(f"{source} cannot be imported: {type(error).__name__}: {error}", hint=hint) from error
    if Path(getattr(module, "__file__", None) or "").resolve() != source:
        raise FluxException(f"{source} has the name of a module that is installed.", given=source.stem, hint="rename the file")
    return module


def _build(found: type[Topology], source: Path, environment: str | None, config: Mapping[str, Any]) -> FluxTopology:
    """Build a topology of streamparse; it is called like the file."""
    try:
        topology = found.build(environment)
    except ValueError as error:
        raise FluxException(f"{found.__name__} cannot be built: {error}", hint="--environment chooses one") from error
    conf = {**(found.config or {}), **config}
    definition = TopologyDef(name=source.stem, config=conf, topology_source=TopologySourceDef(where=str(source), class_name=found.__name__))
    modules = {found.__module__, *(spec.kind.__module__ for spec in found.specs.values())}
    return FluxTopology(source.stem, conf, topology, definition, modules=_users(modules))


def _run_program(function: Callable[..., Any], source: Path, config: Mapping[str, Any], arguments: Sequence[str]) -> Loaded:
    """Run a program, and return what it has submitted."""
    with collecting() as submissions:
        try:
            function(list(arguments)) if inspect.signature(function).parameters else function()
        except (TopologyError, SystemExit):
            raise
        except Exception as error:  # the user's code
            raise FluxException(f"{function.__name__} of {source} raised {type(error).__name__}: {error}", given=list(arguments)) from error
    if len(submissions) != 1:
        names = [submission.name for submission in submissions]
        raise FluxException(f"{function.__name__} of {source} has to submit exactly one topology.", given=names, hint="StormSubmitter.submit_topology")
    (submission,) = submissions
    conf = {**submission.conf, **config}
    source_def = TopologySourceDef(where=str(source), class_name=source.stem, method_name=function.__name__)
    definition = TopologyDef(name=submission.name, config=conf, topology_source=source_def)
    modules = {function.__module__, *(type(spec.obj).__module__ for spec in submission.topology.components.values())}
    return Loaded(FluxTopology(submission.name, conf, submission.topology, definition, modules=_users(modules)), submission.active)


def _users(modules: set[str]) -> list[str]:
    """Return the modules that are not part of this software."""
    return sorted(m for m in modules if m != "dskype" and not m.startswith("dskype."))
