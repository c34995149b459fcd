"""Compiled kernels that follow the kernels they import.

numba compiles what a kernel calls into the kernel, and treats what it imports as constants. Its cache, however, compares only the kernel's own file:
if another file changes, the machine code in the cache is that of the old one. Here the cache compares the files of all kernels that a kernel imports.

numba also reads an index as a whole before it compares it, which fails where an older version of this product left one that names a class that has moved since.
Here such an index counts as an old one.

And numba numbers the compiled forms of a kernel, one for each signature. Two processes that compile different forms at the same time may choose the same number, and
one of them then loads the machine code of the other. Here a form has a name that follows from its signature.
"""

from __future__ import annotations

import glob
import hashlib
import importlib
import re
from functools import cache
from pathlib import Path
from typing import Any

from numba.core.caching import CacheImpl, IndexDataCacheFile, _CacheLocator
from numba.core.serialize import dumps

__all__ = ["compare_imported_kernels"]

_IMPORTS = re.compile(rb"^(?:from|import)\s+(dskype\.[\w.]*_kernels)\b", re.MULTILINE)


def compare_imported_kernels() -> None:
    """Let the cache compare imported kernels, too, for every kernel of this product that imports others and is imported after this call.

    A package with kernels that import kernels of other files calls this in its ``__init__.py``, before it imports anything that imports kernels: otherwise
    processes that import packages in another order would compile each other's kernels again. It holds in any process and for any cache folder, also in
    Spark's executors. Further calls do nothing.
    """
    locators = CacheImpl._locator_classes
    if _ImportsLocator not in locators:
        CacheImpl._locator_classes = [_ImportsLocator, *locators]
        for name, replacement in (("_load_index", _load_index), ("save", _save)):
            setattr(IndexDataCacheFile, name, replacement)


_load_index_of_this_version = IndexDataCacheFile._load_index


def _load_index(file: Any) -> dict[Any, str]:
    """Read the index of a kernel's compiled forms; one that cannot be read is empty, and replaced when the kernel is compiled."""
    try:
        return _load_index_of_this_version(file)
    except (AttributeError, ImportError, EOFError):
        return {}


def _save(file: Any, key: Any, data: Any) -> None:
    """Save a compiled form: first the form, then the index that names it. If two processes write the index at the same time, one entry is lost, and compiled again."""
    digest = hashlib.blake2b(file._source_stamp + dumps(key), digest_size=7)
    name = file._data_name(int.from_bytes(digest.digest(), "big"))
    file._save_data(name, data)
    known = file._load_index()
    if known.get(key) != name:
        file._save_index({**known, key: name})
        if not known:
            _remove_old_forms(file, name)


def _remove_old_forms(file: Any, name: str) -> None:
    """Remove the forms of a kernel whose source has changed: the index does not name them any more.

    :param name: of a present form.
    """
    kept = {name, *file._load_index().values()}
    for path in Path(file._cache_path).glob(f"{glob.escape(name.rsplit('.', 2)[0])}.*.nbc"):
        if path.name not in kept:
            path.unlink(missing_ok=True)


class _ImportsLocator(_CacheLocator):
    """Where numba would keep a kernel, with a stamp that covers the kernels it imports.

    :param standard: the locator that numba chooses by itself.
    :param module: the name of the kernel's module.
    """

    def __init__(self, standard: Any, module: str) -> None:
        self._standard = standard
        self._module = module
        self._py_file = standard._py_file  # numba's warnings name it

    @classmethod
    def from_function(cls, py_func: Any, py_file: str) -> _ImportsLocator | None:
        """Return a locator for a kernel of this product whose module imports others, else None: numba then asks its next locator.

        A kernel that imports none has numba's own stamp, whether it is imported before or after :func:`compare_imported_kernels` is called.
        """
        module = py_func.__module__
        if not (module.startswith("dskype.") and _source(module)[1]):
            return None
        locators: list[Any] = CacheImpl._locator_classes
        found = (locator.from_function(py_func, py_file) for locator in locators if locator is not cls)
        standard = next((locator for locator in found if locator is not None), None)
        return standard and cls(standard, module)

    def ensure_cache_path(self) -> None:
        self._standard.ensure_cache_path()

    def get_cache_path(self) -> str:
        return self._standard.get_cache_path()

    def get_disambiguator(self) -> str:
        return self._standard.get_disambiguator()

    def get_source_stamp(self) -> bytes:
        return _digest(self._module)


@cache
def _digest(module: str) -> bytes:
    """Return a digest of a kernel module and of all that it imports, directly and through others.

    Each file is read once in a process, when its first kernel is imported: later changes are not part of the code that this process compiles.
    """
    modules = [module]
    for name in modules:  # grows meanwhile
        modules += [found for found in _source(name)[1] if found not in modules]
    digest = hashlib.sha256()
    for name in sorted(modules):
        digest.update(_source(name)[0])
    return digest.digest()


@cache
def _source(module: str) -> tuple[bytes, list[str]]:
    """Return a digest of a module's file, and the names of the kernel modules that it imports."""
    text = Path(str(importlib.import_module(module).__file__)).read_bytes()
    return hashlib.sha256(text).digest(), sorted({name.decode() for name in _IMPORTS.findall(text)})
