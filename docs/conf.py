"""The documents as a site, made by Sphinx: ``make docs`` builds it into ``build/site``, ``make docs-serve`` shows it on this machine.

The source folder is the root of the repository, because pages link to README.md and to sources beside ``docs/``: pages become pages,
other files are copied, and every link works offline. Lines ``<!-- generated: NAME -->`` and ``<!-- module: NAME -->`` of a page are
replaced by what the code says of itself. Pages stay plain Markdown, so that they can be read without the site, too.
"""

from __future__ import annotations

import gc
import re
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
import generated

gc.set_threshold(200_000, 50, 100)  # all pages stay in memory as trees of small objects: looking at them again and again takes a fifth of the time

project = "DSkype"
author = copyright = "The DSkype authors"
extensions = ["myst_parser", "sphinx.ext.autodoc"]
root_doc = "docs/index"
include_patterns = ["*.md", "docs/**"]
exclude_patterns = ["docs/conf.py", "docs/generated.py"]

myst_heading_anchors = 6
highlight_language = "text"
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
add_module_names = False

html_theme = "furo"
html_title = "DSkype"
html_copy_source = False
html_show_copyright = False
html_extra_path = ["front"]
html_static_path = ["static"]
html_css_files = ["wide.css"]

PARTS = {
    "Start": {"First steps": "README", "What changed": "CHANGELOG"},
    "Guides": {
        "Your data": "docs/guides/data",
        "From Storm": "docs/guides/storm",
        "A service on one machine": "docs/guides/service",
        "Web pages and HTTP": "docs/guides/web",
        "Metrics": "docs/guides/metrics",
        "Runbook": "docs/guides/runbook",
        "Failures": "docs/guides/failures",
        "Security": "SECURITY",
        "Sizing": "docs/guides/scale",
        "Advice": "docs/guides/advise",
        "Cluster": "docs/guides/cluster",
        "Reproduce a paper": "docs/guides/reproduce",
    },
    "Concepts": {
        "Publish/subscribe": "docs/concepts/pubsub",
        "Words": "docs/concepts/words",
        "Top-k subscriptions": "docs/concepts/topk",
        "Boolean subscriptions": "docs/concepts/boolean",
        "Objects that move": "docs/concepts/objects",
        "Searching the window": "docs/concepts/search",
        "Tenants": "docs/concepts/tenants",
        "Distribution": "docs/concepts/distribution",
        "Tornado": "docs/concepts/tornado",
        "PS2Stream": "docs/concepts/ps2stream",
        "Glossary": "docs/concepts/glossary",
    },
    "Reference": {"Python API": "docs/reference/api", "Settings": "docs/reference/settings", "Commands": "docs/reference/commands"},
    "Internals": {
        "Architecture": "docs/internals/architecture",
        "Transports": "docs/internals/transport",
        "Contributing": "CONTRIBUTING",
        "Decisions": "docs/decisions/README",
    },
    "Laboratory": {
        "Benchmarks": "docs/benchmarks/README",
        "How the papers' claims stand": "docs/benchmarks/scoreboard",
        "Emulator": "docs/benchmarks/emulator",
        "DSkype": "docs/benchmarks/dskype",
        "Moving objects": "docs/benchmarks/moving",
        "Web pages": "docs/benchmarks/pages",
        "Top-k engine": "docs/benchmarks/skype",
        "Boolean indexes": "docs/benchmarks/boolean",
        "Distribution mechanisms": "docs/benchmarks/distribution",
        "Tornado's experiments": "docs/benchmarks/tornado",
        "PS2Stream's experiments": "docs/benchmarks/ps2stream",
        "Tuning": "docs/tuning",
        "History": "docs/benchmarks/history",
    },
}
"""The parts of the book, each with its pages in order. Sphinx refuses a page that is in none."""


def _contents() -> str:
    return "\n\n".join(_tree(f":caption: {part}", *(f"{title} </{page}>" for title, page in pages.items())) for part, pages in PARTS.items())


def _tree(*lines: str) -> str:
    return "\n".join(["```{toctree}", ":hidden:", *lines, "```"])


def _fill(app: Any, page: str, source: list[str]) -> None:
    """Replace the lines of a page that stand for something made from the code."""
    made = {**generated.PARTS, "contents": _contents}
    text = re.sub(r"^<!-- generated: (.+) -->$", lambda found: made[found[1]](), source[0], flags=re.MULTILINE)
    if page.startswith("docs/decisions/") and page != PARTS["Internals"]["Decisions"]:
        text = f"---\norphan: true\n---\n{text}"  # the index lists them: in the menu of each page they would double the time of a build
    source[0] = re.sub(r"^<!-- module: (.+) -->$", r"```{eval-rst}\n.. automodule:: \1\n   :members:\n   :imported-members:\n```", text, flags=re.MULTILINE)


def setup(app: Any) -> dict[str, bool]:
    """Let pages be filled when they are read; return that several processes may do so."""
    app.connect("source-read", _fill)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
