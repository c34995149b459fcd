"""Makes the documents of the repository a site: what mkdocs does not do by itself.

Pages at the root of the repository become pages of the site. Files of the repository that pages link to are copied into it, so that every
link works offline. Lines ``<!-- generated: NAME -->`` are replaced by what :mod:`reference` makes of the code.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import reference
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
PAGES = {"README.md": "start.md", "CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md", "SECURITY.md": "security.md"}
"""Pages at the root of the repository, with their names in the site."""

_CODE = re.compile(r"^ {0,3}(```+|~~~+).*?^ {0,3}\1[ \t]*$|(?P<tick>`+)(?!`).+?(?<!`)(?P=tick)(?!`)", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?<=\]\()(?![a-z][a-z0-9+.-]*:|#|//)([^()\s#]+)(#[^()\s]*)?(?=\))")
_GENERATED = re.compile(r"^<!-- generated: ([a-z-]+) -->$", re.MULTILINE)


def on_files(files: Files, config: Any) -> Files:
    """Add the pages at the root, and every file outside of ``docs`` that a page links to."""
    for name, page in PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / name).read_text(encoding="utf-8")))
    for file in [file for file in files if file.is_documentation_page()]:
        for name in _linked(file.src_uri, file.content_string):
            if not files.get_file_from_path(f"source/{name}"):
                files.append(File.generated(config, f"source/{name}", abs_src_path=str(ROOT / name)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Let links lead to pages and files of the site, and fill in what is made from the code."""
    markdown = _GENERATED.sub(lambda found: reference.PARTS[found[1]](), markdown)
    folder, here = _folder(page.file.src_uri), os.path.dirname(page.file.src_uri)

    def link(found: re.Match[str]) -> str:
        target = _in_site(os.path.normpath(os.path.join(folder, found[1])))
        return os.path.relpath(target, here or ".") + (found[2] or "")

    return _outside_code(markdown, lambda text: _LINK.sub(link, text))


def _folder(page: str) -> str:
    """Return the folder of the repository in which a page of the site is."""
    return "" if page in PAGES.values() else os.path.dirname(f"docs/{page}")


def _in_site(name: str) -> str:
    """Return where in the site a file of the repository is."""
    if name in PAGES:
        return PAGES[name]
    return name.removeprefix("docs/") if name.startswith("docs/") else f"source/{name}"


def _linked(page: str, text: str) -> set[str]:
    """Return the files outside of ``docs`` that a page links to, by their paths in the repository."""
    found: set[str] = set()

    def note(part: str) -> str:
        names = (os.path.normpath(os.path.join(_folder(page), name)) for name, _ in _LINK.findall(part))
        found.update(name for name in names if _in_site(name).startswith("source/"))
        return part

    _outside_code(text, note)
    if missing := [name for name in found if not (ROOT / name).is_file()]:
        raise PluginError(f"{page} links to {missing[0]}, which is no file of the repository")
    return found


def _outside_code(text: str, change: Any) -> str:
    """Return a text in which all but blocks and pieces of code is changed."""
    parts, end = [], 0
    for code in _CODE.finditer(text):
        parts += [change(text[end : code.start()]), code[0]]
        end = code.end()
    return "".join([*parts, change(text[end:])])
