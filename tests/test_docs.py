"""Documents name files that exist, and link to headings that exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCUMENTS = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *(ROOT / "docs").glob("*.md")])
RECORDS = ("decisions.md",)
"""Documents about the past: what they name may be gone."""

_FILE = re.compile(r"`((?:bolts|deploy|distribution|docs|spouts|tests|topology)/[\w/.-]*)`")
_LINK = re.compile(r"\]\((?!https?:)([^)\s#]*)(?:#([^)\s]*))?\)")


def anchors(document: Path) -> set[str]:
    """Return the anchors of a document's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", document.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", [d for d in DOCUMENTS if d.name not in RECORDS], ids=lambda d: d.name)
def test_files_that_are_named_exist(document):
    assert not {name for name in _FILE.findall(document.read_text(encoding="utf-8")) if not (ROOT / name).exists()}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda d: d.name)
def test_links_lead_somewhere(document):
    for path, anchor in _LINK.findall(document.read_text(encoding="utf-8")):
        target = (document.parent / path) if path else document
        assert target.exists(), path
        assert not anchor or anchor in anchors(target), f"{path}#{anchor}"
