"""Kernels that only other kernels call: they are compiled as far as their callers need it.

numba makes each kernel callable from Python, whoever calls it: it compiles two more functions around it, which unpack and pack its arguments, makes machine code, and
loads that into the process. The caller uses none of this. It links the intermediate code of what it calls into its own, and makes machine code of all together. Here a kernel that is
compiled because another one calls it, a *part*, ends as intermediate code. If Python calls it later, it is compiled once more, as a whole.

This replaces functions inside numba, so it is done for the versions only that it was tested with. Others compile kernels in their own way, with the same results, and take longer.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any
from weakref import WeakSet

import numba
from numba.core import codegen, sigutils
from numba.core.caching import Cache
from numba.core.compiler_lock import global_compiler_lock
from numba.core.cpu import CPUContext
from numba.core.dispatcher import _DispatcherBase, _FunctionCompiler  # type: ignore[attr-defined]
from numba.core.environment import lookup_environment

__all__ = ["compiling", "in_part"]

_TESTED = ("0.68.",)
"""How versions of numba begin whose insides this is written for."""

_OWNERS = ("dskype.", "numba.")
"""Whose functions may be parts. Those of users are compiled as numba does it."""

_libraries: WeakSet[Any] = WeakSet()
"""The code of parts."""


class _Now:
    """What the thread that has numba's lock compiles.

    :ivar called: the function that a kernel calls which is being compiled; it comes next.
    :ivar part: whether a part is being compiled.
    """

    called: Any = None
    part = False


class _NoEntry:
    """Stands where the function is that Python would call."""


def in_part() -> bool:
    """Tell whether the thread that has numba's lock compiles a part."""
    return _Now.part


@contextlib.contextmanager
def _being(called: Any, part: bool) -> Iterator[None]:
    before = _Now.called, _Now.part
    _Now.called, _Now.part = called, part
    try:
        yield
    finally:
        _Now.called, _Now.part = before


@contextlib.contextmanager
def compiling(dispatcher: Any, signature: Any) -> Iterator[None]:
    """Compile a function in this block, as a part if another kernel has asked for it. The caller has numba's lock."""
    part = _Now.called is dispatcher and dispatcher.py_func.__module__.startswith(_OWNERS)
    if not part:
        args = tuple(sigutils.normalize_signature(signature)[0])
        known = dispatcher.overloads.get(args)
        if known is not None and known.library in _libraries:
            del dispatcher.overloads[args]
    with _being(None, part):
        yield


def _get_call_template(dispatcher: Any, args: Any, kws: Any) -> Any:
    with global_compiler_lock, _being(dispatcher, _Now.part):
        return _original[_DispatcherBase, "get_call_template"](dispatcher, args, kws)


def _customize_flags(compiler: Any, flags: Any) -> Any:
    if _Now.part:
        flags.no_cpython_wrapper = flags.no_cfunc_wrapper = True
    return _original[_FunctionCompiler, "_customize_flags"](compiler, flags)


def _get_executable(context: Any, library: Any, function: Any, environment: Any) -> Any:
    if _Now.part:
        _libraries.add(library)
        library._ensure_finalized()
        return _NoEntry()
    entry = _original[CPUContext, "get_executable"](context, library, function, environment)
    for variable in library._final_module.global_variables:  # parts have not told where theirs are
        if (found := lookup_environment(variable.name)) is not None:
            library.codegen.set_env(variable.name, found)
    return entry


def _add_overload(dispatcher: Any, result: Any) -> None:
    if result.library in _libraries:
        dispatcher.overloads[tuple(result.signature.args)] = result  # but not where calls from Python look
    else:
        _original[_DispatcherBase, "add_overload"](dispatcher, result)


def _unless_part(cls: Any, name: str) -> Any:
    def call(*args: Any) -> None:
        if not _Now.part:
            _original[cls, name](*args)

    return call


def _serialize(library: Any) -> Any:
    return library.serialize_using_bitcode() if library in _libraries else _original[codegen.CPUCodeLibrary, "serialize_using_object_code"](library)


def _index_key(cache: Any, signature: Any, code: Any) -> Any:
    key = _original[Cache, "_index_key"](cache, signature, code)
    return (*key, "part") if _Now.part else key


def _load_overload(cache: Any, signature: Any, context: Any) -> Any:
    load = _original[Cache, "_load_overload"]
    found = load(cache, signature, context)
    if found is None and _Now.part:
        with _being(None, False):  # the whole kernel serves as well
            found = load(cache, signature, context)
    return found


def _optimize(library: Any) -> None:
    """Inline, and drop reference counts. The rest comes where this code is linked into a kernel: it would be done again there anyway."""
    if not _Now.part:
        _original[codegen.CPUCodeLibrary, "_optimize_final_module"](library)
        return
    options = {"loop_vectorize": False, "slp_vectorize": False, "opt": 0, "cost": "cheap"}
    passes, builder = library._codegen._module_pass_manager(**options)
    passes.run(library._final_module, builder)


_replacements: dict[tuple[Any, str], Any] = {
    (_DispatcherBase, "get_call_template"): _get_call_template,
    (_DispatcherBase, "add_overload"): _add_overload,
    (_FunctionCompiler, "_customize_flags"): _customize_flags,
    (CPUContext, "get_executable"): _get_executable,
    (codegen.CPUCodeLibrary, "serialize_using_object_code"): _serialize,
    (codegen.CPUCodeLibrary, "_optimize_final_module"): _optimize,
    (Cache, "_index_key"): _index_key,
    (Cache, "_load_overload"): _load_overload,
    **{
        (cls, name): _unless_part(cls, name)
        for cls, name in ((codegen.JITCPUCodegen, "_add_module"), (codegen.JITCPUCodegen, "set_env"), (codegen.JITCodeLibrary, "_finalize_specific"))
    },
}
if numba.__version__.startswith(_TESTED):
    _original = {(cls, name): getattr(cls, name) for cls, name in _replacements}
    for (_cls, _name), _replacement in _replacements.items():
        setattr(_cls, _name, _replacement)
