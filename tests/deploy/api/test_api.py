"""The public names: they are there, documented, typed and lazy; a client loads nothing that it does not use."""

from __future__ import annotations

import ast
import configparser
import inspect
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import dskype
from dskype.deploy.machine.extras import SPARK
from tests.sources import MODULES, text_of, tree_of

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "docs/reference/api.md").read_text(encoding="utf-8")
NAMES = [name for name in dskype.__all__ if name != "__version__"]
EXAMPLES = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
CLIENT_ONLY = ("PubSub", "DeadLetters", "KafkaSettings", "RecordError", "Settings", "StoreUnavailable")
NOT_FOR_CLIENTS = ("dskype.deploy.lab", "dskype.deploy.demo", "dskype.deploy.verification", "dskype.distribution")


def loaded(program: str) -> set[str]:
    """Return the modules that a new process has after a program."""
    done = subprocess.run([sys.executable, "-c", f"{program}\nimport sys, json; print(json.dumps([*sys.modules]))"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))


def packages(modules: set[str]) -> set[str]:
    return {name.partition(".")[0] for name in modules}


def imported_for_type_checkers() -> dict[str, str]:
    """Return name -> module, as type checkers see them."""
    tree = ast.parse(Path(dskype.__file__).read_text(encoding="utf-8"))
    (block,) = (node for node in tree.body if isinstance(node, ast.If) and isinstance(node.test, ast.Name))
    return {alias.name: node.module or "" for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names}


def test_type_checkers_and_programs_see_the_same_names():
    assert imported_for_type_checkers() == {name: f"dskype.{module}" for name, module in dskype._MODULE_OF.items()}
    assert sorted(dskype.__all__) == sorted({*dskype._MODULE_OF, "__version__"})
    assert set(dskype.__all__) <= set(dir(dskype))


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_documented_and_defined_where_it_is_imported_from(name):
    found = getattr(dskype, name)
    assert found.__module__ == f"dskype.{dskype._MODULE_OF[name]}" and found.__name__ == name
    assert inspect.getdoc(found)


def test_the_page_has_all_names_once():
    listed = [name for names in re.findall(r"^- (`[^:]+):", TEXT, re.MULTILINE) for name in re.findall(r"`(\w+)`", names)]
    assert sorted(listed) == sorted(dskype.__all__)


@pytest.mark.long
def test_the_examples_of_the_page_run(monkeypatch):
    sent: list[tuple] = []
    monkeypatch.setattr(dskype.PubSub, "_send", lambda client, *record: sent.append(record))
    monkeypatch.setattr(dskype.PubSub, "running_conf", lambda client: None)
    names: dict = {}
    assert len(EXAMPLES) == 3
    for code in EXAMPLES:
        exec(compile(code, "docs/reference/api.md", "exec"), names)
    assert [topic for topic, *_ in sent] == ["dskype.subscriptions", "dskype.messages"]
    assert [id for id, _ in names["skype"].results("ann")] == ["m0"]
    assert names["topology"].stats.total("words", "emitted") > 50


def test_the_version_is_that_of_setup_cfg():
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg", encoding="utf-8")
    assert dskype.__version__ == setup["metadata"]["version"]


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'dskype' has no attribute 'Nothing'"):
        dskype.Nothing  # noqa: B018


def test_importing_the_package_alone_loads_nothing_more():
    assert {name for name in loaded("import dskype") if name.startswith("dskype")} == {"dskype"}


@pytest.mark.long
@pytest.mark.parametrize("name", CLIENT_ONLY)
def test_a_client_loads_neither_what_runs_topologies_nor_numpy(name):
    modules = loaded(f"from dskype import {name}")
    assert not packages(modules) & {*SPARK, "llvmlite", "numpy", "prometheus_client", "rich"}
    numbers = {"dskype.spouts.filter_kernels"}  # it imports nothing
    assert not [m for m in modules - numbers if m.startswith(NOT_FOR_CLIENTS) or m.endswith("_kernels") or "baselines" in m.split(".")]
    assert {m.split(".")[2] for m in modules if m.startswith("dskype.bolts.")} <= {"results"}


@pytest.mark.long
@pytest.mark.parametrize("command", ["sub", "publish", "tail"])
def test_a_command_of_clients_loads_no_more_than_a_client(command):
    modules = loaded(f"import dskype.deploy.cli.main, dskype.deploy.cli.commands.{command}, dskype.deploy.client.pubsub")
    assert not packages(modules) & {*SPARK, "llvmlite", "numpy", "prometheus_client", "rich"}
    assert not [m for m in modules if m.startswith(NOT_FOR_CLIENTS)]


@pytest.mark.long
def test_a_name_that_needs_more_says_what_to_install():
    program = """
import sys
from tests.deploy.client import client_only
sys.meta_path[:] = map(client_only._Without, sys.meta_path)
import dskype
dskype.PubSub, dskype.TopologyBuilder
dskype.Skype
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert done.stderr.splitlines()[-1] == (
        "ModuleNotFoundError: 'dskype.Skype' needs what topologies need. given: 'no module pyarrow'; hint: pip install '/path/to/dskype[spark]'"
    )


def test_none_of_our_modules_imports_names_through_the_package():
    """An import names the module that defines a name, so that the order of the folders stays visible."""
    through = set()
    for path in (path for path in MODULES if "from dskype import" in text_of(path)):
        if any(isinstance(node, ast.ImportFrom) and node.module == "dskype" for node in ast.walk(tree_of(path))):
            through.add(str(path.parent.relative_to(ROOT)))
    assert not through
