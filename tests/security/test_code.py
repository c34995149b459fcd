"""Nothing from outside becomes code: what our modules may not call, and files that try."""

from __future__ import annotations

import ast
import io
import os
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from dskype.topology.core.file_store import FileSnapshotStore
from dskype.topology.core.snapshots import encode_snapshot
from tests.sources import MODULES, name_of, tree_of

_IMPORTS = {"pickle", "_pickle", "cPickle", "cloudpickle", "dill", "joblib", "marshal", "shelve", "code", "codeop", "pty", "telnetlib", "xmlrpc"}
_CALLS = {
    "eval",
    "exec",
    "compile",
    "__import__",
    "input",
    "os.system",
    "os.popen",
    "tempfile.mktemp",
    "yaml.load",
    "yaml.load_all",
    "yaml.unsafe_load",
    "yaml.full_load",
    "pd.read_pickle",
    "np.load",
    "numpy.load",
    "ssl._create_unverified_context",
}
_CALLED = {call.rpartition(".")[2] for call in _CALLS}
_KEYWORDS = {"shell": True, "allow_pickle": True}

ALLOWED = {
    ("topology/builder.py", "cloudpickle"): "a component that cannot be pickled is refused at submission",
    ("topology/runtime/processes/payload.py", "pickle"): "the code of a topology, from its driver to its executors",
    ("topology/runtime/processes/payload.py", "cloudpickle"): "the same",
    ("deploy/machine/launch.py", "cloudpickle"): "modules that the user allowed, sent with their topology",
}


def forbidden(tree: ast.Module) -> set[str]:
    """Return what a module imports or calls that turns data into code."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            names = [alias.name for alias in node.names] + [node.module or "" if isinstance(node, ast.ImportFrom) else ""]
            found |= {part for name in names for part in name.split(".")} & _IMPORTS
        elif isinstance(node, ast.Call):
            if getattr(node.func, "attr", getattr(node.func, "id", None)) in _CALLED:
                # A regular expression is compiled, too; what is meant is the builtin.
                found |= {ast.unparse(node.func)} & _CALLS
            found |= {f"{k.arg}=" for k in node.keywords if k.arg in _KEYWORDS and not (isinstance(k.value, ast.Constant) and k.value.value is False)}
            found |= (
                {"check_hostname=False"}
                if any(k.arg == "check_hostname" and isinstance(k.value, ast.Constant) and not k.value.value for k in node.keywords)
                else set()
            )
    return found


def test_only_what_is_allowed_turns_data_into_code() -> None:
    found = {(name_of(path), what) for path in MODULES for what in forbidden(tree_of(path))}
    assert found == set(ALLOWED)


@pytest.mark.parametrize(
    "text",
    [
        "import pickle",
        "from pyspark import cloudpickle",
        "import marshal as m",
        "eval('1')",
        "exec(x)",
        "import os\nos.system('ls')",
        "run(x, shell=True)",
        "run(x, shell=flag)",
        "yaml.load(x)",
        "np.load(f, allow_pickle=True)",
        "__import__('os')",
    ],
)
def test_the_rule_finds_what_it_is_for(text: str) -> None:
    assert forbidden(ast.parse(text))
    assert not forbidden(ast.parse("import re\nre.compile('x')\nrun(x, shell=False)\nyaml.safe_load(x)\nmodel.eval()"))


class Trap:
    """Makes a folder when it is unpickled."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple[Callable[..., None], tuple[str]]:
        return os.mkdir, (str(self.folder),)


def traps(folder: Path) -> dict[str, bytes]:
    """Return files that do something when a careless reader opens them."""
    pickled = pickle.dumps(Trap(folder))
    zipped, saved = io.BytesIO(), io.BytesIO()
    with zipfile.ZipFile(zipped, "w") as archive:
        archive.writestr("../../pwned", b"x")
        archive.writestr("__main__.py", f"import os; os.mkdir({str(folder)!r})")
    np.save(saved, np.array([Trap(folder)], object), allow_pickle=True)
    return {"pickle": pickled, "zip": zipped.getvalue(), "npy": saved.getvalue()}


@pytest.mark.parametrize("kind", ["pickle", "zip", "npy"])
def test_a_crafted_file_in_the_place_of_a_snapshot_is_passed_over_and_not_opened(kind: str, tmp_path: Path) -> None:
    pwned = tmp_path / "pwned"
    data = traps(pwned)[kind]
    store = FileSnapshotStore(tmp_path / "snapshots")
    store.create()
    store.save(1, 5, encode_snapshot({"good": 1}))
    store.save_journal(1, 1, encode_snapshot({"good": 2}))
    for name in ("snapshot", "journal"):
        (tmp_path / "snapshots" / "1" / f"{name}-{9:020d}").write_bytes(data)
    assert store.load(1) == (5, {"good": 1})
    assert store.load_journal(1) == (9, {"good": 2})
    assert len(store.problems) == 2 and all("is not a snapshot; expected it to begin with b'DSNP'" in p for p in store.problems)
    assert not pwned.exists()


@pytest.mark.parametrize("kind", ["pickle", "zip", "npy"])
def test_a_crafted_state_behind_a_true_header_is_data_all_the_same(kind: str, tmp_path: Path) -> None:
    pwned = tmp_path / "pwned"
    data = traps(pwned)[kind]  # once: an archive holds the time at which it was made
    store = FileSnapshotStore(tmp_path / "snapshots")
    store.create()
    store.save(1, 5, encode_snapshot(data))
    version, state = store.load(1)
    assert (version, state) == (5, data)
    assert not pwned.exists()


def test_the_traps_would_work(tmp_path: Path) -> None:
    pickle.loads(traps(tmp_path / "pwned")["pickle"])
    assert (tmp_path / "pwned").is_dir()
