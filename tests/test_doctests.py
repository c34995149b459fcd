"""All examples in docstrings (``>>>``) are executed; none of them needs Spark or a broker."""

from __future__ import annotations

import ast
import doctest
import importlib
from pathlib import Path

import pytest

from tests import sources
from tests.sources import ROOT, name_of, text_of, tree_of


def _has_examples(path: Path) -> bool:
    if ">>> " not in text_of(path):
        return False
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return any(">>> " in (ast.get_docstring(node) or "") for node in ast.walk(tree_of(path)) if isinstance(node, kinds))


def _module(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(("dskype", *(parts[:-1] if parts[-1] == "__init__" else parts)))


MODULES = [_module(path) for path in sources.MODULES if _has_examples(path)]


@pytest.mark.parametrize("name", MODULES)
def test_examples_do_what_they_say(name):
    module = importlib.import_module(name)
    assert any(test.examples for test in doctest.DocTestFinder().find(module)), f"no example of {name} is found: they stand in something that was wrapped"
    assert not doctest.testmod(module).failed


def test_only_examples_with_a_broker_are_skipped():
    skipped = [name_of(path) for path in sources.MODULES if "doctest: +SKIP" in text_of(path)]
    assert skipped == ["deploy/client/pubsub.py"]
