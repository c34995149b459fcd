"""How big things may be, checked on the syntax trees: a module a reader can hold in the head, a function on one screen, few parameters."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache

from tests.sources import MODULES, name_of, text_of, tree_of

MODULE_LINES = 600
FUNCTION_LINES = 80
CONSTRUCTOR_PARAMETERS = 8
KERNEL_ARGUMENTS = 10

LONG_MODULES: dict[str, str] = {}
LONG_FUNCTIONS: dict[str, str] = {}
WIDE_CONSTRUCTORS: dict[str, str] = {}
WIDE_KERNELS: dict[str, str] = {}
"""Exceptions: name -> reason. The lists only get shorter."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


@cache
def functions() -> list[tuple[str, Function]]:
    """Return ``file:Class.function`` and its node, for all functions, nested ones included."""

    def walk(node: ast.AST, name: str, within: str) -> Iterator[tuple[str, Function]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):  # no definitions in there
                continue
            inner = within
            if isinstance(child, (ast.ClassDef, Function)):
                inner = f"{within}.{child.name}" if within else child.name
                if isinstance(child, Function):
                    yield f"{name}:{inner}", child
            yield from walk(child, name, inner)

    return [found for path in MODULES for found in walk(tree_of(path), name_of(path), "")]


def parameters(function: Function) -> int:
    """Return how many parameters a function names, without ``self``."""
    names = [a.arg for a in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)]
    return len([name for name in names if name not in ("self", "cls")])


def is_kernel(function: Function) -> bool:
    """Say whether numba compiles it."""
    return any("njit" in ast.unparse(decorator) for decorator in function.decorator_list)


def check(found: dict[str, int], exceptions: dict[str, str], most: int) -> None:
    """Nothing is above the limit but the exceptions, and an exception that is gone is taken off its list."""
    above = {name: n for name, n in found.items() if n > most}
    assert above.keys() == exceptions.keys(), {name: above.get(name, "no longer") for name in above.keys() ^ exceptions.keys()}


def test_modules_can_be_held_in_the_head():
    check({name_of(path): len(text_of(path).splitlines()) for path in MODULES}, LONG_MODULES, MODULE_LINES)


def test_functions_fit_on_a_screen():
    check({name: node.end_lineno - node.lineno + 1 for name, node in functions()}, LONG_FUNCTIONS, FUNCTION_LINES)


def test_constructors_take_few_parameters():
    check({name: parameters(node) for name, node in functions() if node.name == "__init__"}, WIDE_CONSTRUCTORS, CONSTRUCTOR_PARAMETERS)


def test_kernels_take_few_arguments():
    found = {name: parameters(node) for name, node in functions() if is_kernel(node)}
    assert len(found) > 100
    check(found, WIDE_KERNELS, KERNEL_ARGUMENTS)
