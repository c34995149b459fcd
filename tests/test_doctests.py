"""All examples in docstrings (``>>>``) are executed; none of them needs Spark or a broker."""

from __future__ import annotations

import ast
import doctest
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = ("topology", "spouts", "distribution", "bolts", "deploy")


def _has_examples(path: Path) -> bool:
    text = path.read_text(encoding="utf-8")
    if ">>> " not in text:
        return False
    tree = ast.parse(text)
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return any(">>> " in (ast.get_docstring(node) or "") for node in ast.walk(tree) if isinstance(node, kinds))


def _module(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(("dskype", *(parts[:-1] if parts[-1] == "__init__" else parts)))


MODULES = [_module(path) for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py")) if _has_examples(path)]


@pytest.mark.parametrize("name", MODULES)
def test_examples_do_what_they_say(name):
    module = importlib.import_module(name)
    assert any(test.examples for test in doctest.DocTestFinder().find(module)), f"no example of {name} is found: they stand in something that was wrapped"
    assert not doctest.testmod(module).failed


def test_only_examples_with_a_broker_are_skipped():
    skipped = [str(p.relative_to(ROOT)) for folder in FOLDERS for p in (ROOT / folder).rglob("*.py") if "doctest: +SKIP" in p.read_text(encoding="utf-8")]
    assert skipped == ["deploy/client/pubsub.py"]
