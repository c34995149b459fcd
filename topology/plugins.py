"""Interchangeable classes by name, each imported when it is first used."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterator, Mapping, MutableMapping
from functools import cached_property
from typing import Generic, TypeVar

from dskype.topology.errors import IllegalArgumentException

__all__ = ["Plugins"]

Kind = TypeVar("Kind")


class Plugins(MutableMapping[str, type[Kind]], Generic[Kind]):
    """Name -> class. A name costs nothing until its class is asked for.

    The product's own classes come first, in the order given. Installed packages add others as entry points, and so does the laboratory, which the product
    therefore never imports. A name of the product's own cannot be taken by a package. ``plugins[name] = kind`` adds a class for this process.

    :param group: group of the entry points; for what a setting chooses, the setting's name: ``dskype.index``.
    :param own: name -> ``"module:Class"``.
    :raises KeyError: from ``plugins[name]``, for a name that is not known.
    :raises IllegalArgumentException: from ``plugins[name]``, for a class that a package names and that cannot be imported.
    """

    def __init__(self, group: str, own: Mapping[str, str]) -> None:
        self._group = group
        self._own = {name: _point(group, name, place) for name, place in own.items()}
        self._loaded: dict[str, type[Kind]] = {}

    @cached_property
    def _added(self) -> dict[str, importlib.metadata.EntryPoint]:
        """The entry points of packages. Finding them reads the metadata of all that is installed, so it waits for a name that is not the product's own."""
        return {point.name: point for point in sorted(importlib.metadata.entry_points(group=self._group)) if point.name not in self._own}

    def __getitem__(self, name: str) -> type[Kind]:
        if name not in self._loaded:
            point = self._own.get(name) or self._added[name]
            try:
                self._loaded[name] = point.load()
            except (ImportError, AttributeError) as ex:
                if name in self._own:
                    raise
                raise IllegalArgumentException(
                    f"The class of {name!r} in {self._group} cannot be imported.", given=point.value, hint=str(ex) or type(ex).__name__
                ) from ex
        return self._loaded[name]

    def __setitem__(self, name: str, kind: type[Kind]) -> None:
        self._loaded[name] = kind

    def __delitem__(self, name: str) -> None:
        del self._loaded[name]

    def __contains__(self, name: object) -> bool:
        return name in self._loaded or name in self._own or name in self._added

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys((*self._own, *self._added, *self._loaded)))

    def __len__(self) -> int:
        return len(list(iter(self)))

    def module(self, name: str) -> str:
        """Return the module of a class without importing it.

        :raises KeyError: the name is not known.
        """
        return self._loaded[name].__module__ if name in self._loaded else (self._own.get(name) or self._added[name]).module


def _point(group: str, name: str, place: str) -> importlib.metadata.EntryPoint:
    return importlib.metadata.EntryPoint(name, place, group)
