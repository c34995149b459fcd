"""Files that somebody has left in the folder where an operator types a command: none of them is read or run."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dskype.deploy.machine import processes
from tests.sources import MODULES, name_of, text_of, tree_of
from tests.topology.runtime.helpers import alive, descendants
from tests.waiting import wait_for

ROOT = Path(__file__).parents[2]
PLANTED = ("argparse", "json", "msgpack", "multiprocessing", "numpy", "pandas", "pyspark", "selectors", "traceback", "yaml")


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """Return a folder with modules that write down who has imported them."""
    folder = tmp_path / "hostile"
    folder.mkdir()
    for name in PLANTED:
        (folder / f"{name}.py").write_text(
            f"import os, sys\nwith open({str(tmp_path / 'planted')!r}, 'a') as out:\n    out.write('{name} in ' + ' '.join(sys.orig_argv) + chr(10))\nos._exit(9)\n"
        )
    (folder / ".numba_config.yaml").write_text(f"disable_jit: 1\ncache_dir: {folder}/kernels\n")
    return folder


def ran(folder: Path) -> str:
    """Return what the planted modules have written."""
    written = folder.parent / "planted"
    return written.read_text() if written.exists() else ""


def dskype(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    options: dict[str, Any] = dict(capture_output=True, text=True, check=False, timeout=600)
    return subprocess.run([str(Path(sys.executable).with_name("dskype")), *arguments], cwd=cwd, **options)


def test_only_one_place_builds_the_command_of_a_child_with_our_python():
    others = {
        name_of(path): node.lineno
        for path in MODULES
        if "sys.executable" in text_of(path)
        for node in ast.walk(tree_of(path))
        if isinstance(node, (ast.List, ast.Tuple)) and "sys.executable" in map(ast.unparse, node.elts)
    }
    assert set(others) == {"deploy/machine/processes.py"}, others


@pytest.mark.parametrize(
    "file",
    ["deploy/kubernetes/executor.sh", "deploy/compose/Dockerfile", "deploy/compose/compose.yaml", "deploy/kubernetes/dskype/templates/driver.yaml", "Makefile"],
)
def test_scripts_and_containers_run_our_modules_without_the_working_folder(file):
    text = (ROOT / file).read_text()
    assert not re.findall(r"python3? (?:-c|-m dskype).*", "\n".join(line for line in text.splitlines() if not line.startswith("#")))


@pytest.mark.long
def test_a_module_is_run_without_the_working_folder(hostile):
    done = subprocess.run(processes.module_command("dskype.deploy", "version"), cwd=hostile, capture_output=True, text=True, check=False)
    assert (done.returncode, ran(hostile)) == (0, ""), done.stderr


@pytest.mark.long
def test_numbas_settings_in_the_working_folder_are_ignored(hostile):
    code = "import dskype.topology.kernel_cache, numba.core.config as c; print(c.DISABLE_JIT, c.CACHE_DIR)"
    environ = {**os.environ, "NUMBA_CACHE_DIR": "/there"}
    done = subprocess.run([sys.executable, "-P", "-c", code], cwd=hostile, env=environ, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("0 /there\n", "")


@pytest.mark.product
def test_local_runs_nothing_that_lies_in_the_working_folder(hostile):
    done = dskype("local", "-R", "wordcount.yaml", "--local-ttl", "8", "-q", cwd=hostile)
    assert done.returncode == 0 and "ACTIVE" in done.stdout + done.stderr, done
    assert ran(hostile) == ""
    assert not (hostile / "kernels").exists()


@pytest.mark.product
def test_a_service_and_a_detached_topology_run_nothing_that_lies_in_the_working_folder(hostile, tmp_path):
    folder = str(tmp_path / "service")
    started = dskype("up", "--folder", folder, "--port", "0", "--metrics-port", "0", "-q", cwd=hostile)
    try:
        assert (started.returncode, ran(hostile)) == (0, ""), started.stderr
        status = dskype("status", "--folder", folder, "-o", "json", cwd=hostile)
        assert status.returncode == 0, status
        service = json.loads(status.stdout)
        servers, tree = service["bootstrap_servers"], {service["pid"], *descendants(service["pid"])}
        submitted = dskype("submit", "-R", "wordcount.yaml", "--bootstrap-servers", servers, "--detach", "-q", cwd=hostile)
        assert (submitted.returncode, ran(hostile)) == (0, ""), submitted
        killed = dskype("kill", "wordcount", "-w", "0", "--bootstrap-servers", servers, cwd=hostile)
        assert killed.returncode == 0, killed
    finally:
        assert dskype("down", "--folder", folder, cwd=hostile).returncode == 0
    assert ran(hostile) == ""
    wait_for(lambda: not alive(tree), 30, "the end of the service's processes")
