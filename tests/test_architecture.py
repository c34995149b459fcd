"""What the folders may import, checked on the syntax trees."""

import ast
import configparser
import re
from pathlib import Path

import pytest

from tests import conftest

ROOT = Path(__file__).parent.parent
MODULES = sorted(p for folder in ("topology", "spouts", "distribution", "bolts", "deploy") for p in (ROOT / folder).rglob("*.py"))


def imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def uses(path: Path, *prefixes: str) -> set[str]:
    return {name for name in imports(path) if any(name == p or name.startswith(p + ".") for p in prefixes)}


def in_folder(*parts: str) -> list[Path]:
    folder = ROOT.joinpath(*parts)
    return [p for p in MODULES if folder in p.parents]


@pytest.mark.parametrize("path", in_folder("topology"), ids=lambda p: str(p.relative_to(ROOT)))
def test_the_emulator_knows_nothing_above_it(path):
    assert not uses(path, "dskype.deploy", "dskype.spouts", "dskype.bolts", "dskype.distribution")


@pytest.mark.parametrize(("folder", "above"), [("spouts", ("distribution", "bolts", "deploy")), ("distribution", ("bolts", "deploy")), ("bolts", ("deploy",))])
def test_imports_follow_the_data(folder, above):
    assert not {path.name: found for path in in_folder(folder) if (found := uses(path, *(f"dskype.{name}" for name in above)))}


@pytest.mark.parametrize(
    "path",
    [p for p in in_folder("spouts") + in_folder("distribution") + in_folder("bolts") if p.parent.name != "results"],
    ids=lambda p: str(p.relative_to(ROOT)),
)
def test_only_result_stores_know_clients_and_nothing_here_knows_spark(path):
    assert not uses(path, "pyspark", "kafka", "dskype.topology.runtime")


@pytest.mark.parametrize("path", in_folder("topology", "core") + in_folder("topology", "simulated"), ids=lambda p: p.name)
def test_the_executor_core_knows_neither_spark_nor_kafka(path):
    assert not uses(path, "pyspark", "kafka", "dskype.topology.runtime")


@pytest.mark.parametrize("path", [p for p in MODULES if p.name.endswith("_kernels.py")], ids=lambda p: str(p.relative_to(ROOT)))
def test_kernels_import_numpy_and_numba_only(path):
    other_kernels = re.compile(r"dskype(\.\w+)*\.\w*_kernels(\.\w+)?|dskype\.topology\.kernel_cache(\.njit)?")
    legal = {"__future__", "numpy", "numba", "collections", "typing", *({"llvmlite"} if path.name == "instruction_kernels.py" else ())}  # numba's own compiler
    assert {name.split(".")[0] for name in imports(path) if not other_kernels.fullmatch(name)} <= legal


@pytest.mark.parametrize("path", [p for p in MODULES if p.name.endswith("_kernels.py")], ids=lambda p: str(p.relative_to(ROOT)))
def test_kernels_are_kept_by_the_content_of_their_sources(path):
    assert "numba.njit" not in set(imports(path))


def test_only_component_code_is_pickled():
    users = {p.name for p in MODULES if uses(p, "pickle", "marshal", "shelve", "pyspark.cloudpickle")}
    assert users <= {"resident.py", "builder.py", "launch.py"}


def test_yaml_is_read_safely():
    for path in MODULES:
        calls = [n for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute)]
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
    links = {f"dskype.{link.name}": link.resolve() for link in (ROOT / ".namespace" / "dskype").iterdir()}
    assert links == {name: ROOT / folder for name, folder in mapped.items()}


@pytest.mark.parametrize(
    "start",
    [*conftest._MACHINE, *conftest._OWN_SPARK, *conftest._THOROUGH, *conftest._SPREAD, *(place for places in conftest._SAME_KERNELS for place in places)],
)
def test_groups_of_tests_name_files_that_are_there(start):
    assert (ROOT / "tests" / start).exists()
