"""Commands in the documents exist, with the options that they are shown with, and no further table waits to be measured again."""

from __future__ import annotations

import contextlib
import io
import re
import runpy
import sys
from functools import cache
from pathlib import Path

import pytest

from dskype.deploy.cli.main import main

from .test_links import ROOT, files, is_record

_COMMAND = re.compile(r"(?<![\w./`|-])(?:dskype|(?:\.venv/bin/)?python -m (dskype\.[\w.]+))((?: [^\s`|#&;]+)+)")
_OPTION = re.compile(r"(?<=\s)--[a-z][\w-]*")
_WORD = re.compile(r"[a-z][a-z0-9-]*")

_TO_BE_MEASURED = {
    ("distribution.md", "Mechanisms with 40,000 subscriptions"),
    ("dskype.md", "10,000 and a million subscriptions"),
    ("emulator.md", "Latency at 2,000 tuples/s"),
    ("skype.md", "A million subscriptions: the indexes"),
}
"""Sections of the benchmark pages whose tables may wait to be measured again. Take out what has been measured; do not add to it."""


def code(path: Path) -> list[str]:
    """Return the pieces of code in a Markdown file: lines of blocks, and what stands between backticks."""
    text = path.read_text(encoding="utf-8").replace("\\\n", " ")
    fenced = re.findall(r"^ *```.*?\n(.*?)^ *```", text, re.MULTILINE | re.DOTALL)
    indented = re.findall(r"^    \S.*$", text, re.MULTILINE)
    return [*(line for block in fenced for line in block.splitlines()), *indented, *re.findall(r"`([^`\n]+)`", text)]


def commands() -> list[tuple[str, str, str]]:
    """Return (document, module or "", arguments) of each command that has an option."""
    found = {
        (str(path.relative_to(ROOT)), match[1] or "", match[2])
        for path in files(".md")
        if not is_record(path)
        for piece in code(path)
        if not piece.lstrip().startswith(("helm ", "kubectl "))  # "dskype" is a name there
        for match in _COMMAND.finditer(piece)
        if _OPTION.search(match[2])
    }
    return sorted(found)


@cache
def help_of(module: str, words: tuple[str, ...]) -> str:
    """Return the help of a module, or of a command of ``dskype``."""
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown), pytest.MonkeyPatch.context() as patch:
        if module:
            patch.setattr(sys, "argv", [module, *words, "-h"])
            with contextlib.suppress(SystemExit):
                runpy.run_module(module, run_name="__main__")
        else:
            main([*words, "-h"])
    return shown.getvalue()


@pytest.mark.filterwarnings("ignore:.*found in sys.modules:RuntimeWarning")  # other tests have imported it; here it only prints its help
@pytest.mark.parametrize(("document", "module", "arguments"), commands())
def test_commands_in_documents_have_the_options_that_they_are_shown_with(document, module, arguments):
    words = []
    for word in arguments.split():
        if not _WORD.fullmatch(word) or word not in help_of(module, tuple(words)):
            break
        words.append(word)
    shown = help_of(module, tuple(words[:2]))
    missing = [option for option in _OPTION.findall(arguments) if not re.search(rf"{option}\b(?!-)", shown)]
    assert not missing, f"{document}: {module or 'dskype'}{arguments}"


def test_no_further_table_waits_to_be_measured_again():
    waiting = set()
    for path in (ROOT / "docs" / "benchmarks").glob("*.md"):
        for section in re.split(r"^#+ ", path.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
            if "**To be measured again:**" in section:
                waiting.add((path.name, section.partition("\n")[0].strip()))
    assert waiting <= _TO_BE_MEASURED
