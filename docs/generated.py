"""Makes the tables of settings and the texts of commands out of the code, as Markdown.

Nothing is written twice: the texts of ``dskype.*`` are the comments in ``deploy/topologies/dskype.yaml``, those of
``topology.emulator.*`` are in the docstring of ``topology/config.py``, and those of commands are what ``-h`` shows. The defaults are the
code's own.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from dskype.deploy.cli.main import COMMANDS, Command, main
from dskype.spouts.settings import DEFAULTS
from dskype.topology import config

YAML = Path(__file__).parents[1] / "deploy" / "topologies" / "dskype.yaml"

_UNITS = {
    ".bytes.per.second": "bytes/s",
    ".per.second": "1/s",
    ".bytes": "bytes",
    ".ms": "ms",
    ".secs": "s",
    ".messages": "messages",
    ".max.tuples": "tuples",
    ".frames.per.batch": "frames",
    "dskype.space": "degrees",
}
_SIZES = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
_TIMES = ((86_400_000, "days"), (60_000, "min"), (1000, "s"))
_COLUMNS = "100"


def dskype_settings(text: str | None = None) -> dict[str, str]:
    """Return the meaning of every key ``dskype.*``: the comment above it in the topology file.

    :param text: the topology file; default: the one that comes with DSkype.
    """
    found, comment = {}, []
    text = YAML.read_text(encoding="utf-8") if text is None else text
    for line in text.partition("\nconfig:\n")[2].partition("\nspouts:\n")[0].splitlines():
        if setting := re.fullmatch(r"  (?:# )?(dskype\.[a-z.]+): .*", line):
            found[setting[1]], comment = " ".join(comment), []
        elif line.startswith("  # "):
            comment.append(line.removeprefix("  # "))
        else:
            comment = []
    return found


def emulator_settings() -> dict[str, str]:
    """Return the meaning of every key ``topology.emulator.*``: its row in the table of ``topology/config.py``."""
    rows = re.split(r"^=+ +=+ +=+\n", config.__doc__ or "", flags=re.MULTILINE)[2]
    found = re.findall(r"^(topology\.emulator\.\S+) +\S+ +(.*\n(?: .*\n)*)", rows, flags=re.MULTILINE)
    return {key: " ".join(meaning.split()).replace("``", "`") for key, meaning in found}


def settings_table(meanings: Mapping[str, str], defaults: Mapping[str, Any]) -> str:
    """Return a table of settings with default, unit and meaning."""
    rows = ["| setting | default | unit | meaning |", "|---|---|---|---|"]
    for key, meaning in meanings.items():
        escaped = re.sub(r"(?<!\w)\(?docs/([\w/]+)\.md\)?", lambda page: f"[{page[1].rpartition('/')[2]}](../{page[1]}.md)", meaning).replace("|", "\\|")
        rows.append(f"| `{key}` | {_default(key, defaults[key])} | {unit(key)} | {escaped[:1].upper()}{escaped[1:]} |")
    return "\n".join(rows)


def unit(key: str) -> str:
    """Return the unit of a setting's value, as its name says it."""
    return next((unit for ending, unit in _UNITS.items() if key.endswith(ending)), "")


def _default(key: str, value: Any) -> str:
    shown = f"`{yaml.safe_dump(value, default_flow_style=True).removesuffix('...' + chr(10)).strip()}`"
    if type(value) is int:
        scale = _SIZES if "bytes" in unit(key) else _TIMES if unit(key) == "ms" else ()
        shown += next((f" ({value // size} {name})" for size, name in scale if value >= size and value % size == 0), "")
    return shown


def commands() -> str:
    """Return a section for each command and each of its actions, with what ``-h`` shows."""
    parts = []
    for group, members in COMMANDS.items():
        parts.append(f"## {group[0].upper()}{group[1:]}")
        for command in members:
            parts += _command(command)
    return "\n\n".join(parts)


def _command(command: Command) -> list[str]:
    shown = _help(command.name)
    parts = [f"### dskype {command.name}", f"```text\n{shown}\n```"]
    if command.extra:
        parts.insert(1, f"Needs the extra `{command.extra}`.")
    for action in re.findall(r"^    ([a-z]+) ", shown.partition("\nactions:\n")[2], flags=re.MULTILINE):
        parts += [f"#### dskype {command.name} {action}", f"```text\n{_help(command.name, action)}\n```"]
    return parts


def _help(*words: str) -> str:
    output, before = io.StringIO(), os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = _COLUMNS  # argparse breaks lines by it
    try:
        with contextlib.redirect_stdout(output), contextlib.suppress(SystemExit):
            main([*words, "-h"])
    finally:
        del os.environ["COLUMNS"]
        if before is not None:
            os.environ["COLUMNS"] = before
    if not (shown := output.getvalue().strip()):
        raise RuntimeError(f"'dskype {' '.join(words)} -h' shows nothing. hint: install the extra that it needs")
    return shown


PARTS: dict[str, Callable[[], str]] = {
    "dskype-settings": lambda: settings_table(dskype_settings(), DEFAULTS),
    "emulator-settings": lambda: settings_table(emulator_settings(), config.DEFAULTS),
    "commands": commands,
}
"""What a page may ask for with ``<!-- generated: NAME -->``."""
