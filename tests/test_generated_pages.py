"""The tables that pages take from the code: every setting has a meaning there, and the defaults that texts name are those of the code."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from dskype.spouts import settings
from dskype.topology import config

DOCS = Path(__file__).parents[1] / "docs"


@pytest.fixture(scope="module")
def generated():
    spec = importlib.util.spec_from_file_location("generated", DOCS / "generated.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_setting_of_dskype_has_a_comment_of_its_own(generated):
    meanings = generated.dskype_settings()
    assert meanings.keys() == settings.DEFAULTS.keys()
    assert [key for key, meaning in meanings.items() if len(meaning.split()) < 4] == []


def test_every_setting_of_the_emulator_has_a_row(generated):
    own = {key for key in config.DEFAULTS if key.startswith("topology.emulator.")}
    assert generated.emulator_settings().keys() == own


def test_the_rows_of_the_emulator_have_the_defaults_of_the_code():
    shown = dict(re.findall(r"^(topology\.emulator\.\S+) +(\S+) ", config.__doc__, re.MULTILINE))
    assert shown == {key: str(value) for key, value in config.DEFAULTS.items() if key.startswith("topology.emulator.")}


def test_a_comment_belongs_to_the_setting_below_it(generated):
    text = "\nconfig:\n  # Of all.\n\n  # How long,\n  # at most.\n  dskype.a.ms: 1\n  dskype.b: 2\n  # Of c.\n  # dskype.c: 3\n\nspouts:\n  # Not here.\n  dskype.d: 4\n"
    assert generated.dskype_settings(text) == {"dskype.a.ms": "How long, at most.", "dskype.b": "", "dskype.c": "Of c."}


def test_a_table_has_default_unit_and_meaning(generated):
    table = generated.settings_table(
        {"dskype.a.ms": "how long | short (docs/concepts/topk.md)", "dskype.b.bytes": "Size.", "dskype.c": "On."},
        {"dskype.a.ms": 120_000, "dskype.b.bytes": 65_536, "dskype.c": None},
    )
    assert table.splitlines()[2:] == [
        "| `dskype.a.ms` | `120000` (2 min) | ms | How long \\| short [topk](../concepts/topk.md) |",
        "| `dskype.b.bytes` | `65536` (64 KiB) | bytes | Size. |",
        "| `dskype.c` | `null` |  | On. |",
    ]


def test_every_line_of_a_page_that_stands_for_something_names_what_there_is(generated):
    found = {name for path in DOCS.rglob("*.md") for name in re.findall(r"^<!-- generated: (.+) -->$", path.read_text(encoding="utf-8"), re.MULTILINE)}
    assert found == {*generated.PARTS, "contents"}
