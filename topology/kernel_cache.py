"""Compiled kernels that are kept by the content of their sources.

numba compiles what a kernel calls into the kernel, and treats what it imports as constants. Its cache, however, compares only the kernel's own file, by its time of
change: if another file changes, the machine code in the cache is that of the old one, and a second checkout of the same sources compiles everything again. Here the
folder of a module's kernels has a digest in its name, of the module and of all kernels that it imports. So all checkouts on a machine share what one of them has compiled,
and branches that differ do not replace each other's kernels. The folders of the last used states of a module are kept.

Modules with kernels import ``njit`` from here, so that all this holds for them in any process, also in Spark's executors.

numba also reads an index as a whole before it compares it, which fails where an older version of this product left one that names a class that has moved since.
Here such an index counts as an old one.

And numba numbers the compiled forms of a kernel, one for each signature. Two processes that compile different forms at the same time may choose the same number, and
one of them then loads the machine code of the other. Here a form has a name that follows from its signature.

numba also numbers the functions that a process compiles, and their names in machine code have these numbers. A process that loads a kernel which another one has compiled
may have a function of its own with the same name, for example a part of ``argsort`` where the kernel has that part of ``sort``: the loader then takes the one that is there,
and the kernel is wrong without a word. Here each process begins with a number of its own.

Processes that need the same kernel at the same time would all compile it. Here one of them compiles it, and the others wait and load it. A process that only loads it takes
the lock, too, because that costs less than to look into the cache twice; the others do not wait for it.

What a kernel calls is compiled no further than the kernel needs: see :mod:`dskype.topology.kernel_parts`.
"""

from __future__ import annotations

import contextlib
import copy
import fcntl
import glob
import hashlib
import importlib
import itertools
import logging
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from numba import njit
from numba.core import config
from numba.core.bytecode import FunctionIdentity
from numba.core.caching import Cache, CacheImpl, IndexDataCacheFile, _CacheLocator
from numba.core.compiler_lock import global_compiler_lock
from numba.core.dispatcher import Dispatcher
from numba.core.serialize import dumps

from dskype.topology import kernel_parts
from dskype.topology.core.ownership import fault_of, is_ours
from dskype.topology.errors import TopologyError

__all__ = ["njit"]

log = logging.getLogger(__name__)

_FORMAT = b"2"
"""Of what is kept; kernels of format 1 could have names that another process had, too."""
_KEPT_STATES = 8
"""How many states of one module keep their compiled kernels, the last used ones."""
_LONGEST_WAIT_S, _STEP_S = 120.0, 0.02
"""A process that stands still may have the lock; the others go on without it after so long."""
_IMPORTS = re.compile(rb"^(?:from|import)\s+(dskype\.[\w.]*_kernels)\b", re.MULTILINE)


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


_load_of_numba = Cache.load_overload
told: list[Callable[[str], None]] = []
"""Called with the name of each kernel that this process begins to compile, or waits for while another process does."""


def _load(cache: Any, signature: Any, context: Any) -> Any:
    """Return a compiled form from the cache; if it is not there, say in the log what this process waits for now."""
    found = _load_of_numba(cache, signature, context)
    if found is None and not kernel_parts.in_part() and cache._py_func.__module__.startswith("dskype."):
        log.info("compiling the kernel %s of %s: the cache does not have it", cache._py_func.__qualname__, cache._py_func.__module__)
        for tell in told:
            tell(f"{cache._py_func.__module__.removeprefix('dskype.')}.{cache._py_func.__qualname__}")
    return found


_compile_of_numba = Dispatcher.compile
_locked: set[str] = set()
"""Lock files that this process has locked. Only the thread with numba's own lock uses it."""


def _compile(dispatcher: Any, signature: Any) -> Any:
    """Load a form of a kernel from the cache, or compile it; of several processes only one compiles."""
    own = dispatcher.py_func.__module__.startswith("dskype.")
    # numba's lock first, which compiling takes anyway: two threads that took them in different order would wait for each other.
    with global_compiler_lock, kernel_parts.compiling(dispatcher, signature):
        if not (own and isinstance(dispatcher._cache, Cache)):
            return _compile_of_numba(dispatcher, signature)
        cache, codegen = dispatcher._cache, dispatcher.targetctx.codegen
        file = cache._cache_file
        with _alone(file._index_path + ".lock", ready=lambda: cache._index_key(signature, codegen()) in file._load_index()):
            return _compile_of_numba(dispatcher, signature)


@contextlib.contextmanager
def _alone(path: str, ready: Callable[[], bool]) -> Iterator[None]:
    """Keep other processes out of a block, as far as the file system allows.

    A kernel locks those that it calls while it is compiled, and no kernel calls itself through others, so processes never wait for each other in a circle.

    :param ready: tells whether the kernel's form is in the cache: then nobody has to be kept out.
    """
    try:
        file = None if path in _locked else os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError:  # a folder where this process may not write
        file = None
    if file is None:
        yield
        return
    _locked.add(path)
    locked = False
    try:
        locked = _lock(file, ready)
        yield
    finally:
        _locked.discard(path)
        if locked:
            with contextlib.suppress(OSError):  # another process that waits for it finds the form in the cache
                os.unlink(path)
        os.close(file)


def _lock(file: int, ready: Callable[[], bool]) -> bool:
    """Lock a file, unless there is no need any more or another process keeps it too long; return whether it is locked."""
    deadline = time.monotonic() + _LONGEST_WAIT_S
    while time.monotonic() < deadline:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if ready():
                return False
            time.sleep(_STEP_S)
        except OSError:  # a file system without locks
            return False
        else:
            return True
    return False


class _ContentLocator(_CacheLocator):
    """Where the kernels of a module are kept: in a folder that is named after the content of their sources.

    :param standard: the locator that numba chooses by itself.
    :param module: the name of the kernels' module.
    """

    _line = 0
    """Of the kernel in its file."""

    def __init__(self, standard: Any, module: str) -> None:
        self._module = module
        self._py_file = standard._py_file  # numba's warnings name it
        folder = Path(standard.get_cache_path())
        # Beside the sources numba has one folder for a package, elsewhere one for each package, named after its place.
        parent = folder if folder.name == "__pycache__" else folder.parent
        path = parent / f"{module.removeprefix('dskype.')}-{_digest(module).hex()[:16]}"
        # Another user may have made it, in a cache folder that several use; kernels are pickles with machine code.
        own = path.with_name(f"{path.name}-{os.getuid()}")
        self._path = path if not path.exists() or (is_ours(path) and os.access(path, os.W_OK)) else own
        if self._path == own and (fault := fault_of(own)) is not None:
            raise TopologyError(
                "Compiled kernels that another user may have written are not used.", given=fault, hint="set NUMBA_CACHE_DIR to a folder of your own"
            )

    @classmethod
    def from_function(cls, py_func: Any, py_file: str) -> _ContentLocator | None:
        """Return a locator for a kernel of this product, else None: numba then asks its next locator."""
        module = py_func.__module__
        if not module.startswith("dskype."):
            return None
        if module not in _found:  # numba's locators write a file, to see whether they may; that is done for the first kernel of a module
            locators: list[Any] = CacheImpl._locator_classes
            found = (locator.from_function(py_func, py_file) for locator in locators if locator is not cls)
            standard = next((locator for locator in found if locator is not None), None)
            if standard is None:
                return None
            _found[module] = cls(standard, module)
            _use(_found[module]._path)
        locator = copy.copy(_found[module])
        locator._line = py_func.__code__.co_firstlineno
        return locator

    def get_cache_path(self) -> str:
        return str(self._path)

    def get_disambiguator(self) -> str:
        return str(self._line)

    def get_source_stamp(self) -> bytes:
        return _digest(self._module)


_found: dict[str, _ContentLocator] = {}
"""The locator of each module's first kernel."""


@cache
def _use(folder: Path) -> None:
    """Mark a folder as used now, and remove those of older states of its module beyond the number that is kept; once in a process."""
    with contextlib.suppress(OSError):  # a folder where this process may not write
        new = not folder.exists()
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.utime(folder)
        if new:
            states = sorted(folder.parent.glob(f"{glob.escape(folder.name.rpartition('-')[0])}-*"), key=lambda path: path.stat().st_mtime)
            for old in states[:-_KEPT_STATES]:
                shutil.rmtree(old, ignore_errors=True)


@cache
def _digest(module: str) -> bytes:
    """Return a digest of a kernel module and of all that it imports, directly and through others.

    Each file is read once in a process, when its first kernel is imported: later changes are not part of the code that this process compiles.
    """
    modules = [module]
    for name in modules:  # grows meanwhile
        modules += [found for found in _source(name)[1] if found not in modules]
    digest = hashlib.sha256(_FORMAT)
    for name in sorted(modules):
        digest.update(_source(name)[0])
    return digest.digest()


@cache
def _source(module: str) -> tuple[bytes, list[str]]:
    """Return a digest of a module's file, and the names of the kernel modules that it imports."""
    text = Path(str(importlib.import_module(module).__file__)).read_bytes()
    return hashlib.sha256(text).digest(), sorted({name.decode() for name in _IMPORTS.findall(text)})


def _number_from_anywhere() -> None:
    """Let the numbers of compiled functions begin where those of no other process do."""
    FunctionIdentity._unique_ids = itertools.count(int.from_bytes(os.urandom(7), "big"))


_number_from_anywhere()
os.register_at_fork(after_in_child=_number_from_anywhere)

# numba reads settings from a file in the working folder: among them the folder that it takes machine code and pickles from.
config._config_fname = os.devnull
config.reload_config()
CacheImpl._locator_classes = [_ContentLocator, *CacheImpl._locator_classes]
for _cls, _name, _replacement in (
    (IndexDataCacheFile, "_load_index", _load_index),
    (IndexDataCacheFile, "save", _save),
    (Cache, "load_overload", _load),
    (Dispatcher, "compile", _compile),
):
    setattr(_cls, _name, _replacement)
