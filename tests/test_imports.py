"""Who imports whom, over the whole repository: imports follow the data, nothing imports in a circle, production stands without the laboratory and demos.

Read from the syntax trees, imports inside functions included; those for type checkers alone (``if TYPE_CHECKING``) are left out, for they do not run.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

from tests.sources import FOLDERS, MODULES, ROOT, name_of, text_of, tree_of

GROUPS = ("machine", "client", "metrics", "web", "capacity", "verification", "cli", "api", "demo", "lab")
"""The groups of ``deploy/``, from the bottom up: each may import itself and those before it."""

NOT_PRODUCTION = ("demo", "lab")

CIRCLES: dict[frozenset[str], str] = {}
"""Circles that are still there, each with the reason. The list only gets shorter."""

Graph = Mapping[str, frozenset[str]]


def _runs(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a tree without the bodies of ``if TYPE_CHECKING``."""
    yield tree
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.If) and getattr(child.test, "id", getattr(child.test, "attr", None)) == "TYPE_CHECKING":
            for other in child.orelse:
                yield from _runs(other)
        else:
            yield from _runs(child)


@cache
def modules() -> Mapping[str, Path]:
    """Return module -> file; a package is the module of its ``__init__.py``."""
    found = {}
    for path in MODULES:
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(("dskype", *(parts[:-1] if parts[-1] == "__init__" else parts)))] = path
    return found


@cache
def graph() -> Graph:
    """Return module -> the modules of this repository that it imports by name."""
    known = modules()
    found = {}
    for name, path in known.items():
        named: set[str] = set()
        for node in _runs(tree_of(path)):
            if isinstance(node, ast.Import):
                named |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                assert node.level == 0, f"{path}: a relative import"
                named |= {full if (full := f"{node.module}.{alias.name}") in known else node.module for alias in node.names}
        found[name] = frozenset(named & known.keys() - {name})
    return found


def circles(of: Graph) -> list[list[str]]:
    """Return the sets of nodes that reach each other (Tarjan), each sorted; none in a graph without circles."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in sorted(of[node]):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            cut = stack.index(node)
            if len(stack) - cut > 1:
                found.append(sorted(stack[cut:]))
            del stack[cut:]

    for node in of:
        if node not in index:
            visit(node)
    return found


def levels(of: Graph) -> int:
    """Return how many levels the nodes have: one that imports nothing is on the first, any other above all that it imports.

    Nodes of a circle share a level.
    """
    circle = {node: tuple(names) for names in circles(of) for node in names}

    @cache
    def level(node: str) -> int:
        names = circle.get(node, (node,))
        below = {other for name in names for other in of[name]} - set(names)
        return 1 + max(map(level, below), default=0)

    return max(map(level, of), default=0)


def group(module: str) -> str | None:
    """Return the group of ``deploy/`` that a module belongs to; None for one of another folder, or of none."""
    parts = module.split(".")
    return parts[2] if parts[1] == "deploy" and len(parts) > 2 and modules()[".".join(parts[:3])].name == "__init__.py" else None


def groups() -> Graph:
    """Return group of ``deploy/`` -> the other groups that it imports."""
    found: dict[str, set[str]] = {}
    for module, named in graph().items():
        if own := group(module):
            found.setdefault(own, set()).update(other for name in named if (other := group(name)) and other != own)
    return {name: frozenset(others) for name, others in found.items()}


def figures() -> str:
    """Return the size of the import graph of ``deploy/``: its groups, and all of its modules."""
    whole = {m: frozenset(n for n in named if n.startswith("dskype.deploy.")) for m, named in graph().items() if m.startswith("dskype.deploy.")}
    flat = {m: frozenset(n for n in named if group(n) is None) for m, named in whole.items() if group(m) is None}
    return "\n".join(
        f"{what}: {len(of)}, {levels(of)} import levels, {sum(map(len, of.values()))} import edges, {len(circles(of))} circles"
        for what, of in (("groups", groups()), ("modules of no group", flat), ("modules", whole))
    )


def test_imports_follow_the_data():
    upward = {(m, n) for m, named in graph().items() for n in named if FOLDERS.index(m.split(".")[1]) < FOLDERS.index(n.split(".")[1])}
    assert not upward


def test_nothing_imports_in_a_circle():
    assert {frozenset(c) for c in circles(graph())} == set(CIRCLES), "a circle that is gone is taken off the list"


def test_the_groups_of_deploy_are_in_order():
    assert groups().keys() == set(GROUPS)
    upward = {(m, n) for m, named in graph().items() for n in named if group(m) and group(n) and GROUPS.index(group(m)) < GROUPS.index(group(n))}
    assert not upward


@pytest.mark.parametrize("what", NOT_PRODUCTION)
def test_production_imports_no(what):
    assert not {(m, n) for m, named in graph().items() for n in named if group(n) == what and group(m) not in NOT_PRODUCTION}


def test_programs_in_strings_import_modules_that_are_there():
    """Tests and tools start Python with programs as text, which no linter reads. What they import for themselves is there as well."""
    wrong = set()
    for path in (*MODULES, *(ROOT / "tests").rglob("*.py")):
        for name in re.findall(r"(?:from|import|-m) (dskype(?:\.\w+)+)", text_of(path)):
            file = ROOT.joinpath(*name.split(".")[1:])
            if not file.is_dir() and not file.with_suffix(".py").exists():
                wrong.add((name_of(path), name))
    assert not wrong


def test_a_circle_is_found_and_levels_are_counted():
    of = {"a": frozenset("b"), "b": frozenset("c"), "c": frozenset("b"), "d": frozenset("a"), "e": frozenset()}
    assert circles(of) == [["b", "c"]]
    assert levels(of) == 3


if __name__ == "__main__":
    print(figures())
    print(*(f"circle: {', '.join(c)}" for c in circles(graph())), sep="\n")
    print(*(f"{name} -> {', '.join(sorted(others))}" for name, others in groups().items()), sep="\n")
