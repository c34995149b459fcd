"""Docstrings of everything public: there is one, its first line is a sentence, and the parameters it names exist."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

import pytest

from tests.sources import MODULES, name_of, tree_of

Function = ast.FunctionDef | ast.AsyncFunctionDef
Definition = ast.Module | ast.ClassDef | Function


class Found(NamedTuple):
    """Something public: ``owner`` is the class of a method."""

    name: str
    node: Definition
    owner: ast.ClassDef | None


def _public(name: str) -> bool:
    return not name.startswith("_")


def members(node: ast.Module | ast.ClassDef) -> Iterator[ast.ClassDef | Function]:
    """Yield the classes and functions in a body, those within ``if`` and ``try`` included; nested functions are not public."""
    for child in node.body:
        if isinstance(child, (ast.ClassDef, Function)):
            yield child
        elif isinstance(child, (ast.If, ast.Try)):
            yield from (inner for inner in ast.walk(child) if isinstance(inner, (ast.ClassDef, Function)))


@cache
def public() -> list[Found]:
    """Return all public modules, classes, functions and methods."""
    found = []

    def visit(name: str, node: ast.Module | ast.ClassDef) -> None:
        owner = node if isinstance(node, ast.ClassDef) else None
        for child in members(node):
            if _public(child.name):
                found.append(Found(f"{name}{child.name}", child, owner))
                if isinstance(child, ast.ClassDef):
                    visit(f"{name}{child.name}.", child)

    for path, tree in zip(MODULES, map(tree_of, MODULES)):
        name = name_of(path)
        if tree.body:
            found.append(Found(name, tree, None))
        visit(f"{name}:", tree)
    return found


@cache
def classes() -> dict[str, list[ast.ClassDef]]:
    found: dict[str, list[ast.ClassDef]] = {}
    for tree in map(tree_of, MODULES):
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name, []).append(node)
    return found


def _last_name(base: ast.expr) -> str:
    if isinstance(base, ast.Subscript):
        base = base.value
    return base.attr if isinstance(base, ast.Attribute) else getattr(base, "id", "")


def ancestors(node: ast.ClassDef) -> Iterator[ast.ClassDef]:
    """Yield the classes of this repository that a class is made from, by their names."""
    seen, waiting = {node.name}, [node]
    while waiting:
        for name in map(_last_name, waiting.pop().bases):
            if name not in seen:
                seen.add(name)
                waiting += classes().get(name, [])
                yield from classes().get(name, [])


def inherits(found: Found) -> bool:
    """Say whether a method has its docstring from a contract that it fulfils."""
    if found.owner is None or isinstance(found.node, ast.Module):
        return False
    return any(
        child.name == found.node.name and not isinstance(child, ast.ClassDef) and ast.get_docstring(child)
        for base in ancestors(found.owner)
        for child in members(base)
    )


def is_setter(node: Definition) -> bool:
    return isinstance(node, Function) and any(isinstance(d, ast.Attribute) and d.attr == "setter" for d in node.decorator_list)


def parameters(found: Found) -> set[str]:
    """Return what a docstring may document: the parameters of a function; of a class those of its constructor, and its fields."""
    node = found.node
    if isinstance(node, Function):
        a = node.args
        return {arg.arg for arg in (*a.posonlyargs, *a.args, *a.kwonlyargs, *filter(None, (a.vararg, a.kwarg)))}
    assert isinstance(node, ast.ClassDef)
    names: set[str] = set()
    for cls in (node, *ancestors(node)):
        for child in cls.body:
            if isinstance(child, Function) and child.name in ("__init__", "__new__"):
                names |= parameters(Found("", child, cls))
            elif isinstance(child, ast.AnnAssign) and isinstance(child.target, ast.Name):
                names.add(child.target.id)
    return names


def documented(text: str) -> set[str]:
    """Return the names after ``:param``; several share one when commas part them, and ``...`` stands for those that follow."""
    named = re.findall(r":param ([^:]+):", text)
    return {name.strip().lstrip("*\\") for names in named for name in names.split(",")} - {"...", ""}


def test_everything_public_has_a_docstring():
    missing = [f.name for f in public() if not ast.get_docstring(f.node) and not inherits(f) and not is_setter(f.node)]
    assert not missing, f"{len(missing)}: " + "\n".join(missing)


def first_sentence(text: str) -> str:
    return re.split(r"\n\s*\n", text, maxsplit=1)[0].strip()


def test_first_lines_are_sentences():
    texts = {f.name: first_sentence(text) for f in public() if (text := ast.get_docstring(f.node))}
    wrong = {name: text for name, text in texts.items() if not re.search(r"[.:]$", text) or text[:1].islower()}
    assert not wrong, f"{len(wrong)}: " + "\n".join(f"{name}: {text}" for name, text in wrong.items())


def test_documented_parameters_exist():
    wrong = {
        f.name: unknown
        for f in public()
        if not isinstance(f.node, ast.Module) and (text := ast.get_docstring(f.node)) and (unknown := documented(text) - parameters(f))
    }
    assert not wrong, "\n".join(f"{name}: {names}" for name, names in wrong.items())


@pytest.mark.parametrize(("text", "names"), [(":param a: x", {"a"}), (":param a, b: x", {"a", "b"}), (":param slots, ...: x", {"slots"}), ("a: x", set())])
def test_names_of_parameters_are_read(text, names):
    assert documented(text) == names
