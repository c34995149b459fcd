"""The documents as a site: it is built without a warning, loads nothing from other hosts, and has every page, setting and command."""

from __future__ import annotations

import re
import subprocess
import sys
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import pytest

from dskype.deploy.cli.main import COMMANDS
from dskype.spouts import settings
from dskype.topology import config

from .test_links import files

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.long(seconds=30)

_LOADING = {
    "audio": "src",
    "embed": "src",
    "iframe": "src",
    "img": "src",
    "input": "src",
    "link": "href",
    "object": "data",
    "script": "src",
    "source": "src",
    "video": "src",
}
"""Tag -> the attribute by which it makes a browser load something. Links (``a``) load nothing before a reader follows them."""
_ELSEWHERE = re.compile(r"(?:[a-z][a-z0-9+.-]*:)?//", re.IGNORECASE)
_IN_STYLES = re.compile(r"(?:@import\s+|url\(\s*)[\"']?((?:https?:)?//[^\"')\s]+)")


class _Loads(HTMLParser):
    """Collects what a page loads from other hosts."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        named = (values.get(_LOADING.get(tag, "")), *re.split(r"[\s,]+", values.get("srcset") or ""))
        self.found += [value for value in named if value and _ELSEWHERE.match(value)]


def loads(text: str) -> list[str]:
    """Return what a page, or a style sheet, loads from other hosts."""
    page = _Loads()
    page.feed(text)
    return page.found + _IN_STYLES.findall(text)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site, as ``make docs`` builds it."""
    folder = tmp_path_factory.mktemp("site")
    [line] = re.findall(r"^\t@\$\(BIN\)/python (-P -m sphinx .*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    command = line.replace("build/doctrees", str(folder / "doctrees")).replace("build/site", str(folder / "site")).split()
    built = subprocess.run([sys.executable, *command], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert (built.returncode, built.stderr) == (0, ""), built.stderr
    return folder / "site"


def shown(page: Path) -> str:
    """Return the text of a page, without tags."""
    return unescape(re.sub(r"<[^>]+>", "", page.read_text(encoding="utf-8")))


def test_it_loads_nothing_from_other_hosts(site):
    found = {str(path.relative_to(site)): elsewhere for path in site.rglob("*") if path.suffix in (".html", ".css") and (elsewhere := loads(path.read_text()))}
    assert found == {}


@pytest.mark.parametrize(
    "text",
    [
        '<script src="https://example.org/x.js"></script>',
        '<link rel="preconnect" href="//example.org">',
        '<img srcset="a.png 1x, https://example.org/b.png 2x">',
        '<p style="background: url(https://example.org/x.png)">',
        "@import 'https://example.org/x.css';",
    ],
)
def test_what_a_page_loads_from_another_host_is_found(text):
    assert len(loads(text)) == 1


def test_links_and_files_of_the_site_are_not_loaded_from_other_hosts():
    assert loads('<a href="https://example.org">x</a><script src="x.js"></script><img src="data:image/png;base64,AA"><p style="background: url(x.png)">') == []


def test_it_has_every_page(site):
    pages = [path.relative_to(ROOT) for path in files(".md") if path.parent == ROOT or path.is_relative_to(ROOT / "docs")]
    assert [str(page) for page in pages if not (site / page.with_suffix(".html")).is_file()] == []
    assert (site / "index.html").is_file() and (site / "searchindex.js").is_file()


def test_one_page_has_every_setting(site):
    page = (site / "docs/reference/settings.html").read_text()
    rows = dict(re.findall(r"<tr[^>]*><td><p><code[^>]*>(?:<span[^>]*>)?([a-z.]+)(?:</span>)?</code></p></td>\s*(.*?)</tr>", page, re.DOTALL))
    keys = {*settings.DEFAULTS, *(key for key in config.DEFAULTS if key.startswith("topology.emulator."))}
    assert rows.keys() == keys
    assert "604800000" in rows["dskype.results.retention.ms"] and "(7 days)" in rows["dskype.results.retention.ms"]


def test_one_page_has_every_command(site):
    page = shown(site / "docs/reference/commands.html")
    assert [command.name for group in COMMANDS.values() for command in group if f"usage: dskype {command.name} " not in page] == []
    assert "usage: dskype sub add " in page and "usage: dskype partition learn " in page


def test_the_reference_of_python_shows_docstrings(site):
    page = shown(site / "docs/reference/api.html")
    assert "class TopologyBuilder" in page and "set_bolt(" in page
