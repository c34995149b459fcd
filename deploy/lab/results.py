"""Result files: what a run of a paper's experiments found, on which data, with which code, as JSON that can be kept."""

from __future__ import annotations

import ast
import datetime
import functools
import hashlib
import json
import resource
import shlex
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dskype.deploy.lab.corpus import Corpus

__all__ = ["FORMAT", "changed_files", "code_digests", "data_digest", "measured_modules", "result_of", "result_text"]

FORMAT = 1
ROOT = Path(__file__).parents[2]
"""The folder of the packages."""

_MEASURED = ("dskype.bolts.", "dskype.distribution.", "dskype.deploy.lab.")
_NOT_MEASURED = ("adjustment_experiments", "as_in_paper", "command", "corpus", "experiments", "reasons", "report", "results")
"""Last names of modules of the laboratory that read messages, choose what runs, or show results. The data has a digest of its own, rows have their settings, and claims their texts."""
_OTHERS = ("dskype.deploy.lab.emulator", "dskype.deploy.lab.system")
"""Packages of the laboratory that take no part in these experiments."""

_BEGAN_S = time.time()
_CHANGED = "changed while it ran"
"""In place of the digest of a file, of which nobody knows what was loaded. So the result counts as one of old code."""


def data_digest(corpus: Corpus) -> str:
    """Return a digest of messages as they are used: places, words and weights, in their order."""
    found = hashlib.sha256()
    for column in (corpus.lat, corpus.lon, corpus.offsets, corpus.terms, corpus.weights):
        found.update(column.tobytes())
    return found.hexdigest()[:16]


def measured_modules() -> list[str]:
    """Return the modules that the run has loaded and that its figures depend on: those of bolts, distribution and the laboratory, without the laboratory's that only read, choose or show."""

    def counts(name: str) -> bool:
        ours = name.startswith(_MEASURED[-1])
        return name.startswith(_MEASURED) and not (ours and (name.startswith(_OTHERS) or name.rpartition(".")[2] in _NOT_MEASURED))

    return sorted(filter(counts, sys.modules))


def code_digests(files: Iterable[str]) -> dict[str, str]:
    """Return a digest of each source file: of its code, without docstrings, comments on lines of their own, empty lines, the places that it imports from in this project, and methods ``_check``: only tests call these.

    :param files: paths from the packages' folder on, such as ``distribution/agrid/grid.py``.
    """
    return {file: _code_digest((ROOT / file).read_text(encoding="utf-8")) for file in files}


@functools.cache
def _code_digest(source: str) -> str:
    left_out: set[int] = set()
    imported: list[str] = []
    for node in ast.walk(ast.parse(source)):
        ours = isinstance(node, ast.ImportFrom) and (node.module or "").startswith("dskype.")
        if ours:
            imported += [alias.asname or alias.name for alias in node.names]
        if (
            ours
            or (isinstance(node, ast.FunctionDef) and node.name == "_check")
            or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str))
        ):
            left_out.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    lines = [line.rstrip() for number, line in enumerate(source.splitlines(), 1) if number not in left_out]
    code = [line for line in lines if line and not line.lstrip().startswith("#")]
    return hashlib.sha256("\n".join([*sorted(imported), *code]).encode()).hexdigest()[:12]


def _as_loaded(file: str) -> bool:
    """Tell whether a file is older than this module's import, with which a benchmark begins."""
    return (ROOT / file).stat().st_mtime <= _BEGAN_S


def changed_files(result: Mapping[str, Any]) -> list[str]:
    """Return the files that a result was measured with and that have changed since, or are gone. A file that was moved or renamed has not changed."""
    now = _digests_now()
    return [file for file, digest in result["code"].items() if digest not in now]


def _digests_now() -> set[str]:
    return {_code_digest(path.read_text(encoding="utf-8")) for package in ("bolts", "distribution", "deploy/lab") for path in (ROOT / package).rglob("*.py")}


def result_of(found: Mapping[str, Any], paper: str, given: Sequence[str]) -> dict[str, Any]:
    """Return what a result file says about a run.

    :param found: what a report shows.
    :param paper: the action of ``dskype bench``.
    :param given: what the command line names besides options.
    """
    data = found["data"] if "data" in found else [{name: found[name] for name in ("source", "messages", "vocabulary", "keywords_per_message", "digest")}]
    files = sorted(Path(sys.modules[name].__file__ or "").resolve().relative_to(ROOT.resolve()).as_posix() for name in measured_modules())
    experiments = [
        {
            "name": e["name"],
            "title": e["title"],
            "notes": e["notes"],
            "claims": e["claims"],
            "rows": [{name: value for name, value in row.items() if name not in ("boxes", "places")} for row in e["rows"]],
        }
        for e in found["experiments"]
    ]
    return {
        "format": FORMAT,
        "paper": paper,
        "command": _command(given),
        "date": datetime.date.today().isoformat(),
        "machine": found["machine"],
        "data": data,
        "scale": found["scale"],
        "seconds": found["seconds"],
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10,
        "code": {file: digest if _as_loaded(file) else _CHANGED for file, digest in code_digests(files).items()},
        "experiments": experiments,
    }


def _command(files: Sequence[str]) -> str:
    """Return the command line, without the folder of the report, and with files by their names alone."""
    words, found = iter(sys.argv[1:]), ["dskype"]
    for word in words:
        if word in ("--folder", "-o", "--output"):
            next(words, None)
        elif not word.startswith(("--folder=", "--output=")):
            found.append(Path(word).name if word in files else word)
    return shlex.join(found)


def result_text(result: Mapping[str, Any]) -> str:
    """Return a result as JSON, with a row or a claim on each line, and numbers with six digits."""
    short = _rounded(result)
    experiments = []
    for e in short["experiments"]:
        lists = (f'"{name}": [\n' + ",\n".join(json.dumps(one) for one in e[name]) + "\n]" for name in ("claims", "rows"))
        experiments.append("{" + ",\n".join((*(f'"{name}": {json.dumps(e[name])}' for name in ("name", "title", "notes")), *lists)) + "}")
    head = [f'"{name}": {json.dumps(value)}' for name, value in short.items() if name not in ("experiments", "code")]
    code = '"code": {\n' + ",\n".join(f"{json.dumps(file)}: {json.dumps(digest)}" for file, digest in short["code"].items()) + "\n}"
    return "{" + ",\n".join((*head, code, '"experiments": [\n' + ",\n".join(experiments) + "\n]")) + "}\n"


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, Mapping):
        return {name: _rounded(one) for name, one in value.items()}
    return [_rounded(one) for one in value] if isinstance(value, list | tuple) else value
