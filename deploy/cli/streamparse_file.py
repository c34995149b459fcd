"""A topology of streamparse, given as its Python file: ``topologies/wordcount.py``, or ``topologies/wordcount.py:WordCount``."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dskype.topology.errors import explain
from dskype.topology.flux import FluxException, FluxTopology
from dskype.topology.flux.model import TopologyDef, TopologySourceDef
from dskype.topology.streamparse import Topology

__all__ = ["is_topology_file", "load"]


def is_topology_file(file: str) -> bool:
    """Tell whether an argument names a Python file."""
    return file.partition(".py:")[0].removesuffix(".py") != file


def load(file: str, environment: str | None, config: Mapping[str, Any]) -> FluxTopology:
    """Load the topology in a Python file; it is called like the file.

    The folders of a streamparse project, ``src`` beside the file's folder, and the file's own, are added at the end of the import path.

    :param file: path, optionally followed by ``:`` and the name of the class; default: the only one.
    :param environment: chooses the parallelism where it depends on it.
    :param config: configuration that overrides the class's.
    :raises FluxException: there is no such file or class, or the topology cannot be built.
    """
    path, _, wanted = file.partition(".py:")
    source = Path(path if wanted else file.removesuffix(".py")).with_suffix(".py").resolve()
    if not source.is_file():
        raise FluxException(explain(f"{source} is not a file.", given=file))
    sys.path += [p for p in (str(source.parent.parent / "src"), str(source.parent)) if p not in sys.path]
    try:
        module = importlib.import_module(source.stem)
    except Exception as error:  # the user's code
        raise FluxException(explain(f"{source} cannot be imported: {type(error).__name__}: {error}")) from error
    if Path(getattr(module, "__file__", None) or "").resolve() != source:
        raise FluxException(explain(f"{source} has the name of a module that is installed.", given=source.stem, hint="rename the file"))
    classes = {
        n: v for n, v in vars(module).items() if isinstance(v, type) and issubclass(v, Topology) and v is not Topology and v.__module__ == module.__name__
    }
    if wanted not in classes and not (not wanted and len(classes) == 1):
        raise FluxException(
            explain("Expected one class of a topology.", given=wanted or sorted(classes), legal=", ".join(sorted(classes)) or "the file has none")
        )
    found = classes[wanted] if wanted else next(iter(classes.values()))
    try:
        topology = found.build(environment)
    except ValueError as error:
        raise FluxException(explain(f"{found.__name__} cannot be built: {error}", hint="--environment chooses one")) from error
    conf = {**(found.config or {}), **config}
    definition = TopologyDef(name=source.stem, config=conf, topology_source=TopologySourceDef(where=str(source), class_name=found.__name__))
    modules = sorted({found.__module__, *(spec.kind.__module__ for spec in found.specs.values())} - {"dskype"})
    return FluxTopology(source.stem, conf, topology, definition, modules=[m for m in modules if not m.startswith("dskype.")])
