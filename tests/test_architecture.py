"""What the folders may import, checked on the syntax trees."""

import ast
import configparser
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import pytest

from tests.sources import MODULES, ROOT, name_of, text_of, tree_of


@cache
def imports(path: Path) -> frozenset[str]:
    found = set()
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return frozenset(found)


def uses(path: Path, *prefixes: str) -> set[str]:
    return {name for name in imports(path) if any(name == p or name.startswith(p + ".") for p in prefixes)}


def users(paths: Iterable[Path], *prefixes: str) -> dict[str, set[str]]:
    """Return the files that import one of some modules, and what they import of them."""
    return {name_of(path): found for path in paths if (found := uses(path, *prefixes))}


def in_folder(*parts: str) -> list[Path]:
    folder = ROOT.joinpath(*parts)
    found = [p for p in MODULES if folder in p.parents]
    assert found, folder
    return found


def test_the_emulator_knows_nothing_above_it():
    assert not users(in_folder("topology"), "dskype.deploy", "dskype.spouts", "dskype.bolts", "dskype.distribution")


@pytest.mark.parametrize(("folder", "above"), [("spouts", ("distribution", "bolts", "deploy")), ("distribution", ("bolts", "deploy")), ("bolts", ("deploy",))])
def test_imports_follow_the_data(folder, above):
    assert not users(in_folder(folder), *(f"dskype.{name}" for name in above))


def test_only_result_stores_know_clients_and_nothing_here_knows_spark():
    here = [path for folder in ("spouts", "distribution", "bolts") for path in in_folder(folder) if path.parent.name != "results"]
    assert not users(here, "pyspark", "kafka", "dskype.topology.runtime")


def test_the_executor_core_knows_neither_spark_nor_kafka():
    assert not users(in_folder("topology", "core") + in_folder("topology", "simulated"), "pyspark", "kafka", "dskype.topology.runtime")


KERNELS = [path for path in MODULES if path.name.endswith("_kernels.py")]


def test_kernels_import_numpy_and_numba_only():
    other_kernels = re.compile(r"dskype(\.\w+)*\.\w*_kernels(\.\w+)?|dskype\.topology\.kernel_cache(\.njit)?")
    legal = {"__future__", "numpy", "numba", "collections", "typing"}
    more = {"instruction_kernels.py": {"llvmlite"}}  # numba's own compiler
    found = {
        name_of(path): others
        for path in KERNELS
        if (others := {name.split(".")[0] for name in imports(path) if not other_kernels.fullmatch(name)} - legal - more.get(path.name, set()))
    }
    assert KERNELS and not found


def test_kernels_are_kept_by_the_content_of_their_sources():
    assert not users(KERNELS, "numba.njit")


def test_only_component_code_is_pickled():
    assert {Path(name).name for name in users(MODULES, "pickle", "marshal", "shelve", "pyspark.cloudpickle")} <= {"payload.py", "builder.py", "launch.py"}


def test_yaml_is_read_safely():
    for path in (path for path in MODULES if "yaml" in text_of(path)):
        calls = [n for n in ast.walk(tree_of(path)) if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute)]
        unsafe = [
            c
            for c in calls
            if c.func.attr in ("unsafe_load", "full_load")
            or (c.func.attr == "load" and getattr(c.func.value, "id", "") == "yaml" and not any("Loader" in ast.dump(k) for k in c.args[1:] + c.keywords))
        ]
        assert not unsafe, path


def test_type_checkers_find_the_packages_where_setup_maps_them():
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    mapped = dict(line.replace(" ", "").split("=") for line in setup["options"]["package_dir"].strip().splitlines())
    links = {f"dskype.{link.name}": link.resolve() for link in (ROOT / ".namespace" / "dskype").iterdir() if link.is_symlink()}
    links["dskype"] = links.pop("dskype.__init__.py").parent
    assert links == {name: ROOT / folder for name, folder in mapped.items()}


def test_possessive_groups_have_nothing_as_their_last_alternative():
    """Without it, Python before 3.11.5 consumes too much if the last attempt fails midway: words were cut wrongly, and secrets found differently."""
    group = re.compile(r"(?<!\|)\)(?:[*+?]|\{\d*,?\d*\})\+")
    nodes = [(path.name, node) for path in MODULES for node in ast.walk(tree_of(path))]
    texts = [(name, node.value) for name, node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    assert any("|)*+" in text for _, text in texts)
    assert not [(name, text) for name, text in texts if group.search(text)]
