"""What other packages keep for themselves is used in few modules, and with versions that these were read with.

A new version of such a package fails here, before it fails somewhere else: read what it has changed in what the modules below use, run their tests, and add it.
"""

from __future__ import annotations

import ast
from importlib.metadata import version

import pytest

from tests.sources import MODULES, name_of, tree_of

READ_WITH = {"numba": ("0.68.",), "llvmlite": ("0.50.",), "pyspark": ("4.2.0",), "kafka-python": ("3.0.",)}
"""Package -> beginnings of the versions whose insides the modules below are written for."""

INSIDES = ("numba.core", "numba.np", "pyspark.daemon", "pyspark.java_gateway", "pyspark.worker")
"""Modules that their packages do not document."""

ATTRIBUTES = {
    "_SubParsersAction": "argparse",
    "_active_spark_context": "pyspark",
    "_ensure_initialized": "pyspark",
    "_gateway": "pyspark",
    "_instantiatedSession": "pyspark",
    "_jsc": "pyspark",
    "_jvm": "pyspark",
    "_manager": "kafka",
}
"""Names of theirs that begin with an underscore -> the package."""

USERS = {
    "numba": {
        "bolts/boolean/lanes/_kernels.py",
        "bolts/boolean/lanes/address_kernels.py",
        "bolts/boolean/lanes/group_kernels.py",
        "bolts/boolean/lanes/instruction_kernels.py",
        "bolts/boolean/lanes/match_kernels.py",
        "bolts/boolean/lanes/vector_kernels.py",
        "deploy/cli/warmup.py",
        "topology/kernel_cache.py",
        "topology/kernel_parts.py",
    },
    "pyspark": {
        "deploy/machine/spark_classes.py",
        "topology/runtime/processes/daemon.py",
        "topology/runtime/spark/component_query.py",
        "topology/runtime/spark/session.py",
        "topology/runtime/spark/spark_executors.py",
    },
    "kafka": {"deploy/machine/doctor.py"},
}
"""Package -> the modules that use its insides. The lists only get shorter."""


def insides(tree: ast.Module) -> set[str]:
    """Return the packages whose insides a module uses."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in ATTRIBUTES and not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")):
            found.add(ATTRIBUTES[node.attr])
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            private = any(part.startswith("_") for part in (*node.module.split("."), *(alias.name for alias in node.names)) if not part.startswith("__"))
            if node.module.startswith(INSIDES) or (private and not node.module.startswith("dskype")):
                found.add(node.module.split(".")[0])
        elif isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names if alias.name.startswith(INSIDES)}
    return found


def test_only_few_modules_use_the_insides_of_other_packages():
    found: dict[str, set[str]] = {}
    for path in MODULES:
        if not (name := name_of(path)).startswith("deploy/lab/"):
            for package in insides(tree_of(path)):
                found.setdefault(package, set()).add(name)
    assert found == USERS


@pytest.mark.parametrize("package", sorted(READ_WITH))
def test_these_modules_were_read_with_the_version_that_is_installed(package):
    installed = version(package)
    assert installed.startswith(READ_WITH[package]), f"{package} {installed} is new: see the head of this file"
