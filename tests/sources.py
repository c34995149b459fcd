"""The product's sources as tests read them. Each file is parsed once in a process, and the tests that look at all syntax trees run in the same one (``tests/tiers.py``)."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

__all__ = ["FOLDERS", "MODULES", "ROOT", "name_of", "text_of", "tree_of"]

ROOT = Path(__file__).parents[1]
FOLDERS = ("topology", "spouts", "distribution", "bolts", "deploy")
"""From the bottom up: each may import itself and those before it."""
MODULES = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))


def name_of(path: Path) -> str:
    """Return a file's path from the root of the repository."""
    return str(path.relative_to(ROOT))


@cache
def text_of(path: Path) -> str:
    """Return a file's text."""
    return path.read_text(encoding="utf-8")


@cache
def tree_of(path: Path) -> ast.Module:
    """Return a file's syntax tree, which nobody may change."""
    return ast.parse(text_of(path))
