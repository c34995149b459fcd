"""The table of failures, and that of the limits of readers, name tests that exist, and every row has one."""

from __future__ import annotations

import ast
import re
from dataclasses import fields
from pathlib import Path

import pytest

from dskype.topology.ui.budget import Budget

ROOT = Path(__file__).parents[1]
_TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def rows() -> list[str]:
    """Return the rows of all tables of promises, without heads; measured figures stand under a heading of their own."""
    return rows_of((ROOT / "docs" / "guides" / "failures.md").read_text(encoding="utf-8").partition("\n## Measured\n")[0])


def limits() -> list[str]:
    """Return the rows of SECURITY.md's table of limits."""
    return rows_of((ROOT / "SECURITY.md").read_text(encoding="utf-8").partition("\n## Limits of readers\n")[2].partition("\n## ")[0])


def budgets() -> list[str]:
    """Return the rows of SECURITY.md's table of what authors may use."""
    return rows_of((ROOT / "SECURITY.md").read_text(encoding="utf-8").partition("\n## Limits against abuse\n")[2].partition("\n## ")[0])


def rows_of(text: str) -> list[str]:
    """Return the rows of a text's tables, without heads."""
    lines = text.splitlines()
    tables = [i for i, line in enumerate(lines) if re.fullmatch(r"\|[-|: ]+\|", line)]
    return [line for i, line in enumerate(lines) if line.startswith("|") and i not in tables and i + 1 not in tables]


def functions(file: str) -> set[str]:
    """Return the names of a file's functions, methods included."""
    return {node.name for node in ast.walk(ast.parse((ROOT / file).read_text(encoding="utf-8"))) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))}


@pytest.mark.parametrize("row", [pytest.param(row, id=row.strip("| ")[:60]) for row in rows() + limits() + budgets()])
def test_every_row_names_tests_and_they_exist(row):
    named = _TEST.findall(row)
    assert named, "the row has no test"
    assert row.count("::") == len(named), "a test is named in another way than `tests/file.py::test_name`"
    for file, name in named:
        assert name.startswith("test_") and (ROOT / file).is_file() and name in functions(file), f"{file}::{name} does not exist"


def test_there_are_rows_of_all_kinds():
    text = "\n".join(rows())
    assert len(rows()) > 30 and len(budgets()) >= 13
    for what in ("driver", "broker", "disk", "clock", "poison record", "poison tuple", "poison subscription", "upgrade", "| R13 |", "| S2 |"):
        assert what in text, what


def test_the_table_of_limits_has_all_of_them_with_their_defaults():
    found = {}
    for row in limits():
        names, defaults = (cell.strip().split(", ") for cell in row.split("|")[1:3])
        found |= dict(zip((name.strip("`") for name in names), map(int, defaults), strict=True))
    assert found == {limit.name.replace("_", "-"): getattr(Budget(), limit.name) for limit in fields(Budget)}
