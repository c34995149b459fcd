"""Modules that users of the emulator import are separate from those that run it, and imports have no cycles."""

import ast
from pathlib import Path

from tests.sources import tree_of

TOPOLOGY = Path(__file__).parents[2] / "topology"
ROOT = "dskype.topology"
RUNTIME = ("planning", "routing", "core", "nimbus", "ui", "simulated", "runtime")
"""The packages that run topologies; the modules beside them, ``flux`` and ``streamparse`` are what users import."""
ROOMS = ("kafka", "stores", "transport", "processes", "spark", "nimbus", "driver")
"""The packages of ``runtime``; each imports only those before it."""

CONTRACT = {
    "": {"planning.plan"},  # TopologyPlan: what ``context.plan`` is
    "local": {
        "core.steady_clock",
        "nimbus.environment",
        "nimbus.manager",
        "nimbus.states",
        "planning.plan",
        "simulated.faults",
        "simulated.faulty",
        "simulated.log",
    },  # a cluster runs topologies
    "kernel_cache": {"core.ownership"},  # compiled kernels are loaded only if nobody else has written them
    "mixins": {"core.shared_log"},
    "testing": {"core.shared_log"},  # a file that tasks and tests share
    "windows": {"core.values", "core.window_policies"},  # a windowed bolt manages its own queue
}
"""What modules of the API import from the runtime, and why; all others import nothing from it."""


def modules() -> dict[str, Path]:
    """Return the modules of ``topology``, with names relative to it."""
    named = {}
    for path in sorted(TOPOLOGY.rglob("*.py")):
        parts = path.relative_to(TOPOLOGY).with_suffix("").parts
        named[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return named


def imported(path: Path, known: dict[str, Path]) -> set[str]:
    """Return the modules of ``topology`` that a file imports, in functions and for annotations, too."""
    found = set()
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}: relative import"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            if name == ROOT or name.startswith(ROOT + "."):
                inner = name.removeprefix(ROOT).removeprefix(".")
                found.add(inner if inner in known else inner.rpartition(".")[0])
    return found


def test_modules_of_the_api_import_of_the_runtime_only_what_the_contract_names():
    known = modules()
    used = {name: {i for i in imported(path, known) if i.split(".")[0] in RUNTIME} for name, path in known.items() if name.split(".")[0] not in RUNTIME}
    assert {name: found for name, found in used.items() if found} == CONTRACT


def test_imports_inside_functions_have_a_measured_reason():
    """Each saves a quarter of a second or more at start-up, or a package that clients need not have, as a comment says."""
    inside = {
        (name, alias.name)
        for name, path in modules().items()
        for function in ast.walk(tree_of(path))
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef))
        for node in ast.walk(function)
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for alias in node.names
    }
    assert inside == {
        ("builder", "cloudpickle"),
        ("groupings", "numpy"),
        ("planning.system", "Acker"),
        ("routing.java_hash", "_kernels"),
        ("planning.acker", "acker_kernels"),
        ("core.chunking", "find_borders"),
        ("runtime.stores.object_store", "S3FileSystem"),
    }


def test_every_package_is_the_api_or_the_runtime():
    assert {path.parent.name for path in TOPOLOGY.glob("*/__init__.py")} == {*RUNTIME, "flux", "streamparse"}


def test_no_import_leads_back_to_where_it_began():
    known = modules()
    edges = {name: imported(path, known) - {name} for name, path in known.items()}
    while free := [name for name, targets in edges.items() if not targets & edges.keys()]:
        for name in free:
            del edges[name]
    assert not edges, f"circles among {sorted(edges)}"


def test_packages_depend_on_each_other_one_way():
    """Each package imports only packages that precede it."""
    order = ["", "flux", "streamparse", *RUNTIME]
    known = modules()
    for name, path in known.items():
        package = name.split(".")[0] if name.split(".")[0] in order else ""
        for target in imported(path, known):
            other = target.split(".")[0] if target.split(".")[0] in order else ""
            if package in RUNTIME and other in RUNTIME:
                assert order.index(other) <= order.index(package), f"{name} imports {target}"


def test_rooms_of_the_runtime_depend_on_each_other_one_way():
    known = modules()
    rooms = {name: name.split(".")[1] for name, path in known.items() if name.startswith("runtime.")}
    assert set(rooms.values()) == set(ROOMS)
    back = [
        (name, target)
        for name, room in rooms.items()
        for target in imported(known[name], known) & rooms.keys()
        if ROOMS.index(rooms[target]) > ROOMS.index(room)
    ]
    assert not back


def test_only_the_runtime_on_spark_knows_spark_and_kafka():
    """The builder is an exception: it checks with PySpark's pickler that components can be pickled."""
    users = set()
    for name, path in modules().items():
        for node in ast.walk(tree_of(path)):
            found = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            if {module.split(".")[0] for module in found} & {"pyspark", "kafka"}:
                users.add(name)
    assert {name for name in users if not name.startswith("runtime.")} == {"builder"}
