"""Relative links of all Markdown files resolve, anchors included, files that documents and code name exist, and tables are whole."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from urllib.parse import unquote

import pytest

ROOT = Path(__file__).parents[1]
_GENERATED = {"build", "dist", "node_modules", "__pycache__"}
_FENCE = re.compile(r"^ {0,3}(```+|~~~+).*?^ {0,3}\1[`~]*[ \t]*$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"(`+)(?!`).+?(?<!`)\1(?!`)", re.DOTALL)
_LINK = re.compile(r"\]\(\s*<?([^()\s<>]+(?:\([^()\s]*\)[^()\s<>]*)*)>?(?:\s+[\"'][^)]*)?\s*\)")
_REFERENCE = re.compile(r"^ {0,3}\[[^\]^]+\]:\s*<?([^\s<>]+)>?", re.MULTILINE)
_HEADING = re.compile(r"^ {0,3}#{1,6}[ \t]+(.+?)(?:[ \t]+#+)?[ \t]*$", re.MULTILINE)
_NAMED_ANCHOR = re.compile(r"<a\s+(?:id|name)=\"([^\"]+)\"")
_ELSEWHERE = re.compile(r"[a-z][a-z0-9+.-]*:|//", re.IGNORECASE)
_MODULE = re.compile(r"python -m dskype\.([\w.]+\w)")
_FILE = re.compile(r"`((?:bolts|deploy|distribution|docs|spouts|tests|topology)/[\w/.-]*)`")
_RECORDS = (ROOT / "docs" / "tuning.md", ROOT / "docs" / "benchmarks" / "history.md")
_DECISIONS = ROOT / "docs" / "decisions"
_DECISION = re.compile(r"^\| (\d{4}) \| \[(.+?)\]\(([\w-]+\.md)\) \| ([\d-]{10}) \| (.+) \|$", re.MULTILINE)
_TABLE = re.compile(r"(?:^\|.*\n){2,}", re.MULTILINE)
_RULE = re.compile(r"\|(?:\s*:?-+:?\s*\|)+")
_CELL_END = re.compile(r"(?<!\\)\|")
_DOCUMENT = re.compile(r"(?<![\w/.-])docs/[a-z][\w/-]*\.(?:md|svg)\b")


def files(*endings: str) -> list[Path]:
    """Return the files of the repository that end like this, without what is hidden or generated."""
    found = []
    for folder, folders, names in os.walk(ROOT):
        folders[:] = sorted(f for f in folders if not f.startswith(".") and f not in _GENERATED and not f.endswith(".egg-info"))
        found += [Path(folder, name) for name in sorted(names) if name.endswith(endings)]
    return found


def is_record(path: Path) -> bool:
    """Say whether a document is about the past: what it names may no longer exist."""
    return path in _RECORDS or path.parent == _DECISIONS


@cache
def prose(path: Path) -> str:
    """Return a Markdown file without its code blocks."""
    return _FENCE.sub("", path.read_text(encoding="utf-8"))


@cache
def anchors(path: Path) -> frozenset[str]:
    """Return the anchors of a Markdown file, as GitHub makes them of its headings."""
    text, found, used = prose(path), set(_NAMED_ANCHOR.findall(prose(path))), {}
    for heading in _HEADING.findall(text):
        shown = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        anchor = re.sub(r"[^\w\- ]", "", shown.lower()).replace(" ", "-")
        number = used[anchor] = used.get(anchor, -1) + 1
        found.add(f"{anchor}-{number}" if number else anchor)
    return frozenset(found)


def links(path: Path) -> Iterator[str]:
    """Yield the targets of a Markdown file's links that stay in the repository."""
    text = _CODE.sub("`", prose(path))
    for target in (*_LINK.findall(text), *_REFERENCE.findall(text)):
        if not _ELSEWHERE.match(target):
            yield target


def broken_rows(text: str) -> list[str]:
    """Return the first rows of tables without headings, and rows with more or fewer cells than their headings: neither is shown as a row."""
    found = []
    for table in _TABLE.findall(text):
        heading, rule, *rows = table.splitlines()
        if not _RULE.fullmatch(rule.strip()):
            found.append(heading)
        else:
            found += [row for row in rows if len(_CELL_END.findall(row)) != len(_CELL_END.findall(heading))]
    return found


def problem(path: Path, target: str) -> str | None:
    """Return what is wrong with a link, or None."""
    name, _, anchor = unquote(target).partition("#")
    goal = (path.parent / name).resolve() if name else path
    if not goal.is_relative_to(ROOT):
        return f"{target}: outside of the repository"
    if not goal.exists():
        return f"{target}: no such file"
    if anchor and goal.suffix == ".md" and anchor not in anchors(goal):
        return f"{target}: no such heading"
    return None


@pytest.mark.parametrize("path", files(".md"), ids=lambda p: str(p.relative_to(ROOT)))
def test_links_resolve(path):
    assert [found for target in links(path) if (found := problem(path, target))] == []


@pytest.mark.parametrize("path", files(".md"), ids=lambda p: str(p.relative_to(ROOT)))
def test_tables_are_whole(path):
    assert broken_rows(prose(path)) == []


@pytest.mark.parametrize("path", [p for p in files(".md") if p.parent == ROOT / "docs" / "benchmarks"], ids=lambda p: p.name)
def test_the_index_of_benchmarks_lists_every_page(path):
    index = ROOT / "docs" / "benchmarks" / "README.md"
    assert path == index or path.name in {target.partition("#")[0] for target in links(index)}


def decisions(index: str, folder: Path) -> list[str]:
    """Return what is wrong in the index of decisions: rows whose number, heading, date or status differs from the file, and files without a row."""
    found, seen = [], set()
    for number, heading, name, date, status in _DECISION.findall(index):
        seen.add(name)
        title, _, facts, *_ = (folder / name).read_text(encoding="utf-8").splitlines() if (folder / name).is_file() else ("", "", "")
        if title != f"# {heading}" or not name.startswith(f"{number}-") or not re.match(rf"Date: {date}\b.*\. Status: {re.escape(status)}\.", facts):
            found.append(name)
    return found + sorted(path.name for path in folder.glob("[0-9]*.md") if path.name not in seen)


def test_the_index_of_decisions_agrees_with_every_one():
    assert decisions((_DECISIONS / "README.md").read_text(encoding="utf-8"), _DECISIONS) == []
    numbers = sorted(path.name[:4] for path in _DECISIONS.glob("[0-9]*.md"))
    assert numbers == [f"{i:04d}" for i in range(1, len(numbers) + 1)]


def test_a_decision_that_the_index_lacks_is_found(tmp_path):
    row = "| 0001 | [Use lanes](0001-lanes.md) | 2026-11-21 | accepted |\n"
    (tmp_path / "0001-lanes.md").write_text("# Use lanes\n\nDate: 2026-11-21. Status: accepted.\n")
    assert decisions(row, tmp_path) == []
    assert (
        decisions("", tmp_path)
        == decisions(row.replace("accepted", "superseded"), tmp_path)
        == decisions(row.replace("Use", "Take"), tmp_path)
        == ["0001-lanes.md"]
    )


def test_documents_that_are_named_exist():
    missing = {}
    for path in files(".py", ".md", ".yaml", ".cfg", ".toml", "Makefile"):
        for name in _DOCUMENT.findall(path.read_text(encoding="utf-8")):
            if path != Path(__file__) and not (ROOT / name).exists():
                missing.setdefault(name, []).append(str(path.relative_to(ROOT)))
    assert missing == {}


@pytest.mark.parametrize("path", [p for p in files(".md") if not is_record(p)], ids=lambda p: str(p.relative_to(ROOT)))
def test_files_that_are_named_exist(path):
    assert {name for name in _FILE.findall(path.read_text(encoding="utf-8")) if not (ROOT / name).exists()} == set()


def test_modules_that_documents_run_exist():
    missing = {}
    for path in files(".md"):
        for name in _MODULE.findall(path.read_text(encoding="utf-8")):
            module = ROOT.joinpath(*name.split("."))
            if not module.with_suffix(".py").is_file() and not (module / "__main__.py").is_file():
                missing.setdefault(name, []).append(str(path.relative_to(ROOT)))
    assert missing == {}


def test_a_broken_link_is_found(tmp_path, monkeypatch):
    page, other = tmp_path / "page.md", tmp_path / "other.md"
    other.write_text("# A title, `code` and more\n\n## Twice\n\n## Twice\n\n```\n# no heading\n```\n")
    page.write_text("[a](other.md#a-title-code-and-more) [b](other.md#twice-1) [c](https://example.org/x.md) `[d](gone.md)`\n\n```\n[e](gone.md)\n```\n")
    monkeypatch.setattr(f"{__name__}.ROOT", tmp_path)
    assert list(links(page)) == ["other.md#a-title-code-and-more", "other.md#twice-1"]
    assert [problem(page, target) for target in links(page)] == [None, None]
    assert problem(page, "gone.md") == "gone.md: no such file"
    assert problem(page, "other.md#no-heading") == "other.md#no-heading: no such heading"
    assert problem(page, "../x.md") == "../x.md: outside of the repository"


def test_a_broken_table_is_found():
    assert broken_rows("| a | b |\n|---|---|\n| 1 | `x \\| y` |\n") == []
    assert broken_rows("| 1 | 2 |\n| a | b |\n|---|---|\n| 3 | 4 |\n") == ["| 1 | 2 |"]
    assert broken_rows("| a | b |\n|---|---|\n| 1 | 2 | 3 |\n") == ["| 1 | 2 | 3 |"]
